CREATE OR REPLACE FUNCTION postbox.create_credential(name text, kind text, secret text DEFAULT NULL, file text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.create_credential(text, text, text, text) IS
$$Creates a credential: a named identity at Pub/Sub that publications and subscriptions can use instead of that of the environment.

Prefer `file` to `secret`: a secret in a statement may appear in the log of the server and in the history of psql. The JSON document is one that Google makes: of type
  `service_account`, `authorized_user`, `external_account` (workload identity federation) or `impersonated_service_account`.

name: the name; 1 to 63 bytes.
kind: where the identity is. `key`: a JSON document that is kept in this database, for publications only; no dump has it, so give it again after a restore. `file`: a JSON
  document in a file, on the server for publications, on the machine of `postbox pull` for subscriptions; a publisher notices a new file within 2 s. `environment`:
  application default credentials, as without a credential. `metadata`: the account of the machine, from the metadata server of Google Cloud.
secret: the JSON document of a `key`; at most 7500 bytes.
file: the absolute path of the file, at most 1023 bytes. For a `key` the server reads the document from it now, and the statement does not contain it.

Rights: superuser, even if EXECUTE is granted to another role.
Errors: 42710 if the name exists; 22023 if the kind is unknown, `secret` and `file` do not fit the kind, or the document is not a credential; 22P02 if the document is not
  JSON; 54000 if it is too large; 58P01 if the file of a `key` does not exist; 42602 if a name or the path is invalid.
Since: 0.2.0
Example: SELECT postbox.create_credential('billing', 'file', file => '/run/secrets/billing.json');$$;

CREATE OR REPLACE FUNCTION postbox.alter_credential(name text, kind text DEFAULT NULL, secret text DEFAULT NULL, file text DEFAULT NULL) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.alter_credential(text, text, text, text) IS
$$Gives a credential another kind, secret or file. Publications go on with the new identity within 2 s; no event is lost, and other publications do not wait.

name: the name of the credential.
kind: the new kind, see `create_credential`. NULL leaves it as it is.
secret: the new JSON document of a `key`.
file: the new file; for a `key` the file from which the server reads the document now.

Rights: superuser.
Errors: 42704 if the credential does not exist; 55006 if the new kind is `key` and a subscription uses the credential; 55000 if the kind becomes `key` in a transaction of
  isolation level REPEATABLE READ or SERIALIZABLE; otherwise those of `create_credential`.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.drop_credential(name text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.drop_credential(text) IS
$$Drops a credential that no publication and no subscription uses, with its grants.

name: the name of the credential.

Rights: superuser.
Errors: 42704 if the credential does not exist; 2BP01 if it is in use; 55000 if the isolation level is REPEATABLE READ or SERIALIZABLE.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.grant_credential(name text, role regrole) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.grant_credential(text, regrole) IS
$$Lets a role and its members name a credential in `create_publication`, `alter_publication` and `create_subscription`. They need EXECUTE on these functions, too.

name: the name of the credential.
role: the role. The grant is to its name: revoke it before you drop or rename the role, because a role that is later given the name may use the credential.

Rights: superuser.
Errors: 42704 if the credential or the role does not exist.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.revoke_credential(name text, role text) RETURNS void
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.revoke_credential(text, text) IS
$$Takes back a grant of `grant_credential`. Publications and subscriptions that use the credential keep it.

name: the name of the credential.
role: the name of the role, which need not exist any more.

Rights: superuser.
Errors: 42704 if the credential does not exist or is not granted to the role.
Since: 0.2.0$$;

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
$$One row for each credential, and one for the identity of publications without one. It never shows a secret. What pullers know of credentials is in
  `postbox.subscription_status`.

Rights: SELECT for members of pg_monitor and postbox_operator.$$;
COMMENT ON COLUMN postbox.credential_status.name IS 'The credential. NULL: the identity of publications without a credential.';
COMMENT ON COLUMN postbox.credential_status.kind IS '`key`, `file`, `environment` or `metadata`, see `create_credential`.';
COMMENT ON COLUMN postbox.credential_status.identity IS
    'The account, if the document names it: the e-mail address of a service account, for example. NULL if it is not known.';
COMMENT ON COLUMN postbox.credential_status.valid_until IS 'When the current token expires; another one is fetched before. NULL if no token is known.';
COMMENT ON COLUMN postbox.credential_status.used_by IS 'The publications and subscriptions that use it.';
COMMENT ON COLUMN postbox.credential_status.last_error IS 'Why the credential cannot be used, as far as workers know; NULL if no error is known.';
COMMENT ON COLUMN postbox.credential_status.since IS 'Since when a worker knows this; NULL if no worker has reported it.';
