-- Every upgrade begins with this part.
--
-- Sessions and pullers continue until the upgrade has the locks of the tables of Postbox, and then wait until it commits. Workers of
-- another release of the library publish nothing in this database until then. While other transactions use a table or a view of
-- Postbox, the upgrade tries for 3 s to get the locks, each time for less than a second, and then fails. It can be run again.
SET LOCAL search_path = pg_catalog, pg_temp;

-- The schema postbox is for Postbox alone. A role that owns it, may create in it, or owns an object in it could add functions that a
-- superuser's statement would call instead of those of Postbox.
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
            HINT = 'Check which objects its owner or other roles have created in it. Drop them, revoke CREATE on the schema, '
                   'and give the schema to a superuser with ALTER SCHEMA postbox OWNER TO.';
    END IF;
END
$$;

DO $$
DECLARE
    until timestamptz := clock_timestamp() + interval '3 s';
    -- Each round waits up to `patience` for the first lock and up to `rest` for all others together, or releases all. The sum is less
    -- than deadlock_timeout, so a transaction that waits for one lock and holds another is not ended for a deadlock.
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
                -- First the relation that another transaction uses, then views, which queries lock before their tables.
                ORDER BY c.oid IS DISTINCT FROM member, c.relkind DESC, c.oid
            LOOP
                PERFORM set_config('lock_timeout', greatest(1, extract(epoch FROM round_until - clock_timestamp()) * 1000)::int::text, true);
                -- LOCK TABLE of a view would also lock the tables that it reads, such as pg_database, and all logins to the cluster would wait.
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
                    DETAIL = 'Workers would wait behind the update until that transaction ends.',
                    HINT = 'Try again when that transaction, for example of pg_dump, has ended. If such transactions follow each other without a pause, stop them.';
            END IF;
        END;
        PERFORM pg_sleep(0.05);
    END LOOP;
    PERFORM set_config('lock_timeout', of_caller, true);
END
$$;
