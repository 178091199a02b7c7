# A payload that is text, json or bytes arrives as it was given: from each kind of outbox, from tables with change triggers, and also when the
# event was parked and redriven on its way.
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
$node->start;

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

my @outboxes = qw(log tab as_text as_json as_jsonb as_bytea);
sql(q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log'), postbox.create_outbox('app.tab', 'table')});
for my $type (qw(text json jsonb bytea))
{
	sql("CREATE TABLE app.as_$type (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload $type NOT NULL);
		SELECT postbox.adopt_outbox('app.as_$type')");
}
sql("SELECT postbox.create_publication('$_', 'app.$_', 'catalog.video.events', max_attempts => 1)") for @outboxes;
sql(q{
	CREATE TABLE app.seen (aggregate_type text, aggregate_id text, event_type text, payload bytea);
	CREATE FUNCTION app.see(event postbox.event) RETURNS void LANGUAGE sql AS $$
		INSERT INTO app.seen SELECT event.aggregate_type, event.aggregate_id, event.event_type, event.payload $$;
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_subscription('all', 'app.inbox', 'catalog.video.events.test-follower');
	SELECT postbox.create_handler('app.inbox', ARRAY['given', 'parked', 'item.created', 'item.updated', 'item.deleted'], 'app.see(postbox.event)')});
my $puller = start_puller($node, 'postgres', $emulator);

# What people write, and what they may mean by it.
my @written = ('{"b":1,  "a":1e2,"a":3}', '{"nul": "\u0000", "half": "\ud83d"}', " [1.0 , \"\\u00e9\\/\" ]\n", '{"e":"é"}');
my $values = join(', ', map { "(" . ($_ + 1) . ", '$written[$_]')" } 0 .. $#written);

sub emit_written
{
	my ($outbox, $type) = @_;
	my $condition = $outbox eq 'as_jsonb' ? q{body !~ 'ud83d'} : 'true';
	sql("SET standard_conforming_strings = on;
		SELECT count(r.version) FROM (VALUES $values) w(n, body), postbox.outbox_emit('$outbox', n::text, '$type', body, outbox => 'app.$outbox') AS r WHERE $condition");
	return;
}

sub arrived
{
	my ($outbox, $type) = @_;
	my ($wanted, $condition) = $outbox eq 'as_jsonb' ? ('body::jsonb::text', q{body !~ 'ud83d'}) : ('body', 'true');
	my $expected = "SELECT n::text, convert_to(CASE WHEN $condition THEN $wanted END, 'UTF8') FROM (VALUES $values) w(n, body) WHERE $condition";
	my $seen = "SELECT aggregate_id, payload FROM app.seen WHERE aggregate_type = '$outbox' AND event_type = '$type'";
	wait_until($node, 'postgres', "SELECT count(*) = (SELECT count(*) FROM ($expected) e) FROM ($seen) s", "$outbox: $type events arrive");
	is(sql("SELECT count(*) FROM ($expected EXCEPT ALL $seen) e"), '0', "$outbox: $type events have the payload that was given") or diag(sql("SELECT aggregate_id, convert_from(payload, 'UTF8') FROM ($seen) s"));
	return;
}

for my $outbox (@outboxes)
{
	emit_written($outbox, 'given');
	arrived($outbox, 'given');
}

emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:parked');
for my $outbox (@outboxes)
{
	emit_written($outbox, 'parked');
	my $count = $outbox eq 'as_jsonb' ? 3 : 4;
	wait_until($node, 'postgres', "SELECT count(*) = $count FROM postbox.paused_keys WHERE relation = 'app.$outbox'::regclass", "$outbox: the events are parked");
}
emulator_fault($emulator, '--clear');
for my $outbox (@outboxes)
{
	sql("SELECT postbox.redrive('app.$outbox')");
	arrived($outbox, 'parked');
}

# A column of type json may hold escapes of what PostgreSQL cannot.
sql(q{
	CREATE TABLE app.item (id int PRIMARY KEY, body json);
	SELECT postbox.create_change_triggers('app.item', outbox => 'app.log');
	INSERT INTO app.item VALUES (1, '{"b":1,  "nul": "\u0000", "half": "\ud83d"}');
	UPDATE app.item SET body = '"\u0000"';
	DELETE FROM app.item});
wait_until($node, 'postgres', q{SELECT count(*) = 3 FROM app.seen WHERE aggregate_type = 'item'}, 'the events of a change trigger arrive');
is(sql(q{SELECT string_agg(event_type || ' ' || convert_from(payload, 'UTF8'), E'\n' ORDER BY event_type) FROM app.seen WHERE aggregate_type = 'item'}),
	qq(item.created {"id":1,"body":{"b":1,  "nul": "\\u0000", "half": "\\ud83d"}}\nitem.deleted {"id":1,"body":"\\u0000"}\nitem.updated {"id":1,"body":"\\u0000"}),
	'with what was in the column');

# One form with one signature.
sql(q{SELECT postbox.outbox_emit_json('{"aggregate_type": "json", "aggregate_id": 1, "event_type": "given", "payload": {"b":1,  "a":"\u0000"} }', 'app.log')});
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM app.seen WHERE aggregate_type = 'json'}, 'the event of outbox_emit_json arrives');
is(sql(q{SELECT convert_from(payload, 'UTF8') FROM app.seen WHERE aggregate_type = 'json'}), '{"b":1,  "a":"\u0000"}', 'with the payload that was written');
is(sql('SELECT count(*) FROM postbox.dead_letter'), '0', 'nothing is a dead letter');
stop_puller($puller);
$node->stop;
done_testing();
