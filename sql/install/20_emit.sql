-- Emitting events. One function for three types of payload. An untyped literal resolves to text.

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, jsonb, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit. Needs INSERT on the outbox';

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload bytea,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_bytea';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, bytea, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event whose payload is bytes, for example Protobuf, in the current transaction';

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload text,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_text';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, text, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event whose payload is JSON, given as text, in the current transaction';
