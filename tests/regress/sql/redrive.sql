-- What to do about events that are stuck: look, redrive, discard.
CREATE SCHEMA catalog;
SELECT postbox.create_outbox('catalog.outbox', 'table');

-- id N is event number N; the worker's own code brings it into its state (tests/support/postbox_test.cc)
SET postbox.project_id = 'shop';
SELECT postbox.create_publication('videos', 'catalog.outbox', 'catalog.video.events', base_backoff => '1 ms', max_backoff => '1 ms');
CREATE FUNCTION pg_temp.claim(publication text, lock_token text, at_most int) RETURNS text[]
    LANGUAGE C AS 'postbox_test', 'postbox_test_claim';
CREATE FUNCTION pg_temp.settle(publication text, lock_token text, ids text[], result text, error text) RETURNS void
    LANGUAGE C AS 'postbox_test', 'postbox_test_settle';
CREATE FUNCTION pg_temp.id(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid $$;
CREATE FUNCTION pg_temp.state() RETURNS TABLE (event int, key text, state text, attempts int, last_error text) LANGUAGE sql AS $$
    SELECT right(id::text, 4)::int, aggregate_id,
           CASE WHEN published_at = '-infinity' THEN 'discarded' WHEN published_at IS NOT NULL THEN 'published'
                WHEN lock_token IS NOT NULL THEN 'inflight' WHEN next_retry_at IS NULL THEN 'pending'
                WHEN publish_attempts = 0 AND next_retry_at <= now() THEN 'due' WHEN publish_attempts = 0 AND next_retry_at = 'infinity' THEN 'behind'
                WHEN next_retry_at = 'infinity' THEN 'failed' ELSE 'retry' END,
           publish_attempts, last_error
    FROM catalog.outbox ORDER BY seq $$;
CREATE PROCEDURE pg_temp.setup() LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM catalog.outbox;
    PERFORM postbox.outbox_emit('video', key, 'video.changed', '{}', event_id => pg_temp.id(n))
    FROM (VALUES (1, 'a'), (2, 'a'), (3, 'a'), (4, 'b'), (5, 'b'), (6, 'c'), (7, 'd'), (8, 'e'), (9, 'e')) e (n, key);
    COMMIT;
    -- a: failed, two behind it. b: to be tried again, one behind. c: pending. d: with a worker. e: done, then pending.
    FOR attempt IN 1..5 LOOP
        PERFORM set_config('client_min_messages', 'error', true);
        PERFORM pg_temp.settle('videos', 'postbox-0', pg_temp.claim('videos', 'postbox-0', 1), 'rejected', 'INVALID_ARGUMENT: no');
        PERFORM pg_sleep(0.01);
        COMMIT;
    END LOOP;
    PERFORM pg_temp.settle('videos', 'postbox-0', pg_temp.claim('videos', 'postbox-0', 1), 'unknown', 'UNAVAILABLE: later');
    UPDATE catalog.outbox SET next_retry_at = '2100-01-01 00:00:00+00' WHERE id = pg_temp.id(4);  -- a time to be compared
    COMMIT;
    PERFORM pg_temp.claim('videos', 'postbox-0', 4);
    PERFORM pg_temp.settle('videos', 'postbox-0', ARRAY[pg_temp.id(8)::text], 'published', '');
    PERFORM pg_temp.settle('videos', 'postbox-0', ARRAY[pg_temp.id(6), pg_temp.id(9)]::text[], 'leaving', '');
END $$;
CALL pg_temp.setup();
SELECT * FROM pg_temp.state();
SELECT side, relation, aggregate_id, first_event_id, event_type, attempts, next_retry_at AT TIME ZONE 'UTC' AS next_retry_at, last_error, waiting
FROM postbox.paused_keys;

-- one event, with those behind it
SELECT postbox.redrive('catalog.outbox', pg_temp.id(1));
SELECT * FROM pg_temp.state();
SELECT aggregate_id, waiting FROM postbox.paused_keys;
-- what is not parked is not redriven
SELECT postbox.redrive('catalog.outbox', pg_temp.id(1));
SELECT postbox.redrive('catalog.outbox', pg_temp.id(6));
SELECT postbox.redrive('catalog.outbox', pg_temp.id(7));
SELECT postbox.redrive('catalog.outbox', pg_temp.id(8));
SELECT postbox.redrive('catalog.outbox', pg_temp.id(99));

-- all of them
CALL pg_temp.setup();
SELECT postbox.redrive('catalog.outbox');
SELECT * FROM pg_temp.state();
SELECT postbox.redrive('catalog.outbox');
SELECT count(*) FROM postbox.paused_keys;

-- discarding lets the key go on
CALL pg_temp.setup();
SELECT postbox.discard('catalog.outbox', pg_temp.id(1));
SELECT * FROM pg_temp.state();
SELECT aggregate_id FROM postbox.paused_keys;
-- once only; not what is published, on its way, or not there
SELECT postbox.discard('catalog.outbox', pg_temp.id(1));
SELECT postbox.discard('catalog.outbox', pg_temp.id(8));
SELECT postbox.discard('catalog.outbox', pg_temp.id(99));
SELECT postbox.discard('catalog.outbox', pg_temp.id(7));
-- an event that waits may go as well
SELECT postbox.discard('catalog.outbox', pg_temp.id(6));
SELECT event, state FROM pg_temp.state() WHERE state = 'discarded';
-- a discarded event is not emitted again under its id
SELECT postbox.outbox_emit('video', 'a', 'video.changed', '{}', event_id => pg_temp.id(1));

-- bad input
SELECT postbox.redrive(NULL);
SELECT postbox.redrive('pg_class');
SELECT postbox.redrive(4294967295::oid::regclass);
SELECT postbox.discard(NULL, pg_temp.id(1));
SELECT postbox.discard('catalog.outbox', NULL);
SELECT postbox.discard('pg_class', pg_temp.id(1));

DROP SCHEMA catalog CASCADE;
