-- Subscriptions: which Pub/Sub subscriptions `postbox pull` reads, and how their events are applied to an inbox.

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
    statement_timeout interval NOT NULL DEFAULT '30s',
    lock_timeout interval NOT NULL DEFAULT '5s',
    CHECK (on_error <> 'dead_letter_topic' OR dead_letter_topic IS NOT NULL)
);
CREATE INDEX subscription_inbox ON postbox.subscription (inbox);
COMMENT ON TABLE postbox.subscription IS
    'Which Pub/Sub subscriptions `postbox pull` applies to which inbox; only create_subscription and drop_subscription change it';
COMMENT ON COLUMN postbox.subscription.subscription IS 'The Pub/Sub subscription: a full name, or an id in the project of `postbox pull`';
COMMENT ON COLUMN postbox.subscription.max_outstanding_messages IS 'Upper limit of messages pulled and not yet acknowledged';
COMMENT ON COLUMN postbox.subscription.max_outstanding_bytes IS 'Upper limit of bytes pulled and not yet acknowledged';
COMMENT ON COLUMN postbox.subscription.appliers IS 'How many connections apply at the same time. A key is with one of them at a time';
COMMENT ON COLUMN postbox.subscription.batch_size IS 'Upper limit of events in one transaction';
COMMENT ON COLUMN postbox.subscription.batch_delay IS 'How long a batch waits until it is full';
COMMENT ON COLUMN postbox.subscription.on_error IS
    'What happens after max_attempts: reject (record a dead letter), dead_letter_topic (publish it there), nack (leave it to Pub/Sub)';
COMMENT ON COLUMN postbox.subscription.min_backoff IS 'Delay before the second attempt; doubles with each attempt, up to max_backoff';
COMMENT ON COLUMN postbox.subscription.statement_timeout IS
    'How long the events of one transaction may take, and so the longest that one event may; 0 is without a limit';
COMMENT ON COLUMN postbox.subscription.lock_timeout IS 'How long a transaction waits for a lock; 0 is without a limit';

CREATE FUNCTION postbox.create_subscription(name text, inbox regclass, subscription text,
        max_outstanding_messages int DEFAULT 1000, max_outstanding_bytes bigint DEFAULT 104857600,
        appliers int DEFAULT 4, batch_size int DEFAULT 500, batch_delay interval DEFAULT '5ms',
        on_error text DEFAULT 'reject', max_attempts int DEFAULT 5, min_backoff interval DEFAULT '1s',
        max_backoff interval DEFAULT '60s', dead_letter_topic text DEFAULT NULL,
        enabled boolean DEFAULT true, statement_timeout interval DEFAULT '30s',
        lock_timeout interval DEFAULT '5s') RETURNS void
    AS 'MODULE_PATHNAME', 'create_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean, interval, interval) IS
    'Lets `postbox pull` apply the events of a Pub/Sub subscription to an inbox. Needs EXECUTE, which PUBLIC does not have';

CREATE FUNCTION postbox.drop_subscription(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_subscription(text) IS
    'Drops a subscription of this database; the Pub/Sub subscription itself stays';

SELECT pg_catalog.pg_extension_config_dump('postbox.subscription', '');
REVOKE ALL ON postbox.subscription FROM PUBLIC;
GRANT SELECT ON postbox.subscription TO PUBLIC;
REVOKE ALL ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, boolean, interval, interval) FROM PUBLIC;
