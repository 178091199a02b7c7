-- Everything that the catalog says about the extension postbox, one property a row: [kind, object, property]. No row has an
-- OID, so two databases give the same rows if and only if the extension is the same in both.
--
-- Left out on purpose: statistics, storage (pages, file nodes, TOAST tables) and dropped columns. The order of the other
-- columns is compared: ALTER TABLE adds columns at the end, so a new column must be the last one in sql/install, too.
-- Members, rights, dumped tables and dependencies have no order. pg_attver is a stamp that some builds of the server
-- write into the options of columns; it differs between any two tables.
--
-- A member of a catalog that this query does not describe gives a row of kind "undescribed": describe it here.
WITH extension AS (
    SELECT * FROM pg_extension WHERE extname = 'postbox'
), member AS (
    SELECT d.classid, d.objid, pg_describe_object(d.classid, d.objid, 0) AS name
    FROM pg_depend d, extension e
    WHERE d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid AND d.deptype = 'e'
), relation AS (
    SELECT c.*, c.oid::regclass::text AS name FROM pg_class c WHERE c.relnamespace = 'postbox'::regnamespace
), type AS (
    SELECT t.*, t.oid::regtype::text AS name FROM pg_type t WHERE t.typnamespace = 'postbox'::regnamespace
), function AS (
    SELECT p.*, p.oid::regprocedure::text AS name FROM pg_proc p WHERE p.pronamespace = 'postbox'::regnamespace
), event_trigger AS (
    SELECT t.* FROM pg_event_trigger t JOIN member m ON m.classid = 'pg_event_trigger'::regclass AND m.objid = t.oid
), object AS (  -- all that may have a comment, rights of its own or dependencies
    SELECT 'pg_namespace'::regclass AS classid, extnamespace AS objid FROM extension
    UNION SELECT 'pg_extension'::regclass, oid FROM extension
    UNION SELECT classid, objid FROM member
    UNION SELECT 'pg_class'::regclass, oid FROM relation
    UNION SELECT 'pg_type'::regclass, oid FROM type
    UNION SELECT 'pg_proc'::regclass, oid FROM function
    UNION SELECT 'pg_constraint'::regclass, oid FROM pg_constraint WHERE connamespace = 'postbox'::regnamespace
    UNION SELECT 'pg_attrdef'::regclass, d.oid FROM pg_attrdef d JOIN relation r ON r.oid = d.adrelid
    UNION SELECT 'pg_trigger'::regclass, t.oid FROM pg_trigger t JOIN relation r ON r.oid = t.tgrelid
    UNION SELECT 'pg_rewrite'::regclass, w.oid FROM pg_rewrite w JOIN relation r ON r.oid = w.ev_class
    UNION SELECT 'pg_policy'::regclass, p.oid FROM pg_policy p JOIN relation r ON r.oid = p.polrelid
)
SELECT jsonb_build_array(kind, name, property) FROM (
    SELECT 'extension' AS kind, e.extname::text AS name,
           concat_ws(' ', e.extversion, e.extnamespace::regnamespace, e.extowner::regrole, e.extrelocatable) AS property
    FROM extension e
    UNION ALL
    SELECT 'dumped configuration', config::regclass::text, condition
    FROM extension e, unnest(e.extconfig, e.extcondition) AS c(config, condition)
    UNION ALL
    SELECT 'member', name, NULL FROM member
    UNION ALL
    SELECT 'undescribed', name, NULL FROM member
    WHERE classid NOT IN ('pg_class'::regclass, 'pg_type'::regclass, 'pg_proc'::regclass, 'pg_rewrite'::regclass,
                          'pg_event_trigger'::regclass, 'pg_policy'::regclass, 'pg_trigger'::regclass,
                          'pg_constraint'::regclass)
    UNION ALL
    SELECT 'schema', nspname::text, nspowner::regrole::text FROM pg_namespace, extension WHERE pg_namespace.oid = extnamespace
    UNION ALL
    SELECT 'relation', name, concat_ws(' ', relkind, relpersistence, relowner::regrole, relam::regclass, relreplident,
           'row security', relrowsecurity, relforcerowsecurity, 'partition', relispartition, 'tablespace', reltablespace,
           'of', reloftype::regtype, reloptions)
    FROM relation
    UNION ALL
    SELECT 'column', r.name || '.' || a.attname, concat_ws(' ',
           row_number() OVER (PARTITION BY a.attrelid ORDER BY a.attnum), format_type(a.atttypid, a.atttypmod),
           'collation', a.attcollation::regcollation, 'not null', a.attnotnull, 'default', pg_get_expr(d.adbin, d.adrelid),
           'identity', a.attidentity, 'generated', a.attgenerated, 'storage', a.attstorage, 'compression', a.attcompression,
           'statistics', a.attstattarget, 'options',
           ARRAY(SELECT option FROM unnest(a.attoptions) AS option WHERE option !~ '^pg_attver=' ORDER BY 1), 'inherited', a.attinhcount)
    FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid AND a.attnum > 0 AND NOT a.attisdropped
         LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
    UNION ALL
    SELECT 'column rights', r.name || '.' || a.attname, g.acl::text
    FROM relation r JOIN pg_attribute a ON a.attrelid = r.oid, unnest(a.attacl) AS g(acl)
    UNION ALL
    SELECT 'sequence', r.name, concat_ws(' ', s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmin, s.seqmax, s.seqcache, s.seqcycle)
    FROM relation r JOIN pg_sequence s ON s.seqrelid = r.oid
    UNION ALL
    SELECT 'index', r.name, concat_ws(' ', pg_get_indexdef(i.indexrelid), 'primary', i.indisprimary, 'valid', i.indisvalid,
           'ready', i.indisready, 'clustered', i.indisclustered, 'identity', i.indisreplident)
    FROM relation r JOIN pg_index i ON i.indexrelid = r.oid
    UNION ALL
    SELECT 'view', name, pg_get_viewdef(oid) FROM relation WHERE relkind IN ('v', 'm')
    UNION ALL
    SELECT 'rule', r.name || ' ' || w.rulename, concat_ws(' ', w.ev_enabled, pg_get_ruledef(w.oid))
    FROM relation r JOIN pg_rewrite w ON w.ev_class = r.oid
    UNION ALL
    SELECT 'constraint', concat_ws(' ', coalesce(nullif(conrelid, 0)::regclass::text, contypid::regtype::text), conname),
           concat_ws(' ', pg_get_constraintdef(oid), 'validated', convalidated, 'no inherit', connoinherit)
    FROM pg_constraint WHERE connamespace = 'postbox'::regnamespace
    UNION ALL
    SELECT 'trigger', r.name || ' ' || t.tgname, concat_ws(' ', t.tgenabled, pg_get_triggerdef(t.oid))
    FROM relation r JOIN pg_trigger t ON t.tgrelid = r.oid WHERE NOT t.tgisinternal
    UNION ALL
    SELECT 'policy', r.name || ' ' || p.polname, concat_ws(' ', p.polcmd, p.polpermissive,
           ARRAY(SELECT CASE role WHEN 0 THEN 'public' ELSE role::regrole::text END FROM unnest(p.polroles) AS role ORDER BY 1),
           'using', pg_get_expr(p.polqual, p.polrelid), 'check', pg_get_expr(p.polwithcheck, p.polrelid))
    FROM relation r JOIN pg_policy p ON p.polrelid = r.oid
    UNION ALL
    SELECT 'type', name, concat_ws(' ', typtype, typcategory, typowner::regrole, typnotnull, typdefault,
           'base', typbasetype::regtype, 'collation', typcollation::regcollation,
           ARRAY(SELECT enumlabel FROM pg_enum WHERE enumtypid = type.oid ORDER BY enumsortorder))
    FROM type
    UNION ALL
    -- The definition says language, arguments, defaults, volatility, rights, settings and body.
    SELECT 'function', name, concat_ws(' ', proowner::regrole, prokind, CASE WHEN prokind <> 'a' THEN pg_get_functiondef(oid) END)
    FROM function
    UNION ALL
    SELECT 'event trigger', evtname::text, concat_ws(' ', evtevent, evtenabled, evtowner::regrole, evtfoid::regprocedure, evttags)
    FROM event_trigger
    UNION ALL
    SELECT 'comment', pg_describe_object(d.classoid, d.objoid, d.objsubid), d.description
    FROM pg_description d JOIN object o ON o.classid = d.classoid AND o.objid = d.objoid
    UNION ALL
    SELECT 'right', owned.name, g.acl::text
    FROM (SELECT 'schema ' || nspname AS name, coalesce(nspacl, acldefault('n', nspowner)) AS acl
          FROM pg_namespace, extension WHERE pg_namespace.oid = extnamespace
          UNION ALL SELECT 'relation ' || name, coalesce(relacl, acldefault(CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner)) FROM relation
          UNION ALL SELECT 'type ' || name, coalesce(typacl, acldefault('T', typowner)) FROM type
          UNION ALL SELECT 'function ' || name, coalesce(proacl, acldefault('f', proowner)) FROM function) AS owned,
         unnest(owned.acl) AS g(acl)
    UNION ALL
    -- What a dump takes for granted; rights that differ from it are dumped.
    SELECT 'initial right', pg_describe_object(p.classoid, p.objoid, p.objsubid), concat_ws(' ', p.privtype, g.acl)
    FROM pg_init_privs p JOIN object o ON o.classid = p.classoid AND o.objid = p.objoid, unnest(p.initprivs) AS g(acl)
    UNION ALL
    SELECT 'dependency', pg_describe_object(d.classid, d.objid, d.objsubid),
           concat_ws(' ', d.deptype, pg_describe_object(d.refclassid, d.refobjid, d.refobjsubid))
    FROM pg_depend d JOIN object o ON o.classid = d.classid AND o.objid = d.objid
) AS catalog
-- Names of toast tables and of the triggers of a foreign key hold OIDs.
WHERE concat(name, property) !~ 'pg_toast|RI_ConstraintTrigger'
ORDER BY kind COLLATE "C", name COLLATE "C", property COLLATE "C"
