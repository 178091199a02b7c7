-- An event has the same effect whatever the settings of the session that applies it, and a deleted key is known whatever form
-- its text has.
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.value (id timestamptz PRIMARY KEY, day date, at timestamptz, length interval, bytes text, number text, document xml, version bigint);
SELECT postbox.create_projection('reader.inbox', '{value}', 'reader.value', columns => '{"day": "day", "at": "at", "length": "length", "bytes": "$payload", "document": "document"}',
    delete_types => '{value.deleted}');
CREATE FUNCTION reader.show(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    RAISE WARNING '% % % % %', current_setting('DateStyle'), current_setting('TimeZone'), current_setting('IntervalStyle'), current_setting('bytea_output'),
        current_setting('lc_monetary');
    SET TimeZone = 'Asia/Tokyo';
    SET DateStyle = 'German';
END $$;
SELECT postbox.create_handler('reader.inbox', '{value}', 'reader.show(postbox.event)');
CREATE FUNCTION reader.apply(event_id text, event_type text, key text, version bigint, payload text DEFAULT '{}') RETURNS postbox.outcome LANGUAGE sql AS $$
    SELECT postbox.inbox_apply('reader.inbox', event_id, event_type, 'value', key, version, convert_to(payload, 'UTF8'))
$$;
SET TimeZone = 'America/New_York';
SET DateStyle = 'SQL, DMY';
SET IntervalStyle = 'sql_standard';
SET bytea_output = 'escape';
SET lc_monetary = 'POSIX';
SET xmloption = 'document';
SET extra_float_digits = -3;
SELECT reader.apply('e1', 'value', '2024-02-01 10:00', 1, '{"day": "01/02/2024", "at": "2024-02-01 12:00", "length": "-1 2:03:04", "document": "a"}');
-- the session has its own again
SELECT current_setting('TimeZone'), current_setting('DateStyle'), current_setting('IntervalStyle'), current_setting('bytea_output'), current_setting('xmloption'), current_setting('extra_float_digits');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[('e2', 'value', 'value', '2024-02-02 10:00', 1, '{"day": "02/03/2024"}', NULL, NULL), ('e3', 'value', 'value', '2024-02-03 10:00', 1, '{"day": "02/03/2024"}', NULL, NULL)]::postbox.event[]);
RESET ALL;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO';
SELECT id, day, at, length, document, version FROM reader.value ORDER BY id;
SET TimeZone = 'America/New_York';
SELECT reader.apply('e4', 'value.deleted', '2024-02-01 10:00', 5);
SELECT key, version FROM reader.inbox_tombstone;
-- the tombstone is found from another time zone
SET TimeZone = 'Asia/Tokyo';
SELECT postbox.drop_handler(name) FROM postbox.handler;
SELECT reader.apply('e5', 'value', '2024-02-01 10:00+00', 4);
SELECT postbox.wait_for_version('reader.value', '2024-02-01 10:00', 5, '0');
SELECT postbox.wait_for_version('reader.value', '2024-02-01 19:00+09', 5, '0');
RESET TimeZone;

-- keys that are equal, and look different
CREATE COLLATION reader.any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE FUNCTION reader.equal_keys(type text, one text, two text, other text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    late text;
BEGIN
    CREATE TABLE reader.keyed (id text, part int, version bigint);
    EXECUTE format('ALTER TABLE reader.keyed ALTER id TYPE %s USING NULL, ADD PRIMARY KEY (id)', type);
    PERFORM postbox.create_projection('reader.inbox', '{set}', 'reader.keyed', columns => '{}', delete_types => '{unset}');
    PERFORM reader.apply(type || one || 1, 'unset', one, 5);
    late := concat_ws(' ', reader.apply(type || one || 2, 'set', two, 4), postbox.wait_for_version('reader.keyed', two, 5, '0'), reader.apply(type || one || 3, 'set', other, 4),
        postbox.wait_for_version('reader.keyed', other, 5, '0'), reader.apply(type || one || 4, 'set', two, 6), (SELECT count(*) FROM reader.inbox_tombstone WHERE target = 'reader.keyed'::regclass));
    PERFORM postbox.drop_projection(name) FROM postbox.projection WHERE target = 'reader.keyed'::regclass;
    DROP TABLE reader.keyed;
    RETURN late;
END $$;
SELECT type, reader.equal_keys(type, one, two, other) FROM (VALUES ('text', 'a', 'a', 'A'), ('numeric', '1.0', '1.00', '1.01'), ('numeric', '1200', '1.2e3', '12'),
    ('double precision', '-0', '0', '1'), ('real', '1', '1.0', '1.5'), ('character(5)', 'a', 'a  ', 'b'), ('interval', '1 day', '24:00', '25:00'),
    ('text COLLATE reader.any_case', 'Key', 'kEY', 'keys'), ('timestamptz', '2024-01-01 00:00+00', '2024-01-01 01:00+01', '2024-01-01 00:00+01'),
    ('timetz', '10:00+00', '10:00+00', '11:00+01'), ('jsonb', '{"a": 1.0, "b": 2}', '{"b": 2, "a": 1.00}', '{}'), ('bytea', 'a', '\x61', 'b'), ('inet', '10.0.0.1', '10.0.0.1/32', '10.0.0.1/8'),
    ('uuid', '{550E8400-E29B-41D4-A716-446655440001}', '550e8400e29b41d4a716446655440001', '550e8400e29b41d4a716446655440002')) AS v (type, one, two, other);
-- of several columns
CREATE TABLE reader.pair (price numeric, name text COLLATE reader.any_case, version bigint, PRIMARY KEY (price, name));
SELECT postbox.create_projection('reader.inbox', '{pair}', 'reader.pair', delete_types => '{pair.deleted}');
SELECT reader.apply('p1', 'pair.deleted', 'x', 5, '{"price": 1.50, "name": "A"}');
SELECT reader.apply('p2', 'pair', 'x', 4, '{"price": 1.5, "name": "a"}');
SELECT reader.apply('p3', 'pair', 'x', 4, '{"price": 1.51, "name": "a"}');
SELECT postbox.wait_for_version('reader.pair', '[1.500, "a"]', 5, '0');

-- what changes the effect of SQL, also for a superuser
CREATE TABLE reader.parent (id text PRIMARY KEY);
CREATE TABLE reader.child (id text PRIMARY KEY, parent text REFERENCES reader.parent, words tsvector, same boolean, plain text, said text, version bigint);
CREATE FUNCTION reader.fill() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    nothing text;
BEGIN
    NEW.words := to_tsvector('the cats');
    EXECUTE 'SELECT ($1 = NULL) IS NULL' INTO NEW.same USING nothing;
    EXECUTE $sql$ SELECT 'a\nb' $sql$ INTO NEW.plain;
    NEW.said := concat_ws(' ', current_setting('session_replication_role'), current_setting('transform_null_equals'), current_setting('standard_conforming_strings'),
        current_setting('backslash_quote'), current_setting('gin_fuzzy_search_limit'), current_setting('lc_numeric'), current_setting('lc_time'), current_setting('row_security'),
        current_setting('plpgsql.variable_conflict'), current_setting('plpgsql.check_asserts'), current_setting('plpgsql.extra_errors'));
    -- for the next event of the batch
    SET LOCAL transform_null_equals = on;
    RETURN NEW;
END $$;
CREATE TRIGGER fill BEFORE INSERT ON reader.child FOR EACH ROW EXECUTE FUNCTION reader.fill();
SELECT postbox.create_projection('reader.inbox', '{child}', 'reader.child', columns => '{"parent": "parent"}');
INSERT INTO reader.parent VALUES ('p');
SET session_replication_role = replica;
SET transform_null_equals = on;
SET standard_conforming_strings = off;
SET escape_string_warning = off;
SET backslash_quote = on;
SET gin_fuzzy_search_limit = 1;
SET lc_numeric = 'POSIX';
SET lc_time = 'POSIX';
SET row_security = off;
SET plpgsql.variable_conflict = use_column;
SET plpgsql.check_asserts = off;
SET plpgsql.extra_errors = too_many_rows;
SET default_text_search_config = 'pg_catalog.simple';
SELECT postbox.inbox_apply('reader.inbox', 'c0', 'child', 'child', 'none', 1, '{"parent": "missing"}');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[('c1', 'child', 'child', 'c1', 1, '{"parent": "p"}', NULL, NULL), ('c2', 'child', 'child', 'c2', 1, '{"parent": "p"}', NULL, NULL)]::postbox.event[]);
SELECT current_setting('session_replication_role'), current_setting('transform_null_equals'), current_setting('standard_conforming_strings'),
    current_setting('default_text_search_config'), current_setting('plpgsql.variable_conflict');
RESET ALL;
SELECT id, same, plain, said FROM reader.child ORDER BY id;
SELECT DISTINCT words = to_tsvector('the cats') AS as_in_the_session FROM reader.child;
-- the same for wait_for_version, and for redriving
SELECT postbox.record_dead_letter('reader.inbox', ROW('c3', 'child', 'child', 'c3', 1, '{"parent": "missing"}', NULL, NULL)::postbox.event, '22023', 'given up');
SET session_replication_role = replica;
SELECT postbox.redrive_dead_letter(max(id)) FROM postbox.dead_letter;
SELECT sqlstate FROM postbox.dead_letter ORDER BY id DESC LIMIT 1;
RESET session_replication_role;

DROP SCHEMA reader CASCADE;

-- what stands in a DEFAULT, a CHECK, a domain or an index of one target changes nothing of what is written into another
CREATE SCHEMA hostile;
CREATE FUNCTION hostile.zone(text) RETURNS boolean IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('TimeZone', 'Asia/Kathmandu', false), set_config('DateStyle', 'German', false);
    RETURN true;
END $$;
CREATE DOMAIN hostile.zoned AS text CHECK (hostile.zone(VALUE));
CREATE FUNCTION hostile.after(made text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    written text;
BEGIN
    CREATE SCHEMA other;
    PERFORM postbox.create_inbox('other.inbox');
    CREATE TABLE other.value (id text PRIMARY KEY, at timestamptz, day date, version bigint);
    CREATE TABLE other.hostile (id text PRIMARY KEY, version bigint, name text);
    EXECUTE made;
    PERFORM postbox.create_projection('other.inbox', '{value}', 'other.value', columns => '{"at": "at", "day": "day"}'),
        postbox.create_projection('other.inbox', '{hostile}', 'other.hostile', columns => '{}');
    PERFORM postbox.inbox_apply_batch('other.inbox', ARRAY[('h1', 'hostile', 'h', 'a', 1, '{}', NULL, NULL),
        ('v1', 'value', 'v', 'a', 1, '{"at": "2024-01-01 00:00", "day": "01/02/2024"}', NULL, NULL)]::postbox.event[]);
    SELECT to_char(at AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI') || to_char(day, ', YYYY-MM-DD') INTO written FROM other.value;
    PERFORM postbox.drop_projection(name) FROM postbox.projection WHERE inbox = 'other.inbox'::regclass;
    PERFORM postbox.drop_inbox('other.inbox');
    DROP SCHEMA other CASCADE;
    RETURN written;
END $$;
SET client_min_messages = error;
SELECT made, hostile.after(made) FROM (VALUES ('SELECT'),
    ('ALTER TABLE other.hostile ADD wide boolean DEFAULT hostile.zone(NULL)'),
    ($$ALTER TABLE other.hostile ADD wide text DEFAULT set_config('TimeZone', 'Asia/Kathmandu', false)$$),
    ('ALTER TABLE other.hostile ADD CHECK (hostile.zone(id))'),
    ($$ALTER TABLE other.hostile ADD wide hostile.zoned DEFAULT 'x'$$),
    ($$ALTER TABLE other.hostile ADD wide text DEFAULT ('x'::hostile.zoned)::text$$),
    ('ALTER TABLE other.hostile ADD wide boolean GENERATED ALWAYS AS (hostile.zone(id)) STORED'),
    ('CREATE INDEX ON other.hostile (hostile.zone(id))'),
    ('CREATE INDEX ON other.hostile (id) WHERE hostile.zone(id)')) AS v (made);
RESET client_min_messages;
-- nor does it take rows of the inbox away
SELECT postbox.create_inbox('hostile.inbox');
CREATE FUNCTION hostile.forget() RETURNS text LANGUAGE plpgsql AS $$ BEGIN DELETE FROM hostile.inbox; RETURN ''; END $$;
CREATE TABLE hostile.target (id text PRIMARY KEY, version bigint, name text DEFAULT hostile.forget());
SELECT postbox.create_projection('hostile.inbox', '{set}', 'hostile.target', columns => '{}');
SELECT postbox.inbox_apply_batch('hostile.inbox', ARRAY[('f1', 'set', 'f', 'a', 1, '{}', NULL, NULL), ('f2', 'set', 'f', 'b', 1, '{}', NULL, NULL)]::postbox.event[]);
DROP SCHEMA hostile CASCADE;
