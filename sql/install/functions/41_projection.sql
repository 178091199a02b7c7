CREATE OR REPLACE FUNCTION postbox.create_projection(inbox regclass, event_types text[], target regclass,
        columns jsonb DEFAULT NULL, key text[] DEFAULT NULL, version_column name DEFAULT 'version',
        delete_types text[] DEFAULT '{}') RETURNS void
    AS 'MODULE_PATHNAME', 'create_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_projection(regclass, text[], regclass, jsonb, text[], name, text[]) IS
    'Keeps a table up to date from events of these types. Newer versions overwrite, older ones change nothing; events of '
    'delete_types delete the row. columns maps columns to JSON fields or fields of the event: {"title": "name", "image": {"path": "files.image", '
    '"as": "base64"}, "changed": "$occurred_at"}; as is base64, hex, utc, epoch_seconds, epoch_milliseconds or epoch_microseconds';

CREATE OR REPLACE FUNCTION postbox.drop_projection(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_projection(bigint) IS 'Drops a projection; its target keeps its rows';

CREATE OR REPLACE FUNCTION postbox.create_handler(inbox regclass, event_types text[], function regprocedure) RETURNS void
    AS 'MODULE_PATHNAME', 'create_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_handler(regclass, text[], regprocedure) IS
    'Calls function(postbox.event) once for each event of these types, with the rights of the owner of the inbox';

CREATE OR REPLACE FUNCTION postbox.drop_handler(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_handler(bigint) IS 'Drops a handler; its function stays';

CREATE OR REPLACE FUNCTION postbox.wait_for_version(target regclass, key text, version bigint,
        timeout interval DEFAULT '5s') RETURNS boolean
    AS 'MODULE_PATHNAME', 'wait_for_version' LANGUAGE C;
COMMENT ON FUNCTION postbox.wait_for_version(regclass, text, bigint, interval) IS
    'Waits until a projection has this version of the key or a newer one, or has deleted the key; false after the timeout';

CREATE OR REPLACE FUNCTION postbox.forget_missing_fields() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    DELETE FROM postbox.missing_field m WHERE NOT EXISTS (SELECT FROM postbox.projection p WHERE p.id = m.projection);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION postbox.forget_missing_fields() IS 'Trigger: removes what was noticed of projections that are dropped';

CREATE OR REPLACE FUNCTION postbox.projection_problem(id bigint) RETURNS postbox.problem
    AS 'MODULE_PATHNAME', 'projection_problem' LANGUAGE C STABLE STRICT;
COMMENT ON FUNCTION postbox.projection_problem(bigint) IS
    'Why a projection cannot write its target, with the repair; NULL if it can, or if the target is locked';

CREATE OR REPLACE FUNCTION postbox.handler_problem(id bigint) RETURNS postbox.problem
    LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
    -- postbox.handler.function has the form that format() makes here, since create_handler has written it so. Which names
    -- are quoted depends on quote_all_identifiers.
    AS $$
        SELECT 'handler_broken', 'error', format('handler %s', h.id), format('function %s does not exist, or does not return void', h.function),
               format('create it again, or run SELECT postbox.drop_handler(%s)', h.id)
        FROM postbox.handler h
        WHERE h.id = handler_problem.id AND NOT EXISTS (
            SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            WHERE p.proargtypes = array_to_string(ARRAY['postbox.event'::regtype::oid], ' ')::oidvector
              AND p.prorettype = 'void'::regtype AND NOT p.proretset AND p.prokind = 'f'
              AND replace(format('%I.%I(postbox.event)', n.nspname, p.proname), '"', '') = replace(h.function, '"', ''))
    $$;
COMMENT ON FUNCTION postbox.handler_problem(bigint) IS 'Why a handler cannot be called, with the repair; NULL if it can';

CREATE OR REPLACE VIEW postbox.inbox_problem AS
    SELECT f.inbox, f.kind, f.id, f.event_types, f.problem, f.remedy FROM (
        SELECT p.inbox, 'projection' AS kind, p.id, p.event_types || p.delete_types AS event_types, w.detail AS problem, w.remedy
        FROM postbox.projection p, LATERAL postbox.projection_problem(p.id) w
        UNION ALL
        SELECT h.inbox, 'handler', h.id, h.event_types, w.detail, w.remedy
        FROM postbox.handler h, LATERAL postbox.handler_problem(h.id) w
        UNION ALL
        SELECT i.relation, 'inbox', NULL, NULL, w.detail, w.remedy
        FROM postbox.inbox i, LATERAL postbox.parts_problem(i.relation) w
        UNION ALL
        SELECT i.relation, 'inbox', NULL, NULL, w.detail, w.remedy
        FROM postbox.inbox i, LATERAL postbox.unlogged_problem(i.relation, i.tombstone) w
        UNION ALL
        SELECT p.inbox, 'projection', p.id, p.event_types || p.delete_types, w.detail, w.remedy
        FROM postbox.projection p, LATERAL postbox.unlogged_problem(p.target) w
        UNION ALL
        SELECT p.inbox, 'field', p.id, m.event_types,
            format('field "%s", which column %I of %s takes, was in none of the last 100 events of type %s', m.field, m.column_name, p.target,
                   array_to_string(m.event_types, ', '))
                || coalesce('; the events have a field "' || m.similar_field || '"', ''),
            format('if the name is wrong, remove the projection with postbox.drop_projection(%s) and create it again with the right one in columns', p.id)
        FROM postbox.missing_field m JOIN postbox.projection p ON p.id = m.projection) f
    WHERE f.problem IS NOT NULL;
COMMENT ON VIEW postbox.inbox_problem IS
    'Projections and handlers that are broken, whose events are not applied until they are repaired or dropped; inboxes that are, to which nothing is '
    'applied; inboxes whose tables a crash would empty, so that events take effect again; projections whose targets a crash would empty; and, of kind '
    'field, fields that no event has';
