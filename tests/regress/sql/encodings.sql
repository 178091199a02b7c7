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
-- what is received
SELECT postbox.create_inbox('public.inbox');
SELECT postbox.record_dead_letter('public.inbox', decode('c3a9', 'hex'), decode('e282ac', 'hex'), 'video', decode('c3a9', 'hex'), 1, '{}', decode('7b226b223a22e282ac227d', 'hex'), NULL, '22P05', decode('e282ac', 'hex'));
SELECT postbox.record_dead_letter('public.inbox', decode('e282ac31', 'hex'), 'video', 'video', 'v', 1, '{}', '{"k": "\\u20ac"}', NULL, '22P05', 'x');
SELECT event_id, event_type, aggregate_id, attributes, error, raw FROM postbox.dead_letter ORDER BY id;
SELECT event_type, aggregate_id, outcome FROM public.inbox ORDER BY received_at;

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
