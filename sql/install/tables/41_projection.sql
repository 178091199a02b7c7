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
    writes text[] NOT NULL
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

SELECT pg_catalog.pg_extension_config_dump('postbox.projection', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.projection_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler_id_seq', '');
REVOKE ALL ON postbox.projection, postbox.handler FROM PUBLIC;
GRANT SELECT ON postbox.projection, postbox.handler TO PUBLIC;
