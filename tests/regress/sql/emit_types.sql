-- outbox_emit with arguments of the types that people have: they work, or the message has the cast to write.
CREATE SCHEMA shop;
SELECT postbox.create_outbox('shop.log');
CREATE TYPE shop.region AS ENUM ('north', 'south');
CREATE DOMAIN shop.order_number AS bigint CHECK (VALUE > 0);
CREATE DOMAIN shop.code AS text;
CREATE TABLE shop.customer (id bigint PRIMARY KEY, name text);
INSERT INTO shop.customer VALUES (7, 'Ada'), (8, 'Bob'), (9, 'Eve');
-- Says what came of one call: what was stored, or the error.
CREATE FUNCTION pg_temp.try(arguments text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text; emitted uuid;
BEGIN
    EXECUTE 'SELECT event_id FROM postbox.outbox_emit(' || arguments || ')' INTO emitted;
    RETURN QUERY SELECT concat_ws(' ', aggregate_id, event_type, version, schema_version, encode(payload, 'escape'), attributes) FROM shop.log e WHERE e.id = emitted;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ' ' || message;
    IF detail <> '' THEN RETURN NEXT 'DETAIL: ' || detail; END IF;
    IF hint <> '' THEN RETURN NEXT 'HINT: ' || hint; END IF;
END $$;

-- keys: numbers, uuids, enums, all kinds of strings, domains over them
SELECT id, outcome FROM unnest(ARRAY['5', '5::smallint', '5000000000', '5::numeric', '5.00', '-3::bigint', '12345678901234567890123',
    $$'550E8400-e29b-41d4-a716-446655440000'::uuid$$, $$'south'::shop.region$$, '6::shop.order_number', $$'c'::shop.code$$, $$'v1'::text$$, $$'v1'::varchar$$,
    $$'v1'::char(5)$$, $$'v1'::name$$, $$'v'::"char"$$, $$'v1'$$]) id, LATERAL pg_temp.try(format($$'order', %s, 'order.placed', '{"b":1, "a":2}'$$, id)) outcome;
-- what has no text of its own is refused
SELECT id, outcome FROM unnest(ARRAY['5.5', $$'NaN'::numeric$$, '1e0::float8', '1::real', 'true', 'date ''2024-01-02''', 'now()', $$'\x01'::bytea$$, $$'{"id": 5}'::json$$, $$'"a"'::jsonb$$,
    'ARRAY[1]', 'ROW(1)', '0::oid', $$interval '1 day'$$, '2::money', 'NULL', 'NULL::bigint']) id, LATERAL pg_temp.try(format($$'order', %s, 'order.placed', '{"b":1, "a":2}'$$, id)) outcome;

-- payloads, with a key that is text, a number or without a type
SELECT id, outcome FROM unnest(ARRAY[$$'v1'$$, $$'v1'::text$$, '5', $$'550e8400-e29b-41d4-a716-446655440000'::uuid$$]) id,
    unnest(ARRAY[$$json_build_object('b', 1, 'a', 2)$$, $$jsonb_build_object('b', 1, 'a', 2)$$, $$row_to_json(ROW(1))$$, $$'{"b":1,  "a":2}'::varchar$$, $$'\x7b7d'::bytea$$]) payload,
    LATERAL pg_temp.try(format($$'order', %s, 'order.placed', %s$$, id, payload)) outcome;
SELECT payload, outcome FROM unnest(ARRAY['ROW(1, 2)', '5', 'true', 'ARRAY[1]', 'now()', $$xml '<a/>'$$, '(SELECT c FROM shop.customer c WHERE id = 7)', 'NULL::json', 'NULL::int', $$'{'::varchar$$]) payload,
    LATERAL pg_temp.try(format($$'order', 5, 'order.placed', %s$$, payload)) outcome;

-- schema versions that are numbers, and attributes
SELECT more, outcome FROM unnest(ARRAY[$$'v1', 'order.placed', '{}', schema_version => 2$$, $$'v1'::text, 'order.placed'::text, '{}'::jsonb, schema_version => 2$$, $$5, 'order.placed', '{}', schema_version => 2$$,
    $$5, 'order.placed', '{}', schema_version => 'v2'$$, $$5, 'order.placed', '{}', schema_version => NULL$$, $$5, 'order.placed', '{}', 1, 'v2', '{"tenant": "t1"}'$$, $$'v1', 'order.placed', '{}'::json, schema_version => 2, attributes => '{"n": 1}'$$,
    $$5, 'order.placed', '{}', attributes => jsonb_build_object('n', 1)$$, $$'v1', 'order.placed', '{}', attributes => jsonb_build_object('n', 1)$$, $$'v1', 'order.placed', '{}'::jsonb, attributes => '{"n": 1}'$$,
    $$'v1', 'order.placed', '{}'::json, attributes => json_build_object('n', 1)$$, $$'v1', 'order.placed', '{}'::json, attributes => jsonb_build_object('n', 1)$$, $$'v1', 'order.placed', '{}'::json, attributes => '{"n": 1}'$$,
    $$'v1', 'order.placed', '{}'::bytea, attributes => '{"n": 1}'$$, $$5, 'order.placed', '{}', schema_version => 2.5$$, $$5, 'order.placed', '{}', schema_version => now()$$,
    $$5, 'order.placed', '{}', version => 3, event_id => '550e8400-e29b-41d4-a716-446655440001', occurred_at => '2024-01-02', outbox => 'shop.log'$$,
    $$'v1', 'order.placed', '{}', version => 3, event_id => '550e8400-e29b-41d4-a716-446655440002', occurred_at => '2024-01-02', outbox => 'shop.log'$$,
    $$5, 'order.placed', '{}', source_event_id => 'evt_1'$$]) more,
    LATERAL pg_temp.try(format($$'order', %s$$, more)) outcome;
-- named arguments
SELECT pg_temp.try($$aggregate_type => 'order', aggregate_id => 5, event_type => 'order.placed', payload => json_build_object('a', 1)$$);
SELECT pg_temp.try($$payload => '{}', event_type => 'order.placed', aggregate_id => 5, aggregate_type => 'order'$$);

-- many rows: each is what it was, and constants stay what they are
SELECT count((postbox.outbox_emit('customer', c.id, 'customer.copied', row_to_json(c), schema_version => 12345678901::bigint)).version) FROM shop.customer c, generate_series(1, 400);
SELECT count((postbox.outbox_emit('customer', 5::numeric, 'customer.constant', json '{"b":1,  "a":2}', schema_version => 7::numeric)).version) FROM generate_series(1, 1200);
SELECT count(r.version) FROM generate_series(1, 400) i, postbox.outbox_emit('customer', 5, 'customer.lateral', '{"b":1,  "a":2}', schema_version => i) AS r;
SELECT event_type, aggregate_id, min(schema_version), max(schema_version), encode(payload, 'escape') AS payload, count(*) FROM shop.log WHERE aggregate_type = 'customer' GROUP BY 1, 2, 5 ORDER BY 1, 2;

-- parameters without a type are text, whatever they stand for
PREPARE emit AS SELECT aggregate_id, version FROM postbox.outbox_emit($1, $2, $3, $4);
PREPARE emit_more AS SELECT aggregate_id, version FROM postbox.outbox_emit('order', $1, 'order.prepared', $2, version => $3, schema_version => $4, attributes => $5, event_id => $6, occurred_at => $7, source_event_id => $8, outbox => $9);
PREPARE emit_jsonb AS SELECT aggregate_id, version FROM postbox.outbox_emit('order', $1, 'order.prepared', $2::jsonb, version => $3, attributes => $4);
PREPARE emit_bytea AS SELECT aggregate_id, version FROM postbox.outbox_emit('order', $1, 'order.prepared', $2::bytea, version => $3, attributes => $4);
PREPARE emit_json AS SELECT aggregate_id, version FROM postbox.outbox_emit('order', $1, 'order.prepared', $2::json, version => $3, attributes => $4);
PREPARE emit_number AS SELECT aggregate_id, version FROM postbox.outbox_emit('order', $1::bigint, 'order.prepared', $2, version => $3, attributes => $4);
PREPARE emit_schema AS SELECT aggregate_id, version FROM postbox.outbox_emit('order', $1, 'order.prepared', $2, schema_version => 2);
PREPARE emit_jsonb_schema AS SELECT aggregate_id, version FROM postbox.outbox_emit('order', $1, 'order.prepared', $2::jsonb, schema_version => 2);
PREPARE emit_strings (varchar, varchar, varchar, varchar) AS SELECT aggregate_id, version FROM postbox.outbox_emit($1, $2, $3, $4);
PREPARE emit_strings_json (varchar, varchar, varchar, json) AS SELECT aggregate_id, version FROM postbox.outbox_emit($1, $2, $3, $4);
PREPARE emit_strings_number (varchar, bigint, varchar, varchar) AS SELECT aggregate_id, version FROM postbox.outbox_emit($1, $2, $3, $4);
PREPARE emit_strings_more (varchar, varchar, varchar, varchar) AS SELECT aggregate_id, version FROM postbox.outbox_emit($1, $2, $3, $4, version => $5, schema_version => $6, attributes => $7);
PREPARE emit_any AS SELECT aggregate_id, version FROM postbox.outbox_emit($1, $2::bigint, $3, $4);
SELECT name, parameter_types FROM pg_prepared_statements WHERE name LIKE 'emit%' ORDER BY name;
EXECUTE emit ('order', 'p1', 'order.prepared', '{"b":1,  "a":2}');
EXECUTE emit_number (9, '{"b":1,  "a":2}', NULL, '{}');
EXECUTE emit_schema ('p1', '{"b":1,  "a":2}');
EXECUTE emit_strings ('order', 'p1', 'order.prepared', '{"b":1,  "a":2}');
EXECUTE emit_strings_json ('order', 'p1', 'order.prepared', '{"b":1,  "a":2}');
EXECUTE emit_any ('order', 9, 'order.prepared', '{"b":1,  "a":2}');
EXECUTE emit_strings_number ('order', 9, 'order.prepared', '{"b":1,  "a":2}');
SELECT aggregate_id, schema_version, encode(payload, 'escape') FROM shop.log WHERE event_type = 'order.prepared' ORDER BY seq;
DEALLOCATE ALL;

-- in PL/pgSQL, where variables have types
DO $$
DECLARE
    customer shop.customer; number bigint := 5; region shop.region := 'north'; body json := '{"b":1,  "a":2}';
BEGIN
    FOR customer IN SELECT * FROM shop.customer ORDER BY id LOOP
        PERFORM postbox.outbox_emit('plpgsql', customer.id, 'customer.seen', row_to_json(customer));
        PERFORM postbox.outbox_emit('plpgsql', region, 'region.seen', body);
    END LOOP;
END $$;
SELECT aggregate_id, version, encode(payload, 'escape') FROM shop.log WHERE aggregate_type = 'plpgsql' ORDER BY seq;

-- one call is one event: in FROM. In (...).* it is called for each column of the receipt, and not at all in WITH where nothing reads it.
SELECT r.* IS NOT NULL AS emitted FROM postbox.outbox_emit('once', 'from', 'called', '{}') AS r;
WITH emitted AS MATERIALIZED (SELECT r.* FROM postbox.outbox_emit('once', 'with', 'called', '{}') AS r) SELECT count(*) FROM emitted;
SELECT count(r) FROM shop.customer c, postbox.outbox_emit('once', c.id, 'called', '{}') AS r;
SELECT r.event_id IS NOT NULL AS star FROM (SELECT (postbox.outbox_emit('once', 'star', 'called', '{}')).*) AS r;
WITH unread AS (SELECT postbox.outbox_emit('once', 'unread', 'called', '{}')) SELECT 1 AS one;
SELECT aggregate_id, count(*) FROM shop.log WHERE aggregate_type = 'once' GROUP BY 1 ORDER BY 1;
SELECT obj_description(p.oid) SIMILAR TO '(%SELECT r.\* FROM postbox.outbox\_emit\(...\) AS r%|Another form of outbox\_emit: %)' AS said, count(*) FROM pg_proc p
WHERE proname = 'outbox_emit' AND pronamespace = 'postbox'::regnamespace GROUP BY 1 ORDER BY 1;
DROP SCHEMA shop CASCADE;
