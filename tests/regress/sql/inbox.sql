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

-- purging: by retention, in batches, tombstones too
INSERT INTO reader.inbox (event_id, outcome, received_at)
    SELECT gen_random_uuid(), 'applied', now() - interval '4 days' FROM generate_series(1, 5);
INSERT INTO reader.inbox (event_id, outcome) SELECT gen_random_uuid(), 'applied' FROM generate_series(1, 3);
INSERT INTO reader.inbox_tombstone (target, key, version, deleted_at)
    SELECT 'reader.inbox', 'k' || n, 1, now() - make_interval(days => n) FROM generate_series(1, 6) n;
SELECT postbox.purge_inbox('reader.inbox', 2);
SELECT postbox.purge_inbox('reader.inbox', 4);
SELECT postbox.purge_inbox('reader.inbox');
SELECT postbox.purge_inbox('reader.inbox');
SELECT count(*) FROM reader.inbox;
SELECT key FROM reader.inbox_tombstone ORDER BY 1;
SELECT postbox.purge_inbox('reader.inbox', 0);
SELECT postbox.purge_inbox('reader.inbox', NULL);
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
