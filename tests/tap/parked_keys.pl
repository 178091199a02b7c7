# A lane with very many paused keys begins, and is looked over, though that takes longer than a step may take.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

# A step may take a fifth of a second.
my $keys = 120_000;
my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 0, 'postbox.time_scale' => 20, 'autovacuum' => 'off' });
$node->start;
$node->safe_psql(
	'postgres', qq{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events');
	INSERT INTO app.log_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, publish_attempts, next_retry_at)
		SELECT 'log', -n, gen_random_uuid(), 'video', 'old-' || n, 'video.changed', 1, '1', '', '{}', now(), 5, 'infinity' FROM generate_series(1, $keys) n;
	SELECT postbox.outbox_emit('video', 'key-1', 'video.changed', '{}'::jsonb, outbox => 'app.log');
	ALTER SYSTEM SET postbox.publishers = 1;
	SELECT pg_reload_conf();
});
wait_for(sub { messages_published($emulator) >= 1 }, 'an event is published') or diag(log_since($node, 0));

$node->stop;
done_testing();
