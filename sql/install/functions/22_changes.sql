-- Emitting the changes of a table: a trigger for each kind of change, since a trigger with transition tables may have one kind only,
-- and one that refuses TRUNCATE, which would remove rows without an event.

CREATE OR REPLACE FUNCTION postbox.emit_changes() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.emit_changes() IS
$$The trigger function behind `create_change_triggers`: emits an event for each row that a statement inserted, updated or deleted. Create triggers yourself only to emit
  one kind of change.

Such a trigger is AFTER, FOR EACH STATEMENT, with transition tables: NEW TABLE for INSERT, OLD TABLE for DELETE, both for UPDATE. A trigger BEFORE TRUNCATE that calls
  the function refuses TRUNCATE. The arguments of the trigger are aggregate type, key, outbox with its schema, columns, and event prefix, with the meaning that they have
  in `create_change_triggers`. The last three may be left out or empty. Key and columns are a name or an array such as `{a,b}`.

Rights: INSERT on the outbox, for the role that changes the table.
Errors: 22004 if a column of a key is NULL; 22023 if a key is empty or the trigger has wrong arguments; 0A000 for TRUNCATE; 39P01 if the trigger has no transition
  tables or is of another kind; 42P01 or 42703 if the outbox or a column was renamed or dropped; 42501 without INSERT on the outbox, or if `postbox.mute_changes` is on
  and a role involved does not own the table; 55000 if `postbox.mute_changes` was set in an earlier transaction; otherwise those of `outbox_emit`.
Since: 0.2.0
Example: CREATE TRIGGER only_new AFTER INSERT ON catalog.playlist REFERENCING NEW TABLE AS new_rows
  FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('playlist', 'playlist_id', 'catalog.outbox');$$;

-- Checked when the triggers are created, so that a mistake does not fail the next statement that changes the table.
CREATE OR REPLACE FUNCTION postbox.change_arguments(
    relation regclass, aggregate_type text, key text[], outbox regclass, columns text[], event_prefix text)
    RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    missing text;
BEGIN
    IF key IS NULL THEN
        RAISE invalid_parameter_value USING
            MESSAGE = format('table %s has no primary key', relation),
            DETAIL = 'The key of a row is the aggregate id of its events.',
            HINT = 'Name the columns of the key with the parameter key.';
    END IF;
    IF cardinality(key) = 0 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'key may not be empty',
            HINT = 'Name the columns of the key, or leave the parameter out to take those of the primary key.';
    END IF;
    IF aggregate_type = '' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'aggregate_type may not be empty',
            HINT = 'Leave the parameter out to take the name of the table.';
    END IF;
    SELECT n.name INTO missing FROM unnest(key || columns) AS n(name)
    WHERE NOT EXISTS (SELECT FROM pg_attribute a WHERE a.attrelid = relation AND a.attnum > 0 AND NOT a.attisdropped AND a.attname = n.name) LIMIT 1;
    IF FOUND THEN
        RAISE undefined_column USING
            MESSAGE = format('column %s of relation %s does not exist', coalesce(quote_ident(missing), 'NULL'), relation),
            HINT = 'The parameters key and columns name columns of the table.';
    END IF;
    IF outbox IS NOT NULL THEN
        PERFORM postbox.require_outbox(outbox);
    END IF;
    -- The outbox is a text and not the OID, so that a dump can be restored.
    RETURN (SELECT format('%L, %L, %L, %L, %L', coalesce(aggregate_type, c.relname), key,
                          coalesce((SELECT format('%I.%I', n.nspname, o.relname) FROM pg_class o JOIN pg_namespace n ON n.oid = o.relnamespace WHERE o.oid = outbox), ''),
                          coalesce(columns::text, ''), coalesce(event_prefix, ''))
            FROM pg_class c WHERE c.oid = relation);
END
$$;
COMMENT ON FUNCTION postbox.change_arguments(regclass, text, text[], regclass, text[], text) IS
    'Internal: the trigger arguments with which postbox.create_change_triggers calls postbox.emit_changes; raises an error if they are invalid.';

CREATE OR REPLACE FUNCTION postbox.create_change_triggers(
    relation regclass, aggregate_type text DEFAULT NULL, key text[] DEFAULT NULL, outbox regclass DEFAULT NULL,
    columns text[] DEFAULT NULL, event_prefix text DEFAULT NULL)
    RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    primary_key text[];
    arguments text;
    kind record;
BEGIN
    IF relation IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'relation may not be null',
            HINT = 'Name the table whose changes are to be emitted.';
    END IF;
    IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid = relation AND t.tgname IN ('postbox_created', 'postbox_updated', 'postbox_deleted', 'postbox_truncated')) THEN
        RAISE duplicate_object USING
            MESSAGE = format('table %s has change triggers already', relation),
            HINT = 'Drop them with postbox.drop_change_triggers first.';
    END IF;
    SELECT array_agg(a.attname::text ORDER BY k.place) INTO primary_key
    FROM pg_index i CROSS JOIN LATERAL unnest(i.indkey) WITH ORDINALITY AS k(number, place)
    JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = k.number
    WHERE i.indrelid = relation AND i.indisprimary AND k.place <= i.indnkeyatts;
    arguments := postbox.change_arguments(relation, aggregate_type, coalesce(key, primary_key), outbox, columns, event_prefix);
    FOR kind IN
        SELECT * FROM (VALUES ('created', 'INSERT', 'NEW TABLE AS new_rows'),
                              ('updated', 'UPDATE', 'OLD TABLE AS old_rows NEW TABLE AS new_rows'),
                              ('deleted', 'DELETE', 'OLD TABLE AS old_rows')) AS k(name, event, tables)
    LOOP
        EXECUTE format('CREATE TRIGGER postbox_%s AFTER %s ON %s REFERENCING %s FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes(%s)',
                       kind.name, kind.event, relation, kind.tables, arguments);
    END LOOP;
    EXECUTE format('CREATE TRIGGER postbox_truncated BEFORE TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes(%s)', relation, arguments);
END
$$;
COMMENT ON FUNCTION postbox.create_change_triggers(regclass, text, text[], regclass, text[], text) IS
$$Creates triggers that emit an event for each row that is inserted, updated or deleted in a table, with the row as JSON, and that refuse TRUNCATE. An UPDATE that leaves
  the payload as it is emits nothing. The triggers are named `postbox_created`, `postbox_updated`, `postbox_deleted` and `postbox_truncated`. They run once for each
  statement.

relation: the table.
aggregate_type: the aggregate type of the events. NULL takes the name of the table.
key: the columns whose values are the aggregate id. NULL takes those of the primary key. The values of several columns are joined as `a:b`; a `:` or `\` in a value
  gets a `\` before it.
outbox: the outbox. NULL takes, at each change, the one that `outbox_emit` takes when none is named.
columns: the columns of the payload. NULL takes all.
event_prefix: the event types are `<event_prefix>.created`, `<event_prefix>.updated` and `<event_prefix>.deleted`. NULL takes the aggregate type.

Rights: ownership of the table, or TRIGGER on it. Roles that change the table need INSERT on the outbox.
Errors: 22004 if relation is NULL; 42710 if the table has change triggers; 22023 if there is no key, or key or aggregate_type is empty; 42703 if a column does not
  exist; 42809 if outbox is not an outbox; 42501 without the right on the table.
Since: 0.2.0
Example: SELECT postbox.create_change_triggers('catalog.playlist', 'playlist', outbox => 'catalog.outbox', columns => ARRAY['playlist_id', 'title']);$$;

CREATE OR REPLACE FUNCTION postbox.drop_change_triggers(relation regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    dropped boolean := false;
    found_trigger name;
BEGIN
    FOR found_trigger IN
        SELECT t.tgname FROM pg_trigger t
        WHERE t.tgrelid = relation AND t.tgfoid = 'postbox.emit_changes()'::regprocedure
          AND t.tgname IN ('postbox_created', 'postbox_updated', 'postbox_deleted', 'postbox_truncated')
    LOOP
        EXECUTE format('DROP TRIGGER %I ON %s', found_trigger, relation);
        dropped := true;
    END LOOP;
    IF NOT dropped THEN
        RAISE undefined_object USING
            MESSAGE = format('table %s has no change triggers', coalesce(relation::text, 'NULL')),
            HINT = 'Change triggers are created by postbox.create_change_triggers.';
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.drop_change_triggers(regclass) IS
$$Drops the triggers that `create_change_triggers` created on a table.

relation: the table.

Rights: ownership of the table.
Errors: 42704 if the table has no change triggers; 42501 if the caller does not own it.
Since: 0.2.0
Example: SELECT postbox.drop_change_triggers('catalog.playlist');$$;
