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

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.credential
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.credential
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.credential ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;

CREATE TRIGGER changed AFTER INSERT OR UPDATE OR DELETE ON postbox.credential_secret
    FOR EACH ROW EXECUTE FUNCTION postbox.configuration_changed();
CREATE TRIGGER truncated AFTER TRUNCATE ON postbox.credential_secret
    FOR EACH STATEMENT EXECUTE FUNCTION postbox.configuration_changed();
ALTER TABLE postbox.credential_secret ENABLE ALWAYS TRIGGER changed, ENABLE ALWAYS TRIGGER truncated;

CREATE FUNCTION postbox.create_credential(name text, kind text, secret text DEFAULT NULL, file text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_credential(text, text, text, text) IS
    'Names an identity for publications and subscriptions. Of kind key, it is a JSON document of Google: `secret`, or what is in `file` of the server now. '
    'Of kind file, it is what is in `file` whenever it is used. The others, environment and metadata, take neither. For superusers';

CREATE FUNCTION postbox.alter_credential(name text, kind text DEFAULT NULL, secret text DEFAULT NULL, file text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_credential(text, text, text, text) IS
    'Gives a credential another kind, secret or file, as create_credential does. What uses it goes on with the new identity. NULL leaves the kind unchanged. For superusers';

CREATE FUNCTION postbox.drop_credential(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_credential(text) IS 'Drops a credential that no publication and no subscription uses. For superusers';

CREATE FUNCTION postbox.grant_credential(name text, role regrole) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.grant_credential(text, regrole) IS
    'Lets a role, and its members, name a credential in create_publication, alter_publication and create_subscription. For superusers';

CREATE FUNCTION postbox.revoke_credential(name text, role text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.revoke_credential(text, text) IS
    'Takes that back; the role may be gone. Publications and subscriptions that use the credential keep it. For superusers';

REVOKE EXECUTE ON FUNCTION postbox.create_credential(text, text, text, text), postbox.alter_credential(text, text, text, text),
    postbox.drop_credential(text), postbox.grant_credential(text, regrole), postbox.revoke_credential(text, text) FROM PUBLIC;

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

CREATE VIEW postbox.credential_status AS
    WITH users AS (
        SELECT coalesce(p.credential, '') AS credential, 'publication ' || p.name AS name FROM postbox.publication p
        UNION ALL
        SELECT s.credential, 'subscription ' || s.name FROM postbox.subscription s WHERE s.credential IS NOT NULL
    )
    SELECT nullif(c.name, '') AS name, c.kind, t.identity, t.valid_until,
           ARRAY(SELECT u.name FROM users u WHERE u.credential = c.name ORDER BY u.name) AS used_by,
           CASE WHEN c.kind = 'key' AND NOT EXISTS (SELECT FROM postbox.credential_secret k WHERE k.credential = c.name)
                THEN format('it has no secret: run SELECT postbox.alter_credential(%L, secret => ...)', c.name)
                ELSE t.last_error END AS last_error, t.since
    FROM (SELECT d.name, d.kind FROM postbox.credential d
          UNION ALL
          SELECT '', 'environment' WHERE EXISTS (SELECT FROM users u WHERE u.credential = '')) AS c
    LEFT JOIN LATERAL (
        SELECT s.* FROM postbox.credential_state s
        WHERE s.credential = c.name AND EXISTS (
            SELECT FROM postbox.list_workers() w JOIN pg_catalog.pg_database b ON b.oid = w.database_id
            WHERE b.datname = current_database() AND w.ordinal = s.worker)
        ORDER BY s.last_error IS NULL, s.since DESC LIMIT 1) t ON true;
COMMENT ON VIEW postbox.credential_status IS
    'The identities of publications and subscriptions, what workers know of them, and what is wrong with them; never a secret. For members of pg_monitor and postbox_operator';
COMMENT ON COLUMN postbox.credential_status.name IS 'NULL stands for the identity of publications without a credential';
COMMENT ON COLUMN postbox.credential_status.identity IS 'Who it is, as far as that is known without asking: the e-mail address of a service account, for example';
COMMENT ON COLUMN postbox.credential_status.valid_until IS 'When the token ends that is used now; another one is fetched before';
COMMENT ON COLUMN postbox.credential_status.used_by IS 'Publications and subscriptions. What pullers know is in postbox.subscription_status';
COMMENT ON COLUMN postbox.credential_status.last_error IS 'Why it cannot be used; NULL if nothing is known against it';
COMMENT ON COLUMN postbox.credential_status.since IS 'Since when the worker knows this';
GRANT SELECT ON postbox.credential_status TO pg_monitor, postbox_operator;
