-- What an owner does to the tables of an inbox, to the targets and in triggers and handlers costs at most the owner's own
-- events, with an error that says why. Each of these attempts ends in an error or in the right result.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{set,gone}', 'reader.video', delete_types => '{gone}');
CREATE FUNCTION reader.event(event_id text, event_type text, aggregate_id text, version bigint, payload text DEFAULT '{}')
    RETURNS postbox.event LANGUAGE sql
    RETURN ROW(event_id, event_type, 'video', aggregate_id, version, convert_to(payload, 'UTF8'), '{}', NULL)::postbox.event;
CREATE FUNCTION reader.apply(event_id text, event_type text, aggregate_id text, version bigint, payload text DEFAULT '{}')
    RETURNS postbox.outcome LANGUAGE sql AS $$
    SELECT postbox.inbox_apply('reader.inbox', reader.event(event_id, event_type, aggregate_id, version, payload))
$$;
CREATE FUNCTION reader.try(event_id text, event_type text, aggregate_id text, version bigint, payload text DEFAULT '{}')
    RETURNS postbox.outcome LANGUAGE sql AS $$
    SELECT postbox.inbox_apply('reader.inbox', reader.event(event_id, event_type, aggregate_id, version, payload), on_error => 'reject')
$$;
SELECT reader.apply('t1', 'gone', 'a', 5);

-- a column of the tombstones has another type
ALTER TABLE reader.inbox_tombstone ALTER target TYPE text;
SELECT reader.apply('t2', 'set', 'a', 6);
SELECT postbox.wait_for_version('reader.video', 'a', 5, '0');
ALTER TABLE reader.inbox_tombstone ALTER target TYPE regclass USING target::regclass;
ALTER TABLE reader.inbox_tombstone ALTER version TYPE text;
SELECT reader.apply('t2', 'set', 'a', 6);
SELECT postbox.wait_for_version('reader.video', 'a', 1000000, '0');
ALTER TABLE reader.inbox_tombstone ALTER version TYPE bigint USING version::bigint;
-- a column is renamed, or is another one of the same name
ALTER TABLE reader.inbox_tombstone RENAME version TO version_of_key;
SELECT reader.apply('t2', 'set', 'a', 6);
ALTER TABLE reader.inbox_tombstone RENAME version_of_key TO version;
ALTER TABLE reader.inbox_tombstone DROP COLUMN version, ADD version bigint NOT NULL DEFAULT 5;
SELECT reader.apply('t3', 'set', 'a', 5);
SELECT reader.apply('t4', 'set', 'a', 6);
-- the primary key of the tombstones is on other columns
ALTER TABLE reader.inbox_tombstone DROP CONSTRAINT inbox_tombstone_pkey, ADD PRIMARY KEY (target, generation);
SELECT reader.apply('t5', 'gone', 'a', 7);
ALTER TABLE reader.inbox_tombstone DROP CONSTRAINT inbox_tombstone_pkey, ADD PRIMARY KEY (key, target, generation);
SELECT reader.apply('t5', 'gone', 'a', 7);
SELECT reader.apply('t6', 'set', 'a', 7);

-- the id of the inbox has another type, which is passed by value
CREATE TYPE reader.id AS ENUM ('one', 'two');
CREATE FUNCTION reader.id_of(uuid) RETURNS reader.id LANGUAGE sql IMMUTABLE
    RETURN CASE WHEN $1::text < '8' THEN 'one' ELSE 'two' END::reader.id;
CREATE CAST (uuid AS reader.id) WITH FUNCTION reader.id_of(uuid) AS ASSIGNMENT;
CREATE TABLE reader.kept AS SELECT * FROM reader.inbox;
TRUNCATE reader.inbox;
ALTER TABLE reader.inbox ALTER event_id TYPE reader.id USING reader.id_of(event_id);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('00000000-0000-0000-0000-000000000001', 'set', 'b', 1),
    reader.event('f0000000-0000-0000-0000-000000000001', 'set', 'c', 1)]);
ALTER TABLE reader.inbox ALTER event_id TYPE uuid USING NULL;
INSERT INTO reader.inbox SELECT * FROM reader.kept;
-- a trigger takes the id away
ALTER TABLE reader.inbox DROP CONSTRAINT inbox_pkey, ADD UNIQUE (event_id, generation), ALTER event_id DROP NOT NULL;
CREATE FUNCTION reader.take_id() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.event_id := NULL; RETURN NEW; END $$;
CREATE TRIGGER take_id BEFORE INSERT ON reader.inbox FOR EACH ROW EXECUTE FUNCTION reader.take_id();
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('n1', 'set', 'b', 1), reader.event('n2', 'set', 'c', 1)]);
DROP TRIGGER take_id ON reader.inbox;

-- a domain over json takes no field of the event; its value would be read as jsonb
CREATE DOMAIN reader.document AS json;
CREATE TABLE reader.document_of (id text PRIMARY KEY, body reader.document, version bigint);
SELECT postbox.create_projection('reader.inbox', '{document}', 'reader.document_of', columns => '{"body": "$payload"}');
SELECT reader.apply('d1', 'document', 'a', 1, '{"a": {"b": [1, 2, 3]}}');
SELECT * FROM reader.document_of;

-- a trigger on a target applies events to the same projection: what was bound for the outer event stays
CREATE TABLE reader.nested (id bigint PRIMARY KEY, title text, note text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{nest,unnest}', 'reader.nested', delete_types => '{unnest}');
SELECT reader.apply('n3', 'unnest', '2', 10);
CREATE FUNCTION reader.nest() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id = 1 THEN
        PERFORM reader.apply('inner' || NEW.version, 'nest', '2', 3, '{"title": "inner", "note": "inner"}');
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER nest AFTER INSERT OR UPDATE ON reader.nested FOR EACH ROW EXECUTE FUNCTION reader.nest();
SELECT reader.apply('outer1', 'nest', '1', 1, '{"title": "outer", "note": "outer"}');
SELECT reader.apply('outer2', 'nest', '1', 2, '{"title": "outer 2"}');
SELECT * FROM reader.nested ORDER BY id;
SELECT event_id, outcome FROM reader.inbox WHERE event_type = 'nest' ORDER BY version, outcome;
-- more sets of fields than statements are kept, each one while the first is running
CREATE TABLE reader.wide (id bigint PRIMARY KEY, version bigint, a text, b text, c text, d text, e text, f text, g text);
SELECT postbox.create_projection('reader.inbox', '{wide}', 'reader.wide');
CREATE FUNCTION reader.widen() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id = 0 THEN
        PERFORM reader.apply('w' || n, 'wide', n::text, 1,
            (SELECT coalesce(jsonb_object_agg(chr(97 + i), 'x'), '{}') FROM generate_series(0, 6) i WHERE n & (1 << i) <> 0)::text)
        FROM generate_series(1, 127) n;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER widen BEFORE INSERT OR UPDATE ON reader.wide FOR EACH ROW EXECUTE FUNCTION reader.widen();
SELECT reader.apply('w0', 'wide', '0', 1, '{"a": "outer"}');
SELECT reader.apply('w128', 'wide', '0', 2, '{"a": "outer again"}');
SELECT count(*), count(a), count(g) FROM reader.wide;
SELECT * FROM reader.wide WHERE id IN (0, 5) ORDER BY id;
-- the constraint of a domain does the same
CREATE FUNCTION reader.is_good(text) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF $1 LIKE 'outer%' THEN
        PERFORM reader.apply('of ' || $1, 'checked', 'inner ' || $1, 1, '{"title": "inner"}');
    END IF;
    RETURN true;
END $$;
CREATE DOMAIN reader.good AS text CHECK (reader.is_good(VALUE));
CREATE TABLE reader.checked (id text PRIMARY KEY, title reader.good, version bigint);
SELECT postbox.create_projection('reader.inbox', '{checked}', 'reader.checked');
SELECT reader.apply('c1', 'checked', 'x', 1, '{"title": "outer"}');
SELECT * FROM reader.checked ORDER BY id;
-- without end, too
CREATE FUNCTION reader.recurse(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM reader.apply((event).event_id || 'x', 'recurse', 'r', 1);
END $$;
SELECT postbox.create_handler('reader.inbox', '{recurse}', 'reader.recurse(postbox.event)');
SET max_stack_depth = '500kB';
\set VERBOSITY sqlstate
SELECT reader.apply('r', 'recurse', 'r', 1);
\set VERBOSITY default
RESET max_stack_depth;
SELECT count(*) FROM reader.inbox WHERE event_type = 'recurse';

-- a handler changes what is in use
CREATE FUNCTION reader.change(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE convert_from((event).payload, 'UTF8');
END $$;
SELECT postbox.create_handler('reader.inbox', '{change}', 'reader.change(postbox.event)');
CREATE FUNCTION reader.change_and(statement text, VARIADIC more postbox.event[]) RETURNS postbox.outcome[] LANGUAGE sql AS $$
    SELECT postbox.inbox_apply_batch('reader.inbox', reader.event('change ' || statement, 'change', 'x', 1, statement) || more)
$$;
-- the types of what the next events of the batch write
SELECT reader.change_and('ALTER TABLE reader.inbox_tombstone ALTER target TYPE text', reader.event('h1', 'gone', 'a', 9), reader.event('h2', 'gone', 'b', 9));
SELECT reader.change_and('ALTER TABLE reader.inbox_tombstone ALTER version TYPE text', reader.event('h1', 'set', 'a', 9));
SELECT reader.change_and('ALTER TABLE reader.video DROP COLUMN version', reader.event('h1', 'set', 'a', 9));
SELECT reader.change_and('ALTER TABLE reader.video ALTER id TYPE varchar', reader.event('h1', 'gone', 'b', 9), reader.event('h2', 'set', 'b', 10));
SELECT * FROM reader.video ORDER BY id;
-- its own function, and its own registration
SELECT reader.change_and('CREATE OR REPLACE FUNCTION reader.recurse(event postbox.event) RETURNS void LANGUAGE sql AS ''SELECT''', reader.event('h3', 'recurse', 'a', 1));
SELECT reader.change_and('DROP FUNCTION reader.recurse(postbox.event); SELECT postbox.drop_handler(name) FROM postbox.handler WHERE event_types = ''{recurse}''', reader.event('h4', 'recurse', 'a', 1));
SELECT reader.change_and('DROP FUNCTION reader.change(postbox.event)', reader.event('h5', 'set', 'a', 20));
SELECT reader.change_and('SELECT postbox.drop_projection(name) FROM postbox.projection WHERE target = ''reader.video''::regclass', reader.event('h6', 'set', 'z', 1));
-- the tables themselves
SELECT reader.change_and('DROP TABLE reader.inbox_tombstone', reader.event('h7', 'nest', '7', 1));
SELECT reader.change_and('DROP TABLE reader.nested; SELECT postbox.create_inbox(''reader.other'')', reader.event('h8', 'nest', '8', 1));
\set VERBOSITY sqlstate
SELECT reader.change_and('DROP TABLE reader.inbox', reader.event('h9', 'wide', '1000', 1));
SELECT reader.change_and('SELECT postbox.drop_inbox(''reader.inbox'')', reader.event('h9', 'wide', '1000', 1));
-- one of them in the middle of an event
CREATE FUNCTION reader.drop_first() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN DROP TABLE reader.inbox; RETURN NEW; END $$;
CREATE TRIGGER drop_first BEFORE INSERT ON reader.wide FOR EACH ROW WHEN (NEW.id = 1000) EXECUTE FUNCTION reader.drop_first();
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('h9', 'wide', '1000', 1), reader.event('h10', 'wide', '1001', 1)]);
\set VERBOSITY default
CREATE TABLE reader.last (id bigint PRIMARY KEY, version bigint);
SELECT postbox.create_projection('reader.inbox', '{last,unlast}', 'reader.last', delete_types => '{unlast}');
CREATE FUNCTION reader.alter_tombstones() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.id = 1 THEN
        ALTER TABLE reader.inbox_tombstone ALTER target TYPE text;
    ELSE
        ALTER TABLE reader.inbox_tombstone ALTER version TYPE text;
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER alter_tombstones BEFORE INSERT ON reader.last FOR EACH ROW EXECUTE FUNCTION reader.alter_tombstones();
SELECT reader.apply('h11', 'last', '1', 1);
SELECT reader.apply('h12', 'unlast', '2', 1);
SELECT reader.apply('h13', 'last', '2', 2);
-- the same, recorded as rejected
\set VERBOSITY sqlstate
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('j0', 'change', 'x', 1, 'DROP TABLE reader.inbox'), reader.event('j1', 'wide', '1001', 1)], 'reject');
\set VERBOSITY default
SELECT reader.try('j2', 'last', '1', 1);
SELECT reader.try('j3', 'last', '2', 2);
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[reader.event('j4', 'last', '2', 3), reader.event('j5', 'wide', '1001', 1)], 'reject');
SELECT event_id, sqlstate, regexp_replace(error, 'OID \d+', 'OID N') AS error FROM postbox.dead_letter ORDER BY id;
SELECT count(*) FROM reader.wide WHERE id >= 1000;

-- a handler is made again as a function whose rows would fill the memory
CREATE FUNCTION reader.fill(event postbox.event) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT postbox.create_handler('reader.inbox', '{fill}', 'reader.fill(postbox.event)');
SELECT reader.apply('f1', 'fill', 'a', 1);
DROP FUNCTION reader.fill(postbox.event);
CREATE FUNCTION reader.fill(event postbox.event) RETURNS SETOF text LANGUAGE sql AS $$ SELECT repeat('x', 100) FROM generate_series(1, 1000) $$;
SELECT reader.apply('f2', 'fill', 'a', 1);
DROP FUNCTION reader.fill(postbox.event);
SELECT postbox.drop_handler(name) FROM postbox.handler WHERE function LIKE 'reader.fill%';

-- what a rolled back subtransaction configured is forgotten
BEGIN;
SAVEPOINT s;
CREATE TABLE reader.short (id text PRIMARY KEY, version bigint);
SELECT postbox.create_projection('reader.inbox', '{short}', 'reader.short');
SELECT reader.apply('s1', 'short', 'a', 1);
ROLLBACK TO s;
SELECT reader.apply('s1', 'short', 'a', 1);
COMMIT;

-- an inbox without its tombstones is still purged
UPDATE postbox.inbox SET retention = '1 microsecond' WHERE relation = 'reader.inbox'::regclass;
DROP TABLE reader.inbox_tombstone;
SELECT postbox.purge_inbox('reader.inbox');
SELECT postbox.purge_inbox('reader.inbox') > 0 AS purged;
SELECT count(*) FROM reader.inbox;

DROP SCHEMA reader CASCADE;
