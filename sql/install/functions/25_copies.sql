-- Copies of a database, or of its events: what keeps them from publishing the same events again.

-- A publication belongs to a database. A copy of the database beside the original has the same publications, and would publish
-- everything twice. So a publication that was copied within the cluster is not published while the original is there, or until
-- postbox.claim_publication says so. In another cluster it goes on by itself: the original is not known there. A physical copy cannot
-- be told from its original.
CREATE OR REPLACE FUNCTION postbox.this_database() RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.this_database() IS 'The system identifier of the cluster and the OID of the current database';

CREATE OR REPLACE FUNCTION postbox.copied_from(home text) RETURNS name
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT d.datname FROM (SELECT postbox.this_database() AS name) AS this JOIN pg_database d ON d.oid::text = split_part(home, '/', 2)
    WHERE home <> this.name AND split_part(home, '/', 1) = split_part(this.name, '/', 1) AND NOT d.datistemplate
$$;
COMMENT ON FUNCTION postbox.copied_from(text) IS
    'The database of this cluster to which a publication with this home belongs, if that is another one; NULL if it belongs here, or no other database has it. '
    'What is marked as a template is there to be copied';

CREATE OR REPLACE FUNCTION postbox.copy_problem(publication text) RETURNS postbox.problem
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (SELECT ROW('copied', 'error', p.name, format('no worker publishes it: it was copied from database "%s"', postbox.copied_from(p.home)),
                       format('drop it, or run SELECT postbox.claim_publication(%L) if it has to be published here, too', p.name))::postbox.problem
            FROM postbox.publication p WHERE p.name = copy_problem.publication AND postbox.copied_from(p.home) IS NOT NULL);
END
$$;
COMMENT ON FUNCTION postbox.copy_problem(text) IS 'Why a publication that was copied with its database is not published here, and what to do; NULL for others';

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
    'Says that a publication of a copied database, or each of them, belongs here and is published here, too. Returns how many did not before';

-- Logical replication may bring rows of another database into an outbox, which publishes them. What arrives is marked, so
-- that it is not published here: see extension/emit/replicated.cc. Ordinary sessions do not fire the trigger.
CREATE OR REPLACE FUNCTION postbox.event_replicated() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.event_replicated() IS 'Trigger of outboxes: keeps what logical replication brings from being published here';

-- Rows of a log say by txid and seq when they were emitted, and by origin where: see extension/emit/stamp.cc.
CREATE OR REPLACE FUNCTION postbox.stamp_event() RETURNS trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.stamp_event() IS
    'Trigger of log outboxes: gives a row that is inserted its txid, seq and origin, whatever the INSERT says. A row of another cluster keeps them. '
    'Only the owner of the outbox may insert that, or a row of another generation than that of now (insufficient_privilege)';

-- On each partition, not on the log: pg_restore makes a trigger when the rows of its table are there, and a log has none of its own.
CREATE OR REPLACE FUNCTION postbox.add_stamp_trigger(part regclass) RETURNS void
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    EXECUTE format('CREATE OR REPLACE TRIGGER postbox_stamp BEFORE INSERT ON %s FOR EACH ROW EXECUTE FUNCTION postbox.stamp_event()', part);
    EXECUTE format('ALTER TABLE %s ENABLE TRIGGER postbox_stamp', part);
END
$$;
COMMENT ON FUNCTION postbox.add_stamp_trigger(regclass) IS 'Puts the trigger postbox.stamp_event on a partition of a log outbox, and enables it';

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
    'Puts the triggers of a table of an outbox on it, and enables them. Its kind: log, table, or parked for the parked events of a log';

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
        format('run SELECT postbox.resolve_unknown_origin(%L, true) if that is so for all that come, false if they are to be published here', outbox))::postbox.problem END;
END
$$;
COMMENT ON FUNCTION postbox.replicated_problem(regclass) IS
    'That a log outbox keeps events that logical replication has brought, judged with the rights of the current user; NULL if it does not, or that was decided';
