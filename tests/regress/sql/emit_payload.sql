-- The payload that emit_changes makes of a row is the text of row_to_json, whatever its columns are.
CREATE SCHEMA shop;
SELECT postbox.create_outbox('shop.outbox');
CREATE DOMAIN shop.amount AS numeric(12, 3) CHECK (VALUE > -1e6);
CREATE DOMAIN shop.little AS shop.amount;
CREATE TYPE shop.mood AS ENUM ('happy', 'so "so"');
CREATE TYPE shop.pair AS (a int, b text);
-- the events whose payload is not the JSON that their row has in UTC
CREATE FUNCTION shop.differs(of regclass) RETURNS TABLE (id text, payload text, row_json text) LANGUAGE plpgsql SET timezone = 'UTC' SET datestyle = 'ISO, MDY' SET intervalstyle = 'postgres' AS $$
BEGIN
    RETURN QUERY EXECUTE format('SELECT o.aggregate_id, convert_from(o.payload, ''UTF8''), row_to_json(t)::text FROM %s t JOIN shop.outbox o ON o.aggregate_type = %L
        AND o.aggregate_id = t.id::text WHERE convert_from(o.payload, ''UTF8'') IS DISTINCT FROM row_to_json(t)::text', of, split_part(of::text, '.', 2));
END $$;

CREATE TABLE shop.plain (id bigint PRIMARY KEY, "odd ""name"" \ of
a column" int, small smallint, yes bool, num numeric, part shop.amount, bit shop.little, title text, short varchar(20), fixed char(8), uid uuid, day date, at timestamp,
    moment timestamptz, j json, b jsonb);
SELECT postbox.create_change_triggers('shop.plain');
SET timezone = 'Asia/Kolkata'; SET datestyle = 'German, DMY'; SET extra_float_digits = -5;
INSERT INTO shop.plain (id) VALUES (1), (-9223372036854775808), (9223372036854775807);
INSERT INTO shop.plain VALUES
    (10, 0, 0, true, 0, 0, 0, '', '', '', '00000000-0000-0000-0000-000000000000', 'epoch', 'epoch', 'epoch', '{}', '{}'),
    (11, -2147483648, -32768, false, 'NaN', -1.5, 12.345, E'tab\t "quoted" \\ back\nline\r\b\f', 'äöü €', 'a', gen_random_uuid(), 'infinity', '-infinity', 'infinity', ' [1,  2 ] ', '[1,  2, {"b": "\t", "a": null}]'),
    (12, 2147483647, 32767, NULL, 'Infinity', 999999.999, -0.001, E'\u0001\u001f\u007f\u0080 end', '😀', 'ends    ', NULL, '0044-03-15 BC', '0044-03-15 BC', '0044-03-15 12:00+00 BC', '"\u0000"', '"x"'),
    (13, 1, 1, true, '-Infinity', 1, 1, repeat('long "text" ', 20000), 'v', 'f', NULL, '2024-02-29', '2024-02-29 23:59:59.999999', '2024-02-29 23:59:59.5-08', 'null', 'null'),
    (14, 1, 1, true, -12345678901234567890.00000000010, 1, 1, '</script>', 'v', 'f', NULL, '5874897-12-31', '294276-12-31', '9999-12-31 23:59:59.000001+00', '1e5', '1e5');
INSERT INTO shop.plain (id, b) VALUES (15, jsonb_build_object('big', repeat('y', 300000)));
SELECT * FROM shop.differs('shop.plain');
SELECT convert_from(payload, 'UTF8') AS payload FROM shop.outbox WHERE aggregate_id IN ('10', '12') ORDER BY seq;
-- a large payload is followed by a small one
SELECT aggregate_id, length(payload) FROM shop.outbox WHERE aggregate_id IN ('13', '14', '15') ORDER BY seq;
SELECT count(*) FROM shop.outbox WHERE aggregate_type = 'plain';

-- types that are left to row_to_json, alone and among others
CREATE TABLE shop.other (id int PRIMARY KEY, mood shop.mood, number float8, list int[], pair shop.pair, span interval, net inet, title text);
SELECT postbox.create_change_triggers('shop.other');
INSERT INTO shop.other VALUES (1, 'so "so"', 0.1::float8 + 0.2, '{1,2}', '(1,"x y")', '1 day', '10.0.0.1', 'a "title"');
INSERT INTO shop.other VALUES (2);
RESET extra_float_digits;
SELECT * FROM shop.differs('shop.other');
SELECT convert_from(payload, 'UTF8') AS payload FROM shop.outbox WHERE aggregate_type = 'other' ORDER BY seq;
-- a key whose text depends on settings, beside columns whose text does not
CREATE TABLE shop.dated (id int, day date PRIMARY KEY);
SELECT postbox.create_change_triggers('shop.dated');
INSERT INTO shop.dated VALUES (1, '2024-02-01');
SELECT aggregate_id, convert_from(payload, 'UTF8') AS payload FROM shop.outbox WHERE aggregate_type = 'dated';
RESET timezone; RESET datestyle;

-- what a trigger says is read again when its table or its arguments have changed
CREATE TABLE shop.item (id int PRIMARY KEY, title text);
SELECT postbox.create_change_triggers('shop.item');
INSERT INTO shop.item VALUES (1, 'one');
ALTER TABLE shop.item ADD price numeric DEFAULT 5;
INSERT INTO shop.item VALUES (2, 'two');
ALTER TABLE shop.item RENAME title TO name;
ALTER TABLE shop.item ALTER price TYPE float8;
INSERT INTO shop.item VALUES (3, 'three', 0.5);
ALTER TABLE shop.item DROP name;
INSERT INTO shop.item VALUES (4, 4);
CREATE OR REPLACE TRIGGER postbox_created AFTER INSERT ON shop.item REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('ware', 'id', 'shop.outbox', '{id}', 'a.ware');
INSERT INTO shop.item VALUES (5, 5);
BEGIN;
CREATE OR REPLACE TRIGGER postbox_created AFTER INSERT ON shop.item REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('other', 'price');
INSERT INTO shop.item VALUES (6, 6);
ROLLBACK;
INSERT INTO shop.item VALUES (7, 7);
CREATE OR REPLACE TRIGGER postbox_created AFTER INSERT ON shop.item REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('ware', 'id', 'shop.outbox', '{id, gone}');
INSERT INTO shop.item VALUES (8, 8);
CREATE OR REPLACE TRIGGER postbox_created AFTER INSERT ON shop.item REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('', 'id');
INSERT INTO shop.item VALUES (8, 8);
CREATE OR REPLACE TRIGGER postbox_created AFTER INSERT ON shop.item REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION postbox.emit_changes('ware', 'id', 'shop.outbox', '', '', '');
INSERT INTO shop.item VALUES (8, 8);
SELECT aggregate_type, aggregate_id, event_type, convert_from(payload, 'UTF8') AS payload FROM shop.outbox WHERE aggregate_type IN ('item', 'ware') ORDER BY seq;

SELECT postbox.drop_outbox('shop.outbox');
DROP SCHEMA shop CASCADE;
