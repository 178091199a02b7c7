-- Projections and handlers are created, altered, paused, resumed and dropped by name.
\set VERBOSITY default
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text, views int, version bigint NOT NULL);
CREATE TABLE reader."Odd name" (id text PRIMARY KEY, version bigint NOT NULL);
CREATE FUNCTION reader.note(event postbox.event) RETURNS void LANGUAGE sql AS '';
CREATE TABLE reader.log (n bigserial, id text, by text);
CREATE FUNCTION reader.first(event postbox.event) RETURNS void LANGUAGE sql AS $$ INSERT INTO reader.log (id, by) VALUES (event.event_id, 'first') $$;
CREATE FUNCTION reader.second(event postbox.event) RETURNS void LANGUAGE sql AS $$ INSERT INTO reader.log (id, by) VALUES (event.event_id, 'second') $$;
CREATE FUNCTION reader.returns_int(event postbox.event) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE FUNCTION pg_temp.apply(id text, type text, version bigint, payload text DEFAULT '{}') RETURNS postbox.outcome LANGUAGE sql
    AS $$ SELECT postbox.inbox_apply('reader.inbox', id, type, 'video', 'v1', version, payload) $$;

-- a name is given, or is that of the target or function with the next free number
SELECT postbox.create_projection('reader.inbox', '{a}', 'reader.video', name => 'videos');
SELECT postbox.create_projection('reader.inbox', '{b}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{c}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{d}', 'reader.video');
SELECT postbox.create_projection('reader.inbox', '{a}', 'reader."Odd name"');
SELECT postbox.create_handler('reader.inbox', '{a}', 'reader.first(postbox.event)', 'first');
SELECT postbox.create_handler('reader.inbox', '{a}', 'reader.note(postbox.event)');
SELECT postbox.create_handler('reader.inbox', '{b}', 'reader.note(postbox.event)');
SELECT name, event_types FROM postbox.projection ORDER BY id;
SELECT name, event_types, function FROM postbox.handler ORDER BY id;
-- a name that is long enough keeps its number
CREATE SCHEMA a_schema_whose_name_is_as_long_as_postgres_lets_it_be_which_is_;
CREATE TABLE a_schema_whose_name_is_as_long_as_postgres_lets_it_be_which_is_.t (id text PRIMARY KEY, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{a}', 'a_schema_whose_name_is_as_long_as_postgres_lets_it_be_which_is_.t');
SELECT postbox.create_projection('reader.inbox', '{b}', 'a_schema_whose_name_is_as_long_as_postgres_lets_it_be_which_is_.t');
SELECT name, octet_length(name) FROM postbox.projection WHERE name LIKE 'a_schema%' ORDER BY id;
SELECT postbox.drop_projection(name) FROM postbox.projection WHERE name LIKE 'a_schema%' OR name LIKE '%Odd%';
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.video', name => 'videos');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.video', name => '');
SELECT postbox.create_projection('reader.inbox', '{x}', 'reader.video', name => repeat('x', 64));
SELECT postbox.create_projection('reader.inbox', '{b}', 'reader.video', name => 'other');
SELECT postbox.create_handler('reader.inbox', '{x}', 'reader.note(postbox.event)', 'first');
SELECT postbox.create_handler('reader.inbox', '{x}', 'reader.note(postbox.event)', name => '');

-- alter_projection
SELECT pg_temp.apply('e1', 'a', 1, '{"title": "one", "views": 1}');
SELECT postbox.alter_projection('videos', event_types => '{a,e}', columns => '{"title": "name"}', new_name => 'films');
SELECT name, event_types, columns, delete_types, writes FROM postbox.projection WHERE name = 'films';
SELECT pg_temp.apply('e2', 'e', 2, '{"title": "two", "name": "named", "views": 2}');
SELECT title, views, version FROM reader.video;
SELECT postbox.alter_projection('films', columns => 'null');
SELECT pg_temp.apply('e3', 'e', 3, '{"title": "three", "name": "named", "views": 3}');
SELECT title, views, version FROM reader.video;
SELECT postbox.alter_projection('films', delete_types => '{gone}');
SELECT pg_temp.apply('e4', 'gone', 4);
SELECT count(*) FROM reader.video;
SELECT postbox.alter_projection('films', event_types => '{a}', delete_types => '{}');
SELECT pg_temp.apply('e5', 'e', 5);
SELECT pg_temp.apply('e6', 'gone', 5);
-- nothing is left to change, and nothing changes
SELECT postbox.alter_projection('films');
SELECT name, event_types, columns, delete_types, writes FROM postbox.projection WHERE name = 'films';
SELECT postbox.alter_projection('films', event_types => '{}');
SELECT postbox.alter_projection('films', event_types => '{a,a}');
SELECT postbox.alter_projection('films', event_types => '{b}');
SELECT postbox.alter_projection('films', columns => '{"no_such": "x"}');
SELECT postbox.alter_projection('films', columns => '{"title": {"path": "x", "typo": 1}}');
SELECT postbox.alter_projection('films', columns => '[]');
SELECT postbox.alter_projection('films', new_name => 'reader.video');
SELECT postbox.alter_projection('films', new_name => '');
SELECT postbox.alter_projection('no_such');
SELECT postbox.alter_projection(NULL);
-- a change that is rolled back never was
BEGIN;
SELECT postbox.alter_projection('films', event_types => '{e}');
SELECT pg_temp.apply('e7', 'e', 6, '{"title": "six"}');
ROLLBACK;
SELECT pg_temp.apply('e7', 'e', 6, '{"title": "six"}');
-- a renamed column: the projection is broken until its columns are chosen again
ALTER TABLE reader.video RENAME COLUMN title TO heading;
SELECT problem, remedy FROM postbox.inbox_problem WHERE name = 'films';
SELECT postbox.alter_projection('films', event_types => '{a}');
SELECT postbox.alter_projection('films', columns => '{"heading": "title"}');
SELECT pg_temp.apply('e8', 'a', 8, '{"title": "eight"}');
SELECT heading FROM reader.video;
ALTER TABLE reader.video RENAME COLUMN heading TO title;
SELECT postbox.alter_projection('films', columns => 'null');
-- the target and key of a projection that lost its target cannot be given again
CREATE TABLE reader.short (id text PRIMARY KEY, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{short}', 'reader.short');
DROP TABLE reader.short;
SELECT postbox.alter_projection('reader.short', event_types => '{x}');
SELECT postbox.drop_projection('reader.short');

-- alter_handler: it keeps its place in the order
SELECT postbox.create_handler('reader.inbox', '{h}', 'reader.second(postbox.event)', 'last');
SELECT postbox.alter_handler('first', event_types => '{h}', new_name => 'early');
SELECT pg_temp.apply('h1', 'h', NULL);
SELECT postbox.alter_handler('early', function => 'reader.second(postbox.event)');
SELECT postbox.alter_handler('last', function => 'reader.first(postbox.event)');
SELECT postbox.alter_handler('early', function => 'reader.second(postbox.event)');
SELECT pg_temp.apply('h2', 'h', NULL);
SELECT id, by FROM reader.log ORDER BY n;
SELECT postbox.alter_handler('early', event_types => '{}');
SELECT postbox.alter_handler('early', function => 'reader.returns_int(postbox.event)');
SELECT postbox.alter_handler('early', new_name => 'last');
SELECT postbox.alter_handler('no_such');

-- a pause stops its events, whatever is to become of errors, and nothing is recorded
SELECT postbox.pause_projection('films', 'an index is built');
SELECT pg_temp.apply('p1', 'a', 20, '{"title": "twenty"}');
SELECT postbox.inbox_apply('reader.inbox', 'p1', 'a', 'video', 'v1', 20, '{}', on_error => 'reject');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[ROW('p2', 'b', 'video', 'v2', 1, '{}', '{}', NULL), ROW('p1', 'a', 'video', 'v1', 20, '{}', '{}', NULL)]::postbox.event[], on_error => 'reject');
SELECT postbox.inbox_apply_batch('reader.inbox', '{}');
SELECT count(*) FROM postbox.dead_letter;
SELECT count(*) FROM reader.inbox WHERE outcome = 'rejected';
SELECT pg_temp.apply('p2', 'b', 20, '{"title": "b"}');
SELECT kind, name, problem FROM postbox.inbox_problem;
SELECT status, subject, regexp_replace(detail, 'since .*: ', 'since T: ') AS detail, remedy FROM postbox.doctor() WHERE "check" = 'pauses';
SELECT postbox.pause_projection('films', 'an index is built, still', until => '2999-01-01 00:00+00');
SELECT pg_temp.apply('p1', 'a', 21, '{"title": "twenty"}');
SELECT postbox.resume_projection('films');
SELECT postbox.resume_projection('films');
SELECT pg_temp.apply('p1', 'a', 21, '{"title": "twenty"}');
SELECT title FROM reader.video WHERE id = 'v1';
-- the clock ends it, at each event, also within a transaction
SELECT postbox.pause_projection('films', 'a moment', until => clock_timestamp() + interval '300 ms');
BEGIN;
SAVEPOINT before;
\set VERBOSITY terse
SELECT pg_temp.apply('p3', 'a', 22, '{"title": "later"}');
ROLLBACK TO before;
\set VERBOSITY default
DO $$ BEGIN PERFORM pg_sleep(extract(epoch FROM paused_until - clock_timestamp())) FROM postbox.projection WHERE name = 'films'; END $$;
SELECT pg_temp.apply('p3', 'a', 22, '{"title": "later"}');
COMMIT;
SELECT count(*) FROM postbox.doctor() WHERE "check" = 'pauses' AND subject IS NOT NULL;
-- nor are events written in a set
SELECT postbox.pause_projection('reader.video_2', 'sets wait, too');
SELECT postbox.inbox_apply_batch('reader.inbox', (SELECT array_agg(ROW('s' || n, 'c', 'video', 's' || n, 1, '{"title": "set"}', '{}', NULL)::postbox.event) FROM generate_series(1, 9) n));
SELECT count(*) FROM reader.video WHERE title = 'set';
SELECT postbox.resume_projection('reader.video_2');
SELECT postbox.inbox_apply_batch('reader.inbox', (SELECT array_agg(ROW('s' || n, 'c', 'video', 's' || n, 1, '{"title": "set"}', '{}', NULL)::postbox.event) FROM generate_series(1, 9) n));
SELECT count(*) FROM reader.video WHERE title = 'set';
SELECT postbox.pause_handler('early', 'the other service is down');
SELECT pg_temp.apply('h3', 'h', NULL);
SELECT postbox.resume_handler('early');
SELECT pg_temp.apply('h3', 'h', NULL);
-- a handler that applies an event to a paused inbox is not at fault either
SELECT postbox.create_inbox('reader.outer');
CREATE FUNCTION reader.forward(event postbox.event) RETURNS void LANGUAGE sql AS $$ SELECT postbox.inbox_apply('reader.inbox', event) $$;
SELECT postbox.create_handler('reader.outer', '{a}', 'reader.forward(postbox.event)');
SELECT postbox.pause_projection('films', 'below');
SELECT postbox.inbox_apply('reader.outer', 'o1', 'a', 'video', 'v1', 30, '{}', on_error => 'reject');
SELECT count(*) FROM postbox.dead_letter;
SELECT postbox.resume_projection('films');
SELECT postbox.inbox_apply('reader.outer', 'o1', 'a', 'video', 'v1', 30, '{}', on_error => 'reject');
-- a dead letter is not redriven through a pause
SELECT postbox.record_dead_letter('reader.inbox', ROW('d1', 'a', 'video', 'v1', 31, '{}', '{}', NULL)::postbox.event, '23502', 'no');
SELECT postbox.pause_projection('films', 'again');
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter;
SELECT attempts FROM postbox.dead_letter;
SELECT postbox.resume_projection('films');
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter;

SELECT postbox.pause_projection('films', '');
SELECT postbox.pause_projection('films', NULL);
SELECT postbox.pause_projection('films', 'why', 'yesterday');
SELECT postbox.pause_projection('no_such', 'why');
SELECT postbox.resume_projection('no_such');
SELECT postbox.pause_handler('no_such', 'why');

-- only the owner of the inbox alters; operators pause and resume
CREATE ROLE regress_postbox_other;
CREATE ROLE regress_postbox_operator IN ROLE postbox_operator;
SET ROLE regress_postbox_other;
SELECT postbox.alter_projection('films', new_name => 'mine');
SELECT postbox.pause_projection('films', 'why');
SELECT postbox.pause_handler('early', 'why');
SELECT postbox.drop_projection('films');
SET ROLE regress_postbox_operator;
SELECT postbox.pause_projection('films', 'why');
SELECT postbox.resume_projection('films');
SELECT postbox.pause_handler('early', 'why');
SELECT postbox.resume_handler('early');
SELECT postbox.alter_projection('films', new_name => 'mine');
SELECT postbox.alter_handler('early', new_name => 'mine');
RESET ROLE;
-- drivers send text
PREPARE alter_by_text(text, text, text, text) AS SELECT postbox.alter_projection($1, $2::text[], $3::jsonb, new_name => $4);
EXECUTE alter_by_text('films', '{a,z}', NULL, 'videos');
SELECT postbox.alter_projection(name => 'videos', event_types => '{a}', columns => '{"title": "title"}');
SELECT name, event_types, columns, writes FROM postbox.projection WHERE name = 'videos';

DROP SCHEMA reader, a_schema_whose_name_is_as_long_as_postgres_lets_it_be_which_is_ CASCADE;
SELECT postbox.drop_projection(name) FROM postbox.projection;
DROP ROLE regress_postbox_other, regress_postbox_operator;
