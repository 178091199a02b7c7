# A database has its own number of publishers: ALTER DATABASE ... SET postbox.publishers.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '1s' });
$node->start;
for my $database ('busy', 'quiet')
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	# One for each of three workers: with four, two workers may have two each, and the third none.
	create_outbox($node, $database, kind => 'log', lanes => 3);
	wait_workers($node, $database, 1);
}

sub set_publishers { my ($database, $value) = @_; $node->safe_psql('postgres', "ALTER DATABASE $database " . (defined $value ? "SET postbox.publishers = $value" : 'RESET postbox.publishers')); return; }
sub set_server { my ($value) = @_; $node->append_conf("postgresql.conf", "postbox.publishers = $value"); $node->reload; return; }
sub wait_empty { my ($database) = @_; emit($node, $database, 20); return wait_until($node, $database, 'SELECT pending = 0 FROM postbox.publication_status', "$database publishes"); }

subtest 'a database gets as many workers as it is set to, and another one as before' => sub {
	set_publishers('busy', 3);
	wait_workers($node, 'busy', 3);
	wait_workers($node, 'quiet', 1);
	wait_empty($_) for 'busy', 'quiet';
	wait_until($node, 'busy', 'SELECT count(DISTINCT lock_token) = 3 FROM postbox.lane', 'they share its lanes');
	set_publishers('busy', 2);
	wait_workers($node, 'busy', 2);
};

subtest 'with 0 it has none, its state says so, and RESET brings them back' => sub {
	set_publishers('busy', 0);
	wait_workers($node, 'busy', 0);
	emit($node, 'busy', 5);
	is($node->safe_psql('busy', q{SELECT state, pending, last_error ~ 'postbox.publishers is 0' FROM postbox.publication_status}), 'unserved|5|t', 'events wait');
	wait_empty('quiet');
	set_publishers('busy', undef);
	wait_workers($node, 'busy', 1);
	wait_empty('busy');
};

subtest 'it holds whatever the server is set to' => sub {
	set_publishers('busy', 2);
	wait_workers($node, 'busy', 2);
	set_server(3);
	wait_workers($node, 'quiet', 3);
	wait_workers($node, 'busy', 2);
	set_server(0);
	wait_workers($node, 'quiet', 0);
	wait_workers($node, 'busy', 2);
	wait_empty('busy');
	$node->restart;
	wait_workers($node, 'busy', 2, 'also after a restart');
	wait_workers($node, 'quiet', 0);
	set_publishers('quiet', 1);
	wait_workers($node, 'quiet', 1, 'one that had none gets one');
	wait_empty('quiet');
};

subtest 'also if the server is set to 0 before a worker has said what the database is set to' => sub {
	for my $round (1 .. 3)
	{
		set_publishers($_, undef) for 'busy', 'quiet';
		set_server(1);
		wait_workers($node, $_, 1) for 'busy', 'quiet';
		set_publishers('busy', 1);
		set_server(0);
		wait_workers($node, 'quiet', 0);
		wait_workers($node, 'busy', 1, "round $round: its own value counts");
		wait_empty('busy');
	}
};

subtest 'what restarts no worker leaves their number as it is when one of them ends' => sub {
	set_publishers('quiet', undef);
	set_publishers('busy', 2);
	wait_workers($node, 'busy', 2);
	$node->safe_psql('busy', 'CREATE TABLE extra (); ALTER EXTENSION postbox ADD TABLE extra; ALTER EXTENSION postbox DROP TABLE extra');
	my $workers = q{FROM postbox.workers WHERE database = 'busy' AND state = 'running'};
	for my $ordinal (1, 0)
	{
		wait_until($node, 'busy', "SELECT count(*) = 2 $workers", 'both run');
		my ($ends, $stays) = map { $node->safe_psql('busy', "SELECT pid $workers AND ordinal = $_") } $ordinal, 1 - $ordinal;
		$node->safe_psql('busy', "SELECT pg_terminate_backend($ends, 20000)");
		wait_until($node, 'busy', "SELECT count(*) = 2 AND bool_and(pid <> $ends) $workers", "another one comes for number $ordinal");
		is($node->safe_psql('busy', "SELECT count(*) $workers AND pid = $stays"), '1', 'and the other one has stayed');
	}
	wait_empty('busy');
};

subtest 'only a superuser sets it' => sub {
	$node->safe_psql('postgres', 'CREATE ROLE owner LOGIN; ALTER DATABASE quiet OWNER TO owner');
	my ($status, undef, $error) = $node->psql('postgres', 'SET ROLE owner; ALTER DATABASE quiet SET postbox.publishers = 9');
	isnt($status, 0, 'the owner of the database does not');
	like($error, qr/permission denied to set parameter "postbox.publishers"/, 'and is told');
};

$node->stop;
done_testing();
