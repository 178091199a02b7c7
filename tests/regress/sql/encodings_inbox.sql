-- Inboxes of databases in other encodings: payloads are UTF-8. Fields are found by names of any characters, and only what a projection writes is converted.
CREATE DATABASE regress_postbox_latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
CREATE DATABASE regress_postbox_japanese ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
CREATE DATABASE regress_postbox_ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;

\c regress_postbox_latin
SET client_encoding = 'UTF8';
CREATE EXTENSION postbox;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TYPE reader.paire AS ("né" int, text text);
CREATE TABLE reader.vidéo (id text PRIMARY KEY, "titré" text, auteur text, body jsonb, document json, list text[], paire reader.paire, version bigint);
SELECT postbox.create_projection('reader.inbox', '{créé}', 'reader.vidéo');
SELECT postbox.create_projection('reader.inbox', '{mapped}', 'reader.vidéo', '{"titré": {"path": "façon.élan"}, "auteur": "nom"}');
-- U+4E2D is no character of LATIN1: in a field that is not mapped, it does not matter
SELECT postbox.inbox_apply('reader.inbox', 'e1', 'créé', 'v', 'é', 1, decode('7b22e4b8ad223a22e4b8ade69687222c22', 'hex') || convert_to('titré": "été", "auteur": "\u00c9mile", "body": {"é": ["ï"]}, "document": {"é":"ï"}, "list": ["é", "\u00e9"], "paire": {"né": 7.0, "text": "é"}}', 'UTF8'));
SELECT * FROM reader.vidéo;
SELECT postbox.inbox_apply('reader.inbox', 'e2', 'mapped', 'v', 'é', 2, convert_to('{"façon": {"\u00e9lan": "x", "other": "\u4e2d"}, "nom": "ça"}', 'UTF8'));
SELECT "titré", auteur FROM reader.vidéo;
-- in a mapped one it is an error that names the field, and can be read
SELECT postbox.inbox_apply('reader.inbox', 'e3', 'mapped', 'v', 'é', 3, convert_to('{"façon": {"élan": "\u4e2d"}}', 'UTF8'));
SELECT postbox.inbox_apply('reader.inbox', 'e3', 'créé', 'v', 'é', 3, decode('7b22', 'hex') || convert_to('titré": "', 'UTF8') || decode('e4b8ad227d', 'hex'));
DO $$ DECLARE detail text; BEGIN
    PERFORM postbox.inbox_apply('reader.inbox', 'e3', 'créé', 'v', 'é', 3, convert_to('{"body": ["\u4e2d"]}', 'UTF8'));
EXCEPTION WHEN untranslatable_character THEN
    GET STACKED DIAGNOSTICS detail = PG_EXCEPTION_DETAIL;  -- the rest depends on the version of PostgreSQL
    RAISE WARNING '%', substring(detail FROM 'The value is for .*');
END $$;
SELECT postbox.inbox_apply('reader.inbox', 'e3', 'créé', 'v', 'é', 3, decode('7b22e4b8ad223a20e4b8ad7d', 'hex'));
SELECT postbox.inbox_apply('reader.inbox', 'e3', 'mapped', 'v', 'é', 3, convert_to('{"façon": "é"}', 'UTF8'));

\c regress_postbox_japanese
SET client_encoding = 'UTF8';
CREATE EXTENSION postbox;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.user (id text PRIMARY KEY, "名前" text, city text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{made}', 'reader.user', '{"名前": {"path": ["人", "名前"]}, "city": "市"}');
SELECT postbox.inbox_apply('reader.inbox', 'e1', 'made', 'u', '一', 1, convert_to('{"人": {"\u540d前": "花子"}, "市": "東京", "note": "\u00ff \ud83d\ude00"}', 'UTF8'));
SELECT * FROM reader.user;
SELECT postbox.inbox_apply('reader.inbox', 'e2', 'made', 'u', '一', 2, convert_to('{"市": "\ud83d\ude00"}', 'UTF8'));

-- where Postgres checks no encoding, a text is the bytes of UTF-8
\c regress_postbox_ascii
CREATE EXTENSION postbox;
CREATE SCHEMA reader;
SELECT postbox.create_inbox('reader.inbox');
CREATE TABLE reader.video (id text PRIMARY KEY, title text, version bigint);
SELECT postbox.create_projection('reader.inbox', '{made}', 'reader.video', E'{"title": "titr\xc3\xa9"}');
SELECT postbox.inbox_apply('reader.inbox', 'e1', 'made', 'v', 'v1', 1, decode('7b2274697472c3a9223a20225c7530306539c3a9227d', 'hex'));
SELECT title::bytea FROM reader.video;

\c regress_postbox
DROP DATABASE regress_postbox_latin;
DROP DATABASE regress_postbox_japanese;
DROP DATABASE regress_postbox_ascii;
