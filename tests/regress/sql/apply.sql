-- inbox_apply: one event, once in effect.
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{video.created,video.updated}', 'reader.video', delete_types => '{video.deleted}');

-- the five outcomes, each in the inbox row too
SELECT postbox.inbox_apply('reader.inbox', '550e8400-e29b-41d4-a716-446655440001', 'video.created', 'video', 'v1', 2, '{"title": "a"}');
SELECT postbox.inbox_apply('reader.inbox', '550e8400-e29b-41d4-a716-446655440001', 'video.created', 'video', 'v1', 2, '{"title": "other"}');
SELECT postbox.inbox_apply('reader.inbox', '550e8400-e29b-41d4-a716-446655440002', 'video.updated', 'video', 'v1', 1, '{"title": "b"}');
SELECT postbox.inbox_apply('reader.inbox', '550e8400-e29b-41d4-a716-446655440003', 'video.watched', 'video', 'v1', 3, '{"title": "c"}');
SELECT postbox.inbox_apply('reader.inbox', '550e8400-e29b-41d4-a716-446655440004', 'video.updated', 'video', 'v1', 4, '[]', on_error => 'reject');
SELECT event_id, event_type, aggregate_type, aggregate_id, version, outcome FROM reader.inbox ORDER BY 1;
SELECT * FROM reader.video;
-- whatever became of it, it comes once
SELECT postbox.inbox_apply('reader.inbox', '550e8400-e29b-41d4-a716-44665544000' || n, 'video.updated', 'video', 'v1', 100, '{"title": "again"}') FROM generate_series(1, 4) n;
SELECT count(*) FROM postbox.dead_letter;

-- event ids: a uuid in any form, any other text
SELECT postbox.inbox_apply('reader.inbox', '{550E8400-E29B-41D4-A716-446655440001}', 'video.watched', NULL, NULL, NULL, NULL);
SELECT postbox.inbox_apply('reader.inbox', '550e8400e29b41d4a716446655440001', 'video.watched', NULL, NULL, NULL, NULL);
SELECT postbox.inbox_apply('reader.inbox', '550e8400-e29b-41d4-a716-44665544000', 'video.watched', NULL, NULL, NULL, NULL);
SELECT postbox.inbox_apply('reader.inbox', 'evt_2a87c8f4-b29a-4f46-9b37-97a7a58a9e0f', 'video.watched', NULL, NULL, NULL, NULL);
SELECT postbox.inbox_apply('reader.inbox', 'evt_2a87c8f4-b29a-4f46-9b37-97a7a58a9e0f', 'video.watched', NULL, NULL, NULL, NULL);
SELECT postbox.inbox_apply('reader.inbox', 'EVT_2a87c8f4-b29a-4f46-9b37-97a7a58a9e0f', 'video.watched', NULL, NULL, NULL, NULL);
-- version 5 in the namespace of Postbox, the same for ever
SELECT event_id FROM reader.inbox WHERE event_type = 'video.watched' ORDER BY 1;

-- events that are none
SELECT postbox.inbox_apply('reader.inbox', NULL, 'video.created', 'video', 'v1', 5, '{"title": "x"}');
SELECT postbox.inbox_apply('reader.inbox', '', 'video.created', 'video', 'v1', 5, '{"title": "x"}');
SELECT postbox.inbox_apply('reader.inbox', NULL::postbox.event);
SELECT postbox.inbox_apply('reader.inbox', ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event);
SELECT postbox.inbox_apply('reader.inbox', 'no type', NULL, 'video', 'v1', 5, '{"title": "x"}', on_error => 'reject');
SELECT event_id, sqlstate, error FROM postbox.dead_letter ORDER BY id DESC LIMIT 1;

-- something that is no inbox
SELECT postbox.inbox_apply(NULL, 'e', 'video.created', 'video', 'v1', 5, '{}');
SELECT postbox.inbox_apply('reader.video', 'e', 'video.created', 'video', 'v1', 5, '{}');
SELECT postbox.inbox_apply('pg_class', 'e', 'video.created', 'video', 'v1', 5, '{}');
SELECT postbox.inbox_apply('reader.inbox_tombstone', 'e', 'video.created', 'video', 'v1', 5, '{}');
SELECT postbox.inbox_apply('reader.no_such', 'e', 'video.created', 'video', 'v1', 5, '{}');
SELECT postbox.inbox_apply('1', 'e', 'video.created', 'video', 'v1', 5, '{}');
\set VERBOSITY sqlstate
SELECT postbox.inbox_apply(NULL, 'e', 'video.created', 'video', 'v1', 5, '{}');
SELECT postbox.inbox_apply('reader.video', 'e', 'video.created', 'video', 'v1', 5, '{}');
SELECT postbox.inbox_apply('1', 'e', 'video.created', 'video', 'v1', 5, '{}');
SELECT postbox.inbox_apply('reader.inbox', NULL, 'video.created', 'video', 'v1', 5, '{}');
\set VERBOSITY default

-- in the caller's transaction: what is rolled back has never been
BEGIN;
SELECT postbox.inbox_apply('reader.inbox', 't1', 'video.updated', 'video', 'v1', 6, '{"title": "rolled back"}');
SAVEPOINT s;
SELECT postbox.inbox_apply('reader.inbox', 't2', 'video.updated', 'video', 'v1', 7, '{"title": "rolled back"}');
ROLLBACK TO s;
SELECT * FROM reader.video;
SELECT postbox.inbox_apply('reader.inbox', 't2', 'video.updated', 'video', 'v1', 7, '{"title": "kept"}');
-- a rejected event does not abort the transaction
SELECT postbox.inbox_apply('reader.inbox', 't3', 'video.updated', 'video', 'v1', 8, '{"title": null}', on_error => 'reject');
SELECT * FROM reader.video;
ROLLBACK;
SELECT * FROM reader.video;
SELECT postbox.inbox_apply('reader.inbox', 't1', 'video.updated', 'video', 'v1', 6, '{"title": "kept"}');
SELECT * FROM reader.video;

-- without on_error => 'reject': errors as they are, and nothing recorded
SELECT postbox.inbox_apply('reader.inbox', 'r1', 'video.updated', 'video', 'v1', 9, '{"title": null}');
SELECT postbox.inbox_apply('reader.inbox', 'r1', 'video.updated', 'video', 'v1', 0, '{}');
\set SHOW_CONTEXT errors
SELECT postbox.inbox_apply('reader.inbox', 'r1', 'video.updated', 'video', 'v1', 9, '[]');
\set SHOW_CONTEXT never
SELECT count(*) FROM reader.inbox WHERE version IN (0, 9);
SELECT postbox.inbox_apply('reader.inbox', 'r1', 'video.updated', 'video', 'v1', 9, '{"title": "repaired"}');
SELECT postbox.inbox_apply('reader.inbox', 'r2', 'video.updated', 'video', 'v1', 10, '{"title": "x"}', on_error => 'ignore');
SELECT postbox.inbox_apply('reader.inbox', 'r2', 'video.updated', 'video', 'v1', 10, '{"title": "x"}', on_error => NULL);
SELECT postbox.inbox_apply('reader.inbox', ROW('r2', 'video.updated', 'video', 'v1', 10, NULL, NULL, NULL)::postbox.event, 'raise');
SELECT postbox.inbox_apply('reader.inbox', ROW('r2', 'video.updated', 'video', 'v1', 10, NULL, NULL, NULL)::postbox.event, 'reject');
-- it is said in the call, not in the session, which may be shared
SELECT count(*) FROM pg_settings WHERE name = 'postbox.apply_on_error';

-- transient errors are raised in either mode, and nothing is recorded
CREATE FUNCTION reader.fail(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('DO $do$ BEGIN RAISE EXCEPTION ''failed'' USING ERRCODE = %L; END $do$', event.aggregate_id);
END $$;
SELECT postbox.create_handler('reader.inbox', '{fail}', 'reader.fail(postbox.event)');
DO $$
DECLARE
    code text;
    outcome text;
BEGIN
    FOREACH code IN ARRAY '{08006,40001,40P01,53200,53300,55P03,57014,57P01,58030,25006,22012,23505,42P01,P0001,55000,XX000,0A000}'::text[] LOOP
        BEGIN
            outcome := postbox.inbox_apply('reader.inbox', 'code ' || code, 'fail', NULL, code, NULL, NULL, on_error => 'reject');
        EXCEPTION WHEN OTHERS OR query_canceled THEN
            outcome := 'raised ' || SQLSTATE;
        END;
        RAISE WARNING '% %', code, outcome;
    END LOOP;
END $$;
SELECT aggregate_id, event_id IS NOT NULL AS seen FROM reader.inbox WHERE event_type = 'fail' ORDER BY 1;
SELECT sqlstate, event_id, error FROM postbox.dead_letter WHERE event_type = 'fail' ORDER BY 1;
CREATE FUNCTION reader.sleep(event postbox.event) RETURNS void LANGUAGE sql AS $$ SELECT pg_sleep(600) $$;
SELECT postbox.create_handler('reader.inbox', '{sleep}', 'reader.sleep(postbox.event)');
BEGIN;
SET LOCAL statement_timeout = '100ms';
SELECT postbox.inbox_apply('reader.inbox', 'sleepy', 'sleep', NULL, NULL, NULL, NULL, on_error => 'reject');
ROLLBACK;
SELECT count(*) FROM reader.inbox WHERE event_type = 'sleep';

-- from PL/pgSQL, many in one transaction
DO $$
DECLARE
    event postbox.event;
BEGIN
    FOR n IN 1..300 LOOP
        event := ROW('loop ' || n, 'video.updated', 'video', 'loop', n, convert_to(format('{"title": "%s"}', n), 'UTF8'), NULL, NULL);
        PERFORM postbox.inbox_apply('reader.inbox', event);
    END LOOP;
END $$;
SELECT * FROM reader.video WHERE id = 'loop';

-- rights of the caller
CREATE ROLE regress_postbox_feeder;
GRANT USAGE ON SCHEMA reader TO regress_postbox_feeder;
SET ROLE regress_postbox_feeder;
SELECT postbox.inbox_apply('reader.inbox', 'f1', 'video.updated', 'video', 'v1', 50, '{"title": "f"}');
RESET ROLE;
GRANT INSERT ON reader.inbox TO regress_postbox_feeder;
SET ROLE regress_postbox_feeder;
SELECT postbox.inbox_apply('reader.inbox', 'f1', 'video.updated', 'video', 'v1', 50, '{"title": "f"}');
SELECT postbox.inbox_apply('reader.inbox', 'f1', 'video.updated', 'video', 'v1', 50, '{"title": "f"}');
SELECT postbox.inbox_apply('reader.inbox', 'f2', 'video.updated', 'video', 'v1', 51, '{"title": null}', on_error => 'reject');
SELECT postbox.inbox_apply('reader.inbox', 'f3', 'video.deleted', 'video', 'v1', 52, NULL);
SELECT * FROM reader.inbox;
SELECT * FROM reader.video;
SELECT count(*) FROM postbox.dead_letter;
RESET ROLE;
SELECT outcome FROM reader.inbox WHERE version BETWEEN 50 AND 52 ORDER BY version;

-- read-only transactions say so, and record nothing
BEGIN READ ONLY;
SELECT postbox.inbox_apply('reader.inbox', 'read only', 'video.updated', 'video', 'v1', 60, '{"title": "r"}');
ROLLBACK;

DROP SCHEMA reader CASCADE;
DROP ROLE regress_postbox_feeder;
