-- Copies of a database, or of its events: what keeps them from publishing the same events again.

-- A publication belongs to a database. A copy of the database beside the original has the same publications, and would publish
-- everything twice. So a publication that was copied within the cluster is not published while the original exists, unless
-- postbox.claim_publication is called. In another cluster it is published: the original is not known there. A physical copy is
-- indistinguishable from its original.
CREATE OR REPLACE FUNCTION postbox.this_database() RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.this_database() IS 'Internal: the system identifier of the cluster and the OID of the current database, as in column home of postbox.publication.';

CREATE OR REPLACE FUNCTION postbox.copied_from(home text) RETURNS name
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.datname FROM (SELECT postbox.this_database() AS name) AS this JOIN pg_database d ON d.oid::text = split_part(home, '/', 2)
    WHERE home <> this.name AND split_part(home, '/', 1) = split_part(this.name, '/', 1) AND NOT d.datistemplate
$$;
COMMENT ON FUNCTION postbox.copied_from(text) IS
    'Internal: the other database of this cluster that a publication with this home belongs to; NULL if it belongs here, or no other database has it. Template databases '
    'do not count.';

CREATE OR REPLACE FUNCTION postbox.copy_problem(publication text) RETURNS postbox.problem
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT ROW('copied', 'error', p.name, format('no worker publishes it: it was copied from database "%s"', postbox.copied_from(p.home)),
                       format('drop it, or run SELECT postbox.claim_publication(%L) if it is to be published here, too', p.name))::postbox.problem
            FROM postbox.publication p WHERE p.name = copy_problem.publication AND postbox.copied_from(p.home) IS NOT NULL);
END
$$;
COMMENT ON FUNCTION postbox.copy_problem(text) IS 'Internal: why a publication that was copied with its database is not published here, and the remedy; NULL for others.';

CREATE OR REPLACE FUNCTION postbox.claim_publication(publication text DEFAULT NULL) RETURNS bigint
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    taken bigint;
BEGIN
    IF publication IS NOT NULL AND NOT EXISTS (SELECT FROM postbox.publication p WHERE p.name = claim_publication.publication) THEN
        RAISE undefined_object USING
            MESSAGE = format('publication "%s" does not exist', publication),
            HINT = 'The publications of this database are listed in postbox.publication.';
    END IF;
    UPDATE postbox.publication p SET home = postbox.this_database()
    WHERE p.name = coalesce(claim_publication.publication, p.name) AND p.home <> postbox.this_database();
    GET DIAGNOSTICS taken = ROW_COUNT;
    RETURN taken;
END
$$;
COMMENT ON FUNCTION postbox.claim_publication(text) IS
$$Makes this database publish the publications that were copied into it, beside the original. Returns how many publications did not belong to this database before.

A database that was copied within its cluster, by CREATE DATABASE ... TEMPLATE or by a dump that was restored beside it, publishes nothing while the original exists;
  its publications are `unserved`. When both publish, consumers receive pending events from both.

publication: the name of the publication. NULL claims all publications of the database.

Rights: superuser.
Errors: 42704 if the publication does not exist; 42501 for other roles.
Since: 0.2.0
Example: SELECT postbox.claim_publication('video_events');$$;

-- Logical replication may bring rows of another database into an outbox, which publishes them. What arrives is marked, so
-- that it is not published here: see extension/emit/replicated.cc. Ordinary sessions do not fire the trigger.
CREATE OR REPLACE FUNCTION postbox.event_replicated() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.event_replicated() IS 'Internal: trigger of outboxes that keeps rows brought by logical replication from being published here.';

-- The columns txid and seq of a log say when a row was emitted, and origin says where: see extension/emit/stamp.cc.
CREATE OR REPLACE FUNCTION postbox.stamp_event() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.stamp_event() IS
    'Internal: trigger of log outboxes that gives an inserted row its true txid, seq and origin; rows of other clusters keep theirs, and only the owner may insert those.';

-- On each partition, not on the log: pg_restore creates a trigger after the rows of its table, and the log itself has no rows.
CREATE OR REPLACE FUNCTION postbox.add_stamp_trigger(part regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER postbox_stamp BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION postbox.stamp_event()', part);
    EXECUTE format('ALTER TABLE %s ENABLE TRIGGER postbox_stamp', part);
END
$$;
COMMENT ON FUNCTION postbox.add_stamp_trigger(regclass) IS 'Internal: creates and enables the trigger postbox_stamp on a partition of a log outbox.';

CREATE OR REPLACE FUNCTION postbox.add_outbox_triggers(relation regclass, kind text) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    part regclass;
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER postbox_replicated AFTER INSERT OR UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION postbox.event_replicated(%L)', relation, kind);
    FOR part IN SELECT relation UNION SELECT t.relid FROM pg_partition_tree(relation) t LOOP
        EXECUTE format('ALTER TABLE %s ENABLE REPLICA TRIGGER postbox_replicated', part);
        IF kind = 'log' AND part <> relation THEN
            PERFORM postbox.add_stamp_trigger(part);
        END IF;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.add_outbox_triggers(regclass, text) IS
    'Internal: creates and enables the triggers of a table of an outbox, whose kind is log, table, or parked for the table of parked events.';

CREATE OR REPLACE FUNCTION postbox.replicated_problem(outbox regclass) RETURNS postbox.problem
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
    RETURN CASE WHEN kept THEN ROW('replicated_events', 'warning', outbox,
        'events that came by logical replication are kept: they are published where they were emitted',
        format('run SELECT postbox.resolve_unknown_origin(%L, true) if their source publishes all of them, false if they are to be published here', outbox))::postbox.problem END;
END
$$;
COMMENT ON FUNCTION postbox.replicated_problem(regclass) IS
    'Internal: whether a log outbox keeps events that logical replication brought and that await a decision, with the rights of the current user; NULL if not.';
