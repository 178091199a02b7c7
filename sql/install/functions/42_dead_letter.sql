CREATE OR REPLACE FUNCTION postbox.owns_inbox(inbox regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$ SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = inbox $$;
COMMENT ON FUNCTION postbox.owns_inbox(regclass) IS 'Internal: whether the current user has the rights of the owner of an inbox.';

CREATE OR REPLACE FUNCTION postbox.record_dead_letter(inbox regclass, event postbox.event, sqlstate text, error text,
        attempts int DEFAULT 1, on_error text DEFAULT 'reject') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, postbox.event, text, text, int, text) IS
$$Records an event as a dead letter, for a consumer that gives it up. The inbox remembers the event as `rejected`, so a redelivery is a duplicate. Returns `rejected`,
  `parked`, or `duplicate` if the inbox has seen the event, which records nothing. An event without an id is recorded, and cannot be redriven.

inbox: the inbox.
event: the event.
sqlstate: the SQLSTATE of the error.
error: the error message; at most 8 kB are stored.
attempts: how many times the event was tried; at least 1.
on_error: `reject`, or `park_key`, which also parks its key: later events of the aggregate id are recorded behind it instead of being applied. An event without an event id or
  an aggregate id, or with one of more than 1024 bytes, is rejected.

Rights: INSERT on the inbox.
Errors: 42809 if `inbox` is not an inbox; 22004 if `inbox`, `event`, `sqlstate`, `error`, `attempts` or `on_error` is NULL; 22023 if `attempts` is less than 1 or `on_error` is
  unknown; with `park_key` 55000 if keys of the inbox may not be parked (`alter_inbox`), and 25001 if the isolation level is not READ COMMITTED.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.record_dead_letter(inbox regclass, event_id bytea, event_type bytea, aggregate_type bytea,
        aggregate_id bytea, version bigint, payload bytea, attributes bytea, occurred_at timestamptz, sqlstate text,
        error bytea, attempts int DEFAULT 1, on_error text DEFAULT 'reject') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter_bytes' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, bytea, bytea, bytea, bytea, bigint, bytea, bytea, timestamptz, text,
        bytea, int, text) IS
$$Records a message as it was received, like the other form. Fields that the database cannot hold as text (invalid UTF-8, a NUL, a character that its encoding lacks,
  attributes that are not JSON) are stored escaped, `attributes` as NULL, with their bytes in column `raw` of `postbox.dead_letter`. Such a dead letter cannot be redriven.
  `postbox pull` calls this function.

inbox: the inbox.
event_id: the event id, in UTF-8. NULL or empty if the message has none: it is recorded all the same.
event_type: the event type, in UTF-8.
aggregate_type: the aggregate type, in UTF-8.
aggregate_id: the aggregate id, in UTF-8.
version: the version; NULL if there is none.
payload: the payload.
attributes: a JSON object of the attributes, in UTF-8.
occurred_at: the time of the event; NULL if there is none.
sqlstate: the SQLSTATE of the error.
error: the error message, in UTF-8; at most 8 kB are stored.
attempts: how many times the event was tried; at least 1.
on_error: `reject`, or `park_key`, as in the other form. A message with such fields is rejected.

Rights: INSERT on the inbox.
Errors: 42809 if `inbox` is not an inbox; 22004 if `inbox`, `sqlstate`, `error`, `attempts` or `on_error` is NULL; 22023 if `attempts` is less than 1 or `on_error` is unknown;
  with `park_key` 55000 if keys of the inbox may not be parked (`alter_inbox`), and 25001 if the isolation level is not READ COMMITTED.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.redrive_dead_letter(id bigint) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'redrive_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.redrive_dead_letter(bigint) IS
$$Applies a dead letter again. Returns the outcome. If it is `applied`, the dead letter is deleted. If it fails again, `rejected` is returned, and it stays with
  the new error and without an outcome. If it has no effect (`stale`, `ignored` or `duplicate`), it stays with that in column `outcome` until it is discarded.

Of a parked key only the first event can be redriven; `postbox pull` then goes on with the key. If the first event has no effect, it is no longer part of the key, and the
  key goes on; if nothing takes its type, it is deleted. `redrive_dead_letters` redrives a whole key.

id: the `id` of the dead letter in `postbox.dead_letter`.

Rights: INSERT on the inbox, or membership in postbox_operator.
Errors: 42704 if there is no such dead letter; 55000 if it has no event id, has bytes in `raw`, or waits behind another event of its parked key; 25001 if keys of the inbox may
  be parked and the isolation level is not READ COMMITTED. Errors that are not those of the event, such as a lock time-out or a broken projection, are raised.
Since: 0.2.0
Example: SELECT id, postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE event_type = 'video.created' AND NOT parked ORDER BY id;$$;

CREATE OR REPLACE FUNCTION postbox.redrive_dead_letters(inbox regclass, aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL, event_type text DEFAULT NULL,
        sqlstate text DEFAULT NULL, outcome postbox.outcome DEFAULT NULL, failed_before timestamptz DEFAULT NULL, dry_run boolean DEFAULT false,
        max_events int DEFAULT 1000)
    RETURNS TABLE (applied bigint, without_effect bigint, failed bigint, remaining bigint)
    AS 'MODULE_PATHNAME', 'redrive_dead_letters' LANGUAGE C;
COMMENT ON FUNCTION postbox.redrive_dead_letters(regclass, text, text, text, text, postbox.outcome, timestamptz, boolean, int) IS
$$Applies the dead letters of an inbox again that match every argument that is not NULL, and the parked keys whose first event does: such a key from its first event on, in
  order, up to an event that fails. Returns how many events were applied, had no effect, and failed, and how many remain because of `max_events`. Call it again until
  `remaining` is 0. Each event is applied as `redrive_dead_letter` does, but errors that are not those of the event are recorded with it, too, and are not counted as attempts.

The order is that of the last attempts, so an event that fails again comes last. A dead letter whose last redrive had no effect is left out, unless `outcome` selects it; so
  is one that cannot be redriven.

inbox: the inbox.
aggregate_type: only those of this aggregate type.
aggregate_id: only those of this aggregate.
event_type: only those of this event type.
sqlstate: only those whose last attempt failed with this SQLSTATE.
outcome: only those whose last redrive had this outcome.
failed_before: only those whose last attempt was before this time. With the time of the first call, no event is tried twice.
dry_run: whether to change nothing; then `remaining` counts all events that would be tried.
max_events: the most events that one call tries; at least 1. All are applied in the transaction of the caller.

Rights: the rights of the owner of the inbox, or membership in postbox_operator.
Errors: 42809 if `inbox` is not an inbox; 22004 if `inbox`, `dry_run` or `max_events` is NULL; 22023 if `max_events` is less than 1; 25001 if keys of the inbox may be parked and
  the isolation level is not READ COMMITTED.
Since: 0.2.0
Example: SELECT * FROM postbox.redrive_dead_letters('catalog_read.inbox', sqlstate => '23514', dry_run => true);$$;

CREATE OR REPLACE FUNCTION postbox.claim_parked_key(inbox regclass, count boolean)
    RETURNS TABLE (aggregate_id text, keys bigint, events bigint, bytes bigint)
    AS 'MODULE_PATHNAME', 'claim_parked_key' LANGUAGE C;
COMMENT ON FUNCTION postbox.claim_parked_key(regclass, boolean) IS
    'Internal: for `postbox pull`. The parked key that is to be retried now, which is due again after its backoff; NULL if none is due. With `count` also how much is parked.';

CREATE OR REPLACE FUNCTION postbox.redrive_parked_key(inbox regclass, aggregate_id text, max_time interval DEFAULT '1s', max_events int DEFAULT 100)
    RETURNS TABLE (applied bigint, without_effect bigint, more boolean, sqlstate text, error text)
    AS 'MODULE_PATHNAME', 'redrive_parked_key' LANGUAGE C;
COMMENT ON FUNCTION postbox.redrive_parked_key(regclass, text, interval, int) IS
    'Internal: for `postbox pull`. Applies the first events of a key that claim_parked_key has returned, in order, up to one that fails, until either limit is reached.';

CREATE OR REPLACE FUNCTION postbox.discard_dead_letter(id bigint, reason text DEFAULT NULL, accept_hole boolean DEFAULT false) RETURNS boolean
    AS 'MODULE_PATHNAME', 'discard_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letter(bigint, text, boolean) IS
$$Deletes a dead letter. Returns false if there is none that the caller may see. The inbox still remembers its event as `rejected`.

If the event is parked, the later events of its key are applied without it. This leaves a hole if a handler takes the event, or if a projection takes it and no parked event
  behind it writes all columns of the same row or deletes that row. Then the call must accept the hole. `postbox.discarded_event` keeps who discarded the event, why, and
  whether there is a hole.

id: the `id` of the dead letter in `postbox.dead_letter`.
reason: why the event is discarded. Needed if it is parked.
accept_hole: whether a parked event is discarded although this leaves a hole.

Rights: the rights of the owner of the inbox, or membership in postbox_operator.
Errors: for a parked event 22004 if `reason` is NULL or empty, 55000 if there is a hole and it is not accepted, and 25001 if the isolation level is not READ COMMITTED.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.discard_dead_letters(inbox regclass DEFAULT NULL, aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
        event_type text DEFAULT NULL, sqlstate text DEFAULT NULL, outcome postbox.outcome DEFAULT NULL, failed_before timestamptz DEFAULT NULL,
        reason text DEFAULT NULL, accept_hole boolean DEFAULT false)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'discard_dead_letters' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letters(regclass, text, text, text, text, postbox.outcome, timestamptz, text, boolean) IS
$$Deletes all dead letters that the caller may see and that match every argument that is not NULL. Returns the number of deleted dead letters. Parked events are discarded as
  `discard_dead_letter` does; if one of them leaves a hole that is not accepted, nothing is deleted.

inbox: only those of this inbox.
aggregate_type: only those of this aggregate type.
aggregate_id: only those of this aggregate.
event_type: only those of this event type.
sqlstate: only those whose last attempt failed with this SQLSTATE.
outcome: only those whose last redrive had this outcome.
failed_before: only those whose last attempt was before this time.
reason: why the events are discarded. Needed if any of them is parked.
accept_hole: whether parked events are discarded although this leaves a hole.

Rights: the rights of the owner of the inbox, or membership in postbox_operator.
Errors: 22023 if all arguments are NULL; those of `discard_dead_letter`.
Since: 0.2.0
Example: SELECT postbox.discard_dead_letters('catalog_read.inbox', outcome => 'stale', failed_before => now() - interval '30 days');$$;

-- Row level security says which keys of inboxes a role sees. A key without an event is one that a redrive could not remove yet.
CREATE OR REPLACE FUNCTION postbox.inbox_paused_keys()
    RETURNS TABLE (side text, relation regclass, aggregate_id text, first_event_id text, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint, since timestamptz, dead_letter bigint)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
    SET row_security = on
AS $$
    SELECT 'inbox', k.inbox, k.aggregate_id, d.event_id, d.event_type, d.attempts, k.next_retry_at, concat_ws(': ', d.sqlstate, d.error),
           greatest((SELECT count(*) FROM postbox.dead_letter w WHERE w.inbox = k.inbox AND w.aggregate_id = k.aggregate_id AND w.parked) - 1, 0), k.parked_at, d.id
    FROM postbox.parked_key k LEFT JOIN LATERAL (
        SELECT f.* FROM postbox.dead_letter f WHERE f.inbox = k.inbox AND f.aggregate_id = k.aggregate_id AND f.parked ORDER BY f.id LIMIT 1) d ON true
    ORDER BY k.inbox, k.parked_at
$$;
COMMENT ON FUNCTION postbox.inbox_paused_keys() IS 'Internal: the rows of postbox.paused_keys that are of inboxes.';
