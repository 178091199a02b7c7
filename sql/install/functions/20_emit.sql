-- Emitting events. One function for three types of payload. An untyped literal resolves to text.

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, key_may_pass boolean DEFAULT false)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_jsonb';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload bytea,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, key_may_pass boolean DEFAULT false)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_bytea';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload text,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, key_may_pass boolean DEFAULT false)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_text';

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
    outbox regclass DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, key_may_pass boolean DEFAULT false)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id "any", event_type postbox.event_type, payload text,
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, key_may_pass boolean DEFAULT false)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id "any", event_type postbox.event_type, payload "any",
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, key_may_pass boolean DEFAULT false)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type postbox.event_type, payload text,
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, key_may_pass boolean DEFAULT false)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';

CREATE OR REPLACE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type postbox.event_type, payload "any",
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL, deliver_at timestamptz DEFAULT NULL, expires_at timestamptz DEFAULT NULL, key_may_pass boolean DEFAULT false)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';

-- The forms mean the same, so one has the text.
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, jsonb, bigint, text, jsonb, uuid, timestamptz, text, regclass, timestamptz, timestamptz, boolean) IS
$$Stores an event in the caller's transaction and returns its receipt. Workers publish it after COMMIT; ROLLBACK discards it.

Call it in FROM: `SELECT r.* FROM postbox.outbox_emit(...) AS r`. `SELECT (postbox.outbox_emit(...)).*` emits three events, because PostgreSQL calls a function in
  `(...).*` once for each column. `WITH e AS (SELECT postbox.outbox_emit(...)) SELECT 1` emits none, because nothing reads `e`.

aggregate_type: the type of the aggregate, for example `video`. Not empty.
aggregate_id: the aggregate, and with ordering `key` the ordering key of its messages: 1 to 1024 bytes. Text, or a whole number, a uuid or an enum, which becomes its text. Other types are
  refused, with the cast to write in HINT.
event_type: what happened, for example `video.created`. Not empty.
payload: the content. `text` that is JSON and `json` are sent as they were written, byte for byte, in UTF-8. `jsonb` is sent as the text that jsonb makes of it: with other
  white space, another order of keys, and the last of equal keys. `bytea` is sent as it is. A literal or a parameter without a type is `text`. Convert other types with
  `to_jsonb`. The whole message has at most 10,000,000 bytes.
version: the version within the aggregate, from 1. NULL counts it. In a `table` a given version must be greater than the last one. A `log` takes it as it is, so a caller
  that counts versions itself must lock the aggregate first; versions that are counted later are greater: 6, then NULL, makes 7. Where all versions of an aggregate type were
  given before, the first counted one is greater than all of them, whatever their aggregates. The last counted version is in `<outbox>_version`; inside a transaction that
  has emitted more than 32 events of the aggregate, the row may be ahead until COMMIT. An adopted table without a column for versions uses `seq`, and takes NULL only.
schema_version: the version of the schema of the payload. The types are those of aggregate_id. NULL is `v1`.
attributes: more attributes of the message: a JSON object of strings, numbers and booleans. A message has at most 100 attributes, with those that Postbox sets; a key at
  most 256 bytes and a value at most 1024. The attributes that every event has (event_id, event_type, aggregate_id, aggregate_type, version, occurred_at, schema_version) are
  refused. Settings such as `postbox.correlation_id` add attributes that are not given here. Beside a payload of type `json` it may be `json`, too.
event_id: the id of the event. NULL makes a UUIDv7. Not together with source_event_id.
occurred_at: when the event occurred, in the years 0001 to 9999. NULL is the start of the transaction.
source_event_id: makes the same id each time for the same source event, event type and aggregate. If an event with that id is in the outbox already, nothing is stored, and
  its receipt is returned. Use it for events that are emitted while another event is applied: when that one is applied again,
  no second event is emitted.
outbox: the outbox. NULL takes the one that `postbox.default_outbox` names. Without that setting it takes the only outbox that the current user owns; if the user owns
  none, the only one with a publication among those that it may INSERT into; if none of these has a publication, the only one that it may INSERT into.
deliver_at: the event is not published before this time, by the clock of the database; later events of its key wait for it. At most 366 days after the start of the
  transaction. NULL, or a time that has passed, does not delay it.
expires_at: the event is not published at this time or later; `postbox.expired_event` then has a row for it. After deliver_at, and after the start of the transaction. NULL:
  it does not expire.
key_may_pass: whether later events of its key are published while this one is delayed. It needs deliver_at, and a `log`. NULL is false.

Rights: INSERT on the outbox. Versions are counted as the owner of the outbox.
Errors: 22004 if a required argument is NULL; 22023 if an argument is empty, a number has a fraction, attributes are invalid, or a version is not positive or, in a `table`, not greater than the
  last one; 22P02 if a text payload is not JSON; 42804 if an argument has a type that is not converted; 23505 if an event with that id is in the outbox; 54000 if a limit of
  Pub/Sub is exceeded; 22008 if occurred_at, deliver_at or expires_at is out of range; 22023 if the event would expire before it could be published, or key_may_pass is
  given without deliver_at; 0A000 if a version is given for an outbox that has no column for it, or key_may_pass for a `table`; 42P01 if there is no outbox, 42809 if the
  relation is not one, 42P08 if more than one could be meant; 55000 if the outbox is incomplete; 09000 if a trigger of the outbox suppresses the row; 25006 in a read-only
  transaction; 42501 without INSERT on the outbox.
Since: 0.2.0
Example: SELECT r.* FROM postbox.outbox_emit('video', 'v_123', 'video.created', '{"title": "Intro"}', outbox => 'catalog.outbox') AS r;$$;
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, bytea, bigint, text, jsonb, uuid, timestamptz, text, regclass, timestamptz, timestamptz, boolean) IS 'Another form of outbox_emit: see the one whose payload is jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, text, bigint, text, jsonb, uuid, timestamptz, text, regclass, timestamptz, timestamptz, boolean) IS 'Another form of outbox_emit: see the one whose payload is jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, json, bigint, text, json, uuid, timestamptz, text, regclass, timestamptz, timestamptz, boolean) IS 'Another form of outbox_emit: see the one whose payload is jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, "any", postbox.event_type, text, bigint, "any", jsonb, uuid, timestamptz, text, regclass, timestamptz, timestamptz, boolean) IS 'Another form of outbox_emit: see the one whose payload is jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, "any", postbox.event_type, "any", bigint, "any", jsonb, uuid, timestamptz, text, regclass, timestamptz, timestamptz, boolean) IS 'Another form of outbox_emit: see the one whose payload is jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, postbox.event_type, text, bigint, "any", jsonb, uuid, timestamptz, text, regclass, timestamptz, timestamptz, boolean) IS 'Another form of outbox_emit: see the one whose payload is jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, postbox.event_type, "any", bigint, "any", jsonb, uuid, timestamptz, text, regclass, timestamptz, timestamptz, boolean) IS 'Another form of outbox_emit: see the one whose payload is jsonb';

-- One signature, for clients that are generated from the catalogs.
CREATE OR REPLACE FUNCTION postbox.outbox_emit_json(event json, outbox regclass DEFAULT NULL) RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_json';
COMMENT ON FUNCTION postbox.outbox_emit_json(json, regclass) IS
$$Stores an event like `outbox_emit`, and returns its receipt. It has one signature, for clients that are generated from the catalogs (PostgREST, jOOQ, Prisma). Call it
  in FROM: `SELECT r.* FROM postbox.outbox_emit_json(...) AS r`.

event: a JSON object whose keys are the names of the arguments of `outbox_emit`, except outbox. aggregate_type, aggregate_id, event_type and payload are required. The
  payload is a JSON value, and is sent as it is written in the object. `null` stands for an argument that is left out.
outbox: the outbox; NULL as for `outbox_emit`.

Rights: INSERT on the outbox.
Errors: 22023 if event is not an object, has another key, or has a key twice; otherwise those of `outbox_emit`, with the key in the message.
Since: 0.2.0
Example: SELECT r.* FROM postbox.outbox_emit_json('{"aggregate_type": "video", "aggregate_id": "v_1", "event_type": "video.created",
  "payload": {"title": "Intro"}}', 'catalog.outbox') AS r;$$;
