-- A projection whose target is dropped or no longer fits, and a handler whose function is gone: events of their types wait,
-- those of other types are applied, and a view says what is wrong.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text, version bigint);
CREATE TABLE reader.other (id text PRIMARY KEY, version bigint);
SELECT postbox.create_projection('reader.inbox', '{video}', 'reader.video', delete_types => '{video.deleted}');
SELECT postbox.create_projection('reader.inbox', '{other,both}', 'reader.other');
CREATE FUNCTION reader.see(event postbox.event) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT postbox.create_handler('reader.inbox', '{seen,both}', 'reader.see(postbox.event)');
CREATE FUNCTION reader.apply(event_id text, event_type text, on_error text DEFAULT 'raise') RETURNS postbox.outcome LANGUAGE sql AS $$
    SELECT postbox.inbox_apply('reader.inbox', event_id, event_type, 'video', 'v1', 1, '{"title": "t"}', on_error => on_error)
$$;
SELECT * FROM postbox.inbox_problem;
-- who looks keeps no lock on the targets
BEGIN;
SELECT * FROM postbox.inbox_problem;
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN ('reader.video'::regclass, 'reader.other'::regclass);
COMMIT;
SELECT reader.apply('e1', 'video');

-- the target is dropped: its events are neither ignored nor recorded
DROP TABLE reader.video;
SELECT id, target, dropped_target FROM postbox.projection ORDER BY id;
SELECT * FROM postbox.inbox_problem;
SELECT reader.apply('e2', 'video');
SELECT reader.apply('e2', 'video', 'reject');
SELECT reader.apply('e2', 'video.deleted', 'reject');
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[('e3', 'other', 'o', 'o1', 1, '{}', NULL, NULL), ('e2', 'video', 'v', 'v1', 1, '{}', NULL, NULL)]::postbox.event[], 'reject');
-- a call without events says so to a consumer that asks whether the event is at fault
SELECT postbox.inbox_apply_batch('reader.inbox', '{}');
-- other types are applied
SELECT reader.apply('e3', 'other');
SELECT count(*) FROM reader.inbox WHERE event_type LIKE 'video%';
SELECT count(*) FROM postbox.dead_letter;
-- created again, it is another table
CREATE TABLE reader.video (id text PRIMARY KEY, title text, version bigint);
SELECT reader.apply('e2', 'video');
SELECT postbox.create_projection('reader.inbox', '{video}', 'reader.video', delete_types => '{video.deleted}');
SELECT reader.apply('e2', 'video');
SELECT postbox.drop_projection(name) FROM postbox.projection WHERE target = 0;
SELECT reader.apply('e2', 'video');
SELECT * FROM reader.video;
SELECT * FROM postbox.inbox_problem;

-- the target is altered, and altered back
ALTER TABLE reader.video RENAME version TO number;
SELECT kind, event_types, problem FROM postbox.inbox_problem;
SELECT reader.apply('e4', 'video', 'reject');
SELECT postbox.wait_for_version('reader.video', 'v1', 1, '0');
SELECT reader.apply('e5', 'other');
ALTER TABLE reader.video RENAME number TO version;
SELECT reader.apply('e4', 'video');
ALTER TABLE reader.video DROP CONSTRAINT video_pkey;
SELECT kind, event_types, problem FROM postbox.inbox_problem;
SELECT reader.apply('e6', 'video', 'reject');
ALTER TABLE reader.video ADD PRIMARY KEY (id);
-- a new name is no problem
ALTER TABLE reader.video RENAME TO film;
SELECT reader.apply('e6', 'video');
SELECT * FROM postbox.inbox_problem;

-- a handler is gone: also the projection of the same type waits
DROP FUNCTION reader.see(postbox.event);
SELECT kind, name, event_types, problem FROM postbox.inbox_problem;
SET quote_all_identifiers = on;
SELECT kind, name FROM postbox.inbox_problem;
SET quote_all_identifiers = off;
SELECT reader.apply('e7', 'seen', 'reject');
BEGIN;
DROP TABLE reader.film;
SELECT postbox.inbox_apply_batch('reader.inbox', '{}');
ROLLBACK;
SELECT reader.apply('e7', 'both', 'reject');
SELECT reader.apply('e8', 'other');
CREATE FUNCTION reader.see(event postbox.event) RETURNS int LANGUAGE sql AS 'SELECT 1';
SELECT kind, name, event_types, problem FROM postbox.inbox_problem;
SELECT reader.apply('e7', 'both', 'reject');
DROP FUNCTION reader.see(postbox.event);
CREATE FUNCTION reader.see(event postbox.event) RETURNS void LANGUAGE sql AS 'SELECT';
SELECT reader.apply('e7', 'both');
SELECT * FROM postbox.inbox_problem;
SET quote_all_identifiers = on;
SELECT * FROM postbox.inbox_problem;
SET quote_all_identifiers = off;

-- dropping the schema with the inbox drops all of it
DROP SCHEMA reader CASCADE;
SELECT count(*) FROM postbox.projection;
SELECT * FROM postbox.inbox_problem;
