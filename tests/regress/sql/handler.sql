-- Handlers: functions called with events.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');

-- the points service: what cannot be applied twice is not applied twice
CREATE TABLE reader.points (user_id text PRIMARY KEY, points bigint NOT NULL);
CREATE FUNCTION reader.add_points(event postbox.event) RETURNS void LANGUAGE sql AS $$
    INSERT INTO reader.points AS p
    SELECT body ->> 'userId', (body ->> 'points')::bigint FROM (SELECT convert_from(event.payload, 'UTF8')::jsonb AS body) AS message
    ON CONFLICT (user_id) DO UPDATE SET points = p.points + excluded.points
$$;
SELECT postbox.create_handler('reader.inbox', '{USER_REGISTERED,USER_LOGGED_IN}', 'reader.add_points(postbox.event)');
SELECT id, inbox, event_types, function FROM postbox.handler;
SELECT postbox.inbox_apply('reader.inbox', 'evt_2a87c8f4-b29a-4f46-9b37-97a7a58a9e0f', 'USER_REGISTERED', NULL, NULL, NULL, '{"userId": "u1", "points": 100}');
SELECT postbox.inbox_apply('reader.inbox', 'evt_2a87c8f4-b29a-4f46-9b37-97a7a58a9e0f', 'USER_REGISTERED', NULL, NULL, NULL, '{"userId": "u1", "points": 100}');
SELECT postbox.inbox_apply('reader.inbox', 'evt_2', 'USER_LOGGED_IN', NULL, NULL, NULL, '{"userId": "u1", "points": 5}');
SELECT postbox.inbox_apply('reader.inbox', 'evt_3', 'USER_LEFT', NULL, NULL, NULL, '{"userId": "u1"}');
SELECT * FROM reader.points;

-- what a handler sees of the event; both forms of inbox_apply say the same
CREATE TABLE reader.seen (n int GENERATED ALWAYS AS IDENTITY, event postbox.event, path text, who name);
CREATE FUNCTION reader.see(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen (event, path, who) VALUES (event, current_setting('search_path'), current_user);
END $$;
SELECT postbox.create_handler('reader.inbox', '{see}', 'reader.see(postbox.event)');
SELECT postbox.inbox_apply('reader.inbox', 's1', 'see', 'video', 'v1', 3, '\x0001ff'::bytea, '{"a": "b"}', '2025-10-24 10:30:00+02');
SELECT postbox.inbox_apply('reader.inbox', ROW('s2', 'see', 'video', 'v1', 3, '\x0001ff', '{"a": "b"}', '2025-10-24 10:30:00+02')::postbox.event);
SELECT postbox.inbox_apply('reader.inbox', 's3', 'see', NULL, NULL, NULL, NULL, NULL);
SET timezone = 'UTC';
SELECT (event).*, path FROM reader.seen ORDER BY n;

-- projections first, then handlers in the order they were made; an event older than the row is handled all the same
CREATE TABLE reader.video (id text PRIMARY KEY, title text, version bigint);
CREATE TABLE reader.history (n int GENERATED ALWAYS AS IDENTITY, note text);
CREATE FUNCTION reader.first(event postbox.event) RETURNS void LANGUAGE sql AS $$
    INSERT INTO reader.history (note) SELECT 'first ' || v.version || ' ' || event.version FROM reader.video v $$;
CREATE FUNCTION reader.second(event postbox.event) RETURNS void LANGUAGE sql AS $$ INSERT INTO reader.history (note) VALUES ('second') $$;
SELECT postbox.create_handler('reader.inbox', '{video}', 'reader.first(postbox.event)');
SELECT postbox.create_handler('reader.inbox', '{video}', 'reader.second(postbox.event)');
SELECT postbox.create_projection('reader.inbox', '{video}', 'reader.video');
SELECT postbox.inbox_apply('reader.inbox', 'v1', 'video', 'video', 'a', 2, '{"title": "t"}');
SELECT postbox.inbox_apply('reader.inbox', 'v2', 'video', 'video', 'a', 1, '{"title": "late"}');
SELECT note FROM reader.history ORDER BY n;

-- an error of one takes the whole event back
CREATE FUNCTION reader.fail(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION 'no %', event.aggregate_id USING DETAIL = 'for a reason';
END $$;
SELECT postbox.create_handler('reader.inbox', '{video}', 'reader.fail(postbox.event)');
SELECT postbox.inbox_apply('reader.inbox', 'v3', 'video', 'video', 'a', 3, '{"title": "never"}', on_error => 'reject');
SELECT title, version FROM reader.video;
SELECT count(*) FROM reader.history;
SELECT event_id, sqlstate, error FROM postbox.dead_letter;

-- a handler that catches its own errors, and one that applies further events
CREATE FUNCTION reader.catch(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM 1 / 0;
    EXCEPTION WHEN division_by_zero THEN
        INSERT INTO reader.history (note) VALUES ('caught');
    END;
    PERFORM postbox.inbox_apply('reader.inbox', event.event_id || '/next', 'see', NULL, NULL, NULL, NULL);
END $$;
SELECT postbox.create_handler('reader.inbox', '{catch}', 'reader.catch(postbox.event)');
SELECT postbox.inbox_apply('reader.inbox', 'c1', 'catch', NULL, NULL, NULL, NULL);
SELECT note FROM reader.history ORDER BY n DESC LIMIT 1;
SELECT (event).event_id FROM reader.seen ORDER BY n DESC LIMIT 1;

-- rights: the inbox's owner runs the handler, whoever applies; INSERT on the inbox is enough to apply
CREATE ROLE regress_postbox_owner;
CREATE ROLE regress_postbox_feeder;
GRANT USAGE ON SCHEMA reader TO regress_postbox_owner;
GRANT CREATE ON SCHEMA reader TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_inbox('reader.mine');
SELECT postbox.create_handler('reader.inbox', '{see}', 'reader.see(postbox.event)');
RESET ROLE;
REVOKE EXECUTE ON FUNCTION reader.see(postbox.event) FROM PUBLIC;
SET ROLE regress_postbox_owner;
SELECT postbox.create_handler('reader.mine', '{see}', 'reader.see(postbox.event)');
RESET ROLE;
GRANT EXECUTE ON FUNCTION reader.see(postbox.event) TO regress_postbox_owner;
GRANT INSERT ON reader.seen TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_handler('reader.mine', '{see}', 'reader.see(postbox.event)');
RESET ROLE;
SELECT 'reader.mine'::regclass::oid AS mine \gset
SET ROLE regress_postbox_feeder;
SELECT postbox.inbox_apply(:mine, 'm1', 'see', NULL, NULL, NULL, NULL);
RESET ROLE;
GRANT INSERT ON reader.mine TO regress_postbox_feeder;
SET ROLE regress_postbox_feeder;
SELECT postbox.inbox_apply(:mine, 'm1', 'see', NULL, NULL, NULL, NULL);
RESET ROLE;
SELECT (event).event_id, who FROM reader.seen ORDER BY n DESC LIMIT 1;
-- if the owner may not call it any more, no event is recorded for that; what the function itself may not do is recorded
REVOKE EXECUTE ON FUNCTION reader.see(postbox.event) FROM regress_postbox_owner;
SELECT postbox.inbox_apply('reader.mine', 'm2', 'see', NULL, NULL, NULL, NULL, on_error => 'reject');
GRANT EXECUTE ON FUNCTION reader.see(postbox.event) TO regress_postbox_owner;
SELECT postbox.inbox_apply('reader.mine', 'm2', 'see', NULL, NULL, NULL, NULL);
REVOKE INSERT ON reader.seen FROM regress_postbox_owner;
SELECT postbox.inbox_apply('reader.mine', 'm3', 'see', NULL, NULL, NULL, NULL, on_error => 'reject');
SELECT event_id, sqlstate, error FROM postbox.dead_letter WHERE inbox = 'reader.mine'::regclass;
-- nothing of the owner's rights is left behind
SELECT current_user = session_user AS myself, current_setting('search_path');

-- what cannot be a handler
CREATE FUNCTION reader.returns_int(postbox.event) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION reader.returns_set(postbox.event) RETURNS SETOF void LANGUAGE sql AS '';
CREATE FUNCTION reader.takes_text(text) RETURNS void LANGUAGE sql AS '';
CREATE FUNCTION reader.takes_two(postbox.event, int) RETURNS void LANGUAGE sql AS '';
CREATE PROCEDURE reader.procedure(postbox.event) LANGUAGE sql AS '';
SELECT postbox.create_handler('reader.inbox', '{x}', 'reader.returns_int(postbox.event)');
SELECT postbox.create_handler('reader.inbox', '{x}', 'reader.returns_set(postbox.event)');
SELECT postbox.create_handler('reader.inbox', '{x}', 'reader.takes_text(text)');
SELECT postbox.create_handler('reader.inbox', '{x}', 'reader.takes_two(postbox.event,int)');
SELECT postbox.create_handler('reader.inbox', '{x}', 'reader.procedure(postbox.event)');
SELECT postbox.create_handler('reader.inbox', '{x}', 'reader.no_such(postbox.event)');
SELECT postbox.create_handler('reader.inbox', '{x}', 1::regprocedure);
SELECT postbox.create_handler('reader.inbox', '{x}', NULL);
SELECT postbox.create_handler('reader.inbox', '{}', 'reader.see(postbox.event)');
SELECT postbox.create_handler('reader.inbox', NULL, 'reader.see(postbox.event)');
SELECT postbox.create_handler(NULL, '{x}', 'reader.see(postbox.event)');
SELECT postbox.create_handler('reader.video', '{x}', 'reader.see(postbox.event)');
SELECT postbox.create_handler('reader.inbox', '{y,see}', 'reader.see(postbox.event)');

-- the function is found by its name: replaced, dropped, made again
CREATE OR REPLACE FUNCTION reader.second(event postbox.event) RETURNS void LANGUAGE sql AS $$ INSERT INTO reader.history (note) VALUES ('replaced') $$;
SELECT postbox.drop_handler('reader.fail');
SELECT postbox.inbox_apply('reader.inbox', 'r1', 'video', 'video', 'a', 10, '{}');
SELECT note FROM reader.history ORDER BY n DESC LIMIT 1;
DROP FUNCTION reader.second(postbox.event);
SELECT postbox.inbox_apply('reader.inbox', 'r2', 'video', 'video', 'a', 11, '{}');
SELECT postbox.inbox_apply('reader.inbox', 'r3', 'see', 'video', 'a', 11, '{}');
CREATE FUNCTION reader.second(event postbox.event) RETURNS void LANGUAGE sql AS $$ INSERT INTO reader.history (note) VALUES ('made again') $$;
SELECT postbox.inbox_apply('reader.inbox', 'r2', 'video', 'video', 'a', 11, '{}');
SELECT note FROM reader.history ORDER BY n DESC LIMIT 1;
SELECT postbox.drop_handler('no_such');
SELECT postbox.drop_handler(NULL);
SET ROLE regress_postbox_owner;
SELECT postbox.drop_handler('reader.add_points');
RESET ROLE;
SELECT postbox.drop_handler('reader.add_points');
SELECT postbox.inbox_apply('reader.inbox', 'r4', 'USER_LOGGED_IN', NULL, NULL, NULL, '{"userId": "u1", "points": 5}');

DROP SCHEMA reader CASCADE;
DROP ROLE regress_postbox_owner, regress_postbox_feeder;
