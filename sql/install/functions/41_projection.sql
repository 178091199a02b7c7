CREATE OR REPLACE FUNCTION postbox.create_projection(inbox regclass, event_types text[], target regclass,
        columns jsonb DEFAULT NULL, key text[] DEFAULT NULL, version_column name DEFAULT 'version',
        delete_types text[] DEFAULT '{}', name text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'create_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_projection(regclass, text[], regclass, jsonb, text[], name, text[], text) IS
$$Keeps a table up to date from events. An event of `event_types` inserts or updates the row of its key if its version is newer than the version of the row; an event of
  `delete_types` deletes the row and keeps its version as a tombstone. Older versions change nothing (`stale`). A field that is absent from the payload leaves its column as
  it is; in a new row the column gets its default.

A write that a trigger, a rule or a policy of the target suppresses is an error of the event. A WARNING names columns of
  type `timestamp` or `date` that take a JSON field without `as`: they cut off the offset of a time.

inbox: the inbox whose events are projected.
event_types: the event types that write the row. May be empty if `delete_types` is not.
target: the table, ordinary or partitioned, not temporary. Several projections may write it if they have the same inbox and key, different event types, and, where one of
  them deletes, the same version column.
columns: a JSON object from column to source. NULL: each column takes the JSON field of its own name. Otherwise only these columns, the key and the version are written. A
  source is a JSON field (`"name"`), a nested field (`{"path": ["author", "name"]}` or `{"path": "author.name"}`), a field in another notation (`{"path": "image", "as":
  "base64"}`; `as` is `base64`, `hex`, `utc`, `epoch_seconds`, `epoch_milliseconds` or `epoch_microseconds`), or a field of the event: `"$event_id"`, `"$event_type"`,
  `"$aggregate_type"`, `"$aggregate_id"`, `"$version"`, `"$payload"`, `"$attributes"`, `"$occurred_at"`.
key: the columns that identify a row; there must be a unique index on exactly these, without WHERE. NULL takes the primary key. Unless `columns` maps it, a single key
  column takes the aggregate id, and each of several key columns the JSON field of its name.
version_column: the column of the version, of type bigint or integer, not part of the key.
delete_types: the event types that delete the row.
name: the name of the projection, 1 to 63 bytes, unique in the database. NULL takes the name of the target with its schema, such as `catalog_read.video_projection`; if
  that is taken, with `_2` behind it, or the next free number.

Rights: ownership of the inbox. The owner of the inbox needs SELECT, INSERT and UPDATE on the target, with `delete_types` also DELETE, and USAGE on its schema.
Errors: 22023 if `columns`, `key` or the event types are invalid, or a NOT NULL column without a default is not mapped; 42809 if the target is not a table, or `inbox` is
  not an inbox; 42P16 if the target is temporary or has no primary key and `key` is NULL; 42P10 if there is no unique index on `key`; 42703 if a column does not exist;
  42804 if the type of a column does not fit; 428C9 if a mapped column is generated; 42710 if the name is taken, or another projection of the target takes one of the event types; 42602 if
  the name is empty or too long; 55000 if a
  projection of the target has another inbox, key or version column.
Since: 0.2.0
Example: SELECT postbox.create_projection('catalog_read.inbox', ARRAY['video.created', 'video.updated'], 'catalog_read.video_projection',
    columns => '{"title": "name"}', delete_types => ARRAY['video.deleted']);$$;

CREATE OR REPLACE FUNCTION postbox.alter_projection(name text, event_types text[] DEFAULT NULL, columns jsonb DEFAULT NULL,
        delete_types text[] DEFAULT NULL, new_name text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'alter_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.alter_projection(text, text[], jsonb, text[], text) IS
$$Changes a projection in place. NULL leaves a property as it is. The target, the key and the version column cannot change.

The change takes effect with COMMIT, for the events that are applied afterwards. The rows of the target stay as they are. An event that was `ignored` because its type was
  not taken is not applied again.

name: the name of the projection.
event_types: the new event types that write the row.
columns: the new sources of the columns, as in `create_projection`. The JSON value `null` lets each column take the JSON field of its own name. With `columns`, a projection
  that is broken because its target lacks a column works again.
delete_types: the new event types that delete the row.
new_name: the new name of the projection, 1 to 63 bytes.

Rights: ownership of the inbox. The owner of the inbox needs the rights on the target that `create_projection` names.
Errors: 42704 if there is no such projection; 42P01 if its target was dropped; 42602 if the new name is empty or too long; 42710 if it is taken, or another projection of the
  target takes one of the event types; those of `create_projection` if `columns` or the event types are invalid.
Since: 0.2.0
Example: SELECT postbox.alter_projection('catalog_read.video_projection', columns => '{"title": "name"}');$$;

CREATE OR REPLACE FUNCTION postbox.pause_projection(name text, reason text, until timestamptz DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'pause_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.pause_projection(text, text, timestamptz) IS
$$Stops a projection until it is resumed, or until a time. To pause a paused projection replaces the reason and the end.

An event that the projection takes is not applied while it is paused, not even by other projections and handlers: `inbox_apply` raises 57PB1. Nothing is recorded, and no
  attempt counts. With `postbox pull` the events wait at Pub/Sub, and the later events of their keys, too; they are tried again every 5 s at the latest. Events of other
  types are applied.

name: the name of the projection.
reason: why, for others; 1 to 500 bytes. Every role can read it.
until: when the projection goes on by itself, by the clock of the database. NULL means that it waits for `resume_projection`.

Rights: ownership of the inbox, or membership in `postbox_operator`.
Errors: 42704 if there is no such projection; 22004 if `name` or `reason` is NULL; 22023 if `reason` is empty or too long, or `until` is not in the future; 42501 without
  the rights.
Since: 0.2.0
Example: SELECT postbox.pause_projection('catalog_read.video_projection', 'index is being built', until => now() + interval '1 hour');$$;

CREATE OR REPLACE FUNCTION postbox.resume_projection(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'resume_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.resume_projection(text) IS
$$Ends the pause of a projection. `postbox pull` goes on with its events within 5 s. Changes nothing if the projection is not paused.

name: the name of the projection.

Rights: ownership of the inbox, or membership in `postbox_operator`.
Errors: 42704 if there is no such projection; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.resume_projection('catalog_read.video_projection');$$;

CREATE OR REPLACE FUNCTION postbox.drop_projection(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_projection' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_projection(text) IS
$$Drops a projection. Its target keeps its rows.

name: the name of the projection.

Rights: ownership of the inbox.
Errors: 42704 if there is no such projection.
Since: 0.2.0
Example: SELECT postbox.drop_projection('catalog_read.video_projection');$$;

CREATE OR REPLACE FUNCTION postbox.create_handler(inbox regclass, event_types text[], function regprocedure,
        name text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'create_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_handler(regclass, text[], regprocedure, text) IS
$$Calls a function once for each event of these types, in the transaction that applies the event, after the projections. Handlers are called in the order in which they were
  created, and also if the projections found the event stale.

The function runs with the rights of the owner of the inbox and with the search_path `pg_catalog`, the schema of the function, `pg_temp`. An error in it is an error of the
  event.

inbox: the inbox.
event_types: the event types.
function: a function with one argument of type `postbox.event` that returns void. Put it into a schema where other roles cannot create objects.
name: the name of the handler, 1 to 63 bytes, unique in the database. NULL takes the name of the function with its schema, such as `catalog_read.add_points`; if that is
  taken, with `_2` behind it, or the next free number.

Rights: ownership of the inbox. The owner of the inbox needs EXECUTE on the function.
Errors: 42P13 if the function has another signature; 42710 if it already handles one of the event types, or the name is taken; 42602 if the name is empty or
  too long; 22023 if there are no event types; 42809 if `inbox` is not an inbox.
Since: 0.2.0
Example: SELECT postbox.create_handler('catalog_read.inbox', ARRAY['USER_REGISTERED'], 'catalog_read.add_points(postbox.event)');$$;

CREATE OR REPLACE FUNCTION postbox.alter_handler(name text, event_types text[] DEFAULT NULL, function regprocedure DEFAULT NULL,
        new_name text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'alter_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.alter_handler(text, text[], regprocedure, text) IS
$$Changes a handler in place. NULL leaves a property as it is. The change takes effect with COMMIT, for the events that are applied afterwards. The handler keeps its place in
  the order of the handlers.

name: the name of the handler.
event_types: the new event types.
function: the new function: one argument of type `postbox.event`, and it returns void.
new_name: the new name of the handler, 1 to 63 bytes.

Rights: ownership of the inbox. The owner of the inbox needs EXECUTE on the function.
Errors: 42704 if there is no such handler; 42P13 if the function has another signature; 42710 if the function already handles one of the event types, or the new name is
  taken; 42602 if the new name is empty or too long; 22023 if there are no event types.
Since: 0.2.0
Example: SELECT postbox.alter_handler('catalog_read.add_points', function => 'catalog_read.add_points_2(postbox.event)');$$;

CREATE OR REPLACE FUNCTION postbox.pause_handler(name text, reason text, until timestamptz DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'pause_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.pause_handler(text, text, timestamptz) IS
$$Stops a handler until it is resumed, or until a time. To pause a paused handler replaces the reason and the end. What happens to the events that the handler takes is as
  with `pause_projection`.

name: the name of the handler.
reason: why, for others; 1 to 500 bytes. Every role can read it.
until: when the handler goes on by itself, by the clock of the database. NULL means that it waits for `resume_handler`.

Rights: ownership of the inbox, or membership in `postbox_operator`.
Errors: 42704 if there is no such handler; 22004 if `name` or `reason` is NULL; 22023 if `reason` is empty or too long, or `until` is not in the future; 42501 without the
  rights.
Since: 0.2.0
Example: SELECT postbox.pause_handler('catalog_read.add_points', 'the points service is down');$$;

CREATE OR REPLACE FUNCTION postbox.resume_handler(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'resume_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.resume_handler(text) IS
$$Ends the pause of a handler. `postbox pull` goes on with its events within 5 s. Changes nothing if the handler is not paused.

name: the name of the handler.

Rights: ownership of the inbox, or membership in `postbox_operator`.
Errors: 42704 if there is no such handler; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.resume_handler('catalog_read.add_points');$$;

CREATE OR REPLACE FUNCTION postbox.drop_handler(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_handler' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_handler(text) IS
$$Drops a handler. Its function stays.

name: the name of the handler.

Rights: ownership of the inbox.
Errors: 42704 if there is no such handler.
Since: 0.2.0
Example: SELECT postbox.drop_handler('catalog_read.add_points');$$;

CREATE OR REPLACE FUNCTION postbox.wait_for_version(target regclass, key text, version bigint,
        timeout interval DEFAULT '5s') RETURNS boolean
    AS 'MODULE_PATHNAME', 'wait_for_version' LANGUAGE C;
COMMENT ON FUNCTION postbox.wait_for_version(regclass, text, bigint, interval) IS
$$Waits until the row of a key in the target of a projection has at least this version, or was deleted at this or a newer version. Returns true then, and false after the
  time-out. With the receipt of `outbox_emit` a client reads its own writes.

It sleeps until a transaction commits that applied an event to the row, or that ran a handler or a trigger. On a standby it looks every 50 ms, and without `shared_preload_libraries` every 20 ms.

target: the target of a projection.
key: the aggregate id, or the value of the single key column. For a key of several columns, a JSON array, such as `["eu", 42]`.
version: the version to wait for.
timeout: how long it waits; 0 looks once.

Rights: SELECT on the target.
Errors: 42809 if the table is not the target of a projection; 25000 if the isolation level is not READ COMMITTED; 22023 if the key or the time-out is invalid; 55000 if the
  projections of the target have different version columns.
Since: 0.2.0
Example: SELECT postbox.wait_for_version('catalog_read.video_projection', 'v_123', 1, timeout => '2s');$$;

CREATE OR REPLACE FUNCTION postbox.forget_missing_fields() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    DELETE FROM postbox.missing_field m WHERE NOT EXISTS (SELECT FROM postbox.projection p WHERE p.id = m.projection);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION postbox.forget_missing_fields() IS 'Internal: trigger that removes the missing fields of dropped projections.';

CREATE OR REPLACE FUNCTION postbox.projection_problem(id bigint) RETURNS postbox.problem
    AS 'MODULE_PATHNAME', 'projection_problem' LANGUAGE C STABLE STRICT;
COMMENT ON FUNCTION postbox.projection_problem(bigint) IS 'Internal: why a projection cannot write its target, with the remedy; NULL if it can, or if the target is locked.';

CREATE OR REPLACE FUNCTION postbox.handler_problem(id bigint) RETURNS postbox.problem
    LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
    -- postbox.handler.function has the form that format() makes here, since create_handler has written it so. Which names
    -- are quoted depends on quote_all_identifiers.
    AS $$
        SELECT 'handler_broken', 'error', format('handler %s', h.name), format('function %s does not exist, or does not return void', h.function),
               format('create it again, or run SELECT postbox.drop_handler(%L)', h.name)
        FROM postbox.handler h
        WHERE h.id = handler_problem.id AND NOT EXISTS (
            SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            WHERE p.proargtypes = array_to_string(ARRAY['postbox.event'::regtype::oid], ' ')::oidvector
              AND p.prorettype = 'void'::regtype AND NOT p.proretset AND p.prokind = 'f'
              AND replace(format('%I.%I(postbox.event)', n.nspname, p.proname), '"', '') = replace(h.function, '"', ''))
    $$;
COMMENT ON FUNCTION postbox.handler_problem(bigint) IS 'Internal: why a handler cannot be called, with the remedy; NULL if it can.';

CREATE OR REPLACE VIEW postbox.inbox_problem AS
    SELECT f.inbox, f.kind, f.name, f.event_types, f.problem, f.remedy FROM (
        SELECT p.inbox, 'projection' AS kind, p.name, p.event_types || p.delete_types AS event_types, w.detail AS problem, w.remedy
        FROM postbox.projection p, LATERAL postbox.projection_problem(p.id) w
        UNION ALL
        SELECT h.inbox, 'handler', h.name, h.event_types, w.detail, w.remedy
        FROM postbox.handler h, LATERAL postbox.handler_problem(h.id) w
        UNION ALL
        SELECT i.relation, 'inbox', NULL, NULL, w.detail, w.remedy
        FROM postbox.inbox i, LATERAL postbox.parts_problem(i.relation) w
        UNION ALL
        SELECT i.relation, 'inbox', NULL, NULL, w.detail, w.remedy
        FROM postbox.inbox i, LATERAL postbox.unlogged_problem(i.relation, i.tombstone) w
        UNION ALL
        SELECT i.relation, 'inbox', NULL, NULL, w.detail, w.remedy
        FROM postbox.inbox i, LATERAL postbox.rotation_problem(i.relation) w
        UNION ALL
        SELECT p.inbox, 'projection', p.name, p.event_types || p.delete_types, w.detail, w.remedy
        FROM postbox.projection p, LATERAL postbox.unlogged_problem(p.target) w
        UNION ALL
        SELECT p.inbox, 'field', p.name, m.event_types,
            format('field "%s", the source of column %I of %s, was in none of the last 100 events of type %s', m.field, m.column_name, p.target,
                   array_to_string(m.event_types, ', '))
                || coalesce('; the events have a field "' || m.similar_field || '"', ''),
            format('if the name is wrong, run SELECT postbox.alter_projection(%L, columns => ...) with the right one', p.name)
        FROM postbox.missing_field m JOIN postbox.projection p ON p.id = m.projection) f
    WHERE f.problem IS NOT NULL;
COMMENT ON VIEW postbox.inbox_problem IS
$$Problems of inboxes, projections and handlers, one row for each: a broken projection or handler, whose events wait until it is repaired or dropped; an inbox whose
  tombstones or a partition are missing or belong to another role, to which nothing is applied; a table of an inbox, or a target, that is UNLOGGED, so that a crash empties
  it; an inbox that keeps event ids for a retention longer than it should, because transactions that are open hold its purge off; and a JSON field that a projection takes
  and that was in none of the last 100 events of a type, for which nothing waits.

A projection is broken if its target was dropped, or has lost its key, its version column or another column that it wrote when its columns were chosen. A handler is
  broken if its function is gone or has another result type. See Troubleshooting.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.inbox_problem.inbox IS 'The inbox.';
COMMENT ON COLUMN postbox.inbox_problem.kind IS
    'What has the problem: `projection`, `handler`, `inbox`, or `field`: a field that a projection takes and that the events do not have.';
COMMENT ON COLUMN postbox.inbox_problem.name IS 'The name of the projection or handler; of a `field`, that of its projection. NULL for an `inbox`.';
COMMENT ON COLUMN postbox.inbox_problem.event_types IS
    'The event types of the projection or handler; of a `field`, the types whose events lack it. NULL for an `inbox`: all types.';
COMMENT ON COLUMN postbox.inbox_problem.problem IS 'What is wrong.';
COMMENT ON COLUMN postbox.inbox_problem.remedy IS 'What to do.';
