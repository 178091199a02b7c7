-- The only definition of a lane's hash; workers use it, too. It depends on nothing but the bytes of the key and
-- Postgres's own hash function. The planner inlines the function, so it costs no call per row. A function with a SET
-- clause would not be inlined. This one needs none: its names are bound when it is created, so no search_path changes
-- them. 0 lanes raise division_by_zero.
CREATE OR REPLACE FUNCTION postbox.lane_slice(aggregate_id text, lanes int) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((pg_catalog.hashtextextended(aggregate_id COLLATE "C", 0::bigint) & 9223372036854775807) % lanes::bigint)::int;
COMMENT ON FUNCTION postbox.lane_slice(text, int) IS
$$The lane of an aggregate in a publication with this number of lanes, from 0 to lanes - 1: a hash of the aggregate id. NULL if the aggregate id is NULL. Workers call it
  as the owner of the outbox, so do not revoke EXECUTE from owners of outboxes.

aggregate_id: the aggregate id.
lanes: the number of lanes.

Rights: EXECUTE, which PUBLIC has at first.
Errors: 22012 if lanes is 0.
Since: 0.2.0
Example: SELECT postbox.lane_slice('v_123', 4);$$;

CREATE OR REPLACE FUNCTION postbox.create_publication(
    name text, outbox regclass, topic text, aggregate_types text[] DEFAULT NULL,
    ordering text DEFAULT 'key', lanes int DEFAULT 1, max_attempts int DEFAULT 5,
    base_backoff interval DEFAULT '10s', max_backoff interval DEFAULT '10min', on_failure text DEFAULT 'park_key',
    start text DEFAULT 'beginning', credential text DEFAULT NULL)
    RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text, text, text) IS
$$Publishes the events of an outbox, or those of some aggregate types, to a topic.

name: the name of the publication, 1 to 63 bytes, unique in the database.
outbox: the outbox. A `log` may have any number of publications. In a `table` each event belongs to one publication: its publications may not overlap in their
  aggregate types.
topic: a topic id, which `postbox.project_id` completes, or a full name `projects/PROJECT/topics/ID`. An id that does not follow `<domain>.<aggregate>.<category>` gets
  a WARNING.
aggregate_types: the aggregate types whose events are published. NULL publishes all.
ordering: `key` uses the aggregate id as the ordering key. The other values are for a `log` only. `bucket:N`, with N from 1 to 65536, uses N ordering keys, so that
  requests are full at any number of aggregates; the order within an aggregate is kept. `none` sends no ordering key.
lanes: 1 to 64; more than 1 for a `log` only. Splits the publication by key, so that this many workers can serve it.
max_attempts: how many times an event that Pub/Sub rejects is attempted before it waits for `redrive` or `discard`. At least 1.
base_backoff: the delay before the second attempt; it doubles with each attempt. More than 0, at most 1 day.
max_backoff: the longest delay between attempts. From base_backoff to 1 day.
on_failure: `park_key` holds back later events of the key until the rejected event is published or discarded. `park_event` lets the key go on without it.
start: where it begins. `beginning` takes the events that are in the outbox already; a NOTICE says how many. The other values are for a `log` only. `now` takes what is
  committed from now on. A time, such as `2026-11-01 00:00+00`, takes the events from the first one on that occurred then or later.
credential: the credential with which it publishes; see `create_credential`. NULL uses the identity of the server's environment.

Rights: ownership of the outbox, and EXECUTE, which PUBLIC does not have because publishing spends the server's Google credentials. A credential must be granted to the
  role; see `grant_credential`.
Errors: 42710 if the publication exists; 42602 if the name or the topic is invalid; 22004 if an argument other than aggregate_types and credential is NULL; 22023 if a value is out of
  range or unknown; 0A000 if ordering, lanes or start is not supported for a `table`; 42P17 if it overlaps with another publication of a `table`; 42704 if the credential
  does not exist; 42809 if the relation is not an outbox; 55000 if the outbox is incomplete; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.create_publication('video_events', 'catalog.outbox', 'catalog.video.events');$$;

CREATE OR REPLACE FUNCTION postbox.alter_publication(
    name text, topic text DEFAULT NULL, aggregate_types text[] DEFAULT NULL, max_attempts int DEFAULT NULL,
    base_backoff interval DEFAULT NULL, max_backoff interval DEFAULT NULL, on_failure text DEFAULT NULL,
    ordering text DEFAULT NULL, lanes int DEFAULT NULL, credential text DEFAULT NULL)
    RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_publication(text, text, text[], int, interval, interval, text, text, int, text) IS
$$Changes a publication in place. No event is left out. NULL leaves a property as it is; the ranges are those of `create_publication`.

Workers first finish what is in flight, for at most 5 s, so that it is not sent again; then the publication goes on, in order. If Pub/Sub does not answer in that time,
  or rejects an event, the events sent after it may be sent again. A new topic or credential ends a suspension.

name: the name of the publication.
topic: the new topic.
aggregate_types: the new aggregate types; `'{}'` publishes all types. They apply to events that are committed afterwards, and to
  earlier events that a lane has not reached yet: those of an added type are published, those of a removed type are not. Where a lane is reading ahead of a long backlog,
  such earlier events may come after later events of other types with the same aggregate id.
max_attempts: how many times a rejected event is attempted.
base_backoff: the delay before the second attempt.
max_backoff: the longest delay between attempts.
on_failure: `park_key` or `park_event`.
ordering: `key`, or of a `log` `bucket:N` or `none`.
lanes: the number of lanes. A multiple of the present number takes effect within a second; another number takes effect when fewer than 1000 events wait. Until then
  `wanted_lanes` of `postbox.publication` shows it.
credential: the credential with which it publishes; `''` returns to the identity of the server's environment.

Rights: ownership of the outbox, and EXECUTE, which PUBLIC does not have. A role that changes the topic or the credential must have been granted the credential; see
  `grant_credential`.
Errors: 42704 if the publication or the credential does not exist; 42602 if the topic is invalid; 22023 if a value is out of range or unknown; 0A000 if ordering or
  lanes is not supported for a `table`; 42P17 if it overlaps with another publication of a `table`; 55000 if the extension has yet to be updated, the outbox is
  incomplete, or another session has just changed the credential; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.alter_publication('video_events', topic => 'catalog.video.changes', lanes => 4);$$;

CREATE OR REPLACE FUNCTION postbox.pause_publication(name text, reason text, until timestamptz DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.pause_publication(text, text, timestamptz) IS
$$Stops a publication until it is resumed, or until a time. Its events stay in the outbox, longer than the retention if need be. To pause a paused publication replaces the
  reason and the end.

Workers stop reading within a second after COMMIT, and finish what is in flight, for at most 5 s, so that it is not sent again. If Pub/Sub does not answer in that time, the
  events that it has received may be sent again after the pause. Emitters and the other publications of the outbox do not notice.

name: the name of the publication.
reason: why, for others; 1 to 500 bytes. Every role can read it.
until: when the publication goes on by itself, by the clock of the database. NULL means that it waits for `resume_publication`.

Rights: ownership of the outbox, or membership in `postbox_operator`.
Errors: 42704 if the publication does not exist; 22004 if `name` or `reason` is NULL; 22023 if `reason` is empty or too long, or `until` is not in the future; 42501 without
  the rights.
Since: 0.2.0
Example: SELECT postbox.pause_publication('video_events', 'consumers are being migrated', until => now() + interval '2 hours');$$;

CREATE OR REPLACE FUNCTION postbox.resume_publication(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.resume_publication(text) IS
$$Ends the pause of a publication. A suspended publication is retried immediately, with its backoff reset; without it workers retry at `retry_at`, at most 4 s after the last
  attempt. A reload of the server's configuration retries all suspended publications.

name: the name of the publication.

Rights: ownership of the outbox, or membership in `postbox_operator`.
Errors: 42704 if the publication does not exist; 55000 if the extension has yet to be updated; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.resume_publication('video_events');$$;

CREATE OR REPLACE FUNCTION postbox.drop_publication(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_publication(text) IS
$$Drops a publication, with its position. Its events stay in the outbox. What `republish` has queued and is not sent yet is taken back.

name: the name of the publication.

Rights: ownership of the outbox.
Errors: 42704 if the publication does not exist; 42501 if the caller does not own the outbox.
Since: 0.2.0
Example: SELECT postbox.drop_publication('video_events');$$;

CREATE OR REPLACE FUNCTION postbox.check_topic_name(topic text) RETURNS void
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.check_topic_name(text) IS
    'Internal: raises an error if Pub/Sub would reject the name of a topic, and a WARNING if it does not follow <domain>.<aggregate>.<category>.';

CREATE OR REPLACE FUNCTION postbox.wake_publishers() RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.wake_publishers() IS 'Internal: wakes the publisher workers of this database when the transaction commits.';

-- In C, because each query of the status calls it: see extension/registry/outbox_problem.cc.
CREATE OR REPLACE FUNCTION postbox.outbox_problem(registered postbox.outbox) RETURNS postbox.problem
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.outbox_problem(postbox.outbox) IS 'Internal: what is wrong with the tables of an outbox, and the repair; NULL if nothing is.';

-- Counted with the rights of the current user. An outbox that cannot be counted does not hide or delay the others: an error becomes
-- `problem`, and a table that is locked, or whose reading may run code of users, is not counted.
CREATE OR REPLACE FUNCTION postbox.publication_backlog(publication text,
    OUT ready bigint, OUT parked bigint, OUT delayed bigint, OUT expired bigint, OUT oldest_ready interval, OUT oldest_parked interval, OUT problem text, OUT broken boolean,
    OUT republishing bigint)
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
    expiry record;
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
    delayed := counted.delayed;
    republishing := CASE WHEN parked + delayed > 0 THEN postbox.count_republished(publication) ELSE 0 END;
    IF counted.has_foreign THEN
        SELECT * INTO other FROM postbox.foreign_backlog(registered.relation, publication);
        ready := ready + other.unread;
        counted.oldest_ready := least(counted.oldest_ready, other.oldest);
    END IF;
    oldest_ready := date_trunc('milliseconds', clock_timestamp() - counted.oldest_ready);
    oldest_parked := date_trunc('milliseconds', clock_timestamp() - counted.oldest_parked);
    IF counted.misplaced > 0 AND registered.kind = 'log' THEN
        problem := format('%s events are not published, because their seq is NULL or was not generated by the sequence; '
                          'repair them with UPDATE %s SET txid = DEFAULT, seq = DEFAULT '
                          'WHERE seq > %s OR seq < 1 OR seq IS NULL', counted.misplaced, registered.relation,
                          coalesce(pg_sequence_last_value(postbox.log_sequence(registered.relation)), 0));
    ELSIF counted.misplaced > 0 THEN
        problem := format('%s events are not published, because their seq is NULL or below 1; repair them with UPDATE %s SET seq = DEFAULT '
                          'WHERE published_at IS NULL AND (seq < 1 OR seq IS NULL)', counted.misplaced, registered.relation);
    END IF;
    expiry := postbox.expiry_problem(publication, registered);
    expired := expiry.expired;
    problem := nullif(concat_ws('; ', problem, expiry.problem), '');
EXCEPTION
    WHEN lock_not_available THEN
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL INTO ready, parked, delayed, expired, oldest_ready, oldest_parked, republishing;
        problem := format('the backlog is not counted: %s', postbox.lock_holders(registered));
    WHEN OTHERS THEN
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, true INTO ready, parked, delayed, expired, oldest_ready, oldest_parked, republishing, broken;
        problem := format('the outbox cannot be read: %s', SQLERRM);
END
$$;
COMMENT ON FUNCTION postbox.publication_backlog(text) IS
    'Internal: the backlog of a publication, counted with the rights of the current user, and which rows cannot be published or why none is counted.';

CREATE OR REPLACE FUNCTION postbox.show_backlog(publication text)
    RETURNS TABLE (ready bigint, parked bigint, delayed bigint, expired bigint, oldest_ready interval, oldest_parked interval, problem text, broken boolean,
                   republishing bigint, last_error text)
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_backlog(text) IS
    'Internal: postbox.publication_backlog, run as the owner of the outbox, and why the publication is suspended; no rows if the caller may not see its events.';

-- Reads shared memory only.
CREATE OR REPLACE FUNCTION postbox.publishing_state(publication text, OUT state text, OUT problem postbox.problem, OUT since timestamptz, OUT next_try timestamptz)
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.publishing_state(text) IS
    'Internal: why a publication is not published although its tables are in order: unserved, waiting or retrying, with cause, begin and next attempt; NULL if it is '
    'active.';

-- A restore may have left the row out, or may not have loaded it yet. So a worker does not insert it.
CREATE OR REPLACE FUNCTION postbox.state_problem(publication text) RETURNS postbox.problem
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'state_missing', 'warning', publication, 'failures of the publication are not stored, because it has no row in postbox.publication_state',
        format('if no restore is running, run INSERT INTO postbox.publication_state (publication) VALUES (%L) as a superuser', publication)
    WHERE NOT EXISTS (SELECT FROM postbox.publication_state s WHERE s.publication = state_problem.publication)
$$;
COMMENT ON FUNCTION postbox.state_problem(text) IS 'Internal: why the failures of a publication cannot be stored, and the remedy; NULL if they can.';

CREATE OR REPLACE FUNCTION postbox.list_publication_status(wanted text DEFAULT NULL)
    RETURNS TABLE (publication text, outbox regclass, topic text, state text, pending bigint, ready bigint, parked bigint,
                   delayed bigint, expired bigint, oldest_pending interval, oldest_ready interval, retry_at timestamptz, suspended_since timestamptz, last_error text,
                   "position" bigint, leases text[], sent_again_at_most bigint, sent_again_at timestamptz, republishing bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    registered postbox.outbox;
    problem text;
    broken boolean;
    why text;
BEGIN
    FOR publication, outbox, topic, state, why, retry_at, suspended_since IN
        SELECT p.name, p.outbox, p.topic, CASE WHEN h.copied IS NOT NULL THEN 'unserved' WHEN h.pause IS NOT NULL THEN 'paused' END, coalesce(h.copied, h.pause),
               s.next_retry_at, s.suspended_since
        FROM postbox.publication p CROSS JOIN LATERAL (SELECT CASE WHEN p.home <> postbox.this_database() THEN postbox.problem_text(postbox.copy_problem(p.name)) END,
                                                              postbox.pause_text(p.paused_at, p.paused_until, p.paused_reason)) h(copied, pause)
        LEFT JOIN postbox.publication_state s ON s.publication = p.name AND s.attempts > 0 AND s.next_retry_at IS NOT NULL AND h.pause IS NULL
        WHERE wanted IS NULL OR p.name = wanted
        ORDER BY p.name
    LOOP
        IF state IS NULL THEN
            -- Waiting for a standby does not hide a failure that has yet to be retried.
            SELECT coalesce(p.state, CASE WHEN retry_at IS NULL THEN 'active' ELSE 'suspended' END), postbox.problem_text(p.problem), coalesce(p.next_try, retry_at), least(p.since, suspended_since)
              INTO state, why, retry_at, suspended_since
            FROM (SELECT) one LEFT JOIN postbox.publishing_state(publication) p ON p.state <> 'waiting' OR retry_at IS NULL OR retry_at <= clock_timestamp();
        END IF;
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL INTO pending, ready, parked, delayed, expired, oldest_pending, oldest_ready, last_error, "position", leases, republishing;
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
            SELECT 'broken', problem INTO state, last_error;
            RETURN NEXT;
            CONTINUE;
        END IF;
        SELECT b.ready + b.parked + b.delayed, b.ready, b.parked, b.delayed, b.expired, greatest(b.oldest_ready, b.oldest_parked), b.oldest_ready, b.problem, b.broken, b.last_error,
               b.republishing
        INTO pending, ready, parked, delayed, expired, oldest_pending, oldest_ready, problem, broken, last_error, republishing
        FROM postbox.show_backlog(publication) b;
        -- A retry that is due is under way, if there is anything to publish. Where the broker does not answer, it takes long.
        IF state <> 'retrying' AND retry_at <= clock_timestamp() AND coalesce(pending <= coalesce(parked + delayed, 0), true) THEN
            SELECT CASE state WHEN 'suspended' THEN 'active' ELSE state END, NULL, NULL, NULL INTO state, retry_at, suspended_since, last_error;
        END IF;
        last_error := nullif(concat_ws('; ', why, CASE WHEN state = 'paused' THEN problem ELSE coalesce(last_error, problem) END,
                                       postbox.problem_text(postbox.unlogged_problem(registered.relation, registered.parked, registered.counter)),
                                       postbox.problem_text(postbox.state_problem(publication))), '');
        state := CASE WHEN broken THEN 'broken' ELSE state END;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.list_publication_status(text) IS 'Internal: the rows of postbox.publication_status, or the one of a publication.';

CREATE OR REPLACE VIEW postbox.publication_status AS SELECT * FROM postbox.list_publication_status();
COMMENT ON VIEW postbox.publication_status IS
$$One row for each publication: its state and its backlog. The cost of a query does not depend on the backlog.

Rights: SELECT, which PUBLIC has. The counts and `last_error` are NULL where the caller may not read the outbox: SELECT on it, and on `<outbox>_parked` of a `log`, and
  USAGE on the schema, without row security. What is wrong with a broken, unserved or waiting publication, and the reason of a
  paused one, is shown to all. Members of `postbox_operator` and `pg_monitor`
  see everything.$$;
COMMENT ON COLUMN postbox.publication_status.publication IS 'The name of the publication';
COMMENT ON COLUMN postbox.publication_status.outbox IS 'The outbox that it reads';
COMMENT ON COLUMN postbox.publication_status.topic IS 'The topic that it publishes to, as it was given';
COMMENT ON COLUMN postbox.publication_status.state IS
    'active; waiting: its events wait for a synchronous standby; retrying: Pub/Sub does not answer; suspended: an attempt failed, and it is retried at retry_at; '
    'unserved: no worker publishes it; paused: by pause_publication; broken: the tables of its outbox are not as Postbox made them. last_error has the cause; see Troubleshooting';
COMMENT ON COLUMN postbox.publication_status.pending IS 'How many events are not published yet: ready + parked + delayed';
COMMENT ON COLUMN postbox.publication_status.ready IS
    'How many of them wait to be published. Exact up to 1000, above that estimated from samples. In a log, events that were published since the last checkpoint may count';
COMMENT ON COLUMN postbox.publication_status.parked IS
    'How many of them are parked, or wait behind a parked event of their key. Exact up to 10000, above that taken from the statistics of their table';
COMMENT ON COLUMN postbox.publication_status.delayed IS
    'How many of them wait for their deliver_at, or behind such an event of their key. Exact up to 10000, above that estimated. An event that no worker has read yet is ready';
COMMENT ON COLUMN postbox.publication_status.expired IS
    'How many events were not published because their expires_at was over, among those of the retention, up to 10000; postbox.expired_event names them';
COMMENT ON COLUMN postbox.publication_status.oldest_pending IS
    'Age of the oldest pending event that is not delayed, by occurred_at or a later deliver_at, among the first 1000 ready and the first 1000 parked ones; NULL if there is none';
COMMENT ON COLUMN postbox.publication_status.oldest_ready IS 'Age of the oldest ready event, likewise: how far publishing lags behind';
COMMENT ON COLUMN postbox.publication_status.retry_at IS 'When a suspended or retrying publication is retried; a time in the past: the attempt is under way. NULL if active';
COMMENT ON COLUMN postbox.publication_status.suspended_since IS 'Since when attempts have failed without a success in between; NULL if active';
COMMENT ON COLUMN postbox.publication_status.last_error IS
    'Suspended, retrying: why the last attempt failed. Unserved, waiting: the cause and the remedy. Paused: the reason. Broken: what is wrong, and the repair. Active: which events cannot be '
    'published, or have expired as the last ones of their aggregates, why the backlog is not counted, or which table is UNLOGGED; NULL if nothing is. See Troubleshooting';
COMMENT ON COLUMN postbox.publication_status."position" IS 'Log: the seq up to which every lane has read; 0 if a lane has not begun. NULL for a table';
COMMENT ON COLUMN postbox.publication_status.leases IS 'Log: the lock tokens of the workers that hold its lanes, see postbox.workers. NULL for a table';
COMMENT ON COLUMN postbox.publication_status.sent_again_at_most IS
    'An upper bound of the number of messages that were sent more than once since the publication was created: 0 without a fault. It counts the messages of requests '
    'without an answer, and what a worker may have sent after its last stored position, if it was lost or began again there: of a log with a backlog, the whole backlog. '
    'Counts are stored with the results; those of a worker that was killed before that are missing';
COMMENT ON COLUMN postbox.publication_status.sent_again_at IS 'When the last of them were counted; NULL if there were none';
COMMENT ON COLUMN postbox.publication_status.republishing IS
    'How many events that postbox.republish has queued are not sent yet. They are among the parked ones, or the delayed ones if their key has a delayed event. At most 100000. In a table, the first of each key may not count';
