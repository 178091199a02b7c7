-- postbox.mute_changes: the owner of a table changes it in one transaction without events, and the log says how much.
CREATE ROLE regress_owner;
CREATE ROLE regress_other;
CREATE ROLE regress_member IN ROLE regress_owner;
CREATE SCHEMA shop;
GRANT ALL ON SCHEMA shop TO regress_owner, regress_other;
SELECT postbox.create_outbox('shop.outbox');
GRANT INSERT ON shop.outbox TO PUBLIC;
SET postbox.default_outbox = 'shop.outbox';
SET ROLE regress_owner;
CREATE TABLE shop.item (id int PRIMARY KEY, n int NOT NULL);
SELECT postbox.create_change_triggers('shop.item');
GRANT ALL ON shop.item TO regress_other;
RESET ROLE;
CREATE FUNCTION shop.events() RETURNS TABLE (event_type text, aggregate_id text, version bigint) LANGUAGE sql AS $$
    WITH gone AS (DELETE FROM shop.outbox RETURNING *) SELECT event_type, aggregate_id, version FROM gone ORDER BY seq $$;

-- what is muted emits nothing, and what comes before and after it does
SET ROLE regress_owner;
SET client_min_messages = log;
INSERT INTO shop.item VALUES (1, 1);
BEGIN;
INSERT INTO shop.item VALUES (2, 1);
SET LOCAL postbox.mute_changes = on;
INSERT INTO shop.item SELECT n, 1 FROM generate_series(3, 1000) n;
UPDATE shop.item SET n = n + 1;
DELETE FROM shop.item WHERE id > 10;
UPDATE shop.item SET n = 0 WHERE id > 1000;
SET LOCAL postbox.mute_changes = off;
UPDATE shop.item SET n = 7 WHERE id = 3;
COMMIT;
UPDATE shop.item SET n = 8 WHERE id = 3;
-- TRUNCATE, too
TRUNCATE shop.item;
BEGIN;
SET LOCAL postbox.mute_changes = on;
TRUNCATE shop.item;
INSERT INTO shop.item VALUES (1, 1);
COMMIT;
-- what is rolled back is not said
BEGIN;
SET LOCAL postbox.mute_changes = on;
UPDATE shop.item SET n = 3;
ROLLBACK;
BEGIN;
SAVEPOINT s;
SET LOCAL postbox.mute_changes = on;
UPDATE shop.item SET n = 3;
ROLLBACK TO s;
UPDATE shop.item SET n = 4;
SAVEPOINT s;
SET LOCAL postbox.mute_changes = on;
UPDATE shop.item SET n = 5;
RELEASE s;
UPDATE shop.item SET n = 6;
SAVEPOINT s;
UPDATE shop.item SET n = 7;
ROLLBACK TO s;
COMMIT;
RESET client_min_messages;
RESET ROLE;
SELECT * FROM shop.events();

-- others are refused, who may change the table
SET ROLE regress_other;
BEGIN;
SET LOCAL postbox.mute_changes = on;
UPDATE shop.item SET n = 7;
\echo :LAST_ERROR_SQLSTATE
ROLLBACK;
BEGIN;
SET LOCAL postbox.mute_changes = on;
TRUNCATE shop.item;
ROLLBACK;
BEGIN;
SET LOCAL postbox.mute_changes = on;
UPDATE shop.item SET n = 7 WHERE id = 99;
SET LOCAL postbox.mute_changes = off;
UPDATE shop.item SET n = 7;
COMMIT;
-- members of the owner, and superusers, are not
SET ROLE regress_member;
BEGIN;
SET LOCAL postbox.mute_changes = on;
UPDATE shop.item SET n = 8;
COMMIT;
RESET ROLE;
BEGIN;
SET LOCAL postbox.mute_changes = on;
UPDATE shop.item SET n = 9;
-- but not for a role that they become
SET LOCAL ROLE regress_other;
UPDATE shop.item SET n = 10;
ROLLBACK;
BEGIN;
SET LOCAL ROLE regress_other;
SET LOCAL postbox.mute_changes = on;
RESET ROLE;
UPDATE shop.item SET n = 10;
ROLLBACK;
SELECT * FROM shop.events();

-- it holds for its transaction
SET postbox.mute_changes = on;
UPDATE shop.item SET n = 11;
\echo :LAST_ERROR_SQLSTATE
RESET postbox.mute_changes;
UPDATE shop.item SET n = 11;
BEGIN;
SET postbox.mute_changes = on;
UPDATE shop.item SET n = 12;
COMMIT;
UPDATE shop.item SET n = 13;
SET postbox.mute_changes = off;
ALTER SYSTEM SET postbox.mute_changes = on;
SELECT * FROM shop.events();

-- functions of the owner: with the clause, for as long as they run; without it, not for their caller
SET ROLE regress_owner;
CREATE FUNCTION shop.quietly(n int) RETURNS void LANGUAGE sql SECURITY DEFINER SET postbox.mute_changes = on
    AS 'UPDATE shop.item SET n = quietly.n';
CREATE FUNCTION shop.left_on() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    PERFORM set_config('postbox.mute_changes', 'on', true);
    UPDATE shop.item SET n = n + 1;
END $$;
CREATE FUNCTION shop.loudly(n int) RETURNS void LANGUAGE sql SECURITY DEFINER AS 'UPDATE shop.item SET n = loudly.n';
SET ROLE regress_other;
BEGIN;
SELECT shop.quietly(20);
UPDATE shop.item SET n = 21;
COMMIT;
BEGIN;
SELECT shop.left_on();
UPDATE shop.item SET n = 22;
ROLLBACK;
RESET ROLE;
BEGIN;
SELECT shop.left_on();
UPDATE shop.item SET n = 22;
ROLLBACK;
-- what somebody else has set does not mute a function of the owner
SET ROLE regress_other;
BEGIN;
SET LOCAL postbox.mute_changes = on;
SELECT shop.loudly(23);
ROLLBACK;
RESET ROLE;
SELECT * FROM shop.events();

-- what the change sets off in tables of others: triggers, cascades
SET ROLE regress_other;
CREATE TABLE shop.part (id int PRIMARY KEY, item int, n int);
SELECT postbox.create_change_triggers('shop.part');
CREATE TABLE shop.audit (id int PRIMARY KEY);
SELECT postbox.create_change_triggers('shop.audit');
CREATE FUNCTION shop.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO shop.audit VALUES (NEW.n); RETURN NEW; END $$;
RESET ROLE;
ALTER TABLE shop.part ADD FOREIGN KEY (item) REFERENCES shop.item ON DELETE CASCADE;
INSERT INTO shop.part VALUES (1, 1, 1);
SELECT * FROM shop.events();
SET ROLE regress_owner;
BEGIN;
SET LOCAL postbox.mute_changes = on;
DELETE FROM shop.item;
ROLLBACK;
CREATE TRIGGER note AFTER UPDATE ON shop.item FOR EACH ROW EXECUTE FUNCTION shop.note();
BEGIN;
SET LOCAL postbox.mute_changes = on;
UPDATE shop.item SET n = 30;
ROLLBACK;
RESET ROLE;
BEGIN;
SET LOCAL postbox.mute_changes = on;
DELETE FROM shop.item;
INSERT INTO shop.item VALUES (1, 1);
COMMIT;
SELECT * FROM shop.events();

SET client_min_messages = warning;
DROP SCHEMA shop CASCADE;
DROP ROLE regress_owner, regress_other, regress_member;
