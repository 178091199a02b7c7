-- Dead letters: what is kept, who sees it, and how an event is applied after all.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{video}', 'reader.video');
SET timezone = 'UTC';

-- everything of the event is kept, byte for byte
SELECT postbox.inbox_apply('reader.inbox', 'evt_1', 'video', 'movie', 'v1', 1, '\x7b0aff7d'::bytea, '{"trace_id": "t"}', '2025-10-24 10:30:00+00', on_error => 'reject');
\x
SELECT id, inbox, event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, occurred_at, sqlstate, error,
       failed_at = (SELECT received_at FROM reader.inbox) AS at_once, attempts FROM postbox.dead_letter;
\x

-- redriving: fails again, goes through, is gone
SELECT postbox.redrive_dead_letter(1);
SELECT id, sqlstate, attempts FROM postbox.dead_letter;
SELECT postbox.inbox_apply('reader.inbox', 'evt_2', 'video', 'movie', 'v1', 1, '{"name": "t"}', on_error => 'reject');
ALTER TABLE reader.video ALTER COLUMN title DROP NOT NULL;
SELECT postbox.redrive_dead_letter(2);
SELECT * FROM reader.video;
SELECT id FROM postbox.dead_letter;
SELECT outcome FROM reader.inbox ORDER BY received_at;
SELECT postbox.redrive_dead_letter(2);
SELECT postbox.redrive_dead_letter(NULL);
SELECT postbox.inbox_apply('reader.inbox', 'evt_2', 'video', 'movie', 'v1', 1, '{"name": "t"}', on_error => 'reject');

-- the outcomes of redriving are those of applying
ALTER TABLE reader.video ALTER COLUMN title SET DEFAULT 'none';
SELECT postbox.record_dead_letter('reader.inbox', ROW('evt_3', 'video', 'movie', 'v1', 1, '{}', NULL, NULL)::postbox.event, '22023', 'given up', 5);
SELECT postbox.redrive_dead_letter(3);
SELECT postbox.record_dead_letter('reader.inbox', ROW('evt_4', 'other', 'movie', 'v1', 1, '{}', NULL, NULL)::postbox.event, '22023', 'given up');
SELECT postbox.redrive_dead_letter(4);
-- after the inbox forgot the event
DELETE FROM reader.inbox WHERE outcome = 'rejected';
SELECT postbox.redrive_dead_letter(1);
UPDATE postbox.dead_letter SET payload = '{"title": "repaired"}', version = 2 WHERE id = 1;
SELECT postbox.redrive_dead_letter(1);
SELECT * FROM reader.video;
SELECT count(*) FROM postbox.dead_letter;

-- one that has no effect any more stays, with that outcome: it may hold what no other event has
SELECT id, event_id, outcome FROM postbox.dead_letter ORDER BY id;
CREATE TABLE reader.late (id text PRIMARY KEY, title text, note text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{late}', 'reader.late');
SELECT postbox.inbox_apply('reader.inbox', 'late_1', 'late', 'movie', 'l', 1, '{"title": 1, "note": "only here", "version": []', on_error => 'reject');
SELECT postbox.inbox_apply('reader.inbox', 'late_2', 'late', 'movie', 'l', 2, '{"title": "two"}');
UPDATE postbox.dead_letter SET payload = '{"title": "one", "note": "only here"}' WHERE event_id = 'late_1';
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE event_id = 'late_1';
SELECT event_id, convert_from(payload, 'UTF8'), outcome, sqlstate, attempts FROM postbox.dead_letter WHERE event_id = 'late_1';
SELECT * FROM reader.late;
-- a redelivery is a duplicate, and it can be redriven once more
SELECT postbox.inbox_apply('reader.inbox', 'late_1', 'late', 'movie', 'l', 1, '{"title": "one", "note": "only here"}');
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE event_id = 'late_1';
DELETE FROM reader.late;
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE event_id = 'late_1';
SELECT * FROM reader.late;
SELECT count(*) FROM postbox.dead_letter WHERE event_id = 'late_1';
-- a new failure takes the place of the outcome; what was applied meanwhile is a duplicate
SELECT postbox.record_dead_letter('reader.inbox', ROW('late_3', 'nothing', 'movie', 'l', 3, '{}', NULL, NULL)::postbox.event, '22023', 'given up');
SELECT id AS late FROM postbox.dead_letter WHERE event_id = 'late_3' \gset
SELECT postbox.redrive_dead_letter(:late);
SELECT outcome, error FROM postbox.dead_letter WHERE id = :late;
SELECT postbox.create_projection('reader.inbox', '{nothing}', 'reader.late', columns => '{"title": "title"}');
UPDATE postbox.dead_letter SET payload = 'no JSON' WHERE id = :late;
SELECT postbox.redrive_dead_letter(:late);
SELECT outcome, sqlstate FROM postbox.dead_letter WHERE id = :late;
DELETE FROM reader.inbox WHERE aggregate_id = 'l' AND version = 3;
SELECT postbox.inbox_apply('reader.inbox', 'late_3', 'nothing', 'movie', 'l', 3, '{"title": "three"}');
SELECT postbox.redrive_dead_letter(:late);
SELECT outcome FROM postbox.dead_letter WHERE id = :late;
SELECT postbox.discard_dead_letter(:late);
SELECT postbox.discard_dead_letters(outcome => 'ignored');

-- record_dead_letter: what a consumer gives up
SELECT postbox.record_dead_letter('reader.inbox', ROW('evt_5', 'video', 'movie', 'v5', 1, '\x00', '{}', NULL)::postbox.event, '22021', 'bad bytes', 5);
SELECT postbox.record_dead_letter('reader.inbox', ROW('evt_5', 'video', 'movie', 'v5', 1, '\x00', '{}', NULL)::postbox.event, '22021', 'bad bytes', 5);
SELECT postbox.inbox_apply('reader.inbox', 'evt_5', 'video', 'movie', 'v5', 1, '{"title": "x"}');
SELECT postbox.record_dead_letter('reader.inbox', ROW('evt_2', 'video', 'movie', 'v1', 1, '{}', '{}', NULL)::postbox.event, '22023', 'was applied before');
-- a message without an event_id is recorded, and cannot be applied
SELECT postbox.record_dead_letter('reader.inbox', ROW(NULL, NULL, NULL, NULL, NULL, '\x01', '{}', NULL)::postbox.event, '22004', 'no event_id', 1);
SELECT event_id, payload, sqlstate, error, attempts FROM postbox.dead_letter ORDER BY id;
SELECT postbox.redrive_dead_letter(max(id)) FROM postbox.dead_letter;
SELECT postbox.record_dead_letter(NULL, ROW('e', NULL, NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event, 'x', 'x');
SELECT postbox.record_dead_letter('reader.inbox', NULL, 'x', 'x');
SELECT postbox.record_dead_letter('reader.inbox', ROW('e', NULL, NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event, NULL, 'x');
SELECT postbox.record_dead_letter('reader.inbox', ROW('e', NULL, NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event, 'x', NULL);
SELECT postbox.record_dead_letter('reader.inbox', ROW('e', NULL, NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event, 'x', 'x', 0);
SELECT postbox.record_dead_letter('reader.video', ROW('e', NULL, NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event, 'x', 'x');

-- who sees and removes them: the inbox's owner
SELECT id AS evt_5 FROM postbox.dead_letter WHERE event_id = 'evt_5' \gset
CREATE ROLE regress_postbox_owner;
CREATE ROLE regress_postbox_other;
GRANT USAGE, CREATE ON SCHEMA reader TO regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_inbox('reader.mine');
SELECT postbox.record_dead_letter('reader.mine', ROW('mine', 'x', NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event, '22023', 'mine');
SELECT event_id FROM postbox.dead_letter;
UPDATE postbox.dead_letter SET error = 'changed';
DELETE FROM postbox.dead_letter WHERE event_id IS DISTINCT FROM 'mine';
-- who may DELETE may lock the table, and hold up everybody's dead letters
BEGIN;
LOCK TABLE postbox.dead_letter IN ACCESS EXCLUSIVE MODE;
ROLLBACK;
SELECT postbox.discard_dead_letter(1);
SELECT postbox.redrive_dead_letter(:evt_5);
RESET ROLE;
SET ROLE regress_postbox_other;
SELECT event_id FROM postbox.dead_letter;
SELECT postbox.discard_dead_letter(id) FROM generate_series(1, 10) id;
SELECT postbox.record_dead_letter((SELECT inbox FROM postbox.dead_letter LIMIT 1), ROW('e', NULL, NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event, 'x', 'x');
RESET ROLE;
SELECT 'reader.inbox'::regclass::oid AS inbox \gset
SET ROLE regress_postbox_other;
SELECT postbox.record_dead_letter(:inbox, ROW('e', NULL, NULL, NULL, NULL, NULL, NULL, NULL)::postbox.event, 'x', 'x');
RESET ROLE;
SELECT count(*) FROM postbox.dead_letter;
SET ROLE regress_postbox_owner;
SELECT event_id, postbox.discard_dead_letter(id) FROM postbox.dead_letter;
SELECT postbox.discard_dead_letter(NULL);
RESET ROLE;
SELECT event_id FROM postbox.dead_letter ORDER BY id;

-- many at once: those that match every argument
SELECT postbox.record_dead_letter('reader.inbox', ROW('many_' || n, CASE n % 2 WHEN 0 THEN 'even' ELSE 'odd' END, 'person', 'p' || n % 3, 1, '{}', NULL, NULL)::postbox.event,
    CASE n WHEN 1 THEN '23505' ELSE '22023' END, 'given up') FROM generate_series(1, 12) n;
SELECT postbox.discard_dead_letters('reader.inbox', 'person', 'p1', event_type => 'odd', sqlstate => '23505');
SELECT postbox.discard_dead_letters(failed_before => now() - interval '1 hour'), postbox.discard_dead_letters(outcome => 'stale'), postbox.discard_dead_letters('reader.mine', 'person');
SELECT postbox.discard_dead_letters(aggregate_type => 'person', aggregate_id => 'p0');
SELECT event_id FROM postbox.dead_letter WHERE event_id LIKE 'many%' ORDER BY id;
SET ROLE regress_postbox_owner;
SELECT postbox.discard_dead_letters('reader.inbox');
SELECT postbox.record_dead_letter('reader.mine', ROW('m', 'even', 'person', 'p1', 1, '{}', NULL, NULL)::postbox.event, '22023', 'given up');
SET row_security = off;
SELECT postbox.discard_dead_letters(aggregate_type => 'person');
RESET row_security;
RESET ROLE;
SELECT postbox.discard_dead_letters('reader.inbox', failed_before => now() + interval '1 hour', aggregate_type => 'person');
SELECT postbox.discard_dead_letters();
SELECT postbox.discard_dead_letters(NULL);

DROP SCHEMA reader CASCADE;
SELECT count(*) FROM postbox.dead_letter;
DROP ROLE regress_postbox_owner, regress_postbox_other;
