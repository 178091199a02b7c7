-- Triggers, policies and defaults that call functions of Postbox, so they are created after these. They are state like the tables: an upgrade
-- changes them with a migration (sql/upgrade).

ALTER TABLE postbox.publication ALTER COLUMN home SET DEFAULT postbox.this_database();

-- Sessions and workers cache these tables, and read them again when they change (functions/10_outbox.sql).
DO $$
DECLARE
    configuration regclass;
BEGIN
    FOREACH configuration IN ARRAY '{postbox.outbox,postbox.publication,postbox.inbox,postbox.projection,postbox.handler,postbox.credential,postbox.credential_secret}'::regclass[] LOOP
        EXECUTE format('CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed()', configuration);
        EXECUTE format('CREATE TRIGGER truncated AFTER TRUNCATE ON %s FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed()', configuration);
        EXECUTE format('ALTER TABLE %s ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated', configuration);
    END LOOP;
END
$$;

CREATE TRIGGER forgotten AFTER DELETE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.forget_missing_fields();
CREATE TRIGGER forgotten_all AFTER TRUNCATE ON postbox.projection
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.forget_missing_fields();

-- Which inboxes are the role's is found out once for a statement: for each row, that would take 7 us, or 0.7 s for 100,000 dead letters.
CREATE POLICY owner_of_the_inbox ON postbox.dead_letter USING ((SELECT postbox.is_operator())
    OR inbox = ANY (ARRAY(SELECT i.relation FROM postbox.inbox i WHERE postbox.owns_inbox(i.relation))));
COMMENT ON POLICY owner_of_the_inbox ON postbox.dead_letter IS 'Roles with the rights of the owner of the inbox, and operators, see its dead letters.';
CREATE POLICY owner_of_the_inbox ON postbox.parked_key USING (postbox.owns_inbox(inbox) OR (SELECT postbox.is_operator()));
COMMENT ON POLICY owner_of_the_inbox ON postbox.parked_key IS 'Roles with the rights of the owner of the inbox, and operators, see its parked keys.';
CREATE POLICY owner_of_the_inbox ON postbox.discarded_event USING (postbox.owns_inbox(inbox) OR (SELECT postbox.is_operator()));
COMMENT ON POLICY owner_of_the_inbox ON postbox.discarded_event IS 'Roles with the rights of the owner of the inbox, and operators, see what was discarded.';

CREATE POLICY readers_of_the_outbox ON postbox.expired_event USING (postbox.sees_outbox(outbox));
COMMENT ON POLICY readers_of_the_outbox ON postbox.expired_event IS 'Roles that may read an outbox, operators and members of pg_monitor see its expired events.';

CREATE POLICY appliers ON postbox.subscription_status USING (EXISTS (SELECT FROM postbox.subscription s
    WHERE s.name = subscription_status.subscription AND has_table_privilege(s.inbox, 'INSERT')));
COMMENT ON POLICY appliers ON postbox.subscription_status IS 'Roles that may apply the events of a subscription write its status.';
CREATE POLICY readers ON postbox.subscription_status FOR SELECT USING ((SELECT postbox.is_operator())
    OR (SELECT pg_has_role('pg_monitor', 'USAGE')) OR EXISTS (SELECT FROM postbox.subscription s
        WHERE s.name = subscription_status.subscription AND postbox.owns_inbox(s.inbox)));
COMMENT ON POLICY readers ON postbox.subscription_status IS 'The owner of the inbox, operators and members of pg_monitor read the status of a subscription.';

-- The definition of a backfill says with whose rights it emits. So only a role with these rights may insert one, and nothing but its state may be
-- updated (tables/23_backfill.sql).
-- A backfill keeps others of its table and outbox away, so both have to be its creator's to write.
CREATE POLICY creators ON postbox.backfill FOR INSERT WITH CHECK (pg_has_role(owner, 'USAGE')
    AND EXISTS (SELECT FROM postbox.outbox o WHERE o.relation = backfill.outbox)
    AND has_any_column_privilege(outbox, 'INSERT') AND has_any_column_privilege(relation, 'UPDATE'));
COMMENT ON POLICY creators ON postbox.backfill IS 'A backfill emits as a role whose rights its creator has, from a table and into an outbox that the creator may write.';
CREATE POLICY owners ON postbox.backfill FOR UPDATE USING (pg_has_role(owner, 'USAGE') OR (SELECT postbox.is_operator()));
COMMENT ON POLICY owners ON postbox.backfill IS 'The role of a backfill, its members, and operators pause, resume and cancel it.';
CREATE POLICY droppers ON postbox.backfill FOR DELETE USING (pg_has_role(owner, 'USAGE') OR (SELECT postbox.is_operator()));
COMMENT ON POLICY droppers ON postbox.backfill IS 'The role of a backfill, its members, and operators drop it.';
CREATE POLICY readers ON postbox.backfill FOR SELECT USING (pg_has_role(owner, 'USAGE') OR (SELECT postbox.is_operator())
    OR (SELECT pg_has_role('pg_monitor', 'USAGE')));
COMMENT ON POLICY readers ON postbox.backfill IS 'The role of a backfill, its members, operators and members of pg_monitor see it.';

CREATE POLICY readers ON postbox.rebuild FOR SELECT USING (postbox.owns_inbox(inbox) OR (SELECT postbox.is_operator())
    OR (SELECT pg_has_role('pg_monitor', 'USAGE')) OR coalesce(has_table_privilege(target, 'SELECT'), false));
COMMENT ON POLICY readers ON postbox.rebuild IS 'The owner of the inbox, operators, members of pg_monitor, and roles that may read the target see a rebuild.';

CREATE POLICY readers ON postbox.audit FOR SELECT USING ((SELECT postbox.is_operator()) OR (SELECT pg_has_role('pg_monitor', 'USAGE'))
    OR EXISTS (SELECT FROM postbox.subscription s WHERE s.name = audit.subscription AND postbox.owns_inbox(s.inbox)));
COMMENT ON POLICY readers ON postbox.audit IS 'The owner of the inbox, operators and members of pg_monitor see the results of audits of a subscription.';

CREATE POLICY readers ON postbox.console_action FOR SELECT USING (acted_by = current_user OR (SELECT postbox.is_operator())
    OR (SELECT pg_has_role('pg_monitor', 'USAGE')));
COMMENT ON POLICY readers ON postbox.console_action IS 'A role sees its own actions; operators and members of pg_monitor see all.';

CREATE TRIGGER deleted AFTER DELETE ON postbox.outbox FOR EACH ROW EXECUTE FUNCTION postbox.delete_dependents();
CREATE TRIGGER deleted AFTER DELETE ON postbox.publication FOR EACH ROW EXECUTE FUNCTION postbox.delete_dependents();
CREATE TRIGGER deleted AFTER DELETE ON postbox.inbox FOR EACH ROW EXECUTE FUNCTION postbox.delete_dependents();
ALTER TABLE postbox.outbox ENABLE ALWAYS TRIGGER deleted;
ALTER TABLE postbox.publication ENABLE ALWAYS TRIGGER deleted;
ALTER TABLE postbox.inbox ENABLE ALWAYS TRIGGER deleted;

CREATE EVENT TRIGGER postbox_forget_dropped ON sql_drop EXECUTE FUNCTION postbox.forget_dropped();
ALTER EVENT TRIGGER postbox_forget_dropped ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER postbox_forget_dropped IS 'Removes the registration of dropped outboxes and inboxes, and marks projections whose target was dropped.';

CREATE EVENT TRIGGER postbox_follow_altered ON ddl_command_end WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION postbox.follow_altered();
ALTER EVENT TRIGGER postbox_follow_altered ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER postbox_follow_altered IS 'Gives the parts of an outbox or inbox the new owner or schema of its table.';

CREATE EVENT TRIGGER postbox_refuse_drop ON ddl_command_start WHEN TAG IN ('DROP EXTENSION') EXECUTE FUNCTION postbox.refuse_drop();
ALTER EVENT TRIGGER postbox_refuse_drop ENABLE ALWAYS;
COMMENT ON EVENT TRIGGER postbox_refuse_drop IS 'Refuses DROP EXTENSION postbox without CASCADE if there are outboxes or inboxes.';
