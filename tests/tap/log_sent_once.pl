# A step on a log that fails has sent nothing twice: what it had read is read again, and what is on its way or published is not. Only where
# the database may not know what memory knows does the lane begin at its stored position again, and the log says so.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
# The stored position stays behind. A wait for a lock shows in the log before the worker gives it up.
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms', 'postbox.checkpoint_interval' => '60s', 'postbox.time_scale' => 20,
	'deadlock_timeout' => '30ms', 'log_lock_waits' => 'on' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
my $sent = 0;

sub publish_some
{
	my ($count) = @_;
	emit($node, 'postgres', $count);
	$sent += $count;
	return wait_for(sub { (messages_published($emulator) // 0) >= $sent }, "$sent events are sent");
}

sub emit_one
{
	my ($key) = @_;
	return $node->safe_psql('postgres', "SELECT postbox.outbox_emit('video', '$key', 'video.created', '{}'::jsonb)");
}

# How often. What is published counts as pending until then.
sub store_positions
{
	my ($interval) = @_;
	set_configuration($node, 'postbox.checkpoint_interval', $interval);
	return $node->reload;
}

# Reads of the log wait for its lock, and emitters do not.
sub empty_partition
{
	return $node->safe_psql('postgres', q{SELECT min(relid::text) FROM pg_partition_tree('app.outbox') WHERE isleaf AND pg_relation_size(relid) = 0});
}

# Until the session ends, the worker waits for what it has locked, again and again.
sub in_the_way
{
	my ($lock, $meanwhile) = @_;
	my $session = $node->background_psql('postgres');
	$session->query_safe("BEGIN; $lock");
	my $position = log_position($node);
	$meanwhile->();
	wait_for(sub { (() = log_since($node, $position) =~ /postbox publisher.*still waiting for/g) >= 2 }, 'the worker has tried twice');
	$session->query_safe('COMMIT');
	$session->quit;
	return;
}

sub is_sent_once
{
	my ($what) = @_;
	wait_until($node, 'postgres', q{SELECT pending = 0 AND state = 'active' FROM postbox.publication_status}, 'all is confirmed');
	return is(messages_published($emulator), $sent, $what);
}

subtest 'a read that waits too long for a lock' => sub {
	publish_some(100);
	in_the_way("LOCK TABLE @{[ empty_partition() ]} IN ACCESS EXCLUSIVE MODE", sub { emit($node, 'postgres', 10); });
	$sent += 10;
	wait_for(sub { messages_published($emulator) >= $sent }, 'what came meanwhile is sent');
	store_positions('100ms');
	is_sent_once('each event is sent once');
};

subtest 'a position that cannot be stored, since a session alters the publication for long' => sub {
	in_the_way('SELECT FROM postbox.lane FOR UPDATE', sub { publish_some(10); });
	publish_some(10);
	is_sent_once('each event is sent once');
};

subtest 'a parked event that is on its way when a read waits too long' => sub {
	my $key = 'ordering-key=parked';
	emulator_fault($emulator, "rpc=Publish,$key,code=INVALID_ARGUMENT,count=1");
	emit_one('parked');
	wait_until($node, 'postgres', 'SELECT count(*) = 1 FROM app.outbox_parked', 'it is parked');
	emulator_fault($emulator, "rpc=Publish,$key,latency-ms=2000,after-effect,count=1");
	$node->safe_psql('postgres', q{SELECT postbox.redrive('app.outbox')});
	wait_for(sub { messages_published($emulator) >= $sent + 1 }, 'it is sent, and has no answer');
	$sent++;
	in_the_way("LOCK TABLE @{[ empty_partition() ]} IN ACCESS EXCLUSIVE MODE", sub { emit($node, 'postgres', 10); });
	$sent += 10;
	publish_some(1);
	is_sent_once('each event is sent once');
};

subtest 'events that failed, whose key is paused when they are tried again, and that cannot be put aside then' => sub {
	store_positions('100ms');
	set_configuration($node, 'postbox.maintenance_interval', '1s');
	$node->reload;
	emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND');
	emit_one('late') for 1 .. 2;
	wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status}, 'they have failed');
	# Its owner parks an earlier event of their key. The worker cannot read which keys have one, so it does before it claims again; from
	# then on it cannot write.
	my $other;
	in_the_way(q{
		LOCK TABLE app.outbox_parked IN ACCESS EXCLUSIVE MODE;
		INSERT INTO app.outbox_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, publish_attempts, next_retry_at)
		SELECT 'videos', seq - 1, '550e8400-e29b-41d4-a716-446655440000', aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, 9, 'infinity'
		FROM app.outbox WHERE aggregate_id = 'late' ORDER BY seq LIMIT 1},
		sub {
			$other = IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres') . ' application_name=in_the_way',
				map { ('-c', $_) } 'BEGIN', 'LOCK TABLE app.outbox_parked IN SHARE MODE', 'SELECT pg_sleep(100000)' ]);
			wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'app.outbox_parked'::regclass AND mode = 'ShareLock'}, 'another session waits to lock it');
		});
	my $position = log_position($node);
	emulator_fault($emulator, '--clear');
	wait_for(sub { (() = log_since($node, $position) =~ /postbox publisher.*still waiting for RowExclusiveLock/g) >= 1 }, 'the worker tries to put them aside');
	wait_until($node, 'postgres', q{SELECT NOT EXISTS (SELECT FROM pg_locks WHERE relation = 'app.outbox_parked'::regclass AND NOT granted)}, 'and gives up');
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'in_the_way'});
	$other->finish;
	wait_until($node, 'postgres', q{SELECT count(*) = 3 FROM app.outbox_parked}, 'they are put aside when the table can be written');
	$node->safe_psql('postgres', q{SELECT postbox.discard('app.outbox', '550e8400-e29b-41d4-a716-446655440000')});
	$sent += 2;
	wait_for(sub { messages_published($emulator) >= $sent }, 'and sent when their key goes on');
	is_sent_once('once');
};

subtest 'a refused event that cannot be put aside' => sub {
	store_positions('60s');
	publish_some(20);
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,count=1');
	my $position = log_position($node);
	in_the_way('LOCK TABLE app.outbox_parked IN ACCESS EXCLUSIVE MODE', sub { emit($node, 'postgres', 1); });
	store_positions('100ms');
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status}, 'it is published in the end');
	like(log_since($node, $position), qr/publication "videos": lane 0 restarts at its stored position; up to \d+ events are sent again: /, 'the log says what is sent again, and why');
};

$node->stop;
done_testing();
