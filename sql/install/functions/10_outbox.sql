-- Sessions cache outboxes and workers cache publications. This trigger invalidates both caches when a change of the
-- tables commits, whatever made it: a function, a trigger or a restore. It is for each row, since a statement that finds no
-- row changes nothing: every DROP of any object looks here for what it has to forget. Like all triggers of Postbox's own tables it
-- fires whatever session_replication_role is: a worker that does not hear of a publication would publish nothing.
CREATE OR REPLACE FUNCTION postbox.configuration_changed() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.configuration_changed() IS 'Trigger: tells sessions and workers that the configuration has changed';

CREATE OR REPLACE FUNCTION postbox.create_outbox(name text, kind text DEFAULT 'log', retention interval DEFAULT '7 days')
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_outbox(text, text, interval) IS
    'Creates an outbox: event table, indexes and version counter. The caller needs CREATE on the schema and becomes the owner';

CREATE OR REPLACE FUNCTION postbox.adopt_outbox(relation regclass, columns jsonb DEFAULT '{}', retention interval DEFAULT NULL)
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.adopt_outbox(regclass, jsonb, interval) IS
    'Turns an existing table into an outbox of kind table. Finds its columns by name, common alias or `columns` and adds '
    'those that are missing. For the owner of the table';

CREATE OR REPLACE FUNCTION postbox.event_inserted() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.event_inserted() IS 'Trigger of adopted tables: wakes the publishers when the transaction commits';

CREATE OR REPLACE FUNCTION postbox.drop_outbox(outbox regclass) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_outbox(regclass) IS
    'Drops an outbox with its events, version counter and publications. An adopted table itself is kept. For the owner of '
    'the outbox';

-- The registration of an outbox, for the functions below. Errors: null_value_not_allowed for NULL, undefined_table for
-- a table that was dropped, wrong_object_type for any other relation.
CREATE OR REPLACE FUNCTION postbox.require_outbox(outbox regclass) RETURNS postbox.outbox
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    found_outbox postbox.outbox;
BEGIN
    IF outbox IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'outbox may not be null',
            HINT = 'Name an outbox that postbox.create_outbox made.';
    END IF;
    SELECT * INTO found_outbox FROM postbox.outbox o WHERE o.relation = outbox;
    IF NOT FOUND THEN
        IF NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = outbox) THEN
            RAISE undefined_table USING
                MESSAGE = format('outbox with OID %s does not exist', outbox::oid),
                DETAIL = 'Its table has been dropped.',
                HINT = 'Create it with postbox.create_outbox.';
        END IF;
        RAISE wrong_object_type USING
            MESSAGE = format('"%s" is not an outbox', outbox),
            HINT = 'Create an outbox with postbox.create_outbox. The outboxes of this database are listed in postbox.outbox.';
    END IF;
    RETURN found_outbox;
END
$$;
COMMENT ON FUNCTION postbox.require_outbox(regclass) IS 'The registration of an outbox; an error if the relation is not an outbox';

-- Names are no longer than 63 bytes. A name may be that of another table, or of a partition that was detached.
CREATE OR REPLACE FUNCTION postbox.free_name(schema name, base text, suffix text) RETURNS name
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    head text;
    tail text := suffix;
BEGIN
    FOR n IN 1..1000 LOOP
        head := left(base, 63);
        WHILE head <> '' AND octet_length(head || tail) > 63 LOOP
            head := left(head, -1);
        END LOOP;
        EXIT WHEN to_regclass(format('%I.%I', schema, head || tail)) IS NULL AND to_regtype(format('%I.%I', schema, head || tail)) IS NULL;
        tail := suffix || '_' || n;
    END LOOP;
    RETURN head || tail;
END
$$;
COMMENT ON FUNCTION postbox.free_name(name, text, text) IS 'A name that no table has: base and suffix, with a number if that is taken; of base as much as there is room for';

-- What belongs to outboxes and inboxes beside their own table, by its OID. An owner who drops one of these leaves its OID behind in
-- the registration, and a restore takes that over. Another's table may have it by then: so only what has the columns of such
-- a table counts, and is not registered for anything else. Indexes and the sequence of a column go with their table.
CREATE OR REPLACE FUNCTION postbox.parts_of(relations oid[]) RETURNS TABLE (relation regclass, part regclass, kind text)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY
        WITH RECURSIVE own(relation, part, kind, columns) AS (
            SELECT o.relation, o.counter, 'version counter', '{aggregate_type,aggregate_id,version}'::name[]
            FROM postbox.outbox o WHERE o.relation = ANY (relations)
            UNION ALL
            SELECT o.relation, o.parked, 'table of parked events', '{publication,seq,aggregate_id,publish_attempts,next_retry_at,last_error}'
            FROM postbox.outbox o WHERE o.relation = ANY (relations)
            UNION ALL
            SELECT i.relation, i.tombstone, 'table of tombstones', '{target,key,version,deleted_at}'
            FROM postbox.inbox i WHERE i.relation = ANY (relations)
        ), partition(relation, part) AS (
            SELECT o.relation, h.inhrelid FROM postbox.outbox o JOIN pg_inherits h ON h.inhparent = o.relation WHERE o.relation = ANY (relations)
            UNION SELECT p.relation, h.inhrelid FROM partition p JOIN pg_inherits h ON h.inhparent = p.part
        )
        SELECT own.relation, own.part, own.kind FROM own JOIN pg_class c ON c.oid = own.part
        WHERE c.relkind = 'r'
          AND own.columns <@ ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
          AND NOT EXISTS (SELECT FROM postbox.outbox o WHERE c.oid IN (o.relation, o.counter, o.parked) AND o.relation <> ALL (relations))
          AND NOT EXISTS (SELECT FROM postbox.inbox i WHERE c.oid IN (i.relation, i.tombstone) AND i.relation <> ALL (relations))
        UNION ALL
        SELECT p.relation, p.part, 'partition' FROM partition p;
END
$$;
COMMENT ON FUNCTION postbox.parts_of(oid[]) IS 'The tables that belong to the outboxes and inboxes among these relations: version counters, tables of parked events, partitions, tombstones';

-- A part may have been dropped, or have another owner than the outbox: event triggers were disabled, or it was given away.
-- Catalogs may be large: so it keeps its plans, which go through indexes.
CREATE OR REPLACE FUNCTION postbox.problem_text(problem postbox.problem) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws('; ', problem.detail, problem.remedy) WHERE problem.detail IS NOT NULL
$$;
COMMENT ON FUNCTION postbox.problem_text(postbox.problem) IS 'A problem and its remedy in one text, for people; NULL if there is none';

CREATE OR REPLACE FUNCTION postbox.parts_problem(relation regclass) RETURNS postbox.problem
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    found_problem postbox.problem;
BEGIN
    WITH part AS (
        SELECT p.* FROM postbox.parts_of(ARRAY[parts_problem.relation::oid]) p
    ), problem(rank, code, subject, detail, remedy) AS (
        -- One that has lost a column is still there if it is the owner's.
        SELECT 1, 'part_dropped', o.relation, format('the %s of %s was dropped', k.kind, o.relation),
               format('run SELECT * FROM postbox.repair_outbox(%L, dry_run => false)', o.relation)
        FROM postbox.outbox o JOIN pg_class t ON t.oid = o.relation
        CROSS JOIN LATERAL (VALUES ('version counter', o.counter), ('table of parked events', o.parked)) AS k(kind, part)
        WHERE o.relation = parts_problem.relation AND (k.kind = 'version counter' OR o.kind = 'log')
          AND NOT EXISTS (SELECT FROM part p WHERE p.kind = k.kind)
          AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = k.part AND c.relkind = 'r' AND c.relowner = t.relowner)
        UNION ALL
        SELECT 1, 'part_dropped', i.relation, format('the table of tombstones of %s was dropped', i.relation),
               format('run SELECT * FROM postbox.repair_inbox(%L, dry_run => false)', i.relation)
        FROM postbox.inbox i JOIN pg_class t ON t.oid = i.relation
        WHERE i.relation = parts_problem.relation AND NOT EXISTS (SELECT FROM part p)
          AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = i.tombstone AND c.relkind = 'r' AND c.relowner = t.relowner)
        UNION ALL
        SELECT 2, 'part_of_other_owner', p.relation, format('the %s of %s, %s, belongs to role %I, whose rights the owner of the %s, %I, does not have',
                   p.kind, p.relation, p.part, pg_get_userbyid(c.relowner), k.kind, pg_get_userbyid(o.relowner)),
               format('if the table is what it is taken for, run SELECT * FROM postbox.repair_%s(%L, dry_run => false)', k.kind, p.relation)
        FROM part p JOIN pg_class c ON c.oid = p.part JOIN pg_class o ON o.oid = p.relation
        CROSS JOIN LATERAL (SELECT CASE WHEN p.kind = 'table of tombstones' THEN 'inbox' ELSE 'outbox' END AS kind) k
        WHERE NOT pg_has_role(o.relowner, c.relowner, 'USAGE')
    )
    SELECT p.code, 'error', p.subject::text, p.detail, p.remedy INTO found_problem FROM problem p ORDER BY p.rank, p.detail LIMIT 1;
    RETURN CASE WHEN FOUND THEN found_problem END;
END
$$;
COMMENT ON FUNCTION postbox.parts_problem(regclass) IS 'What is wrong with the tables that belong to an outbox or inbox, and the repair; NULL if nothing is';

-- Columns of an adopted table have names and types of their own. The C++ counterpart is
-- extension/shared/outbox_columns.h.
CREATE OR REPLACE FUNCTION postbox.outbox_column(registered postbox.outbox, standard text, alias text DEFAULT '') RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT alias || CASE
        WHEN standard = 'id' THEN quote_ident(name)
        WHEN standard <> 'occurred_at' THEN quote_ident(name) || '::text'
        WHEN a.atttypid = 'timestamp'::regtype THEN quote_ident(name) || ' AT TIME ZONE ''UTC'''
        ELSE quote_ident(name)
    END
    FROM (SELECT coalesce((registered).columns ->> standard, standard)) AS c(name)
    LEFT JOIN pg_attribute a ON a.attrelid = (registered).relation AND a.attname = name AND NOT a.attisdropped
$$;
COMMENT ON FUNCTION postbox.outbox_column(postbox.outbox, text, text) IS 'The SQL expression that reads a column of an outbox, by the standard name of the column';

CREATE OR REPLACE FUNCTION postbox.purge_events(outbox regclass, batch int) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    keep interval := registered.retention;
    purged bigint;
BEGIN
    IF batch IS NULL OR batch < 1 THEN
        RAISE invalid_parameter_value USING
            MESSAGE = 'batch must be at least 1',
            HINT = 'It is the largest number of events that one call deletes.';
    END IF;
    IF registered.kind = 'log' THEN
        PERFORM postbox.purge_log_outbox(outbox);
        RETURN 0;
    END IF;
    IF keep IS NULL THEN
        RETURN 0;
    END IF;
    -- A discarded event (published_at = -infinity) stays visible for the retention, counted from when it occurred.
    EXECUTE format($sql$
        DELETE FROM %1$s WHERE ctid = ANY (ARRAY(
            SELECT ctid FROM %1$s
            WHERE published_at < $1 AND (published_at <> '-infinity' OR %2$s < $1)
            ORDER BY published_at LIMIT $2 FOR UPDATE SKIP LOCKED))
        $sql$, outbox, postbox.outbox_column(registered, 'occurred_at')) USING now() - keep, batch;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$$;
COMMENT ON FUNCTION postbox.purge_events(regclass, int) IS 'postbox.purge_outbox with the rights of the current user';

CREATE OR REPLACE FUNCTION postbox.purge_outbox(outbox regclass, batch int DEFAULT 10000) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.purge_outbox(regclass, int) IS
    'Deletes up to `batch` published or discarded events that are older than the retention, and returns how many. Needs '
    'DELETE on the outbox. In a log outbox, empties whole partitions instead, which only the owner may do, and returns 0. '
    'Workers call it regularly';

-- Destructive only in that it takes locks: it adds what is missing, and changes what is not as it has to be.
CREATE OR REPLACE FUNCTION postbox.repair_outbox(outbox regclass, dry_run boolean DEFAULT true)
    RETURNS TABLE (object text, problem text, repair text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.repair_outbox(regclass, boolean) IS
    'What is missing or wrong of the tables of an outbox, and the statements that repair it; NULL where none does. They are run if dry_run is '
    'false. For the owner of the outbox';

CREATE OR REPLACE FUNCTION postbox.register_outbox(relation regclass, retention interval DEFAULT '7 days', counter regclass DEFAULT NULL,
    parked regclass DEFAULT NULL)
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.register_outbox(regclass, interval, regclass, regclass) IS
    'Registers a table that create_outbox has made: after DROP EXTENSION, or from a dump without the registration. Its version counter and its '
    'table of parked events are found by their names or named. Puts back what is missing. For the owner of the table';
