-- Publications: an outbox -> a topic. And what a person needs when an event is stuck.

CREATE TABLE postbox.publication (
    name            text        PRIMARY KEY,
    outbox          regclass    NOT NULL,
    topic           text        NOT NULL,
    aggregate_types text[]      CHECK (cardinality(aggregate_types) > 0),
    ordering        text        NOT NULL DEFAULT 'key',
    lanes           int         NOT NULL DEFAULT 1 CHECK (lanes > 0),
    max_attempts    int         NOT NULL DEFAULT 5 CHECK (max_attempts > 0),
    base_backoff    interval    NOT NULL DEFAULT '10s' CHECK (base_backoff > interval '0'),
    max_backoff     interval    NOT NULL DEFAULT '10min' CHECK (max_backoff BETWEEN base_backoff AND interval '1 day'),
    on_failure      text        NOT NULL DEFAULT 'park_key' CHECK (on_failure IN ('park_key', 'park_event')),
    created_at      timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX publication_outbox ON postbox.publication (outbox);
COMMENT ON TABLE postbox.publication IS 'Which events of an outbox go to which topic; changed by create_publication, alter_publication and drop_publication only';
COMMENT ON COLUMN postbox.publication.aggregate_types IS 'The events that it takes; NULL takes all';
SELECT pg_catalog.pg_extension_config_dump('postbox.publication', '');
GRANT SELECT ON postbox.publication TO PUBLIC;

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON postbox.publication
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();

CREATE TABLE postbox.lane (
    publication   text NOT NULL,
    slice         int  NOT NULL,
    attempts      int  NOT NULL DEFAULT 0,
    next_retry_at timestamptz,
    last_error    text,
    lock_token    text,
    locked_at     timestamptz,
    system_identifier numeric,
    floor         bigint,
    hwm           bigint,
    snapshot      pg_snapshot,
    next_xid      xid8,
    zone_upto     bigint[],
    zone_snapshot pg_snapshot[],
    zone_next_xid xid8[],
    PRIMARY KEY (publication, slice)
) WITH (fillfactor = 50);
COMMENT ON TABLE postbox.lane IS 'What a worker claims: a publication, or a slice of its keys. It rests until next_retry_at while its topic is broken';
COMMENT ON COLUMN postbox.lane.lock_token IS 'The worker that has the lane of a log outbox, see postbox.workers';
COMMENT ON COLUMN postbox.lane.locked_at IS 'When that worker last wrote this row';
COMMENT ON COLUMN postbox.lane.system_identifier IS 'The cluster whose transaction ids the position is made of';
COMMENT ON COLUMN postbox.lane.hwm IS 'Rows of the log with a greater seq are unread, but for those that the snapshot sees';
COMMENT ON COLUMN postbox.lane.snapshot IS 'What had been read when the lane had last caught up';
COMMENT ON COLUMN postbox.lane.zone_upto IS 'Upper ends of the zones of seq below hwm; in each, what its snapshot sees is read';
SELECT pg_catalog.pg_extension_config_dump('postbox.lane', '');
GRANT SELECT ON postbox.lane TO PUBLIC;

CREATE FUNCTION postbox.create_publication(
    name text, outbox regclass, topic text, aggregate_types text[] DEFAULT NULL,
    ordering text DEFAULT 'key', lanes int DEFAULT 1, max_attempts int DEFAULT 5,
    base_backoff interval DEFAULT '10s', max_backoff interval DEFAULT '10min', on_failure text DEFAULT 'park_key')
    RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text) IS
    'Publishes the events of an outbox to a topic; for the owner of the outbox who was granted EXECUTE';

CREATE FUNCTION postbox.alter_publication(
    name text, topic text DEFAULT NULL, aggregate_types text[] DEFAULT NULL, max_attempts int DEFAULT NULL,
    base_backoff interval DEFAULT NULL, max_backoff interval DEFAULT NULL, on_failure text DEFAULT NULL)
    RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_publication(text, text, text[], int, interval, interval, text) IS
    'Changes a publication: NULL leaves a property as it is, aggregate_types => ''{}'' takes all types';

-- Publishing spends the server's Google credentials on a topic of the caller's choice.
REVOKE EXECUTE ON FUNCTION postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text),
    postbox.alter_publication(text, text, text[], int, interval, interval, text) FROM PUBLIC;

CREATE FUNCTION postbox.drop_publication(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_publication(text) IS
    'Ends a publication; its events stay in the outbox. For the owner of the outbox';

CREATE FUNCTION postbox.check_topic_name(topic text) RETURNS void
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.check_topic_name(text) IS
    'An error if Pub/Sub would refuse the name, a warning if it does not follow <domain>.<aggregate>.<category>';

CREATE FUNCTION postbox.wake_publishers() RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.wake_publishers() IS 'Wakes the publishers of this database when the transaction commits';

-- A row of a `table` outbox that is not published is in one of these states (lock_token is NULL but for INFLIGHT):
--   PENDING   next_retry_at IS NULL
--   INFLIGHT  lock_token IS NOT NULL: a worker has it
--   RETRY     publish_attempts > 0, next_retry_at finite
--   FAILED    publish_attempts > 0, next_retry_at = infinity: max_attempts are used up
--   BEHIND    publish_attempts = 0, next_retry_at = infinity: waits behind a parked event of its key
-- and DISCARDED is published_at = -infinity.

CREATE FUNCTION postbox.redrive(outbox regclass, event_id uuid DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    redriven bigint;
BEGIN
    IF registered.kind = 'log' THEN
        RETURN postbox.redrive_parked(outbox, event_id);
    END IF;
    -- The events that wait behind one of these go back into the queue with it: the order of a key is that of seq.
    EXECUTE format($sql$
        WITH parked AS (
            UPDATE %1$s SET next_retry_at = NULL, publish_attempts = 0
            WHERE published_at IS NULL AND lock_token IS NULL AND next_retry_at IS NOT NULL
              AND publish_attempts > 0 AND ($1 IS NULL OR %2$s = $1)
            RETURNING %3$s AS key
        ), behind AS (
            UPDATE %1$s SET next_retry_at = NULL
            WHERE published_at IS NULL AND lock_token IS NULL AND next_retry_at = 'infinity'
              AND publish_attempts = 0 AND %3$s IN (SELECT key FROM parked)
        )
        SELECT count(*) FROM parked
        $sql$, outbox, postbox.outbox_column(registered, 'id'), postbox.outbox_column(registered, 'aggregate_id')) INTO redriven USING event_id;
    IF redriven > 0 THEN
        PERFORM postbox.wake_publishers();
    END IF;
    RETURN redriven;
END
$$;
COMMENT ON FUNCTION postbox.redrive(regclass, uuid) IS
    'Makes parked events (one, or all of the outbox) due now, with all their attempts; returns how many. Needs SELECT and UPDATE on the outbox';

CREATE FUNCTION postbox.discard(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    id_column text := postbox.outbox_column(registered, 'id');
    key_column text := postbox.outbox_column(registered, 'aggregate_id');
    key text;
    holder text;
BEGIN
    IF event_id IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'event_id may not be null',
            HINT = 'postbox.paused_keys shows the event that stops a key.';
    END IF;
    IF registered.kind = 'log' THEN
        RETURN postbox.discard_parked(outbox, event_id);
    END IF;
    EXECUTE format('SELECT %s, lock_token FROM %s WHERE %s = $1 AND published_at IS NULL FOR UPDATE', key_column, outbox, id_column)
        INTO key, holder USING event_id;
    IF key IS NULL THEN
        RETURN false;
    END IF;
    IF holder IS NOT NULL THEN
        RAISE object_in_use USING
            MESSAGE = format('event %s is being published', event_id),
            HINT = 'Try again when the attempt is over.';
    END IF;
    EXECUTE format($sql$UPDATE %s SET published_at = '-infinity', next_retry_at = NULL WHERE %s = $1$sql$, outbox, id_column)
        USING event_id;
    EXECUTE format($sql$
        UPDATE %s SET next_retry_at = NULL
        WHERE published_at IS NULL AND lock_token IS NULL AND next_retry_at = 'infinity'
          AND publish_attempts = 0 AND %s = $1
        $sql$, outbox, key_column) USING key;
    PERFORM postbox.wake_publishers();
    RETURN true;
END
$$;
COMMENT ON FUNCTION postbox.discard(regclass, uuid) IS
    'Takes an unpublished event out of the queue for good, so that its key goes on; false if there is no such event. Needs SELECT and UPDATE on the outbox';

CREATE FUNCTION postbox.list_paused_keys()
    RETURNS TABLE (outbox regclass, aggregate_id text, first_event_id uuid, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox;
BEGIN
    FOR registered IN
        SELECT o.* FROM postbox.outbox o JOIN pg_class c ON c.oid = coalesce(o.parked, o.relation)
        WHERE has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(c.relnamespace, 'USAGE') ORDER BY o.relation
    LOOP
        IF registered.parked IS NOT NULL THEN
            RETURN QUERY EXECUTE format($sql$
                SELECT $1, e.aggregate_id, e.id, e.event_type, e.publish_attempts, e.next_retry_at, e.last_error,
                       (SELECT count(*) FROM %1$s later WHERE later.publication = e.publication
                        AND later.aggregate_id = e.aggregate_id AND later.seq > e.seq)
                FROM %1$s e
                WHERE NOT EXISTS (SELECT FROM %1$s earlier WHERE earlier.publication = e.publication
                                  AND earlier.aggregate_id = e.aggregate_id AND earlier.seq < e.seq)
                ORDER BY e.seq
                $sql$, registered.parked) USING registered.relation;
            CONTINUE;
        END IF;
        RETURN QUERY EXECUTE format($sql$
            SELECT $1, %2$s, %3$s, %4$s, e.publish_attempts, e.next_retry_at, e.last_error,
                   (SELECT count(*) FROM %1$s later
                    WHERE %5$s = %2$s AND later.published_at IS NULL AND later.seq > e.seq)
            FROM %1$s e
            WHERE e.published_at IS NULL AND e.lock_token IS NULL AND e.next_retry_at IS NOT NULL AND e.publish_attempts > 0
              AND NOT EXISTS (SELECT FROM %1$s earlier
                              WHERE %6$s = %2$s AND earlier.published_at IS NULL AND earlier.seq < e.seq)
            ORDER BY e.seq
            $sql$, registered.relation, postbox.outbox_column(registered, 'aggregate_id', 'e.'),
            postbox.outbox_column(registered, 'id', 'e.'), postbox.outbox_column(registered, 'event_type', 'e.'),
            postbox.outbox_column(registered, 'aggregate_id', 'later.'), postbox.outbox_column(registered, 'aggregate_id', 'earlier.'))
            USING registered.relation;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.list_paused_keys() IS 'The rows of postbox.paused_keys';

CREATE VIEW postbox.paused_keys AS SELECT * FROM postbox.list_paused_keys();
COMMENT ON VIEW postbox.paused_keys IS
    'Keys that stand still because their first unpublished event is parked: which event, why, until when, and how many wait behind it. Shows the outboxes that the caller may read';
GRANT SELECT ON postbox.paused_keys TO PUBLIC;

CREATE FUNCTION postbox.list_publication_status()
    RETURNS TABLE (publication text, outbox regclass, topic text, state text, pending bigint, parked bigint,
                   oldest_pending interval, resting_until timestamptz, last_error text, "position" bigint, leases text[])
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    types text[];
    registered postbox.outbox;
BEGIN
    FOR publication, outbox, topic, types, resting_until, last_error IN
        SELECT p.name, p.outbox, p.topic, p.aggregate_types, rest.next_retry_at, rest.last_error
        FROM postbox.publication p
        LEFT JOIN LATERAL (SELECT l.next_retry_at, l.last_error FROM postbox.lane l
                           WHERE l.publication = p.name AND l.next_retry_at > clock_timestamp()
                           ORDER BY l.next_retry_at DESC LIMIT 1) rest ON true
        ORDER BY p.name
    LOOP
        state := CASE WHEN resting_until IS NULL THEN 'active' ELSE 'resting' END;
        pending := NULL;
        parked := NULL;
        oldest_pending := NULL;
        "position" := NULL;
        leases := NULL;
        SELECT * INTO registered FROM postbox.outbox o WHERE o.relation = list_publication_status.outbox;
        IF registered.parked IS NOT NULL THEN
            SELECT min(coalesce(l.hwm, 0)), array_agg(l.lock_token ORDER BY l.slice) FILTER (WHERE l.lock_token IS NOT NULL)
              INTO "position", leases FROM postbox.lane l WHERE l.publication = list_publication_status.publication;
        END IF;
        IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = outbox AND has_table_privilege(c.oid, 'SELECT')
                       AND has_schema_privilege(c.relnamespace, 'USAGE')) THEN
            NULL;
        ELSIF registered.parked IS NOT NULL THEN
            IF has_table_privilege(registered.parked, 'SELECT') THEN
                SELECT b.unread, b.parked, b.oldest INTO pending, parked, oldest_pending
                FROM postbox.log_backlog(outbox, registered.parked, publication) b;
            END IF;
        ELSE
            EXECUTE format($sql$
                SELECT count(*), count(*) FILTER (WHERE next_retry_at IS NOT NULL),
                       date_trunc('milliseconds', clock_timestamp() - min(%2$s))
                FROM %1$s WHERE published_at IS NULL AND ($1 IS NULL OR %3$s = ANY ($1))
                $sql$, outbox, postbox.outbox_column(registered, 'occurred_at'), postbox.outbox_column(registered, 'aggregate_type')) INTO pending, parked, oldest_pending USING types;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.list_publication_status() IS 'The rows of postbox.publication_status';

CREATE VIEW postbox.publication_status AS SELECT * FROM postbox.list_publication_status();
COMMENT ON VIEW postbox.publication_status IS
    'Each publication: active or resting (its topic is broken: until when and why), how many events are not published yet, how many of those are parked or behind a parked one, and the age of the oldest. Of a log outbox also the seq up to which it is read and the lock tokens of the workers that have its lanes. Counts only where the caller may read the outbox';
GRANT SELECT ON postbox.publication_status TO PUBLIC;
