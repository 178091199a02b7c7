# SIGHUP changes settings (design.md, section 7).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator);
$node->start;
create_outbox($node, 'postgres');
emit($node, 'postgres', 5);
wait_published($node, 'postgres', 5);

sub set
{
	my ($name, $value) = @_;
	$node->append_conf('postgresql.conf', "$name = '$value'");
	$node->reload;
	return;
}

subtest 'postbox.publishers starts and stops workers' => sub {
	set('postbox.publishers', 3);
	wait_workers($node, 'postgres', 3);
	wait_until($node, 'postgres', "SELECT array_agg(ordinal ORDER BY ordinal) = '{0,1,2}' AND count(DISTINCT lock_token) = 3 FROM postbox.workers WHERE state = 'running'", 'each is another one');
	emit($node, 'postgres', 50);
	wait_published($node, 'postgres', 55);
	set('postbox.publishers', 1);
	wait_workers($node, 'postgres', 1);
};

subtest 'with postbox.publishers = 0 events wait, and leave when it is raised again' => sub {
	set('postbox.publishers', 0);
	wait_workers($node, 'postgres', 0);
	emit($node, 'postgres', 5);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE published_at IS NULL'), '5', 'nobody publishes');
	set('postbox.publishers', 1);
	wait_published($node, 'postgres', 60);
};

subtest 'postbox.endpoint takes effect in the running worker' => sub {
	my $other = start_emulator();
	wait_workers($node, 'postgres', 1);
	set('postbox.endpoint', $other->{endpoint});
	stop_emulator($emulator);
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 65);
};

subtest 'a value that makes no sense is refused, and the workers go on with the old one' => sub {
	my $position = log_position($node);
	set('postbox.publishers', 'many');
	wait_for(sub { log_since($node, $position) =~ /invalid value for parameter "postbox.publishers"/ }, 'the log says so');
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 70);
};

$node->stop;
done_testing();
