-- Backfills: events for the rows that a table has already.
CREATE SCHEMA shop;
SELECT postbox.create_outbox('shop.outbox');
SELECT postbox.create_outbox('shop.jobs', 'table');
CREATE TABLE shop.looked (seq bigint);
INSERT INTO shop.looked VALUES (0);
-- what was emitted since the last look
CREATE FUNCTION shop.look(OUT type text, OUT id text, OUT event text, OUT version bigint, OUT payload text, OUT attributes jsonb) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    last bigint := (SELECT l.seq FROM shop.looked l);
BEGIN
    RETURN QUERY SELECT o.aggregate_type, o.aggregate_id, o.event_type, o.version, convert_from(o.payload, 'UTF8'), o.attributes FROM shop.outbox o WHERE seq > last ORDER BY seq;
    UPDATE shop.looked l SET seq = (SELECT coalesce(max(o.seq), 0) FROM shop.outbox o);
END $$;

-- the event of a row is the one that its change trigger would emit for an update
CREATE TABLE shop.item (gone int, id int PRIMARY KEY, title text, at timestamptz, twice int GENERATED ALWAYS AS (id * 2) STORED, secret text);
ALTER TABLE shop.item DROP COLUMN gone;
INSERT INTO shop.item (id, title, at) SELECT n, 'item ' || n, '2026-01-02 03:04:05+00' FROM generate_series(1, 3) n;
SELECT postbox.create_change_triggers('shop.item', 'product', outbox => 'shop.outbox', columns => '{id,title,at,twice}', event_prefix => 'stock.product');
SELECT * FROM postbox.change_mapping('shop.item');
SELECT postbox.create_backfill('items', 'shop.item');
SELECT aggregate_type, event_type, key, columns, payload, page_key, first_key, last_key, state FROM postbox.backfill;
SET TimeZone = 'Asia/Tokyo';
SET DateStyle = 'German';
CALL postbox.run_backfill('items');
RESET TimeZone;
RESET DateStyle;
SELECT * FROM shop.look();
UPDATE shop.item SET title = 'changed' WHERE id = 2;
SELECT * FROM shop.look();
SELECT backfill, state, reason, row_count, first_key, last_key, chunk_after, chunk_upto, chunk_rows, rows_per_second > 0 AS has_rate, time_left_estimated, pid, ended_at IS NOT NULL AS ended FROM postbox.backfill_status;
-- a backfill that is done stays so, and its name is taken until it is dropped
CALL postbox.run_backfill('items');
SELECT postbox.create_backfill('items', 'shop.item');
SELECT postbox.pause_backfill('items', '');
SELECT postbox.pause_backfill('items', 'x', until => now() - interval '1 s');
SELECT postbox.pause_backfill('nosuch', 'x');
SELECT postbox.drop_backfill('items');
SELECT postbox.drop_backfill('items');

-- rows behind the bound are not emitted, the table may be empty, and rows may go
SELECT postbox.create_backfill('items', 'shop.item', event_type => 'stock.product.snapshot', columns => '{id}');
INSERT INTO shop.item (id) VALUES (0), (4);
DELETE FROM shop.item WHERE id IN (1, 3);
TRUNCATE shop.looked; INSERT INTO shop.looked SELECT max(seq) FROM shop.outbox;
CALL postbox.run_backfill('items');
SELECT * FROM shop.look();
CREATE TABLE shop.nothing (id int PRIMARY KEY);
SELECT postbox.create_backfill('nothing', 'shop.nothing', outbox => 'shop.outbox');
INSERT INTO shop.nothing VALUES (1);
CALL postbox.run_backfill('nothing');
SELECT * FROM shop.look();
SELECT postbox.drop_backfill(backfill) FROM postbox.backfill_status;

-- a chunk at a time, in the transaction of the caller
SELECT postbox.create_backfill('items', 'shop.item', columns => '{id}');
SELECT * FROM postbox.emit_backfill_chunk('items', 2, '1s', NULL);
BEGIN;
SELECT * FROM postbox.emit_backfill_chunk('items', 2, '1s', NULL);
ROLLBACK;
SELECT row_count, "position" FROM postbox.backfill;
SELECT * FROM postbox.emit_backfill_chunk('items', 2, '1s', NULL);
SELECT * FROM postbox.emit_backfill_chunk('items', 2, '1s', NULL);
SELECT * FROM postbox.emit_backfill_chunk('items', 2, '1s', NULL);
SELECT id, version FROM shop.look();
SELECT postbox.drop_backfill('items');

-- pause, resume, cancel
SELECT postbox.create_backfill('items', 'shop.item', columns => '{id}');
SELECT postbox.pause_backfill('items', 'the topic is being moved');
SELECT backfill, state, reason, paused_at IS NOT NULL AS since, paused_until FROM postbox.backfill_status;
BEGIN;
SELECT * FROM postbox.emit_backfill_chunk('items', 2, '1s', NULL);
SELECT pg_current_xact_id_if_assigned();
COMMIT;
SELECT "check", status, subject, regexp_replace(detail, 'since [^:]*:..:.. ....( ...)?', 'since ...'), remedy FROM postbox.doctor() WHERE subject IN ('items', 'backfill items');
SELECT postbox.resume_backfill('items');
SELECT postbox.resume_backfill('items');
SELECT backfill, state, reason FROM postbox.backfill_status;
SELECT "check", status, subject, regexp_replace(detail, 'since [^:]*:..:.. ....( ...)?', 'since ...'), remedy FROM postbox.doctor() WHERE subject IN ('items', 'backfill items');
SELECT postbox.create_backfill('others', 'shop.item');
SELECT postbox.create_backfill('others', 'shop.item', outbox => 'shop.jobs');
SELECT postbox.cancel_backfill('others', 'a mistake');
SELECT postbox.cancel_backfill('others');
SELECT postbox.pause_backfill('others', 'x');
SELECT postbox.resume_backfill('others');
SELECT backfill, state, reason FROM postbox.backfill_status;
CALL postbox.run_backfill('others');
SELECT postbox.cancel_backfill('items');
SELECT postbox.drop_backfill(backfill) FROM postbox.backfill_status;
SELECT * FROM shop.look();

-- keys of several columns, of any type and collation, in the order of the index
CREATE DOMAIN shop.code AS text COLLATE "C";
CREATE TYPE shop.size AS ENUM ('small', 'large', 'huge');
CREATE TABLE shop.part (size shop.size, code shop.code, day date, name varchar(10), note text, PRIMARY KEY (size, code, day) INCLUDE (note));
INSERT INTO shop.part SELECT s, c, d, 'n' FROM unnest(enum_range(NULL::shop.size)) s, unnest(ARRAY['a:b', 'B', 'it''s', E'back\\slash', '']) c, unnest(ARRAY['2026-02-01', '2025-03-01']::date[]) d;
SELECT postbox.create_backfill('parts', 'shop.part', outbox => 'shop.outbox', key => '{size,code,day}', columns => '{name}');
SET standard_conforming_strings = off;
SET DateStyle = 'SQL, DMY';
SELECT c.outcome, count(*), sum(c.row_count) FROM generate_series(1, 10) n CROSS JOIN LATERAL postbox.emit_backfill_chunk('parts', 4 + 0 * n, '1s', NULL) c GROUP BY 1 ORDER BY 1;
RESET standard_conforming_strings;
RESET DateStyle;
SELECT count(*), count(DISTINCT id), min(version), max(version) FROM shop.look();
SELECT "position", row_count FROM postbox.backfill WHERE name = 'parts';
-- an operator for a domain, where the class of its key's type is
CREATE SCHEMA kinds;
CREATE TYPE kinds.size AS ENUM ('small', 'large', 'huge');
DO $$
DECLARE
    part record;
BEGIN
    FOR part IN SELECT * FROM (VALUES ('<', 'enum_lt'), ('<=', 'enum_le'), ('=', 'enum_eq'), ('>=', 'enum_ge'), ('>', 'enum_gt')) AS o(operator, code) LOOP
        EXECUTE format('CREATE FUNCTION kinds.%1$s(kinds.size, kinds.size) RETURNS boolean LANGUAGE internal IMMUTABLE STRICT AS %1$L', part.code);
        EXECUTE format('CREATE OPERATOR kinds.%s (LEFTARG = kinds.size, RIGHTARG = kinds.size, FUNCTION = kinds.%s)', part.operator, part.code);
    END LOOP;
END $$;
CREATE FUNCTION kinds.enum_cmp(kinds.size, kinds.size) RETURNS int LANGUAGE internal IMMUTABLE STRICT AS 'enum_cmp';
CREATE OPERATOR CLASS kinds.size_ops DEFAULT FOR TYPE kinds.size USING btree AS OPERATOR 1 kinds.<, OPERATOR 2 kinds.<=, OPERATOR 3 kinds.=, OPERATOR 4 kinds.>=,
    OPERATOR 5 kinds.>, FUNCTION 1 kinds.enum_cmp(kinds.size, kinds.size);
CREATE DOMAIN kinds.label AS kinds.size;
CREATE FUNCTION kinds.steal(kinds.label, kinds.size) RETURNS boolean LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'called as %', current_user; END$$;
CREATE OPERATOR kinds.> (LEFTARG = kinds.label, RIGHTARG = kinds.size, FUNCTION = kinds.steal);
CREATE OPERATOR kinds.<= (LEFTARG = kinds.label, RIGHTARG = kinds.size, FUNCTION = kinds.steal);
CREATE TABLE shop.box (label kinds.label PRIMARY KEY);
INSERT INTO shop.box VALUES ('large'), ('small'), ('huge');
SELECT postbox.create_backfill('boxes', 'shop.box', outbox => 'shop.outbox');
SELECT c.* FROM generate_series(1, 3) n CROSS JOIN LATERAL postbox.emit_backfill_chunk('boxes', 2 + 0 * n, '1s', NULL) c;
SELECT id, payload FROM shop.look();
DROP TABLE shop.box;
SET client_min_messages = warning;
DROP SCHEMA kinds CASCADE;
RESET client_min_messages;
CREATE COLLATION shop.folded (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
CREATE TABLE shop.word (word text COLLATE shop.folded PRIMARY KEY, n int);
INSERT INTO shop.word VALUES ('b', 1), ('A', 2), ('c', 3), ('Z', 4), ('d', 5);
SELECT postbox.create_backfill('words', 'shop.word', outbox => 'shop.outbox');
SELECT c.* FROM generate_series(1, 2) n CROSS JOIN LATERAL postbox.emit_backfill_chunk('words', 2 + 0 * n, '1s', NULL) c;
CALL postbox.run_backfill('words');
SELECT id, payload FROM shop.look();
CREATE TABLE shop.mixed (id uuid, "odd "" name" "char", k bpchar(5), f float8, b bytea, i interval, PRIMARY KEY ("odd "" name", k, f, b, i));
INSERT INTO shop.mixed SELECT gen_random_uuid(), chr(64 + n)::"char", 'x', n * 0.1, convert_to(n::text, 'UTF8'), n * interval '1 month 3 h' FROM generate_series(1, 9) n;
SELECT postbox.create_backfill('mixed', 'shop.mixed', outbox => 'shop.outbox', columns => '{k}');
SET bytea_output = 'escape';
SET IntervalStyle = 'iso_8601';
SET extra_float_digits = -10;
SELECT c.* FROM generate_series(1, 6) n CROSS JOIN LATERAL postbox.emit_backfill_chunk('mixed', 2 + 0 * n, '1s', NULL) c;
RESET bytea_output;
RESET IntervalStyle;
RESET extra_float_digits;
SELECT count(*), count(DISTINCT id) FROM shop.look();

-- partitioned tables; a child table has its own rows
CREATE TABLE shop.entry (tenant int, id int, PRIMARY KEY (tenant, id)) PARTITION BY LIST (tenant);
CREATE TABLE shop.entry_1 PARTITION OF shop.entry FOR VALUES IN (1, 3);
CREATE TABLE shop.entry_2 (id int NOT NULL, gone int, tenant int NOT NULL);
ALTER TABLE shop.entry_2 DROP COLUMN gone;
ALTER TABLE shop.entry ATTACH PARTITION shop.entry_2 FOR VALUES IN (2);
INSERT INTO shop.entry SELECT t, n FROM generate_series(1, 3) t, generate_series(1, 2) n;
SELECT postbox.create_backfill('entries', 'shop.entry', outbox => 'shop.outbox');
SELECT c.* FROM generate_series(1, 3) n CROSS JOIN LATERAL postbox.emit_backfill_chunk('entries', 4 + 0 * n, '1s', NULL) c;
SELECT id, payload FROM shop.look();
CREATE TABLE shop.parent (id int PRIMARY KEY);
CREATE TABLE shop.child () INHERITS (shop.parent);
INSERT INTO shop.parent VALUES (1);
INSERT INTO shop.child VALUES (1), (2);
SELECT postbox.create_backfill('parents', 'shop.parent', outbox => 'shop.outbox');
CALL postbox.run_backfill('parents');
SELECT id, payload FROM shop.look();

-- a function makes the payload
CREATE TABLE shop.orders (id int PRIMARY KEY, customer text);
CREATE TABLE shop.line (order_id int REFERENCES shop.orders, product text);
INSERT INTO shop.orders VALUES (1, 'ann'), (2, 'bob');
INSERT INTO shop.line VALUES (1, 'tea'), (1, 'cup'), (2, 'pot');
CREATE FUNCTION shop.order_json(o shop.orders) RETURNS jsonb LANGUAGE sql STABLE
    RETURN jsonb_build_object('customer', o.customer, 'products', (SELECT jsonb_agg(l.product ORDER BY l.product) FROM shop.line l WHERE l.order_id = o.id));
SELECT postbox.create_backfill('orders', 'shop.orders', 'order', outbox => 'shop.outbox', payload => 'shop.order_json(shop.orders)');
CALL postbox.run_backfill('orders');
SELECT * FROM shop.look();
CREATE FUNCTION shop.order_text(shop.orders) RETURNS text LANGUAGE sql RETURN '{"b": 1,  "a":' || $1.id || '}';
CREATE FUNCTION shop.order_bytes(shop.orders) RETURNS bytea LANGUAGE sql RETURN '\x0001ff'::bytea;
CREATE FUNCTION shop.order_null(shop.orders) RETURNS json LANGUAGE sql RETURN CASE WHEN $1.id < 2 THEN '{}'::json END;
CREATE FUNCTION shop.order_number(shop.orders) RETURNS int LANGUAGE sql RETURN 1;
CREATE FUNCTION shop.order_wrong(shop.item) RETURNS json LANGUAGE sql RETURN '{}'::json;
SELECT postbox.drop_backfill('orders');
SELECT postbox.create_backfill('orders', 'shop.orders', 'order', outbox => 'shop.outbox', payload => 'shop.order_text(shop.orders)');
CALL postbox.run_backfill('orders');
SELECT id, payload FROM shop.look();
SELECT postbox.drop_backfill('orders');
SELECT postbox.create_backfill('orders', 'shop.orders', 'order', outbox => 'shop.outbox', payload => 'shop.order_null(shop.orders)');
CALL postbox.run_backfill('orders');
SELECT state, reason, row_count, last_error FROM postbox.backfill_status WHERE backfill = 'orders';
SELECT "check", status, subject, detail, remedy FROM postbox.doctor() WHERE subject = 'orders';
SELECT * FROM shop.look();
-- a function that was replaced by one that does not fit
DROP FUNCTION shop.order_null(shop.orders);
CREATE FUNCTION shop.order_null(shop.orders) RETURNS int LANGUAGE sql RETURN 1;
CALL postbox.run_backfill('orders');
DROP FUNCTION shop.order_null(shop.orders);
CREATE FUNCTION shop.order_null(shop.orders) RETURNS SETOF json LANGUAGE sql AS $$SELECT '{}'::json LIMIT 0$$;
CALL postbox.run_backfill('orders');
DROP FUNCTION shop.order_null(shop.orders);
CREATE FUNCTION shop.order_null(shop.orders) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    DROP FUNCTION shop.order_null(shop.orders);
    CREATE FUNCTION shop.order_null(shop.orders) RETURNS int LANGUAGE sql RETURN 1;
    RETURN '{}';
END $$;
CALL postbox.run_backfill('orders');
DROP FUNCTION shop.order_null(shop.orders);
CREATE FUNCTION shop.order_null(shop.orders) RETURNS json LANGUAGE sql RETURN '[]'::json;
CALL postbox.run_backfill('orders');
SELECT state, row_count, last_error FROM postbox.backfill_status WHERE backfill = 'orders';
SELECT id, version, payload FROM shop.look();
SELECT postbox.drop_backfill('orders');
SELECT postbox.create_backfill('orders', 'shop.orders', 'order', outbox => 'shop.jobs', payload => 'shop.order_bytes(shop.orders)');
CALL postbox.run_backfill('orders');
SELECT aggregate_id, event_type, version, payload, attributes FROM shop.jobs ORDER BY seq;
SELECT postbox.drop_backfill('orders');
SELECT postbox.create_backfill('orders', 'shop.orders', outbox => 'shop.outbox', payload => 'shop.order_number(shop.orders)');
SELECT postbox.create_backfill('orders', 'shop.orders', outbox => 'shop.outbox', payload => 'shop.order_wrong(shop.item)');
SELECT postbox.create_backfill('orders', 'shop.orders', outbox => 'shop.outbox', payload => 'shop.order_text(shop.orders)', columns => '{id}');
SELECT postbox.create_backfill('orders', 'shop.orders', outbox => 'shop.outbox', payload => 'shop.order_text(shop.orders)');
DROP FUNCTION shop.order_text(shop.orders);
CALL postbox.run_backfill('orders');
SELECT postbox.cancel_backfill('orders'), postbox.drop_backfill('orders');

-- an adopted table whose versions are seqs
CREATE TABLE shop.adopted (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb NOT NULL);
SELECT postbox.adopt_outbox('shop.adopted');
SELECT postbox.create_backfill('orders', 'shop.orders', 'order', outbox => 'shop.adopted');
CALL postbox.run_backfill('orders');
SELECT aggregateid, type, payload, attributes FROM shop.adopted ORDER BY seq;

-- what is refused
CREATE TABLE shop.keyless (id int);
CREATE TABLE shop.loose (id int PRIMARY KEY, other int);
INSERT INTO shop.loose VALUES (1);
CREATE VIEW shop.seen AS SELECT * FROM shop.item;
SELECT postbox.create_backfill('x', 'shop.keyless', outbox => 'shop.outbox');
SELECT postbox.create_backfill('x', 'shop.seen', outbox => 'shop.outbox');
SELECT postbox.create_backfill('x', 'shop.loose');
SELECT postbox.create_backfill('x', 'shop.loose', outbox => 'shop.item');
SELECT postbox.create_backfill('x', 'shop.loose', outbox => 'shop.outbox', columns => '{nosuch}');
SELECT postbox.create_backfill('x', 'shop.loose', outbox => 'shop.outbox', key => '{}');
SELECT postbox.create_backfill('x', 'shop.loose', outbox => 'shop.outbox', event_type => '');
SELECT postbox.create_backfill('', 'shop.loose', outbox => 'shop.outbox');
SELECT postbox.create_backfill(repeat('x', 201), 'shop.loose', outbox => 'shop.outbox');
SELECT postbox.create_backfill(NULL, 'shop.loose', outbox => 'shop.outbox');
SELECT postbox.create_backfill('x', NULL, outbox => 'shop.outbox');
CALL postbox.run_backfill('x');
CALL postbox.run_backfill(NULL);
SELECT postbox.create_backfill('x', 'shop.loose', outbox => 'shop.outbox', key => '{other}');
CALL postbox.run_backfill('x', max_chunk_time => '0');
CALL postbox.run_backfill('x', max_lag => '-1s');
CALL postbox.run_backfill('x', NULL);
BEGIN;
CALL postbox.run_backfill('x');
ROLLBACK;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postbox.emit_backfill_chunk('x', 10, '1s', NULL);
ROLLBACK;
SELECT postbox.emit_backfill_chunk('x', 0, '1s', NULL);
CALL postbox.run_backfill('x');
UPDATE shop.loose SET other = 7;
-- the snapshot of the transaction may be older than the triggers
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postbox.create_backfill('y', 'shop.adopted', outbox => 'shop.outbox');
ROLLBACK;
-- the levels and modes that sessions begin with
SET default_transaction_isolation = serializable;
CALL postbox.run_backfill('x');
RESET default_transaction_isolation;
SELECT id, payload FROM shop.look();
SELECT postbox.drop_backfill('x');
SELECT postbox.create_backfill('x', 'shop.loose', outbox => 'shop.outbox');
SET default_transaction_read_only = on;
CALL postbox.run_backfill('x');
RESET default_transaction_read_only;
ALTER TABLE shop.loose DROP CONSTRAINT loose_pkey, ADD PRIMARY KEY (other);
CALL postbox.run_backfill('x');
ALTER TABLE shop.loose DROP CONSTRAINT loose_pkey, ADD PRIMARY KEY (id);
ALTER TABLE shop.loose ALTER id TYPE text;
CALL postbox.run_backfill('x');
DROP TABLE shop.loose;
CALL postbox.run_backfill('x');
SELECT state, last_error FROM postbox.backfill_status WHERE backfill = 'x';
SELECT postbox.cancel_backfill('x'), postbox.drop_backfill('x');

-- it emits as the role that created it, whoever runs it
CREATE ROLE regress_reader;
CREATE ROLE regress_filler;
CREATE ROLE regress_helper IN ROLE postbox_operator;
GRANT USAGE ON SCHEMA shop TO regress_filler, regress_reader, regress_helper;
CREATE TABLE shop.secret (id int PRIMARY KEY, word text);
INSERT INTO shop.secret VALUES (1, 'one'), (2, 'two');
GRANT INSERT ON shop.outbox TO regress_filler;
SET ROLE regress_filler;
SELECT postbox.create_backfill('secrets', 'shop.secret', outbox => 'shop.outbox');
RESET ROLE;
GRANT SELECT (id), UPDATE (id) ON shop.secret TO regress_filler;
SET ROLE regress_filler;
SELECT postbox.create_backfill('secrets', 'shop.secret', outbox => 'shop.outbox');
CALL postbox.run_backfill('secrets');
SELECT postbox.cancel_backfill('secrets');
SELECT postbox.drop_backfill('secrets');
SELECT postbox.create_backfill('secrets', 'shop.secret', outbox => 'shop.outbox', columns => '{id}');
SET ROLE regress_reader;
SELECT * FROM postbox.backfill_status;
SELECT postbox.pause_backfill('secrets', 'x');
SELECT postbox.resume_backfill('secrets');
SELECT postbox.cancel_backfill('secrets');
CALL postbox.run_backfill('secrets');
SELECT postbox.emit_backfill_chunk('secrets', 1, '1s', NULL);
-- not as another role, and not by changing what a backfill is
INSERT INTO postbox.backfill (name, outbox, relation, owner, aggregate_type, event_type, key, page_key, page_types)
    VALUES ('y', 'shop.outbox', 'shop.secret', 'regress_filler', 'a', 'b', '{id}', '{id}', '{int4}');
INSERT INTO postbox.backfill (name, outbox, relation, aggregate_type, event_type, key, page_key, page_types)
    VALUES ('y', 'shop.outbox', 'shop.secret', 'a', 'b', '{id}', '{id}', '{int4}');
INSERT INTO postbox.backfill (name, outbox, relation, aggregate_type, event_type, key, page_key, page_types)
    VALUES ('y', 'pg_namespace', 'pg_class', 'a', 'b', '{id}', '{id}', '{int4}');
INSERT INTO postbox.backfill (name, outbox, relation, aggregate_type, event_type, key, page_key, page_types, position)
    VALUES ('y', 'shop.outbox', 'shop.secret', 'a', 'b', '{id}', '{id}', '{integer}', '{1,2,3}');
UPDATE postbox.backfill SET owner = 'regress_reader';
UPDATE postbox.backfill SET payload = 'f';
SET ROLE regress_helper;
UPDATE postbox.backfill SET relation = 'shop.item';
INSERT INTO postbox.backfill (name, outbox, relation, owner, aggregate_type, event_type, key, page_key, page_types)
    VALUES ('y', 'shop.outbox', 'shop.secret', 'regress_filler', 'a', 'b', '{id}', '{id}', '{int4}');
SELECT postbox.pause_backfill('secrets', 'x'), postbox.resume_backfill('secrets');
CALL postbox.run_backfill('secrets');
RESET ROLE;
SELECT id, payload FROM shop.look();
SELECT postbox.drop_backfill('secrets');
-- a row that is not written by create_backfill
GRANT SELECT, UPDATE ON shop.secret TO regress_filler;
SET ROLE regress_filler;
INSERT INTO postbox.backfill (name, outbox, relation, aggregate_type, event_type, key, page_key, page_types, last_key)
    VALUES ('y', 'shop.outbox', 'shop.secret', 'a', 'b', '{}', '{id}', '{integer}', '{3}');
INSERT INTO postbox.backfill (name, outbox, relation, aggregate_type, event_type, key, page_key, page_types, last_key)
    VALUES ('y', 'shop.outbox', 'shop.secret', 'a', 'b', '{id}', '{id}', '{integer}', '{1,2,3,4,5,6,7,8,9}');
CALL postbox.run_backfill('y');
SELECT postbox.cancel_backfill('y'), postbox.drop_backfill('y');
INSERT INTO postbox.backfill (name, outbox, relation, aggregate_type, event_type, key, page_key, page_types, last_key, columns)
    VALUES ('y', 'shop.outbox', 'shop.secret', 'a', 'b', '{id}', '{id}', '{integer}', '{3}', '{tableoid,xmin}');
CALL postbox.run_backfill('y');
SELECT postbox.cancel_backfill('y'), postbox.drop_backfill('y');
RESET ROLE;
-- the code of its creator is held back
CREATE FUNCTION shop.evil(shop.secret) RETURNS json LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        EXECUTE 'RESET ROLE';
    EXCEPTION WHEN OTHERS THEN
        RAISE NOTICE '%', SQLERRM;
    END;
    PERFORM set_config('search_path', 'evil', false);
    RETURN json_build_object('user', current_user, 'path', 'set');
END $$;
GRANT SELECT, UPDATE ON shop.secret TO regress_filler;
SET ROLE regress_filler;
SELECT postbox.create_backfill('secrets', 'shop.secret', outbox => 'shop.outbox', payload => 'shop.evil(shop.secret)');
RESET ROLE;
CALL postbox.run_backfill('secrets');
SHOW search_path;
SELECT id, payload FROM shop.look();
SELECT postbox.drop_backfill('secrets');
-- row security is not a filter
ALTER TABLE shop.secret ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON shop.secret USING (id > 1);
SET ROLE regress_filler;
SELECT postbox.create_backfill('secrets', 'shop.secret', outbox => 'shop.outbox');
RESET ROLE;
ALTER TABLE shop.secret DISABLE ROW LEVEL SECURITY;
SET ROLE regress_filler;
SELECT postbox.create_backfill('secrets', 'shop.secret', outbox => 'shop.outbox');
RESET ROLE;
ALTER TABLE shop.secret ENABLE ROW LEVEL SECURITY;
CALL postbox.run_backfill('secrets');
SELECT * FROM shop.look();

-- an outbox that is dropped takes its backfills along
SELECT postbox.drop_outbox('shop.outbox');
SELECT backfill, state FROM postbox.backfill_status;
SELECT postbox.drop_outbox('shop.jobs'), postbox.drop_outbox('shop.adopted');
SELECT count(*) FROM postbox.backfill;
SELECT c.* FROM postbox.doctor() c WHERE c.check = 'backfills';
DROP SCHEMA shop CASCADE;
DROP OWNED BY regress_filler, regress_reader, regress_helper;
DROP ROLE regress_filler, regress_reader, regress_helper;
