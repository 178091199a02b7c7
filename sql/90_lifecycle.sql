-- What must follow when a user drops with plain DROP TABLE, DROP SCHEMA or DROP OWNED what Postbox has registered.

CREATE FUNCTION postbox.forget_dropped() RETURNS event_trigger
    LANGUAGE plpgsql SECURITY DEFINER
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    dropped oid[];
    orphan regclass;
BEGIN
    SELECT array_agg(d.objid) INTO dropped FROM pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0;
    IF dropped IS NULL THEN
        RETURN;
    END IF;
    -- The counter of an outbox and the tombstones of an inbox are of no use without it.
    FOR orphan IN
        WITH outboxes AS (
            DELETE FROM postbox.outbox o WHERE o.relation = ANY (dropped) RETURNING o.counter
        ), inboxes AS (
            DELETE FROM postbox.inbox i WHERE i.relation = ANY (dropped) RETURNING i.tombstone
        )
        SELECT counter FROM outboxes UNION ALL SELECT tombstone FROM inboxes
    LOOP
        IF EXISTS (SELECT FROM pg_class c WHERE c.oid = orphan) THEN
            EXECUTE format('DROP TABLE %s', orphan);
        END IF;
    END LOOP;
    DELETE FROM postbox.projection p WHERE p.target = ANY (dropped);
    FOR orphan IN
        DELETE FROM postbox.inbox i WHERE i.relation = ANY (dropped) RETURNING i.tombstone
    LOOP
        IF EXISTS (SELECT FROM pg_class c WHERE c.oid = orphan) THEN
            EXECUTE format('DROP TABLE %s', orphan);
        END IF;
    END LOOP;
    DELETE FROM postbox.dead_letter d WHERE d.inbox = ANY (dropped);
END
$$;
COMMENT ON FUNCTION postbox.forget_dropped() IS 'Event trigger: removes the registration of dropped outboxes, inboxes and projection targets';

CREATE EVENT TRIGGER postbox_forget_dropped ON sql_drop EXECUTE FUNCTION postbox.forget_dropped();
COMMENT ON EVENT TRIGGER postbox_forget_dropped IS 'Removes the registration of dropped outboxes, inboxes and projection targets';
