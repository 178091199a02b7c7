-- Making, changing and dropping publications.
CREATE SCHEMA catalog;
SELECT postbox.create_outbox('catalog.outbox', 'table');
SET postbox.project_id = 'shop-1';

SELECT postbox.create_publication('videos', 'catalog.outbox', 'catalog.video.events', ARRAY['video', 'clip']);
SELECT postbox.create_publication('lists', 'catalog.outbox', 'projects/shop-2/topics/catalog.list.events', ARRAY['list'],
    max_attempts => 1, base_backoff => '100 ms', max_backoff => '100 ms', on_failure => 'park_event');
SELECT name, outbox, topic, aggregate_types, ordering, lanes, max_attempts, base_backoff, max_backoff, on_failure
FROM postbox.publication ORDER BY name;
SELECT publication, attempts, next_retry_at, last_error, suspended_since, sent_again, sent_again_at FROM postbox.publication_state ORDER BY publication;

-- names: refused where Pub/Sub refuses, a warning where they are unusual
SELECT postbox.check_topic_name('catalog.video.events');
SELECT postbox.check_topic_name('projects/shop/topics/catalog.video.events');
SELECT postbox.check_topic_name('catalog.video.events.dlq');
SELECT postbox.check_topic_name('Unusual_name');
SELECT postbox.check_topic_name('ab');
SELECT postbox.check_topic_name('1abc');
SELECT postbox.check_topic_name('googol');
SELECT postbox.check_topic_name('a b c');
SELECT postbox.check_topic_name('projects/shop/subscriptions/abc');
SELECT postbox.check_topic_name('shop/abc');
SELECT postbox.check_topic_name('');
SELECT postbox.check_topic_name(NULL);
SELECT postbox.check_topic_name(repeat('a', 256));

-- bad input
SELECT postbox.create_publication('videos', 'catalog.outbox', 'catalog.other.events', ARRAY['other']);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other', 'clip']);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events');
SELECT postbox.create_publication(NULL, 'catalog.outbox', 'catalog.other.events', ARRAY['other']);
SELECT postbox.create_publication('', 'catalog.outbox', 'catalog.other.events', ARRAY['other']);
SELECT postbox.create_publication(repeat('x', 64), 'catalog.outbox', 'catalog.other.events', ARRAY['other']);
SELECT postbox.create_publication('more', NULL, 'catalog.other.events', ARRAY['other']);
SELECT postbox.create_publication('more', 'pg_class', 'catalog.other.events', ARRAY['other']);
SELECT postbox.create_publication('more', 'no_such_table', 'catalog.other.events', ARRAY['other']);
SELECT postbox.create_publication('more', 'catalog.outbox', NULL, ARRAY['other']);
SELECT postbox.create_publication('more', 'catalog.outbox', 'a', ARRAY['other']);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', '{}');
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other', NULL]);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['']);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY[ARRAY['a'], ARRAY['b']]);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], ordering => 'none');
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], ordering => 'bucket:8');
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], ordering => 'random');
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], lanes => 2);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], lanes => 0);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], max_attempts => 0);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], max_attempts => NULL);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], base_backoff => '0');
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], base_backoff => '-1 s');
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], base_backoff => '11 min');
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], max_backoff => NULL);
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], max_backoff => '25 hours');
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other'], on_failure => 'give_up');
SELECT name FROM postbox.publication ORDER BY name;

-- without a project a short topic id is not enough
SET postbox.project_id = '';
BEGIN;
SELECT postbox.create_publication('more', 'catalog.outbox', 'catalog.other.events', ARRAY['other']);
SELECT postbox.create_publication('full', 'catalog.outbox', 'projects/shop-1/topics/catalog.full.events', ARRAY['full']);
ROLLBACK;
SET postbox.project_id = 'shop-1';

-- changing: NULL leaves as it is
SELECT postbox.alter_publication('lists', max_attempts => 7);
SELECT postbox.alter_publication('lists', aggregate_types => ARRAY['list', 'album'], max_backoff => '1 min');
UPDATE postbox.publication_state SET attempts = 3, next_retry_at = 'infinity', last_error = 'NOT_FOUND: no such topic',
    suspended_since = '-infinity' WHERE publication = 'lists';
SELECT publication, state, retry_at, suspended_since, last_error FROM postbox.publication_status ORDER BY 1;
SELECT subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'publications' ORDER BY 1;
SELECT postbox.alter_publication('lists', topic => 'catalog.list.events', on_failure => 'park_key');
SELECT name, topic, aggregate_types, max_attempts, base_backoff, max_backoff, on_failure FROM postbox.publication ORDER BY name;
SELECT publication, attempts, next_retry_at, last_error, suspended_since, sent_again, sent_again_at FROM postbox.publication_state ORDER BY publication;
SELECT postbox.alter_publication('lists', aggregate_types => '{}');
SELECT postbox.alter_publication('lists', aggregate_types => ARRAY['video']);
SELECT postbox.alter_publication('lists', max_attempts => 0);
SELECT postbox.alter_publication('lists', max_backoff => '10 ms');
SELECT postbox.alter_publication('lists', base_backoff => '2 min');
SELECT postbox.alter_publication('lists', topic => '!');
SELECT postbox.alter_publication('lists', on_failure => '');
SELECT postbox.alter_publication('no such publication', max_attempts => 3);
SELECT postbox.alter_publication(NULL);
SELECT name, topic, aggregate_types, max_attempts, base_backoff, max_backoff, on_failure FROM postbox.publication WHERE name = 'lists';

-- dropping; then the other may take all types
SELECT postbox.drop_publication('videos');
SELECT postbox.drop_publication('videos');
SELECT postbox.drop_publication(NULL);
SELECT postbox.alter_publication('lists', aggregate_types => '{}');
SELECT name, aggregate_types FROM postbox.publication;
SELECT postbox.create_publication('videos', 'catalog.outbox', 'catalog.video.events', ARRAY['video']);

-- the status counts what is not published
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', '{}');
SELECT version FROM postbox.outbox_emit('video', 'v2', 'video.created', '{}');
SELECT version FROM postbox.outbox_emit('video', 'v2', 'video.updated', '{}');
UPDATE catalog.outbox SET published_at = now() WHERE aggregate_id = 'v1';
UPDATE catalog.outbox SET next_retry_at = 'infinity', publish_attempts = 5 WHERE aggregate_id = 'v2' AND version = 1;
SELECT publication, outbox, topic, state, pending, parked, oldest_pending < interval '1 hour' AS young, retry_at, last_error
FROM postbox.publication_status;

-- a publication goes with its outbox
SELECT postbox.create_outbox('catalog.second', 'table');
SELECT postbox.create_publication('second', 'catalog.second', 'catalog.second.events');
DROP TABLE catalog.second;
SELECT name FROM postbox.publication;
SELECT postbox.drop_outbox('catalog.outbox');
SELECT name FROM postbox.publication;
SELECT publication FROM postbox.lane;

DROP SCHEMA catalog CASCADE;
