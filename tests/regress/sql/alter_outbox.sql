-- The retention of an outbox is altered in place.
\set VERBOSITY default
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA app;
SELECT postbox.create_outbox('app.jobs', 'table', '7 days'), postbox.create_outbox('app.log', 'log', '4 hours');
SELECT postbox.alter_outbox('app.jobs', '30 days');
SELECT relation, retention, generation_span FROM postbox.outbox WHERE kind = 'table';
SELECT postbox.alter_outbox('app.jobs', retention => NULL);
SELECT relation, retention, generation_span FROM postbox.outbox WHERE kind = 'table';

CREATE FUNCTION pg_temp.state() RETURNS TABLE (retention interval, span interval, "default" text, changed boolean, past bigint) LANGUAGE sql AS $$
    SELECT o.retention, o.generation_span, pg_get_expr(d.adbin, d.adrelid), o.generations_since IS NOT NULL, (SELECT count(*) FROM postbox.past_retention(o))
    FROM postbox.outbox o JOIN pg_attribute a ON a.attrelid = o.relation AND a.attname = 'generation' JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    WHERE o.relation = 'app.log'::regclass $$;
SELECT retention, span, "default", changed, past > 0 AS past FROM pg_temp.state();
-- a shorter one keeps the span, and more is past it
SELECT postbox.alter_outbox('app.log', '1 hour');
SELECT retention, span, "default", changed, past > 2 AS past FROM pg_temp.state();
SELECT postbox.alter_outbox('app.log', '4 hours');
SELECT retention, span, "default", changed, past > 0 AS past FROM pg_temp.state();
-- a longer one needs a longer span; nothing is past it before events from before have their age
SELECT (postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'app.log')).version;
SELECT postbox.alter_outbox('app.log', '40 hours');
SELECT * FROM pg_temp.state();
SELECT (postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'app.log')).version;
INSERT INTO app.log (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'video', 'v1', 'video.changed', 3, '{}');
SELECT version, generation = postbox.generation_of(now(), 36000) AS by_the_new_span FROM app.log WHERE version > 1 ORDER BY version;
UPDATE postbox.outbox SET generations_since = now() - interval '39 hours' WHERE relation = 'app.log'::regclass;
SELECT past FROM pg_temp.state();
UPDATE postbox.outbox SET generations_since = now() - interval '41 hours' WHERE relation = 'app.log'::regclass;
SELECT past > 0 AS past FROM pg_temp.state();
SELECT postbox.alter_outbox('app.log', NULL);
SELECT * FROM pg_temp.state();
SELECT count(*) FROM postbox.repair_outbox('app.log');
SELECT postbox.alter_outbox('app.log', '0');
SELECT postbox.alter_outbox('app.log', '-1 day');
SELECT postbox.alter_outbox(NULL, '1 day');
SELECT postbox.alter_outbox('pg_class', '1 day');
CREATE ROLE regress_postbox_other IN ROLE postbox_operator;
GRANT USAGE ON SCHEMA app TO regress_postbox_other;
SET ROLE regress_postbox_other;
SELECT postbox.alter_outbox('app.log', '1 day');
SELECT postbox.alter_outbox('app.jobs', '1 day');
RESET ROLE;
DROP SCHEMA app CASCADE;
DROP ROLE regress_postbox_other;
