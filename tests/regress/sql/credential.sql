-- Credentials: identities of publications and subscriptions.
CREATE SCHEMA shop;
SELECT postbox.create_outbox('shop.outbox'), postbox.create_inbox('shop.inbox');
SET postbox.project_id = 'shop-1';
\pset null '(null)'
\set key '{"type": "service_account", "client_email": "writer@shop-1.iam.gserviceaccount.com", "private_key": "-----BEGIN PRIVATE KEY-----\\nSECRET\\n-----END PRIVATE KEY-----\\n"}'

-- the kinds, and what each takes
SELECT postbox.create_credential('writer', 'key', :'key');
SELECT postbox.create_credential('user', 'key', '{"type": "authorized_user", "client_id": "SECRET", "client_secret": "SECRET", "refresh_token": "SECRET"}');
SELECT postbox.create_credential('federated', 'key', '{"type": "external_account", "audience": "a", "subject_token_type": "t", "token_url": "u", "credential_source": {"file": "/f"}}');
SELECT postbox.create_credential('impersonated', 'key', '{"type": "impersonated_service_account", "service_account_impersonation_url": "u", "source_credentials": {"type": "authorized_user"}}');
SELECT postbox.create_credential('mounted', 'file', file => '/run/secrets/google.json');
SELECT postbox.create_credential('machine', 'metadata');
SELECT postbox.create_credential('usual', 'environment');
SELECT name, kind, file, created_at = now() AS "now" FROM postbox.credential ORDER BY name COLLATE "C";
SELECT credential, secret::jsonb ->> 'type' AS type FROM postbox.credential_secret ORDER BY credential COLLATE "C";
SELECT postbox.create_credential('writer', 'metadata');
SELECT postbox.create_credential(NULL, 'metadata');
SELECT postbox.create_credential('', 'metadata');
SELECT postbox.create_credential(repeat('x', 64), 'metadata');
SELECT postbox.create_credential('x', NULL);
SELECT postbox.create_credential('x', 'token');
SELECT postbox.create_credential('x', 'key');
SELECT postbox.create_credential('x', 'key', :'key', '/run/secrets/google.json');
SELECT postbox.create_credential('x', 'file');
SELECT postbox.create_credential('x', 'file', :'key');
SELECT postbox.create_credential('x', 'file', file => 'google.json');
SELECT postbox.create_credential('x', 'file', file => '/' || repeat('x', 1023));
SELECT postbox.create_credential('x', 'environment', :'key');
SELECT postbox.create_credential('x', 'metadata', file => '/run/secrets/google.json');

-- the document of a key: no error quotes it
SELECT postbox.create_credential('x', 'key', '');
SELECT postbox.create_credential('x', 'key', 'SECRET');
SELECT postbox.create_credential('x', 'key', '{"private_key": "SECRET", SECRET}');
SELECT postbox.create_credential('x', 'key', '{"private_key": "SECRET\u0000"}');
SELECT postbox.create_credential('x', 'key', '"SECRET"');
SELECT postbox.create_credential('x', 'key', '["SECRET"]');
SELECT postbox.create_credential('x', 'key', '{"private_key": "SECRET"}');
SELECT postbox.create_credential('x', 'key', '{"type": "SECRET"}');
SELECT postbox.create_credential('x', 'key', '{"type": 1}');
SELECT postbox.create_credential('x', 'key', '{"type": "service_account", "private_key": "SECRET"}');
SELECT postbox.create_credential('x', 'key', '{"type": "service_account", "client_email": "", "private_key": "SECRET"}');
SELECT postbox.create_credential('x', 'key', '{"type": "service_account", "client_email": "a@b", "private_key": "SECRET"}');
SELECT postbox.create_credential('x', 'key', '{"type": "service_account", "client_email": "a@b", "private_key": ["SECRET"]}');
SELECT postbox.create_credential('x', 'key', '{"type": "authorized_user", "client_id": "SECRET", "client_secret": "SECRET"}');
SELECT postbox.create_credential('x', 'key', '{"type": "external_account", "audience": "a", "subject_token_type": "t", "token_url": "u", "credential_source": "SECRET"}');
SELECT postbox.create_credential('x', 'key', '{"type": "impersonated_service_account", "service_account_impersonation_url": "u", "source_credentials": ["SECRET"]}');
SELECT postbox.create_credential('x', 'key', '{"type": "service_account", "x": "' || repeat('SECRET', 11000) || '"}');
SELECT postbox.create_credential('x', 'key', repeat('[', 7000));
SELECT postbox.create_credential('x', 'key', file => '/nonexistent');

-- the server reads a file, once
SELECT current_setting('data_directory') || '/postbox_credential_test.json' AS path \gset
\set ECHO none
SELECT format('COPY (SELECT %L) TO %L', :'key', :'path') \gexec
\set ECHO all
SELECT postbox.create_credential('read', 'key', file => :'path');
SELECT c.kind, c.file, k.secret::jsonb ->> 'client_email' AS email FROM postbox.credential c JOIN postbox.credential_secret k ON k.credential = c.name WHERE c.name = 'read';
\set ECHO none
SELECT format('COPY (SELECT) TO PROGRAM %L', format('rm %s && cat', quote_literal(:'path'))) \gexec
\set ECHO all

-- publications and subscriptions name them
SELECT postbox.create_publication('orders', 'shop.outbox', 'shop.order.events', credential => 'writer');
SELECT postbox.create_publication('others', 'shop.outbox', 'shop.other.events', credential => 'nobody');
SELECT postbox.create_publication('others', 'shop.outbox', 'shop.other.events');
SELECT name, credential FROM postbox.publication ORDER BY name;
SELECT postbox.alter_publication('others', credential => 'mounted');
SELECT postbox.alter_publication('others', credential => 'nobody');
SELECT postbox.alter_publication('others', max_attempts => 7);
SELECT name, credential FROM postbox.publication ORDER BY name;
SELECT postbox.alter_publication('others', credential => '');
SELECT name, credential FROM postbox.publication ORDER BY name;
SELECT postbox.create_subscription('orders', 'shop.inbox', 'shop.order.events.shop-reader', credential => 'writer');
SELECT postbox.create_subscription('orders', 'shop.inbox', 'shop.order.events.shop-reader', credential => 'nobody');
SELECT postbox.create_subscription('orders', 'shop.inbox', 'shop.order.events.shop-reader', credential => 'mounted');
SELECT name, credential FROM postbox.subscription;

-- altered
SELECT postbox.alter_credential('mounted', 'key', :'key');
SELECT postbox.alter_credential('mounted');
SELECT postbox.alter_credential('mounted', file => '/run/secrets/other.json');
SELECT postbox.alter_credential('writer');
SELECT postbox.alter_credential('writer', secret => '{"type": "SECRET"}');
SELECT postbox.alter_credential('writer', secret => replace(:'key', 'writer@', 'other@'));
SELECT secret::jsonb ->> 'client_email' AS email FROM postbox.credential_secret WHERE credential = 'writer';
SELECT postbox.alter_credential('writer', 'environment');
SELECT count(*) FROM postbox.credential_secret WHERE credential = 'writer';
SELECT postbox.alter_credential('writer', 'key', :'key');
SELECT postbox.alter_credential('nobody', 'environment');
SELECT name, kind, file FROM postbox.credential WHERE name IN ('mounted', 'writer') ORDER BY name;

-- the status, without workers and without a secret
SELECT name, kind, identity, valid_until, used_by, last_error, since FROM postbox.credential_status ORDER BY name COLLATE "C" NULLS FIRST;
DELETE FROM postbox.credential_secret WHERE credential = 'user';
SELECT last_error FROM postbox.credential_status WHERE name = 'user';
SELECT status, subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'credentials';
SELECT postbox.alter_credential('user', secret => '{"type": "authorized_user", "client_id": "SECRET", "client_secret": "SECRET", "refresh_token": "SECRET"}');
SELECT status, subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'credentials';

-- who may use one: superusers, and whom it is granted to
CREATE ROLE regress_owner;
CREATE ROLE regress_team;
CREATE ROLE regress_member IN ROLE regress_team;
GRANT CREATE, USAGE ON SCHEMA shop TO regress_owner, regress_member;
GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.alter_publication, postbox.create_subscription, postbox.create_credential, postbox.alter_credential,
    postbox.grant_credential, postbox.revoke_credential, postbox.drop_credential TO regress_owner, regress_member;
SET ROLE regress_owner;
SELECT postbox.create_outbox('shop.mine'), postbox.create_inbox('shop.box');
SELECT postbox.create_publication('mine', 'shop.mine', 'shop.mine.events', credential => 'writer');
SELECT postbox.create_publication('mine', 'shop.mine', 'shop.mine.events');
SELECT postbox.alter_publication('mine', credential => 'writer');
SELECT postbox.create_subscription('mine', 'shop.box', 'shop.mine.events.shop-reader', credential => 'mounted');
-- nor does EXECUTE make one
SELECT postbox.create_credential('x', 'file', file => '/etc/passwd');
SELECT postbox.alter_credential('usual', 'metadata');
SELECT postbox.grant_credential('writer', 'regress_owner');
SELECT postbox.revoke_credential('writer', 'regress_owner');
SELECT postbox.drop_credential('usual');
RESET ROLE;
SELECT postbox.grant_credential('writer', 'regress_owner'), postbox.grant_credential('writer', 'regress_owner'), postbox.grant_credential('mounted', 'regress_owner');
SELECT postbox.grant_credential('nobody', 'regress_owner');
SELECT * FROM postbox.credential_grant ORDER BY 1, 2;
SET ROLE regress_owner;
SELECT postbox.alter_publication('mine', credential => 'writer');
SELECT postbox.create_subscription('mine', 'shop.box', 'shop.mine.events.shop-reader', credential => 'mounted');
RESET ROLE;
-- what is taken back can be kept, but not spent on another topic
SELECT postbox.revoke_credential('writer', 'regress_owner');
SELECT postbox.revoke_credential('writer', 'regress_owner');
SET ROLE regress_owner;
SELECT postbox.alter_publication('mine', max_attempts => 3);
SELECT postbox.alter_publication('mine', topic => 'shop.theirs.events');
SELECT postbox.alter_publication('mine', topic => 'shop.theirs.events', credential => '');
SELECT topic, credential FROM postbox.publication WHERE name = 'mine';
-- members of a role have what it was granted
RESET ROLE;
SELECT postbox.grant_credential('machine', 'regress_team');
SET ROLE regress_member;
SELECT postbox.create_outbox('shop.theirs');
SELECT postbox.create_publication('theirs', 'shop.theirs', 'shop.theirs.events', credential => 'machine');
-- nobody but superusers reads the secrets
SELECT count(*) FROM postbox.credential_secret;
SELECT * FROM postbox.credential_status;
RESET ROLE;
GRANT pg_read_all_data TO regress_member;
-- not those of long documents either: a TOAST table has no row security
SELECT postbox.create_credential('long', 'key', '{"type": "service_account", "client_email": "a", "private_key": "-----BEGIN '
    || (SELECT string_agg(md5(n::text), '') FROM generate_series(1, 231) n) || '"}');
SELECT length(secret) > 7450 AS "at the limit" FROM postbox.credential_secret WHERE credential = 'long';
SELECT reltoastrelid::regclass AS toast FROM pg_class WHERE oid = 'postbox.credential_secret'::regclass \gset
SET ROLE regress_member;
SELECT count(*) FROM postbox.credential_secret;
SELECT count(*) FROM :toast;
RESET ROLE;
SELECT postbox.drop_credential('long');
ANALYZE postbox.credential_secret;
SELECT count(*) FROM pg_statistic WHERE starelid = 'postbox.credential_secret'::regclass AND array_to_string(stavalues1, '') LIKE '%SECRET%';

-- an older snapshot does not show who uses it
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT postbox.drop_credential('machine');
ROLLBACK;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT postbox.alter_credential('mounted', 'key', :'key');
ROLLBACK;

-- dropped when nobody uses it
SELECT postbox.drop_credential('nobody');
SELECT postbox.drop_credential('mounted');
SELECT postbox.drop_credential('writer');
SELECT postbox.drop_publication('orders');
SELECT postbox.drop_credential('writer');
SELECT count(*) FROM postbox.credential_secret WHERE credential = 'writer';
-- a role that is gone, and a credential that somebody deleted
SELECT postbox.drop_publication('theirs');
DROP OWNED BY regress_team;
DROP ROLE regress_team;
DELETE FROM postbox.credential WHERE name = 'mounted';
SELECT status, subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'credentials' ORDER BY subject COLLATE "C";
SELECT postbox.revoke_credential('machine', 'regress_team');
TRUNCATE postbox.credential, postbox.credential_grant, postbox.credential_secret, postbox.credential_state;
DROP SCHEMA shop CASCADE;
DROP OWNED BY regress_owner, regress_member;
DROP ROLE regress_owner, regress_member;
