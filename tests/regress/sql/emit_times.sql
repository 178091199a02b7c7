-- deliver_at, expires_at and key_may_pass of outbox_emit: what is stored, in every form, and what is refused. Nothing publishes here.
CREATE SCHEMA times;
SELECT postbox.create_outbox('times.log'), postbox.create_outbox('times.jobs', 'table');
SET TIME ZONE 'Europe/Berlin';
SET postbox.default_outbox = 'times.log';
CREATE FUNCTION pg_temp.stored() RETURNS TABLE (aggregate_id text, attributes jsonb)
    LANGUAGE sql AS $$ SELECT aggregate_id, attributes FROM times.log ORDER BY seq $$;

-- as they are given; an event without them stores nothing more
BEGIN;
SELECT aggregate_id FROM postbox.outbox_emit('video', 'plain', 'video.created', '{}');
SELECT aggregate_id FROM postbox.outbox_emit('video', 'nulls', 'video.created', '{}', deliver_at => NULL, expires_at => NULL, key_may_pass => NULL);
SELECT aggregate_id FROM postbox.outbox_emit('video', 'passed', 'video.created', '{}', deliver_at => now() - interval '1 s', key_may_pass => true);
SELECT aggregate_id FROM postbox.outbox_emit('video', 'now', 'video.created', '{}', deliver_at => now());
SELECT * FROM pg_temp.stored();
SELECT count(*) FROM times.log WHERE attributes <> '{}';
ROLLBACK;
SELECT date_trunc('year', now()) + interval '1 year' AS next_year \gset
BEGIN;
SELECT aggregate_id FROM postbox.outbox_emit('video', 'all', 'video.created', '{}', attributes => '{"a": "b"}', deliver_at => now() + interval '1 min', expires_at => now() + interval '1 day', key_may_pass => true);
SELECT (attributes ->> 'postbox_deliver_at')::timestamptz = now() + interval '1 min' AS deliver_at, (attributes ->> 'postbox_expires_at')::timestamptz = now() + interval '1 day' AS expires_at,
    attributes ->> 'postbox_deliver_at' LIKE '%Z' AS utc, attributes - '{postbox_deliver_at,postbox_expires_at}'::text[] AS rest FROM times.log;
ROLLBACK;

-- every form, and arguments without a type
BEGIN;
SELECT count(*) FROM (VALUES
    (postbox.outbox_emit('video', 'jsonb', 'x', '{}'::jsonb, deliver_at => :'next_year', key_may_pass => true)),
    (postbox.outbox_emit('video', 'bytea', 'x', '\x00'::bytea, deliver_at => :'next_year', key_may_pass => 'true')),
    (postbox.outbox_emit('video', 'text', 'x', '{}'::text, deliver_at => :'next_year', key_may_pass => 'yes')),
    (postbox.outbox_emit('video', 'json', 'x', '{}'::json, deliver_at => :'next_year', key_may_pass => true)),
    (postbox.outbox_emit('video', 1, 'x', '{}'::text, deliver_at => :'next_year', key_may_pass => true)),
    (postbox.outbox_emit('video', 2, 'x', '{}'::jsonb, deliver_at => :'next_year', key_may_pass => true)),
    (postbox.outbox_emit('video', 'schema', 'x', '{}'::text, schema_version => 2, deliver_at => :'next_year', key_may_pass => true)),
    (postbox.outbox_emit('video', 'any', 'x', '{}'::varchar, schema_version => 2, deliver_at => :'next_year', key_may_pass => true)),
    (postbox.outbox_emit_json(format('{"aggregate_type": "video", "aggregate_id": "object", "event_type": "x", "payload": {}, "deliver_at": "%s", "key_may_pass": true}', :'next_year')::json)),
    (postbox.outbox_emit_json(format('{"aggregate_type": "video", "aggregate_id": "strings", "event_type": "x", "payload": {}, "deliver_at": "%s", "expires_at": null, "key_may_pass": "true"}', :'next_year')::json))) e;
SELECT aggregate_id, attributes ->> 'postbox_key_may_pass' AS may_pass FROM times.log WHERE (attributes ->> 'postbox_deliver_at')::timestamptz = :'next_year' ORDER BY seq;
ROLLBACK;
PREPARE emit AS SELECT aggregate_id FROM postbox.outbox_emit('video', $1, 'x', $2, deliver_at => $3, expires_at => $4, key_may_pass => $5);
BEGIN;
EXECUTE emit('prepared', '{}', :'next_year', NULL, 'false');
SELECT attributes ? 'postbox_deliver_at' AS delayed, attributes ? 'postbox_key_may_pass' AS may_pass FROM times.log;
ROLLBACK;

-- what is refused
\set VERBOSITY default
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', deliver_at => 'infinity');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', deliver_at => '-infinity');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', deliver_at => now() + interval '367 days');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', expires_at => 'infinity');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', expires_at => '10001-01-01');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', expires_at => now());
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', expires_at => now() + interval '1 min', deliver_at => now() + interval '1 min');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', key_may_pass => true);
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', attributes => '{"postbox_deliver_at": "2030-01-01T00:00:00Z"}');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', attributes => '{"postbox_key_may_pass": true}');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit('video', 'v', 'x', '{}', deliver_at => 'tomorrow at noon');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit_json('{"aggregate_type": "video", "aggregate_id": "v", "event_type": "x", "payload": {}, "deliver_at": "soon"}');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit_json('{"aggregate_type": "video", "aggregate_id": "v", "event_type": "x", "payload": {}, "key_may_pass": 1.5}');
\echo :LAST_ERROR_SQLSTATE
SELECT postbox.outbox_emit_json('{"aggregate_type": "video", "aggregate_id": "v", "event_type": "x", "payload": {}, "": 1}');
\echo :LAST_ERROR_SQLSTATE
SELECT count(*) FROM times.log;

-- a message that is as large as it can be has room for them: they are not sent
SELECT aggregate_id FROM postbox.outbox_emit('video', 'large', 'x', convert_to(rpad('', 9999300), 'UTF8'), deliver_at => :'next_year', key_may_pass => true);

-- a table keeps the order of each key, also if the time has passed
SELECT aggregate_id FROM postbox.outbox_emit('video', 'v', 'x', '{}', outbox => 'times.jobs', deliver_at => :'next_year', expires_at => :'next_year'::timestamptz + interval '1 s', key_may_pass => false);
SELECT aggregate_id FROM postbox.outbox_emit('video', 'v', 'x', '{}', outbox => 'times.jobs', deliver_at => :'next_year', key_may_pass => true);
\echo :LAST_ERROR_SQLSTATE
SELECT aggregate_id FROM postbox.outbox_emit('video', 'v', 'x', '{}', outbox => 'times.jobs', deliver_at => now() - interval '1 s', key_may_pass => true);
SELECT count(*), bool_and(attributes ? 'postbox_deliver_at' AND attributes ? 'postbox_expires_at' AND NOT attributes ? 'postbox_key_may_pass') AS both_times FROM times.jobs;

-- adopted tables: attributes of another name, or of type json
CREATE TABLE times.old (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid varchar(99) NOT NULL, type text NOT NULL, payload jsonb, headers jsonb);
SELECT postbox.adopt_outbox('times.old', '{"attributes": "headers"}');
SELECT aggregate_id FROM postbox.outbox_emit('video', 'old', 'x', '{}', outbox => 'times.old', deliver_at => :'next_year');
SELECT (headers ->> 'postbox_deliver_at')::timestamptz = :'next_year' AS deliver_at FROM times.old;
CREATE TABLE times.as_json (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid bigint NOT NULL, type text NOT NULL, payload jsonb, attributes json);
SELECT postbox.adopt_outbox('times.as_json');
SELECT aggregate_id FROM postbox.outbox_emit('video', 7, 'x', '{}', outbox => 'times.as_json', deliver_at => :'next_year');
SELECT aggregate_id FROM postbox.outbox_emit('video', 7, 'x', '{}', outbox => 'times.as_json', deliver_at => :'next_year', key_may_pass => true);
\echo :LAST_ERROR_SQLSTATE
SELECT object, problem FROM postbox.repair_outbox('times.old') UNION ALL SELECT object, problem FROM postbox.repair_outbox('times.as_json') UNION ALL SELECT object, problem FROM postbox.repair_outbox('times.log')
UNION ALL SELECT object, problem FROM postbox.repair_outbox('times.jobs');

SELECT postbox.drop_outbox(o::regclass) FROM unnest('{times.log,times.jobs,times.old,times.as_json}'::text[]) o;
DROP SCHEMA times CASCADE;
