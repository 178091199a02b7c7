-- Triggers that emit what changes in a table: an event for each row, called once a statement.
CREATE SCHEMA shop;
SELECT postbox.create_outbox('shop.outbox');
-- what was emitted since the last look
CREATE TABLE shop.looked (seq bigint);
INSERT INTO shop.looked VALUES (0);
CREATE FUNCTION shop.look(OUT type text, OUT id text, OUT event text, OUT version bigint, OUT payload text, OUT attributes jsonb) RETURNS SETOF record LANGUAGE plpgsql AS $$
DECLARE
    last bigint := (SELECT l.seq FROM shop.looked l);
BEGIN
    RETURN QUERY SELECT o.aggregate_type, o.aggregate_id, o.event_type, o.version, convert_from(o.payload, 'UTF8'), nullif(o.attributes, '{}') FROM shop.outbox o WHERE seq > last ORDER BY seq;
    UPDATE shop.looked l SET seq = (SELECT coalesce(max(o.seq), 0) FROM shop.outbox o);
END $$;

CREATE TABLE shop.item (id int PRIMARY KEY DEFERRABLE, gone int, title text, price numeric(10, 2), secret text, twice numeric GENERATED ALWAYS AS (price * 2) STORED);
ALTER TABLE shop.item DROP COLUMN gone;
SELECT postbox.create_change_triggers('shop.item');
SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger WHERE tgrelid = 'shop.item'::regclass AND NOT tgisinternal ORDER BY tgname;

-- created, updated and deleted, in the order of the rows, with versions counted by the outbox
INSERT INTO shop.item VALUES (1, 'one', 1.5, NULL), (2, 'two "2"', NULL, 's');
SELECT * FROM shop.look();
UPDATE shop.item SET title = title || '!';
SELECT * FROM shop.look();
DELETE FROM shop.item WHERE id = 1;
INSERT INTO shop.item VALUES (1, 'again', 1);
SELECT * FROM shop.look();
COPY shop.item (id, title) FROM stdin;
5	five
6	six\tand
\.
SELECT * FROM shop.look();
-- no row, no event; nor for a row that stays as it is
INSERT INTO shop.item SELECT id FROM shop.item WHERE false;
UPDATE shop.item SET title = title, price = price WHERE id > 2;
UPDATE shop.item SET title = upper(title) WHERE id IN (5, 6) AND title = 'five';
DELETE FROM shop.item WHERE id > 100;
SELECT * FROM shop.look();
-- another key: the old one is deleted and the new one created
UPDATE shop.item SET id = 7, title = 'seven' WHERE id = 6;
SELECT * FROM shop.look();
-- keys that are exchanged, or handed on, stay and are updated
UPDATE shop.item SET id = 3 - id WHERE id IN (1, 2);
SELECT * FROM shop.look();
UPDATE shop.item SET id = id + 1 WHERE id IN (1, 2);
SELECT * FROM shop.look();
-- one statement does several kinds
CREATE TABLE shop.stock (sku text, lot text, amount int, PRIMARY KEY (sku, lot));
SELECT postbox.create_change_triggers('shop.stock', 'stock');
INSERT INTO shop.stock VALUES ('a', '1', 1), ('b', '1', 2);
INSERT INTO shop.stock VALUES ('a', '1', 5), ('c', '1', 3), ('b', '1', 2) ON CONFLICT (sku, lot) DO UPDATE SET amount = EXCLUDED.amount;
SELECT * FROM shop.look();
SELECT current_setting('server_version_num')::int >= 150000 AS has_merge \gset
\if :has_merge
MERGE INTO shop.stock s USING (VALUES ('a', '1', 6), ('b', '1', NULL), ('d', '1', 4)) AS n(sku, lot, amount) ON s.sku = n.sku AND s.lot = n.lot
    WHEN MATCHED AND n.amount IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET amount = n.amount WHEN NOT MATCHED THEN INSERT VALUES (n.sku, n.lot, n.amount);
\else
WITH gone AS (DELETE FROM shop.stock WHERE sku = 'b' AND lot = '1')
    INSERT INTO shop.stock VALUES ('a', '1', 6), ('d', '1', 4) ON CONFLICT (sku, lot) DO UPDATE SET amount = EXCLUDED.amount;
\endif
SELECT * FROM shop.look() ORDER BY event, id;
WITH moved AS (DELETE FROM shop.stock WHERE sku = 'c' RETURNING *) INSERT INTO shop.stock SELECT 'e', lot, amount FROM moved;
SELECT * FROM shop.look() ORDER BY event, id;
-- keys of several columns never read the same
INSERT INTO shop.stock VALUES ('x:y', 'z'), ('x', 'y:z'), ('x\', ':'), ('x\:', '');
SELECT id, version FROM shop.look();
-- one who changes a row twice in a statement is refused by PostgreSQL, and emits nothing
INSERT INTO shop.stock VALUES ('f', '1', 1), ('f', '1', 2) ON CONFLICT (sku, lot) DO UPDATE SET amount = 0;
SELECT count(*) FROM shop.look();

-- what is rolled back was not emitted, and versions are given again
BEGIN;
INSERT INTO shop.stock VALUES ('s', '1', 1);
SAVEPOINT one;
UPDATE shop.stock SET amount = 2 WHERE sku = 's';
ROLLBACK TO one;
UPDATE shop.stock SET amount = 3 WHERE sku = 's';
DO $$ BEGIN UPDATE shop.stock SET amount = 4 WHERE sku = 's'; RAISE division_by_zero; EXCEPTION WHEN division_by_zero THEN NULL; END $$;
UPDATE shop.stock SET amount = 5 WHERE sku = 's';
COMMIT;
SELECT id, event, version, payload FROM shop.look();
-- a statement and outbox_emit count the same versions
BEGIN;
SELECT version FROM postbox.outbox_emit('stock', 's:1', 'stock.counted', '{}');
UPDATE shop.stock SET amount = 6 WHERE sku = 's';
SELECT version FROM postbox.outbox_emit('stock', 's:1', 'stock.counted', '{}');
COMMIT;
SELECT id, event, version FROM shop.look();

-- columns, key, type and prefix are what the arguments say; what is not in the payload does not count as a change
SELECT postbox.create_change_triggers('shop.item');
SELECT postbox.drop_change_triggers('shop.item');
SELECT postbox.drop_change_triggers('shop.item');
SELECT postbox.create_change_triggers('shop.item', 'Ware', key => ARRAY['title'], columns => ARRAY['twice', 'id'], event_prefix => 'shop.ware');
INSERT INTO shop.item VALUES (30, 'thirty', 30, 'secret');
UPDATE shop.item SET secret = 'other' WHERE id = 30;
UPDATE shop.item SET price = 31 WHERE id = 30;
DELETE FROM shop.item WHERE id = 30;
SELECT * FROM shop.look();
-- a key that is null or empty
INSERT INTO shop.item VALUES (31, NULL);
INSERT INTO shop.item VALUES (31, '');
UPDATE shop.item SET title = NULL WHERE id = 5;
ALTER TABLE shop.item DISABLE TRIGGER postbox_created;
INSERT INTO shop.item VALUES (31, NULL);
ALTER TABLE shop.item ENABLE TRIGGER postbox_created;
-- a row without a key is older than the triggers: nobody knows of it
UPDATE shop.item SET title = 'thirty-one' WHERE id = 31;
SELECT id, event, version FROM shop.look();
UPDATE shop.item SET price = 1 WHERE false;
SELECT postbox.drop_change_triggers('shop.item');

-- values read the same whatever the session's settings are
CREATE TABLE shop.day (day date, at timestamptz, span interval, bytes bytea, number float8, class regclass, PRIMARY KEY (day, at));
SELECT postbox.create_change_triggers('shop.day');
SET datestyle = 'German'; SET timezone = 'Asia/Tokyo'; SET intervalstyle = 'iso_8601'; SET bytea_output = 'escape'; SET extra_float_digits = -5; SET search_path = shop;
INSERT INTO day VALUES ('2024-02-01', '2024-02-01 09:00+09', '1 day 2 hours', '\x00ff', 0.1::float8 + 0.2, 'shop.item');
RESET datestyle; RESET timezone; RESET intervalstyle; RESET bytea_output; RESET extra_float_digits; RESET search_path;
UPDATE shop.day SET span = '1 day 3 hours';
SELECT id, version, payload FROM shop.look();
-- the context settings are in the attributes
SET postbox.correlation_id = 'c1'; SET postbox.user_id = 'u1';
DELETE FROM shop.day;
RESET postbox.correlation_id; RESET postbox.user_id;
SELECT event, attributes FROM shop.look();

-- a statement with more rows than a batch and than work_mem: keys in their order, and the rows that move
CREATE TABLE shop.many (id int PRIMARY KEY DEFERRABLE, padding text);
SELECT postbox.create_change_triggers('shop.many');
SET work_mem = '64kB';
INSERT INTO shop.many SELECT n, repeat('x', 100) FROM generate_series(1, 2500) n;
UPDATE shop.many SET padding = repeat('y', 100);
UPDATE shop.many SET id = id + 1250;
UPDATE shop.many SET padding = repeat('z', n) FROM generate_series(0, 0) n WHERE id % 2 = 0;
DELETE FROM shop.many WHERE id > 2500;
RESET work_mem;
SELECT event, version, count(*), min(id::int), max(id::int), bool_and(payload::jsonb ->> 'id' = id) AS with_its_row FROM shop.look() GROUP BY 1, 2 ORDER BY 1, 2;
SELECT count(*), sum(version) FROM shop.outbox_version WHERE aggregate_type = 'many';
DROP TABLE shop.many;

-- many rows with one key in a statement: each has a version of its own, in the order of the rows, whatever else has counted the key
CREATE TABLE shop.line (cart text, number int);
SELECT postbox.create_change_triggers('shop.line', key => ARRAY['cart']);
CREATE FUNCTION shop.look_at_lines(OUT cart text, OUT events bigint, OUT versions text, OUT in_order bool) RETURNS SETOF record LANGUAGE sql AS $$
    SELECT id, count(*), min(version) || '-' || max(version), bool_and(place = version - first + 1 AND place = coalesce((payload::jsonb ->> 'number')::int, place))
    FROM (SELECT *, row_number() OVER (PARTITION BY id) AS place, min(version) OVER (PARTITION BY id) AS first FROM shop.look()) e GROUP BY 1 ORDER BY 1 $$;
INSERT INTO shop.line SELECT cart, n FROM generate_series(1, 700) n, unnest('{a, b, "c one", "c one with the same beginning"}'::text[]) cart;
SELECT * FROM shop.look_at_lines();
BEGIN;
SELECT max((postbox.outbox_emit('line', 'b', 'line.counted', '{}')).version) FROM generate_series(1, 100);
INSERT INTO shop.line SELECT cart, n FROM generate_series(101, 140) n, unnest('{d, b, a}'::text[]) cart;
SAVEPOINT one;
INSERT INTO shop.line SELECT cart, n FROM generate_series(141, 240) n, unnest('{d, b, a}'::text[]) cart;
ROLLBACK TO one;
INSERT INTO shop.line SELECT cart, n FROM generate_series(141, 150) n, unnest('{e, d, b, a}'::text[]) cart;
SELECT version FROM postbox.outbox_emit('line', 'd', 'line.counted', '{}');
COMMIT;
SELECT cart, events, versions FROM shop.look_at_lines();
SELECT aggregate_id, version FROM shop.outbox_version WHERE aggregate_type = 'line' ORDER BY aggregate_id COLLATE "C";
-- versions that were given to the type before are below
DO $$ BEGIN PERFORM postbox.outbox_emit('given', 'x', 'given', '{}', version => 1000); END $$;
SELECT postbox.drop_change_triggers('shop.line');
SELECT postbox.create_change_triggers('shop.line', 'given', key => ARRAY['cart']);
INSERT INTO shop.line VALUES ('x', 1), ('y', 1), ('x', 2);
SELECT id, bool_and(version > 1000), max(version) - min(version) AS apart FROM shop.look() WHERE event = 'given.created' GROUP BY 1 ORDER BY 1;
-- a key whose versions have an end fails the statement
UPDATE shop.outbox_version SET version = 9223372036854775806 WHERE aggregate_type = 'given' AND aggregate_id = 'x';
INSERT INTO shop.line VALUES ('x', 3), ('z', 1), ('x', 4);
INSERT INTO shop.line VALUES ('x', 3), ('z', 1);
SELECT id, version FROM shop.look() WHERE id = 'x';
DROP TABLE shop.line;

-- partitions: rows in the shape of the table that was named, whatever that of the partition; moves between partitions
CREATE TABLE shop.part (id int, area int, title text, PRIMARY KEY (id, area)) PARTITION BY LIST (area);
CREATE TABLE shop.part_1 PARTITION OF shop.part FOR VALUES IN (1);
CREATE TABLE shop.part_2 (title text, extra int, area int NOT NULL, id int NOT NULL);
ALTER TABLE shop.part_2 DROP COLUMN extra;
ALTER TABLE shop.part ATTACH PARTITION shop.part_2 FOR VALUES IN (2);
SELECT postbox.create_change_triggers('shop.part', key => ARRAY['id']);
INSERT INTO shop.part VALUES (1, 1, 'a'), (2, 2, 'b');
UPDATE shop.part SET area = 3 - area;
SELECT id, event, version, payload FROM shop.look();
-- a row that the other partition does not take is gone
CREATE FUNCTION shop.keep_out() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER keep_out BEFORE INSERT ON shop.part_1 FOR EACH ROW EXECUTE FUNCTION shop.keep_out();
INSERT INTO shop.part VALUES (3, 2, 'c'), (4, 2, 'd');
UPDATE shop.part SET title = upper(title), area = CASE id WHEN 3 THEN 1 ELSE area END;
SELECT id, event, version, payload FROM shop.look();
SELECT id, area FROM shop.part ORDER BY id;
-- written to by its own name, a partition has its own triggers only
INSERT INTO shop.part_2 (id, area) VALUES (9, 2);
SELECT count(*) FROM shop.look();
DROP TABLE shop.part;

-- children of a table: in its shape, when it is named
CREATE TABLE shop.parent (id int PRIMARY KEY, title text);
CREATE TABLE shop.child (more int) INHERITS (shop.parent);
SELECT postbox.create_change_triggers('shop.parent');
INSERT INTO shop.child VALUES (1, 'child', 1);
UPDATE shop.parent SET title = 'changed';
DELETE FROM shop.parent;
SELECT id, event, version, payload FROM shop.look();
-- a cascade emits what it deletes and updates
CREATE TABLE shop.customer (id int PRIMARY KEY);
CREATE TABLE shop.purchase (id int PRIMARY KEY, customer int REFERENCES shop.customer ON DELETE CASCADE ON UPDATE CASCADE);
SELECT postbox.create_change_triggers('shop.customer'), postbox.create_change_triggers('shop.purchase');
INSERT INTO shop.customer VALUES (1), (2);
INSERT INTO shop.purchase VALUES (10, 1), (11, 1), (12, 2);
SELECT count(*) FROM shop.look();
UPDATE shop.customer SET id = 3 WHERE id = 1;
DELETE FROM shop.customer WHERE id = 3;
SELECT type, id, event, version, payload FROM shop.look();

-- the rights are those of outbox_emit: of whoever writes the table
CREATE ROLE regress_postbox_writer;
CREATE ROLE regress_postbox_definer;
GRANT USAGE ON SCHEMA shop TO regress_postbox_writer, regress_postbox_definer;
GRANT SELECT, INSERT, UPDATE, DELETE, TRUNCATE ON shop.customer TO regress_postbox_writer, regress_postbox_definer;
SET ROLE regress_postbox_writer;
INSERT INTO shop.customer VALUES (4);
SELECT postbox.outbox_emit('customer', '4', 'customer.created', '{"id":4}');
UPDATE shop.customer SET id = 4 WHERE false;
RESET ROLE;
GRANT INSERT ON shop.outbox TO regress_postbox_definer;
CREATE FUNCTION shop.add(id int) RETURNS void LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog AS 'INSERT INTO shop.customer VALUES (id)';
ALTER FUNCTION shop.add OWNER TO regress_postbox_definer;
SET ROLE regress_postbox_writer;
SELECT shop.add(4);
DELETE FROM shop.customer WHERE id = 4;
RESET ROLE;
SELECT type, id, event, version, payload FROM shop.look();
-- the triggers are the owner's to make; others need TRIGGER
SET ROLE regress_postbox_writer;
SELECT postbox.create_change_triggers('shop.looked', key => '{seq}');
SELECT postbox.drop_change_triggers('shop.customer');
RESET ROLE;
-- row security of the outbox
GRANT INSERT ON shop.outbox TO regress_postbox_writer;
ALTER TABLE shop.outbox ENABLE ROW LEVEL SECURITY;
CREATE POLICY few ON shop.outbox FOR INSERT WITH CHECK (aggregate_id < '6');
SET ROLE regress_postbox_writer;
INSERT INTO shop.customer VALUES (5);
INSERT INTO shop.customer VALUES (6);
RESET ROLE;
ALTER TABLE shop.outbox DISABLE ROW LEVEL SECURITY;
DROP POLICY few ON shop.outbox;
SELECT type, id, event, version, payload FROM shop.look();
-- a trigger of the outbox sees each event, under the settings of the session
CREATE TABLE shop.seen (event text, path text, zone text);
CREATE FUNCTION shop.see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO shop.seen VALUES (NEW.event_type || ' ' || NEW.aggregate_id, current_setting('search_path'), current_setting('timezone')); RETURN NEW; END $$;
CREATE TRIGGER see BEFORE INSERT ON shop.outbox FOR EACH ROW EXECUTE FUNCTION shop.see();
SET timezone = 'Asia/Tokyo';
INSERT INTO shop.customer VALUES (7), (8);
RESET timezone;
DROP TRIGGER see ON shop.outbox;
SELECT * FROM shop.seen;
SELECT id, event, version FROM shop.look();
-- what it changes does not change the events of the statement, and the table may be altered between two of them
CREATE FUNCTION shop.disturb() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('postbox.user_id', 'somebody quite else ' || NEW.aggregate_id, false), set_config('search_path', 'pg_catalog', true);
    PERFORM postbox.outbox_emit('nested', NEW.aggregate_id, 'nested', '{}', version => NEW.seq, outbox => 'shop.outbox') WHERE NEW.aggregate_type <> 'nested';
    GRANT INSERT ON shop.outbox TO regress_postbox_definer;
    RETURN NEW;
END $$;
CREATE TRIGGER disturb BEFORE INSERT ON shop.outbox FOR EACH ROW EXECUTE FUNCTION shop.disturb();
SET postbox.user_id = 'me';
BEGIN;
INSERT INTO shop.customer VALUES (50), (51), (52);
COMMIT;
RESET postbox.user_id;
DROP TRIGGER disturb ON shop.outbox;
SELECT type, id, event, attributes FROM shop.look() ORDER BY type, id;
DELETE FROM shop.customer WHERE id >= 50;
SELECT count(*) FROM shop.look();

-- which outbox: the one that is named, and else that of outbox_emit; also of kind table
SELECT postbox.create_outbox('shop."Other one"', 'table');
INSERT INTO shop.customer VALUES (9);
SET postbox.default_outbox = 'shop.outbox';
INSERT INTO shop.customer VALUES (9);
SELECT id, event, version FROM shop.look();
SELECT postbox.drop_change_triggers('shop.customer');
SELECT postbox.create_change_triggers('shop.customer', outbox => 'shop."Other one"');
DELETE FROM shop.customer WHERE id > 7;
SELECT aggregate_id, event_type, version, convert_from(payload, 'UTF8') AS payload FROM shop."Other one" ORDER BY seq;
ALTER TABLE shop."Other one" RENAME TO other;
INSERT INTO shop.customer VALUES (10);
ALTER TABLE shop.other RENAME TO "Other one";
RESET postbox.default_outbox;
-- a name that was found is looked up again when it may mean another table, and asks for the right on its schema each time
CREATE SCHEMA shelf;
CREATE TABLE shelf.piece (id int PRIMARY KEY);
SELECT postbox.create_change_triggers('shelf.piece', outbox => 'shop."Other one"');
GRANT USAGE ON SCHEMA shelf TO regress_postbox_writer;
GRANT INSERT ON shelf.piece, shop."Other one" TO regress_postbox_writer;
INSERT INTO shelf.piece VALUES (1);
SET ROLE regress_postbox_writer;
INSERT INTO shelf.piece VALUES (2);
RESET ROLE;
REVOKE USAGE ON SCHEMA shop FROM regress_postbox_writer;
SET ROLE regress_postbox_writer;
INSERT INTO shelf.piece VALUES (3);
RESET ROLE;
INSERT INTO shelf.piece VALUES (4);
SET ROLE regress_postbox_writer;
INSERT INTO shelf.piece VALUES (5);
RESET ROLE;
GRANT USAGE ON SCHEMA shop TO regress_postbox_writer;
ALTER SCHEMA shop RENAME TO store;
INSERT INTO shelf.piece VALUES (6);
ALTER SCHEMA store RENAME TO shop;
INSERT INTO shelf.piece VALUES (7);
ALTER TABLE shop."Other one" RENAME TO other;
ALTER TABLE shop.outbox RENAME TO "Other one";
INSERT INTO shelf.piece VALUES (8);
ALTER TABLE shop."Other one" RENAME TO outbox;
ALTER TABLE shop.other RENAME TO "Other one";
SELECT 'Other one' AS outbox, aggregate_id FROM shop."Other one" WHERE aggregate_type = 'piece' UNION ALL
SELECT 'outbox', aggregate_id FROM shop.outbox WHERE aggregate_type = 'piece' ORDER BY aggregate_id;
DROP SCHEMA shelf CASCADE;

-- wrong use
SELECT postbox.emit_changes();
TRUNCATE shop.customer CASCADE;
ALTER TABLE shop.customer RENAME COLUMN id TO number;
INSERT INTO shop.customer VALUES (10);
ALTER TABLE shop.customer RENAME COLUMN number TO id;
CREATE TABLE shop.wrong (id int, title text);
SELECT postbox.create_change_triggers('shop.wrong');
SELECT postbox.create_change_triggers('shop.wrong', key => ARRAY['id', 'nothing']);
SELECT postbox.create_change_triggers('shop.wrong', key => ARRAY['id'], columns => ARRAY['id', NULL]);
SELECT postbox.create_change_triggers('shop.wrong', key => '{}');
SELECT postbox.create_change_triggers('shop.wrong', '', key => '{id}');
SELECT postbox.create_change_triggers('shop.wrong', key => ARRAY['id'], outbox => 'shop.customer');
SELECT postbox.create_change_triggers(NULL);
SELECT postbox.drop_change_triggers(NULL);
SELECT postbox.drop_change_triggers('shop.wrong');
CREATE TRIGGER wrong AFTER INSERT ON shop.wrong FOR EACH ROW EXECUTE FUNCTION postbox.emit_changes('wrong', 'id');
INSERT INTO shop.wrong VALUES (1);
DROP TRIGGER wrong ON shop.wrong;
CREATE TRIGGER wrong BEFORE INSERT ON shop.wrong FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('wrong', 'id');
INSERT INTO shop.wrong VALUES (1);
DROP TRIGGER wrong ON shop.wrong;
CREATE TRIGGER wrong AFTER INSERT OR DELETE ON shop.wrong FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('wrong', 'id');
INSERT INTO shop.wrong VALUES (1);
DROP TRIGGER wrong ON shop.wrong;
CREATE TRIGGER wrong AFTER UPDATE ON shop.wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('wrong', 'id');
UPDATE shop.wrong SET id = 1;
DROP TRIGGER wrong ON shop.wrong;
CREATE TRIGGER wrong AFTER INSERT ON shop.wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('wrong');
INSERT INTO shop.wrong VALUES (1);
DROP TRIGGER wrong ON shop.wrong;
CREATE TRIGGER wrong AFTER INSERT ON shop.wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('wrong', '');
INSERT INTO shop.wrong VALUES (1);
DROP TRIGGER wrong ON shop.wrong;
CREATE TRIGGER wrong AFTER INSERT ON shop.wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('wrong', 'id', 'shop.nowhere');
INSERT INTO shop.wrong VALUES (1);
DROP TRIGGER wrong ON shop.wrong;
SET search_path = shop, public;
CREATE TRIGGER wrong AFTER INSERT ON shop.wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('wrong', 'id', 'outbox');
INSERT INTO shop.wrong VALUES (1);
DROP TRIGGER wrong ON shop.wrong;
RESET search_path;
-- as short as it can be said, and twice on one table
CREATE TRIGGER first AFTER INSERT ON shop.wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('first', 'id', 'shop.outbox');
CREATE TRIGGER second AFTER INSERT ON shop.wrong REFERENCING NEW TABLE AS n FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('second', '{title,id}', 'shop.outbox', '{title}');
INSERT INTO shop.wrong VALUES (1, 'a'), (2, 'b');
SELECT type, id, event, version, payload FROM shop.look();
-- what Pub/Sub would refuse fails the statement
INSERT INTO shop.wrong VALUES (1, repeat('x', 2000));
-- also where the keys of many rows are read first, before any is gathered
INSERT INTO shop.wrong SELECT n, repeat('x', CASE n WHEN 500 THEN 2000 ELSE 10 END) FROM generate_series(1, 1500) n;

-- DROP EXTENSION asks for CASCADE, and says what depends on it
\set VERBOSITY terse
DROP EXTENSION postbox;
BEGIN;
DROP EXTENSION postbox CASCADE;
INSERT INTO shop.wrong VALUES (1, 'without');
ROLLBACK;
DROP SCHEMA shop CASCADE;
DROP ROLE regress_postbox_writer, regress_postbox_definer;
