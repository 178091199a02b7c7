# A log goes to another cluster and comes back. What was published in either is not sent again, what was not is sent once.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Restore;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator();
my $file = PostgreSQL::Test::Utils::tempdir() . '/dump';
my %node = map { $_ => new_node($_, emulator => $emulator, settings => { %settings, 'postbox.publishers' => 1 }) } 'one', 'two';
$_->start for values %node;
take_xids($node{two}, 2000);

sub all_sent
{
	my ($name, $database, $total, $what) = @_;
	wait_for(sub { messages_published($emulator) >= $total }, "$what: all is sent");
	wait_until($node{$name}, $database, 'SELECT pending = 0 FROM postbox.publication_status', 'nothing is pending');
	emit_into($node{$name}, $database, 'app', 1);
	wait_for(sub { messages_published($emulator) > $total }, 'and one more');
	wait_until($node{$name}, $database, 'SELECT pending = 0 FROM postbox.publication_status', 'nothing is pending');
	sent_once($emulator, $node{$name}, $total + 1, 'each once');
	return;
}

# Emits 3 events that are not published any more, and takes a dump.
sub leave
{
	my ($name, $database) = @_;
	$node{$name}->append_conf('postgresql.conf', 'postbox.publishers = 0');
	$node{$name}->reload;
	wait_workers($node{$name}, $database, 0);
	emit_into($node{$name}, $database, 'app', 3);
	$node{$name}->command_ok([ 'pg_dump', '-f', $file, '-d', $node{$name}->connstr($database) ], "a dump of cluster $name");
	$node{$name}->append_conf('postgresql.conf', 'postbox.publishers = 1');
	$node{$name}->safe_psql('postgres', "ALTER DATABASE $database RENAME TO ${database}_left; UPDATE pg_database SET datallowconn = false WHERE datname = '${database}_left'");
	$node{$name}->reload;
	return;
}

sub come
{
	my ($name, $database) = @_;
	$node{$name}->safe_psql('postgres', "CREATE DATABASE $database");
	$node{$name}->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node{$name}->connstr($database), '-f', $file ], "it is loaded into cluster $name");
	return;
}

$node{one}->safe_psql('postgres', 'CREATE DATABASE first');
$node{one}->safe_psql('first', "CREATE EXTENSION postbox; CREATE SCHEMA app; SELECT postbox.create_outbox('app.outbox', 'log'); SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events', lanes => 2)");
emit_into($node{one}, 'first', 'app', 20);
all_sent('one', 'first', 20, 'in the first cluster');
leave('one', 'first');

come('two', 'second');
all_sent('two', 'second', 24, 'in the second');
emit_into($node{two}, 'second', 'app', 10);
all_sent('two', 'second', 35, 'in the second');
# The position of a merged lane says of the other cluster only that all was read.
$node{two}->safe_psql('second', "SELECT postbox.alter_publication('videos', lanes => 1)");
wait_until($node{two}, 'second', "SELECT lanes = 1 FROM postbox.publication WHERE name = 'videos'", 'the lanes are merged');
leave('two', 'second');

come('one', 'third');
all_sent('one', 'third', 39, 'in the first again');
# So does that of a publication that begins now.
$node{one}->safe_psql('third', "SELECT postbox.create_publication('late', 'app.outbox', 'catalog.video.events', start => 'now'); SELECT postbox.drop_publication('videos')");
leave('one', 'third');

come('two', 'fourth');
all_sent('two', 'fourth', 43, 'in the second again');

done_testing();
