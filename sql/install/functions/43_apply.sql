-- Applying events. `postbox pull` calls these functions, and a consumer may call them in its own transaction.
--
-- INSERT on the inbox is the permission to apply. Everything else runs with the rights of the owner of the inbox: the
-- inbox row, projections, tombstones and handlers. The search_path is fixed: pg_catalog, pg_temp for projections, and
-- the schema of the handler between the two for handlers.

CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event postbox.event, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, postbox.event, text) IS
$$Applies an event in the current transaction. It takes effect once: an event that the inbox has seen changes nothing. Returns the outcome: `applied`, `duplicate` (seen before),
  `stale` (older than what is stored), `ignored` (no projection or handler takes its type), `rejected` (recorded in `postbox.dead_letter`) or `parked` (recorded there behind
  other events of its key, or as the first one of them).

An error of the event is raised. With `on_error => 'reject'` the event is rolled back and recorded as a dead letter instead; with `park_key` its key is parked, too: later
  events of the same aggregate id are recorded behind it and are not applied, whatever their `on_error` is. Errors that are not those of the event are
  always raised: SQLSTATE classes 08, 40, 53, 57 and 58, 55P03, 25006, a broken projection, handler or inbox, and a right that the owner of the inbox lacks.

inbox: the inbox.
event: the event. Its id may be any text: one that is a uuid is that uuid in every notation, any other text stands for its UUIDv5.
on_error: `raise`, `reject` or `park_key`. An event that has no aggregate id, or one of more than 1024 bytes, is rejected with `park_key`.

Rights: INSERT on the inbox. Projections and handlers run with the rights of the owner of the inbox.
Errors: 42809 if `inbox` is not an inbox; 22004 if the event has no id or no type; 22023 if `on_error` is unknown; 55000 if it is `park_key` and keys of
  the inbox may not be parked (`alter_inbox`); 25001 if they may be and the isolation level is not READ COMMITTED; 54001 if triggers or handlers apply events more than 16
  calls deep. Errors of projections and handlers are raised as they are.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload bytea, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_fields' LANGUAGE C;

-- A payload of type text, json or jsonb is applied as its bytes in UTF-8. A literal without a type is text.
CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload text, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_text' LANGUAGE C;
CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload json, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_text' LANGUAGE C;
CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload jsonb, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_jsonb' LANGUAGE C;

COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, text, jsonb, timestamptz, text) IS
$$Applies an event in the current transaction like the form with one argument of type `postbox.event`, with one argument for each field of the event.

inbox: the inbox.
event_id: the event id: any text. One that is a uuid is that uuid in every notation, any other text stands for its UUIDv5.
event_type: the event type.
aggregate_type: the aggregate type.
aggregate_id: the aggregate id.
version: the version of the aggregate. Projections need a version that is greater than 0.
payload: the payload: `bytea`, or `text`, `json` or `jsonb`, which are applied as their bytes in UTF-8; a literal or a parameter without a type is `text`. Bytes written as
  text (`\x7b7d`) are refused: cast them to `bytea`. Do not cast JSON to `bytea`, which loses backslashes: `'{"path": "C:\\new"}'::bytea` is the bytes of `{"path": "C:\new"}`.
attributes: a JSON object of the attributes.
occurred_at: the time of the event. NULL if it is not known.
on_error: `raise` raises an error of the event. `reject` rolls the event back and records it in `postbox.dead_letter`. `park_key` also parks its key.

Rights: INSERT on the inbox. Projections and handlers run with the rights of the owner of the inbox.
Errors: 42809 if `inbox` is not an inbox; 22004 if the event has no id or no type; 22023 if `on_error` is unknown or the payload is bytes written as text; 55000 if
  `on_error` is `park_key` and keys of the inbox may not be parked (`alter_inbox`); 25001 if they may be and the isolation level is not READ COMMITTED; 54001 if triggers
  or handlers apply events more than 16 calls deep. Errors of projections and handlers are raised as they are.
Since: 0.2.0
Example: SELECT postbox.inbox_apply('catalog_read.inbox', 'evt_1', 'video.created', 'video', 'v_123', 1, '{"title": "Intro"}');$$;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, bytea, jsonb, timestamptz, text) IS 'Another form of inbox_apply: see the one whose payload is text';
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, json, jsonb, timestamptz, text) IS 'Another form of inbox_apply: see the one whose payload is text';
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, jsonb, jsonb, timestamptz, text) IS 'Another form of inbox_apply: see the one whose payload is text';

CREATE OR REPLACE FUNCTION postbox.inbox_apply_batch(inbox regclass, events postbox.event[], on_error text DEFAULT 'raise',
    json_detail boolean DEFAULT false) RETURNS postbox.outcome[]
    AS 'MODULE_PATHNAME', 'inbox_apply_batch' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply_batch(regclass, postbox.event[], text, boolean) IS
$$Applies events in the order of the array, in the current transaction. Each takes effect once. Returns an array of their outcomes, see `inbox_apply`.

An error of an event is raised. With `on_error => 'reject'` the batch is rolled back to its beginning and applied again event by event; events that fail are recorded as
  dead letters, and the others take effect. `park_key` does the same, and parks the keys of these events.

inbox: the inbox.
events: the events, in one dimension. With an empty array the configuration of the inbox is checked.
on_error: `raise`, `reject` or `park_key`. An event that has no aggregate id, or one of more than 1024 bytes, is rejected with `park_key`.
json_detail: for programs. With true, the DETAIL of an error that comes while events are applied is a JSON object: `event` is the position in `events` of the event that
  has failed, from 1, and `detail` is the DETAIL that the error has otherwise, or its first 8 kB. A member that does not apply is left out.

Rights: INSERT on the inbox. Projections and handlers run with the rights of the owner of the inbox.
Errors: those of `inbox_apply`; 2202E if `events` has more than one dimension; 22004 if it contains NULL.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.event_version() RETURNS bigint
    AS 'MODULE_PATHNAME', 'event_version' LANGUAGE C STABLE;
COMMENT ON FUNCTION postbox.event_version() IS
$$The version of the event that is being applied, for triggers of targets and for handlers. NULL outside of them, and for an event without a version.

Rights: none.
Errors: none.
Since: 0.2.0$$;
