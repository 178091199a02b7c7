-- The only definition of a lane's hash; workers use it, too. It depends on nothing but the bytes of the key and
-- Postgres's own hash function. The planner inlines the function, so it costs no call per row. A function with a SET
-- clause would not be inlined. This one needs none: its names are bound when it is created, so no search_path changes
-- them. 0 lanes raise division_by_zero.
CREATE OR REPLACE FUNCTION postbox.lane_slice(aggregate_id text, lanes int) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((pg_catalog.hashtextextended(aggregate_id COLLATE "C", 0::bigint) & 9223372036854775807) % lanes::bigint)::int;
COMMENT ON FUNCTION postbox.lane_slice(text, int) IS 'The lane of a key: 0 to lanes - 1, by a hash of the key';

CREATE OR REPLACE FUNCTION postbox.create_publication(
    name text, outbox regclass, topic text, aggregate_types text[] DEFAULT NULL,
    ordering text DEFAULT 'key', lanes int DEFAULT 1, max_attempts int DEFAULT 5,
    base_backoff interval DEFAULT '10s', max_backoff interval DEFAULT '10min', on_failure text DEFAULT 'park_key',
    start text DEFAULT 'beginning', credential text DEFAULT NULL)
    RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text, text, text) IS
    'Publishes the events of an outbox to a topic. `start` says with which it begins: those that are in the outbox already (beginning), those that are '
    'committed from now on (now), or, of a log, those from the first on that occurred at a time or later (a timestamp). `credential` is the identity with which it '
    'publishes, see create_credential; NULL is that of the server''s environment. For the owner of the outbox; needs EXECUTE, which PUBLIC does not have';

CREATE OR REPLACE FUNCTION postbox.alter_publication(
    name text, topic text DEFAULT NULL, aggregate_types text[] DEFAULT NULL, max_attempts int DEFAULT NULL,
    base_backoff interval DEFAULT NULL, max_backoff interval DEFAULT NULL, on_failure text DEFAULT NULL,
    ordering text DEFAULT NULL, lanes int DEFAULT NULL, credential text DEFAULT NULL)
    RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_publication(text, text, text[], int, interval, interval, text, text, int, text) IS
    'Changes a publication where it stands: nothing is left out, and what was published is not sent again. NULL leaves a property unchanged; '
    'aggregate_types => ''{}'' publishes all types. Another number of lanes takes effect as soon as workers have divided the keys anew; if it is no multiple '
    'of the one before, when fewer than 1000 events wait. credential => '''' goes back to the identity of the server''s environment. For the owner of the outbox; needs EXECUTE, which PUBLIC does not have';

CREATE OR REPLACE FUNCTION postbox.resume_publication(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.resume_publication(text) IS
    'Tries a suspended publication at once, which workers do by themselves every 4 s at least. For the owner of the outbox, and for members of postbox_operator';

CREATE OR REPLACE FUNCTION postbox.drop_publication(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_publication(text) IS
    'Drops a publication; its events stay in the outbox. For the owner of the outbox';

CREATE OR REPLACE FUNCTION postbox.check_topic_name(topic text) RETURNS void
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.check_topic_name(text) IS
    'Raises an error if Pub/Sub would refuse the name, and a warning if it is not <domain>.<aggregate>.<category>';

CREATE OR REPLACE FUNCTION postbox.wake_publishers() RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.wake_publishers() IS 'Wakes the publishers of this database when the transaction commits';

-- An event that is not published is in one of these states, in a row of a table outbox, or of the table of parked events of a log
-- (worker/publisher/delivery/parked_queue.h). Only a table's row is PENDING or INFLIGHT: there, lock_token is NULL in all other states, and
-- without meaning where an application has written one into a row that is FAILED or BEHIND.
--   PENDING   next_retry_at IS NULL
--   INFLIGHT  lock_token IS NOT NULL, next_retry_at is NULL or -infinity: a worker has claimed it
--   RETRY     publish_attempts > 0, next_retry_at finite
--   FAILED    publish_attempts > 0, next_retry_at = infinity: max_attempts are used up
--   BEHIND    publish_attempts = 0, next_retry_at = infinity: waits behind a parked event of its key
--   DUE       publish_attempts = 0, next_retry_at finite: was FAILED or RETRY and is redriven, or was BEHIND and is the first,
--             or no answer came for it alone (last_error says so), which is no attempt
-- A leased row that had a next_retry_at has -infinity there, and is DUE when it is given back. A discarded row has published_at = -infinity.

-- Where the two kinds differ, as SQL about such a row, q. `parked`: it is in one of the last four states. `of`: it is of the publication p,
-- and not published. `sorted`: the index that finds the first row of a key. `free`: at the end of a SET, takes a lock token away.
CREATE OR REPLACE FUNCTION postbox.parked_form(registered postbox.outbox, OUT relation regclass, OUT id text, OUT key text,
    OUT parked text, OUT "of" text, OUT sorted text, OUT free text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF registered.kind = 'log' THEN
        relation := registered.parked;
        id := 'q.id';
        key := 'q.aggregate_id';
        parked := 'true';
        "of" := 'q.publication = p.name';
        sorted := 'q.publication, q.aggregate_id, q.seq';
        free := '';
    ELSE
        relation := registered.relation;
        id := postbox.outbox_column(registered, 'id', 'q.');
        key := postbox.outbox_column(registered, 'aggregate_id', 'q.');
        parked := 'q.published_at IS NULL AND q.next_retry_at IS NOT NULL AND (q.lock_token IS NULL OR q.next_retry_at = ''infinity'')';
        "of" := format('q.published_at IS NULL AND (p.aggregate_types IS NULL OR %s = ANY (p.aggregate_types))',
                       postbox.outbox_column(registered, 'aggregate_type', 'q.'));
        sorted := key || ', q.seq';
        free := ', lock_token = NULL, locked_at = NULL';
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.parked_form(postbox.outbox) IS 'How the parked events of an outbox stand in their table, as SQL about a row q of it';

CREATE OR REPLACE FUNCTION postbox.redrive_events(outbox regclass, event_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    form record := postbox.parked_form(registered);
    which text := '';
    redriven bigint;
BEGIN
    IF event_id IS NOT NULL THEN
        which := format('AND %s = $1', form.id);
        IF registered.kind = 'log' THEN
            which := which || ' AND q.publication = ANY (ARRAY(SELECT p.name FROM postbox.publication p WHERE p.outbox = $2))';
        END IF;
    END IF;
    -- The events that wait behind one of these follow when it is published.
    EXECUTE format($sql$
        UPDATE %s AS q SET next_retry_at = now(), publish_attempts = 0%s
        WHERE %s AND (q.publish_attempts > 0 OR q.next_retry_at <> 'infinity' AND q.next_retry_at > now()) %s
        $sql$, form.relation, form.free, form.parked, which)
        USING event_id, outbox;
    GET DIAGNOSTICS redriven = ROW_COUNT;
    IF redriven > 0 THEN
        PERFORM postbox.wake_publishers();
    END IF;
    RETURN redriven;
END
$$;
COMMENT ON FUNCTION postbox.redrive_events(regclass, uuid) IS 'postbox.redrive with the rights of the current user';

CREATE OR REPLACE FUNCTION postbox.redrive(outbox regclass, event_id uuid DEFAULT NULL) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.redrive(regclass, uuid) IS
    'Makes one parked event, or all of the outbox, due now with a fresh count of attempts; returns how many. Needs SELECT '
    'and UPDATE on the outbox, or on the table of parked events of a log outbox; members of postbox_operator act as its owner';

-- The keys of the event, by publication; NULL if there is no such event.
CREATE OR REPLACE FUNCTION postbox.remove_event(registered postbox.outbox, event_id uuid, OUT publications text[], OUT keys text[])
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    form record := postbox.parked_form(registered);
    key text;
    holder text;
BEGIN
    IF registered.kind = 'log' THEN
        EXECUTE format($sql$
            WITH discarded AS (
                DELETE FROM %s WHERE publication = ANY (ARRAY(SELECT p.name FROM postbox.publication p WHERE p.outbox = $2)) AND id = $1
                RETURNING publication, aggregate_id)
            SELECT array_agg(publication), array_agg(aggregate_id) FROM discarded
            $sql$, form.relation) INTO publications, keys USING event_id, registered.relation;
        RETURN;
    END IF;
    EXECUTE format($sql$
        SELECT %s, CASE WHEN q.next_retry_at IS NULL OR q.next_retry_at < 'infinity' THEN q.lock_token END FROM %s q
        WHERE %s = $1 AND q.published_at IS NULL FOR UPDATE
        $sql$, form.key, form.relation, form.id)
        INTO key, holder USING event_id;
    IF key IS NULL THEN
        RETURN;
    END IF;
    IF holder IS NOT NULL THEN
        RAISE object_in_use USING
            MESSAGE = format('event %s is being published', event_id),
            HINT = 'Try again when the attempt is over.';
    END IF;
    EXECUTE format('UPDATE %s AS q SET published_at = ''-infinity'', next_retry_at = NULL%s WHERE %s = $1', form.relation, form.free, form.id)
        USING event_id;
    SELECT coalesce(array_agg(p.name), '{}'), coalesce(array_agg(key), '{}') INTO publications, keys
    FROM postbox.publication p WHERE p.outbox = registered.relation;
END
$$;
COMMENT ON FUNCTION postbox.remove_event(postbox.outbox, uuid) IS
    'A part of postbox.discard: takes an unpublished event out of an outbox, of a log a parked one; returns its key and whose it was. An error if it is being published';

CREATE OR REPLACE FUNCTION postbox.discard_event(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    form record := postbox.parked_form(registered);
    removed record;
BEGIN
    IF event_id IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'event_id may not be null',
            HINT = 'postbox.paused_keys shows the event that stops a key.';
    END IF;
    removed := postbox.remove_event(registered, event_id);
    IF removed.keys IS NULL THEN
        RETURN false;
    END IF;
    -- In a statement of its own, which sees what a worker has parked behind the event before it was locked here. The next
    -- event of the key is due now, and those behind it follow.
    EXECUTE format($sql$
        UPDATE %1$s AS q SET next_retry_at = now()%2$s
        WHERE q.ctid = ANY (ARRAY(
            SELECT h.tid FROM unnest($1, $2) AS k(publication, key) JOIN postbox.publication p ON p.name = k.publication
            CROSS JOIN LATERAL (SELECT q.ctid AS tid FROM %1$s q WHERE %3$s AND %4$s = k.key ORDER BY %5$s LIMIT 1) h))
          AND %6$s AND q.next_retry_at = 'infinity' AND q.publish_attempts = 0
        $sql$, form.relation, form.free, form."of", form.key, form.sorted, form.parked)
        USING removed.publications, removed.keys;
    PERFORM postbox.wake_publishers();
    RETURN true;
END
$$;
COMMENT ON FUNCTION postbox.discard_event(regclass, uuid) IS 'postbox.discard with the rights of the current user';

CREATE OR REPLACE FUNCTION postbox.discard(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.discard(regclass, uuid) IS
    'Gives up an unpublished event, so that the events of its key behind it are published. False if there is no such event. '
    'Needs SELECT and UPDATE on the outbox, or SELECT, UPDATE and DELETE on the table of parked events of a log outbox; members of '
    'postbox_operator act as its owner';

-- What belongs to a user is read by functions of this kind: outbox_paused_keys runs as the owner of the outbox, and
-- show_paused_keys calls it so, in a security-restricted operation. A look at the status never runs code of an outbox's
-- owner with the rights of the one who looks.
CREATE OR REPLACE FUNCTION postbox.outbox_paused_keys(outbox regclass)
    RETURNS TABLE (aggregate_id text, first_event_id uuid, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    code text := postbox.code_of_users(coalesce(registered.parked, registered.relation));
BEGIN
    IF code IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the paused keys of outbox %s are not read', outbox),
            DETAIL = code,
            HINT = 'Reading them might run code of its owner, and take forever. The owner can read the table itself.';
    END IF;
    IF registered.parked IS NOT NULL THEN
        RETURN QUERY EXECUTE format($sql$
            SELECT e.aggregate_id, e.id, e.event_type, e.publish_attempts, e.next_retry_at, e.last_error,
                   (SELECT count(*) FROM %1$s later WHERE later.publication = e.publication
                    AND later.aggregate_id = e.aggregate_id AND later.seq > e.seq)
            FROM %1$s e
            WHERE (e.publish_attempts > 0 OR e.last_error IS NOT NULL)  -- not one that a restore has put there
              AND NOT EXISTS (SELECT FROM %1$s earlier WHERE earlier.publication = e.publication
                              AND earlier.aggregate_id = e.aggregate_id AND earlier.seq < e.seq)
            ORDER BY e.seq
            $sql$, registered.parked);
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format($sql$
        SELECT %2$s, %3$s, %4$s, e.publish_attempts, e.next_retry_at, e.last_error,
               (SELECT count(*) FROM %1$s later
                WHERE %5$s = %2$s AND later.published_at IS NULL AND later.seq > e.seq)
        FROM %1$s e
        WHERE e.published_at IS NULL AND (e.lock_token IS NULL OR e.next_retry_at = 'infinity') AND e.next_retry_at IS NOT NULL
          AND (e.publish_attempts > 0 OR e.last_error IS NOT NULL AND e.next_retry_at > now())
          AND NOT EXISTS (SELECT FROM %1$s earlier
                          WHERE %6$s = %2$s AND earlier.published_at IS NULL AND earlier.seq < e.seq)
        ORDER BY e.seq
        $sql$, registered.relation, postbox.outbox_column(registered, 'aggregate_id', 'e.'),
        postbox.outbox_column(registered, 'id', 'e.'), postbox.outbox_column(registered, 'event_type', 'e.'),
        postbox.outbox_column(registered, 'aggregate_id', 'later.'), postbox.outbox_column(registered, 'aggregate_id', 'earlier.'));
END
$$;
COMMENT ON FUNCTION postbox.outbox_paused_keys(regclass) IS 'The paused keys of one outbox, read with the rights of the current user';

CREATE OR REPLACE FUNCTION postbox.show_paused_keys(outbox regclass)
    RETURNS TABLE (aggregate_id text, first_event_id uuid, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint)
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_paused_keys(regclass) IS
    'postbox.outbox_paused_keys, run as the owner of the outbox; no rows if the caller may not see its events';

CREATE OR REPLACE FUNCTION postbox.list_paused_keys()
    RETURNS TABLE (outbox regclass, aggregate_id text, first_event_id uuid, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered regclass;
    reason text;
BEGIN
    FOR registered IN SELECT o.relation FROM postbox.outbox o ORDER BY o.relation LOOP
        -- What the owner of one outbox has made of it hides no other.
        BEGIN
            RETURN QUERY SELECT registered, k.* FROM postbox.show_paused_keys(registered) k;
        EXCEPTION
            WHEN lock_not_available THEN
                RAISE WARNING USING
                    MESSAGE = format('could not read the paused keys of outbox %s', registered),
                    DETAIL = (SELECT postbox.lock_holders(o) FROM postbox.outbox o WHERE o.relation = registered);
            WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
                RAISE WARNING USING
                    MESSAGE = format('could not read the paused keys of outbox %s', registered),
                    DETAIL = concat_ws(': ', SQLERRM, nullif(reason, ''));
        END;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.list_paused_keys() IS 'The rows of postbox.paused_keys';

CREATE OR REPLACE VIEW postbox.paused_keys AS SELECT * FROM postbox.list_paused_keys();
COMMENT ON VIEW postbox.paused_keys IS
    'Keys whose first unpublished event is parked: which event, why, when it is retried (next_retry_at) and how many events '
    'wait behind it. Shows the outboxes that the caller may read; all of them to postbox_operator and pg_monitor';

-- In C, because each look at the status asks: see extension/registry/outbox_problem.cc.
CREATE OR REPLACE FUNCTION postbox.outbox_problem(registered postbox.outbox) RETURNS postbox.problem
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.outbox_problem(postbox.outbox) IS
    'What is wrong with the tables of an outbox, and the repair; NULL if nothing is';

-- Counted with the rights of the current user. What the owner of an outbox has made of it is shown with its publication. It hides no
-- other one and holds up none: errors become `problem`, and what is locked, or may run code of users, is not counted.
CREATE OR REPLACE FUNCTION postbox.publication_backlog(publication text,
    OUT ready bigint, OUT parked bigint, OUT oldest_ready interval, OUT oldest_parked interval, OUT problem text, OUT broken boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
    counted record;
    other record;
BEGIN
    broken := false;
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox
    WHERE p.name = publication;
    problem := 'the backlog is not counted: ' || postbox.code_of_users(registered.relation, registered.parked);
    IF problem IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT * INTO counted FROM postbox.count_backlog(publication);
    ready := counted.ready;
    parked := counted.parked;
    IF counted.has_foreign THEN
        SELECT * INTO other FROM postbox.foreign_backlog(registered.relation, publication);
        ready := ready + other.unread;
        counted.oldest_ready := least(counted.oldest_ready, other.oldest);
    END IF;
    oldest_ready := date_trunc('milliseconds', clock_timestamp() - counted.oldest_ready);
    oldest_parked := date_trunc('milliseconds', clock_timestamp() - counted.oldest_parked);
    IF counted.misplaced > 0 AND registered.kind = 'log' THEN
        problem := format('%s events have no seq or one that the sequence has not given out, and wait; '
                          'repair them with UPDATE %s SET txid = DEFAULT, seq = DEFAULT '
                          'WHERE seq > %s OR seq < 1 OR seq IS NULL', counted.misplaced, registered.relation,
                          coalesce(pg_sequence_last_value(postbox.log_sequence(registered.relation)), 0));
    ELSIF counted.misplaced > 0 THEN
        problem := format('%s events have no seq or one below 1, and wait; repair them with UPDATE %s SET seq = DEFAULT '
                          'WHERE published_at IS NULL AND (seq < 1 OR seq IS NULL)', counted.misplaced, registered.relation);
    END IF;
EXCEPTION
    WHEN lock_not_available THEN
        SELECT NULL, NULL, NULL, NULL INTO ready, parked, oldest_ready, oldest_parked;
        problem := format('the backlog is not counted: %s', postbox.lock_holders(registered));
    WHEN OTHERS THEN
        SELECT NULL, NULL, NULL, NULL, true INTO ready, parked, oldest_ready, oldest_parked, broken;
        problem := format('the outbox cannot be read: %s', SQLERRM);
END
$$;
COMMENT ON FUNCTION postbox.publication_backlog(text) IS
    'The backlog of a publication, counted with the rights of the current user, and which rows are not read or why none can be';

CREATE OR REPLACE FUNCTION postbox.show_backlog(publication text)
    RETURNS TABLE (ready bigint, parked bigint, oldest_ready interval, oldest_parked interval, problem text, broken boolean, last_error text)
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_backlog(text) IS
    'postbox.publication_backlog, run as the owner of the outbox, and why the publication is suspended; no rows if the caller may '
    'not see its events';

-- From shared memory: a look at it costs nothing.
CREATE OR REPLACE FUNCTION postbox.publishing_state(publication text, OUT state text, OUT problem postbox.problem, OUT since timestamptz, OUT next_try timestamptz)
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.publishing_state(text) IS
    'unserved if no worker publishes it, waiting if its events wait for a synchronous standby, and why; retrying if Pub/Sub does not answer, '
    'since when, and the next try; NULL if nothing is the matter';

-- A restore may have left it out, or have yet to load it: so a worker makes no row.
CREATE OR REPLACE FUNCTION postbox.state_problem(publication text) RETURNS postbox.problem
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'state_missing', 'warning', publication, 'failures of the publication are not stored, because it has no row in postbox.publication_state',
        format('if no restore is running, run INSERT INTO postbox.publication_state (publication) VALUES (%L) as a superuser', publication)
    WHERE NOT EXISTS (SELECT FROM postbox.publication_state s WHERE s.publication = state_problem.publication)
$$;
COMMENT ON FUNCTION postbox.state_problem(text) IS 'That the failures of a publication cannot be stored, and what to do; NULL if they can';

CREATE OR REPLACE FUNCTION postbox.list_publication_status()
    RETURNS TABLE (publication text, outbox regclass, topic text, state text, pending bigint, ready bigint, parked bigint,
                   oldest_pending interval, oldest_ready interval, retry_at timestamptz, suspended_since timestamptz, last_error text,
                   "position" bigint, leases text[], sent_again_at_most bigint, sent_again_at timestamptz)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    registered postbox.outbox;
    problem text;
    broken boolean;
    why text;
BEGIN
    FOR publication, outbox, topic, why, retry_at, suspended_since IN
        SELECT p.name, p.outbox, p.topic, CASE WHEN p.home <> postbox.this_database() THEN postbox.problem_text(postbox.copy_problem(p.name)) END, s.next_retry_at, s.suspended_since
        FROM postbox.publication p
        LEFT JOIN postbox.publication_state s ON s.publication = p.name AND s.attempts > 0 AND s.next_retry_at IS NOT NULL
        ORDER BY p.name
    LOOP
        IF why IS NOT NULL THEN
            state := 'unserved';
        ELSE
            -- What waits for a standby hides no failure that is still to be tried again.
            SELECT coalesce(p.state, CASE WHEN retry_at IS NULL THEN 'active' ELSE 'suspended' END), postbox.problem_text(p.problem), coalesce(p.next_try, retry_at), least(p.since, suspended_since)
              INTO state, why, retry_at, suspended_since FROM (SELECT) one LEFT JOIN postbox.publishing_state(publication) p ON p.state <> 'waiting' OR retry_at IS NULL OR retry_at <= clock_timestamp();
        END IF;
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL INTO pending, ready, parked, oldest_pending, oldest_ready, last_error, "position", leases;
        SELECT sum(s.sent_again), max(s.sent_again_at) INTO sent_again_at_most, sent_again_at FROM (SELECT l.publication, l.sent_again, l.sent_again_at FROM postbox.lane l
            UNION ALL SELECT p.publication, p.sent_again, p.sent_again_at FROM postbox.publication_state p) s WHERE s.publication = list_publication_status.publication;
        SELECT * INTO registered FROM postbox.outbox o WHERE o.relation = list_publication_status.outbox;
        IF registered.parked IS NOT NULL THEN
            SELECT CASE WHEN count(l.hwm) < (SELECT p.lanes FROM postbox.publication p WHERE p.name = list_publication_status.publication)
                   THEN 0 ELSE min(l.hwm) END, array_agg(l.lock_token ORDER BY l.slice) FILTER (WHERE l.lock_token IS NOT NULL)
              INTO "position", leases FROM postbox.lane l WHERE l.publication = list_publication_status.publication;
        END IF;
        problem := postbox.problem_text(postbox.outbox_problem(registered));
        IF problem IS NOT NULL THEN
            state := 'broken';
            last_error := problem;
            RETURN NEXT;
            CONTINUE;
        END IF;
        SELECT b.ready + b.parked, b.ready, b.parked, greatest(b.oldest_ready, b.oldest_parked), b.oldest_ready, b.problem, b.broken, b.last_error
        INTO pending, ready, parked, oldest_pending, oldest_ready, problem, broken, last_error
        FROM postbox.show_backlog(publication) b;
        -- What failed is just being tried again, if there is anything to try. A broker that does not answer is tried for long.
        IF state <> 'retrying' AND retry_at <= clock_timestamp() AND coalesce(pending <= coalesce(parked, 0), true) THEN
            SELECT CASE state WHEN 'suspended' THEN 'active' ELSE state END, NULL, NULL, NULL INTO state, retry_at, suspended_since, last_error;
        END IF;
        last_error := nullif(concat_ws('; ', why, coalesce(last_error, problem),
                                       postbox.problem_text(postbox.unlogged_problem(registered.relation, registered.parked, registered.counter)),
                                       postbox.problem_text(postbox.state_problem(publication))), '');
        IF broken THEN
            state := 'broken';
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.list_publication_status() IS 'The rows of postbox.publication_status';

CREATE OR REPLACE VIEW postbox.publication_status AS SELECT * FROM postbox.list_publication_status();
COMMENT ON VIEW postbox.publication_status IS
    'State and backlog of each publication. Backlog columns and last_error are NULL where the caller may not read the outbox; '
    'postbox_operator and pg_monitor see all of them';
COMMENT ON COLUMN postbox.publication_status.state IS
    'active; waiting for a synchronous standby; retrying while Pub/Sub does not answer; suspended after a failed attempt until something is published; unserved: no worker publishes it; or broken: '
    'the outbox is not what Postbox made. last_error says more';
COMMENT ON COLUMN postbox.publication_status.pending IS 'How many events are not published yet: ready and parked';
COMMENT ON COLUMN postbox.publication_status.ready IS
    'How many of them wait to be published. In a log those since the last checkpoint may count though they have been. Exact up to 1000, beyond that '
    'estimated from samples';
COMMENT ON COLUMN postbox.publication_status.parked IS
    'How many of them are parked or wait behind a parked one. Exact up to 10000, beyond that from the statistics of their table';
COMMENT ON COLUMN postbox.publication_status.oldest_pending IS
    'Age of the oldest of them, by occurred_at; of the first 1000 of each kind';
COMMENT ON COLUMN postbox.publication_status.oldest_ready IS 'The same without those that are parked: how far publishing lags behind';
COMMENT ON COLUMN postbox.publication_status.retry_at IS
    'When a suspended or retrying publication is tried again, or since when it is being tried; NULL if active';
COMMENT ON COLUMN postbox.publication_status.suspended_since IS 'Since when attempts in a row have failed; NULL if active';
COMMENT ON COLUMN postbox.publication_status.last_error IS
    'Why a suspended or retrying publication failed last, why one is unserved or waiting and what to do, what is wrong with a broken one and its repair, '
    'what an active one does not publish, or which of its tables a crash would empty';
COMMENT ON COLUMN postbox.publication_status."position" IS 'Log outbox: the seq up to which every lane has read';
COMMENT ON COLUMN postbox.publication_status.leases IS 'Log outbox: lock tokens of the workers that hold its lanes, see postbox.workers';
COMMENT ON COLUMN postbox.publication_status.sent_again_at_most IS
    'How many messages were sent again, at most, since the publication was created: each that Pub/Sub got twice is counted, and also those of which that is not '
    'known. These are the events of a request that had no answer and, where a worker was gone or had to begin again, those that it may have sent since it '
    'stored how far it was: of a log beside a backlog all that waited. 0 without a fault. Stored with the results, so a moment later: what a worker counted and had not stored when '
    'it was killed is missing';
COMMENT ON COLUMN postbox.publication_status.sent_again_at IS 'When the last of them were counted; NULL: there were none';
