-- Consecutive events of a batch that fill whole rows of one target are written together. What becomes of them is what becomes of them
-- one after the other.
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text NOT NULL, n int, made date DEFAULT '2024-05-01', version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{video.set}', 'reader.video', columns => '{"title": "title", "n": "n"}');
CREATE FUNCTION pg_temp.event(id text, key text, version bigint, title text DEFAULT 'a title', n text DEFAULT '1', type text DEFAULT 'video.set')
    RETURNS postbox.event LANGUAGE sql AS
    $$ SELECT ROW(id, type, 'video', key, version, convert_to(format('{"title": %s, "n": %s}', coalesce(to_json(title)::text, 'null'), n), 'UTF8'), NULL, NULL)::postbox.event $$;
CREATE FUNCTION pg_temp.apply(VARIADIC events postbox.event[]) RETURNS postbox.outcome[] LANGUAGE sql AS
    $$ SELECT postbox.inbox_apply_batch('reader.inbox', events) $$;
-- how many versions of rows have been written since the last time
CREATE FUNCTION pg_temp.written() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    last bigint := coalesce(nullif(current_setting('regress.written', true), ''), '0')::bigint;
    now bigint := pg_stat_get_xact_tuples_inserted('reader.video'::regclass) + pg_stat_get_xact_tuples_updated('reader.video'::regclass);
BEGIN
    PERFORM set_config('regress.written', now::text, true);
    RETURN now - last;
END $$;
SELECT pg_temp.apply(pg_temp.event('0', 'first', 1));

-- of a key the first and the last version are written, those in between are not
BEGIN;
SELECT pg_temp.apply(pg_temp.event('1', 'a', 1), pg_temp.event('2', 'a', 2), pg_temp.event('3', 'b', 7), pg_temp.event('4', 'a', 4),
    pg_temp.event('5', 'a', 3), pg_temp.event('6', 'a', 5, 'last of a'), pg_temp.event('7', 'b', 7, 'same version'), pg_temp.event('4', 'b', 9));
SELECT id, title, version FROM reader.video WHERE id IN ('a', 'b') ORDER BY id;
SELECT aggregate_id, version, outcome FROM reader.inbox ORDER BY aggregate_id, version, outcome;
SELECT pg_temp.written();
-- what is stored already is as new as the first, as some, as all of a key
SELECT pg_temp.apply(pg_temp.event('11', 'a', 4), pg_temp.event('12', 'a', 5), pg_temp.event('13', 'c', 1), pg_temp.event('14', 'a', 6),
    pg_temp.event('15', 'a', 7, 'seven'), pg_temp.event('16', 'b', 7), pg_temp.event('17', 'b', 6));
SELECT id, title, version FROM reader.video WHERE id IN ('a', 'b', 'c') ORDER BY id;
COMMIT;

-- a value that a row cannot hold is the error of its event, also where a later version would replace it
\set SHOW_CONTEXT errors
SELECT pg_temp.apply(pg_temp.event('21', 'd', 1), pg_temp.event('22', 'd', 2, n => '"many"'), pg_temp.event('23', 'd', 3));
SELECT pg_temp.apply(pg_temp.event('21', 'd', 1), pg_temp.event('22', 'd', 2, NULL), pg_temp.event('23', 'd', 3));
SELECT pg_temp.apply(pg_temp.event('21', 'd', 1), pg_temp.event('22', 'd', 0), pg_temp.event('23', 'd', 3));
\set SHOW_CONTEXT never
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[pg_temp.event('21', 'd', 1), pg_temp.event('22', 'd', 2, n => '"many"'),
    pg_temp.event('23', 'd', 3), pg_temp.event('24', 'd', 4, NULL), pg_temp.event('25', 'd', 5)], on_error => 'reject');
SELECT id, version FROM reader.video WHERE id = 'd';
SELECT event_id, sqlstate FROM postbox.dead_letter ORDER BY id;

-- events that leave a column out, large ones, and those of other types come in their turn
SELECT pg_temp.apply(pg_temp.event('31', 'e', 1, n => '31'),
    ROW('32', 'video.set', 'video', 'e', 2, '\x7b227469746c65223a202274776f227d', NULL, NULL),
    pg_temp.event('33', 'f', 1), pg_temp.event('34', 'e', 3, repeat('x', 5000), '34'), pg_temp.event('35', 'e', 4, type => 'video.watched'),
    ROW('36', 'video.set', 'video', 'e', 4, '\x7b227469746c65223a2022666f7572227d', NULL, NULL), pg_temp.event('37', 'f', 2, n => 'null'));
SELECT id, title, n, version FROM reader.video WHERE id IN ('e', 'f') ORDER BY id;

-- a trigger sees every version
CREATE TABLE reader.seen (id text, version bigint);
CREATE FUNCTION reader.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO reader.seen VALUES (NEW.id, NEW.version); RETURN NULL; END $$;
CREATE TRIGGER see AFTER INSERT OR UPDATE ON reader.video FOR EACH ROW EXECUTE FUNCTION reader.see();
SELECT pg_temp.apply(pg_temp.event('41', 'g', 1), pg_temp.event('42', 'g', 2), pg_temp.event('43', 'g', 3));
SELECT version FROM reader.seen ORDER BY version;
DROP TRIGGER see ON reader.video;
-- and so does a CHECK, which refuses one
ALTER TABLE reader.video ADD CHECK (n <> 10);
SELECT pg_temp.apply(pg_temp.event('51', 'h', 1), pg_temp.event('52', 'h', 2, n => '10'), pg_temp.event('53', 'h', 3));
ALTER TABLE reader.video DROP CONSTRAINT video_n_check;
SELECT pg_temp.apply(pg_temp.event('51', 'h', 1), pg_temp.event('52', 'h', 2, n => '10'), pg_temp.event('53', 'h', 3));
-- rows of other keys are as the events before have left them
CREATE TABLE reader.place (id text PRIMARY KEY, n int UNIQUE, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{place.set}', 'reader.place');
SELECT pg_temp.apply(pg_temp.event('60', 'i', 1, type => 'place.set'));
SELECT pg_temp.apply(pg_temp.event('61', 'i', 2, n => '1', type => 'place.set'), pg_temp.event('62', 'i', 3, n => '2', type => 'place.set'),
    pg_temp.event('63', 'j', 1, n => '1', type => 'place.set'));
SELECT pg_temp.apply(pg_temp.event('64', 'j', 2, n => '2', type => 'place.set'), pg_temp.event('65', 'i', 4, n => '3', type => 'place.set'));
-- a version that no later one needs fails all the same, where a column that is not written leaves it no room in an index
CREATE TABLE reader.noted (id text PRIMARY KEY, title text, note text, version bigint NOT NULL);
CREATE INDEX ON reader.noted (note, title);
SELECT postbox.create_projection('reader.inbox', '{noted.set}', 'reader.noted', columns => '{"title": "title"}');
CREATE FUNCTION pg_temp.wide(seed text) RETURNS text LANGUAGE sql AS $$ SELECT string_agg(md5(seed || n), '') FROM generate_series(1, 47) n $$;
SELECT pg_temp.apply(pg_temp.event('w1', 'k', 1, type => 'noted.set'));
UPDATE reader.noted SET note = pg_temp.wide('note');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[pg_temp.event('w2', 'k', 2, type => 'noted.set'), pg_temp.event('w3', 'k', 3, pg_temp.wide('title'), type => 'noted.set'),
    pg_temp.event('w4', 'k', 4, type => 'noted.set')], on_error => 'reject');
-- keys are equal whose texts are not
CREATE TABLE reader.span (id interval PRIMARY KEY, n int, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{span.set}', 'reader.span');
SELECT pg_temp.apply(pg_temp.event('66', '1 h', 1, type => 'span.set'));
SELECT pg_temp.apply(pg_temp.event('67', '1 day', 1, type => 'span.set'), pg_temp.event('68', '24:00', 2, type => 'span.set'), pg_temp.event('69', '1 day', 2, type => 'span.set'));
SELECT id, version FROM reader.span ORDER BY id;
-- of type name, too, which has a collation; a key that was deleted stays deleted, however it is written
CREATE COLLATION reader.any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE reader.kept (id name COLLATE reader.any_case PRIMARY KEY, n int, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{kept.set}', 'reader.kept');
SELECT pg_temp.apply(pg_temp.event('n0', 'other', 1, type => 'kept.set'));
SELECT pg_temp.apply(pg_temp.event('n1', 'Abc', 1, type => 'kept.set'), pg_temp.event('n2', 'ABC', 2, type => 'kept.set'), pg_temp.event('n3', 'abc', 3, type => 'kept.set'));
SELECT id, version FROM reader.kept;
CREATE TABLE reader.named (id name COLLATE reader.any_case PRIMARY KEY, n int, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{named.set,named.gone}', 'reader.named', delete_types => '{named.gone}');
SELECT pg_temp.apply(pg_temp.event('n4', 'Abc', 1, type => 'named.set'));
SELECT pg_temp.apply(pg_temp.event('n5', 'aBC', 6, type => 'named.gone'));
SELECT pg_temp.apply(pg_temp.event('n6', 'abc', 5, type => 'named.set'));
SELECT pg_temp.apply(pg_temp.event('n7', 'abc', 4, type => 'named.set'), pg_temp.event('n8', 'ABC', 5, type => 'named.set'));
SELECT id, version FROM reader.named;
-- the texts of equal keys of other types
CREATE DOMAIN reader.loose AS text COLLATE reader.any_case;
CREATE DOMAIN reader.loose_name AS name COLLATE reader.any_case;
CREATE FUNCTION pg_temp.comes_back(type text, one text, other text) RETURNS SETOF postbox.outcome LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('CREATE TABLE reader.key (id %s PRIMARY KEY, n int, version bigint NOT NULL)', type);
    PERFORM postbox.create_projection('reader.inbox', '{key.set,key.gone}', 'reader.key', delete_types => '{key.gone}');
    RETURN NEXT postbox.inbox_apply('reader.inbox', pg_temp.event(type || '1', one, 1, type => 'key.set'));
    RETURN NEXT postbox.inbox_apply('reader.inbox', pg_temp.event(type || '2', other, 3, type => 'key.gone'));
    PERFORM set_config('TimeZone', 'Asia/Tokyo', true), set_config('DateStyle', 'SQL, DMY', true), set_config('lc_monetary', 'C', true);
    RETURN QUERY SELECT unnest(postbox.inbox_apply_batch('reader.inbox', ARRAY[pg_temp.event(type || '3', one, 1, type => 'key.set'),
        pg_temp.event(type || '4', other, 2, type => 'key.set'), pg_temp.event(type || '5', one, 2, type => 'key.set')]));
    DROP TABLE reader.key;
    PERFORM postbox.drop_projection(name) FROM postbox.projection WHERE 'key.set' = ANY (event_types);
END $$;
SELECT type, array(SELECT pg_temp.comes_back(type, one, other)) FROM (VALUES
    ('varchar(9) COLLATE reader.any_case', 'a', 'A'), ('char(9) COLLATE reader.any_case', 'a', 'A '), ('reader.loose', 'a', 'A'), ('reader.loose_name', 'a', 'A'), ('reader.loose COLLATE "C"', 'a', 'a'), ('name', 'a', 'a'), ('name COLLATE "POSIX"', 'a', 'a'), ('text', 'a', 'a'),
    ('char(9)', 'a', 'a  '), ('bpchar', 'a', 'a  '), ('numeric', '1.0', '1.00'), ('numeric(9, 2)', '1', '1.001'), ('float8', '0', '-0'), ('float4', '1', '1.0'),
    ('timestamptz', '2024-05-01 02:00+02', '2024-05-01 00:00Z'), ('date', '2024-05-01', '20240501'), ('interval', '1 day', '24:00'),
    ('money', '1', '1.00'), ('jsonb', '{"a": 1}', '{"a":1.0}'), ('numrange', '[1,2]', '[1.0,2.00]'), ('inet', '10.0.0.1', '10.0.0.1/32'), ('bit(3)', '101', '101'),
    ('uuid', 'A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11', 'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')) AS types (type, one, other);
-- an index that holds no such value
CREATE INDEX video_title ON reader.video (title);
SELECT pg_temp.apply(pg_temp.event('71', 'k', 1), pg_temp.event('72', 'k', 2, (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)), pg_temp.event('73', 'k', 3));
DROP INDEX reader.video_title;

-- a foreign key does not find what a later event writes
CREATE TABLE reader.node (id text PRIMARY KEY, parent text REFERENCES reader.node, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{node.set}', 'reader.node');
CREATE FUNCTION pg_temp.node(id text, parent text) RETURNS postbox.event LANGUAGE sql AS
    $$ SELECT ROW(id, 'node.set', 'node', id, 1, convert_to(json_build_object('parent', parent)::text, 'UTF8'), NULL, NULL)::postbox.event $$;
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[pg_temp.node('root', NULL), pg_temp.node('leaf', 'branch'), pg_temp.node('branch', 'root')], on_error => 'reject');
SELECT id FROM reader.node ORDER BY id;

-- more events than are written together
SELECT outcome, count(*) FROM unnest(postbox.inbox_apply_batch('reader.inbox',
    (SELECT array_agg(pg_temp.event('many ' || n, 'k' || n % 1700, n, n::text) ORDER BY n) FROM generate_series(1, 5000) n))) AS outcome GROUP BY 1;
SELECT count(*), min(version), max(version), count(*) FILTER (WHERE title <> version::text) FROM reader.video WHERE id LIKE 'k_%';
-- another aggregate type in the target: what looks old is not taken for it
SELECT pg_temp.apply(pg_temp.event('81', 'l', 5), ROW('82', 'video.set', 'film', 'm', 1, '\x7b227469746c65223a202274776f222c20226e223a317d', NULL, NULL));
SELECT pg_temp.apply(pg_temp.event('83', 'l', 6), pg_temp.event('84', 'l', 7), pg_temp.event('85', 'l', 6));
SELECT pg_temp.apply(pg_temp.event('83', 'l', 6), pg_temp.event('84', 'l', 7));
DROP SCHEMA reader CASCADE;

-- Random events for targets of all kinds: in batches of random sizes, and one by one.
CREATE SCHEMA batch;
CREATE SCHEMA alone;
CREATE TABLE batch.seen (id text, version bigint);
CREATE TABLE alone.seen (LIKE batch.seen);
CREATE FUNCTION pg_temp.any(VARIADIC choices text[]) RETURNS text LANGUAGE sql AS $$ SELECT choices[1 + floor(random() * cardinality(choices))::int] $$;
CREATE FUNCTION pg_temp.target() RETURNS text LANGUAGE sql AS $$ SELECT pg_temp.any(
    'id text PRIMARY KEY, title text NOT NULL, n int, version bigint NOT NULL',
    'id text PRIMARY KEY, title text NOT NULL, n int, version bigint NOT NULL',
    'id text PRIMARY KEY, title text NOT NULL, n int, version bigint NOT NULL',
    'id text PRIMARY KEY, title varchar(12), n numeric(3, 1), version integer, made timestamptz DEFAULT now(), note text DEFAULT ''none''',
    'id char(3) PRIMARY KEY, title char(12), n int, version bigint',
    'id varchar(3) PRIMARY KEY, title text CHECK (length(title) > 2), n int, version bigint',
    'id text PRIMARY KEY, title text, n int UNIQUE, version bigint',
    'id text PRIMARY KEY, title text, n int, twice int GENERATED ALWAYS AS (100 / n) STORED, version bigint',
    'id text PRIMARY KEY, title text, n int, number serial, version bigint',
    'id text, title text, n numeric, version bigint, PRIMARY KEY (id, n)',
    'id text, title text, n interval, version bigint, PRIMARY KEY (n)',
    'id text PRIMARY KEY, title jsonb, n int, version bigint') $$;
CREATE FUNCTION pg_temp.create(schema text, columns text, deletes text[], extra text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE format('SET LOCAL search_path = %I', schema);
    EXECUTE format('CREATE TABLE target (%s)', columns);
    IF extra = 'index' THEN
        CREATE INDEX ON target (title);
    ELSIF extra = 'trigger' THEN
        CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $body$ BEGIN
            EXECUTE format('INSERT INTO %I.seen VALUES ($1, $2)', TG_TABLE_SCHEMA) USING NEW.id, NEW.version; RETURN NULL; END $body$;
        CREATE TRIGGER see AFTER INSERT OR UPDATE ON target FOR EACH ROW EXECUTE FUNCTION see();
    END IF;
    PERFORM postbox.create_inbox(schema || '.inbox');
    PERFORM postbox.create_projection(to_regclass('inbox'), '{set,change}', to_regclass('target'), delete_types => deletes,
        columns => CASE WHEN columns LIKE '%PRIMARY KEY (%' THEN '{"id": "$aggregate_id", "title": "title", "n": "n"}' ELSE '{"title": "title", "n": "n"}' END::jsonb);
END $$;
CREATE FUNCTION pg_temp.event(number int) RETURNS postbox.event LANGUAGE sql AS $$
    SELECT ROW('e' || CASE WHEN random() < 0.05 THEN number / 2 ELSE number END,
        pg_temp.any('set', 'set', 'set', 'set', 'set', 'set', 'set', 'change', 'delete', 'other'), CASE WHEN random() < 0.01 THEN 'w' ELSE 'v' END,
        pg_temp.any('a', 'a', 'b', 'c', 'd', 'e', 'a ', 'longer'), CASE WHEN random() < 0.02 THEN 0 ELSE 1 + floor(random() * (3 + number / 6)) END,
        convert_to(CASE WHEN random() < 0.9 THEN format('{"title": "title %s", "n": %s}', number, 1 + number % 60)
            ELSE pg_temp.any('{"title": "short"}', '{"n": 1.0}', '{"title": null, "n": 0}', '{"title": "x", "n": "24:00"}', '{"title": "y", "n": "1 day"}', '[]',
                '{"title": {"a": 1}, "n": "1.00"}', format('{"title": %s, "n": 1}', to_json((SELECT string_agg(md5(i::text), '') FROM generate_series(1, 300) i)))) END, 'UTF8'),
        NULL, NULL)::postbox.event $$;
-- What became of an event: the outcome, and the error of one that is rejected.
CREATE FUNCTION pg_temp.letters(schema text) RETURNS text LANGUAGE sql AS $$
    SELECT replace(string_agg(concat_ws(' ', event_id, sqlstate, error), E'\n' ORDER BY event_id), schema || '.', '') FROM postbox.dead_letter
    WHERE inbox = to_regclass(schema || '.inbox') $$;
CREATE FUNCTION pg_temp.rows(name text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE format('SELECT string_agg((to_jsonb(t) - ''received_at'' - ''number'' - ''deleted_at'' - ''target'')::text, E''\n'' ORDER BY to_jsonb(t)::text) FROM %s t', name) INTO result;
    RETURN result;
END $$;
CREATE TABLE pg_temp.differs (round int, what text, batch text, alone text);
CREATE TABLE pg_temp.came_to (outcome postbox.outcome, raised boolean);
CREATE PROCEDURE pg_temp.round(round int) LANGUAGE plpgsql AS $$
DECLARE
    columns text := pg_temp.target();
    deletes text[] := CASE WHEN random() < 0.2 THEN '{delete}' ELSE '{}' END;
    extra text := pg_temp.any('', '', '', '', '', '', 'index', 'trigger');
    events postbox.event[];
    size int := pg_temp.any('1', '2', '7', '20', '60');
    part postbox.event[];
    of_batch postbox.outcome[];
    of_alone postbox.outcome[];
    raised boolean;
    name text;
    batch text;
    alone text;
BEGIN
    PERFORM pg_temp.create('batch', columns, deletes, extra), pg_temp.create('alone', columns, deletes, extra);
    SELECT array_agg(pg_temp.event(n) ORDER BY n) INTO events FROM generate_series(1, 60) n;
    FOR begin_at IN 1..60 BY size LOOP
        part := events[begin_at:begin_at + size - 1];
        SELECT array_agg(postbox.inbox_apply('alone.inbox', event, 'reject') ORDER BY number) INTO of_alone FROM unnest(part) WITH ORDINALITY AS u(
            event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, occurred_at, number),
            LATERAL (SELECT ROW(event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, occurred_at)::postbox.event) AS e(event);
        raised := false;
        BEGIN
            of_batch := postbox.inbox_apply_batch('batch.inbox', part);
        EXCEPTION WHEN OTHERS THEN
            raised := true;
            of_batch := postbox.inbox_apply_batch('batch.inbox', part, 'reject');
        END;
        IF of_batch <> of_alone OR raised <> ('rejected' = ANY (of_alone)) THEN
            INSERT INTO pg_temp.differs VALUES (round, format('outcomes of %s, %s, %s', columns, deletes, extra), raised || of_batch::text, of_alone::text);
        END IF;
        INSERT INTO pg_temp.came_to SELECT outcome, raised FROM unnest(of_batch) AS outcome;
    END LOOP;
    FOREACH name IN ARRAY ARRAY['target', 'inbox', 'inbox_tombstone', 'seen'] LOOP
        batch := pg_temp.rows('batch.' || name);
        alone := pg_temp.rows('alone.' || name);
        IF batch IS DISTINCT FROM alone THEN
            INSERT INTO pg_temp.differs VALUES (round, format('%s of %s, %s, %s', name, columns, deletes, extra), batch, alone);
        END IF;
    END LOOP;
    IF pg_temp.letters('batch') IS DISTINCT FROM pg_temp.letters('alone') THEN
        INSERT INTO pg_temp.differs VALUES (round, 'letters of ' || columns, pg_temp.letters('batch'), pg_temp.letters('alone'));
    END IF;
    PERFORM postbox.drop_inbox('batch.inbox'), postbox.drop_inbox('alone.inbox');
    DROP TABLE batch.target, alone.target;
    DROP FUNCTION IF EXISTS batch.see(), alone.see();
    TRUNCATE batch.seen, alone.seen;
END $$;
SET client_min_messages = warning;
SELECT setseed(0.25);
DO $$ BEGIN FOR round IN 1..60 LOOP CALL pg_temp.round(round); COMMIT; END LOOP; END $$;
SELECT * FROM pg_temp.differs;
SELECT outcome, raised, count(*) > 30 AS many FROM pg_temp.came_to GROUP BY 1, 2 ORDER BY 1, 2;
DROP SCHEMA batch, alone CASCADE;
