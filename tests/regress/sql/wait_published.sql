-- postbox.wait_published where no worker publishes: what is known at once, and what is an error. tests/tap/wait_published.pl waits.
CREATE SCHEMA catalog;
SET postbox.project_id = 'shop-1';
SELECT postbox.create_outbox('catalog.log');
SELECT postbox.create_outbox('catalog.tab', 'table');
CREATE FUNCTION catalog.emit(outbox regclass, id uuid, type text DEFAULT 'video') RETURNS void LANGUAGE sql AS
    $$SELECT postbox.outbox_emit(type, 'k', 'x.changed', '{}'::jsonb, event_id => id, outbox => outbox)$$;
SELECT catalog.emit('catalog.log', '11111111-1111-4111-8111-111111111111');
SELECT catalog.emit('catalog.tab', '22222222-2222-4222-8222-222222222222');
SELECT catalog.emit('catalog.tab', '33333333-3333-4333-8333-333333333333', 'list');

SELECT postbox.wait_published('11111111-1111-4111-8111-111111111111', '0');
SELECT postbox.create_publication('log', 'catalog.log', 'catalog.video.events');
SELECT postbox.create_publication('log2', 'catalog.log', 'catalog.video.copies');
SELECT postbox.create_publication('tab', 'catalog.tab', 'catalog.video.events', ARRAY['video']);
SELECT postbox.wait_published('33333333-3333-4333-8333-333333333333', '0');

-- nothing is published yet; the outbox is found
SELECT postbox.wait_published('11111111-1111-4111-8111-111111111111', '0'), postbox.wait_published('22222222-2222-4222-8222-222222222222', '20ms');

-- one publication of two
UPDATE postbox.lane SET floor = 1000, hwm = 1000, snapshot = pg_current_snapshot(), next_xid = pg_snapshot_xmax(pg_current_snapshot()) WHERE publication = 'log';
SELECT postbox.wait_published('11111111-1111-4111-8111-111111111111', '0', publication => 'log'),
    postbox.wait_published('11111111-1111-4111-8111-111111111111', '0', publication => 'log2'),
    postbox.wait_published('11111111-1111-4111-8111-111111111111', '0', 'catalog.log');
-- a queued copy was published before
SELECT events FROM postbox.republish('log');
SELECT postbox.wait_published('11111111-1111-4111-8111-111111111111', '0', publication => 'log');
-- parked; waiting behind a parked event; discarded
UPDATE catalog.log_parked SET republished = false, publish_attempts = 5, next_retry_at = 'infinity', last_error = 'INVALID_ARGUMENT: no';
SELECT postbox.wait_published('11111111-1111-4111-8111-111111111111');
SELECT postbox.discard('catalog.log', '11111111-1111-4111-8111-111111111111');
SELECT postbox.wait_published('11111111-1111-4111-8111-111111111111');
UPDATE catalog.tab SET publish_attempts = 1, next_retry_at = 'infinity', last_error = 'INVALID_ARGUMENT: no' WHERE aggregate_type = 'video';
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222');
UPDATE catalog.tab SET published_at = now() WHERE aggregate_type = 'video';
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222');

-- in the transaction that emits it
BEGIN;
SELECT catalog.emit('catalog.log', '44444444-4444-4444-8444-444444444444');
SELECT postbox.wait_published('44444444-4444-4444-8444-444444444444');
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT catalog.emit('catalog.tab', '44444444-4444-4444-8444-444444444444');
RELEASE SAVEPOINT s;
SELECT postbox.wait_published('44444444-4444-4444-8444-444444444444');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222');
ROLLBACK;

-- bad input
SELECT postbox.wait_published('55555555-5555-4555-8555-555555555555');
SELECT postbox.wait_published(NULL);
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222', NULL);
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222', '-1s');
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222', outbox => 'pg_class');
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222', publication => 'other');

-- rights
CREATE ROLE waiter;
GRANT USAGE ON SCHEMA catalog TO waiter;
GRANT INSERT ON catalog.tab TO waiter;
SET ROLE waiter;
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222', outbox => 'catalog.tab');
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222');
RESET ROLE;
GRANT SELECT ON catalog.tab TO waiter;
SET ROLE waiter;
SELECT postbox.wait_published('22222222-2222-4222-8222-222222222222');
RESET ROLE;
DROP OWNED BY waiter;
DROP ROLE waiter;

SELECT postbox.drop_outbox('catalog.log');
SELECT postbox.drop_outbox('catalog.tab');
DROP SCHEMA catalog CASCADE;
