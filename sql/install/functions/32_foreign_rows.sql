CREATE OR REPLACE FUNCTION postbox.origin_of(system_identifier numeric) RETURNS int
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.origin_of(numeric) IS 'Internal: the number by which the rows of a log outbox identify the cluster with this system identifier.';

-- What a position is made of, as one row: where each lane stands here and where it stood in other clusters.
CREATE OR REPLACE VIEW postbox.lane_progress AS
    SELECT l.publication, l.slice, postbox.origin_of(l.system_identifier) AS origin, l.floor, l.hwm, l.snapshot, l.next_xid, l.zone_upto, l.zone_snapshot,
        l.ahead
    FROM postbox.lane l
    UNION ALL
    SELECT f.publication, f.slice, f.origin, f.floor, f.hwm, f.snapshot, f.next_xid, f.zone_upto, f.zone_snapshot, f.ahead
    FROM postbox.former_position f;
COMMENT ON VIEW postbox.lane_progress IS 'Internal: how far each lane of a log outbox has read the rows of each cluster: the rows of postbox.lane and postbox.former_position.';
COMMENT ON COLUMN postbox.lane_progress.publication IS 'The name of the publication';
COMMENT ON COLUMN postbox.lane_progress.slice IS 'The number of the lane';
COMMENT ON COLUMN postbox.lane_progress.origin IS 'The cluster, as in column origin of the log';
COMMENT ON COLUMN postbox.lane_progress.floor IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.lane_progress.hwm IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.lane_progress.snapshot IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.lane_progress.next_xid IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.lane_progress.zone_upto IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.lane_progress.zone_snapshot IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.lane_progress.ahead IS 'As in postbox.lane';

CREATE OR REPLACE FUNCTION postbox.cluster_origin() RETURNS int
    LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.cluster_origin() IS 'Internal: the number by which the rows of a log outbox identify this cluster, made from its system identifier.';

-- A lane that does not exist or has not begun has read nothing.
CREATE OR REPLACE FUNCTION postbox.has_read(lane postbox.lane_progress, txid xid8, seq bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (lane).snapshot IS NOT NULL AND (seq <= (lane).floor OR seq <= (lane).hwm AND pg_visible_in_snapshot(txid, coalesce(
        (SELECT z.snapshot FROM unnest((lane).zone_upto, (lane).zone_snapshot) AS z(upto, snapshot)
         WHERE z.upto >= seq ORDER BY z.upto LIMIT 1), (lane).snapshot))
        OR (seq > ((lane).ahead).after AND seq <> ALL (((lane).ahead).withheld) AND pg_visible_in_snapshot(txid,
        (SELECT z.snapshot FROM unnest(((lane).ahead).upto, ((lane).ahead).snapshot) AS z(upto, snapshot)
         WHERE z.upto >= seq ORDER BY z.upto LIMIT 1))) IS TRUE)
$$;
COMMENT ON FUNCTION postbox.has_read(postbox.lane_progress, xid8, bigint) IS 'Internal: whether a lane has read the row of a log outbox with this txid and seq.';

-- Rows of other clusters. They come with a restore, with pg_upgrade, or with a copy of the table, at any time and in any
-- order. Readers take rows of this cluster only. What a former position had not read is settled once: in one transaction
-- the event is put into the table of parked events, for each publication that misses it, where it is due, before later events of
-- its key; and its row gets the origin -2147483648, which no lane reads. It stays for the retention. What the former
-- positions had read stays as it is. A row of a cluster of which no position is known is kept: it is not known whether it
-- was published.

CREATE OR REPLACE FUNCTION postbox.foreign_origins(outbox regclass, part regclass, most_unknown int DEFAULT 1,
    OUT origin int, OUT known boolean, OUT hwm bigint, OUT xmin xid8, OUT next_xid xid8)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known_origins int[] := ARRAY[postbox.cluster_origin()];
    there boolean;
BEGIN
    known := true;
    FOR origin, hwm, xmin, next_xid IN
        SELECT l.origin, min(CASE WHEN l.snapshot IS NULL THEN 0 ELSE l.hwm END),
               (array_agg(s.xmin ORDER BY s.xmin))[1], (array_agg(l.next_xid ORDER BY l.next_xid DESC NULLS LAST))[1]
        FROM postbox.publication p JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin <> postbox.cluster_origin()
        LEFT JOIN LATERAL (SELECT pg_snapshot_xmin(z) AS xmin FROM unnest(l.zone_snapshot || l.snapshot) z ORDER BY 1 LIMIT 1) s ON true
        WHERE p.outbox = foreign_origins.outbox GROUP BY l.origin
    LOOP
        known_origins := known_origins || origin;
        EXECUTE format('SELECT EXISTS (SELECT FROM %s e WHERE e.origin = $1)', part) INTO there USING origin;
        IF there THEN
            RETURN NEXT;
        END IF;
    END LOOP;
    -- The owner can forge any number of other origins; most callers need one of them only. From one to the next, through the index.
    known := false;
    hwm := NULL;
    xmin := NULL;
    next_xid := NULL;
    origin := -2147483648;
    LOOP
        EXECUTE format('SELECT e.origin FROM %s e WHERE e.origin > $1 ORDER BY e.origin LIMIT 1', part) INTO origin USING origin;
        EXIT WHEN origin IS NULL;
        CONTINUE WHEN origin = ANY (known_origins);
        RETURN NEXT;
        most_unknown := most_unknown - 1;
        EXIT WHEN most_unknown = 0;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.foreign_origins(regclass, regclass, int) IS
    'Internal: the other clusters of which a log outbox, or one of its partitions, has rows: all that lanes have positions in, with the bounds of what may be unread, and '
    'up to most_unknown others.';

-- Late rows first, then new ones: in the order of seq. Each kind goes through one index.
CREATE OR REPLACE FUNCTION postbox.foreign_unread(outbox regclass, part regclass, origin int, hwm bigint, xmin xid8, next_xid xid8, most int,
    only_publication text DEFAULT NULL)
    RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bounds text;
    found_seqs bigint[];
    seqs bigint[];
BEGIN
    FOREACH bounds IN ARRAY '{e.seq <= $2 AND e.txid >= $3 AND e.txid < $4,e.seq > $2}'::text[] LOOP
        EXECUTE format($sql$
            SELECT array_agg(u.seq) FROM (
                SELECT e.seq FROM %1$s e WHERE e.origin = $1 AND %2$s AND EXISTS (
                    SELECT FROM postbox.publication p JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $1
                     AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
                    WHERE p.outbox = $5 AND ($7 IS NULL OR p.name = $7) AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
                      AND postbox.has_read(l, e.txid, e.seq) IS NOT TRUE)
                ORDER BY e.seq LIMIT $6) u
            $sql$, part, bounds) INTO found_seqs USING origin, hwm, xmin, next_xid, outbox, most, only_publication;
        seqs := seqs || found_seqs;
        EXIT WHEN cardinality(seqs) >= most;
    END LOOP;
    RETURN seqs[:most];
END
$$;
COMMENT ON FUNCTION postbox.foreign_unread(regclass, regclass, int, bigint, xid8, xid8, int, text) IS
    'Internal: the seq of up to `most` rows of another cluster, within the bounds of postbox.foreign_origins, that some lane had not read there.';

CREATE OR REPLACE FUNCTION postbox.has_unsettled(outbox regclass, part regclass) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    cluster record;
BEGIN
    FOR cluster IN SELECT f.* FROM postbox.foreign_origins(outbox, part) f WHERE f.known LOOP
        IF postbox.foreign_unread(outbox, part, cluster.origin, cluster.hwm, cluster.xmin, cluster.next_xid, 1) IS NOT NULL THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
COMMENT ON FUNCTION postbox.has_unsettled(regclass, regclass) IS
    'Internal: whether a log outbox, or one of its partitions, has rows of another cluster that postbox.settle_rows has to settle.';

-- A row that cannot be an event is parked as in worker/publisher/source/log/log_outbox_sql.cc. A row behind an earlier one of its key
-- waits for it.
CREATE OR REPLACE FUNCTION postbox.parking_statement(parked regclass, source text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format($sql$
        INSERT INTO %1$s AS q (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload,
            attributes, occurred_at, publish_attempts, last_error, unreadable, next_retry_at)
        SELECT u.publication, u.seq, u.id, coalesce(u.aggregate_type, ''), coalesce(u.aggregate_id, ''), coalesce(u.event_type, ''),
            greatest(u.version, 1), coalesce(u.schema_version, ''), coalesce(u.payload, ''),
            coalesce(u.attributes, '{}'), coalesce(u.occurred_at, now()), 0,
            'the row cannot be an event: ' || u.why, u.why IS NOT NULL,
            CASE WHEN u.place > 1 OR EXISTS (
                SELECT FROM %1$s b WHERE b.publication = u.publication AND b.seq < u.seq
                 AND (CASE WHEN b.attributes ? 'postbox_key_may_pass'::text THEN 'postbox_event:'::text || b.id::text ELSE b.aggregate_id END) = u.key)
            THEN 'infinity' ELSE now() END
        FROM (SELECT u.*, row_number() OVER (PARTITION BY u.publication, u.key ORDER BY u.seq) AS place
              FROM (SELECT p.name AS publication, e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.version, e.schema_version, e.payload,
                     e.attributes, e.occurred_at,
                     CASE WHEN e.aggregate_type IS NULL OR e.aggregate_id IS NULL OR e.event_type IS NULL OR e.version IS NULL OR e.version < 1 OR
                         e.schema_version IS NULL OR e.payload IS NULL OR e.attributes IS NULL OR e.occurred_at IS NULL THEN 'a column is null'
                     WHEN jsonb_typeof(e.attributes) <> 'object' THEN 'attributes are not a JSON object'
                     WHEN NOT isfinite(e.occurred_at) THEN 'occurred_at is infinite' END AS why,
                     CASE WHEN e.attributes ? 'postbox_key_may_pass'::text THEN 'postbox_event:'::text || e.id::text ELSE coalesce(e.aggregate_id, '') END AS key
                    FROM %2$s) u) u
        ON CONFLICT (publication, id) DO NOTHING
        $sql$, parked, source)
$$;
COMMENT ON FUNCTION postbox.parking_statement(regclass, text) IS
    'Internal: the statement that parks events of a log outbox, due now, from a FROM list of p, a publication, and e, a row of the log.';

CREATE OR REPLACE FUNCTION postbox.settle_rows(outbox regclass, batch int) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    cluster record;
    seqs bigint[];
    settled bigint;
BEGIN
    FOR cluster IN SELECT f.* FROM postbox.foreign_origins(outbox, outbox) f WHERE f.known LOOP
        seqs := postbox.foreign_unread(outbox, outbox, cluster.origin, cluster.hwm, cluster.xmin, cluster.next_xid, batch);
        CONTINUE WHEN seqs IS NULL;
        EXECUTE format('WITH settled AS (UPDATE %s e SET origin = -2147483648 WHERE e.origin = $1 AND e.seq = ANY ($2) RETURNING e.*), '
                       'parked AS (%s) SELECT count(*) FROM settled', outbox, postbox.parking_statement(registered.parked, $sql$
                settled e
                JOIN postbox.publication p ON p.outbox = $3 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
                JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $1
                 AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
                WHERE postbox.has_read(l, e.txid, e.seq) IS NOT TRUE
                $sql$)) INTO settled USING cluster.origin, seqs, outbox;
        IF settled = 0 THEN
            RAISE triggered_action_exception USING
                MESSAGE = format('could not settle the unpublished rows of another cluster in outbox %s', outbox),
                DETAIL = 'A trigger, rule or policy suppresses the UPDATE of these rows.',
                HINT = 'Allow the owner of the outbox to UPDATE the column origin.';
        END IF;
        RETURN settled;
    END LOOP;
    RETURN 0;
END
$$;
COMMENT ON FUNCTION postbox.settle_rows(regclass, int) IS
    'Internal: turns up to `batch` rows of other clusters that were not published there into parked events that are due, and returns how many.';

-- Runs before the lanes read rows of this cluster. It is the only function here that writes tables of Postbox, so only workers and
-- superusers run it.
CREATE OR REPLACE FUNCTION postbox.begin_here(outbox regclass) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- One session at a time: another one that settles rows tries again later.
    PERFORM FROM postbox.outbox o WHERE o.relation = begin_here.outbox FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH lane AS (
        SELECT l.* FROM postbox.lane l JOIN postbox.publication p ON p.name = l.publication
        WHERE p.outbox = begin_here.outbox AND l.system_identifier <> (SELECT c.system_identifier FROM pg_control_system() c)
        FOR UPDATE OF l
    ), former AS (
        INSERT INTO postbox.former_position (publication, slice, origin, floor, hwm, snapshot, next_xid, zone_upto, zone_snapshot, ahead)
        SELECT l.publication, l.slice, postbox.origin_of(l.system_identifier), l.floor, l.hwm, l.snapshot, l.next_xid, l.zone_upto, l.zone_snapshot, l.ahead
        FROM lane l ON CONFLICT (publication, slice, origin) DO UPDATE SET floor = EXCLUDED.floor, hwm = EXCLUDED.hwm,
            snapshot = EXCLUDED.snapshot, next_xid = EXCLUDED.next_xid, zone_upto = EXCLUDED.zone_upto, zone_snapshot = EXCLUDED.zone_snapshot,
            ahead = EXCLUDED.ahead
    ), back AS (
        -- The log was in this cluster before, where its transaction ids go on: so does the lane. Of its zones the last was read first.
        DELETE FROM postbox.former_position f USING lane l
        WHERE f.publication = l.publication AND f.slice = l.slice AND f.origin = postbox.cluster_origin() RETURNING f.*
    )
    UPDATE postbox.lane l SET system_identifier = (SELECT c.system_identifier FROM pg_control_system() c), lock_token = NULL, floor = b.floor,
        hwm = b.hwm, snapshot = b.snapshot, next_xid = b.next_xid, zone_upto = b.zone_upto, zone_snapshot = b.zone_snapshot,
        zone_next_xid = ARRAY(SELECT b.next_xid FROM unnest(b.zone_upto)), ahead = b.ahead
    FROM lane o LEFT JOIN back b ON b.publication = o.publication AND b.slice = o.slice WHERE l.publication = o.publication AND l.slice = o.slice;
    RETURN true;
END
$$;
COMMENT ON FUNCTION postbox.begin_here(regclass) IS
    'Internal: makes the lanes of a log outbox that come from another cluster begin with the rows of this one, and keeps their former positions; false if another session '
    'is doing it.';

-- A publication that is created after a restore misses the rows that had been settled before.
CREATE OR REPLACE FUNCTION postbox.park_settled(publication text, outbox regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE postbox.parking_statement((postbox.require_outbox(outbox)).parked, format($sql$
        %s e JOIN postbox.publication p ON p.name = $1 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
        WHERE e.origin = -2147483648
        $sql$, outbox)) USING publication;
END
$$;
COMMENT ON FUNCTION postbox.park_settled(text, regclass) IS 'Internal: gives a new publication the settled rows of other clusters as parked events that are due.';

-- Lanes are merged at one moment, which the snapshot says: what a lane has not read of it by then becomes parked events, which
-- go first. False if that is more than `most`.
CREATE OR REPLACE FUNCTION postbox.park_unread(publication text, hwm bigint, seen pg_snapshot, most int) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox;
    bounds record;
    seqs bigint[];
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = publication;
    -- A sequence that began again has given out what was read before to later transactions.
    SELECT min(CASE WHEN l.snapshot IS NULL THEN 0 ELSE l.hwm END) AS hwm, (array_agg(s.xmin ORDER BY s.xmin))[1] AS xmin, pg_snapshot_xmax(seen) AS next_xid
      INTO bounds
    FROM postbox.lane_progress l
    LEFT JOIN LATERAL (SELECT pg_snapshot_xmin(z) AS xmin FROM unnest(l.zone_snapshot || l.snapshot) z ORDER BY 1 LIMIT 1) s ON true
    WHERE l.publication = park_unread.publication AND l.origin = postbox.cluster_origin();
    seqs := postbox.foreign_unread(registered.relation, registered.relation, postbox.cluster_origin(), bounds.hwm, bounds.xmin, bounds.next_xid,
                                   most + 1, publication);
    IF cardinality(seqs) > most THEN
        RETURN false;
    END IF;
    EXECUTE postbox.parking_statement(registered.parked, format($sql$
        %s e JOIN postbox.publication p ON p.name = $1 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
        JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $2
         AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
        WHERE e.origin = $2 AND e.seq = ANY ($3) AND e.seq <= $4 AND pg_visible_in_snapshot(e.txid, $5)
          AND postbox.has_read(l, e.txid, e.seq) IS NOT TRUE
        $sql$, registered.relation)) USING publication, postbox.cluster_origin(), seqs, hwm, seen;
    RETURN true;
END
$$;
COMMENT ON FUNCTION postbox.park_unread(text, bigint, pg_snapshot, int) IS
    'Internal: turns up to `most` events that a publication has not read and that a snapshot sees into parked events that are due; false if there are more.';

-- Whether these rows were published cannot be found out, so a superuser decides.
CREATE OR REPLACE FUNCTION postbox.resolve_unknown_origin(outbox regclass, published boolean) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.resolve_unknown_origin(regclass, boolean) IS
$$Decides whether events of a `log` that came from another cluster without the positions of its lanes, or by logical replication, were published there. Until then they
  are kept and not published, and `postbox.outbox_status` says so. The decision also holds for events of the same origin that come later. It has no effect on an outbox
  without a publication.

outbox: the outbox, of kind `log`.
published: true if they were published at their origin: they stay and are not published here. false publishes them here, once.

Rights: superuser.
Errors: 54000 if the outbox has events of more than 100 unknown clusters, most of which must be forged: delete these events; 42809 if the relation is not a `log` outbox;
  42501 for other roles.
Since: 0.2.0
Example: SELECT postbox.resolve_unknown_origin('catalog.outbox', published => true);$$;

CREATE OR REPLACE FUNCTION postbox.settle_foreign_events(outbox regclass) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.settle_foreign_events(regclass) IS
$$After a restore into another cluster: turns the events of a `log` that the other cluster had not published into parked events that are due. So they are published before
  the events that their keys have here. Returns how many, at most 2000 in one call; 0 also if another session is doing the same. Workers call it by themselves.

outbox: the outbox, of kind `log`.

Rights: superuser.
Errors: 42809 if the relation is not a `log` outbox; 09000 if a trigger, rule or policy of the outbox keeps the rows from being updated; 42501 for other roles.
Since: 0.2.0
Example: SELECT postbox.settle_foreign_events('catalog.outbox');$$;
