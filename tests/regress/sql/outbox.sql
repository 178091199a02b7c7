-- Making, dropping and purging outboxes.
CREATE SCHEMA catalog;
CREATE FUNCTION pg_temp.registered() RETURNS TABLE (relation text, kind text, counter text, retention interval)
    LANGUAGE sql AS $$ SELECT relation::text, kind, counter::text, retention FROM postbox.outbox ORDER BY 1 $$;

-- a name in the current schema, a qualified name, a name that needs quotes
SET search_path = catalog, public;
SELECT postbox.create_outbox('events', 'table');
RESET search_path;
SELECT postbox.create_outbox('catalog.outbox', 'table', '3 days');
SELECT postbox.create_outbox('catalog."Odd ""name"""', 'table', retention => NULL);
SELECT * FROM pg_temp.registered();
\d catalog.outbox
\d catalog.outbox_version
SELECT obj_description('catalog.outbox'::regclass, 'pg_class');

-- bad input
SELECT postbox.create_outbox(NULL);
SELECT postbox.create_outbox('');
SELECT postbox.create_outbox('a.b.c.d');
SELECT postbox.create_outbox('catalog.outbox', 'table');
SELECT postbox.create_outbox('no_such_schema.outbox', 'table');
SELECT postbox.create_outbox('pg_temp.outbox', 'table');
SELECT postbox.create_outbox('catalog.' || repeat('x', 51));
SELECT postbox.create_outbox('catalog.' || repeat('x', 50)) IS NOT NULL AS longest_name;
SELECT postbox.create_outbox('catalog.other', 'queue');
SELECT postbox.create_outbox('catalog.other', NULL);
SELECT postbox.create_outbox('catalog.other', retention => '0');
SELECT postbox.create_outbox('catalog.other', retention => '-1 day');
SELECT to_regclass('catalog.other');

-- a failed creation leaves nothing, a rolled-back one neither
BEGIN;
SELECT postbox.create_outbox('catalog.other', 'table');
ROLLBACK;
SELECT count(*) FROM pg_temp.registered() WHERE relation = 'catalog.other';
BEGIN;
SAVEPOINT one;
SELECT postbox.create_outbox('catalog.other', 'table');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'catalog.other');
ROLLBACK TO one;
SELECT postbox.create_outbox('catalog.other', 'table');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'catalog.other');
ROLLBACK;
SELECT postbox.create_outbox('catalog.other', 'table');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'catalog.other');
SELECT postbox.drop_outbox('catalog.other');

-- dropping: with the function, or as any table
SELECT postbox.drop_outbox('catalog.events');
SELECT to_regclass('catalog.events'), to_regclass('catalog.events_version');
DROP TABLE catalog."Odd ""name""";
SELECT to_regclass('catalog."Odd ""name""_version"');
SELECT postbox.drop_outbox(('catalog.' || repeat('x', 50))::regclass);
SELECT * FROM pg_temp.registered();
SELECT postbox.drop_outbox(NULL);
SELECT postbox.drop_outbox('pg_class');
SELECT postbox.drop_outbox(4294967295::oid::regclass);
BEGIN;
DROP SCHEMA catalog CASCADE;
SELECT * FROM pg_temp.registered();
ROLLBACK;
SELECT * FROM pg_temp.registered();

-- it goes on working when it is renamed and moved, also in a session that has used it
SET postbox.default_outbox = 'catalog.outbox';
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}');
ALTER TABLE catalog.outbox RENAME TO sent;
ALTER SCHEMA catalog RENAME TO moved;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}', outbox => 'moved.sent');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}');
SET postbox.default_outbox = '';
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}');
ALTER TABLE moved.outbox_version RENAME TO counter;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}');
ALTER SCHEMA moved RENAME TO catalog;
ALTER TABLE catalog.sent RENAME TO outbox;
SELECT version, event_type, seq FROM catalog.outbox ORDER BY seq;

-- purging: published events older than the retention, discarded ones too, nothing else
UPDATE catalog.outbox SET published_at = now() - interval '4 days' WHERE version IN (1, 2);
UPDATE catalog.outbox SET published_at = now() - interval '2 days' WHERE version = 3;
UPDATE catalog.outbox SET published_at = '-infinity' WHERE version = 4;
INSERT INTO catalog.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, published_at, occurred_at)
VALUES ('00000000-0000-4000-8000-000000000009', 'video', 'v1', 'video.updated', 9, '', '-infinity', now() - interval '5 days');
SELECT postbox.purge_outbox('catalog.outbox', 1);
SELECT postbox.purge_outbox('catalog.outbox');
SELECT postbox.purge_outbox('catalog.outbox');
SELECT version FROM catalog.outbox ORDER BY seq;
SELECT postbox.purge_outbox('catalog.outbox', 0);
SELECT postbox.purge_outbox('catalog.outbox', NULL);
SELECT postbox.purge_outbox('pg_class');
SELECT postbox.purge_outbox(NULL);
SELECT postbox.purge_outbox(4294967295::oid::regclass);

-- what concerns rows of other clusters is for a log
SELECT postbox.settle_foreign_events('catalog.outbox');
SELECT postbox.resolve_unknown_origin('catalog.outbox', true);

-- an outbox without its counter says so
DROP TABLE catalog.counter;
SELECT postbox.outbox_emit('video', 'v1', 'video.updated', '{}', outbox => 'catalog.outbox');
DROP TABLE catalog.outbox;

DROP SCHEMA catalog CASCADE;
SELECT * FROM pg_temp.registered();
