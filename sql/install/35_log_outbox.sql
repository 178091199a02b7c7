-- The log outbox: an append-only table, partitioned by time. A worker reads it with a cursor made of snapshots
-- (worker/publisher/base/log_position_logic.h).
--
-- Rows are never updated. The column txid comes before seq, so the transaction id is assigned before the sequence
-- number is taken. The cursor relies on this order.
--
-- Partitions are ranges of the time inside the UUIDv7 of the event. So the id is unique across all partitions, and
-- retention drops whole partitions. Ids of another kind go into the default partition, which is purged in small
-- batches.

-- The first 48 bits of a UUIDv7 are milliseconds since 1970. All other bits are zero here.
CREATE FUNCTION postbox.uuid_bound(moment timestamptz) RETURNS uuid
    LANGUAGE sql IMMUTABLE STRICT PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (lpad(to_hex(floor(extract(epoch FROM moment) * 1000)::bigint), 12, '0') || repeat('0', 20))::uuid
$$;
COMMENT ON FUNCTION postbox.uuid_bound(timestamptz) IS 'The smallest UUIDv7 of a moment: the bound of a partition';

-- A seventh of the retention in whole minutes, but at least a minute and at most a day. NULL counts as 7 days.
CREATE FUNCTION postbox.partition_span(retention interval) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT make_interval(secs => least(86400, greatest(60, floor(extract(epoch FROM coalesce(retention, '7 days')) / 7 / 60) * 60))::float8)
$$;
COMMENT ON FUNCTION postbox.partition_span(interval) IS 'The time that one partition of a log outbox spans';

CREATE FUNCTION postbox.make_partitions(outbox regclass, ahead int) RETURNS int
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
COMMENT ON FUNCTION postbox.make_partitions(regclass, int) IS 'postbox.add_partitions with the rights of the current user';

CREATE FUNCTION postbox.add_partitions(outbox regclass, ahead int DEFAULT 2) RETURNS int
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.add_partitions(regclass, int) IS
    'Adds the missing partitions of a log outbox for now and the next `ahead` spans of time; returns how many. For its owner. '
    'Workers call it regularly';

-- A lane that has not begun has read nothing. No lane reads a row that has no seq, or one that the sequence never gives out.
CREATE FUNCTION postbox.is_read(outbox regclass, part regclass) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    last_txid xid8;
    last_seq bigint;
    misplaced boolean;
BEGIN
    EXECUTE format('SELECT EXISTS (SELECT FROM %1$s WHERE seq IS NULL) OR EXISTS (SELECT FROM %1$s WHERE seq < 1)', part)
        INTO misplaced;
    IF misplaced THEN
        RETURN false;
    END IF;
    EXECUTE format('SELECT (SELECT txid FROM %1$s WHERE txid IS NOT NULL ORDER BY txid DESC, seq DESC LIMIT 1), (SELECT max(seq) FROM %1$s)', part)
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
    -- A lock that cannot be had within lock_timeout is left for the next call, here and below.
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
    'postbox.purge_outbox for a log outbox: adds partitions, drops those older than the retention that every lane has read, '
    'and deletes up to `batch` such rows of the default partition. Skips partitions that are locked';

-- A lane that does not exist or has not begun has read nothing.
CREATE FUNCTION postbox.has_read(lane postbox.lane_progress, txid xid8, seq bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (lane).snapshot IS NOT NULL AND (seq <= (lane).floor OR seq <= (lane).hwm AND pg_visible_in_snapshot(txid, coalesce(
        (SELECT z.snapshot FROM unnest((lane).zone_upto, (lane).zone_snapshot) AS z(upto, snapshot)
         WHERE z.upto >= seq ORDER BY z.upto LIMIT 1), (lane).snapshot)))
$$;
COMMENT ON FUNCTION postbox.has_read(postbox.lane_progress, xid8, bigint) IS 'Whether a lane has read the row of a log outbox with this txid and seq';

CREATE FUNCTION postbox.rebase_outbox(outbox regclass) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.rebase_outbox(regclass) IS
    'After a restore into another cluster: appends the events again that some lane has not read, and moves each lane before '
    'the first of its own. Returns how many events. Workers call it when they need it';
REVOKE EXECUTE ON FUNCTION postbox.rebase_outbox(regclass) FROM PUBLIC;

-- What is unread is judged by the stored positions of the lanes, which workers write every postbox.checkpoint_interval.
-- So an event that was just published may still count. `unread` includes the parked events.
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
        SELECT count(*), min(e.occurred_at) FILTER (WHERE isfinite(e.occurred_at))
        FROM postbox.publication p
        CROSS JOIN LATERAL (SELECT coalesce(min(l.hwm), 0) AS hwm FROM postbox.lane l WHERE l.publication = p.name) lowest
        JOIN %1$s e ON e.seq > lowest.hwm AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
        LEFT JOIN postbox.lane_progress l ON l.publication = p.name AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
        WHERE p.name = $1 AND postbox.has_read(l, e.txid, e.seq) IS NOT TRUE
        $sql$, outbox) INTO unread, oldest_unread USING publication;
    -- No lane reads these; see postbox.misplaced_rows.
    EXECUTE format('SELECT $1 + (SELECT count(*) FROM %1$s WHERE seq < 1) + (SELECT count(*) FROM %1$s WHERE seq IS NULL)', outbox)
        INTO unread USING unread;
    EXECUTE format('SELECT count(*), min(occurred_at) FROM %s WHERE publication = $1', parked_table)
        INTO parked, oldest_parked USING publication;
    unread := unread + parked;
    oldest := date_trunc('milliseconds', clock_timestamp() - least(oldest_unread, oldest_parked));
END
$$;
COMMENT ON FUNCTION postbox.log_backlog(regclass, regclass, text) IS
    'Events of a log outbox that a publication has not published: how many, how many are parked, and the age of the oldest';

-- Whoever may INSERT can write any seq. A row with one that the sequence has not given out is not read before the sequence
-- comes to it. The sequence is read after the snapshot of the query, so no honest row is above it.
CREATE FUNCTION postbox.misplaced_rows(outbox regclass) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    misplaced bigint;
BEGIN
    EXECUTE format($sql$
        SELECT (SELECT count(*) FROM %1$s WHERE seq > (SELECT coalesce(pg_sequence_last_value(postbox.log_sequence($1)), 0)))
             + (SELECT count(*) FROM %1$s WHERE seq < 1) + (SELECT count(*) FROM %1$s WHERE seq IS NULL)
        $sql$, outbox) INTO misplaced USING outbox;
    RETURN misplaced;
END
$$;
COMMENT ON FUNCTION postbox.misplaced_rows(regclass) IS
    'How many rows of a log outbox have no seq, or one that its sequence has not given out';

CREATE FUNCTION postbox.log_sequence(outbox regclass) RETURNS regclass
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.oid::regclass FROM pg_depend d JOIN pg_class c ON c.oid = d.objid
    WHERE d.classid = 'pg_class'::regclass AND d.refclassid = 'pg_class'::regclass AND d.refobjid = outbox
      AND d.refobjsubid > 0 AND c.relkind = 'S' ORDER BY d.refobjsubid, c.oid LIMIT 1
$$;
COMMENT ON FUNCTION postbox.log_sequence(regclass) IS
    'The sequence of a log outbox, whatever the column that owns it is called now; NULL if there is none';

CREATE FUNCTION postbox.redrive_parked(outbox regclass, event_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    redriven bigint;
BEGIN
    EXECUTE format('UPDATE %s SET next_retry_at = now(), publish_attempts = 0 WHERE (publish_attempts > 0 '
                   'OR next_retry_at <> ''infinity'' AND next_retry_at > now()) %s',
                   (postbox.require_outbox(outbox)).parked,
                   CASE WHEN event_id IS NOT NULL THEN
                       'AND publication = ANY (ARRAY(SELECT p.name FROM postbox.publication p WHERE p.outbox = $2)) AND id = $1' END)
        USING event_id, outbox;
    GET DIAGNOSTICS redriven = ROW_COUNT;
    IF redriven > 0 THEN
        PERFORM postbox.wake_publishers();
    END IF;
    RETURN redriven;
END
$$;
COMMENT ON FUNCTION postbox.redrive_parked(regclass, uuid) IS
    'postbox.redrive for a log outbox. Needs SELECT and UPDATE on its table of parked events';

CREATE FUNCTION postbox.discard_parked(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parked regclass := (postbox.require_outbox(outbox)).parked;
    publications text[];
    keys text[];
BEGIN
    EXECUTE format($sql$
        WITH discarded AS (
            DELETE FROM %s WHERE publication = ANY (ARRAY(SELECT p.name FROM postbox.publication p WHERE p.outbox = $2)) AND id = $1
            RETURNING publication, aggregate_id)
        SELECT array_agg(publication), array_agg(aggregate_id) FROM discarded
        $sql$, parked) INTO publications, keys USING event_id, outbox;
    IF keys IS NULL THEN
        RETURN false;
    END IF;
    -- In a statement of its own, which sees what a worker has parked behind the event before it was deleted here. The next
    -- event of the key is due now, and those behind it follow.
    EXECUTE format($sql$
        UPDATE %1$s SET next_retry_at = now()
        WHERE ctid = ANY (ARRAY(
            SELECT h.tid FROM unnest($1, $2) AS k(publication, key) CROSS JOIN LATERAL (
                SELECT e.ctid AS tid FROM %1$s e WHERE e.publication = k.publication AND e.aggregate_id = k.key
                ORDER BY e.publication, e.aggregate_id, e.seq LIMIT 1) h))
          AND next_retry_at = 'infinity' AND publish_attempts = 0
        $sql$, parked) USING publications, keys;
    PERFORM postbox.wake_publishers();
    RETURN true;
END
$$;
COMMENT ON FUNCTION postbox.discard_parked(regclass, uuid) IS
    'postbox.discard for a log outbox, where only a parked event can be discarded. Needs SELECT, UPDATE and DELETE on its '
    'table of parked events';
