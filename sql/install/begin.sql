-- The schema postbox is for Postbox alone. A role that owns it, may create in it, or has left an object in it could add functions
-- that a superuser's statement would call instead of those of Postbox. CREATE EXTENSION creates the schema, but also uses an
-- existing one: DROP EXTENSION leaves it behind, a restore creates it first, and another role may have created it. So this script
-- continues only if a superuser owns the schema, no other role may create in it, and it is empty. (pg_upgrade runs no script.)
--
-- CREATE EXTENSION runs the script with the schema in its search_path. From here on the schema is not in it.
SET LOCAL search_path = pg_catalog, pg_temp;

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
        (SELECT format('It contains %s.', string_agg(o.name, ', ' ORDER BY o.name))
         FROM (SELECT pg_describe_object(d.classid, d.objid, d.objsubid) FROM pg_depend d
               WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid
                 AND NOT (d.classid = 'pg_extension'::regclass
                          AND d.objid IN (SELECT e.oid FROM pg_extension e WHERE e.extname = 'postbox'))
               LIMIT 10) AS o(name) HAVING count(*) > 0))
    INTO problem FROM pg_namespace n WHERE n.nspname = 'postbox';
    IF problem IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'schema "postbox" is not safe for extension postbox',
            DETAIL = problem,
            HINT = 'Drop the schema or rename it. CREATE EXTENSION creates it.';
    END IF;
END
$$;

-- The role postbox_operator sees the status of every outbox and inbox of the databases that have the extension, and may
-- redrive and discard their events. It is granted like pg_monitor. It belongs to the server, so DROP EXTENSION leaves it.
DO $$
DECLARE
    unfit text;
BEGIN
    BEGIN
        CREATE ROLE postbox_operator NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- another database has the extension
    END;
    SELECT pg_catalog.concat_ws(', ', CASE WHEN rolcanlogin THEN 'LOGIN' END, CASE WHEN rolsuper THEN 'SUPERUSER' END,
        CASE WHEN rolcreaterole THEN 'CREATEROLE' END, CASE WHEN rolcreatedb THEN 'CREATEDB' END,
        CASE WHEN rolreplication THEN 'REPLICATION' END, CASE WHEN rolbypassrls THEN 'BYPASSRLS' END)
      INTO unfit FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) 'postbox_operator';
    IF unfit OPERATOR(pg_catalog.<>) '' THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'role "postbox_operator" exists and has attributes that operators of Postbox must not have',
            DETAIL = pg_catalog.format('It has %s. Its sessions and members may redrive and discard events.', unfit),
            HINT = 'Remove these attributes with ALTER ROLE, or rename the role.';
    END IF;
END
$$;
