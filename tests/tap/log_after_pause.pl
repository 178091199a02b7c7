# A lane that comes back looks for late rows among all that was written meanwhile. Most transactions have one row: to look each of them up would
# take longer than a step may take.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

use constant EVENTS => 3000;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'autovacuum' => 'off', 'synchronous_commit' => 'off' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

emit($node, 'postgres', 1);
wait_for(sub { messages_published($emulator) >= 1 }, 'the lane has begun');
# The worker reports what it has read when it ends.
sql('ALTER DATABASE postgres SET postbox.publishers = 0');
wait_workers($node, 'postgres', 0);

# One that was running, with many rows, and many that have begun since, with one each.
my $emit = q{postbox.outbox_emit('video', '%s-' || n, 'video.changed', '{}'::jsonb, outbox => 'app.outbox')};
my $writer = $node->background_psql('postgres');
$writer->query_safe('SET client_min_messages = error; BEGIN; SELECT count(' . sprintf($emit, 'large') . ') FROM generate_series(1, 500) n');
sql('SET client_min_messages = error; DO $$ BEGIN FOR n IN 1..' . EVENTS . ' LOOP PERFORM ' . sprintf($emit, 'small') . '; COMMIT; END LOOP; END $$');
$writer->query_safe('COMMIT');
$writer->quit;

my $looks = q{SELECT sum(idx_scan) FROM pg_stat_all_indexes WHERE indexrelname ~ '_txid_seq_idx$'};
my $before = sql($looks);
sql('ALTER DATABASE postgres RESET postbox.publishers');
wait_for(sub { messages_published($emulator) >= 1 + 500 + EVENTS }, 'all are sent');
sql('ALTER DATABASE postgres SET postbox.publishers = 0');
wait_workers($node, 'postgres', 0);
cmp_ok(sql($looks) - $before, '<', EVENTS, 'transactions of one row are not looked up one by one');
is(messages_published($emulator), 1 + 500 + EVENTS, 'each event is sent once');
done_testing();
