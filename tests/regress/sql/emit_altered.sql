-- An event is written without a statement where the tables of the outbox are as Postbox made them. Whatever their owner adds to
-- them, to a partition or to the version counter still has its effect, on new aggregates and on those that have events.
\set VERBOSITY terse
CREATE SCHEMA altered;
CREATE ROLE regress_postbox_app;
CREATE ROLE regress_postbox_owner;
GRANT USAGE, CREATE ON SCHEMA altered TO regress_postbox_app, regress_postbox_owner;
SET ROLE regress_postbox_owner;
SELECT postbox.create_outbox('altered.outbox');
GRANT INSERT ON altered.outbox TO regress_postbox_app;
RESET ROLE;
CREATE TABLE altered.seen (what text);
GRANT INSERT ON altered.seen TO PUBLIC;
CREATE FUNCTION altered.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO altered.seen VALUES (concat_ws(' ', TG_ARGV[0], TG_WHEN, TG_OP, TG_LEVEL, current_user));
    RETURN NEW;
END $$;
CREATE FUNCTION altered.emit(which text, OUT version bigint, OUT rows bigint, OUT seen text) LANGUAGE plpgsql AS $$
BEGIN
    SET LOCAL ROLE regress_postbox_app;
    version := (postbox.outbox_emit('video', which, 'video.changed', '{"a": 1}', outbox => 'altered.outbox')).version;
    RESET ROLE;
    rows := (SELECT count(*) FROM altered.outbox WHERE aggregate_id = which);
    seen := (SELECT string_agg(what, ', ' ORDER BY what) FROM altered.seen);
    DELETE FROM altered.seen;
END $$;
-- the partition that is written to now
SELECT altered.emit('first') IS NOT NULL AS emitted;
SELECT tableoid::regclass::text AS part FROM altered.outbox \gset

-- as it was made
SELECT * FROM altered.emit('v1');
SELECT * FROM altered.emit('v1');
SELECT version, txid IS NOT NULL AS txid, seq > 0 AS seq, aggregate_type, event_type, schema_version, convert_from(payload, 'UTF8') AS payload, attributes,
       occurred_at IS NOT NULL AS occurred_at, origin = postbox.cluster_origin() AS origin, generation BETWEEN 0 AND 5 AS generation
FROM altered.outbox WHERE aggregate_id = 'v1' ORDER BY seq;
-- each index finds it
SET enable_seqscan = off;
SELECT count(*) FROM altered.outbox o WHERE o.id = (SELECT id FROM altered.outbox WHERE aggregate_id = 'v1' AND version = 2);
SELECT count(*) FROM altered.outbox WHERE origin = postbox.cluster_origin() AND seq = (SELECT max(seq) FROM altered.outbox);
SELECT count(*) FROM altered.outbox WHERE txid = (SELECT txid FROM altered.outbox WHERE aggregate_id = 'v1' AND version = 2);
SELECT version FROM altered.outbox_version WHERE aggregate_type = 'video' AND aggregate_id = 'v1';
RESET enable_seqscan;
-- a large payload is stored out of line
SELECT version FROM postbox.outbox_emit('video', 'large', 'e', (SELECT to_json(string_agg(md5(n::text), '')) FROM generate_series(1, 10000) n)::text, outbox => 'altered.outbox');
SELECT length(payload), md5(payload) = md5((SELECT to_json(string_agg(md5(n::text), '')) FROM generate_series(1, 10000) n)::text) AS same FROM altered.outbox WHERE aggregate_id = 'large';

-- triggers: of the outbox, of a partition, of the counter
CREATE TRIGGER note AFTER INSERT ON altered.outbox EXECUTE FUNCTION altered.note('outbox');
SELECT * FROM altered.emit('v1');
DROP TRIGGER note ON altered.outbox;
CREATE TRIGGER note BEFORE INSERT ON :part FOR EACH ROW EXECUTE FUNCTION altered.note('partition');
SELECT * FROM altered.emit('v1');
DROP TRIGGER note ON :part;
CREATE TRIGGER note BEFORE INSERT OR UPDATE ON altered.outbox_version FOR EACH ROW EXECUTE FUNCTION altered.note('counter');
SELECT * FROM altered.emit('v1');
SELECT * FROM altered.emit('v2');
DROP TRIGGER note ON altered.outbox_version;
SELECT * FROM altered.emit('v2');

-- constraints, indexes on expressions, deferred ones and exclusion constraints
ALTER TABLE altered.outbox ADD CONSTRAINT no_nine CHECK (aggregate_id <> 'v9');
\set VERBOSITY sqlstate
SELECT * FROM altered.emit('v9');
\set VERBOSITY terse
SELECT * FROM altered.emit('v1');
ALTER TABLE altered.outbox DROP CONSTRAINT no_nine;
ALTER TABLE :part ADD CONSTRAINT no_nine CHECK (aggregate_id <> 'v9');
\set VERBOSITY sqlstate
SELECT * FROM altered.emit('v9');
\set VERBOSITY terse
ALTER TABLE :part DROP CONSTRAINT no_nine;
\set VERBOSITY sqlstate
SELECT * FROM altered.emit('v9');
\set VERBOSITY terse
ALTER TABLE altered.outbox_version ADD CONSTRAINT few CHECK (version < 2) NOT VALID;
\set VERBOSITY sqlstate
SELECT * FROM altered.emit('v9');
\set VERBOSITY terse
SELECT * FROM altered.emit('v10');
ALTER TABLE altered.outbox_version DROP CONSTRAINT few;
\set ECHO none
SELECT format('CREATE UNIQUE INDEX one_upper ON %s (upper(aggregate_id), version) WHERE aggregate_id LIKE ''u%%''', :'part') \gexec
\set ECHO all
SELECT * FROM altered.emit('u1');
SELECT * FROM altered.emit('U1');
UPDATE altered.outbox_version SET version = 0 WHERE aggregate_id = 'u1';
SELECT * FROM altered.emit('u1');
DROP INDEX altered.one_upper;
CREATE UNIQUE INDEX one_version ON altered.outbox_version (version) WHERE version > 6;
INSERT INTO altered.outbox_version VALUES ('video', 'w1', 6), ('video', 'w2', 6);
SELECT * FROM altered.emit('w1');
SELECT * FROM altered.emit('w2');
DROP INDEX altered.one_version;
SELECT * FROM altered.emit('w2');
CREATE INDEX more ON altered.outbox_version (version);
SELECT * FROM altered.emit('w2');
SET enable_seqscan = off;
SELECT aggregate_id FROM altered.outbox_version WHERE version = 8;
RESET enable_seqscan;
DROP INDEX altered.more;

-- a key that takes other texts for equal than the column does
CREATE COLLATION altered.any_case (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
ALTER TABLE altered.outbox_version DROP CONSTRAINT outbox_version_pkey, ALTER aggregate_id TYPE text COLLATE altered.any_case;
CREATE UNIQUE INDEX by_case ON altered.outbox_version (aggregate_type, aggregate_id COLLATE "C");
SELECT * FROM altered.emit('k1');
SELECT * FROM altered.emit('K1');
SELECT aggregate_id, version FROM altered.outbox_version WHERE aggregate_id = 'k1';
DROP INDEX altered.by_case;
ALTER TABLE altered.outbox_version ALTER aggregate_id TYPE text COLLATE "default", ADD PRIMARY KEY (aggregate_type, aggregate_id);
-- partitions of something else have its constraint, too
CREATE TABLE altered.counters (aggregate_type text NOT NULL, aggregate_id text NOT NULL, version bigint NOT NULL) PARTITION BY LIST (aggregate_type);
ALTER TABLE altered.counters ATTACH PARTITION altered.outbox_version FOR VALUES IN ('video');
\set VERBOSITY sqlstate
SELECT version FROM postbox.outbox_emit('book', 'b1', 'e', '{}', outbox => 'altered.outbox');
\set VERBOSITY terse
SELECT * FROM altered.emit('w2');
SELECT aggregate_type, count(*) > 0 AS counted FROM altered.outbox_version GROUP BY 1;
ALTER TABLE altered.counters DETACH PARTITION altered.outbox_version;
CREATE TABLE altered.logs (LIKE altered.outbox) PARTITION BY LIST (aggregate_type);
ALTER TABLE altered.logs ATTACH PARTITION altered.outbox FOR VALUES IN ('video');
\set VERBOSITY sqlstate
SELECT version FROM postbox.outbox_emit('book', 'b1', 'e', '{}', outbox => 'altered.outbox');
\set VERBOSITY terse
SELECT * FROM altered.emit('w2');
SELECT DISTINCT aggregate_type FROM altered.outbox;
ALTER TABLE altered.logs DETACH PARTITION altered.outbox;
-- a precision, which a value is rounded to, and a column that only generates
ALTER TABLE altered.outbox ALTER occurred_at TYPE timestamptz(0);
SELECT version FROM postbox.outbox_emit('video', 'p1', 'e', '{}', occurred_at => '2020-01-01 00:00:00.7+00', outbox => 'altered.outbox');
SELECT extract(second FROM occurred_at) AS second FROM altered.outbox WHERE aggregate_id = 'p1';
ALTER TABLE altered.outbox ALTER occurred_at TYPE timestamptz;
ALTER TABLE altered.outbox_version ALTER version ADD GENERATED ALWAYS AS IDENTITY;
SELECT * FROM altered.emit('w2');
ALTER TABLE altered.outbox_version ALTER version DROP IDENTITY;
-- code of the owner of the counter runs as that role, not as whoever emits
SET ROLE regress_postbox_owner;
CREATE FUNCTION altered.code(constant text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF current_user = 'regress_postbox_app' THEN RAISE WARNING 'code of the owner runs as %', current_user; END IF;
    RETURN constant;
END $$;
CREATE INDEX coded ON altered.outbox_version ((aggregate_id || altered.code('constant')));
RESET ROLE;
SELECT * FROM altered.emit('w2');
SELECT * FROM altered.emit('w5');
DROP INDEX altered.coded;
SELECT * FROM altered.emit('w5');

-- rules and row security of the counter, which hold for its owner if he says so
CREATE RULE elsewhere AS ON UPDATE TO altered.outbox_version WHERE NEW.version = 8 DO ALSO INSERT INTO altered.seen VALUES ('rule');
SELECT * FROM altered.emit('w1');
DROP RULE elsewhere ON altered.outbox_version;
ALTER TABLE altered.outbox_version ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
SELECT * FROM altered.emit('w1');
ALTER TABLE altered.outbox_version DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY;
-- rights of its owner
REVOKE UPDATE ON altered.outbox_version FROM regress_postbox_owner;
SELECT * FROM altered.emit('w1');
GRANT UPDATE ON altered.outbox_version TO regress_postbox_owner;
SELECT * FROM altered.emit('w1');
-- an UPDATE that could not be replicated
SET client_min_messages = error;
CREATE PUBLICATION counters FOR TABLE altered.outbox_version;
RESET client_min_messages;
ALTER TABLE altered.outbox_version REPLICA IDENTITY NOTHING;
SELECT * FROM altered.emit('w1');
DROP PUBLICATION counters;
SELECT * FROM altered.emit('w1');
-- other columns, and another order of the key
ALTER TABLE altered.outbox_version ADD COLUMN changed timestamptz DEFAULT now();
SELECT * FROM altered.emit('w3');
SELECT changed IS NOT NULL AS changed FROM altered.outbox_version WHERE aggregate_id = 'w3';
ALTER TABLE altered.outbox_version DROP COLUMN changed;
ALTER TABLE altered.outbox_version DROP CONSTRAINT outbox_version_pkey, ADD PRIMARY KEY (aggregate_id, aggregate_type);
SELECT * FROM altered.emit('w3');
SELECT * FROM altered.emit('w4');

-- a transaction sees what it has written, and nothing stays open: the tables can be altered in it
BEGIN;
SELECT * FROM altered.emit('t1');
SELECT * FROM altered.emit('t1');
ALTER TABLE altered.outbox ADD COLUMN more int;
SELECT * FROM altered.emit('t1');
TRUNCATE altered.outbox_version;
SELECT * FROM altered.emit('t1');
ROLLBACK;
BEGIN;
SAVEPOINT one;
SELECT * FROM altered.emit('t1');
ROLLBACK TO one;
SELECT * FROM altered.emit('t1');
COMMIT;
-- a generation without a partition, and one that was given a partition of another shape
BEGIN;
\set ECHO none
SELECT format('ALTER TABLE altered.outbox DETACH PARTITION %s', :'part') \gexec
\set ECHO all
SAVEPOINT s;
\set VERBOSITY sqlstate
SELECT * FROM altered.emit('t2');
\set VERBOSITY terse
ROLLBACK TO s;
CREATE TABLE altered.other AS SELECT * FROM altered.outbox WHERE false;
ALTER TABLE altered.other ADD COLUMN dropped int;
ALTER TABLE altered.other DROP COLUMN dropped;
ALTER TABLE altered.other ALTER COLUMN seq SET NOT NULL, ALTER txid SET NOT NULL, ALTER id SET NOT NULL, ALTER aggregate_type SET NOT NULL,
    ALTER aggregate_id SET NOT NULL, ALTER event_type SET NOT NULL, ALTER version SET NOT NULL, ALTER schema_version SET NOT NULL, ALTER payload SET NOT NULL,
    ALTER attributes SET NOT NULL, ALTER occurred_at SET NOT NULL, ALTER origin SET NOT NULL, ALTER generation SET NOT NULL, ADD CONSTRAINT outbox_version_check CHECK (version > 0);
\set ECHO none
SELECT format('ALTER TABLE altered.outbox ATTACH PARTITION altered.other FOR VALUES IN (%s)', right(:'part', 1)) \gexec
\set ECHO all
SELECT * FROM altered.emit('t2');
SELECT tableoid::regclass FROM altered.outbox WHERE aggregate_id = 't2';
ROLLBACK;

DROP SCHEMA altered CASCADE;
DROP ROLE regress_postbox_app, regress_postbox_owner;
