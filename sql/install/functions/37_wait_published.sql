-- What a publication that takes an event has stored of it. NULL: there is no such event. One statement reads the position and the table of
-- parked events: a worker stores a position that has passed an event with the parked event, or after it.
CREATE OR REPLACE FUNCTION postbox.log_event_state(registered postbox.outbox, event_id uuid, publication text,
    OUT state text, OUT sender text, OUT detail text, OUT writer xid)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    event record;
BEGIN
    EXECUTE format('SELECT e.seq, e.txid, e.origin, e.aggregate_id, e.aggregate_type, e.xmin FROM %s e WHERE e.id = $1 ORDER BY e.seq DESC LIMIT 1',
                   registered.relation) INTO event USING event_id;
    IF event.seq IS NULL THEN
        RETURN;
    END IF;
    writer := event.xmin;
    state := 'none';
    -- First what ends the wait: where several publications take the event, the worst counts.
    EXECUTE format($sql$
        SELECT s.state, s.name, s.last_error FROM (
            SELECT p.name, q.last_error,
                CASE WHEN x.event_id IS NOT NULL THEN 'expired'
                WHEN d.event_id IS NOT NULL THEN 'discarded'
                WHEN q.republished THEN 'published'
                WHEN q.publish_attempts > 0 OR EXISTS (
                    SELECT FROM (SELECT h.publish_attempts FROM %1$s h WHERE h.publication = p.name AND %2$s = %3$s
                                 ORDER BY h.publication, %2$s, h.seq LIMIT 1) h WHERE q.id IS NOT NULL AND h.publish_attempts > 0) THEN 'parked'
                WHEN q.id IS NOT NULL THEN 'waiting'
                WHEN $2 = -2147483648 OR l.publication IS NOT NULL AND postbox.has_read(l, $3, $4) THEN 'published'
                ELSE 'waiting' END AS state
            FROM postbox.publication p
            LEFT JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $2 AND l.slice = coalesce(postbox.lane_slice($5, p.lanes), 0)
            LEFT JOIN %1$s q ON q.publication = p.name AND q.id = $1
            LEFT JOIN postbox.expired_event x ON x.publication = p.name AND x.event_id = $1::text
            LEFT JOIN postbox.discarded_outgoing d ON d.publication = p.name AND d.event_id = $1
            WHERE p.outbox = $7 AND ($8 IS NULL OR p.name = $8) AND (p.aggregate_types IS NULL OR $6 = ANY (p.aggregate_types))) s
        ORDER BY array_position('{expired,discarded,parked,waiting,published}'::text[], s.state), s.name LIMIT 1
        $sql$, registered.parked, postbox.log_key('h.'), postbox.log_key('q.')) INTO state, sender, detail
        USING event_id, event.origin, event.txid, event.seq, event.aggregate_id, event.aggregate_type, registered.relation, publication;
    state := coalesce(state, 'none');
END
$$;
COMMENT ON FUNCTION postbox.log_event_state(postbox.outbox, uuid, text) IS 'Internal: postbox.event_state for a log outbox.';

CREATE OR REPLACE FUNCTION postbox.table_event_state(registered postbox.outbox, event_id uuid, publication text,
    OUT state text, OUT sender text, OUT detail text, OUT writer xid)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    key text := postbox.outbox_column(registered, 'aggregate_id', 'h.');
BEGIN
    EXECUTE format($sql$
        SELECT CASE WHEN p.name IS NULL THEN 'none'
            WHEN e.published_at = '-infinity' THEN CASE e.last_error WHEN 'expired' THEN 'expired' ELSE 'discarded' END
            WHEN e.published_at IS NOT NULL OR e.last_error = 'queued by postbox.republish' THEN 'published'
            WHEN e.publish_attempts > 0 AND e.lock_token IS NULL OR e.next_retry_at = 'infinity' AND EXISTS (
                SELECT FROM (SELECT h.publish_attempts FROM %1$s h WHERE %2$s = %3$s AND h.published_at IS NULL ORDER BY %2$s, h.seq LIMIT 1) h
                WHERE h.publish_attempts > 0) THEN 'parked'
            ELSE 'waiting' END, p.name, e.last_error, e.xmin
        FROM %1$s e LEFT JOIN postbox.publication p ON p.outbox = $2 AND ($3 IS NULL OR p.name = $3)
            AND (p.aggregate_types IS NULL OR %5$s = ANY (p.aggregate_types))
        WHERE e.%4$s = $1 LIMIT 1
        $sql$, registered.relation, key, postbox.outbox_column(registered, 'aggregate_id', 'e.'), postbox.outbox_column(registered, 'id'),
        postbox.outbox_column(registered, 'aggregate_type', 'e.')) INTO state, sender, detail, writer USING event_id, registered.relation, publication;
END
$$;
COMMENT ON FUNCTION postbox.table_event_state(postbox.outbox, uuid, text) IS 'Internal: postbox.event_state for a table outbox.';

CREATE OR REPLACE FUNCTION postbox.event_state(outbox regclass, event_id uuid, only_publication text,
    OUT state text, OUT publication text, OUT detail text, OUT writer xid)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
BEGIN
    IF registered.kind = 'log' THEN
        SELECT s.state, s.sender, s.detail, s.writer INTO state, publication, detail, writer
        FROM postbox.log_event_state(registered, event_id, only_publication) s;
    ELSE
        SELECT s.state, s.sender, s.detail, s.writer INTO state, publication, detail, writer
        FROM postbox.table_event_state(registered, event_id, only_publication) s;
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.event_state(regclass, uuid, text) IS
    'Internal: whether an event is published by all publications that take it: published, waiting, parked, discarded, expired, or none if no publication takes it; NULL if there is '
    'no such event; with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.wait_published(event_id uuid, timeout interval DEFAULT '5s', outbox regclass DEFAULT NULL,
    publication text DEFAULT NULL) RETURNS boolean
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.wait_published(uuid, interval, regclass, text) IS
$$Waits until an event is published by every publication that takes it. Returns true then, and false after the time-out. Pub/Sub has accepted the event; its subscribers may
  not have received it yet. It sleeps until a worker stores results: of a `log` at most every `postbox.checkpoint_interval`.

event_id: the id of the event, as the receipt of `outbox_emit` has it. The transaction that emitted it must have committed.
timeout: how long to wait at most. 0 checks once.
outbox: the outbox. NULL looks in all outboxes that the caller may read.
publication: waits for this publication only. NULL waits for all that take the event.

Rights: SELECT on the outbox and USAGE on its schema, without row security; or membership in `postbox_operator` or `pg_monitor`.
Errors: 22004 if event_id or timeout is NULL; 22023 if timeout is negative; 42704 if the event or the publication does not exist; 25000 if the current transaction has
  emitted the event, or at another isolation level than READ COMMITTED; 55000 if the event is parked or waits behind such an event, if it was discarded or has expired, or if no
  publication takes it; 42809 if the relation is not an outbox; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.wait_published('0190a5f2-7c1e-7cc0-9f57-2f3c1d0a7e11', outbox => 'catalog.outbox');$$;
