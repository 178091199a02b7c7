# Events take effect in the order of their key while many keys fail together: the connections of the puller are
# terminated again and again, and a handler fails now and then. What a later event would overwrite for good shows in
# a projection of partial events: each carries one field of its row.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;
use Time::HiRes 'time';

my $events = $ENV{POSTBOX_TEST_EVENTS} // 3_000;
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.row (id text PRIMARY KEY, f0 bigint, f1 bigint, f2 bigint, f3 bigint, f4 bigint, version bigint NOT NULL);
	CREATE TABLE app.seen (n bigserial PRIMARY KEY, aggregate_id text, version bigint);
	CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			IF random() < 0.02 THEN RAISE 'out of luck'; END IF;
			INSERT INTO app.seen (aggregate_id, version) VALUES (event.aggregate_id, event.version);
		END $$;
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_projection('app.inbox', '{row.changed}', 'app.row');
	SELECT postbox.create_handler('app.inbox', '{row.changed}', 'app.note(postbox.event)');
	SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.video.events.test-follower',
		max_attempts => 1000, min_backoff => '1ms', max_backoff => '20ms');
});

sub emit_rows
{
	my ($first, $last) = @_;
	$node->safe_psql('postgres', qq{
		SELECT count(postbox.outbox_emit('row', 'row-' || n % 100, 'row.changed', json_build_object('f' || n / 100 % 5, n)::jsonb, version => n))
		FROM generate_series($first, $last) n});
	return;
}

emit_rows(1, $events);
my $puller = start_puller($node, 'postgres', $emulator);

my $terminated = 0;
my $done = 0;
my $next = time;
wait_for(
	sub {
		return 0 if time < $next;
		$next = time + 0.1;
		my $count;
		($count, $done) = split /\|/, $node->safe_psql(
			'postgres', q{
			SELECT count(pg_terminate_backend(pid)), (SELECT count(DISTINCT (aggregate_id, version)) FROM app.seen)
			FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()});
		$terminated += $count;
		# On a fast machine there is more to do, until enough connections were terminated.
		if ($done >= $events && $terminated <= 20)
		{
			emit_rows($events + 1, $events + 1000);
			$events += 1000;
		}
		return $done >= $events;
	},
	'all events take effect');
diag("connections terminated: $terminated, events: $done");
cmp_ok($terminated, '>', 20, 'while connections were terminated');

is( $node->safe_psql(
		'postgres', q{
		SELECT count(*) FROM (
			SELECT version, max(version) OVER (PARTITION BY aggregate_id ORDER BY n ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS before
			FROM app.seen) seen
		WHERE version < before}),
	'0', 'no event takes effect after a later one of its key');
is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT (aggregate_id, version)) FROM app.seen'), '0', 'and none twice');
is( $node->safe_psql(
		'postgres', qq{
		SELECT count(*)
		FROM (SELECT 'row-' || n % 100 AS id, n / 100 % 5 AS field, max(n) AS value FROM generate_series(1, $events) n GROUP BY 1, 2) expected
		JOIN app.row USING (id)
		WHERE value IS DISTINCT FROM (ARRAY[f0, f1, f2, f3, f4])[field + 1]}),
	'0', 'no row has lost a field');
is($node->safe_psql('postgres', q{SELECT count(*) FROM app.inbox WHERE outcome = 'stale'}), '0', 'no event was stale');

stop_puller($puller);
$node->stop;
done_testing();
