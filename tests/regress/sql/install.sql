-- The extension installs, says what it is, keeps its names to itself, and leaves without a trace.

SELECT n.nspname FROM pg_extension e JOIN pg_namespace n ON n.oid = e.extnamespace WHERE e.extname = 'postbox';

-- every object has a comment
SELECT pg_describe_object(d.classid, d.objid, 0)
FROM pg_depend d
WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
  AND d.refobjid = (SELECT oid FROM pg_extension WHERE extname = 'postbox')
  AND d.classid <> 'pg_rewrite'::regclass
  AND NOT (d.classid = 'pg_type'::regclass AND EXISTS (
        SELECT FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid
        WHERE t.oid = d.objid AND (t.typelem <> 0 OR c.relkind IN ('r', 'v', 'S'))))
  AND NOT (d.classid = 'pg_class'::regclass AND EXISTS (
        SELECT FROM pg_class c WHERE c.oid = d.objid AND c.relkind IN ('S', 'i', 't', 'c')))
  AND obj_description(d.objid, d.classid::regclass::text) IS NULL
ORDER BY 1;

-- everyone may read the configuration, and only functions write it
SELECT c.relname, has_table_privilege('public', c.oid, 'SELECT') AS readable,
       has_table_privilege('public', c.oid, 'INSERT, UPDATE, DELETE, TRUNCATE') AS writable
FROM pg_class c
WHERE c.relnamespace = 'postbox'::regnamespace AND c.relname IN ('outbox', 'publication', 'publication_state', 'lane') ORDER BY 1;

-- configuration goes into a dump
SELECT c.relname FROM pg_extension e CROSS JOIN unnest(e.extconfig) config JOIN pg_class c ON c.oid = config
WHERE e.extname = 'postbox' AND c.relname IN ('outbox', 'publication', 'publication_state', 'lane') ORDER BY 1;

-- no search_path changes what a function does: it is fixed, or the names were bound when the function was created
SELECT p.oid::regprocedure FROM pg_proc p JOIN pg_language l ON l.oid = p.prolang
WHERE p.pronamespace = 'postbox'::regnamespace AND l.lanname <> 'c' AND p.prosqlbody IS NULL
  AND NOT EXISTS (SELECT FROM unnest(p.proconfig) c WHERE c LIKE 'search_path=pg_catalog%') ORDER BY 1;

-- a lane's hash is inlined, whatever the search_path is
CREATE FUNCTION public.hashtextextended(text, bigint) RETURNS bigint LANGUAGE sql RETURN 1;
SET search_path = public, pg_catalog;
EXPLAIN (VERBOSE, COSTS off) SELECT postbox.lane_slice(n::text, 3) FROM pg_catalog.generate_series(1, 9) AS n;
SELECT slice, postbox.lane_slice(slice, 3) FROM unnest('{a,b,c,ä,NULL}'::text[]) AS slice;
RESET search_path;
DROP FUNCTION public.hashtextextended(text, bigint);

-- the schema and its settings are not for others
CREATE EXTENSION postbox SCHEMA public;
-- a setting that does not exist is refused; 14 lets sessions set what it does not know
DO $$ BEGIN
    SET postbox.no_such_setting = 1;
    ASSERT current_setting('server_version_num')::int < 150000, 'not refused';
EXCEPTION
    WHEN invalid_name THEN ASSERT SQLERRM = 'invalid configuration parameter name "postbox.no_such_setting"', SQLERRM;
END $$;

-- settings: good values, and bad ones
SET postbox.default_outbox = 'catalog.outbox';
SET postbox.default_outbox = '"Odd name".outbox';
SET postbox.default_outbox = 'a.b.c';
SET postbox.default_outbox = 'catalog.';
RESET postbox.default_outbox;
SET postbox.correlation_id = 'b4e6f8a9-2345-6789-bcde-f01234567890';
SELECT set_config('postbox.correlation_id', repeat('x', 1024), false) = repeat('x', 1024) AS taken;
DO $$ BEGIN
    PERFORM set_config('postbox.correlation_id', repeat('x', 1025), false);
EXCEPTION WHEN invalid_parameter_value THEN RAISE WARNING 'refused';
END $$;
RESET postbox.correlation_id;
SET postbox.project_id = 'shop-1';
SET postbox.project_id = 'no such/project';
RESET postbox.project_id;
SET postbox.publishers = 3;
ALTER SYSTEM SET postbox.publishers = 33;
ALTER SYSTEM SET postbox.publishers = 'many';
ALTER SYSTEM SET postbox.claim_batch_size = 0;
-- Versions of the server word it differently.
\set VERBOSITY sqlstate
ALTER SYSTEM SET postbox.poll_interval = '2min';
\set VERBOSITY default
ALTER SYSTEM SET postbox.endpoint = 'ftp://example.com';
ALTER SYSTEM SET postbox.endpoint = 'http://localhost';
ALTER SYSTEM SET postbox.failpoint = 'after_claim=explode';
SELECT name, setting, unit, context, min_val, max_val FROM pg_settings
WHERE name LIKE 'postbox.%' AND name NOT IN ('postbox.publishers') ORDER BY name COLLATE "C";

DROP EXTENSION postbox;
SELECT count(*) FROM pg_proc p JOIN pg_namespace n ON n.oid = p.pronamespace WHERE n.nspname = 'postbox';
SELECT evtname FROM pg_event_trigger WHERE evtname LIKE 'postbox%';
CREATE EXTENSION postbox;
SELECT count(*) FROM postbox.outbox;
