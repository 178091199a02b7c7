-- Backfills: events for the rows that a table has already. The rows are read and emitted in C++ (extension/emit/backfill_chunk.cc). The functions
-- here run as the caller, and what they may see and change of postbox.backfill are the rows of the caller's roles: policies in triggers.sql.

-- What change triggers say of the events of their table. If several triggers call emit_changes, the one of UPDATE counts.
CREATE OR REPLACE FUNCTION postbox.change_mapping(
    relation regclass, OUT aggregate_type text, OUT key text[], OUT outbox regclass, OUT columns text[], OUT event_prefix text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    rest bytea;
    place int;
    arguments text[] := '{}';
BEGIN
    SELECT t.tgargs INTO rest FROM pg_trigger t
    WHERE t.tgrelid = relation AND t.tgfoid = 'postbox.emit_changes()'::regprocedure AND t.tgnargs >= 2
    ORDER BY (t.tgtype::int & 16) DESC, (t.tgtype::int & 4) DESC, t.tgname LIMIT 1;
    WHILE length(rest) > 0 LOOP
        place := position('\x00'::bytea IN rest);
        arguments := arguments || convert_from(substr(rest, 1, place - 1), getdatabaseencoding());
        rest := substr(rest, place + 1);
    END LOOP;
    aggregate_type := arguments[1];
    key := CASE WHEN left(arguments[2], 1) = '{' THEN arguments[2]::text[] ELSE ARRAY[arguments[2]] END;
    outbox := to_regclass(nullif(arguments[3], ''));
    columns := CASE WHEN left(arguments[4], 1) = '{' THEN arguments[4]::text[] WHEN arguments[4] <> '' THEN ARRAY[arguments[4]] END;
    event_prefix := nullif(arguments[5], '');
    IF aggregate_type IS NULL THEN
        key := NULL;
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.change_mapping(regclass) IS
    'Internal: the arguments of the change triggers of a table; NULLs if it has none.';

CREATE OR REPLACE FUNCTION postbox.key_range(relation regclass, OUT columns text[], OUT types text[], OUT first text[], OUT last text[])
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.key_range(regclass) IS
    'Internal: the columns of the primary key of a table, their types, and its first and last value as texts, read with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.check_backfill(name text, relation regclass, outbox regclass, payload regprocedure) RETURNS void
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kind "char";
    reltype oid;
BEGIN
    IF coalesce(name, '') = '' OR octet_length(name) > 200 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'the name of a backfill must have 1 to 200 bytes',
            HINT = 'The name is an attribute of each event of the backfill.';
    END IF;
    IF relation IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'relation may not be null',
            HINT = 'Name the table whose rows are to be emitted.';
    END IF;
    SELECT c.relkind, c.reltype INTO kind, reltype FROM pg_class c WHERE c.oid = relation;
    IF kind IS NULL THEN
        RAISE undefined_table USING MESSAGE = format('relation with OID %s does not exist', relation::oid);
    ELSIF kind NOT IN ('r', 'p') THEN
        RAISE wrong_object_type USING
            MESSAGE = format('"%s" is not a table', relation),
            DETAIL = 'A backfill locks the rows that it emits.',
            HINT = 'To emit what a view or a query returns, backfill the table whose rows are the aggregates, with a function as payload that reads the rest.';
    END IF;
    IF outbox IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'outbox may not be null',
            DETAIL = format('Table %s has no change triggers that name an outbox.', relation),
            HINT = 'Name the outbox with the parameter outbox.';
    END IF;
    PERFORM postbox.require_outbox(outbox);
    IF NOT has_table_privilege(relation, 'SELECT') AND NOT has_any_column_privilege(relation, 'SELECT')
       OR NOT has_any_column_privilege(relation, 'UPDATE') OR NOT has_any_column_privilege(outbox, 'INSERT') THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('permission denied to backfill %s from table %s', outbox, relation),
            DETAIL = 'A backfill reads and locks the rows of the table, and inserts into the outbox, with the rights of the role that creates it.',
            HINT = format('Grant role %I SELECT and UPDATE on the table and INSERT on the outbox, or create the backfill as another role.', current_user);
    END IF;
    IF row_security_active(relation) THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('row-level security of table %s applies to role %I', relation, current_user),
            DETAIL = 'A backfill would leave out the rows that the policies hide.',
            HINT = 'Create the backfill as the owner of the table, or as a role with BYPASSRLS.';
    END IF;
    IF payload IS NOT NULL AND NOT EXISTS (
        SELECT FROM pg_proc p WHERE p.oid = payload AND p.prokind = 'f' AND NOT p.proretset AND p.pronargs = 1 AND p.proargtypes[0] = reltype
          AND p.prorettype IN ('json'::regtype, 'jsonb'::regtype, 'bytea'::regtype, 'text'::regtype)) THEN
        RAISE invalid_function_definition USING
            MESSAGE = format('function %s cannot make the payloads of table %s', payload, relation),
            DETAIL = format('It must have one parameter of type %s, and return json, jsonb, bytea, or text that is JSON.', relation);
    END IF;
    IF NOT has_function_privilege(payload, 'EXECUTE') THEN
        RAISE insufficient_privilege USING MESSAGE = format('permission denied for function %s', payload);
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.check_backfill(text, regclass, regclass, regprocedure) IS
    'Internal: raises an error if the current user cannot create such a backfill.';

CREATE OR REPLACE FUNCTION postbox.create_backfill(
    name text, relation regclass, aggregate_type text DEFAULT NULL, key text[] DEFAULT NULL, outbox regclass DEFAULT NULL,
    columns text[] DEFAULT NULL, event_type text DEFAULT NULL, payload regprocedure DEFAULT NULL)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    mapping record;
    span record;
    busy text;
BEGIN
    SELECT * INTO mapping FROM postbox.change_mapping(relation);
    outbox := coalesce(outbox, mapping.outbox);
    PERFORM postbox.check_backfill(name, relation, outbox, payload);
    IF payload IS NOT NULL AND columns IS NOT NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'columns and payload are mutually exclusive',
            DETAIL = 'The function gets the whole row.',
            HINT = 'Omit one of them.';
    END IF;
    SELECT * INTO span FROM postbox.key_range(relation);
    PERFORM postbox.change_arguments(relation, aggregate_type, coalesce(key, mapping.key, span.columns), outbox, columns, NULL);
    IF event_type = '' THEN
        RAISE invalid_parameter_value USING MESSAGE = 'event_type may not be empty';
    END IF;
    -- Rows of other roles cannot be seen: then the unique index below refuses the second one.
    SELECT b.name INTO busy FROM postbox.backfill b
    WHERE b.outbox = create_backfill.outbox AND b.relation = create_backfill.relation AND b.state = 'active';
    IF FOUND THEN
        RAISE object_in_use USING
            MESSAGE = format('table %s has backfill "%s" into that outbox already', relation, busy),
            HINT = 'Run it to its end, or cancel it with postbox.cancel_backfill.';
    END IF;
    INSERT INTO postbox.backfill (name, outbox, relation, aggregate_type, event_type, key, columns, payload, page_key, page_types, first_key, last_key, rows_estimated)
    VALUES (name, outbox, relation,
            coalesce(aggregate_type, mapping.aggregate_type, (SELECT c.relname FROM pg_class c WHERE c.oid = relation)),
            coalesce(event_type, coalesce(mapping.event_prefix, aggregate_type, mapping.aggregate_type, (SELECT c.relname FROM pg_class c WHERE c.oid = relation)) || '.updated'),
            coalesce(key, mapping.key, span.columns),
            CASE WHEN payload IS NULL THEN coalesce(columns, mapping.columns) END, payload::text, span.columns, span.types, span.first, span.last,
            (SELECT CASE WHEN bool_and(c.reltuples >= 0) THEN sum(c.reltuples) END FROM pg_class c
             WHERE c.relkind = 'r' AND (c.oid = relation OR c.oid IN (SELECT t.relid FROM pg_partition_tree(relation) t))));
EXCEPTION
    WHEN unique_violation THEN
        RAISE duplicate_object USING
            MESSAGE = format('backfill "%s" exists, or another role has a backfill of table %s into that outbox', name, relation),
            HINT = 'Choose another name, or drop the backfill that has ended with postbox.drop_backfill. An operator sees all of them in postbox.backfill_status.';
END
$$;
COMMENT ON FUNCTION postbox.create_backfill(text, regclass, text, text[], regclass, text[], text, regprocedure) IS
$$Creates a backfill: events for the rows that a table has already. `run_backfill` emits them. The last primary key of the table is the bound of the backfill: rows that are
  inserted behind it later are not emitted.

Where a parameter is NULL and the table has change triggers, theirs counts: then an event is as the one that the trigger emits when the row is updated. Each event has the
  attribute `postbox_snapshot`, with the name of the backfill.

name: the name of the backfill, 1 to 200 bytes.
relation: the table: a plain or a partitioned one, with a primary key.
aggregate_type: the aggregate type of the events. NULL takes that of the change triggers, or the name of the table.
key: the columns whose values are the aggregate id, as in `create_change_triggers`. NULL takes those of the change triggers, or of the primary key.
outbox: the outbox. NULL takes that of the change triggers.
columns: the columns of the payload. NULL takes those of the change triggers, or all.
event_type: the type of the events. NULL takes the one that the change triggers emit for an UPDATE, or `<aggregate_type>.updated`.
payload: a function that makes the payload of a row, instead of columns. Its parameter is a row of the table; it returns json, jsonb, bytea, or text that is JSON, and never
  NULL. It runs as the role that creates the backfill, with `search_path` set to `pg_catalog, pg_temp` unless it has a SET clause. It is called by its name: put it into a
  schema where other roles cannot create objects.

Rights: SELECT and UPDATE on the table, INSERT on the outbox, EXECUTE on the function. Row-level security of the table must not apply to the caller. The backfill emits with
  the rights of the role that creates it.
Errors: 22023 if the table has no primary key, or an argument is invalid; 22004 if relation or outbox is NULL; 42703 if a column does not exist; 42809 if relation is not a
  table or outbox is not an outbox; 55000 above isolation level READ COMMITTED; 42P13 if the function does not fit; 42710 if there is a backfill of that name; 55006 if the table has a backfill into that outbox that
  has not ended; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.create_backfill('playlists-2026', 'catalog.playlist', 'playlist', outbox => 'catalog.outbox');$$;

CREATE OR REPLACE FUNCTION postbox.emit_backfill_chunk(backfill text, most_rows int, max_time interval, max_lag interval, OUT outcome text, OUT row_count int)
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.emit_backfill_chunk(text, int, interval, interval) IS
    'Internal: emits the next rows of a backfill in the transaction of the caller: emitted with the number of rows, done, paused, cancelled, or lagging.';

CREATE OR REPLACE PROCEDURE postbox.run_backfill(backfill text, max_chunk_time interval DEFAULT '200ms', max_lag interval DEFAULT '1s')
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON PROCEDURE postbox.run_backfill(text, interval, interval) IS
$$Emits the events of a backfill, from where it is to its end. It commits after each chunk of rows. If it is cancelled or the server crashes, what is committed stays: call it
  again. It ends when the backfill is done or cancelled, and waits while it is paused.

The rows of a chunk are locked (FOR SHARE) until it commits. If another transaction holds one of them for half a second, the chunk is rolled back and tried again with fewer
  rows.

backfill: the name of the backfill.
max_chunk_time: how long a chunk may take. The number of its rows follows: 1 to 5000.
max_lag: while the oldest event of a publication of the outbox has waited for longer than this, nothing is emitted. NULL: there is no limit.

Rights: those of the role that created the backfill, or membership in postbox_operator. The rows are read and emitted with the rights of that role.
Errors: 2D000 inside a transaction block or a function; 42704 if there is no such backfill; 55006 if another session runs a backfill of the table into that outbox;
  55000 if the primary key of the table has changed; 42P01, 42703 or 42883 if the table, a column or the function was dropped; 42P13 if the function no longer
  fits; 22004 if a key or a payload is NULL; 22023 if a time is not positive; 42501 without the rights; otherwise those of `outbox_emit`. The error is also in `postbox.backfill_status`.
Since: 0.2.0
Example: CALL postbox.run_backfill('playlists-2026', max_lag => '5s');$$;

CREATE OR REPLACE FUNCTION postbox.set_backfill_state(name text, allowed text[], state text, reason text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_state text;
BEGIN
    UPDATE postbox.backfill b SET state = set_backfill_state.state, reason = set_backfill_state.reason, ended_at = clock_timestamp()
    WHERE b.name = set_backfill_state.name AND b.state = ANY (allowed);
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT b.state INTO found_state FROM postbox.backfill b WHERE b.name = set_backfill_state.name;
    IF NOT FOUND THEN
        RAISE undefined_object USING
            MESSAGE = format('backfill "%s" does not exist, or belongs to another role', name),
            HINT = 'postbox.backfill_status lists the backfills of the roles of the current user, and all of them for an operator.';
    END IF;
    RAISE object_not_in_prerequisite_state USING
        MESSAGE = format('backfill "%s" is %s', name, found_state),
        DETAIL = format('It must be %s.', array_to_string(allowed, ' or '));
END
$$;
COMMENT ON FUNCTION postbox.set_backfill_state(text, text[], text, text) IS 'Internal: sets the state of a backfill that is in one of these states.';

CREATE OR REPLACE FUNCTION postbox.pause_backfill(name text, reason text, until timestamptz DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'pause_backfill' LANGUAGE C;
COMMENT ON FUNCTION postbox.pause_backfill(text, text, timestamptz) IS
$$Pauses a backfill until it is resumed, or until a time. A session that runs it finishes its chunk and waits, without locks and without a snapshot. To pause a paused
  backfill replaces the reason and the end.

name: the name of the backfill.
reason: why, for others; 1 to 500 bytes. Roles that see the backfill can read it.
until: when the backfill goes on by itself. NULL means that it waits for `resume_backfill`.

Rights: those of the role that created the backfill, or membership in postbox_operator.
Errors: 42704 if there is no such backfill, or it belongs to another role; 22004 if `name` or `reason` is NULL; 22023 if `reason` is empty or too long, or `until` is not in
  the future; 55000 if it has ended.
Since: 0.2.0
Example: SELECT postbox.pause_backfill('playlists-2026', 'the consumers are being deployed', until => now() + interval '2 hours');$$;

CREATE OR REPLACE FUNCTION postbox.resume_backfill(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'resume_backfill' LANGUAGE C;
COMMENT ON FUNCTION postbox.resume_backfill(text) IS
$$Ends the pause of a backfill. A session that runs it continues; if none does, call `run_backfill`. Changes nothing if the backfill is not paused.

name: the name of the backfill.

Rights: those of the role that created the backfill, or membership in postbox_operator.
Errors: 42704 if there is no such backfill, or it belongs to another role; 55000 if it has ended.
Since: 0.2.0
Example: SELECT postbox.resume_backfill('playlists-2026');$$;

CREATE OR REPLACE FUNCTION postbox.cancel_backfill(name text, reason text DEFAULT NULL) RETURNS void
    LANGUAGE sql
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT postbox.set_backfill_state(name, '{active}', 'cancelled', reason)
$$;
COMMENT ON FUNCTION postbox.cancel_backfill(text, text) IS
$$Ends a backfill for good. The session that runs it returns. Events that were emitted stay; the record of the backfill stays until `drop_backfill`.

name: the name of the backfill.
reason: why, for `backfill_status`.

Rights: those of the role that created the backfill, or membership in postbox_operator.
Errors: 42704 if there is no such backfill, or it belongs to another role; 55000 if it has ended.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.drop_backfill(name text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    DELETE FROM postbox.backfill b WHERE b.name = drop_backfill.name AND b.state IN ('done', 'cancelled');
    IF NOT FOUND THEN
        -- Says what is wrong.
        PERFORM postbox.set_backfill_state(name, '{done,cancelled}', 'cancelled', NULL);
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.drop_backfill(text) IS
$$Removes the record of a backfill that is done or cancelled.

name: the name of the backfill.

Rights: those of the role that created the backfill, or membership in postbox_operator.
Errors: 42704 if there is no such backfill, or it belongs to another role; 55000 if it has not ended.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.list_backfill_status()
    RETURNS TABLE (backfill text, outbox regclass, relation regclass, owner regrole, state text, reason text, row_count bigint, rows_estimated bigint,
                   rows_per_second float8, time_left_estimated interval, first_key text[], last_key text[], chunk_after text[], chunk_upto text[],
                   chunk_rows int, chunk_time interval, pid int, paused_at timestamptz, paused_until timestamptz, started_at timestamptz, updated_at timestamptz,
                   ended_at timestamptz, last_error text, last_error_at timestamptz)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT b.name, b.outbox, b.relation, b.owner, s.state,
        CASE s.state WHEN 'paused' THEN b.paused_reason WHEN 'waiting' THEN b.waits_for WHEN 'stopped' THEN 'no session runs it: CALL postbox.run_backfill' ELSE b.reason END,
        b.row_count, b.rows_estimated, round(b.rate::numeric, 1)::float8,
        CASE WHEN s.state IN ('running', 'waiting') AND b.rate > 0 AND b.rows_estimated >= b.row_count
             THEN date_trunc('second', (b.rows_estimated - b.row_count) / b.rate * interval '1 second') END,
        b.first_key, b.last_key, b.chunk_after, b.position, b.chunk_rows, b.chunk_time, l.pid,
        CASE s.state WHEN 'paused' THEN b.paused_at END, CASE s.state WHEN 'paused' THEN b.paused_until END, b.started_at, b.updated_at, b.ended_at,
        b.last_error, b.last_error_at
    FROM postbox.backfill b
    LEFT JOIN pg_locks l ON l.locktype = 'object' AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
        AND l.classid = b.outbox::oid AND l.objid = b.relation::oid AND l.mode = 'ExclusiveLock' AND l.granted AND b.state = 'active'
    CROSS JOIN LATERAL (SELECT CASE WHEN b.state <> 'active' THEN b.state WHEN b.paused_until > clock_timestamp() THEN 'paused' WHEN l.pid IS NULL THEN 'stopped'
                                    WHEN b.waits_for IS NOT NULL THEN 'waiting' ELSE 'running' END) AS s(state)
    ORDER BY b.name
$$;
COMMENT ON FUNCTION postbox.list_backfill_status() IS 'Internal: the rows of postbox.backfill_status.';

CREATE OR REPLACE VIEW postbox.backfill_status AS SELECT * FROM postbox.list_backfill_status();
COMMENT ON VIEW postbox.backfill_status IS
$$One row for each backfill: its state and its progress.

Rights: SELECT, which PUBLIC has. A role sees the backfills of its roles; members of `postbox_operator` and `pg_monitor` see all.$$;
COMMENT ON COLUMN postbox.backfill_status.backfill IS 'The name of the backfill';
COMMENT ON COLUMN postbox.backfill_status.outbox IS 'The outbox into which it emits';
COMMENT ON COLUMN postbox.backfill_status.relation IS 'The table whose rows it emits';
COMMENT ON COLUMN postbox.backfill_status.owner IS 'The role with whose rights it emits';
COMMENT ON COLUMN postbox.backfill_status.state IS
    'running; waiting: a session runs it, and waits for what reason says; stopped: no session runs it; paused; done; cancelled. See Troubleshooting';
COMMENT ON COLUMN postbox.backfill_status.reason IS 'What it waits for, what to do, or why it was paused or cancelled';
COMMENT ON COLUMN postbox.backfill_status.row_count IS 'How many rows it has emitted';
COMMENT ON COLUMN postbox.backfill_status.rows_estimated IS
    'How many rows the table had when the backfill was created. An estimate from its statistics; NULL if it had none';
COMMENT ON COLUMN postbox.backfill_status.rows_per_second IS 'Rows per second, the average of the last chunks with the waits between them';
COMMENT ON COLUMN postbox.backfill_status.time_left_estimated IS
    'How long it takes to emit the rest at this rate. An estimate like rows_estimated; NULL if there is none, or if no session runs it';
COMMENT ON COLUMN postbox.backfill_status.first_key IS 'The first primary key of the table when the backfill was created';
COMMENT ON COLUMN postbox.backfill_status.last_key IS 'The last primary key of the table when the backfill was created: its bound';
COMMENT ON COLUMN postbox.backfill_status.chunk_after IS 'The key behind which the last chunk began; NULL: before the first row';
COMMENT ON COLUMN postbox.backfill_status.chunk_upto IS 'The key up to which all rows are emitted: the end of the last chunk; NULL: none is';
COMMENT ON COLUMN postbox.backfill_status.chunk_rows IS 'How many rows the last chunk had';
COMMENT ON COLUMN postbox.backfill_status.chunk_time IS 'How long the last chunk took';
COMMENT ON COLUMN postbox.backfill_status.pid IS 'The process of the session that runs it; NULL if none does';
COMMENT ON COLUMN postbox.backfill_status.paused_at IS 'Since when it has been paused; NULL if it is not';
COMMENT ON COLUMN postbox.backfill_status.paused_until IS 'Until when it is paused: `infinity` means until it is resumed; NULL if it is not paused';
COMMENT ON COLUMN postbox.backfill_status.started_at IS 'When it was first run';
COMMENT ON COLUMN postbox.backfill_status.updated_at IS 'When its last chunk was emitted';
COMMENT ON COLUMN postbox.backfill_status.ended_at IS 'When it was done or cancelled';
COMMENT ON COLUMN postbox.backfill_status.last_error IS 'The error with which the last run ended; NULL if a chunk was emitted after it';
COMMENT ON COLUMN postbox.backfill_status.last_error_at IS 'When the last error happened; NULL if there was none';
