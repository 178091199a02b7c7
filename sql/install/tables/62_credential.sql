-- Credentials: who publications and subscriptions are at Pub/Sub. Others refer to them by name.

CREATE TABLE postbox.credential (
    name       text        PRIMARY KEY,
    kind       text        NOT NULL CHECK (kind IN ('key', 'file', 'environment', 'metadata')),
    file       text        CHECK ((file IS NOT NULL) = (kind = 'file')),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postbox.credential IS
    'Identities at Pub/Sub, without their secrets; only create_credential, alter_credential and drop_credential change it';
COMMENT ON COLUMN postbox.credential.kind IS
    'key: a JSON document in this database; file: one in a file; environment: what GOOGLE_APPLICATION_CREDENTIALS names; metadata: that of the machine, from the metadata server';
COMMENT ON COLUMN postbox.credential.file IS
    'The file, on the server for publications, and on the machine of `postbox pull` for subscriptions. It is read again when it changes';
SELECT pg_catalog.pg_extension_config_dump('postbox.credential', '');
GRANT SELECT ON postbox.credential TO PUBLIC;

CREATE TABLE postbox.credential_grant (
    credential text NOT NULL,
    grantee    text NOT NULL,
    PRIMARY KEY (credential, grantee)
);
COMMENT ON TABLE postbox.credential_grant IS
    'Which roles may name a credential, beside superusers; only grant_credential and revoke_credential change it';
COMMENT ON COLUMN postbox.credential_grant.grantee IS 'The name of the role. Members of it, too, may name the credential';
SELECT pg_catalog.pg_extension_config_dump('postbox.credential_grant', '');
GRANT SELECT ON postbox.credential_grant TO PUBLIC;

-- No dump has it, since it is not configuration. Its row security hides the rows from members of pg_read_all_data, who may read every table.
-- A TOAST table would have no row security, so there is nothing in it: a secret fits on a page. What ANALYZE samples would be a copy.
CREATE TABLE postbox.credential_secret (
    credential text PRIMARY KEY,
    secret     text NOT NULL
);
ALTER TABLE postbox.credential_secret ENABLE ROW LEVEL SECURITY;
ALTER TABLE postbox.credential_secret ALTER COLUMN secret SET STORAGE PLAIN, ALTER COLUMN secret SET STATISTICS 0;
COMMENT ON TABLE postbox.credential_secret IS 'The secrets of credentials of kind key; for superusers and workers. In no dump';
COMMENT ON COLUMN postbox.credential_secret.secret IS 'The JSON document as it was given';

-- Written by workers, when it changes.
CREATE TABLE postbox.credential_state (
    credential  text NOT NULL,
    worker      int NOT NULL,
    identity    text,
    valid_until timestamptz,
    last_error  text,
    since       timestamptz NOT NULL,
    PRIMARY KEY (credential, worker)
);
COMMENT ON TABLE postbox.credential_state IS 'What each worker knows of the credentials that it uses; see postbox.credential_status';
COMMENT ON COLUMN postbox.credential_state.credential IS 'Its name; empty: that of publications without a credential';
COMMENT ON COLUMN postbox.credential_state.worker IS 'The ordinal of the worker, see postbox.workers';
