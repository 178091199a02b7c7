-- A payload that is text or json is sent as it was written: it is checked to be JSON, and nothing else.
CREATE SCHEMA shop;
SELECT postbox.create_outbox('shop.log');
CREATE FUNCTION pg_temp.sent(payload bytea) RETURNS text LANGUAGE sql AS $$ SELECT convert_from(payload, 'UTF8') $$;
-- Says what came of one call.
CREATE FUNCTION pg_temp.try(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text;
BEGIN
    EXECUTE 'SELECT version FROM ' || call;
    RETURN NEXT 'taken';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ' ' || message;
    IF detail <> '' THEN RETURN NEXT 'DETAIL: ' || detail; END IF;
    IF hint <> '' THEN RETURN NEXT 'HINT: ' || hint; END IF;
END $$;

-- white space, the order of keys, keys that come twice, numbers and escapes
SELECT version FROM postbox.outbox_emit('order', 'o1', 'order.placed', '{"b":1,  "a":1e2,"a":3}');
SELECT version FROM postbox.outbox_emit('order', 'o1', 'order.placed', E' [1.0,\n\t"\\u00e9\\/", {"z" : null , "y":{}} ]\n'::text);
SELECT version FROM postbox.outbox_emit('order', 'o1', 'order.placed', '{"b":1,  "a":1e2,"a":3}'::json);
SELECT version FROM postbox.outbox_emit('order', 'o1', 'order.placed', '1e400000'::text);
-- what jsonb does is what jsonb does
SELECT version FROM postbox.outbox_emit('order', 'o1', 'order.placed', '{"b":1,  "a":1e2,"a":3}'::jsonb);
-- escapes of what PostgreSQL cannot hold are JSON
SELECT version FROM postbox.outbox_emit('order', 'o1', 'order.placed', '{"note": "\u0000", "half": "\ud83d", "other": "\udc00\ud83d"}');
SELECT version FROM postbox.outbox_emit('order', 'o1', 'order.placed', '{"note": "\u0000"}'::json);
SELECT version, pg_temp.sent(payload) FROM shop.log ORDER BY seq;
-- a signature over the text holds
WITH given AS (SELECT '{"amount": 10.50,  "amount": 10.5}'::text AS body),
     emitted AS MATERIALIZED (SELECT r.event_id FROM given, postbox.outbox_emit('order', 'o2', 'order.signed', body, attributes => jsonb_build_object('digest', md5(body))) AS r)
SELECT count(*) FROM emitted;
SELECT attributes ->> 'digest' = md5(payload) AS holds FROM shop.log WHERE event_type = 'order.signed';
-- large ones, compressed or not
SELECT count(r.version) FROM generate_series(1, 2) i, postbox.outbox_emit('order', 'o3', 'order.large', '["' || repeat(chr(96 + i), 300000) || '"]') AS r;
CREATE TABLE shop.document (body text, body_json json);
INSERT INTO shop.document SELECT '["' || repeat('x', 300000) || '"]', ('["' || repeat('y', 300000) || '"]')::json;
SELECT count(r.version) FROM shop.document, postbox.outbox_emit('order', 'o3', 'order.large', body) AS r;
SELECT count(r.version) FROM shop.document, postbox.outbox_emit('order', 'o3', 'order.large', body_json) AS r;
SELECT length(payload), md5(payload) FROM shop.log WHERE event_type = 'order.large' ORDER BY seq;

-- no JSON
SELECT pg_temp.try($$ postbox.outbox_emit('order', 'o1', 'order.placed', '') $$);
SELECT pg_temp.try($$ postbox.outbox_emit('order', 'o1', 'order.placed', '{"a":1} {}') $$);
SELECT pg_temp.try($$ postbox.outbox_emit('order', 'o1', 'order.placed', '{"a": "\u00"}') $$);
SELECT pg_temp.try($$ postbox.outbox_emit('order', 'o1', 'order.placed', '\x0a0b') $$);

-- change triggers: a column of type json may hold such escapes
CREATE TABLE shop.item (id int PRIMARY KEY, body json);
SELECT postbox.create_change_triggers('shop.item');
INSERT INTO shop.item VALUES (1, '{"b":1,  "a":1e2, "note": "\u0000", "half": "\ud83d"}');
UPDATE shop.item SET body = '"\u0000"';
UPDATE shop.item SET body = '"\u0000"';
DELETE FROM shop.item;
SELECT event_type, pg_temp.sent(payload) FROM shop.log WHERE aggregate_type = 'item' ORDER BY seq;
DROP TABLE shop.item;
SELECT postbox.drop_outbox('shop.log');

-- adopted tables: a column of text or json keeps what was written, a column of jsonb keeps what jsonb makes of it
SELECT format('CREATE TABLE shop.as_%1$s (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload %2$s NOT NULL)', name, type),
       format('SELECT postbox.adopt_outbox(%L)', 'shop.as_' || name)
FROM (VALUES ('text', 'text'), ('varchar', 'varchar'), ('json', 'json'), ('jsonb', 'jsonb'), ('bytea', 'bytea')) AS t(name, type) \gexec
SELECT pg_temp.try(format('postbox.outbox_emit(''order'', ''o1'', ''order.placed'', %L, outbox => %L)', body, 'shop.as_' || type)) AS outcome
FROM unnest(ARRAY['text', 'varchar', 'json', 'jsonb', 'bytea']) type, unnest(ARRAY['{"b":1,  "a":1e2,"a":3}', '{"note": "\u0000"}', '{"half": "\ud83d"}', '{"e": "\u00e9"}']) body;
SELECT payload FROM shop.as_text ORDER BY seq;
SELECT payload FROM shop.as_varchar ORDER BY seq;
SELECT payload FROM shop.as_json ORDER BY seq;
SELECT payload FROM shop.as_jsonb ORDER BY seq;
SELECT pg_temp.sent(payload) FROM shop.as_bytea ORDER BY seq;
SELECT pg_temp.try($$ postbox.outbox_emit('order', 'o1', 'order.placed', '{"no": \u0000}'::bytea, outbox => 'shop.as_jsonb') $$);
-- as the hint says
ALTER TABLE shop.as_jsonb ALTER COLUMN payload TYPE json;
SELECT pg_temp.try($$ postbox.outbox_emit('order', 'o1', 'order.placed', '{"note": "\u0000"}', outbox => 'shop.as_jsonb') $$);
SELECT payload FROM shop.as_jsonb ORDER BY seq;
DROP SCHEMA shop CASCADE;
