# What was pending of a log of many rows that comes from another cluster is settled, though that may take longer than a worker's steps may otherwise
# take, and another publication goes on meanwhile. A worker that is told to leave does not wait for it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $rows = 100_000;
my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.time_scale' => 20 });
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events');
});

sub publishers { my ($count) = @_; return $node->safe_psql('postgres', "ALTER SYSTEM SET postbox.publishers = $count; SELECT pg_reload_conf()"); }
sub stop_publishing
{
	publishers(0);
	return wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'postbox publisher%'}, 'the worker has left');
}

my $insert = q{SELECT postbox.outbox_emit('video', 'key-1', 'video.changed', '{}'::jsonb, outbox => 'app.log')};
$node->safe_psql('postgres', $insert);
wait_for(sub { messages_published($emulator) >= 1 }, 'an event is published');

# As after a restore: the rows are there, and the position has the identifier of another cluster.
stop_publishing();
$node->safe_psql('postgres', qq{
	INSERT INTO app.log (id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, origin)
		SELECT gen_random_uuid(), 'video', 'old', 'video.changed', 1, '1', '', '{}', postbox.origin_of(1) FROM generate_series(1, $rows);
	UPDATE postbox.lane SET system_identifier = 1, hwm = (SELECT max(seq) - 10000 FROM app.log), floor = (SELECT max(seq) - 10000 FROM app.log);
	UPDATE postbox.lane SET zone_upto = NULL, zone_snapshot = NULL, zone_next_xid = NULL, snapshot = pg_current_snapshot();
});
my $start = log_position($node);
publishers(1);
wait_until($node, 'postgres', q{SELECT count(*) > 0 FROM postbox.lane WHERE system_identifier <> 1}, 'the log is re-based')
  or diag(log_since($node, $start));
$node->safe_psql('postgres', $insert);
wait_for(sub { messages_published($emulator) >= 10002 }, 'what was pending and a new event are published');
is($node->safe_psql('postgres', q{SELECT count(*) FILTER (WHERE origin = -2147483648), count(*) FILTER (WHERE origin = postbox.origin_of(1)) FROM app.log}), '10000|' . ($rows - 10000), 'what was not pending stays as it is');

# Code of the owner that never ends runs while the log is re-based; the worker leaves nevertheless.
$node->safe_psql('postgres', q{
	CREATE FUNCTION app.sleep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3600); RETURN NULL; END';
	CREATE TRIGGER sleep BEFORE UPDATE ON app.log FOR EACH STATEMENT EXECUTE FUNCTION app.sleep()});
stop_publishing();
$node->safe_psql('postgres', "INSERT INTO app.log (id, aggregate_type, aggregate_id, event_type, version, payload, origin) VALUES (gen_random_uuid(), 'video', 'late', 'video.changed', 1, '', postbox.origin_of(1))");
publishers(1);
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type LIKE 'postbox publisher%' AND wait_event = 'PgSleep'}, 'the log is being re-based');
my $before = time();
stop_publishing();
cmp_ok(time() - $before, '<', 15, 'a worker that re-bases a log leaves when it is told to');

$node->stop;
done_testing();
