-- Versions that are given to events of a log and versions that are counted, of one aggregate type: a counted version is above
-- every version that was given to its aggregate before.
CREATE SCHEMA given;
SELECT postbox.create_outbox('given.outbox'), postbox.create_outbox('given.jobs', 'table');
CREATE FUNCTION given.emit(type text, id text, version bigint DEFAULT NULL, outbox regclass DEFAULT 'given.outbox', source text DEFAULT NULL) RETURNS bigint
    LANGUAGE sql VOLATILE AS $$
    SELECT (postbox.outbox_emit(type, id, type || '.changed', '{}', version => version, outbox => outbox, source_event_id => source)).version $$;

-- given, then counted, and in turn, as in a table
SELECT o.outbox, given.emit('video', 'v1', 6, o.outbox) AS given, given.emit('video', 'v1', NULL, o.outbox) AS counted, given.emit('video', 'v1', NULL, o.outbox) AS counted,
       given.emit('video', 'v1', 20, o.outbox) AS given, given.emit('video', 'v1', NULL, o.outbox) AS counted
FROM (VALUES ('given.jobs'::regclass), ('given.outbox')) AS o(outbox);
-- a version that goes back is taken as it is, in a log, and what is counted does not go back
SELECT given.emit('video', 'v1', 3) AS given, given.emit('video', 'v1') AS counted, given.emit('video', 'v1', 3, 'given.jobs') AS refused;
SELECT given.emit('video', 'v1', 3) AS given, given.emit('video', 'v1') AS counted;
-- counted, then given, then counted
SELECT given.emit('song', 's1') AS counted, given.emit('song', 's1', 9) AS given, given.emit('song', 's1') AS counted, given.emit('song', 's2') AS another;

-- what only gets given versions has no row in the counter
SELECT count(given.emit('reading', 'r' || n % 7, n)) FROM generate_series(1, 2000) n;
SELECT count(*) FROM given.outbox_version WHERE aggregate_type = 'reading';
SELECT count(*) < 100 AS few, max(version) BETWEEN 2000 AND 2300 AS near FROM postbox.given_version WHERE outbox = 'given.outbox'::regclass AND aggregate_type = 'reading';
-- it begins above all of them when it is counted, once
SELECT given.emit('reading', 'r1') > 2000 AS above, given.emit('reading', 'new') > 2000 AS above_too, given.emit('reading', 'r2', 5) AS given,
       given.emit('reading', 'r2') > 2000 AS still_above, given.emit('reading', 'r3', 10000) AS given_again, given.emit('reading', 'r3') AS counted,
       given.emit('reading', 'r4') < 3000 AS of_no_concern;
-- another type is not concerned, even if versions are times
SELECT given.emit('clock', 'c1', 1764327000000) AS given, given.emit('watch', 'c1') AS counted, given.emit('clock', 'c2') > 1764327000000 AS above;
-- a version that leaves no room concerns its aggregate alone
SELECT given.emit('end', 'e1', 9223372036854775806) AS given, given.emit('end', 'e2') AS counted, given.emit('end', 'e1') AS counted_last;
SELECT given.emit('end', 'e1');
SELECT given.emit('end', 'e2', 9223372036854775807) AS given, given.emit('end', 'e3') AS counted;

-- what is rolled back was not given
BEGIN;
SELECT given.emit('undone', 'u1', 6);
ROLLBACK;
SELECT given.emit('undone', 'u1') AS counted;
BEGIN;
SAVEPOINT s;
SELECT given.emit('saved', 'u1', 40) AS undone;
ROLLBACK TO s;
SELECT given.emit('saved', 'u1', 5) AS given, given.emit('saved', 'u1') AS counted;
SAVEPOINT s;
SELECT given.emit('saved', 'u1', 60) AS undone, given.emit('saved', 'u1') AS undone_too;
ROLLBACK TO s;
SELECT given.emit('saved', 'u1') AS counted;
COMMIT;
-- a floor that is looked at where a savepoint is rolled back is looked at again
BEGIN;
SAVEPOINT s;
SELECT given.emit('looked', 'l1') AS undone;
ROLLBACK TO s;
SELECT given.emit('looked', 'l1', 12) AS given, given.emit('looked', 'l1') AS counted;
COMMIT;

-- many in one transaction, where versions are counted in memory
DO $$
DECLARE
    last bigint := 0;
    given bigint;
    counted bigint;
BEGIN
    FOR n IN 1 .. 300 LOOP
        IF n % 37 = 0 THEN
            given := CASE WHEN n % 2 = 0 THEN last + 5 ELSE 1 END;
            PERFORM given.emit('many', 'm1', given);
            last := greatest(last, given);
        ELSE
            counted := given.emit('many', 'm1');
            IF counted <> last + 1 THEN
                RAISE 'counted % after %', counted, last;
            END IF;
            last := counted;
        END IF;
    END LOOP;
    RAISE NOTICE 'the last is %', last;
END
$$;
SELECT version, given.emit('many', 'm1') AS next FROM given.outbox_version WHERE aggregate_type = 'many';

-- events with a source, and with an id of their own
SELECT given.emit('source', 's1', 30, source => 'a') AS given, given.emit('source', 's1', 31, source => 'a') AS stored, given.emit('source', 's1') AS counted;
SELECT given.emit('source', 's2', 30) AS given, given.emit('source', 's2', source => 'b') AS counted, given.emit('source', 's2', source => 'b') AS stored;
SELECT (postbox.outbox_emit('id', 'i1', 'x', '{}', version => 8, event_id => '550e8400-e29b-41d4-a716-446655440000', outbox => 'given.outbox')).version AS given, given.emit('id', 'i1') AS counted;

-- change triggers count
CREATE TABLE given.item (id text PRIMARY KEY, n int);
SELECT postbox.create_change_triggers('given.item', outbox => 'given.outbox');
SELECT given.emit('item', 'i1', 4) AS given;
INSERT INTO given.item VALUES ('i1', 1), ('i2', 1);
SELECT given.emit('item', 'i1', 11) AS given;
UPDATE given.item SET n = n + 1;
SELECT aggregate_id, version FROM given.outbox WHERE aggregate_type = 'item' ORDER BY seq;

-- an emitter needs no right but INSERT, and cannot write what is remembered
CREATE ROLE regress_giver;
GRANT USAGE ON SCHEMA given TO regress_giver;
GRANT INSERT ON given.outbox TO regress_giver;
SET ROLE regress_giver;
SELECT given.emit('granted', 'g1', 6) AS given, given.emit('granted', 'g1') AS counted, given.emit('granted', 'g1', 9) AS given, given.emit('granted', 'g1') AS counted;
DELETE FROM postbox.given_version;
RESET ROLE;

-- a counter that is not as Postbox made it
CREATE FUNCTION given.nothing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE TRIGGER nothing BEFORE INSERT OR UPDATE ON given.outbox_version FOR EACH ROW EXECUTE FUNCTION given.nothing();
SELECT given.emit('altered', 'a1', 6) AS given, given.emit('altered', 'a1') AS counted;
ALTER TABLE given.outbox_version DISABLE TRIGGER nothing;
SELECT given.emit('altered', 'a2', 6) AS given, given.emit('altered', 'a2') AS counted;
-- and one that was emptied: it counts from the beginning, but not below what was given
SELECT given.emit('kept', 'k1', 6) AS given;
TRUNCATE given.outbox_version;
SELECT given.emit('video', 'v1', 2) AS given, given.emit('kept', 'k1') AS counted, given.emit('song', 's1') AS counted_from_1;

-- a counter that was lost is put back above what was given
SELECT count(given.emit('lost', 'l' || n % 3, n)) FROM generate_series(1, 100) n;
DELETE FROM given.outbox WHERE version > 90;
DROP TABLE given.outbox_version;
SET client_min_messages = warning;
SELECT count(*) FROM postbox.repair_outbox('given.outbox', dry_run => false);
RESET client_min_messages;
SELECT given.emit('lost', 'l1') > 100 AS counted, given.emit('lost', 'l2', 95) AS given, given.emit('lost', 'l2') > 100 AS counted_too;

-- what is remembered goes with the outbox
DROP FUNCTION given.emit;
SELECT postbox.drop_outbox('given.outbox');
SELECT count(*) FROM postbox.given_version;
SELECT postbox.create_outbox('given.outbox');
SELECT version AS counted FROM postbox.outbox_emit('kept', 'k1', 'x', '{}', outbox => 'given.outbox');
SET client_min_messages = warning;
DROP SCHEMA given CASCADE;
DROP ROLE regress_giver;
