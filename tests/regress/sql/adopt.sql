-- Making outboxes of tables that exist already.
CREATE SCHEMA shop;
CREATE FUNCTION pg_temp.id(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT ('00000000-0000-4000-8000-' || lpad(n::text, 12, '0'))::uuid $$;

-- a table of columns with the standard names; the rows are not in the order in which they occurred
CREATE TABLE shop.app_outbox (
  id               uuid PRIMARY KEY,
  aggregate_type   text        NOT NULL,
  aggregate_id     text        NOT NULL,
  event_type       text        NOT NULL,
  version          bigint      NOT NULL,
  schema_version   int         NOT NULL DEFAULT 1,
  payload          bytea       NOT NULL,
  occurred_at      timestamptz NOT NULL DEFAULT now(),
  published_at     timestamptz,
  publish_attempts int         NOT NULL DEFAULT 0,
  next_retry_at    timestamptz,
  lock_token       text,
  locked_at        timestamptz
);
INSERT INTO shop.app_outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at, published_at, lock_token) VALUES
  (pg_temp.id(5), 'video', 'a', 'video.changed', 4, 'five', '2025-01-05', NULL, NULL),
  (pg_temp.id(4), 'video', 'a', 'video.changed', 3, 'four', '2025-01-02', NULL, NULL),
  (pg_temp.id(1), 'video', 'a', 'video.created', 1, 'one', '2025-01-01', '2025-01-01', NULL),
  (pg_temp.id(3), 'video', 'a', 'video.changed', 2, 'three', '2025-01-04', NULL, 'publisher-1'),
  (pg_temp.id(2), 'video', 'b', 'video.created', 7, 'two', '2025-01-03', NULL, NULL);
SELECT postbox.adopt_outbox('shop.app_outbox');
SELECT relation, kind, counter, retention, adopted, columns FROM postbox.outbox;
\d shop.app_outbox
-- by time, those of an aggregate in the order of their versions; a lease without a time gets one
SELECT seq, right(id::text, 1) AS id, version, published_at IS NOT NULL AS published, lock_token, locked_at IS NOT NULL AS timed
FROM shop.app_outbox ORDER BY seq;
SELECT * FROM shop.app_outbox_version ORDER BY 2;
-- the application goes on, and so may outbox_emit
INSERT INTO shop.app_outbox (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (pg_temp.id(6), 'video', 'c', 'video.created', 1, 'six');
SELECT aggregate_id, version FROM postbox.outbox_emit('video', 'b', 'video.changed', '{"a": 1}', attributes => '{"tenant": "t1"}');
SELECT version FROM postbox.outbox_emit('video', 'b', 'video.changed', '{}', version => 8);
SELECT version FROM postbox.outbox_emit('video', 'b', 'video.changed', '{}', version => 11, schema_version => 'v2', event_id => pg_temp.id(7));
SELECT version FROM postbox.outbox_emit('video', 'b', 'video.changed', '{}', event_id => pg_temp.id(7));
SELECT version FROM postbox.outbox_emit('video', 'b', 'video.changed', '{}', schema_version => 'beta');
SELECT seq, aggregate_id, version, schema_version, encode(payload, 'escape') AS payload, attributes FROM shop.app_outbox WHERE seq > 5 ORDER BY seq;

-- the shape of Debezium's outbox event router: other names, JSON, no version, no time; names that need quotes
CREATE TABLE shop."Outbox events" (
  id            uuid         NOT NULL PRIMARY KEY,
  aggregatetype varchar(255) NOT NULL,
  aggregateid   varchar(255) NOT NULL,
  type          varchar(255) NOT NULL,
  payload       jsonb
);
INSERT INTO shop."Outbox events" VALUES (pg_temp.id(1), 'order', 'o1', 'OrderCreated', '{"total": 10}'), (pg_temp.id(2), 'order', 'o1', 'OrderPaid', NULL);
SELECT postbox.adopt_outbox('shop."Outbox events"', retention => '3 days');
SELECT relation, retention, columns FROM postbox.outbox WHERE relation = 'shop."Outbox events"'::regclass;
\d shop."Outbox events"
SET postbox.default_outbox = 'shop."Outbox events"';
SELECT version FROM postbox.outbox_emit('order', 'o1', 'OrderSent', '{"to": "x"}', event_id => pg_temp.id(3), occurred_at => '2025-01-01 12:00+00');
INSERT INTO shop."Outbox events" VALUES (pg_temp.id(4), 'order', 'o1', 'OrderClosed', '{}');
SELECT version FROM postbox.outbox_emit('order', 'o1', 'OrderSent', '{}', source_event_id => 'evt_1');
SELECT version FROM postbox.outbox_emit('order', 'o1', 'OrderSent', '{}', source_event_id => 'evt_1');
SELECT version FROM postbox.outbox_emit('order', 'o1', 'OrderSent', '{}', version => 9);
SELECT version FROM postbox.outbox_emit('order', 'o1', 'OrderSent', '\x00ff'::bytea);
SELECT version FROM postbox.outbox_emit('order', 'o1', 'OrderSent', '{}', event_id => pg_temp.id(1));
SELECT version FROM postbox.outbox_emit('order', repeat('x', 300), 'OrderSent', '{}');
SELECT seq, aggregateid, type, payload, schema_version FROM shop."Outbox events" ORDER BY seq;
SELECT * FROM shop."Outbox events_version";
RESET postbox.default_outbox;

-- names of its own, a key that is no text, a time without zone, JSON as text
CREATE TABLE shop.changes (
  number     bigserial PRIMARY KEY,
  event_id   uuid NOT NULL UNIQUE,
  entity     text NOT NULL,
  entity_id  uuid NOT NULL,
  "Kind"     text NOT NULL,
  revision   int NOT NULL,
  body       text,
  headers    json,
  created_at timestamp,
  lock_token text
);
SELECT postbox.adopt_outbox('shop.changes', '{"aggregate_type": "entity", "aggregate_id": "entity_id", "event_type": "Kind", "version": "revision",
  "payload": "body", "attributes": "headers"}');
SELECT columns FROM postbox.outbox WHERE relation = 'shop.changes'::regclass;
\d shop.changes
SELECT version FROM postbox.outbox_emit('user', pg_temp.id(9)::text, 'user.created', '{"n": 1}', event_id => pg_temp.id(1), schema_version => 'v3',
  attributes => '{"tenant": "t1"}', occurred_at => '2025-01-01 12:00+02', outbox => 'shop.changes');
SELECT version FROM postbox.outbox_emit('user', 'no uuid', 'user.created', '{}', outbox => 'shop.changes');
SELECT version FROM postbox.outbox_emit('user', pg_temp.id(9)::text, 'user.created', '{}', version => 3000000000, outbox => 'shop.changes');
SELECT number, event_id, entity, entity_id, "Kind", revision, body, headers, created_at, schema_version, seq FROM shop.changes;

-- what is done about stuck events
SELECT postbox.create_publication('changes', 'shop.changes', 'projects/p/topics/shop.change.events');
INSERT INTO shop.changes (event_id, entity, entity_id, "Kind", revision, created_at)
SELECT pg_temp.id(n), 'user', pg_temp.id(9), 'user.changed', n, '2025-01-02' FROM generate_series(2, 4) n;
UPDATE shop.changes SET publish_attempts = 5, next_retry_at = 'infinity', last_error = 'INVALID_ARGUMENT: no' WHERE event_id = pg_temp.id(1);
UPDATE shop.changes SET next_retry_at = 'infinity' WHERE event_id = pg_temp.id(2);
SELECT relation, aggregate_id, first_event_id, event_type, attempts, last_error, waiting FROM postbox.paused_keys;
-- whatever the time zone of the session
SELECT publication, pending, parked, abs(extract(epoch FROM oldest_pending) - extract(epoch FROM now() - '2025-01-01 10:00+00')) < 600 AS right_age
FROM postbox.publication_status;
SELECT postbox.redrive('shop.changes', pg_temp.id(1));
SELECT revision, publish_attempts, CASE WHEN next_retry_at <= now() THEN 'due' ELSE next_retry_at::text END AS next_retry_at FROM shop.changes ORDER BY seq;
SELECT postbox.discard('shop.changes', pg_temp.id(1)), postbox.discard('shop.changes', pg_temp.id(99));
UPDATE shop.changes SET published_at = '2025-01-03' WHERE revision = 2;
SELECT postbox.purge_outbox('shop.changes');
UPDATE postbox.outbox SET retention = '1 day' WHERE relation = 'shop.changes'::regclass;
SELECT postbox.purge_outbox('shop.changes');
SELECT revision FROM shop.changes ORDER BY seq;

-- letting go of it leaves the table, and it may be adopted again
SELECT postbox.drop_outbox('shop.changes');
SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'shop.changes'::regclass ORDER BY 1;
SELECT tgname FROM pg_trigger WHERE tgrelid = 'shop.changes'::regclass;
SELECT to_regclass('shop.changes_version'), (SELECT count(*) FROM postbox.publication);
INSERT INTO shop.changes (event_id, entity, entity_id, "Kind", revision) VALUES (pg_temp.id(5), 'user', pg_temp.id(9), 'user.changed', 5);
SELECT postbox.adopt_outbox('shop.changes', '{"aggregate_type": "entity", "aggregate_id": "entity_id", "event_type": "Kind", "version": "revision",
  "payload": "body", "attributes": "headers"}');
SELECT version FROM postbox.outbox_emit('user', pg_temp.id(9)::text, 'user.changed', '{}', outbox => 'shop.changes');
SELECT revision, seq FROM shop.changes ORDER BY seq;
DROP TABLE shop.changes;
SELECT to_regclass('shop.changes_version'), count(*) FROM postbox.outbox;

-- bad input
CREATE TABLE shop.events (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb);
SELECT postbox.adopt_outbox(NULL);
SELECT postbox.adopt_outbox('shop.events', NULL);
SELECT postbox.adopt_outbox('shop.events', retention => '0');
SELECT postbox.adopt_outbox(4294967295::oid::regclass);
SELECT postbox.adopt_outbox('shop.events', '[]');
SELECT postbox.adopt_outbox('shop.events', '{"agregate_id": "id"}');
SELECT postbox.adopt_outbox('shop.events', '{"payload": 1}');
SELECT postbox.adopt_outbox('shop.events', '{"payload": "body"}');
SELECT postbox.adopt_outbox('shop.events', '{"payload": "id"}');
SELECT postbox.adopt_outbox('shop.events', '{"aggregate_id": "event_type"}');
SELECT postbox.adopt_outbox('shop.app_outbox');
-- what is no ordinary table
CREATE VIEW shop.a_view AS SELECT 1;
CREATE MATERIALIZED VIEW shop.a_matview AS SELECT 1;
CREATE TABLE shop.partitioned (LIKE shop.events) PARTITION BY HASH (id);
CREATE TABLE shop.part PARTITION OF shop.partitioned FOR VALUES WITH (MODULUS 1, REMAINDER 0);
CREATE TABLE shop.parent (LIKE shop.events INCLUDING ALL);
CREATE TABLE shop.child () INHERITS (shop.parent);
CREATE TEMPORARY TABLE a_temporary (LIKE shop.events INCLUDING ALL);
CREATE UNLOGGED TABLE shop.an_unlogged (LIKE shop.events INCLUDING ALL);
SELECT postbox.adopt_outbox('shop.a_view');
SELECT postbox.adopt_outbox('shop.a_matview');
SELECT postbox.adopt_outbox('shop.partitioned');
SELECT postbox.adopt_outbox('shop.part');
SELECT postbox.adopt_outbox('shop.parent');
SELECT postbox.adopt_outbox('shop.child');
SELECT postbox.adopt_outbox('a_temporary');
SELECT postbox.adopt_outbox('shop.an_unlogged');
SELECT postbox.adopt_outbox('shop.events_pkey');
-- columns that are not what they have to be
CREATE PROCEDURE pg_temp.try(change text) LANGUAGE plpgsql AS $$
DECLARE
    message text;
    detail text;
    hint text;
BEGIN
    EXECUTE 'ALTER TABLE shop.events ' || change;
    PERFORM postbox.adopt_outbox('shop.events');
    RAISE WARNING 'adopted: %', change;
    ROLLBACK;
EXCEPTION WHEN OTHERS THEN
    GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
    RAISE WARNING E'% (%)\n  %\n  %', message, SQLSTATE, detail, hint;
END $$;
CALL pg_temp.try('DROP CONSTRAINT events_pkey');
CALL pg_temp.try('DROP CONSTRAINT events_pkey, ADD PRIMARY KEY (id, event_type)');
CALL pg_temp.try('DROP COLUMN id');
CALL pg_temp.try('DROP COLUMN aggregate_id');
CALL pg_temp.try('DROP COLUMN payload');
CALL pg_temp.try('ALTER event_type DROP NOT NULL');
CALL pg_temp.try('DROP COLUMN aggregate_type, ADD aggregate_type int');
CALL pg_temp.try('ADD version bigint');
CALL pg_temp.try('ADD version text NOT NULL');
CALL pg_temp.try('ADD occurred_at date');
CALL pg_temp.try('ADD schema_version uuid');
CALL pg_temp.try('ADD attributes text');
CALL pg_temp.try('ADD published_at timestamp');
CALL pg_temp.try('ADD publish_attempts int');
CALL pg_temp.try('ADD lock_token varchar(10)');
CALL pg_temp.try('ADD seq int GENERATED BY DEFAULT AS IDENTITY');
CALL pg_temp.try('ADD seq bigint');
CALL pg_temp.try('ADD seq bigint GENERATED ALWAYS AS IDENTITY');
CALL pg_temp.try('ADD seq bigint GENERATED BY DEFAULT AS IDENTITY (CACHE 10)');
-- these count
BEGIN;
ALTER TABLE shop.events ADD seq bigserial;
SELECT postbox.adopt_outbox('shop.events');
SELECT version FROM postbox.outbox_emit('video', 'a', 'video.created', '{}', outbox => 'shop.events');
ROLLBACK;
-- a name that leaves no room, or is taken
DO $$ BEGIN EXECUTE format('CREATE TABLE shop.%I (LIKE shop.events INCLUDING ALL)', repeat('x', 54)); END $$;
SELECT postbox.adopt_outbox(('shop.' || repeat('x', 54))::regclass);
CREATE TABLE shop.events_version ();
SELECT postbox.adopt_outbox('shop.events');
DROP TABLE shop.events_version;
-- nothing is left of all this
\d shop.events

-- rights: the owner, or a member of the owner's role; what is made belongs to the owner
CREATE ROLE regress_postbox_owner;
CREATE ROLE regress_postbox_other;
GRANT USAGE ON SCHEMA shop TO regress_postbox_owner, regress_postbox_other;
GRANT ALL ON shop.events TO regress_postbox_other;
ALTER TABLE shop.events OWNER TO regress_postbox_owner;
SET ROLE regress_postbox_other;
SELECT postbox.adopt_outbox('shop.events');
SET ROLE regress_postbox_owner;
SELECT postbox.adopt_outbox('shop.events');
RESET ROLE;
GRANT CREATE ON SCHEMA shop TO regress_postbox_owner;
SELECT postbox.adopt_outbox('shop.events');
SELECT relname, relowner::regrole FROM pg_class WHERE relname LIKE 'events\_%' AND relnamespace = 'shop'::regnamespace ORDER BY relname COLLATE "C";
SET ROLE regress_postbox_other;
SELECT version FROM postbox.outbox_emit('video', 'a', 'video.created', '{}', outbox => 'shop.events');
INSERT INTO shop.events (id, aggregate_type, aggregate_id, event_type) VALUES (pg_temp.id(1), 'video', 'a', 'video.changed');
SELECT postbox.drop_outbox('shop.events');
SELECT postbox.event_inserted();
SET ROLE regress_postbox_owner;
SELECT postbox.drop_outbox('shop.events');
SELECT postbox.adopt_outbox('shop.events');
RESET ROLE;
SELECT seq, event_type FROM shop.events ORDER BY seq;

-- the extension does not go while tables wake its workers
DROP EXTENSION postbox;
BEGIN;
DROP EXTENSION postbox CASCADE;
SELECT count(*) FROM shop.events;
ROLLBACK;
DROP SCHEMA shop CASCADE;
DROP OWNED BY regress_postbox_owner, regress_postbox_other;
DROP ROLE regress_postbox_owner, regress_postbox_other;
