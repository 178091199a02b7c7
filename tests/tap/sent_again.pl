# What a fault makes a worker send again is counted for each publication: nothing without a fault, and never less than came twice.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms', 'postbox.checkpoint_interval' => '100ms', 'postbox.time_scale' => 20,
	'postbox.lease_timeout' => '1h', 'deadlock_timeout' => '30ms', 'log_lock_waits' => 'on' });
$node->start;
# A database of each kind.
my @kinds = ('log', 'table');
for my $kind (@kinds)
{
	$node->safe_psql('postgres', qq{CREATE DATABASE "$kind"});
	create_outbox($node, $kind, kind => $kind);
}
my $emitted = 0;

sub configure
{
	my ($name, $value) = @_;
	set_configuration($node, $name, $value);
	return $node->reload;
}

sub emit_some
{
	my ($kind, $count) = @_;
	$emitted += $count;
	return emit($node, $kind, $count);
}

# When the count is stored, too: it goes with the results or the position.
sub all_is_confirmed
{
	my ($kind) = @_;
	return wait_until($node, $kind, q{SELECT pending = 0 AND state = 'active' FROM postbox.publication_status}, "$kind: all is confirmed");
}

# How much it grew since the function was called last: what the status of a publication says, and how many messages came twice.
my %before;
sub more
{
	my ($name, $now) = @_;
	my $more = $now - ($before{$name} // 0);
	$before{$name} = $now;
	return $more;
}
sub counted_again { my ($kind) = @_; return more($kind, $node->safe_psql($kind, 'SELECT sent_again_at_most FROM postbox.publication_status')); }
sub came_twice { return more('twice', messages_published($emulator) - $emitted); }

sub kill_worker
{
	my ($kind) = @_;
	my $worker = worker_pid($node, $kind);
	crash($node, $worker);
	set_configuration($node, 'postbox.failpoint', undef);
	return $node->reload;
}

subtest 'nothing is counted without a fault, also where workers come and go while events wait' => sub {
	for my $kind (@kinds)
	{
		emit_some($kind, 10);
		all_is_confirmed($kind);
		configure('postbox.publishers', 0);
		wait_workers($node, $kind, 0);
		emit_some($kind, 20);
		configure('postbox.publishers', 1);
		all_is_confirmed($kind);
		$node->safe_psql($kind, q{SELECT postbox.alter_publication('videos', max_attempts => 7)});
		emit_some($kind, 10);
		all_is_confirmed($kind);
	}
	$node->restart;
	for my $kind (@kinds)
	{
		emit_some($kind, 10);
		all_is_confirmed($kind);
		is(counted_again($kind), 0, "$kind: none was sent again");
		is($node->safe_psql($kind, 'SELECT sent_again_at IS NULL FROM postbox.publication_status'), 't', 'at no time');
	}
	is(came_twice(), 0, 'and none came twice');
};

subtest 'a request whose answer is lost' => sub {
	for my $kind (@kinds)
	{
		emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE,after-effect,count=2');
		emit_some($kind, 1);
		all_is_confirmed($kind);
		is(counted_again($kind), 2, "$kind: its event is sent again, twice");
		is(came_twice(), 2, 'so it comes three times');
		is($node->safe_psql($kind, q{SELECT sent_again_at > now() - interval '1 h' FROM postbox.publication_status}), 't', 'the status says when');
	}
};

subtest 'a request that is refused is sent again, and none of it comes twice' => sub {
	for my $kind (@kinds)
	{
		for my $code ('RESOURCE_EXHAUSTED', 'NOT_FOUND')
		{
			emulator_fault($emulator, "rpc=Publish,code=$code,count=2");
			emit_some($kind, 1);
			all_is_confirmed($kind);
		}
		is(counted_again($kind), 0, "$kind: that does not count");
	}
	is(came_twice(), 0, 'none came twice');
};

subtest 'a worker that is killed before it could store that events were sent' => sub {
	for my $kind (@kinds)
	{
		with_new_workers($node, $kind, 'postbox.failpoint', 'after_publish_before_mark=pause');
		my $position = log_position($node);
		emit_some($kind, 30);
		wait_for(sub { messages_published($emulator) - $emitted >= $before{twice} }, 'the broker has taken all events');
		wait_for(sub { log_since($node, $position) =~ /failpoint after_publish_before_mark: paused/ }, 'the worker has the first answer');
		kill_worker($kind);
		all_is_confirmed($kind);
		is(came_twice(), 30, "$kind: all came twice");
		is(counted_again($kind), 30, 'all are counted');
	}
};

subtest 'a worker that is killed when all is stored' => sub {
	for my $kind (@kinds)
	{
		# Workers commit without waiting for the disk, and killing one restarts the server: a commit that waits makes theirs last.
		$node->safe_psql('postgres', q{SELECT pg_logical_emit_message(true, 'test', '')});
		kill_worker($kind);
		wait_workers($node, $kind, 1);
		emit_some($kind, 10) for 1 .. 2;
		all_is_confirmed($kind);
		is(came_twice(), 0, "$kind: none comes twice");
		cmp_ok(counted_again($kind), '<=', 20, 'what is committed before the next worker has the lane may be counted');
		emit_some($kind, 10);
		all_is_confirmed($kind);
		is(counted_again($kind), 0, 'and nothing after that');
	}
};

subtest 'a lane of a log that begins at its stored position again' => sub {
	configure('postbox.checkpoint_interval', '60s');
	emit_some('log', 20);
	wait_for(sub { messages_published($emulator) - $emitted >= $before{twice} }, 'the events are sent');
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,count=1');
	my $session = $node->background_psql('log');
	$session->query_safe('BEGIN; LOCK TABLE app.outbox_parked IN ACCESS EXCLUSIVE MODE');
	my $position = log_position($node);
	emit_some('log', 1);
	wait_for(sub { log_since($node, $position) =~ /postbox publisher.*still waiting for/ }, 'the worker waits for the lock');
	wait_for(sub { log_since($node, $position) =~ /events are sent again/ }, 'and gives up what it knew');
	$session->query_safe('COMMIT');
	$session->quit;
	configure('postbox.checkpoint_interval', '100ms');
	all_is_confirmed('log');
	my ($twice, $counted) = (came_twice(), counted_again('log'));
	cmp_ok($twice, '>', 0, 'events come twice');
	cmp_ok($counted, '>=', $twice, 'no fewer are counted');
	cmp_ok($counted, '<=', 42, 'and not more than had been read');
};

subtest 'DDL on a log while its position is not stored sends nothing again' => sub {
	configure('postbox.checkpoint_interval', '60s');
	$node->safe_psql('log', 'CREATE ROLE heir; GRANT ALL ON SCHEMA app TO heir');
	for my $ddl ('ADD COLUMN note text', 'RENAME TO renamed', 'RENAME TO outbox', 'DROP COLUMN note', 'REPLICA IDENTITY FULL', 'OWNER TO heir')
	{
		my $name = $ddl eq 'RENAME TO outbox' ? 'renamed' : 'outbox';
		emit_some('log', 5);
		wait_for(sub { messages_published($emulator) - $emitted >= $before{twice} }, 'the events are sent');
		$node->safe_psql('log', "ALTER TABLE app.$name $ddl");
		$node->safe_psql('log', q{SELECT postbox.outbox_emit('video', 'after', 'video.changed', '{}'::jsonb)});
		$emitted++;
		wait_for(sub { messages_published($emulator) - $emitted >= $before{twice} }, 'so is the next one');
	}
	configure('postbox.checkpoint_interval', '100ms');
	all_is_confirmed('log');
	is(came_twice(), 0, 'none came twice');
	is(counted_again('log'), 0, 'and none is counted');
};

subtest 'a lease of a row that runs out' => sub {
	$node->safe_psql('table', q{
		BEGIN;
		SELECT postbox.outbox_emit('video', 'dead', 'video.changed', '{}'::jsonb), postbox.outbox_emit('video', 'dead', 'video.changed', '{}'::jsonb);
		UPDATE app.outbox SET lock_token = 'postbox-00000000000000aa', locked_at = now() WHERE aggregate_id = 'dead';
		COMMIT;
	});
	$emitted += 2;
	all_is_confirmed('table');
	wait_until($node, 'table', "SELECT sent_again_at_most = $before{table} + 2 FROM postbox.publication_status", 'its rows may have been sent');
};

subtest 'lanes that are merged keep what they have counted' => sub {
	my $count = $node->safe_psql('log', 'SELECT sent_again_at_most FROM postbox.publication_status');
	for my $lanes (4, 1)
	{
		$node->safe_psql('log', "SELECT postbox.alter_publication('videos', lanes => $lanes)");
		wait_until($node, 'log', q{SELECT lanes = } . $lanes . q{ AND wanted_lanes IS NULL FROM postbox.publication}, "it has $lanes lanes");
		$node->safe_psql('log', 'UPDATE postbox.lane SET sent_again = 5 WHERE slice = 3');
	}
	is($node->safe_psql('log', 'SELECT (SELECT sum(sent_again) FROM postbox.lane) + (SELECT sum(sent_again) FROM postbox.publication_state)'), $count + 5, 'all of it is there');
};

subtest 'lanes are divided also of a publication without a state' => sub {
	$node->safe_psql('log', 'DELETE FROM postbox.publication_state');
	$node->safe_psql('log', q{SELECT postbox.alter_publication('videos', lanes => 2)});
	wait_until($node, 'log', q{SELECT lanes = 2 AND wanted_lanes IS NULL FROM postbox.publication}, 'it has 2 lanes');
};

$node->stop;
done_testing();
