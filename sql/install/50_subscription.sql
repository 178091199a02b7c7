-- Subscriptions: what `postbox pull` feeds into an inbox, and how.

CREATE TABLE postbox.subscription (
    name text PRIMARY KEY,
    inbox regclass NOT NULL,
    subscription text NOT NULL,
    max_outstanding_messages int NOT NULL DEFAULT 1000,
    max_outstanding_bytes bigint NOT NULL DEFAULT 104857600,
    appliers int NOT NULL DEFAULT 4,
    batch_size int NOT NULL DEFAULT 500,
    batch_delay interval NOT NULL DEFAULT '5ms',
    on_error text NOT NULL DEFAULT 'reject' CHECK (on_error IN ('reject', 'dead_letter_topic', 'nack')),
    max_attempts int NOT NULL DEFAULT 5,
    min_backoff interval NOT NULL DEFAULT '1s',
    max_backoff interval NOT NULL DEFAULT '60s',
    dead_letter_topic text,
    enabled boolean NOT NULL DEFAULT true,
    CHECK (on_error <> 'dead_letter_topic' OR dead_letter_topic IS NOT NULL)
);
CREATE INDEX subscription_inbox ON postbox.subscription (inbox);
COMMENT ON TABLE postbox.subscription IS 'what `postbox pull` feeds into which inbox; written by postbox.create_subscription and postbox.drop_subscription';
COMMENT ON COLUMN postbox.subscription.subscription IS 'Pub/Sub subscription: an id, completed with the project, or a full name';
COMMENT ON COLUMN postbox.subscription.max_outstanding_messages IS 'messages pulled and not yet acknowledged, at most';
COMMENT ON COLUMN postbox.subscription.max_outstanding_bytes IS 'bytes pulled and not yet acknowledged, at most';
COMMENT ON COLUMN postbox.subscription.appliers IS 'connections that apply at the same time; one key is with one of them';
COMMENT ON COLUMN postbox.subscription.batch_size IS 'events of one transaction, at most';
COMMENT ON COLUMN postbox.subscription.batch_delay IS 'how long a batch waits to be full';
COMMENT ON COLUMN postbox.subscription.on_error IS 'what happens to an event that failed max_attempts times: recorded as a dead letter, published to dead_letter_topic, or left to Pub/Sub';
COMMENT ON COLUMN postbox.subscription.min_backoff IS 'delay before the second attempt; doubles up to max_backoff';

CREATE FUNCTION postbox.create_subscription(name text, inbox regclass, subscription text,
        max_outstanding_messages int DEFAULT 1000, max_outstanding_bytes bigint DEFAULT 104857600,
        appliers int DEFAULT 4, batch_size int DEFAULT 500, batch_delay interval DEFAULT '5ms',
        on_error text DEFAULT 'reject', max_attempts int DEFAULT 5, min_backoff interval DEFAULT '1s',
        max_backoff interval DEFAULT '60s', dead_letter_topic text DEFAULT NULL,
        enabled boolean DEFAULT true) RETURNS void
    AS 'MODULE_PATHNAME', 'create_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean) IS
    'lets `postbox pull` feed a Pub/Sub subscription into an inbox';

CREATE FUNCTION postbox.drop_subscription(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_subscription(text) IS
    'stops feeding the inbox; the Pub/Sub subscription itself stays';

SELECT pg_catalog.pg_extension_config_dump('postbox.subscription', '');
REVOKE ALL ON postbox.subscription FROM PUBLIC;
GRANT SELECT ON postbox.subscription TO PUBLIC;
REVOKE ALL ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean) FROM PUBLIC;
