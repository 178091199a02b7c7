-- What the status says of a pause. The functions that pause and resume are with what they pause; extension/registry/pause.cc has them all.

CREATE OR REPLACE FUNCTION postbox.pause_text(paused_at timestamptz, paused_until timestamptz, paused_reason text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('paused since %s%s: %s', date_trunc('second', paused_at),
        CASE WHEN isfinite(paused_until) THEN format(', until %s', date_trunc('second', paused_until)) ELSE '' END, paused_reason) WHERE paused_until > now()
$$;
COMMENT ON FUNCTION postbox.pause_text(timestamptz, timestamptz, text) IS 'Internal: a pause as the status shows it; NULL if there is none, or it is over.';
