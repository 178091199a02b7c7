-- Projections, which are tables kept up to date from events, and handlers, which are functions called with the event.

CREATE TABLE postbox.projection (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_types text[] NOT NULL,
    target regclass NOT NULL,
    columns jsonb CHECK (jsonb_typeof(columns) = 'object'),
    key text[] NOT NULL CHECK (cardinality(key) > 0),
    version_column name NOT NULL,
    delete_types text[] NOT NULL DEFAULT '{}',
    dropped_target text,
    aggregate_types text[] NOT NULL DEFAULT '{}',
    writes text[]
);
CREATE INDEX projection_inbox ON postbox.projection (inbox);
CREATE INDEX projection_target ON postbox.projection (target);
COMMENT ON TABLE postbox.projection IS 'Tables kept up to date from events; only create_projection and drop_projection change it';
COMMENT ON COLUMN postbox.projection.event_types IS 'The event types that are written to the target';
COMMENT ON COLUMN postbox.projection.columns IS 'Target column -> source of its value; NULL: the JSON field of the column''s name';
COMMENT ON COLUMN postbox.projection.key IS 'The columns that identify a row; the target has a unique index on them';
COMMENT ON COLUMN postbox.projection.version_column IS 'The column with the version of the last event; an older event changes nothing';
COMMENT ON COLUMN postbox.projection.delete_types IS 'The event types that delete the row';
COMMENT ON COLUMN postbox.projection.aggregate_types IS
    'The first two aggregate types of which events were applied. In a target that has had several, an event that looks stale fails instead: versions of two '
    'aggregates cannot be compared';
COMMENT ON COLUMN postbox.projection.dropped_target IS 'The target''s name if its table has been dropped: the projection is broken, and its events are not applied';
COMMENT ON COLUMN postbox.projection.writes IS 'The columns that it wrote when it was made: a target that lacks one of them is broken';

CREATE TABLE postbox.handler (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_types text[] NOT NULL,
    function text NOT NULL
);
CREATE INDEX handler_inbox ON postbox.handler (inbox);
COMMENT ON TABLE postbox.handler IS 'Functions called with events; only create_handler and drop_handler change it';
COMMENT ON COLUMN postbox.handler.function IS 'Signature. It is text because pg_upgrade does not support regprocedure columns';

CREATE FUNCTION postbox.projection_writes(target regclass, columns jsonb, key text[], version_column name) RETURNS text[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
        SELECT array_agg(DISTINCT w.name ORDER BY w.name) FROM (
            SELECT unnest(key || version_column::text)
            UNION ALL
            SELECT jsonb_object_keys(columns)
            UNION ALL
            SELECT a.attname::text FROM pg_attribute a
            WHERE columns IS NULL AND a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped
              AND a.attgenerated = '' AND a.attidentity <> 'a') w(name)
        HAVING EXISTS (SELECT FROM pg_class c WHERE c.oid = target)
    $$;
COMMENT ON FUNCTION postbox.projection_writes(regclass, jsonb, text[], name) IS
    'The columns that a projection with these arguments writes now; NULL if its target is gone';

CREATE FUNCTION postbox.note_writes() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    NEW.writes := postbox.projection_writes(NEW.target, NEW.columns, NEW.key, NEW.version_column);
    RETURN NEW;
END $$;
COMMENT ON FUNCTION postbox.note_writes() IS
    'Trigger: notes what a projection writes that comes from a dump of 0.1';

CREATE TRIGGER noted BEFORE INSERT ON postbox.projection
    FOR EACH ROW WHEN (NEW.writes IS NULL) EXECUTE FUNCTION postbox.note_writes();
ALTER TABLE postbox.projection ENABLE ALWAYS TRIGGER noted;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.projection
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.projection ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.handler
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.handler
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.handler ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;

CREATE FUNCTION postbox.create_projection(inbox regclass, event_types text[], target regclass,
        columns jsonb DEFAULT NULL, key text[] DEFAULT NULL, version_column name DEFAULT 'version',
        delete_types text[] DEFAULT '{}') RETURNS void
    AS 'MODULE_PATHNAME', 'create_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_projection(regclass, text[], regclass, jsonb, text[], name, text[]) IS
    'Keeps a table up to date from events of these types. Newer versions overwrite, older ones change nothing; events of '
    'delete_types delete the row. columns maps columns to JSON fields or fields of the event: {"title": "name", "image": {"path": "files.image", '
    '"as": "base64"}, "changed": "$occurred_at"}; as is base64, hex, utc, epoch_seconds, epoch_milliseconds or epoch_microseconds';

CREATE FUNCTION postbox.drop_projection(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_projection(bigint) IS 'Drops a projection; its target keeps its rows';

CREATE FUNCTION postbox.create_handler(inbox regclass, event_types text[], function regprocedure) RETURNS void
    AS 'MODULE_PATHNAME', 'create_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_handler(regclass, text[], regprocedure) IS
    'Calls function(postbox.event) once for each event of these types, with the rights of the owner of the inbox';

CREATE FUNCTION postbox.drop_handler(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_handler(bigint) IS 'Drops a handler; its function stays';

CREATE FUNCTION postbox.wait_for_version(target regclass, key text, version bigint,
        timeout interval DEFAULT '5s') RETURNS boolean
    AS 'MODULE_PATHNAME', 'wait_for_version' LANGUAGE C;
COMMENT ON FUNCTION postbox.wait_for_version(regclass, text, bigint, interval) IS
    'Waits until a projection has this version of the key or a newer one, or has deleted the key; false after the timeout';

CREATE TABLE postbox.missing_field (
    projection bigint NOT NULL,
    column_name text NOT NULL,
    field text NOT NULL,
    event_types text[] NOT NULL,
    similar_field text,
    noticed_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (projection, column_name)
);
COMMENT ON TABLE postbox.missing_field IS
    'Fields that a projection takes and that were in none of the last 100 events of these types; only the sessions that apply events change it';
COMMENT ON COLUMN postbox.missing_field.field IS 'The path of the field in the payload';
COMMENT ON COLUMN postbox.missing_field.similar_field IS 'A field of the events whose name differs in case, hyphens and underscores alone';
REVOKE ALL ON postbox.missing_field FROM PUBLIC;
GRANT SELECT ON postbox.missing_field TO PUBLIC;

CREATE FUNCTION postbox.forget_missing_fields() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    DELETE FROM postbox.missing_field m WHERE NOT EXISTS (SELECT FROM postbox.projection p WHERE p.id = m.projection);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION postbox.forget_missing_fields() IS 'Trigger: removes what was noticed of projections that are dropped';
CREATE TRIGGER forgotten AFTER DELETE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.forget_missing_fields();
CREATE TRIGGER forgotten_all AFTER TRUNCATE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.forget_missing_fields();

CREATE FUNCTION postbox.projection_problem(id bigint) RETURNS text
    AS 'MODULE_PATHNAME', 'projection_problem' LANGUAGE C STABLE STRICT;
COMMENT ON FUNCTION postbox.projection_problem(bigint) IS
    'Why a projection cannot write its target, with the repair; NULL if it can, or if the target is locked';

CREATE FUNCTION postbox.handler_problem(id bigint) RETURNS text
    LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
    -- postbox.handler.function has the form that format() makes here, since create_handler has written it so. Which names
    -- are quoted depends on quote_all_identifiers.
    AS $$
        SELECT format('function %s does not exist, or does not return void. Create it again, or remove the handler with postbox.drop_handler(%s).', h.function, h.id)
        FROM postbox.handler h
        WHERE h.id = handler_problem.id AND NOT EXISTS (
            SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            WHERE p.proargtypes = array_to_string(ARRAY['postbox.event'::regtype::oid], ' ')::oidvector
              AND p.prorettype = 'void'::regtype AND NOT p.proretset AND p.prokind = 'f'
              AND replace(format('%I.%I(postbox.event)', n.nspname, p.proname), '"', '') = replace(h.function, '"', ''))
    $$;
COMMENT ON FUNCTION postbox.handler_problem(bigint) IS 'Why a handler cannot be called, with the repair; NULL if it can';

CREATE VIEW postbox.inbox_problem AS
    SELECT p.inbox, 'projection' AS kind, p.id, p.event_types || p.delete_types AS event_types, w.problem
    FROM postbox.projection p, LATERAL (SELECT postbox.projection_problem(p.id) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT h.inbox, 'handler', h.id, h.event_types, w.problem
    FROM postbox.handler h, LATERAL (SELECT postbox.handler_problem(h.id) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT i.relation, 'inbox', NULL, NULL, w.problem
    FROM postbox.inbox i, LATERAL (SELECT postbox.parts_problem(i.relation) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT i.relation, 'inbox', NULL, NULL, w.problem
    FROM postbox.inbox i, LATERAL (SELECT postbox.unlogged_problem(i.relation, i.tombstone) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT p.inbox, 'projection', p.id, p.event_types || p.delete_types, w.problem
    FROM postbox.projection p, LATERAL (SELECT postbox.unlogged_problem(p.target) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT p.inbox, 'field', p.id, m.event_types,
        format('field "%s", which column %I of %s takes, was in none of the last 100 events of type %s.', m.field, m.column_name, p.target,
               array_to_string(m.event_types, ', '))
            || coalesce(' The events have a field "' || m.similar_field || '".', '')
            || format(' If the name is wrong, remove the projection with postbox.drop_projection(%s) and create it again with the right one in columns.', p.id)
    FROM postbox.missing_field m JOIN postbox.projection p ON p.id = m.projection;
COMMENT ON VIEW postbox.inbox_problem IS
    'Projections and handlers that are broken, whose events are not applied until they are repaired or dropped; inboxes that are, to which nothing is '
    'applied; inboxes whose tables a crash would empty, so that events take effect again; projections whose targets a crash would empty; and, of kind '
    'field, fields that no event has';

SELECT pg_catalog.pg_extension_config_dump('postbox.projection', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.projection_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler_id_seq', '');
REVOKE ALL ON postbox.projection, postbox.handler FROM PUBLIC;
GRANT SELECT ON postbox.projection, postbox.handler, postbox.inbox_problem TO PUBLIC;
