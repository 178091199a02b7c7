CREATE OR REPLACE FUNCTION postbox.owns_inbox(inbox regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$ SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = inbox $$;
COMMENT ON FUNCTION postbox.owns_inbox(regclass) IS 'Internal: whether the current user has the rights of the owner of an inbox.';

CREATE OR REPLACE FUNCTION postbox.record_dead_letter(inbox regclass, event postbox.event, sqlstate text, error text,
        attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, postbox.event, text, text, int) IS
$$Records an event as a dead letter, for a consumer that gives it up. The inbox remembers the event as `rejected`, so a redelivery is a duplicate. Returns `rejected`, or
  `duplicate` if the inbox has seen the event, which records nothing. An event without an id is recorded, and cannot be redriven.

inbox: the inbox.
event: the event.
sqlstate: the SQLSTATE of the error.
error: the error message; at most 8 kB are stored.
attempts: how many times the event was tried; at least 1.

Rights: INSERT on the inbox.
Errors: 42809 if `inbox` is not an inbox; 22004 if `inbox`, `event`, `sqlstate`, `error` or `attempts` is NULL; 22023 if `attempts` is less than 1.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.record_dead_letter(inbox regclass, event_id bytea, event_type bytea, aggregate_type bytea,
        aggregate_id bytea, version bigint, payload bytea, attributes bytea, occurred_at timestamptz, sqlstate text,
        error bytea, attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter_bytes' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, bytea, bytea, bytea, bytea, bigint, bytea, bytea, timestamptz, text,
        bytea, int) IS
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

Rights: INSERT on the inbox.
Errors: 42809 if `inbox` is not an inbox; 22004 if `inbox`, `sqlstate`, `error` or `attempts` is NULL; 22023 if `attempts` is less than 1.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.redrive_dead_letter(id bigint) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'redrive_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.redrive_dead_letter(bigint) IS
$$Applies a dead letter again. Returns the outcome. If it is `applied`, the dead letter is deleted. If it fails again, `rejected` is returned, and it stays with
  the new error and without an outcome. If it has no effect (`stale`, `ignored` or `duplicate`), it stays with that in column `outcome` until it is discarded.

id: the `id` of the dead letter in `postbox.dead_letter`.

Rights: INSERT on the inbox, or membership in postbox_operator.
Errors: 42704 if there is no such dead letter; 55000 if it has no event id, or has bytes in `raw`. Errors that are not those of the event, such as a lock time-out or a
  broken projection, are raised.
Since: 0.2.0
Example: SELECT id, postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE event_type = 'video.created' ORDER BY id;$$;

CREATE OR REPLACE FUNCTION postbox.discard_dead_letter(id bigint) RETURNS boolean
    AS 'MODULE_PATHNAME', 'discard_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letter(bigint) IS
$$Deletes a dead letter. Returns false if there is none that the caller may see. The inbox still remembers its event as `rejected`.

id: the `id` of the dead letter in `postbox.dead_letter`.

Rights: the rights of the owner of the inbox, or membership in postbox_operator.
Errors: none.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.discard_dead_letters(inbox regclass DEFAULT NULL, aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
        event_type text DEFAULT NULL, sqlstate text DEFAULT NULL, outcome postbox.outcome DEFAULT NULL, failed_before timestamptz DEFAULT NULL)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'discard_dead_letters' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letters(regclass, text, text, text, text, postbox.outcome, timestamptz) IS
$$Deletes all dead letters that the caller may see and that match every argument that is not NULL. Returns the number of deleted dead letters.

inbox: only those of this inbox.
aggregate_type: only those of this aggregate type.
aggregate_id: only those of this aggregate.
event_type: only those of this event type.
sqlstate: only those whose last attempt failed with this SQLSTATE.
outcome: only those whose last redrive had this outcome.
failed_before: only those whose last attempt was before this time.

Rights: the rights of the owner of the inbox, or membership in postbox_operator.
Errors: 22023 if all arguments are NULL.
Since: 0.2.0
Example: SELECT postbox.discard_dead_letters('catalog_read.inbox', outcome => 'stale', failed_before => now() - interval '30 days');$$;
