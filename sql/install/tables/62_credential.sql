-- Credentials: the identities of publications and subscriptions at Pub/Sub. Other tables refer to them by name.

CREATE TABLE postbox.credential (
    name       text        PRIMARY KEY,
    kind       text        NOT NULL CHECK (kind IN ('key', 'file', 'environment', 'metadata')),
    file       text        CHECK ((file IS NOT NULL) = (kind = 'file')),
    created_at timestamptz NOT NULL DEFAULT now()
);
COMMENT ON TABLE postbox.credential IS
$$The credentials of this database, one row for each, without their secrets: identities at Pub/Sub that publications and subscriptions name. Only `create_credential`,
  `alter_credential` and `drop_credential` change it.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.credential.name IS 'The name of the credential.';
COMMENT ON COLUMN postbox.credential.kind IS
    'Where the identity is: `key` (a JSON document in this database), `file` (a JSON document in a file), `environment` (application default credentials) or `metadata` '
    '(the account of the machine, from the metadata server).';
COMMENT ON COLUMN postbox.credential.file IS
    'The path of the file of kind `file`: on the server for publications, on the machine of `postbox pull` for subscriptions. It is read again when it changes. NULL for '
    'other kinds.';
COMMENT ON COLUMN postbox.credential.created_at IS 'When the credential was created.';
SELECT pg_catalog.pg_extension_config_dump('postbox.credential', '');
GRANT SELECT ON postbox.credential TO PUBLIC;

CREATE TABLE postbox.credential_grant (
    credential text NOT NULL,
    grantee    text NOT NULL,
    PRIMARY KEY (credential, grantee)
);
COMMENT ON TABLE postbox.credential_grant IS
$$The roles that may name a credential, in addition to superusers, one row for each role and credential. Only `grant_credential` and `revoke_credential` change it.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.credential_grant.credential IS 'The name of the credential.';
COMMENT ON COLUMN postbox.credential_grant.grantee IS 'The name of the role. Members of the role may name the credential, too.';
SELECT pg_catalog.pg_extension_config_dump('postbox.credential_grant', '');
GRANT SELECT ON postbox.credential_grant TO PUBLIC;

-- No dump has it, because it is not configuration. Row security hides the rows from members of pg_read_all_data, which may read every table. A TOAST
-- table has no row security, so it must stay empty: a secret fits on a page. The sample of ANALYZE would be a copy.
CREATE TABLE postbox.credential_secret (
    credential text PRIMARY KEY,
    secret     text NOT NULL
);
ALTER TABLE postbox.credential_secret ENABLE ROW LEVEL SECURITY;
ALTER TABLE postbox.credential_secret ALTER COLUMN secret SET STORAGE PLAIN, ALTER COLUMN secret SET STATISTICS 0;
COMMENT ON TABLE postbox.credential_secret IS 'Internal: the secrets of credentials of kind `key`, for superusers and workers; in no dump.';
COMMENT ON COLUMN postbox.credential_secret.credential IS 'The name of the credential.';
COMMENT ON COLUMN postbox.credential_secret.secret IS 'The JSON document as it was given.';

-- Written by workers when it changes.
CREATE TABLE postbox.credential_state (
    credential  text NOT NULL,
    worker      int NOT NULL,
    identity    text,
    valid_until timestamptz,
    last_error  text,
    since       timestamptz NOT NULL,
    PRIMARY KEY (credential, worker)
);
COMMENT ON TABLE postbox.credential_state IS 'Internal: what each worker knows of the credentials that it uses; see postbox.credential_status.';
COMMENT ON COLUMN postbox.credential_state.credential IS 'The name of the credential; empty for the identity of publications without one.';
COMMENT ON COLUMN postbox.credential_state.worker IS 'The number of the worker, see postbox.workers.ordinal.';
COMMENT ON COLUMN postbox.credential_state.identity IS 'The account, if the document names it.';
COMMENT ON COLUMN postbox.credential_state.valid_until IS 'When the current token expires.';
COMMENT ON COLUMN postbox.credential_state.last_error IS 'Why the credential cannot be used; NULL if no error is known.';
COMMENT ON COLUMN postbox.credential_state.since IS 'Since when the worker knows this.';
