-- Inboxes: a consumer's own table of the events it has seen.
--
-- An inbox is two ordinary tables of the consumer. <name> has a row for each event: the deduplication key and the
-- outcome. <name>_tombstone has the version at which a key was deleted. The role that creates the inbox owns both.
-- Events are applied with the rights of that owner (43_apply.sql).

CREATE TABLE postbox.inbox (
    relation regclass PRIMARY KEY,
    tombstone regclass NOT NULL UNIQUE,
    retention interval NOT NULL CHECK (retention > interval '0'),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postbox.inbox IS 'The inboxes of this database; only create_inbox and drop_inbox change it';
COMMENT ON COLUMN postbox.inbox.relation IS 'The inbox table: one row for each event seen';
COMMENT ON COLUMN postbox.inbox.tombstone IS 'The table of versions at which keys of the projections were deleted';
COMMENT ON COLUMN postbox.inbox.retention IS 'How long an event id is remembered. Must be longer than Pub/Sub may deliver the event again';

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.inbox
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.inbox
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.inbox ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;

CREATE FUNCTION postbox.create_inbox(name text, retention interval DEFAULT '14 days') RETURNS regclass
    AS 'MODULE_PATHNAME', 'create_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_inbox(text, interval) IS
    'Creates an inbox, owned by the caller. Event ids are remembered for the retention';

CREATE FUNCTION postbox.drop_inbox(inbox regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_inbox(regclass) IS
    'Drops an inbox with its subscriptions, projections, handlers and dead letters. Projected tables stay';

CREATE FUNCTION postbox.purge_inbox(inbox regclass, batch int DEFAULT 10000) RETURNS bigint
    AS 'MODULE_PATHNAME', 'purge_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.purge_inbox(regclass, int) IS
    'Deletes up to `batch` events and tombstones that are older than the retention; returns how many. Workers call it regularly';

CREATE FUNCTION postbox.repair_inbox(inbox regclass, dry_run boolean DEFAULT true)
    RETURNS TABLE (object text, problem text, repair text)
    AS 'MODULE_PATHNAME', 'repair_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.repair_inbox(regclass, boolean) IS
    'What is missing or wrong of the tables of an inbox, and the statements that repair it; NULL where nobody can. They are run if dry_run is '
    'false. For the owner of the inbox';

CREATE FUNCTION postbox.register_inbox(relation regclass, retention interval DEFAULT '14 days', tombstone regclass DEFAULT NULL)
    RETURNS regclass
    AS 'MODULE_PATHNAME', 'register_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.register_inbox(regclass, interval, regclass) IS
    'Registers a table that create_inbox has made: after DROP EXTENSION, or from a dump without the registration. Its tombstones are found by '
    'their name or named. Puts back what is missing. For the owner of the table';

SELECT pg_catalog.pg_extension_config_dump('postbox.inbox', '');
REVOKE ALL ON postbox.inbox FROM PUBLIC;
GRANT SELECT ON postbox.inbox TO PUBLIC;
