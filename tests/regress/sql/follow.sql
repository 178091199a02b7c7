-- What belongs to an outbox or inbox follows it to another owner and another schema, and nothing of anybody else does.
CREATE ROLE regress_alice;
CREATE ROLE regress_bob;
CREATE ROLE regress_mallory;
CREATE ROLE regress_emitter;
CREATE SCHEMA app AUTHORIZATION regress_alice;
CREATE SCHEMA other;
CREATE SCHEMA evil AUTHORIZATION regress_mallory;
GRANT ALL ON SCHEMA app, other TO regress_alice, regress_bob;
GRANT USAGE ON SCHEMA app, other TO regress_emitter;
SET client_min_messages = notice;

-- what is where, and whose
CREATE FUNCTION pg_temp.tables() RETURNS TABLE (what text, owner text) LANGUAGE sql AS $$
    SELECT string_agg(c.oid::regclass || CASE c.relkind WHEN 'S' THEN ' (sequence)' ELSE '' END, ', ' ORDER BY c.oid::regclass::text COLLATE "C"), pg_get_userbyid(c.relowner)
    FROM pg_class c WHERE c.relkind IN ('r', 'p', 'S') AND c.relnamespace IN ('app'::regnamespace, 'other'::regnamespace, 'evil'::regnamespace)
    GROUP BY c.relowner ORDER BY 2
$$;

SET ROLE regress_alice;
SELECT postbox.create_outbox('app.log'), postbox.create_outbox('app.jobs', 'table'), postbox.create_inbox('app.inbox');
CREATE TABLE app.old (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb NOT NULL);
SELECT postbox.adopt_outbox('app.old');
CREATE TABLE app.target (id text PRIMARY KEY, title text, version bigint);
SELECT postbox.create_projection('app.inbox', '{video.created}', 'app.target', delete_types => '{video.deleted}');
GRANT INSERT ON app.log, app.jobs, app.old TO regress_emitter;
RESET ROLE;

-- what every emitter and applier needs
CREATE FUNCTION pg_temp.works(log text, jobs text, old text, inbox text, target text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    versions text;
BEGIN
    SET LOCAL ROLE regress_emitter;
    SELECT string_agg((postbox.outbox_emit('video', 'v1', 'video.created', '{}'::jsonb, outbox => o::regclass)).version::text, ' ')
    INTO versions FROM unnest(ARRAY[log, jobs, old]) o;
    RESET ROLE;
    RETURN versions || ' ' || postbox.inbox_apply(inbox::regclass, versions, 'video.deleted', 'video', versions, 2, '{}')
        || ' ' || postbox.inbox_apply(inbox::regclass, versions || ' again', 'video.created', 'video', versions, 1, '{"title": "x"}')
        || ' ' || (SELECT count(*) FROM postbox.outbox_status WHERE problem IS NOT NULL);
END
$$;
SELECT pg_temp.works('app.log', 'app.jobs', 'app.old', 'app.inbox', 'app.target');

-- another owner
ALTER TABLE app.log OWNER TO regress_bob;
ALTER TABLE app.jobs OWNER TO regress_bob;
ALTER TABLE app.old OWNER TO regress_bob;
ALTER TABLE app.target OWNER TO regress_bob;
ALTER TABLE app.inbox OWNER TO regress_bob;
SELECT * FROM pg_temp.tables();
SELECT pg_temp.works('app.log', 'app.jobs', 'app.old', 'app.inbox', 'app.target');

-- another schema and name
ALTER TABLE app.log SET SCHEMA other;
ALTER TABLE app.jobs SET SCHEMA other;
ALTER TABLE IF EXISTS app.old SET SCHEMA other;
ALTER TABLE app.inbox SET SCHEMA other;
ALTER TABLE other.log RENAME TO renamed;
SELECT * FROM pg_temp.tables();
SELECT pg_temp.works('other.renamed', 'other.jobs', 'other.old', 'other.inbox', 'app.target');
ALTER SCHEMA other RENAME TO moved;
SELECT pg_temp.works('moved.renamed', 'moved.jobs', 'moved.old', 'moved.inbox', 'app.target');
ALTER SCHEMA moved RENAME TO other;

-- REASSIGN OWNED takes all of them
REASSIGN OWNED BY regress_bob TO regress_alice;
SELECT * FROM pg_temp.tables();
SELECT pg_temp.works('other.renamed', 'other.jobs', 'other.old', 'other.inbox', 'app.target');

-- by an owner with no more rights than it takes: who may give the outbox away may give its parts away
GRANT regress_bob TO regress_alice;
SET ROLE regress_alice;
ALTER TABLE other.jobs OWNER TO regress_bob;
SELECT relowner::regrole FROM pg_class WHERE oid = 'other.jobs_version'::regclass;
-- a name that is taken: the part stays, and works
CREATE TABLE app.renamed_version ();
CREATE TABLE app.log_version ();
ALTER TABLE other.renamed SET SCHEMA app;
SELECT count(*), c.relnamespace::regnamespace FROM pg_class c WHERE c.oid = ANY (SELECT part FROM postbox.parts_of(ARRAY['app.renamed'::regclass::oid])) GROUP BY 2 ORDER BY 1;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'app.renamed');
RESET ROLE;
REVOKE regress_bob FROM regress_alice;

-- a part that has got an owner of its own is left to him, and the status says what is wrong
ALTER TABLE other.log_version OWNER TO regress_mallory;
SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.renamed'::regclass;
ALTER TABLE app.renamed OWNER TO regress_bob;
SELECT relowner::regrole FROM pg_class WHERE oid = 'other.log_version'::regclass;
SET ROLE regress_bob;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'app.renamed');
RESET ROLE;
ALTER TABLE other.log_version OWNER TO regress_bob;
SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.renamed'::regclass;

-- Where event triggers are disabled, nothing follows; the status says so.
ALTER EVENT TRIGGER postbox_follow_altered DISABLE;
ALTER TABLE app.renamed OWNER TO regress_alice;
ALTER TABLE app.renamed_version OWNER TO regress_alice;
SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.renamed'::regclass;
ALTER EVENT TRIGGER postbox_follow_altered ENABLE ALWAYS;

-- A number that a dump has brought along: another's table is nobody's part, whoever alters the outbox.
SET ROLE regress_mallory;
SELECT postbox.create_outbox('evil.jobs', 'table'), postbox.create_inbox('evil.inbox');
DROP TABLE evil.jobs_version, evil.inbox_tombstone;
RESET ROLE;
CREATE TABLE app.like_version (aggregate_type text, aggregate_id text, version bigint);
CREATE TABLE app.like_tombstone (target regclass, key text, version bigint, deleted_at timestamptz) PARTITION BY LIST (key);
ALTER TABLE app.like_version OWNER TO regress_bob;
ALTER TABLE app.like_tombstone OWNER TO regress_bob;
UPDATE postbox.outbox SET counter = 'app.like_version'::regclass WHERE relation = 'evil.jobs'::regclass;
UPDATE postbox.inbox SET tombstone = 'app.like_tombstone'::regclass WHERE relation = 'evil.inbox'::regclass;
CREATE ROLE regress_eve;
GRANT CREATE ON SCHEMA evil TO regress_eve;
ALTER TABLE evil.jobs OWNER TO regress_eve;
ALTER TABLE evil.inbox OWNER TO regress_eve;
SELECT oid::regclass, relowner::regrole FROM pg_class WHERE oid IN ('app.like_version'::regclass, 'app.like_tombstone'::regclass) ORDER BY 1;
ALTER TABLE evil.jobs SET SCHEMA app;
SELECT relnamespace::regnamespace FROM pg_class WHERE relname = 'like_version';

-- What is no outbox is altered as ever, by those who have no right in schema postbox, too.
REVOKE USAGE ON SCHEMA postbox FROM PUBLIC;
SET ROLE regress_mallory;
CREATE TABLE evil.plain (id int);
ALTER TABLE evil.plain RENAME TO plainer;
ALTER TABLE evil.plainer SET SCHEMA evil;
ALTER TABLE evil.plainer OWNER TO regress_mallory, ADD COLUMN n int;
-- Versions of the server word it differently.
\set VERBOSITY sqlstate
ALTER TABLE evil.plainer OWNER TO regress_bob;
\set VERBOSITY default
SELECT postbox.follow_altered();
RESET ROLE;
GRANT USAGE ON SCHEMA postbox TO PUBLIC;
SELECT postbox.follow_altered();

SET client_min_messages = warning;
DROP SCHEMA app, other, evil CASCADE;
DROP ROLE regress_alice, regress_bob, regress_mallory, regress_emitter, regress_eve;
