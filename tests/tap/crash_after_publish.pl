# The broker has taken the events, and the worker is killed before it could mark them.
# They are published again (at least once), and applied once.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->append_conf('postgresql.conf', "postbox.failpoint = 'after_publish_before_mark=pause'");
$node->start;
create_outbox($node, 'postgres');
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.created');

emit($node, 'postgres', 30);
wait_for(sub { messages_published($emulator) == 30 }, 'the broker has taken all events');
is($node->safe_psql('postgres', 'SELECT count(published_at) FROM app.outbox'), '0', 'and the table does not know it');

my $worker = worker_pid($node, 'postgres');
crash($node, $worker);
set_configuration($node, 'postbox.failpoint', undef);
$node->reload;
wait_published($node, 'postgres', 30);
cmp_ok(messages_published($emulator), '>=', 60, 'all were published again');

my $puller = start_puller($node, 'postgres', $emulator);
wait_until($node, 'postgres', 'SELECT count(*) = 30 FROM app.seen', 'all have arrived');
# Everything that was published is acknowledged: nothing more can come.
wait_for(sub { return all_acknowledged($emulator) }, 'every copy is acknowledged');
stop_puller($puller);
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT (aggregate_id, version)) FROM app.seen'), '30|30', 'each event was applied once');

$node->stop;
done_testing();
