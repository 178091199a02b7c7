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

subtest 'a refused event that cannot be put aside' => sub {
	store_positions('60s');
	publish_some(20);
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,count=1');
	my $position = log_position($node);
	in_the_way('LOCK TABLE app.outbox_parked IN ACCESS EXCLUSIVE MODE', sub { emit($node, 'postgres', 1); });
	store_positions('100ms');
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status}, 'it is published in the end');
	like(log_since($node, $position), qr/publication "videos": lane 0 begins at its stored position again, up to \d+ events are sent again: /, 'the log says what is sent again, and why');
};

$node->stop;
done_testing();
