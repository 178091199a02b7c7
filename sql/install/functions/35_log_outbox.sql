-- The log outbox: an append-only table, partitioned by generation. A worker reads it with a cursor made of snapshots
-- (worker/publisher/store/log_position_logic.h).
--
-- Rows are never updated. The column txid comes before seq, so the transaction id is assigned before the sequence
-- number is taken. The cursor relies on this order.
--
-- Retention. The default of the column generation is a number from 0 to 5 that follows from the time at which the
-- transaction began: each is written to for a quarter of the retention, in turn. Each has a partition, made with the
-- outbox. The retention touches five generations at most, so one at least is past it, and its partition is emptied.
--   - Rule: TRUNCATE only under the lock of the partition, and only if under this lock every lane of every publication
--     has read all of its rows. A transaction that has inserted into it holds its lock until it ends, so no row can be
--     committed between the check and the TRUNCATE.
--   - A partition that cannot be emptied in its turn (a row is unread, no publication reads the outbox, the partition is
--     locked, no worker runs) stays. New rows join it when its turn comes again, and it is emptied in a later turn.
--   - So no partition has to be created ahead of time, and nothing depends on the ids of events.
--   - A retention of more than four spans needs a longer span (alter_outbox), which assigns other partitions to the same times. So
--     nothing is emptied until all events from before the change are past the retention. No transaction has inserted by the old
--     span and commits later: the change of the default waits for it.
--
-- Transaction ids mean nothing in another cluster, and rows of both meet in one log there: restored ones, and those emitted
-- since. The column origin says which cluster a row was written in; see extension/registry/foreign_events.cc.

-- At least a minute: workers purge every postbox.maintenance_interval, and find each generation past the retention in its
-- turn. NULL counts as 4 days.
CREATE OR REPLACE FUNCTION postbox.generation_span(retention interval) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT make_interval(secs => least(2000000000, greatest(60, ceil(extract(epoch FROM coalesce(retention, '4 days')) / 4)))::float8)
$$;
COMMENT ON FUNCTION postbox.generation_span(interval) IS 'Internal: how long a generation of a log outbox is written to: a quarter of the retention, at least a minute.';

-- In C because each plain INSERT evaluates it, and outbox_emit sets up its evaluation for each event.
CREATE OR REPLACE FUNCTION postbox.generation_of(moment timestamptz, span int) RETURNS smallint
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.generation_of(timestamptz, int) IS
    'Internal: the generation of a point in time, in a log outbox whose generations are written to for `span` seconds each.';

CREATE OR REPLACE FUNCTION postbox.generation_expression(span interval, moment text DEFAULT 'now()') RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('postbox.generation_of(%s, %s)', moment, extract(epoch FROM span)::int)
$$;
COMMENT ON FUNCTION postbox.generation_expression(interval, text) IS 'Internal: the SQL expression for the generation of a point in time, for a log outbox with this span.';

CREATE OR REPLACE FUNCTION postbox.add_missing_partitions(outbox regclass) RETURNS int
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part regclass;
    added int := 0;
BEGIN
    -- Without its partition no event could be emitted in the turn of a generation.
    FOR part IN SELECT postbox.add_partitions(outbox, 6, '(PRIMARY KEY (id))') LOOP
        PERFORM postbox.add_stamp_trigger(part);
        added := added + 1;
    END LOOP;
    RETURN added;
END
$$;
COMMENT ON FUNCTION postbox.add_missing_partitions(regclass) IS 'Internal: postbox.make_partitions with the rights of the current user, who must be the owner of the log outbox.';

CREATE OR REPLACE FUNCTION postbox.make_partitions(outbox regclass) RETURNS int
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.make_partitions(regclass) IS 'Internal: creates the partitions of a log outbox that are missing, as its owner, and returns how many.';

-- Transaction ids of another cluster say nothing here: a lane that has yet to be re-based has read nothing.
CREATE OR REPLACE FUNCTION postbox.read_by_all(outbox regclass, OUT floor bigint, OUT hwm bigint, OUT xmin xid8)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT min(l.floor), min(l.hwm), (array_agg(pg_snapshot_xmin(l.snapshot) ORDER BY pg_snapshot_xmin(l.snapshot)))[1]
    FROM postbox.publication p
    CROSS JOIN LATERAL generate_series(0, p.lanes - 1) AS s(slice)
    LEFT JOIN postbox.lane l ON l.publication = p.name AND l.slice = s.slice
    WHERE p.outbox = read_by_all.outbox
    HAVING bool_and(l.snapshot IS NOT NULL AND postbox.origin_of(l.system_identifier) = postbox.cluster_origin())
$$;
COMMENT ON FUNCTION postbox.read_by_all(regclass) IS
    'Internal: what all lanes of a log outbox have read of the rows of this cluster: seq up to floor, or up to hwm with txid below xmin; NULL if a lane, or every '
    'publication, is missing.';

-- No lane reads a row that has no seq, or one that the sequence never gives out. An event that cannot be published as it
-- is stays in the log when it is parked; see worker/publisher/source/log/parked_events.h.
CREATE OR REPLACE FUNCTION postbox.is_read(outbox regclass, part regclass) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parked regclass := (postbox.require_outbox(outbox)).parked;
    floor bigint;
    hwm bigint;
    xmin xid8;
    unread boolean;
BEGIN
    SELECT r.floor, r.hwm, r.xmin INTO floor, hwm, xmin FROM postbox.read_by_all(outbox) r;
    IF floor IS NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO unread;
        RETURN NOT unread;
    END IF;
    EXECUTE format($sql$
        SELECT coalesce((SELECT max(seq) FROM %1$s WHERE origin = $4) > greatest($1, $2), false)
            OR coalesce((SELECT txid FROM %1$s WHERE origin = $4 AND seq > $1 AND txid IS NOT NULL ORDER BY txid DESC, seq DESC LIMIT 1) >= $3, false)
        $sql$, part) INTO unread USING floor, hwm, xmin, postbox.cluster_origin();
    unread := unread OR postbox.has_unsettled(outbox, part) OR EXISTS (SELECT FROM postbox.foreign_origins(outbox, part) f WHERE NOT f.known);
    IF unread THEN
        RETURN false;
    END IF;
    EXECUTE format($sql$
        SELECT EXISTS (SELECT FROM %1$s WHERE origin = $1 AND seq IS NULL) OR EXISTS (SELECT FROM %1$s WHERE origin = $1 AND seq < 1)
            OR EXISTS (SELECT FROM %2$s p JOIN %1$s e ON e.seq = p.seq AND e.id = p.id WHERE p.unreadable)
        $sql$, part, parked) INTO unread USING postbox.cluster_origin();
    RETURN NOT unread;
END
$$;
COMMENT ON FUNCTION postbox.is_read(regclass, regclass) IS
    'Internal: whether every lane of an outbox has read all rows of one of its partitions; false if no publication reads the outbox.';

CREATE OR REPLACE FUNCTION postbox.past_retention(registered postbox.outbox) RETURNS SETOF regclass
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    oldest timestamptz := clock_timestamp() - registered.retention;
    retained smallint[];
BEGIN
    -- Earlier events are in other partitions than the present span says.
    IF registered.retention IS NULL OR registered.generations_since > oldest THEN
        RETURN;
    END IF;
    EXECUTE format('SELECT array_agg(%s) FROM (SELECT generate_series($1, $2, $3) UNION ALL SELECT $2) AS t(moment)',
                   postbox.generation_expression(registered.generation_span, 'moment'))
        INTO retained USING oldest, clock_timestamp(), registered.generation_span;
    RETURN QUERY SELECT p.part FROM postbox.generation_partitions(registered.relation) p WHERE p.generation <> ALL (retained) ORDER BY p.part;
END
$$;
COMMENT ON FUNCTION postbox.past_retention(postbox.outbox) IS 'Internal: the partitions of a log outbox whose events are older than the retention.';

CREATE OR REPLACE FUNCTION postbox.purge_log_outbox(outbox regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '200ms'
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
BEGIN
    IF current_setting('transaction_isolation') NOT LIKE 'read %committed' THEN
        RAISE invalid_transaction_state USING
            MESSAGE = 'purge_outbox needs isolation level READ COMMITTED for a log outbox',
            DETAIL = 'An older snapshot does not show events that were committed since.';
    END IF;
    -- What is locked for longer than lock_timeout is left for the next call, here and in empty_partition.
    BEGIN
        PERFORM postbox.make_partitions(outbox);
    EXCEPTION WHEN lock_not_available THEN
        NULL;
    END;
    IF registered.retention IS NULL OR row_security_active(registered.parked) THEN
        RETURN;
    END IF;
    PERFORM postbox.empty_partition(part, format('postbox.is_read(%L, %L)', registered.relation, part)) FROM postbox.past_retention(registered) AS part;
END
$$;
COMMENT ON FUNCTION postbox.purge_log_outbox(regclass) IS 'Internal: postbox.purge_outbox for a log outbox.';

CREATE OR REPLACE FUNCTION postbox.retention_problem(outbox regclass) RETURNS postbox.problem
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    published boolean := EXISTS (SELECT FROM postbox.publication p WHERE p.outbox = retention_problem.outbox);
    part regclass;
    kept boolean;
    problem postbox.problem := ROW('retention', 'warning', outbox, NULL, NULL);
BEGIN
    IF registered.kind <> 'log' THEN
        RETURN NULL;
    END IF;
    IF published AND EXISTS (SELECT FROM postbox.foreign_origins(outbox, outbox) f WHERE NOT f.known) THEN
        RETURN coalesce(postbox.replicated_problem(outbox), ROW('unknown_origin', 'warning', outbox,
            'events of another cluster are kept: the positions of its lanes are not known, so it is not known whether they were published',
            format('restore postbox.lane, or run SELECT postbox.resolve_unknown_origin(%L, true) if they were, false if not', outbox))::postbox.problem);
    END IF;
    IF registered.retention IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT format('events older than the retention are kept: row security is forced on the owner of %s', r.relation),
           format('run ALTER TABLE %s NO FORCE ROW LEVEL SECURITY', r.relation)
        INTO problem.detail, problem.remedy
    FROM (SELECT registered.parked UNION ALL SELECT p.part FROM postbox.generation_partitions(outbox) p) AS r(relation)
    WHERE row_security_active(r.relation)
    ORDER BY r.relation::text LIMIT 1;
    IF FOUND THEN
        RETURN problem;
    END IF;
    SELECT format('events older than the retention are kept: %s cannot be emptied, because foreign key %I of %s references it',
                  c.confrelid::regclass, c.conname, c.conrelid::regclass),
           format('run ALTER TABLE %s DROP CONSTRAINT %I', c.conrelid::regclass, c.conname)
        INTO problem.detail, problem.remedy
    FROM pg_constraint c
    WHERE c.contype = 'f' AND c.confrelid IN (SELECT outbox UNION ALL SELECT p.part FROM postbox.generation_partitions(outbox) p)
    ORDER BY c.confrelid::regclass::text, c.conname LIMIT 1;
    IF FOUND THEN
        RETURN problem;
    END IF;
    FOR part IN SELECT postbox.past_retention(registered) LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO kept;
        kept := kept AND NOT postbox.is_read(outbox, part);
        EXIT WHEN kept;
    END LOOP;
    IF kept IS NOT TRUE THEN
        RETURN NULL;
    ELSIF published THEN
        problem.detail := 'events older than the retention are kept: a publication has not read all of them, or they include a row with an invalid seq or an unreadable parked event';
        problem.remedy := 'see postbox.publication_status and postbox.paused_keys';
    ELSE
        problem.detail := 'events older than the retention are kept: no publication reads this outbox';
        problem.remedy := 'create a publication with postbox.create_publication, or drop the outbox';
    END IF;
    RETURN problem;
END
$$;
COMMENT ON FUNCTION postbox.retention_problem(regclass) IS
    'Internal: why a log outbox keeps events that are older than its retention, or events of another cluster, with the rights of the current user; NULL if it does not.';

CREATE OR REPLACE FUNCTION postbox.show_retention_problem(outbox regclass) RETURNS postbox.problem
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_retention_problem(regclass) IS 'Internal: postbox.retention_problem, run as the owner of the outbox; NULL if the caller may not see its events.';

CREATE OR REPLACE FUNCTION postbox.list_outbox_status()
    RETURNS TABLE (outbox regclass, kind text, retention interval, publications bigint, problem text, remedy text)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    registered postbox.outbox;
    code text;
    found_problem postbox.problem;
BEGIN
    FOR registered IN SELECT o.* FROM postbox.outbox o ORDER BY o.relation LOOP
        outbox := registered.relation;
        kind := registered.kind;
        retention := registered.retention;
        SELECT count(*) INTO publications FROM postbox.publication p WHERE p.outbox = registered.relation;
        found_problem := coalesce(postbox.outbox_problem(registered), postbox.unlogged_problem(registered.relation, registered.parked, registered.counter));
        code := CASE WHEN kind = 'log' THEN postbox.code_of_users(outbox, registered.parked) END;
        IF found_problem IS NULL AND code IS NOT NULL THEN
            found_problem.detail := 'the retention is not checked: ' || code;
            found_problem.remedy := 'let the owner drop that code';
        ELSIF found_problem IS NULL THEN
            -- An outbox that cannot be read does not hide or delay the others.
            BEGIN
                found_problem := postbox.show_retention_problem(outbox);
            EXCEPTION
                WHEN lock_not_available THEN
                    found_problem.detail := format('the outbox cannot be read: %s', postbox.lock_holders(registered));
                    found_problem.remedy := 'wait until its transaction ends, or end it with pg_terminate_backend';
                WHEN OTHERS THEN
                    found_problem.detail := format('the outbox cannot be read: %s', SQLERRM);
            END;
        END IF;
        problem := found_problem.detail;
        remedy := found_problem.remedy;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.list_outbox_status() IS 'Internal: the rows of postbox.outbox_status.';

CREATE OR REPLACE VIEW postbox.outbox_status AS SELECT * FROM postbox.list_outbox_status();
COMMENT ON VIEW postbox.outbox_status IS
$$One row for each outbox.

Rights: SELECT, which PUBLIC has. Why an outbox keeps events is shown to roles that may read it, and to members of `postbox_operator` and `pg_monitor`; what is wrong
  with its tables is shown to all.$$;
COMMENT ON COLUMN postbox.outbox_status.outbox IS 'The event table';
COMMENT ON COLUMN postbox.outbox_status.kind IS 'log or table';
COMMENT ON COLUMN postbox.outbox_status.retention IS 'How long published events are kept; NULL: forever';
COMMENT ON COLUMN postbox.outbox_status.publications IS 'How many publications read it';
COMMENT ON COLUMN postbox.outbox_status.problem IS
    'What is wrong with its tables, which of them is UNLOGGED, or why it keeps events that are older than the retention or of another cluster. NULL if nothing is wrong, '
    'or the caller may not read the outbox. See Troubleshooting';
COMMENT ON COLUMN postbox.outbox_status.remedy IS 'What to do, with the statement that does it; NULL if that depends on the cause';

-- Events of another cluster that are not settled yet.
CREATE OR REPLACE FUNCTION postbox.foreign_backlog(outbox regclass, publication text, OUT unread bigint, OUT oldest timestamptz)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    cluster record;
BEGIN
    unread := 0;
    FOR cluster IN SELECT f.* FROM postbox.foreign_origins(outbox, outbox) f WHERE f.known LOOP
        EXECUTE format($sql$
            SELECT $1 + count(*), least($2, min(e.occurred_at) FILTER (WHERE isfinite(e.occurred_at)))
            FROM %1$s e JOIN postbox.publication p ON p.name = $3 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
            JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $4
             AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
            WHERE e.origin = $4 AND e.seq = ANY ($5) AND postbox.has_read(l, e.txid, e.seq) IS NOT TRUE
            $sql$, outbox) INTO unread, oldest
            USING unread, oldest, publication, cluster.origin,
                  postbox.foreign_unread(outbox, outbox, cluster.origin, cluster.hwm, cluster.xmin, cluster.next_xid, 100000);
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.foreign_backlog(regclass, text) IS
    'Internal: how many events of other clusters in a log outbox a publication has not published, up to 100000 for each cluster, and when the oldest occurred.';

-- In C, because it is called often, and its statements are kept (extension/registry/backlog.cc). A misplaced row has a seq that no
-- worker reads: the owner wrote it while the trigger postbox_stamp did not fire.
CREATE OR REPLACE FUNCTION postbox.count_backlog(publication text, OUT ready bigint, OUT parked bigint, OUT delayed bigint,
    OUT oldest_ready timestamptz, OUT oldest_parked timestamptz, OUT misplaced bigint, OUT has_foreign boolean)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.count_backlog(text) IS
    'Internal: the backlog of a publication with the rights of the current user: ready and parked events, their oldest, rows whose seq no worker reads, and whether there '
    'may be events of other clusters.';

CREATE OR REPLACE FUNCTION postbox.log_sequence(outbox regclass) RETURNS regclass
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.log_sequence(regclass) IS 'Internal: the sequence of a log outbox, whatever the column that owns it is called; NULL if there is none.';
