# The position of a log outbox survives what a database goes through: a crash that loses commits, a promotion,
# a restore into another cluster.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my %settings = ('postbox.poll_interval' => '50ms', 'postbox.checkpoint_interval' => '50ms');

sub wait_read
{
	my ($node, $what) = @_;
	return wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', $what);
}

# What the topic has seen, by a follower in a database of its own.
my $reader = do {
	# It and the primary may be copies of the same cluster.
	local $ENV{POSTBOX_CLUSTER_TEMPLATE} = $ENV{POSTBOX_CLUSTER_TEMPLATE};
	new_node('reader', emulator => $emulator, settings => { 'postbox.publishers' => 0 });
};
$reader->start;
$reader->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE SCHEMA app');
follow($reader, 'postgres', 'catalog.video.events.test-follower', 'video.created');
my $puller = start_puller($reader, 'postgres', $emulator);

sub seen { return $reader->safe_psql('postgres', q{SELECT string_agg(aggregate_id || ':' || version, ' ' ORDER BY aggregate_id, version) FROM app.seen}); }

sub events
{
	my ($node) = @_;
	return $node->safe_psql('postgres', q{SELECT string_agg(aggregate_id || ':' || version, ' ' ORDER BY aggregate_id, version) FROM app.outbox});
}

my $primary = new_node('primary', emulator => $emulator, allows_streaming => 1, settings => \%settings);
$primary->append_conf('postgresql.conf', 'fsync = on');
$primary->start;
create_outbox($primary, 'postgres', kind => 'log');

subtest 'with synchronous_commit = off no event that was published is missing after a crash' => sub {
	for my $round (1 .. 3)
	{
		$primary->safe_psql('postgres', 'SET synchronous_commit = off; ' . "SELECT postbox.outbox_emit('video', 'async-$round', 'video.created', '{}'::jsonb); " x 10);
		my $count = 10 * $round;
		wait_until($reader, 'postgres', "SELECT count(*) >= 1 + 10 * ($round - 1) FROM app.seen", 'some are published');
		$primary->stop('immediate');
		$primary->start;
		wait_read($primary, 'all that is left is published');
		my %there = map { $_ => 1 } split / /, events($primary);
		my @missing = grep { !$there{$_} } split / /, seen();
		is("@missing", '', 'what was published is in the table');
		# What the crash took was never sent; its versions are given again.
		wait_for(sub { seen() eq events($primary) }, 'and what is in the table was published');
		last if keys(%there) > $count;
	}
};

subtest 'a promoted standby goes on where the primary was' => sub {
	$primary->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($primary, 'backup', has_streaming => 1);
	$standby->start;
	emit($primary, 'postgres', 20);
	wait_read($primary, 'the primary has published');
	$primary->append_conf('postgresql.conf', 'postbox.publishers = 0');
	$primary->reload;
	wait_workers($primary, 'postgres', 0);
	my $before = messages_published($emulator);
	emit($primary, 'postgres', 5);
	$primary->wait_for_catchup($standby);
	$primary->stop;
	$standby->promote;
	wait_read($standby, 'the new primary has published');
	wait_for(sub { seen() eq events($standby) }, 'everything has arrived');
	is(messages_published($emulator), $before + 5, 'and nothing was sent twice');
	$primary = $standby;
};

subtest 'a restore into another cluster publishes what the old one had not' => sub {
	my $held = $primary->background_psql('postgres');
	$held->query_safe(q{BEGIN; SELECT postbox.outbox_emit('video', 'held', 'video.created', '{}'::jsonb)});
	emit($primary, 'postgres', 5);
	wait_read($primary, 'published around the open transaction');
	wait_until($primary, 'postgres', q{SELECT hwm >= (SELECT max(seq) FROM app.outbox) FROM postbox.lane}, 'the position is stored');
	$primary->append_conf('postgresql.conf', 'postbox.publishers = 0');
	$primary->reload;
	wait_workers($primary, 'postgres', 0);
	# Late and new at the same time.
	$held->query_safe('COMMIT');
	$held->quit;
	emit($primary, 'postgres', 7);
	my $before = messages_published($emulator);
	my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
	$primary->command_ok([ 'pg_dump', '-d', $primary->connstr('postgres'), '-f', $dump ], 'dump');
	my $expected = events($primary);
	$primary->stop;

	my $other = new_node('other', emulator => $emulator, settings => \%settings);
	$other->start;
	# Its transaction ids are behind those in the dump.
	$other->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $other->connstr('postgres'), '-f', $dump ], 'restore');
	wait_until($other, 'postgres', q{SELECT count(*) = 1 FROM postbox.lane WHERE system_identifier = (SELECT system_identifier FROM pg_control_system())}, 'the lane is re-based');
	wait_read($other, 'all is published');
	is(events($other), $expected, 'the events are those of the dump');
	emit($other, 'postgres', 3);
	wait_for(sub { seen() eq events($other) }, 'everything has arrived, old and new');
	is(messages_published($emulator), $before + 8 + 3, 'and nothing was sent twice');
	my $log = log_since($other, 0);
	like($log, qr/has events of another cluster; 8 that were not published there are published here/, 'the log says so');
	$other->stop;
};

stop_puller($puller);
$reader->stop;
done_testing();
