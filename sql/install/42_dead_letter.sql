-- Dead letters: events that could not be applied, kept with their payload until somebody acts.
--
-- Everyone sees and may delete the dead letters of the inboxes whose owner he is (or is a member of).

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
    attempts int NOT NULL DEFAULT 1
);
CREATE INDEX dead_letter_inbox ON postbox.dead_letter (inbox, id);
COMMENT ON TABLE postbox.dead_letter IS 'events that could not be applied; resolve one with postbox.redrive_dead_letter(id), or DELETE it';
COMMENT ON COLUMN postbox.dead_letter.event_id IS 'as it came; NULL if the message had none';
COMMENT ON COLUMN postbox.dead_letter.sqlstate IS 'error code of the last attempt';
COMMENT ON COLUMN postbox.dead_letter.error IS 'message of the last attempt';
COMMENT ON COLUMN postbox.dead_letter.failed_at IS 'time of the last attempt';

CREATE FUNCTION postbox.owns_inbox(inbox regclass) RETURNS boolean
    LANGUAGE sql STABLE STRICT PARALLEL SAFE SET search_path = pg_catalog, pg_temp
    AS $$ SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = inbox $$;
COMMENT ON FUNCTION postbox.owns_inbox(regclass) IS 'whether the current user has the rights of the inbox''s owner';

ALTER TABLE postbox.dead_letter ENABLE ROW LEVEL SECURITY;
CREATE POLICY owner_of_the_inbox ON postbox.dead_letter USING (postbox.owns_inbox(inbox));
COMMENT ON POLICY owner_of_the_inbox ON postbox.dead_letter IS 'dead letters belong to the owner of their inbox';

CREATE FUNCTION postbox.record_dead_letter(inbox regclass, event postbox.event, sqlstate text, error text,
        attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, postbox.event, text, text, int) IS
    'records an event that its consumer gives up as rejected; duplicate if the inbox has it already';

CREATE FUNCTION postbox.redrive_dead_letter(id bigint) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'redrive_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.redrive_dead_letter(bigint) IS
    'applies a dead letter again and removes it; if it fails again it stays, with the new error';

SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter_id_seq', '');
REVOKE ALL ON postbox.dead_letter FROM PUBLIC;
GRANT SELECT, DELETE ON postbox.dead_letter TO PUBLIC;
