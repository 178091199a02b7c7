-- Subscriptions: what `postbox pull` reads.
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
\pset null '(null)'

-- the defaults, and everything else
SELECT postbox.create_subscription('videos', 'reader.inbox', 'catalog.video.events.catalog-reader');
SELECT postbox.create_subscription('users', 'reader.inbox', 'projects/shop-1/subscriptions/points.user.events.points-writer',
    max_outstanding_messages => 10, max_outstanding_bytes => 1048576, appliers => 2, batch_size => 1, batch_delay => '0',
    on_error => 'dead_letter_topic', max_attempts => 3, min_backoff => '100ms', max_backoff => '10min',
    dead_letter_topic => 'points.user.events.dlq', enabled => false, statement_timeout => '1min', lock_timeout => '0');
\x
SELECT * FROM postbox.subscription ORDER BY name;
\x

-- names
SELECT postbox.create_subscription('videos', 'reader.inbox', 'catalog.video.events.search-indexer');
SELECT postbox.create_subscription('', 'reader.inbox', 'catalog.video.events.search-indexer');
SELECT postbox.create_subscription(repeat('x', 64), 'reader.inbox', 'catalog.video.events.search-indexer');
SELECT postbox.create_subscription('other', 'reader.inbox', '');
SELECT postbox.create_subscription('other', 'reader.inbox', 'ab');
SELECT postbox.create_subscription('other', 'reader.inbox', '1abc');
SELECT postbox.create_subscription('other', 'reader.inbox', 'goog-events');
SELECT postbox.create_subscription('other', 'reader.inbox', 'catalog video');
SELECT postbox.create_subscription('other', 'reader.inbox', 'projects/shop-1/topics/catalog.video.events');
SELECT postbox.create_subscription('odd', 'reader.inbox', 'Unconventional_name');

-- numbers and intervals out of range
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', max_outstanding_messages => 0);
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', max_outstanding_bytes => 0);
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', appliers => 0);
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', appliers => 65);
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', batch_size => 10001);
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', batch_delay => '-1ms');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', batch_delay => '11s');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', max_attempts => 0);
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', min_backoff => '0');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', min_backoff => '5s', max_backoff => '4s');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', max_backoff => '1 day');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', statement_timeout => '-1s');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', lock_timeout => '25 hours');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', appliers => NULL);
SELECT postbox.create_subscription(NULL, 'reader.inbox', 'abc.d.e.f-g');
SELECT postbox.create_subscription('other', NULL, 'abc.d.e.f-g');
SELECT postbox.create_subscription('other', 'reader.inbox', NULL);

-- the error policy
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', on_error => 'retry');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', on_error => 'dead_letter_topic');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', dead_letter_topic => 'abc.d.e.dlq');
SELECT postbox.create_subscription('other', 'reader.inbox', 'abc.d.e.f-g', on_error => 'dead_letter_topic', dead_letter_topic => 'x');
SELECT postbox.create_subscription('nacking', 'reader.inbox', 'abc.d.e.f-g', on_error => 'nack');

-- no inbox
CREATE TABLE reader.plain (a int);
SELECT postbox.create_subscription('other', 'reader.plain', 'abc.d.e.f-g');
SELECT postbox.create_subscription('other', '1', 'abc.d.e.f-g');

-- who may: whoever was granted EXECUTE and owns the inbox
CREATE ROLE regress_postbox_reader;
GRANT USAGE ON SCHEMA reader TO regress_postbox_reader;
SET ROLE regress_postbox_reader;
SELECT postbox.create_subscription('mine', 'reader.inbox', 'abc.d.e.f-g');
RESET ROLE;
GRANT EXECUTE ON FUNCTION postbox.create_subscription TO regress_postbox_reader;
SET ROLE regress_postbox_reader;
SELECT postbox.create_subscription('mine', 'reader.inbox', 'abc.d.e.f-g');
SELECT postbox.drop_subscription('videos');
RESET ROLE;
ALTER TABLE reader.inbox OWNER TO regress_postbox_reader;
SET ROLE regress_postbox_reader;
SELECT postbox.create_subscription('mine', 'reader.inbox', 'abc.d.e.f-g');
SELECT postbox.drop_subscription('mine');
RESET ROLE;

SELECT postbox.drop_subscription('mine');
SELECT postbox.drop_subscription(NULL);
SELECT postbox.drop_subscription('videos');
SELECT name FROM postbox.subscription ORDER BY 1;

DROP SCHEMA reader CASCADE;
SELECT count(*) FROM postbox.subscription;
REVOKE EXECUTE ON FUNCTION postbox.create_subscription FROM regress_postbox_reader;
DROP ROLE regress_postbox_reader;
