-- Rows that refer to an outbox, a publication or an inbox are deleted with it. Triggers do this instead of foreign
-- keys, because a parallel restore (pg_restore --jobs) fills the tables of an extension in any order.

CREATE OR REPLACE FUNCTION postbox.delete_dependents() RETURNS trigger
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    CASE TG_TABLE_NAME
        WHEN 'outbox' THEN
            DELETE FROM postbox.publication p WHERE p.outbox = OLD.relation;
            DELETE FROM postbox.given_version g WHERE g.outbox = OLD.relation;
            DELETE FROM postbox.backfill b WHERE b.outbox = OLD.relation;
        WHEN 'publication' THEN
            DELETE FROM postbox.publication_state s WHERE s.publication = OLD.name;
            DELETE FROM postbox.lane l WHERE l.publication = OLD.name;
            DELETE FROM postbox.expired_event e WHERE e.publication = OLD.name;
            DELETE FROM postbox.former_position f WHERE f.publication = OLD.name;
            DELETE FROM postbox.discarded_outgoing d WHERE d.publication = OLD.name;
        WHEN 'inbox' THEN
            DELETE FROM postbox.subscription s WHERE s.inbox = OLD.relation;
            DELETE FROM postbox.projection p WHERE p.inbox = OLD.relation;
            DELETE FROM postbox.handler h WHERE h.inbox = OLD.relation;
            DELETE FROM postbox.dead_letter d WHERE d.inbox = OLD.relation;
            DELETE FROM postbox.parked_key k WHERE k.inbox = OLD.relation;
            DELETE FROM postbox.discarded_event d WHERE d.inbox = OLD.relation;
            DELETE FROM postbox.rebuild r WHERE r.inbox = OLD.relation;
    END CASE;
    RETURN NULL;
END
$$;
COMMENT ON FUNCTION postbox.delete_dependents() IS 'Internal: trigger that deletes the rows that refer to a deleted outbox, publication or inbox.';

-- A plain DROP TABLE, DROP SCHEMA or DROP OWNED may drop a registered table. Its registration must go with it.

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
    -- The counter of an outbox and the tombstones of an inbox are dropped with it. Most DROPs concern other tables.
    IF EXISTS (SELECT FROM postbox.outbox o WHERE o.relation = ANY (dropped) UNION ALL SELECT FROM postbox.inbox i WHERE i.relation = ANY (dropped)
               UNION ALL SELECT FROM postbox.rebuild r WHERE r.target = ANY (dropped)) THEN
        orphans := ARRAY(SELECT p.part FROM postbox.parts_of(dropped) p WHERE p.kind <> 'partition');
        -- A rebuild ends without its target or its inbox. What it has created goes with it, the inbox of the shadow first.
        orphans := orphans || ARRAY(SELECT o.relation FROM postbox.rebuild r CROSS JOIN LATERAL (VALUES (1, r.shadow_inbox), (2, r.shadow)) o(place, relation)
            JOIN pg_class c ON c.oid = o.relation
            WHERE r.state = 'active' AND (r.target = ANY (dropped) OR r.inbox = ANY (dropped)) AND o.relation <> ALL (dropped) ORDER BY o.place);
        DELETE FROM postbox.rebuild r WHERE r.target = ANY (dropped);
        DELETE FROM postbox.outbox o WHERE o.relation = ANY (dropped);
        DELETE FROM postbox.inbox i WHERE i.relation = ANY (dropped);
    END IF;
    FOREACH orphan IN ARRAY coalesce(orphans, '{}') LOOP
        BEGIN
            EXECUTE format('DROP TABLE %s', orphan);
        EXCEPTION WHEN dependent_objects_still_exist THEN
            -- A DROP does not fail because another role made an object that depends on such a table.
            RAISE NOTICE USING
                MESSAGE = format('table %s is not dropped because other objects depend on it', orphan),
                HINT = 'Its owner can drop it with DROP TABLE ... CASCADE.';
        END;
    END LOOP;
    -- A projection whose target is dropped stays, as broken. After a restore another table may have the OID.
    UPDATE postbox.projection p SET target = 0, dropped_target = d.object_identity
    FROM pg_event_trigger_dropped_objects() d
    WHERE d.classid = 'pg_class'::regclass AND d.objsubid = 0 AND p.target = d.objid;
END
$$;
COMMENT ON FUNCTION postbox.forget_dropped() IS
    'Internal: event trigger that removes the registration of dropped outboxes and inboxes, and marks projections whose target was dropped.';

-- The parts of an outbox or inbox follow it to another owner or schema: extension/lifecycle/follow.cc.

CREATE OR REPLACE FUNCTION postbox.follow_altered() RETURNS event_trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.follow_altered() IS 'Internal: event trigger that gives the parts of an outbox or inbox the new owner or schema of its table.';

-- DROP EXTENSION needs CASCADE if outboxes or inboxes are registered: extension/lifecycle/drop_extension.cc.

CREATE OR REPLACE FUNCTION postbox.refuse_drop() RETURNS event_trigger
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.refuse_drop() IS 'Internal: event trigger that refuses DROP EXTENSION postbox without CASCADE if there are outboxes or inboxes.';
