-- Who may do what on the side of the outbox.
SET postbox.project_id = 'shop-1';
CREATE ROLE regress_postbox_owner;
CREATE ROLE regress_postbox_app;
CREATE ROLE regress_postbox_other;
CREATE SCHEMA catalog;
GRANT USAGE ON SCHEMA catalog TO regress_postbox_owner, regress_postbox_app;

-- creating an outbox needs CREATE on the schema, and makes an owner
SET ROLE regress_postbox_owner;
SELECT postbox.create_outbox('catalog.outbox', 'table');
RESET ROLE;
GRANT CREATE ON SCHEMA catalog TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_outbox('catalog.outbox', 'table');
RESET ROLE;
SELECT relname, relowner::regrole FROM pg_class
WHERE oid IN ('catalog.outbox'::regclass, 'catalog.outbox_version'::regclass, pg_get_serial_sequence('catalog.outbox', 'seq')::regclass)
ORDER BY 1;

-- the configuration can be read by all and written by none
SET ROLE regress_postbox_app;
SELECT relation, kind FROM postbox.outbox;
INSERT INTO postbox.outbox (relation, kind, counter) VALUES ('pg_class', 'table', 'pg_class');
DELETE FROM postbox.outbox;
UPDATE postbox.publication SET topic = 'other';
DELETE FROM postbox.lane;
SELECT postbox.configuration_changed();
SELECT postbox.forget_dropped();

-- INSERT on the outbox is the permission to emit, and all that it takes
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'catalog.outbox');
RESET ROLE;
GRANT INSERT ON catalog.outbox TO regress_postbox_app;
SET ROLE regress_postbox_app;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}', outbox => 'catalog.outbox');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}', version => 7);
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}', source_event_id => 'evt_1');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}', source_event_id => 'evt_1');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}', version => 7);
SELECT count(*) FROM catalog.outbox;
UPDATE catalog.outbox SET published_at = now();
SELECT * FROM catalog.outbox_version;
INSERT INTO catalog.outbox_version VALUES ('video', 'v1', 1);
RESET ROLE;

-- not even USAGE on the schema, once the outbox is known; also when the session has to look at it again
REVOKE USAGE ON SCHEMA catalog FROM regress_postbox_app;
SET ROLE regress_postbox_app;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}');
RESET ROLE;
ANALYZE catalog.outbox;
SET ROLE regress_postbox_app;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}', outbox => 'catalog.outbox');
RESET ROLE;
GRANT USAGE ON SCHEMA catalog TO regress_postbox_app;

-- rights are looked at each time
REVOKE INSERT ON catalog.outbox FROM regress_postbox_app;
SET ROLE regress_postbox_app;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}');
RESET ROLE;
-- a function with the rights of its definer lends them
CREATE FUNCTION catalog.publish_video(id text) RETURNS bigint LANGUAGE sql SECURITY DEFINER
    AS $$ SELECT version FROM postbox.outbox_emit('video', id, 'video.published', '{}') $$;
SET ROLE regress_postbox_app;
SELECT catalog.publish_video('v1');
RESET ROLE;
-- rights on some columns do not do
GRANT INSERT (id, payload) ON catalog.outbox TO regress_postbox_app;
SET ROLE regress_postbox_app;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}');
RESET ROLE;
REVOKE INSERT (id, payload) ON catalog.outbox FROM regress_postbox_app;

-- row security of the outbox counts for emitters
GRANT INSERT ON catalog.outbox TO regress_postbox_app;
ALTER TABLE catalog.outbox ENABLE ROW LEVEL SECURITY;
CREATE POLICY own_types ON catalog.outbox FOR INSERT TO regress_postbox_app WITH CHECK (aggregate_type = 'video');
SET ROLE regress_postbox_app;
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.updated', '{}');
SELECT version FROM postbox.outbox_emit('account', 'u1', 'points.added', '{}');
RESET ROLE;
ALTER TABLE catalog.outbox DISABLE ROW LEVEL SECURITY;

-- triggers of the outbox run as the emitter with the search_path of the session, as for a plain INSERT; those of the counter
-- run as its owner, and a search_path does not change what they call
CREATE TABLE catalog.seen (who text, what text, path text);
GRANT INSERT ON catalog.seen TO PUBLIC;
CREATE FUNCTION catalog.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO catalog.seen VALUES (current_user, TG_TABLE_NAME, current_setting('search_path'));
    RETURN NEW;
END $$;
CREATE TRIGGER note AFTER INSERT ON catalog.outbox FOR EACH ROW EXECUTE FUNCTION catalog.note();
CREATE TRIGGER note AFTER INSERT OR UPDATE ON catalog.outbox_version FOR EACH ROW EXECUTE FUNCTION catalog.note();
SET ROLE regress_postbox_app;
SET search_path = public;
SELECT version FROM postbox.outbox_emit('video', 'v9', 'video.created', '{}');
SHOW search_path;
SELECT current_user;
RESET search_path;
RESET ROLE;
SELECT * FROM catalog.seen;
DROP TRIGGER note ON catalog.outbox;
DROP TRIGGER note ON catalog.outbox_version;

-- publishing takes ownership of the outbox and a grant, since it spends the server's credentials
SET ROLE regress_postbox_owner;
SELECT postbox.create_publication('videos', 'catalog.outbox', 'catalog.video.events');
RESET ROLE;
GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.alter_publication TO regress_postbox_owner, regress_postbox_other;
SET ROLE regress_postbox_other;
SELECT postbox.create_publication('videos', (SELECT relation FROM postbox.outbox), 'catalog.video.events');
RESET ROLE;
SET ROLE regress_postbox_owner;
SELECT postbox.create_publication('videos', 'catalog.outbox', 'catalog.video.events');
SELECT postbox.alter_publication('videos', max_attempts => 3);
RESET ROLE;
GRANT USAGE ON SCHEMA catalog TO regress_postbox_other;
SET ROLE regress_postbox_other;
SELECT postbox.alter_publication('videos', max_attempts => 4);
SELECT postbox.drop_publication('videos');
SELECT postbox.drop_outbox((SELECT relation FROM postbox.outbox));
SELECT postbox.redrive((SELECT relation FROM postbox.outbox));
SELECT postbox.discard((SELECT relation FROM postbox.outbox), '550e8400-e29b-41d4-a716-446655440000');
SELECT postbox.purge_outbox((SELECT relation FROM postbox.outbox));
-- the status without a look into the outbox
SELECT publication, state, pending FROM postbox.publication_status;
SELECT count(*) FROM postbox.paused_keys;
RESET ROLE;

-- the owner drops its own outboxes, in either way
SET ROLE regress_postbox_owner;
SELECT postbox.redrive('catalog.outbox'), postbox.purge_outbox('catalog.outbox');
SELECT postbox.drop_publication('videos');
SELECT postbox.create_outbox('catalog.second', 'table');
DROP TABLE catalog.second;
SELECT to_regclass('catalog.second_version');
SELECT postbox.drop_outbox('catalog.outbox');
RESET ROLE;
SELECT count(*) FROM postbox.outbox;

REVOKE EXECUTE ON FUNCTION postbox.create_publication, postbox.alter_publication FROM regress_postbox_owner, regress_postbox_other;
DROP SCHEMA catalog CASCADE;
DROP ROLE regress_postbox_owner, regress_postbox_app, regress_postbox_other;
