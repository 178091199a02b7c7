-- Sessions cache outboxes and workers cache publications. This trigger invalidates both caches when a change of the
-- tables commits, whatever made it: a function, a trigger or a restore. It fires for each row, because every DROP of any object
-- runs a DELETE here, which most often finds no row. Like all triggers of Postbox's own tables it fires whatever
-- session_replication_role is: otherwise a worker would miss a new publication.
CREATE OR REPLACE FUNCTION postbox.configuration_changed() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.configuration_changed() IS 'Internal: trigger that makes sessions and workers read the configuration again.';

CREATE OR REPLACE FUNCTION postbox.create_outbox(name text, kind text DEFAULT 'log', retention interval DEFAULT '7 days')
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_outbox(text, text, interval) IS
$$Creates an outbox: the event table, its indexes and its version counter, and for a `log` the table of parked events. Returns the event table.

name: the table, with or without its schema; without one it is created in the current schema. The name has at most 50 bytes, because further tables and indexes are
  named after it.
kind: `log` is append-only: publishing writes no row of it. `table` keeps the state of each event in its row. Use `table` where the rows themselves must say what is
  published. `adopt_outbox` makes an existing table an outbox of kind `table`.
retention: how long published events are kept. A `log` is emptied by partitions: it keeps events for up to a quarter of the retention longer, or up to 1 minute if
  that is more. NULL keeps them forever. Events that a publication has not read are kept; so are all events of a `log` that has no publication.

Rights: CREATE on the schema. The caller becomes the owner.
Errors: 22004 if the name or the kind is NULL; 22023 if the kind is unknown or the retention is not positive; 3F000 if the schema does not exist; 42P07 if a relation
  of that name, or of a name made from it, exists; 42622 if the name is too long; 42P16 if the schema is temporary; 42501 without CREATE on the schema.
Since: 0.2.0
Example: SELECT postbox.create_outbox('catalog.outbox');$$;

CREATE OR REPLACE FUNCTION postbox.alter_outbox(outbox regclass, retention interval) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_outbox(regclass, interval) IS
$$Changes how long the published events of an outbox are kept. What a publication has not read is kept in any case. An outbox is not paused itself: its publications are, with
  `pause_publication`.

A shorter retention takes effect with the next purge; a `log` still keeps events for up to a quarter of its longest retention longer. A longer retention gives a `log` longer
  generations: its table is locked (ACCESS EXCLUSIVE) until the transaction ends, and nothing is purged before the new retention has passed.

outbox: the outbox.
retention: how long published events are kept. NULL keeps them forever.

Rights: ownership of the outbox.
Errors: 22004 if the outbox is NULL; 22023 if the retention is not positive; 42809 if the relation is not an outbox; 42501 if the caller does not own it.
Since: 0.2.0
Example: SELECT postbox.alter_outbox('catalog.outbox', retention => '30 days');$$;

CREATE OR REPLACE FUNCTION postbox.adopt_outbox(relation regclass, columns jsonb DEFAULT '{}', retention interval DEFAULT NULL)
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.adopt_outbox(regclass, jsonb, interval) IS
$$Makes an existing table an outbox of kind `table`. Returns the table. Its writers go on with plain INSERTs, and `outbox_emit` can be used beside them.

Adds the columns that are missing, indexes, a version counter, and triggers. The table is locked (ACCESS EXCLUSIVE) until the transaction ends. A row counts as
  published if the table already has a column `published_at` and it is not NULL in the row.

relation: an ordinary, permanent table that neither inherits from a table nor is inherited from. Its name has at most 53 bytes.
columns: a JSON object that maps the standard name of a column to its name in the table, for example `{"aggregate_id": "entity_id"}`. The keys are `id`,
  `aggregate_type`, `aggregate_id`, `event_type`, `version`, `schema_version`, `payload`, `attributes` and `occurred_at`. A column that is not named here is found by its
  standard name or a common alias: `event_id`, `aggregatetype`, `aggregateid`, `type`, `created_at`.
retention: how long published events are kept. NULL keeps them forever.

Rights: ownership of the table, and CREATE on its schema.
Errors: 42P01 if the table does not exist; 42710 if it is an outbox already; 42809 if it is not an ordinary table; 42P16 if it is temporary or UNLOGGED, if a column
  that every event has may be NULL, if the column for `id` has no unique index, or if it has a column `seq` that is not a suitable identity column; 42703 if a column is
  missing; 42804 if a column has another type than an event needs; 22023 if columns is not a JSON object of names, or the retention is not positive; 42622 if the name is
  too long; 42501 if the caller does not own the table.
Since: 0.2.0
Example: SELECT postbox.adopt_outbox('app.changes', '{"aggregate_id": "entity_id", "payload": "body"}');$$;

CREATE OR REPLACE FUNCTION postbox.event_inserted() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.event_inserted() IS 'Internal: trigger of adopted tables that wakes the publisher workers when the transaction commits.';

CREATE OR REPLACE FUNCTION postbox.drop_outbox(outbox regclass) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_outbox(regclass) IS
$$Drops an outbox with its events, its version counter, its parked events and its publications. An adopted table and its columns stay; only what Postbox created beside
  the columns is dropped.

outbox: the outbox. It is locked (ACCESS EXCLUSIVE) until the transaction ends.

Rights: ownership of the outbox.
Errors: 42809 if the relation is not an outbox; 55000 if its version counter or the sequence of `seq` was dropped (`repair_outbox` restores them); 2BP01 if other
  objects depend on its tables; 42501 if the caller does not own it.
Since: 0.2.0
Example: SELECT postbox.drop_outbox('catalog.outbox');$$;

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
COMMENT ON FUNCTION postbox.require_outbox(regclass) IS 'Internal: the registration of an outbox; raises an error if the relation is not an outbox.';

-- Names have at most 63 bytes. A name may be taken by another table, or by a detached partition.
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
COMMENT ON FUNCTION postbox.free_name(name, text, text) IS
    'Internal: a name that no relation of the schema has, made of base and suffix, and a number if needed; the base is cut to fit into 63 bytes.';

-- The further tables of outboxes and inboxes, found by OID. When an owner drops one, its OID stays in the registration, and a dump
-- has it. Another role's table may have this OID later. So a table counts only if it has the columns of such a table and is
-- not registered otherwise. Indexes and the sequence of a column go with their table.
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
        ), found(relation, part, kind) AS (
            SELECT own.relation, own.part, own.kind FROM own JOIN pg_class c ON c.oid = own.part
            WHERE c.relkind = CASE own.kind WHEN 'table of tombstones' THEN 'p' ELSE 'r' END
              AND own.columns <@ ARRAY(SELECT a.attname FROM pg_attribute a WHERE a.attrelid = c.oid AND a.attnum > 0 AND NOT a.attisdropped)
              AND NOT EXISTS (SELECT FROM postbox.outbox o WHERE c.oid IN (o.relation, o.counter, o.parked) AND o.relation <> ALL (relations))
              AND NOT EXISTS (SELECT FROM postbox.inbox i WHERE c.oid IN (i.relation, i.tombstone) AND i.relation <> ALL (relations))
        ), partition(relation, part) AS (
            SELECT r.relation, h.inhrelid
            FROM (SELECT o.relation, o.relation::oid AS parent FROM postbox.outbox o WHERE o.relation = ANY (relations)
                  UNION ALL SELECT i.relation, i.relation FROM postbox.inbox i WHERE i.relation = ANY (relations)
                  UNION ALL SELECT f.relation, f.part FROM found f) r
            JOIN pg_inherits h ON h.inhparent = r.parent
            UNION SELECT p.relation, h.inhrelid FROM partition p JOIN pg_inherits h ON h.inhparent = p.part
        )
        SELECT f.relation, f.part, f.kind FROM found f
        UNION ALL
        SELECT p.relation, p.part, 'partition' FROM partition p;
END
$$;
COMMENT ON FUNCTION postbox.parts_of(oid[]) IS
    'Internal: the tables that belong to the outboxes and inboxes among these relations: version counters, tables of parked events, partitions and tables of tombstones.';

CREATE OR REPLACE FUNCTION postbox.problem_text(problem postbox.problem) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT concat_ws('; ', problem.detail, problem.remedy) WHERE problem.detail IS NOT NULL
$$;
COMMENT ON FUNCTION postbox.problem_text(postbox.problem) IS 'Internal: a problem and its remedy as one text for display; NULL if there is no problem.';

-- A part may have been dropped, or have another owner than the outbox: event triggers were disabled, or its owner was changed.
-- Catalogs may be large, so the plans are kept and use indexes.
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
        -- A part that has lost a column counts as present if the owner of the outbox owns it.
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
        WHERE i.relation = parts_problem.relation AND NOT EXISTS (SELECT FROM part p WHERE p.kind = 'table of tombstones')
          AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = i.tombstone AND c.relkind = 'p' AND c.relowner = t.relowner)
        UNION ALL
        SELECT 1, 'part_dropped', i.relation, format('%s has no partition for generation %s', r.relation, g.generation),
               format('attach it again if it was detached; else run SELECT * FROM postbox.repair_inbox(%L, dry_run => false)', i.relation)
        FROM postbox.inbox i
        CROSS JOIN LATERAL (SELECT i.relation UNION ALL SELECT p.part FROM part p WHERE p.kind = 'table of tombstones') AS r(relation)
        CROSS JOIN generate_series(0, 2) AS g(generation)
        WHERE i.relation = parts_problem.relation
          AND NOT EXISTS (SELECT FROM postbox.generation_partitions(r.relation) p WHERE p.generation = g.generation)
        UNION ALL
        SELECT 1, 'part_dropped', i.relation, format('partition %s of %s is not an ordinary table', c.oid::regclass, r.relation),
               format('replace it by an ordinary table; if its ids may be lost, drop it and run SELECT * FROM postbox.repair_inbox(%L, dry_run => false)', i.relation)
        FROM postbox.inbox i
        CROSS JOIN LATERAL (SELECT i.relation UNION ALL SELECT p.part FROM part p WHERE p.kind = 'table of tombstones') AS r(relation)
        CROSS JOIN LATERAL postbox.generation_partitions(r.relation) AS g JOIN pg_class c ON c.oid = g.part AND c.relkind <> 'r'
        WHERE i.relation = parts_problem.relation AND g.generation BETWEEN 0 AND 2
        UNION ALL
        SELECT 2, 'part_of_other_owner', p.relation, format('the %s of %s, %s, belongs to role %I, whose rights the owner of the %s, %I, does not have',
                   p.kind, p.relation, p.part, pg_get_userbyid(c.relowner), k.kind, pg_get_userbyid(o.relowner)),
               format('if this is the right table, run SELECT * FROM postbox.repair_%s(%L, dry_run => false)', k.kind, p.relation)
        FROM part p JOIN pg_class c ON c.oid = p.part JOIN pg_class o ON o.oid = p.relation
        CROSS JOIN LATERAL (SELECT CASE WHEN EXISTS (SELECT FROM postbox.inbox i WHERE i.relation = p.relation) THEN 'inbox' ELSE 'outbox' END AS kind) k
        WHERE NOT pg_has_role(o.relowner, c.relowner, 'USAGE')
    )
    SELECT p.code, 'error', p.subject::text, p.detail, p.remedy INTO found_problem FROM problem p ORDER BY p.rank, p.detail LIMIT 1;
    RETURN CASE WHEN FOUND THEN found_problem END;
END
$$;
COMMENT ON FUNCTION postbox.parts_problem(regclass) IS 'Internal: what is wrong with the tables that belong to an outbox or inbox, and the repair; NULL if nothing is.';

-- Columns of an adopted table may have other names and types. The C++ counterpart is
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
COMMENT ON FUNCTION postbox.outbox_column(postbox.outbox, text, text) IS 'Internal: the SQL expression that reads a column of an outbox, by the standard name of the column.';

-- As LogKey() in extension/shared/outbox_columns.h, on which the index of keys is made.
CREATE OR REPLACE FUNCTION postbox.log_key(alias text) RETURNS text
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('(CASE WHEN %1$sattributes ? ''postbox_key_may_pass''::text THEN ''postbox_event:''::text || %1$sid::text ELSE %1$saggregate_id END)', alias)
$$;
COMMENT ON FUNCTION postbox.log_key(text) IS
    'Internal: the SQL expression for what an event of a log must have in common with others to keep its order among them: its aggregate id, or its id if its key may pass it.';

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
COMMENT ON FUNCTION postbox.purge_events(regclass, int) IS 'Internal: postbox.purge_outbox with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.purge_outbox(outbox regclass, batch int DEFAULT 10000) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.purge_outbox(regclass, int) IS
$$Removes published and discarded events that are older than the retention. Workers call it every `postbox.maintenance_interval`.

In a `table` it deletes rows and returns how many; call it again until it returns less than batch. A `log` is purged by partitions: it empties those whose events are
  past the retention and that every publication has read, creates partitions that are missing, skips partitions that are locked, and returns 0. A `log` without a
  publication is not emptied.

outbox: the outbox. No event is removed if its retention is NULL.
batch: the largest number of rows that one call deletes, at least 1. Not used for a `log`.

Rights: ownership of the outbox, or for a `table` SELECT, UPDATE and DELETE on it.
Errors: 22023 if batch is NULL or below 1; 25000 for a `log` at another isolation level than READ COMMITTED; 42809 if the relation is not an outbox; 42501 without the
  rights.
Since: 0.2.0
Example: SELECT postbox.purge_outbox('catalog.outbox');$$;

-- It adds what is missing and alters what differs. Nothing is removed, but it takes locks.
CREATE OR REPLACE FUNCTION postbox.repair_outbox(outbox regclass, dry_run boolean DEFAULT true)
    RETURNS TABLE (object text, problem text, repair text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.repair_outbox(regclass, boolean) IS
$$Lists what was dropped or altered in the tables of an outbox, and restores it if dry_run is false. Each row has the object, the problem, and the statements that repair
  it. The repair is NULL where no statement restores it.

outbox: the outbox. With dry_run false it is locked (ACCESS EXCLUSIVE) until the transaction ends.
dry_run: true lists the problems and changes nothing. false also runs the repairs.

Rights: ownership of the outbox.
Errors: 42809 if the relation is not an outbox; 25001 with dry_run false at another isolation level than READ COMMITTED; 42501 if the caller does not own it.
Since: 0.2.0
Example: SELECT * FROM postbox.repair_outbox('catalog.outbox', dry_run => false);$$;

CREATE OR REPLACE FUNCTION postbox.register_outbox(relation regclass, retention interval DEFAULT '7 days', counter regclass DEFAULT NULL,
    parked regclass DEFAULT NULL)
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.register_outbox(regclass, interval, regclass, regclass) IS
$$Registers a table that `create_outbox` made and that is not registered now: after DROP EXTENSION postbox CASCADE, or from a dump without the registration. Returns the
  table. Restores what is missing in its tables, as `repair_outbox` does, with a NOTICE for each repair. The table is locked (ACCESS EXCLUSIVE) until the transaction
  ends.

relation: the event table.
retention: how long published events are kept; see `create_outbox`. The partitions of a `log` keep the span that their table was created with.
counter: the version counter. NULL takes the table named `<table>_version`; if there is none, it is created from the events.
parked: the table of parked events, of a `log` only. NULL takes the table named `<table>_parked`; if there is none, an empty one is created, with a WARNING that its
  events are lost.

Rights: ownership of the table.
Errors: 42P01 if a table does not exist; 42710 if the table belongs to an outbox or inbox; 42809 if it is not a table that `create_outbox` made, or a part of it is not
  an ordinary, logged table; 55006 if the counter or the table of parked events belongs to an outbox or inbox; 42P16 if a problem cannot be repaired, with the problem in
  DETAIL; 42P08 if it is not clear which table is the counter or has the parked events; 22023 if the retention is not positive, or parked is given for a `table`; 25001
  at another isolation level than READ COMMITTED; 42501 if the caller does not own the table, or its parts have another owner.
Since: 0.2.0
Example: SELECT postbox.register_outbox('catalog.outbox', retention => '14 days');$$;
