-- Projections: what they take, and what they write.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE SEQUENCE pg_temp.event_number;
CREATE FUNCTION pg_temp.apply(event_type text, aggregate_id text, version bigint, payload text) RETURNS postbox.outcome
    LANGUAGE sql AS $$
        SELECT postbox.inbox_apply('reader.inbox', 'evt_' || nextval('pg_temp.event_number'), event_type, 'video', aggregate_id,
                                   version, convert_to(payload, 'UTF8'), '{"source": "test"}', '2025-10-24 10:30:00+00', on_error => 'reject') $$;
-- the error that the last rejected event was recorded with
CREATE FUNCTION pg_temp.why(OUT sqlstate text, OUT error text)
    LANGUAGE sql AS $$ SELECT sqlstate, error FROM postbox.dead_letter ORDER BY id DESC LIMIT 1 $$;

-- by name: JSON fields into the columns of the same name, aggregate_id into the key
CREATE TABLE reader.video (video_id text PRIMARY KEY, title text NOT NULL, views int DEFAULT 7, tags text[], about jsonb, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', ARRAY['video.created', 'video.updated'], 'reader.video', delete_types => ARRAY['video.deleted']);
SELECT id, inbox, event_types, target, columns, key, version_column, delete_types FROM postbox.projection;
SELECT pg_temp.apply('video.created', 'v1', 1, '{"title": "Intro", "tags": ["a", "b"], "about": {"by": "me"}, "unknown": 1}');
SELECT * FROM reader.video;
-- a newer version overwrites, an older or the same one does not, absent fields are left alone, null is NULL
SELECT pg_temp.apply('video.updated', 'v1', 3, '{"views": 10}');
SELECT pg_temp.apply('video.updated', 'v1', 2, '{"views": 11, "title": "late", "tags": [], "about": 1}');
SELECT pg_temp.apply('video.updated', 'v1', 3, '{"views": 12}');
SELECT * FROM reader.video;
SELECT pg_temp.apply('video.updated', 'v1', 4, '{"views": null, "tags": null, "about": [1, "x"], "title": "4"}');
SELECT * FROM reader.video;
-- a partial event for a key that is not there has nothing for the NOT NULL column
SELECT pg_temp.apply('video.updated', 'v2', 1, '{"views": 1}'), pg_temp.why();
-- NOT NULL is the table's
SELECT pg_temp.apply('video.updated', 'v1', 5, '{"title": null}'), pg_temp.why();

-- a delete leaves its version behind: what is older cannot bring the row back
SELECT pg_temp.apply('video.deleted', 'v1', 3, 'not even JSON');
SELECT pg_temp.apply('video.deleted', 'v1', 6, '');
SELECT key, version FROM reader.inbox_tombstone;
SELECT pg_temp.apply('video.updated', 'v1', 5, '{"title": "late"}'), pg_temp.apply('video.updated', 'v1', 6, '{}');
SELECT pg_temp.apply('video.deleted', 'v1', 6, ''), pg_temp.apply('video.deleted', 'v1', 5, '');
SELECT * FROM reader.video;
SELECT pg_temp.apply('video.deleted', 'v1', 7, '');
SELECT key, version FROM reader.inbox_tombstone;
-- a newer event creates it again, and the tombstone goes
SELECT pg_temp.apply('video.created', 'v1', 8, '{"title": "again"}');
SELECT video_id, title, version FROM reader.video;
SELECT key, version FROM reader.inbox_tombstone;
-- the delete arrives before the create
SELECT pg_temp.apply('video.deleted', 'v9', 2, ''), pg_temp.apply('video.created', 'v9', 1, '{"title": "late"}');
SELECT count(*) FROM reader.video WHERE video_id = 'v9';

-- events that a projection refuses
SELECT pg_temp.apply('video.updated', 'v1', NULL, '{}'), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 0, '{}'), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', -1, '{}'), pg_temp.why();
SELECT pg_temp.apply('video.updated', NULL, 9, '{}'), pg_temp.why();
SELECT pg_temp.apply('video.deleted', NULL, 9, ''), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, NULL), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, ''), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, 'text'), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, '[{"title": "x"}]'), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, '"title"'), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, '{"views": "many"}'), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, '{"views": 3000000000}'), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, '{"tags": "a"}'), pg_temp.why();
SELECT pg_temp.apply('video.updated', 'v1', 9, '{"title": "\u0000"}'), pg_temp.why();
SELECT postbox.inbox_apply('reader.inbox', 'bytes 1', 'video.updated', 'video', 'v1', 9, '\x7b22616263223a22ff227d'::bytea, on_error => 'reject'), pg_temp.why();
SELECT postbox.inbox_apply('reader.inbox', 'bytes 2', 'video.updated', 'video', 'v1', 9, '\x7b7d00'::bytea, on_error => 'reject'), pg_temp.why();
SELECT video_id, title, version FROM reader.video;

-- a mapping: other fields, paths, fields of the event; only what it names is written
CREATE TYPE reader.point AS (x int, y int);
CREATE DOMAIN reader.short AS text CHECK (length(VALUE) < 5) NOT NULL;
CREATE TABLE reader.mapped (
    id uuid PRIMARY KEY, name varchar(8), kind reader.short DEFAULT 'x', place reader.point, first_name text, second_name text,
    raw bytea, document json, attributes jsonb, occurred timestamptz, event text, type text, aggregate text, amount numeric(6, 2),
    flag boolean, day date, numbers int[], own text DEFAULT 'own', "Odd ""name" text, revision int,
    doubled int GENERATED ALWAYS AS (revision * 2) STORED);
SELECT postbox.create_projection('reader.inbox', '{mapped}', 'reader.mapped', version_column => 'revision', columns => '{
    "name": "title", "kind": "kind", "place": "place", "first_name": {"path": ["author", "first"]}, "second_name": {"path": "author.name.second"},
    "raw": "$payload", "document": "$payload", "attributes": "$attributes", "occurred": "$occurred_at", "event": "$event_id", "type": "$event_type",
    "aggregate": "$aggregate_type", "amount": "amount", "flag": "flag", "day": "day", "numbers": "numbers", "Odd \"name": {"path": ["$odd"]}}');
SELECT pg_temp.apply('mapped', '00000000-0000-0000-0000-00000000000A', 1, '{"title": "t", "kind": "k", "place": {"x": 1, "y": 2}, "own": "not mine",
    "author": {"first": "A", "name": {"second": "B"}}, "amount": 1234.567, "flag": true, "day": "2025-10-24", "numbers": [1, null, 3], "$odd": {"a": 1}}');
\x
SELECT * FROM reader.mapped;
\x
SELECT pg_temp.apply('mapped', '00000000-0000-0000-0000-00000000000a', 2, '{"author": {"first": null, "name": {}}, "flag": "off"}');
SELECT revision, doubled, first_name, second_name, flag, name FROM reader.mapped;
SELECT pg_temp.apply('mapped', '00000000-0000-0000-0000-00000000000a', 3, '{"title": "too long a title"}'), pg_temp.why();
SELECT pg_temp.apply('mapped', '00000000-0000-0000-0000-00000000000a', 3, '{"kind": "too long"}'), pg_temp.why();
SELECT pg_temp.apply('mapped', '00000000-0000-0000-0000-00000000000a', 3, '{"kind": null}'), pg_temp.why();
SELECT pg_temp.apply('mapped', '00000000-0000-0000-0000-00000000000a', 3, '{"place": {"x": "one"}}'), pg_temp.why();
SELECT pg_temp.apply('mapped', 'no uuid', 3, '{}'), pg_temp.why();
SELECT pg_temp.apply('mapped', '00000000-0000-0000-0000-00000000000a', 3000000000, '{}'), pg_temp.why();

-- a key of several columns comes from the payload; the payload need not be read for fields of the event
CREATE TABLE reader.stock (shop text, item int, pieces int, version bigint, PRIMARY KEY (item, shop));
SELECT postbox.create_projection('reader.inbox', '{stock.counted}', 'reader.stock', key => '{shop,item}', delete_types => '{stock.gone}');
SELECT pg_temp.apply('stock.counted', 's', 1, '{"shop": "north", "item": 5, "pieces": 10}');
SELECT pg_temp.apply('stock.counted', 's', 1, '{"shop": "south", "item": 5, "pieces": 20}');
SELECT pg_temp.apply('stock.gone', 's', 2, '{"shop": "south", "item": "5"}');
SELECT pg_temp.apply('stock.counted', 's', 2, '{"shop": "north", "pieces": 10}'), pg_temp.why();
SELECT pg_temp.apply('stock.counted', 's', 2, '{"shop": null, "item": 5}'), pg_temp.why();
SELECT * FROM reader.stock;
SELECT key, version FROM reader.inbox_tombstone WHERE target = 'reader.stock'::regclass;
CREATE TABLE reader.log (id text PRIMARY KEY, aggregate text, at timestamptz, version bigint);
SELECT postbox.create_projection('reader.inbox', '{logged}', 'reader.log', '{"id": "$event_id", "aggregate": "$aggregate_id", "at": "$occurred_at"}');
SELECT postbox.inbox_apply('reader.inbox', 'binary', 'logged', 'x', 'a1', 5, '\x0801'::bytea);
SELECT * FROM reader.log;

-- several projections of one table write columns of their own
CREATE TABLE reader.parts (id text PRIMARY KEY, a text, b text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{part.a}', 'reader.parts', '{"a": "value"}');
SELECT postbox.create_projection('reader.inbox', '{part.b}', 'reader.parts', '{"b": "value"}', delete_types => '{part.gone}');
SELECT pg_temp.apply('part.a', 'p', 1, '{"value": "x"}'), pg_temp.apply('part.b', 'p', 2, '{"value": "y"}');
SELECT * FROM reader.parts;
SELECT pg_temp.apply('part.gone', 'p', 4, ''), pg_temp.apply('part.a', 'p', 3, '{"value": "z"}');
SELECT * FROM reader.parts;

-- partitions, and a unique index that is no primary key
CREATE TABLE reader.parted (id int PRIMARY KEY, n int, version bigint) PARTITION BY RANGE (id);
CREATE TABLE reader.parted_1 PARTITION OF reader.parted FOR VALUES FROM (0) TO (100);
SELECT postbox.create_projection('reader.inbox', '{parted}', 'reader.parted', delete_types => '{parted.gone}');
SELECT pg_temp.apply('parted', '5', 1, '{"n": 1}'), pg_temp.apply('parted', '5', 2, '{"n": 2}'), pg_temp.apply('parted', '500', 1, '{"n": 1}');
SELECT pg_temp.why();
SELECT pg_temp.apply('parted.gone', '6', 2, ''), pg_temp.apply('parted', '6', 1, '{"n": 2}'), pg_temp.apply('parted.gone', '5', 2, ''), pg_temp.apply('parted.gone', '5', 3, '');
SELECT * FROM reader.parted;
CREATE TABLE reader.indexed (id int, code text UNIQUE, version bigint);
SELECT postbox.create_projection('reader.inbox', '{indexed}', 'reader.indexed', key => '{code}', delete_types => '{indexed.gone}');
SELECT pg_temp.apply('indexed', 'c', 1, '{"id": 1}'), pg_temp.apply('indexed.gone', 'd', 2, ''), pg_temp.apply('indexed', 'd', 1, '{"id": 2}');
SELECT * FROM reader.indexed;

-- what a projection cannot be made of
CREATE TABLE reader.keyless (id text, version bigint);
CREATE TABLE reader.unversioned (id text PRIMARY KEY, version text);
CREATE TABLE reader.strict (id text PRIMARY KEY, title text NOT NULL, state text NOT NULL, n int NOT NULL DEFAULT 0, version bigint);
CREATE TABLE reader.partial (id text, version bigint);
CREATE UNIQUE INDEX ON reader.partial (id) WHERE version > 0;
CREATE UNIQUE INDEX ON reader.partial (lower(id));
CREATE TABLE reader.counted (id int PRIMARY KEY, serial int GENERATED ALWAYS AS IDENTITY, list int[], version bigint);
CREATE VIEW reader.seen AS SELECT 'a' AS id, 1 AS version;
SELECT postbox.create_projection(NULL, '{x}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', NULL, 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{x,NULL}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{x,""}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{x,x}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{{x},{y}}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{x}', NULL);
SELECT postbox.create_projection('reader.inbox', '{x}', '1');
SELECT postbox.create_projection('reader.video', '{x}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.seen');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.keyless');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.keyless', key => '{id}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.partial', key => '{id}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.video', key => '{no_such}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.stock', key => '{shop}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.stock', key => '{shop,shop}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.stock', key => '{}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', version_column => 'revision');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', version_column => NULL);
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.counted', version_column => 'id');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.unversioned');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '["title"]');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"title": 1}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"title": ""}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"title": {"field": "title"}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"title": {"path": []}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"title": {"path": ["a", 1]}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"title": {"path": "a..b"}}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"title": "$aggregate"}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"no_such": "title"}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{"version": "revision"}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.strict', '{}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.counted', '{"serial": "n"}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.counted', '{"list": "$event_id"}');
-- one table, one meaning of its key and version
SELECT postbox.create_projection('reader.inbox', '{video.created}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.video', delete_types => '{video.deleted}');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.stock');
SELECT postbox.create_inbox('reader.inbox2');
SELECT postbox.create_projection('reader.inbox2', '{x}', 'reader.video');

-- rights: only the owner of the inbox, who must be able to write the target
CREATE ROLE regress_postbox_owner;
GRANT USAGE ON SCHEMA reader TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_projection('reader.inbox2', '{x}', 'reader.strict');
SELECT postbox.drop_projection('reader.video');
RESET ROLE;
ALTER TABLE reader.inbox2 OWNER TO regress_postbox_owner;
ALTER TABLE reader.inbox2_tombstone OWNER TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_projection('reader.inbox2', '{x}', 'reader.strict', delete_types => '{y}');
RESET ROLE;
GRANT SELECT, INSERT ON reader.strict TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_projection('reader.inbox2', '{x}', 'reader.strict');
RESET ROLE;
GRANT UPDATE ON reader.strict TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_projection('reader.inbox2', '{x}', 'reader.strict');
SELECT postbox.inbox_apply('reader.inbox2', 'e1', 'x', 'x', 'a', 1, '{"title": "t", "state": "s"}');
RESET ROLE;
-- a right that is taken away is not the fault of an event: it is not recorded, and applies when the right is back
CREATE FUNCTION pg_temp.strict(id text, title text) RETURNS postbox.event
    LANGUAGE sql AS $$ SELECT ROW(id, 'x', 'x', id, 1, convert_to(format('{"title": "%s", "state": "s"}', title), 'UTF8'), NULL, NULL)::postbox.event $$;
REVOKE UPDATE ON reader.strict FROM regress_postbox_owner;
SELECT postbox.inbox_apply('reader.inbox2', pg_temp.strict('e2', 't'), on_error => 'reject');
SELECT postbox.inbox_apply_batch('reader.inbox2', ARRAY[pg_temp.strict('e2', 't'), pg_temp.strict('e3', 't')], on_error => 'reject');
-- an empty call says so too, and another type of event does not mind
SELECT postbox.inbox_apply_batch('reader.inbox2', '{}');
SELECT postbox.inbox_apply('reader.inbox2', 'other', 'y', 'x', 'a', 1, '{}');
-- a right by membership
CREATE ROLE regress_postbox_writers ROLE regress_postbox_owner;
GRANT UPDATE ON reader.strict TO regress_postbox_writers;
SELECT postbox.inbox_apply('reader.inbox2', pg_temp.strict('e2', 't'), on_error => 'reject');
REVOKE regress_postbox_writers FROM regress_postbox_owner;
SELECT postbox.inbox_apply('reader.inbox2', pg_temp.strict('e3', 't'), on_error => 'reject');
GRANT UPDATE ON reader.strict TO regress_postbox_owner;
REVOKE USAGE ON SCHEMA reader FROM regress_postbox_owner;
SELECT postbox.inbox_apply('reader.inbox2'::regclass, pg_temp.strict('e3', 't'), on_error => 'reject');
GRANT USAGE ON SCHEMA reader TO regress_postbox_owner;
SELECT count(*) FROM postbox.dead_letter WHERE inbox = 'reader.inbox2'::regclass;
SELECT postbox.inbox_apply('reader.inbox2', pg_temp.strict('e3', 't'), on_error => 'reject');
-- what a policy has against this one event is its own fault; redriving does not blame it for a right that is missing
ALTER TABLE reader.strict ENABLE ROW LEVEL SECURITY;
CREATE POLICY polite ON reader.strict USING (true) WITH CHECK (title <> 'rude');
SELECT postbox.inbox_apply('reader.inbox2', pg_temp.strict('e4', 'rude'), on_error => 'reject');
SELECT * FROM pg_temp.why();
REVOKE INSERT ON reader.strict FROM regress_postbox_owner;
SELECT postbox.redrive_dead_letter(max(id)) FROM postbox.dead_letter;
SELECT attempts FROM postbox.dead_letter ORDER BY id DESC LIMIT 1;

-- the table changes under the projection, in this session and at once
ALTER TABLE reader.video ADD COLUMN extra text, ALTER COLUMN views TYPE bigint;
SELECT pg_temp.apply('video.updated', 'v1', 20, '{"extra": "new", "views": 3000000000}');
-- a column that was written when the projection was made is missing: no event is applied without it
ALTER TABLE reader.video RENAME COLUMN title TO name;
SELECT pg_temp.apply('video.updated', 'v1', 21, '{"name": "renamed"}');
SELECT problem FROM postbox.inbox_problem;
ALTER TABLE reader.video RENAME COLUMN name TO title;
SELECT pg_temp.apply('video.updated', 'v1', 21, '{"title": "named"}');
ALTER TABLE reader.video RENAME TO film;
ALTER SCHEMA reader RENAME TO reader2;
SELECT postbox.inbox_apply('reader2.inbox', 'renamed', 'video.updated', 'video', 'v1', 22, '{"extra": "film"}');
ALTER SCHEMA reader2 RENAME TO reader;
SELECT * FROM reader.film;
ALTER TABLE reader.film DROP COLUMN version;
SELECT pg_temp.apply('video.updated', 'v1', 23, '{}');
SELECT postbox.drop_projection(name) FROM postbox.projection WHERE target = 'reader.film'::regclass;
SELECT pg_temp.apply('video.updated', 'v1', 23, '{}');
SELECT postbox.drop_projection('no_such');
SELECT postbox.drop_projection(NULL);

DROP SCHEMA reader CASCADE;
DROP ROLE regress_postbox_owner, regress_postbox_writers;
