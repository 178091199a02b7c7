-- An effect that did not happen is an error of the event: no trigger, rule or policy makes it look old.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE SEQUENCE pg_temp.event_number;
CREATE FUNCTION pg_temp.apply(event_type text, aggregate_id text, version bigint, payload text DEFAULT '{}') RETURNS postbox.outcome
    LANGUAGE sql AS $$
        SELECT postbox.inbox_apply('reader.inbox', 'evt_' || nextval('pg_temp.event_number'), event_type, 'video', aggregate_id,
                                   version, convert_to(payload, 'UTF8'), on_error => 'reject') $$;
-- the error that the last rejected event was recorded with
CREATE FUNCTION pg_temp.why(OUT sqlstate text, OUT error text)
    LANGUAGE sql AS $$ SELECT sqlstate, error FROM postbox.dead_letter ORDER BY id DESC LIMIT 1 $$;
CREATE TABLE reader.video (id text PRIMARY KEY, title text, views int, version bigint);
SELECT postbox.create_projection('reader.inbox', '{video}', 'reader.video', delete_types => '{video.deleted}');
SELECT pg_temp.apply('video', 'v1', 1, '{"title": "one", "views": 1}');

-- a trigger that keeps the row
CREATE FUNCTION reader.suppress() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER suppress BEFORE DELETE ON reader.video FOR EACH ROW EXECUTE FUNCTION reader.suppress();
SELECT pg_temp.apply('video.deleted', 'v1', 3), pg_temp.why();
SELECT count(*) FROM reader.inbox_tombstone;
-- what is old is stale all the same
SELECT pg_temp.apply('video.deleted', 'v1', 1);
-- the delete of what is not there has its effect
SELECT pg_temp.apply('video.deleted', 'v0', 3);
SELECT key, version FROM reader.inbox_tombstone;
DROP TRIGGER suppress ON reader.video;

-- a trigger that suppresses what is written, whole or in part
CREATE TRIGGER suppress BEFORE INSERT OR UPDATE ON reader.video FOR EACH ROW EXECUTE FUNCTION reader.suppress();
SELECT pg_temp.apply('video', 'v1', 2, '{"title": "two", "views": 2}'), pg_temp.why();
SELECT pg_temp.apply('video', 'v1', 2, '{"title": "two"}'), pg_temp.why();
SELECT pg_temp.apply('video', 'v2', 2, '{"title": "two", "views": 2}'), pg_temp.why();
SELECT pg_temp.apply('video', 'v1', 1, '{"title": "two", "views": 2}'), pg_temp.apply('video', 'v1', 1, '{"title": "two"}');
-- the batch around it goes on
SELECT postbox.inbox_apply_batch('reader.inbox', ARRAY[('b1', 'video', 'video', 'v1', 9, '{"title": "x"}', NULL, NULL), ('b2', 'other', 'video', 'v1', 9, '{}', NULL, NULL)]::postbox.event[],
    on_error => 'reject');
DROP TRIGGER suppress ON reader.video;
-- one that takes back what is written
CREATE FUNCTION reader.take_back() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN OLD; END';
CREATE TRIGGER take_back BEFORE UPDATE ON reader.video FOR EACH ROW EXECUTE FUNCTION reader.take_back();
SELECT pg_temp.apply('video', 'v1', 2, '{"title": "two", "views": 2}'), pg_temp.why();
SELECT pg_temp.apply('video', 'v1', 2, '{"title": "two"}'), pg_temp.why();
DROP TRIGGER take_back ON reader.video;
SELECT * FROM reader.video;
SELECT pg_temp.apply('video', 'v1', 2, '{"title": "two", "views": 2}');

-- a rule
CREATE RULE keep AS ON UPDATE TO reader.video DO INSTEAD NOTHING;
SELECT pg_temp.apply('video', 'v1', 3, '{"title": "three", "views": 3}'), pg_temp.why();
SELECT pg_temp.apply('video', 'v1', 3, '{"title": "three"}'), pg_temp.why();
DROP RULE keep ON reader.video;
CREATE RULE keep AS ON DELETE TO reader.video DO INSTEAD NOTHING;
SELECT pg_temp.apply('video.deleted', 'v1', 3), pg_temp.why();
DROP RULE keep ON reader.video;
SELECT pg_temp.apply('video.deleted', 'v1', 3);
-- a trigger that suppresses the tombstone
CREATE TRIGGER suppress BEFORE INSERT ON reader.inbox_tombstone FOR EACH ROW EXECUTE FUNCTION reader.suppress();
SELECT pg_temp.apply('video.deleted', 'v9', 3), pg_temp.why();
SELECT pg_temp.apply('video', 'v8', 1, '{"title": "eight", "views": 8}'), pg_temp.apply('video.deleted', 'v8', 2), pg_temp.why();
DROP TRIGGER suppress ON reader.inbox_tombstone;

-- a table that keeps what is deleted: its trigger moves the version on, so the row keeps late events out
CREATE TABLE reader.kept (id text PRIMARY KEY, title text, deleted_at timestamptz, version bigint);
CREATE FUNCTION reader.mark_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    UPDATE reader.kept SET deleted_at = now(), version = postbox.event_version() WHERE id = OLD.id;
    RETURN NULL;
END $$;
CREATE TRIGGER mark_deleted BEFORE DELETE ON reader.kept FOR EACH ROW EXECUTE FUNCTION reader.mark_deleted();
SELECT postbox.create_projection('reader.inbox', '{kept}', 'reader.kept', delete_types => '{kept.deleted}', columns => '{"title": "title"}');
SELECT pg_temp.apply('kept', 'k1', 1, '{"title": "one"}'), pg_temp.apply('kept.deleted', 'k1', 5);
SELECT id, title, deleted_at IS NOT NULL AS deleted, version FROM reader.kept;
SELECT pg_temp.apply('kept', 'k1', 4, '{"title": "late"}'), pg_temp.apply('kept.deleted', 'k1', 5), pg_temp.apply('kept.deleted', 'k1', 3);
SELECT pg_temp.apply('kept.deleted', 'k2', 5), pg_temp.apply('kept', 'k2', 4, '{"title": "late"}');
SELECT postbox.wait_for_version('reader.kept', 'k1', 5, '0'), postbox.wait_for_version('reader.kept', 'k2', 5, '0');
SELECT id, title, version FROM reader.kept;
SELECT postbox.event_version();
-- without a trigger: the event that deletes writes a column
CREATE TABLE reader.marked (id text PRIMARY KEY, title text, deleted_at timestamptz, version bigint);
SELECT postbox.create_projection('reader.inbox', '{marked}', 'reader.marked', columns => '{"title": "title"}');
SELECT postbox.create_projection('reader.inbox', '{marked.deleted}', 'reader.marked', columns => '{"deleted_at": "$occurred_at"}');
SELECT pg_temp.apply('marked', 'm1', 1, '{"title": "one"}'), pg_temp.apply('marked.deleted', 'm1', 3), pg_temp.apply('marked', 'm1', 2, '{"title": "late"}');
SELECT id, title, version FROM reader.marked;

-- a rule that keeps the row, likewise
CREATE RULE mark AS ON DELETE TO reader.marked DO INSTEAD UPDATE reader.marked SET version = postbox.event_version() WHERE id = OLD.id;
SELECT postbox.create_projection('reader.inbox', '{}', 'reader.marked', columns => '{}', delete_types => '{marked.removed}');
SELECT pg_temp.apply('marked.removed', 'm1', 8), pg_temp.apply('marked', 'm1', 7, '{"title": "late"}');
SELECT id, title, version FROM reader.marked;
-- partitions have triggers of their own
CREATE TABLE reader.parted (id int PRIMARY KEY, n int, version int) PARTITION BY RANGE (id);
CREATE TABLE reader.parted_1 PARTITION OF reader.parted FOR VALUES FROM (0) TO (100);
CREATE TRIGGER take_back BEFORE UPDATE ON reader.parted_1 FOR EACH ROW EXECUTE FUNCTION reader.take_back();
CREATE TRIGGER suppress BEFORE DELETE ON reader.parted_1 FOR EACH ROW EXECUTE FUNCTION reader.suppress();
SELECT postbox.create_projection('reader.inbox', '{parted}', 'reader.parted', delete_types => '{parted.deleted}');
SELECT pg_temp.apply('parted', '1', 1, '{"n": 1}'), pg_temp.apply('parted', '1', 2, '{"n": 1}'), pg_temp.why();
SELECT pg_temp.apply('parted.deleted', '1', 2), pg_temp.why();

-- policies
CREATE ROLE regress_postbox_owner;
GRANT USAGE, CREATE ON SCHEMA reader TO regress_postbox_owner;
CREATE TABLE reader.secret (id text PRIMARY KEY, tenant text, note text, version bigint);
CREATE TABLE reader.secret_code (id int, code text UNIQUE, tenant text, version bigint);
GRANT ALL ON reader.secret, reader.secret_code TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_inbox('reader.mine');
SELECT postbox.create_projection('reader.mine', '{secret}', 'reader.secret', delete_types => '{secret.deleted}');
SELECT postbox.create_projection('reader.mine', '{code}', 'reader.secret_code', key => '{code}', delete_types => '{code.deleted}');
RESET ROLE;
CREATE FUNCTION pg_temp.apply_mine(event_type text, aggregate_id text, version bigint, payload text DEFAULT '{}') RETURNS postbox.outcome
    LANGUAGE sql AS $$
        SELECT postbox.inbox_apply('reader.mine', 'evt_' || nextval('pg_temp.event_number'), event_type, 'secret', aggregate_id,
                                   version, convert_to(payload, 'UTF8'), on_error => 'reject') $$;
INSERT INTO reader.secret VALUES ('s1', 'other', 'x', 4);
INSERT INTO reader.secret_code VALUES (1, 'c1', 'other', 4);
ALTER TABLE reader.secret ENABLE ROW LEVEL SECURITY;
ALTER TABLE reader.secret_code ENABLE ROW LEVEL SECURITY;
CREATE POLICY mine ON reader.secret USING (tenant = 'mine');
CREATE POLICY mine ON reader.secret_code USING (tenant = 'mine');
-- the row is hidden
SELECT pg_temp.apply_mine('secret.deleted', 's1', 5), pg_temp.why();
SELECT pg_temp.apply_mine('secret.deleted', 's1', 3);
SELECT pg_temp.apply_mine('secret', 's1', 5, '{"tenant": "mine", "note": "y"}'), pg_temp.why();
SELECT pg_temp.apply_mine('secret', 's1', 5, '{"note": "y"}'), pg_temp.why();
SELECT pg_temp.apply_mine('secret', 's1', 3, '{"tenant": "mine", "note": "y"}');
SELECT pg_temp.apply_mine('secret', 's2', 5, '{"tenant": "other", "note": "y"}'), pg_temp.why();
SELECT pg_temp.apply_mine('code.deleted', 'c1', 5), pg_temp.why();
SELECT pg_temp.apply_mine('secret', 's3', 5, '{"tenant": "mine", "note": "y"}'), pg_temp.apply_mine('secret.deleted', 's3', 6), pg_temp.apply_mine('secret.deleted', 's4', 6);
SELECT count(*) FROM reader.mine_tombstone;
-- the row is seen, and may not be changed
DROP POLICY mine ON reader.secret;
CREATE POLICY seen ON reader.secret FOR SELECT USING (true);
CREATE POLICY added ON reader.secret FOR INSERT WITH CHECK (true);
SELECT pg_temp.apply_mine('secret.deleted', 's1', 5), pg_temp.why();
SELECT pg_temp.apply_mine('secret', 's1', 5, '{"note": "y"}'), pg_temp.why();
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT pg_temp.apply_mine('secret.deleted', 's1', 5);
ROLLBACK;
SELECT * FROM reader.secret;

-- two aggregate types in one row: their versions cannot be compared, and what looks old is not taken for it
CREATE TABLE reader.person (id text PRIMARY KEY, name text, city text, version bigint);
CREATE FUNCTION pg_temp.apply_of(aggregate_type text, event_type text, aggregate_id text, version bigint, payload text) RETURNS postbox.outcome
    LANGUAGE sql AS $$
        SELECT postbox.inbox_apply('reader.inbox', 'evt_' || nextval('pg_temp.event_number'), event_type, aggregate_type, aggregate_id,
                                   version, convert_to(payload, 'UTF8'), on_error => 'reject') $$;
SELECT postbox.create_projection('reader.inbox', '{named}', 'reader.person', columns => '{"name": "name"}');
SELECT postbox.create_projection('reader.inbox', '{moved}', 'reader.person', columns => '{"city": "city"}');
SELECT pg_temp.apply_of('customer', 'named', 'p', 3, '{"name": "Ada"}'), pg_temp.apply_of('address', 'moved', 'p', 1, '{"city": "Rome"}'), pg_temp.why();
SELECT pg_temp.apply_of('address', 'moved', 'p', 4, '{"city": "Rome"}'), pg_temp.apply_of('customer', 'named', 'p', 4, '{"name": "Eve"}'), pg_temp.why();
SELECT * FROM reader.person;
SELECT event_types, aggregate_types FROM postbox.projection WHERE target = 'reader.person'::regclass ORDER BY id;
SELECT pg_temp.apply_of(NULL, 'named', 'p', 3, '{"name": "Old"}');
-- with a version column for each, both are written, and each is stale by its own
CREATE TABLE reader.people (id text PRIMARY KEY, name text, city text, name_version bigint, city_version int);
SELECT postbox.create_projection('reader.inbox', '{people.named}', 'reader.people', columns => '{"name": "name"}', version_column => 'name_version');
SELECT postbox.create_projection('reader.inbox', '{people.moved}', 'reader.people', columns => '{"city": "city"}', version_column => 'city_version');
SELECT pg_temp.apply_of('customer', 'people.named', 'p', 3, '{"name": "Ada"}'), pg_temp.apply_of('address', 'people.moved', 'p', 1, '{"city": "Rome"}'),
    pg_temp.apply_of('customer', 'people.named', 'p', 2, '{"name": "Eve"}'), pg_temp.apply_of('address', 'people.moved', 'p', 1, '{"city": "Bath"}');
SELECT * FROM reader.people;
SELECT postbox.wait_for_version('reader.people', 'p', 1, '0');
-- but a key that is deleted has one version
SELECT postbox.create_projection('reader.inbox', '{people.other}', 'reader.people', columns => '{}', version_column => 'city_version', delete_types => '{people.gone}');
-- with the type in the key no row has two
CREATE TABLE reader.things (kind text, id text, note text, version bigint, PRIMARY KEY (kind, id));
SELECT postbox.create_projection('reader.inbox', '{thing}', 'reader.things', columns => '{"kind": "$aggregate_type", "id": "$aggregate_id", "note": "note"}');
SELECT pg_temp.apply_of('a', 'thing', 't', 3, '{"note": "a"}'), pg_temp.apply_of('b', 'thing', 't', 1, '{"note": "b"}'), pg_temp.apply_of('b', 'thing', 't', 1, '{"note": "c"}');
SELECT * FROM reader.things ORDER BY kind;

-- a table of one session is no target, nor is it an inbox; one that a crash empties is warned about
CREATE TEMPORARY TABLE passing (id text PRIMARY KEY, version bigint);
SELECT postbox.create_projection('reader.inbox', '{passing}', 'passing');
SELECT postbox.create_inbox('pg_temp.inbox');
CREATE UNLOGGED TABLE reader.forgotten (id text PRIMARY KEY, version bigint);
SELECT postbox.create_projection('reader.inbox', '{forgotten}', 'reader.forgotten');
SELECT inbox, kind, event_types, problem FROM postbox.inbox_problem;

DROP SCHEMA reader CASCADE;
DROP ROLE regress_postbox_owner;
