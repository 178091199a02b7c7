CREATE OR REPLACE FUNCTION postbox.create_credential(name text, kind text, secret text DEFAULT NULL, file text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_credential(text, text, text, text) IS
    'Names an identity for publications and subscriptions. Of kind key, it is a JSON document of Google: `secret`, or what is in `file` of the server now. '
    'Of kind file, it is what is in `file` whenever it is used. The others, environment and metadata, take neither. For superusers';

CREATE OR REPLACE FUNCTION postbox.alter_credential(name text, kind text DEFAULT NULL, secret text DEFAULT NULL, file text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_credential(text, text, text, text) IS
    'Gives a credential another kind, secret or file, as create_credential does. What uses it goes on with the new identity. NULL leaves the kind unchanged. For superusers';

CREATE OR REPLACE FUNCTION postbox.drop_credential(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_credential(text) IS 'Drops a credential that no publication and no subscription uses. For superusers';

CREATE OR REPLACE FUNCTION postbox.grant_credential(name text, role regrole) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.grant_credential(text, regrole) IS
    'Lets a role, and its members, name a credential in create_publication, alter_publication and create_subscription. For superusers';

CREATE OR REPLACE FUNCTION postbox.revoke_credential(name text, role text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.revoke_credential(text, text) IS
    'Takes that back; the role may be gone. Publications and subscriptions that use the credential keep it. For superusers';

CREATE OR REPLACE VIEW postbox.credential_status AS
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
COMMENT ON COLUMN postbox.credential_status.identity IS 'The account, as far as that is known without asking: the e-mail address of a service account, for example';
COMMENT ON COLUMN postbox.credential_status.valid_until IS 'When the token ends that is used now; another one is fetched before';
COMMENT ON COLUMN postbox.credential_status.used_by IS 'Publications and subscriptions. What pullers know is in postbox.subscription_status';
COMMENT ON COLUMN postbox.credential_status.last_error IS 'Why it cannot be used; NULL if nothing is known against it';
COMMENT ON COLUMN postbox.credential_status.since IS 'Since when the worker knows this';
