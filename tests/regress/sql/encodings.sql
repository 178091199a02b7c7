-- Databases in other encodings: Pub/Sub gets UTF-8, and what comes from there is kept as it was where it cannot be stored.
CREATE DATABASE regress_postbox_latin ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
CREATE DATABASE regress_postbox_ascii ENCODING 'SQL_ASCII' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;

\c regress_postbox_latin
SET client_encoding = 'UTF8';
CREATE EXTENSION postbox;
SELECT postbox.create_outbox('public.outbox', 'table');
SELECT version FROM postbox.outbox_emit('vidéo', 'é', 'créé', '{"title": "é"}', attributes => '{"clé": "é"}');
SELECT payload, attributes, octet_length(aggregate_id) FROM outbox;
SELECT version FROM postbox.outbox_emit('video', repeat('é', 513), 'video.created', '{}');
SELECT event_id FROM postbox.outbox_emit('vidéo', 'é', 'créé', '{}', source_event_id => 'é');
-- text and json are sent as they were written, but for the encoding; escapes of what LATIN1 lacks are JSON
SELECT count(r.version) FROM unnest(ARRAY['{"b":  "é", "b":1}', '{"euro": "\u20ac", "nul": "\u0000"}']) body, postbox.outbox_emit('video', 'text', 'video.written', body) AS r;
SELECT count(r.version) FROM unnest(ARRAY['{"b":  "é", "b":1}', '{"euro": "\u20ac", "nul": "\u0000"}']::json[]) body, postbox.outbox_emit('video', 'json', 'video.written', body) AS r;
SELECT version FROM postbox.outbox_emit_json('{"aggregate_type": "video", "aggregate_id": "\u00e9", "event_type": "video.written", "payload": {"b":  "é", "b":1, "euro": "\u20ac"}}');
SELECT octet_length(aggregate_id), convert_from(payload, 'UTF8') FROM outbox WHERE event_type = 'video.written' ORDER BY seq;
-- PostgreSQL's words for it depend on its version
DO $$ BEGIN
    PERFORM postbox.outbox_emit_json('{"aggregate_type": "video", "aggregate_id": "\u20ac", "event_type": "video.written", "payload": {}}');
EXCEPTION WHEN untranslatable_character THEN
    RAISE WARNING '%', substring(SQLERRM FROM 'key "aggregate_id" of the event: ');
END $$;
-- what is received
SELECT postbox.create_inbox('public.inbox');
SELECT postbox.record_dead_letter('public.inbox', decode('c3a9', 'hex'), decode('e282ac', 'hex'), 'video', decode('c3a9', 'hex'), 1, '{}', decode('7b226b223a22e282ac227d', 'hex'), NULL, '22P05', decode('e282ac', 'hex'));
SELECT postbox.record_dead_letter('public.inbox', decode('e282ac31', 'hex'), 'video', 'video', 'v', 1, '{}', '{"k": "\\u20ac"}', NULL, '22P05', 'x');
SELECT event_id, event_type, aggregate_id, attributes, error, raw FROM postbox.dead_letter ORDER BY id;
SELECT event_type, aggregate_id, outcome FROM public.inbox ORDER BY received_at;

-- a payload that is text or JSON is applied as its bytes in UTF-8
CREATE TABLE public.seen (id text, payload bytea);
CREATE FUNCTION public.see(event postbox.event) RETURNS void LANGUAGE sql AS $$ INSERT INTO public.seen SELECT event.event_id, event.payload $$;
SELECT postbox.create_handler('public.inbox', ARRAY['seen'], 'public.see(postbox.event)');
SELECT postbox.inbox_apply('public.inbox', 'text', 'seen', 'video', 'v', 1, '{"b":  "é"}'), postbox.inbox_apply('public.inbox', 'json', 'seen', 'video', 'v', 2, '{"b":  "é"}'::json),
       postbox.inbox_apply('public.inbox', 'jsonb', 'seen', 'video', 'v', 3, '{"b":  "é"}'::jsonb);
SELECT id, convert_from(payload, 'UTF8') FROM public.seen;

-- where a character has several bytes
CREATE DATABASE regress_postbox_japanese ENCODING 'EUC_JP' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0;
\c regress_postbox_japanese
SET client_encoding = 'UTF8';
CREATE EXTENSION postbox;
SELECT postbox.create_outbox('public.outbox');
SELECT version FROM postbox.outbox_emit('本', '表', '出版', '{"b":  "表示", "b":1}');
SELECT version FROM postbox.outbox_emit('本', 5, '出版', '{"b":  "表示", "b":1}'::json);
SELECT version FROM postbox.outbox_emit_json('{"aggregate_type": "本", "aggregate_id": "\u8868", "event_type": "出版", "payload": {"b":  "表示", "b":1}}');
SELECT aggregate_id, convert_from(payload, 'UTF8') FROM outbox ORDER BY seq;
\c regress_postbox
DROP DATABASE regress_postbox_japanese;

-- where Postgres checks no encoding
\c regress_postbox_ascii
CREATE EXTENSION postbox;
SELECT postbox.create_outbox('public.outbox', 'table');
SELECT version FROM postbox.outbox_emit('video', E'caf\xc3\xa9', 'video.created', '{}');
SELECT version FROM postbox.outbox_emit('video', E'caf\xe9', 'video.created', '{}');
SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.created', E'{"title": "caf\xe9"}');
SELECT event_id FROM postbox.outbox_emit(E'vid\xc3\xa9o', E'\xc3\xa9', E'cr\xc3\xa9\xc3\xa9', '{}', source_event_id => E'\xc3\xa9');

\c regress_postbox
DROP DATABASE regress_postbox_latin;
DROP DATABASE regress_postbox_ascii;
