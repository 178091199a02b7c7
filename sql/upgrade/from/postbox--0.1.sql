\echo Use "CREATE EXTENSION postbox" to load this file. \quit
-- The types that both sides share. The install script is made of the numbered parts of this folder, one after the other.

COMMENT ON SCHEMA postbox IS 'Transactional outbox and inbox over Google Cloud Pub/Sub';
GRANT USAGE ON SCHEMA postbox TO PUBLIC;

CREATE TYPE postbox.receipt AS (event_id uuid, aggregate_id text, version bigint);
COMMENT ON TYPE postbox.receipt IS 'What outbox_emit returns: enough to wait until a projection has followed';

CREATE TYPE postbox.event AS (
    event_id       text,
    event_type     text,
    aggregate_type text,
    aggregate_id   text,
    version        bigint,
    payload        bytea,
    attributes     jsonb,
    occurred_at    timestamptz
);
COMMENT ON TYPE postbox.event IS 'An event as it arrives: what handlers are called with';

CREATE TYPE postbox.outcome AS ENUM ('applied', 'duplicate', 'stale', 'ignored', 'rejected');
COMMENT ON TYPE postbox.outcome IS 'What became of an event: applied, duplicate (seen before), stale (older than what is stored), ignored (nothing takes its type), rejected (recorded in postbox.dead_letter)';
-- Outboxes: a service's own event table in the service's own schema.

CREATE TABLE postbox.outbox (
    relation   regclass    PRIMARY KEY,
    kind       text        NOT NULL CHECK (kind IN ('table', 'log')),
    counter    regclass    NOT NULL UNIQUE,
    parked     regclass    UNIQUE,
    retention  interval    CHECK (retention > interval '0'),
    adopted    boolean     NOT NULL DEFAULT false,
    columns    jsonb       NOT NULL DEFAULT '{}',
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postbox.outbox IS 'The outboxes of this database; changed by create_outbox, adopt_outbox and drop_outbox only';
COMMENT ON COLUMN postbox.outbox.counter IS 'The table that counts the versions of each aggregate';
COMMENT ON COLUMN postbox.outbox.parked IS 'Of a log outbox: the table of events that could not be published';
COMMENT ON COLUMN postbox.outbox.retention IS 'How long published events are kept; NULL keeps them for ever';
COMMENT ON COLUMN postbox.outbox.adopted IS 'Whether the table was there before; drop_outbox leaves it then';
COMMENT ON COLUMN postbox.outbox.columns IS 'Names of columns that differ from the standard ones: {"aggregate_id": "aggregateid"}';
SELECT pg_catalog.pg_extension_config_dump('postbox.outbox', '');
GRANT SELECT ON postbox.outbox TO PUBLIC;

-- Sessions cache what they know about outboxes, and workers what they know about publications. Whatever changes these
-- tables (a function, a trigger, a restore) tells them when it commits.
CREATE FUNCTION postbox.configuration_changed() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.configuration_changed() IS 'Trigger: tells sessions and workers that the configuration has changed';
REVOKE EXECUTE ON FUNCTION postbox.configuration_changed() FROM PUBLIC;

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON postbox.outbox
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();

CREATE FUNCTION postbox.create_outbox(name text, kind text DEFAULT 'log', retention interval DEFAULT '7 days')
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_outbox(text, text, interval) IS
    'Creates the event table, its indexes and its version counter; the caller needs CREATE on the schema and becomes the owner';

CREATE FUNCTION postbox.adopt_outbox(relation regclass, columns jsonb DEFAULT '{}', retention interval DEFAULT NULL)
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.adopt_outbox(regclass, jsonb, interval) IS
    'Makes an outbox of kind table of a table that exists: finds its columns by their names, common aliases or `columns`, and adds what is missing; for its owner';

CREATE FUNCTION postbox.event_inserted() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.event_inserted() IS 'Trigger of adopted tables: wakes the publishers when the transaction commits';

CREATE FUNCTION postbox.drop_outbox(outbox regclass) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_outbox(regclass) IS
    'Drops an outbox with its events, its version counter and its publications; of an adopted table, everything but the table. For its owner';

-- For the functions below: is this an outbox?
CREATE FUNCTION postbox.require_outbox(outbox regclass) RETURNS postbox.outbox
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_outbox postbox.outbox;
BEGIN
    IF outbox IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'outbox may not be null',
            HINT = 'Name an outbox that postbox.create_outbox made.';
    END IF;
    SELECT * INTO found_outbox FROM postbox.outbox o WHERE o.relation = outbox;
    IF NOT FOUND THEN
        IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = outbox) THEN
            RAISE undefined_table USING
                MESSAGE = format('outbox with OID %s does not exist', outbox::oid),
                DETAIL = 'Its table has been dropped.',
                HINT = 'Create it with postbox.create_outbox.';
        END IF;
        RAISE wrong_object_type USING
            MESSAGE = format('"%s" is not an outbox', outbox),
            HINT = 'Create an outbox with postbox.create_outbox. The outboxes of this database are listed in postbox.outbox.';
    END IF;
    RETURN found_outbox;
END
$$;
COMMENT ON FUNCTION postbox.require_outbox(regclass) IS 'The registration of an outbox; an error if it is none';

-- Columns of an adopted table have names and types of their own. In C++ the same stands in extension/outbox_columns.h.
CREATE FUNCTION postbox.outbox_column(registered postbox.outbox, standard text, alias text DEFAULT '') RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT alias || CASE
        WHEN standard = 'id' THEN quote_ident(name)
        WHEN standard <> 'occurred_at' THEN quote_ident(name) || '::text'
        WHEN a.atttypid = 'timestamp'::regtype THEN quote_ident(name) || ' AT TIME ZONE ''UTC'''
        ELSE quote_ident(name)
    END
    FROM (SELECT coalesce((registered).columns ->> standard, standard)) AS c(name)
    LEFT JOIN pg_attribute a ON a.attrelid = (registered).relation AND a.attname = name AND NOT a.attisdropped
$$;
COMMENT ON FUNCTION postbox.outbox_column(postbox.outbox, text, text) IS 'The expression that reads a column of an outbox, by its standard name';

CREATE FUNCTION postbox.purge_outbox(outbox regclass, batch int DEFAULT 10000) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    keep interval := registered.retention;
    purged bigint;
BEGIN
    IF batch IS NULL OR batch < 1 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'batch must be at least 1',
            HINT = 'It is the largest number of events that one call deletes.';
    END IF;
    IF registered.kind = 'log' THEN
        RETURN postbox.purge_log_outbox(outbox, batch);
    END IF;
    IF keep IS NULL THEN
        RETURN 0;
    END IF;
    -- A discarded event (published_at = -infinity) stays visible for the retention, counted from when it occurred.
    EXECUTE format($sql$
        DELETE FROM %1$s WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM %1$s
            WHERE published_at < $1 AND (published_at <> '-infinity' OR %2$s < $1)
            ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED))
        $sql$, outbox, postbox.outbox_column(registered, 'occurred_at')) USING now() - keep, batch;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$$;
COMMENT ON FUNCTION postbox.purge_outbox(regclass, int) IS
    'Deletes up to `batch` published or discarded events that are older than the retention of the outbox; needs DELETE on it. Of a log outbox it drops whole partitions, which is for the owner. Workers do this by themselves';
-- Emitting events. One function, three types of payload: the third is what an untyped literal resolves to.

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload jsonb,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_jsonb';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, jsonb, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event in the caller''s transaction; it is published after the commit. Needs INSERT on the outbox';

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload bytea,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_bytea';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, bytea, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event whose payload is bytes, for example Protobuf, in the caller''s transaction';

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload text,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_text';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, text, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event whose payload is JSON, given as text, in the caller''s transaction';
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
-- The log outbox: an append-only table in partitions by time, read with a cursor that is a snapshot.
--
-- Its rows are never updated. txid comes before seq, because the transaction id must be assigned before the sequence
-- number is taken: a worker relies on it (worker/publisher/log_position_logic.h).
--
-- Partitions are ranges of the time inside the UUIDv7 of the event, so the id is unique across all of them and retention
-- drops whole partitions. Ids of another kind go into the default partition, which is purged in small batches.

-- The smallest UUIDv7 of a moment: 48 bits of milliseconds since 1970, then nothing.
CREATE FUNCTION postbox.uuid_bound(moment timestamptz) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
COMMENT ON FUNCTION postbox.uuid_bound(timestamptz) IS 'The smallest UUIDv7 of a moment: the bound of a partition';

-- The time that one partition spans: a seventh of the retention, from a minute to a day.
CREATE FUNCTION postbox.partition_span(retention interval) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT make_interval(secs => least(86400, greatest(60, floor(extract(epoch FROM coalesce(retention, '7 days')) / 7 / 60) * 60))::float8)
$$;
COMMENT ON FUNCTION postbox.partition_span(interval) IS 'The time that one partition of a log outbox spans';

CREATE FUNCTION postbox.add_partitions(outbox regclass, ahead int DEFAULT 2) RETURNS int
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span interval := postbox.partition_span((postbox.require_outbox(outbox)).retention);
    seconds float8 := extract(epoch FROM span);
    first timestamptz := to_timestamp(floor(extract(epoch FROM now()) / seconds) * seconds);
    schema name;
    log name;
    part name;
    lower timestamptz;
    added int := 0;
BEGIN
    SELECT n.nspname, c.relname INTO schema, log
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = outbox;
    FOR i IN 0..ahead LOOP
        lower := first + i * span;
        part := log || to_char(lower AT TIME ZONE 'UTC', '_YYYYMMDDHH24MI');
        CONTINUE WHEN to_regclass(format('%I.%I', schema, part)) IS NOT NULL;
        EXECUTE format('CREATE TABLE %I.%I PARTITION OF %I.%I FOR VALUES FROM (%L) TO (%L)',
                       schema, part, schema, log, postbox.uuid_bound(lower), postbox.uuid_bound(lower + span));
        added := added + 1;
    END LOOP;
    RETURN added;
END
$$;
COMMENT ON FUNCTION postbox.add_partitions(regclass, int) IS
    'Adds the partitions of a log outbox for now and the next spans of time; for its owner. Workers do this by themselves';

-- Whether everything in a table that is part of a log outbox has been read by every lane that reads the outbox. A lane
-- that has not begun has read nothing.
CREATE FUNCTION postbox.is_read(outbox regclass, part regclass) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    last_txid xid8;
    last_seq bigint;
BEGIN
    EXECUTE format('SELECT (SELECT txid FROM %1$s ORDER BY txid DESC, seq DESC LIMIT 1), (SELECT max(seq) FROM %1$s)', part)
        INTO last_txid, last_seq;
    RETURN last_seq IS NULL OR NOT EXISTS (
        SELECT FROM postbox.publication p
        CROSS JOIN LATERAL generate_series(0, p.lanes - 1) AS s(slice)
        LEFT JOIN postbox.lane l ON l.publication = p.name AND l.slice = s.slice
        WHERE p.outbox = is_read.outbox
          AND (l.snapshot IS NULL OR (last_seq > l.floor AND
               (l.hwm < last_seq OR pg_snapshot_xmin(l.snapshot) <= last_txid))));
END
$$;
COMMENT ON FUNCTION postbox.is_read(regclass, regclass) IS 'Whether every lane of an outbox has read all rows of one of its partitions';

CREATE FUNCTION postbox.purge_log_outbox(outbox regclass, batch int) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '200ms'
AS $$
DECLARE
    keep interval := (postbox.require_outbox(outbox)).retention;
    rest regclass;
    part record;
    purged bigint;
BEGIN
    -- Who holds a lock that this needs is asked again next time.
    BEGIN
        PERFORM postbox.add_partitions(outbox);
    EXCEPTION WHEN lock_not_available THEN
        NULL;
    END;
    IF keep IS NULL THEN
        RETURN 0;
    END IF;
    FOR part IN
        SELECT c.oid::regclass AS relation, pg_get_expr(c.relpartbound, c.oid) AS bound
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = outbox
    LOOP
        IF part.bound = 'DEFAULT' THEN
            rest := part.relation;
        ELSIF (regexp_match(part.bound, 'TO \(''([-0-9a-f]+)''\)'))[1]::uuid <= postbox.uuid_bound(now() - keep)
              AND postbox.is_read(outbox, part.relation) THEN
            BEGIN
                EXECUTE format('DROP TABLE %s', part.relation);
            EXCEPTION WHEN lock_not_available THEN
                NULL;
            END;
        END IF;
    END LOOP;
    IF rest IS NULL OR NOT postbox.is_read(outbox, rest) THEN
        RETURN 0;
    END IF;
    EXECUTE format('DELETE FROM %1$s WHERE ctid = ANY (ARRAY(SELECT ctid FROM %1$s WHERE occurred_at < $1 LIMIT $2))', rest)
        USING now() - keep, batch;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$$;
COMMENT ON FUNCTION postbox.purge_log_outbox(regclass, int) IS
    'Retention of a log outbox: adds partitions, drops those that are older than the retention and read by every lane, and purges the default partition. A partition that somebody works in is left for the next time';

-- After a restore into another cluster the transaction ids of the old one mean nothing. What some lane had not read is
-- appended again, under new transaction ids; what was read stays as it is, below the floor of every lane.
CREATE FUNCTION postbox.has_read(lane postbox.lane, txid xid8, seq bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (lane).snapshot IS NOT NULL AND (seq <= (lane).floor OR pg_visible_in_snapshot(txid, coalesce(
        (SELECT z.snapshot FROM unnest((lane).zone_upto, (lane).zone_snapshot) AS z(upto, snapshot)
         WHERE z.upto >= seq ORDER BY z.upto LIMIT 1), (lane).snapshot)))
$$;
COMMENT ON FUNCTION postbox.has_read(postbox.lane, xid8, bigint) IS 'Whether a lane has read the row of a log outbox with this txid and seq';

CREATE FUNCTION postbox.rebase_outbox(outbox regclass) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    identifier numeric := (SELECT system_identifier FROM pg_control_system());
    log_sequence text := pg_get_serial_sequence(outbox::text, 'seq');
    reached bigint;
    seen pg_snapshot;
    columns constant text := 'id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at';
    moved bigint;
BEGIN
    PERFORM postbox.require_outbox(outbox);
    -- Nobody emits meanwhile, and whoever has emitted has ended.
    EXECUTE format('LOCK TABLE %s IN SHARE ROW EXCLUSIVE MODE', outbox);
    IF NOT EXISTS (SELECT FROM postbox.lane l JOIN postbox.publication p ON p.name = l.publication
                   WHERE p.outbox = rebase_outbox.outbox AND l.snapshot IS NOT NULL AND l.system_identifier <> identifier) THEN
        RETURN 0;
    END IF;
    reached := coalesce(pg_sequence_last_value(log_sequence::regclass), 0);
    -- Taken before this transaction has an id, so it does not see what is appended below.
    seen := pg_current_snapshot();
    -- What few lanes miss is appended first. Positions follow one another in time, so what a lane misses comes last, and
    -- the lane begins there; and what a lane has read of a key is its beginning, so the order of a key stays.
    EXECUTE format($sql$
        WITH unread AS (
            DELETE FROM %1$s e WHERE EXISTS (
                SELECT FROM postbox.publication p
                LEFT JOIN postbox.lane l ON l.publication = p.name
                      AND l.slice = (hashtextextended(e.aggregate_id COLLATE "C", 0) & 9223372036854775807) %% p.lanes
                WHERE p.outbox = $1 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
                  AND postbox.has_read(l, e.txid, e.seq) IS NOT TRUE)
            RETURNING txid, seq, %2$s
        ), missed AS (
            SELECT u.id, p.name AS publication, l.slice,
                   p.aggregate_types IS NULL OR u.aggregate_type = ANY (p.aggregate_types) AS wanted
            FROM unread u JOIN postbox.publication p ON p.outbox = $1
            LEFT JOIN postbox.lane l ON l.publication = p.name
                  AND l.slice = (hashtextextended(u.aggregate_id COLLATE "C", 0) & 9223372036854775807) %% p.lanes
            WHERE postbox.has_read(l, u.txid, u.seq) IS NOT TRUE
        ), appended AS (
            INSERT INTO %1$s (%2$s)
            SELECT %2$s FROM unread JOIN (SELECT id, count(*) AS lanes FROM missed GROUP BY id) AS m USING (id)
            ORDER BY lanes, unread.seq RETURNING id, seq
        ), first AS (
            SELECT publication, slice, min(seq) - 1 AS floor FROM missed JOIN appended USING (id)
            WHERE wanted GROUP BY publication, slice
        ), begun AS (
            UPDATE postbox.lane l
               SET system_identifier = $2, floor = coalesce(f.floor, a.upto), hwm = coalesce(f.floor, a.upto),
                   snapshot = $4, next_xid = pg_snapshot_xmax($4), zone_upto = NULL, zone_snapshot = NULL,
                   zone_next_xid = NULL, lock_token = NULL
              FROM postbox.lane own JOIN postbox.publication p ON p.name = own.publication
                   LEFT JOIN first f ON f.publication = own.publication AND f.slice = own.slice
                   CROSS JOIN (SELECT coalesce(max(seq), $3) AS upto FROM appended) AS a
             WHERE l.publication = own.publication AND l.slice = own.slice AND p.outbox = $1 AND own.snapshot IS NOT NULL
        ) SELECT count(*) FROM appended
        $sql$, outbox, columns) INTO moved USING outbox, identifier, reached, seen;
    RETURN moved;
END
$$;
COMMENT ON FUNCTION postbox.rebase_outbox(regclass) IS
    'After a restore into another cluster: appends again what some lane of the outbox had not read, and begins each lane before what it had not read. Returns how many events. Workers do this by themselves';
REVOKE EXECUTE ON FUNCTION postbox.rebase_outbox(regclass) FROM PUBLIC;

-- What is not published yet: unread rows and parked ones. A worker stores its position every postbox.checkpoint_interval.
CREATE FUNCTION postbox.log_backlog(outbox regclass, parked_table regclass, publication text,
    OUT unread bigint, OUT parked bigint, OUT oldest interval)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    oldest_unread timestamptz;
    oldest_parked timestamptz;
BEGIN
    EXECUTE format($sql$
        SELECT count(*), min(e.occurred_at)
        FROM postbox.publication p
        CROSS JOIN LATERAL (SELECT coalesce(min(l.hwm), 0) AS hwm FROM postbox.lane l WHERE l.publication = p.name) lowest
        JOIN %1$s e ON e.seq > lowest.hwm AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
        LEFT JOIN postbox.lane l ON l.publication = p.name
              AND l.slice = (hashtextextended(e.aggregate_id COLLATE "C", 0) & 9223372036854775807) %% p.lanes
        WHERE p.name = $1 AND NOT postbox.has_read(l, e.txid, e.seq)
        $sql$, outbox) INTO unread, oldest_unread USING publication;
    EXECUTE format('SELECT count(*), min(occurred_at) FROM %s WHERE publication = $1', parked_table)
        INTO parked, oldest_parked USING publication;
    unread := unread + parked;
    oldest := date_trunc('milliseconds', clock_timestamp() - least(oldest_unread, oldest_parked));
END
$$;
COMMENT ON FUNCTION postbox.log_backlog(regclass, regclass, text) IS 'Events of a log outbox that a publication has not published yet, how many of them are parked, and the age of the oldest';

CREATE FUNCTION postbox.redrive_parked(outbox regclass, event_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    redriven bigint;
BEGIN
    EXECUTE format('UPDATE %s SET next_retry_at = now(), publish_attempts = 0 WHERE publish_attempts > 0 AND ($1 IS NULL OR id = $1)',
                   (postbox.require_outbox(outbox)).parked) USING event_id;
    GET DIAGNOSTICS redriven = ROW_COUNT;
    IF redriven > 0 THEN
        PERFORM postbox.wake_publishers();
    END IF;
    RETURN redriven;
END
$$;
COMMENT ON FUNCTION postbox.redrive_parked(regclass, uuid) IS 'postbox.redrive for a log outbox; needs SELECT and UPDATE on its table of parked events';

CREATE FUNCTION postbox.discard_parked(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    discarded bigint;
BEGIN
    EXECUTE format('DELETE FROM %s WHERE id = $1', (postbox.require_outbox(outbox)).parked) USING event_id;
    GET DIAGNOSTICS discarded = ROW_COUNT;
    IF discarded > 0 THEN
        PERFORM postbox.wake_publishers();
    END IF;
    RETURN discarded > 0;
END
$$;
COMMENT ON FUNCTION postbox.discard_parked(regclass, uuid) IS 'postbox.discard for a log outbox: only a parked event can be discarded; needs SELECT and DELETE on its table of parked events';
-- Inboxes: a consumer's own table of the events it has seen, and the subscriptions' common ground.
--
-- An inbox is two ordinary tables of the consumer: <name> (one row an event: the dedupe key and its
-- outcome) and <name>_tombstone (the version at which a key was deleted). Whoever creates the inbox
-- owns both; what is applied through it runs with the owner's rights (43_apply.sql).

CREATE TABLE postbox.inbox (
    relation regclass PRIMARY KEY,
    tombstone regclass NOT NULL UNIQUE,
    retention interval NOT NULL CHECK (retention > interval '0'),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postbox.inbox IS 'inboxes of this database; written by postbox.create_inbox and postbox.drop_inbox';
COMMENT ON COLUMN postbox.inbox.relation IS 'the inbox table: one row for each event seen';
COMMENT ON COLUMN postbox.inbox.tombstone IS 'versions at which keys of the projections were deleted';
COMMENT ON COLUMN postbox.inbox.retention IS 'how long an event id is remembered; longer than Pub/Sub may deliver it again';

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON postbox.inbox
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();

CREATE FUNCTION postbox.create_inbox(name text, retention interval DEFAULT '14 days') RETURNS regclass
    AS 'MODULE_PATHNAME', 'create_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_inbox(text, interval) IS
    'makes an inbox of that name, owned by the caller; event ids are remembered for the retention';

CREATE FUNCTION postbox.drop_inbox(inbox regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_inbox(regclass) IS
    'drops an inbox with its subscriptions, projections, handlers and dead letters; projected tables stay';

CREATE FUNCTION postbox.purge_inbox(inbox regclass, batch int DEFAULT 10000) RETURNS bigint
    AS 'MODULE_PATHNAME', 'purge_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.purge_inbox(regclass, int) IS
    'deletes at most that many rows older than the retention, tombstones too; returns how many it deleted';

SELECT pg_catalog.pg_extension_config_dump('postbox.inbox', '');
REVOKE ALL ON postbox.inbox FROM PUBLIC;
GRANT SELECT ON postbox.inbox TO PUBLIC;
-- Projections (a table kept up to date from events) and handlers (a function called with the event).

CREATE TABLE postbox.projection (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_types text[] NOT NULL,
    target regclass NOT NULL,
    columns jsonb CHECK (jsonb_typeof(columns) = 'object'),
    key text[] NOT NULL CHECK (cardinality(key) > 0),
    version_column name NOT NULL,
    delete_types text[] NOT NULL DEFAULT '{}'
);
CREATE INDEX projection_inbox ON postbox.projection (inbox);
CREATE INDEX projection_target ON postbox.projection (target);
COMMENT ON TABLE postbox.projection IS 'tables kept up to date from events; written by postbox.create_projection and postbox.drop_projection';
COMMENT ON COLUMN postbox.projection.event_types IS 'the types of the events that are written to the target';
COMMENT ON COLUMN postbox.projection.columns IS 'target column -> where its value comes from; NULL: the JSON field of the column''s name';
COMMENT ON COLUMN postbox.projection.key IS 'the columns that identify a row; they have a unique index';
COMMENT ON COLUMN postbox.projection.version_column IS 'holds the version of the last event; an older one changes nothing';
COMMENT ON COLUMN postbox.projection.delete_types IS 'the types of the events that delete the row';

CREATE TABLE postbox.handler (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_types text[] NOT NULL,
    function text NOT NULL
);
CREATE INDEX handler_inbox ON postbox.handler (inbox);
COMMENT ON TABLE postbox.handler IS 'functions called with events; written by postbox.create_handler and postbox.drop_handler';
COMMENT ON COLUMN postbox.handler.function IS 'signature, as text so that pg_upgrade can carry it over';

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON postbox.handler
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();

CREATE FUNCTION postbox.create_projection(inbox regclass, event_types text[], target regclass,
        columns jsonb DEFAULT NULL, key text[] DEFAULT NULL, version_column name DEFAULT 'version',
        delete_types text[] DEFAULT '{}') RETURNS void
    AS 'MODULE_PATHNAME', 'create_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_projection(regclass, text[], regclass, jsonb, text[], name, text[]) IS
    'keeps the target up to date from events of those types: newer versions overwrite, older ones change nothing, delete_types delete';

CREATE FUNCTION postbox.drop_projection(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_projection(bigint) IS 'stops a projection; its target stays as it is';

CREATE FUNCTION postbox.create_handler(inbox regclass, event_types text[], function regprocedure) RETURNS void
    AS 'MODULE_PATHNAME', 'create_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_handler(regclass, text[], regprocedure) IS
    'calls function(postbox.event), with the rights of the inbox''s owner, once for each event of those types';

CREATE FUNCTION postbox.drop_handler(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_handler(bigint) IS 'stops calling a handler; the function stays';

CREATE FUNCTION postbox.wait_for_version(target regclass, key text, version bigint,
        timeout interval DEFAULT '5s') RETURNS boolean
    AS 'MODULE_PATHNAME', 'wait_for_version' LANGUAGE C;
COMMENT ON FUNCTION postbox.wait_for_version(regclass, text, bigint, interval) IS
    'waits until a projection has that version of the key, or a newer one, or has deleted it; false after the timeout';

SELECT pg_catalog.pg_extension_config_dump('postbox.projection', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.projection_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler_id_seq', '');
REVOKE ALL ON postbox.projection, postbox.handler FROM PUBLIC;
GRANT SELECT ON postbox.projection, postbox.handler TO PUBLIC;
-- Dead letters: events that could not be applied, kept with their payload until somebody acts.
--
-- Everyone sees and may delete the dead letters of the inboxes whose owner he is (or is a member of).

CREATE TABLE postbox.dead_letter (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_id text,
    event_type text,
    aggregate_type text,
    aggregate_id text,
    version bigint,
    payload bytea,
    attributes jsonb,
    occurred_at timestamptz,
    sqlstate text,
    error text,
    failed_at timestamptz NOT NULL DEFAULT now(),
    attempts int NOT NULL DEFAULT 1
);
CREATE INDEX dead_letter_inbox ON postbox.dead_letter (inbox, id);
COMMENT ON TABLE postbox.dead_letter IS 'events that could not be applied; resolve one with postbox.redrive_dead_letter(id), or DELETE it';
COMMENT ON COLUMN postbox.dead_letter.event_id IS 'as it came; NULL if the message had none';
COMMENT ON COLUMN postbox.dead_letter.sqlstate IS 'error code of the last attempt';
COMMENT ON COLUMN postbox.dead_letter.error IS 'message of the last attempt';
COMMENT ON COLUMN postbox.dead_letter.failed_at IS 'time of the last attempt';

CREATE FUNCTION postbox.owns_inbox(inbox regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$ SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = inbox $$;
COMMENT ON FUNCTION postbox.owns_inbox(regclass) IS 'whether the current user has the rights of the inbox''s owner';

ALTER TABLE postbox.dead_letter ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner_of_the_inbox ON postbox.dead_letter USING (postbox.owns_inbox(inbox));
COMMENT ON POLICY owner_of_the_inbox ON postbox.dead_letter IS 'dead letters belong to the owner of their inbox';

CREATE FUNCTION postbox.record_dead_letter(inbox regclass, event postbox.event, sqlstate text, error text,
        attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, postbox.event, text, text, int) IS
    'records an event that its consumer gives up as rejected; duplicate if the inbox has it already';

CREATE FUNCTION postbox.redrive_dead_letter(id bigint) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'redrive_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.redrive_dead_letter(bigint) IS
    'applies a dead letter again and removes it; if it fails again it stays, with the new error';

SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter_id_seq', '');
REVOKE ALL ON postbox.dead_letter FROM PUBLIC;
GRANT SELECT, DELETE ON postbox.dead_letter TO PUBLIC;
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
-- Subscriptions: what `postbox pull` feeds into an inbox, and how.

CREATE TABLE postbox.subscription (
    name text PRIMARY KEY,
    inbox regclass NOT NULL,
    subscription text NOT NULL,
    max_outstanding_messages int NOT NULL DEFAULT 1000,
    max_outstanding_bytes bigint NOT NULL DEFAULT 104857600,
    appliers int NOT NULL DEFAULT 4,
    batch_size int NOT NULL DEFAULT 500,
    batch_delay interval NOT NULL DEFAULT '5ms',
    on_error text NOT NULL DEFAULT 'reject' CHECK (on_error IN ('reject', 'dead_letter_topic', 'nack')),
    max_attempts int NOT NULL DEFAULT 5,
    min_backoff interval NOT NULL DEFAULT '1s',
    max_backoff interval NOT NULL DEFAULT '60s',
    dead_letter_topic text,
    enabled boolean NOT NULL DEFAULT true,
    CHECK (on_error <> 'dead_letter_topic' OR dead_letter_topic IS NOT NULL)
);
CREATE INDEX subscription_inbox ON postbox.subscription (inbox);
COMMENT ON TABLE postbox.subscription IS 'what `postbox pull` feeds into which inbox; written by postbox.create_subscription and postbox.drop_subscription';
COMMENT ON COLUMN postbox.subscription.subscription IS 'Pub/Sub subscription: an id, completed with the project, or a full name';
COMMENT ON COLUMN postbox.subscription.max_outstanding_messages IS 'messages pulled and not yet acknowledged, at most';
COMMENT ON COLUMN postbox.subscription.max_outstanding_bytes IS 'bytes pulled and not yet acknowledged, at most';
COMMENT ON COLUMN postbox.subscription.appliers IS 'connections that apply at the same time; one key is with one of them';
COMMENT ON COLUMN postbox.subscription.batch_size IS 'events of one transaction, at most';
COMMENT ON COLUMN postbox.subscription.batch_delay IS 'how long a batch waits to be full';
COMMENT ON COLUMN postbox.subscription.on_error IS 'what happens to an event that failed max_attempts times: recorded as a dead letter, published to dead_letter_topic, or left to Pub/Sub';
COMMENT ON COLUMN postbox.subscription.min_backoff IS 'delay before the second attempt; doubles up to max_backoff';

CREATE FUNCTION postbox.create_subscription(name text, inbox regclass, subscription text,
        max_outstanding_messages int DEFAULT 1000, max_outstanding_bytes bigint DEFAULT 104857600,
        appliers int DEFAULT 4, batch_size int DEFAULT 500, batch_delay interval DEFAULT '5ms',
        on_error text DEFAULT 'reject', max_attempts int DEFAULT 5, min_backoff interval DEFAULT '1s',
        max_backoff interval DEFAULT '60s', dead_letter_topic text DEFAULT NULL,
        enabled boolean DEFAULT true) RETURNS void
    AS 'MODULE_PATHNAME', 'create_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean) IS
    'lets `postbox pull` feed a Pub/Sub subscription into an inbox';

CREATE FUNCTION postbox.drop_subscription(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_subscription(text) IS
    'stops feeding the inbox; the Pub/Sub subscription itself stays';

SELECT pg_catalog.pg_extension_config_dump('postbox.subscription', '');
REVOKE ALL ON postbox.subscription FROM PUBLIC;
GRANT SELECT ON postbox.subscription TO PUBLIC;
REVOKE ALL ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean) FROM PUBLIC;
-- Who publishes.

CREATE FUNCTION postbox.list_workers(
    OUT database_id oid, OUT pid int, OUT ordinal int, OUT state text, OUT lock_token text, OUT started_at timestamptz)
    RETURNS SETOF record
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.list_workers() IS
    'The publisher workers of the whole server, as postbox.workers shows them; none when postbox is not in shared_preload_libraries';
REVOKE EXECUTE ON FUNCTION postbox.list_workers() FROM PUBLIC;
GRANT EXECUTE ON FUNCTION postbox.list_workers() TO pg_monitor;

CREATE VIEW postbox.workers AS
    SELECT w.pid, d.datname AS database, w.ordinal, w.state, w.lock_token, w.started_at
    FROM postbox.list_workers() w LEFT JOIN pg_catalog.pg_database d ON d.oid = w.database_id;
COMMENT ON VIEW postbox.workers IS
    'The publisher workers of the whole server: process, database, starting or running, and the lock_token that stands in the outbox rows a worker has claimed. For members of pg_monitor';
GRANT SELECT ON postbox.workers TO pg_monitor;
-- What refers to an outbox, a publication or an inbox goes with it. These are triggers and not foreign keys, because a
-- restore by several processes (pg_restore --jobs) fills the tables of an extension in any order.

CREATE FUNCTION postbox.delete_dependents() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'outbox' THEN
            DELETE FROM postbox.publication p WHERE p.outbox = OLD.relation;
        WHEN 'publication' THEN
            DELETE FROM postbox.lane l WHERE l.publication = OLD.name;
        WHEN 'inbox' THEN
            DELETE FROM postbox.subscription s WHERE s.inbox = OLD.relation;
            DELETE FROM postbox.projection p WHERE p.inbox = OLD.relation;
            DELETE FROM postbox.handler h WHERE h.inbox = OLD.relation;
            DELETE FROM postbox.dead_letter d WHERE d.inbox = OLD.relation;
    END CASE;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION postbox.delete_dependents() IS 'Trigger: deletes what refers to the deleted outbox, publication or inbox';
REVOKE EXECUTE ON FUNCTION postbox.delete_dependents() FROM PUBLIC;

CREATE TRIGGER deleted AFTER DELETE ON postbox.outbox FOR EACH ROW EXECUTE FUNCTION postbox.delete_dependents();
CREATE TRIGGER deleted AFTER DELETE ON postbox.publication FOR EACH ROW EXECUTE FUNCTION postbox.delete_dependents();
CREATE TRIGGER deleted AFTER DELETE ON postbox.inbox FOR EACH ROW EXECUTE FUNCTION postbox.delete_dependents();

-- What must follow when a user drops with plain DROP TABLE, DROP SCHEMA or DROP OWNED what Postbox has registered.

CREATE FUNCTION postbox.forget_dropped() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    dropped oid[];
    orphan regclass;
BEGIN
    SELECT array_agg(d.objid) INTO dropped FROM pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0;
    IF dropped IS NULL THEN
        RETURN;
    END IF;
    -- The counter of an outbox and the tombstones of an inbox are of no use without it.
    FOR orphan IN
        WITH outboxes AS (
            DELETE FROM postbox.outbox o WHERE o.relation = ANY (dropped) RETURNING o.counter, o.parked
        ), inboxes AS (
            DELETE FROM postbox.inbox i WHERE i.relation = ANY (dropped) RETURNING i.tombstone
        )
        SELECT counter FROM outboxes UNION ALL SELECT parked FROM outboxes UNION ALL SELECT tombstone FROM inboxes
    LOOP
        IF EXISTS (SELECT FROM pg_class c WHERE c.oid = orphan) THEN
            EXECUTE format('DROP TABLE %s', orphan);
        END IF;
    END LOOP;
    DELETE FROM postbox.projection p WHERE p.target = ANY (dropped);
END
$$;
COMMENT ON FUNCTION postbox.forget_dropped() IS 'Event trigger: removes the registration of dropped outboxes, inboxes and projection targets';

CREATE EVENT TRIGGER postbox_forget_dropped ON sql_drop EXECUTE FUNCTION postbox.forget_dropped();
COMMENT ON EVENT TRIGGER postbox_forget_dropped IS 'Removes the registration of dropped outboxes, inboxes and projection targets';
