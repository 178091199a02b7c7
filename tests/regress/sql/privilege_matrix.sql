-- What each role may do with each object of schema postbox. The objects are read from the catalog, so a new one changes the
-- expected output, and whoever adds it has to say whom it is for.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
SET postbox.project_id = 'shop-1';
\set event '550e8400-e29b-41d4-a716-446655440000'
CREATE ROLE regress_public;
CREATE ROLE regress_emitter;
CREATE ROLE regress_applier;
CREATE ROLE regress_owner;
CREATE ROLE regress_operator IN ROLE postbox_operator;
CREATE ROLE regress_monitor IN ROLE pg_monitor;
CREATE ROLE regress_dbowner;
CREATE SCHEMA shop AUTHORIZATION regress_owner;
GRANT USAGE ON SCHEMA shop TO regress_emitter, regress_applier;
SELECT format('ALTER DATABASE %I OWNER TO regress_dbowner', current_database()) \gexec
GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.create_subscription TO regress_owner;
SET ROLE regress_owner;
SELECT postbox.create_outbox('shop.log'), postbox.create_outbox('shop.jobs', 'table'), postbox.create_inbox('shop.inbox');
SELECT postbox.create_publication('log', 'shop.log', 'shop.order.events'), postbox.create_publication('jobs', 'shop.jobs', 'shop.order.events');
CREATE TABLE shop.orders (id text PRIMARY KEY, total int NOT NULL, version bigint);
SELECT postbox.create_projection('shop.inbox', '{order.created}', 'shop.orders', name => 'orders');
CREATE FUNCTION shop.note(event postbox.event) RETURNS void LANGUAGE sql AS '';
SELECT postbox.create_handler('shop.inbox', '{order.created}', 'shop.note(postbox.event)', name => 'noted');
SELECT postbox.create_subscription('follower', 'shop.inbox', 'shop.order.events.shop-follower');
GRANT INSERT ON shop.log, shop.jobs TO regress_emitter;
GRANT INSERT ON shop.inbox TO regress_applier;
RESET ROLE;
REVOKE EXECUTE ON FUNCTION postbox.create_publication, postbox.create_subscription FROM regress_owner;
SELECT postbox.create_credential('usual', 'environment'), postbox.grant_credential('usual', 'regress_owner');

-- the role of operators has no rights but those of Postbox, and is granted, not logged in as
SELECT rolcanlogin, rolsuper, rolcreaterole, rolcreatedb, rolreplication, rolbypassrls FROM pg_roles WHERE rolname = 'postbox_operator';

\pset format aligned
-- columns of the matrix: r SELECT, a INSERT, w UPDATE, d DELETE, D TRUNCATE, x REFERENCES, t TRIGGER, U USAGE, C CREATE.
-- Emitter, applier and owner have no right on schema postbox that PUBLIC does not have.
CREATE TABLE roles (ordinal int, name text);
INSERT INTO roles VALUES (1, 'regress_public'), (2, 'regress_emitter'), (3, 'regress_applier'), (4, 'regress_owner'),
    (5, 'regress_operator'), (6, 'regress_monitor'), (7, 'regress_dbowner');

-- schema, tables, views, sequences
SELECT o.relation, max(o.held) FILTER (WHERE ordinal = 1) AS public, max(o.held) FILTER (WHERE ordinal = 2) AS emitter,
    max(o.held) FILTER (WHERE ordinal = 3) AS applier, max(o.held) FILTER (WHERE ordinal = 4) AS owner,
    max(o.held) FILTER (WHERE ordinal = 5) AS operator, max(o.held) FILTER (WHERE ordinal = 6) AS monitor,
    max(o.held) FILTER (WHERE ordinal = 7) AS dbowner
FROM (
    SELECT r.ordinal, 'schema postbox' AS relation, concat(CASE WHEN has_schema_privilege(r.name, 'postbox', 'USAGE') THEN 'U' END,
        CASE WHEN has_schema_privilege(r.name, 'postbox', 'CREATE') THEN 'C' END) AS held
    FROM roles r
    UNION ALL
    SELECT r.ordinal, c.relname || CASE WHEN c.relrowsecurity THEN ' (by row)' ELSE '' END, (
        SELECT string_agg(p.letter, '' ORDER BY p.n)
        FROM (VALUES (1, 'r', 'SELECT'), (2, 'a', 'INSERT'), (3, 'w', 'UPDATE'), (4, 'd', 'DELETE'), (5, 'D', 'TRUNCATE'),
                     (6, 'x', 'REFERENCES'), (7, 't', 'TRIGGER')) AS p(n, letter, name)
        WHERE has_table_privilege(r.name, c.oid, p.name))
    FROM roles r, pg_class c
    WHERE c.relnamespace = 'postbox'::regnamespace AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
    UNION ALL
    SELECT r.ordinal, 'sequence ' || c.relname, (
        SELECT string_agg(p.letter, '' ORDER BY p.n)
        FROM (VALUES (1, 'r', 'SELECT'), (2, 'w', 'UPDATE'), (3, 'U', 'USAGE')) AS p(n, letter, name)
        WHERE has_sequence_privilege(r.name, c.oid, p.name))
    FROM roles r, pg_class c WHERE c.relnamespace = 'postbox'::regnamespace AND c.relkind = 'S') AS o
GROUP BY o.relation ORDER BY o.relation COLLATE "C";

-- functions: who has EXECUTE, and as whom they run
SELECT p.proname, oidvectortypes(p.proargtypes) AS arguments,
    CASE WHEN p.prosecdef THEN 'definer' ELSE 'invoker' END AS runs_as,
    coalesce((SELECT string_agg(replace(r.name, 'regress_', ''), ' ' ORDER BY r.ordinal) FROM roles r
              WHERE r.ordinal > 1 AND has_function_privilege(r.name, p.oid, 'EXECUTE')
                AND NOT has_function_privilege('public', p.oid, 'EXECUTE')),
             CASE WHEN has_function_privilege('public', p.oid, 'EXECUTE') THEN 'public' ELSE '' END) AS may_execute
FROM pg_proc p WHERE p.pronamespace = 'postbox'::regnamespace
ORDER BY may_execute, p.proname, oidvectortypes(p.proargtypes) COLLATE "C";

-- types
SELECT t.typname, has_type_privilege('public', t.oid, 'USAGE') AS usage
FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
WHERE t.typnamespace = 'postbox'::regnamespace AND t.typelem = 0 AND coalesce(c.relkind, 'c') = 'c' ORDER BY 1;

-- Attempts. Each is made by every role, in a transaction that is rolled back; the outcome is
-- "yes", "-" for a right that is missing, "no rows" where row security hides them, or another SQLSTATE.
CREATE TABLE attempts (ordinal int GENERATED ALWAYS AS IDENTITY, what text, statement text);
INSERT INTO attempts (what, statement) VALUES
    ('emit, log', $$SELECT postbox.outbox_emit('order', '1', 'order.created', '{}', outbox => $log)$$),
    ('emit, table', $$SELECT postbox.outbox_emit('order', '1', 'order.created', '{}', outbox => $jobs)$$),
    ('apply', $$SELECT postbox.inbox_apply($inbox, 'event-1', 'order.created', 'order', '1', 1, '{"total": 1}')$$),
    ('apply, batch', $$SELECT postbox.inbox_apply_batch($inbox, ARRAY[('event-1', 'order.created', 'order', '1', 1, '{"total": 1}', '{}', now())::postbox.event])$$),
    ('record_dead_letter', $$SELECT postbox.record_dead_letter($inbox, ('event-1', 'order.created', 'order', '1', 1, '{}', '{}', now())::postbox.event, '23502', 'no')$$),
    ('redrive_dead_letter', $$SELECT postbox.redrive_dead_letter(1)$$),
    ('redrive_dead_letters', $$SELECT postbox.redrive_dead_letters($inbox)$$),
    ('claim_parked_key', $$SELECT postbox.claim_parked_key($inbox, true)$$),
    ('redrive_parked_key', $$SELECT postbox.redrive_parked_key($inbox, '1')$$),
    ('alter_inbox', $$SELECT postbox.alter_inbox($inbox, '1 day', true)$$),
    ('wait_for_version', $$SELECT postbox.wait_for_version($orders, '1', 1, '0')$$),
    ('redrive, log', $$SELECT postbox.redrive($log)$$),
    ('redrive, table', $$SELECT postbox.redrive($jobs)$$),
    ('discard, log', $$SELECT postbox.discard($log, '550e8400-e29b-41d4-a716-446655440000')$$),
    ('discard, table', $$SELECT postbox.discard($jobs, '550e8400-e29b-41d4-a716-446655440000')$$),
    ('purge_outbox, log', $$SELECT postbox.purge_outbox($log)$$),
    ('purge_outbox, table', $$SELECT postbox.purge_outbox($jobs)$$),
    ('purge_inbox', $$SELECT postbox.purge_inbox($inbox)$$),
    ('make_partitions', $$SELECT postbox.make_partitions($log)$$),
    ('settle_foreign_events', $$SELECT postbox.settle_foreign_events($log)$$),
    ('create_publication', $$SELECT postbox.create_publication('mine', $log, 'shop.order.events')$$),
    ('alter_publication', $$SELECT postbox.alter_publication('log', topic => 'shop.other.events')$$),
    ('pause_publication', $$SELECT postbox.pause_publication('log', 'why')$$),
    ('resume_publication', $$SELECT postbox.resume_publication('log')$$),
    ('claim_publication', $$SELECT postbox.claim_publication('log')$$),
    ('drop_publication', $$SELECT postbox.drop_publication('log')$$),
    ('create_subscription', $$SELECT postbox.create_subscription('mine', $inbox, 'shop.order.events.shop-other')$$),
    ('alter_subscription', $$SELECT postbox.alter_subscription('follower', appliers => 2)$$),
    ('pause_subscription', $$SELECT postbox.pause_subscription('follower', 'why')$$),
    ('resume_subscription', $$SELECT postbox.resume_subscription('follower')$$),
    ('drop_subscription', $$SELECT postbox.drop_subscription('follower')$$),
    ('puller_endpoint', $$SELECT postbox.puller_endpoint()$$),
    ('session_is_stopped', $$SELECT postbox.session_is_stopped(0)$$),
    ('create_credential', $$SELECT postbox.create_credential('mine', 'metadata')$$),
    ('alter_credential', $$SELECT postbox.alter_credential('usual', 'metadata')$$),
    ('grant_credential', $$SELECT postbox.grant_credential('usual', 'regress_public')$$),
    ('revoke_credential', $$SELECT postbox.revoke_credential('usual', 'regress_owner')$$),
    ('drop_credential', $$SELECT postbox.drop_credential('usual')$$),
    ('UPDATE credential', $$UPDATE postbox.credential SET file = '/etc/passwd'$$),
    ('INSERT credential_grant', $$INSERT INTO postbox.credential_grant VALUES ('usual', 'regress_public')$$),
    ('SELECT credential_secret', $$SELECT count(*) FROM postbox.credential_secret$$),
    ('INSERT credential_state', $$INSERT INTO postbox.credential_state VALUES ('usual', 0, 'x', NULL, NULL, now())$$),
    ('credential_status', $$SELECT count(*) FROM postbox.credential_status$$),
    ('create_projection', $$SELECT postbox.create_projection($inbox, '{order.paid}', $orders)$$),
    ('alter_projection', $$SELECT postbox.alter_projection('orders', event_types => '{order.paid}')$$),
    ('pause_projection', $$SELECT postbox.pause_projection('orders', 'why')$$),
    ('resume_projection', $$SELECT postbox.resume_projection('orders')$$),
    ('alter_handler', $$SELECT postbox.alter_handler('noted', event_types => '{order.paid}')$$),
    ('pause_handler', $$SELECT postbox.pause_handler('noted', 'why')$$),
    ('resume_handler', $$SELECT postbox.resume_handler('noted')$$),
    ('drop_handler', $$SELECT postbox.drop_handler('noted')$$),
    ('drop_projection', $$SELECT postbox.drop_projection('orders')$$),
    ('alter_outbox', $$SELECT postbox.alter_outbox($log, '30 days')$$),
    ('drop_outbox, log', $$SELECT postbox.drop_outbox($log)$$),
    ('drop_outbox, table', $$SELECT postbox.drop_outbox($jobs)$$),
    ('repair_outbox, log', $$SELECT count(*) FROM postbox.repair_outbox($log, false)$$),
    ('repair_outbox, table, dry run', $$SELECT count(*) FROM postbox.repair_outbox($jobs)$$),
    ('repair_inbox', $$SELECT count(*) FROM postbox.repair_inbox($inbox, false)$$),
    ('register_outbox', $$SELECT postbox.register_outbox($orders)$$),
    ('register_inbox', $$SELECT postbox.register_inbox($orders)$$),
    ('adopt_outbox', $$SELECT postbox.adopt_outbox($orders)$$),
    ('drop_inbox', $$SELECT postbox.drop_inbox($inbox)$$),
    ('wake_publishers', $$SELECT postbox.wake_publishers()$$),
    ('postbox.workers', $$SELECT count(*) FROM postbox.workers$$),
    ('discard_dead_letter', $$SELECT 1 / count(*) FROM postbox.dead_letter d WHERE postbox.discard_dead_letter(d.id)$$),
    ('discard_dead_letters', $$SELECT 1 / postbox.discard_dead_letters($inbox)$$),
    ('DELETE dead_letter', $$DELETE FROM postbox.dead_letter$$),
    ('DELETE parked_key', $$DELETE FROM postbox.parked_key$$),
    ('DELETE discarded_event', $$DELETE FROM postbox.discarded_event$$),
    ('UPDATE dead_letter', $$UPDATE postbox.dead_letter SET error = ''$$),
    ('INSERT dead_letter', $$INSERT INTO postbox.dead_letter (inbox) VALUES ($inbox)$$),
    ('UPDATE outbox', $$UPDATE postbox.outbox SET retention = '1 s'$$),
    ('UPDATE publication', $$UPDATE postbox.publication SET topic = 'x'$$),
    ('UPDATE state', $$UPDATE postbox.publication_state SET next_retry_at = 'infinity'$$),
    ('SELECT last_error of state', $$SELECT last_error FROM postbox.publication_state$$),
    ('SELECT lane FOR UPDATE', $$SELECT FROM postbox.lane FOR UPDATE$$),
    ('LOCK lane', $$LOCK TABLE postbox.lane$$),
    ('TRUNCATE inbox', $$TRUNCATE postbox.inbox$$),
    ('DELETE subscription', $$DELETE FROM postbox.subscription$$),
    ('UPDATE projection', $$UPDATE postbox.projection SET target = 'pg_class'$$),
    ('INSERT handler', $$INSERT INTO postbox.handler (name, inbox, event_types, function) VALUES ('x', $inbox, '{x}', 'f()')$$),
    ('CREATE in postbox', $$CREATE TABLE postbox.mine ()$$),
    ('TRIGGER on outbox', $$CREATE TRIGGER mine AFTER INSERT ON postbox.outbox EXECUTE FUNCTION postbox.configuration_changed()$$),
    ('ALTER FUNCTION', $$ALTER FUNCTION postbox.redrive(regclass, uuid) SECURITY DEFINER$$),
    ('DROP SCHEMA', $$DROP SCHEMA postbox CASCADE$$),
    ('ALTER DATABASE', $$ALTER DATABASE regress_postbox SET postbox.project_id = 'other'$$),
    ('DROP EXTENSION', $$DROP EXTENSION postbox$$),
    ('GRANT operator', $$GRANT postbox_operator TO regress_public$$);
-- A partition is missing: that of the generation after the present one.
DO $$ BEGIN EXECUTE (SELECT format('DROP TABLE %s', part) FROM postbox.past_retention((SELECT o FROM postbox.outbox o WHERE relation = 'shop.log'::regclass)) part); END $$;
-- By OID, so that what refuses is not the lookup of the name, which takes USAGE on the schema.
UPDATE attempts SET statement = replace(replace(replace(replace(statement, '$log', 'shop.log'::regclass::oid::text),
    '$jobs', 'shop.jobs'::regclass::oid::text), '$inbox', 'shop.inbox'::regclass::oid::text), '$orders', 'shop.orders'::regclass::oid::text);
CREATE FUNCTION attempt(role text, statement text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    outcome text;
    rows bigint;
BEGIN
    BEGIN
        PERFORM set_config('role', role, true);
        EXECUTE statement;
        GET DIAGNOSTICS rows = ROW_COUNT;
        IF rows = 0 AND statement LIKE 'DELETE%' THEN
            RAISE EXCEPTION USING ERRCODE = 'PB001';
        END IF;
        RAISE EXCEPTION USING ERRCODE = 'PB000';
    EXCEPTION WHEN OTHERS THEN
        outcome := CASE SQLSTATE WHEN 'PB000' THEN 'yes' WHEN 'PB001' THEN 'no rows' WHEN '42501' THEN '-' ELSE SQLSTATE END;
    END;
    RETURN outcome;
END
$$;
SELECT postbox.inbox_apply('shop.inbox', 'event-2', 'order.created', 'order', '2', 1, '{"total": null}', on_error => 'reject');
SELECT a.what, attempt('regress_public', statement) AS public, attempt('regress_emitter', statement) AS emitter,
    attempt('regress_applier', statement) AS applier, attempt('regress_owner', statement) AS owner,
    attempt('regress_operator', statement) AS operator, attempt('regress_monitor', statement) AS monitor,
    attempt('regress_dbowner', statement) AS dbowner, attempt(current_user, statement) AS superuser
FROM attempts a ORDER BY ordinal;

\pset format unaligned
-- What each role sees of a parked event, a backlog and a dead letter
INSERT INTO shop.log_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, publish_attempts, next_retry_at, last_error)
    VALUES ('log', 1, :'event', 'order', 'parked', 'order.created', 1, 'v1', '{}', '{}', now(), 5, 'infinity', 'INVALID_ARGUMENT');
SELECT version FROM postbox.outbox_emit('order', 'parked', 'order.created', '{}', event_id => :'event', outbox => 'shop.jobs');
UPDATE shop.jobs SET publish_attempts = 5, next_retry_at = 'infinity', last_error = 'INVALID_ARGUMENT';
INSERT INTO postbox.publication_state (publication) VALUES ('jobs') ON CONFLICT DO NOTHING;
UPDATE postbox.publication_state SET attempts = 1, next_retry_at = 'infinity', last_error = 'a key of an event' WHERE publication = 'jobs';
CREATE FUNCTION seen(role text) RETURNS TABLE (pending bigint, suspended bigint, errors bigint, paused bigint, dead bigint) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('role', role, true);
    SELECT sum(s.pending), count(s.retry_at), count(*) FILTER (WHERE s.last_error ~ 'a key of an event')
      INTO pending, suspended, errors
    FROM postbox.publication_status s;
    SELECT count(*) INTO paused FROM postbox.paused_keys;
    SELECT count(*) INTO dead FROM postbox.dead_letter;
    PERFORM set_config('role', 'none', true);
    RETURN NEXT;
END
$$;
SELECT r.name, s.* FROM roles r, seen(r.name) s ORDER BY r.ordinal;
-- nor do the functions behind the views show more
SET ROLE regress_emitter;
SELECT s.* FROM postbox.outbox o, postbox.show_paused_keys(o.relation) s;
SELECT s.* FROM postbox.publication p, postbox.show_backlog(p.name) s;
SELECT s.* FROM postbox.outbox o, postbox.outbox_paused_keys(o.relation) s WHERE o.kind = 'table';
SELECT postbox.publication_backlog('jobs');
RESET ROLE;

-- An operator repairs without a right on any table. What the tables call runs as their owner, in a restricted operation.
CREATE TABLE shop.calls (who text, path text, restricted text);
GRANT INSERT ON shop.calls TO PUBLIC;
CREATE FUNCTION shop.note() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    outcome text := 'no';
BEGIN
    BEGIN
        PERFORM set_config('role', session_user, false);
    EXCEPTION WHEN insufficient_privilege THEN
        outcome := 'yes';
    END;
    INSERT INTO shop.calls VALUES (current_user, current_setting('search_path'), outcome);
    PERFORM set_config('search_path', 'shop, pg_catalog', false);
    RETURN NULL;
END
$$;
CREATE TRIGGER note AFTER UPDATE ON shop.jobs FOR EACH STATEMENT EXECUTE FUNCTION shop.note();
CREATE TRIGGER note AFTER UPDATE OR DELETE ON shop.log_parked FOR EACH STATEMENT EXECUTE FUNCTION shop.note();
SET ROLE regress_operator;
SELECT postbox.redrive(o.relation) FROM postbox.outbox o ORDER BY o.kind;
SELECT postbox.discard(o.relation, :'event') FROM postbox.outbox o ORDER BY o.kind;
SHOW search_path;
SELECT current_user;
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter;
SELECT error, postbox.discard_dead_letter(id) FROM postbox.dead_letter;
-- errors are those of everyone
SELECT postbox.redrive(NULL);
SELECT postbox.redrive('pg_class');
SELECT postbox.redrive(1);
SELECT postbox.discard('pg_class', NULL);
RESET ROLE;
SELECT * FROM shop.calls;
-- a superuser, too, acts as the owner
TRUNCATE shop.calls;
SELECT postbox.redrive('shop.jobs');
SELECT * FROM shop.calls;
-- nor does retention run anything of the owner's as who calls it, and partitions belong to the owner, whoever makes them
CREATE ROLE regress_member IN ROLE regress_owner;
TRUNCATE shop.calls;
CREATE TRIGGER note_deleted AFTER DELETE ON shop.jobs FOR EACH STATEMENT EXECUTE FUNCTION shop.note();
SELECT postbox.purge_outbox('shop.jobs'), postbox.purge_outbox('shop.log');
DO $$ BEGIN EXECUTE (SELECT format('DROP TABLE %s', part) FROM postbox.past_retention((SELECT o FROM postbox.outbox o WHERE relation = 'shop.log'::regclass)) part); END $$;
SET ROLE regress_member;
SELECT postbox.purge_outbox('shop.jobs'), postbox.purge_outbox('shop.log');
RESET ROLE;
SELECT * FROM shop.calls;
SELECT relowner::regrole, count(*) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = 'shop.log'::regclass GROUP BY 1;
-- DELETE on a table outbox is enough to purge it, and adds no partition
DROP TRIGGER note_deleted ON shop.jobs;
DO $$ BEGIN EXECUTE (SELECT format('DROP TABLE %s', part) FROM postbox.past_retention((SELECT o FROM postbox.outbox o WHERE relation = 'shop.log'::regclass)) part); END $$;
GRANT SELECT, DELETE, UPDATE ON shop.jobs TO regress_emitter;
SET ROLE regress_emitter;
SELECT postbox.purge_outbox('shop.jobs');
\set VERBOSITY sqlstate
SELECT postbox.purge_outbox('shop.log');
\set VERBOSITY default
SELECT postbox.purge_outbox('shop.jobs', 0);
SELECT postbox.purge_outbox(NULL);
SELECT postbox.purge_outbox('pg_class');
RESET ROLE;
REVOKE SELECT, DELETE, UPDATE ON shop.jobs FROM regress_emitter;
DROP ROLE regress_member;

-- A look at the status runs nothing of an owner's at all: here a cast to text.
CREATE TYPE shop.kind AS (name text);
ALTER TYPE shop.kind OWNER TO regress_owner;
GRANT CREATE ON SCHEMA public TO regress_owner;
SET ROLE regress_owner;
CREATE FUNCTION shop.kind_text(shop.kind) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO shop.calls VALUES (current_user, current_setting('search_path'), 'cast');
    RETURN ($1).name;
END
$$;
CREATE FUNCTION shop.text_kind(text) RETURNS shop.kind LANGUAGE sql IMMUTABLE RETURN ROW($1)::shop.kind;
CREATE CAST (shop.kind AS text) WITH FUNCTION shop.kind_text(shop.kind);
SELECT version FROM postbox.outbox_emit('order', 'cast', 'order.created', '{}', outbox => 'shop.jobs');
ALTER TABLE shop.jobs ALTER aggregate_id TYPE shop.kind USING shop.text_kind(aggregate_id);
UPDATE shop.jobs SET publish_attempts = 5, next_retry_at = 'infinity', published_at = NULL;
GRANT SELECT ON shop.jobs TO regress_emitter;
TRUNCATE shop.calls;
RESET ROLE;
SELECT count(*) > 0 AS seen FROM postbox.paused_keys WHERE outbox = 'shop.jobs'::regclass;
SET ROLE regress_emitter;
SELECT count(*) > 0 AS seen FROM postbox.paused_keys WHERE outbox = 'shop.jobs'::regclass;
SET ROLE regress_operator;
SELECT count(*) > 0 AS seen FROM postbox.paused_keys WHERE outbox::oid IN (SELECT relation FROM postbox.outbox WHERE kind = 'table');
SELECT count(*) FROM postbox.publication_status;
RESET ROLE;
SELECT DISTINCT who FROM shop.calls;

RESET search_path;
SET ROLE regress_owner;
ALTER TABLE shop.jobs ALTER aggregate_id TYPE text USING aggregate_id::text;
RESET ROLE;
-- an outbox that its owner has broken hides no other
SELECT count(*) AS keys FROM postbox.paused_keys;
INSERT INTO shop.log_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, publish_attempts, next_retry_at, last_error)
    VALUES ('log', 1, :'event', 'order', 'parked', 'order.created', 1, 'v1', '{}', '{}', now(), 5, 'infinity', 'INVALID_ARGUMENT');
ALTER TABLE shop.jobs RENAME last_error TO its_last_error;
SELECT outbox, aggregate_id FROM postbox.paused_keys;
ALTER TABLE shop.jobs RENAME its_last_error TO last_error;

-- row security for the caller: there is no telling what it would hide
ALTER TABLE shop.jobs ENABLE ROW LEVEL SECURITY;
SET ROLE regress_emitter;
SELECT pending FROM postbox.publication_status WHERE publication = 'jobs';
RESET ROLE;

DROP FUNCTION attempt(text, text), seen(text);
DROP TABLE roles, attempts;
DROP SCHEMA shop CASCADE;

-- a role of that name with rights of its own is refused, and DROP EXTENSION leaves the role
DROP EXTENSION postbox;
SELECT count(*) FROM pg_roles WHERE rolname = 'postbox_operator';
ALTER ROLE postbox_operator LOGIN CREATEROLE;
CREATE EXTENSION postbox;
ALTER ROLE postbox_operator NOLOGIN NOCREATEROLE;
CREATE EXTENSION postbox;
-- what was granted to it goes with the extension, and so the role can be dropped then; CREATE EXTENSION makes it again
DROP EXTENSION postbox;
DROP ROLE postbox_operator;
CREATE EXTENSION postbox;
SELECT count(*) FROM pg_roles WHERE rolname = 'postbox_operator';

SELECT format('ALTER DATABASE %I OWNER TO %I', current_database(), current_user) \gexec
REVOKE CREATE ON SCHEMA public FROM regress_owner;
DROP ROLE regress_public, regress_emitter, regress_applier, regress_owner, regress_operator, regress_monitor, regress_dbowner;
