-- An event that is not published is in one of these states, in a row of a table outbox, or of the table of parked events of a log
-- (worker/publisher/delivery/parked_queue.h). Only a table's row is PENDING or INFLIGHT: there, lock_token is NULL in all other states, and
-- without meaning where an application has written one into a row that is FAILED or BEHIND.
--   PENDING   next_retry_at IS NULL
--   INFLIGHT  lock_token IS NOT NULL, next_retry_at is NULL or -infinity: a worker has claimed it
--   RETRY     publish_attempts > 0, next_retry_at finite
--   FAILED    publish_attempts > 0, next_retry_at = infinity: max_attempts are used up
--   BEHIND    publish_attempts = 0, next_retry_at = infinity: waits behind a parked event of its key
--   DUE       publish_attempts = 0, next_retry_at finite: was FAILED or RETRY and is redriven, or was BEHIND and is the first,
--             or no answer came for it alone (last_error says so), which is no attempt. In the future and without last_error: delayed
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
        key := postbox.log_key('q.');
        parked := 'true';
        "of" := 'q.publication = p.name';
        sorted := format('q.publication, %s, q.seq', key);
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
    -- Not what is delayed.
    which text := ' AND (q.publish_attempts > 0 OR q.last_error IS NOT NULL)';
    sent_early text := '';
    redriven bigint;
BEGIN
    IF event_id IS NOT NULL THEN
        which := format(' AND %s = $1', form.id);
        sent_early := postbox.without_delay(registered);
        IF registered.kind = 'log' THEN
            which := which || ' AND q.publication = ANY (ARRAY(SELECT p.name FROM postbox.publication p WHERE p.outbox = $2))';
        END IF;
    END IF;
    -- The events that wait behind one of these follow when it is published.
    EXECUTE format($sql$
        UPDATE %s AS q SET next_retry_at = now(), publish_attempts = 0%s%s
        WHERE %s AND (q.publish_attempts > 0 OR q.next_retry_at <> 'infinity' AND q.next_retry_at > now())%s
        $sql$, form.relation, form.free, sent_early, form.parked, which)
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
event_id: the event. One that is delayed by deliver_at loses that, and is sent now. NULL redrives all parked events of the outbox but those that are delayed.

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
                DELETE FROM %s q WHERE publication = ANY (ARRAY(SELECT p.name FROM postbox.publication p WHERE p.outbox = $2)) AND id = $1
                RETURNING publication, %s AS key)
            SELECT array_agg(publication), array_agg(key) FROM discarded
            $sql$, form.relation, form.key) INTO publications, keys USING event_id, registered.relation;
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

CREATE OR REPLACE FUNCTION postbox.discard_event(outbox regclass, event_id uuid) RETURNS text[]
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
        RETURN NULL;
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
    RETURN removed.publications;
END
$$;
COMMENT ON FUNCTION postbox.discard_event(regclass, uuid) IS
    'Internal: postbox.discard with the rights of the current user; returns the publications that would have sent the event, NULL if there is no such event.';

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
                    AND %2$s = %3$s AND later.seq > e.seq)
            FROM %1$s e
            WHERE (e.publish_attempts > 0 OR e.last_error IS NOT NULL)  -- not one that a restore has put there
              AND NOT EXISTS (SELECT FROM %1$s earlier WHERE earlier.publication = e.publication
                              AND %4$s = %3$s AND earlier.seq < e.seq)
            ORDER BY e.seq
            $sql$, registered.parked, postbox.log_key('later.'), postbox.log_key('e.'), postbox.log_key('earlier.'));
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
