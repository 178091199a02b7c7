-- inbox_apply takes the payload as bytea, text, json or jsonb, and applies its bytes in UTF-8.
CREATE SCHEMA reader;
CREATE TABLE reader.file (file_id text PRIMARY KEY, path text, version bigint NOT NULL);
SELECT postbox.create_inbox('reader.inbox');
SELECT postbox.create_projection('reader.inbox', ARRAY['file.moved'], 'reader.file');
CREATE TABLE reader.seen (event_id text, payload text);
CREATE FUNCTION reader.see(event postbox.event) RETURNS void LANGUAGE sql AS $$ INSERT INTO reader.seen SELECT event.event_id, convert_from(event.payload, 'UTF8') $$;
SELECT postbox.create_handler('reader.inbox', ARRAY['file.moved', 'file.seen'], 'reader.see(postbox.event)');

-- a literal is text: its backslashes are those of JSON, not those of bytea
SELECT postbox.inbox_apply('reader.inbox', 'e1', 'file.moved', 'file', 'f1', 1, '{"path":  "C:\\new"}');
SELECT postbox.inbox_apply('reader.inbox', 'e2', 'file.moved', 'file', 'f2', 1, '{"path":  "C:\\new"}'::text);
SELECT postbox.inbox_apply('reader.inbox', 'e3', 'file.moved', 'file', 'f3', 1, '{"path":  "C:\\new"}'::json);
SELECT postbox.inbox_apply('reader.inbox', 'e4', 'file.moved', 'file', 'f4', 1, '{"path":  "C:\\new"}'::jsonb);
SELECT postbox.inbox_apply('reader.inbox', 'e5', 'file.moved', 'file', 'f5', 1, convert_to('{"path":  "C:\\new"}', 'UTF8'));
SELECT postbox.inbox_apply('reader.inbox', 'e6', 'file.moved', 'file', 'f6', 1, payload => jsonb_build_object('path', 'C:\new'), attributes => '{"tenant": "t1"}');
-- in bytea, "\\" is one backslash, which makes a line feed of "\n"
SELECT postbox.inbox_apply('reader.inbox', 'e7', 'file.moved', 'file', 'f7', 1, '{"path":  "C:\\new"}'::bytea);
SELECT file_id, path, length(path) FROM reader.file ORDER BY 1;
SELECT * FROM reader.seen ORDER BY 1;
-- no JSON is an error of the projection, not of the call
SELECT postbox.inbox_apply('reader.inbox', 'e8', 'file.seen', 'file', 'f8', 1, 'no JSON');
SELECT postbox.inbox_apply('reader.inbox', 'e9', 'file.seen', 'file', 'f9', 1, '');
SELECT postbox.inbox_apply('reader.inbox', 'e10', 'file.seen', 'file', 'f10', 1, NULL);
SELECT * FROM reader.seen WHERE event_id IN ('e8', 'e9', 'e10') ORDER BY 1;
-- bytes that are written as text, as a driver does it that does not say their type
SELECT postbox.inbox_apply('reader.inbox', 'e11', 'file.moved', 'file', 'f11', 1, '\x7b7d');
SELECT postbox.inbox_apply('reader.inbox', 'e11', 'file.moved', 'file', 'f11', 1, '\x7b7d', on_error => 'reject');
SELECT postbox.inbox_apply('reader.inbox', 'e11', 'file.moved', 'file', 'f11', 1, '\x7b7d'::bytea);
PREPARE apply AS SELECT postbox.inbox_apply($1, $2, $3, $4, $5, $6, $7, $8, $9);
SELECT parameter_types FROM pg_prepared_statements WHERE name = 'apply';
DEALLOCATE apply;
DROP SCHEMA reader CASCADE;
