-- What every upgrade begins with.
--
-- Sessions and pullers may go on until it has the locks of the tables of Postbox, and wait then until it has committed. Workers of
-- another release of the library publish nothing in this database until then. It tries for 3 s to get the locks from transactions
-- that use a table or a view of Postbox, each time for less than a second, and then fails; it can be run again.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The schema postbox belongs to Postbox alone. A role that owns it, may create in it, or owns an object in it could put functions
-- beside those of Postbox that a superuser's statement would call.
DO $$
DECLARE
    problem text;
BEGIN
    SELECT coalesce(
        (SELECT format('Its owner %I is not a superuser.', r.rolname)
         FROM pg_roles r WHERE r.oid = n.nspowner AND NOT r.rolsuper),
        (SELECT format('%s may create objects in it.', string_agg(coalesce(quote_ident(r.rolname), 'PUBLIC'), ', ' ORDER BY r.rolname))
         FROM aclexplode(n.nspacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner AND r.rolsuper IS NOT TRUE HAVING count(*) > 0),
        (SELECT format('It contains %s, which no superuser owns.', string_agg(o.name, ', ' ORDER BY o.name))
         FROM (SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
               FROM pg_depend d
               JOIN pg_shdepend s ON s.classid = d.classid AND s.objid = d.objid AND s.objsubid = d.objsubid AND s.deptype = 'o'
                AND s.dbid = (SELECT b.oid FROM pg_database b WHERE b.datname = current_database())
               JOIN pg_roles r ON s.refclassid = 'pg_authid'::regclass AND r.oid = s.refobjid AND NOT r.rolsuper
               WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid
               LIMIT 10) AS o(name) HAVING count(*) > 0))
    INTO problem FROM pg_namespace n WHERE n.nspname = 'postbox';
    IF problem IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'schema "postbox" is not safe for extension postbox',
            DETAIL = problem,
            HINT = 'Look for what its owner or others have put into it. Then drop these objects, revoke CREATE on the schema, '
                   'and give it to a superuser with ALTER SCHEMA postbox OWNER TO.';
    END IF;
END
$$;

DO $$
DECLARE
    until timestamptz := clock_timestamp() + interval '3 s';
    -- In each round, the first lock is waited for so long, and then all others together so long; or all are given back. In all that is
    -- less than the time after which a transaction that waits for one of them, and has another, would be ended for a deadlock.
    patience interval := least(interval '600 ms', 0.6 * current_setting('deadlock_timeout')::interval);
    rest interval := least(interval '250 ms', 0.25 * current_setting('deadlock_timeout')::interval);
    of_caller text := current_setting('lock_timeout');
    round_until timestamptz;
    first boolean;
    member regclass;
    is_view boolean;
    owner name;
BEGIN
    LOOP
        first := true;
        round_until := clock_timestamp() + patience;
        BEGIN
            FOR member, is_view, owner IN
                SELECT c.oid, c.relkind = 'v', pg_get_userbyid(c.relowner) FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'postbox' JOIN pg_class c ON c.oid = d.objid
                WHERE d.refclassid = 'pg_extension'::regclass AND d.classid = 'pg_class'::regclass AND d.deptype = 'e' AND c.relkind IN ('r', 'v')
                -- First what another transaction uses. A query of a view locks it first.
                ORDER BY c.oid IS DISTINCT FROM member, c.relkind DESC, c.oid
            LOOP
                PERFORM set_config('lock_timeout', greatest(1, extract(epoch FROM round_until - clock_timestamp()) * 1000)::int::text, true);
                -- LOCK TABLE would lock what a view reads, too, pg_database for example, where all logins to the cluster would wait.
                EXECUTE format(CASE WHEN is_view THEN 'ALTER VIEW %s OWNER TO %I' ELSE 'LOCK TABLE %s IN ACCESS EXCLUSIVE MODE' END, member, owner);
                IF first THEN
                    first := false;
                    round_until := clock_timestamp() + rest;
                END IF;
            END LOOP;
            EXIT;
        EXCEPTION WHEN lock_not_available OR deadlock_detected THEN
            IF clock_timestamp() >= until THEN
                RAISE lock_not_available USING
                    MESSAGE = format('cannot update extension postbox because another transaction uses %s', member),
                    DETAIL = 'Workers would wait behind the update as long as that transaction runs.',
                    HINT = 'Try again when it has ended, for example a pg_dump. Where transactions that use it follow each other, stop those.';
            END IF;
        END;
        PERFORM pg_sleep(0.05);
    END LOOP;
    PERFORM set_config('lock_timeout', of_caller, true);
END
$$;
