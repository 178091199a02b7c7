-- republish: events that were published are queued to be published again, and sent beside the live stream.
--
-- The queue is that of parked events (worker/publisher/delivery/parked_queue.h). In a log it is a copy of the row in the table of parked
-- events, with `republished` set. In a table the row itself is not published any more: locked_at, which has no other meaning in a row
-- that no worker has leased, keeps the time at which it was. An application may write it, too, so last_error tells such a row. Either way the first event of a key is DUE and the others are BEHIND, so
-- the key is paused: its live events wait behind them.
--
-- A call takes each key as a whole, or not at all. So what is sent of a key is one run of old events, in order, and live events come
-- before or after it. A live event that is sent while the call runs, or before a worker has noticed, comes before the run.

-- Rows that can be events, and match. $2 to $8: "from", "to", aggregate_types, keys, parts, part, and the types of the publication.
CREATE OR REPLACE FUNCTION postbox.republish_filter(aggregate_type text, key text, occurred_at text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('($2 IS NULL OR %3$s >= $2) AND ($3 IS NULL OR %3$s < $3) AND ($4 IS NULL OR %1$s = ANY ($4)) AND ($5 IS NULL OR %2$s = ANY ($5)) '
                  'AND ($8 IS NULL OR %1$s = ANY ($8)) AND ($6 = 1 OR (hashtextextended(%2$s COLLATE "C", 1) & 9223372036854775807) %% $6 = $7)',
                  aggregate_type, key, occurred_at)
$$;
COMMENT ON FUNCTION postbox.republish_filter(text, text, text) IS 'Internal: the condition on a row of an outbox for postbox.republish, as SQL.';

-- A plain INSERT writes the time in the zone of its session.
CREATE OR REPLACE FUNCTION postbox.not_expired(attributes text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('CASE WHEN %1$s ? ''postbox_expires_at'' THEN postbox.has_passed(%1$s ->> ''postbox_expires_at'') IS NOT TRUE ELSE true END', attributes)
$$;
COMMENT ON FUNCTION postbox.not_expired(text) IS 'Internal: the condition that an event with these attributes has not expired, as SQL.';

-- How the two kinds queue events, as SQL. `source`: what follows FROM, for the events e. `key`, `size`: of such an event. `queue`: an INSERT or UPDATE that
-- returns them. Parameters: $1 the publication; $2 to $8 as above; $9 its lanes; $10 whether a key waits for its first event.
CREATE OR REPLACE FUNCTION postbox.republish_form(registered postbox.outbox, OUT source text, OUT key text, OUT size text, OUT queue text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    columns text := 'seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at';
    payload text;
    not_expired text := 'true';
BEGIN
    key := postbox.outbox_column(registered, 'aggregate_id', 'e.');
    IF registered.kind = 'log' THEN
        size := 'octet_length(e.payload)';
        source := format($sql$%1$s e LEFT JOIN postbox.lane_progress l ON l.publication = $1 AND l.origin = e.origin
                AND l.slice = CASE WHEN $9 = 1 THEN 0 ELSE postbox.lane_slice(e.aggregate_id, $9) END
            WHERE (e.origin = -2147483648 OR e.seq <= l.floor OR postbox.has_read(l, e.txid, e.seq)) AND %3$s
              AND e.aggregate_type IS NOT NULL AND e.aggregate_id IS NOT NULL AND e.event_type IS NOT NULL AND e.version > 0
              AND e.schema_version IS NOT NULL AND octet_length(e.payload) <= 10000000 AND jsonb_typeof(e.attributes) = 'object'
              AND isfinite(e.occurred_at)
              AND NOT EXISTS (SELECT FROM %2$s q WHERE q.publication = $1 AND q.id = e.id)
              AND %4$s
              AND NOT EXISTS (SELECT FROM postbox.expired_event x WHERE x.publication = $1 AND x.event_id = e.id::text)
              AND NOT EXISTS (SELECT FROM postbox.discarded_outgoing d WHERE d.publication = $1 AND d.event_id = e.id)$sql$,
            registered.relation, registered.parked, postbox.republish_filter('e.aggregate_type', key, 'e.occurred_at'), postbox.not_expired('e.attributes'));
        -- Without its deliver_at: what was sent early, by redrive, is not due yet.
        queue := format($sql$INSERT INTO %1$s AS q (publication, %2$s, publish_attempts, next_retry_at, republished)
            SELECT $1, %5$s, 0, CASE WHEN $10 AND u.place > 1 THEN 'infinity' ELSE now() END, true
            FROM (SELECT e.*, row_number() OVER (PARTITION BY %4$s ORDER BY e.seq) AS place FROM %3$s) u
            ON CONFLICT (publication, id) DO NOTHING
            RETURNING q.aggregate_id AS key, octet_length(q.payload) AS size$sql$, registered.parked, columns, source, postbox.log_key('e.'),
            replace(columns, 'attributes', 'CASE WHEN attributes ? ''postbox_deliver_at'' THEN attributes - ''postbox_deliver_at'' ELSE attributes END'));
        RETURN;
    END IF;
    payload := coalesce(registered.columns ->> 'payload', 'payload');
    SELECT format(CASE WHEN a.atttypid = 'bytea'::regtype THEN 'octet_length(e.%I)' ELSE 'octet_length(e.%I::text)' END, payload) INTO size
    FROM pg_attribute a WHERE a.attrelid = registered.relation AND a.attname = payload AND NOT a.attisdropped;
    SELECT postbox.not_expired('e.' || quote_ident(a.attname)) INTO not_expired FROM pg_attribute a WHERE a.attrelid = registered.relation
        AND a.attname = coalesce(registered.columns ->> 'attributes', 'attributes') AND a.atttypid = 'jsonb'::regtype AND NOT a.attisdropped;
    source := format('%s e WHERE e.published_at > ''-infinity'' AND %s AND %s', registered.relation, postbox.republish_filter(
        postbox.outbox_column(registered, 'aggregate_type', 'e.'), key, postbox.outbox_column(registered, 'occurred_at', 'e.')), coalesce(not_expired, 'true'));
    -- A worker begins a key when no worker has an event of it on its way (worker/publisher/source/table/claim_walk.h). The first event is due at this
    -- moment, so that it is not due for a claim that has begun before.
    queue := format($sql$UPDATE %1$s AS q SET published_at = NULL, publish_attempts = 0, lock_token = NULL, locked_at = q.published_at,
            next_retry_at = CASE WHEN $10 AND u.place > 1 THEN 'infinity' ELSE clock_timestamp() END, last_error = 'queued by postbox.republish'
        FROM (SELECT e.ctid AS place_of, %2$s AS key, %4$s AS size, row_number() OVER (PARTITION BY %2$s ORDER BY e.seq) AS place FROM %3$s) u
        WHERE q.ctid = u.place_of AND q.published_at > '-infinity'
        RETURNING u.key, u.size$sql$, registered.relation, key, source, size);
END
$$;
COMMENT ON FUNCTION postbox.republish_form(postbox.outbox) IS
    'Internal: how postbox.republish finds and queues the events of an outbox, as SQL.';

CREATE OR REPLACE FUNCTION postbox.republish_events(publication text, "from" timestamptz, "to" timestamptz, aggregate_types text[], keys text[],
    dry_run boolean, max_events int, resume text)
    RETURNS postbox.republished
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p postbox.publication;
    registered postbox.outbox;
    step text[] := regexp_match(resume, '^([0-9]{1,9})/([0-9]{1,9})$');
    parts int := 1;
    part int := 0;
    counted record;
    result postbox.republished;
BEGIN
    IF dry_run IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'dry_run may not be null';
    ELSIF max_events IS NULL OR max_events < 1 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'max_events must be at least 1';
    ELSIF "from" >= "to" THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'from must be before to',
            DETAIL = 'No event occurred in this range.';
    ELSIF cardinality(aggregate_types) = 0 OR cardinality(keys) = 0 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'aggregate_types and keys may not be empty',
            HINT = 'NULL takes all.';
    ELSIF array_position(aggregate_types, NULL) IS NOT NULL OR array_position(keys, NULL) IS NOT NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'aggregate_types and keys may not contain null';
    ELSIF resume IS NOT NULL AND (step IS NULL OR step[1]::int >= step[2]::int) THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('invalid value for resume: "%s"', resume),
            HINT = 'Pass what the last call has returned in resume, and the same other arguments.';
    END IF;
    SELECT * INTO p FROM postbox.publication r WHERE r.name = publication;
    registered := postbox.require_outbox(p.outbox);
    IF row_security_active(registered.relation) OR row_security_active(coalesce(registered.parked, registered.relation)) THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('row security hides events of outbox %s from its owner', registered.relation),
            HINT = format('Run ALTER TABLE %s NO FORCE ROW LEVEL SECURITY.', registered.relation);
    END IF;
    IF step IS NOT NULL THEN
        SELECT step[1], step[2] INTO part, parts;
    ELSE
        -- What one call queues is counted first if it may be more than it should be.
        SELECT * INTO counted FROM postbox.republish_step(registered, p, "from", "to", aggregate_types, keys, true, parts, part);
        result.total_events := counted.events;
        parts := greatest(1, ceil(counted.events::float8 / max_events))::int;
    END IF;
    IF NOT dry_run OR parts > 1 THEN
        SELECT * INTO counted FROM postbox.republish_step(registered, p, "from", "to", aggregate_types, keys, dry_run, parts, part);
    END IF;
    result.events := counted.events;
    result.keys := counted.key_count;
    result.bytes := counted.bytes;
    result.resume := CASE WHEN part + 1 < parts THEN format('%s/%s', part + 1, parts) END;
    RETURN result;
END
$$;
COMMENT ON FUNCTION postbox.republish_events(text, timestamptz, timestamptz, text[], text[], boolean, int, text) IS
    'Internal: postbox.republish with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.republish_step(registered postbox.outbox, p postbox.publication, "from" timestamptz, "to" timestamptz,
    aggregate_types text[], keys text[], dry_run boolean, parts int, part int, OUT events bigint, OUT key_count bigint, OUT bytes bigint)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    form record := postbox.republish_form(registered);
BEGIN
    EXECUTE format('WITH queued AS (%s) SELECT count(*), count(DISTINCT u.key), coalesce(sum(u.size), 0)::bigint FROM queued u',
                   CASE WHEN dry_run THEN format('SELECT %s AS key, %s AS size FROM %s', form.key, form.size, form.source) ELSE form.queue END)
        INTO events, key_count, bytes USING p.name, "from", "to", aggregate_types, keys, parts, part, p.aggregate_types, p.lanes,
            p.ordering <> 'none' AND p.on_failure = 'park_key';
END
$$;
COMMENT ON FUNCTION postbox.republish_step(postbox.outbox, postbox.publication, timestamptz, timestamptz, text[], text[], boolean, int, int) IS
    'Internal: one step of postbox.republish, with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.republish(publication text, "from" timestamptz DEFAULT NULL, "to" timestamptz DEFAULT NULL,
    aggregate_types text[] DEFAULT NULL, keys text[] DEFAULT NULL, dry_run boolean DEFAULT false, max_events int DEFAULT 100000,
    resume text DEFAULT NULL)
    RETURNS postbox.republished
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.republish(text, timestamptz, timestamptz, text[], text[], boolean, int, text) IS
$$Sends published events again, with their ids and their content, in the order of each key. Returns what the call has queued, and how to go on. Events that are still in
  the outbox count; see its retention.

The live stream goes on. While old events of a key are queued, its new events wait behind them; other keys do not wait. Events that the publication has not published yet
  are not queued: they are sent anyway. Events that were discarded, or whose `expires_at` is over, are left out. Consumers receive the messages as a redelivery of the same events: an inbox takes them for
  duplicates, and a new subscription or a rebuilt consumer applies them.

publication: the name of the publication. A suspended publication sends the queued events when it works again.
from: events that occurred then or later. NULL begins with the oldest.
to: events that occurred before. NULL takes all.
aggregate_types: only these aggregate types. NULL takes all that the publication takes.
keys: only these aggregate ids. NULL takes all.
dry_run: true counts, and changes nothing.
max_events: about how many events one call queues, at least 1. A call takes each key as a whole, so it may be more. While more keys are left, the result has `resume`.
resume: what the last call returned in `resume`, with all other arguments as before. NULL begins.

Rights: ownership of the outbox, or membership in `postbox_operator`.
Errors: 42704 if the publication does not exist; 22004 if publication or dry_run is NULL, or an array contains NULL; 22023 if max_events is below 1, from is not before to,
  an array is empty or resume is invalid; 55000 if the extension has yet to be updated, or the outbox is incomplete; 42501 without the rights.
Since: 0.2.0
Example: SELECT * FROM postbox.republish('video_events', "from" => now() - interval '1 hour', dry_run => true);$$;

CREATE OR REPLACE FUNCTION postbox.remove_republished(publication text) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    p postbox.publication;
    registered postbox.outbox;
    form record;
    waits text := '';
    removed text[];
BEGIN
    SELECT * INTO p FROM postbox.publication r WHERE r.name = publication;
    registered := postbox.require_outbox(p.outbox);
    form := postbox.parked_form(registered);
    IF registered.kind = 'log' THEN
        EXECUTE format('WITH removed AS (DELETE FROM %s q WHERE q.publication = $1 AND q.republished RETURNING %s AS key) '
                       'SELECT array_agg(r.key) FROM removed r', registered.parked, form.key) INTO removed USING p.name;
    ELSE
        EXECUTE format($sql$
            WITH removed AS (
                UPDATE %1$s AS q SET published_at = q.locked_at, next_retry_at = NULL, last_error = NULL%2$s
                WHERE %3$s AND q.publish_attempts = 0 AND q.locked_at IS NOT NULL AND q.next_retry_at > '-infinity' AND q.last_error = 'queued by postbox.republish'
                  AND ($1 IS NULL OR %4$s = ANY ($1) OR NOT EXISTS (
                      SELECT FROM postbox.publication p WHERE p.outbox = $2 AND (p.aggregate_types IS NULL OR %4$s = ANY (p.aggregate_types))))
                RETURNING %5$s AS key)
            SELECT array_agg(r.key) FROM removed r
            $sql$, registered.relation, form.free, form.parked, postbox.outbox_column(registered, 'aggregate_type', 'q.'), form.key)
            INTO removed USING p.aggregate_types, registered.relation;
        -- What a worker has on its way was not parked, so nothing makes due what a claim has put behind it and the queued events.
        waits := ' AND (q.lock_token IS NULL OR q.next_retry_at = ''infinity'')';
    END IF;
    -- A separate statement, which sees what a worker put behind them meanwhile.
    EXECUTE format($sql$
        UPDATE %1$s AS q SET next_retry_at = now()%2$s
        WHERE q.ctid = ANY (ARRAY(
            SELECT h.tid FROM (SELECT DISTINCT k.key FROM unnest($2) AS k(key)) k JOIN postbox.publication p ON p.name = $1
            CROSS JOIN LATERAL (SELECT q.ctid AS tid FROM %1$s q WHERE %3$s AND %4$s = k.key%7$s ORDER BY %5$s LIMIT 1) h))
          AND %6$s AND q.next_retry_at = 'infinity' AND q.publish_attempts = 0
        $sql$, form.relation, form.free, form."of", form.key, form.sorted, form.parked, waits)
        USING p.name, removed;
    RETURN coalesce(cardinality(removed), 0);
END
$$;
COMMENT ON FUNCTION postbox.remove_republished(text) IS 'Internal: postbox.cancel_republish with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.cancel_republish(publication text) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.cancel_republish(text) IS
$$Takes back the events that `republish` has queued and that are not sent yet. Returns how many. Events that a worker is sending are sent. The events that wait behind them
  follow.

publication: the name of the publication.

Rights: ownership of the outbox, or membership in `postbox_operator`.
Errors: 42704 if the publication does not exist; 22004 if it is NULL; 55000 if the extension has yet to be updated, or the outbox is incomplete; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.cancel_republish('video_events');$$;

CREATE OR REPLACE FUNCTION postbox.count_republished(publication text) RETURNS bigint
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET enable_seqscan = off
    SET enable_bitmapscan = off
AS $$
DECLARE
    p postbox.publication;
    registered postbox.outbox;
    queued bigint;
BEGIN
    SELECT * INTO p FROM postbox.publication r WHERE r.name = publication;
    SELECT * INTO registered FROM postbox.outbox o WHERE o.relation = p.outbox;
    IF registered.kind = 'log' THEN
        EXECUTE format('SELECT count(*) FROM (SELECT FROM %s q WHERE q.publication = $1 AND q.republished LIMIT 100000) q', registered.parked)
            INTO queued USING p.name;
    ELSE
        EXECUTE format($sql$
            SELECT count(*) FROM (SELECT FROM %s q WHERE q.published_at IS NULL AND q.next_retry_at > '-infinity' AND q.publish_attempts = 0
                AND q.locked_at IS NOT NULL AND q.last_error = 'queued by postbox.republish' AND ($1 IS NULL OR %s = ANY ($1)) LIMIT 100000) q
            $sql$, registered.relation, postbox.outbox_column(registered, 'aggregate_type', 'q.')) INTO queued USING p.aggregate_types;
    END IF;
    RETURN queued;
END
$$;
COMMENT ON FUNCTION postbox.count_republished(text) IS
    'Internal: how many events that postbox.republish has queued a publication has yet to send, at most 100000, with the rights of the current user.';
