-- Inboxes, and the tables that belong to them: extension/registry/inbox.cc.
--
-- Generations. An inbox and its tombstones are partitioned by LIST (generation), in three partitions that are used in turn. postbox.inbox says
-- which generation is current. New rows are written into that one; looked up are all three.
--   - Rule: a rotation makes the next generation current. It locks the inbox and the tombstones against all who write to them, so no transaction
--     that has written into the old one is open: the unique index of one generation is enough to tell that two sessions have the same event.
--   - A session reads which generation is current after it has its lock (extension/apply/inbox_cache.h).
--   - A rotation is due when the current generation is as old as half of the retention, and only into a generation that is empty.
--   - A generation is emptied, by TRUNCATE, when the one after it began more than the retention ago. So a row is kept for the retention at least,
--     and for half of it longer at most, if rotations are not held off. Ids of events that are parked are moved to the current generation first.
--   - One transaction at a time purges an inbox, under a lock that no rotation passes. What is due is read under it: what was due before may be
--     the current generation now.
--   - What cannot be locked within lock_timeout is left for the next purge. postbox.rotation_problem says what has held it off for long.

CREATE OR REPLACE FUNCTION postbox.create_inbox(name text, retention interval DEFAULT '14 days') RETURNS regclass
    AS 'MODULE_PATHNAME', 'create_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_inbox(text, interval) IS
$$Creates an inbox: the table of the event ids that were seen, and the table `<name>_tombstone` of the versions at which keys were deleted. Returns the inbox table.

name: the table, with its schema; at most 45 bytes without the schema.
retention: how long event ids and tombstones are kept at least; at most half of it longer. An event that is delivered again later takes effect again in handlers; a projection still recognizes it by its
  version. Keep ids longer than the Pub/Sub subscription keeps messages.

Rights: CREATE on the schema. The caller becomes the owner. Projections and handlers of the inbox run with the rights of the owner.
Errors: 42P07 if the table exists; 22023 if the retention is not positive; 42622 if the name is too long; 42P16 if the table would be temporary.
Since: 0.2.0
Example: SELECT postbox.create_inbox('catalog_read.inbox');$$;

CREATE OR REPLACE FUNCTION postbox.alter_inbox(inbox regclass, retention interval DEFAULT NULL, park_keys boolean DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'alter_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.alter_inbox(regclass, interval, boolean) IS
$$Changes properties of an inbox. An argument that is NULL changes nothing.

inbox: the inbox table.
retention: how long event ids and tombstones are kept.
park_keys: whether keys of the inbox may be parked (`on_error => 'park_key'`). If so, each transaction that applies events looks for parked keys first, and must be READ
  COMMITTED. A change waits for the transactions that apply events. `create_subscription` with `on_error => 'park_key'` sets it.

Rights: ownership of the inbox.
Errors: 42809 if the table is not an inbox; 22023 if the retention is not positive; 55000 if `park_keys` is false, and keys are parked or a subscription parks keys.
Since: 0.2.0
Example: SELECT postbox.alter_inbox('catalog_read.inbox', park_keys => true);$$;

CREATE OR REPLACE FUNCTION postbox.drop_inbox(inbox regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_inbox(regclass) IS
$$Drops an inbox with its subscriptions, projections, handlers, dead letters, parked keys and tombstones. The targets of projections keep their rows; the functions of handlers and the
  Pub/Sub subscriptions stay.

inbox: the inbox table.

Rights: ownership of the inbox.
Errors: 42809 if the table is not an inbox; 2BP01 if other objects depend on it.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.purge_inbox(inbox regclass) RETURNS int
    AS 'MODULE_PATHNAME', 'purge_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.purge_inbox(regclass) IS
$$Removes event ids and tombstones that are older than the retention of an inbox, a partition at a time. Returns the number of partitions that it emptied. Workers call it
  regularly, see `postbox.maintenance_interval`; call it where no worker runs.

An inbox and its tombstones have three generations, each with a partition. New rows go into the current one for half of the retention; then the next one becomes current.
  A generation is emptied when the one after it began more than the retention ago. Ids of parked events are moved to the current generation before that. What is locked
  is left for the next call: a partition that another session reads, and the current generation while another transaction that has applied events is open. If the
  current generation has changed, nothing is applied to the inbox until the transaction ends. If another transaction is purging the inbox, the call does nothing and
  returns 0.

inbox: the inbox table.

Rights: ownership of the inbox.
Errors: 42809 if the table is not an inbox; 25000 at another isolation level than READ COMMITTED.
Since: 0.2.0
Example: SELECT postbox.purge_inbox('catalog_read.inbox');$$;

CREATE OR REPLACE FUNCTION postbox.lock_for_rotation(tables regclass[]) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '200ms'
AS $$
DECLARE
    one regclass;
BEGIN
    FOREACH one IN ARRAY tables LOOP
        EXECUTE format('LOCK TABLE ONLY %s IN SHARE MODE', one);
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.lock_for_rotation(regclass[]) IS
    'Internal: locks an inbox and its tombstones so that no transaction that has written to the current generation is open; raises 55P03 if that takes long.';

CREATE OR REPLACE FUNCTION postbox.keep_parked(inbox regclass, old int, current int, ids uuid[]) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp SET enable_seqscan = off
    SET lock_timeout = '200ms'
AS $$
DECLARE
    stays boolean;
BEGIN
    EXECUTE format('UPDATE %s SET generation = $3 WHERE generation = $2 AND event_id = ANY ($1) AND outcome = ''parked''', inbox)
        USING ids, old, current;
    -- A trigger or a policy of the owner may have left some of them where they were.
    EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE generation = $2 AND event_id = ANY ($1) AND outcome = ''parked'')', inbox)
        INTO stays USING ids, old;
    IF stays THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = 'the ids of parked events could not be moved: a trigger, a rule or a policy of the table prevents it';
    END IF;
    RETURN true;
EXCEPTION
    WHEN lock_not_available OR deadlock_detected OR serialization_failure THEN
        RETURN false;
    WHEN OTHERS THEN
        RAISE WARNING USING MESSAGE = format('could not empty generation %s of inbox %s', old, inbox), DETAIL = SQLERRM;
        RETURN false;
END
$$;
COMMENT ON FUNCTION postbox.keep_parked(regclass, int, int, uuid[]) IS
    'Internal: moves the ids of parked events from an old generation of an inbox to the current one; false if that is not possible now.';

CREATE OR REPLACE FUNCTION postbox.rotation_problem(inbox regclass) RETURNS postbox.problem
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.inbox;
    tables oid[];
    next_parts oid[];
    problem postbox.problem := ROW('retention', 'warning', inbox, NULL, NULL);
    kept text;
BEGIN
    SELECT i.* INTO registered FROM postbox.inbox i
    WHERE i.relation = rotation_problem.inbox AND now() - i.generation_since > i.retention * 1.5;
    IF NOT FOUND THEN
        RETURN NULL;
    END IF;
    tables := ARRAY[registered.relation, registered.tombstone];
    next_parts := ARRAY(SELECT p.part FROM unnest(tables) AS t(relation) CROSS JOIN LATERAL postbox.generation_partitions(t.relation) p
                        WHERE p.generation = (registered.generation + 1) % 3);
    kept := 'event ids older than the retention are kept: ';
    SELECT kept || format('row security is forced on the owner of %s', c.oid::regclass), format('run ALTER TABLE %s NO FORCE ROW LEVEL SECURITY', c.oid::regclass)
        INTO problem.detail, problem.remedy
    FROM pg_class c WHERE c.oid = ANY (next_parts) AND c.relrowsecurity AND c.relforcerowsecurity
    ORDER BY c.oid::regclass::text LIMIT 1;
    IF FOUND THEN
        RETURN problem;
    END IF;
    SELECT kept || format('%s cannot be emptied, because foreign key %I of %s references it', c.confrelid::regclass, c.conname, c.conrelid::regclass),
           format('run ALTER TABLE %s DROP CONSTRAINT %I', c.conrelid::regclass, c.conname)
        INTO problem.detail, problem.remedy
    FROM pg_constraint c WHERE c.contype = 'f' AND c.confrelid = ANY (tables)
    ORDER BY c.confrelid::regclass::text, c.conname LIMIT 1;
    IF FOUND THEN
        RETURN problem;
    END IF;
    SELECT kept || 'the tables are locked by ' || string_agg(DISTINCT coalesce('process ' || l.pid, 'prepared transaction ' || quote_literal(p.gid), 'a prepared transaction'), ', '),
           CASE WHEN count(l.pid) = 0 THEN 'end it with COMMIT PREPARED or ROLLBACK PREPARED'
                ELSE 'wait until its transaction ends, or end it with pg_terminate_backend' END
        INTO problem.detail, problem.remedy
    FROM pg_locks l
    LEFT JOIN pg_stat_activity a ON a.pid = l.pid
    -- A prepared transaction has no process, and locks its transaction id.
    LEFT JOIN pg_locks x ON l.pid IS NULL AND x.pid IS NULL AND x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_prepared_xacts p ON p.transaction = x.transactionid
    WHERE l.locktype = 'relation' AND l.granted AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND (l.relation = ANY (tables) AND l.mode NOT IN ('AccessShareLock', 'RowShareLock', 'ShareLock') OR l.relation = ANY (next_parts))
      AND l.pid IS DISTINCT FROM pg_backend_pid()
      -- What was locked a moment ago has held nothing off. Not every role may see since when a transaction runs.
      AND (a.xact_start IS NULL OR a.xact_start < now() - interval '10 s')
    HAVING count(*) > 0;
    IF FOUND THEN
        RETURN problem;
    END IF;
    problem.detail := kept || 'it has not been purged for long, or a purge has failed';
    problem.remedy := format('run SELECT postbox.purge_inbox(%L), which workers do every postbox.maintenance_interval, and look at the log of the server', inbox);
    RETURN problem;
END
$$;
COMMENT ON FUNCTION postbox.rotation_problem(regclass) IS
    'Internal: why a generation of an inbox has been current for a whole retention longer than it should be, and what to do; NULL if it has not.';

CREATE OR REPLACE FUNCTION postbox.repair_inbox(inbox regclass, dry_run boolean DEFAULT true)
    RETURNS TABLE (object text, problem text, repair text)
    AS 'MODULE_PATHNAME', 'repair_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.repair_inbox(regclass, boolean) IS
$$Lists what is missing or wrong in the tables of an inbox, one row for each: `object`, `problem`, and `repair`, the statements that repair it, NULL if none can. With
  `dry_run => false` it also runs these statements, under a lock that blocks all use of the inbox until the transaction ends.

If the tombstones were dropped, an event that is older than a delete and arrives late brings the row back.

inbox: the inbox table.
dry_run: whether it only lists problems and changes nothing.

Rights: ownership of the inbox.
Errors: 42809 if the table is not an inbox; 25001 if `dry_run` is false and the isolation level is not READ COMMITTED.
Since: 0.2.0
Example: SELECT * FROM postbox.repair_inbox('catalog_read.inbox');$$;

CREATE OR REPLACE FUNCTION postbox.register_inbox(relation regclass, retention interval DEFAULT '14 days', tombstone regclass DEFAULT NULL)
    RETURNS regclass
    AS 'MODULE_PATHNAME', 'register_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.register_inbox(regclass, interval, regclass) IS
$$Registers a table that `create_inbox` made and that is not an inbox at present: after DROP EXTENSION postbox CASCADE, or from a dump without the registration. Repairs
  missing parts, with a NOTICE for each, and refuses a table that cannot be an inbox. Returns the table. Rows whose `outcome` was dropped with the extension count as
  `applied`.

relation: the table.
retention: how long event ids and tombstones are kept.
tombstone: the table of tombstones. NULL takes the one that is named after the inbox, or creates an empty one. If another table may be that of the inbox, for example after
  a rename, name it.

Rights: ownership of the table; the tombstones must have the same owner.
Errors: 42710 if it is an inbox already; 42809 if it is not a logged table that is partitioned by generation; 42P16 if its columns do not fit; 42P08 if the tombstones must be named; 55006 if a
  table belongs to another outbox or inbox; 22023 if the retention is not positive; 25001 if the isolation level is not READ COMMITTED.
Since: 0.2.0
Example: SELECT postbox.register_inbox('catalog_read.inbox', retention => '14 days');$$;
