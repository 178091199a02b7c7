-- What was dropped or altered of an outbox or inbox is listed and put back.
CREATE ROLE regress_alice;
CREATE ROLE regress_bob;
CREATE ROLE regress_mallory;
CREATE SCHEMA app AUTHORIZATION regress_alice;
GRANT ALL ON SCHEMA app TO regress_bob;
SET client_min_messages = notice;
SET ROLE regress_alice;
SELECT postbox.create_outbox('app.log'), postbox.create_outbox('app.jobs', 'table'), postbox.create_inbox('app.inbox');
CREATE TABLE app.old (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid uuid NOT NULL, type text NOT NULL, payload jsonb NOT NULL, version int NOT NULL);
SELECT postbox.adopt_outbox('app.old');

-- what is whole has no flaw
SELECT * FROM postbox.repair_outbox('app.log');
SELECT * FROM postbox.repair_outbox('app.jobs', false);
SELECT * FROM postbox.repair_outbox('app.old', false);
SELECT * FROM postbox.repair_inbox('app.inbox', false);

-- only for the owner, and what there is
SELECT * FROM postbox.repair_outbox('app.inbox');
SELECT * FROM postbox.repair_inbox('app.log');
SELECT * FROM postbox.repair_outbox(NULL);
SELECT * FROM postbox.repair_outbox('app.log', NULL);
SELECT * FROM postbox.repair_outbox(4294967295::oid::regclass);
RESET ROLE;
GRANT USAGE ON SCHEMA app TO regress_mallory;
SET ROLE regress_mallory;
SELECT * FROM postbox.repair_outbox('app.log');
SELECT * FROM postbox.repair_inbox('app.inbox');
RESET ROLE;
SET ROLE regress_alice;

-- the version counter: versions go on above those that are left, and above all others of what is not
SELECT aggregate_id, version FROM generate_series(1, 5) n, postbox.outbox_emit('video', 'v' || n % 2, 'video.created', '{}'::jsonb, outbox => 'app.log') ORDER BY 1, 2;
SELECT version FROM postbox.outbox_emit('video', 'purged', 'video.created', '{}'::jsonb, outbox => 'app.log');
DELETE FROM app.log WHERE aggregate_id = 'purged';
DROP TABLE app.log_version;
SELECT version FROM postbox.outbox_emit('video', 'v0', 'video.created', '{}'::jsonb, outbox => 'app.log');
SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.log'::regclass;
SELECT object, problem FROM postbox.repair_outbox('app.log');
SELECT to_regclass('app.log_version');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT * FROM postbox.repair_outbox('app.log', false);
ROLLBACK;
SELECT object, problem FROM postbox.repair_outbox('app.log', false);
SELECT * FROM postbox.repair_outbox('app.log');
SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.log'::regclass;
SELECT * FROM app.log_version ORDER BY 2;
SELECT version FROM postbox.outbox_emit('video', 'v0', 'video.created', '{}'::jsonb, outbox => 'app.log');
SELECT version FROM postbox.outbox_emit('video', 'purged', 'video.created', '{}'::jsonb, outbox => 'app.log');
SELECT version FROM postbox.outbox_emit('video', 'purged', 'video.created', '{}'::jsonb, outbox => 'app.log');
-- locked by a given source first, which makes the row
SELECT version FROM postbox.outbox_emit('video', 'new', 'video.created', '{}'::jsonb, source_event_id => 's', outbox => 'app.log');

-- the counter of an adopted table, with types of its own
INSERT INTO app.old VALUES ('00000000-0000-4000-8000-000000000001', 'video', '00000000-0000-4000-8000-00000000000a', 'x', '{}', 7);
DROP TABLE app.old_version;
SELECT problem FROM postbox.repair_outbox('app.old', false);
SELECT version FROM postbox.outbox_emit('video', '00000000-0000-4000-8000-00000000000a', 'x', '{}'::jsonb, outbox => 'app.old');

-- parked events
INSERT INTO app.log_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, payload, next_retry_at)
    VALUES ('p', 1, '00000000-0000-4000-8000-000000000002', 'video', 'parked', 'video.created', 41, '', 'infinity');
DROP TABLE app.log_version;
SELECT count(*) FROM postbox.repair_outbox('app.log', false);
SELECT version FROM app.log_version WHERE aggregate_id = 'parked';
DROP TABLE app.log_parked;
SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.log'::regclass;
SELECT * FROM postbox.repair_outbox('app.log', false);
SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.log'::regclass;

-- partitions, indexes, keys, defaults, the sequence
SELECT count(*) FROM app.log;
-- not in the one that is dropped, which generation_of() may name today, nor in one that is past the retention
UPDATE app.log SET generation = (SELECT g FROM unnest(ARRAY[postbox.generation_of(now(), 151200), postbox.generation_of(now() - interval '42 hours', 151200)]) g WHERE g <> 2 LIMIT 1);
DROP TABLE app.log_g2;
DROP INDEX app.log_seq_idx, app.log_parked_due;
ALTER TABLE app.log_g3 DROP CONSTRAINT log_g3_pkey;
ALTER TABLE app.log ALTER txid DROP DEFAULT, ALTER generation DROP DEFAULT, ALTER origin DROP DEFAULT;
ALTER TABLE app.log_parked DROP COLUMN last_error;
DROP SEQUENCE app.log_seq CASCADE;
ALTER TABLE app.log_version DROP CONSTRAINT log_version_pkey;
SELECT * FROM postbox.repair_outbox('app.log');
SELECT count(*) FROM postbox.repair_outbox('app.log', false);
SELECT * FROM postbox.repair_outbox('app.log');
SELECT count(*) FROM app.log WHERE seq > (SELECT last_value FROM app.log_seq);
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => 'app.log');
INSERT INTO app.log (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'a', 'b', 'c', 1, '') RETURNING seq - (SELECT max(seq) FROM app.log) AS next;
SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.log'::regclass;
ALTER SEQUENCE app.log_seq OWNED BY NONE;
ALTER SEQUENCE app.log_seq CACHE 20;
SELECT problem FROM postbox.repair_outbox('app.log', false);
SELECT problem, repair FROM postbox.repair_outbox('app.log', false);

-- what nobody can put back
BEGIN;
ALTER TABLE app.log DROP COLUMN payload;
ALTER TABLE app.log RENAME COLUMN txid TO txid2;
ALTER TABLE app.log_parked ALTER version TYPE int;
SELECT * FROM postbox.repair_outbox('app.log', false);
ROLLBACK;

-- of kind table
DROP INDEX app.jobs_claim, app.jobs_key;
CREATE INDEX jobs_brin ON app.jobs USING brin (seq) WHERE published_at IS NULL AND next_retry_at IS NULL;  -- gives no order
ALTER TABLE app.jobs DROP COLUMN locked_at, DROP COLUMN publish_attempts, ALTER seq DROP IDENTITY;
SELECT * FROM postbox.repair_outbox('app.jobs');
SELECT count(*) FROM postbox.repair_outbox('app.jobs', false);
SELECT * FROM postbox.repair_outbox('app.jobs');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => 'app.jobs');

-- an adopted one
DROP INDEX app.old_claim, app.old_key;
DROP TRIGGER postbox_wake ON app.old;
ALTER TABLE app.old DROP COLUMN lock_token;
SELECT * FROM postbox.repair_outbox('app.old', false);
SELECT * FROM postbox.repair_outbox('app.old', false);
-- under another name, too, drop_outbox takes away what adopt_outbox has made, and nothing else
ALTER TABLE app.old RENAME TO older;
CREATE INDEX mine ON app.older (published_at);
SELECT postbox.drop_outbox('app.older');
SELECT relname FROM pg_class WHERE oid IN (SELECT indexrelid FROM pg_index WHERE indrelid = 'app.older'::regclass) ORDER BY 1;

-- an inbox
CREATE TABLE app.target (id text PRIMARY KEY, title text, version bigint);
SELECT postbox.create_projection('app.inbox', '{video.created}', 'app.target', delete_types => '{video.deleted}');
SELECT postbox.inbox_apply('app.inbox', 'e1', 'video.created', 'video', 'v1', 1, '{"title": "x"}');
DROP TABLE app.inbox_tombstone;
DROP TABLE app.inbox_g1, app.inbox_g2;
SELECT postbox.inbox_apply('app.inbox', 'e2', 'video.created', 'video', 'v1', 2, '{"title": "x"}');
SELECT * FROM postbox.inbox_problem;
SELECT * FROM postbox.repair_inbox('app.inbox');
SELECT count(*) FROM postbox.repair_inbox('app.inbox', false);
SELECT * FROM postbox.inbox_problem;
SELECT * FROM postbox.repair_inbox('app.inbox', false);
SELECT postbox.inbox_apply('app.inbox', 'e2', 'video.deleted', 'video', 'v1', 2, '{"title": "x"}'), postbox.inbox_apply('app.inbox', 'e1', 'video.created', 'video', 'v1', 1, '{"title": "x"}');
RESET ROLE;

-- parts of another owner: whoever may alter them gives them to the owner of the outbox
ALTER EVENT TRIGGER postbox_follow_altered DISABLE;
ALTER TABLE app.log OWNER TO regress_bob;
ALTER TABLE app.inbox OWNER TO regress_bob;
ALTER EVENT TRIGGER postbox_follow_altered ENABLE ALWAYS;
SET ROLE regress_bob;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => 'app.log');
SELECT problem FROM postbox.repair_outbox('app.log');
SELECT * FROM postbox.repair_outbox('app.log', false);
RESET ROLE;
SELECT count(*) FROM postbox.repair_outbox('app.log', false);
SELECT * FROM postbox.inbox_problem;
SELECT * FROM postbox.repair_inbox('app.inbox', false);
SELECT * FROM postbox.inbox_problem;
SET ROLE regress_bob;
SELECT version > 0 FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => 'app.log');
RESET ROLE;

-- The owner's code runs as the owner, whoever repairs; row security hides no version.
CREATE SCHEMA evil AUTHORIZATION regress_mallory;
SET ROLE regress_mallory;
SELECT postbox.create_outbox('evil.jobs', 'table');
CREATE FUNCTION evil.who(text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE '% by %', $1, current_user; RETURN true; END $$;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => 'evil.jobs');
ALTER TABLE evil.jobs ADD CHECK (evil.who('check'));
DROP TABLE evil.jobs_version;
DROP INDEX evil.jobs_claim;
RESET ROLE;
SELECT count(*) FROM postbox.repair_outbox('evil.jobs', false);
SET ROLE regress_mallory;
CREATE POLICY none ON evil.jobs USING (false);
ALTER TABLE evil.jobs ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
DROP TABLE evil.jobs_version;
RESET ROLE;
SELECT count(*) FROM postbox.repair_outbox('evil.jobs', false);
SET ROLE regress_mallory;
SELECT count(*) FROM postbox.repair_outbox('evil.jobs', false);
ALTER TABLE evil.jobs NO FORCE ROW LEVEL SECURITY;
SELECT count(*) FROM postbox.repair_outbox('evil.jobs', false);
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => 'evil.jobs');
RESET ROLE;

-- names that leave no room, quote, or are taken
CREATE TABLE evil.jobs_version2 ();
SET ROLE regress_mallory;
SELECT postbox.create_outbox('evil."it''s ""quoted"""');
SELECT format('ALTER TABLE evil."it''s ""quoted""" RENAME TO %I', 'it''s "' || repeat('é', 28) || '"') \gexec
DROP TABLE evil."it's ""quoted""_version", evil."it's ""quoted""_parked";
DROP SEQUENCE evil."it's ""quoted""_seq" CASCADE;
DROP TABLE evil."it's ""quoted""_g1";
SELECT count(*) FROM postbox.outbox o, postbox.repair_outbox(o.relation, false) WHERE o.kind = 'log' AND o.relation::text LIKE 'evil%';
SELECT count(*) FROM postbox.outbox o, postbox.repair_outbox(o.relation) WHERE o.kind = 'log' AND o.relation::text LIKE 'evil%';
SELECT version, p.code FROM postbox.outbox o, postbox.outbox_emit('a', 'b', 'c', '{}', outbox => o.relation), postbox.outbox_problem(o) p WHERE o.kind = 'log' AND o.relation::text LIKE 'evil%';
RESET ROLE;

SET client_min_messages = warning;
DROP SCHEMA app, evil CASCADE;
DROP ROLE regress_alice, regress_bob, regress_mallory;
