-- What a handler or a trigger does while its event is applied: it applies other events, it changes what is in use. The work
-- stays bounded, and the outcome is an error or the truth.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE FUNCTION reader.event(event_id text, event_type text, aggregate_id text, version bigint, payload text DEFAULT '{}')
    RETURNS postbox.event LANGUAGE sql
    RETURN ROW(event_id, event_type, 'video', aggregate_id, version, convert_to(payload, 'UTF8'), '{}', NULL)::postbox.event;
CREATE SEQUENCE reader.calls;

-- a batch that fails in a batch that fails, and so on: each level is not run twice for each run of the one above
CREATE FUNCTION reader.nest(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('reader.calls');
    IF event.version > 1 THEN
        PERFORM postbox.inbox_apply_batch('reader.inbox', ARRAY[
            reader.event(event.event_id || 'n', 'nest', 'a', event.version - 1), reader.event(event.event_id || 'f', 'fail', 'a', 1)], 'reject');
    END IF;
END $$;
CREATE FUNCTION reader.fail(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'no'; END $$;
SELECT postbox.create_handler('reader.inbox', '{nest}', 'reader.nest(postbox.event)');
SELECT postbox.create_handler('reader.inbox', '{fail}', 'reader.fail(postbox.event)');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('a', 'nest', 'a', 10), reader.event('b', 'fail', 'a', 1)], 'reject');
SELECT last_value AS calls FROM reader.calls;
SELECT event_type, outcome, count(*) FROM reader.inbox GROUP BY 1, 2 ORDER BY 1, 2;
-- nor after an error about rights, which is looked at twice
CREATE FUNCTION reader.forbid(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM nextval('reader.calls');
    IF event.version > 1 THEN
        PERFORM postbox.inbox_apply('reader.inbox', reader.event(event.event_id || 'n', 'forbid', 'a', event.version - 1), 'reject');
    END IF;
    RAISE insufficient_privilege USING MESSAGE = 'not allowed';
END $$;
SELECT postbox.create_handler('reader.inbox', '{forbid}', 'reader.forbid(postbox.event)');
SELECT setval('reader.calls', 1, false);
SELECT postbox.inbox_apply('reader.inbox', reader.event('c', 'forbid', 'a', 10), 'reject');
SELECT last_value AS calls FROM reader.calls;
-- the depth has a limit
SELECT postbox.inbox_apply('reader.inbox', reader.event('d', 'nest', 'a', 16));
SELECT postbox.inbox_apply('reader.inbox', reader.event('e', 'nest', 'a', 17), 'reject');
SELECT error FROM postbox.dead_letter WHERE event_id LIKE 'en%n';
CREATE FUNCTION reader.chain(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM postbox.inbox_apply('reader.inbox', reader.event(event.event_id || 'n', 'chain', 'a', event.version + 1));
END $$;
SELECT postbox.create_handler('reader.inbox', '{chain}', 'reader.chain(postbox.event)');
SELECT postbox.inbox_apply('reader.inbox', reader.event('f', 'chain', 'a', 1));
-- an error leaves nothing behind
SELECT postbox.inbox_apply('reader.inbox', reader.event('g', 'nest', 'a', 16));

-- a handler changes what is in use: in the only event, in the last of a batch, recorded as rejected
CREATE TABLE reader.video (id text PRIMARY KEY, title text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{change}', 'reader.video', columns => '{}');
CREATE FUNCTION reader.change(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE convert_from((event).payload, 'UTF8');
END $$;
SELECT postbox.create_handler('reader.inbox', '{change}', 'reader.change(postbox.event)');
CREATE FUNCTION reader.change(statement text) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    outcome text;
    code text;
BEGIN
    RAISE WARNING '%', statement;
    FOREACH code IN ARRAY '{one,batch,reject}'::text[] LOOP
        BEGIN
            outcome := CASE code
                WHEN 'one' THEN postbox.inbox_apply('reader.inbox', reader.event('x', 'change', 'x', 1, statement))::text
                WHEN 'batch' THEN postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('w', 'other', 'x', 1), reader.event('x', 'change', 'x', 1, statement)])::text
                ELSE postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('w', 'other', 'x', 1), reader.event('x', 'change', 'x', 1, statement)], 'reject')::text END;
            RAISE EXCEPTION '%', outcome USING ERRCODE = 'PB000';
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING '  %: % %', code, regexp_replace(SQLERRM, 'OID \d+', 'OID N'), CASE WHEN SQLSTATE <> 'PB000' THEN SQLSTATE END;
        END;
    END LOOP;
END $$;
-- the inbox
SELECT reader.change('DELETE FROM reader.inbox');
SELECT reader.change('TRUNCATE reader.inbox');
SELECT reader.change('UPDATE reader.inbox SET event_id = gen_random_uuid()');
SELECT reader.change('DROP TABLE reader.inbox');
SELECT reader.change('DROP TABLE reader.inbox_tombstone');
SELECT reader.change('SELECT postbox.drop_inbox(''reader.inbox'')');
SELECT reader.change('DROP TABLE reader.inbox; SELECT postbox.create_inbox(''reader.inbox'')');
SELECT reader.change('ALTER TABLE reader.inbox RENAME TO renamed');
SELECT reader.change('ALTER TABLE reader.inbox ALTER event_id TYPE text');
-- the target
SELECT reader.change('DROP TABLE reader.video');
SELECT reader.change('ALTER TABLE reader.video DROP COLUMN version');
SELECT reader.change('ALTER TABLE reader.video ADD COLUMN note text');
SELECT reader.change('TRUNCATE reader.video');
-- the configuration: the event was applied by what was there
SELECT reader.change('SELECT postbox.drop_projection(name) FROM postbox.projection');
SELECT reader.change('SELECT postbox.drop_handler(name) FROM postbox.handler');
SELECT reader.change('CREATE OR REPLACE FUNCTION reader.change(event postbox.event) RETURNS void LANGUAGE sql AS ''SELECT''');
-- the session
SELECT reader.change('SET ROLE postgres');
SELECT reader.change('SET search_path = reader');
SELECT reader.change('COMMIT');
CREATE PROCEDURE reader.commit() LANGUAGE plpgsql AS $$ BEGIN COMMIT; END $$;
SELECT reader.change('CALL reader.commit()');
SELECT reader.change('DO $do$ BEGIN RAISE EXCEPTION ''no''; EXCEPTION WHEN OTHERS THEN NULL; END $do$');
CREATE FUNCTION reader.open(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    portal refcursor := 'left open';
BEGIN
    OPEN portal FOR SELECT * FROM reader.inbox;
END $$;
SELECT postbox.create_handler('reader.inbox', '{open}', 'reader.open(postbox.event)');
SELECT postbox.inbox_apply('reader.inbox', reader.event('p1', 'open', 'x', 1), 'reject');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('p2', 'open', 'x', 1), reader.event('p3', 'fail', 'x', 1)], 'reject');
SELECT count(*) FROM pg_cursors;

-- triggers on the tables of the inbox
CREATE FUNCTION reader.swallow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER swallow BEFORE INSERT ON reader.inbox FOR EACH ROW EXECUTE FUNCTION reader.swallow();
SELECT postbox.inbox_apply('reader.inbox', reader.event('s1', 'change', 'x', 1, 'SELECT'));
SELECT postbox.inbox_apply('reader.inbox', reader.event('s1', 'change', 'x', 1, 'SELECT'), 'reject');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('s1', 'change', 'x', 1, 'SELECT'), reader.event('s2', 'other', 'x', 1)]);
DROP TRIGGER swallow ON reader.inbox;
CREATE TRIGGER swallow BEFORE UPDATE ON reader.inbox FOR EACH ROW EXECUTE FUNCTION reader.swallow();
CREATE TABLE reader.plain (id text PRIMARY KEY, version bigint);
SELECT postbox.create_projection('reader.inbox', '{plain}', 'reader.plain');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('s3', 'plain', 'x', 2), reader.event('s4', 'plain', 'x', 2)]);
DROP TRIGGER swallow ON reader.inbox;
CREATE FUNCTION reader.remove() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DELETE FROM reader.inbox; RETURN NULL; END $$;
CREATE TRIGGER remove AFTER INSERT ON reader.plain FOR EACH ROW EXECUTE FUNCTION reader.remove();
SELECT postbox.inbox_apply('reader.inbox', reader.event('s5', 'plain', 'y', 2));
DROP TRIGGER remove ON reader.plain;
-- a duplicate is one also with a trigger there
CREATE TRIGGER keep AFTER INSERT ON reader.plain FOR EACH ROW EXECUTE FUNCTION reader.swallow();
CREATE TRIGGER keep AFTER INSERT ON reader.inbox FOR EACH ROW EXECUTE FUNCTION reader.swallow();
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('s6', 'plain', 'y', 2), reader.event('s6', 'plain', 'y', 2), reader.event('s7', 'plain', 'y', 1)]);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('s6', 'plain', 'y', 2), reader.event('s8', 'plain', 'y', 3)]);
SELECT postbox.inbox_apply('reader.inbox', reader.event('s8', 'plain', 'y', 3));

DROP SCHEMA reader CASCADE;
