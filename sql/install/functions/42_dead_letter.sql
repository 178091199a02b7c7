CREATE OR REPLACE FUNCTION postbox.owns_inbox(inbox regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$ SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = inbox $$;
COMMENT ON FUNCTION postbox.owns_inbox(regclass) IS 'Whether the current user has the rights of the owner of the inbox';

CREATE OR REPLACE FUNCTION postbox.record_dead_letter(inbox regclass, event postbox.event, sqlstate text, error text,
        attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, postbox.event, text, text, int) IS
    'Records an event as rejected, for a consumer that gives it up; duplicate if the inbox has seen it';

CREATE OR REPLACE FUNCTION postbox.record_dead_letter(inbox regclass, event_id bytea, event_type bytea, aggregate_type bytea,
        aggregate_id bytea, version bigint, payload bytea, attributes bytea, occurred_at timestamptz, sqlstate text,
        error bytea, attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter_bytes' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, bytea, bytea, bytea, bytea, bigint, bytea, bytea, timestamptz, text,
        bytea, int) IS
    'Records a message as it was received, in UTF-8 or not: what the database cannot hold as text is stored escaped, with its bytes '
    'in column raw of postbox.dead_letter';

CREATE OR REPLACE FUNCTION postbox.redrive_dead_letter(id bigint) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'redrive_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.redrive_dead_letter(bigint) IS
    'Applies a dead letter again, and deletes it if it is applied. If it fails again, it stays with the new error; if it is stale, ignored or a duplicate, '
    'it stays with that outcome, until it is discarded. Needs INSERT on the inbox, or postbox_operator';

CREATE OR REPLACE FUNCTION postbox.discard_dead_letter(id bigint) RETURNS boolean
    AS 'MODULE_PATHNAME', 'discard_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letter(bigint) IS
    'Deletes a dead letter that the caller may see; false if there is none';

CREATE OR REPLACE FUNCTION postbox.discard_dead_letters(inbox regclass DEFAULT NULL, aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
        event_type text DEFAULT NULL, sqlstate text DEFAULT NULL, outcome postbox.outcome DEFAULT NULL, failed_before timestamptz DEFAULT NULL)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'discard_dead_letters' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letters(regclass, text, text, text, text, postbox.outcome, timestamptz) IS
    'Deletes all dead letters that the caller may see and that match every argument that is not NULL; returns how many. `failed_before`: the last attempt '
    'was before that time. Without any argument it is an error';
