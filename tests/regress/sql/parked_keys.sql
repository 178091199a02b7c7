-- Parked keys: an event that fails for good is followed by its key, in order; other keys go on.
TRUNCATE postbox.projection, postbox.handler, postbox.dead_letter RESTART IDENTITY;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.seen (n int GENERATED ALWAYS AS IDENTITY, key text, version bigint);
CREATE TABLE reader.poison (key text, version bigint);
CREATE FUNCTION reader.see(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM reader.poison p WHERE p.key = event.aggregate_id AND p.version = event.version) THEN
        RAISE check_violation USING MESSAGE = format('poison %s', event.version);
    END IF;
    INSERT INTO reader.seen (key, version) VALUES (event.aggregate_id, event.version);
END $$;
SELECT postbox.create_handler('reader.inbox', '{seen}', 'reader.see(postbox.event)');
CREATE FUNCTION reader.events(key text, VARIADIC versions int[]) RETURNS postbox.event[] LANGUAGE sql AS $$
    SELECT array_agg(ROW(key || v, 'seen', 'thing', key, v, convert_to('{}', 'UTF8'), NULL, NULL)::postbox.event ORDER BY n)
    FROM unnest(versions) WITH ORDINALITY AS u(v, n) $$;
CREATE VIEW reader.letters AS SELECT aggregate_id, version, sqlstate, error, attempts, outcome, parked FROM postbox.dead_letter ORDER BY id;

-- keys may be parked only if the inbox says so
SELECT postbox.inbox_apply('reader.inbox', ROW('k1', 'seen', 'thing', 'k', 1, '{}', NULL, NULL)::postbox.event, on_error => 'park_key');
SELECT postbox.record_dead_letter('reader.inbox', ROW('k1', 'seen', 'thing', 'k', 1, '{}', NULL, NULL)::postbox.event, '22023', 'no', on_error => 'park_key');
SELECT postbox.inbox_apply('reader.inbox', ROW('k1', 'seen', 'thing', 'k', 1, '{}', NULL, NULL)::postbox.event, on_error => 'nothing');
SELECT postbox.alter_inbox('reader.inbox', park_keys => true);
SELECT park_keys, retention FROM postbox.inbox;
SELECT postbox.alter_inbox('reader.inbox', '3 days');
SELECT postbox.alter_inbox('reader.inbox', retention => '0');
SELECT park_keys, retention FROM postbox.inbox;

-- ten events of a key, the third is poison: 4 to 10 wait, in one batch or in many
INSERT INTO reader.poison VALUES ('a', 3), ('b', 3);
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('a', 1, 2, 3, 4, 5, 6) || reader.events('c', 1, 2), on_error => 'park_key');
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('a', 7, 8) || reader.events('c', 3), on_error => 'reject');
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('c', 4) || reader.events('a', 9));
SELECT postbox.inbox_apply('reader.inbox', e) FROM unnest(reader.events('a', 10)) e;
SELECT key, array_agg(version ORDER BY n) FROM reader.seen GROUP BY key ORDER BY key;
SELECT * FROM reader.letters;
-- a redelivery is a duplicate
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('a', 3, 4, 10), on_error => 'park_key');
SELECT outcome, count(*) FROM reader.inbox GROUP BY outcome ORDER BY outcome;
SELECT side, relation, aggregate_id, first_event_id, event_type, attempts, next_retry_at > now() AS later, last_error, waiting, since IS NOT NULL AS since, dead_letter IS NOT NULL AS letter
FROM postbox.paused_keys;
SELECT "check", subject, regexp_replace(detail, 'since .*;', 'since ...;') AS detail, remedy FROM postbox.doctor()
WHERE "check" IN ('paused keys', 'dead letters') AND status <> 'ok';

-- redriving the first event only, while the cause is there and after it is gone
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE version = 4;
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE version = 3;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox', dry_run => true);
SELECT * FROM postbox.redrive_dead_letters('reader.inbox', sqlstate => '22023', dry_run => true);
SELECT * FROM postbox.redrive_dead_letters('reader.inbox', max_events => 5);
SELECT attempts FROM reader.letters WHERE version = 3;
DELETE FROM reader.poison WHERE key = 'a';
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE version = 3;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox', aggregate_id => 'a', max_events => 3);
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('a', 11), on_error => 'park_key');
SELECT array_agg(version ORDER BY n) FROM reader.seen WHERE key = 'a';
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');
SELECT array_agg(version ORDER BY n) FROM reader.seen WHERE key = 'a';
SELECT count(*) FROM postbox.parked_key;
SELECT outcome, count(*) FROM reader.inbox GROUP BY outcome ORDER BY outcome;
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('a', 12), on_error => 'park_key');

-- a second poison behind the first one stops the key again
INSERT INTO reader.poison VALUES ('b', 5);
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('b', 1, 2, 3, 4, 5, 6, 7), on_error => 'park_key');
DELETE FROM reader.poison WHERE version = 3;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');
SELECT * FROM reader.letters;

-- what a puller does: a key is claimed, is due later, and is worked on; a failure of the last retry makes it wait
SELECT postbox.create_subscription('s', 'reader.inbox', 'a.b.c.d-e', on_error => 'park_key', parked_min_backoff => '1h', parked_max_backoff => '2h', parked_max_attempts => 2);
UPDATE postbox.parked_key SET next_retry_at = now(), retries = 0;
SELECT * FROM postbox.claim_parked_key('reader.inbox', true);
SELECT * FROM postbox.claim_parked_key('reader.inbox', false);
SELECT retries, next_retry_at BETWEEN now() + '29 min' AND now() + '61 min' AS later FROM postbox.parked_key;
SELECT * FROM postbox.redrive_parked_key('reader.inbox', 'b');
SELECT retries, next_retry_at < 'infinity' AS again FROM postbox.parked_key;
UPDATE postbox.parked_key SET next_retry_at = now();
SELECT aggregate_id FROM postbox.claim_parked_key('reader.inbox', false);
SELECT * FROM postbox.redrive_parked_key('reader.inbox', 'b');
SELECT retries, next_retry_at FROM postbox.parked_key;
SELECT aggregate_id FROM postbox.claim_parked_key('reader.inbox', false);
-- an error that is not the event's counts no attempt
UPDATE postbox.parked_key SET next_retry_at = now(), retries = 0;
ALTER FUNCTION reader.see(postbox.event) RENAME TO see_not;
SELECT aggregate_id FROM postbox.claim_parked_key('reader.inbox', false);
SELECT * FROM postbox.redrive_parked_key('reader.inbox', 'b');
SELECT retries, next_retry_at > now() AS later FROM postbox.parked_key;
SELECT attempts, sqlstate, error FROM reader.letters WHERE version = 5;
SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE version = 5;
ALTER FUNCTION reader.see_not(postbox.event) RENAME TO see;

-- the first of them is discarded: a handler has a hole
SELECT postbox.discard_dead_letter(id) FROM postbox.dead_letter WHERE version = 5;
SELECT postbox.discard_dead_letter(id, '') FROM postbox.dead_letter WHERE version = 5;
SELECT postbox.discard_dead_letter(id, reason => 'test') FROM postbox.dead_letter WHERE version = 5;
SELECT postbox.discard_dead_letters('reader.inbox', reason => 'test');
SELECT postbox.discard_dead_letter(id, reason => 'test', accept_hole => true) FROM postbox.dead_letter WHERE version = 5;
SELECT inbox, event_id, event_type, aggregate_type, aggregate_id, version, hole, reason, discarded_by = current_user AS by_me FROM postbox.discarded_event;
SELECT retries, next_retry_at <= clock_timestamp() AS due FROM postbox.parked_key;
SELECT outcome FROM reader.inbox WHERE version = 5 AND aggregate_id = 'b';
SELECT aggregate_id FROM postbox.claim_parked_key('reader.inbox', false);
SELECT * FROM postbox.redrive_parked_key('reader.inbox', 'b', max_events => 1);
SELECT aggregate_id FROM postbox.claim_parked_key('reader.inbox', false);
SELECT * FROM postbox.redrive_parked_key('reader.inbox', 'b');
SELECT aggregate_id FROM postbox.claim_parked_key('reader.inbox', false);
SELECT array_agg(version ORDER BY n) FROM reader.seen WHERE key = 'b';

-- projections: no hole if a later event writes the whole row, or deletes it
CREATE TABLE reader.row (id text PRIMARY KEY, title text CHECK (title <> 'bad'), note text, version bigint NOT NULL);
SELECT postbox.create_projection('reader.inbox', '{row,gone}', 'reader.row', delete_types => '{gone}');
CREATE FUNCTION reader.put(id text, type text, version bigint, payload text) RETURNS postbox.outcome LANGUAGE sql AS $$
    SELECT postbox.inbox_apply('reader.inbox', id, type, 'row', 'r', version, payload, on_error => 'park_key') $$;
SELECT reader.put('r1', 'row', 1, '{"title": "one", "note": "one"}'), reader.put('r2', 'row', 2, '{"title": "bad", "note": "two"}'), reader.put('r3', 'row', 3, '{"title": "three"}');
SELECT postbox.discard_dead_letter(id, reason => 'replaced') FROM postbox.dead_letter WHERE version = 2;
SELECT reader.put('r4', 'row', 4, '{"title": "bad", "note": "four"}');
SELECT postbox.discard_dead_letter(id, reason => 'replaced') FROM postbox.dead_letter WHERE version = 2;
SELECT postbox.discard_dead_letter(id, reason => 'replaced') FROM postbox.dead_letter WHERE version = 3;
SELECT postbox.discard_dead_letter(id, reason => 'last') FROM postbox.dead_letter WHERE version = 4;
SELECT reader.put('r5', 'gone', 5, '{}');
SELECT postbox.discard_dead_letter(id, reason => 'deleted') FROM postbox.dead_letter WHERE version = 4;
SELECT postbox.discard_dead_letters('reader.inbox', 'row', reason => 'all', accept_hole => true);
SELECT event_id, hole, reason FROM postbox.discarded_event WHERE aggregate_id = 'r' ORDER BY id;
SELECT * FROM reader.row;
SELECT count(*) FROM postbox.parked_key;

-- an event that a newer one has passed leaves its key, which goes on, and stays as a dead letter; what nothing takes is gone
SELECT reader.put('r6', 'row', 6, '{"title": "bad", "note": "six"}'), reader.put('r7', 'other', 7, '{}'), reader.put('r8', 'row', 8, '{"title": "eight"}');
UPDATE reader.row SET version = 7;
ALTER TABLE reader.row DROP CONSTRAINT row_title_check;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');
SELECT * FROM reader.row;
SELECT * FROM reader.letters;
SELECT event_type, version, outcome FROM reader.inbox WHERE version IN (6, 7, 8) AND aggregate_id = 'r' ORDER BY version;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');
SELECT * FROM postbox.redrive_dead_letters('reader.inbox', outcome => 'stale');
SELECT postbox.discard_dead_letters('reader.inbox', outcome => 'stale');

-- what can be no part of a parked key is rejected
SELECT postbox.inbox_apply('reader.inbox', ROW('n1', NULL, 'thing', NULL, 1, '{}', NULL, NULL)::postbox.event, on_error => 'park_key');
SELECT postbox.inbox_apply('reader.inbox', ROW('n2', NULL, 'thing', '', 1, '{}', NULL, NULL)::postbox.event, on_error => 'park_key');
SELECT postbox.inbox_apply('reader.inbox', ROW('n3', NULL, 'thing', repeat('x', 1025), 1, '{}', NULL, NULL)::postbox.event, on_error => 'park_key');
SELECT postbox.inbox_apply('reader.inbox', ROW('n4', NULL, 'thing', repeat('ü', 512), 1, '{}', NULL, NULL)::postbox.event, on_error => 'park_key');
SELECT postbox.record_dead_letter('reader.inbox', ROW(NULL, 'seen', 'thing', 'k', 1, '{}', NULL, NULL)::postbox.event, '22023', 'no', on_error => 'park_key');
SELECT postbox.record_dead_letter('reader.inbox', 'n5'::bytea, 'seen'::bytea, '\xff'::bytea, 'k'::bytea, 1, '\x'::bytea, '{}'::bytea, NULL, '22023', 'no'::bytea, on_error => 'park_key');
SELECT postbox.record_dead_letter('reader.inbox', 'n6'::bytea, 'seen'::bytea, 'thing'::bytea, 'k'::bytea, 1, '\x'::bytea, '{}'::bytea, NULL, '22023', 'no'::bytea, on_error => 'park_key');
SELECT postbox.record_dead_letter('reader.inbox', 'n7'::bytea, 'seen'::bytea, 'thing'::bytea, 'k'::bytea, 1, '\x'::bytea, '{}'::bytea, NULL, '22023', 'no'::bytea, on_error => 'raise');
SELECT event_id, left(aggregate_id, 3) AS key, parked, error FROM postbox.dead_letter ORDER BY id;
SELECT left(aggregate_id, 3), length(aggregate_id) FROM postbox.parked_key ORDER BY 1;

-- older snapshots do not show what is parked
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postbox.inbox_apply('reader.inbox', ROW('i1', 'seen', 'thing', 'i', 1, '{}', NULL, NULL)::postbox.event);
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');
ROLLBACK;
SELECT postbox.redrive_dead_letters('reader.inbox', max_events => 0);
SELECT postbox.redrive_dead_letters(NULL);

-- retention takes no id of a parked event
SELECT outcome, count(*), min(generation), max(generation) FROM reader.inbox GROUP BY outcome ORDER BY outcome;
DO $$
BEGIN
    FOR turn IN 1..4 LOOP
        UPDATE postbox.inbox SET generation_since = generation_since - interval '30 days', previous_since = previous_since - interval '30 days';
        PERFORM postbox.purge_inbox('reader.inbox');
    END LOOP;
END $$;
SELECT outcome, count(*), min(generation), max(generation) FROM reader.inbox GROUP BY outcome ORDER BY outcome;
-- one that cannot be moved keeps its generation from being emptied
CREATE FUNCTION reader.stay() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER stay BEFORE UPDATE ON reader.inbox FOR EACH ROW EXECUTE FUNCTION reader.stay();
UPDATE postbox.inbox SET generation_since = generation_since - interval '30 days', previous_since = previous_since - interval '30 days';
SELECT postbox.purge_inbox('reader.inbox');
UPDATE postbox.inbox SET generation_since = generation_since - interval '30 days', previous_since = previous_since - interval '30 days';
SELECT postbox.purge_inbox('reader.inbox');
SELECT outcome, count(*) FROM reader.inbox GROUP BY outcome ORDER BY outcome;
DROP FUNCTION reader.stay() CASCADE;

-- not as long as anything is parked
SELECT postbox.alter_inbox('reader.inbox', park_keys => false);
SELECT postbox.discard_dead_letters('reader.inbox', reason => 'end', accept_hole => true);
SELECT postbox.alter_inbox('reader.inbox', park_keys => false);
SELECT postbox.drop_subscription('s');
SELECT postbox.alter_inbox('reader.inbox', park_keys => false);
SELECT postbox.create_subscription('s', 'reader.inbox', 'a.b.c.d-e', on_error => 'park_key', parked_max_backoff => '1s');
SELECT postbox.create_subscription('s', 'reader.inbox', 'a.b.c.d-e', on_error => 'park_key', max_parked_keys => 0);
SELECT postbox.create_subscription('s', 'reader.inbox', 'a.b.c.d-e', on_error => 'park_key');
SELECT park_keys FROM postbox.inbox;

-- a pause is no failure of what is parked
INSERT INTO reader.poison VALUES ('p', 1);
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('p', 1, 2), on_error => 'park_key');
TRUNCATE reader.poison;
SELECT count(postbox.pause_handler(name, 'maintenance')) > 0 FROM postbox.handler WHERE inbox = 'reader.inbox'::regclass;
UPDATE postbox.parked_key SET next_retry_at = now();
SELECT aggregate_id FROM postbox.claim_parked_key('reader.inbox', false);
SELECT retries FROM postbox.parked_key;
SELECT applied, without_effect, sqlstate FROM postbox.redrive_parked_key('reader.inbox', 'p');
SELECT retries, next_retry_at > now() AS later FROM postbox.parked_key;
SELECT version, sqlstate, attempts FROM postbox.dead_letter WHERE aggregate_id = 'p' ORDER BY id;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');
SELECT postbox.redrive_parked_key('reader.inbox', 'p', max_events => 0);
SELECT count(postbox.resume_handler(name)) > 0 FROM postbox.handler WHERE inbox = 'reader.inbox'::regclass;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');

-- who may
CREATE ROLE parked_owner; CREATE ROLE parked_applier; CREATE ROLE parked_other;
GRANT USAGE, CREATE ON SCHEMA reader TO PUBLIC;
ALTER TABLE reader.inbox OWNER TO parked_owner;
GRANT ALL ON ALL TABLES IN SCHEMA reader TO parked_owner;
GRANT INSERT ON reader.inbox TO parked_applier;
INSERT INTO reader.poison VALUES ('w', 1);
SET ROLE parked_applier;
SELECT postbox.inbox_apply_batch('reader.inbox', reader.events('w', 1, 2), on_error => 'park_key');
SELECT count(*) FROM postbox.paused_keys;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');
SELECT postbox.discard_dead_letters('reader.inbox', reason => 'r', accept_hole => true);
SELECT postbox.alter_inbox('reader.inbox', park_keys => false);
SELECT aggregate_id, keys FROM postbox.claim_parked_key('reader.inbox', true);
SET ROLE parked_other;
SELECT count(*) FROM postbox.paused_keys;
SELECT count(*) FROM postbox.parked_key;
SELECT count(*) FROM postbox.discarded_event;
SELECT postbox.claim_parked_key('reader.inbox', true);
SELECT postbox.redrive_parked_key('reader.inbox', 'w');
SELECT postbox.redrive_dead_letters('reader.inbox');
SET ROLE parked_owner;
SELECT aggregate_id, waiting FROM postbox.paused_keys;
SELECT * FROM postbox.redrive_dead_letters('reader.inbox');
SELECT postbox.discard_dead_letters('reader.inbox', reason => 'r', accept_hole => true);
SELECT DISTINCT discarded_by FROM postbox.discarded_event WHERE reason = 'r';
RESET ROLE;

SELECT postbox.drop_inbox('reader.inbox');
SELECT count(*) FROM postbox.discarded_event;
DROP SCHEMA reader CASCADE;
DROP ROLE parked_owner, parked_applier, parked_other;
