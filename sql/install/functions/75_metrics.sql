-- Metrics. Counters, histograms and gauges are in shared memory (extension/shared/metrics.h), and postbox.metrics reads nothing else. The functions
-- that measure gauges are called by a worker, for one object at a time (worker/publisher/gauges.h). None costs more where more events wait.

CREATE OR REPLACE FUNCTION postbox.list_metric_names(OUT name text, OUT type text, OUT help text, OUT unit text)
    RETURNS SETOF record
    LANGUAGE C ROWS 50 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.list_metric_names() IS 'Internal: the names that samples of postbox.metrics may have.';

CREATE OR REPLACE FUNCTION postbox.list_metrics(name text, OUT labels jsonb, OUT value double precision)
    RETURNS SETOF record
    LANGUAGE C STRICT ROWS 20 AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.list_metrics(text) IS 'Internal: the samples of a name, from shared memory.';

-- A condition on the name is one on list_metric_names(), so samples of other names are not made.
CREATE OR REPLACE VIEW postbox.metrics AS
    SELECT n.name, n.type, n.help, n.unit, m.labels, m.value FROM postbox.list_metric_names() n, LATERAL postbox.list_metrics(n.name) m;
COMMENT ON VIEW postbox.metrics IS
$$The metrics of this database, as Prometheus has them: one row for each sample. A query reads shared memory and no table, so its cost does not depend on any backlog.
  With a condition on `name` only the samples of that name are made. See docs/guides/metrics.md.

Counters begin at 0 when the server starts, or restarts after a crash. Workers measure the gauges every 10 s; without a worker there are none. If postbox is not in
  shared_preload_libraries, `postbox_info` is the only row.

Rights: SELECT for members of pg_monitor and postbox_operator.$$;
COMMENT ON COLUMN postbox.metrics.name IS 'The name of the sample. A histogram has the samples `NAME_bucket`, `NAME_sum` and `NAME_count`.';
COMMENT ON COLUMN postbox.metrics.type IS '`counter`, `gauge` or `histogram`.';
COMMENT ON COLUMN postbox.metrics.help IS 'What it measures.';
COMMENT ON COLUMN postbox.metrics.unit IS 'The unit; empty if it has none.';
COMMENT ON COLUMN postbox.metrics.labels IS 'The labels: a JSON object of texts.';
COMMENT ON COLUMN postbox.metrics.value IS 'The value.';

CREATE OR REPLACE FUNCTION postbox.publication_gauges(publication text, OUT state text, OUT ready bigint, OUT parked bigint, OUT oldest_ready double precision,
    OUT topic text, OUT credential text)
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT s.state, s.ready, s.parked, CASE WHEN s.ready IS NOT NULL THEN coalesce(extract(epoch FROM s.oldest_ready), 0) END::double precision, s.topic,
           coalesce((SELECT p.credential FROM postbox.publication p WHERE p.name = publication_gauges.publication), '')
    FROM postbox.list_publication_status(publication) s
$$;
COMMENT ON FUNCTION postbox.publication_gauges(text) IS 'Internal: what postbox.publication_status says of a publication, as gauges; NULL: it is not known.';

-- As the owner of the outbox. The backlog of a key that is parked may be long, so no more than the first events are looked at.
CREATE OR REPLACE FUNCTION postbox.parked_gauges(publication text, OUT keys bigint, OUT attempts int)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
    form record;
    row text;
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = publication;
    IF NOT FOUND OR postbox.code_of_users(registered.relation, registered.parked) IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT * INTO form FROM postbox.parked_form(registered);
    -- What waits behind another event has the key of that one. What is delayed (not tried, without an error, and due later) is not parked. What fails is
    -- retried within a day, before most that is delayed.
    row := format('(SELECT %s AS key, q.publish_attempts AS attempts, q.publish_attempts > 0 OR q.last_error IS NOT NULL OR q.next_retry_at <= now() AS counts '
                  'FROM %s q, postbox.publication p WHERE p.name = $1 AND %s AND %s AND q.next_retry_at', form.key, form.relation, form.of, form.parked);
    EXECUTE format('SELECT count(DISTINCT e.key), coalesce(max(e.attempts), 0) FROM (%1$s <= now() ORDER BY q.next_retry_at LIMIT 10000) UNION ALL '
                   '%1$s > now() AND q.next_retry_at < ''infinity'' ORDER BY q.next_retry_at LIMIT 10000) UNION ALL '
                   '%1$s = ''infinity''%2$s LIMIT 10000)) e WHERE e.counts',
                   row, CASE registered.kind WHEN 'log' THEN ' ORDER BY q.publish_attempts DESC, q.seq DESC' ELSE '' END)
        INTO keys, attempts USING publication;
END
$$;
COMMENT ON FUNCTION postbox.parked_gauges(text) IS
    'Internal: how many keys the first 10000 parked events of a publication have, and the most attempts of one of them; NULL if they cannot be read without code of users.';

-- As the owner of the outbox.
CREATE OR REPLACE FUNCTION postbox.outbox_gauges(outbox regclass, OUT behind double precision)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
    part regclass;
    newest timestamptz;
BEGIN
    SELECT o.* INTO registered FROM postbox.outbox o WHERE o.relation = outbox;
    IF NOT FOUND OR postbox.code_of_users(registered.relation, registered.parked) IS NOT NULL THEN
        RETURN;
    END IF;
    behind := 0;
    IF registered.retention IS NULL THEN
        RETURN;
    ELSIF registered.kind = 'log' THEN
        FOR part IN SELECT postbox.past_retention(registered) LOOP
            EXECUTE format('SELECT e.occurred_at FROM %s e ORDER BY e.seq DESC LIMIT 1', part) INTO newest;
            behind := greatest(behind, extract(epoch FROM clock_timestamp() - newest - registered.retention));
        END LOOP;
    ELSE
        EXECUTE format('SELECT e.published_at FROM %s e WHERE e.published_at > ''-infinity'' ORDER BY e.published_at LIMIT 1', registered.relation) INTO newest;
        behind := greatest(0, extract(epoch FROM clock_timestamp() - newest - registered.retention));
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.outbox_gauges(regclass) IS
    'Internal: for how many seconds an outbox has kept events beyond its retention; NULL if that cannot be read without code of users.';

-- It reads tables of Postbox only. An inbox has a new generation every half of its retention.
CREATE OR REPLACE FUNCTION postbox.inbox_gauges(inbox regclass, OUT dead_letters bigint, OUT parked_keys bigint, OUT behind double precision)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (SELECT count(*) FILTER (WHERE NOT d.parked) FROM (SELECT l.parked FROM postbox.dead_letter l WHERE l.inbox = inbox_gauges.inbox ORDER BY l.inbox, l.id LIMIT 10000) d),
           (SELECT count(*) FROM (SELECT FROM postbox.parked_key k WHERE k.inbox = inbox_gauges.inbox LIMIT 10000) k),
           greatest(0, extract(epoch FROM clock_timestamp() - i.generation_since - i.retention / 2))::double precision
    FROM postbox.inbox i WHERE i.relation = inbox_gauges.inbox
$$;
COMMENT ON FUNCTION postbox.inbox_gauges(regclass) IS
    'Internal: how many of the first 10000 dead letters of an inbox are not parked, how many keys are parked, and for how many seconds a new generation has been due.';

CREATE OR REPLACE FUNCTION postbox.small_gauges()
    RETURNS TABLE (kind text, name text, value double precision)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'subscription', b.name, (SELECT count(*) FROM postbox.subscription_status t
        WHERE t.subscription = b.name AND t.last_seen > clock_timestamp() - interval '60 s')::double precision FROM postbox.subscription b
    UNION ALL
    SELECT 'pause', b.name, (coalesce(b.paused_until, '-infinity') > clock_timestamp())::int::double precision FROM postbox.subscription b
    UNION ALL
    SELECT 'credential', coalesce(c.name, ''), extract(epoch FROM c.valid_until)::double precision FROM postbox.credential_status c WHERE c.valid_until IS NOT NULL
$$;
COMMENT ON FUNCTION postbox.small_gauges() IS 'Internal: how many pullers each subscription has, whether it is paused, and when the token of each credential expires, in Unix time.';

CREATE OR REPLACE FUNCTION postbox.metered_objects()
    RETURNS TABLE (kind text, name text, relation bigint)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT 'publication', p.name, p.outbox::oid::bigint FROM postbox.publication p
    UNION ALL
    SELECT 'outbox', '', o.relation::oid::bigint FROM postbox.outbox o
    UNION ALL
    SELECT 'inbox', '', i.relation::oid::bigint FROM postbox.inbox i
$$;
COMMENT ON FUNCTION postbox.metered_objects() IS 'Internal: the publications, outboxes and inboxes of which a worker measures gauges.';
