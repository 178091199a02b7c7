# postbox.subscription_status shows what a puller does, what fails, and an older version that comes after a newer one.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '200ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE ROLE reader LOGIN;
	CREATE ROLE stranger;
	CREATE ROLE operator;
	GRANT postbox_operator TO operator;
	GRANT EXECUTE ON FUNCTION postbox.create_subscription TO reader;
	CREATE SCHEMA reader AUTHORIZATION reader;
	SET ROLE reader;
	CREATE TABLE reader.target (id text PRIMARY KEY, title text, version bigint NOT NULL);
	SELECT postbox.create_inbox('reader.inbox');
	SELECT postbox.create_projection('reader.inbox', '{video.created}', 'reader.target');
	SELECT postbox.create_subscription('follower', 'reader.inbox', 'catalog.video.events.test-follower', max_attempts => 3,
		min_backoff => '10ms', max_backoff => '100ms', lock_timeout => '0', statement_timeout => '0');
});
my @as_reader = (dsn => $node->connstr('postgres') . ' user=reader');
my $puller = start_puller($node, 'postgres', $emulator, @as_reader);

sub status
{
	my ($condition, $what) = @_;
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM postbox.subscription_status WHERE subscription = 'follower' AND $condition", $what)
	  or diag($node->safe_psql('postgres', 'SELECT row_to_json(s) FROM postbox.subscription_status s'), $puller->{output});
	return;
}

sub video
{
	my ($key, $version, $payload) = @_;
	$node->safe_psql('postgres', qq{SELECT postbox.outbox_emit('video', '$key', 'video.created', '$payload'::jsonb, version => $version)});
	return;
}

status('applied = 0 AND appliers = 4', 'a puller without events shows itself');
emit($node, 'postgres', 100);
status('applied = 100 AND duplicates = 0 AND stale = 0 AND out_of_order = 0 AND dead_letters = 0 AND failures = 0', 'it shows what it has applied');
status(q{received = 100 AND nacked = 0 AND in_hand = 0 AND waiting = '{}' AND oldest_waiting IS NULL AND apply_time_p50 > '0' AND apply_time_p50 <= apply_time_p99},
	'what it has received and holds, and how long it took');
my $lag = 'SELECT waiting, versions_waiting, oldest_waiting, suspended_types FROM postbox.projection_status';
is($node->safe_psql('postgres', $lag), '0|0||', 'nothing waits for the projection');

# Whoever may write the status of one subscription can lock the table.
my $locker = $node->background_psql('postgres');
$locker->query_safe('BEGIN; SET LOCAL ROLE stranger; LOCK TABLE postbox.subscription_status IN ACCESS EXCLUSIVE MODE');
# Under load for as long as each applier comes to a report of its own.
$node->safe_psql('postgres', qq{
	DO \$\$
	DECLARE
		until timestamptz := clock_timestamp() + '2 s';
	BEGIN
		WHILE clock_timestamp() < until LOOP
			PERFORM postbox.outbox_emit('video', 'video-' || n % 7, 'video.created', '{"title": "x"}'::jsonb) FROM generate_series(1, 10) n;
			COMMIT;
			WHILE (SELECT count(*) FROM reader.inbox) < (SELECT count(*) FROM app.outbox) AND clock_timestamp() < until + '$PostgreSQL::Test::Utils::timeout_default s' LOOP
				COMMIT;
				PERFORM pg_sleep(0.05);
			END LOOP;
		END LOOP;
	END \$\$});
my $emitted = $node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox');
is($node->safe_psql('postgres', 'SELECT count(*) FROM reader.inbox'), $emitted, 'events are applied while a stranger has locked the status');
$locker->query_safe('COMMIT');
$locker->quit;
status("applied = $emitted", 'and the status goes on');

video('late', 5, '{"title": "new"}');
video('late', 3, '{"title": "old"}');
status('stale = 1 AND out_of_order = 1 AND applied = ' . ($emitted + 1), 'an older version after a newer one of its key is counted');
wait_for(sub { $puller->{run}->pump_nb; return $puller->{output} =~ /an older version came after a newer one.*aggregate_id=late.*version=3/ }, 'and the log names it');
is($node->safe_psql('postgres', q{SELECT title FROM reader.target WHERE id = 'late'}), 'new', 'it does not overwrite');

video('wrong', 1, '{"title": {"a": 1}}');
$node->safe_psql('postgres', q{ALTER TABLE reader.target ADD CHECK (title <> 'bad') NOT VALID});
video('bad', 1, '{"title": "bad"}');
status('failures >= 2 AND dead_letters >= 1 AND last_error_at IS NOT NULL', 'failures and dead letters are counted');
like($node->safe_psql('postgres', 'SELECT last_error FROM postbox.subscription_status'), qr/^23514: .*check constraint/, 'with the last error');

$node->safe_psql('postgres', 'ALTER TABLE reader.target RENAME COLUMN version TO other');
video('held', 1, '{"title": "x"}');
status(q{retrying_since < now() - interval '1s' AND next_try IS NOT NULL}, 'a subscription that can apply nothing says since when');
video('held', $_, '{"title": "x"}') for 2 .. 4;
status(q{received > 100 AND nacked > 0 AND in_hand = 4 AND oldest_waiting BETWEEN now() - interval '1 min' AND now() + interval '1 s'
	AND waiting -> 'video.created' ->> 'events' = '4' AND waiting -> 'video.created' ->> 'versions' = '4'}, 'it shows what waits');
wait_until($node, 'postgres', 'SELECT waiting = 4 AND versions_waiting = 4 AND oldest_waiting IS NOT NULL FROM postbox.projection_status', 'so does its projection');
is($node->safe_psql('postgres', "SET ROLE stranger; $lag"), '|||', 'a stranger does not see it');
# Who may apply may write anything. A puller of another release leaves columns out.
$node->safe_psql('postgres', q{SET ROLE reader; INSERT INTO postbox.subscription_status (subscription, puller, started_at, appliers, applied, duplicates, stale, out_of_order, dead_letters, failures, waiting)
	SELECT 'follower', 'evil:' || n, now(), 1, 0, 0, 0, 0, 0, 0, w FROM (VALUES (1, jsonb '5'), (2, '{"video.created": {"events": "x", "versions": [], "oldest_ms": null}}'),
		(3, '{"video.created": {"events": -1e400, "versions": 1e400, "oldest_ms": 1e400}}'), (4, NULL), (5, 'null')) AS v(n, w)});
like($node->safe_psql('postgres', $lag), qr/^\d+\|9223372036854775807\|/, 'what a role that may apply has written does not break the view');
$node->safe_psql('postgres', q{DELETE FROM postbox.subscription_status WHERE puller LIKE 'evil:%'});
$node->safe_psql('postgres', 'ALTER TABLE reader.target RENAME COLUMN other TO version');
status('retrying_since IS NULL', 'and when it goes on again');

is($node->safe_psql('postgres', "SET ROLE $_; SELECT count(*) FROM postbox.subscription_status"), $_ eq 'stranger' ? '0' : '1', "what a $_ sees")
  for qw(reader operator stranger);
my ($result, undef, $error) = $node->psql(
	'postgres', q{SET ROLE operator; INSERT INTO postbox.subscription_status VALUES ('follower', 'x', now(), now(), 1, 0, 0, 0, 0, 0, 0)});
like($error, qr/row-level security/, 'only who may apply reports');

my $before = $node->safe_psql('postgres', 'SELECT last_seen FROM postbox.subscription_status');
video('later', 1, '{"title": "x"}');
status("applied >= 103 AND last_seen > '$before'", 'it is kept up to date');

# What is the matter with the stream.
status(q{stream = 'connected' AND stream_error IS NULL}, 'the stream is connected');
emulator_fault($emulator, 'rpc=StreamingPull,action=abort-stream,code=UNAVAILABLE,message=away');
status(q{stream = 'reconnecting' AND stream_error = 'UNAVAILABLE: away' AND stream_since <= now()}, 'a stream that ends and is opened again says why');
emulator_fault($emulator, '--clear');
status(q{stream = 'connected' AND stream_error IS NULL}, 'and when it is there again');

# Acks that are refused: the broker sends the events again and again.
emulator_fault($emulator, 'rpc=Acknowledge,code=PERMISSION_DENIED,message=no acks');
video('unacked', 1, '{"title": "x"}');
status(q{last_error = 'Acknowledge: PERMISSION_DENIED: no acks' AND stream = 'connected'}, 'acks that are refused are shown');
emulator_fault($emulator, '--clear');

stop_puller($puller);
is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.subscription_status'), '0', 'a puller that has left is not shown');

emulator_fault($emulator, 'rpc=StreamingPull,action=abort-stream,code=PERMISSION_DENIED,message=not yours');
$puller = start_puller($node, 'postgres', $emulator, @as_reader);
$puller->{run}->finish;
is($puller->{run}->full_result(0), 256, 'a puller whose only subscription is refused leaves with an error');
is($node->safe_psql('postgres', 'SELECT stream, stream_error FROM postbox.subscription_status'), 'failed|PERMISSION_DENIED: not yours', 'and the status says why') or diag($puller->{output});
emulator_fault($emulator, '--clear');
$puller = start_puller($node, 'postgres', $emulator);
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.subscription_status WHERE stream = 'connected'}, 'the next one is connected');
# A puller lives that has reported within 5 minutes.
$node->safe_psql('postgres', q{INSERT INTO postbox.subscription_status (subscription, puller, started_at, appliers, applied, duplicates, stale, out_of_order, dead_letters, failures, stream)
	SELECT subscription, 'elsewhere:1', now(), 1, 0, 0, 0, 0, 0, 0, 'failed' FROM postbox.subscription_status WHERE stream = 'failed';
	UPDATE postbox.subscription_status SET last_seen = now() - interval '7 minutes' WHERE stream = 'failed' AND puller <> 'elsewhere:1'});
stop_puller($puller);
is($node->safe_psql('postgres', 'SELECT puller FROM postbox.subscription_status'), 'elsewhere:1',
	'and takes its report away when it leaves, and that of the one that is gone, but not that of one that lives');
$node->stop;
done_testing();
