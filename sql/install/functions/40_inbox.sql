CREATE OR REPLACE FUNCTION postbox.create_inbox(name text, retention interval DEFAULT '14 days') RETURNS regclass
    AS 'MODULE_PATHNAME', 'create_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_inbox(text, interval) IS
    'Creates an inbox, owned by the caller. Event ids are remembered for the retention';

CREATE OR REPLACE FUNCTION postbox.drop_inbox(inbox regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_inbox(regclass) IS
    'Drops an inbox with its subscriptions, projections, handlers and dead letters. Projected tables stay';

CREATE OR REPLACE FUNCTION postbox.purge_inbox(inbox regclass, batch int DEFAULT 10000) RETURNS bigint
    AS 'MODULE_PATHNAME', 'purge_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.purge_inbox(regclass, int) IS
    'Deletes up to `batch` events and tombstones that are older than the retention; returns how many. Workers call it regularly';

CREATE OR REPLACE FUNCTION postbox.repair_inbox(inbox regclass, dry_run boolean DEFAULT true)
    RETURNS TABLE (object text, problem text, repair text)
    AS 'MODULE_PATHNAME', 'repair_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.repair_inbox(regclass, boolean) IS
    'What is missing or wrong of the tables of an inbox, and the statements that repair it; NULL where none does. They are run if dry_run is '
    'false. For the owner of the inbox';

CREATE OR REPLACE FUNCTION postbox.register_inbox(relation regclass, retention interval DEFAULT '14 days', tombstone regclass DEFAULT NULL)
    RETURNS regclass
    AS 'MODULE_PATHNAME', 'register_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.register_inbox(regclass, interval, regclass) IS
    'Registers a table that create_inbox has made: after DROP EXTENSION, or from a dump without the registration. Its tombstones are found by '
    'their name or named. Puts back what is missing. For the owner of the table';
