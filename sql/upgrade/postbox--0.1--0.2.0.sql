\echo Use "ALTER EXTENSION postbox UPDATE TO '0.2.0'" to load this file. \quit
-- 0.1 to 0.2.0: publications are "suspended" until "retry_at" and say since when; a lane's hash is a function.
--
-- Sessions and pullers may go on meanwhile. Workers that run the library of 0.2.0 publish nothing in this database until
-- the update has committed. The script waits 3 s at most for transactions that use postbox.publication, postbox.outbox or postbox.lane, have changed the
-- configuration, record dead letters or are the first of their session to use an inbox, since workers and appliers wait behind
-- it, and fails then; it can be run again. It keeps every registration, position and right, and every table of an outbox or
-- inbox, but these:
--   - A log gets the column origin and an index on (origin, seq). Its emitters wait while the index is built.
--   - Tables of events get the trigger postbox_replicated. Their emitters wait until the update has committed.
--   - postbox.publication_status gets other columns, so it is dropped and created. The update fails if something depends on
--     it. Rights on the view are those of a new installation afterwards: SELECT for PUBLIC.
--   - inbox_apply and inbox_apply_batch get the argument on_error, so they are dropped and created. The update fails if
--     something depends on them. Rights on them are those of a new installation afterwards: EXECUTE for PUBLIC.
--   - A publication that is suspended now is shown as suspended since the update.
--   - postbox.create_subscription gets three arguments, so it is dropped and created: grant EXECUTE on it again. Rights that
--     were granted here would be taken for those of the extension, and be missing in a dump.

SET LOCAL lock_timeout = '3s';

-- The schema postbox belongs to Postbox alone. Who owns it, may create in it, or owns an object in it could put functions
-- beside those of Postbox that a superuser's statement would call.
SET LOCAL search_path = pg_catalog, pg_temp;

-- What indexes are on is compared as text.
SET LOCAL quote_all_identifiers = off;

DO $$
DECLARE
    problem text;
BEGIN
    SELECT coalesce(
        (SELECT format('Its owner %I is not a superuser.', r.rolname)
         FROM pg_roles r WHERE r.oid = n.nspowner AND NOT r.rolsuper),
        (SELECT format('%s may create objects in it.', string_agg(coalesce(quote_ident(r.rolname), 'PUBLIC'), ', ' ORDER BY r.rolname))
         FROM aclexplode(n.nspacl) a LEFT JOIN pg_roles r ON r.oid = a.grantee
         WHERE a.privilege_type = 'CREATE' AND a.grantee <> n.nspowner AND r.rolsuper IS NOT TRUE HAVING count(*) > 0),
        (SELECT format('It contains %s, which no superuser owns.', string_agg(o.name, ', ' ORDER BY o.name))
         FROM (SELECT pg_describe_object(d.classid, d.objid, d.objsubid)
               FROM pg_depend d
               JOIN pg_shdepend s ON s.classid = d.classid AND s.objid = d.objid AND s.objsubid = d.objsubid AND s.deptype = 'o'
                AND s.dbid = (SELECT b.oid FROM pg_database b WHERE b.datname = current_database())
               JOIN pg_roles r ON s.refclassid = 'pg_authid'::regclass AND r.oid = s.refobjid AND NOT r.rolsuper
               WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = n.oid
               LIMIT 10) AS o(name) HAVING count(*) > 0))
    INTO problem FROM pg_namespace n WHERE n.nspname = 'postbox';
    IF problem IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'schema "postbox" is not safe for extension postbox',
            DETAIL = problem,
            HINT = 'Look for what its owner or others have put into it. Then drop these objects, revoke CREATE on the schema, '
                   'and give it to a superuser with ALTER SCHEMA postbox OWNER TO.';
    END IF;
END
$$;

-- Dropped before postbox.lane is locked, which is the order in which a query of the view locks the two.
DO $$
DECLARE
    dependents text;
BEGIN
    DROP VIEW postbox.publication_status;
EXCEPTION WHEN dependent_objects_still_exist THEN
    GET STACKED DIAGNOSTICS dependents = PG_EXCEPTION_DETAIL;
    RAISE dependent_objects_still_exist USING
        MESSAGE = 'cannot update extension postbox to 0.2.0 because other objects depend on view postbox.publication_status',
        DETAIL = dependents,
        HINT = 'Drop these objects, update the extension, and create them again. The column resting_until is retry_at now, '
               'and the state resting is suspended.';
END
$$;
DROP FUNCTION postbox.list_publication_status();

-- The triggers that tell of changes are for each row now: a statement that finds no row changes nothing. Each DROP of any
-- object ran such statements, and made every session and worker read the configuration again. Readers go on meanwhile.
CREATE OR REPLACE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.outbox
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.outbox
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.outbox ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;
CREATE OR REPLACE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.publication
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.publication
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.publication ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;
CREATE OR REPLACE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.inbox
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.inbox
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.inbox ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;
CREATE OR REPLACE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.projection
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.projection ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;
CREATE OR REPLACE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.handler
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.handler
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.handler ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;

-- The role postbox_operator: sees the status of every outbox and inbox of the databases that have the extension, and may
-- redrive and discard their events. Granted like pg_monitor. It belongs to the server, so DROP EXTENSION leaves it.
DO $$
DECLARE
    unfit text;
BEGIN
    BEGIN
        CREATE ROLE postbox_operator NOLOGIN;
    EXCEPTION WHEN duplicate_object OR unique_violation THEN
        NULL;  -- another database has the extension
    END;
    SELECT pg_catalog.concat_ws(', ', CASE WHEN rolcanlogin THEN 'LOGIN' END, CASE WHEN rolsuper THEN 'SUPERUSER' END,
        CASE WHEN rolcreaterole THEN 'CREATEROLE' END, CASE WHEN rolcreatedb THEN 'CREATEDB' END,
        CASE WHEN rolreplication THEN 'REPLICATION' END, CASE WHEN rolbypassrls THEN 'BYPASSRLS' END)
      INTO unfit FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) 'postbox_operator';
    IF unfit OPERATOR(pg_catalog.<>) '' THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = 'role "postbox_operator" exists and is not fit for operators of Postbox',
            DETAIL = pg_catalog.format('It has %s. Whoever is or becomes this role may redrive and discard events.', unfit),
            HINT = 'Take these attributes away with ALTER ROLE, or rename the role.';
    END IF;
END
$$;

CREATE FUNCTION postbox.is_operator() RETURNS boolean
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.is_operator() IS 'Whether the current user is a superuser or a member of postbox_operator';

-- Copies of a database, or of its events: what keeps them from publishing the same events again.

-- A publication belongs to a database. A copy of the database beside the original has the same publications, and would publish
-- everything twice. So a publication that was copied within the cluster is not published while the original is there, or until
-- postbox.publish_here says so. In another cluster it goes on by itself: nobody there knows the original. A physical copy cannot
-- be told from its original.
CREATE FUNCTION postbox.this_database() RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.this_database() IS 'The system identifier of the cluster and the OID of the current database';

CREATE FUNCTION postbox.copied_from(home text) RETURNS name
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.datname FROM (SELECT postbox.this_database() AS name) AS this JOIN pg_database d ON d.oid::text = split_part(home, '/', 2)
    WHERE home <> this.name AND split_part(home, '/', 1) = split_part(this.name, '/', 1) AND NOT d.datistemplate
$$;
COMMENT ON FUNCTION postbox.copied_from(text) IS
    'The database of this cluster to which a publication with this home belongs, if that is another one; NULL if it belongs here, or nobody else has it. '
    'What is marked as a template is there to be copied';

CREATE FUNCTION postbox.copy_problem(publication text) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT format('nobody publishes it: it was copied from database "%s"; drop it, or run SELECT postbox.publish_here(%L) if it has to be published here, too',
                          postbox.copied_from(p.home), p.name)
            FROM postbox.publication p WHERE p.name = copy_problem.publication AND postbox.copied_from(p.home) IS NOT NULL);
END
$$;
COMMENT ON FUNCTION postbox.copy_problem(text) IS 'Why a publication that was copied with its database is not published here, and what to do; NULL for others';

CREATE FUNCTION postbox.publish_here(publication text DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    taken bigint;
BEGIN
    IF publication IS NOT NULL AND NOT EXISTS (SELECT FROM postbox.publication p WHERE p.name = publish_here.publication) THEN
        RAISE undefined_object USING
            MESSAGE = format('publication "%s" does not exist', publication),
            HINT = 'The publications of this database are listed in postbox.publication.';
    END IF;
    UPDATE postbox.publication p SET home = postbox.this_database()
    WHERE p.name = coalesce(publish_here.publication, p.name) AND p.home <> postbox.this_database();
    GET DIAGNOSTICS taken = ROW_COUNT;
    RETURN taken;
END
$$;
COMMENT ON FUNCTION postbox.publish_here(text) IS
    'Says that a publication of a copied database, or each of them, belongs here and is published here, too. Returns how many did not before';
REVOKE EXECUTE ON FUNCTION postbox.publish_here(text) FROM PUBLIC;

-- Logical replication may bring rows of another database into an outbox, which publishes them. What arrives is marked, so
-- that it is not published here: see extension/outbox/replicated.cc. Ordinary sessions do not fire the trigger.
CREATE FUNCTION postbox.event_replicated() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.event_replicated() IS 'Trigger of outboxes: keeps what logical replication brings from being published here';

CREATE FUNCTION postbox.add_replica_trigger(relation regclass, kind text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part regclass;
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER postbox_replicated AFTER INSERT OR UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION postbox.event_replicated(%L)', relation, kind);
    FOR part IN SELECT relation UNION SELECT t.relid FROM pg_partition_tree(relation) t LOOP
        EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER postbox_replicated', part);
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.add_replica_trigger(regclass, text) IS
    'Puts the trigger of replicated events on a table of an outbox of a kind: log, table, or parked for the parked events of a log';

CREATE FUNCTION postbox.replicated_problem(outbox regclass) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    kept boolean;
BEGIN
    IF EXISTS (SELECT FROM postbox.publication p WHERE p.outbox = replicated_problem.outbox)
        AND NOT EXISTS (SELECT FROM postbox.publication p JOIN postbox.former_position f ON f.publication = p.name
                        WHERE p.outbox = replicated_problem.outbox AND f.origin = 2147483647) THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s e WHERE e.origin = 2147483647)', outbox) INTO kept;
    END IF;
    RETURN CASE WHEN kept THEN
        format('events that came by logical replication are kept: they are published where they were emitted; '
               'run SELECT postbox.decide_unknown(''%s'', true) if that is so for all that come, false if they are to be published here', outbox) END;
END
$$;
COMMENT ON FUNCTION postbox.replicated_problem(regclass) IS
    'That a log outbox keeps events that logical replication has brought, judged with the rights of the current user; NULL if it does not, or somebody has decided';

-- A long backlog is in nobody's way: what comes after it is read ahead of it, and its position is beside that of the lane. Who does
-- not know of it takes what it has read for unread.
CREATE TYPE postbox.position_ahead AS (
    after    bigint,
    upto     bigint[],
    snapshot pg_snapshot[],
    next_xid xid8[],
    withheld bigint[]
);
COMMENT ON TYPE postbox.position_ahead IS 'What a lane has read ahead of a backlog';
COMMENT ON COLUMN postbox.position_ahead.after IS 'All of the backlog has at most this seq';
COMMENT ON COLUMN postbox.position_ahead.upto IS 'Upper ends of the zones of seq, as zone_upto of postbox.lane; rows above the last one are unread';
COMMENT ON COLUMN postbox.position_ahead.snapshot IS 'The snapshot of each zone';
COMMENT ON COLUMN postbox.position_ahead.next_xid IS 'The next transaction id of the cluster, read after the snapshot of each zone';
COMMENT ON COLUMN postbox.position_ahead.withheld IS 'The seqs of events in those zones that are unread, because the backlog has earlier events of their keys';

-- The lanes, and the registrations of outboxes. Logs keep the partitions that they have.
DO $$
BEGIN
    ALTER TABLE postbox.outbox ADD COLUMN generation_span interval CHECK (generation_span >= interval '1 second'),
        ADD COLUMN version_floor bigint NOT NULL DEFAULT 0;
    ALTER TABLE postbox.lane ADD COLUMN suspended_since timestamptz, ADD COLUMN ahead postbox.position_ahead,
        ADD COLUMN sent_again bigint NOT NULL DEFAULT 0, ADD COLUMN sent_again_at timestamptz;
    ALTER TABLE postbox.publication ADD COLUMN wanted_lanes int CHECK (wanted_lanes > 0), ADD COLUMN filter_changes xid8[] NOT NULL DEFAULT '{0}',
        ADD COLUMN home text NOT NULL DEFAULT postbox.this_database(), ADD COLUMN credential text;
EXCEPTION WHEN lock_not_available THEN
    RAISE lock_not_available USING
        MESSAGE = 'cannot update extension postbox to 0.2.0 because another transaction uses postbox.publication, postbox.outbox or postbox.lane',
        DETAIL = 'Workers would wait behind the update as long as that transaction runs.',
        HINT = 'Try again when it has ended, for example a pg_dump.';
END
$$;
COMMENT ON COLUMN postbox.publication.home IS 'The database that publishes it, as postbox.this_database() names it; see postbox.copied_from';
COMMENT ON COLUMN postbox.publication.credential IS 'The credential with which it publishes, see postbox.credential; NULL: that of the server''s environment';

-- The version counter knows the versions that Postbox counts. Of those that emitters give to events of a log, this says of each
-- aggregate type what none is above: extension/outbox/given_version.h. No row is ever changed.
CREATE TABLE postbox.given_version (
    outbox         regclass NOT NULL,
    aggregate_type text     NOT NULL COLLATE "C",
    version        bigint   NOT NULL
);
CREATE INDEX given_version_idx ON postbox.given_version (outbox, aggregate_type, version);
COMMENT ON TABLE postbox.given_version IS
    'Log outboxes: the version floor of each aggregate type, which no version is above that was given before versions of the type were counted; the greatest counts';
SELECT pg_catalog.pg_extension_config_dump('postbox.given_version', '');
REVOKE ALL ON postbox.given_version FROM PUBLIC;
GRANT SELECT ON postbox.given_version TO PUBLIC;

UPDATE postbox.lane SET suspended_since = now() WHERE attempts > 0;
COMMENT ON TABLE postbox.lane IS
    'A lane of a publication: a hash slice of its keys, its failed attempts and, in a log outbox, its worker and position';
COMMENT ON COLUMN postbox.lane.slice IS 'The keys of the lane: those of which postbox.lane_slice(aggregate_id, lanes) is this number';
COMMENT ON COLUMN postbox.lane.attempts IS 'How many attempts in a row have failed';
COMMENT ON COLUMN postbox.lane.next_retry_at IS 'When the next attempt is due after a failed one; NULL: at once';
COMMENT ON COLUMN postbox.lane.last_error IS 'Why the last attempt failed; NULL if it succeeded';
COMMENT ON COLUMN postbox.lane.lock_token IS 'Log outbox: the worker that holds the lane, see postbox.workers, or held it and is gone; NULL: it was given up in order';
COMMENT ON COLUMN postbox.lane.floor IS 'Every row of the log up to this seq is read';
COMMENT ON COLUMN postbox.lane.hwm IS 'Every row of the log above this seq is unread, except those that the snapshot sees';
COMMENT ON COLUMN postbox.lane.snapshot IS 'The rows that were read when the lane last caught up';
COMMENT ON COLUMN postbox.lane.next_xid IS 'The next transaction id of the cluster, read after that snapshot';
COMMENT ON COLUMN postbox.lane.zone_upto IS 'Upper ends of the zones of seq below hwm; a zone''s rows are read if its snapshot sees them';
COMMENT ON COLUMN postbox.lane.zone_snapshot IS 'The snapshot of each zone';
COMMENT ON COLUMN postbox.lane.zone_next_xid IS 'The next transaction id of the cluster, read after the snapshot of each zone';
COMMENT ON COLUMN postbox.lane.ahead IS 'What is read above hwm, ahead of a long backlog; NULL: nothing';
COMMENT ON COLUMN postbox.lane.suspended_since IS 'Since when attempts in a row have failed; NULL if the last one succeeded';
COMMENT ON COLUMN postbox.lane.sent_again IS
    'How many of its events were sent again, at most, see postbox.publication_status.sent_again_at_most; of a table outbox all are counted in the lane with slice 0';
COMMENT ON COLUMN postbox.lane.sent_again_at IS 'When the last of them were counted; NULL: there were none';
REVOKE SELECT ON postbox.lane FROM PUBLIC;
-- An error may show data of events, so last_error is for those who may read the outbox: postbox.publication_status shows it to them.
GRANT SELECT (publication, slice, attempts, next_retry_at, lock_token, locked_at, system_identifier, floor, hwm, snapshot, next_xid, zone_upto,
    zone_snapshot, zone_next_xid, suspended_since, ahead, sent_again, sent_again_at) ON postbox.lane TO PUBLIC;
GRANT SELECT ON postbox.lane TO pg_monitor, postbox_operator;

CREATE FUNCTION postbox.lane_slice(aggregate_id text, lanes int) RETURNS int
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    RETURN ((pg_catalog.hashtextextended(aggregate_id COLLATE "C", 0::bigint) & 9223372036854775807) % lanes::bigint)::int;
COMMENT ON FUNCTION postbox.lane_slice(text, int) IS 'The lane of a key: 0 to lanes - 1, by a hash of the key';

-- The status of publications.
CREATE FUNCTION postbox.resume_publication(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.resume_publication(text) IS
    'Tries a suspended publication at once, which workers do by themselves every 4 s at least. For the owner of the outbox, and for members of postbox_operator';

-- What belongs to outboxes and inboxes beside their own table, by its OID. An owner who drops one of these leaves its OID behind in
-- the registration, and a restore takes that over. Another's table may have it by then: so only what has the columns of such
-- a table counts, and is not registered for anything else. Indexes and the sequence of a column go with their table.
CREATE FUNCTION postbox.parts_of(relations oid[]) RETURNS TABLE (relation regclass, part regclass, kind text)
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
CREATE FUNCTION postbox.parts_problem(relation regclass) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan SET jit = off
    SET enable_seqscan = off SET enable_hashjoin = off SET enable_mergejoin = off
AS $$
DECLARE
    found_problem text;
BEGIN
    WITH part AS (
        SELECT p.* FROM postbox.parts_of(ARRAY[parts_problem.relation::oid]) p
    ), problem(rank, text) AS (
        -- One that has lost a column is still there if it is the owner's.
        SELECT 1, format('the %s of %s was dropped; run SELECT * FROM postbox.repair_outbox(%L)', k.kind, o.relation, o.relation)
        FROM postbox.outbox o JOIN pg_class t ON t.oid = o.relation
        CROSS JOIN LATERAL (VALUES ('version counter', o.counter), ('table of parked events', o.parked)) AS k(kind, part)
        WHERE o.relation = parts_problem.relation AND (k.kind = 'version counter' OR o.kind = 'log')
          AND NOT EXISTS (SELECT FROM part p WHERE p.kind = k.kind)
          AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = k.part AND c.relkind = 'r' AND c.relowner = t.relowner)
        UNION ALL
        SELECT 1, format('the table of tombstones of %s was dropped; run SELECT * FROM postbox.repair_inbox(%L)', i.relation, i.relation)
        FROM postbox.inbox i JOIN pg_class t ON t.oid = i.relation
        WHERE i.relation = parts_problem.relation AND NOT EXISTS (SELECT FROM part p)
          AND NOT EXISTS (SELECT FROM pg_class c WHERE c.oid = i.tombstone AND c.relkind = 'r' AND c.relowner = t.relowner)
        UNION ALL
        SELECT 2, format('the %1$s of %2$s, %3$s, belongs to role %4$I, whose rights the owner of the %6$s, %5$I, does not have; '
                         'if the table is what it is taken for, run SELECT * FROM postbox.repair_%6$s(%2$L)',
                         p.kind, p.relation, p.part, pg_get_userbyid(c.relowner), pg_get_userbyid(o.relowner),
                         CASE WHEN p.kind = 'table of tombstones' THEN 'inbox' ELSE 'outbox' END)
        FROM part p JOIN pg_class c ON c.oid = p.part JOIN pg_class o ON o.oid = p.relation
        WHERE NOT pg_has_role(o.relowner, c.relowner, 'USAGE')
    )
    SELECT p.text INTO found_problem FROM problem p ORDER BY p.rank, p.text LIMIT 1;
    RETURN found_problem;
END
$$;
COMMENT ON FUNCTION postbox.parts_problem(regclass) IS 'What is wrong with the tables that belong to an outbox or inbox, and the repair; NULL if nothing is';

-- In C, because each look at the status asks: see extension/outbox/outbox_problem.cc.
CREATE FUNCTION postbox.outbox_problem(registered postbox.outbox) RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.outbox_problem(postbox.outbox) IS
    'What is wrong with the tables of an outbox, and the repair; NULL if nothing is';

-- Counted with the rights of the current user. What the owner of an outbox has made of it is shown with its publication, and
-- hides no other one: errors become `problem`.
-- Reading a table may run code of ordinary users, which may take for ever: see extension/server/code_of_users.cc.
CREATE FUNCTION postbox.code_of_users(relation regclass, other regclass DEFAULT NULL) RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.code_of_users(regclass, regclass) IS
    'The code of an ordinary user that reading a table would run, or may run; NULL if there is none';

-- For whoever gave up waiting for a lock.
CREATE FUNCTION postbox.lock_holders(registered postbox.outbox) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE part(oid) AS (
        SELECT unnest(ARRAY[(registered).relation::oid, (registered).parked::oid])
        UNION SELECT i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
    )
    SELECT format('a table of the outbox is locked%s', ' by process ' || string_agg(DISTINCT l.pid::text, ', '))
    FROM pg_locks l
    WHERE l.locktype = 'relation' AND l.granted AND l.mode = 'AccessExclusiveLock' AND l.pid <> pg_backend_pid()
      AND l.database = (SELECT d.oid FROM pg_database d WHERE d.datname = current_database())
      AND l.relation IN (SELECT p.oid FROM part p UNION ALL SELECT i.indexrelid FROM part p JOIN pg_index i ON i.indrelid = p.oid)
$$;
COMMENT ON FUNCTION postbox.lock_holders(postbox.outbox) IS 'That a table of an outbox is locked, and by which processes as far as they are known';

CREATE FUNCTION postbox.publication_backlog(publication text,
    OUT ready bigint, OUT parked bigint, OUT oldest_ready interval, OUT oldest_parked interval, OUT problem text, OUT broken boolean)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
    SET enable_seqscan = off
    SET enable_bitmapscan = off
    SET jit = off
AS $$
DECLARE
    registered postbox.outbox;
    counted record;
    other record;
BEGIN
    broken := false;
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox
    WHERE p.name = publication;
    problem := 'the backlog is not counted: ' || postbox.code_of_users(registered.relation, registered.parked);
    IF problem IS NOT NULL THEN
        RETURN;
    END IF;
    SELECT * INTO counted FROM postbox.count_backlog(publication);
    ready := counted.ready;
    parked := counted.parked;
    IF counted.has_foreign THEN
        SELECT * INTO other FROM postbox.foreign_backlog(registered.relation, publication);
        ready := ready + other.unread;
        counted.oldest_ready := least(counted.oldest_ready, other.oldest);
    END IF;
    oldest_ready := date_trunc('milliseconds', clock_timestamp() - counted.oldest_ready);
    oldest_parked := date_trunc('milliseconds', clock_timestamp() - counted.oldest_parked);
    IF counted.misplaced > 0 AND registered.kind = 'log' THEN
        problem := format('%s events have no seq or one that the sequence has not given out, and wait; '
                          'repair them with UPDATE %s SET txid = DEFAULT, seq = DEFAULT '
                          'WHERE seq > %s OR seq < 1 OR seq IS NULL', counted.misplaced, registered.relation,
                          coalesce(pg_sequence_last_value(postbox.log_sequence(registered.relation)), 0));
    ELSIF counted.misplaced > 0 THEN
        problem := format('%s events have no seq or one below 1, and wait; repair them with UPDATE %s SET seq = DEFAULT '
                          'WHERE published_at IS NULL AND (seq < 1 OR seq IS NULL)', counted.misplaced, registered.relation);
    END IF;
EXCEPTION
    WHEN lock_not_available THEN
        SELECT NULL, NULL, NULL, NULL INTO ready, parked, oldest_ready, oldest_parked;
        problem := format('the backlog is not counted: %s', postbox.lock_holders(registered));
    WHEN OTHERS THEN
        SELECT NULL, NULL, NULL, NULL, true INTO ready, parked, oldest_ready, oldest_parked, broken;
        problem := format('the outbox cannot be read: %s', SQLERRM);
END
$$;
COMMENT ON FUNCTION postbox.publication_backlog(text) IS
    'The backlog of a publication, counted with the rights of the current user, and which rows are not read or why none can be';

CREATE FUNCTION postbox.show_backlog(publication text)
    RETURNS TABLE (ready bigint, parked bigint, oldest_ready interval, oldest_parked interval, problem text, broken boolean, last_error text)
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_backlog(text) IS
    'postbox.publication_backlog, run as the owner of the outbox, and why the publication is suspended; no rows if the caller may '
    'not see its events';

-- From shared memory: a look at it costs nothing.
CREATE FUNCTION postbox.publishing_state(publication text, OUT state text, OUT reason text, OUT since timestamptz, OUT next_try timestamptz)
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.publishing_state(text) IS
    'unserved if no worker publishes it, waiting if its events wait for a synchronous standby, and the reason; retrying if Pub/Sub does not answer, '
    'since when, and the next try; NULL if nothing is the matter';

CREATE FUNCTION postbox.list_publication_status()
    RETURNS TABLE (publication text, outbox regclass, topic text, state text, pending bigint, ready bigint, parked bigint,
                   oldest_pending interval, oldest_ready interval, retry_at timestamptz, suspended_since timestamptz, last_error text,
                   "position" bigint, leases text[], sent_again_at_most bigint, sent_again_at timestamptz)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp SET plan_cache_mode = force_generic_plan
AS $$
DECLARE
    registered postbox.outbox;
    problem text;
    broken boolean;
    why text;
BEGIN
    FOR publication, outbox, topic, why, retry_at, suspended_since IN
        SELECT p.name, p.outbox, p.topic, CASE WHEN p.home <> postbox.this_database() THEN postbox.copy_problem(p.name) END, l.next_retry_at, l.suspended_since
        FROM postbox.publication p
        LEFT JOIN LATERAL (SELECT l.next_retry_at, l.suspended_since FROM postbox.lane l
                           WHERE l.publication = p.name AND l.attempts > 0 AND l.next_retry_at IS NOT NULL
                           ORDER BY l.next_retry_at DESC LIMIT 1) l ON true
        ORDER BY p.name
    LOOP
        IF why IS NOT NULL THEN
            state := 'unserved';
        ELSE
            -- What waits for a standby hides no failure that is still to be tried again.
            SELECT coalesce(p.state, CASE WHEN retry_at IS NULL THEN 'active' ELSE 'suspended' END), p.reason, coalesce(p.next_try, retry_at), least(p.since, suspended_since)
              INTO state, why, retry_at, suspended_since FROM (SELECT) one LEFT JOIN postbox.publishing_state(publication) p ON p.state <> 'waiting' OR retry_at IS NULL OR retry_at <= clock_timestamp();
        END IF;
        SELECT NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL INTO pending, ready, parked, oldest_pending, oldest_ready, last_error, "position", leases;
        SELECT sum(l.sent_again), max(l.sent_again_at) INTO sent_again_at_most, sent_again_at FROM postbox.lane l WHERE l.publication = list_publication_status.publication;
        SELECT * INTO registered FROM postbox.outbox o WHERE o.relation = list_publication_status.outbox;
        IF registered.parked IS NOT NULL THEN
            SELECT CASE WHEN count(l.hwm) < (SELECT p.lanes FROM postbox.publication p WHERE p.name = list_publication_status.publication)
                   THEN 0 ELSE min(l.hwm) END, array_agg(l.lock_token ORDER BY l.slice) FILTER (WHERE l.lock_token IS NOT NULL)
              INTO "position", leases FROM postbox.lane l WHERE l.publication = list_publication_status.publication;
        END IF;
        problem := postbox.outbox_problem(registered);
        IF problem IS NOT NULL THEN
            state := 'broken';
            last_error := problem;
            RETURN NEXT;
            CONTINUE;
        END IF;
        SELECT b.ready + b.parked, b.ready, b.parked, greatest(b.oldest_ready, b.oldest_parked), b.oldest_ready, b.problem, b.broken, b.last_error
        INTO pending, ready, parked, oldest_pending, oldest_ready, problem, broken, last_error
        FROM postbox.show_backlog(publication) b;
        -- What failed is just being tried again, if there is anything to try. A broker that does not answer is tried for long.
        IF state <> 'retrying' AND retry_at <= clock_timestamp() AND coalesce(pending <= coalesce(parked, 0), true) THEN
            SELECT CASE state WHEN 'suspended' THEN 'active' ELSE state END, NULL, NULL, NULL INTO state, retry_at, suspended_since, last_error;
        END IF;
        last_error := nullif(concat_ws('; ', why, coalesce(last_error, problem),
                                       postbox.unlogged_problem(registered.relation, registered.parked, registered.counter)), '');
        IF broken THEN
            state := 'broken';
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.list_publication_status() IS 'The rows of postbox.publication_status';

CREATE VIEW postbox.publication_status AS SELECT * FROM postbox.list_publication_status();
COMMENT ON VIEW postbox.publication_status IS
    'State and backlog of each publication. Backlog columns and last_error are NULL where the caller may not read the outbox; '
    'postbox_operator and pg_monitor see all of them';
COMMENT ON COLUMN postbox.publication_status.state IS
    'active; waiting for a synchronous standby; retrying while Pub/Sub does not answer; suspended after a failed attempt until something is published; unserved: no worker publishes it; or broken: '
    'the outbox is not what Postbox made. last_error says more';
COMMENT ON COLUMN postbox.publication_status.pending IS 'How many events are not published yet: ready and parked';
COMMENT ON COLUMN postbox.publication_status.ready IS
    'How many of them wait to be published. In a log those since the last checkpoint may count though they have been. Exact up to 1000, beyond that '
    'estimated from samples';
COMMENT ON COLUMN postbox.publication_status.parked IS
    'How many of them are parked or wait behind a parked one. Exact up to 10000, beyond that from the statistics of their table';
COMMENT ON COLUMN postbox.publication_status.oldest_pending IS
    'Age of the oldest of them, by occurred_at; of the first 1000 of each kind';
COMMENT ON COLUMN postbox.publication_status.oldest_ready IS 'The same without those that are parked: how far publishing lags behind';
COMMENT ON COLUMN postbox.publication_status.retry_at IS
    'When a suspended or retrying publication is tried again, or since when it is being tried; NULL if active';
COMMENT ON COLUMN postbox.publication_status.suspended_since IS 'Since when attempts in a row have failed; NULL if active';
COMMENT ON COLUMN postbox.publication_status.last_error IS
    'Why a suspended or retrying publication failed last, why one is unserved or waiting and what to do, what is wrong with a broken one and its repair, '
    'what an active one does not publish, or which of its tables a crash would empty';
COMMENT ON COLUMN postbox.publication_status."position" IS 'Log outbox: the seq up to which every lane has read';
COMMENT ON COLUMN postbox.publication_status.leases IS 'Log outbox: lock tokens of the workers that hold its lanes, see postbox.workers';
COMMENT ON COLUMN postbox.publication_status.sent_again_at_most IS
    'How many messages were sent again, at most, since the publication was created: each that Pub/Sub got twice is counted, and also those of which that is not '
    'known. These are the events of a request that had no answer and, where a worker was gone or had to begin again, those that it may have sent since it '
    'stored how far it was: of a log beside a backlog all that waited. 0 without a fault. Stored with the results, so a moment later: what a worker counted and had not stored when '
    'it was killed is missing';
COMMENT ON COLUMN postbox.publication_status.sent_again_at IS 'When the last of them were counted; NULL: there were none';
GRANT SELECT ON postbox.publication_status TO PUBLIC;

-- The log outbox.
-- Rows of other clusters in a log outbox: extension/outbox/rebase.cc says how they come and what becomes of them.

-- Where lanes stood in other clusters. A position is made of transaction ids, which mean nothing in another cluster. When a
-- lane comes from one, by a restore or pg_upgrade, its position goes here and it begins again with the rows of this cluster.
-- What the old position had not read of the rows of its own origin is settled: see postbox.settle_rows.
CREATE TABLE postbox.former_position (
    publication   text   NOT NULL,
    slice         int    NOT NULL,
    origin        int    NOT NULL,
    floor         bigint,
    hwm           bigint,
    snapshot      pg_snapshot,
    next_xid      xid8,
    zone_upto     bigint[],
    zone_snapshot pg_snapshot[],
    settled       bigint NOT NULL DEFAULT 0,
    ahead         postbox.position_ahead,
    PRIMARY KEY (publication, slice, origin)
);
COMMENT ON TABLE postbox.former_position IS 'Log outbox: how far each lane had read in other clusters, from which the database was restored';
COMMENT ON COLUMN postbox.former_position.origin IS 'The cluster, as in the column origin of the log';
COMMENT ON COLUMN postbox.former_position.floor IS 'As in postbox.lane; if this and snapshot are NULL, the lane had read nothing';
COMMENT ON COLUMN postbox.former_position.hwm IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.snapshot IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.next_xid IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.zone_upto IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.zone_snapshot IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.settled IS 'Counts the times at which unread events of that cluster were settled';
COMMENT ON COLUMN postbox.former_position.ahead IS 'As in postbox.lane';
SELECT pg_catalog.pg_extension_config_dump('postbox.former_position', '');
GRANT SELECT ON postbox.former_position TO PUBLIC;

CREATE FUNCTION postbox.origin_of(system_identifier numeric) RETURNS int
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.origin_of(numeric) IS 'The number by which the rows of a log outbox tell a cluster from others';

-- What a position is made of, as one row: where each lane stands here and where it stood in other clusters.
CREATE VIEW postbox.lane_progress AS
    SELECT l.publication, l.slice, postbox.origin_of(l.system_identifier) AS origin, l.floor, l.hwm, l.snapshot, l.next_xid, l.zone_upto, l.zone_snapshot,
        l.ahead
    FROM postbox.lane l
    UNION ALL
    SELECT f.publication, f.slice, f.origin, f.floor, f.hwm, f.snapshot, f.next_xid, f.zone_upto, f.zone_snapshot, f.ahead
    FROM postbox.former_position f;
COMMENT ON VIEW postbox.lane_progress IS 'How far each lane of a log outbox has read the rows of each cluster: columns of postbox.lane and postbox.former_position';
GRANT SELECT ON postbox.lane_progress TO PUBLIC;

CREATE FUNCTION postbox.cluster_origin() RETURNS int
    LANGUAGE C STABLE PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.cluster_origin() IS 'The number by which the rows of a log outbox tell this cluster from others, made from its system identifier';

DROP FUNCTION postbox.has_read(postbox.lane, xid8, bigint);

-- A lane that does not exist or has not begun has read nothing.
CREATE FUNCTION postbox.has_read(lane postbox.lane_progress, txid xid8, seq bigint) RETURNS boolean
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (lane).snapshot IS NOT NULL AND (seq <= (lane).floor OR seq <= (lane).hwm AND pg_visible_in_snapshot(txid, coalesce(
        (SELECT z.snapshot FROM unnest((lane).zone_upto, (lane).zone_snapshot) AS z(upto, snapshot)
         WHERE z.upto >= seq ORDER BY z.upto LIMIT 1), (lane).snapshot))
        OR (seq > ((lane).ahead).after AND seq <> ALL (((lane).ahead).withheld) AND pg_visible_in_snapshot(txid,
        (SELECT z.snapshot FROM unnest(((lane).ahead).upto, ((lane).ahead).snapshot) AS z(upto, snapshot)
         WHERE z.upto >= seq ORDER BY z.upto LIMIT 1))) IS TRUE)
$$;
COMMENT ON FUNCTION postbox.has_read(postbox.lane_progress, xid8, bigint) IS 'Whether a lane has read the row of a log outbox with this txid and seq';

-- Rows of other clusters. They come with a restore, with pg_upgrade, or with a copy of the table, at any time and in any
-- order. Readers take rows of this cluster only. What a former position had not read is settled once: in one transaction
-- the event is put into the table of parked events, for each publication that misses it, where it is due, before later events of
-- its key; and its row gets the origin -2147483648, which nobody reads. It stays for the retention. What the former
-- positions had read stays as it is. A row of a cluster of which no position is known is kept: nobody knows whether it
-- was published.

CREATE FUNCTION postbox.foreign_origins(outbox regclass, part regclass, most_unknown int DEFAULT 1,
    OUT origin int, OUT known boolean, OUT hwm bigint, OUT xmin xid8, OUT next_xid xid8)
    RETURNS SETOF record
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known_origins int[] := ARRAY[postbox.cluster_origin()];
    there boolean;
BEGIN
    known := true;
    FOR origin, hwm, xmin, next_xid IN
        SELECT l.origin, min(CASE WHEN l.snapshot IS NULL THEN 0 ELSE l.hwm END),
               (array_agg(s.xmin ORDER BY s.xmin))[1], (array_agg(l.next_xid ORDER BY l.next_xid DESC NULLS LAST))[1]
        FROM postbox.publication p JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin <> postbox.cluster_origin()
        LEFT JOIN LATERAL (SELECT pg_snapshot_xmin(z) AS xmin FROM unnest(l.zone_snapshot || l.snapshot) z ORDER BY 1 LIMIT 1) s ON true
        WHERE p.outbox = foreign_origins.outbox GROUP BY l.origin
    LOOP
        known_origins := known_origins || origin;
        EXECUTE format('SELECT EXISTS (SELECT FROM %s e WHERE e.origin = $1)', part) INTO there USING origin;
        IF there THEN
            RETURN NEXT;
        END IF;
    END LOOP;
    -- Whoever may INSERT can make up any number of others: most often the first of them will do. From one to the next, through the index.
    known := false;
    hwm := NULL;
    xmin := NULL;
    next_xid := NULL;
    origin := -2147483648;
    LOOP
        EXECUTE format('SELECT e.origin FROM %s e WHERE e.origin > $1 ORDER BY e.origin LIMIT 1', part) INTO origin USING origin;
        EXIT WHEN origin IS NULL;
        CONTINUE WHEN origin = ANY (known_origins);
        RETURN NEXT;
        most_unknown := most_unknown - 1;
        EXIT WHEN most_unknown = 0;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.foreign_origins(regclass, regclass, int) IS
    'The other clusters of which a log outbox, or one of its partitions, has rows: those of which positions of its lanes are known, with the bounds '
    'between which rows may be unread (seq above hwm, or txid from xmin on and below next_xid), and up to `most_unknown` of those of which none are known';

-- Late rows first, then new ones: in the order of seq. Each kind goes through one index.
CREATE FUNCTION postbox.foreign_unread(outbox regclass, part regclass, origin int, hwm bigint, xmin xid8, next_xid xid8, most int,
    only_publication text DEFAULT NULL)
    RETURNS bigint[]
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    bounds text;
    found_seqs bigint[];
    seqs bigint[];
BEGIN
    FOREACH bounds IN ARRAY '{e.seq <= $2 AND e.txid >= $3 AND e.txid < $4,e.seq > $2}'::text[] LOOP
        EXECUTE format($sql$
            SELECT array_agg(u.seq) FROM (
                SELECT e.seq FROM %1$s e WHERE e.origin = $1 AND %2$s AND EXISTS (
                    SELECT FROM postbox.publication p JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $1
                     AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
                    WHERE p.outbox = $5 AND ($7 IS NULL OR p.name = $7) AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
                      AND postbox.has_read(l, e.txid, e.seq) IS NOT TRUE)
                ORDER BY e.seq LIMIT $6) u
            $sql$, part, bounds) INTO found_seqs USING origin, hwm, xmin, next_xid, outbox, most, only_publication;
        seqs := seqs || found_seqs;
        EXIT WHEN cardinality(seqs) >= most;
    END LOOP;
    RETURN seqs[:most];
END
$$;
COMMENT ON FUNCTION postbox.foreign_unread(regclass, regclass, int, bigint, xid8, xid8, int, text) IS
    'The seq of up to `most` rows of another cluster that some lane had not read there; between the bounds of postbox.foreign_origins';

CREATE FUNCTION postbox.has_unsettled(outbox regclass, part regclass) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    cluster record;
BEGIN
    FOR cluster IN SELECT f.* FROM postbox.foreign_origins(outbox, part) f WHERE f.known LOOP
        IF postbox.foreign_unread(outbox, part, cluster.origin, cluster.hwm, cluster.xmin, cluster.next_xid, 1) IS NOT NULL THEN
            RETURN true;
        END IF;
    END LOOP;
    RETURN false;
END
$$;
COMMENT ON FUNCTION postbox.has_unsettled(regclass, regclass) IS
    'Whether a log outbox, or one of its partitions, has rows of another cluster that postbox.settle_rows has to settle';

-- A row that cannot be an event is marked as in worker/publisher/log/log_outbox_sql.cc. A row behind an earlier one of its key
-- waits for it.
CREATE FUNCTION postbox.parking_statement(parked regclass, source text) RETURNS text
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format($sql$
        INSERT INTO %1$s AS q (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload,
            attributes, occurred_at, publish_attempts, last_error, next_retry_at)
        SELECT u.publication, u.seq, u.id, coalesce(u.aggregate_type, ''), coalesce(u.aggregate_id, ''), coalesce(u.event_type, ''),
            greatest(u.version, 1), coalesce(u.schema_version, ''), coalesce(u.payload, ''),
            CASE WHEN u.unreadable THEN to_jsonb(text 'a column is null') ELSE u.attributes END, coalesce(u.occurred_at, now()), 0,
            CASE WHEN u.unreadable THEN 'the row cannot be an event: a column is null' END,
            CASE WHEN u.place > 1 OR EXISTS (
                SELECT FROM %1$s b WHERE b.publication = u.publication AND b.aggregate_id = coalesce(u.aggregate_id, '') AND b.seq < u.seq)
            THEN 'infinity' ELSE now() END
        FROM (SELECT p.name AS publication, e.seq, e.id, e.aggregate_type, e.aggregate_id, e.event_type, e.version, e.schema_version, e.payload,
                     e.attributes, e.occurred_at,
                     e.aggregate_type IS NULL OR e.aggregate_id IS NULL OR e.event_type IS NULL OR e.version IS NULL OR e.version < 1 OR
                     e.schema_version IS NULL OR e.payload IS NULL OR e.attributes IS NULL OR e.occurred_at IS NULL AS unreadable,
                     row_number() OVER (PARTITION BY p.name, e.aggregate_id ORDER BY e.seq) AS place
              FROM %2$s) u
        ON CONFLICT (publication, id) DO NOTHING
        $sql$, parked, source)
$$;
COMMENT ON FUNCTION postbox.parking_statement(regclass, text) IS
    'The statement that makes parked events of a log outbox, which are due, of what comes FROM source: p, a publication, and e, a row of the log';

CREATE FUNCTION postbox.settle_rows(outbox regclass, batch int) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    cluster record;
    seqs bigint[];
    settled bigint;
BEGIN
    FOR cluster IN SELECT f.* FROM postbox.foreign_origins(outbox, outbox) f WHERE f.known LOOP
        seqs := postbox.foreign_unread(outbox, outbox, cluster.origin, cluster.hwm, cluster.xmin, cluster.next_xid, batch);
        CONTINUE WHEN seqs IS NULL;
        EXECUTE format('WITH settled AS (UPDATE %s e SET origin = -2147483648 WHERE e.origin = $1 AND e.seq = ANY ($2) RETURNING e.*), '
                       'parked AS (%s) SELECT count(*) FROM settled', outbox, postbox.parking_statement(registered.parked, $sql$
                settled e
                JOIN postbox.publication p ON p.outbox = $3 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
                JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $1
                 AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
                WHERE postbox.has_read(l, e.txid, e.seq) IS NOT TRUE
                $sql$)) INTO settled USING cluster.origin, seqs, outbox;
        IF settled = 0 THEN
            RAISE triggered_action_exception USING
                MESSAGE = format('the rows of outbox %s that another cluster has not published are not settled', outbox),
                DETAIL = 'A trigger, rule or policy keeps them from being changed.',
                HINT = 'Let the owner of the outbox UPDATE the column origin.';
        END IF;
        RETURN settled;
    END LOOP;
    RETURN 0;
END
$$;
COMMENT ON FUNCTION postbox.settle_rows(regclass, int) IS
    'Settles up to `batch` rows of other clusters that were not published there, and returns how many: they become parked events that are due';

CREATE FUNCTION postbox.add_origin(outbox regclass, origin int) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('ALTER TABLE %s ADD COLUMN origin int NOT NULL DEFAULT %s', outbox, origin);
    EXECUTE format('ALTER TABLE %s ALTER COLUMN origin SET DEFAULT postbox.cluster_origin()', outbox);
    EXECUTE format('CREATE INDEX ON %s (origin, seq)', outbox);
END
$$;
COMMENT ON FUNCTION postbox.add_origin(regclass, int) IS
    'Gives a log outbox of 0.1 the column origin, with this value in the rows that are there';

-- Before the lanes' rows of this cluster are read. It is the one thing here that writes tables of Postbox, so only workers
-- and superusers run it.
CREATE FUNCTION postbox.begin_here(outbox regclass) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    -- One at a time: whoever else wants to settle rows comes again.
    PERFORM FROM postbox.outbox o WHERE o.relation = begin_here.outbox FOR UPDATE SKIP LOCKED;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    WITH lane AS (
        SELECT l.* FROM postbox.lane l JOIN postbox.publication p ON p.name = l.publication
        WHERE p.outbox = begin_here.outbox AND l.system_identifier <> (SELECT c.system_identifier FROM pg_control_system() c)
        FOR UPDATE OF l
    ), former AS (
        INSERT INTO postbox.former_position (publication, slice, origin, floor, hwm, snapshot, next_xid, zone_upto, zone_snapshot, ahead)
        SELECT l.publication, l.slice, postbox.origin_of(l.system_identifier), l.floor, l.hwm, l.snapshot, l.next_xid, l.zone_upto, l.zone_snapshot, l.ahead
        FROM lane l ON CONFLICT (publication, slice, origin) DO UPDATE SET floor = EXCLUDED.floor, hwm = EXCLUDED.hwm,
            snapshot = EXCLUDED.snapshot, next_xid = EXCLUDED.next_xid, zone_upto = EXCLUDED.zone_upto, zone_snapshot = EXCLUDED.zone_snapshot,
            ahead = EXCLUDED.ahead
    ), back AS (
        -- The log was in this cluster before, where its transaction ids go on: so does the lane. Of its zones the last was read first.
        DELETE FROM postbox.former_position f USING lane l
        WHERE f.publication = l.publication AND f.slice = l.slice AND f.origin = postbox.cluster_origin() RETURNING f.*
    )
    UPDATE postbox.lane l SET system_identifier = (SELECT c.system_identifier FROM pg_control_system() c), lock_token = NULL, floor = b.floor,
        hwm = b.hwm, snapshot = b.snapshot, next_xid = b.next_xid, zone_upto = b.zone_upto, zone_snapshot = b.zone_snapshot,
        zone_next_xid = ARRAY(SELECT b.next_xid FROM unnest(b.zone_upto)), ahead = b.ahead
    FROM lane o LEFT JOIN back b ON b.publication = o.publication AND b.slice = o.slice WHERE l.publication = o.publication AND l.slice = o.slice;
    RETURN true;
END
$$;
COMMENT ON FUNCTION postbox.begin_here(regclass) IS
    'Makes the lanes of a log outbox that come from another cluster begin with the rows of this one, and keeps their positions there in '
    'postbox.former_position. False if another session does it';
REVOKE EXECUTE ON FUNCTION postbox.begin_here(regclass) FROM PUBLIC;

-- A publication that is created after a restore misses the rows that had been settled before.
CREATE FUNCTION postbox.park_settled(publication text, outbox regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE postbox.parking_statement((postbox.require_outbox(outbox)).parked, format($sql$
        %s e JOIN postbox.publication p ON p.name = $1 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
        WHERE e.origin = -2147483648
        $sql$, outbox)) USING publication;
END
$$;
COMMENT ON FUNCTION postbox.park_settled(text, regclass) IS
    'Gives a new publication the rows of other clusters that have been settled for those that were there: they become parked events that are due';

-- Lanes are merged at one moment, which the snapshot says: what a lane has not read of it by then becomes parked events, which
-- go first. False if that is more than `most`.
CREATE FUNCTION postbox.park_unread(publication text, hwm bigint, seen pg_snapshot, most int) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox;
    bounds record;
    seqs bigint[];
BEGIN
    SELECT o.* INTO registered FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox WHERE p.name = publication;
    -- A copied row has the seq of an event, and any later txid.
    SELECT min(CASE WHEN l.snapshot IS NULL THEN 0 ELSE l.hwm END) AS hwm, (array_agg(s.xmin ORDER BY s.xmin))[1] AS xmin, pg_snapshot_xmax(seen) AS next_xid
      INTO bounds
    FROM postbox.lane_progress l
    LEFT JOIN LATERAL (SELECT pg_snapshot_xmin(z) AS xmin FROM unnest(l.zone_snapshot || l.snapshot) z ORDER BY 1 LIMIT 1) s ON true
    WHERE l.publication = park_unread.publication AND l.origin = postbox.cluster_origin();
    seqs := postbox.foreign_unread(registered.relation, registered.relation, postbox.cluster_origin(), bounds.hwm, bounds.xmin, bounds.next_xid,
                                   most + 1, publication);
    IF cardinality(seqs) > most THEN
        RETURN false;
    END IF;
    EXECUTE postbox.parking_statement(registered.parked, format($sql$
        %s e JOIN postbox.publication p ON p.name = $1 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
        JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $2
         AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
        WHERE e.origin = $2 AND e.seq = ANY ($3) AND e.seq <= $4 AND pg_visible_in_snapshot(e.txid, $5)
          AND postbox.has_read(l, e.txid, e.seq) IS NOT TRUE
        $sql$, registered.relation)) USING publication, postbox.cluster_origin(), seqs, hwm, seen;
    RETURN true;
END
$$;
COMMENT ON FUNCTION postbox.park_unread(text, bigint, pg_snapshot, int) IS
    'Makes parked events, which are due, of up to `most` events that a publication has not read and that were visible to a snapshot; false if there are more';

-- What nobody knows, a superuser has to say.
CREATE FUNCTION postbox.decide_unknown(outbox regclass, published boolean) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.decide_unknown(regclass, boolean) IS
    'Says whether rows of other clusters that came without the positions of their lanes were published there. If not, they are published now';
REVOKE EXECUTE ON FUNCTION postbox.decide_unknown(regclass, boolean) FROM PUBLIC;

CREATE OR REPLACE FUNCTION postbox.rebase_outbox(outbox regclass) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.rebase_outbox(regclass) IS
    'After a restore into another cluster: makes the lanes begin with the rows of this one, and settles some rows of other clusters that were not published '
    'there. Returns how many. Workers call it when they need it';

DROP FUNCTION postbox.log_backlog(regclass, regclass, text);
-- Of another cluster, and not settled yet.
CREATE FUNCTION postbox.foreign_backlog(outbox regclass, publication text, OUT unread bigint, OUT oldest timestamptz)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    cluster record;
BEGIN
    unread := 0;
    FOR cluster IN SELECT f.* FROM postbox.foreign_origins(outbox, outbox) f WHERE f.known LOOP
        EXECUTE format($sql$
            SELECT $1 + count(*), least($2, min(e.occurred_at) FILTER (WHERE isfinite(e.occurred_at)))
            FROM %1$s e JOIN postbox.publication p ON p.name = $3 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))
            JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = $4
             AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
            WHERE e.origin = $4 AND e.seq = ANY ($5) AND postbox.has_read(l, e.txid, e.seq) IS NOT TRUE
            $sql$, outbox) INTO unread, oldest
            USING unread, oldest, publication, cluster.origin,
                  postbox.foreign_unread(outbox, outbox, cluster.origin, cluster.hwm, cluster.xmin, cluster.next_xid, 100000);
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.foreign_backlog(regclass, text) IS
    'Events of other clusters in a log outbox that a publication has not published: how many, 100000 of each at most, and when the oldest occurred';

-- In C, because it is asked for often, and its statements are kept (extension/outbox/backlog.cc). Whoever may INSERT can write
-- any seq; what is misplaced has one that no worker reads.
CREATE FUNCTION postbox.count_backlog(publication text, OUT ready bigint, OUT parked bigint,
    OUT oldest_ready timestamptz, OUT oldest_parked timestamptz, OUT misplaced bigint, OUT has_foreign boolean)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.count_backlog(text) IS
    'The backlog of a publication with the rights of the current user: events that wait, up to 1000 exactly and beyond that estimated; parked ones, up to '
    '10000 exactly; when the oldest of both occurred; how many wait because of their seq; and whether there may be events of other clusters. '
    'The cost does not grow with the backlog';

CREATE FUNCTION postbox.log_sequence(outbox regclass) RETURNS regclass
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.log_sequence(regclass) IS
    'The sequence of a log outbox, whatever the column that owns it is called now; NULL if there is none';

-- What operators may do.
CREATE FUNCTION postbox.redrive_events(outbox regclass, event_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    redriven bigint;
BEGIN
    IF registered.kind = 'log' THEN
        RETURN postbox.redrive_parked(outbox, event_id);
    END IF;
    -- The events that wait behind one of these follow when it is published.
    EXECUTE format($sql$
        UPDATE %s SET next_retry_at = now(), publish_attempts = 0, lock_token = NULL, locked_at = NULL
        WHERE published_at IS NULL AND (lock_token IS NULL OR next_retry_at = 'infinity') AND (publish_attempts > 0 OR next_retry_at <> 'infinity' AND next_retry_at > now())
          AND next_retry_at IS NOT NULL %s
        $sql$, outbox, CASE WHEN event_id IS NOT NULL THEN format('AND %s = $1', postbox.outbox_column(registered, 'id')) END)
        USING event_id;
    GET DIAGNOSTICS redriven = ROW_COUNT;
    IF redriven > 0 THEN
        PERFORM postbox.wake_publishers();
    END IF;
    RETURN redriven;
END
$$;
COMMENT ON FUNCTION postbox.redrive_events(regclass, uuid) IS 'postbox.redrive with the rights of the current user';

CREATE OR REPLACE FUNCTION postbox.redrive(outbox regclass, event_id uuid DEFAULT NULL) RETURNS bigint
    LANGUAGE C AS 'MODULE_PATHNAME';
CREATE FUNCTION postbox.discard_event(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    id_column text := postbox.outbox_column(registered, 'id');
    key_column text := postbox.outbox_column(registered, 'aggregate_id');
    key text;
    holder text;
BEGIN
    IF event_id IS NULL THEN
        RAISE null_value_not_allowed USING
            MESSAGE = 'event_id may not be null',
            HINT = 'postbox.paused_keys shows the event that stops a key.';
    END IF;
    IF registered.kind = 'log' THEN
        RETURN postbox.discard_parked(outbox, event_id);
    END IF;
    EXECUTE format('SELECT %s, CASE WHEN next_retry_at IS NULL OR next_retry_at < ''infinity'' THEN lock_token END FROM %s WHERE %s = $1 AND published_at IS NULL FOR UPDATE', key_column, outbox, id_column)
        INTO key, holder USING event_id;
    IF key IS NULL THEN
        RETURN false;
    END IF;
    IF holder IS NOT NULL THEN
        RAISE object_in_use USING
            MESSAGE = format('event %s is being published', event_id),
            HINT = 'Try again when the attempt is over.';
    END IF;
    EXECUTE format($sql$UPDATE %s SET published_at = '-infinity', next_retry_at = NULL, lock_token = NULL, locked_at = NULL WHERE %s = $1$sql$, outbox, id_column)
        USING event_id;
    -- In a statement of its own, which sees what a worker has parked behind the event before it was locked here. The next
    -- event of the key is due now, and those behind it follow.
    EXECUTE format($sql$
        UPDATE %1$s SET next_retry_at = now(), lock_token = NULL, locked_at = NULL
        WHERE ctid = ANY (ARRAY(
            SELECT h.tid FROM postbox.publication p CROSS JOIN LATERAL (
                SELECT e.ctid AS tid FROM %1$s e
                WHERE %2$s = $1 AND e.published_at IS NULL AND (p.aggregate_types IS NULL OR %3$s = ANY (p.aggregate_types))
                ORDER BY %2$s, e.seq LIMIT 1) h
            WHERE p.outbox = $2))
          AND published_at IS NULL AND next_retry_at = 'infinity' AND publish_attempts = 0
        $sql$, outbox, postbox.outbox_column(registered, 'aggregate_id', 'e.'), postbox.outbox_column(registered, 'aggregate_type', 'e.'))
        USING key, outbox;
    PERFORM postbox.wake_publishers();
    RETURN true;
END
$$;
COMMENT ON FUNCTION postbox.discard_event(regclass, uuid) IS 'postbox.discard with the rights of the current user';

CREATE OR REPLACE FUNCTION postbox.discard(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE C AS 'MODULE_PATHNAME';
-- What belongs to a user is read by functions of this kind: outbox_paused_keys runs as the owner of the outbox, and
-- show_paused_keys calls it so, in a security-restricted operation. A look at the status never runs code of an outbox's
-- owner with the rights of the one who looks.
CREATE FUNCTION postbox.outbox_paused_keys(outbox regclass)
    RETURNS TABLE (aggregate_id text, first_event_id uuid, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    code text := postbox.code_of_users(coalesce(registered.parked, registered.relation));
BEGIN
    IF code IS NOT NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the paused keys of outbox %s are not read', outbox),
            DETAIL = code,
            HINT = 'Reading them might run code of its owner, and take forever. The owner can read the table itself.';
    END IF;
    IF registered.parked IS NOT NULL THEN
        RETURN QUERY EXECUTE format($sql$
            SELECT e.aggregate_id, e.id, e.event_type, e.publish_attempts, e.next_retry_at, e.last_error,
                   (SELECT count(*) FROM %1$s later WHERE later.publication = e.publication
                    AND later.aggregate_id = e.aggregate_id AND later.seq > e.seq)
            FROM %1$s e
            WHERE (e.publish_attempts > 0 OR e.last_error IS NOT NULL)  -- not one that a restore has put there
              AND NOT EXISTS (SELECT FROM %1$s earlier WHERE earlier.publication = e.publication
                              AND earlier.aggregate_id = e.aggregate_id AND earlier.seq < e.seq)
            ORDER BY e.seq
            $sql$, registered.parked);
        RETURN;
    END IF;
    RETURN QUERY EXECUTE format($sql$
        SELECT %2$s, %3$s, %4$s, e.publish_attempts, e.next_retry_at, e.last_error,
               (SELECT count(*) FROM %1$s later
                WHERE %5$s = %2$s AND later.published_at IS NULL AND later.seq > e.seq)
        FROM %1$s e
        WHERE e.published_at IS NULL AND (e.lock_token IS NULL OR e.next_retry_at = 'infinity') AND e.next_retry_at IS NOT NULL
          AND (e.publish_attempts > 0 OR e.last_error IS NOT NULL AND e.next_retry_at > now())
          AND NOT EXISTS (SELECT FROM %1$s earlier
                          WHERE %6$s = %2$s AND earlier.published_at IS NULL AND earlier.seq < e.seq)
        ORDER BY e.seq
        $sql$, registered.relation, postbox.outbox_column(registered, 'aggregate_id', 'e.'),
        postbox.outbox_column(registered, 'id', 'e.'), postbox.outbox_column(registered, 'event_type', 'e.'),
        postbox.outbox_column(registered, 'aggregate_id', 'later.'), postbox.outbox_column(registered, 'aggregate_id', 'earlier.'));
END
$$;
COMMENT ON FUNCTION postbox.outbox_paused_keys(regclass) IS 'The paused keys of one outbox, read with the rights of the current user';

CREATE FUNCTION postbox.show_paused_keys(outbox regclass)
    RETURNS TABLE (aggregate_id text, first_event_id uuid, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint)
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_paused_keys(regclass) IS
    'postbox.outbox_paused_keys, run as the owner of the outbox; no rows if the caller may not see its events';

CREATE OR REPLACE FUNCTION postbox.list_paused_keys()
    RETURNS TABLE (outbox regclass, aggregate_id text, first_event_id uuid, event_type text, attempts int,
                   next_retry_at timestamptz, last_error text, waiting bigint)
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered regclass;
    reason text;
BEGIN
    FOR registered IN SELECT o.relation FROM postbox.outbox o ORDER BY o.relation LOOP
        -- What the owner of one outbox has made of it hides no other.
        BEGIN
            RETURN QUERY SELECT registered, k.* FROM postbox.show_paused_keys(registered) k;
        EXCEPTION
            WHEN lock_not_available THEN
                RAISE WARNING USING
                    MESSAGE = format('could not read the paused keys of outbox %s', registered),
                    DETAIL = (SELECT postbox.lock_holders(o) FROM postbox.outbox o WHERE o.relation = registered);
            WHEN OTHERS THEN
                GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
                RAISE WARNING USING
                    MESSAGE = format('could not read the paused keys of outbox %s', registered),
                    DETAIL = concat_ws(': ', SQLERRM, nullif(reason, ''));
        END;
    END LOOP;
END
$$;
CREATE FUNCTION postbox.purge_events(outbox regclass, batch int) RETURNS bigint
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
        RETURN postbox.purge_log_outbox(outbox, batch);
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
-- Retention. The default of the column generation is a number from 0 to 5 that follows from the time at which the
-- transaction began: each is written to for a quarter of the retention, in turn. Each has a partition, made with the
-- outbox. The retention touches five generations at most, so one at least is past it, and its partition is emptied.
--   - Rule: TRUNCATE only under the lock of the partition, and only if under this lock every lane of every publication
--     has read all of its rows. Whoever has inserted into it holds its lock until his transaction ends, so no row can be
--     committed between the check and the TRUNCATE.
--   - What cannot be emptied in its turn (a row is unread, no publication reads the outbox, the partition is locked, no
--     worker runs) stays. New rows join it when its turn comes again, and it is emptied in a later one.
--   - So nothing has to be made ahead of time, and nothing depends on the ids of events.
--
-- Transaction ids mean nothing in another cluster, and rows of both meet in one log there: restored ones, and those emitted
-- since. The column origin says which cluster a row was written in; see extension/outbox/rebase.cc.
--
-- A log that version 0.1 has made (generation_span IS NULL) has no origin, and keeps its partitions: ranges of the time inside the UUIDv7 of
-- the event, which are dropped, and a default partition for all other ids, whose rows are deleted.


-- At least a minute: workers purge every postbox.maintenance_interval, and find each generation past the retention in its
-- turn. NULL counts as 4 days.
CREATE FUNCTION postbox.generation_span(retention interval) RETURNS interval
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT make_interval(secs => least(2000000000, greatest(60, ceil(extract(epoch FROM coalesce(retention, '4 days')) / 4)))::float8)
$$;
COMMENT ON FUNCTION postbox.generation_span(interval) IS 'How long a generation of a log outbox is written to: a quarter of the retention, at least a minute';

-- In C because each plain INSERT evaluates it, and outbox_emit sets up its evaluation for each event.
CREATE FUNCTION postbox.generation_of(moment timestamptz, span int) RETURNS smallint
    LANGUAGE C IMMUTABLE STRICT PARALLEL SAFE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.generation_of(timestamptz, int) IS
    'The generation of a moment, in a log outbox whose generations are written to for `span` seconds each';

CREATE FUNCTION postbox.generation_expression(span interval, moment text DEFAULT 'now()') RETURNS text
    LANGUAGE sql IMMUTABLE PARALLEL SAFE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT format('postbox.generation_of(%s, %s)', moment, extract(epoch FROM span)::int)
$$;
COMMENT ON FUNCTION postbox.generation_expression(interval, text) IS 'The SQL expression for the generation of a moment, for a log outbox with this span';

CREATE FUNCTION postbox.log_partitions(outbox regclass)
    RETURNS TABLE (part regclass, generation smallint, before uuid, since uuid)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT c.oid::regclass, (regexp_match(b.bound, 'IN [(]''([0-9]+)''[)]'))[1]::smallint,
           (regexp_match(b.bound, 'TO [(]''([-0-9a-f]+)''[)]'))[1]::uuid, (regexp_match(b.bound, 'FROM [(]''([-0-9a-f]+)''[)]'))[1]::uuid
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    CROSS JOIN LATERAL pg_get_expr(c.relpartbound, c.oid) AS b(bound)
    WHERE i.inhparent = outbox
$$;
COMMENT ON FUNCTION postbox.log_partitions(regclass) IS
    'The partitions of a log outbox: of a generation, or of the ids before this one and since that one; all NULL: the default partition of a log of 0.1';

COMMENT ON FUNCTION postbox.uuid_bound(timestamptz) IS 'The smallest UUIDv7 of a moment: the bound of a partition in a log outbox of 0.1';

COMMENT ON FUNCTION postbox.partition_span(interval) IS 'The time that one partition of a log outbox of 0.1 spans';

-- Names are no longer than 63 bytes. A name may be that of another table, or of a partition that was detached.
CREATE FUNCTION postbox.free_name(schema name, base text, suffix text) RETURNS name
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

-- PostgreSQL makes no partition for rows that are in the default partition. A range that has such rows is left to it.
CREATE FUNCTION postbox.make_range_partitions(registered postbox.outbox, ahead int) RETURNS int
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span interval := postbox.partition_span(registered.retention);
    seconds float8 := extract(epoch FROM span);
    first timestamptz := to_timestamp(floor(extract(epoch FROM now()) / seconds) * seconds);
    schema name;
    log name;
    rest regclass;
    part name;
    lower timestamptz;
    occupied boolean := false;
    added int := 0;
BEGIN
    SELECT n.nspname, c.relname INTO schema, log
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = registered.relation;
    SELECT p.part INTO rest FROM postbox.log_partitions(registered.relation) p WHERE p.before IS NULL;
    FOR i IN 0..ahead LOOP
        lower := first + i * span;
        -- By their bounds: their names are those of a log that may have been renamed or moved since.
        CONTINUE WHEN EXISTS (SELECT FROM postbox.log_partitions(registered.relation) p
                              WHERE p.since < postbox.uuid_bound(lower + span) AND p.before > postbox.uuid_bound(lower));
        -- Looked up in the index; CREATE TABLE would read the whole default partition while nobody can emit.
        IF rest IS NOT NULL THEN
            EXECUTE format('SELECT EXISTS (SELECT FROM %s WHERE id >= $1 AND id < $2)', rest)
                INTO occupied USING postbox.uuid_bound(lower), postbox.uuid_bound(lower + span);
        END IF;
        CONTINUE WHEN occupied;
        part := postbox.free_name(schema, log, to_char(lower AT TIME ZONE 'UTC', '_YYYYMMDDHH24MI'));
        BEGIN
            EXECUTE format('CREATE TABLE %I.%I PARTITION OF %I.%I FOR VALUES FROM (%L) TO (%L)',
                           schema, part, schema, log, postbox.uuid_bound(lower), postbox.uuid_bound(lower + span));
            added := added + 1;
        EXCEPTION WHEN check_violation THEN
            NULL;  -- committed since
        END;
    END LOOP;
    RETURN added;
END
$$;
COMMENT ON FUNCTION postbox.make_range_partitions(postbox.outbox, int) IS 'postbox.make_partitions for a log outbox of 0.1';

CREATE FUNCTION postbox.make_partitions(outbox regclass, ahead int) RETURNS int
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    schema name;
    log name;
    part name;
    added int := 0;
BEGIN
    IF registered.generation_span IS NULL THEN
        RETURN postbox.make_range_partitions(registered, ahead);
    END IF;
    SELECT n.nspname, c.relname INTO schema, log
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = outbox;
    FOR i IN 0..5 LOOP
        CONTINUE WHEN EXISTS (SELECT FROM postbox.log_partitions(outbox) p WHERE p.generation = i);
        -- Without it nobody could emit when its turn comes.
        part := postbox.free_name(schema, log, '_g' || i);
        EXECUTE format('CREATE TABLE %I.%I PARTITION OF %I.%I (PRIMARY KEY (id)) FOR VALUES IN (%s)', schema, part, schema, log, i);
        added := added + 1;
    END LOOP;
    RETURN added;
END
$$;
COMMENT ON FUNCTION postbox.make_partitions(regclass, int) IS 'postbox.add_partitions with the rights of the current user';

COMMENT ON FUNCTION postbox.add_partitions(regclass, int) IS
    'Adds the partitions of a log outbox that are missing; returns how many. In a log of 0.1: those for now and the next '
    '`ahead` spans of time. For its owner. Workers call it regularly';

-- Transaction ids of another cluster say nothing here: a lane that has yet to be re-based has read nothing.
CREATE FUNCTION postbox.read_by_all(outbox regclass, OUT floor bigint, OUT hwm bigint, OUT xmin xid8)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT min(l.floor), min(l.hwm), (array_agg(pg_snapshot_xmin(l.snapshot) ORDER BY pg_snapshot_xmin(l.snapshot)))[1]
    FROM postbox.publication p
    CROSS JOIN LATERAL generate_series(0, p.lanes - 1) AS s(slice)
    LEFT JOIN postbox.lane l ON l.publication = p.name AND l.slice = s.slice
    WHERE p.outbox = read_by_all.outbox
    HAVING bool_and(l.snapshot IS NOT NULL AND postbox.origin_of(l.system_identifier) = postbox.cluster_origin())
$$;
COMMENT ON FUNCTION postbox.read_by_all(regclass) IS
    'What all lanes of a log outbox have read of the rows of this cluster: those with seq up to floor, and those with seq up to hwm and txid below xmin. '
    'NULL if a lane has read nothing, or no publication reads the outbox';

-- No lane reads a row that has no seq, or one that the sequence never gives out. An event that cannot be published as it
-- is stays in the log when it is parked; see worker/publisher/log/parked_events.h.
CREATE OR REPLACE FUNCTION postbox.is_read(outbox regclass, part regclass) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parked regclass := (postbox.require_outbox(outbox)).parked;
    floor bigint;
    hwm bigint;
    xmin xid8;
    unread boolean;
BEGIN
    SELECT r.floor, r.hwm, r.xmin INTO floor, hwm, xmin FROM postbox.read_by_all(outbox) r;
    IF floor IS NULL THEN
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO unread;
        RETURN NOT unread;
    END IF;
    EXECUTE format($sql$
        SELECT coalesce((SELECT max(seq) FROM %1$s WHERE origin = $4) > greatest($1, $2), false)
            OR coalesce((SELECT txid FROM %1$s WHERE origin = $4 AND seq > $1 AND txid IS NOT NULL ORDER BY txid DESC, seq DESC LIMIT 1) >= $3, false)
        $sql$, part) INTO unread USING floor, hwm, xmin, postbox.cluster_origin();
    unread := unread OR postbox.has_unsettled(outbox, part) OR EXISTS (SELECT FROM postbox.foreign_origins(outbox, part) f WHERE NOT f.known);
    IF unread THEN
        RETURN false;
    END IF;
    EXECUTE format($sql$
        SELECT EXISTS (SELECT FROM %1$s WHERE origin = $1 AND seq IS NULL) OR EXISTS (SELECT FROM %1$s WHERE origin = $1 AND seq < 1)
            OR EXISTS (SELECT FROM %2$s p JOIN %1$s e ON e.seq = p.seq AND e.id = p.id WHERE jsonb_typeof(p.attributes) <> 'object')
        $sql$, part, parked) INTO unread USING postbox.cluster_origin();
    RETURN NOT unread;
END
$$;
COMMENT ON FUNCTION postbox.is_read(regclass, regclass) IS
    'Whether every lane of an outbox has read all rows of one of its partitions; no if no publication reads the outbox';

CREATE FUNCTION postbox.past_retention(registered postbox.outbox) RETURNS SETOF regclass
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    oldest timestamptz := clock_timestamp() - registered.retention;
    retained smallint[];
BEGIN
    IF registered.retention IS NULL THEN
        RETURN;
    END IF;
    IF registered.generation_span IS NOT NULL THEN
        EXECUTE format('SELECT array_agg(%s) FROM (SELECT generate_series($1, $2, $3) UNION ALL SELECT $2) AS t(moment)',
                       postbox.generation_expression(registered.generation_span, 'moment'))
            INTO retained USING oldest, clock_timestamp(), registered.generation_span;
    END IF;
    RETURN QUERY SELECT p.part FROM postbox.log_partitions(registered.relation) p
    WHERE p.generation <> ALL (retained) OR p.before <= postbox.uuid_bound(oldest) ORDER BY p.part;
END
$$;
COMMENT ON FUNCTION postbox.past_retention(postbox.outbox) IS 'The partitions of a log outbox whose events are older than the retention';

CREATE FUNCTION postbox.purge_partition(registered postbox.outbox, part regclass) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    filled boolean;
    reason text;
BEGIN
    -- One at a time: two that have looked at the partition and then want its lock would wait for each other.
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE NOWAIT', part);
    IF row_security_active(part) THEN
        RETURN false;  -- nobody knows what is in it; postbox.retention_problem says so
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO filled;
    IF registered.generation_span IS NOT NULL AND NOT filled OR NOT postbox.is_read(registered.relation, part) THEN
        RETURN false;
    END IF;
    -- The second look is taken with a snapshot of its own, after the lock.
    IF registered.generation_span IS NULL THEN
        EXECUTE format('LOCK TABLE ONLY %s, ONLY %s IN ACCESS EXCLUSIVE MODE', registered.relation, part);
    ELSE
        EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', part);
    END IF;
    IF NOT postbox.is_read(registered.relation, part) THEN
        RAISE lock_not_available;  -- gives the lock back
    END IF;
    EXECUTE format(CASE WHEN registered.generation_span IS NULL THEN 'DROP TABLE %s' ELSE 'TRUNCATE TABLE ONLY %s' END, part);
    RETURN true;
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RETURN false;
    WHEN OTHERS THEN
        -- What the owner has made of one partition does not keep the others.
        GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
        RAISE WARNING USING
            MESSAGE = format('could not empty partition %s of outbox %s', part, registered.relation),
            DETAIL = concat_ws(': ', SQLERRM, nullif(reason, ''));
        RETURN false;
END
$$;
COMMENT ON FUNCTION postbox.purge_partition(postbox.outbox, regclass) IS
    'Empties a partition of a log outbox, or drops it in a log of 0.1, if every lane has read all of it. No if it is locked, or cannot be emptied';

-- One statement: the rows and the positions of the lanes are of one snapshot.
CREATE FUNCTION postbox.purge_default_partition(registered postbox.outbox, batch int) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    rest regclass;
    purged bigint;
BEGIN
    SELECT p.part INTO rest FROM postbox.log_partitions(registered.relation) p WHERE p.generation IS NULL AND p.before IS NULL;
    IF rest IS NULL OR row_security_active(rest) THEN
        RETURN 0;
    END IF;
    EXECUTE format($sql$
        DELETE FROM %1$s WHERE ctid = ANY (ARRAY(
            SELECT e.ctid FROM %1$s e CROSS JOIN postbox.read_by_all($3) r
            WHERE e.occurred_at < $1 AND e.seq > 0 AND CASE e.origin
                WHEN postbox.cluster_origin() THEN e.seq <= r.floor OR e.seq <= r.hwm AND e.txid < r.xmin
                WHEN -2147483648 THEN true
                ELSE (SELECT count(*) > 0 AND bool_and(postbox.has_read(l, e.txid, e.seq)) FROM postbox.publication p
                      LEFT JOIN postbox.lane_progress l ON l.publication = p.name AND l.origin = e.origin
                       AND l.slice = coalesce(postbox.lane_slice(e.aggregate_id, p.lanes), 0)
                      WHERE p.outbox = $3 AND (p.aggregate_types IS NULL OR e.aggregate_type = ANY (p.aggregate_types))) END
              AND NOT EXISTS (SELECT FROM %2$s p WHERE p.seq = e.seq AND p.id = e.id AND jsonb_typeof(p.attributes) <> 'object')
            LIMIT $2))
        $sql$, rest, registered.parked) USING now() - registered.retention, batch, registered.relation;
    GET DIAGNOSTICS purged = ROW_COUNT;
    RETURN purged;
END
$$;
COMMENT ON FUNCTION postbox.purge_default_partition(postbox.outbox, int) IS
    'Deletes up to `batch` events of the default partition of a log outbox of 0.1 that are older than the retention and that '
    'every lane has read';

CREATE OR REPLACE FUNCTION postbox.purge_log_outbox(outbox regclass, batch int) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '200ms'
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
BEGIN
    IF current_setting('transaction_isolation') NOT LIKE 'read %committed' THEN
        RAISE invalid_transaction_state USING
            MESSAGE = 'purge_outbox needs isolation level READ COMMITTED for a log outbox',
            DETAIL = 'An older snapshot does not show events that were committed since.';
    END IF;
    -- A lock that cannot be had within lock_timeout is left for the next call, here and below.
    BEGIN
        PERFORM postbox.add_partitions(outbox);
    EXCEPTION WHEN lock_not_available THEN
        NULL;
    END;
    IF registered.retention IS NULL OR row_security_active(registered.parked) THEN
        RETURN 0;
    END IF;
    BEGIN
        PERFORM postbox.purge_partition(registered, part) FROM postbox.past_retention(registered) AS part;
        RETURN postbox.purge_default_partition(registered, batch);
    EXCEPTION WHEN lock_not_available THEN
        RETURN 0;  -- the bounds of a partition are not shown while somebody empties it
    END;
END
$$;
COMMENT ON FUNCTION postbox.purge_log_outbox(regclass, int) IS
    'postbox.purge_outbox for a log outbox: empties the partitions whose events are older than the retention and that every '
    'lane has read. In a log of 0.1, drops them, and deletes up to `batch` such rows of the default partition. Skips '
    'partitions that are locked';

CREATE FUNCTION postbox.retention_problem(outbox regclass) RETURNS text
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    registered postbox.outbox := postbox.require_outbox(outbox);
    published boolean := EXISTS (SELECT FROM postbox.publication p WHERE p.outbox = retention_problem.outbox);
    part regclass;
    kept boolean;
    reason text;
BEGIN
    IF registered.kind <> 'log' THEN
        RETURN NULL;
    END IF;
    IF published AND EXISTS (SELECT FROM postbox.foreign_origins(outbox, outbox) f WHERE NOT f.known) THEN
        RETURN coalesce(postbox.replicated_problem(outbox), format('events of another cluster are kept: the positions of its lanes are not known, so nobody knows whether they were published; '
                      'restore postbox.lane, or run SELECT postbox.decide_unknown(''%s'', true) if they were, false if not', outbox));
    END IF;
    IF registered.retention IS NULL THEN
        RETURN NULL;
    END IF;
    SELECT format('events older than the retention are kept: row security is forced on the owner of %1$s; use ALTER TABLE %1$s NO FORCE ROW LEVEL SECURITY', r.relation)
        INTO reason
    FROM (SELECT registered.parked UNION ALL SELECT p.part FROM postbox.log_partitions(outbox) p) AS r(relation)
    WHERE row_security_active(r.relation)
    ORDER BY r.relation::text LIMIT 1;
    IF FOUND THEN
        RETURN reason;
    END IF;
    SELECT format('events older than the retention are kept: %s cannot be emptied, because foreign key %s of %s references it; drop the foreign key',
                  c.confrelid::regclass, quote_ident(c.conname), c.conrelid::regclass)
        INTO reason
    FROM pg_constraint c
    WHERE c.contype = 'f' AND c.confrelid IN (SELECT outbox UNION ALL SELECT p.part FROM postbox.log_partitions(outbox) p)
    ORDER BY c.confrelid::regclass::text, c.conname LIMIT 1;
    IF FOUND THEN
        RETURN reason;
    END IF;
    FOR part IN SELECT postbox.past_retention(registered) LOOP
        EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO kept;
        kept := kept AND NOT postbox.is_read(outbox, part);
        EXIT WHEN kept;
    END LOOP;
    IF kept IS NOT TRUE AND NOT published THEN
        SELECT p.part INTO part FROM postbox.log_partitions(outbox) p WHERE p.generation IS NULL AND p.before IS NULL;
        IF FOUND THEN
            EXECUTE format('SELECT occurred_at < $1 FROM %s ORDER BY seq LIMIT 1', part)
                INTO kept USING now() - registered.retention;
        END IF;
    END IF;
    RETURN CASE
        WHEN kept IS NOT TRUE THEN NULL
        WHEN published THEN 'events older than the retention are kept: not every publication has read all of them, or one that '
                            'cannot be published has been altered or is parked; see postbox.publication_status and postbox.paused_keys'
        ELSE 'events older than the retention are kept: no publication reads this outbox'
    END;
END
$$;
COMMENT ON FUNCTION postbox.retention_problem(regclass) IS
    'Why a log outbox keeps events that are older than its retention, or events of another cluster, judged with the rights of the current user; NULL if it does not';

CREATE FUNCTION postbox.show_retention_problem(outbox regclass) RETURNS text
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_retention_problem(regclass) IS
    'postbox.retention_problem, run as the owner of the outbox; NULL if the caller may not see its events';

CREATE FUNCTION postbox.list_outbox_status()
    RETURNS TABLE (outbox regclass, kind text, retention interval, publications bigint, problem text)
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    registered postbox.outbox;
    code text;
BEGIN
    FOR registered IN SELECT o.* FROM postbox.outbox o ORDER BY o.relation LOOP
        outbox := registered.relation;
        kind := registered.kind;
        retention := registered.retention;
        SELECT count(*) INTO publications FROM postbox.publication p WHERE p.outbox = registered.relation;
        problem := coalesce(postbox.outbox_problem(registered), postbox.unlogged_problem(registered.relation, registered.parked, registered.counter));
        code := CASE WHEN kind = 'log' THEN postbox.code_of_users(outbox, registered.parked) END;
        IF problem IS NULL AND code IS NOT NULL THEN
            problem := 'whether it keeps events that are older than the retention is not looked at: ' || code;
        ELSIF problem IS NULL THEN
            -- What the owner of one outbox has made of it hides no other, and holds up nobody.
            BEGIN
                problem := postbox.show_retention_problem(outbox);
            EXCEPTION
                WHEN lock_not_available THEN
                    problem := format('the outbox cannot be read: %s', postbox.lock_holders(registered));
                WHEN OTHERS THEN
                    problem := format('the outbox cannot be read: %s', SQLERRM);
            END;
        END IF;
        RETURN NEXT;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.list_outbox_status() IS 'The rows of postbox.outbox_status';

CREATE VIEW postbox.outbox_status AS SELECT * FROM postbox.list_outbox_status();
COMMENT ON VIEW postbox.outbox_status IS
    'Each outbox: how many publications read it, and what is wrong with it. postbox_operator and pg_monitor see that of all outboxes';
COMMENT ON COLUMN postbox.outbox_status.problem IS
    'What is wrong with the tables of the outbox, or why it keeps events that are older than the retention; NULL if nothing is, or '
    'if the caller may not read the outbox';
GRANT SELECT ON postbox.outbox_status TO PUBLIC;

CREATE OR REPLACE FUNCTION postbox.add_partitions(outbox regclass, ahead int DEFAULT 2) RETURNS int
    LANGUAGE C AS 'MODULE_PATHNAME';

GRANT EXECUTE ON FUNCTION postbox.list_workers() TO postbox_operator;
GRANT SELECT ON postbox.workers TO postbox_operator;
ALTER POLICY owner_of_the_inbox ON postbox.dead_letter USING (postbox.owns_inbox(inbox) OR (SELECT postbox.is_operator()));
REVOKE EXECUTE ON FUNCTION postbox.forget_dropped() FROM PUBLIC;

-- What operators do about parked events of a log.
CREATE OR REPLACE FUNCTION postbox.redrive_parked(outbox regclass, event_id uuid) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    redriven bigint;
BEGIN
    EXECUTE format('UPDATE %s SET next_retry_at = now(), publish_attempts = 0 WHERE (publish_attempts > 0 '
                   'OR next_retry_at <> ''infinity'' AND next_retry_at > now()) %s',
                   (postbox.require_outbox(outbox)).parked,
                   CASE WHEN event_id IS NOT NULL THEN
                       'AND publication = ANY (ARRAY(SELECT p.name FROM postbox.publication p WHERE p.outbox = $2)) AND id = $1' END)
        USING event_id, outbox;
    GET DIAGNOSTICS redriven = ROW_COUNT;
    IF redriven > 0 THEN
        PERFORM postbox.wake_publishers();
    END IF;
    RETURN redriven;
END
$$;

CREATE OR REPLACE FUNCTION postbox.discard_parked(outbox regclass, event_id uuid) RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    parked regclass := (postbox.require_outbox(outbox)).parked;
    publications text[];
    keys text[];
BEGIN
    EXECUTE format($sql$
        WITH discarded AS (
            DELETE FROM %s WHERE publication = ANY (ARRAY(SELECT p.name FROM postbox.publication p WHERE p.outbox = $2)) AND id = $1
            RETURNING publication, aggregate_id)
        SELECT array_agg(publication), array_agg(aggregate_id) FROM discarded
        $sql$, parked) INTO publications, keys USING event_id, outbox;
    IF keys IS NULL THEN
        RETURN false;
    END IF;
    -- In a statement of its own, which sees what a worker has parked behind the event before it was deleted here. The next
    -- event of the key is due now, and those behind it follow.
    EXECUTE format($sql$
        UPDATE %1$s SET next_retry_at = now()
        WHERE ctid = ANY (ARRAY(
            SELECT h.tid FROM unnest($1, $2) AS k(publication, key) CROSS JOIN LATERAL (
                SELECT e.ctid AS tid FROM %1$s e WHERE e.publication = k.publication AND e.aggregate_id = k.key
                ORDER BY e.publication, e.aggregate_id, e.seq LIMIT 1) h))
          AND next_retry_at = 'infinity' AND publish_attempts = 0
        $sql$, parked) USING publications, keys;
    PERFORM postbox.wake_publishers();
    RETURN true;
END
$$;

-- Workers find what is due by these indexes, and a lease changes none of them. An outbox that was made with the new files and the old
-- script has them already. What the owner of one outbox has made of its tables keeps nobody else from the update: a name may be taken.
-- (Leases of 0.1 are left to the workers: no code of an owner runs here.)
CREATE FUNCTION postbox.add_index(relation regclass, base text, suffix text, columns text, predicate text) RETURNS void
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    PERFORM FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am m ON m.oid = c.relam
    WHERE i.indrelid = relation AND i.indisvalid AND i.indnkeyatts = i.indnatts AND m.amname = 'btree' AND 0 = ALL (i.indoption)
        AND columns = (SELECT string_agg(pg_get_indexdef(i.indexrelid, n, true), ', ' ORDER BY n) FROM generate_series(1, i.indnatts) n)
        AND coalesce(pg_get_expr(i.indpred, i.indrelid, true), '') = predicate;
    IF NOT FOUND THEN
        EXECUTE format('CREATE INDEX %I ON %s (%s)', postbox.free_name((SELECT n.nspname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation), base, suffix),
            relation, columns) || coalesce(' WHERE ' || nullif(predicate, ''), '');
    END IF;
END
$$;
DO $$
DECLARE
    outbox record;
    old record;
BEGIN
    FOR outbox IN SELECT o.relation, o.kind, o.parked, o.adopted, c.relname AS name FROM postbox.outbox o JOIN pg_class c ON c.oid = o.relation
    LOOP
        BEGIN
            IF outbox.kind = 'log' THEN
                PERFORM postbox.add_index(outbox.parked, outbox.name, '_parked_due', 'publication, next_retry_at, publish_attempts, seq', '');
                CONTINUE;
            END IF;
            FOR old IN
                SELECT i.indexrelid::regclass AS index FROM pg_index i WHERE i.indrelid = outbox.relation AND pg_get_expr(i.indpred, i.indrelid) IN (
                    '((published_at IS NULL) AND (lock_token IS NULL) AND (next_retry_at IS NULL))',
                    '((published_at IS NULL) AND (lock_token IS NULL) AND (next_retry_at IS NOT NULL))', '(lock_token IS NOT NULL)')
                    AND pg_get_indexdef(i.indexrelid, 1, true) IN ('seq', 'next_retry_at', 'locked_at') AND i.indnatts = 1
            LOOP
                EXECUTE format('DROP INDEX %s', old.index);
            END LOOP;
            PERFORM postbox.add_index(outbox.relation, outbox.name, '_claim', 'seq', 'published_at IS NULL AND next_retry_at IS NULL'),
                postbox.add_index(outbox.relation, outbox.name, '_retry', 'next_retry_at', 'published_at IS NULL AND next_retry_at IS NOT NULL');
            IF NOT outbox.adopted THEN
                EXECUTE format('ALTER TABLE %s SET (fillfactor = 50)', outbox.relation);
            END IF;
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING USING
                MESSAGE = format('outbox %s is not complete', outbox.relation), DETAIL = SQLERRM,
                HINT = format('Run SELECT * FROM postbox.repair_outbox(%L, dry_run => false).', outbox.relation);
        END;
    END LOOP;
END $$;
DROP FUNCTION postbox.add_index(regclass, text, text, text, text);

-- A projection whose target is dropped stays, as broken.
ALTER TABLE postbox.projection ADD COLUMN dropped_target text, ADD COLUMN aggregate_types text[] NOT NULL DEFAULT '{}';
COMMENT ON COLUMN postbox.projection.aggregate_types IS
    'The first two aggregate types of which events were applied. In a target that has had several, an event that looks stale fails instead: versions of two '
    'aggregates cannot be compared';
COMMENT ON COLUMN postbox.projection.dropped_target IS 'The target''s name if its table has been dropped: the projection is broken, and its events are not applied';

-- What a projection writes is what its target must keep.
ALTER TABLE postbox.projection ADD COLUMN writes text[];
COMMENT ON COLUMN postbox.projection.writes IS 'The columns that it wrote when it was made: a target that lacks one of them is broken';

CREATE FUNCTION postbox.projection_writes(target regclass, columns jsonb, key text[], version_column name) RETURNS text[]
    LANGUAGE sql STABLE SET search_path = pg_catalog, pg_temp
    AS $$
        SELECT array_agg(DISTINCT w.name ORDER BY w.name) FROM (
            SELECT unnest(key || version_column::text)
            UNION ALL
            SELECT jsonb_object_keys(columns)
            UNION ALL
            SELECT a.attname::text FROM pg_attribute a
            WHERE columns IS NULL AND a.attrelid = target AND a.attnum > 0 AND NOT a.attisdropped
              AND a.attgenerated = '' AND a.attidentity <> 'a') w(name)
        HAVING EXISTS (SELECT FROM pg_class c WHERE c.oid = target)
    $$;
COMMENT ON FUNCTION postbox.projection_writes(regclass, jsonb, text[], name) IS
    'The columns that a projection with these arguments writes now; NULL if its target is gone';

CREATE FUNCTION postbox.note_writes() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    NEW.writes := postbox.projection_writes(NEW.target, NEW.columns, NEW.key, NEW.version_column);
    RETURN NEW;
END $$;
COMMENT ON FUNCTION postbox.note_writes() IS
    'Trigger: notes what a projection writes that comes from a dump of 0.1';

CREATE TRIGGER noted BEFORE INSERT ON postbox.projection
    FOR EACH ROW WHEN (NEW.writes IS NULL) EXECUTE FUNCTION postbox.note_writes();
ALTER TABLE postbox.projection ENABLE ALWAYS TRIGGER noted;
UPDATE postbox.projection SET writes = postbox.projection_writes(target, columns, key, version_column);

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

CREATE FUNCTION postbox.forget_missing_fields() RETURNS trigger
    LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
    AS $$
BEGIN
    DELETE FROM postbox.missing_field m WHERE NOT EXISTS (SELECT FROM postbox.projection p WHERE p.id = m.projection);
    RETURN NULL;
END $$;
COMMENT ON FUNCTION postbox.forget_missing_fields() IS 'Trigger: removes what was noticed of projections that are dropped';
CREATE TRIGGER forgotten AFTER DELETE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.forget_missing_fields();
CREATE TRIGGER forgotten_all AFTER TRUNCATE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.forget_missing_fields();

CREATE FUNCTION postbox.projection_problem(id bigint) RETURNS text
    AS 'MODULE_PATHNAME', 'projection_problem' LANGUAGE C STABLE STRICT;
COMMENT ON FUNCTION postbox.projection_problem(bigint) IS
    'Why a projection cannot write its target, with the repair; NULL if it can, or if the target is locked';

CREATE FUNCTION postbox.handler_problem(id bigint) RETURNS text
    LANGUAGE sql STABLE STRICT SET search_path = pg_catalog, pg_temp
    -- postbox.handler.function has the form that format() makes here, since create_handler has written it so. Which names
    -- are quoted depends on quote_all_identifiers.
    AS $$
        SELECT format('function %s does not exist, or does not return void. Create it again, or remove the handler with postbox.drop_handler(%s).', h.function, h.id)
        FROM postbox.handler h
        WHERE h.id = handler_problem.id AND NOT EXISTS (
            SELECT FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace
            WHERE p.proargtypes = array_to_string(ARRAY['postbox.event'::regtype::oid], ' ')::oidvector
              AND p.prorettype = 'void'::regtype AND NOT p.proretset AND p.prokind = 'f'
              AND replace(format('%I.%I(postbox.event)', n.nspname, p.proname), '"', '') = replace(h.function, '"', ''))
    $$;
COMMENT ON FUNCTION postbox.handler_problem(bigint) IS 'Why a handler cannot be called, with the repair; NULL if it can';

CREATE FUNCTION postbox.unlogged_problem(VARIADIC tables regclass[]) RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.unlogged_problem(regclass[]) IS
    'Which of these tables and their partitions are UNLOGGED, and the repair; NULL if none is';

CREATE VIEW postbox.inbox_problem AS
    SELECT p.inbox, 'projection' AS kind, p.id, p.event_types || p.delete_types AS event_types, w.problem
    FROM postbox.projection p, LATERAL (SELECT postbox.projection_problem(p.id) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT h.inbox, 'handler', h.id, h.event_types, w.problem
    FROM postbox.handler h, LATERAL (SELECT postbox.handler_problem(h.id) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT i.relation, 'inbox', NULL, NULL, w.problem
    FROM postbox.inbox i, LATERAL (SELECT postbox.parts_problem(i.relation) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT i.relation, 'inbox', NULL, NULL, w.problem
    FROM postbox.inbox i, LATERAL (SELECT postbox.unlogged_problem(i.relation, i.tombstone) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT p.inbox, 'projection', p.id, p.event_types || p.delete_types, w.problem
    FROM postbox.projection p, LATERAL (SELECT postbox.unlogged_problem(p.target) AS problem) w
    WHERE w.problem IS NOT NULL
    UNION ALL
    SELECT p.inbox, 'field', p.id, m.event_types,
        format('field "%s", which column %I of %s takes, was in none of the last 100 events of type %s.', m.field, m.column_name, p.target,
               array_to_string(m.event_types, ', '))
            || coalesce(' The events have a field "' || m.similar_field || '".', '')
            || format(' If the name is wrong, remove the projection with postbox.drop_projection(%s) and create it again with the right one in columns.', p.id)
    FROM postbox.missing_field m JOIN postbox.projection p ON p.id = m.projection;
COMMENT ON VIEW postbox.inbox_problem IS
    'Projections and handlers that are broken, whose events are not applied until they are repaired or dropped; inboxes that are, to which nothing is '
    'applied; inboxes whose tables a crash would empty, so that events take effect again; projections whose targets a crash would empty; and, of kind '
    'field, fields that no event has';

GRANT SELECT ON postbox.inbox_problem TO PUBLIC;

CREATE OR REPLACE FUNCTION postbox.forget_dropped() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    dropped oid[];
    orphans regclass[];
    orphan regclass;
BEGIN
    SELECT array_agg(d.objid) INTO dropped FROM pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0;
    IF dropped IS NULL THEN
        RETURN;
    END IF;
    -- The counter of an outbox and the tombstones of an inbox are of no use without it. Most DROPs are of something else.
    IF EXISTS (SELECT FROM postbox.outbox o WHERE o.relation = ANY (dropped) UNION ALL SELECT FROM postbox.inbox i WHERE i.relation = ANY (dropped)) THEN
        orphans := ARRAY(SELECT p.part FROM postbox.parts_of(dropped) p);
        DELETE FROM postbox.outbox o WHERE o.relation = ANY (dropped);
        DELETE FROM postbox.inbox i WHERE i.relation = ANY (dropped);
    END IF;
    FOREACH orphan IN ARRAY coalesce(orphans, '{}') LOOP
        BEGIN
            EXECUTE format('DROP TABLE %s', orphan);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            -- Nobody's DROP fails because of an object that was put upon the table of another.
            RAISE NOTICE USING
                MESSAGE = format('table %s is left behind, since other objects depend on it', orphan),
                HINT = 'Its owner can drop it with DROP TABLE ... CASCADE.';
        END;
    END LOOP;
    -- A projection whose target is gone stays, as broken. The number of the table may be another one's after a restore.
    UPDATE postbox.projection p SET target = 0, dropped_target = d.object_identity
    FROM pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 AND p.target = d.objid;
END
$$;
COMMENT ON FUNCTION postbox.forget_dropped() IS 'Event trigger: removes the registration of dropped outboxes and inboxes, and notes dropped targets of projections';
ALTER TABLE postbox.outbox ENABLE ALWAYS TRIGGER deleted;
ALTER TABLE postbox.publication ENABLE ALWAYS TRIGGER deleted;
ALTER TABLE postbox.inbox ENABLE ALWAYS TRIGGER deleted;
ALTER EVENT TRIGGER postbox_forget_dropped ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER postbox_forget_dropped IS 'Removes the registration of dropped outboxes and inboxes, and notes dropped targets of projections';

-- What cannot be stored as text is stored as bytes.
REVOKE DELETE ON postbox.dead_letter FROM PUBLIC;
CREATE FUNCTION postbox.discard_dead_letter(id bigint) RETURNS boolean
    AS 'MODULE_PATHNAME', 'discard_dead_letter' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letter(bigint) IS
    'Deletes a dead letter that the caller may see; false if there is none';
CREATE FUNCTION postbox.discard_dead_letters(inbox regclass DEFAULT NULL, aggregate_type text DEFAULT NULL, aggregate_id text DEFAULT NULL,
        event_type text DEFAULT NULL, sqlstate text DEFAULT NULL, outcome postbox.outcome DEFAULT NULL, failed_before timestamptz DEFAULT NULL)
    RETURNS bigint
    AS 'MODULE_PATHNAME', 'discard_dead_letters' LANGUAGE C;
COMMENT ON FUNCTION postbox.discard_dead_letters(regclass, text, text, text, text, postbox.outcome, timestamptz) IS
    'Deletes all dead letters that the caller may see and that match every argument that is not NULL; returns how many. `failed_before`: the last attempt '
    'was before that time. Without any argument it is an error';

ALTER TABLE postbox.dead_letter ADD COLUMN raw jsonb, ADD COLUMN outcome postbox.outcome;
COMMENT ON COLUMN postbox.dead_letter.outcome IS
    'Outcome of the last redrive if it had no effect: stale, ignored or duplicate. Such a dead letter stays until it is discarded. NULL: it was not '
    'redriven, or failed again';
COMMENT ON COLUMN postbox.dead_letter.raw IS
    'Fields that the database cannot hold as text: name -> their bytes in hex. The columns have them escaped, attributes has NULL. '
    'NULL if there are none';

CREATE FUNCTION postbox.record_dead_letter(inbox regclass, event_id bytea, event_type bytea, aggregate_type bytea,
        aggregate_id bytea, version bigint, payload bytea, attributes bytea, occurred_at timestamptz, sqlstate text,
        error bytea, attempts int DEFAULT 1) RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'record_dead_letter_bytes' LANGUAGE C;
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, bytea, bytea, bytea, bytea, bigint, bytea, bytea, timestamptz, text,
        bytea, int) IS
    'Records a message as it was received, in UTF-8 or not: what the database cannot hold as text is stored escaped, with its bytes '
    'in column raw of postbox.dead_letter';

-- What an event's own error does is said in the call, not by a setting of the session.
DO $$
DECLARE
    dependents text;
BEGIN
    DROP FUNCTION postbox.inbox_apply(regclass, postbox.event),
        postbox.inbox_apply(regclass, text, text, text, text, bigint, bytea, jsonb, timestamptz),
        postbox.inbox_apply_batch(regclass, postbox.event[]);
EXCEPTION WHEN dependent_objects_still_exist THEN
    GET STACKED DIAGNOSTICS dependents = PG_EXCEPTION_DETAIL;
    RAISE dependent_objects_still_exist USING
        MESSAGE = 'cannot update extension postbox to 0.2.0 because other objects depend on inbox_apply or inbox_apply_batch',
        DETAIL = dependents,
        HINT = 'Drop these objects, update the extension, and create them again. An error of an event is raised now, unless '
               'the call says on_error => ''reject''.';
END
$$;
CREATE FUNCTION postbox.inbox_apply(inbox regclass, event postbox.event, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, postbox.event, text) IS
    'Applies an event in the current transaction. An event that was seen before has no effect. '
    'on_error => ''reject'' records an event that fails as a dead letter instead of raising its error';

CREATE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload bytea, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_fields' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, bytea, jsonb, timestamptz, text) IS
    'Applies an event in the current transaction. An event that was seen before has no effect. '
    'on_error => ''reject'' records an event that fails as a dead letter instead of raising its error';

-- The payload as text or JSON: its bytes in UTF-8. What has no type is text.
CREATE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload text, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_text' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, text, jsonb, timestamptz, text) IS
    'inbox_apply with a payload that is text, which is applied as its bytes in UTF-8. Bytes that are written as text, with \x, are refused (22023)';
CREATE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload json, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_text' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, json, jsonb, timestamptz, text) IS
    'inbox_apply with a payload that is json, which is applied as it was written, in UTF-8';
CREATE FUNCTION postbox.inbox_apply(inbox regclass, event_id text, event_type text, aggregate_type text,
        aggregate_id text, version bigint, payload jsonb, attributes jsonb DEFAULT '{}',
        occurred_at timestamptz DEFAULT NULL, on_error text DEFAULT 'raise') RETURNS postbox.outcome
    AS 'MODULE_PATHNAME', 'inbox_apply_jsonb' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply(regclass, text, text, text, text, bigint, jsonb, jsonb, timestamptz, text) IS
    'inbox_apply with a payload that is jsonb, which is applied as its text in UTF-8';

CREATE FUNCTION postbox.inbox_apply_batch(inbox regclass, events postbox.event[], on_error text DEFAULT 'raise') RETURNS postbox.outcome[]
    AS 'MODULE_PATHNAME', 'inbox_apply_batch' LANGUAGE C;
COMMENT ON FUNCTION postbox.inbox_apply_batch(regclass, postbox.event[], text) IS
    'Applies events in their order, in the current transaction. Each takes effect once. '
    'on_error => ''reject'' records those that fail as dead letters, and the others take effect';
CREATE FUNCTION postbox.event_version() RETURNS bigint
    AS 'MODULE_PATHNAME', 'event_version' LANGUAGE C STABLE;
COMMENT ON FUNCTION postbox.event_version() IS
    'The version of the event that is being applied, for triggers of targets and for handlers; NULL outside of them';

-- Descriptions.
COMMENT ON TYPE postbox.receipt IS 'The result of outbox_emit, and what wait_for_version needs to wait for this event';
COMMENT ON TYPE postbox.event IS 'An event as it arrives; the argument of handlers';
COMMENT ON TYPE postbox.outcome IS
    'The result of applying an event: applied, duplicate (seen before), stale (older than what is stored), '
    'ignored (nothing takes its type), rejected (recorded in postbox.dead_letter)';
COMMENT ON TABLE postbox.outbox IS 'The outboxes of this database; only create_outbox, adopt_outbox and drop_outbox change it';
COMMENT ON COLUMN postbox.outbox.parked IS 'Log outbox: the table of events that could not be published';
COMMENT ON COLUMN postbox.outbox.retention IS 'How long published events are kept; NULL keeps them forever';
COMMENT ON COLUMN postbox.outbox.adopted IS 'Whether the table existed before; if so, drop_outbox keeps it';
COMMENT ON COLUMN postbox.outbox.columns IS 'Standard name -> name in the table, where they differ: {"aggregate_id": "aggregateid"}';
COMMENT ON COLUMN postbox.outbox.generation_span IS 'Log outbox: how long a generation of events is written to; NULL in one of 0.1';
COMMENT ON COLUMN postbox.outbox.version_floor IS 'Aggregates that the version counter lacks begin above this version, since it was lost once';
COMMENT ON FUNCTION postbox.create_outbox(text, text, interval) IS
    'Creates an outbox: event table, indexes and version counter. The caller needs CREATE on the schema and becomes the owner';
COMMENT ON FUNCTION postbox.adopt_outbox(regclass, jsonb, interval) IS
    'Turns an existing table into an outbox of kind table. Finds its columns by name, common alias or `columns` and adds '
    'those that are missing. For the owner of the table';
COMMENT ON FUNCTION postbox.drop_outbox(regclass) IS
    'Drops an outbox with its events, version counter and publications. An adopted table itself is kept. For the owner of '
    'the outbox';
COMMENT ON FUNCTION postbox.require_outbox(regclass) IS 'The registration of an outbox; an error if the relation is not an outbox';
COMMENT ON FUNCTION postbox.outbox_column(postbox.outbox, text, text) IS 'The SQL expression that reads a column of an outbox, by the standard name of the column';
COMMENT ON FUNCTION postbox.purge_outbox(regclass, int) IS
    'Deletes up to `batch` published or discarded events that are older than the retention, and returns how many. Needs '
    'DELETE on the outbox. In a log outbox, empties whole partitions instead, which only the owner may do. Workers call it '
    'regularly';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, jsonb, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit, and returns its receipt. Call it in FROM: '
    'SELECT r.* FROM postbox.outbox_emit(...) AS r. In SELECT (postbox.outbox_emit(...)).* it is called for each column: three '
    'events. In a WITH query that nothing reads it is not called. The payload is jsonb: the text that jsonb makes of it is sent. '
    'Versions begin at 1; NULL counts them. Needs INSERT on the outbox';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, bytea, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit, and returns its receipt. Call it in FROM: '
    'SELECT r.* FROM postbox.outbox_emit(...) AS r. In SELECT (postbox.outbox_emit(...)).* it is called for each column: three '
    'events. In a WITH query that nothing reads it is not called. The payload is bytes, for example Protobuf, and is sent as it is. '
    'Versions begin at 1; NULL counts them. Needs INSERT on the outbox';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, text, bigint, text, jsonb, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit, and returns its receipt. Call it in FROM: '
    'SELECT r.* FROM postbox.outbox_emit(...) AS r. In SELECT (postbox.outbox_emit(...)).* it is called for each column: three '
    'events. In a WITH query that nothing reads it is not called. The payload is text that is JSON (22P02 if not), and is sent as it was written, in UTF-8. '
    'Versions begin at 1; NULL counts them. Needs INSERT on the outbox';

-- The same for arguments of other types: numbers, uuids and enums as keys, numbers as schema versions, json. How PostgreSQL
-- chooses:
--   - A form of which an argument cannot be converted without a cast is out. So a call with an integer as key has two forms left.
--   - What has no type (a literal, a parameter of a driver) goes where a form has text. With "any", a parameter would be
--     refused. So each of aggregate_id and payload is text in one form and "any" in another, in all four combinations.
--   - Two forms that are left, and equal in the arguments of the call, are ambiguous. So those that have the types of an earlier one
--     in the first four arguments have another type for event_type: a domain over text. Text of any type prefers text to it.
--   - attributes cannot be "any": a literal for them would be ambiguous between jsonb and "any". Beside a json payload they are json.
CREATE DOMAIN postbox.event_type AS text;
COMMENT ON DOMAIN postbox.event_type IS 'Text. The forms of outbox_emit that take any type have it, so that PostgreSQL prefers those with text';
CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type text, payload json,
    version bigint DEFAULT NULL, schema_version text DEFAULT 'v1', attributes json DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, text, json, bigint, text, json, uuid, timestamptz, text, regclass) IS
    'Stores an event in the current transaction, to be published after the commit, and returns its receipt. Call it in FROM: '
    'SELECT r.* FROM postbox.outbox_emit(...) AS r. In SELECT (postbox.outbox_emit(...)).* it is called for each column: three '
    'events. In a WITH query that nothing reads it is not called. The payload is json, and is sent as it was written, in UTF-8. '
    'Versions begin at 1; NULL counts them. Needs INSERT on the outbox';

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id "any", event_type postbox.event_type, payload text,
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, "any", postbox.event_type, text, bigint, "any", jsonb, uuid, timestamptz, text, regclass) IS
    'outbox_emit for an aggregate_id or a schema_version that is a whole number, a uuid or an enum, and for a payload that is text. '
    'What has another type is refused (42804), with the cast to write';

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id "any", event_type postbox.event_type, payload "any",
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, "any", postbox.event_type, "any", bigint, "any", jsonb, uuid, timestamptz, text, regclass) IS
    'outbox_emit for an aggregate_id or a schema_version that is a whole number, a uuid or an enum, and for a payload that is jsonb, json or bytea. '
    'What has another type is refused (42804), with the cast to write';

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type postbox.event_type, payload text,
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, postbox.event_type, text, bigint, "any", jsonb, uuid, timestamptz, text, regclass) IS
    'outbox_emit for an aggregate_id or a schema_version that is a whole number, a uuid or an enum, and for a payload that is text. '
    'What has another type is refused (42804), with the cast to write';

CREATE FUNCTION postbox.outbox_emit(
    aggregate_type text, aggregate_id text, event_type postbox.event_type, payload "any",
    version bigint DEFAULT NULL, schema_version "any" DEFAULT text 'v1', attributes jsonb DEFAULT '{}',
    event_id uuid DEFAULT NULL, occurred_at timestamptz DEFAULT now(), source_event_id text DEFAULT NULL,
    outbox regclass DEFAULT NULL)
    RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_any';
COMMENT ON FUNCTION postbox.outbox_emit(text, text, postbox.event_type, "any", bigint, "any", jsonb, uuid, timestamptz, text, regclass) IS
    'outbox_emit for an aggregate_id or a schema_version that is a whole number, a uuid or an enum, and for a payload that is jsonb, json or bytea. '
    'What has another type is refused (42804), with the cast to write';

-- One signature, for clients that are generated from the catalogs.
CREATE FUNCTION postbox.outbox_emit_json(event json, outbox regclass DEFAULT NULL) RETURNS postbox.receipt
    LANGUAGE C VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'outbox_emit_json';
COMMENT ON FUNCTION postbox.outbox_emit_json(json, regclass) IS
    'Stores an event like outbox_emit. The event is a JSON object whose keys are the names of the arguments of outbox_emit; other keys are '
    'refused (22023). The payload is sent as it is written in the object. Call it in FROM: SELECT r.* FROM postbox.outbox_emit_json(...) AS r. '
    'Needs INSERT on the outbox';

COMMENT ON TABLE postbox.publication IS
    'Which events of an outbox go to which topic; only create_publication, alter_publication and drop_publication change it';
COMMENT ON COLUMN postbox.publication.aggregate_types IS 'The aggregate types whose events are published; NULL publishes all';
COMMENT ON COLUMN postbox.publication.wanted_lanes IS 'How many lanes it will have as soon as workers have divided its keys anew; NULL if it has them';
COMMENT ON COLUMN postbox.publication.filter_changes IS
    'The transactions that last changed aggregate_types, up to 100, the latest one at the end; 0 stands for its creation. What a worker has read with the filter before a change, and with a snapshot that sees the change, is read again';
CREATE FUNCTION postbox.create_publication(
    name text, outbox regclass, topic text, aggregate_types text[] DEFAULT NULL,
    ordering text DEFAULT 'key', lanes int DEFAULT 1, max_attempts int DEFAULT 5,
    base_backoff interval DEFAULT '10s', max_backoff interval DEFAULT '10min', on_failure text DEFAULT 'park_key',
    start text DEFAULT 'beginning', credential text DEFAULT NULL)
    RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text, text, text) IS
    'Publishes the events of an outbox to a topic. `start` says with which it begins: those that are in the outbox already (beginning), those that are '
    'committed from now on (now), or, of a log, those from the first on that occurred at a time or later (a timestamp). `credential` is the identity with which it '
    'publishes, see create_credential; NULL is that of the server''s environment. For the owner of the outbox; needs EXECUTE, which PUBLIC does not have';
CREATE FUNCTION postbox.alter_publication(
    name text, topic text DEFAULT NULL, aggregate_types text[] DEFAULT NULL, max_attempts int DEFAULT NULL,
    base_backoff interval DEFAULT NULL, max_backoff interval DEFAULT NULL, on_failure text DEFAULT NULL,
    ordering text DEFAULT NULL, lanes int DEFAULT NULL, credential text DEFAULT NULL)
    RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_publication(text, text, text[], int, interval, interval, text, text, int, text) IS
    'Changes a publication where it stands: nothing is left out, and what was published is not sent again. NULL leaves a property unchanged; '
    'aggregate_types => ''{}'' publishes all types. Another number of lanes takes effect as soon as workers have divided the keys anew; if it is no multiple '
    'of the one before, when fewer than 1000 events wait. credential => '''' goes back to the identity of the server''s environment. For the owner of the outbox; needs EXECUTE, which PUBLIC does not have';
REVOKE EXECUTE ON FUNCTION postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text, text, text),
    postbox.alter_publication(text, text, text[], int, interval, interval, text, text, int, text) FROM PUBLIC;
COMMENT ON FUNCTION postbox.drop_publication(text) IS
    'Drops a publication; its events stay in the outbox. For the owner of the outbox';
COMMENT ON FUNCTION postbox.check_topic_name(text) IS
    'Raises an error if Pub/Sub would refuse the name, and a warning if it is not <domain>.<aggregate>.<category>';
COMMENT ON FUNCTION postbox.redrive(regclass, uuid) IS
    'Makes one parked event, or all of the outbox, due now with a fresh count of attempts; returns how many. Needs SELECT '
    'and UPDATE on the outbox, or on the table of parked events of a log outbox; members of postbox_operator act as its owner';
COMMENT ON FUNCTION postbox.discard(regclass, uuid) IS
    'Gives up an unpublished event, so that the events of its key behind it are published. False if there is no such event. '
    'Needs SELECT and UPDATE on the outbox, or SELECT, UPDATE and DELETE on the table of parked events of a log outbox; members of '
    'postbox_operator act as its owner';
COMMENT ON VIEW postbox.paused_keys IS
    'Keys whose first unpublished event is parked: which event, why, when it is retried (next_retry_at) and how many events '
    'wait behind it. Shows the outboxes that the caller may read; all of them to postbox_operator and pg_monitor';
COMMENT ON FUNCTION postbox.redrive_parked(regclass, uuid) IS
    'postbox.redrive for a log outbox. Needs SELECT and UPDATE on its table of parked events';
COMMENT ON FUNCTION postbox.discard_parked(regclass, uuid) IS
    'postbox.discard for a log outbox, where only a parked event can be discarded. Needs SELECT, UPDATE and DELETE on its '
    'table of parked events';
COMMENT ON TABLE postbox.inbox IS 'The inboxes of this database; only create_inbox and drop_inbox change it';
COMMENT ON COLUMN postbox.inbox.relation IS 'The inbox table: one row for each event seen';
COMMENT ON COLUMN postbox.inbox.tombstone IS 'The table of versions at which keys of the projections were deleted';
COMMENT ON COLUMN postbox.inbox.retention IS 'How long an event id is remembered. Must be longer than Pub/Sub may deliver the event again';
COMMENT ON FUNCTION postbox.create_inbox(text, interval) IS
    'Creates an inbox, owned by the caller. Event ids are remembered for the retention';
COMMENT ON FUNCTION postbox.drop_inbox(regclass) IS
    'Drops an inbox with its subscriptions, projections, handlers and dead letters. Projected tables stay';
COMMENT ON FUNCTION postbox.purge_inbox(regclass, int) IS
    'Deletes up to `batch` events and tombstones that are older than the retention; returns how many. Workers call it regularly';
COMMENT ON TABLE postbox.projection IS 'Tables kept up to date from events; only create_projection and drop_projection change it';
COMMENT ON COLUMN postbox.projection.event_types IS 'The event types that are written to the target';
COMMENT ON COLUMN postbox.projection.columns IS 'Target column -> source of its value; NULL: the JSON field of the column''s name';
COMMENT ON COLUMN postbox.projection.key IS 'The columns that identify a row; the target has a unique index on them';
COMMENT ON COLUMN postbox.projection.version_column IS 'The column with the version of the last event; an older event changes nothing';
COMMENT ON COLUMN postbox.projection.delete_types IS 'The event types that delete the row';
COMMENT ON TABLE postbox.handler IS 'Functions called with events; only create_handler and drop_handler change it';
COMMENT ON COLUMN postbox.handler.function IS 'Signature. It is text because pg_upgrade does not support regprocedure columns';
COMMENT ON FUNCTION postbox.create_projection(regclass, text[], regclass, jsonb, text[], name, text[]) IS
    'Keeps a table up to date from events of these types. Newer versions overwrite, older ones change nothing; events of '
    'delete_types delete the row. columns maps columns to JSON fields or fields of the event: {"title": "name", "image": {"path": "files.image", '
    '"as": "base64"}, "changed": "$occurred_at"}; as is base64, hex, utc, epoch_seconds, epoch_milliseconds or epoch_microseconds';
COMMENT ON FUNCTION postbox.drop_projection(bigint) IS 'Drops a projection; its target keeps its rows';
COMMENT ON FUNCTION postbox.create_handler(regclass, text[], regprocedure) IS
    'Calls function(postbox.event) once for each event of these types, with the rights of the owner of the inbox';
COMMENT ON FUNCTION postbox.drop_handler(bigint) IS 'Drops a handler; its function stays';
COMMENT ON FUNCTION postbox.wait_for_version(regclass, text, bigint, interval) IS
    'Waits until a projection has this version of the key or a newer one, or has deleted the key; false after the timeout';
COMMENT ON TABLE postbox.dead_letter IS 'Events that could not be applied. Apply one again with redrive_dead_letter(id), or remove it with discard_dead_letter(id)';
COMMENT ON COLUMN postbox.dead_letter.event_id IS 'As received; NULL if the message had none';
COMMENT ON COLUMN postbox.dead_letter.sqlstate IS 'SQLSTATE of the last attempt';
COMMENT ON COLUMN postbox.dead_letter.error IS 'Error message of the last attempt';
COMMENT ON COLUMN postbox.dead_letter.failed_at IS 'Time of the last attempt';
COMMENT ON FUNCTION postbox.owns_inbox(regclass) IS 'Whether the current user has the rights of the owner of the inbox';
COMMENT ON POLICY owner_of_the_inbox ON postbox.dead_letter IS 'Dead letters are for the owner of their inbox, and for operators';
COMMENT ON FUNCTION postbox.record_dead_letter(regclass, postbox.event, text, text, int) IS
    'Records an event as rejected, for a consumer that gives it up; duplicate if the inbox has seen it';
COMMENT ON FUNCTION postbox.redrive_dead_letter(bigint) IS
    'Applies a dead letter again, and deletes it if it is applied. If it fails again, it stays with the new error; if it is stale, ignored or a duplicate, '
    'it stays with that outcome, until it is discarded. Needs INSERT on the inbox, or postbox_operator';
COMMENT ON TABLE postbox.subscription IS
    'Which Pub/Sub subscriptions `postbox pull` applies to which inbox; only create_subscription and drop_subscription change it';
COMMENT ON COLUMN postbox.subscription.subscription IS 'The Pub/Sub subscription: a full name, or an id in the project of `postbox pull`';
COMMENT ON COLUMN postbox.subscription.max_outstanding_messages IS 'Upper limit of messages pulled and not yet acknowledged';
COMMENT ON COLUMN postbox.subscription.max_outstanding_bytes IS 'Upper limit of bytes pulled and not yet acknowledged';
COMMENT ON COLUMN postbox.subscription.appliers IS 'How many connections apply at the same time, at most. A key is with one of them at a time';
COMMENT ON COLUMN postbox.subscription.batch_size IS 'Upper limit of events in one transaction';
COMMENT ON COLUMN postbox.subscription.batch_delay IS 'Time between the beginnings of batches that are not full; after a pause a batch begins at once';
COMMENT ON COLUMN postbox.subscription.on_error IS
    'What happens after max_attempts: reject (record a dead letter), dead_letter_topic (publish it there), nack (leave it to Pub/Sub)';
COMMENT ON COLUMN postbox.subscription.max_attempts IS
    'After how many failed attempts an event is given up. With the defaults (5 attempts, min_backoff 1 s, doubling) that is after 15 s: too short for a human '
    'to remove the cause. on_error => nack never gives up';
COMMENT ON COLUMN postbox.subscription.min_backoff IS 'Delay before the second attempt; doubles with each attempt, up to max_backoff';
-- What a puller reports of itself, at most once a second. Logged, so that a standby can be asked, too; but no report waits for the disk or for
-- a standby (worker/puller/status_report.cc).
CREATE TABLE postbox.subscription_status (
    subscription text NOT NULL REFERENCES postbox.subscription (name) ON DELETE CASCADE ON UPDATE CASCADE,
    puller text NOT NULL,
    started_at timestamptz NOT NULL,
    last_seen timestamptz NOT NULL DEFAULT now(),
    appliers int NOT NULL,
    applied bigint NOT NULL,
    duplicates bigint NOT NULL,
    stale bigint NOT NULL,
    out_of_order bigint NOT NULL,
    dead_letters bigint NOT NULL,
    failures bigint NOT NULL,
    retrying_since timestamptz,
    next_try timestamptz,
    last_error text,
    last_error_at timestamptz,
    stream text,
    stream_since timestamptz,
    stream_error text,
    conflicts_per_minute int NOT NULL DEFAULT 0,
    unanswered_since timestamptz,
    unanswered_pid int,
    PRIMARY KEY (subscription, puller)
) WITH (fillfactor = 50);
COMMENT ON TABLE postbox.subscription_status IS
    'One row for each running `postbox pull` and subscription: what it has done since it started, and what fails';
COMMENT ON COLUMN postbox.subscription_status.puller IS 'Host and process id of `postbox pull`';
COMMENT ON COLUMN postbox.subscription_status.last_seen IS 'Time of the last report: a second after the last event at most, and every 5 minutes';
COMMENT ON COLUMN postbox.subscription_status.applied IS 'Events that took effect, or that nothing takes (ignored)';
COMMENT ON COLUMN postbox.subscription_status.duplicates IS 'Events that the inbox had seen; acknowledged again';
COMMENT ON COLUMN postbox.subscription_status.stale IS 'Events of which every projection had a version as new';
COMMENT ON COLUMN postbox.subscription_status.out_of_order IS
    'Those of them that came over a subscription with message ordering: an older version after a newer one of its key. Should be 0';
COMMENT ON COLUMN postbox.subscription_status.dead_letters IS 'Events that were given up';
COMMENT ON COLUMN postbox.subscription_status.failures IS 'Attempts that failed, of events and of batches';
COMMENT ON COLUMN postbox.subscription_status.retrying_since IS 'Since when there have been failures and no success';
COMMENT ON COLUMN postbox.subscription_status.last_error IS 'The last error, at most 500 bytes of it. It may quote values of an event';
COMMENT ON COLUMN postbox.subscription_status.next_try IS 'When what failed last is tried again';
COMMENT ON COLUMN postbox.subscription_status.stream IS
    'connected to Pub/Sub; connecting for the first time; reconnecting after an error that may pass; failed: tried again every 10 s';
COMMENT ON COLUMN postbox.subscription_status.stream_since IS 'Since when the stream is so';
COMMENT ON COLUMN postbox.subscription_status.stream_error IS 'Why the stream has ended, until it is connected again';
COMMENT ON COLUMN postbox.subscription_status.conflicts_per_minute IS
    'Transactions of the subscription that wanted the same locks, and were rolled back and applied alone, in the minute before last_seen. Fewer run at the same time then';
COMMENT ON COLUMN postbox.subscription_status.unanswered_since IS
    'Since when the longest statement of its connections waits for its answer; NULL unless that is 20 s or more';
COMMENT ON COLUMN postbox.subscription_status.unanswered_pid IS
    'The process of the server that has not answered. Behind a pooler the number is of no use';
ALTER TABLE postbox.subscription_status ENABLE ROW LEVEL SECURITY;
CREATE POLICY appliers ON postbox.subscription_status USING (EXISTS (SELECT FROM postbox.subscription s
    WHERE s.name = subscription_status.subscription AND has_table_privilege(s.inbox, 'INSERT')));
COMMENT ON POLICY appliers ON postbox.subscription_status IS 'Whoever may apply the events of a subscription reports on it';
CREATE POLICY readers ON postbox.subscription_status FOR SELECT USING ((SELECT postbox.is_operator())
    OR (SELECT pg_has_role('pg_monitor', 'USAGE')) OR EXISTS (SELECT FROM postbox.subscription s
        WHERE s.name = subscription_status.subscription AND postbox.owns_inbox(s.inbox)));
COMMENT ON POLICY readers ON postbox.subscription_status IS 'The status is for the owner of the inbox, for operators, and for pg_monitor';

REVOKE ALL ON postbox.subscription_status FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON postbox.subscription_status TO PUBLIC;

-- The puller sets its own timeouts.
ALTER TABLE postbox.subscription ADD COLUMN statement_timeout interval NOT NULL DEFAULT '30s',
    ADD COLUMN lock_timeout interval NOT NULL DEFAULT '5s', ADD COLUMN credential text,
    ALTER COLUMN max_outstanding_messages SET DEFAULT 10000;
COMMENT ON COLUMN postbox.subscription.statement_timeout IS
    'How long the events of one transaction may take, and so the longest that one event may; 0 is without a limit';
COMMENT ON COLUMN postbox.subscription.lock_timeout IS 'How long a transaction waits for a lock; 0 is without a limit';
COMMENT ON COLUMN postbox.subscription.credential IS
    'The credential with which `postbox pull` receives, see postbox.credential; NULL: that of its environment';
CREATE FUNCTION postbox.create_subscription(name text, inbox regclass, subscription text,
        max_outstanding_messages int DEFAULT 10000, max_outstanding_bytes bigint DEFAULT 104857600,
        appliers int DEFAULT 4, batch_size int DEFAULT 500, batch_delay interval DEFAULT '5ms',
        on_error text DEFAULT 'reject', max_attempts int DEFAULT 5, min_backoff interval DEFAULT '1s',
        max_backoff interval DEFAULT '60s', dead_letter_topic text DEFAULT NULL,
        enabled boolean DEFAULT true, statement_timeout interval DEFAULT '30s',
        lock_timeout interval DEFAULT '5s', credential text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'create_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean, interval, interval, text) IS
    'Lets `postbox pull` apply the events of a Pub/Sub subscription to an inbox. `credential` is the identity with which it receives, of kind file, environment or metadata; '
    'NULL is that of its environment. Needs EXECUTE, which PUBLIC does not have';
REVOKE ALL ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean, interval, interval, text) FROM PUBLIC;
-- Who had been granted a function before has the one with more parameters, too.
DO $$
DECLARE
    granted record;
BEGIN
    FOR granted IN
        SELECT f.new::regprocedure AS function, a.grantee, a.is_grantable
        FROM (VALUES ('postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text)', 'postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text, text, text)'),
                     ('postbox.alter_publication(text, text, text[], int, interval, interval, text)', 'postbox.alter_publication(text, text, text[], int, interval, interval, text, text, int, text)'),
                     ('postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int, interval, interval, text, boolean)',
                      'postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int, interval, interval, text, boolean, interval, interval, text)')) AS f(old, new)
        JOIN pg_proc p ON p.oid = f.old::regprocedure CROSS JOIN LATERAL aclexplode(p.proacl) a
        WHERE a.grantee <> p.proowner
    LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO %s %s', granted.function,
                       CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END,
                       CASE WHEN granted.is_grantable THEN 'WITH GRANT OPTION' END);
    END LOOP;
END
$$;
DROP FUNCTION postbox.create_publication(text, regclass, text, text[], text, int, int, interval, interval, text);
DROP FUNCTION postbox.alter_publication(text, text, text[], int, interval, interval, text);
DROP FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int, interval, interval,
    text, boolean);
COMMENT ON FUNCTION postbox.drop_subscription(text) IS
    'Drops a subscription of this database; the Pub/Sub subscription itself stays';
CREATE FUNCTION postbox.puller_endpoint() RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.puller_endpoint() IS
    'The value of postbox.endpoint, for roles with INSERT on the inbox of a subscription; `postbox pull` asks for it';
COMMENT ON FUNCTION postbox.list_workers() IS
    'The rows of postbox.workers; none if postbox is not in shared_preload_libraries';
COMMENT ON VIEW postbox.workers IS
    'The publisher workers of the whole server, and the databases that are unserved because there are not enough slots. '
    'lock_token marks the rows and lanes that a worker has claimed. For members of '
    'pg_monitor and postbox_operator';
COMMENT ON FUNCTION postbox.delete_dependents() IS 'Trigger: deletes the rows that refer to a deleted outbox, publication or inbox';

CREATE OR REPLACE FUNCTION postbox.delete_dependents() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'outbox' THEN
            DELETE FROM postbox.publication p WHERE p.outbox = OLD.relation;
            DELETE FROM postbox.given_version g WHERE g.outbox = OLD.relation;
        WHEN 'publication' THEN
            DELETE FROM postbox.lane l WHERE l.publication = OLD.name;
            DELETE FROM postbox.former_position f WHERE f.publication = OLD.name;
        WHEN 'inbox' THEN
            DELETE FROM postbox.subscription s WHERE s.inbox = OLD.relation;
            DELETE FROM postbox.projection p WHERE p.inbox = OLD.relation;
            DELETE FROM postbox.handler h WHERE h.inbox = OLD.relation;
            DELETE FROM postbox.dead_letter d WHERE d.inbox = OLD.relation;
    END CASE;
    RETURN NULL;
END
$$;


DO $$
DECLARE
    place record;
BEGIN
    FOR place IN
        SELECT o.relation, o.kind FROM postbox.outbox o JOIN pg_class c ON c.oid = o.relation
        UNION ALL SELECT o.parked, 'parked' FROM postbox.outbox o JOIN pg_class c ON c.oid = o.parked
    LOOP
        BEGIN
            PERFORM postbox.add_replica_trigger(place.relation, place.kind);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING USING
                MESSAGE = format('outbox %s is not complete', place.relation),
                DETAIL = SQLERRM,
                HINT = format('What logical replication brings into it would be published. Then run SELECT postbox.add_replica_trigger(%L, %L).',
                              place.relation, place.kind);
        END;
    END LOOP;
END
$$;

-- Emitting what changes in a table.
CREATE FUNCTION postbox.emit_changes() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.emit_changes() IS
    'Trigger, after a statement, with transition tables: emits an event for each row that was inserted, updated or deleted. Arguments: aggregate type, '
    'key, outbox, columns, event prefix. Needs INSERT on the outbox';

-- Checked here, so that a mistake is found now and not by the next statement that writes the table.
CREATE FUNCTION postbox.change_arguments(
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

CREATE FUNCTION postbox.create_change_triggers(
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

CREATE FUNCTION postbox.drop_change_triggers(relation regclass) RETURNS void
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

-- Logs get the column origin, and an index on it, which is built now: their emitters wait as long as that takes. All their rows
-- are of the cluster of which their lanes have positions.
DO $$
DECLARE
    log record;
BEGIN
    FOR log IN
        SELECT o.relation, coalesce((SELECT postbox.origin_of(min(l.system_identifier)) FROM postbox.publication p
                                     JOIN postbox.lane l ON l.publication = p.name WHERE p.outbox = o.relation), postbox.cluster_origin()) AS origin
        FROM postbox.outbox o JOIN pg_class c ON c.oid = o.relation WHERE o.kind = 'log'
    LOOP
        BEGIN
            PERFORM postbox.add_origin(log.relation, log.origin);
        EXCEPTION WHEN OTHERS THEN
            RAISE WARNING USING
                MESSAGE = format('outbox %s is not complete', log.relation),
                DETAIL = SQLERRM,
                HINT = 'Rename a column origin of your own, or repair it as postbox.outbox_status says. Workers add the column then.';
        END;
    END LOOP;
END
$$;
INSERT INTO postbox.lane (publication, slice)
    SELECT p.name, s.slice FROM postbox.publication p CROSS JOIN LATERAL generate_series(0, p.lanes - 1) AS s(slice) ON CONFLICT DO NOTHING;
UPDATE postbox.lane SET system_identifier = c.system_identifier FROM pg_control_system() c WHERE lane.system_identifier IS NULL;

-- What belongs to an outbox or inbox goes along when that gets another owner or schema: extension/server/follow.cc.

CREATE FUNCTION postbox.follow_altered() RETURNS event_trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.follow_altered() IS 'Event trigger: what belongs to an outbox or inbox follows it to another owner or schema';
REVOKE EXECUTE ON FUNCTION postbox.follow_altered() FROM PUBLIC;

CREATE EVENT TRIGGER postbox_follow_altered ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION postbox.follow_altered();
ALTER EVENT TRIGGER postbox_follow_altered ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER postbox_follow_altered IS 'What belongs to an outbox or inbox follows it to another owner or schema';

-- What was dropped of an outbox or inbox is put back.
-- Destructive only in that it takes locks: it adds what is missing, and changes what is not as it has to be.
CREATE FUNCTION postbox.repair_outbox(outbox regclass, dry_run boolean DEFAULT true)
    RETURNS TABLE (object text, problem text, repair text)
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.repair_outbox(regclass, boolean) IS
    'What is missing or wrong of the tables of an outbox, and the statements that repair it; NULL where nobody can. They are run if dry_run is '
    'false. For the owner of the outbox';

CREATE FUNCTION postbox.repair_inbox(inbox regclass, dry_run boolean DEFAULT true)
    RETURNS TABLE (object text, problem text, repair text)
    AS 'MODULE_PATHNAME', 'repair_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.repair_inbox(regclass, boolean) IS
    'What is missing or wrong of the tables of an inbox, and the statements that repair it; NULL where nobody can. They are run if dry_run is '
    'false. For the owner of the inbox';

-- What was an outbox or inbox is registered again.
CREATE FUNCTION postbox.register_outbox(relation regclass, retention interval DEFAULT '7 days', counter regclass DEFAULT NULL,
    parked regclass DEFAULT NULL)
    RETURNS regclass
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.register_outbox(regclass, interval, regclass, regclass) IS
    'Registers a table that create_outbox has made: after DROP EXTENSION, or from a dump without the registration. Its version counter and its '
    'table of parked events are found by their names or named. Puts back what is missing. For the owner of the table';

CREATE FUNCTION postbox.register_inbox(relation regclass, retention interval DEFAULT '14 days', tombstone regclass DEFAULT NULL)
    RETURNS regclass
    AS 'MODULE_PATHNAME', 'register_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.register_inbox(regclass, interval, regclass) IS
    'Registers a table that create_inbox has made: after DROP EXTENSION, or from a dump without the registration. Its tombstones are found by '
    'their name or named. Puts back what is missing. For the owner of the table';

-- DROP EXTENSION asks for CASCADE where outboxes or inboxes are registered: extension/server/drop_extension.cc.

CREATE FUNCTION postbox.refuse_drop() RETURNS event_trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.refuse_drop() IS 'Event trigger: DROP EXTENSION postbox without CASCADE is an error if there are outboxes or inboxes';
REVOKE EXECUTE ON FUNCTION postbox.refuse_drop() FROM PUBLIC;

CREATE EVENT TRIGGER postbox_refuse_drop ON ddl_command_start WHEN TAG IN ('DROP EXTENSION') EXECUTE FUNCTION postbox.refuse_drop();
ALTER EVENT TRIGGER postbox_refuse_drop ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER postbox_refuse_drop IS 'DROP EXTENSION postbox without CASCADE is an error if there are outboxes or inboxes';

-- postbox.doctor(): what is wrong with Postbox in this database, why, and what to do. It asks what else says so: the status views, and the
-- repairs as dry runs. What belongs to a user is read by doctor_of, as its owner (extension/server/doctor.cc), and not if that might run code of
-- users. Nothing here waits for a lock for longer than 100 ms, and no check that fails hides another.

-- Credentials: who publications and subscriptions are at Pub/Sub. Others refer to them by name.

CREATE TABLE postbox.credential (
    name       text        PRIMARY KEY,
    kind       text        NOT NULL CHECK (kind IN ('key', 'file', 'environment', 'metadata')),
    file       text        CHECK ((file IS NOT NULL) = (kind = 'file')),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postbox.credential IS
    'Identities at Pub/Sub, without their secrets; only create_credential, alter_credential and drop_credential change it';
COMMENT ON COLUMN postbox.credential.kind IS
    'key: a JSON document in this database; file: one in a file; environment: what GOOGLE_APPLICATION_CREDENTIALS names; metadata: that of the machine, from the metadata server';
COMMENT ON COLUMN postbox.credential.file IS
    'The file, on the server for publications, and on the machine of `postbox pull` for subscriptions. It is read again when it changes';
SELECT pg_catalog.pg_extension_config_dump('postbox.credential', '');
GRANT SELECT ON postbox.credential TO PUBLIC;

CREATE TABLE postbox.credential_grant (
    credential text NOT NULL,
    grantee    text NOT NULL,
    PRIMARY KEY (credential, grantee)
);
COMMENT ON TABLE postbox.credential_grant IS
    'Which roles may name a credential, beside superusers; only grant_credential and revoke_credential change it';
COMMENT ON COLUMN postbox.credential_grant.grantee IS 'The name of the role. Members of it, too, may name the credential';
SELECT pg_catalog.pg_extension_config_dump('postbox.credential_grant', '');
GRANT SELECT ON postbox.credential_grant TO PUBLIC;

-- No dump has it, since it is not configuration. Its row security hides the rows from members of pg_read_all_data, who may read every table.
-- A TOAST table would have no row security, so there is nothing in it: a secret fits on a page. What ANALYZE samples would be a copy.
CREATE TABLE postbox.credential_secret (
    credential text PRIMARY KEY,
    secret     text NOT NULL
);
ALTER TABLE postbox.credential_secret ENABLE ROW LEVEL SECURITY;
ALTER TABLE postbox.credential_secret ALTER COLUMN secret SET STORAGE PLAIN, ALTER COLUMN secret SET STATISTICS 0;
COMMENT ON TABLE postbox.credential_secret IS 'The secrets of credentials of kind key; for superusers and workers. In no dump';
COMMENT ON COLUMN postbox.credential_secret.secret IS 'The JSON document as it was given';

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.credential
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.credential
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.credential ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.credential_secret
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.credential_secret
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.credential_secret ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;

CREATE FUNCTION postbox.create_credential(name text, kind text, secret text DEFAULT NULL, file text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_credential(text, text, text, text) IS
    'Names an identity for publications and subscriptions. Of kind key, it is a JSON document of Google: `secret`, or what is in `file` of the server now. '
    'Of kind file, it is what is in `file` whenever it is used. The others, environment and metadata, take neither. For superusers';

CREATE FUNCTION postbox.alter_credential(name text, kind text DEFAULT NULL, secret text DEFAULT NULL, file text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_credential(text, text, text, text) IS
    'Gives a credential another kind, secret or file, as create_credential does. What uses it goes on with the new identity. NULL leaves the kind unchanged. For superusers';

CREATE FUNCTION postbox.drop_credential(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_credential(text) IS 'Drops a credential that no publication and no subscription uses. For superusers';

CREATE FUNCTION postbox.grant_credential(name text, role regrole) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.grant_credential(text, regrole) IS
    'Lets a role, and its members, name a credential in create_publication, alter_publication and create_subscription. For superusers';

CREATE FUNCTION postbox.revoke_credential(name text, role text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.revoke_credential(text, text) IS
    'Takes that back; the role may be gone. Publications and subscriptions that use the credential keep it. For superusers';

REVOKE EXECUTE ON FUNCTION postbox.create_credential(text, text, text, text), postbox.alter_credential(text, text, text, text),
    postbox.drop_credential(text), postbox.grant_credential(text, regrole), postbox.revoke_credential(text, text) FROM PUBLIC;

-- Written by workers, when it changes.
CREATE TABLE postbox.credential_state (
    credential  text NOT NULL,
    worker      int NOT NULL,
    identity    text,
    valid_until timestamptz,
    last_error  text,
    since       timestamptz NOT NULL,
    PRIMARY KEY (credential, worker)
);
COMMENT ON TABLE postbox.credential_state IS 'What each worker knows of the credentials that it uses; see postbox.credential_status';
COMMENT ON COLUMN postbox.credential_state.credential IS 'Its name; empty: that of publications without a credential';
COMMENT ON COLUMN postbox.credential_state.worker IS 'The ordinal of the worker, see postbox.workers';

CREATE VIEW postbox.credential_status AS
    WITH users AS (
        SELECT coalesce(p.credential, '') AS credential, 'publication ' || p.name AS name FROM postbox.publication p
        UNION ALL
        SELECT s.credential, 'subscription ' || s.name FROM postbox.subscription s WHERE s.credential IS NOT NULL
    )
    SELECT nullif(c.name, '') AS name, c.kind, t.identity, t.valid_until,
           ARRAY(SELECT u.name FROM users u WHERE u.credential = c.name ORDER BY u.name) AS used_by,
           CASE WHEN c.kind = 'key' AND NOT EXISTS (SELECT FROM postbox.credential_secret k WHERE k.credential = c.name)
                THEN format('it has no secret: run SELECT postbox.alter_credential(%L, secret => ...)', c.name)
                ELSE t.last_error END AS last_error, t.since
    FROM (SELECT d.name, d.kind FROM postbox.credential d
          UNION ALL
          SELECT '', 'environment' WHERE EXISTS (SELECT FROM users u WHERE u.credential = '')) AS c
    LEFT JOIN LATERAL (
        SELECT s.* FROM postbox.credential_state s
        WHERE s.credential = c.name AND EXISTS (
            SELECT FROM postbox.list_workers() w JOIN pg_catalog.pg_database b ON b.oid = w.database_id
            WHERE b.datname = current_database() AND w.ordinal = s.worker)
        ORDER BY s.last_error IS NULL, s.since DESC LIMIT 1) t ON true;
COMMENT ON VIEW postbox.credential_status IS
    'The identities of publications and subscriptions, what workers know of them, and what is wrong with them; never a secret. For members of pg_monitor and postbox_operator';
COMMENT ON COLUMN postbox.credential_status.name IS 'NULL stands for the identity of publications without a credential';
COMMENT ON COLUMN postbox.credential_status.identity IS 'Who it is, as far as that is known without asking: the e-mail address of a service account, for example';
COMMENT ON COLUMN postbox.credential_status.valid_until IS 'When the token ends that is used now; another one is fetched before';
COMMENT ON COLUMN postbox.credential_status.used_by IS 'Publications and subscriptions. What pullers know is in postbox.subscription_status';
COMMENT ON COLUMN postbox.credential_status.last_error IS 'Why it cannot be used; NULL if nothing is known against it';
COMMENT ON COLUMN postbox.credential_status.since IS 'Since when the worker knows this';
GRANT SELECT ON postbox.credential_status TO pg_monitor, postbox_operator;

CREATE TYPE postbox.finding AS ("check" text, status text, subject text, detail text, remedy text);
COMMENT ON TYPE postbox.finding IS 'What a check of postbox.doctor() has found';
COMMENT ON COLUMN postbox.finding.status IS 'ok, warning, or error: something does not work';
COMMENT ON COLUMN postbox.finding.subject IS 'The publication, table, role or setting; NULL if it is the server or all of them';
COMMENT ON COLUMN postbox.finding.detail IS 'What was found, and the cause';
COMMENT ON COLUMN postbox.finding.remedy IS 'What to do; NULL if the status is ok';

CREATE FUNCTION postbox.library_state(OUT version text, OUT preloaded boolean)
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.library_state() IS 'The version of the library that the server has loaded, and whether it did so when it started';

-- Without `otherwise` the remedy is behind the cause, after the first semicolon: only where nothing before it comes from users, whose text would
-- be shown as what to do otherwise.
CREATE FUNCTION postbox.make_finding("check" text, status text, subject text, problem text, otherwise text DEFAULT NULL) RETURNS postbox.finding
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT "check", status, subject, left(problem, e.cause - 1), coalesce(otherwise, substr(problem, e.cause + 2))
    FROM (SELECT CASE WHEN otherwise IS NULL AND strpos(problem, '; ') > 0 THEN strpos(problem, '; ') ELSE length(problem) + 1 END) AS e(cause)
$$;
COMMENT ON FUNCTION postbox.make_finding(text, text, text, text, text) IS 'A finding of a problem with its remedy, or of a text of ours: cause; remedy';

-- What a standby shows of its primary, it shows of this moment, by the clock of the primary. It has replayed no transaction if it has just been
-- copied, or was started while its primary was stopped. Ages are compared with coalesce(known_until(), now()): they seem greater then, not smaller.
CREATE FUNCTION postbox.known_until() RETURNS timestamptz
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE now() END
$$;
COMMENT ON FUNCTION postbox.known_until() IS 'Until when this server knows what was committed: now, or on a standby the time of the last transaction that it has replayed; NULL: not known, it has replayed none since it started';

CREATE FUNCTION postbox.doctor_of_server() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    library record;
    installed text := (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'postbox');
    files text := (SELECT a.default_version FROM pg_available_extensions a WHERE a.name = 'postbox');
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NEXT ROW('standby', 'ok', NULL, format('this server is a standby: what is said of tables, events and subscriptions is as its primary had it at %s, and what '
            'only workers of the primary know is not said', coalesce(date_trunc('second', postbox.known_until())::text,
            'a time that is not known (nothing has been replayed since this server started)')), NULL)::postbox.finding;
    END IF;
    SELECT * INTO library FROM postbox.library_state();
    IF NOT library.preloaded THEN
        RETURN NEXT postbox.make_finding('preloaded', CASE WHEN EXISTS (SELECT FROM postbox.publication) THEN 'error' ELSE 'warning' END, 'shared_preload_libraries',
            'postbox is not in shared_preload_libraries, so no worker publishes events or empties inboxes; add it to the configuration, and restart the server');
    END IF;
    IF installed <> library.version THEN
        RETURN NEXT postbox.make_finding('version', 'error', 'postbox',
            format('the SQL objects of this database are of version %s, the library that the server has loaded of version %s; ', installed, library.version)
            || CASE WHEN installed = files THEN 'restart the server, so that it loads the new library' ELSE 'run ALTER EXTENSION postbox UPDATE' END);
    ELSIF files <> library.version THEN
        RETURN NEXT postbox.make_finding('version', 'warning', 'postbox', format('the files of version %s are installed, the library that the server has loaded '
            'is of version %s; restart the server, and run ALTER EXTENSION postbox UPDATE', files, library.version));
    END IF;
    IF library.preloaded AND current_setting('postbox.publishers')::int >= current_setting('max_worker_processes')::int THEN
        RETURN NEXT postbox.make_finding('workers', 'error', 'max_worker_processes', format('postbox.publishers is %s, and with the launcher that does not fit into '
            'max_worker_processes, which is %s; raise max_worker_processes, and restart the server',
            current_setting('postbox.publishers'), current_setting('max_worker_processes')));
    END IF;
    IF current_setting('postbox.publishers')::int > current_setting('postbox.max_workers')::int THEN
        RETURN NEXT postbox.make_finding('workers', 'warning', 'postbox.max_workers', format('postbox.publishers is %s, and no more than postbox.max_workers run, which is %s; '
            'raise postbox.max_workers, or lower postbox.publishers', current_setting('postbox.publishers'), current_setting('postbox.max_workers')));
    END IF;
    IF has_function_privilege('postbox.list_workers()', 'EXECUTE') THEN
        RETURN QUERY SELECT (postbox.make_finding('workers', 'error', d.datname, 'the database has no worker: there are not enough worker slots, or workers do not come up; '
            'raise max_worker_processes or postbox.max_workers; the server log says which')).*
            FROM postbox.list_workers() w JOIN pg_database d ON d.oid = w.database_id WHERE w.state = 'unserved';
    END IF;
    RETURN QUERY SELECT (postbox.make_finding('workers', 'warning', t.evtname, 'the event trigger is disabled, so what belongs to an outbox or inbox does not follow '
        'it when it is dropped or gets another owner; ' || format('run ALTER EVENT TRIGGER %I ENABLE ALWAYS', t.evtname))).*
        FROM pg_event_trigger t WHERE t.evtname IN ('postbox_forget_dropped', 'postbox_follow_altered', 'postbox_refuse_drop') AND t.evtenabled <> 'A';
    IF NOT pg_has_role('pg_monitor', 'USAGE') AND NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
        RETURN NEXT postbox.make_finding('visibility', 'warning', current_user, 'the role may not see all that is checked; '
            || format('run GRANT pg_monitor TO %I, or let a member of pg_monitor call postbox.doctor()', current_user));
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_server() IS 'postbox.doctor() of library, version and workers';

CREATE FUNCTION postbox.doctor_of_settings() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lease int := (SELECT s.setting FROM pg_settings s WHERE s.name = 'postbox.lease_timeout');
    publish int := (SELECT s.setting FROM pg_settings s WHERE s.name = 'postbox.publish_timeout');
BEGIN
    IF current_setting('postbox.project_id') = '' THEN
        RETURN QUERY SELECT (postbox.make_finding('settings', 'error', p.name, format('postbox.project_id is not set, and the topic %s has a short name; ', p.topic)
            || 'set postbox.project_id in postgresql.conf, and reload the configuration')).*
            FROM postbox.publication p WHERE p.topic NOT LIKE 'projects/%';
        RETURN QUERY SELECT (postbox.make_finding('settings', 'warning', s.name, format('postbox.project_id is not set, and the subscription %s has a short name; ', s.subscription)
            || 'set postbox.project_id in postgresql.conf and reload the configuration, or start postbox pull with --project')).*
            FROM postbox.subscription s WHERE s.enabled AND s.subscription NOT LIKE 'projects/%';
    END IF;
    IF publish * 2 > lease THEN
        RETURN NEXT postbox.make_finding('settings', 'warning', 'postbox.publish_timeout', format('postbox.publish_timeout is %s s, and no more than half of postbox.lease_timeout '
            'counts, which is %s s; raise postbox.lease_timeout, or lower postbox.publish_timeout', publish, lease));
    END IF;
    RETURN QUERY SELECT (postbox.make_finding('settings', 'warning', s.name, 'it is for tests of Postbox, whose workers then fail, or give up too early or too late; remove it from the configuration')).*
        FROM pg_settings s WHERE s.name = 'postbox.failpoint' AND s.setting <> '' OR s.name = 'postbox.time_scale' AND s.setting <> '100';
    RETURN QUERY SELECT (postbox.make_finding('durability', 'error', s.name, 'it is off: after a crash of the machine the database may be corrupt, and events that consumers have seen may be gone; '
        || format('set %s = on in postgresql.conf, and reload the configuration', s.name))).*
        FROM pg_settings s WHERE s.name IN ('fsync', 'full_page_writes') AND s.setting = 'off';
    RETURN QUERY SELECT (postbox.make_finding('durability', 'warning', s.name, 'it is off, so nothing keeps the tables of Postbox small; '
        || format('set %s = on in postgresql.conf, and reload the configuration', s.name))).*
        FROM pg_settings s WHERE s.name IN ('autovacuum', 'track_counts') AND s.setting = 'off';
    IF pg_has_role('pg_read_all_stats', 'USAGE') AND NOT pg_is_in_recovery() AND current_setting('synchronous_standby_names') <> ''
       AND NOT EXISTS (SELECT FROM pg_stat_replication r WHERE r.sync_state IN ('sync', 'quorum')) THEN
        RETURN NEXT postbox.make_finding('durability', 'error', 'synchronous_standby_names', format('it is ''%s'', and no such standby is connected: commits wait, and events are '
            'not published; start the standby, or remove it from synchronous_standby_names and reload the configuration', current_setting('synchronous_standby_names')));
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_settings() IS 'postbox.doctor() of settings, and of what a crash would leave';

-- Events older than the retention stay while a transaction is open that may have seen them. So what counts as long follows from the retention.
CREATE FUNCTION postbox.doctor_of_transactions() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span interval := least('1 hour', (SELECT min(o.retention) / 4 FROM postbox.outbox o), (SELECT min(i.retention) / 4 FROM postbox.inbox i));
    old text := 'for longer than ' || span || ': the retention cannot remove events, and vacuum no rows; ';
BEGIN
    RETURN QUERY SELECT (postbox.make_finding('transactions', 'warning', 'process ' || a.pid, format('a transaction of role %s is open since %s, ', replace(quote_ident(a.usename), ';', ','),
            date_trunc('second', a.xact_start)) || old || format('let the application end it, or run SELECT pg_terminate_backend(%s)', a.pid))).*
        FROM pg_stat_activity a
        WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL AND a.datname = current_database())
          AND a.xact_start < clock_timestamp() - span
        ORDER BY a.xact_start LIMIT 10;
    RETURN QUERY SELECT (postbox.make_finding('transactions', 'warning', p.gid, format('a prepared transaction of database %s waits since %s, ', replace(quote_ident(p.database), ';', ','),
            date_trunc('second', p.prepared)) || old || format('run COMMIT PREPARED %L or ROLLBACK PREPARED %L in that database', p.gid, p.gid))).*
        FROM pg_prepared_xacts p WHERE p.prepared < clock_timestamp() - span ORDER BY p.prepared LIMIT 10;
    RETURN QUERY SELECT (postbox.make_finding('transactions', 'error', d.datname, format('the oldest transaction id that is not frozen is %s transactions old, and at 2 billion '
            'the server takes no more writes; ', age(d.datfrozenxid)) || 'end old transactions, remove unused replication slots, and run VACUUM (FREEZE) in that database')).*
        FROM pg_database d WHERE age(d.datfrozenxid) > 1500000000;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_transactions() IS 'postbox.doctor() of what holds up retention and vacuum';

-- The last events only, by an index.
CREATE FUNCTION postbox.latest_time(registered postbox.outbox) RETURNS timestamptz
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms' SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    latest timestamptz;
    occurred text := postbox.outbox_column(registered, 'occurred_at', 'e.');
BEGIN
    IF registered.kind = 'log' THEN
        EXECUTE format('SELECT max(o.at) FROM (SELECT %s FROM %s e WHERE e.origin = postbox.cluster_origin() AND e.seq > $1 - 10) AS o(at) WHERE isfinite(o.at)',
                       occurred, registered.relation) INTO latest USING pg_sequence_last_value(postbox.log_sequence(registered.relation));
    ELSE
        EXECUTE format('SELECT max(o.at) FROM ((SELECT %1$s FROM %2$s e WHERE e.published_at IS NOT NULL ORDER BY e.published_at DESC LIMIT 10) UNION ALL '
                       '(SELECT %1$s FROM %2$s e WHERE e.published_at IS NULL AND e.next_retry_at IS NULL ORDER BY e.seq DESC LIMIT 10)) '
                       'AS o(at) WHERE isfinite(o.at)', occurred, registered.relation) INTO latest;
    END IF;
    RETURN latest;
END
$$;
COMMENT ON FUNCTION postbox.latest_time(postbox.outbox) IS 'The greatest occurred_at of the last 10 events or so, read with the rights of the current user';

CREATE FUNCTION postbox.findings_of(relation regclass) RETURNS SETOF postbox.finding
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    registered postbox.outbox;
    latest timestamptz;
BEGIN
    IF EXISTS (SELECT FROM postbox.inbox i WHERE i.relation = findings_of.relation) THEN
        RETURN QUERY SELECT (postbox.make_finding('tables', 'error', f.object, f.problem, CASE WHEN f.repair IS NULL THEN 'nobody can put it back: create another inbox'
                             ELSE format('run SELECT * FROM postbox.repair_inbox(%L, dry_run => false)', relation) END)).*
            FROM postbox.repair_inbox(relation) f;
        RETURN;
    END IF;
    SELECT o.* INTO registered FROM postbox.outbox o WHERE o.relation = findings_of.relation;
    -- Code of users is not run, and a part that is missing is not counted: both might take for ever.
    IF postbox.outbox_problem(registered) IS NOT NULL OR postbox.code_of_users(registered.relation, registered.parked) IS NOT NULL THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT (postbox.make_finding('tables', 'error', f.object, f.problem, CASE WHEN f.repair IS NULL THEN 'nobody can put it back: create another outbox'
                         ELSE format('run SELECT * FROM postbox.repair_outbox(%L, dry_run => false)', relation) END)).*
        FROM postbox.repair_outbox(relation) f;
    IF FOUND THEN
        RETURN;
    END IF;
    latest := postbox.latest_time(registered);
    IF latest > clock_timestamp() + interval '1 minute' THEN
        RETURN NEXT postbox.make_finding('clock', 'warning', relation::text, format('one of the last events has occurred at %s, which is in the future: the clock of an emitter or of this '
            'server is wrong; ', date_trunc('second', latest)) || 'set the clock, and let emitters leave occurred_at out; this is over with the next 10 events');
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.findings_of(regclass) IS 'postbox.doctor() of the tables of an outbox or inbox, with the rights of the current user, who has to be its owner';

CREATE FUNCTION postbox.show_findings(relation regclass) RETURNS SETOF postbox.finding
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_findings(regclass) IS
    'postbox.findings_of, run as the owner of the outbox or inbox; no rows if the caller is neither that nor a member of pg_monitor or postbox_operator';

-- Change triggers are for each statement. What logical replication changes fires only triggers for each row; one of the user may emit.
CREATE FUNCTION postbox.doctor_of_changes() RETURNS SETOF postbox.finding
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (postbox.make_finding('tables', 'warning', c.relation::text, format('logical replication changes it (subscription %s), and its change triggers emit no events for that',
        string_agg(DISTINCT quote_ident(s.subname), ', ')), 'emit the events in the database in which the rows are changed, or see "Tables that logical replication changes" in docs/operations.md')).*
    FROM (SELECT DISTINCT t.tgrelid::regclass FROM pg_trigger t WHERE t.tgfoid = 'postbox.emit_changes()'::regprocedure) AS c(relation)
    CROSS JOIN LATERAL (SELECT c.relation UNION SELECT a.relid FROM pg_partition_ancestors(c.relation) a UNION SELECT p.relid FROM pg_partition_tree(c.relation) p) AS k(kin)
    JOIN pg_subscription_rel r ON r.srrelid = k.kin JOIN pg_subscription s ON s.oid = r.srsubid
    WHERE NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid WHERE t.tgenabled IN ('A', 'R') AND t.tgtype & 1 = 1 AND strpos(f.prosrc, 'outbox_emit') > 0
                      AND (t.tgrelid = c.relation OR t.tgrelid IN (SELECT p.relid FROM pg_partition_tree(c.relation) p)))
    GROUP BY c.relation
$$;
COMMENT ON FUNCTION postbox.doctor_of_changes() IS 'postbox.doctor() of tables with change triggers that logical replication changes';

CREATE FUNCTION postbox.doctor_of_tables() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    registered regclass;
    table_of record;
    problem text;
BEGIN
    FOR registered IN SELECT o.relation FROM postbox.outbox o UNION ALL SELECT i.relation FROM postbox.inbox i ORDER BY 1 LOOP
        -- Just before it is used: its owner may add code at any time.
        SELECT o.relation, postbox.outbox_problem(o) AS problem, postbox.code_of_users(o.relation, o.parked) AS code,
               postbox.unlogged_problem(o.relation, o.parked, o.counter) AS unlogged, ARRAY[o.relation, o.parked, o.counter] AS parts, o AS outbox
        INTO table_of FROM postbox.outbox o WHERE o.relation = registered;
        IF NOT FOUND THEN
            SELECT i.relation, postbox.parts_problem(i.relation) AS problem, NULL::text AS code, postbox.unlogged_problem(i.relation, i.tombstone) AS unlogged,
                   ARRAY[i.relation, i.tombstone] AS parts, NULL::postbox.outbox AS outbox
            INTO table_of FROM postbox.inbox i WHERE i.relation = registered;
        END IF;
        IF table_of.unlogged IS NOT NULL THEN
            RETURN NEXT postbox.make_finding('unlogged', 'error', table_of.relation::text, table_of.unlogged, format('run ALTER TABLE %s SET LOGGED', (
                SELECT c.oid::regclass FROM pg_class c WHERE c.relpersistence = 'u' AND (c.oid = ANY(table_of.parts)
                    OR c.oid IN (SELECT t.relid FROM unnest(table_of.parts) AS part, pg_partition_tree(part) t))
                ORDER BY c.oid LIMIT 1)));
        END IF;
        IF table_of.problem IS NOT NULL THEN
            RETURN NEXT postbox.make_finding('tables', 'error', table_of.relation::text, table_of.problem, CASE
                WHEN table_of.problem NOT LIKE '%postbox.repair\_%' THEN 'do what the detail says, or look it up in "Signs and remedies" of docs/operations.md'
                WHEN table_of.outbox IS NULL THEN format('run SELECT * FROM postbox.repair_inbox(%L, dry_run => false)', table_of.relation)
                ELSE format('run SELECT * FROM postbox.repair_outbox(%L, dry_run => false)', table_of.relation) END);
            CONTINUE;
        ELSIF table_of.code IS NOT NULL THEN
            RETURN NEXT postbox.make_finding('tables', 'warning', table_of.relation::text, 'the tables are not looked at: ' || table_of.code,
                'let the owner drop that code, or run SELECT * FROM postbox.repair_outbox');
            CONTINUE;
        END IF;
        -- What the owner of one outbox has made of it hides no other, and holds up nobody.
        BEGIN
            RETURN QUERY SELECT * FROM postbox.show_findings(table_of.relation);
            problem := CASE WHEN table_of.outbox IS NOT NULL THEN postbox.show_retention_problem(table_of.relation) END;
        EXCEPTION
            WHEN lock_not_available THEN
                RETURN NEXT postbox.make_finding('tables', 'warning', table_of.relation::text,
                    'not looked at: ' || coalesce(postbox.lock_holders(table_of.outbox), 'a table is locked'), 'wait for the process that has the lock, or end it, and try again');
                CONTINUE;
            WHEN OTHERS THEN
                problem := format('the table cannot be read: %s', SQLERRM);
        END;
        IF problem IS NOT NULL THEN
            RETURN NEXT postbox.make_finding('retention', 'warning', table_of.relation::text, problem,
                'create a publication, drop the outbox, or see postbox.publication_status, postbox.paused_keys and "Signs and remedies" in docs/operations.md');
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM postbox.doctor_of_changes();
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_tables() IS 'postbox.doctor() of the tables of outboxes and inboxes';

CREATE FUNCTION postbox.doctor_of_rights() RETURNS SETOF postbox.finding
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (postbox.make_finding('rights', 'error', c.oid::regclass::text, format('its owner %s may not read and write it, and workers act as the owner; ', replace(quote_ident(pg_get_userbyid(c.relowner)), ';', ','))
            || format('run GRANT ALL ON %s TO %I', c.oid::regclass, pg_get_userbyid(c.relowner)))).*
    FROM (SELECT o.relation FROM postbox.outbox o UNION ALL SELECT o.parked FROM postbox.outbox o UNION ALL SELECT i.relation FROM postbox.inbox i
          UNION ALL SELECT i.tombstone FROM postbox.inbox i) r(relation) JOIN pg_class c ON c.oid = r.relation
    WHERE NOT (has_table_privilege(c.relowner, c.oid, 'SELECT') AND has_table_privilege(c.relowner, c.oid, 'INSERT')
               AND has_table_privilege(c.relowner, c.oid, 'UPDATE') AND has_table_privilege(c.relowner, c.oid, 'DELETE'))
    UNION ALL
    SELECT (postbox.make_finding('rights', 'warning', c.oid::regclass::text, format('role %s may insert into it, but does not have USAGE on its schema, and so cannot name it; ',
            replace(quote_ident(pg_get_userbyid(a.grantee)), ';', ',')) || format('run GRANT USAGE ON SCHEMA %s TO %I', c.relnamespace::regnamespace, pg_get_userbyid(a.grantee)))).*
    FROM postbox.outbox o JOIN pg_class c ON c.oid = o.relation CROSS JOIN LATERAL aclexplode(c.relacl) a
    WHERE a.privilege_type = 'INSERT' AND a.grantee <> 0 AND NOT has_schema_privilege(a.grantee, c.relnamespace, 'USAGE')
    UNION ALL
    SELECT (postbox.make_finding('rights', 'warning', c.oid::regclass::text, format('its owner %s does not have USAGE on its schema; ', replace(quote_ident(pg_get_userbyid(c.relowner)), ';', ','))
            || format('run GRANT USAGE ON SCHEMA %s TO %I', c.relnamespace::regnamespace, pg_get_userbyid(c.relowner)))).*
    FROM (SELECT o.relation FROM postbox.outbox o UNION ALL SELECT i.relation FROM postbox.inbox i) r(relation) JOIN pg_class c ON c.oid = r.relation
    WHERE NOT has_schema_privilege(c.relowner, c.relnamespace, 'USAGE')
    UNION ALL
    SELECT (postbox.make_finding('rights', 'error', r.rolname, 'the role has rights beyond those of operators, and whoever is or becomes it may redrive and discard events; '
            || 'run ALTER ROLE postbox_operator NOLOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS')).*
    FROM pg_roles r WHERE r.rolname = 'postbox_operator'
      AND (r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls)
$$;
COMMENT ON FUNCTION postbox.doctor_of_rights() IS 'postbox.doctor() of roles';

CREATE FUNCTION postbox.doctor_of_publications() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT (postbox.make_finding('publications', CASE WHEN s.state IN ('active', 'waiting') THEN 'warning' ELSE 'error' END, s.publication,
            -- Not also what failed before nobody served it.
            format('it is %s: ', s.state) || coalesce(CASE WHEN s.state = 'unserved' AND starts_with(s.last_error, p.reason) THEN p.reason ELSE s.last_error END, 'the role may not see why'), CASE
            -- The server's own text, with its remedy.
            WHEN s.state = 'unserved' AND s.last_error LIKE 'nobody publishes it: %' THEN NULL
            WHEN s.last_error LIKE 'NOT_FOUND%' THEN format('create the topic %s, or run SELECT postbox.alter_publication(%L, topic => ...)', s.topic, s.publication)
            WHEN s.last_error ~ '^(PERMISSION_DENIED|UNAUTHENTICATED)' THEN format('grant roles/pubsub.publisher on the topic %s to the service account of the server', s.topic)
            WHEN s.last_error ~ '^(UNAVAILABLE|DEADLINE_EXCEEDED)' THEN 'look at postbox.endpoint, the network, DNS and firewalls between the server and Pub/Sub'
            WHEN s.last_error LIKE 'RESOURCE_EXHAUSTED%' THEN 'raise the quota, or wait'
            ELSE 'look the detail up in "Signs and remedies" of docs/operations.md'
            END)).*
        FROM postbox.publication_status s CROSS JOIN LATERAL postbox.publishing_state(s.publication) p
        -- What is wrong with the tables, the library or a setting is said there; and a standby shall not publish.
        WHERE (s.state <> 'active' OR s.last_error IS NOT NULL) AND s.state <> 'broken' AND NOT (s.state = 'unserved' AND pg_is_in_recovery())
          AND (s.state <> 'active' OR s.last_error NOT LIKE '% UNLOGGED: %') AND NOT (s.state = 'unserved' AND NOT (postbox.library_state()).preloaded);
    RETURN QUERY SELECT (postbox.make_finding('publications', 'warning', o.relation::text, 'no publication reads this outbox; run SELECT postbox.create_publication, or drop the outbox')).*
        FROM postbox.outbox o WHERE NOT EXISTS (SELECT FROM postbox.publication p WHERE p.outbox = o.relation);
    RETURN QUERY SELECT (postbox.make_finding('paused keys', 'warning', k.outbox::text, format('keys wait behind an event that cannot be published: %s, the first behind event %s: %s; ',
            count(*), min(replace(k.first_event_id::text, ';', ',')), min(replace(k.last_error, ';', ','))) || 'remove the cause and run '
            || format('SELECT postbox.redrive(%L), or give the events up, one after the other, with SELECT postbox.discard(%L, %L)', k.outbox, k.outbox, min(k.first_event_id::text)))).*
        FROM postbox.paused_keys k GROUP BY k.outbox;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_publications() IS 'postbox.doctor() of publications';

-- A puller without rights on the inbox cannot report, so its session says that it is there. But any role can give its session that name. So only a
-- session that may apply counts as a puller, and no remedy gives a right to the role of another one.
CREATE FUNCTION postbox.list_pullers(OUT subscription text, OUT pid int, OUT rolname name, OUT may_apply boolean) RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT ON (b.name, m.may_apply) b.name, a.pid, r.rolname, m.may_apply
    FROM postbox.subscription b CROSS JOIN pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
    CROSS JOIN LATERAL (SELECT coalesce(has_table_privilege(r.oid, b.inbox, 'INSERT'), false) AS may_apply) m
    WHERE a.datname = current_database() AND (a.application_name = 'postbox pull' OR a.application_name LIKE 'postbox pull %')
    ORDER BY b.name, m.may_apply, a.application_name = left('postbox pull ' || b.name, 63) DESC, a.pid
$$;
COMMENT ON FUNCTION postbox.list_pullers() IS
    'For each subscription a session of this database that calls itself postbox pull and may apply its events, and one that may not. Of several, one that also names the '
    'subscription. No row if there is none. Any session can call itself so';

-- postbox pull needs a connection for its configuration and one for each subscription; as long as there is work, one for each applier. Workers are
-- background workers, which no limit of connections counts.
CREATE FUNCTION postbox.doctor_of_connections() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    subscriptions int := (SELECT count(*) FROM postbox.subscription s WHERE s.enabled);
    appliers int := (SELECT sum(s.appliers) FROM postbox.subscription s WHERE s.enabled);
    room int := current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0);
    most int := 1 + appliers;
    bound int;
BEGIN
    IF subscriptions = 0 THEN
        RETURN;
    END IF;
    -- The roles that may be those that pull, as far as their number of connections is limited.
    RETURN QUERY SELECT (postbox.make_finding('connections', 'error', r.rolname, format('role %I may have %s connections, and a postbox pull of it needs %s: one for its configuration, and one '
            'for each of %s subscriptions', r.rolname, r.rolconnlimit, 1 + n.subscriptions, n.subscriptions),
            format('if it is the role that pulls, run ALTER ROLE %I CONNECTION LIMIT %s, so that each applier may have one', r.rolname, 1 + n.appliers))).*
        FROM pg_roles r CROSS JOIN LATERAL (SELECT count(*) AS subscriptions, sum(s.appliers) AS appliers FROM postbox.subscription s
                WHERE s.enabled AND has_table_privilege(r.oid, s.inbox, 'INSERT')) n
        WHERE r.rolconnlimit BETWEEN 0 AND n.subscriptions AND NOT r.rolsuper AND r.rolname IN (SELECT p.rolname FROM postbox.list_pullers() p WHERE p.may_apply);
    RETURN QUERY SELECT (postbox.make_finding('connections', 'error', d.datname, format('the database may have %s connections, and postbox pull needs %s: one for its configuration, and one for '
            'each of %s subscriptions', d.datconnlimit, 1 + subscriptions, subscriptions), format('run ALTER DATABASE %I CONNECTION LIMIT %s, or more for other clients', d.datname, most))).*
        FROM pg_database d WHERE d.datname = current_database() AND d.datconnlimit BETWEEN 0 AND subscriptions;
    SELECT CASE WHEN bool_and(r.rolconnlimit >= 0) THEN sum(r.rolconnlimit) END INTO bound
        FROM pg_roles r WHERE r.rolname IN (SELECT p.rolname FROM postbox.list_pullers() p WHERE p.may_apply);
    IF room <= subscriptions THEN
        RETURN NEXT postbox.make_finding('connections', 'error', 'max_connections', format('the server has %s connections for all clients, and postbox pull needs %s of them: one for its '
            'configuration, and one for each of %s subscriptions', room, 1 + subscriptions, subscriptions), 'raise max_connections, and restart the server');
    ELSIF room < least(most, bound) THEN
        RETURN NEXT postbox.make_finding('connections', 'warning', 'max_connections', format('the server has %s connections for all clients, and postbox pull may take %s while there is work '
            'for all appliers: one for its configuration, and one for each of %s appliers', room, most, appliers), 'raise max_connections and restart the server, create the '
            'subscriptions with fewer appliers, or bound what postbox pull may take: ALTER ROLE ... CONNECTION LIMIT');
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_connections() IS 'postbox.doctor() of what the subscriptions need, and what server, database and role allow';

CREATE FUNCTION postbox.doctor_of_subscriptions() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known timestamptz := coalesce(postbox.known_until(), now());
BEGIN
    RETURN QUERY SELECT (postbox.make_finding('inboxes', 'error', format('%s %s', p.kind, coalesce(p.id::text, p.inbox::text)), p.problem,
            'repair or drop what is named; see "Broken projections and handlers" in docs/inbox.md')).*
        FROM postbox.inbox_problem p WHERE p.kind IN ('projection', 'handler');
    RETURN QUERY SELECT (postbox.make_finding('inboxes', 'warning', format('projection %s', p.id), p.problem, 'see "Fields that no event has" in docs/inbox.md')).*
        FROM postbox.inbox_problem p WHERE p.kind = 'field';
    -- A puller reports every 5 minutes at least. Who may not see its reports does not know. A standby has those that it has replayed. It does not
    -- see the sessions of the primary.
    RETURN QUERY SELECT (postbox.make_finding('subscriptions', CASE WHEN s.stream IS NULL AND pg_is_in_recovery() THEN 'warning' ELSE 'error' END, s.name, CASE
            WHEN s.stream IS NULL AND pg_is_in_recovery() THEN 'no report of a puller is known here, and this server is a standby'
            WHEN s.stream IS NULL THEN CASE WHEN s.pid IS NULL THEN 'nobody pulls it' ELSE format('no report comes, though a session of role %I that calls itself postbox pull '
                'is connected (process %s): it takes other subscriptions, has just started, or gets no connection more', s.rolname, s.pid) END
                || CASE WHEN s.other_pid IS NULL THEN '' ELSE format('; a session of role %I that calls itself postbox pull (process %s) may not apply it, nor report on it: the role '
                'has no INSERT on %s', s.other_role, s.other_pid, s.inbox) END
            WHEN s.stream <> 'connected' THEN format('its stream is %s: %s', s.stream, coalesce(s.stream_error, 'no error is known'))
            ELSE format('nothing can be applied since %s: %s', date_trunc('second', s.retrying_since), coalesce(s.last_error, 'no error is known')) END,
            CASE WHEN s.stream IS NULL AND pg_is_in_recovery() THEN 'run SELECT * FROM postbox.doctor() on the primary'
            WHEN s.stream IS NULL THEN CASE WHEN s.other_pid IS NULL THEN '' ELSE format('grant INSERT on %s to the role that is to pull, if it is this one; otherwise ', s.inbox) END
                || CASE WHEN s.pid IS NULL THEN format('start postbox pull, or run SELECT postbox.drop_subscription(%L)', s.name)
                   ELSE 'see the log of postbox pull, and run postbox doctor; if that session is none, start postbox pull' END
            ELSE 'see the log of postbox pull, and run postbox doctor' END)).*
        FROM (SELECT b.name, b.inbox, t.*, p.pid, p.rolname, o.pid AS other_pid, o.rolname AS other_role
              FROM postbox.subscription b LEFT JOIN postbox.list_pullers() p ON p.subscription = b.name AND p.may_apply
              LEFT JOIN postbox.list_pullers() o ON o.subscription = b.name AND NOT o.may_apply LEFT JOIN LATERAL (
                  SELECT t.stream, t.stream_error, t.retrying_since, t.last_error FROM postbox.subscription_status t
                  WHERE t.subscription = b.name AND t.last_seen > known - interval '6 minutes'
                  ORDER BY t.stream = 'connected' DESC, t.retrying_since NULLS FIRST LIMIT 1) t ON true
              WHERE b.enabled AND (postbox.is_operator() OR pg_has_role('pg_monitor', 'USAGE') OR postbox.owns_inbox(b.inbox))) s
        WHERE s.stream IS DISTINCT FROM 'connected' OR s.retrying_since < known - interval '1 minute';
    -- The server would have cancelled a statement that takes too long. On a standby the number is that of another process.
    RETURN QUERY SELECT (postbox.make_finding('subscriptions', CASE WHEN t.unanswered_since < known - b.statement_timeout - interval '10 s' AND b.statement_timeout > '0'
                THEN 'error' ELSE 'warning' END, b.name, format('process %s of the %s has not answered since %s', t.unanswered_pid,
                CASE WHEN pg_is_in_recovery() THEN 'primary' ELSE 'server' END, date_trunc('second', t.unanswered_since)),
            CASE WHEN pg_is_in_recovery() THEN 'run SELECT * FROM postbox.doctor() on the primary' ELSE format('see what it does in pg_stat_activity; if it does not go on, '
                'run SELECT pg_terminate_backend(%s), or kill -CONT if it is stopped', t.unanswered_pid) END)).*
        FROM postbox.subscription_status t JOIN postbox.subscription b ON b.name = t.subscription
        WHERE t.unanswered_since IS NOT NULL AND t.last_seen > known - interval '6 minutes'
          AND (postbox.is_operator() OR pg_has_role('pg_monitor', 'USAGE') OR postbox.owns_inbox(b.inbox));
    RETURN QUERY SELECT (postbox.make_finding('dead letters', 'warning', d.inbox::text, format('%s events could not be applied, the last at %s; ', count(*), date_trunc('second', max(d.failed_at)))
            || 'see postbox.dead_letter, and run SELECT postbox.redrive_dead_letter(id) or SELECT postbox.discard_dead_letter(id) for each')).*
        FROM postbox.dead_letter d GROUP BY d.inbox;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_subscriptions() IS 'postbox.doctor() of inboxes and subscriptions';

CREATE FUNCTION postbox.doctor_of_credentials() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT (postbox.make_finding('credentials', 'error', u.name, format('it uses credential %I, which does not exist', u.credential),
            format('run SELECT postbox.create_credential(%L, ...), or let it use another one', u.credential))).*
        FROM (SELECT p.name, p.credential FROM postbox.publication p UNION ALL SELECT s.name, s.credential FROM postbox.subscription s) u
        WHERE u.credential IS NOT NULL AND NOT EXISTS (SELECT FROM postbox.credential c WHERE c.name = u.credential);
    RETURN QUERY SELECT (postbox.make_finding('credentials', 'warning', g.credential, format('it is granted to %L, and no role has this name: who gets the name gets the credential', g.grantee),
            format('run SELECT postbox.revoke_credential(%L, %L)', g.credential, g.grantee))).*
        FROM postbox.credential_grant g WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = g.grantee);
    -- Who may not see the status does not know.
    IF has_table_privilege('postbox.credential_status', 'SELECT') THEN
        RETURN QUERY SELECT (postbox.make_finding('credentials', CASE WHEN s.used_by = '{}' THEN 'warning' ELSE 'error' END, coalesce(s.name, 'the environment of the server'),
                s.last_error, CASE WHEN s.name IS NULL THEN 'give the server a file in GOOGLE_APPLICATION_CREDENTIALS, or publications a credential: postbox.create_credential'
                                   ELSE format('run SELECT postbox.alter_credential(%L, ...), or repair what the detail names', s.name) END)).*
            FROM postbox.credential_status s WHERE s.last_error IS NOT NULL;
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_credentials() IS 'postbox.doctor() of credentials';

CREATE FUNCTION postbox.doctor() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET row_security = on
    SET lock_timeout = '100ms'
AS $$
DECLARE
    checks text[] := '{preloaded,version,workers,settings,durability,transactions,rights,tables,unlogged,retention,clock,publications,"paused keys",inboxes,connections,subscriptions,"dead letters",credentials,visibility}';
    part text;
    found postbox.finding;
    findings postbox.finding[] := '{}';
BEGIN
    FOREACH part IN ARRAY '{server,settings,transactions,rights,tables,publications,connections,subscriptions,credentials}'::text[] LOOP
        BEGIN
            FOR found IN EXECUTE format('SELECT * FROM postbox.doctor_of_%s()', part) LOOP
                findings := findings || found;
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            -- None of its checks is known to be ok then.
            findings := findings || ARRAY(SELECT postbox.make_finding(c.name, 'error', NULL, 'not checked: ' || SQLERRM, 'remove that cause, and try again; the server log has more')
                FROM unnest((CASE part WHEN 'server' THEN '{preloaded,version,workers,visibility}' WHEN 'settings' THEN '{settings,durability}'
                             WHEN 'tables' THEN '{tables,unlogged,retention,clock}' WHEN 'publications' THEN '{publications,"paused keys"}'
                             WHEN 'subscriptions' THEN '{inboxes,subscriptions,"dead letters"}' ELSE format('{%s}', part) END)::text[]) AS c(name));
        END;
    END LOOP;
    RETURN QUERY
        SELECT f.* FROM unnest(findings) f
        UNION ALL
        SELECT c.name, 'ok', NULL, NULL, NULL FROM unnest(checks) AS c(name) WHERE NOT EXISTS (SELECT FROM unnest(findings) f WHERE f.check = c.name)
        ORDER BY 2 DESC, 1, 3;
END
$$;
COMMENT ON FUNCTION postbox.doctor() IS
    'Checks what the server can see of Postbox in this database: a row for each check that is ok, and one for each problem, with its cause and the remedy. For everybody; '
    'members of pg_monitor and postbox_operator see the most. On a standby a row says what it knows, and of when';
