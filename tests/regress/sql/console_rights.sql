-- Who may act, as postbox console asks, and how long its rows are kept.
CREATE ROLE regress_keeper;
CREATE ROLE regress_member IN ROLE regress_keeper;
CREATE ROLE regress_stranger;
CREATE ROLE regress_helper IN ROLE postbox_operator;
CREATE SCHEMA desk;
SELECT postbox.create_outbox('desk.outbox');
SELECT postbox.create_inbox('desk.inbox');
ALTER TABLE desk.outbox OWNER TO regress_keeper;
ALTER TABLE desk.inbox OWNER TO regress_keeper;
CREATE FUNCTION desk.rights(OUT role name, OUT outbox boolean, OUT inbox boolean, OUT as_keeper boolean, OUT anything boolean) LANGUAGE sql AS $$
    SELECT current_user, postbox.may_act_on('desk.outbox'::regclass), postbox.may_act_on('desk.inbox'::regclass), postbox.may_act_for('regress_keeper'::regrole),
           postbox.may_record_action() $$;
GRANT USAGE ON SCHEMA desk TO PUBLIC;
SELECT * FROM desk.rights();
SET ROLE regress_keeper;
SELECT * FROM desk.rights();
SET ROLE regress_member;
SELECT * FROM desk.rights();
SET ROLE regress_helper;
SELECT * FROM desk.rights();
SET ROLE regress_stranger;
SELECT * FROM desk.rights();
-- there is no such relation
SELECT postbox.may_act_on(1::regclass), postbox.may_act_on(NULL);
-- those whose actions the rows tell cannot delete them at once
SELECT postbox.prune_console_actions('1 year');
SET ROLE regress_keeper;
SELECT postbox.prune_console_actions('1 year');
RESET ROLE;
INSERT INTO postbox.console_action (acted_at, acted_by, action, subject, affected) SELECT now() - n * interval '10 days', 'regress_keeper', 'pause', 'inbox desk.inbox', 1
    FROM generate_series(1, 5) n;
SET ROLE regress_helper;
SELECT postbox.prune_console_actions(NULL);
SELECT postbox.prune_console_actions('29 days 23 hours');
SELECT postbox.prune_console_actions('-1 year');
SELECT postbox.prune_console_actions('30 days');
SELECT acted_by, action, subject, filter, affected FROM postbox.console_action ORDER BY id;
-- without a row to delete there is none to tell
SELECT postbox.prune_console_actions('30 days');
SELECT count(*) FROM postbox.console_action;
RESET ROLE;
DELETE FROM postbox.console_action;
SELECT postbox.drop_outbox('desk.outbox'), postbox.drop_inbox('desk.inbox');
DROP SCHEMA desk CASCADE;
DROP ROLE regress_member, regress_keeper, regress_stranger, regress_helper;
