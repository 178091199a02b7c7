-- Applying events: what the puller calls, and any consumer of its own in its own transaction.
--
-- Rights: INSERT on the inbox is the permission to apply. Everything else (inbox row, projections,
-- tombstones, handlers) runs with the rights of the inbox's owner and a fixed search_path, whoever
-- calls: pg_catalog and pg_temp for projections, and the handler's own schema before pg_temp for a
-- handler.

CREATE FUNCTION postbox.inbox_apply(inbox regclass, event postbox.event) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, postbox.event) IS
    'applies one event, once in effect, in the caller''s transaction';

CREATE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload bytea, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_fields' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, bytea, jsonb, timestamptz) IS
    'applies one event, once in effect, in the caller''s transaction';

CREATE FUNCTION postbox.inbox_apply_batch(inbox regclass, events postbox.event[]) RETURNS postbox.outcome[]
    AS 'MODULE_PATHNAME', 'inbox_apply_batch' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply_batch(regclass, postbox.event[]) IS
    'applies events in their order, each once in effect, in the caller''s transaction; an event that fails costs the others nothing';
