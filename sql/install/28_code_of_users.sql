-- Reading a table may run code of ordinary users: policies where row security is forced, functions and operators in indexes,
-- constraints and statistics (the planner computes what is constant in them), casts, and whatever a foreign table asks. Such code may sleep
-- for ever, and catch the cancel. What a superuser owns, as most extensions are, is trusted. From the catalogs only.
CREATE FUNCTION postbox.code_of_users(relation regclass, other regclass DEFAULT NULL) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
BEGIN
    RETURN (
    WITH RECURSIVE part(of, oid) AS (
        SELECT r.of, r.of::oid FROM unnest(ARRAY[relation, other]) AS r(of) WHERE r.of IS NOT NULL
        UNION SELECT p.of, i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
    ), object(of, classid, objid) AS (
        SELECT p.of, 'pg_class'::regclass, p.oid FROM part p
        UNION ALL SELECT p.of, 'pg_class'::regclass, i.indexrelid FROM part p JOIN pg_index i ON i.indrelid = p.oid
        UNION ALL SELECT p.of, 'pg_constraint'::regclass, c.oid FROM part p JOIN pg_constraint c ON c.conrelid = p.oid
        UNION ALL SELECT p.of, 'pg_statistic_ext'::regclass, s.oid FROM part p JOIN pg_statistic_ext s ON s.stxrelid = p.oid
    ), type(of, oid) AS (
        SELECT a.attrelid::regclass, a.atttypid FROM pg_attribute a WHERE a.attrelid IN (relation, other) AND a.attnum > 0
        UNION SELECT t.of, d.typbasetype FROM type t JOIN pg_type d ON d.oid = t.oid WHERE d.typtype = 'd'  -- which lends a domain its casts
    ), dependency(of, classid, objid) AS (
        SELECT o.of, d.refclassid, d.refobjid FROM object o JOIN pg_depend d ON d.classid = o.classid AND d.objid = o.objid
        WHERE d.refclassid IN ('pg_proc'::regclass, 'pg_operator'::regclass)
        UNION ALL
        SELECT t.of, 'pg_proc'::regclass, k.castfunc FROM type t JOIN pg_cast k ON k.castsource = t.oid WHERE k.castfunc <> 0
    ), found(rank, what) AS (
        SELECT 1, format('%s is not a table', c.oid::regclass) FROM part p JOIN pg_class c ON c.oid = p.oid WHERE c.relkind NOT IN ('r', 'p')
        UNION ALL
        SELECT 2, format('row security is forced on %s', c.oid::regclass) FROM pg_class c
        WHERE c.oid IN (relation, other) AND c.relrowsecurity AND c.relforcerowsecurity
        UNION ALL
        SELECT 3, format('%s uses function %s', d.of, f.oid::regprocedure)
        FROM dependency d JOIN pg_proc f ON f.oid = d.objid JOIN pg_roles r ON r.oid = f.proowner
        WHERE d.classid = 'pg_proc'::regclass AND NOT r.rolsuper
        UNION ALL
        SELECT 3, format('%s uses operator %s', d.of, f.oid::regoperator)
        FROM dependency d JOIN pg_operator f ON f.oid = d.objid JOIN pg_roles r ON r.oid = f.oprowner
        WHERE d.classid = 'pg_operator'::regclass AND NOT r.rolsuper
    )
    SELECT f.what FROM found f ORDER BY f.rank, f.what LIMIT 1
    );
END
$$;
COMMENT ON FUNCTION postbox.code_of_users(regclass, regclass) IS
    'The code of an ordinary user that reading a table would run, or may run; NULL if there is none';

-- For whoever gave up waiting for a lock.
CREATE FUNCTION postbox.lock_holders(registered postbox.outbox) RETURNS text
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
COMMENT ON FUNCTION postbox.lock_holders(postbox.outbox) IS 'That a table of an outbox is locked, and by which processes as far as they are known';
