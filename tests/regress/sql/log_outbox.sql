-- The log outbox: what it is made of, what it refuses, its partitions and its retention.
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS postbox;
CREATE SCHEMA log_app;
SET postbox.project_id = 'test';

SELECT postbox.create_outbox('log_app.events', 'log', '7 days');
SELECT relation, kind, counter, parked, retention FROM postbox.outbox WHERE relation = 'log_app.events'::regclass;
SELECT attname, format_type(atttypid, atttypmod), attnotnull FROM pg_attribute
WHERE attrelid = 'log_app.events'::regclass AND attnum > 0 ORDER BY attnum;
-- today, the next two days, and the rest
SELECT count(*), count(*) FILTER (WHERE pg_get_expr(c.relpartbound, c.oid) = 'DEFAULT') AS rest
FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE inhparent = 'log_app.events'::regclass;
SELECT postbox.add_partitions('log_app.events');

-- Events: an append, with the transaction id of the caller
BEGIN;
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{"a": 1}', outbox => 'log_app.events');
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '\x01'::bytea, outbox => 'log_app.events');
SELECT aggregate_id, version, txid = pg_current_xact_id() AS mine, tableoid::regclass <> 'log_app.events_default'::regclass AS in_partition FROM log_app.events ORDER BY seq;
COMMIT;
-- An explicit version is the caller's own
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}', version => 7, outbox => 'log_app.events');
SELECT postbox.outbox_emit('video', 'v1', 'video.updated', '{}', version => 0, outbox => 'log_app.events');
-- An id that is no UUIDv7 goes to the default partition, and is unique all the same
SELECT event_id FROM postbox.outbox_emit('video', 'v2', 'video.created', '{}', event_id => '6ba7b810-9dad-41d1-80b4-00c04fd430c8', outbox => 'log_app.events');
SELECT tableoid::regclass FROM log_app.events WHERE id = '6ba7b810-9dad-41d1-80b4-00c04fd430c8';
\set VERBOSITY terse
SELECT event_id FROM postbox.outbox_emit('video', 'v2', 'video.created', '{}', event_id => '6ba7b810-9dad-41d1-80b4-00c04fd430c8', outbox => 'log_app.events');
\set VERBOSITY default
-- A UUIDv7 of the future would outlive retention
SELECT postbox.outbox_emit('video', 'v2', 'video.created', '{}', event_id => 'ffffffff-ffff-7000-8000-000000000000', outbox => 'log_app.events');
-- The same source makes the same event
SELECT a.event_id = b.event_id AS same, a.version, b.version
FROM postbox.outbox_emit('video', 'v3', 'video.created', '{}', source_event_id => 's1', outbox => 'log_app.events') a,
     postbox.outbox_emit('video', 'v3', 'video.created', '{}', source_event_id => 's1', outbox => 'log_app.events') b;

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

-- Retention drops partitions that every lane has read
SELECT postbox.create_outbox('log_app.short', 'log', '7 minutes');
CREATE TABLE log_app.short_old PARTITION OF log_app.short
    FOR VALUES FROM (postbox.uuid_bound('2020-01-01 00:00+00')) TO (postbox.uuid_bound('2020-01-02 00:00+00'));
INSERT INTO log_app.short (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
VALUES ('016f5e66-e800-7000-8000-000000000001', 'video', 'old', 'video.created', 1, '{}', '2020-01-01 00:00:01+00'),
       ('00000000-0000-4000-8000-000000000001', 'video', 'old', 'video.created', 1, '{}', '2020-01-01 00:00:01+00');
SELECT postbox.create_publication('log_short', 'log_app.short', 'catalog.video.events');
SELECT postbox.purge_outbox('log_app.short');
SELECT count(*) FROM log_app.short;
-- as if a worker had read everything
UPDATE postbox.lane SET floor = 0, hwm = 1000, snapshot = pg_current_snapshot() WHERE publication = 'log_short';
SELECT postbox.purge_outbox('log_app.short');
SELECT count(*) FROM log_app.short;
SELECT to_regclass('log_app.short_old');

SELECT postbox.drop_outbox('log_app.short');
DROP TABLE log_app.events;
SELECT c.relname FROM pg_class c WHERE c.relnamespace = 'log_app'::regnamespace AND c.relkind IN ('r', 'p', 'S') ORDER BY 1;
SELECT count(*) FROM postbox.publication WHERE name LIKE 'log_%';
DROP SCHEMA log_app;
