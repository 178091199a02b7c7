-- What `postbox audit` asks of the two databases (worker/cli/audit). The tables of users are read as their owner: extension/registry/audit.cc.
--
-- Times are microseconds since 1970, so that none is lost on the way. `place` orders the events of an outbox: in a log it is the seq, in a table
-- the time of published_at.

CREATE OR REPLACE FUNCTION postbox.micros(moment timestamptz) RETURNS bigint
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN CASE WHEN pg_catalog.isfinite(moment) THEN (pg_catalog.extract('epoch', moment) * 1000000)::bigint END;
COMMENT ON FUNCTION postbox.micros(timestamptz) IS 'Internal: a time as microseconds since 1970; NULL if it is infinite.';

CREATE OR REPLACE FUNCTION postbox.time_of_micros(micros bigint) RETURNS timestamptz
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN '1970-01-01 00:00:00+00'::timestamptz + micros * interval '1 microsecond';
COMMENT ON FUNCTION postbox.time_of_micros(bigint) IS 'Internal: the time that is so many microseconds after 1970-01-01 00:00 UTC.';

-- Data that went back to an earlier moment, by a restore or because a standby was promoted that had not received everything, has another timeline
-- or fewer WAL.
CREATE OR REPLACE FUNCTION postbox.audit_history(OUT timeline bigint, OUT wal bigint)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN pg_is_in_recovery() THEN (SELECT greatest(c.timeline_id, r.min_recovery_end_timeline) FROM pg_control_checkpoint() c, pg_control_recovery() r)
                ELSE ('x' || left(pg_walfile_name(pg_current_wal_insert_lsn()), 8))::bit(32)::bigint END,
        (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_insert_lsn() END - '0/0')::bigint
$$;
COMMENT ON FUNCTION postbox.audit_history() IS 'Internal: for postbox audit, the timeline of this server and how far its WAL reaches.';

-- `settled`: up to it no event can appear any more. What a table's worker marks as published is committed within minutes.
CREATE OR REPLACE FUNCTION postbox.audit_source(wanted text DEFAULT NULL)
    RETURNS TABLE (publication text, identity text, kind text, now_micros bigint, settled bigint, upto bigint, retained_from bigint, created bigint,
                   origins int[], aggregate_types text[], parked bigint, oldest bigint, problem text, timeline bigint, wal bigint)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p postbox.publication;
    o postbox.outbox;
    numbers regclass;
BEGIN
    SELECT h.timeline, h.wal INTO timeline, wal FROM postbox.audit_history() h;
    FOR p IN SELECT q.* FROM postbox.publication q WHERE wanted IS NULL OR q.name = wanted ORDER BY q.name LOOP
        SELECT r.* INTO o FROM postbox.outbox r WHERE r.relation = p.outbox;
        CONTINUE WHEN NOT FOUND;
        publication := p.name;
        identity := concat_ws('/', postbox.this_database(), p.outbox::oid, p.name, postbox.micros(p.created_at));
        kind := o.kind;
        now_micros := postbox.micros(clock_timestamp());
        created := postbox.micros(greatest(p.created_at, o.created_at));
        retained_from := greatest(postbox.micros(o.created_at), now_micros - coalesce((extract(epoch FROM o.retention) * 1000000)::bigint, now_micros));
        aggregate_types := p.aggregate_types;
        -- A row of which the sequence has not made the seq is a problem of the backlog, and is not among the events that are read.
        SELECT b.parked, postbox.micros(clock_timestamp() - greatest(b.oldest_ready, b.oldest_parked)), b.problem INTO parked, oldest, problem
            FROM postbox.show_backlog(p.name) b;
        IF NOT FOUND THEN
            problem := format('the role may not read the backlog: it needs SELECT on %s', coalesce(o.parked, o.relation));
        END IF;
        IF kind = 'log' THEN
            -- Who takes a seq has a transaction id before. So when all transactions have ended that had begun at such a moment, no seq up to it is left.
            SELECT coalesce(max(z.upto), 0) INTO settled FROM postbox.lane_progress l
                CROSS JOIN LATERAL unnest(l.zone_upto || l.hwm, (SELECT y.zone_next_xid || y.next_xid FROM postbox.lane y
                    WHERE y.publication = l.publication AND y.slice = l.slice)) AS z(upto, next_xid)
                WHERE l.publication = p.name AND l.origin = postbox.cluster_origin() AND z.next_xid <= pg_snapshot_xmin(pg_current_snapshot());
            numbers := postbox.log_sequence(p.outbox);
            IF NOT has_sequence_privilege(numbers, 'USAGE, SELECT') THEN
                RAISE insufficient_privilege USING
                    MESSAGE = format('permission denied for sequence %s', numbers), HINT = format('Grant USAGE on sequence %s.', numbers);
            END IF;
            upto := coalesce(pg_sequence_last_value(numbers), 0);
            -- The events of a restore first: they are the older ones.
            origins := ARRAY(SELECT DISTINCT l.origin FROM postbox.lane_progress l WHERE l.publication = p.name AND l.origin <> postbox.cluster_origin())
                || ARRAY[-2147483648, postbox.cluster_origin()];
        ELSE
            settled := now_micros - 300000000;
            upto := now_micros;
            origins := ARRAY[0];
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.audit_source(text) IS 'Internal: for postbox audit, the publications of this database, or one of them: where they stand, and what is retained.';

-- A lane that is behind withholds many events, and a position has their list: it is read once for all rows.
CREATE OR REPLACE FUNCTION postbox.audit_withheld(publication text) RETURNS TABLE (origin int, seq bigint)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.origin, w.seq FROM postbox.lane_progress l CROSS JOIN LATERAL unnest((l.ahead).withheld) AS w(seq) WHERE l.publication = audit_withheld.publication
$$;
COMMENT ON FUNCTION postbox.audit_withheld(text) IS 'Internal: for postbox audit, the events that the lanes of a publication withhold.';

CREATE OR REPLACE FUNCTION postbox.audit_lanes(publication text)
    RETURNS TABLE (origin int, slice int, floor bigint, behind postbox.lane_progress, whole postbox.lane_progress)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT l.origin, l.slice, CASE WHEN l.snapshot IS NOT NULL THEN l.floor END,
        ROW(l.publication, l.slice, l.origin, l.floor, l.hwm, l.snapshot, l.next_xid, l.zone_upto, l.zone_snapshot, NULL)::postbox.lane_progress,
        ROW(l.publication, l.slice, l.origin, l.floor, l.hwm, l.snapshot, l.next_xid, l.zone_upto, l.zone_snapshot, CASE WHEN (l.ahead).after IS NOT NULL
            THEN ROW((l.ahead).after, (l.ahead).upto, (l.ahead).snapshot, (l.ahead).next_xid, '{}'::bigint[])::postbox.position_ahead END)::postbox.lane_progress
    FROM postbox.lane_progress l WHERE l.publication = audit_lanes.publication
$$;
COMMENT ON FUNCTION postbox.audit_lanes(text) IS
    'Internal: for postbox audit, where the lanes of a publication are: without what they have read ahead, and with it but without the list of withheld events.';

-- `events`: the rows of the outbox.
CREATE OR REPLACE FUNCTION postbox.emitted_form(registered postbox.outbox, events text, OUT columns text, OUT source text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    payload_type regtype;
    payload text;
    attributes text;
BEGIN
    SELECT a.atttypid, quote_ident(a.attname) INTO payload_type, payload FROM pg_attribute a WHERE a.attrelid = registered.relation
        AND a.attname = coalesce(registered.columns ->> 'payload', 'payload') AND NOT a.attisdropped;
    SELECT 'e.' || quote_ident(a.attname) || CASE WHEN a.atttypid = 'jsonb'::regtype THEN '' ELSE '::jsonb' END INTO attributes FROM pg_attribute a
        WHERE a.attrelid = registered.relation AND a.attname = coalesce(registered.columns ->> 'attributes', 'attributes') AND NOT a.attisdropped;
    payload := CASE WHEN payload_type = 'bytea'::regtype THEN 'e.' || payload ELSE format('convert_to(e.%s::text, ''UTF8'')', payload) END;
    columns := format('%s AS id, %s AS aggregate_type, %s AS aggregate_id, %s AS event_type, %s::bigint AS version, postbox.micros(%s) AS occurred, '
                      'octet_length(%s)::bigint AS bytes, %s AS payload, %s AS attributes', postbox.outbox_column(registered, 'id', 'e.'),
        postbox.outbox_column(registered, 'aggregate_type', 'e.'), postbox.outbox_column(registered, 'aggregate_id', 'e.'),
        postbox.outbox_column(registered, 'event_type', 'e.'), postbox.outbox_column(registered, 'version', 'e.'),
        postbox.outbox_column(registered, 'occurred_at', 'e.'),
        payload, payload, coalesce(attributes, 'NULL::jsonb'));
    IF registered.kind = 'log' THEN
        -- Rows that a restore has brought and that are settled were published, or are parked.
        columns := columns || $sql$, e.seq AS place,
            CASE WHEN EXISTS (SELECT FROM postbox.expired_event x WHERE x.publication = p.name AND x.event_id = e.id::text) THEN 'expired'
                 WHEN EXISTS (SELECT FROM postbox.discarded_outgoing d WHERE d.publication = p.name AND d.event_id = e.id) THEN 'discarded'
                 WHEN EXISTS (SELECT FROM $sql$ || registered.parked || $sql$ q WHERE q.publication = p.name AND q.id = e.id AND NOT q.republished) THEN 'parked'
                 WHEN e.origin = -2147483648 OR e.seq <= l.floor THEN 'published'
                 WHEN postbox.has_read(CASE WHEN (e.origin, e.seq) IN (SELECT w.origin, w.seq FROM postbox.audit_withheld($1) w) THEN l.behind ELSE l.whole END, e.txid, e.seq)
                 THEN 'published' ELSE 'pending' END AS state$sql$;
        source := format($sql$%s e JOIN postbox.publication p ON p.name = $1 LEFT JOIN postbox.audit_lanes($1) l
            ON l.origin = e.origin AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)$sql$, events);
    ELSE
        columns := columns || $sql$, coalesce(postbox.micros(e.published_at), 0) AS place,
            CASE WHEN e.published_at = '-infinity' THEN CASE e.last_error WHEN 'expired' THEN 'expired' ELSE 'discarded' END WHEN e.published_at IS NOT NULL THEN 'published'
                 WHEN e.next_retry_at IS NOT NULL THEN 'parked' ELSE 'pending' END AS state$sql$;
        source := format('%s e JOIN postbox.publication p ON p.name = $1', events);
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.emitted_form(postbox.outbox, text) IS
    'Internal: events of an outbox for postbox audit, as SQL: the columns and the FROM clause; $1 is the publication.';

CREATE OR REPLACE FUNCTION postbox.read_emitted(publication text, origin int, after bigint, after_id uuid, upto bigint, most int)
    RETURNS TABLE (id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, occurred bigint, bytes bigint, payload bytea, attributes jsonb,
                   place bigint, state text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
    types text[];
    form record;
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = read_emitted.publication;
    SELECT p.aggregate_types INTO types FROM postbox.publication p WHERE p.name = read_emitted.publication;
    -- The page first: tables that have not been analyzed mislead the planner otherwise.
    form := postbox.emitted_form(registered, format('(SELECT e.* FROM %s e WHERE ($7 IS NULL OR %s = ANY ($7)) AND %s LIMIT $6)', registered.relation,
        postbox.outbox_column(registered, 'aggregate_type', 'e.'),
        CASE registered.kind WHEN 'log' THEN 'e.origin = $2 AND e.seq > $3 AND e.seq <= $5 ORDER BY e.seq'
        ELSE format('e.published_at IS NOT NULL AND e.published_at >= postbox.time_of_micros($3) AND e.published_at <= postbox.time_of_micros($5) '
                    'AND (e.published_at > postbox.time_of_micros($3) OR %1$s > $4) ORDER BY e.published_at, %1$s', postbox.outbox_column(registered, 'id', 'e.')) END));
    RETURN QUERY EXECUTE format($sql$
        SELECT r.id, r.aggregate_type, r.aggregate_id, r.event_type, r.version, r.occurred, r.bytes, NULL::bytea, NULL::jsonb, r.place, r.state
        FROM (SELECT %s FROM %s) r ORDER BY r.place, r.id
        $sql$, form.columns, form.source) USING publication, origin, after, after_id, upto, most, types;
END
$$;
COMMENT ON FUNCTION postbox.read_emitted(text, int, bigint, uuid, bigint, int) IS 'Internal: postbox.audit_emitted with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.audit_emitted(publication text, origin int, after bigint, after_id uuid, upto bigint, most int)
    RETURNS TABLE (id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, occurred bigint, bytes bigint, payload bytea, attributes jsonb,
                   place bigint, state text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.audit_emitted(text, int, bigint, uuid, bigint, int) IS
    'Internal: for postbox audit, a page of the events of an outbox in the order of their place, without their content, read as the owner of the outbox.';

CREATE OR REPLACE FUNCTION postbox.read_events(publication text, event_ids uuid[], content boolean)
    RETURNS TABLE (id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, occurred bigint, bytes bigint, payload bytea, attributes jsonb,
                   place bigint, state text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
    form record;
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = read_events.publication;
    IF content IS NULL THEN
        RETURN QUERY EXECUTE format($sql$
            SELECT i.wanted, NULL::text, NULL::text, NULL::text, NULL::bigint, NULL::bigint, NULL::bigint, NULL::bytea, NULL::jsonb, NULL::bigint, NULL::text
            FROM unnest($1) AS i(wanted) WHERE EXISTS (SELECT FROM %s e WHERE %s = i.wanted OFFSET 0)
            $sql$, registered.relation, postbox.outbox_column(registered, 'id', 'e.')) USING event_ids;
        RETURN;
    END IF;
    form := postbox.emitted_form(registered, registered.relation::text);
    RETURN QUERY EXECUTE format($sql$
        SELECT r.id, r.aggregate_type, r.aggregate_id, r.event_type, r.version, r.occurred, r.bytes, CASE WHEN $3 THEN r.payload END, CASE WHEN $3 THEN r.attributes END,
               r.place, r.state
        FROM unnest($2) AS i(wanted) CROSS JOIN LATERAL (SELECT %s FROM %s WHERE %s = i.wanted LIMIT 1) r
        $sql$, form.columns, form.source, postbox.outbox_column(registered, 'id', 'e.'))
        USING publication, event_ids, content;
END
$$;
COMMENT ON FUNCTION postbox.read_events(text, uuid[], boolean) IS 'Internal: postbox.audit_events with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.audit_events(publication text, event_ids uuid[], content boolean)
    RETURNS TABLE (id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, occurred bigint, bytes bigint, payload bytea, attributes jsonb,
                   place bigint, state text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.audit_events(text, uuid[], boolean) IS
    'Internal: for postbox audit, those of these events that are in the outbox of a publication, read as its owner: with their content, without it, or, if content is '
    'NULL, the ids alone.';

CREATE OR REPLACE FUNCTION postbox.read_last_versions(publication text, event_types text[], aggregate_types text[], aggregate_ids text[])
    RETURNS TABLE (number int, version bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = read_last_versions.publication;
    RETURN QUERY EXECUTE format($sql$
        SELECT w.number::int - 1, max(%4$s::bigint) FROM unnest($2, $3) WITH ORDINALITY AS w(aggregate_type, aggregate_id, number)
        JOIN %5$s e ON %1$s = w.aggregate_type AND %2$s = w.aggregate_id WHERE %3$s = ANY ($1) GROUP BY w.number
        $sql$, postbox.outbox_column(registered, 'aggregate_type', 'e.'), postbox.outbox_column(registered, 'aggregate_id', 'e.'),
        postbox.outbox_column(registered, 'event_type', 'e.'), postbox.outbox_column(registered, 'version', 'e.'), registered.relation)
        USING event_types, aggregate_types, aggregate_ids;
END
$$;
COMMENT ON FUNCTION postbox.read_last_versions(text, text[], text[], text[]) IS 'Internal: postbox.audit_last_versions with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.audit_last_versions(publication text, event_types text[], aggregate_types text[], aggregate_ids text[])
    RETURNS TABLE (number int, version bigint)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.audit_last_versions(text, text[], text[], text[]) IS
    'Internal: for postbox audit, the last versions of aggregates, by their number from 0, that events of these types have in an outbox, read as its owner.';

-- The second event of a version is stale in projections, and handlers have had both.
CREATE OR REPLACE FUNCTION postbox.read_repeated_versions(publication text, most int)
    RETURNS TABLE (aggregate_type text, aggregate_id text, version bigint, event_ids text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = read_repeated_versions.publication;
    RETURN QUERY EXECUTE format($sql$
        SELECT %1$s, %2$s, %3$s::bigint, left(string_agg(%4$s::text, ', ' ORDER BY %4$s::text), 300) FROM %5$s e JOIN postbox.publication p ON p.name = $1
        WHERE p.aggregate_types IS NULL OR %1$s = ANY (p.aggregate_types) GROUP BY 1, 2, 3 HAVING count(*) > 1 LIMIT $2
        $sql$, postbox.outbox_column(registered, 'aggregate_type', 'e.'), postbox.outbox_column(registered, 'aggregate_id', 'e.'),
        postbox.outbox_column(registered, 'version', 'e.'), postbox.outbox_column(registered, 'id', 'e.'), registered.relation)
        USING publication, most;
END
$$;
COMMENT ON FUNCTION postbox.read_repeated_versions(text, int) IS 'Internal: postbox.audit_repeated_versions with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.audit_repeated_versions(publication text, most int)
    RETURNS TABLE (aggregate_type text, aggregate_id text, version bigint, event_ids text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.audit_repeated_versions(text, int) IS
    'Internal: for postbox audit, versions of aggregates that several events of an outbox have, read as its owner.';

-- The last state of a key is emitted again as a new event, for a consumer that has the old one and whose row is wrong. No other event of the key
-- may come between the look and the new event, which would be newer than it: the row of the version counter is locked, as each emitter locks it.
CREATE OR REPLACE FUNCTION postbox.emit_event_again(publication text, event_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox;
    e record;
    counted bigint;
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = emit_event_again.publication;
    IF registered.kind <> 'log' THEN
        RAISE feature_not_supported USING
            MESSAGE = format('outbox %s is of kind table', registered.relation),
            DETAIL = 'The application may give the versions of its events itself, and would be refused a version that is used here.',
            HINT = 'Let the application emit the last state of the key again.';
    END IF;
    EXECUTE format('SELECT e.* FROM %s e WHERE e.id = $1', registered.relation) INTO e USING event_id;
    IF e.id IS NULL THEN
        RAISE no_data_found USING MESSAGE = format('event %s is not in outbox %s', event_id, registered.relation);
    END IF;
    EXECUTE format('SELECT c.version FROM %s c WHERE c.aggregate_type = $1 AND c.aggregate_id = $2 FOR UPDATE', registered.counter)
        INTO counted USING e.aggregate_type, e.aggregate_id;
    IF counted IS NULL OR EXISTS (SELECT FROM postbox.given_version g WHERE g.outbox = registered.relation AND g.aggregate_type = e.aggregate_type COLLATE "C") THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the versions of %s %s are not counted by Postbox', e.aggregate_type, e.aggregate_id),
            DETAIL = 'The application gives them, so only it knows the next one.',
            HINT = 'Let the application emit the last state of the key again.';
    ELSIF counted <> e.version THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('event %s is not the last one of its key', event_id),
            DETAIL = format('It has version %s, and the last one is %s.', e.version, counted),
            HINT = 'Run the audit again.';
    END IF;
    RETURN (postbox.outbox_emit(e.aggregate_type::text, e.aggregate_id::text, e.event_type::text, e.payload::bytea, schema_version => e.schema_version::text,
        attributes => e.attributes::jsonb, outbox => registered.relation)).version;
END
$$;
COMMENT ON FUNCTION postbox.emit_event_again(text, uuid) IS 'Internal: postbox.audit_emit_again with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.audit_emit_again(publication text, event_id uuid) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.audit_emit_again(text, uuid) IS
    'Internal: for postbox audit --repair, emits the last event of a key again as a new event with the next version, as the owner of the log; returns the version. An error '
    'if a newer one of the key was emitted, or its versions are not counted.';

CREATE OR REPLACE FUNCTION postbox.audit_reader(wanted text DEFAULT NULL)
    RETURNS TABLE (subscription text, identity text, inbox oid, now_micros bigint, created bigint, retention_micros bigint, shared_with text[],
                   puller text, targets jsonb, waiting_types jsonb, timeline bigint, wal bigint)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.name, concat_ws('/', postbox.this_database(), i.relation::oid, postbox.micros(i.created_at)), i.relation::oid, postbox.micros(clock_timestamp()),
        postbox.micros(i.created_at), (extract(epoch FROM i.retention) * 1000000)::bigint,
        ARRAY(SELECT o.name FROM postbox.subscription o WHERE o.inbox = s.inbox AND o.name <> s.name ORDER BY o.name),
        CASE WHEN s.paused_until > now() THEN postbox.pause_text(s.paused_at, s.paused_until, s.paused_reason)
             WHEN NOT (postbox.is_operator() OR pg_has_role('pg_monitor', 'USAGE') OR postbox.owns_inbox(s.inbox)) THEN 'not visible'
             WHEN t.retrying_since IS NOT NULL THEN format('retrying since %s: %s', t.retrying_since, coalesce(t.last_error, 'no error is known'))
             WHEN t.stream IN ('connected', 'connecting') THEN 'connected'  -- an idle stream is not known to be connected
             WHEN t.stream IS NOT NULL THEN format('its stream is %s%s', t.stream, ': ' || t.stream_error) ELSE 'no puller reports on it' END,
        (SELECT coalesce(jsonb_agg(jsonb_build_object('target', p.target::text, 'event_types', p.event_types || p.delete_types) ORDER BY p.id), '[]')
         FROM postbox.projection p WHERE p.inbox = s.inbox AND p.dropped_target IS NULL),
        -- The puller holds events of these types until what takes them works again.
        (SELECT coalesce(jsonb_object_agg(w.type, w.reason), '{}') FROM (
            SELECT unnest(p.event_types || p.delete_types), format('projection %s is %s', p.name, postbox.pause_text(p.paused_at, p.paused_until, p.paused_reason))
            FROM postbox.projection p WHERE p.inbox = s.inbox AND p.paused_until > now()
            UNION ALL
            SELECT unnest(h.event_types), format('handler %s is %s', h.name, postbox.pause_text(h.paused_at, h.paused_until, h.paused_reason))
            FROM postbox.handler h WHERE h.inbox = s.inbox AND h.paused_until > now()
            UNION ALL
            SELECT unnest(t.suspended_types), format('it is suspended since %s: %s', t.suspended_since, coalesce(t.suspended_error, 'no error is known'))) w(type, reason)),
        x.timeline, x.wal
    FROM postbox.audit_history() x CROSS JOIN postbox.subscription s JOIN postbox.inbox i ON i.relation = s.inbox
    LEFT JOIN LATERAL (SELECT u.* FROM postbox.subscription_status u WHERE u.subscription = s.name AND u.last_seen > now() - interval '6 minutes'
                       ORDER BY u.retrying_since IS NULL, u.stream <> 'connected' LIMIT 1) t ON true
    WHERE wanted IS NULL OR s.name = wanted ORDER BY s.name
$$;
COMMENT ON FUNCTION postbox.audit_reader(text) IS 'Internal: for postbox audit, the subscriptions of this database, or one of them: their inboxes and targets.';

-- An event that is rejected or parked has a dead letter, until that is discarded; postbox.discarded_event says why a parked one was.
CREATE OR REPLACE FUNCTION postbox.read_received(inbox regclass, event_ids uuid[])
    RETURNS TABLE (event_id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, received bigint, outcome text, detail text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET enable_hashjoin = off
    SET enable_mergejoin = off
    SET jit = off
AS $$
DECLARE
    failed uuid[];
    letters text[] := '{}';
BEGIN
    EXECUTE format($sql$
        SELECT array_agg(w.wanted) FROM unnest($1) AS w(wanted) CROSS JOIN LATERAL (
            SELECT FROM %s i WHERE i.event_id = w.wanted AND i.outcome IN ('rejected', 'parked') OFFSET 0) i
        $sql$, inbox) INTO failed USING event_ids;
    IF failed IS NOT NULL THEN
        EXECUTE 'SELECT coalesce(array_agg(lower(d.event_id)), ''{}'') FROM postbox.dead_letter d WHERE d.inbox = $1 AND lower(d.event_id) = ANY ($2)'
            INTO letters USING inbox, failed::text[];
    END IF;
    RETURN QUERY EXECUTE format($sql$
        SELECT i.event_id, i.aggregate_type, i.aggregate_id, i.event_type, i.version, postbox.micros(i.received_at),
               CASE WHEN d.hole THEN 'hole' WHEN i.given_up THEN 'discarded' ELSE i.outcome::text END, d.detail
        FROM unnest($2) AS w(wanted) CROSS JOIN LATERAL (
            SELECT i.event_id, i.aggregate_type, i.aggregate_id, i.event_type, i.version, i.received_at, i.outcome,
                   i.outcome IN ('rejected', 'parked') AND i.event_id::text <> ALL ($3) AS given_up
            FROM %s i WHERE i.event_id = w.wanted OFFSET 0) i
        LEFT JOIN LATERAL (
            SELECT d.hole, format('discarded by %%s at %%s: %%s', d.discarded_by, date_trunc('second', d.discarded_at), d.reason) AS detail
            FROM postbox.discarded_event d WHERE i.given_up AND d.inbox = $1 AND d.aggregate_id = i.aggregate_id AND lower(d.event_id) = i.event_id::text
            ORDER BY d.id DESC LIMIT 1) d ON true
        $sql$, inbox) USING inbox, event_ids, letters;
END
$$;
COMMENT ON FUNCTION postbox.read_received(regclass, uuid[]) IS 'Internal: postbox.audit_received with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.audit_received(inbox regclass, event_ids uuid[])
    RETURNS TABLE (event_id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, received bigint, outcome text, detail text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.audit_received(regclass, uuid[]) IS
    'Internal: for postbox audit, those of these events that an inbox has, read as its owner. A rejected or parked event whose dead letter is gone has the outcome '
    'discarded, or hole if its effect is missing.';

CREATE OR REPLACE FUNCTION postbox.read_arrivals(inbox regclass, after bigint, after_id uuid, upto bigint, most int)
    RETURNS TABLE (event_id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, received bigint, outcome text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET jit = off
AS $$
DECLARE
    since timestamptz := postbox.time_of_micros(after);
    till timestamptz := postbox.time_of_micros(upto);
    page text := 'i.received_at >= $1 AND i.received_at <= $2 AND (i.received_at > $1 OR i.event_id > $3)';
    part regclass;
    last timestamptz;
BEGIN
    -- An inbox has no index on received_at, which each event would pay for, unless its owner has made one. The rows of a generation are nearly in the
    -- order of time. So the page ends where the first rows that are found fill it: otherwise all that is left would be sorted for each page.
    FOR part IN SELECT h.inhrelid FROM pg_inherits h WHERE h.inhparent = inbox LOOP
        EXECUTE format('SELECT CASE WHEN count(*) = $4 THEN max(q.received_at) END FROM (SELECT i.received_at FROM ONLY %s i WHERE %s LIMIT $4) q', part, page)
            INTO last USING since, till, after_id, most;
        till := least(till, last);
    END LOOP;
    RETURN QUERY EXECUTE format($sql$
        SELECT i.event_id, i.aggregate_type, i.aggregate_id, i.event_type, i.version, postbox.micros(i.received_at), i.outcome::text
        FROM %s i WHERE %s ORDER BY i.received_at, i.event_id LIMIT $4
        $sql$, inbox, page) USING since, till, after_id, most;
END
$$;
COMMENT ON FUNCTION postbox.read_arrivals(regclass, bigint, uuid, bigint, int) IS 'Internal: postbox.audit_arrivals with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.audit_arrivals(inbox regclass, after bigint, after_id uuid, upto bigint, most int)
    RETURNS TABLE (event_id uuid, aggregate_type text, aggregate_id text, event_type text, version bigint, received bigint, outcome text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.audit_arrivals(regclass, bigint, uuid, bigint, int) IS
    'Internal: for postbox audit, a page of the rows of an inbox in the order of their arrival, read as its owner.';

-- The values are those that the projection would write: the same code reads them from the event.
CREATE OR REPLACE FUNCTION postbox.audit_rows(inbox regclass, events postbox.event[])
    RETURNS TABLE (number int, target text, problem text, stored_version bigint, columns text[])
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.audit_rows(regclass, postbox.event[]) IS
    'Internal: for postbox audit, what differs between events and the rows of the projections that take them: number is that of the event from 0; problem is missing, older, '
    'newer, present (although the event deletes it), differs (in columns), or unchecked (columns has the reason).';

CREATE OR REPLACE FUNCTION postbox.record_audit(subscription text, source text, status text, watermark timestamptz DEFAULT NULL,
    findings jsonb DEFAULT '{}', detail text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.record_audit(text, text, text, timestamptz, jsonb, text) IS
$$Stores the result of a comparison of a subscription with its source in `postbox.audit`; an earlier result for the same subscription and source is replaced. `postbox audit
  --record` calls it. `postbox.doctor()` reports a result that is not clean.

subscription: the name of the subscription in this database.
source: the database and publication with which it was compared.
status: `clean`, `differences`, or `incomplete` if something could not be compared.
watermark: the time, by the clock of the source, before which nothing is missing. NULL if nothing could be compared.
findings: a JSON object from the kind of a difference to its count.
detail: the first difference, or what could not be compared.

Rights: ownership of the inbox of the subscription, or membership in postbox_operator.
Errors: 22004 if `subscription`, `source`, `status` or `findings` is NULL; 42704 if the subscription does not exist; 22023 if the status is unknown or `findings` is not an
  object; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.record_audit('videos', 'shop', 'clean', watermark => now());$$;

CREATE OR REPLACE FUNCTION postbox.doctor_of_audits() RETURNS SETOF postbox.finding
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (postbox.make_finding('audits', 'warning', a.subscription, format('the audit with %s at %s: %s; %s', a.source, date_trunc('second', a.checked_at),
            CASE a.status WHEN 'differences' THEN 'differences ' || a.findings::text ELSE 'incomplete' END, coalesce(a.detail, 'no detail')),
        'run postbox audit, which names each difference, with --repair for what to do; see docs/guides/audit.md')).*
    FROM postbox.audit a WHERE a.status <> 'clean' ORDER BY a.subscription, a.source
$$;
COMMENT ON FUNCTION postbox.doctor_of_audits() IS 'Internal: the checks of postbox.doctor() on the stored results of audits.';
