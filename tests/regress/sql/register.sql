-- DROP EXTENSION asks for CASCADE where outboxes or inboxes are, and names them. The tables stay and are registered again.
CREATE ROLE regress_alice;
CREATE ROLE regress_mallory;
CREATE SCHEMA app AUTHORIZATION regress_alice;
CREATE SCHEMA evil AUTHORIZATION regress_mallory;
SET client_min_messages = notice;

-- without outboxes nothing is asked, and other extensions are as ever
BEGIN;
DROP EXTENSION postbox;
ROLLBACK;
DROP EXTENSION nothing;
SELECT postbox.refuse_drop();

SELECT postbox.create_outbox('app.jobs', 'table', NULL);
DROP EXTENSION postbox;
DROP EXTENSION IF EXISTS nothing, postbox RESTRICT;
SELECT postbox.drop_outbox('app.jobs');

SET ROLE regress_alice;
SELECT postbox.create_outbox('app.log', retention => '2 days'), postbox.create_outbox('app.jobs', 'table'), postbox.create_inbox('app.inbox');
CREATE TABLE app.old (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb NOT NULL, version bigint NOT NULL);
INSERT INTO app.old VALUES ('00000000-0000-4000-8000-000000000001', 'video', 'v1', 'video.created', '{}', 5);
SELECT postbox.adopt_outbox('app.old');
CREATE TABLE app.target (id text PRIMARY KEY, title text, version bigint);
SELECT postbox.create_projection('app.inbox', '{video.created}', 'app.target', delete_types => '{video.deleted}');
SELECT postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => o) IS NOT NULL FROM unnest('{app.log,app.log,app.jobs,app.old}'::regclass[]) o;
SELECT postbox.inbox_apply('app.inbox', 'e1', 'video.created', 'video', 'v1', 1, '{"title": "x"}'), postbox.inbox_apply('app.inbox', 'e2', 'video.deleted', 'video', 'v1', 2, '{}');
RESET ROLE;
SET postbox.project_id = 'shop-1';
SELECT postbox.create_publication('log', 'app.log', 'shop.video.events'), postbox.create_publication('jobs', 'app.jobs', 'shop.video.events');
SELECT postbox.create_subscription('follower', 'app.inbox', 'shop.video.events.follower');
DROP EXTENSION postbox;
SELECT count(*) FROM postbox.outbox;
\set VERBOSITY terse
DROP EXTENSION postbox CASCADE;
\set VERBOSITY default
-- the tables are there with their events
SELECT count(*) FROM app.log UNION ALL SELECT count(*) FROM app.jobs UNION ALL SELECT count(*) FROM app.old UNION ALL SELECT count(*) FROM app.inbox;
SELECT count(*) FROM app.log_version UNION ALL SELECT count(*) FROM app.jobs_version UNION ALL SELECT count(*) FROM app.inbox_tombstone;
CREATE EXTENSION postbox;

-- who may not, and what is none
SELECT postbox.register_outbox(NULL);
SELECT postbox.register_outbox(4294967295::oid::regclass);
SELECT postbox.register_outbox('app.log', '-1 day');
SELECT postbox.register_outbox('pg_class');
SELECT postbox.register_outbox('app.log_g0');
SELECT postbox.register_outbox('app.log_seq');
SELECT postbox.register_outbox('app.old');
SELECT postbox.register_outbox('app.inbox');
SELECT postbox.register_inbox('app.log');
SELECT postbox.register_inbox('app.inbox', '0');
SELECT postbox.register_inbox('app.inbox', NULL);
SELECT postbox.register_inbox('app.jobs');
GRANT USAGE ON SCHEMA app TO regress_mallory;
SET ROLE regress_mallory;
SELECT postbox.register_outbox('app.log');
SELECT postbox.register_inbox('app.inbox');
RESET ROLE;

SET ROLE regress_alice;
SELECT postbox.register_outbox('app.log', '2 days');
SELECT postbox.register_outbox('app.log');
SELECT postbox.register_outbox('app.jobs');
SELECT postbox.adopt_outbox('app.old');
SELECT postbox.register_inbox('app.inbox');
SELECT postbox.register_inbox('app.inbox');
SELECT relation, kind, counter, parked, retention, adopted, generation_span, version_floor FROM postbox.outbox ORDER BY relation::text;
SELECT relation, tombstone, retention FROM postbox.inbox;
SELECT outbox, problem FROM postbox.outbox_status ORDER BY 1;
SELECT o.relation, r.* FROM postbox.outbox o, postbox.repair_outbox(o.relation) r;
SELECT * FROM postbox.repair_inbox('app.inbox');
-- versions count on, what was seen is seen, what was deleted stays deleted
SELECT version FROM unnest('{app.log,app.jobs,app.old}'::regclass[]) o, postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => o);
INSERT INTO app.log (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'a', 'b', 'c', 1, '') RETURNING seq, generation IS NOT NULL AS generation, origin = postbox.cluster_origin() AS origin;
SELECT postbox.create_projection('app.inbox', '{video.created}', 'app.target', delete_types => '{video.deleted}');
SELECT postbox.inbox_apply('app.inbox', 'e1', 'video.created', 'video', 'v1', 1, '{"title": "x"}'), postbox.inbox_apply('app.inbox', 'e3', 'video.created', 'video', 'v1', 1, '{"title": "x"}');
SELECT outcome, count(*) FROM app.inbox GROUP BY 1 ORDER BY 1;
RESET ROLE;

-- renamed meanwhile: the parts are named, or found by nobody
\set VERBOSITY terse
DROP EXTENSION postbox CASCADE;
\set VERBOSITY default
CREATE EXTENSION postbox;
SET ROLE regress_alice;
ALTER TABLE app.log RENAME TO renamed;
ALTER TABLE app.inbox RENAME TO inbox2;
SELECT postbox.register_outbox('app.renamed');
SELECT postbox.register_outbox('app.renamed', counter => 'app.log_version');
SELECT postbox.register_outbox('app.renamed', counter => 'app.log_parked', parked => 'app.log_version');
SELECT postbox.register_outbox('app.renamed', counter => 'app.jobs', parked => 'app.log_parked');
SELECT postbox.register_outbox('app.renamed', counter => 'app.renamed', parked => 'app.log_parked');
SELECT postbox.register_outbox('app.jobs', parked => 'app.log_parked');
SELECT postbox.register_inbox('app.inbox2');
SELECT postbox.register_inbox('app.inbox2', tombstone => 'app.target');
SET client_min_messages = warning;
SELECT postbox.register_inbox('app.inbox2', tombstone => 'app.inbox_tombstone');
SELECT postbox.register_outbox('app.renamed', counter => 'app.log_version', parked => 'app.log_parked');
SELECT postbox.register_outbox('app.jobs', counter => 'app.log_version');
SET client_min_messages = notice;
-- without its counter and its columns: what can be put back is, and what cannot is named
DROP TABLE app.jobs_version, app.old_version;
ALTER TABLE app.jobs DROP COLUMN lock_token;
SELECT postbox.register_outbox('app.jobs', NULL);
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => 'app.jobs'), postbox.outbox;
SELECT postbox.drop_outbox('app.jobs');
RESET ROLE;

-- A role makes a table look like an outbox: it gets its own table registered, and no other's.
SET client_min_messages = warning;
SET ROLE regress_mallory;
CREATE TABLE evil.jobs (id uuid PRIMARY KEY, seq bigint GENERATED BY DEFAULT AS IDENTITY, version bigint, payload bytea);
COMMENT ON TABLE evil.jobs IS 'Events to publish (postbox outbox)';
SELECT postbox.register_outbox('evil.jobs');
DROP TABLE evil.jobs;
SELECT postbox.create_outbox('evil.jobs', 'table'), postbox.create_outbox('evil.log');
RESET ROLE;
\set VERBOSITY terse
DROP EXTENSION postbox CASCADE;
\set VERBOSITY default
CREATE EXTENSION postbox;
SET ROLE regress_mallory;
SELECT postbox.register_outbox('evil.jobs', counter => 'app.log_version');
ALTER TABLE evil.jobs ALTER payload TYPE text USING '';
SELECT postbox.register_outbox('evil.jobs');
ALTER TABLE evil.jobs ALTER payload TYPE bytea USING '';
CREATE FUNCTION evil.who() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'trap runs as %', current_user; RETURN NEW; END $$;
INSERT INTO evil.jobs (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'a', 'b', 'c', 3, '');
CREATE TRIGGER who BEFORE INSERT ON evil.jobs_version FOR EACH ROW EXECUTE FUNCTION evil.who();
RESET ROLE;
-- by a superuser: code of the owner runs as the owner
SELECT postbox.register_outbox('evil.jobs');
SET ROLE regress_mallory;
SELECT postbox.drop_outbox('evil.jobs');
-- a partition of another, a partition that is no table, another partitioning
RESET ROLE;
GRANT CREATE ON SCHEMA evil TO regress_alice;
ALTER TABLE evil.log_g3 OWNER TO regress_alice;
SET ROLE regress_mallory;
SELECT postbox.register_outbox('evil.log');
RESET ROLE;
ALTER TABLE evil.log_g3 OWNER TO regress_mallory;
SET ROLE regress_mallory;
DROP TABLE evil.log_g3;
CREATE TABLE evil.log_g3 PARTITION OF evil.log FOR VALUES IN (3) PARTITION BY LIST (seq);
SELECT postbox.register_outbox('evil.log');
DROP TABLE evil.log_g3;
CREATE UNLOGGED TABLE evil.log_g3 PARTITION OF evil.log FOR VALUES IN (3);
SELECT postbox.register_outbox('evil.log');
DROP TABLE evil.log_g3;
SELECT postbox.register_outbox('evil.log', '3 days');
SELECT count(*) FROM postbox.generation_partitions('evil.log');
CREATE TABLE evil.other (LIKE evil.log) PARTITION BY LIST (seq);
SELECT postbox.register_outbox('evil.other');
CREATE UNLOGGED TABLE evil.unlogged (LIKE evil.log);
SELECT postbox.register_outbox('evil.unlogged');
RESET ROLE;

-- DROP SCHEMA and DROP OWNED take what is in them
DROP SCHEMA evil CASCADE;
SELECT count(*) FROM postbox.outbox;
DROP OWNED BY regress_alice CASCADE;
SELECT count(*) FROM postbox.outbox;
DROP ROLE regress_alice, regress_mallory;
