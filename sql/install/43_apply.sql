-- Applying events. `postbox pull` calls these functions, and a consumer may call them in a transaction of its own.
--
-- INSERT on the inbox is the permission to apply. Everything else runs with the rights of the owner of the inbox: the
-- inbox row, projections, tombstones and handlers. The search_path is fixed: pg_catalog, pg_temp for projections, and
-- the schema of the handler between the two for handlers.

CREATE FUNCTION postbox.inbox_apply(inbox regclass, event postbox.event, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, postbox.event, text) IS
    'Applies an event in the current transaction. An event that was seen before has no effect. '
    'on_error => ''reject'' records an event that fails as a dead letter instead of raising its error';

CREATE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload bytea, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_fields' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, bytea, jsonb, timestamptz, text) IS
    'Applies an event in the current transaction. An event that was seen before has no effect. '
    'on_error => ''reject'' records an event that fails as a dead letter instead of raising its error';

CREATE FUNCTION postbox.inbox_apply_batch(inbox regclass, events postbox.event[], on_error text DEFAULT 'raise') RETURNS postbox.outcome[]
    AS 'MODULE_PATHNAME', 'inbox_apply_batch' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply_batch(regclass, postbox.event[], text) IS
    'Applies events in their order, in the current transaction. Each takes effect once. '
    'on_error => ''reject'' records those that fail as dead letters, and the others take effect';
