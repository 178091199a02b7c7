-- Dead letters: events that could not be applied. They are kept with their payload until they are redriven or deleted.
--
-- A role sees and may discard the dead letters of an inbox if it has the rights of the owner of the inbox, or those
-- of postbox_operator. It may not DELETE: whoever may DELETE may LOCK TABLE, which would hold up the dead letters of all inboxes.

CREATE TABLE postbox.dead_letter (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_id text,
    event_type text,
    aggregate_type text,
    aggregate_id text,
    version bigint,
    payload bytea,
    attributes jsonb,
    occurred_at timestamptz,
    sqlstate text,
    error text,
    failed_at timestamptz NOT NULL DEFAULT now(),
    attempts int NOT NULL DEFAULT 1,
    raw jsonb,
    outcome postbox.outcome
);
CREATE INDEX dead_letter_inbox ON postbox.dead_letter (inbox, id);
COMMENT ON TABLE postbox.dead_letter IS 'Events that could not be applied. Apply one again with redrive_dead_letter(id), or remove it with discard_dead_letter(id)';
COMMENT ON COLUMN postbox.dead_letter.event_id IS 'As received; NULL if the message had none';
COMMENT ON COLUMN postbox.dead_letter.sqlstate IS 'SQLSTATE of the last attempt';
COMMENT ON COLUMN postbox.dead_letter.error IS 'Error message of the last attempt';
COMMENT ON COLUMN postbox.dead_letter.raw IS
    'Fields that the database cannot hold as text: name -> their bytes in hex. The columns have them escaped, attributes has NULL. '
    'NULL if there are none';
COMMENT ON COLUMN postbox.dead_letter.outcome IS
    'Outcome of the last redrive if it had no effect: stale, ignored or duplicate. Such a dead letter stays until it is discarded. NULL: it was not '
    'redriven, or failed again';
COMMENT ON COLUMN postbox.dead_letter.failed_at IS 'Time of the last attempt';

CREATE FUNCTION postbox.owns_inbox(inbox regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$ SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = inbox $$;
COMMENT ON FUNCTION postbox.owns_inbox(regclass) IS 'Whether the current user has the rights of the owner of the inbox';

ALTER TABLE postbox.dead_letter ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner_of_the_inbox ON postbox.dead_letter USING (postbox.owns_inbox(inbox) OR (SELECT postbox.is_operator()));
COMMENT ON POLICY owner_of_the_inbox ON postbox.dead_letter IS 'Dead letters are for the owner of their inbox, and for operators';

CREATE FUNCTION postbox.record_dead_letter(inbox regclass, event postbox.event, sqlstate text, error text,
        attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, postbox.event, text, text, int) IS
    'Records an event as rejected, for a consumer that gives it up; duplicate if the inbox has seen it';

CREATE FUNCTION postbox.record_dead_letter(inbox regclass, event_id bytea, event_type bytea, aggregate_type bytea,
        aggregate_id bytea, version bigint, payload bytea, attributes bytea, occurred_at timestamptz, sqlstate text,
        error bytea, attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter_bytes' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, bytea, bytea, bytea, bytea, bigint, bytea, bytea, timestamptz, text,
        bytea, int) IS
    'Records a message as it was received, in UTF-8 or not: what the database cannot hold as text is stored escaped, with its bytes '
    'in column raw of postbox.dead_letter';

CREATE FUNCTION postbox.redrive_dead_letter(id bigint) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'redrive_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.redrive_dead_letter(bigint) IS
    'Applies a dead letter again, and deletes it if it is applied. If it fails again, it stays with the new error; if it is stale, ignored or a duplicate, '
    'it stays with that outcome, until it is discarded. Needs INSERT on the inbox, or postbox_operator';

CREATE FUNCTION postbox.discard_dead_letter(id bigint) RETURNS boolean
    AS 'MODULE_PATHNAME', 'discard_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letter(bigint) IS
    'Deletes a dead letter that the caller may see; false if there is none';

CREATE FUNCTION postbox.discard_dead_letters(inbox regclass DEFAULT NULL, aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
        event_type text DEFAULT NULL, sqlstate text DEFAULT NULL, outcome postbox.outcome DEFAULT NULL, failed_before timestamptz DEFAULT NULL)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'discard_dead_letters' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letters(regclass, text, text, text, text, postbox.outcome, timestamptz) IS
    'Deletes all dead letters that the caller may see and that match every argument that is not NULL; returns how many. `failed_before`: the last attempt '
    'was before that time. Without any argument it is an error';

SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter_id_seq', '');
REVOKE ALL ON postbox.dead_letter FROM PUBLIC;
GRANT SELECT ON postbox.dead_letter TO PUBLIC;
