-- Subscriptions: which Pub/Sub subscriptions `postbox pull` reads, and how their events are applied to an inbox.

CREATE TABLE postbox.subscription (
    name text PRIMARY KEY,
    inbox regclass NOT NULL,
    subscription text NOT NULL,
    max_outstanding_messages int NOT NULL DEFAULT 10000,
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
    credential text,
    CHECK (on_error <> 'dead_letter_topic' OR dead_letter_topic IS NOT NULL)
);
CREATE INDEX subscription_inbox ON postbox.subscription (inbox);
COMMENT ON TABLE postbox.subscription IS
    'Which Pub/Sub subscriptions `postbox pull` applies to which inbox; only create_subscription and drop_subscription change it';
COMMENT ON COLUMN postbox.subscription.subscription IS 'The Pub/Sub subscription: a full name, or an id in the project of `postbox pull`';
COMMENT ON COLUMN postbox.subscription.max_outstanding_messages IS 'Upper limit of messages pulled and not yet acknowledged';
COMMENT ON COLUMN postbox.subscription.max_outstanding_bytes IS 'Upper limit of bytes pulled and not yet acknowledged';
COMMENT ON COLUMN postbox.subscription.appliers IS 'How many connections apply at the same time, at most. A key is with one of them at a time';
COMMENT ON COLUMN postbox.subscription.batch_size IS 'Upper limit of events in one transaction';
COMMENT ON COLUMN postbox.subscription.batch_delay IS 'Time between the beginnings of batches that are not full; after a pause a batch begins at once';
COMMENT ON COLUMN postbox.subscription.on_error IS
    'What happens after max_attempts: reject (record a dead letter), dead_letter_topic (publish it there), nack (leave it to Pub/Sub)';
COMMENT ON COLUMN postbox.subscription.max_attempts IS
    'After how many failed attempts an event is given up. With the defaults (5 attempts, min_backoff 1 s, doubling) that is after 15 s: too short for a human '
    'to remove the cause. on_error => nack never gives up';
COMMENT ON COLUMN postbox.subscription.min_backoff IS 'Delay before the second attempt; doubles with each attempt, up to max_backoff';
COMMENT ON COLUMN postbox.subscription.statement_timeout IS
    'How long the events of one transaction may take, and so the longest that one event may; 0 is without a limit';
COMMENT ON COLUMN postbox.subscription.lock_timeout IS 'How long a transaction waits for a lock; 0 is without a limit';
COMMENT ON COLUMN postbox.subscription.credential IS
    'The credential with which `postbox pull` receives, see postbox.credential; NULL: that of its environment';

-- What a puller reports of itself, at most once a second. Logged, so that a standby can be asked, too; but no report waits for the disk or for
-- a standby (worker/puller/status_report.cc).
CREATE TABLE postbox.subscription_status (
    subscription text NOT NULL REFERENCES postbox.subscription (name) ON DELETE CASCADE ON UPDATE CASCADE,
    puller text NOT NULL,
    started_at timestamptz NOT NULL,
    last_seen timestamptz NOT NULL DEFAULT now(),
    appliers int NOT NULL,
    applied bigint NOT NULL,
    duplicates bigint NOT NULL,
    stale bigint NOT NULL,
    out_of_order bigint NOT NULL,
    dead_letters bigint NOT NULL,
    failures bigint NOT NULL,
    retrying_since timestamptz,
    next_try timestamptz,
    last_error text,
    last_error_at timestamptz,
    stream text,
    stream_since timestamptz,
    stream_error text,
    conflicts_per_minute int NOT NULL DEFAULT 0,
    unanswered_since timestamptz,
    unanswered_pid int,
    PRIMARY KEY (subscription, puller)
) WITH (fillfactor = 50);
COMMENT ON TABLE postbox.subscription_status IS
    'One row for each running `postbox pull` and subscription: what it has done since it started, and what fails';
COMMENT ON COLUMN postbox.subscription_status.puller IS 'Host and process id of `postbox pull`';
COMMENT ON COLUMN postbox.subscription_status.last_seen IS 'Time of the last report: a second after the last event at most, and every 5 minutes';
COMMENT ON COLUMN postbox.subscription_status.applied IS 'Events that took effect, or that nothing takes (ignored)';
COMMENT ON COLUMN postbox.subscription_status.duplicates IS 'Events that the inbox had seen; acknowledged again';
COMMENT ON COLUMN postbox.subscription_status.stale IS 'Events of which every projection had a version as new';
COMMENT ON COLUMN postbox.subscription_status.out_of_order IS
    'Those of them that came over a subscription with message ordering: an older version after a newer one of its key. Should be 0';
COMMENT ON COLUMN postbox.subscription_status.dead_letters IS 'Events that were given up';
COMMENT ON COLUMN postbox.subscription_status.failures IS 'Attempts that failed, of events and of batches';
COMMENT ON COLUMN postbox.subscription_status.retrying_since IS 'Since when there have been failures and no success';
COMMENT ON COLUMN postbox.subscription_status.last_error IS 'The last error, at most 500 bytes of it. It may quote values of an event';
COMMENT ON COLUMN postbox.subscription_status.next_try IS 'When what failed last is tried again';
COMMENT ON COLUMN postbox.subscription_status.stream IS
    'connected to Pub/Sub; connecting for the first time; reconnecting after an error that may pass; failed: tried again every 10 s';
COMMENT ON COLUMN postbox.subscription_status.stream_since IS 'Since when the stream is so';
COMMENT ON COLUMN postbox.subscription_status.stream_error IS 'Why the stream has ended, until it is connected again';
COMMENT ON COLUMN postbox.subscription_status.conflicts_per_minute IS
    'Transactions of the subscription that wanted the same locks, and were rolled back and applied alone, in the minute before last_seen. Fewer run at the same time then';
COMMENT ON COLUMN postbox.subscription_status.unanswered_since IS
    'Since when the longest statement of its connections waits for its answer; NULL unless that is 20 s or more';
COMMENT ON COLUMN postbox.subscription_status.unanswered_pid IS
    'The process of the server that has not answered. Behind a pooler the number is of no use';
ALTER TABLE postbox.subscription_status ENABLE ROW LEVEL SECURITY;

SELECT pg_catalog.pg_extension_config_dump('postbox.subscription', '');
REVOKE ALL ON postbox.subscription FROM PUBLIC;
GRANT SELECT ON postbox.subscription TO PUBLIC;
REVOKE ALL ON postbox.subscription_status FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON postbox.subscription_status TO PUBLIC;
