# Storing the results of many events takes longer than a step may, since a trigger, a disk or the machine is slow: fewer are stored at a time,
# and all are stored in the end.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 0, 'postbox.poll_interval' => '50ms', 'postbox.read_chunk_size' => 200, 'postbox.time_scale' => 20 });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', q{
	CREATE FUNCTION app.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.0014); RETURN OLD; END $$;
	CREATE TRIGGER slow BEFORE DELETE ON app.outbox_parked FOR EACH ROW EXECUTE FUNCTION app.slow();
});

# A step may take a fifth of a second, and the rows of one chunk take a third of a second.
my $rows = 1500;
$node->safe_psql('postgres', qq{INSERT INTO app.outbox_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, payload, next_retry_at)
	SELECT 'videos', n, gen_random_uuid(), 'video', 'k-' || n, 'video.changed', 1, '{}', now() FROM generate_series(1, $rows) n});
set_configuration($node, 'postbox.publishers', 1);
$node->reload;
wait_for(sub { messages_published($emulator) >= $rows }, 'all are published');
wait_until($node, 'postgres', q{SELECT pending = 0 AND parked = 0 AND state = 'active' FROM postbox.publication_status WHERE publication = 'videos'}, 'and that is stored');
# Half as many are stored at a time after each cut: after eleven cuts that is one event, however slow the machine is.
my $log = log_since($node, 0);
my $cuts = () = $log =~ /restarts at its stored position.*took longer than 200 ms/g;
$cuts += $_ for $log =~ /restarts at its stored position.*took longer than 200 ms.*\n.*This was repeated (\d+) times/g;
cmp_ok($cuts, '>', 0, 'what was too much for a step was cut short');
cmp_ok($cuts, '<=', 11, 'until few enough are stored at a time');

$node->stop;
done_testing();
