-- Inboxes: a consumer's table of the events that it has seen.
--
-- An inbox is two tables of the consumer. <name> has a row for each event: the deduplication key and the outcome.
-- <name>_tombstone has the version at which a key was deleted. The role that creates the inbox owns both. Both are
-- partitioned by generation (functions/40_inbox.sql). Events are applied with the rights of that owner (43_apply.sql).

CREATE TABLE postbox.inbox (
    relation regclass PRIMARY KEY,
    tombstone regclass NOT NULL UNIQUE,
    retention interval NOT NULL CHECK (retention > interval '0'),
    created_at timestamptz NOT NULL DEFAULT now(),
    park_keys boolean NOT NULL DEFAULT false,
    generation smallint NOT NULL DEFAULT 0 CHECK (generation BETWEEN 0 AND 2),
    generation_since timestamptz NOT NULL DEFAULT now(),
    previous_since timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postbox.inbox IS
$$The inboxes of this database, one row for each. Only the functions change it: `create_inbox`, `alter_inbox`, `register_inbox`, `repair_inbox`,
  `purge_inbox`, `drop_inbox`, and `create_subscription` with `on_error => 'park_key'`.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.inbox.relation IS 'The inbox table: one row for each event that was seen.';
COMMENT ON COLUMN postbox.inbox.tombstone IS 'The table of tombstones: the versions at which keys of projections were deleted.';
COMMENT ON COLUMN postbox.inbox.retention IS
    'How long event ids and tombstones are kept at least; at most half of it longer. It must be longer than Pub/Sub may deliver an event again.';
COMMENT ON COLUMN postbox.inbox.created_at IS 'When the inbox was created or registered.';
COMMENT ON COLUMN postbox.inbox.park_keys IS
    'Whether keys may be parked (`on_error => ''park_key''`). If so, each transaction that applies events looks for parked keys first.';
COMMENT ON COLUMN postbox.inbox.generation IS 'The generation, from 0 to 2, into whose partitions new rows of the inbox and its tombstones are written.';
COMMENT ON COLUMN postbox.inbox.generation_since IS 'Since when that generation has been current.';
COMMENT ON COLUMN postbox.inbox.previous_since IS 'Since when the generation before it was current.';

SELECT pg_catalog.pg_extension_config_dump('postbox.inbox', '');
REVOKE ALL ON postbox.inbox FROM PUBLIC;
GRANT SELECT ON postbox.inbox TO PUBLIC;
