-- Projections: tables that are kept up to date from events. Handlers: functions that are called with events.

CREATE TABLE postbox.projection (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    inbox regclass NOT NULL,
    event_types text[] NOT NULL,
    target regclass NOT NULL,
    columns jsonb CHECK (jsonb_typeof(columns) = 'object'),
    key text[] NOT NULL CHECK (cardinality(key) > 0),
    version_column name NOT NULL,
    delete_types text[] NOT NULL DEFAULT '{}',
    dropped_target text,
    aggregate_types text[] NOT NULL DEFAULT '{}',
    writes text[] NOT NULL,
    paused_at timestamptz,
    paused_reason text,
    paused_until timestamptz,
    marks text[]
);
CREATE INDEX projection_inbox ON postbox.projection (inbox);
CREATE INDEX projection_target ON postbox.projection (target);
COMMENT ON TABLE postbox.projection IS
$$The projections of this database, one row for each: tables that are kept up to date from events. Only the functions of projections change it, and the sessions that apply
  events (`aggregate_types`).

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.projection.id IS 'Internal: the id of the projection, which renaming does not change.';
COMMENT ON COLUMN postbox.projection.name IS 'The name of the projection.';
COMMENT ON COLUMN postbox.projection.inbox IS 'The inbox whose events are projected.';
COMMENT ON COLUMN postbox.projection.event_types IS 'The event types that insert or update the row.';
COMMENT ON COLUMN postbox.projection.target IS 'The table that is kept up to date; 0 if it was dropped.';
COMMENT ON COLUMN postbox.projection.columns IS 'The sources of the columns, as given to `create_projection` or `alter_projection`. NULL: each column takes the JSON field of its name.';
COMMENT ON COLUMN postbox.projection.key IS 'The columns that identify a row. The target has a unique index on them.';
COMMENT ON COLUMN postbox.projection.version_column IS 'The column with the version of the last event. An older event changes nothing.';
COMMENT ON COLUMN postbox.projection.delete_types IS 'The event types that delete the row.';
COMMENT ON COLUMN postbox.projection.dropped_target IS
    'The name of the target if it was dropped. Then the projection is broken, and events of its types are not applied. NULL if the target exists.';
COMMENT ON COLUMN postbox.projection.aggregate_types IS
    'The first two aggregate types of the events that were applied. If a target has events of several types, an event that looks stale fails, because versions of two '
    'aggregates cannot be compared.';
COMMENT ON COLUMN postbox.projection.writes IS 'The columns that the projection wrote when it was created, or when its `columns` were changed. If the target lacks one of them, the projection is broken.';
COMMENT ON COLUMN postbox.projection.paused_at IS 'When the projection was paused. NULL if it was not, or was resumed.';
COMMENT ON COLUMN postbox.projection.paused_reason IS 'Why it was paused.';
COMMENT ON COLUMN postbox.projection.paused_until IS
    'Until when the projection is paused: `infinity` means until it is resumed. It is not paused if this is NULL or has passed.';
COMMENT ON COLUMN postbox.projection.marks IS
    'Internal: of a projection whose target is the shadow of a rebuild: what its events mark in column `postbox_set`. NULL for every other projection.';

CREATE TABLE postbox.handler (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name text NOT NULL UNIQUE,
    inbox regclass NOT NULL,
    event_types text[] NOT NULL,
    function text NOT NULL,
    paused_at timestamptz,
    paused_reason text,
    paused_until timestamptz
);
CREATE INDEX handler_inbox ON postbox.handler (inbox);
COMMENT ON TABLE postbox.handler IS
$$The handlers of this database, one row for each: functions that are called with events, in the order of `id`. Only the functions of handlers change it.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.handler.id IS 'Internal: the id of the handler, which renaming does not change. Handlers are called in its order.';
COMMENT ON COLUMN postbox.handler.name IS 'The name of the handler.';
COMMENT ON COLUMN postbox.handler.inbox IS 'The inbox whose events are handled.';
COMMENT ON COLUMN postbox.handler.event_types IS 'The event types with which the function is called.';
COMMENT ON COLUMN postbox.handler.function IS 'The signature of the function, with its schema. It is text because pg_upgrade does not support columns of type regprocedure.';
COMMENT ON COLUMN postbox.handler.paused_at IS 'When the handler was paused. NULL if it was not, or was resumed.';
COMMENT ON COLUMN postbox.handler.paused_reason IS 'Why it was paused.';
COMMENT ON COLUMN postbox.handler.paused_until IS
    'Until when the handler is paused: `infinity` means until it is resumed. It is not paused if this is NULL or has passed.';

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
    'Internal: JSON fields that a projection takes and that were in none of the last 100 events of these types, for postbox.inbox_problem.';
COMMENT ON COLUMN postbox.missing_field.projection IS 'The id of the projection.';
COMMENT ON COLUMN postbox.missing_field.column_name IS 'The column of the target that takes the field.';
COMMENT ON COLUMN postbox.missing_field.field IS 'The path of the field in the payload.';
COMMENT ON COLUMN postbox.missing_field.event_types IS 'The event types whose events lack the field.';
COMMENT ON COLUMN postbox.missing_field.similar_field IS 'A field of the events whose name differs in case, hyphens and underscores only. NULL if there is none.';
COMMENT ON COLUMN postbox.missing_field.noticed_at IS 'When it was noticed.';
REVOKE ALL ON postbox.missing_field FROM PUBLIC;
GRANT SELECT ON postbox.missing_field TO PUBLIC;

SELECT pg_catalog.pg_extension_config_dump('postbox.projection', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.projection_id_seq', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler', '');
SELECT pg_catalog.pg_extension_config_dump('postbox.handler_id_seq', '');
REVOKE ALL ON postbox.projection, postbox.handler FROM PUBLIC;
GRANT SELECT ON postbox.projection, postbox.handler TO PUBLIC;
