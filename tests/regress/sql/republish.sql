-- postbox.republish and cancel_republish: what is queued, counted, left out, and taken back. No worker publishes here: the position of the
-- lane is set by hand.
CREATE SCHEMA catalog;
SET postbox.project_id = 'shop-1';
SELECT postbox.create_outbox('catalog.log');
SELECT postbox.create_publication('log', 'catalog.log', 'catalog.video.events');
SELECT count(postbox.outbox_emit(t, k, 'x.changed', '{"a": 1}'::jsonb, occurred_at => '2026-01-01 00:00+00'::timestamptz + n * interval '1 hour', outbox => 'catalog.log'))
FROM generate_series(1, 3) n, unnest('{video,list}'::text[], '{v,l}'::text[]) AS u(t, k);
CREATE FUNCTION catalog.published() RETURNS void LANGUAGE sql AS $$
    UPDATE postbox.lane SET floor = l.seq, hwm = l.seq, snapshot = pg_current_snapshot(), next_xid = pg_snapshot_xmax(pg_current_snapshot())
    FROM (SELECT max(seq) AS seq FROM catalog.log) l WHERE publication = 'log'
$$;
CREATE VIEW catalog.queue AS SELECT aggregate_id, version, republished,
    CASE WHEN next_retry_at = 'infinity' THEN 'behind' ELSE 'due' END AS state FROM catalog.log_parked ORDER BY aggregate_id, version;

-- what is not published yet is left out
SELECT * FROM postbox.republish('log');
SELECT catalog.published();
SELECT * FROM postbox.republish('log', dry_run => true);
SELECT * FROM postbox.republish('log', '2026-01-01 02:00+00', '2026-01-01 03:00+00', dry_run => true);
SELECT * FROM postbox.republish('log', "to" => '2026-01-01 02:00+00', aggregate_types => ARRAY['video'], dry_run => true);
SELECT * FROM catalog.queue;

-- the first event of a key is due, and the others behind it; once
SELECT * FROM postbox.republish('log', keys => '{v}');
SELECT * FROM catalog.queue;
SELECT republishing, parked FROM postbox.publication_status WHERE publication = 'log';
SELECT * FROM postbox.republish('log', keys => '{v}');
SELECT postbox.cancel_republish('log');
SELECT * FROM catalog.queue;
SELECT postbox.cancel_republish('log');

-- in steps, key by key
SELECT events, keys, total_events, resume FROM postbox.republish('log', max_events => 2, dry_run => true);
SELECT events, keys, total_events, resume FROM postbox.republish('log', max_events => 2);
SELECT events, keys, total_events, resume FROM postbox.republish('log', max_events => 2, resume => '1/3');
SELECT count(*), count(*) FILTER (WHERE state = 'due') FROM catalog.queue;
SELECT postbox.cancel_republish('log');

-- events that wait behind queued ones follow when these are taken back; they are not lost
SELECT events FROM postbox.republish('log', keys => '{l}');
INSERT INTO catalog.log_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, next_retry_at)
    VALUES ('log', 1000, gen_random_uuid(), 'list', 'l', 'list.changed', 4, 'v1', '{}', '{}', now(), 'infinity');
SELECT postbox.cancel_republish('log');
SELECT * FROM catalog.queue;

-- a discarded event is left out
SELECT postbox.discard('catalog.log', id) FROM catalog.log_parked;
SELECT events FROM postbox.republish('log', keys => '{v}');
SELECT postbox.discard('catalog.log', id) FROM catalog.log_parked WHERE version = 1;
SELECT * FROM catalog.queue;
SELECT postbox.cancel_republish('log');
SELECT events FROM postbox.republish('log', keys => '{v}', dry_run => true);
SELECT publication, count(*) FROM postbox.discarded_outgoing GROUP BY publication;

-- without order, all are due
SELECT postbox.alter_publication('log', on_failure => 'park_event');
SELECT events FROM postbox.republish('log', keys => '{l}');
SELECT * FROM catalog.queue;
SELECT postbox.cancel_republish('log');

-- bad input
SELECT postbox.republish('other');
SELECT postbox.republish(NULL);
SELECT postbox.republish('log', '2026-01-02', '2026-01-01');
SELECT postbox.republish('log', keys => '{}');
SELECT postbox.republish('log', keys => '{NULL}');
SELECT postbox.republish('log', max_events => 0);
SELECT postbox.republish('log', max_events => NULL);
SELECT postbox.republish('log', dry_run => NULL);
SELECT postbox.republish('log', resume => '2/2');
SELECT postbox.republish('log', resume => 'x');
SELECT postbox.cancel_republish('other');
SELECT postbox.cancel_republish(NULL);

-- the rights of the owner of the outbox, or of an operator
CREATE ROLE republish_stranger;
CREATE ROLE republish_operator IN ROLE postbox_operator;
GRANT USAGE ON SCHEMA catalog TO republish_stranger;
GRANT INSERT, SELECT ON catalog.log TO republish_stranger;
SET ROLE republish_stranger;
SELECT postbox.republish('log');
SELECT postbox.cancel_republish('log');
SET ROLE republish_operator;
SELECT events FROM postbox.republish('log', keys => '{l}');
SELECT postbox.cancel_republish('log');
RESET ROLE;
DROP OWNED BY republish_stranger, republish_operator;
DROP ROLE republish_stranger, republish_operator;

-- a table: the row itself
SELECT postbox.create_outbox('catalog.tab', 'table');
SELECT postbox.create_publication('tab', 'catalog.tab', 'catalog.video.events');
SELECT count(postbox.outbox_emit('video', k, 'video.changed', '{"a": 1}'::jsonb, outbox => 'catalog.tab')) FROM generate_series(1, 3) n, unnest('{a,b}'::text[]) k;
SELECT * FROM postbox.republish('tab', dry_run => true);
UPDATE catalog.tab SET published_at = '2026-01-01 00:00+00' WHERE version < 3;
UPDATE catalog.tab SET published_at = '-infinity' WHERE aggregate_id = 'b' AND version = 2;
SELECT * FROM postbox.republish('tab', dry_run => true);
SELECT * FROM postbox.republish('tab');
CREATE VIEW catalog.rows AS SELECT aggregate_id, version, published_at, publish_attempts, CASE WHEN next_retry_at = 'infinity' THEN 'behind'
    WHEN next_retry_at IS NOT NULL THEN 'due' END AS state, lock_token FROM catalog.tab ORDER BY aggregate_id, version;
SELECT * FROM catalog.rows;
SELECT republishing, parked FROM postbox.publication_status WHERE publication = 'tab';
SELECT postbox.cancel_republish('tab');
SELECT * FROM catalog.rows;
-- what an application has written into locked_at of an event that is not published means nothing
UPDATE catalog.tab SET locked_at = now(), next_retry_at = 'infinity' WHERE aggregate_id = 'b' AND version = 3;
SELECT postbox.cancel_republish('tab');
SELECT * FROM catalog.rows WHERE aggregate_id = 'b' AND version = 3;
UPDATE catalog.tab SET locked_at = NULL, next_retry_at = NULL WHERE aggregate_id = 'b' AND version = 3;
-- an event of the key is with a worker, and the next one was put behind the queued ones: it is due when these are taken back
SELECT postbox.outbox_emit('video', 'a', 'video.changed', '{}'::jsonb, outbox => 'catalog.tab') IS NOT NULL;
UPDATE catalog.tab SET lock_token = 'postbox-x', locked_at = now() WHERE aggregate_id = 'a' AND version = 3;
SELECT events FROM postbox.republish('tab');
UPDATE catalog.tab SET next_retry_at = 'infinity' WHERE aggregate_id = 'a' AND version = 4;
SELECT postbox.cancel_republish('tab');
SELECT * FROM catalog.rows WHERE aggregate_id = 'a';
-- events of a type that no publication takes any more are taken back, too
SELECT events FROM postbox.republish('tab');
SELECT postbox.alter_publication('tab', aggregate_types => '{other}');
SELECT postbox.cancel_republish('tab');
SELECT postbox.alter_publication('tab', aggregate_types => '{}');
-- and those of a publication that is dropped
SELECT events FROM postbox.republish('tab');
SELECT postbox.drop_publication('tab');
SELECT * FROM catalog.rows WHERE published_at IS NOT NULL;

-- each publication of a log has its own queue, and takes it with it
SELECT postbox.alter_publication('log', on_failure => 'park_key');
SELECT postbox.create_publication('all', 'catalog.log', 'catalog.all.events', ordering => 'bucket:4', start => 'now');
SELECT postbox.create_publication('lists', 'catalog.log', 'catalog.lists.events', aggregate_types => '{list}', ordering => 'none', start => 'now');
SELECT events, keys FROM postbox.republish('all');
SELECT events, keys FROM postbox.republish('lists');
SELECT publication, aggregate_id, version, next_retry_at = 'infinity' AS behind FROM catalog.log_parked ORDER BY 1, 2, 3;
SELECT events FROM postbox.republish('log', keys => '{l}');
SELECT postbox.drop_publication('lists');
SELECT publication, count(*) FROM catalog.log_parked GROUP BY 1 ORDER BY 1;

DROP VIEW catalog.queue, catalog.rows;
DROP FUNCTION catalog.published();
SELECT postbox.drop_outbox('catalog.log');
SELECT postbox.drop_outbox('catalog.tab');
SELECT count(*) FROM postbox.discarded_outgoing;
DROP SCHEMA catalog;
