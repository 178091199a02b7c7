-- Emitting what changes in a table: a trigger for each kind of change, since PostgreSQL gives a trigger with transition tables
-- one kind only, and one that refuses TRUNCATE, which would remove rows without an event.

CREATE OR REPLACE FUNCTION postbox.emit_changes() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.emit_changes() IS
    'Trigger, after a statement, with transition tables: emits an event for each row that was inserted, updated or deleted. Arguments: aggregate type, '
    'key, outbox, columns, event prefix. Needs INSERT on the outbox';

-- Checked here, so that a mistake is found now and not by the next statement that writes the table.
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
            HINT = 'Name the columns of the key, or leave it out for those of the primary key.';
    END IF;
    IF aggregate_type = '' THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'aggregate_type may not be empty',
            HINT = 'Leave it out for the name of the table.';
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
    'The arguments of postbox.emit_changes in the triggers that postbox.create_change_triggers makes; an error if they cannot be right';

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
    'Creates the triggers that emit an event for each row that is inserted, updated or deleted in a table, and refuse TRUNCATE. For the owner of the '
    'table, and others with the right TRIGGER on it';

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
            HINT = 'They are made by postbox.create_change_triggers.';
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.drop_change_triggers(regclass) IS 'Drops the triggers that postbox.create_change_triggers has made. For the owner of the table';
