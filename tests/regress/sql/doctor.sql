-- postbox.doctor(): what it sees, who may see it, and that it runs no code of users. That each remedy mends its cause is tested in tests/e2e/test_doctor.
CREATE ROLE regress_owner;
CREATE ROLE regress_monitor IN ROLE pg_monitor;
CREATE ROLE regress_operator IN ROLE postbox_operator;
CREATE ROLE regress_nobody;
CREATE SCHEMA app AUTHORIZATION regress_owner;
GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.create_subscription TO regress_owner;
SET ROLE regress_owner;
SELECT postbox.create_outbox('app.log'), postbox.create_outbox('app.jobs', 'table'), postbox.create_inbox('app.inbox');
SELECT postbox.create_publication('log', 'app.log', 'projects/test/topics/shop.order.events');
SELECT postbox.create_publication('jobs', 'app.jobs', 'projects/test/topics/shop.order.events');
SELECT postbox.create_subscription('orders', 'app.inbox', 'projects/test/subscriptions/shop.order.events.test-reader');
RESET ROLE;

-- What depends on the server that runs the test is left out: the status of publications, durability, transactions.
CREATE SCHEMA look;
GRANT USAGE ON SCHEMA look TO PUBLIC;
CREATE FUNCTION look.findings() RETURNS SETOF postbox.finding LANGUAGE sql AS $$
    SELECT f.* FROM postbox.doctor() f WHERE f.status <> 'ok' AND f.check NOT IN ('durability', 'transactions', 'workers') AND NOT (f.check = 'publications' AND f.status = 'error')
    ORDER BY f.check, f.subject, f.detail
$$;
GRANT EXECUTE ON FUNCTION look.findings TO PUBLIC;
SELECT count(DISTINCT f.check) AS checks, count(*) FILTER (WHERE f.status = 'ok' AND f.remedy IS NOT NULL) AS ok_with_remedy,
       count(*) FILTER (WHERE f.status <> 'ok' AND f.remedy IS NULL) AS without_remedy FROM postbox.doctor() f;
SELECT * FROM look.findings();

-- tables, as the repairs see them
DROP INDEX app.log_parked_key;
SELECT * FROM look.findings() f WHERE f.check = 'tables';
SET ROLE regress_monitor;
SELECT f.check, f.status, f.subject FROM look.findings() f;
SET ROLE regress_operator;
SELECT f.check, f.status, f.subject FROM look.findings() f;
SET ROLE regress_owner;
SELECT f.check, f.status, f.subject FROM look.findings() f;
SET ROLE regress_nobody;
SELECT f.check, f.status, f.subject FROM postbox.doctor() f WHERE f.status <> 'ok' AND f.check NOT IN ('publications', 'workers', 'durability');
SELECT f.* FROM postbox.outbox o, postbox.show_findings(o.relation) f;
SELECT f.* FROM postbox.outbox o, postbox.findings_of(o.relation) f WHERE o.kind = 'log';
RESET ROLE;
SELECT * FROM postbox.show_findings('pg_class');
SELECT count(*) FROM postbox.repair_outbox('app.log', dry_run => false);
SELECT f.check FROM look.findings() f WHERE f.check = 'tables';

-- an inbox, and a column
ALTER TABLE app.inbox DROP CONSTRAINT inbox_pkey;
ALTER TABLE app.log_parked DROP COLUMN parked_at;
SELECT * FROM look.findings() f WHERE f.check = 'tables';
SELECT count(*) FROM postbox.repair_inbox('app.inbox', dry_run => false);
SELECT count(*) FROM postbox.repair_outbox('app.log', dry_run => false);

-- rights
REVOKE UPDATE ON app.log FROM regress_owner;
GRANT INSERT ON app.jobs TO regress_nobody;
ALTER EVENT TRIGGER postbox_follow_altered DISABLE;
SELECT * FROM postbox.doctor() f WHERE f.check = 'rights' OR f.subject LIKE 'postbox_follow%' ORDER BY f.check, f.subject;
GRANT ALL ON app.log TO regress_owner;
GRANT USAGE ON SCHEMA app TO regress_nobody;
ALTER EVENT TRIGGER postbox_follow_altered ENABLE ALWAYS;
SELECT * FROM postbox.doctor() f WHERE f.check = 'rights' OR f.subject LIKE 'postbox_follow%';

-- code of the owner is not run
CREATE TABLE app.calls (who text);
GRANT INSERT ON app.calls TO PUBLIC;
SET ROLE regress_owner;
CREATE FUNCTION app.may(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN INSERT INTO app.calls VALUES (current_user); RETURN true; END $$;
CREATE POLICY hidden ON app.jobs USING (app.may(aggregate_id));
ALTER TABLE app.jobs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT version FROM postbox.outbox_emit('order', '1', 'order.created', '{}', outbox => 'app.jobs');
RESET ROLE;
TRUNCATE app.calls;
SELECT f.check, f.status, f.subject, f.detail FROM look.findings() f WHERE f.check = 'tables';
SET ROLE regress_monitor;
SELECT f.check, f.status, f.subject FROM look.findings() f WHERE f.check = 'tables';
SELECT count(f.*) AS findings FROM postbox.outbox o, postbox.show_findings(o.relation) f;
RESET ROLE;
SELECT count(*) AS calls FROM app.calls;
ALTER TABLE app.jobs NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;
DROP POLICY hidden ON app.jobs;

-- the clock
SELECT version FROM postbox.outbox_emit('order', '2', 'order.created', '{}', outbox => 'app.log');
UPDATE app.log SET occurred_at = now() + interval '1 day';
UPDATE app.jobs SET occurred_at = now() + interval '1 day';
SELECT f.check, f.status, f.subject FROM look.findings() f WHERE f.check = 'clock';
UPDATE app.log SET occurred_at = 'infinity';
UPDATE app.jobs SET occurred_at = now();
SELECT f.check, f.status, f.subject FROM look.findings() f WHERE f.check = 'clock';

-- What users name or write is no remedy
CREATE SCHEMA doctored;
SELECT postbox.create_outbox('doctored."t; run GRANT postgres TO eve -- "');
DO $$
BEGIN
    EXECUTE format('DROP TABLE %s', (SELECT o.counter FROM postbox.outbox o WHERE o.relation = 'doctored."t; run GRANT postgres TO eve -- "'::regclass));
END $$;
SELECT f.check, f.remedy FROM postbox.doctor() f WHERE f.subject LIKE 'doctored.%' AND f.check = 'tables';
SELECT count(*) FROM postbox.doctor() f WHERE f.remedy LIKE 'run GRANT postgres%';
SELECT count(*) FROM postbox.repair_outbox('doctored."t; run GRANT postgres TO eve -- "', dry_run => false);
SELECT postbox.drop_outbox('doctored."t; run GRANT postgres TO eve -- "');
DROP SCHEMA doctored CASCADE;

DROP FUNCTION look.findings();
DROP SCHEMA look;
DROP SCHEMA app CASCADE;
DROP OWNED BY regress_owner;
DROP ROLE regress_owner, regress_monitor, regress_operator, regress_nobody;
