-- What a DROP takes with it: the tables that Postbox made beside the dropped one, and nothing of anybody else.
CREATE ROLE regress_mallory;
CREATE ROLE regress_alice;
CREATE SCHEMA evil AUTHORIZATION regress_mallory;
CREATE SCHEMA app AUTHORIZATION regress_alice;
SET client_min_messages = notice;

-- the tables beside an outbox and an inbox go with it
SET ROLE regress_mallory;
SELECT postbox.create_outbox('evil.log'), postbox.create_outbox('evil.jobs', 'table'), postbox.create_inbox('evil.inbox');
DROP TABLE evil.log, evil.jobs, evil.inbox;
SELECT relname FROM pg_class WHERE relnamespace = 'evil'::regnamespace;

-- An owner drops them first. What stays is a number, which a dump has and a restore takes over: another table has it there.
SELECT postbox.create_outbox('evil.log'), postbox.create_outbox('evil.jobs', 'table'), postbox.create_inbox('evil.inbox');
DROP TABLE evil.log_parked, evil.log_version, evil.jobs_version, evil.inbox_tombstone;
SET ROLE regress_alice;
CREATE TABLE app.orders (id bigint PRIMARY KEY, version bigint);
CREATE TABLE app.customers (id bigint PRIMARY KEY, aggregate_id text);
CREATE TABLE app.totals (key text PRIMARY KEY, target text);
SELECT postbox.create_outbox('app.log'), postbox.create_inbox('app.inbox');
RESET ROLE;
UPDATE postbox.outbox SET counter = 'app.orders'::regclass, parked = 'app.customers'::regclass WHERE relation = 'evil.log'::regclass;
UPDATE postbox.outbox SET counter = 'app.inbox_tombstone'::regclass WHERE relation = 'evil.jobs'::regclass;
UPDATE postbox.inbox SET tombstone = 'app.totals'::regclass WHERE relation = 'evil.inbox'::regclass;
SET ROLE regress_mallory;
DROP TABLE evil.log, evil.jobs;
DROP TABLE evil.inbox;
-- a table of one kind is in the place of another kind
SELECT postbox.create_outbox('evil.jobs', 'table'), postbox.create_inbox('evil.inbox');
DROP TABLE evil.jobs_version, evil.inbox_tombstone;
RESET ROLE;
UPDATE postbox.outbox SET counter = 'app.log_parked'::regclass WHERE relation = 'evil.jobs'::regclass;
UPDATE postbox.inbox SET tombstone = 'app.log_version'::regclass WHERE relation = 'evil.inbox'::regclass;
SET ROLE regress_mallory;
DROP TABLE evil.jobs, evil.inbox;
SELECT count(*) FROM postbox.outbox WHERE relation::text LIKE 'evil.%';
SELECT relname FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relkind IN ('r', 'p') AND NOT relispartition ORDER BY relname COLLATE "C";

-- Who may create in a schema of another does not keep its owner from dropping the schema.
RESET ROLE;
GRANT CREATE, USAGE ON SCHEMA app TO regress_mallory;
SET ROLE regress_mallory;
SELECT postbox.create_outbox('app.jobs', 'table');
ALTER TABLE app.jobs_version SET SCHEMA evil;
CREATE VIEW evil.counted AS SELECT FROM evil.jobs_version;
RESET ROLE;
SET client_min_messages = warning;
DROP SCHEMA app CASCADE;
SET client_min_messages = notice;
SELECT relation FROM postbox.outbox;
SELECT relname FROM pg_class WHERE relnamespace = 'evil'::regnamespace AND relkind IN ('r', 'v') ORDER BY relname COLLATE "C";

SET client_min_messages = warning;
DROP SCHEMA evil CASCADE;
DROP ROLE regress_mallory, regress_alice;
