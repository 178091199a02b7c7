# Tables that were there before Postbox are published as they are: two shapes of our own and Debezium's. What
# an old publisher has published stays published, what it left goes out, in the order of each aggregate; plain
# INSERTs of the application and outbox_emit go on side by side.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $subscription = 'catalog.video.events.test-follower';
my $emulator = start_emulator('--subscription', "$subscription=catalog.video.events,ordered");
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2,
	'postbox.lease_timeout' => '10s',
	'postbox.time_scale' => 20,
	'postbox.publish_timeout' => '2s',
	'timezone' => 'America/New_York',
});
$node->start;

# Before: the application and its own publisher, in three tables. Rows do not lie in the order in which they
# occurred, one was published, one is to be tried again, and one was claimed by a publisher that is gone.
$node->safe_psql('postgres', q{
	CREATE SCHEMA app;
	CREATE FUNCTION app.id(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid $$;
	CREATE TABLE app.bytes (
		id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
		version bigint NOT NULL, schema_version int NOT NULL DEFAULT 1, payload bytea NOT NULL,
		occurred_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz,
		publish_attempts int NOT NULL DEFAULT 0, next_retry_at timestamptz, lock_token text, locked_at timestamptz);
	CREATE INDEX ON app.bytes (published_at) WHERE published_at IS NULL;
	INSERT INTO app.bytes (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at) VALUES
		(app.id(13), 'video', 'bytes', 'video.changed', 3, '\x00ff13', '2025-01-03 00:00+00'),
		(app.id(11), 'video', 'bytes', 'video.created', 1, '\x00ff11', '2025-01-01 00:00+00'),
		(app.id(12), 'video', 'bytes', 'video.changed', 2, '\x00ff12', '2025-01-02 00:00:00.123456+00'),
		(app.id(14), 'video', 'bytes', 'video.changed', 4, '\x00ff14', '2025-01-03 00:00+00');
	UPDATE app.bytes SET published_at = now() WHERE version = 1;
	UPDATE app.bytes SET lock_token = 'old-publisher' WHERE version = 2;
	UPDATE app.bytes SET publish_attempts = 1, next_retry_at = now() WHERE version = 3;

	CREATE TABLE app.json (
		id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, event_type text NOT NULL,
		version bigint NOT NULL, payload jsonb NOT NULL, occurred_at timestamptz NOT NULL DEFAULT now(),
		published_at timestamptz, publish_attempts int NOT NULL DEFAULT 0, next_retry_at timestamptz, lock_token text,
		locked_at timestamptz);
	INSERT INTO app.json (id, aggregatetype, aggregateid, event_type, version, payload, occurred_at) VALUES
		(app.id(22), 'video', 'json', 'video.changed', 2, '{"title": "Zw\u00f6lf"}', '2025-01-02 00:00+00'),
		(app.id(21), 'video', 'json', 'video.created', 1, '{"title": "x"}', '2025-01-01 00:00+00');

	CREATE TABLE app.debezium (
		id uuid NOT NULL PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL,
		type varchar(255) NOT NULL, payload text);
	INSERT INTO app.debezium VALUES (app.id(31), 'video', 'debezium', 'video.created', '{"a":1}'),
		(app.id(32), 'video', 'debezium', 'video.removed', NULL);

	CREATE TABLE app.changes (
		event_id uuid NOT NULL UNIQUE, entity text NOT NULL, entity_id uuid NOT NULL, kind text NOT NULL, revision int NOT NULL,
		body json NOT NULL, headers json, created_at timestamp NOT NULL);
	INSERT INTO app.changes VALUES
		(app.id(41), 'video', app.id(40), 'video.created', 1, '{"b":  1}', '{"tenant": "t1"}', '2025-01-01 00:00:00'),
		(app.id(42), 'video', app.id(40), 'video.changed', 2, '{}', NULL, '2025-01-02 00:00:00');
});

# And after.
$node->safe_psql('postgres', q{
	CREATE EXTENSION postbox;
	CREATE TABLE app.seen (n bigserial PRIMARY KEY, event postbox.event);
	CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql AS 'INSERT INTO app.seen (event) VALUES (event)';
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{video.created,video.changed,video.removed}', 'app.note(postbox.event)');
} . qq{ SELECT postbox.create_subscription('follower', 'app.inbox', '$subscription'); });
$node->safe_psql('postgres', "SELECT postbox.adopt_outbox('app.$_'); SELECT postbox.create_publication('$_', 'app.$_', 'catalog.video.events')")
  for qw(bytes json debezium);
$node->safe_psql('postgres', q{
	SELECT postbox.adopt_outbox('app.changes', '{"aggregate_type": "entity", "aggregate_id": "entity_id", "event_type": "kind",
		"version": "revision", "payload": "body", "attributes": "headers"}');
	SELECT postbox.create_publication('changes', 'app.changes', 'catalog.video.events', aggregate_types => '{video}');
});
my $puller = start_puller($node, 'postgres', $emulator);
my @tables = qw(bytes json debezium changes);
sub all_published
{
	my ($what) = @_;
	wait_until($node, 'postgres', "SELECT count(*) = count(published_at) FROM app.$_", "$what of app.$_ are published") for @tables;
	my $published = join(' + ', map { "(SELECT count(*) FROM app.$_)" } @tables);
	wait_until($node, 'postgres', "SELECT (SELECT count(*) FROM app.seen) = $published - 1", "$what have arrived");
	return;
}
all_published('the events that waited');

# The old ways of writing, and the new one.
$node->safe_psql('postgres', q{
	INSERT INTO app.bytes (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (app.id(15), 'video', 'bytes', 'video.changed', 5, '\x15');
	INSERT INTO app.json (id, aggregatetype, aggregateid, event_type, version, payload) VALUES (app.id(23), 'video', 'json', 'video.changed', 3, '[3]');
	INSERT INTO app.debezium VALUES (app.id(33), 'video', 'debezium', 'video.created', 'no JSON');
	INSERT INTO app.changes VALUES (app.id(43), 'video', app.id(40), 'video.changed', 3, 'null', '{"n": 1}', '2025-01-03 00:00:00');
	SELECT postbox.outbox_emit('video', 'bytes', 'video.changed', '\xff'::bytea, version => 6, event_id => app.id(16), attributes => '{"tenant": "t2"}', outbox => 'app.bytes');
	SELECT postbox.outbox_emit('video', 'json', 'video.changed', '{"a": 1}', version => 4, event_id => app.id(24), outbox => 'app.json');
	SELECT postbox.outbox_emit('video', 'debezium', 'video.changed', '{"b": 1}', event_id => app.id(34), outbox => 'app.debezium');
	SELECT postbox.outbox_emit('video', app.id(40)::text, 'video.changed', '{"c": 1}', version => 4, event_id => app.id(44),
		occurred_at => '2025-01-04 00:00+00', schema_version => 'v2', outbox => 'app.changes');
});
all_published('the events that came later');

# What has arrived of a key, in that order.
sub seen
{
	my ($key, $columns) = @_;
	$columns //= q{right(event_id, 2), event_type, version, convert_from(payload, 'UTF8'), attributes ->> 'schema_version', attributes ->> 'tenant'};
	return $node->safe_psql('postgres', qq{SELECT $columns FROM (SELECT n, (event).* FROM app.seen) e WHERE aggregate_id = '$key' ORDER BY n});
}
my $uuid_key = '00000000-0000-4000-8000-000000000040';
is(seen('bytes', q{right(event_id, 2), event_type, version, encode(payload, 'hex'), attributes ->> 'schema_version', attributes ->> 'tenant'}), join("\n",
	'12|video.changed|2|00ff12|1|', '13|video.changed|3|00ff13|1|', '14|video.changed|4|00ff14|1|', '15|video.changed|5|15|1|', '16|video.changed|6|ff|1|t2'),
	'bytes go out as they are, in the order of versions, without what was published before');
is(seen('json'), join("\n",
	'21|video.created|1|{"title": "x"}|v1|', "22|video.changed|2|{\"title\": \"Zw\303\266lf\"}|v1|", '23|video.changed|3|[3]|v1|', '24|video.changed|4|{"a": 1}|v1|'),
	'JSON goes out as its text in UTF-8');
is(seen('debezium'), join("\n",
	'31|video.created|1|{"a":1}|v1|', '32|video.removed|2||v1|', '33|video.created|3|no JSON|v1|', '34|video.changed|4|{"b": 1}|v1|'),
	'without versions, the place in the outbox is the version');
is(seen($uuid_key), join("\n",
	'41|video.created|1|{"b":  1}|v1|t1', '42|video.changed|2|{}|v1|', '43|video.changed|3|null|v1|', '44|video.changed|4|{"c": 1}|v2|'),
	'names and types of its own');
my $time = q{to_char(occurred_at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS.US')};
is(seen($uuid_key, $time), join("\n", map { "2025-01-0$_ 00:00:00.000000" } 1 .. 4), 'a time without zone is one of UTC');
like(seen('bytes', $time), qr/^2025-01-02 00:00:00\.123456\n/, 'a time with a zone is what it is');

# An event that Pub/Sub refuses stops its key until it is redriven or discarded.
emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=poison:yes,count=1000');
$node->safe_psql('postgres', q{
	SELECT postbox.alter_publication('changes', base_backoff => '10ms', max_backoff => '10ms', max_attempts => 2);
	INSERT INTO app.changes VALUES (app.id(45), 'video', app.id(40), 'video.changed', 5, '{}', '{"poison": "yes"}', now()),
		(app.id(46), 'video', app.id(40), 'video.changed', 6, '{}', NULL, now()), (app.id(48), 'video', app.id(47), 'video.created', 1, '{}', NULL, now());
});
wait_until($node, 'postgres', q{SELECT EXISTS (SELECT FROM postbox.paused_keys WHERE relation = 'app.changes'::regclass AND first_event_id = app.id(45)::text
	AND aggregate_id = app.id(40)::text AND attempts = 2 AND next_retry_at = 'infinity' AND waiting = 1)}, 'the key is paused');
wait_until($node, 'postgres', q{SELECT published_at IS NOT NULL FROM app.changes WHERE event_id = app.id(48)}, 'another key goes on');
is($node->safe_psql('postgres', q{SELECT published_at FROM app.changes WHERE event_id = app.id(46)}), '', 'what follows waits');
is($node->safe_psql('postgres', q{SELECT postbox.discard('app.changes', app.id(45))}), 't', 'the event is given up');
wait_until($node, 'postgres', q{SELECT published_at IS NOT NULL FROM app.changes WHERE event_id = app.id(46)}, 'the key goes on');

# An altered column is noticed, and published as it is now.
$node->safe_psql('postgres', q{
	ALTER TABLE app.json ALTER payload TYPE text, ALTER version TYPE int, ALTER aggregateid TYPE varchar(50);
	INSERT INTO app.json (id, aggregatetype, aggregateid, event_type, version, payload) VALUES (app.id(25), 'video', 'json', 'video.changed', 5, 'text')});
wait_until($node, 'postgres', q{SELECT published_at IS NOT NULL FROM app.json WHERE id = app.id(25)}, 'a column of another type goes out');
wait_until($node, 'postgres', q{SELECT EXISTS (SELECT FROM app.seen WHERE (event).event_id = app.id(25)::text)}, 'and arrives');
like(seen('json'), qr/\n25\|video\.changed\|5\|text\|v1\|$/, 'as what it is');

$node->safe_psql('postgres', q{
	ALTER TABLE app.changes ALTER entity_id TYPE text;
	INSERT INTO app.changes VALUES (app.id(49), 'video', 'text', 'video.created', 1, '{}', NULL, now())});
wait_until($node, 'postgres', q{SELECT published_at IS NOT NULL FROM app.changes WHERE event_id = app.id(49)}, 'so does a key');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.changes WHERE publish_attempts > 0 AND event_id <> app.id(45)'), '0', 'none of it counted as a failure');

stop_puller($puller);
$node->stop;
done_testing();
