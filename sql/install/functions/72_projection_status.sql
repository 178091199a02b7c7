-- postbox.projection_status: what waits for projections, as pullers report it, and which fields never come.

CREATE OR REPLACE FUNCTION postbox.report_number(value jsonb) RETURNS bigint
    LANGUAGE sql IMMUTABLE STRICT
    RETURN CASE WHEN jsonb_typeof(value) = 'number' THEN greatest(least(value::numeric, 9223372036854775807), 0)::bigint END;
COMMENT ON FUNCTION postbox.report_number(jsonb) IS 'Internal: a number that a puller has reported, at least 0; NULL if it is none.';

-- What pullers report is read with the rights of the caller. Roles that may apply events write it, so any value may be there.
CREATE OR REPLACE FUNCTION postbox.list_projection_status(OUT inbox regclass, OUT projection bigint, OUT target regclass, OUT event_types text[],
        OUT waiting bigint, OUT versions_waiting bigint, OUT oldest_waiting timestamptz, OUT suspended_types text[], OUT missing_fields text[]) RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT p.inbox, p.id, p.target, y.types, w.events, w.versions, w.oldest,
           (SELECT array_agg(DISTINCT t.type ORDER BY t.type) FROM postbox.subscription b JOIN postbox.subscription_status s ON s.subscription = b.name, unnest(s.suspended_types) AS t(type)
            WHERE b.inbox = p.inbox AND s.last_seen > k.known - interval '6 minutes' AND t.type = ANY (y.types)),
           (SELECT array_agg(format('%s in none of the last 100 events of type %s', m.field, array_to_string(m.event_types, ', ')) ORDER BY m.column_name)
            FROM postbox.missing_field m WHERE m.projection = p.id)
    FROM postbox.projection p
        CROSS JOIN (SELECT coalesce(postbox.known_until(), now()) AS known) k
        CROSS JOIN LATERAL (SELECT p.event_types || p.delete_types AS types) y
        CROSS JOIN LATERAL (
            SELECT sum(r.events)::bigint AS events, max(r.versions)::bigint AS versions, min(r.last_seen - (r.age * interval '1 ms')) FILTER (WHERE r.events > 0) AS oldest
            FROM (SELECT s.last_seen, least(coalesce(postbox.report_number(s.waiting -> t.type -> 'events'), 0), 1000000000) AS events,
                         coalesce(postbox.report_number(s.waiting -> t.type -> 'versions'), 0) AS versions,
                         least(postbox.report_number(s.waiting -> t.type -> 'oldest_ms'), 1000000000000)::float8 AS age
                  FROM postbox.subscription b JOIN postbox.subscription_status s ON s.subscription = b.name, unnest(y.types) AS t(type)
                  WHERE b.inbox = p.inbox AND s.last_seen > k.known - interval '6 minutes' AND s.waiting IS NOT NULL) r) w
$$;
COMMENT ON FUNCTION postbox.list_projection_status() IS 'Internal: the rows of postbox.projection_status.';

CREATE OR REPLACE VIEW postbox.projection_status AS SELECT * FROM postbox.list_projection_status();
COMMENT ON VIEW postbox.projection_status IS
$$One row for each projection: what waits for it in pullers, whether its event types are suspended, and which of its fields never come.

How far the stored versions lag behind is known only for the messages that a puller has received. What Pub/Sub has not delivered yet is in no column: see the backlog of the
  Pub/Sub subscription.

Rights: SELECT, which PUBLIC has. Columns about pullers are NULL for roles that may not see the rows of the subscription in `subscription_status`.$$;
COMMENT ON COLUMN postbox.projection_status.inbox IS 'The inbox.';
COMMENT ON COLUMN postbox.projection_status.projection IS 'The id of the projection.';
COMMENT ON COLUMN postbox.projection_status.target IS 'The table that it writes.';
COMMENT ON COLUMN postbox.projection_status.event_types IS 'The event types that it takes, `delete_types` included.';
COMMENT ON COLUMN postbox.projection_status.waiting IS 'How many events of these types pullers have received that are not being applied yet. NULL if no puller reports.';
COMMENT ON COLUMN postbox.projection_status.versions_waiting IS 'The most versions of one aggregate among them: how far a row may lag behind what was received. NULL likewise.';
COMMENT ON COLUMN postbox.projection_status.oldest_waiting IS 'When the oldest of them was published. NULL if none waits.';
COMMENT ON COLUMN postbox.projection_status.suspended_types IS 'Which of its types are suspended; see `suspended_error` of `subscription_status`. NULL if none is.';
COMMENT ON COLUMN postbox.projection_status.missing_fields IS 'JSON fields that it takes, and that were in none of the last 100 events of a type. NULL if there are none.';
