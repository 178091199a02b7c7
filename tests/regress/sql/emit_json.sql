-- outbox_emit_json: one signature, for clients that are generated. The keys of the event are the names of the arguments.
CREATE SCHEMA shop;
SELECT postbox.create_outbox('shop.log');
-- Says what came of one call: what was stored, or the error.
CREATE FUNCTION pg_temp.try(event text, outbox regclass DEFAULT NULL) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text; emitted uuid;
BEGIN
    SELECT event_id INTO emitted FROM postbox.outbox_emit_json(event::json, outbox);
    RETURN QUERY SELECT concat_ws(' ', aggregate_type, aggregate_id, event_type, version, schema_version, convert_from(payload, 'UTF8'), attributes) FROM shop.log e WHERE e.id = emitted;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ' ' || message;
    IF detail <> '' THEN RETURN NEXT 'DETAIL: ' || detail; END IF;
    IF hint <> '' THEN RETURN NEXT 'HINT: ' || hint; END IF;
END $$;

-- the payload is what was written
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "o1", "event_type": "order.placed", "payload": {"b":1,  "a":1e2,"a":"}\",{"} }');
SELECT pg_temp.try(E' {\n"payload" :\t[1.0, "\\u0000", {"x": [] , "y": "\\\\"}] , "event_type":"order.placed","aggregate_id":42,"aggregate_type":"order" } ');
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "caf\u00e9 \"x\"", "event_type": "order.placed", "payload": "text"}');
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": -5, "event_type": "order.placed", "payload": 1e2}');
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "o1", "event_type": "order.placed", "payload": {}, "version": null, "schema_version": 2, "attributes": {"tenant": "t1", "n": 1}, "event_id": null, "occurred_at": null, "source_event_id": null}');
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "o2", "event_type": "order.placed", "payload": {}, "version": 7, "schema_version": "v3", "event_id": "550e8400-e29b-41d4-a716-446655440000", "occurred_at": "2024-05-01T12:00:00Z"}', 'shop.log');
SELECT occurred_at AT TIME ZONE 'UTC' AS occurred_at FROM shop.log WHERE id = '550e8400-e29b-41d4-a716-446655440000';
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "o3", "event_type": "order.placed", "payload": {}, "version": "8", "source_event_id": "evt_1"}');
SELECT aggregate_id, version FROM postbox.outbox_emit_json(event => '{"aggregate_type": "order", "aggregate_id": "o4", "event_type": "order.placed", "payload": {}}', outbox => 'shop.log');
SELECT aggregate_id, version FROM postbox.outbox_emit_json(json_build_object('aggregate_type', 'order', 'aggregate_id', 5, 'event_type', 'order.placed', 'payload', json_build_object('b', 1)));
PREPARE emit AS SELECT aggregate_id, version FROM postbox.outbox_emit_json($1, $2);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'emit';
DEALLOCATE emit;

-- what is refused
SELECT pg_temp.try(NULL);
SELECT pg_temp.try('{}');
SELECT pg_temp.try('[]');
SELECT pg_temp.try('"{}"');
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "o1", "event_type": "order.placed"}');
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "o1", "event_type": "order.placed", "payload": null}');
SELECT pg_temp.try('{"aggregate_type": "order", "event_type": "order.placed", "payload": {}}');
SELECT pg_temp.try('{"aggregateType": "order", "aggregate_id": "o1", "event_type": "order.placed", "payload": {}}');
SELECT pg_temp.try('{"": 1}');
SELECT pg_temp.try('{"outbox": "shop.log", "payload": {}}');
SELECT pg_temp.try('{"payload": {}, "payload": {}}');
SELECT pg_temp.try('{"aggregate_id": 1.5}');
SELECT pg_temp.try('{"aggregate_id": {"id": 5}}');
SELECT pg_temp.try('{"aggregate_id": true}');
SELECT pg_temp.try('{"aggregate_id": "\u0000"}');
SELECT pg_temp.try('{"version": "one"}');
SELECT pg_temp.try('{"event_id": "evt_1"}');
SELECT pg_temp.try('{"occurred_at": "yesterday evening"}');
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "o1", "event_type": "order.placed", "payload": {}, "attributes": "none"}');
SELECT pg_temp.try('{"aggregate_type": "order", "aggregate_id": "o1", "event_type": "order.placed", "payload": {}, "version": 0}');
SELECT obj_description('postbox.outbox_emit_json(json, regclass)'::regprocedure) LIKE '%SELECT r.* FROM postbox.outbox_emit_json(...) AS r%' AS said;
DROP SCHEMA shop CASCADE;
