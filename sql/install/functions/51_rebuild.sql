-- Rebuilds of the targets of projections: extension/apply/rebuild.h.

CREATE OR REPLACE FUNCTION postbox.rebuild_projection(projection text, subscription text DEFAULT NULL, keys text[] DEFAULT NULL, absent text DEFAULT 'keep',
        dry_run boolean DEFAULT false, source text DEFAULT NULL) RETURNS TABLE (shadow text, shadow_inbox text, shadow_subscription text, target_rows bigint)
    LANGUAGE C AS 'MODULE_PATHNAME', 'rebuild_projection';
COMMENT ON FUNCTION postbox.rebuild_projection(text, text, text[], text, boolean, text) IS
$$Begins to rebuild the target of a projection from events that come once more. It creates a shadow of the target, an inbox for it, and a subscription that feeds that inbox.
  Events are applied to the shadow; the target and other projections are not touched. When the shadow has caught up, `finish_rebuild` replaces the rows of the target.
  `postbox pull --rebuild` does all of it, with a Pub/Sub subscription that it creates.

All projections of the target are rebuilt together. Handlers are not called. While the rebuild is active, the projections of the target cannot be created, altered or
  dropped.

projection: the name of the projection.
subscription: the Pub/Sub subscription that brings the events: an id or a full name. It must be one that no other subscription of the database reads. `postbox pull` applies its events if its
  option `--subscription` names the subscription that is returned. NULL: another consumer applies the events, to the inbox that is returned.
keys: the keys whose rows are replaced, each as `wait_for_version` takes it. NULL: all.
absent: what becomes of rows of the target that no event of the rebuild was for. `keep` leaves them. `delete` deletes them, except those that were written since the rebuild
  began: for a rebuild that gets an event for each row, for example from a backfill.
dry_run: true only returns the names of what would be created and counts the rows of the target.
source: where the events come from, for `rebuild_status`.

Rights: ownership of the inbox, or membership in `postbox_operator`. With `subscription`, also EXECUTE on `create_subscription`, and the credential of the live subscription.
  The owner of the inbox needs CREATE on the schema of the target, and DELETE on the target if rows may be deleted.
Errors: 42704 if there is no such projection; 55006 if its target is being rebuilt, or another subscription reads the Pub/Sub subscription; 42P07 or 42710 if a name of what it creates is taken; 22023 if an argument is invalid; 22P02 or another
  error of the type if a key is invalid; 55000 if row-level security of the target applies to the owner of the inbox; 42501 without the rights.
Since: 0.2.0
Example: SELECT * FROM postbox.rebuild_projection('catalog_read.video_projection', dry_run => true);$$;

CREATE OR REPLACE FUNCTION postbox.finish_rebuild(projection text, lagging text DEFAULT 'wait', lag_time interval DEFAULT '5s', lock_time interval DEFAULT '10s')
    RETURNS text
    LANGUAGE C AS 'MODULE_PATHNAME', 'finish_rebuild';
COMMENT ON FUNCTION postbox.finish_rebuild(text, text, interval, interval) IS
$$Replaces the rows of the target of a rebuild with those of its shadow, in the transaction of the caller, and drops what the rebuild has created. Readers see the old rows until
  COMMIT and the new ones afterwards. Sessions that write the target wait from its lock to COMMIT, so commit at once.

Returns `done`, or why it did nothing: `lagging` if the target is ahead of the shadow in some keys, `locked` if the target could not be locked. Call it again then. `rebuild_status` has
  the number of these keys, and one of them.

A row that differs is updated, in the columns that events of the rebuild have set; a row that is missing is inserted; a row whose last event deletes it is deleted. Rows
  of keys that are incomplete are kept: their first event of the rebuild was not their first of all (version 1), and no event of it had all mapped fields.

projection: the name of the projection.
lagging: what becomes of keys in which the target is ahead. `wait` waits for the shadow. `keep` keeps their rows after `lag_time`: for keys that never catch up, because a message is gone.
lag_time: how long it waits for the shadow while the target is locked; 0 to 24 h.
lock_time: how long it tries to lock the target; 0 to 24 h. Each try takes 200 ms at most, and sessions that write the target wait behind it.

Rights: ownership of the inbox, or membership in `postbox_operator`.
Errors: 42704 if there is no such rebuild; 55000 if it has ended, if it began in a database of which this one is a copy, if the target or its projections were changed, or if a trigger or a rule of the target
  suppresses a write; 25001 if the isolation level is not READ COMMITTED; 42P01 if a table of the rebuild was dropped; 22023 if an argument is invalid; 42501 without the rights;
  otherwise those of the target's constraints and triggers.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.cancel_rebuild(projection text, reason text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME', 'cancel_rebuild';
COMMENT ON FUNCTION postbox.cancel_rebuild(text, text) IS
$$Ends a rebuild without replacing anything, and drops what it has created. A running `postbox pull --rebuild` deletes its Pub/Sub subscription and ends.

projection: the name of the projection.
reason: why, for `rebuild_status`.

Rights: ownership of the inbox, or membership in `postbox_operator`.
Errors: 42704 if there is no such rebuild; 55000 if it has ended; 42501 without the rights.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.note_rebuild(projection text, what text, value text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME', 'note_rebuild';
COMMENT ON FUNCTION postbox.note_rebuild(text, text, text) IS
    'Internal: what `postbox pull --rebuild` notes of a rebuild: error, the last one of finish_rebuild; pubsub_subscription, which it has created; NULL: there is none.';

CREATE OR REPLACE FUNCTION postbox.key_text(target regclass, VARIADIC key "any") RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME', 'key_text';
COMMENT ON FUNCTION postbox.key_text(regclass, "any") IS 'Internal: the key of a row of the target of a projection as it is in a tombstone.';

-- What pullers report is read with the rights of the caller.
CREATE OR REPLACE FUNCTION postbox.list_rebuild_status()
    RETURNS TABLE (projection text, target regclass, state text, reason text, source text, started_at timestamptz, ended_at timestamptz, shadow_rows_estimated bigint,
                   received bigint, applied bigint, stale bigint, duplicates bigint, failures bigint, events_per_second float8, last_error text, last_error_at timestamptz,
                   lag interval, behind_at timestamptz, caught_up boolean, time_left_estimated interval, lagging bigint, lagging_key text,
                   updated bigint, inserted bigint, deleted bigint, absent_rows bigint, incomplete bigint, incomplete_key text, locked_for interval, subscription text,
                   pubsub_subscription text)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT r.projection, r.target, s.state,
        CASE s.state WHEN 'stopped' THEN format('no puller: run postbox pull --rebuild %s, or postbox pull --subscription %s', quote_literal(r.projection), quote_literal(r.subscription))
                     WHEN 'waiting' THEN r.waits_for WHEN 'cancelled' THEN r.reason END,
        r.source, r.started_at, r.ended_at,
        CASE WHEN r.state = 'active' THEN (SELECT c.reltuples::bigint FROM pg_class c WHERE c.oid = r.shadow AND c.reltuples >= 0) END,
        p.received, p.applied, p.stale, p.duplicates, p.failures, round(p.rate::numeric, 1)::float8,
        coalesce(r.last_error, p.last_error), CASE WHEN r.last_error IS NULL THEN p.last_error_at ELSE r.last_error_at END,
        p.lag, p.behind_at, c.caught_up,
        CASE WHEN s.state = 'running' AND NOT c.caught_up AND p.catch_up > 0 AND p.lag > interval '10 s'
             THEN date_trunc('second', p.lag / p.catch_up) END,
        r.lagging, r.lagging_key, r.updated, r.inserted, r.deleted, r.absent_rows, r.incomplete, r.incomplete_key, r.locked_for, r.subscription, r.pubsub_subscription
    FROM postbox.rebuild r
    LEFT JOIN LATERAL (
        -- The report of a puller that was killed stays for a while: the newest one counts.
        SELECT u.received, u.applied, u.stale, u.duplicates, u.failures, u.events_per_second AS rate, coalesce(u.stream_error, u.last_error) AS last_error,
               CASE WHEN u.stream_error IS NULL THEN u.last_error_at ELSE u.stream_since END AS last_error_at, u.lag, u.behind_at, u.catch_up, u.stream_since, u.oldest_waiting,
               u.stream = 'connected' AS connected, u.retrying_since IS NOT NULL OR u.suspended_types IS NOT NULL OR u.stream IN ('reconnecting', 'failed') AS failing
        FROM postbox.subscription_status u
        WHERE u.subscription = r.subscription AND r.state = 'active' AND u.last_seen > now() - interval '6 minutes' ORDER BY u.started_at DESC LIMIT 1) p ON true
    CROSS JOIN LATERAL (SELECT r.state = 'active' AND coalesce(p.connected AND NOT p.failing AND pg_relation_size(r.shadow) > 0
        -- What has come, and was not applied yet, is missing in the shadow.
        AND (p.oldest_waiting < now() - interval '10 s') IS NOT TRUE
        AND greatest(p.stream_since, p.behind_at, r.started_at) < now() - interval '10 s' * coalesce(current_setting('postbox.time_scale', true)::int, 100) / 100,
        false) AS caught_up) c
    CROSS JOIN LATERAL (SELECT CASE WHEN r.state <> 'active' THEN r.state WHEN r.subscription IS NOT NULL AND p.connected IS NULL THEN 'stopped'
                                    WHEN p.failing THEN 'failing' WHEN r.waits_for IS NOT NULL THEN 'waiting' ELSE 'running' END AS state) s
    ORDER BY r.projection
$$;
COMMENT ON FUNCTION postbox.list_rebuild_status() IS 'Internal: the rows of postbox.rebuild_status.';

CREATE OR REPLACE VIEW postbox.rebuild_status AS SELECT * FROM postbox.list_rebuild_status();
COMMENT ON VIEW postbox.rebuild_status IS
$$One row for each target that is being rebuilt, or was: its last rebuild.

Rights: SELECT, which PUBLIC has. The owner of the inbox, roles that may read the target, members of `postbox_operator` and `pg_monitor` see a rebuild. Columns about pullers are
  NULL for roles that may not see the rows of the subscription in `subscription_status`.$$;
COMMENT ON COLUMN postbox.rebuild_status.projection IS 'The projection that was named.';
COMMENT ON COLUMN postbox.rebuild_status.target IS 'The table that is rebuilt.';
COMMENT ON COLUMN postbox.rebuild_status.state IS
    'running; failing: an event fails, which stops its key, or Pub/Sub does not answer or refuses; stopped: no puller reports; waiting: the last `finish_rebuild` could not replace the rows; done; cancelled. See Troubleshooting.';
COMMENT ON COLUMN postbox.rebuild_status.reason IS 'What to do, what it waits for, or why it was cancelled.';
COMMENT ON COLUMN postbox.rebuild_status.source IS 'Where the events come from.';
COMMENT ON COLUMN postbox.rebuild_status.started_at IS 'When it began.';
COMMENT ON COLUMN postbox.rebuild_status.ended_at IS 'When it was done or cancelled.';
COMMENT ON COLUMN postbox.rebuild_status.shadow_rows_estimated IS 'The rows of the shadow, by its statistics. NULL if it has none, or after the end.';
COMMENT ON COLUMN postbox.rebuild_status.received IS 'Messages that the running puller has received, redeliveries included. NULL if none reports, as for the next columns.';
COMMENT ON COLUMN postbox.rebuild_status.applied IS 'Events that it has applied, and events that no projection of the target takes.';
COMMENT ON COLUMN postbox.rebuild_status.stale IS 'Events older than what the shadow had.';
COMMENT ON COLUMN postbox.rebuild_status.duplicates IS 'Events that the rebuild had seen before.';
COMMENT ON COLUMN postbox.rebuild_status.failures IS 'Attempts that failed.';
COMMENT ON COLUMN postbox.rebuild_status.events_per_second IS 'Events that were received per second, in the minute before the last report.';
COMMENT ON COLUMN postbox.rebuild_status.last_error IS 'The last error of `finish_rebuild`, or of an event.';
COMMENT ON COLUMN postbox.rebuild_status.last_error_at IS 'When it happened.';
COMMENT ON COLUMN postbox.rebuild_status.lag IS 'How long before its arrival the last message had been published.';
COMMENT ON COLUMN postbox.rebuild_status.behind_at IS 'When the last message came that had been published more than 10 s before.';
COMMENT ON COLUMN postbox.rebuild_status.caught_up IS
    'Whether events were applied, for 10 s no such message has come and none waits in the puller, the stream is connected, and nothing fails. What Pub/Sub holds back longer is not known.';
COMMENT ON COLUMN postbox.rebuild_status.time_left_estimated IS
    'How long it takes to catch up if `lag` goes on to decrease as in the last minute. NULL if it does not decrease.';
COMMENT ON COLUMN postbox.rebuild_status.lagging IS 'Keys in which the target was ahead when the last `finish_rebuild` compared; after the end, whose rows were kept for it.';
COMMENT ON COLUMN postbox.rebuild_status.lagging_key IS 'One of them.';
COMMENT ON COLUMN postbox.rebuild_status.updated IS 'Rows that were updated. NULL before the end, as for the next columns.';
COMMENT ON COLUMN postbox.rebuild_status.inserted IS 'Rows that were inserted.';
COMMENT ON COLUMN postbox.rebuild_status.deleted IS 'Rows that were deleted.';
COMMENT ON COLUMN postbox.rebuild_status.absent_rows IS 'Rows that no event was for, and that were kept.';
COMMENT ON COLUMN postbox.rebuild_status.incomplete IS 'Keys whose rows were kept because events are missing of which the row consists.';
COMMENT ON COLUMN postbox.rebuild_status.incomplete_key IS 'One of them.';
COMMENT ON COLUMN postbox.rebuild_status.locked_for IS 'How long sessions that write the target had to wait at the end.';
COMMENT ON COLUMN postbox.rebuild_status.subscription IS 'The subscription that feeds the rebuild.';
COMMENT ON COLUMN postbox.rebuild_status.pubsub_subscription IS
    'The Pub/Sub subscription that `postbox pull --rebuild` has created for it and has not deleted yet. NULL if there is none.';
