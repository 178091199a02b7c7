-- What a value means: numbers, bytes and times that JSON says in its own way, and what a projection needs of its target.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE SEQUENCE reader.event_number;
CREATE FUNCTION reader.apply(aggregate_id text, payload text, event_type text DEFAULT 'value') RETURNS postbox.outcome LANGUAGE sql AS $$
    SELECT postbox.inbox_apply('reader.inbox', 'e' || n, event_type, 'value', aggregate_id, n, convert_to(payload, 'UTF8'), on_error => 'reject')
    FROM nextval('reader.event_number') n
$$;
CREATE FUNCTION reader.errors() RETURNS TABLE (sqlstate text, error text) LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM postbox.dead_letter RETURNING *) SELECT sqlstate, error FROM gone ORDER BY id
$$;

-- a number that is whole is whole however it is written, also inside of arrays and composite types
CREATE DOMAIN reader.even AS int CHECK (VALUE % 2 = 0);
CREATE TYPE reader.inner_pair AS (n bigint, amount numeric);
CREATE TYPE reader.pair AS (x int, "Naïve" smallint, list int[], deep reader.inner_pair, note text);
CREATE TABLE reader.number (id text PRIMARY KEY, small smallint, n int, big bigint, even reader.even, list int[], pair reader.pair, amount numeric, real real, word text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{value}', 'reader.number');
SELECT reader.apply('a', '{"small": 12.0, "n": 1e3, "big": 1E3, "even": 100e-2, "list": [1.0, 2e0, "3"], "amount": 12.0, "real": 12.5e-1, "word": 1.50}');
SELECT * FROM reader.errors();
SELECT reader.apply('a', '{"small": 12.0, "n": 1e3, "big": 9223372036854775807.0, "even": 200e-2, "list": [[1.0, 2E0], [-0.0, null]], "amount": 12.0, "real": 12.5e-1, "word": 1e2,
    "pair": {"x": 1.0, "Na\u00efve": 2e1, "list": [30e-1], "deep": {"n": 4.0, "amount": 4.0}, "note": 1.0, "more": 1.0}}');
SELECT * FROM reader.number;
SELECT reader.apply('a', '{"n": 12.5}'), reader.apply('a', '{"n": "12.0"}'), reader.apply('a', '{"list": [1, 2.5]}'), reader.apply('a', '{"big": 1e19}'), reader.apply('a', '{"n": 1e-400}');
SELECT * FROM reader.errors();

-- a type that gets another attribute
ALTER TYPE reader.inner_pair ADD ATTRIBUTE more smallint;
SELECT reader.apply('a', '{"pair": {"deep": {"more": 7.0, "amount": 7.0}}}');
SELECT pair FROM reader.number;

-- bytes
CREATE TABLE reader.bytes (id text PRIMARY KEY, plain bytea, list bytea[], b64 bytea, hex bytea, version bigint);
SELECT postbox.create_projection('reader.inbox', '{bytes}', 'reader.bytes',
    '{"plain": "plain", "list": "list", "b64": {"path": "b64", "as": "base64"}, "hex": {"path": ["hex"], "as": "hex"}}');
SELECT reader.apply('b', '{"plain": "\\x00ff", "list": ["\\x01", null], "b64": "AP9+/w==", "hex": "00FF"}', 'bytes');
SELECT reader.apply('c', '{"plain": "\u005cx", "b64": "AP9-_w", "hex": "\\x00ff"}', 'bytes');
SELECT reader.apply('d', '{"plain": null, "b64": null, "hex": ""}', 'bytes');
SELECT reader.apply('e', '{"b64": ""}', 'bytes');
SELECT * FROM reader.bytes ORDER BY id;
SELECT reader.apply('b', '{"plain": "AP9+/w=="}', 'bytes'), reader.apply('b', '{"list": ["AP9+/w=="]}', 'bytes'), reader.apply('b', '{"plain": {"a": 1}}', 'bytes'),
    reader.apply('b', '{"b64": "AP9+/w==x"}', 'bytes'), reader.apply('b', '{"b64": "A"}', 'bytes'), reader.apply('b', '{"b64": "A*=="}', 'bytes'), reader.apply('b', '{"b64": 7}', 'bytes'),
    reader.apply('b', '{"hex": "0"}', 'bytes'), reader.apply('b', '{"hex": "0g"}', 'bytes'), reader.apply('b', '{"hex": ["00"]}', 'bytes');
SELECT * FROM reader.errors();
SELECT * FROM reader.bytes WHERE id = 'b';

-- times
CREATE DOMAIN reader.recent AS timestamptz CHECK (VALUE > '2000-01-01');
CREATE TABLE reader.moment (id text PRIMARY KEY, s timestamptz, ms timestamptz(0), us timestamp, day date, local timestamp(0), utc_day date, recent reader.recent, version bigint);
SELECT postbox.create_projection('reader.inbox', '{moment}', 'reader.moment', '{"s": {"path": "s", "as": "epoch_seconds"}, "ms": {"path": "ms", "as": "epoch_milliseconds"},
    "us": {"path": "us", "as": "epoch_microseconds"}, "day": {"path": "s", "as": "epoch_seconds"}, "local": {"path": "local", "as": "utc"}, "utc_day": {"path": "local", "as": "utc"},
    "recent": {"path": "s", "as": "epoch_seconds"}}');
SET TimeZone = 'Asia/Tokyo';
SELECT reader.apply('a', '{"s": 1714604399.5, "ms": 1714604399500, "us": 1714604399500001, "local": "2024-05-01T23:30:00.5-05:00"}', 'moment');
SELECT reader.apply('b', '{"s": "1714604399", "ms": "1714604399499.9", "us": 1.7146043995e15, "local": "2024-05-01 12:00:00"}', 'moment');
SELECT reader.apply('c', '{"s": null, "ms": -0.4, "us": -1, "local": "infinity"}', 'moment');
RESET TimeZone;
SET TimeZone = 'UTC';
SELECT * FROM reader.moment ORDER BY id;
SELECT reader.apply('a', '{"s": "soon"}', 'moment'), reader.apply('a', '{"s": "0x10"}', 'moment'), reader.apply('a', '{"s": true}', 'moment'), reader.apply('a', '{"ms": 1e300}', 'moment'),
    reader.apply('a', '{"ms": 9e17}', 'moment'), reader.apply('a', '{"s": 0}', 'moment'), reader.apply('a', '{"local": 1714604399}', 'moment'), reader.apply('a', '{"local": "soon"}', 'moment');
SELECT * FROM reader.errors();
-- a column without a time zone is warned about when the projection is made, unless its source says what is meant
CREATE TABLE reader.dated (id text PRIMARY KEY, at timestamp(3), day date, stamped timestamptz, version bigint);
SELECT postbox.create_projection('reader.inbox', '{dated}', 'reader.dated', '{"at": "at", "day": "day", "stamped": "at"}');
SELECT postbox.create_projection('reader.inbox', '{dated utc}', 'reader.dated', '{"at": {"path": "at", "as": "utc"}, "day": {"path": "day", "as": "utc"}}');
SELECT postbox.create_projection('reader.inbox', '{dated event}', 'reader.dated', '{"at": "$occurred_at"}');
SELECT reader.apply('a', '{"at": "2024-05-01T23:30:00-05:00", "day": "2024-05-01T23:30:00-05:00"}', 'dated'), reader.apply('b', '{"at": "2024-05-01T23:30:00-05:00", "day": "2024-05-01T23:30:00-05:00"}', 'dated utc');
SELECT id, at, day, stamped FROM reader.dated ORDER BY id;
RESET TimeZone;

-- what a source cannot be
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.bytes', '{"b64": {"path": "b64", "as": "base32"}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.bytes', '{"b64": {"path": "b64", "as": "epoch_seconds"}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.number', '{"n": {"path": "n", "as": "hex"}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.bytes', '{"list": {"path": "n", "as": "base64"}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.moment', '{"s": {"path": "n", "as": "utc"}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.bytes', '{"b64": {"path": "b64", "sa": "base64"}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.bytes', '{"b64": {"path": "b64", "as": ["base64"]}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.bytes', '{"b64": {"path": "b64", "as": null}}');
-- a column that changes its type
ALTER TABLE reader.bytes ALTER COLUMN hex TYPE text USING encode(hex, 'hex');
SELECT kind, problem FROM postbox.inbox_problem;
DROP TABLE reader.bytes;
SELECT postbox.drop_projection(name) FROM postbox.projection WHERE target = 0;

-- what a projection wrote when it was made it needs, also without columns
CREATE TABLE reader.person (id text PRIMARY KEY, name text, age int, twice int GENERATED ALWAYS AS (age * 2) STORED, version bigint);
SELECT postbox.create_projection('reader.inbox', '{person}', 'reader.person');
SELECT writes FROM postbox.projection WHERE target = 'reader.person'::regclass;
SELECT reader.apply('p', '{"name": "Ada", "age": 36}', 'person');
ALTER TABLE reader.person RENAME name TO full_name;
SELECT event_types, problem FROM postbox.inbox_problem;
SELECT reader.apply('p', '{"name": "Eve"}', 'person');
SELECT postbox.inbox_apply_batch('reader.inbox', '{}');
ALTER TABLE reader.person RENAME full_name TO name;
SELECT reader.apply('p', '{"name": "Eve"}', 'person');
ALTER TABLE reader.person DROP COLUMN age CASCADE;
SELECT event_types, problem FROM postbox.inbox_problem;
ALTER TABLE reader.person ADD COLUMN age int, ADD COLUMN email text;
SELECT * FROM postbox.inbox_problem;
-- what the table has got since is written as well
SELECT reader.apply('p', '{"age": 37, "email": "eve@example.com"}', 'person');
SELECT name, age, email FROM reader.person;

-- a field that no event has: displayName is not display_name. It is a warning after 100 events
CREATE TABLE reader.user (id text PRIMARY KEY, display_name text, city text, zip text, seen_at timestamptz DEFAULT now(), "userName" text DEFAULT '', version bigint);
SELECT postbox.create_projection('reader.inbox', '{user,user changed}', 'reader.user');
SELECT postbox.create_projection('reader.inbox', '{user too}', 'reader.user', '{"zip": {"path": "home_address.zip"}, "city": "city"}');
CREATE FUNCTION reader.apply_many(event_type text, payload text, count int) RETURNS TABLE (outcome postbox.outcome, events bigint) LANGUAGE sql AS $$
    SELECT o, count(*) FROM unnest(postbox.inbox_apply_batch('reader.inbox', (
        SELECT array_agg((gen_random_uuid(), event_type, 'user', 'u' || g, nextval('reader.event_number'), convert_to(payload, 'UTF8'), NULL, NULL)::postbox.event)
        FROM generate_series(1, count) g))) o GROUP BY o
$$;
-- with the first event of a projection the inbox is read again, and nothing is counted yet
SELECT reader.apply_many('user', '{}', 1), reader.apply_many('user too', '{}', 1);
SELECT * FROM reader.apply_many('user', '{"displayName": "d", "city": "c", "zip": null, "user_name": "n"}', 99);
SELECT count(*) FROM postbox.inbox_problem;
SELECT * FROM reader.apply_many('user', '{"displayName": "d", "city": "c", "zip": null, "user_name": "n"}', 1);
SELECT inbox, kind, event_types, problem FROM postbox.inbox_problem ORDER BY problem;
SELECT "check", status, regexp_replace(detail, format('\m%s\M', substring(subject FROM '\d+')), 'N', 'g') AS detail, regexp_replace(remedy, '\d+', 'N') AS remedy
FROM postbox.doctor() WHERE "check" = 'inboxes' ORDER BY detail;
-- another type of the projection has it; and below an object
SELECT * FROM reader.apply_many('user changed', '{"display_name": "d", "user_name": "n"}', 1);
SELECT * FROM reader.apply_many('user too', '{"homeAddress": {"ZIP": "z"}}', 100);
DO $$ BEGIN
    FOR i IN 1 .. 200 LOOP
        EXIT WHEN NOT EXISTS (SELECT FROM postbox.inbox_problem WHERE problem LIKE '%display_name%');
        PERFORM reader.apply_many('user changed', '{"display_name": "d"}', 1);
        PERFORM pg_sleep(0.05);
    END LOOP;
END $$;
SELECT kind, event_types, problem FROM postbox.inbox_problem ORDER BY problem;
SELECT postbox.drop_projection(name) FROM postbox.projection WHERE target = 'reader.user'::regclass;
SELECT * FROM postbox.missing_field;
DROP SCHEMA reader CASCADE;
