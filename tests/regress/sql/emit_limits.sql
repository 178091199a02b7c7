-- What Pub/Sub would refuse is refused by outbox_emit, with the limit in the message, and what is just inside is taken.
CREATE SCHEMA catalog;
SELECT postbox.create_outbox('catalog.outbox', 'table');

-- Says what came of one call: the version, or the SQLSTATE with everything the user sees.
CREATE FUNCTION pg_temp.try(call text) RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE
    message text; detail text; hint text; version bigint;
BEGIN
    EXECUTE 'SELECT version FROM ' || call INTO version;
    RETURN NEXT 'taken';
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RETURN NEXT SQLSTATE || ' ' || message;
    IF detail <> '' THEN RETURN NEXT 'DETAIL: ' || detail; END IF;
    IF hint <> '' THEN RETURN NEXT 'HINT: ' || hint; END IF;
END $$;
CREATE FUNCTION pg_temp.emit(aggregate_type text DEFAULT 'video', aggregate_id text DEFAULT 'v1', event_type text DEFAULT 'video.created',
    attributes jsonb DEFAULT '{}', schema_version text DEFAULT 'v1', payload_bytes int DEFAULT 0, occurred_at timestamptz DEFAULT now())
    RETURNS postbox.receipt LANGUAGE sql AS $$
    SELECT postbox.outbox_emit(aggregate_type, aggregate_id, event_type, decode(repeat('00', payload_bytes), 'hex'),
        attributes => attributes, schema_version => schema_version, occurred_at => occurred_at) $$;
CREATE FUNCTION pg_temp.attributes(n int, key_bytes int DEFAULT 10, value_bytes int DEFAULT 1) RETURNS jsonb LANGUAGE sql AS $$
    SELECT jsonb_object_agg(rpad('k' || i, key_bytes, 'x'), repeat('y', value_bytes)) FROM generate_series(1, n) i $$;

-- nothing missing
SELECT pg_temp.try($$postbox.outbox_emit(NULL, 'v1', 'video.created', '{}')$$);
SELECT pg_temp.try($$postbox.outbox_emit('video', NULL, 'video.created', '{}')$$);
SELECT pg_temp.try($$postbox.outbox_emit('video', 'v1', NULL, '{}')$$);
SELECT pg_temp.try($$postbox.outbox_emit('video', 'v1', 'video.created', NULL::jsonb)$$);
SELECT pg_temp.try($$postbox.outbox_emit('video', 'v1', 'video.created', NULL::bytea)$$);
SELECT pg_temp.try($$postbox.outbox_emit('video', 'v1', 'video.created', NULL)$$);
SELECT pg_temp.try($$postbox.outbox_emit('', 'v1', 'video.created', '{}')$$);
SELECT pg_temp.try($$postbox.outbox_emit('video', '', 'video.created', '{}')$$);
SELECT pg_temp.try($$postbox.outbox_emit('video', 'v1', '', '{}')$$);
SELECT pg_temp.try($$postbox.outbox_emit('video', 'v1', 'video.created', '{no json')$$);

-- the ordering key is the aggregate id: 1024 bytes, not characters
SELECT pg_temp.try($$pg_temp.emit(aggregate_id => repeat('x', 1024))$$);
SELECT pg_temp.try($$pg_temp.emit(aggregate_id => repeat('x', 1025))$$);
SELECT pg_temp.try($$pg_temp.emit(aggregate_id => repeat('é', 512))$$);
SELECT pg_temp.try($$pg_temp.emit(aggregate_id => repeat('é', 513))$$);

-- standard attributes have the limit of all attributes
SELECT pg_temp.try($$pg_temp.emit(aggregate_type => repeat('x', 1024))$$);
SELECT pg_temp.try($$pg_temp.emit(aggregate_type => repeat('x', 1025))$$);
SELECT pg_temp.try($$pg_temp.emit(event_type => repeat('x', 1025))$$);
SELECT pg_temp.try($$pg_temp.emit(schema_version => repeat('x', 1025))$$);

-- attributes: 100 with the seven standard ones, names of 256 bytes, values of 1024
SELECT pg_temp.try($$pg_temp.emit(attributes => pg_temp.attributes(93))$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => pg_temp.attributes(94))$$);
SET postbox.user_id = 'u1';
SELECT pg_temp.try($$pg_temp.emit(attributes => pg_temp.attributes(93))$$);
RESET postbox.user_id;
SELECT pg_temp.try($$pg_temp.emit(attributes => pg_temp.attributes(1, 256))$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => pg_temp.attributes(1, 257))$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => pg_temp.attributes(1, 10, 1024))$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => pg_temp.attributes(1, 10, 1025))$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"googclient_traceparent": "x"}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"googclient_schemaname": "x"}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"Google": "x"}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"": "x"}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"version": 7}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"event_id": "x"}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"a": null}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"a": "b", "c": {"d": 1}}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '{"a": [1]}')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '[]')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '["a"]')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => '"text"')$$);
SELECT pg_temp.try($$pg_temp.emit(attributes => 'null')$$);

-- the whole request: 10,000,000 bytes. First what goes into a message beside the payload, then one byte too many
SELECT pg_temp.try($$pg_temp.emit(payload_bytes => 9999000)$$);
SELECT regexp_replace(t, '\d+ bytes long \(payload \d+ bytes', 'N bytes long (payload N bytes') FROM pg_temp.try($$pg_temp.emit(payload_bytes => 10000000)$$) t;
DO $$
DECLARE
    inside int := 9999376;
    outside int := 9999380;
    middle int;
BEGIN
    -- The border is sharp: what is one byte larger than the largest that is taken is refused.
    WHILE outside - inside > 1 LOOP
        middle := (inside + outside) / 2;
        BEGIN
            PERFORM pg_temp.emit(aggregate_id => 'border', payload_bytes => middle, occurred_at => '2025-10-24 10:30:00+00');
            RAISE EXCEPTION 'fits' USING ERRCODE = 'PB000';
        EXCEPTION
            WHEN program_limit_exceeded THEN outside := middle;
            WHEN SQLSTATE 'PB000' THEN inside := middle;
        END;
    END LOOP;
    RAISE WARNING 'the largest payload of this event has % bytes', inside;
END $$;

-- times that RFC 3339 cannot write
SELECT pg_temp.try($$pg_temp.emit(occurred_at => 'infinity')$$);
SELECT pg_temp.try($$pg_temp.emit(occurred_at => '-infinity')$$);
SELECT pg_temp.try($$pg_temp.emit(occurred_at => '0001-01-01 00:00:00+00 BC')$$);
SELECT pg_temp.try($$pg_temp.emit(occurred_at => '10000-01-01 00:00:00+00')$$);
SELECT pg_temp.try($$pg_temp.emit(occurred_at => '9999-12-31 23:59:59.999999+00')$$);
SELECT pg_temp.try($$pg_temp.emit(occurred_at => '0001-01-01 00:00:00+00')$$);

-- text that is not valid in the database does not come so far
SELECT pg_temp.try($$pg_temp.emit(aggregate_id => convert_from('\xff'::bytea, 'UTF8'))$$);

SELECT count(*) FROM catalog.outbox;
DROP SCHEMA catalog CASCADE;
