-- Inboxes: a consumer's own table of the events it has seen, and the subscriptions' common ground.
--
-- An inbox is two ordinary tables of the consumer: <name> (one row an event: the dedupe key and its
-- outcome) and <name>_tombstone (the version at which a key was deleted). Whoever creates the inbox
-- owns both; what is applied through it runs with the owner's rights (43_apply.sql).

CREATE TABLE postbox.inbox (
    relation regclass PRIMARY KEY,
    tombstone regclass NOT NULL UNIQUE,
    retention interval NOT NULL CHECK (retention > interval '0'),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postbox.inbox IS 'inboxes of this database; written by postbox.create_inbox and postbox.drop_inbox';
COMMENT ON COLUMN postbox.inbox.relation IS 'the inbox table: one row for each event seen';
COMMENT ON COLUMN postbox.inbox.tombstone IS 'versions at which keys of the projections were deleted';
COMMENT ON COLUMN postbox.inbox.retention IS 'how long an event id is remembered; longer than Pub/Sub may deliver it again';

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON postbox.inbox
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();

CREATE FUNCTION postbox.create_inbox(name text, retention interval DEFAULT '14 days') RETURNS regclass
    AS 'MODULE_PATHNAME', 'create_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_inbox(text, interval) IS
    'makes an inbox of that name, owned by the caller; event ids are remembered for the retention';

CREATE FUNCTION postbox.drop_inbox(inbox regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_inbox(regclass) IS
    'drops an inbox with its subscriptions, projections, handlers and dead letters; projected tables stay';

CREATE FUNCTION postbox.purge_inbox(inbox regclass, batch int DEFAULT 10000) RETURNS bigint
    AS 'MODULE_PATHNAME', 'purge_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.purge_inbox(regclass, int) IS
    'deletes at most that many rows older than the retention, tombstones too; returns how many it deleted';

SELECT pg_catalog.pg_extension_config_dump('postbox.inbox', '');
REVOKE ALL ON postbox.inbox FROM PUBLIC;
GRANT SELECT ON postbox.inbox TO PUBLIC;
