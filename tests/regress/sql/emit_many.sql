-- Many events of one aggregate in one transaction: their versions, and what the counter says at the end.
CREATE SCHEMA many;
SELECT postbox.create_outbox('many.outbox');
SELECT postbox.create_outbox('many.other', 'table');

-- emits that many events of an aggregate, and returns their versions
CREATE FUNCTION many.emit(id text, events int, outbox regclass DEFAULT 'many.outbox') RETURNS text LANGUAGE sql AS $$
    SELECT min(version) || ' to ' || max(version) || ', ' || count(DISTINCT version)
    FROM (SELECT (postbox.outbox_emit('video', id, 'video.updated', '{}', outbox => outbox)).version FROM generate_series(1, events)) e
$$;
-- how often this session has updated rows of a counter
CREATE FUNCTION many.updates(counter regclass) RETURNS bigint LANGUAGE sql AS 'SELECT pg_stat_get_xact_tuples_updated(counter)';

-- the row is not written once for each event
BEGIN;
SELECT many.updates('many.outbox_version') AS before \gset
SELECT many.emit('v1', 10000);
SELECT many.updates('many.outbox_version') - :before < 100 AS few;
COMMIT;
SELECT version FROM many.outbox_version WHERE aggregate_id = 'v1';
BEGIN;
SELECT many.emit('v1', 10);
COMMIT;
SELECT version FROM many.outbox_version WHERE aggregate_id = 'v1';
-- up to 32 events are counted in the row, so that it is exact
BEGIN;
SELECT many.emit('v1', 32);
SELECT version FROM many.outbox_version WHERE aggregate_id = 'v1';
ROLLBACK;
-- later it may be ahead, never behind, until the transaction ends
BEGIN;
SELECT many.emit('v1', 50);
SELECT version >= 10060 AS not_behind FROM many.outbox_version WHERE aggregate_id = 'v1';
ROLLBACK;
SELECT version FROM many.outbox_version WHERE aggregate_id = 'v1';

-- several outboxes and aggregates, in turns
BEGIN;
SELECT id, bool_and((logged).version = n) AS log, bool_and((tabled).version = n) AS "table"
FROM (SELECT id, n, postbox.outbox_emit('video', id, 'e', '{}', outbox => 'many.outbox') AS logged,
             postbox.outbox_emit('video', id, 'e', '{}', outbox => 'many.other') AS tabled
      FROM generate_series(1, 70) n, unnest('{a1,a2,a3}'::text[]) id) e GROUP BY id ORDER BY id;
COMMIT;
SELECT aggregate_id, l.version AS log, t.version AS "table"
FROM many.outbox_version l JOIN many.other_version t USING (aggregate_type, aggregate_id) ORDER BY 1;
-- aggregates that differ in what is type and what is id only
BEGIN;
SELECT count(DISTINCT (postbox.outbox_emit('ab', 'c', 'e', '{}', outbox => 'many.outbox')).version),
       count(DISTINCT (postbox.outbox_emit('a', 'bc', 'e', '{}', outbox => 'many.outbox')).version) FROM generate_series(1, 40);
COMMIT;
SELECT aggregate_type, version FROM many.outbox_version WHERE aggregate_type IN ('a', 'ab') ORDER BY 1;

-- savepoints give back what was taken since, also what was set ahead since
BEGIN;
SELECT many.emit('s1', 40);
SAVEPOINT one;
SELECT many.emit('s1', 100);
SAVEPOINT two;
SELECT many.emit('s1', 100);
ROLLBACK TO two;
SELECT many.emit('s1', 5);
RELEASE two;
SELECT many.emit('s1', 5);
ROLLBACK TO one;
SELECT many.emit('s1', 5);
SAVEPOINT three;
SELECT many.emit('s1', 5);
RELEASE three;
ROLLBACK TO one;
SELECT many.emit('s1', 1);
COMMIT;
SELECT version FROM many.outbox_version WHERE aggregate_id = 's1';
-- the first events are in a savepoint that is rolled back
BEGIN;
SAVEPOINT one;
SELECT many.emit('s2', 100);
ROLLBACK TO one;
SELECT many.emit('s2', 3);
COMMIT;
SELECT version FROM many.outbox_version WHERE aggregate_id = 's2';

-- a transaction that is rolled back has taken nothing
BEGIN;
SELECT many.emit('s2', 100);
ROLLBACK;
SELECT many.emit('s2', 1);

-- a block for each event
DO $$
DECLARE
    taken bigint;
BEGIN
    FOR i IN 1..500 LOOP
        BEGIN
            SELECT version INTO STRICT taken FROM postbox.outbox_emit('video', 'b1', 'e', '{}', outbox => 'many.outbox');
            ASSERT taken = i - (i - 1) / 5, taken;
            IF i % 5 = 0 THEN RAISE division_by_zero; END IF;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
END $$;
SELECT version FROM many.outbox_version WHERE aggregate_id = 'b1';

-- a cursor that emits, beyond a savepoint and at COMMIT
BEGIN;
DECLARE emitting NO SCROLL CURSOR WITH HOLD FOR
    SELECT (postbox.outbox_emit('video', 'c1', 'e', '{}', outbox => 'many.outbox')).version FROM generate_series(1, 100);
MOVE 50 IN emitting;
SAVEPOINT one;
MOVE 10 IN emitting;
ROLLBACK TO one;
FETCH emitting;
COMMIT;
FETCH emitting;
CLOSE emitting;
SELECT version FROM many.outbox_version WHERE aggregate_id = 'c1';

-- a deferred trigger emits at COMMIT
CREATE TABLE many.video (id text);
CREATE FUNCTION many.changed() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM postbox.outbox_emit('video', NEW.id, 'e', '{}', outbox => 'many.outbox');
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER changed AFTER INSERT ON many.video DEFERRABLE INITIALLY DEFERRED
    FOR EACH ROW EXECUTE FUNCTION many.changed();
BEGIN;
SELECT many.emit('d1', 40);
INSERT INTO many.video SELECT 'd1' FROM generate_series(1, 50);
COMMIT;
INSERT INTO many.video SELECT 'd2' FROM generate_series(1, 50);
SELECT aggregate_id, version FROM many.outbox_version WHERE aggregate_id LIKE 'd%' ORDER BY 1;

-- a procedure that commits, and rolls back
CREATE PROCEDURE many.in_parts() LANGUAGE plpgsql AS $$
BEGIN
    FOR part IN 1..4 LOOP
        PERFORM postbox.outbox_emit('video', 'p1', 'e', '{}', outbox => 'many.outbox') FROM generate_series(1, 50);
        IF part = 3 THEN ROLLBACK; ELSE COMMIT; END IF;
        ASSERT (SELECT version FROM many.outbox_version WHERE aggregate_id = 'p1') = 50 * (part - part / 3);
    END LOOP;
END $$;
CALL many.in_parts();
SELECT version FROM many.outbox_version WHERE aggregate_id = 'p1';

-- isolation levels; a transaction that is read-only at its end
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT many.emit('i1', 40);
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT many.emit('i1', 40);
SET TRANSACTION READ ONLY;
COMMIT;
SELECT version FROM many.outbox_version WHERE aggregate_id = 'i1';

-- the owner changes the row in the same transaction: what it says counts
BEGIN;
SELECT many.emit('o1', 40);
UPDATE many.outbox_version SET version = 1000 WHERE aggregate_id = 'o1';
SELECT many.emit('o1', 40);
SAVEPOINT one;
DELETE FROM many.outbox_version WHERE aggregate_id = 'o1';
SELECT many.emit('o1', 40);
ROLLBACK TO one;
SELECT many.emit('o1', 1);
COMMIT;
SELECT version FROM many.outbox_version WHERE aggregate_id = 'o1';
BEGIN;
SELECT many.emit('o2', 40);
TRUNCATE many.outbox_version;
SELECT many.emit('o2', 40);
TRUNCATE many.outbox_version;
SELECT many.emit('o2', 2);
COMMIT;
SELECT aggregate_id, version FROM many.outbox_version;
BEGIN;
SELECT many.emit('o3', 40);
ALTER TABLE many.outbox_version RENAME TO counted;
ALTER TABLE many.counted RENAME COLUMN version TO number;
ALTER TABLE many.counted RENAME COLUMN number TO version;
COMMIT;
SELECT version FROM many.counted WHERE aggregate_id = 'o3';
ALTER TABLE many.counted RENAME TO outbox_version;
BEGIN;
SELECT postbox.create_outbox('many.short');
SELECT many.emit('o4', 40, 'many.short');
SELECT postbox.drop_outbox('many.short');
COMMIT;

-- a counter whose updates do something else is written for each event
CREATE FUNCTION many.tens() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN NEW.version = OLD.version + 10; RETURN NEW; END';
CREATE TRIGGER tens BEFORE UPDATE ON many.outbox_version FOR EACH ROW EXECUTE FUNCTION many.tens();
BEGIN;
SELECT many.updates('many.outbox_version') AS before \gset
SELECT many.emit('t1', 100);
SELECT many.updates('many.outbox_version') - :before AS updates;
COMMIT;
SELECT version FROM many.outbox_version WHERE aggregate_id = 't1';
DROP TRIGGER tens ON many.outbox_version;

-- versions of the caller, which only grow, for a table outbox
BEGIN;
SELECT many.updates('many.other_version') AS before \gset
SELECT count(DISTINCT (postbox.outbox_emit('video', 'g1', 'e', '{}', version => n, outbox => 'many.other')).version) FROM generate_series(1, 2000) n;
SELECT many.updates('many.other_version') - :before < 100 AS few;
SAVEPOINT one;
SELECT version FROM postbox.outbox_emit('video', 'g1', 'e', '{}', version => 2000, outbox => 'many.other');
ROLLBACK TO one;
SELECT version FROM postbox.outbox_emit('video', 'g1', 'e', '{}', version => 1, outbox => 'many.other');
ROLLBACK TO one;
SELECT version FROM postbox.outbox_emit('video', 'g1', 'e', '{}', version => 5000, outbox => 'many.other');
SELECT version FROM postbox.outbox_emit('video', 'g1', 'e', '{}', outbox => 'many.other');
SELECT version FROM postbox.outbox_emit('video', 'g1', 'e', '{}', version => 5003, outbox => 'many.other');
COMMIT;
SELECT version FROM many.other_version WHERE aggregate_id = 'g1';

-- events that have a source
BEGIN;
SELECT many.updates('many.outbox_version') AS before \gset
SELECT count(DISTINCT (postbox.outbox_emit('video', 'f1', 'e', '{}', source_event_id => 's-' || n % 200, outbox => 'many.outbox')).version)
FROM generate_series(0, 399) n;
SELECT many.updates('many.outbox_version') - :before < 100 AS few;
COMMIT;
SELECT version FROM many.outbox_version WHERE aggregate_id = 'f1';

-- a table whose version is its seq, where the row is only locked
CREATE TABLE many.adopted (id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL,
    payload jsonb NOT NULL, occurred_at timestamptz NOT NULL DEFAULT now());
SELECT postbox.adopt_outbox('many.adopted');
SELECT many.emit('l1', 1, 'many.adopted');
BEGIN;
SELECT many.updates('many.adopted_version') AS before \gset
SELECT many.emit('l1', 1000, 'many.adopted');
SELECT many.updates('many.adopted_version') - :before < 100 AS few;
COMMIT;
SELECT aggregate_id, version FROM many.adopted_version;

-- versions end where bigint does
INSERT INTO many.outbox_version VALUES ('video', 'm1', 9223372036854775807 - 40);
BEGIN;
SELECT many.emit('m1', 40);
SELECT many.emit('m1', 1);
ROLLBACK;
SELECT many.emit('m1', 39);
SELECT version FROM many.outbox_version WHERE aggregate_id = 'm1';

-- a counter whose columns are of other types counts one by one, too
SELECT postbox.create_outbox('many.typed');
ALTER TABLE many.typed_version ALTER aggregate_id TYPE varchar(1024);
BEGIN;
SELECT many.emit('c1', 100, 'many.typed');
ALTER TABLE many.typed_version ALTER aggregate_id TYPE text;
SELECT many.emit('c1', 100, 'many.typed');
COMMIT;
CREATE COLLATION many.any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
ALTER TABLE many.typed_version ALTER aggregate_id TYPE text COLLATE many.any_case;
BEGIN;
SELECT many.emit('case', 100, 'many.typed'), many.emit('CASE', 100, 'many.typed');
COMMIT;
ALTER TABLE many.typed_version ALTER version TYPE numeric;
SELECT many.emit('c1', 100, 'many.typed');
SELECT aggregate_id, version FROM many.typed_version ORDER BY 1;

-- what the owner's code emits while the row is set ahead is counted; it may even rename the schema
SELECT postbox.create_outbox('many.inner');
CREATE FUNCTION many.emit_inside(version bigint) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('many.inside', true) = 'on' THEN
        PERFORM set_config('many.inside', 'off', true);
        ALTER SCHEMA many RENAME TO more;
        PERFORM postbox.outbox_emit('video', 'inside', 'e', '{}', outbox => 'more.inner') FROM generate_series(1, 100);
        ALTER SCHEMA more RENAME TO many;
    END IF;
    RETURN true;
END $$;
ALTER TABLE many.inner_version ADD CHECK (many.emit_inside(version));
BEGIN;
SELECT many.emit('outside', 32, 'many.inner');
SET LOCAL many.inside = on;
SELECT many.emit('outside', 100, 'many.inner');
COMMIT;
SELECT aggregate_id, version FROM many.inner_version ORDER BY 1;
-- in the expression of an index, when the row is written already
CREATE FUNCTION many.emit_same(version bigint) RETURNS bigint IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    IF current_setting('many.same', true) = 'on' THEN
        PERFORM set_config('many.same', 'off', true);
        PERFORM postbox.outbox_emit('video', 'same', 'e', '{}', outbox => 'many.inner');
    END IF;
    RETURN version;
END $$;
CREATE INDEX ON many.inner_version (many.emit_same(version));
BEGIN;
SELECT many.emit('same', 32, 'many.inner') IS NOT NULL AS emitted;
SET LOCAL many.same = on;
SELECT many.emit('same', 100, 'many.inner') IS NOT NULL AS emitted;
COMMIT;
SELECT count(*) > 132 AS inside, count(*) = count(DISTINCT version) AS once, max(version) = (SELECT version FROM many.inner_version WHERE aggregate_id = 'same') AS last
FROM many.inner WHERE aggregate_id = 'same';

-- Anything in any order, beside a counter that is a plain table: after each step they agree.
CREATE TABLE many.model (id text PRIMARY KEY, version bigint NOT NULL);
CREATE FUNCTION many.step(id text, given bigint, events int DEFAULT 1) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    counted bigint;
    taken bigint;
BEGIN
    IF given <= (SELECT m.version FROM many.model m WHERE m.id = step.id) THEN
        BEGIN
            PERFORM postbox.outbox_emit('random', id, 'e', '{}', version => given, outbox => 'many.other');
        EXCEPTION WHEN invalid_parameter_value THEN RETURN;
        END;
        RAISE EXCEPTION '%: % was not refused', id, given;
    END IF;
    UPDATE many.model m SET version = coalesce(given, m.version + events) WHERE m.id = step.id RETURNING m.version INTO counted;
    IF NOT FOUND THEN INSERT INTO many.model VALUES (id, coalesce(given, events)) RETURNING version INTO counted; END IF;
    FOR event IN 1..events LOOP
        SELECT version INTO STRICT taken FROM postbox.outbox_emit('random', id, 'e', '{}', version => given, outbox => 'many.other');
        ASSERT taken = counted - events + event, format('%s: %s instead of %s', id, taken, counted - events + event);
    END LOOP;
END $$;
CREATE FUNCTION many.wander(depth int) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    of text;
BEGIN
    FOR i IN 1..2 + random() * 14 LOOP
        of := 'r' || floor(random() ^ 2 * 4);
        IF random() < 0.15 AND depth < 5 THEN
            BEGIN
                PERFORM many.wander(depth + 1);
                IF random() < 0.4 THEN RAISE division_by_zero; END IF;
            EXCEPTION WHEN division_by_zero THEN NULL;
            END;
        ELSIF random() < 0.03 THEN
            UPDATE many.model m SET version = version + 1000 WHERE m.id = of;
            UPDATE many.other_version v SET version = m.version FROM many.model m WHERE m.id = of AND (v.aggregate_type, v.aggregate_id) = ('random', of);
        ELSIF random() < 0.015 THEN
            DELETE FROM many.model m WHERE m.id = of;
            DELETE FROM many.other_version v WHERE (v.aggregate_type, v.aggregate_id) = ('random', of);
        ELSIF random() < 0.1 THEN
            PERFORM many.step(of, (SELECT greatest(1, version + floor(random() * 60)::bigint - 9) FROM many.model m WHERE m.id = of));
        ELSE
            PERFORM many.step(of, NULL, (1 + random() ^ 8 * 60)::int);
        END IF;
    END LOOP;
END $$;
CREATE PROCEDURE many.wander_often(times int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..times LOOP
        PERFORM many.wander(1);
        IF random() < 0.2 THEN ROLLBACK; ELSE COMMIT; END IF;
        ASSERT NOT EXISTS (SELECT FROM many.model m FULL JOIN (SELECT * FROM many.other_version WHERE aggregate_type = 'random') v
            ON v.aggregate_id = m.id WHERE m.version IS DISTINCT FROM v.version), 'the counter differs';
    END LOOP;
END $$;
SELECT setseed(0.25);
CALL many.wander_often(10);
SELECT count(*) > 1000 AS emitted, count(DISTINCT aggregate_id) FROM many.other WHERE aggregate_type = 'random';

DROP SCHEMA many CASCADE;
