-- The role postbox_operator: sees the status of every outbox and inbox of the databases that have the extension, and may
-- redrive and discard their events. Granted like pg_monitor. It belongs to the server, so DROP EXTENSION leaves it.
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
            MESSAGE = 'role "postbox_operator" exists and is not fit for operators of Postbox',
            DETAIL = pg_catalog.format('It has %s. Whoever is or becomes this role may redrive and discard events.', unfit),
            HINT = 'Take these attributes away with ALTER ROLE, or rename the role.';
    END IF;
END
$$;

CREATE FUNCTION postbox.is_operator() RETURNS boolean
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.is_operator() IS 'Whether the current user is a superuser or a member of postbox_operator';
