-- Times of events: what is delayed, and what has expired. They are among the attributes of an event (proto/rules/attributes.h).

-- At the end of a SET. Without its time, a delayed event is sent now.
CREATE OR REPLACE FUNCTION postbox.without_delay(registered postbox.outbox) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format(', %1$I = (q.%1$I::jsonb - ''postbox_deliver_at'')%2$s', c.name,
                  CASE WHEN (registered).kind = 'table' THEN (SELECT format('::%s', format_type(a.atttypid, NULL)) FROM pg_attribute a
                      WHERE a.attrelid = (registered).relation AND a.attname = c.name AND NOT a.attisdropped) END)
    FROM (SELECT coalesce((registered).columns ->> 'attributes', 'attributes')) AS c(name)
$$;
COMMENT ON FUNCTION postbox.without_delay(postbox.outbox) IS 'Internal: the part of an UPDATE of a parked event q that removes its deliver_at.';

CREATE OR REPLACE FUNCTION postbox.sees_outbox(outbox regclass) RETURNS boolean
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.sees_outbox(regclass) IS 'Internal: whether the current user may see the events of an outbox, as in postbox.paused_keys.';

-- The events of a status may have any text as their time.
CREATE OR REPLACE FUNCTION postbox.waiting_since(deliver_at text, occurred_at timestamptz) RETURNS timestamptz
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    since timestamptz := occurred_at;
BEGIN
    BEGIN
        since := greatest(deliver_at::timestamptz, occurred_at);
    EXCEPTION
        WHEN data_exception THEN
            NULL;
    END;
    RETURN CASE WHEN since <= now() THEN since END;
END
$$;
COMMENT ON FUNCTION postbox.waiting_since(text, timestamptz) IS
    'Internal: since when an event with a deliver_at waits to be published; NULL if it is delayed.';

-- So may their expires_at. A text that is no time has not passed.
CREATE OR REPLACE FUNCTION postbox.has_passed(expires_at text) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN expires_at::timestamptz <= now();
EXCEPTION
    WHEN data_exception THEN
        RETURN false;
END
$$;
COMMENT ON FUNCTION postbox.has_passed(text) IS 'Internal: whether the expires_at of an event is over.';

-- Expired events. A log whose versions are given has no row of the aggregate in its counter.
CREATE OR REPLACE FUNCTION postbox.counted_versions(outbox regclass, aggregate_types text[], aggregate_ids text[])
    RETURNS TABLE (place bigint, version bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
BEGIN
    RETURN QUERY EXECUTE format($sql$
        SELECT k.place, c.version FROM unnest($1, $2) WITH ORDINALITY AS k(type, id, place)
        LEFT JOIN %s c ON c.aggregate_type = k.type AND c.aggregate_id = k.id
        $sql$, registered.counter) USING aggregate_types, aggregate_ids;
END
$$;
COMMENT ON FUNCTION postbox.counted_versions(regclass, text[], text[]) IS
    'Internal: the last version of each of these aggregates, by their place, read with the rights of the current user; NULL if Postbox has counted none.';

-- An event that expired as the last one of its aggregate is a problem until another one is emitted. Where Postbox has counted no version, none
-- can be seen: then it is one for a day.
CREATE OR REPLACE FUNCTION postbox.expiry_problem(publication text, registered postbox.outbox, OUT expired bigint, OUT problem text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    types text[];
    ids text[];
    versions bigint[];
    times timestamptz[];
    last bigint;
    example text;
BEGIN
    SELECT count(*) INTO expired FROM (SELECT FROM postbox.expired_event e WHERE e.publication = expiry_problem.publication LIMIT 10000) e;
    IF expired = 0 THEN
        RETURN;
    END IF;
    SELECT array_agg(e.aggregate_type), array_agg(e.aggregate_id), array_agg(e.version), array_agg(e.expired_at) INTO types, ids, versions, times
    FROM (SELECT * FROM postbox.expired_event e WHERE e.publication = expiry_problem.publication AND e.last_of_aggregate
          ORDER BY e.publication DESC, e.expired_at DESC LIMIT 1000) e;
    IF types IS NULL OR postbox.code_of_users(registered.counter) IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT count(*), min(format('%s of type %s', quote_literal(e.id), quote_literal(e.type))) INTO last, example
    FROM unnest(types, ids, versions, times) WITH ORDINALITY AS e(type, id, version, expired_at, place)
    JOIN postbox.counted_versions(registered.relation, types, ids) c ON c.place = e.place
    WHERE CASE WHEN c.version IS NULL THEN e.expired_at > now() - interval '1 day' ELSE c.version <= e.version END;
    IF last > 0 THEN
        problem := format('%s%s events expired as the last ones of their aggregates, for example of %s; consumers may keep an older state: '
                          'emit the present one again; see postbox.expired_event', CASE WHEN last = 1000 THEN 'at least ' END, last, example);
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.expiry_problem(text, postbox.outbox) IS
    'Internal: how many events of a publication have expired, up to 10,000, and which of them no other event of their aggregate follows, with the rights of the current user.';
