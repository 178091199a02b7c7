# A long backlog of few keys in a table: while their first events are on their way, a claim reads the others in parts.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '60s', 'autovacuum' => 'off' });
$node->start;
create_outbox($node, 'postgres');
emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=300,count=1000000');
$node->safe_psql('postgres', q{INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
	SELECT gen_random_uuid(), 'video', 'k-' || n % 20, 'video.changed', n, '{}' FROM generate_series(1, 60000) n});
# Nothing but this wakes the worker.
$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'first', 'video.changed', '{}'::jsonb)});
# A look before the commit has read all rows that were there by then.
wait_for(sub { messages_published($emulator) >= 1000 }, 'events are published');
$node->safe_psql('postgres', 'SELECT pg_stat_reset()');
wait_for(sub { messages_published($emulator) >= 6000 }, 'more are published');
my $read = q{SELECT idx_tup_read::float8 / idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_claim'};
cmp_ok($node->safe_psql('postgres', $read), '<', 12_000, 'a look at the backlog is bounded');
# The only event of its key, behind all the others.
$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'rare', 'video.changed', '{}'::jsonb)});
wait_until($node, 'postgres', q{SELECT published_at IS NOT NULL FROM app.outbox WHERE aggregate_id = 'rare'}, 'an event of another key does not wait for the end of the backlog');
cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM app.outbox WHERE published_at IS NULL}), '>', 40_000, 'of which much is left');

# No answer comes any more.
emulator_fault($emulator, '--clear');
emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=600000,count=1000000');
my $looks = q{SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_claim'};
wait_for(sub { my $before = $node->safe_psql('postgres', $looks); select(undef, undef, undef, 2); $node->safe_psql('postgres', $looks) == $before },
	'a worker that can claim nothing does not look again and again');
unlike(log_since($node, 0), qr/took longer/, 'no claim was cancelled');

$node->stop;
done_testing();
