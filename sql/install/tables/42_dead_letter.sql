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
    outcome postbox.outcome,
    parked boolean NOT NULL DEFAULT false
);
CREATE INDEX dead_letter_inbox ON postbox.dead_letter (inbox, id);
-- The events of a key in their order.
CREATE INDEX dead_letter_parked ON postbox.dead_letter (inbox, aggregate_id, id) WHERE parked;
COMMENT ON TABLE postbox.dead_letter IS
$$The dead letters: events that could not be applied, with their payload, one row for each. `redrive_dead_letter` and `redrive_dead_letters` apply them again; `discard_dead_letter`
  and `discard_dead_letters` delete them. The events of a parked key are dead letters, too (`parked`): the first one failed, and the others wait behind it.

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
COMMENT ON COLUMN postbox.dead_letter.sqlstate IS 'The SQLSTATE of the last attempt. NULL if there was none: a parked event that waits behind another one.';
COMMENT ON COLUMN postbox.dead_letter.error IS 'The error message of the last attempt, at most 8 kB of it. NULL if there was none.';
COMMENT ON COLUMN postbox.dead_letter.failed_at IS 'The time of the last attempt, or when the event was parked if there was none.';
COMMENT ON COLUMN postbox.dead_letter.attempts IS 'How many times the event was tried; 0 for a parked event that waits behind another one.';
COMMENT ON COLUMN postbox.dead_letter.raw IS
    'The fields that the database cannot hold as text: a JSON object from field to its bytes in hex. The columns of these fields have them escaped; `attributes` is NULL. '
    'NULL if there are no such fields. A dead letter with such fields cannot be redriven.';
COMMENT ON COLUMN postbox.dead_letter.outcome IS
    'The outcome of the last redrive if it had no effect: `stale`, `ignored` or `duplicate`. The dead letter stays until it is discarded. NULL if it was not redriven, or '
    'failed again.';
COMMENT ON COLUMN postbox.dead_letter.parked IS
    'Whether the event is part of a parked key: it is applied after all parked events of its `aggregate_id` with a smaller `id`, and before all new ones.';

ALTER TABLE postbox.dead_letter ENABLE ROW LEVEL SECURITY;

-- The protocol of its row locks: extension/apply/parked_keys.h.
CREATE TABLE postbox.parked_key (
    inbox regclass NOT NULL,
    aggregate_id text NOT NULL,
    parked_at timestamptz NOT NULL DEFAULT now(),
    retries int NOT NULL DEFAULT 0,
    next_retry_at timestamptz NOT NULL,
    PRIMARY KEY (inbox, aggregate_id)
);
CREATE INDEX parked_key_due ON postbox.parked_key (inbox, next_retry_at);
COMMENT ON TABLE postbox.parked_key IS
$$The parked keys of inboxes, one row for each. New events of such a key are stored as dead letters (`parked`) and are not applied. `postbox.paused_keys` shows a key with its
  first event.

Rights: roles with the rights of the owner of the inbox, and members of postbox_operator, see the parked keys of the inbox.$$;
COMMENT ON COLUMN postbox.parked_key.inbox IS 'The inbox.';
COMMENT ON COLUMN postbox.parked_key.aggregate_id IS 'The key: the aggregate id of its events.';
COMMENT ON COLUMN postbox.parked_key.parked_at IS 'Since when the key has been parked.';
COMMENT ON COLUMN postbox.parked_key.retries IS 'How many times `postbox pull` has retried the first event of the key.';
COMMENT ON COLUMN postbox.parked_key.next_retry_at IS 'When `postbox pull` retries it; infinity: not before a redrive, because `parked_max_attempts` of the subscription are used up.';
ALTER TABLE postbox.parked_key ENABLE ROW LEVEL SECURITY;

CREATE TABLE postbox.discarded_event (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_id text NOT NULL,
    event_type text,
    aggregate_type text,
    aggregate_id text NOT NULL,
    version bigint,
    hole boolean NOT NULL,
    reason text NOT NULL,
    discarded_by name NOT NULL,
    discarded_at timestamptz NOT NULL DEFAULT now()
);
CREATE INDEX discarded_event_key ON postbox.discarded_event (inbox, aggregate_id);
COMMENT ON TABLE postbox.discarded_event IS
$$The parked events that were discarded, one row for each: what an inbox has not applied although later events of the key follow. No payload is kept.

Rights: roles with the rights of the owner of the inbox, and members of postbox_operator, see the rows of the inbox.$$;
COMMENT ON COLUMN postbox.discarded_event.id IS 'The number of the row.';
COMMENT ON COLUMN postbox.discarded_event.inbox IS 'The inbox.';
COMMENT ON COLUMN postbox.discarded_event.event_id IS 'The event id as received.';
COMMENT ON COLUMN postbox.discarded_event.event_type IS 'The event type.';
COMMENT ON COLUMN postbox.discarded_event.aggregate_type IS 'The aggregate type.';
COMMENT ON COLUMN postbox.discarded_event.aggregate_id IS 'The aggregate id, which is the key.';
COMMENT ON COLUMN postbox.discarded_event.version IS 'The version. NULL if the event had none.';
COMMENT ON COLUMN postbox.discarded_event.hole IS 'Whether the effect of the event is missing: no parked event behind it replaced the whole row.';
COMMENT ON COLUMN postbox.discarded_event.reason IS 'The reason, as given.';
COMMENT ON COLUMN postbox.discarded_event.discarded_by IS 'The role that discarded the event.';
COMMENT ON COLUMN postbox.discarded_event.discarded_at IS 'When it was discarded.';
ALTER TABLE postbox.discarded_event ENABLE ROW LEVEL SECURITY;

SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.dead_letter_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.parked_key', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.discarded_event', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.discarded_event_id_seq', '');
REVOKE ALL ON postbox.dead_letter, postbox.parked_key, postbox.discarded_event FROM PUBLIC;
GRANT SELECT ON postbox.dead_letter, postbox.parked_key, postbox.discarded_event TO PUBLIC;
