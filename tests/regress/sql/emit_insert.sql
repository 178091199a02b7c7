-- The row that outbox_emit stores is inserted as the caller would insert it, however often the session has emitted before: a
-- plan that is kept outlives no right, no row security, no change of the table.
CREATE ROLE regress_postbox_app;
CREATE ROLE regress_postbox_other;
CREATE SCHEMA catalog;
GRANT USAGE ON SCHEMA catalog TO PUBLIC;
SELECT postbox.create_outbox('catalog.events', 'log');
GRANT INSERT ON catalog.events TO regress_postbox_app;
CREATE FUNCTION public.emit(aggregate_id text, version bigint DEFAULT 1, outbox regclass DEFAULT 'catalog.events', event_id uuid DEFAULT NULL)
    RETURNS bigint LANGUAGE sql AS $$
    SELECT version FROM postbox.outbox_emit('video', aggregate_id, 'video.created', '{}', version => version, outbox => outbox, event_id => event_id) $$;

-- rights are those of the moment: of the current role, and as they have been granted by now
SET ROLE regress_postbox_app;
SELECT public.emit('v1'), public.emit('v1', 2);
SET ROLE regress_postbox_other;
SELECT public.emit('v1', 3);
SET ROLE regress_postbox_app;
SELECT public.emit('v1', 3);
RESET ROLE;
REVOKE INSERT ON catalog.events FROM regress_postbox_app;
GRANT INSERT (id, seq, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes) ON catalog.events TO regress_postbox_app;
SET ROLE regress_postbox_app;
SELECT public.emit('v1', 4);
RESET ROLE;
GRANT INSERT (occurred_at) ON catalog.events TO regress_postbox_app;
SET ROLE regress_postbox_app;
SELECT public.emit('v1', 4);
RESET ROLE;
BEGIN;
SELECT public.emit('v1', 5);
SET LOCAL ROLE regress_postbox_other;
SELECT public.emit('v1', 6);
ROLLBACK;

-- row security is looked at from when it is switched on, for each role by its policies, until it is switched off
GRANT INSERT ON catalog.events TO regress_postbox_other;
ALTER TABLE catalog.events ENABLE ROW LEVEL SECURITY;
CREATE POLICY of_app ON catalog.events FOR INSERT TO regress_postbox_app WITH CHECK (aggregate_id LIKE 'app%');
CREATE POLICY of_other ON catalog.events FOR INSERT TO regress_postbox_other WITH CHECK (aggregate_id LIKE 'other%');
SELECT public.emit('v2');
SET ROLE regress_postbox_app;
SELECT public.emit('app1'), public.emit('app1', 2);
SELECT public.emit('other1');
SET ROLE regress_postbox_other;
SELECT public.emit('other1'), public.emit('other1', 2);
SELECT public.emit('app1', 3);
RESET ROLE;
ALTER TABLE catalog.events DISABLE ROW LEVEL SECURITY;
SET ROLE regress_postbox_other;
SELECT public.emit('app1', 3);
RESET ROLE;
DROP POLICY of_app ON catalog.events;
DROP POLICY of_other ON catalog.events;

-- the table may be altered and renamed, and the session may forget its plans
ALTER TABLE catalog.events ADD COLUMN note text DEFAULT 'first';
SELECT public.emit('v3');
ALTER TABLE catalog.events ALTER COLUMN note SET DEFAULT 'second';
SELECT public.emit('v3', 2);
ALTER TABLE catalog.events ADD CONSTRAINT few CHECK (version < 10);
SELECT public.emit('v3', 3);
\set VERBOSITY sqlstate
SELECT public.emit('v3', 10);
\set VERBOSITY default
ALTER TABLE catalog.events DROP CONSTRAINT few;
ALTER TABLE catalog.events RENAME TO renamed;
SELECT public.emit('v3', 4, 'catalog.renamed');
ALTER TABLE catalog.renamed RENAME TO events;
CREATE TABLE catalog.renamed (LIKE catalog.events);
SELECT public.emit('v3', 5);
DISCARD PLANS;
SELECT public.emit('v3', 6);
SELECT version, note FROM catalog.events WHERE aggregate_id = 'v3' ORDER BY seq;
SELECT count(*) FROM catalog.renamed;
DROP TABLE catalog.renamed;
ALTER TABLE catalog.events DROP COLUMN note;

-- each event goes to the partition of its generation, whatever id it has
SELECT public.emit('v4'), public.emit('v4', 2, event_id => '6ba7b810-9dad-41d1-80b4-00c04fd430c8');
SELECT version, tableoid::regclass::text = 'catalog.events_g' || generation AS in_its_partition FROM catalog.events WHERE aggregate_id = 'v4' ORDER BY version;
SELECT public.emit('v4', 3, event_id => '6ba7b810-9dad-41d1-80b4-00c04fd430c8');

-- a trigger sees the search_path of the caller, and what the caller has done before; the caller sees what the trigger has done
CREATE TABLE catalog.seen (who name, path text, events bigint);
GRANT INSERT ON catalog.seen TO PUBLIC;
CREATE FUNCTION catalog.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO catalog.seen SELECT current_user, current_setting('search_path'), count(*) FROM catalog.events WHERE aggregate_id = NEW.aggregate_id;
    RETURN NEW;
END $$;
CREATE TRIGGER note AFTER INSERT ON catalog.events FOR EACH ROW EXECUTE FUNCTION catalog.note();
GRANT SELECT, INSERT ON catalog.events TO regress_postbox_app;
SET ROLE regress_postbox_app;
SET search_path = catalog, public;
SELECT public.emit('v5');
SELECT public.emit('v5', NULL);
RESET search_path;
RESET ROLE;
SELECT * FROM catalog.seen ORDER BY events;
DO $$
BEGIN
    INSERT INTO catalog.events (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'video', 'v6', 'plain', 1, '');
    PERFORM public.emit('v6', 2);
    RAISE WARNING 'events %, seen %', (SELECT count(*) FROM catalog.events WHERE aggregate_id = 'v6'), (SELECT array_agg(events ORDER BY events) FROM catalog.seen WHERE who = current_user);
END $$;
DROP TRIGGER note ON catalog.events;

-- but no function of the owner that becomes part of the plan can be led astray by it, in this call or in later ones
CREATE FUNCTION catalog.stamp() RETURNS text LANGUAGE sql STABLE AS $$ SELECT upper('owner') $$;
ALTER TABLE catalog.events ADD COLUMN stamp text DEFAULT catalog.stamp();
CREATE SCHEMA astray;
GRANT USAGE ON SCHEMA astray TO PUBLIC;
CREATE FUNCTION astray.upper(text) RETURNS text LANGUAGE sql AS $$ SELECT 'led astray'::text $$;
SET ROLE regress_postbox_app;
SET search_path = astray, pg_catalog;
SELECT public.emit('v11');
RESET search_path;
RESET ROLE;
SELECT public.emit('v11', 2);
SELECT version, stamp FROM catalog.events WHERE aggregate_id = 'v11' ORDER BY version;
ALTER TABLE catalog.events DROP COLUMN stamp;
DROP SCHEMA astray CASCADE;

-- a trigger may emit into another outbox, and into the same one, even when the table has changed meanwhile
SELECT postbox.create_outbox('catalog.audit', 'log');
CREATE FUNCTION catalog.follow() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM public.emit(NEW.aggregate_id, NEW.version, 'catalog.audit');
    IF NEW.version < 4 THEN
        GRANT INSERT ON catalog.events TO regress_postbox_other;
        PERFORM public.emit(NEW.aggregate_id, NEW.version + 1);
        PERFORM public.emit(NEW.aggregate_id, NEW.version + 1);
    END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER follow BEFORE INSERT ON catalog.events FOR EACH ROW EXECUTE FUNCTION catalog.follow();
SELECT public.emit('v7'), public.emit('v7');
SELECT version, count(*), (SELECT count(*) FROM catalog.audit a WHERE a.version = e.version) AS audited
FROM catalog.events e WHERE aggregate_id = 'v7' GROUP BY version ORDER BY version;
DROP TRIGGER follow ON catalog.events;

-- a trigger that takes the event away, or fails: nothing is stored, and the session goes on; the error says where it happened
CREATE FUNCTION catalog.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    IF NEW.aggregate_id = 'taken' THEN RETURN NULL; END IF;
    IF NEW.aggregate_id = 'refused' THEN RAISE EXCEPTION 'refused'; END IF;
    RETURN NEW;
END $$;
CREATE TRIGGER refuse BEFORE INSERT ON catalog.events FOR EACH ROW EXECUTE FUNCTION catalog.refuse();
SELECT public.emit('taken');
DO $$
DECLARE
    id text; context text;
BEGIN
    FOREACH id IN ARRAY '{v8,refused,v9,refused,v10}'::text[] LOOP
        BEGIN
            PERFORM postbox.outbox_emit('video', id, 'video.created', '{}', version => 1, outbox => 'catalog.events');
        EXCEPTION WHEN raise_exception THEN
            GET STACKED DIAGNOSTICS context = PG_EXCEPTION_CONTEXT;
            RAISE WARNING 'caught: %', context;
        END;
    END LOOP;
END $$;
SELECT aggregate_id FROM catalog.events WHERE aggregate_id IN ('taken', 'v8', 'refused', 'v9', 'v10') ORDER BY seq;
DROP TRIGGER refuse ON catalog.events;

-- deferred constraints wait for the end of the transaction
CREATE TABLE catalog.video (id text PRIMARY KEY);
CREATE TABLE catalog.checked (LIKE catalog.video);
SELECT postbox.create_outbox('catalog.strict', 'log');
ALTER TABLE catalog.strict ADD FOREIGN KEY (aggregate_id) REFERENCES catalog.video DEFERRABLE INITIALLY DEFERRED;
BEGIN;
SELECT public.emit('v1', outbox => 'catalog.strict');
INSERT INTO catalog.video VALUES ('v1');
COMMIT;
BEGIN;
SELECT public.emit('v2', outbox => 'catalog.strict');
\set VERBOSITY sqlstate
COMMIT;
\set VERBOSITY default
SELECT aggregate_id FROM catalog.strict;

-- a check sees what the same statement has done before it emits
CREATE FUNCTION catalog.is_known(text) RETURNS boolean LANGUAGE plpgsql STABLE AS $$
BEGIN RETURN EXISTS (SELECT FROM catalog.video WHERE id = $1); END $$;
ALTER TABLE catalog.strict ADD CONSTRAINT known CHECK (catalog.is_known(aggregate_id));
SELECT public.emit('v1', 2, 'catalog.strict');
WITH video AS (INSERT INTO catalog.video VALUES ('v3') RETURNING id)
SELECT (postbox.outbox_emit('video', id, 'video.created', '{}', version => 1, outbox => 'catalog.strict')).version FROM video;
ALTER TABLE catalog.strict DROP CONSTRAINT known;

-- a rule that adds to the INSERT
CREATE RULE copy AS ON INSERT TO catalog.strict DO ALSO INSERT INTO catalog.checked VALUES (NEW.aggregate_id);
SELECT public.emit('v1', 2, 'catalog.strict'), public.emit('v1', 3, 'catalog.strict');
SELECT (SELECT count(*) FROM catalog.strict) AS events, (SELECT count(*) FROM catalog.checked) AS copies;
DROP RULE copy ON catalog.strict;
SELECT public.emit('v1', 4, 'catalog.strict');
SELECT (SELECT count(*) FROM catalog.strict) AS events, (SELECT count(*) FROM catalog.checked) AS copies;

-- and a rule that replaces it
CREATE RULE divert AS ON INSERT TO catalog.strict DO INSTEAD INSERT INTO catalog.checked VALUES (NEW.aggregate_id);
SELECT public.emit('v1', 5, 'catalog.strict'), public.emit('v1', 6, 'catalog.strict');
DROP RULE divert ON catalog.strict;
SELECT public.emit('v1', 7, 'catalog.strict');
SELECT (SELECT count(*) FROM catalog.strict) AS events, (SELECT count(*) FROM catalog.checked) AS copies;

-- ids grow within a session; no two ids have their random bits in common, whichever session made them
CREATE TABLE catalog.made (session int, i int, id uuid);
INSERT INTO catalog.made SELECT 1, i, (postbox.outbox_emit('tick', 't', 'ticked', '{}', version => i, outbox => 'catalog.audit')).event_id
FROM generate_series(1, 2000) i;
\c -
INSERT INTO catalog.made SELECT 2, i, (postbox.outbox_emit('tick', 't', 'ticked', '{}', version => i, outbox => 'catalog.audit')).event_id
FROM generate_series(1, 2000) i;
SELECT count(DISTINCT id) AS ids, count(DISTINCT right(id::text, 17)) AS random,
       (SELECT bool_and(id > before) FROM (SELECT id, lag(id) OVER (PARTITION BY session ORDER BY i) AS before FROM catalog.made) m) AS grows
FROM catalog.made;

DROP FUNCTION public.emit;
DROP SCHEMA catalog CASCADE;
DROP ROLE regress_postbox_app, regress_postbox_other;
