-- Dead letters: events that could not be applied. They are kept with their payload until they are redriven or discarded.
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
COMMENT ON TABLE postbox.dead_letter IS
$$The dead letters: events that could not be applied, with their payload, one row for each. `redrive_dead_letter` applies one again; `discard_dead_letter` and
  `discard_dead_letters` delete them.

Rights: roles with the rights of the owner of the inbox, and members of postbox_operator, see the dead letters of the inbox.$$;
COMMENT ON COLUMN postbox.dead_letter.id IS 'The id of the dead letter, for `redrive_dead_letter` and `discard_dead_letter`.';
COMMENT ON COLUMN postbox.dead_letter.inbox IS 'The inbox to which the event was to be applied.';
COMMENT ON COLUMN postbox.dead_letter.event_id IS 'The event id as received. NULL or empty if the message had none: it cannot be redriven.';
COMMENT ON COLUMN postbox.dead_letter.event_type IS 'The event type.';
COMMENT ON COLUMN postbox.dead_letter.aggregate_type IS 'The aggregate type.';
COMMENT ON COLUMN postbox.dead_letter.aggregate_id IS 'The aggregate id.';
COMMENT ON COLUMN postbox.dead_letter.version IS 'The version. NULL if the message had none.';
COMMENT ON COLUMN postbox.dead_letter.payload IS 'The payload as received.';
COMMENT ON COLUMN postbox.dead_letter.attributes IS 'The attributes of the message. NULL if they are in `raw`, or the message had none.';
COMMENT ON COLUMN postbox.dead_letter.occurred_at IS 'The time of the event. NULL if it is not known.';
COMMENT ON COLUMN postbox.dead_letter.sqlstate IS 'The SQLSTATE of the last attempt.';
COMMENT ON COLUMN postbox.dead_letter.error IS 'The error message of the last attempt, at most 8 kB of it.';
COMMENT ON COLUMN postbox.dead_letter.failed_at IS 'The time of the last attempt.';
COMMENT ON COLUMN postbox.dead_letter.attempts IS 'How many times the event was tried.';
COMMENT ON COLUMN postbox.dead_letter.raw IS
    'The fields that the database cannot hold as text: a JSON object from field to its bytes in hex. The columns of these fields have them escaped; `attributes` is NULL. '
    'NULL if there are no such fields. A dead letter with such fields cannot be redriven.';
COMMENT ON COLUMN postbox.dead_letter.outcome IS
    'The outcome of the last redrive if it had no effect: `stale`, `ignored` or `duplicate`. The dead letter stays until it is discarded. NULL if it was not redriven, or '
    'failed again.';

ALTER TABLE postbox.dead_letter ENABLE ROW LEVEL SECURITY;

SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter_id_seq', '');
REVOKE ALL ON postbox.dead_letter FROM PUBLIC;
GRANT SELECT ON postbox.dead_letter TO PUBLIC;
