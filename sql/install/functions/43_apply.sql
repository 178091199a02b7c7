-- Applying events. `postbox pull` calls these functions, and a consumer may call them in a transaction of its own.
--
-- INSERT on the inbox is the permission to apply. Everything else runs with the rights of the owner of the inbox: the
-- inbox row, projections, tombstones and handlers. The search_path is fixed: pg_catalog, pg_temp for projections, and
-- the schema of the handler between the two for handlers.

CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event postbox.event, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, postbox.event, text) IS
    'Applies an event in the current transaction. An event that was seen before has no effect. '
    'on_error => ''reject'' records an event that fails as a dead letter instead of raising its error';

CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload bytea, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_fields' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, bytea, jsonb, timestamptz, text) IS
    'Applies an event in the current transaction. An event that was seen before has no effect. '
    'on_error => ''reject'' records an event that fails as a dead letter instead of raising its error';

-- The payload as text or JSON: its bytes in UTF-8. What has no type is text.
CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload text, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_text' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, text, jsonb, timestamptz, text) IS
    'inbox_apply with a payload that is text, which is applied as its bytes in UTF-8. Bytes that are written as text, in hex format, are refused (22023)';
CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload json, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_text' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, json, jsonb, timestamptz, text) IS
    'inbox_apply with a payload that is json, which is applied as it was written, in UTF-8';
CREATE OR REPLACE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload jsonb, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_jsonb' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, jsonb, jsonb, timestamptz, text) IS
    'inbox_apply with a payload that is jsonb, which is applied as its text in UTF-8';

CREATE OR REPLACE FUNCTION postbox.inbox_apply_batch(inbox regclass, events postbox.event[], on_error text DEFAULT 'raise') RETURNS postbox.outcome[]
    AS 'MODULE_PATHNAME', 'inbox_apply_batch' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply_batch(regclass, postbox.event[], text) IS
    'Applies events in their order, in the current transaction. Each takes effect once. '
    'on_error => ''reject'' records those that fail as dead letters, and the others take effect';

CREATE OR REPLACE FUNCTION postbox.event_version() RETURNS bigint
    AS 'MODULE_PATHNAME', 'event_version' LANGUAGE C STABLE;
COMMENT ON FUNCTION postbox.event_version() IS
    'The version of the event that is being applied, for triggers of targets and for handlers; NULL outside of them';
