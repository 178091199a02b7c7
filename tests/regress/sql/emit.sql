-- outbox_emit: what it stores, what it returns, and that it belongs to the caller's transaction.
CREATE SCHEMA catalog;

-- without an outbox
SELECT postbox.outbox_emit('video', 'v1', 'video.created', '{}');
SELECT postbox.create_outbox('catalog.outbox', 'table');
CREATE FUNCTION pg_temp.stored() RETURNS TABLE (seq bigint, aggregate_type text, aggregate_id text, event_type text,
    version bigint, schema_version text, payload text, attributes jsonb)
    LANGUAGE sql AS $$
    SELECT seq, aggregate_type, aggregate_id, event_type, version, schema_version, encode(payload, 'escape'), attributes
    FROM catalog.outbox ORDER BY seq $$;

-- the three types of payload; an untyped literal is JSON
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{"title":  "Cats", "n": 1.50}');
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{"title": "Katzen \u00fc"}'::jsonb);
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'v2', 'video.created', '\x00ff'::bytea);
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'v2', 'video.emptied', ''::bytea);
SELECT aggregate_id, version FROM postbox.outbox_emit('list', 'v1', 'list.created', '[1, 2]'::text, schema_version => 'v2');
SELECT * FROM pg_temp.stored();
SELECT count(*) AS pending FROM catalog.outbox
WHERE published_at IS NULL AND lock_token IS NULL AND next_retry_at IS NULL AND publish_attempts = 0;

-- ids are UUIDv7 of this moment and grow; the receipt tells them
SELECT count(*) AS made, bool_and(substr(id::text, 15, 1) = '7' AND substr(id::text, 20, 1) IN ('8', '9', 'a', 'b')) AS v7,
       bool_and(abs(extract(epoch FROM now()) - ('x' || translate(left(id::text, 13), '-', ''))::bit(48)::bigint / 1000.0) < 3600) AS now
FROM catalog.outbox;
WITH emitted AS MATERIALIZED (
    SELECT i, (postbox.outbox_emit('tick', 't', 'ticked', '{}')).event_id AS id FROM generate_series(1, 1000) i
)
SELECT count(DISTINCT id), bool_and(id > before) AS grows
FROM (SELECT id, lag(id) OVER (ORDER BY i) AS before FROM emitted) e;
SELECT event_id, version FROM postbox.outbox_emit('tick', 't2', 'ticked', '{}') \gset
SELECT count(*) AS same FROM catalog.outbox WHERE id = :'event_id' AND version = :version;
DELETE FROM catalog.outbox WHERE aggregate_type = 'tick';

-- a given id, and the same again
SELECT event_id, version FROM postbox.outbox_emit('video', 'v3', 'video.created', '{}', event_id => '550e8400-e29b-41d4-a716-446655440000');
SELECT postbox.outbox_emit('video', 'v3', 'video.created', '{}', event_id => '550e8400-e29b-41d4-a716-446655440000');
\echo :LAST_ERROR_SQLSTATE
SELECT version FROM postbox.outbox_emit('video', 'v3', 'video.updated', '{}');

-- versions: the outbox counts, or the caller does, or both in turn
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.created', '{}', version => 5);
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.updated', '{}');
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.updated', '{}', version => 6);
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.updated', '{}', version => 3);
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.updated', '{}', version => 0);
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.updated', '{}', version => -1);
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.updated', '{}', version => 9223372036854775807);
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.updated', '{}');
SELECT version FROM postbox.outbox_emit('playlist', 'v4', 'playlist.created', '{}');
SELECT version FROM postbox.outbox_emit('video', 'v4', 'video.updated', '{}', version => NULL);

-- an event that follows from another has the id that the other gives it: emitting it again changes nothing
SELECT event_id, version FROM postbox.outbox_emit('account', 'u1', 'points.added', '{"points": 5}', source_event_id => 'evt_1');
SELECT event_id, version FROM postbox.outbox_emit('account', 'u1', 'points.added', '{"points": 5}', source_event_id => 'evt_1');
SELECT version FROM postbox.outbox_emit('account', 'u1', 'points.added', '{"points": 5}', source_event_id => 'evt_2');
SELECT version FROM postbox.outbox_emit('account', 'u1', 'points.spent', '{"points": 5}', source_event_id => 'evt_1');
SELECT version FROM postbox.outbox_emit('account', 'u2', 'points.added', '{"points": 5}', source_event_id => 'evt_1');
SELECT version FROM postbox.outbox_emit('account', 'u1', 'points.added', '{"points": 5}', source_event_id => 'evt_1', version => 2);
SELECT version FROM postbox.outbox_emit('account', 'u1', 'points.added', '{"points": 5}', source_event_id => 'evt_3', version => 9);
SELECT aggregate_id, event_type, version FROM catalog.outbox WHERE aggregate_type = 'account' ORDER BY seq;
SELECT aggregate_id, version FROM catalog.outbox_version WHERE aggregate_type = 'account' ORDER BY 1;
SELECT postbox.outbox_emit('account', 'u1', 'points.added', '{}', source_event_id => 'evt_1', event_id => '550e8400-e29b-41d4-a716-446655440001');
SELECT postbox.outbox_emit('account', 'u1', 'points.added', '{}', source_event_id => '');

-- attributes: scalars become text; the context of the session is added, the caller's word counts more
TRUNCATE catalog.outbox;
SELECT version FROM postbox.outbox_emit('video', 'a1', 'video.created', '{}', attributes => '{"tenant": "t1", "n": 1.50, "big": 12345678901234567890, "yes": true, "no": false, "": ""}');
SELECT version FROM postbox.outbox_emit('video', 'a1', 'video.created', '{}', attributes => '{"tenant": "t1", "n": 1.50, "big": 12345678901234567890, "yes": true, "no": false, "empty": ""}');
SELECT version FROM postbox.outbox_emit('video', 'a1', 'video.created', '{}', attributes => NULL, schema_version => NULL, occurred_at => NULL);
BEGIN;
SET LOCAL postbox.correlation_id = 'c-1';
SET LOCAL postbox.causation_id = 'c-0';
SET LOCAL postbox.user_id = 'u-1';
SET LOCAL postbox.traceparent = '00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01';
SET LOCAL postbox.source_service = 'catalog';
SET LOCAL postbox.source_version = 'v1.2.3';
SELECT version FROM postbox.outbox_emit('video', 'a1', 'video.updated', '{}');
SELECT version FROM postbox.outbox_emit('video', 'a1', 'video.updated', '{}', attributes => '{"user_id": "somebody", "tenant": "t1"}');
COMMIT;
SELECT version FROM postbox.outbox_emit('video', 'a1', 'video.updated', '{}');
SELECT event_type, attributes FROM catalog.outbox ORDER BY seq;

-- the time is that of the transaction, or the caller's
BEGIN;
SELECT version FROM postbox.outbox_emit('video', 'o1', 'video.created', '{}');
SELECT version FROM postbox.outbox_emit('video', 'o1', 'video.created', '{}', occurred_at => '2025-10-24 10:30:00.123456+00');
SELECT occurred_at = now() AS now, CASE WHEN occurred_at <> now() THEN occurred_at AT TIME ZONE 'UTC' END AS given
FROM catalog.outbox WHERE aggregate_id = 'o1' ORDER BY seq;
COMMIT;

-- what a transaction or a savepoint takes back was never emitted, and its versions are free again
TRUNCATE catalog.outbox, catalog.outbox_version;
BEGIN;
SELECT version FROM postbox.outbox_emit('video', 's1', 'kept', '{}');
SAVEPOINT one;
SELECT version FROM postbox.outbox_emit('video', 's1', 'undone', '{}');
ROLLBACK TO one;
SELECT version FROM postbox.outbox_emit('video', 's1', 'kept', '{}');
SAVEPOINT two;
SELECT version FROM postbox.outbox_emit('video', 's1', 'goes back', '{}', version => 1);
ROLLBACK TO two;
SELECT version FROM postbox.outbox_emit('video', 's1', 'kept', '{}');
COMMIT;
BEGIN;
SELECT version FROM postbox.outbox_emit('video', 's1', 'undone', '{}');
ROLLBACK;
DO $$
BEGIN
    FOR i IN 1..3 LOOP
        BEGIN
            PERFORM postbox.outbox_emit('video', 's1', 'plpgsql', '{}');
            PERFORM postbox.outbox_emit('video', 's1', 'plpgsql', '{}', version => CASE i WHEN 2 THEN 1 END);
        EXCEPTION WHEN invalid_parameter_value THEN
            RAISE WARNING 'caught: %', SQLERRM;
        END;
    END LOOP;
END $$;
SELECT event_type, version FROM catalog.outbox ORDER BY seq;

-- a trigger may look at events and emit further ones, but not take one away
CREATE FUNCTION catalog.follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.event_type = 'first' THEN
        PERFORM postbox.outbox_emit(NEW.aggregate_type, NEW.aggregate_id, 'second', '{}');
    END IF;
    IF NEW.event_type = 'unwanted' THEN RETURN NULL; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER follow BEFORE INSERT ON catalog.outbox FOR EACH ROW EXECUTE FUNCTION catalog.follow();
SELECT version FROM postbox.outbox_emit('video', 't1', 'first', '{}');
SELECT version FROM postbox.outbox_emit('video', 't1', 'unwanted', '{}');
SELECT event_type, version FROM catalog.outbox WHERE aggregate_id = 't1' ORDER BY version;
DROP TRIGGER follow ON catalog.outbox;

-- read-only transactions
BEGIN READ ONLY;
SELECT postbox.outbox_emit('video', 'v1', 'video.created', '{}');
ROLLBACK;

-- which outbox: the parameter, the setting, the only one
SELECT postbox.create_outbox('catalog.second', 'table');
SELECT postbox.outbox_emit('video', 'w1', 'video.created', '{}');
SELECT version FROM postbox.outbox_emit('video', 'w1', 'video.created', '{}', outbox => 'catalog.second');
SET postbox.default_outbox = 'catalog.second';
SELECT version FROM postbox.outbox_emit('video', 'w1', 'video.created', '{}');
SET search_path = catalog, public;
SET postbox.default_outbox = 'outbox';
SELECT version FROM postbox.outbox_emit('video', 'w1', 'video.created', '{}');
RESET search_path;
SELECT version FROM postbox.outbox_emit('video', 'w1', 'video.created', '{}');
SET postbox.default_outbox = 'no_such_schema.outbox';
SELECT postbox.outbox_emit('video', 'w1', 'video.created', '{}');
SET postbox.default_outbox = 'pg_catalog.pg_class';
SELECT postbox.outbox_emit('video', 'w1', 'video.created', '{}');
RESET postbox.default_outbox;
SELECT postbox.outbox_emit('video', 'w1', 'video.created', '{}', outbox => 'catalog.outbox_version');
SELECT postbox.outbox_emit('video', 'w1', 'video.created', '{}', outbox => 'no_such_table');
SELECT postbox.outbox_emit('video', 'w1', 'video.created', '{}', outbox => 4294967295::oid::regclass);
SELECT postbox.drop_outbox('catalog.second');
SELECT version FROM postbox.outbox_emit('video', 'w1', 'video.created', '{}');
DROP TABLE catalog.outbox;
SELECT version FROM postbox.outbox_emit('video', 'w1', 'video.created', '{}');

DROP SCHEMA catalog CASCADE;
