-- The log outbox: what it is made of, what it refuses, its partitions and its retention.
CREATE SCHEMA log_app;
SET postbox.project_id = 'test';

SELECT postbox.create_outbox('log_app.events', 'log', '7 days');
SELECT relation, kind, counter, parked, retention FROM postbox.outbox WHERE relation = 'log_app.events'::regclass;
SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
WHERE attrelid = 'log_app.events'::regclass AND attnum > 0 ORDER BY attnum;
-- a partition for each generation; one that is missing is made again
SELECT part, generation FROM postbox.generation_partitions('log_app.events') ORDER BY generation;
DROP TABLE log_app.events_g3;
SELECT postbox.purge_outbox('log_app.events');
SELECT count(*) FROM postbox.generation_partitions('log_app.events');
-- each generation is written to for a quarter of the retention, in turn
SELECT generation_span FROM postbox.outbox WHERE relation = 'log_app.events'::regclass;
SELECT pg_get_expr(adbin, adrelid) FROM pg_attrdef WHERE adrelid = 'log_app.events'::regclass AND adnum IN (12, 13) ORDER BY adnum;
SELECT r AS retention, postbox.generation_span(r) FROM unnest('{1 second,1 hour,7 days,100000 years}'::interval[]) r;
SELECT postbox.generation_expression('1 minute', 'turn') AS expression \gset
SELECT string_agg((:expression)::text, ' ' ORDER BY turn) AS generations FROM generate_series(timestamptz '2026-01-01 00:00:30+00', '2026-01-01 00:07+00', '30 s') turn;

-- Events: an append, with the transaction id of the caller
BEGIN;
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{"a": 1}', outbox => 'log_app.events');
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '\x01'::bytea, outbox => 'log_app.events');
SELECT aggregate_id, version, txid = pg_current_xact_id() AS mine, tableoid::regclass::text = 'log_app.events_g' || generation AS in_partition FROM log_app.events ORDER BY seq;
COMMIT;
-- An explicit version is the caller's own
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}', version => 7, outbox => 'log_app.events');
SELECT postbox.outbox_emit('video', 'v1', 'video.updated', '{}', version => 0, outbox => 'log_app.events');
-- An id is unique in all generations, whatever kind it is of
SELECT event_id FROM postbox.outbox_emit('video', 'v2', 'video.created', '{}', event_id => '6ba7b810-9dad-41d1-80b4-00c04fd430c8', outbox => 'log_app.events');
UPDATE log_app.events SET generation = (generation + 2) % 6 WHERE id = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';
\set VERBOSITY terse
SELECT event_id FROM postbox.outbox_emit('video', 'v2', 'video.created', '{}', event_id => '6ba7b810-9dad-41d1-80b4-00c04fd430c8', outbox => 'log_app.events');
SELECT event_id FROM postbox.outbox_emit('video', 'v2', 'video.created', '{}', version => 3, event_id => '6ba7b810-9dad-41d1-80b4-00c04fd430c8', outbox => 'log_app.events');
\set VERBOSITY sqlstate
INSERT INTO log_app.events (id, aggregate_type, aggregate_id, event_type, version, payload, generation)
SELECT id, aggregate_type, aggregate_id, event_type, version, payload, generation FROM log_app.events WHERE id = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';
\set VERBOSITY default
SELECT event_id FROM postbox.outbox_emit('video', 'v2', 'video.created', '{}', event_id => 'ffffffff-ffff-7000-8000-000000000000', outbox => 'log_app.events');
-- The same source makes the same event, in a later generation, too
SELECT a.event_id = b.event_id AS same, a.version, b.version
FROM postbox.outbox_emit('video', 'v3', 'video.created', '{}', source_event_id => 's1', outbox => 'log_app.events') a,
     postbox.outbox_emit('video', 'v3', 'video.created', '{}', source_event_id => 's1', outbox => 'log_app.events') b;
UPDATE log_app.events SET generation = (generation + 5) % 6 WHERE aggregate_id = 'v3';
SELECT version FROM postbox.outbox_emit('video', 'v3', 'video.created', '{}', source_event_id => 's1', outbox => 'log_app.events');
SELECT count(*) FROM log_app.events WHERE aggregate_id = 'v3';

-- Publications: any number of them, each with its ordering and lanes
SELECT postbox.create_publication('log_all', 'log_app.events', 'catalog.video.events', lanes => 3);
SELECT postbox.create_publication('log_bucket', 'log_app.events', 'catalog.video.events', ordering => 'bucket:256');
SELECT postbox.create_publication('log_none', 'log_app.events', 'catalog.video.events', ordering => 'none');
SELECT name, ordering, lanes FROM postbox.publication WHERE outbox = 'log_app.events'::regclass ORDER BY name;
SELECT publication, slice FROM postbox.lane ORDER BY publication, slice;
SELECT postbox.create_publication('bad', 'log_app.events', 'catalog.video.events', ordering => 'bucket:0');
SELECT postbox.create_publication('bad', 'log_app.events', 'catalog.video.events', ordering => 'bucket:x');
SELECT postbox.create_publication('bad', 'log_app.events', 'catalog.video.events', lanes => 65);
SELECT publication, state, pending, parked, "position", leases FROM postbox.publication_status ORDER BY publication;

-- Nothing is parked
SELECT postbox.redrive('log_app.events');
SELECT postbox.discard('log_app.events', '6ba7b810-9dad-41d1-80b4-00c04fd430c8');
SELECT * FROM postbox.paused_keys;

-- Retention empties the partition of the generation that the retention does not reach, when every lane has read all of it
SELECT postbox.create_outbox('log_app.short', 'log', '7 minutes');
INSERT INTO log_app.short (id, aggregate_type, aggregate_id, event_type, version, payload, generation)
SELECT gen_random_uuid(), 'video', 'v' || g, 'video.created', 1, '{}', g FROM generate_series(0, 5) g;
CREATE FUNCTION log_app.purge() RETURNS TABLE (purged bigint, rows bigint, publications bigint, problem text) LANGUAGE sql AS $$
    SELECT postbox.purge_outbox('log_app.short');
    SELECT 0::bigint, (SELECT count(*) FROM log_app.short), s.publications, s.problem FROM postbox.outbox_status s WHERE s.outbox = 'log_app.short'::regclass $$;
SELECT * FROM log_app.purge();
SELECT postbox.create_publication('log_short', 'log_app.short', 'catalog.video.events', lanes => 2);
SELECT * FROM log_app.purge();
-- as if a worker had read everything, in another cluster; then in this one, but for a lane; then all of it
INSERT INTO postbox.lane (publication, slice, floor, hwm, snapshot, system_identifier) VALUES ('log_short', 0, 0, 1000, pg_current_snapshot(), 1), ('log_short', 1, 0, 1000, pg_current_snapshot(), 1)
ON CONFLICT (publication, slice) DO UPDATE SET floor = 0, hwm = 1000, snapshot = excluded.snapshot, system_identifier = 1;
SELECT rows FROM log_app.purge();
UPDATE postbox.lane SET system_identifier = (SELECT system_identifier FROM pg_control_system()), hwm = CASE WHEN slice = 1 THEN 0 ELSE 1000 END WHERE publication = 'log_short';
SELECT rows FROM log_app.purge();
UPDATE postbox.lane SET hwm = 1000 WHERE publication = 'log_short';
-- but not while an event that cannot be published, of which there is no copy, is parked, nor one that no lane reads
INSERT INTO log_app.short_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, payload, unreadable, next_retry_at)
SELECT 'log_short', seq, id, 'video', 'v', 'video.created', 1, '', true, 'infinity' FROM log_app.short;
SELECT rows FROM log_app.purge();
DELETE FROM log_app.short_parked;
SET session_replication_role = replica;
INSERT INTO log_app.short (seq, id, aggregate_type, aggregate_id, event_type, version, payload, generation)
SELECT 0, gen_random_uuid(), 'video', 'v' || g, 'video.created', 1, '{}', g FROM generate_series(0, 5) g;
RESET session_replication_role;
SELECT rows FROM log_app.purge();
DELETE FROM log_app.short WHERE seq = 0;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT rows FROM log_app.purge();
ROLLBACK;
SELECT * FROM log_app.purge();
DROP FUNCTION log_app.purge;
SELECT postbox.drop_outbox('log_app.short');
DROP TABLE log_app.events;
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'log_app'::regnamespace AND c.relkind IN ('r', 'p', 'S') ORDER BY 1;
SELECT count(*) FROM postbox.publication WHERE name LIKE 'log_%';
DROP SCHEMA log_app;
