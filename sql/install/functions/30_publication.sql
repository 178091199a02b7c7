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
$$Drops a publication, with its position. Its events stay in the outbox.

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
COMMENT ON FUNCTION postbox.parked_form(postbox.outbox) IS 'Internal: how the parked events of an outbox are stored, as SQL about a row q of their table.';

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
COMMENT ON FUNCTION postbox.redrive_events(regclass, uuid) IS 'Internal: postbox.redrive with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.redrive(outbox regclass, event_id uuid DEFAULT NULL) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.redrive(regclass, uuid) IS
$$Makes parked events due now and resets their count of attempts. Returns how many. The events that wait behind one of them in its key follow when it is published.

outbox: the outbox.
event_id: the event. NULL redrives all parked events of the outbox.

Rights: SELECT and UPDATE on the outbox, or of a `log` on the table of parked events, `<outbox>_parked`; or membership in `postbox_operator`, which acts as the owner
  of the outbox.
Errors: 22004 if outbox is NULL; 42809 if the relation is not an outbox; 42P01 if its table was dropped; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.redrive(relation, first_event_id::uuid) FROM postbox.paused_keys WHERE side = 'outbox' AND last_error LIKE 'INVALID_ARGUMENT%';$$;

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
            HINT = 'Try again after the attempt has ended.';
    END IF;
    EXECUTE format('UPDATE %s AS q SET published_at = ''-infinity'', next_retry_at = NULL%s WHERE %s = $1', form.relation, form.free, form.id)
        USING event_id;
    SELECT coalesce(array_agg(p.name), '{}'), coalesce(array_agg(key), '{}') INTO publications, keys
    FROM postbox.publication p WHERE p.outbox = registered.relation;
END
$$;
COMMENT ON FUNCTION postbox.remove_event(postbox.outbox, uuid) IS
    'Internal: the part of postbox.discard that removes an unpublished event and returns its key and publications; raises an error if it is being published.';

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
            HINT = 'postbox.paused_keys shows the event that blocks a key.';
    END IF;
    removed := postbox.remove_event(registered, event_id);
    IF removed.keys IS NULL THEN
        RETURN false;
    END IF;
    -- A separate statement, which sees what a worker parked behind the event before it was locked here. The next event of
    -- the key is due now, and those behind it follow.
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
COMMENT ON FUNCTION postbox.discard_event(regclass, uuid) IS 'Internal: postbox.discard with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.discard(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.discard(regclass, uuid) IS
$$Gives up an unpublished event for good, so that later events of its key are published. Returns false if there is no such event.

In a `log` only a parked event can be discarded. In a `table` the row stays for the retention, with `published_at` = -infinity.

outbox: the outbox.
event_id: the event.

Rights: SELECT and UPDATE on the outbox, or of a `log` SELECT, UPDATE and DELETE on the table of parked events, `<outbox>_parked`; or membership in `postbox_operator`,
  which acts as the owner of the outbox.
Errors: 22004 if an argument is NULL; 55006 if the event is being published; 42809 if the relation is not an outbox; 42P01 if its table was dropped; 42501 without the
  rights.
Since: 0.2.0
Example: SELECT postbox.discard('catalog.outbox', 'b5d8f2ce-3a1c-4f5d-9f57-2f3c1d0a7e11');$$;

-- The tables of a user are read by functions of this kind: show_paused_keys calls outbox_paused_keys as the owner of the outbox, in
-- a security-restricted operation. So a query of the status never runs an owner's code with the rights of the caller.
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
            HINT = 'Reading them might run code of the owner of the outbox, which may never end. The owner can read the table directly.';
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
COMMENT ON FUNCTION postbox.outbox_paused_keys(regclass) IS 'Internal: the paused keys of one outbox, read with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.show_paused_keys(outbox regclass)
    RETURNS TABLE (aggregate_id text, first_event_id uuid, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint)
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_paused_keys(regclass) IS 'Internal: postbox.outbox_paused_keys, run as the owner of the outbox; no rows if the caller may not see its events.';

CREATE OR REPLACE FUNCTION postbox.list_paused_keys()
    RETURNS TABLE (side text, relation regclass, aggregate_id text, first_event_id text, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint, since timestamptz, dead_letter bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered regclass;
    reason text;
BEGIN
    FOR registered IN SELECT o.relation FROM postbox.outbox o ORDER BY o.relation LOOP
        -- An outbox that cannot be read does not hide the others.
        BEGIN
            RETURN QUERY SELECT 'outbox', registered, k.aggregate_id, k.first_event_id::text, k.event_type, k.attempts, k.next_retry_at, k.last_error, k.waiting,
                NULL::timestamptz, NULL::bigint FROM postbox.show_paused_keys(registered) k;
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
    RETURN QUERY SELECT * FROM postbox.inbox_paused_keys();
END
$$;
COMMENT ON FUNCTION postbox.list_paused_keys() IS 'Internal: the rows of postbox.paused_keys.';

CREATE OR REPLACE VIEW postbox.paused_keys AS SELECT * FROM postbox.list_paused_keys();
COMMENT ON VIEW postbox.paused_keys IS
$$One row for each key that waits because its first event is parked: in an outbox one that could not be published, in an inbox one that could not be applied.

Rights: SELECT, which PUBLIC has. A role sees the rows of the outboxes that it may read: SELECT on the `table`, or on `<outbox>_parked` of a `log`, and USAGE on the
  schema, without row security; and those of the inboxes whose owner's rights it has. Members of `postbox_operator` see all rows, those of `pg_monitor` all of outboxes.$$;
COMMENT ON COLUMN postbox.paused_keys.side IS '`outbox` or `inbox`';
COMMENT ON COLUMN postbox.paused_keys.relation IS 'The outbox or the inbox';
COMMENT ON COLUMN postbox.paused_keys.aggregate_id IS 'The aggregate id, which is the key';
COMMENT ON COLUMN postbox.paused_keys.first_event_id IS 'The id of the parked event. As a uuid, postbox.redrive and postbox.discard take that of an outbox';
COMMENT ON COLUMN postbox.paused_keys.event_type IS 'The type of the parked event';
COMMENT ON COLUMN postbox.paused_keys.attempts IS 'How many attempts to publish or apply it have failed; 0 if it alone got no answer from Pub/Sub, or none has been made';
COMMENT ON COLUMN postbox.paused_keys.next_retry_at IS
    'When it is retried; infinity: not before a redrive, because `max_attempts` of the publication, or `parked_max_attempts` of the subscription, are used up';
COMMENT ON COLUMN postbox.paused_keys.last_error IS 'Why the last attempt failed; see Troubleshooting. Of an inbox with the SQLSTATE';
COMMENT ON COLUMN postbox.paused_keys.waiting IS 'How many later events of the key wait behind it';
COMMENT ON COLUMN postbox.paused_keys.since IS 'Since when the key has been parked. NULL for an outbox';
COMMENT ON COLUMN postbox.paused_keys.dead_letter IS 'The dead letter of an inbox; postbox.redrive_dead_letter and postbox.discard_dead_letter take it. NULL for an outbox';

-- In C, because each query of the status calls it: see extension/registry/outbox_problem.cc.
CREATE OR REPLACE FUNCTION postbox.outbox_problem(registered postbox.outbox) RETURNS postbox.problem
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.outbox_problem(postbox.outbox) IS 'Internal: what is wrong with the tables of an outbox, and the repair; NULL if nothing is.';

-- Counted with the rights of the current user. An outbox that cannot be counted does not hide or delay the others: an error becomes
-- `problem`, and a table that is locked, or whose reading may run code of users, is not counted.
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
        problem := format('%s events are not published, because their seq is NULL or was not generated by the sequence; '
                          'repair them with UPDATE %s SET txid = DEFAULT, seq = DEFAULT '
                          'WHERE seq > %s OR seq < 1 OR seq IS NULL', counted.misplaced, registered.relation,
                          coalesce(pg_sequence_last_value(postbox.log_sequence(registered.relation)), 0));
    ELSIF counted.misplaced > 0 THEN
        problem := format('%s events are not published, because their seq is NULL or below 1; repair them with UPDATE %s SET seq = DEFAULT '
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
    'Internal: the backlog of a publication, counted with the rights of the current user, and which rows cannot be published or why none is counted.';

CREATE OR REPLACE FUNCTION postbox.show_backlog(publication text)
    RETURNS TABLE (ready bigint, parked bigint, oldest_ready interval, oldest_parked interval, problem text, broken boolean, last_error text)
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
    FOR publication, outbox, topic, state, why, retry_at, suspended_since IN
        SELECT p.name, p.outbox, p.topic, CASE WHEN h.copied IS NOT NULL THEN 'unserved' WHEN h.pause IS NOT NULL THEN 'paused' END, coalesce(h.copied, h.pause),
               s.next_retry_at, s.suspended_since
        FROM postbox.publication p CROSS JOIN LATERAL (SELECT CASE WHEN p.home <> postbox.this_database() THEN postbox.problem_text(postbox.copy_problem(p.name)) END,
                                                              postbox.pause_text(p.paused_at, p.paused_until, p.paused_reason)) h(copied, pause)
        LEFT JOIN postbox.publication_state s ON s.publication = p.name AND s.attempts > 0 AND s.next_retry_at IS NOT NULL AND h.pause IS NULL
        ORDER BY p.name
    LOOP
        IF state IS NULL THEN
            -- Waiting for a standby does not hide a failure that has yet to be retried.
            SELECT coalesce(p.state, CASE WHEN retry_at IS NULL THEN 'active' ELSE 'suspended' END), postbox.problem_text(p.problem),
                   coalesce(p.next_try, retry_at), least(p.since, suspended_since)
              INTO state, why, retry_at, suspended_since
            FROM (SELECT) one LEFT JOIN postbox.publishing_state(publication) p ON p.state <> 'waiting' OR retry_at IS NULL OR retry_at <= clock_timestamp();
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
        -- A retry that is due is under way, if there is anything to publish. Where the broker does not answer, it takes long.
        IF state <> 'retrying' AND retry_at <= clock_timestamp() AND coalesce(pending <= coalesce(parked, 0), true) THEN
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
COMMENT ON FUNCTION postbox.list_publication_status() IS 'Internal: the rows of postbox.publication_status.';

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
COMMENT ON COLUMN postbox.publication_status.pending IS 'How many events are not published yet: ready + parked';
COMMENT ON COLUMN postbox.publication_status.ready IS
    'How many of them wait to be published. Exact up to 1000, above that estimated from samples. In a log, events that were published since the last checkpoint may count';
COMMENT ON COLUMN postbox.publication_status.parked IS
    'How many of them are parked, or wait behind a parked event of their key. Exact up to 10000, above that taken from the statistics of their table';
COMMENT ON COLUMN postbox.publication_status.oldest_pending IS
    'Age of the oldest pending event, by occurred_at, among the first 1000 ready and the first 1000 parked ones; NULL if there is none';
COMMENT ON COLUMN postbox.publication_status.oldest_ready IS 'Age of the oldest ready event, likewise: how far publishing lags behind';
COMMENT ON COLUMN postbox.publication_status.retry_at IS 'When a suspended or retrying publication is retried; a time in the past: the attempt is under way. NULL if active';
COMMENT ON COLUMN postbox.publication_status.suspended_since IS 'Since when attempts have failed without a success in between; NULL if active';
COMMENT ON COLUMN postbox.publication_status.last_error IS
    'Suspended, retrying: why the last attempt failed. Unserved, waiting: the cause and the remedy. Paused: the reason. Broken: what is wrong, and the repair. Active: which events cannot be '
    'published, why the backlog is not counted, or which table is UNLOGGED; NULL if nothing is. See Troubleshooting';
COMMENT ON COLUMN postbox.publication_status."position" IS 'Log: the seq up to which every lane has read; 0 if a lane has not begun. NULL for a table';
COMMENT ON COLUMN postbox.publication_status.leases IS 'Log: the lock tokens of the workers that hold its lanes, see postbox.workers. NULL for a table';
COMMENT ON COLUMN postbox.publication_status.sent_again_at_most IS
    'An upper bound of the number of messages that were sent more than once since the publication was created: 0 without a fault. It counts the messages of requests '
    'without an answer, and what a worker may have sent after its last stored position, if it was lost or began again there: of a log with a backlog, the whole backlog. '
    'Counts are stored with the results; those of a worker that was killed before that are missing';
COMMENT ON COLUMN postbox.publication_status.sent_again_at IS 'When the last of them were counted; NULL if there were none';
