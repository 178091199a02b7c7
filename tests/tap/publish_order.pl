# Several workers publish one outbox, with many keys and one hot key: the events of a key go out in the
# order in which they were committed, and none is missing.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 3,
	# Small, so that the workers come upon each other's claims all the time.
	'postbox.claim_batch_size' => 20,
});
$node->start;
create_outbox($node, 'postgres');
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.changed', { batch_delay => '50ms' });

my $script = "$PostgreSQL::Test::Utils::tmp_check/emit.sql";
append_to_file($script, <<'END');
\set key random(1, 40)
\set hot random(1, 3)
\set count random(1, 5)
BEGIN;
SELECT count(postbox.outbox_emit('video', CASE WHEN :hot = 1 THEN 'hot' ELSE 'key-' || :key END, 'video.changed', '{}'::jsonb))
FROM generate_series(1, :count);
SAVEPOINT s;
SELECT postbox.outbox_emit('video', 'key-' || :key, 'video.undone', '{}'::jsonb);
ROLLBACK TO s;
COMMIT;
END

wait_workers($node, 'postgres', 3);
my $puller = start_puller($node, 'postgres', $emulator);
command_ok([ 'pgbench', '-n', '-c', '6', '-j', '1', '-t', '80', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ], 'six clients emit');
# A deep backlog on one key, which its worker takes piece by piece, must not hide the others.
$node->safe_psql('postgres', q{SELECT count(postbox.outbox_emit('video', 'hot', 'video.changed', '{}'::jsonb)) FROM generate_series(1, 800)});
$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'last', 'video.changed', '{}'::jsonb)});

wait_until($node, 'postgres', 'SELECT count(*) = count(published_at) FROM app.outbox', 'all events are published');
wait_until($node, 'postgres', 'SELECT (SELECT count(*) FROM app.seen) = (SELECT count(*) FROM app.outbox)', 'all events have arrived');
stop_puller($puller);

is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE lock_token IS NOT NULL OR next_retry_at IS NOT NULL OR publish_attempts <> 0'), '0', 'nothing failed on the way');
is( $node->safe_psql('postgres', q{
	SELECT count(*) FROM (SELECT version, lag(version, 1, 0::bigint) OVER (PARTITION BY aggregate_id ORDER BY n) AS before FROM app.seen) e
	WHERE version <> before + 1}), '0', 'each key came in the order of its versions, without a gap');
is($node->safe_psql('postgres', q{SELECT count(*) FROM app.outbox WHERE event_type = 'video.undone'}), '0', 'what was rolled back is not there');

# A worker reports all its counts at once, those of the claims too.
wait_until($node, 'postgres', q{
	SELECT n_tup_upd >= 2 * (SELECT count(*) FROM app.outbox) FROM pg_stat_user_tables WHERE relid = 'app.outbox'::regclass}, 'the statistics have come');
is($node->safe_psql('postgres', q{SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelid = 'app.outbox_pkey'::regclass}),
	'0', 'results were stored where the rows were leased, without a look into the index of ids');

$node->stop;
done_testing();
