-- What a payload may hold: only the fields that a projection writes are made values of. Every error of a value names its column, table and field.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE SEQUENCE reader.event_number;
CREATE FUNCTION reader.apply(aggregate_id text, payload text, event_type text DEFAULT 'value') RETURNS postbox.outcome LANGUAGE sql AS $$
    SELECT postbox.inbox_apply('reader.inbox', 'e' || n, event_type, 'value', aggregate_id, n, convert_to(payload, 'UTF8'), on_error => 'reject')
    FROM nextval('reader.event_number') n
$$;
-- the errors since the last call
CREATE FUNCTION reader.errors() RETURNS TABLE (sqlstate text, error text) LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM postbox.dead_letter RETURNING *) SELECT sqlstate, error FROM gone ORDER BY id
$$;
CREATE TABLE reader.value (id text PRIMARY KEY, title text, body jsonb, document json, author text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{value}', 'reader.value',
    '{"title": "title", "body": "body", "document": "document", "author": {"path": "author.name"}}');

-- a field that is not mapped may hold what no text can
SELECT reader.apply('zero', '{"title": "t", "note": "a\u0000b", "deep": [{"x": "\u0000"}], "\u0000": 1, "lone": "\ud800", "author": {"name": "n", "note": "\udc00\ud800"}}');
-- json keeps it, as it keeps everything
SELECT reader.apply('json', '{"document": {"a" : 1.0,  "b":"\u0000", "b": 1e2}}');
SELECT id, title, document, author FROM reader.value ORDER BY id;
-- a mapped one is an error that names it
SELECT reader.apply('v', '{"title": "a\u0000b"}');
SELECT reader.apply('v', '{"title": "\ud83d"}');
SELECT reader.apply('v', '{"title": "\ude00\ud83d"}');
SELECT reader.apply('v', '{"body": [1, {"x": "\u0000"}]}');
SELECT reader.apply('v', '{"body": "\udc00"}');
SELECT reader.apply('v', '{"author": {"name": "\u0000"}}');
SELECT * FROM reader.errors();
-- all of a payload must be JSON
SELECT reader.apply('v', '{"title": "x", "note": nul}');
SELECT reader.apply('v', '{"title": "x", "note": "\u00g0"}');
SELECT reader.apply('v', '{"title": "x"} more');
SELECT reader.apply('v', '{"title": "x", }');
SELECT * FROM reader.errors();
SELECT count(*) FROM reader.value WHERE id = 'v';

-- names with escapes, several members with one name: the last one counts
SELECT reader.apply('name', '{"titl\u0065": "1", "title": "2", "t\u0069tle": "\u0033\ud83d\ude00", "author": {"name": "x"}, "author": {}}');
SELECT title, author FROM reader.value WHERE id = 'name';

-- the parent of a field: absent, the field is absent; null, it is null; no object, it is an error
SELECT reader.apply('name', '{"author": {"name": "n"}}'), reader.apply('name', '{"title": "t"}');
SELECT author FROM reader.value WHERE id = 'name';
SELECT reader.apply('name', '{"author": null}');
SELECT author IS NULL AS is_null FROM reader.value WHERE id = 'name';
SELECT reader.apply('name', '{"author": "Ada"}');
SELECT reader.apply('name', '{"author": [{"name": "Ada"}]}');
SELECT reader.apply('name', '{"author": 7}');
SELECT reader.apply('name', '{"author": false}');
SELECT * FROM reader.errors();

-- what changes in a table is emitted, applied and projected, whatever it holds
CREATE TABLE reader.place (id int PRIMARY KEY, name text, note json);
SELECT postbox.create_outbox('reader.outbox');
SELECT postbox.create_change_triggers('reader.place', outbox => 'reader.outbox');
INSERT INTO reader.place VALUES (1, 'here', '"\u0000 and \ud800"');
CREATE TABLE reader.places (id int PRIMARY KEY, name text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{place.created}', 'reader.places');
SELECT postbox.inbox_apply('reader.inbox', id::text, event_type, aggregate_type, aggregate_id, version, payload) FROM reader.outbox;
SELECT * FROM reader.places;

-- the error of every type names column, table and field
CREATE DOMAIN reader.short AS varchar(3);
CREATE DOMAIN reader.even AS int CHECK (VALUE % 2 = 0);
CREATE TYPE reader.mood AS ENUM ('good', 'bad');
CREATE TYPE reader.pair AS (x int, label varchar(3));
CREATE TABLE reader.typed (
    id text PRIMARY KEY, c_varchar varchar(3), c_char char(3), c_bit bit(3), c_varbit varbit(3), c_numeric numeric(4, 1), c_int int, c_small smallint,
    c_big bigint, c_real real, c_bool boolean, c_date date, c_time time(0), c_stamp timestamptz, c_interval interval, c_uuid uuid, c_inet inet,
    c_cidr cidr, c_mac macaddr, c_range int4range, c_multirange int4multirange, c_ints int[], c_shorts varchar(3)[], c_numerics numeric(4, 1)[],
    c_pair reader.pair, c_pairs reader.pair[], c_mood reader.mood, c_short reader.short, c_even reader.even, c_bytes bytea, c_point point, c_xml xml,
    c_query tsquery, c_json json, c_jsonb jsonb, c_money money, version bigint);
SELECT postbox.create_projection('reader.inbox', '{typed}', 'reader.typed', columns =>
    (SELECT jsonb_object_agg('c_' || n, jsonb_build_object('path', ARRAY['in', n])) FROM unnest(ARRAY['varchar', 'char', 'bit', 'varbit', 'numeric', 'int', 'small',
        'big', 'real', 'bool', 'date', 'time', 'stamp', 'interval', 'uuid', 'inet', 'cidr', 'mac', 'range', 'multirange', 'ints', 'shorts', 'numerics', 'pair', 'pairs',
        'mood', 'short', 'even', 'bytes', 'point', 'query', 'jsonb', 'money']) n));
SELECT reader.apply('t', format('{"in": {"%s": %s}}', field, value), 'typed') FROM (VALUES
    ('varchar', '"four"'), ('char', '"four"'), ('bit', '"01"'), ('varbit', '"0101"'), ('numeric', '12345.6'), ('int', '12.5'), ('int', '"12.0"'), ('int', '3e9'), ('int', '1e50'),
    ('small', '40000'), ('big', '"x"'), ('real', '1e100'), ('bool', '"maybe"'), ('date', '"2024-02-30"'), ('time', '"25:00"'), ('stamp', '"soon"'),
    ('interval', '"long"'), ('uuid', '"u"'), ('inet', '"1.2.3"'), ('cidr', '"10.0.0.1/8"'), ('mac', '"m"'), ('range', '"[5,1]"'), ('range', '[5, 1]'), ('multirange', '"{[1,"'),
    ('ints', '[1, "x"]'), ('ints', '[1.5]'), ('ints', '"x"'), ('ints', '[[[[[[[1]]]]]]]'), ('shorts', '["a", "four"]'), ('numerics', '[12345]'), ('pair', '{"x": "one"}'), ('pair', '{"label": "four"}'),
    ('pair', '7'), ('pairs', '[{"x": 1}, {"x": 1.5}]'), ('mood', '"so"'), ('short', '"four"'), ('even', '3'), ('bytes', '"\\xz"'), ('bytes', '"abc"'), ('bytes', '12'),
    ('point', '"p"'), ('query', '"a b ("'), ('jsonb', '1e999999'), ('money', '"m"')) v(field, value);
SELECT sqlstate, replace(error, 'The value is for column ', '... ') AS error FROM reader.errors();
-- also of what the event itself says
CREATE TABLE reader.said (id text PRIMARY KEY, kind varchar(3), version int);
SELECT postbox.create_projection('reader.inbox', '{said,said loudly}', 'reader.said', '{"kind": "$event_type"}');
SELECT reader.apply('t', '', 'said');
SELECT postbox.inbox_apply('reader.inbox', 'large', 'said', 'v', 't', 3000000000, '', on_error => 'reject');
SELECT * FROM reader.errors();

-- an event that comes too late is stale, whatever it holds
CREATE TABLE reader.gone (id text PRIMARY KEY, name varchar(3), n int, version bigint);
SELECT postbox.create_projection('reader.inbox', '{made}', 'reader.gone', delete_types => '{gone}');
SELECT postbox.inbox_apply('reader.inbox', 'g2', 'gone', 'v', 'g', 2, ''), postbox.inbox_apply('reader.inbox', 'g1', 'made', 'v', 'g', 1, '{"name": "four", "n": "x"}');

-- many fields of one object, in a payload of 9 MB
CREATE TABLE reader.wide (id text PRIMARY KEY, version bigint);
DO $$ BEGIN EXECUTE format('ALTER TABLE reader.wide %s', (SELECT string_agg(format('ADD COLUMN c%s int', n), ', ') FROM generate_series(1, 300) n)); END $$;
SELECT postbox.create_projection('reader.inbox', '{wide}', 'reader.wide', columns =>
    (SELECT jsonb_object_agg('c' || n, jsonb_build_object('path', ARRAY['inner', 'object', 'c' || n])) FROM generate_series(1, 300) n));
SET statement_timeout = '20s';
SELECT reader.apply('w', format('{"text": "%s", "inner": {"list": [%s], "object": {%s}}}', repeat('x', 5000000), repeat('{"a": "\u0000"}, ', 250000) || '1',
    (SELECT string_agg(format('"c%s": %1$s.0', n), ', ') FROM generate_series(1, 300) n)), 'wide');
RESET statement_timeout;
SELECT c1, c150, c300 FROM reader.wide;

-- a handler gets every payload
CREATE FUNCTION reader.see(event postbox.event) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT postbox.create_handler('reader.inbox', '{seen}', 'reader.see(postbox.event)');
SELECT reader.apply('s', '{"no": "JSON', 'seen');
SELECT * FROM reader.errors();
DROP SCHEMA reader CASCADE;
