-- Subscriptions: what `postbox pull` reads.
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
\pset null '(null)'

-- the defaults, and everything else
SELECT postbox.create_subscription('videos', 'reader.inbox', 'catalog.video.events.catalog-reader');
SELECT postbox.create_subscription('users', 'reader.inbox', 'projects/shop-1/subscriptions/points.user.events.points-writer',
    max_outstanding_messages => 10, max_outstanding_bytes => 1048576, appliers => 2, batch_size => 1, batch_delay => '0',
    on_error => 'dead_letter_topic', max_attempts => 3, min_backoff => '100ms', max_backoff => '10min',
    dead_letter_topic => 'points.user.events.dlq', statement_timeout => '1min', lock_timeout => '0');
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

-- altered in place: NULL leaves a property, and what does not fit is refused
SELECT postbox.alter_subscription('videos');
SELECT postbox.alter_subscription('videos', appliers => 8, max_backoff => '10min', statement_timeout => '0');
SELECT postbox.alter_subscription('videos', subscription => 'catalog.video.events.catalog-writer', max_outstanding_messages => 1, max_outstanding_bytes => 2,
    batch_size => 3, batch_delay => '4ms', max_attempts => 5, min_backoff => '6s', lock_timeout => '7s', on_error => 'dead_letter_topic',
    dead_letter_topic => 'catalog.video.events.dlq');
\x
SELECT * FROM postbox.subscription WHERE name = 'videos';
\x
SELECT postbox.alter_subscription('none', appliers => 2);
SELECT postbox.alter_subscription(NULL, appliers => 2);
SELECT postbox.alter_subscription('videos', appliers => 65);
SELECT postbox.alter_subscription('videos', max_backoff => '5s');
SELECT postbox.alter_subscription('videos', min_backoff => '11min');
SELECT postbox.alter_subscription('videos', subscription => 'x');
SELECT postbox.alter_subscription('videos', on_error => 'retry');
SELECT postbox.alter_subscription('videos', on_error => 'reject', dead_letter_topic => 'catalog.video.events.dlq');
SELECT postbox.alter_subscription('videos', dead_letter_topic => 'x');
SELECT postbox.alter_subscription('videos', credential => 'none');
SELECT postbox.alter_subscription('videos', dead_letter_topic => 'catalog.video.events.other');
SELECT on_error, dead_letter_topic FROM postbox.subscription WHERE name = 'videos';
SELECT postbox.alter_subscription('videos', on_error => 'nack');
SELECT on_error, dead_letter_topic FROM postbox.subscription WHERE name = 'videos';
SELECT postbox.alter_subscription('videos', on_error => 'dead_letter_topic');
SELECT postbox.alter_subscription('videos', dead_letter_topic => 'catalog.video.events.dlq');
-- a driver that sends texts
PREPARE altered AS SELECT postbox.alter_subscription($1, max_attempts => $2, batch_delay => $3);
EXECUTE altered('videos', '9', '10ms');
SELECT max_attempts, batch_delay FROM postbox.subscription WHERE name = 'videos';

-- paused and resumed
CREATE VIEW reader.pauses AS SELECT name, paused_at <= now() AS since, paused_reason, paused_until - date_trunc('day', now()) > '1 day' AS "until", paused_until
    FROM postbox.subscription WHERE paused_at IS NOT NULL;
SELECT postbox.pause_subscription('videos', 'a migration');
SELECT name, since, paused_reason, paused_until FROM reader.pauses;
SELECT paused_at AS since FROM postbox.subscription WHERE name = 'videos' \gset
SELECT postbox.pause_subscription('videos', reason => 'a longer migration', until => now() + interval '2 days');
SELECT name, since, paused_reason, "until" FROM reader.pauses;
SELECT paused_at = :'since' AS still_the_same_pause FROM postbox.subscription WHERE name = 'videos';
SELECT status, subject, regexp_replace(detail, '(since|until) .*? P[SD]T', '\1 T', 'g') AS detail, remedy FROM postbox.doctor() WHERE "check" = 'pauses';
SELECT count(*) FROM postbox.doctor() WHERE "check" = 'subscriptions' AND subject = 'videos';
SELECT postbox.resume_subscription('videos');
SELECT name FROM reader.pauses;
SELECT postbox.resume_subscription('videos');
SELECT status, subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'pauses';
SELECT detail FROM postbox.doctor() WHERE "check" = 'subscriptions' AND subject = 'videos';
-- one that is over is none, and one without an end may have been forgotten
SELECT postbox.pause_subscription('videos', 'over soon', 'infinity'), postbox.pause_subscription('users', 'for the weekend');
UPDATE postbox.subscription SET paused_until = now() WHERE name = 'videos';
UPDATE postbox.subscription SET paused_at = now() - interval '25 hours' WHERE name = 'users';
SELECT status, subject, regexp_replace(detail, '(since|until) .*? P[SD]T', '\1 T', 'g') AS detail, remedy FROM postbox.doctor() WHERE "check" = 'pauses';
SELECT postbox.pause_subscription('videos', 'again');
SELECT count(*) FROM postbox.subscription WHERE name = 'videos' AND paused_at > :'since';
SELECT postbox.resume_subscription('users'), postbox.resume_subscription('videos');
SELECT postbox.pause_subscription('none', 'x');
SELECT postbox.pause_subscription(NULL, 'x');
SELECT postbox.pause_subscription('videos', NULL);
SELECT postbox.pause_subscription('videos', '');
SELECT postbox.pause_subscription('videos', repeat('x', 501));
SELECT postbox.pause_subscription('videos', 'x', now());
SELECT postbox.pause_subscription('videos', 'x', '-infinity');
SELECT postbox.resume_subscription('none');
SELECT postbox.resume_subscription(NULL);

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
SELECT postbox.alter_subscription('videos', appliers => 2);
SELECT postbox.pause_subscription('videos', 'x');
SELECT postbox.resume_subscription('videos');
SELECT postbox.drop_subscription('videos');
RESET ROLE;
-- operators pause and resume, and change nothing else
GRANT postbox_operator TO regress_postbox_reader;
SET ROLE regress_postbox_reader;
SELECT postbox.pause_subscription('videos', 'x');
SELECT postbox.resume_subscription('videos');
RESET ROLE;
REVOKE postbox_operator FROM regress_postbox_reader;
GRANT EXECUTE ON FUNCTION postbox.alter_subscription TO regress_postbox_reader;
SET ROLE regress_postbox_reader;
SELECT postbox.alter_subscription('videos', appliers => 2);
RESET ROLE;
SELECT postbox.create_credential('usual', 'environment'), postbox.alter_subscription('videos', credential => 'usual');
ALTER TABLE reader.inbox OWNER TO regress_postbox_reader;
SET ROLE regress_postbox_reader;
SELECT postbox.create_subscription('mine', 'reader.inbox', 'abc.d.e.f-g');
SELECT postbox.drop_subscription('mine');
SELECT postbox.pause_subscription('videos', 'x'), postbox.resume_subscription('videos');
-- what spends a credential is for roles that were granted it
SELECT postbox.alter_subscription('videos', appliers => 2);
SELECT postbox.alter_subscription('videos', subscription => 'catalog.video.events.catalog-reader');
SELECT postbox.alter_subscription('videos', on_error => 'dead_letter_topic', dead_letter_topic => 'catalog.video.events.dlq');
SELECT postbox.alter_subscription('videos', credential => '');
SELECT postbox.alter_subscription('videos', subscription => 'catalog.video.events.catalog-reader');
SELECT postbox.alter_subscription('videos', credential => 'usual');
RESET ROLE;
SELECT postbox.drop_credential('usual');

SELECT postbox.drop_subscription('mine');
SELECT postbox.drop_subscription(NULL);
SELECT postbox.drop_subscription('videos');
SELECT name FROM postbox.subscription ORDER BY 1;

DROP SCHEMA reader CASCADE;
SELECT count(*) FROM postbox.subscription;
REVOKE EXECUTE ON FUNCTION postbox.create_subscription, postbox.alter_subscription FROM regress_postbox_reader;
DROP ROLE regress_postbox_reader;
