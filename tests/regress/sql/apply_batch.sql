-- inbox_apply_batch: many events in one call, in their order.
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text NOT NULL, n int, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{video.created,video.updated}', 'reader.video', delete_types => '{video.deleted}');
CREATE FUNCTION pg_temp.event(id text, type text, key text, version bigint, payload text) RETURNS postbox.event
    LANGUAGE sql AS $$ SELECT ROW(id, type, 'video', key, version, convert_to(payload, 'UTF8'), NULL, NULL)::postbox.event $$;

-- every outcome that needs no error, the same key several times, the same event twice
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[
    pg_temp.event('1', 'video.created', 'a', 1, '{"title": "a1", "n": 1}'),
    pg_temp.event('2', 'video.created', 'b', 1, '{"title": "b1"}'),
    pg_temp.event('3', 'video.updated', 'a', 3, '{"title": "a3"}'),
    pg_temp.event('4', 'video.updated', 'a', 2, '{"title": "a2"}'),
    pg_temp.event('1', 'video.created', 'a', 9, '{"title": "twice"}'),
    pg_temp.event('5', 'video.watched', 'a', 4, '{}'),
    pg_temp.event('6', 'video.deleted', 'b', 2, NULL),
    pg_temp.event('7', 'video.updated', 'b', 1, '{"title": "late"}')]);
SELECT * FROM reader.video ORDER BY id;
SELECT event_type, aggregate_id, version, outcome FROM reader.inbox ORDER BY aggregate_id, version, event_type;
SELECT key, version FROM reader.inbox_tombstone;
-- all of it again, with one that is new
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[
    pg_temp.event('7', 'video.updated', 'b', 1, '{}'), pg_temp.event('3', 'video.updated', 'a', 3, '{}'),
    pg_temp.event('8', 'video.created', 'b', 3, '{"title": "b3"}'), pg_temp.event('5', 'video.watched', 'a', 4, '{}')]);
SELECT * FROM reader.video ORDER BY id;

-- bad events cost themselves only
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[
    pg_temp.event('11', 'video.updated', 'a', 4, '{"title": "a4"}'),
    pg_temp.event('12', 'video.updated', 'a', 5, '{"n": "many"}'),
    pg_temp.event('13', 'video.updated', 'a', 6, '{"n": 6}'),
    pg_temp.event('14', 'video.updated', 'a', NULL, '{"n": 7}'),
    pg_temp.event('15', NULL, 'a', 7, '{"n": 7}'),
    pg_temp.event('11', 'video.updated', 'a', 8, '{"n": 8}'),
    pg_temp.event('16', 'video.created', 'c', 1, '{"title": null}'),
    pg_temp.event('17', 'video.created', 'd', 1, '{"title": "d1"}'),
    pg_temp.event('2', 'video.created', 'e', 1, '{"title": "e1"}')], on_error => 'reject');
SELECT * FROM reader.video ORDER BY id;
SELECT event_id, sqlstate, error FROM postbox.dead_letter ORDER BY id;
SELECT outcome, count(*) FROM reader.inbox GROUP BY 1 ORDER BY 1;
-- the bad ones are not tried again
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[pg_temp.event('12', 'video.updated', 'a', 9, '{}'), pg_temp.event('16', 'video.updated', 'a', 9, '{}')]);

-- raise, the default: the first error ends the call, nothing of the batch stays
\set SHOW_CONTEXT errors
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[
    pg_temp.event('21', 'video.updated', 'a', 20, '{"title": "a20"}'), pg_temp.event('22', 'video.updated', 'a', 21, '{"n": "many"}')]);
\set SHOW_CONTEXT never
SELECT version FROM reader.video WHERE id = 'a';
-- for programs, the detail says which event it is, and has the detail that the error has otherwise
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[
    pg_temp.event('21', 'video.updated', 'a', 20, '{"title": "a20"}'), pg_temp.event('22', 'video.updated', 'a', 21, '{"n": "many"}')], json_detail => true);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[
    pg_temp.event('21', 'video.updated', 'a', 20, '{"title": "a20"}'), pg_temp.event(NULL, 'video.updated', 'a', 21, '{}')], json_detail => true);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[pg_temp.event('21', 'video.updated', 'a', 20, '{}')], json_detail => NULL);
-- however long that is, and where a handler applies events, with the position in each call
CREATE FUNCTION reader.talk(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF event.event_type <> 'nest' THEN
        RAISE EXCEPTION 'too much' USING DETAIL = repeat(E'\x01\\', CASE event.event_type WHEN 'talk' THEN 1000000 ELSE 1 END), HINT = 'Say less.', CONSTRAINT = 'short';
    END IF;
    PERFORM postbox.inbox_apply_batch('reader.inbox', ARRAY[event, event, row(event.event_id || '-inner', 'whisper', NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event],
        json_detail => true);
END$$;
SELECT postbox.create_handler('reader.inbox', '{talk,whisper,nest}', 'reader.talk(postbox.event)');
CREATE FUNCTION pg_temp.error_of(VARIADIC types text[]) RETURNS TABLE (message text, event int, detail json, hint text, name text) LANGUAGE plpgsql AS $$
DECLARE
    text text;
BEGIN
    PERFORM postbox.inbox_apply_batch('reader.inbox', (SELECT array_agg(pg_temp.event('talk-' || n, type, NULL, NULL, NULL) ORDER BY n)
        FROM unnest(types) WITH ORDINALITY AS t (type, n)), json_detail => true);
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, text = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT, name = CONSTRAINT_NAME;
    detail := text::json;
    event := detail ->> 'event';
    RETURN NEXT;
END$$;
SELECT message, event, octet_length(detail ->> 'detail') AS bytes, right(detail ->> 'detail', 5) AS ends, hint, name FROM pg_temp.error_of('other', 'other', 'talk');
SELECT message, event, detail ->> 'detail' AS detail, hint, name FROM pg_temp.error_of('other', 'nest');
SELECT postbox.drop_handler(name) FROM postbox.handler;
DROP FUNCTION reader.talk, pg_temp.error_of;
-- so does a transient error
CREATE FUNCTION reader.fail(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'try again' USING ERRCODE = '40001';
END $$;
SELECT postbox.create_handler('reader.inbox', '{fail}', 'reader.fail(postbox.event)');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[
    pg_temp.event('31', 'video.updated', 'a', 20, '{"title": "a20"}'), pg_temp.event('32', 'fail', 'a', 21, '{}')]);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[
    pg_temp.event('31', 'video.updated', 'a', 20, '{"title": null}'), pg_temp.event('32', 'fail', 'a', 21, '{}')], 'reject');
SELECT version FROM reader.video WHERE id = 'a';
SELECT count(*) FROM reader.inbox WHERE version > 9;

-- arrays at the edge
SELECT postbox.inbox_apply_batch('reader.inbox', '{}');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[pg_temp.event('41', 'video.updated', 'a', 30, '{"title": "one"}')]);
SELECT postbox.inbox_apply_batch('reader.inbox', NULL);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[NULL::postbox.event]);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[[pg_temp.event('42', 'x', 'a', 1, '{}')], [pg_temp.event('43', 'x', 'a', 1, '{}')]]);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[pg_temp.event('44', 'video.updated', 'a', 40, '{}'), pg_temp.event(NULL, 'x', 'a', 1, '{}')]);
SELECT count(*) FROM reader.inbox WHERE version = 40;
SELECT postbox.inbox_apply_batch(NULL, '{}');
SELECT postbox.inbox_apply_batch('reader.video', '{}');

-- many
WITH batch AS (
    SELECT array_agg(pg_temp.event('many ' || n, CASE WHEN n % 10 = 0 THEN 'video.deleted' ELSE 'video.updated' END, 'k' || n % 7, n, format('{"title": "t%s", "n": %s}', n, n)) ORDER BY n) AS events
    FROM generate_series(1, 2000) n)
SELECT outcome, count(*) FROM batch, unnest(postbox.inbox_apply_batch('reader.inbox', events)) AS outcome GROUP BY 1;
SELECT * FROM reader.video WHERE id LIKE 'k_' ORDER BY id;
SELECT key, version FROM reader.inbox_tombstone WHERE key LIKE 'k_';

DROP SCHEMA reader CASCADE;
