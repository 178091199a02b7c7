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
$$Lets `postbox pull` apply the events of a Pub/Sub subscription to an inbox. The Pub/Sub subscription must exist; this function does not create it. A running `postbox pull`
  reads its subscriptions every 10 s, and at once after SIGHUP. To change a subscription, drop it and create it again.

name: the name of the subscription in this database; 1 to 63 bytes.
inbox: the inbox.
subscription: the Pub/Sub subscription: an id, which the project of `postbox pull` completes, or a full name, `projects/PROJECT/subscriptions/ID`.
max_outstanding_messages: the most messages that are pulled and not yet acknowledged; 1 to 1000000.
max_outstanding_bytes: the most bytes that are pulled and not yet acknowledged; 1 to 1099511627776.
appliers: the most connections that apply events at the same time; 1 to 64. As many are used as increase throughput, and only while there is work. Events of one key are
  applied by one of them at a time.
batch_size: the most events in one transaction; 1 to 10000.
batch_delay: the time between the beginnings of transactions that are not full; 0 to 10 s. An event after a pause does not wait.
on_error: what happens to an event that failed `max_attempts` times. `reject` records it in `postbox.dead_letter`. `dead_letter_topic` publishes it to that topic. `nack`
  never gives it up: it goes back to Pub/Sub each time, and the subscription's own dead-letter policy counts these attempts.
max_attempts: after how many failed attempts an event is given up; 1 to 1000. With the defaults that is after 8 to 15 s, which is too short to remove a cause by hand.
min_backoff: the delay before the second attempt; 1 ms to 10 min. It doubles with each attempt.
max_backoff: the longest delay between attempts; `min_backoff` to 10 min.
dead_letter_topic: the topic of `on_error => 'dead_letter_topic'`; NULL otherwise.
enabled: whether `postbox pull` takes the subscription.
statement_timeout: how long the events of one transaction may take; 0, no limit, to 24 h. Batches shrink to what fits. An event that alone takes longer is given up when it
  has failed `max_attempts` times and for 10 minutes while other events were applied, or for a day if no other event came.
lock_timeout: how long a transaction waits for a lock; 0, no limit, to 24 h.
credential: the credential with which the subscription receives and publishes to `dead_letter_topic`; of kind `file`, `environment` or `metadata`. NULL uses the credentials
  of the environment of `postbox pull`. `postbox pull --credential NAME=FILE` gives the credential another file on its machine.

Rights: ownership of the inbox and EXECUTE, which is granted to no role at first. To name a credential, also `grant_credential`.
Errors: 42710 if the name exists; 22023 if a value is out of its range, `dead_letter_topic` does not fit `on_error`, or the credential is of kind `key`; 42602 if a name is
  invalid; 42704 if the credential does not exist; 42809 if `inbox` is not an inbox.
Since: 0.2.0
Example: SELECT postbox.create_subscription('videos', 'catalog_read.inbox', 'catalog.video.events.catalog-reader', max_attempts => 30, max_backoff => '10min');$$;

CREATE OR REPLACE FUNCTION postbox.drop_subscription(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_subscription(text) IS
$$Drops a subscription of this database: `postbox pull` stops feeding its inbox. The Pub/Sub subscription itself stays.

name: the name of the subscription in this database.

Rights: ownership of the inbox.
Errors: 42704 if there is no such subscription.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.puller_endpoint() RETURNS text
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.puller_endpoint() IS
    'Internal: the value of postbox.endpoint, for `postbox pull`; for roles with INSERT on the inbox of a subscription, and members of pg_read_all_settings.';
