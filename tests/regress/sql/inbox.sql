-- Making, dropping and purging inboxes.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
CREATE FUNCTION pg_temp.registered() RETURNS TABLE (relation text, tombstone text, retention interval)
    LANGUAGE sql AS $$ SELECT relation::text, tombstone::text, retention FROM postbox.inbox ORDER BY 1 $$;

-- a name in the current schema, a qualified name, a name that needs quotes
SET search_path = reader, public;
SELECT postbox.create_inbox('events');
RESET search_path;
SELECT postbox.create_inbox('reader.inbox', '3 days');
SELECT postbox.create_inbox('reader."Odd ""name"""', retention => '1 month');
SELECT * FROM pg_temp.registered();
\d reader.inbox
\d reader.inbox_tombstone
SELECT obj_description('reader.inbox'::regclass, 'pg_class'), obj_description('reader.inbox_tombstone'::regclass, 'pg_class');

-- bad input
SELECT postbox.create_inbox(NULL);
SELECT postbox.create_inbox('');
SELECT postbox.create_inbox('a.b.c.d');
SELECT postbox.create_inbox('reader.inbox');
SELECT postbox.create_inbox('no_such_schema.inbox');
SELECT postbox.create_inbox('pg_temp.inbox');
SELECT postbox.create_inbox('reader.' || repeat('x', 46));
SELECT postbox.create_inbox('reader.' || repeat('x', 45)) IS NOT NULL AS longest_name;
SELECT postbox.create_inbox('reader.other', retention => NULL);
SELECT postbox.create_inbox('reader.other', retention => '0');
SELECT postbox.create_inbox('reader.other', retention => '-1 day');
SELECT to_regclass('reader.other');

-- a failed creation leaves nothing, a rolled-back one neither
BEGIN;
SELECT postbox.create_inbox('reader.other');
ROLLBACK;
SELECT to_regclass('reader.other'), to_regclass('reader.other_tombstone');
SELECT count(*) FROM postbox.inbox;

-- who creates an inbox owns it, and needs CREATE on the schema
CREATE ROLE regress_postbox_owner;
CREATE ROLE regress_postbox_other;
SET ROLE regress_postbox_owner;
SELECT postbox.create_inbox('reader.mine');
RESET ROLE;
GRANT USAGE, CREATE ON SCHEMA reader TO regress_postbox_owner, regress_postbox_other;
SET ROLE regress_postbox_owner;
SELECT postbox.create_inbox('reader.mine');
SELECT relname, relowner::regrole FROM pg_class WHERE oid IN ('reader.mine'::regclass, 'reader.mine_tombstone'::regclass) ORDER BY 1;
-- the configuration can be read by all and written by none
SELECT relation, retention FROM postbox.inbox WHERE relation = 'reader.mine'::regclass;
INSERT INTO postbox.inbox (relation, tombstone, retention) VALUES ('pg_class', 'pg_class', '1 day');
UPDATE postbox.inbox SET retention = '1 day';
DELETE FROM postbox.inbox;
DELETE FROM postbox.subscription;
INSERT INTO postbox.projection (inbox, event_types, target, key, version_column) VALUES ('reader.mine', '{x}', 'pg_class', '{x}', 'x');
INSERT INTO postbox.handler (inbox, event_types, function) VALUES ('reader.mine', '{x}', 'x');
INSERT INTO postbox.dead_letter (inbox) VALUES ('reader.mine');
-- others may not touch it
RESET ROLE;
SET ROLE regress_postbox_other;
SELECT postbox.drop_inbox('reader.mine');
SELECT postbox.purge_inbox('reader.mine');
RESET ROLE;

-- purging: by generations, tombstones too; reader.inbox keeps ids for 3 days
CREATE FUNCTION pg_temp.pass(by interval) RETURNS void LANGUAGE sql AS
    $$ UPDATE postbox.inbox SET generation_since = generation_since - by, previous_since = previous_since - by WHERE relation = 'reader.inbox'::regclass $$;
CREATE FUNCTION pg_temp.apply(VARIADIC ids text[]) RETURNS TABLE (id text, outcome postbox.outcome) LANGUAGE sql AS
    $$ SELECT id, postbox.inbox_apply('reader.inbox', id, 'unknown', 'video', 'v', 1, '{}') FROM unnest(ids) AS id $$;
CREATE FUNCTION pg_temp.kept() RETURNS TABLE (current smallint, generation smallint, ids bigint, keys text) LANGUAGE sql AS $$
    SELECT r.generation, g.generation::smallint, (SELECT count(*) FROM reader.inbox i WHERE i.generation = g.generation),
           (SELECT string_agg(t.key, ' ' ORDER BY t.key) FROM reader.inbox_tombstone t WHERE t.generation = g.generation)
    FROM postbox.inbox r CROSS JOIN generate_series(0, 2) AS g(generation) WHERE r.relation = 'reader.inbox'::regclass $$;
SELECT retention FROM postbox.inbox WHERE relation = 'reader.inbox'::regclass;
SELECT * FROM pg_temp.apply('a1', 'a2');
INSERT INTO reader.inbox_tombstone (target, key, version, generation) VALUES ('reader.inbox', 'a', 1, 0);
SELECT pg_temp.pass('1.4 days');
SELECT postbox.purge_inbox('reader.inbox');
SELECT * FROM pg_temp.kept();
-- half of the retention later the next generation is current, and what is in the former one is a duplicate
SELECT pg_temp.pass('0.1 days');
SELECT postbox.purge_inbox('reader.inbox');
SELECT * FROM pg_temp.apply('a1', 'b1');
INSERT INTO reader.inbox_tombstone (target, key, version, generation) VALUES ('reader.inbox', 'b', 1, 1);
SELECT * FROM pg_temp.kept();
SELECT pg_temp.pass('1.5 days');
SELECT postbox.purge_inbox('reader.inbox');
SELECT * FROM pg_temp.apply('a1', 'b1', 'c1');
-- a batch, with events of all generations, new ones, and one twice
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY(SELECT ROW(id, 'unknown', 'video', 'v', 1, '{}', NULL, NULL)::postbox.event
    FROM unnest('{n2,a2,b1,n1,c1,n2,a1}'::text[]) AS id));
SELECT * FROM pg_temp.kept();
-- nothing is removed before the retention is over, counted from the end of its generation
SELECT pg_temp.pass('1.4 days');
SELECT postbox.purge_inbox('reader.inbox');
SELECT pg_temp.pass('0.1 days');
SELECT postbox.purge_inbox('reader.inbox');
SELECT * FROM pg_temp.apply('a1', 'b1', 'c1');
SELECT * FROM pg_temp.kept();
-- what was not purged for long
SELECT pg_temp.pass('100 days');
SELECT problem, remedy FROM postbox.inbox_problem;
SELECT subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'retention';
SELECT postbox.purge_inbox('reader.inbox');
SELECT * FROM pg_temp.kept();
SELECT problem, remedy FROM postbox.inbox_problem;
SELECT * FROM pg_temp.apply('a1');
-- a longer retention keeps what is there; any retention works
SELECT pg_temp.pass('4 days');
SELECT postbox.alter_inbox('reader.inbox', retention => '300000 years');
SELECT postbox.purge_inbox('reader.inbox');
SELECT * FROM pg_temp.kept();
SELECT postbox.alter_inbox('reader.inbox', retention => '3 days');
-- not in the transaction that has applied events itself
BEGIN;
SELECT * FROM pg_temp.apply('d1');
SELECT pg_temp.pass('4 days');
SELECT postbox.purge_inbox('reader.inbox');
SELECT DISTINCT current FROM pg_temp.kept();
COMMIT;
-- one that is rolled back is forgotten
BEGIN;
SAVEPOINT s;
SELECT postbox.purge_inbox('reader.inbox');
SELECT DISTINCT current FROM pg_temp.kept();
SELECT * FROM pg_temp.apply('e1', 'd1');
ROLLBACK TO s;
SELECT * FROM pg_temp.apply('e1', 'd1');
COMMIT;
SELECT * FROM pg_temp.kept();
-- a row that a user inserts names its generation
INSERT INTO reader.inbox (event_id, outcome) VALUES (gen_random_uuid(), 'applied');
-- a trigger, a rule and a policy of the owner meet what is applied, also in a partition
CREATE TABLE reader.noted (what text);
CREATE FUNCTION reader.note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO reader.noted VALUES (TG_TABLE_NAME || ' ' || TG_OP || ' ' || TG_LEVEL); RETURN NEW; END $$;
CREATE TRIGGER note AFTER INSERT ON reader.inbox FOR EACH STATEMENT EXECUTE FUNCTION reader.note();
CREATE TRIGGER note BEFORE INSERT ON reader.inbox_g1 FOR EACH ROW EXECUTE FUNCTION reader.note();
SELECT * FROM pg_temp.apply('f1');
DROP TRIGGER note ON reader.inbox;
SELECT * FROM pg_temp.apply('f2');
DROP TRIGGER note ON reader.inbox_g1;
SELECT * FROM pg_temp.apply('f3', 'f1', 'f2');
SELECT * FROM reader.noted;
DROP FUNCTION reader.note() CASCADE;
ALTER TABLE reader.inbox_g1 RENAME TO renamed;
SELECT * FROM pg_temp.apply('f4', 'f3');
ALTER TABLE reader.inbox ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
CREATE POLICY none ON reader.inbox USING (event_type <> 'unknown') WITH CHECK (true);
SELECT * FROM pg_temp.apply('f4', 'f5', 'd1');
DROP POLICY none ON reader.inbox;
ALTER TABLE reader.inbox NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;
-- a key that references it, and row security, keep a partition from being emptied
CREATE TABLE reader.mark (id uuid, generation smallint, FOREIGN KEY (id, generation) REFERENCES reader.inbox);
INSERT INTO reader.inbox (event_id, outcome, generation) VALUES (gen_random_uuid(), 'applied', 2);
SELECT pg_temp.pass('100 days');
SELECT postbox.purge_inbox('reader.inbox');
SELECT problem, remedy FROM postbox.inbox_problem;
DROP TABLE reader.mark;
ALTER TABLE reader.inbox_g2 ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT postbox.purge_inbox('reader.inbox');
SELECT problem, remedy FROM postbox.inbox_problem;
ALTER TABLE reader.inbox_g2 NO FORCE ROW LEVEL SECURITY, DISABLE ROW LEVEL SECURITY;
SELECT postbox.purge_inbox('reader.inbox');
SELECT problem, remedy FROM postbox.inbox_problem;
-- a partition that is gone
DROP TABLE reader.inbox_g2;
SELECT problem, remedy FROM postbox.inbox_problem;
SELECT * FROM pg_temp.apply('g1');
SELECT * FROM postbox.repair_inbox('reader.inbox', false);
-- one that has partitions itself: what is in it would not be found
DROP TABLE reader.inbox_g2;
CREATE TABLE reader.inbox_g2 PARTITION OF reader.inbox FOR VALUES IN (2) PARTITION BY HASH (event_id);
SELECT problem, remedy FROM postbox.inbox_problem;
SELECT * FROM pg_temp.apply('g1');
SELECT * FROM postbox.repair_inbox('reader.inbox');
DROP TABLE reader.inbox_g2;
SELECT * FROM postbox.repair_inbox('reader.inbox', false);
ALTER TABLE reader.inbox_tombstone DETACH PARTITION reader.inbox_tombstone_g2;
SELECT * FROM pg_temp.apply('g1');
SELECT problem, remedy FROM postbox.inbox_problem;
ALTER TABLE reader.inbox_tombstone ATTACH PARTITION reader.inbox_tombstone_g2 FOR VALUES IN (2);
SELECT * FROM pg_temp.apply('g1', 'f5');
SELECT * FROM postbox.repair_inbox('reader.inbox');
-- without its key nothing is applied
ALTER TABLE reader.inbox DROP CONSTRAINT inbox_pkey;
SELECT * FROM pg_temp.apply('g2');
SELECT * FROM postbox.repair_inbox('reader.inbox', false);
SELECT * FROM pg_temp.apply('g2', 'g1');
-- a unique index in the other direction will do
ALTER TABLE reader.inbox DROP CONSTRAINT inbox_pkey;
CREATE UNIQUE INDEX ON reader.inbox (event_id DESC, generation);
CREATE FUNCTION pg_temp.apply_many() RETURNS postbox.outcome[] LANGUAGE sql AS
    $$ SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY(SELECT ROW('many' || i, 'unknown', 'video', 'v', 1, '{}', NULL, NULL)::postbox.event FROM generate_series(1, 9) i)) $$;
SELECT pg_temp.apply_many();
SELECT postbox.alter_inbox('reader.inbox', retention => '1 month');
SELECT pg_temp.pass('16 days');
SELECT postbox.purge_inbox('reader.inbox');
SELECT pg_temp.apply_many();
SELECT * FROM postbox.repair_inbox('reader.inbox', false);
-- a rotation while the clock was wrong: what it says is counted from now
UPDATE postbox.inbox SET generation_since = '2999-01-01' WHERE relation = 'reader.inbox'::regclass;
SELECT postbox.purge_inbox('reader.inbox');
SELECT generation_since <= clock_timestamp() AND generation_since > now() - interval '1 minute' AS counted FROM postbox.inbox WHERE relation = 'reader.inbox'::regclass;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postbox.purge_inbox('reader.inbox');
ROLLBACK;
SELECT postbox.purge_inbox(NULL);
SELECT postbox.purge_inbox('pg_class');
SELECT postbox.purge_inbox('0');

-- dropping takes everything along, but the projected tables
CREATE TABLE reader.video (id text PRIMARY KEY, version bigint);
CREATE FUNCTION reader.handle(postbox.event) RETURNS void LANGUAGE sql AS '';
SELECT postbox.create_projection('reader.inbox', '{a}', 'reader.video');
SELECT postbox.create_handler('reader.inbox', '{b}', 'reader.handle(postbox.event)');
SELECT postbox.create_subscription('videos', 'reader.inbox', 'catalog.video.events.catalog-reader');
SELECT postbox.inbox_apply('reader.inbox', 'e', 'a', 'video', NULL, 1, '{}', on_error => 'reject');
SELECT count(*) FROM postbox.dead_letter;
SELECT postbox.drop_inbox('reader.inbox');
SELECT to_regclass('reader.inbox'), to_regclass('reader.inbox_tombstone'), to_regclass('reader.video');
SELECT (SELECT count(*) FROM postbox.projection) AS projections, (SELECT count(*) FROM postbox.handler) AS handlers,
       (SELECT count(*) FROM postbox.subscription) AS subscriptions, (SELECT count(*) FROM postbox.dead_letter) AS dead_letters;
SELECT postbox.drop_inbox(NULL);
SELECT postbox.drop_inbox('reader.video');
SELECT postbox.drop_inbox('1');

-- so does plain DROP TABLE; and dropping a target ends its projections
SELECT postbox.create_inbox('reader.inbox') \g /dev/null
SELECT postbox.create_projection('reader.inbox', '{a}', 'reader.video');
DROP TABLE reader.video;
SELECT count(*) FROM postbox.projection;
SELECT postbox.inbox_apply('reader.inbox', 'e', 'a', 'video', 'v', 1, '{}');
DROP TABLE reader.inbox;
SELECT to_regclass('reader.inbox_tombstone');
SELECT * FROM pg_temp.registered();
SELECT postbox.inbox_apply('reader.inbox', 'e', 'a', 'video', 'v', 1, '{}');

-- an inbox that lost its tombstones says so
SELECT postbox.create_inbox('reader.inbox') \g /dev/null
DROP TABLE reader.inbox_tombstone;
SELECT postbox.inbox_apply('reader.inbox', 'e', 'a', 'video', 'v', 1, '{}');
SELECT postbox.drop_inbox('reader.inbox');

DROP SCHEMA reader CASCADE;
SELECT count(*) FROM postbox.inbox;
DROP ROLE regress_postbox_owner, regress_postbox_other;
