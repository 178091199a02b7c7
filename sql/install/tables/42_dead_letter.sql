-- Dead letters: events that could not be applied. They are kept with their payload until they are redriven or deleted.
--
-- A role sees and may discard the dead letters of an inbox if it has the rights of the owner of the inbox, or those
-- of postbox_operator. It may not DELETE: a role that may DELETE may LOCK TABLE, which would hold up the dead letters of all inboxes.

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

ALTER TABLE postbox.dead_letter ENABLE ROW LEVEL SECURITY;

SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter_id_seq', '');
REVOKE ALL ON postbox.dead_letter FROM PUBLIC;
GRANT SELECT ON postbox.dead_letter TO PUBLIC;
