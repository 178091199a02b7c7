CREATE OR REPLACE FUNCTION postbox.create_subscription(name text, inbox regclass, subscription text,
        max_outstanding_messages int DEFAULT 10000, max_outstanding_bytes bigint DEFAULT 104857600,
        appliers int DEFAULT 4, batch_size int DEFAULT 500, batch_delay interval DEFAULT '5ms',
        on_error text DEFAULT 'reject', max_attempts int DEFAULT 5, min_backoff interval DEFAULT '1s',
        max_backoff interval DEFAULT '60s', dead_letter_topic text DEFAULT NULL,
        enabled boolean DEFAULT true, statement_timeout interval DEFAULT '30s',
        lock_timeout interval DEFAULT '5s', credential text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'create_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean, interval, interval, text) IS
    'Lets `postbox pull` apply the events of a Pub/Sub subscription to an inbox. `credential` is the identity with which it receives, of kind file, environment or metadata; '
    'NULL is that of its environment. Needs EXECUTE, which PUBLIC does not have';

CREATE OR REPLACE FUNCTION postbox.drop_subscription(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_subscription(text) IS
    'Drops a subscription of this database; the Pub/Sub subscription itself stays';

CREATE OR REPLACE FUNCTION postbox.puller_endpoint() RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.puller_endpoint() IS
    'The value of postbox.endpoint, for roles with INSERT on the inbox of a subscription; `postbox pull` asks for it';
