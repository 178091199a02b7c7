-- Projections (a table kept up to date from events) and handlers (a function called with the event).

CREATE TABLE postbox.projection (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_types text[] NOT NULL,
    target regclass NOT NULL,
    columns jsonb CHECK (jsonb_typeof(columns) = 'object'),
    key text[] NOT NULL CHECK (cardinality(key) > 0),
    version_column name NOT NULL,
    delete_types text[] NOT NULL DEFAULT '{}'
);
CREATE INDEX projection_inbox ON postbox.projection (inbox);
CREATE INDEX projection_target ON postbox.projection (target);
COMMENT ON TABLE postbox.projection IS 'tables kept up to date from events; written by postbox.create_projection and postbox.drop_projection';
COMMENT ON COLUMN postbox.projection.event_types IS 'the types of the events that are written to the target';
COMMENT ON COLUMN postbox.projection.columns IS 'target column -> where its value comes from; NULL: the JSON field of the column''s name';
COMMENT ON COLUMN postbox.projection.key IS 'the columns that identify a row; they have a unique index';
COMMENT ON COLUMN postbox.projection.version_column IS 'holds the version of the last event; an older one changes nothing';
COMMENT ON COLUMN postbox.projection.delete_types IS 'the types of the events that delete the row';

CREATE TABLE postbox.handler (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    inbox regclass NOT NULL,
    event_types text[] NOT NULL,
    function text NOT NULL
);
CREATE INDEX handler_inbox ON postbox.handler (inbox);
COMMENT ON TABLE postbox.handler IS 'functions called with events; written by postbox.create_handler and postbox.drop_handler';
COMMENT ON COLUMN postbox.handler.function IS 'signature, as text so that pg_upgrade can carry it over';

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE OR TRUNCATE ON postbox.handler
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();

CREATE FUNCTION postbox.create_projection(inbox regclass, event_types text[], target regclass,
        columns jsonb DEFAULT NULL, key text[] DEFAULT NULL, version_column name DEFAULT 'version',
        delete_types text[] DEFAULT '{}') RETURNS void
    AS 'MODULE_PATHNAME', 'create_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_projection(regclass, text[], regclass, jsonb, text[], name, text[]) IS
    'keeps the target up to date from events of those types: newer versions overwrite, older ones change nothing, delete_types delete';

CREATE FUNCTION postbox.drop_projection(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_projection(bigint) IS 'stops a projection; its target stays as it is';

CREATE FUNCTION postbox.create_handler(inbox regclass, event_types text[], function regprocedure) RETURNS void
    AS 'MODULE_PATHNAME', 'create_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_handler(regclass, text[], regprocedure) IS
    'calls function(postbox.event), with the rights of the inbox''s owner, once for each event of those types';

CREATE FUNCTION postbox.drop_handler(id bigint) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_handler(bigint) IS 'stops calling a handler; the function stays';

CREATE FUNCTION postbox.wait_for_version(target regclass, key text, version bigint,
        timeout interval DEFAULT '5s') RETURNS boolean
    AS 'MODULE_PATHNAME', 'wait_for_version' LANGUAGE C;
COMMENT ON FUNCTION postbox.wait_for_version(regclass, text, bigint, interval) IS
    'waits until a projection has that version of the key, or a newer one, or has deleted it; false after the timeout';

SELECT pg_catalog.pg_extension_config_dump('postbox.projection', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.projection_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler_id_seq', '');
REVOKE ALL ON postbox.projection, postbox.handler FROM PUBLIC;
GRANT SELECT ON postbox.projection, postbox.handler TO PUBLIC;
