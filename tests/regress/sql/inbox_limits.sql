-- What one event may become, and what cannot be stored as it is.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.value (id text PRIMARY KEY, a text, b text, list text[], numbers numeric[], document json, body jsonb, n numeric, whole text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{value}', 'reader.value');
SELECT postbox.create_projection('reader.inbox', '{attributes}', 'reader.value', columns => '{"whole": "$attributes"}');
CREATE FUNCTION reader.apply(event_id text, payload text, event_type text DEFAULT 'value', attributes jsonb DEFAULT '{}') RETURNS postbox.outcome LANGUAGE sql AS $$
    SELECT postbox.inbox_apply('reader.inbox', event_id, event_type, 'value', event_id, 1, convert_to(payload, 'UTF8'), attributes, on_error => 'reject')
$$;

-- a number of nine characters has 131,072 digits as text
SELECT reader.apply('one', '{"a": 1e131071, "n": 1e131071}');
SELECT length(a), n = 1e131071 AS same FROM reader.value WHERE id = 'one';
-- 63 kB of them would have 900 MB
CREATE TEMP TABLE bomb AS SELECT '[' || string_agg('1e131071', ',') || ']' AS list FROM generate_series(1, 7000);
SELECT length(list) FROM bomb;
SELECT reader.apply('text', format('{"a": %s}', list)) FROM bomb;
SELECT reader.apply('json', format('{"document": %s}', list)) FROM bomb;
SELECT reader.apply('array', format('{"list": %s}', list)) FROM bomb;
SELECT reader.apply('numbers', format('{"numbers": %s}', list)) FROM bomb;
SELECT reader.apply('deep', format('{"a": {"b": [[{"c": %s}]]}}', list)) FROM bomb;
SELECT reader.apply('attributes', '{}', 'attributes', list::jsonb) FROM bomb;
-- several columns, each of them within the limit
SELECT reader.apply('sum', format('{"list": %1$s, "numbers": %1$s}', '[' || repeat('1e131071,', 299) || '1]'));
SELECT reader.apply('half', format('{"list": %1$s}', '[' || repeat('1e131071,', 299) || '1]'));
-- jsonb keeps numbers short; json and text keep what is written
SELECT reader.apply('jsonb', format('{"body": %s}', list)) FROM bomb;
SELECT jsonb_array_length(body) FROM reader.value WHERE id = 'jsonb';
SELECT id, length(a), length(document::text) FROM reader.value WHERE id IN ('text', 'json', 'deep') ORDER BY id;
-- what is long in the message is long in the table
SELECT reader.apply('long', format('{"a": "%s", "b": "%1$s", "document": {"x": "%1$s"}}', repeat('x', 3000000)));
SELECT length(a), length(b) FROM reader.value WHERE id = 'long';
-- deep nesting, repeated keys
SELECT reader.apply('nested', repeat('{"a":', 100000) || '1' || repeat('}', 100000));
SELECT reader.apply('keys', format('{"a": "x"%s}', repeat(', "a": "y"', 100000)));
SELECT a FROM reader.value WHERE id = 'keys';
SELECT event_id, sqlstate, left(error, 150) AS error FROM postbox.dead_letter ORDER BY id;
-- an error repeats the value, and is cut
SELECT reader.apply('wrong', format('{"n": "%s"}', repeat('x', 1000000)));
SELECT length(error) FROM postbox.dead_letter WHERE event_id = 'wrong';
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE event_id = 'wrong';
SELECT length(error) FROM postbox.dead_letter WHERE event_id = 'wrong';
DELETE FROM postbox.dead_letter;

-- a message as it was received
SELECT postbox.record_dead_letter('reader.inbox', 'evt_1', 'Caf\303\251', 'video', 'v1', 7, '\xff00', '{"k": "v"}', '2025-10-24 10:30:00+00', '22P02', 'bad');
SELECT postbox.record_dead_letter('reader.inbox', 'evt_2', '\xff41', 'with\000nul', '\x436166c3a9', NULL, NULL, '{"k": "\\u0000"}', NULL, '22P02', '\xfe62', 3);
SELECT postbox.record_dead_letter('reader.inbox', '\x00', NULL, NULL, NULL, NULL, '', 'no json', NULL, '22P02', '');
SELECT postbox.record_dead_letter('reader.inbox', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '22P02', '');
SELECT postbox.record_dead_letter('reader.inbox', 'deep json', NULL, NULL, NULL, NULL, NULL, convert_to(repeat('[', 100000), 'UTF8'), NULL, '22P02', '');
\x
SELECT event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, occurred_at = '2025-10-24 10:30:00+00' AS at, sqlstate, error, attempts, left(raw::text, 150) AS raw FROM postbox.dead_letter ORDER BY id;
\x
SELECT decode(raw ->> 'event_type', 'hex') FROM postbox.dead_letter WHERE event_id = 'evt_2';
-- once; and it is not applied as what it is not
SELECT postbox.record_dead_letter('reader.inbox', 'evt_2', '\xff41', NULL, NULL, NULL, NULL, NULL, NULL, '22P02', '');
SELECT postbox.record_dead_letter('reader.inbox', '\x00', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '22P02', '');
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE event_id = 'evt_1';
SELECT postbox.redrive_dead_letter((SELECT id FROM postbox.dead_letter WHERE event_id = 'evt_2'));
SELECT postbox.record_dead_letter('reader.inbox', 'e', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '22P02', NULL);
SELECT postbox.record_dead_letter('reader.inbox', 'e', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '22P02', '', 0);
DROP SCHEMA reader CASCADE;
