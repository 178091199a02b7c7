-- What postbox audit asks of the databases, and who may ask. The command itself: tests/e2e/test_audit.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE ROLE regress_owner;
CREATE ROLE regress_reader;
CREATE ROLE regress_applier;
CREATE ROLE regress_stranger;
CREATE ROLE regress_operator IN ROLE postbox_operator;
CREATE ROLE regress_monitor IN ROLE pg_monitor;
CREATE SCHEMA shop AUTHORIZATION regress_owner;
GRANT USAGE ON SCHEMA shop TO regress_reader, regress_applier, regress_stranger;
GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.create_subscription TO regress_owner;
SET postbox.project_id = 'shop-1';
SET ROLE regress_owner;
SELECT postbox.create_outbox('shop.log'), postbox.create_outbox('shop.jobs', 'table'), postbox.create_inbox('shop.inbox');
SELECT postbox.create_publication('log', 'shop.log', 'shop.order.events'), postbox.create_publication('jobs', 'shop.jobs', 'shop.order.events');
CREATE TABLE shop.item (id text PRIMARY KEY, total numeric(10,2), name char(4), doc json, raw bytea, attributes jsonb, version int);
SELECT postbox.create_projection('shop.inbox', '{item.changed}', 'shop.item', delete_types => '{item.deleted}',
    columns => '{"total": "total", "name": "name", "doc": "doc", "raw": {"path": "raw", "as": "hex"}, "attributes": "$attributes"}');
SELECT postbox.create_subscription('items', 'shop.inbox', 'shop.order.events.items');
GRANT SELECT ON shop.log, shop.jobs, shop.inbox, shop.item TO regress_reader;
GRANT INSERT ON shop.inbox TO regress_applier;

-- an event of each state
SELECT count(postbox.outbox_emit('item', 'i' || n, 'item.changed', '{}', event_id => ('00000000-0000-4000-8000-00000000000' || n)::uuid, outbox => 'shop.' || o)) FROM generate_series(1, 4) n, unnest('{log,jobs}'::text[]) o;
UPDATE shop.jobs SET published_at = '2026-01-01 00:00+00' WHERE aggregate_id = 'i1';
UPDATE shop.jobs SET published_at = '-infinity' WHERE aggregate_id = 'i2';
UPDATE shop.jobs SET next_retry_at = 'infinity', publish_attempts = 5 WHERE aggregate_id = 'i3';
INSERT INTO shop.log_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, next_retry_at)
    SELECT 'log', seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, 'infinity' FROM shop.log WHERE aggregate_id = 'i3';
RESET ROLE;
UPDATE postbox.lane SET system_identifier = c.system_identifier, floor = 2, hwm = 3, snapshot = s.now, next_xid = pg_snapshot_xmin(s.now),
    zone_upto = '{3}', zone_snapshot = ARRAY[s.now], zone_next_xid = ARRAY[pg_snapshot_xmin(s.now)]
    FROM pg_control_system() c, pg_current_snapshot() s(now) WHERE publication = 'log';
SET ROLE regress_reader;
SELECT id, aggregate_id, version, bytes, payload, state FROM postbox.audit_emitted('log', postbox.cluster_origin(), 0, NULL, 1000, 3);
SELECT id, payload, place, state FROM postbox.audit_emitted('jobs', 0, 0, '00000000-0000-0000-0000-000000000000', 9000000000000000, 10);
SELECT id, convert_from(payload, 'UTF8'), state FROM postbox.audit_events('jobs', ARRAY(SELECT ('00000000-0000-4000-8000-00000000000' || n)::uuid FROM generate_series(0, 4) n), true);
SELECT id, payload, state FROM postbox.audit_events('log', ARRAY(SELECT ('00000000-0000-4000-8000-00000000000' || n)::uuid FROM generate_series(0, 4) n), false);
SELECT publication, kind, settled > 0, upto > 0, retained_from <= now_micros, cardinality(origins), aggregate_types FROM postbox.audit_source();
SELECT count(*) FROM postbox.audit_source('jobs');

-- a transaction that is open: no event up to a seq that it may have taken is settled
RESET ROLE;
SELECT settled FROM postbox.audit_source('log');
UPDATE postbox.lane SET next_xid = x.later, zone_next_xid = ARRAY[x.later]
    FROM (SELECT (pg_snapshot_xmax(pg_current_snapshot())::text::bigint + 1000)::text::xid8) x(later) WHERE publication = 'log';
SELECT settled FROM postbox.audit_source('log');

-- versions that several events have
SET ROLE regress_owner;
INSERT INTO shop.log (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES ('00000000-0000-4000-8000-000000000099', 'item', 'i1', 'item.changed', 1, '');
SET ROLE regress_reader;
SELECT * FROM postbox.audit_repeated_versions('log', 10);
SELECT * FROM postbox.audit_repeated_versions('jobs', 10);

-- the last versions of keys, of some types
SELECT * FROM postbox.audit_last_versions('log', '{item.changed}', '{item,item,none}', '{i1,none,i1}');
SELECT * FROM postbox.audit_last_versions('jobs', '{item.deleted}', '{item}', '{i1}');

-- the inbox
RESET ROLE;
SELECT postbox.inbox_apply('shop.inbox', '00000000-0000-4000-8000-000000000001', 'item.changed', 'item', 'i1', 1, '{"total": 7, "name": "ab", "doc": {"b": 1, "a": 2}, "raw": "00ff"}', '{"x": "y"}');
SELECT postbox.inbox_apply('shop.inbox', '00000000-0000-4000-8000-000000000002', 'item.changed', 'item', 'i2', 1, '{"total": "much"}', on_error => 'reject');
SELECT postbox.inbox_apply('shop.inbox', '00000000-0000-4000-8000-000000000003', 'item.changed', 'item', 'i3', 1, '{"total": "much"}', on_error => 'reject');
SELECT postbox.discard_dead_letters('shop.inbox', aggregate_id => 'i3');
SET ROLE regress_reader;
SELECT event_id, aggregate_id, version, outcome FROM postbox.audit_received('shop.inbox', ARRAY(SELECT ('00000000-0000-4000-8000-00000000000' || n)::uuid FROM generate_series(0, 4) n));
SELECT event_id, outcome FROM postbox.audit_arrivals('shop.inbox', 0, '00000000-0000-0000-0000-000000000000', 9000000000000000, 2);
SELECT subscription, inbox::regclass, retention_micros, shared_with, puller, targets FROM postbox.audit_reader();

-- rows: what the event has is compared in the form in which the projection writes it
SET ROLE regress_owner;
CREATE FUNCTION shop.compare(version bigint, payload text, type text DEFAULT 'item.changed', key text DEFAULT 'i1') RETURNS SETOF text LANGUAGE sql AS
    $$ SELECT format('%s %s %s', c.problem, c.stored_version, c.columns) FROM postbox.audit_rows('shop.inbox', ARRAY[ROW('e', type, 'item', key, version, convert_to(payload, 'UTF8'), '{}', NULL)::postbox.event]) c $$;
SELECT shop.compare(1, '{"total": 7, "name": "ab", "doc": {"b": 1, "a": 2}, "raw": "00ff"}');
SELECT shop.compare(1, '{"total": 7.001, "doc": {"a": 2, "b": 1}, "raw": "\\x00FF"}');
SELECT shop.compare(1, '{"total": 8, "name": null}');
SELECT shop.compare(1, '{}');
SELECT shop.compare(2, '{"total": 7}'), shop.compare(2, '{"total": 7}', key => 'none');
SELECT shop.compare(1, '{"total": "much"}');
SELECT shop.compare(NULL, '{}');
SELECT shop.compare(1, '{}', 'item.deleted'), shop.compare(1, '{}', 'item.deleted', 'none'), shop.compare(1, '{}', 'item.seen');
UPDATE shop.item SET version = 9;
SELECT shop.compare(1, '{"total": 8}'), shop.compare(1, '{}', 'item.deleted');
UPDATE shop.item SET version = NULL;
SELECT shop.compare(1, '{"total": 8}');
UPDATE shop.item SET version = 1;

-- a trigger may change what is written
CREATE FUNCTION shop.rounds() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN NEW.total := round(NEW.total); RETURN NEW; END $$;
CREATE TRIGGER rounds BEFORE INSERT OR UPDATE ON shop.item FOR EACH ROW EXECUTE FUNCTION shop.rounds();
SELECT shop.compare(1, '{"total": 8}');
DROP TRIGGER rounds ON shop.item;

-- nothing is written, in a read-only transaction either, and no field is counted as missing
BEGIN READ ONLY;
SELECT count(*) FROM generate_series(1, 200) n, LATERAL shop.compare(1, '{}');
COMMIT;
SELECT count(*) FROM postbox.missing_field;

-- a broken projection
ALTER TABLE shop.item RENAME COLUMN name TO label;
SELECT shop.compare(1, '{"total": 7}');
ALTER TABLE shop.item RENAME COLUMN label TO name;

-- who may ask
SET ROLE regress_stranger;
SELECT postbox.audit_emitted('log', 0, 0, NULL, 1, 1);
SELECT postbox.audit_events('jobs', '{}', true);
SELECT postbox.audit_repeated_versions('jobs', 1);
SELECT postbox.audit_last_versions('jobs', '{}', '{}', '{}');
SELECT postbox.audit_received('shop.inbox', '{}');
SELECT postbox.audit_arrivals('shop.inbox', 0, NULL, 0, 1);
SET ROLE regress_reader;
SELECT postbox.audit_rows('shop.inbox', '{}');
SELECT postbox.audit_emit_again('log', '00000000-0000-4000-8000-000000000004');
SELECT postbox.record_audit('items', 'shop', 'clean');
SET ROLE regress_applier;
SELECT postbox.audit_received('shop.inbox', '{}');
SELECT postbox.audit_rows('shop.inbox', '{}');
SELECT postbox.record_audit('items', 'shop', 'clean');
SET ROLE regress_monitor;
SELECT postbox.audit_emitted('log', 0, 0, NULL, 1, 1);
SET ROLE regress_operator;
SELECT count(*) FROM postbox.audit_emitted('log', postbox.cluster_origin(), 0, NULL, 1000, 10);
SELECT count(*) FROM postbox.inbox i, postbox.audit_rows(i.relation, '{}');

-- row security hides rows: what is hidden would be taken for missing
SET ROLE regress_owner;
ALTER TABLE shop.inbox ENABLE ROW LEVEL SECURITY;
SET ROLE regress_reader;
SELECT postbox.audit_received('shop.inbox', '{}');
SET ROLE regress_owner;
ALTER TABLE shop.inbox DISABLE ROW LEVEL SECURITY;

-- the owner of an outbox gets no more rights: what reading the table runs, runs as the owner
CREATE FUNCTION shop.steal(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'runs as %', current_user; RETURN $1; END $$;
CREATE POLICY steal ON shop.jobs USING (shop.steal(aggregate_id) IS NOT NULL);
ALTER TABLE shop.jobs ENABLE ROW LEVEL SECURITY;
ALTER TABLE shop.jobs FORCE ROW LEVEL SECURITY;
RESET ROLE;
SELECT id FROM postbox.audit_events('jobs', '{00000000-0000-4000-8000-000000000001}', false);
SET ROLE regress_owner;
ALTER TABLE shop.jobs DISABLE ROW LEVEL SECURITY;

-- the last event of a key again
SELECT postbox.audit_emit_again('log', '00000000-0000-4000-8000-000000000004');
SELECT aggregate_id, event_type, version, convert_from(payload, 'UTF8') FROM shop.log WHERE aggregate_id = 'i4' ORDER BY seq;
SELECT postbox.audit_emit_again('log', '00000000-0000-4000-8000-000000000004');
SELECT postbox.audit_emit_again('log', '00000000-0000-4000-8000-000000000000');
SELECT postbox.audit_emit_again('jobs', '00000000-0000-4000-8000-000000000004');
SELECT postbox.outbox_emit('given', 'i1', 'item.changed', '{}', version => 5, event_id => '00000000-0000-4000-8000-00000000000a', outbox => 'shop.log');
SELECT postbox.audit_emit_again('log', '00000000-0000-4000-8000-00000000000a');
SELECT postbox.audit_emit_again('none', '00000000-0000-4000-8000-00000000000a');

-- results
SELECT postbox.record_audit('items', 'shop/orders', 'differences', '2026-01-01 00:00+00', '{"missing": 2}', 'missing: item i1');
SELECT postbox.record_audit(subscription => 'items', source => 'shop/orders', status => 'incomplete', findings => '{}', detail => 'no right');
SELECT subscription, source, status, watermark, findings, detail FROM postbox.audit;
SELECT d.check, d.status, d.subject, regexp_replace(d.detail, ' at .*: incomplete', ' at TIME: incomplete') AS detail FROM postbox.doctor() d WHERE d.check = 'audits';
SELECT postbox.record_audit('items', 'shop/orders', 'clean', 'now');
SELECT d.check, d.status FROM postbox.doctor() d WHERE d.check = 'audits';
SELECT postbox.record_audit('none', 'shop/orders', 'clean');
SELECT postbox.record_audit('items', 'shop/orders', 'fine');
SELECT postbox.record_audit('items', 'shop/orders', 'clean', findings => '[]');
SELECT postbox.record_audit(NULL, 'shop/orders', 'clean');
SELECT postbox.record_audit('items', 'shop/orders', 'clean', findings => NULL);
SET ROLE regress_stranger;
SELECT count(*) FROM postbox.audit;
SET ROLE regress_monitor;
SELECT count(*) FROM postbox.audit;
SET ROLE regress_owner;
SELECT postbox.drop_subscription('items');
RESET ROLE;
SELECT count(*) FROM postbox.audit;

SET ROLE regress_owner;
SELECT postbox.drop_inbox('shop.inbox'), postbox.drop_outbox('shop.log'), postbox.drop_outbox('shop.jobs');
RESET ROLE;
DROP SCHEMA shop CASCADE;
REVOKE EXECUTE ON FUNCTION postbox.create_publication, postbox.create_subscription FROM regress_owner;
DROP ROLE regress_owner, regress_reader, regress_applier, regress_stranger, regress_operator, regress_monitor;
