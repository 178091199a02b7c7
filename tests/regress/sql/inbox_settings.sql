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
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[('e2', 'value', 'v', '2024-02-02 10:00', 1, '{"day": "02/03/2024"}', NULL, NULL), ('e3', 'value', 'v', '2024-02-03 10:00', 1, '{"day": "02/03/2024"}', NULL, NULL)]::postbox.event[]);
RESET ALL;
SET TimeZone = 'UTC';
SET DateStyle = 'ISO';
SELECT id, day, at, length, document, version FROM reader.value ORDER BY id;
SET TimeZone = 'America/New_York';
SELECT reader.apply('e4', 'value.deleted', '2024-02-01 10:00', 5);
SELECT key, version FROM reader.inbox_tombstone;
-- the tombstone is found from another time zone
SET TimeZone = 'Asia/Tokyo';
SELECT postbox.drop_handler(id) FROM postbox.handler;
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
    PERFORM postbox.drop_projection(id) FROM postbox.projection WHERE target = 'reader.keyed'::regclass;
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

DROP SCHEMA reader CASCADE;
