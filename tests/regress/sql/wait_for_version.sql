-- wait_for_version: what there is to see in one session. That it wakes is in tests/isolation.
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text, version bigint);
CREATE TABLE reader.stock (shop text, item int, version int, PRIMARY KEY (shop, item));
CREATE TABLE reader.account (id uuid PRIMARY KEY, version int);
SELECT postbox.create_projection('reader.inbox', '{video}', 'reader.video', delete_types => '{video.deleted}');
SELECT postbox.create_projection('reader.inbox', '{stock}', 'reader.stock', delete_types => '{stock.gone}');
SELECT postbox.create_projection('reader.inbox', '{account}', 'reader.account');
SELECT postbox.inbox_apply('reader.inbox', 'e1', 'video', 'video', 'v1', 3, '{"title": "t"}');

-- there already
SELECT postbox.wait_for_version('reader.video', 'v1', 3), postbox.wait_for_version('reader.video', 'v1', 2, '0');
-- not there: false after the timeout
SELECT postbox.wait_for_version('reader.video', 'v1', 4, '10ms'), postbox.wait_for_version('reader.video', 'v2', 1, '0');
-- deleted, and created again
SELECT postbox.inbox_apply('reader.inbox', 'e2', 'video.deleted', 'video', 'v1', 5, NULL);
SELECT postbox.wait_for_version('reader.video', 'v1', 5), postbox.wait_for_version('reader.video', 'v1', 6, '0');
SELECT postbox.inbox_apply('reader.inbox', 'e3', 'video', 'video', 'v1', 6, '{"title": "t"}');
SELECT postbox.wait_for_version('reader.video', 'v1', 6);
-- a key in another spelling; a key of several columns
SELECT postbox.inbox_apply('reader.inbox', 'e4', 'account', 'account', '550e8400-e29b-41d4-a716-446655440000', 1, '{}');
SELECT postbox.wait_for_version('reader.account', '{550E8400-E29B-41D4-A716-446655440000}', 1, '0');
SELECT postbox.inbox_apply('reader.inbox', 'e5', 'stock', 'stock', 's', 1, '{"shop": "no,rth", "item": 5}');
SELECT postbox.wait_for_version('reader.stock', '["no,rth", 5]', 1, '0'), postbox.wait_for_version('reader.stock', '["no,rth", 6]', 1, '0');
SELECT postbox.inbox_apply('reader.inbox', 'e6', 'stock.gone', 'stock', 's', 2, '{"shop": "no,rth", "item": 5}');
SELECT postbox.wait_for_version('reader.stock', '["no,rth", "5"]', 2, '0');

-- bad input
SELECT postbox.wait_for_version(NULL, 'v1', 1);
SELECT postbox.wait_for_version('reader.video', NULL, 1);
SELECT postbox.wait_for_version('reader.video', 'v1', NULL);
SELECT postbox.wait_for_version('reader.video', 'v1', 1, NULL);
SELECT postbox.wait_for_version('reader.video', 'v1', 1, '-1s');
SELECT postbox.wait_for_version('reader.account', 'no uuid', 1);
SELECT postbox.wait_for_version('reader.stock', 'north', 1);
SELECT postbox.wait_for_version('reader.stock', '["north"]', 1);
SELECT postbox.wait_for_version('reader.stock', '["north", null]', 1);
SELECT postbox.wait_for_version('reader.stock', '["north", "x"]', 1);
SELECT postbox.wait_for_version('reader.inbox', 'v1', 1);
SELECT postbox.wait_for_version('1', 'v1', 1);
SELECT postbox.wait_for_version('reader.no_such', 'v1', 1);

-- only where new commits can be seen
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postbox.wait_for_version('reader.video', 'v1', 1);
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT postbox.wait_for_version('reader.video', 'v1', 1);
ROLLBACK;

-- a cancelled query; and one that is cancelled inside a block that catches it
BEGIN;
SET LOCAL statement_timeout = '100ms';
SELECT postbox.wait_for_version('reader.video', 'v1', 100, '1 hour');
ROLLBACK;
BEGIN;
SET LOCAL statement_timeout = '100ms';
DO $$
BEGIN
    PERFORM postbox.wait_for_version('reader.video', 'v1', 100, '1 hour');
EXCEPTION WHEN query_canceled THEN
    RAISE WARNING 'caught: %', SQLERRM;
END $$;
ROLLBACK;
SELECT postbox.wait_for_version('reader.video', 'v1', 6, '1 hour');

-- SELECT on the target is enough, and needed
CREATE ROLE regress_postbox_reader;
GRANT USAGE ON SCHEMA reader TO regress_postbox_reader;
SET ROLE regress_postbox_reader;
SELECT postbox.wait_for_version('reader.video', 'v1', 1);
RESET ROLE;
GRANT SELECT ON reader.video TO regress_postbox_reader;
SET ROLE regress_postbox_reader;
SELECT postbox.wait_for_version('reader.video', 'v1', 6), postbox.wait_for_version('reader.video', 'v1', 7, '0');
RESET ROLE;
SELECT postbox.inbox_apply('reader.inbox', 'e7', 'video.deleted', 'video', 'v1', 7, NULL);
SET ROLE regress_postbox_reader;
SELECT postbox.wait_for_version('reader.video', 'v1', 7);
RESET ROLE;

-- under settings that change how queries run or are written
BEGIN READ ONLY;
SELECT postbox.wait_for_version('reader.video', 'v1', 7), postbox.wait_for_version('reader.stock', '["no,rth", 5]', 2);
COMMIT;
SET quote_all_identifiers = on;
SET standard_conforming_strings = off;
SET transform_null_equals = on;
SET row_security = off;
SET plan_cache_mode = force_generic_plan;
SET enable_indexscan = off;
SET enable_bitmapscan = off;
SET search_path = '';
SET IntervalStyle = 'sql_standard';
SELECT postbox.wait_for_version('reader.video', 'v1', 7, '0'), postbox.wait_for_version('reader.video', 'v1', 8, '1 ms'), postbox.wait_for_version('reader.stock', '["no,rth", 5]', 2, '0');
RESET ALL;
-- a time-out of the server ends it, and the session goes on
SET statement_timeout = '50ms';
SELECT postbox.wait_for_version('reader.video', 'v1', 1000, '1 min');
SET statement_timeout = 0;
SET default_transaction_isolation = 'repeatable read';
SELECT postbox.wait_for_version('reader.video', 'v1', 7);
SET default_transaction_isolation = 'serializable';
SELECT postbox.wait_for_version('reader.video', 'v1', 7);
RESET default_transaction_isolation;
SELECT postbox.wait_for_version('reader.video', 'v1', 7);

DROP SCHEMA reader CASCADE;
DROP ROLE regress_postbox_reader;
