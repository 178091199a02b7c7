-- Emitting events. One function for three types of payload. An untyped literal resolves to text.

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, jsonb, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit, and returns its receipt. Call it in FROM: '
    'SELECT r.* FROM postbox.outbox_emit(...) AS r. In SELECT (postbox.outbox_emit(...)).* it is called for each column: three '
    'events. In a WITH query that nothing reads it is not called. The payload is jsonb: the text that jsonb makes of it is sent. '
    'Versions begin at 1; NULL counts them. Needs INSERT on the outbox';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload bytea,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_bytea';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, bytea, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit, and returns its receipt. Call it in FROM: '
    'SELECT r.* FROM postbox.outbox_emit(...) AS r. In SELECT (postbox.outbox_emit(...)).* it is called for each column: three '
    'events. In a WITH query that nothing reads it is not called. The payload is bytes, for example Protobuf, and is sent as it is. '
    'Versions begin at 1; NULL counts them. Needs INSERT on the outbox';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload text,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_text';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, text, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit, and returns its receipt. Call it in FROM: '
    'SELECT r.* FROM postbox.outbox_emit(...) AS r. In SELECT (postbox.outbox_emit(...)).* it is called for each column: three '
    'events. In a WITH query that nothing reads it is not called. The payload is text that is JSON (22P02 if not), and is sent as it was written, in UTF-8. '
    'Versions begin at 1; NULL counts them. Needs INSERT on the outbox';

-- The same for arguments of other types: numbers, uuids and enums as keys, numbers as schema versions, json. How PostgreSQL
-- chooses:
--   - A form of which an argument cannot be converted without a cast is out. So a call with an integer as key has two forms left.
--   - What has no type (a literal, a parameter of a driver) goes where a form has text. With "any", a parameter would be
--     refused. So each of aggregate_id and payload is text in one form and "any" in another, in all four combinations.
--   - Two forms that are left, and equal in the arguments of the call, are ambiguous. So those that have the types of an earlier one
--     in the first four arguments have another type for event_type: a domain over text. Text of any type prefers text to it.
--   - attributes cannot be "any": a literal for them would be ambiguous between jsonb and "any". Beside a json payload they are json.
CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload json,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes json DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, json, bigint, text, json, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit, and returns its receipt. Call it in FROM: '
    'SELECT r.* FROM postbox.outbox_emit(...) AS r. In SELECT (postbox.outbox_emit(...)).* it is called for each column: three '
    'events. In a WITH query that nothing reads it is not called. The payload is json, and is sent as it was written, in UTF-8. '
    'Versions begin at 1; NULL counts them. Needs INSERT on the outbox';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id "any", event_type postbox.event_type, payload text,
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, "any", postbox.event_type, text, bigint, "any", jsonb, uuid, timestamptz, text, regclass) IS
    'outbox_emit for an aggregate_id or a schema_version that is a whole number, a uuid or an enum, and for a payload that is text. '
    'What has another type is refused (42804), with the cast to write';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id "any", event_type postbox.event_type, payload "any",
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, "any", postbox.event_type, "any", bigint, "any", jsonb, uuid, timestamptz, text, regclass) IS
    'outbox_emit for an aggregate_id or a schema_version that is a whole number, a uuid or an enum, and for a payload that is jsonb, json or bytea. '
    'What has another type is refused (42804), with the cast to write';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type postbox.event_type, payload text,
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, postbox.event_type, text, bigint, "any", jsonb, uuid, timestamptz, text, regclass) IS
    'outbox_emit for an aggregate_id or a schema_version that is a whole number, a uuid or an enum, and for a payload that is text. '
    'What has another type is refused (42804), with the cast to write';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type postbox.event_type, payload "any",
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, postbox.event_type, "any", bigint, "any", jsonb, uuid, timestamptz, text, regclass) IS
    'outbox_emit for an aggregate_id or a schema_version that is a whole number, a uuid or an enum, and for a payload that is jsonb, json or bytea. '
    'What has another type is refused (42804), with the cast to write';

-- One signature, for clients that are generated from the catalogs.
CREATE OR REPLACE FUNCTION postbox.outbox_emit_json(event json, outbox regclass DEFAULT NULL) RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_json';
COMMENT ON FUNCTION postbox.outbox_emit_json(json, regclass) IS
    'Stores an event like outbox_emit. The event is a JSON object whose keys are the names of the arguments of outbox_emit; other keys are '
    'refused (22023). The payload is sent as it is written in the object. Call it in FROM: SELECT r.* FROM postbox.outbox_emit_json(...) AS r. '
    'Needs INSERT on the outbox';
