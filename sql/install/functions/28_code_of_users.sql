-- Reading a table may run code of ordinary users, which may run forever: see extension/registry/code_of_users.cc.
CREATE OR REPLACE FUNCTION postbox.code_of_users(relation regclass, other regclass DEFAULT NULL) RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.code_of_users(regclass, regclass) IS 'Internal: the code of an ordinary user that reading a table would run, or might run; NULL if there is none.';

-- For a session that gave up waiting for a lock.
CREATE OR REPLACE FUNCTION postbox.lock_holders(registered postbox.outbox) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE part(oid) AS (
        SELECT unnest(ARRAY[(registered).relation::oid, (registered).parked::oid])
        UNION SELECT i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
    )
    SELECT format('a table of the outbox is locked%s', ' by process ' || string_agg(DISTINCT l.pid::text, ', '))
    FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'AccessExclusiveLock' AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.relation IN (SELECT p.oid FROM part p UNION ALL SELECT i.indexrelid FROM part p JOIN pg_index i ON i.indrelid = p.oid)
$$;
COMMENT ON FUNCTION postbox.lock_holders(postbox.outbox) IS 'Internal: a text that says that a table of an outbox is locked, and by which processes as far as they are known.';
