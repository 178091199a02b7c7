# Events that a worker claimed and did not settle: another worker takes them over when the first one is
# gone, or when the lease is older than postbox.lease_timeout.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'postbox.lease_timeout' => '1h', 'postbox.time_scale' => 20 });
$node->append_conf('postgresql.conf', "postbox.failpoint = 'after_claim=pause'");
$node->start;
create_outbox($node, 'postgres');

sub published { return $node->safe_psql('postgres', 'SELECT count(published_at) FROM app.outbox'); }

subtest 'a worker killed after its claim: nothing was sent, and the next worker publishes it' => sub {
	emit($node, 'postgres', 10);
	wait_until($node, 'postgres', 'SELECT count(*) > 0 AND count(*) = count(lock_token) FROM app.outbox', 'the events are claimed');
	is(messages_published($emulator), 0, 'and nothing is sent');
	my $worker = worker_pid($node, 'postgres');
	my $token = $node->safe_psql('postgres', 'SELECT DISTINCT lock_token FROM app.outbox');
	like($token, qr/^postbox-[0-9a-f]{16}$/, 'the lease names the worker');
	my $position = log_position($node);
	crash($node, $worker);
	set_configuration($node, 'postbox.failpoint', undef);
	$node->reload;
	wait_published($node, 'postgres', 10);
	like(log_since($node, $position), qr/took over 10 events whose worker has ended/, 'they were taken over');
	is(messages_published($emulator), 10, 'each was sent once');
};

subtest 'a worker takes over nothing that it has in hand itself, whatever the clock says' => sub {
	my ($sent, $count) = (messages_published($emulator), published());
	my $position = log_position($node);
	emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=3000,count=1');    # three looks for old leases
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'slow answer', 'video.changed', '{}'::jsonb)});
	wait_until($node, 'postgres', q{SELECT lock_token IS NOT NULL FROM app.outbox WHERE aggregate_id = 'slow answer'}, 'it is claimed');
	$node->safe_psql('postgres', q{UPDATE app.outbox SET locked_at = now() - interval '1 day' WHERE aggregate_id = 'slow answer' AND lock_token IS NOT NULL});
	wait_published($node, 'postgres', $count + 1);
	is(messages_published($emulator), $sent + 1, 'it is sent once');
	unlike(log_since($node, $position), qr/took over \d+ events with a lease of this worker/, 'without a take-over');
};

# Old leases are looked for four times in this time, which is a fifth of it here.
set_configuration($node, 'postbox.lease_timeout', '10s');
$node->reload;

subtest 'a lease is taken over when its worker does not live, at whatever age' => sub {
	$node->safe_psql(
		'postgres', q{
		BEGIN;
		SELECT postbox.outbox_emit('video', 'dead', 'video.changed', '{}'::jsonb), postbox.outbox_emit('video', 'dead', 'video.changed', '{}'::jsonb);
		UPDATE app.outbox SET lock_token = 'postbox-00000000000000aa', locked_at = now() + interval '1 hour' WHERE aggregate_id = 'dead';
		COMMIT;
	});
	wait_published($node, 'postgres', 13);
};

subtest 'the lease of a publisher that is not ours holds its key until it times out' => sub {
	$node->safe_psql(
		'postgres', q{
		BEGIN;
		SELECT postbox.outbox_emit('video', 'foreign', 'video.changed', '{}'::jsonb);
		UPDATE app.outbox SET lock_token = 'somebody', locked_at = now() + interval '1 day' WHERE aggregate_id = 'foreign';
		SELECT postbox.outbox_emit('video', 'foreign', 'video.changed', '{}'::jsonb);
		SELECT postbox.outbox_emit('video', 'free', 'video.changed', '{}'::jsonb);
		SELECT postbox.outbox_emit('video', 'gone', 'video.changed', '{}'::jsonb);
		UPDATE app.outbox SET lock_token = 'postbox-00000000000000ab', locked_at = now() + interval '1 hour' WHERE aggregate_id = 'gone';
		COMMIT;
	});
	wait_until($node, 'postgres', q{SELECT count(published_at) = 2 FROM app.outbox WHERE aggregate_id IN ('free', 'gone')}, 'another key is published, and so is one whose lease was looked at');
	is(states($node, 'postgres', 'foreign'), 'inflight pending', 'this one waits');
	my $position = log_position($node);
	$node->safe_psql('postgres', q{UPDATE app.outbox SET locked_at = now() - interval '1 day' WHERE lock_token = 'somebody'});
	wait_published($node, 'postgres', 17);
	like(log_since($node, $position), qr/took over 1 events whose lease is older than postbox.lease_timeout, or has no valid time/, 'the log says why it was taken over');
};

subtest 'a lease is found behind any number of rows that wait for their key' => sub {
	$node->safe_psql(
		'postgres', q{
		BEGIN;
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), 'video', CASE n WHEN 12001 THEN 'far' ELSE 'many' END, 'video.changed', n, '{}' FROM generate_series(1, 12001) AS n;
		UPDATE app.outbox SET lock_token = 'somebody', locked_at = now() + interval '1 day' WHERE aggregate_id = 'many' AND version = 1;
		UPDATE app.outbox SET lock_token = 'postbox-00000000000000ac', locked_at = now() + interval '1 hour' WHERE aggregate_id = 'far';
		COMMIT;
	});
	wait_until($node, 'postgres', q{SELECT published_at IS NOT NULL FROM app.outbox WHERE aggregate_id = 'far'}, 'it is taken over');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.outbox WHERE aggregate_id = 'many' AND published_at IS NULL}), 12000, 'while the others wait');
	$node->safe_psql('postgres', q{DELETE FROM app.outbox WHERE aggregate_id IN ('many', 'far')});
};

subtest 'a lease without a time that means something is none, whoever it names' => sub {
	my $count = published();
	my $position = log_position($node);
	$node->safe_psql(
		'postgres', q{
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, lock_token, locked_at, next_retry_at)
		SELECT gen_random_uuid(), 'video', 'timeless ' || n || token, 'video.changed', n, '{}', token, at::timestamptz, retry::timestamptz
		FROM (SELECT 'somebody' UNION ALL SELECT w.lock_token FROM postbox.workers w) AS t(token)
			CROSS JOIN (VALUES (1, NULL, NULL), (2, 'infinity', NULL), (3, '9999-01-01', NULL), (4, NULL, '-infinity'), (5, NULL, 'yesterday')) AS v(n, at, retry);
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, next_retry_at)
		VALUES (gen_random_uuid(), 'video', 'marked', 'video.changed', 1, '{}', '-infinity');
	});
	wait_published($node, 'postgres', $count + 11);
	like(log_since($node, $position), qr/took over 5 events with a lease of this worker that it no longer tracks/, 'the log says so of those of the worker');
};

subtest 'a worker gives back what stands under its token and it does not know of' => sub {
	my $count = published();
	$node->safe_psql(
		'postgres', q{
		BEGIN;
		SELECT postbox.outbox_emit('video', 'forgotten', 'video.changed', '{}'::jsonb), postbox.outbox_emit('video', 'forgotten', 'video.changed', '{}'::jsonb);
		UPDATE app.outbox SET lock_token = w.lock_token, locked_at = now() - interval '1 day' FROM postbox.workers w WHERE aggregate_id = 'forgotten';
		COMMIT;
	});
	wait_published($node, 'postgres', $count + 2);
};

subtest 'rows of a key that wait for ever under the lease of a worker that is gone go on together' => sub {
	my $count = published();
	my $begin = time;
	set_configuration($node, 'postbox.maintenance_interval', '1s');
	$node->reload;
	$node->safe_psql(
		'postgres', q{
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, lock_token, locked_at, next_retry_at)
		SELECT gen_random_uuid(), 'video', 'waits for ever', 'video.changed', n, '{}', 'postbox-00000000000000ad', now() + interval '1 hour', 'infinity' FROM generate_series(1, 60) n;
	});
	wait_published($node, 'postgres', $count + 60);
	# One after the other they would take two rounds each, of a second.
	cmp_ok(time - $begin, '<', 60, 'in a few rounds');
};

subtest 'a lock token in a row that waits for ever means nothing' => sub {
	my $count = published();
	$node->safe_psql(
		'postgres', q{
		SELECT postbox.alter_publication('videos', on_failure => 'park_event');
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, lock_token, locked_at, next_retry_at, publish_attempts, last_error)
		VALUES (gen_random_uuid(), 'video', 'failed', 'video.changed', 1, '{}', NULL, NULL, 'infinity', 5, 'it failed'),
			(gen_random_uuid(), 'video', 'failed', 'video.changed', 2, '{}', 'postbox-00000000000000ad', now(), 'infinity', 0, NULL),
			(gen_random_uuid(), 'video', 'failed', 'video.changed', 3, '{}', NULL, NULL, NULL, 0, NULL),
			(gen_random_uuid(), 'video', 'given up', 'video.changed', 1, '{}', 'somebody', now() + interval '20 hours', 'infinity', 5, 'it failed');
	});
	wait_until($node, 'postgres', q{SELECT count(published_at) = 2 FROM app.outbox WHERE aggregate_id = 'failed' AND version > 1}, 'what follows a failed event goes out');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', on_failure => 'park_key')});
	is($node->safe_psql('postgres', q{SELECT string_agg(aggregate_id, ', ' ORDER BY 1) FROM postbox.paused_keys}), 'failed, given up', 'the failed ones pause their keys');
	is($node->safe_psql('postgres', q{SELECT postbox.discard('app.outbox', id) FROM app.outbox WHERE aggregate_id = 'given up'}), 't', 'one is given up');
	is($node->safe_psql('postgres', q{SELECT postbox.redrive('app.outbox')}), '1', 'the other one is redriven');
	wait_until($node, 'postgres', q{SELECT count(*) = count(published_at) FROM app.outbox}, 'and goes out');
};

subtest 'rows that somebody has marked as leased for long hide no leases of workers that are gone' => sub {
	# As many as one look takes, and more.
	$node->safe_psql(
		'postgres', q{
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, lock_token, locked_at, next_retry_at)
		SELECT gen_random_uuid(), 'video', 'marked for long', 'video.changed', n, '{}', 'postbox-somebody', now() + interval '20 hours', '-infinity' FROM generate_series(1, 5100) n;
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, lock_token, locked_at, next_retry_at)
		VALUES (gen_random_uuid(), 'video', 'hidden', 'video.changed', 1, '{}', 'postbox-00000000000000ad', now() + interval '1 hour', '-infinity');
	});
	wait_until($node, 'postgres', q{SELECT published_at IS NOT NULL FROM app.outbox WHERE aggregate_id = 'hidden'}, 'that one is taken over');
	$node->safe_psql('postgres', q{DELETE FROM app.outbox WHERE aggregate_id = 'marked for long'});
};

subtest 'a worker that is told to leave gives back what it has' => sub {
	# New workers: one that took over events before may still have to say that it did so again.
	$node->append_conf('postgresql.conf', "postbox.failpoint = 'after_claim=pause'");
	set_configuration($node, 'postbox.lease_timeout', '1h');
	$node->restart;
	my $count = published();
	my $position = log_position($node);
	wait_for(sub {
		emit($node, 'postgres', 1);
		++$count;
		return $node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE lock_token IS NOT NULL') > 0;
	}, 'a worker holds a claim');
	# It has no answer to what it sends.
	emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=600000,count=1');
	my $worker = worker_pid($node, 'postgres');
	set_configuration($node, 'postbox.failpoint', undef);
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = ' . $worker);
	$node->reload;
	wait_published($node, 'postgres', $count);
	unlike(log_since($node, $position), qr/took over/, 'without a take-over');
};

subtest 'an event has its result before its lease ends, whatever postbox.publish_timeout says' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE');
	my $position = log_position($node);
	set_configuration($node, 'postbox.lease_timeout', '10s');
	$node->reload;
	wait_for(sub { log_since($node, $position) =~ /events are tried for only 1 s/ }, 'the server log says so');
	is($node->safe_psql('postgres', q{SELECT status FROM postbox.doctor() WHERE subject = 'postbox.time_scale'}), 'warning', 'the doctor warns of a scale that is for tests');
	my $id = $node->safe_psql('postgres', q{SELECT event_id FROM postbox.outbox_emit('video', 'slow', 'video.changed', '{}'::jsonb)});
	wait_until($node, 'postgres', q{SELECT last_error LIKE '%publish timeout 1 s%' FROM postbox.publication_state}, 'nobody has answered for half of the lease');
	wait_until($node, 'postgres', "SELECT lock_token IS NULL AND publish_attempts = 0 FROM app.outbox WHERE id = '$id'", 'the event is given back');
	emulator_fault($emulator, '--clear');
	wait_until($node, 'postgres', "SELECT published_at IS NOT NULL FROM app.outbox WHERE id = '$id'", 'and goes out later');
};

$node->stop;
done_testing();
