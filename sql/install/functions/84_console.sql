-- What `postbox console` asks, and what it stores. Like what `postbox audit` reads (80_audit.sql), tables of users are read as their owner, and by callers who may read them.

-- The rules of the functions that pause, resume, redrive, cancel and finish.
CREATE OR REPLACE FUNCTION postbox.may_act_on(relation regclass) RETURNS boolean
    LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.may_act_on(regclass) IS
    'Internal: whether the current user may act on an outbox or an inbox, and on what belongs to it: as its owner or as an operator.';

CREATE OR REPLACE FUNCTION postbox.may_act_for(owner regrole) RETURNS boolean
    LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.may_act_for(regrole) IS 'Internal: whether the current user may act on what belongs to a role: with its rights or as an operator.';

CREATE OR REPLACE FUNCTION postbox.may_record_action() RETURNS boolean
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.may_record_action() IS
    'Internal: whether the current user may act on anything, so that it may store actions of a console.';

CREATE OR REPLACE FUNCTION postbox.record_console_action(action text, subject text, affected bigint, expected bigint DEFAULT NULL, reason text DEFAULT NULL,
        filter jsonb DEFAULT NULL)
    RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.record_console_action(text, text, bigint, bigint, text, jsonb) IS
    'Internal: for postbox console, stores what the current user has done in postbox.console_action and returns the number of the row; raises 55000 if `affected` is more than `expected`.';

CREATE OR REPLACE FUNCTION postbox.prune_console_actions(older_than interval) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.prune_console_actions(interval) IS
$$Deletes old rows of `console_action`. Returns how many, and stores one row that says who deleted them.

older_than: rows of actions that were done longer ago are deleted; at least 30 days.

Rights: membership in `postbox_operator`.
Errors: 22004 if older_than is NULL; 22023 if it is less than 30 days; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.prune_console_actions('1 year');$$;

CREATE OR REPLACE FUNCTION postbox.read_found_events(publication text, event_id uuid, wanted_key text, wanted_trace text, newest bigint, most int, most_bytes int)
    RETURNS TABLE (id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, occurred bigint, bytes bigint, payload bytea, attributes jsonb,
                   place bigint, state text, attempts int, next_retry_at timestamptz, last_error text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_bitmapscan = off
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
    form record;
    stored record;
    events text;
    which text := 'true';
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = read_found_events.publication;
    IF event_id IS NOT NULL THEN
        events := format('(SELECT e.* FROM %s e WHERE %s = $2 LIMIT $6)', registered.relation, postbox.outbox_column(registered, 'id', 'e.'));
    ELSIF wanted_key IS NOT NULL OR wanted_trace IS NOT NULL THEN
        -- No index has keys and traces.
        events := format('(SELECT e.* FROM %s e ORDER BY e.seq DESC LIMIT $5)', registered.relation);
        which := '($3 IS NULL OR r.aggregate_id = $3) AND ($4 IS NULL OR r.attributes ->> ''trace_id'' = $4 '
                 'OR substring(r.attributes ->> ''traceparent'' FROM 4 FOR 32) = $4)';
    ELSE
        RETURN;
    END IF;
    form := postbox.emitted_form(registered, events);
    -- The rows are kept in memory, so what an emitter has made large is cut.
    stored := postbox.parked_form(registered);
    RETURN QUERY EXECUTE format($sql$
        SELECT r.id, left(r.aggregate_type, 2000), left(r.aggregate_id, 2000), left(r.event_type, 2000), r.version, r.occurred, r.bytes,
               substring(r.payload FOR $7), CASE WHEN octet_length(r.attributes::text) <= 262144 THEN r.attributes END, r.place, r.state,
               s.publish_attempts, s.next_retry_at, s.last_error
        FROM (SELECT r.* FROM (SELECT %s FROM %s) r WHERE %s LIMIT $6) r LEFT JOIN LATERAL (
            SELECT q.publish_attempts, q.next_retry_at, q.last_error FROM %s q JOIN postbox.publication p ON p.name = $1
            WHERE %s = r.id AND (%s) AND (%s) LIMIT 1) s ON true
        $sql$, form.columns, form.source, which, stored.relation, stored.id, stored.parked, stored."of")
        USING publication, event_id, wanted_key, wanted_trace, newest, most, most_bytes;
END
$$;
COMMENT ON FUNCTION postbox.read_found_events(text, uuid, text, text, bigint, int, int) IS 'Internal: postbox.find_events with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.find_events(publication text, event_id uuid, wanted_key text, wanted_trace text, newest bigint, most int, most_bytes int)
    RETURNS TABLE (id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, occurred bigint, bytes bigint, payload bytea, attributes jsonb,
                   place bigint, state text, attempts int, next_retry_at timestamptz, last_error text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.find_events(text, uuid, text, text, bigint, int, int) IS
    'Internal: for postbox console, the event of this id, or those of a key or a trace among the newest events of the outbox of a publication, at most so many, with so many bytes of their payloads, read as its owner.';

CREATE OR REPLACE FUNCTION postbox.read_found_received(inbox regclass, aggregate_id text, newest bigint, most int) RETURNS TABLE (event_id uuid, received bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET jit = off
AS $$
BEGIN
    IF aggregate_id IS NULL THEN
        RETURN;
    END IF;
    -- No index has keys. The rows of a generation are nearly in the order of time; which of them are the newest is not known without reading all.
    RETURN QUERY EXECUTE format('SELECT i.event_id, postbox.micros(i.received_at) FROM (SELECT i.event_id, i.aggregate_id, i.received_at FROM %s i LIMIT $2) i WHERE i.aggregate_id = $1 LIMIT $3', inbox)
        USING aggregate_id, newest, most;
END
$$;
COMMENT ON FUNCTION postbox.read_found_received(regclass, text, bigint, int) IS 'Internal: postbox.find_received with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.find_received(inbox regclass, aggregate_id text, newest bigint, most int) RETURNS TABLE (event_id uuid, received bigint)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.find_received(regclass, text, bigint, int) IS
    'Internal: for postbox console, the ids of the events of a key and when they came among so many rows of an inbox, at most so many, read as its owner.';
