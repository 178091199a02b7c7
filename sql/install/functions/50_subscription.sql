CREATE OR REPLACE FUNCTION postbox.create_subscription(name text, inbox regclass, subscription text,
        max_outstanding_messages int DEFAULT 10000, max_outstanding_bytes bigint DEFAULT 104857600,
        appliers int DEFAULT 4, batch_size int DEFAULT 500, batch_delay interval DEFAULT '5ms',
        on_error text DEFAULT 'reject', max_attempts int DEFAULT 5, min_backoff interval DEFAULT '1s',
        max_backoff interval DEFAULT '60s', dead_letter_topic text DEFAULT NULL,
        statement_timeout interval DEFAULT '30s', lock_timeout interval DEFAULT '5s',
        parked_min_backoff interval DEFAULT '10s', parked_max_backoff interval DEFAULT '10min', parked_max_attempts int DEFAULT 20,
        max_parked_keys int DEFAULT 10000, max_parked_events int DEFAULT 100000, max_parked_bytes bigint DEFAULT 1073741824,
        credential text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'create_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_subscription(text, regclass, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, interval, interval, interval, interval, int, int, int, bigint, text) IS
$$Lets `postbox pull` apply the events of a Pub/Sub subscription to an inbox. The Pub/Sub subscription must exist; this function does not create it. A running `postbox pull`
  reads its subscriptions every 10 s, and at once after SIGHUP.

name: the name of the subscription in this database; 1 to 63 bytes.
inbox: the inbox.
subscription: the Pub/Sub subscription: an id, which the project of `postbox pull` completes, or a full name, `projects/PROJECT/subscriptions/ID`.
max_outstanding_messages: the most messages that are pulled and not yet acknowledged; 1 to 1000000.
max_outstanding_bytes: the most bytes that are pulled and not yet acknowledged; 1 to 1099511627776.
appliers: the most connections that apply events at the same time; 1 to 64. As many are used as increase throughput, and only while there is work. Events of one key are
  applied by one of them at a time.
batch_size: the most events in one transaction; 1 to 10000.
batch_delay: the time between the beginnings of transactions that are not full; 0 to 10 s. An event after a pause does not wait.
on_error: what happens to an event that failed `max_attempts` times. `reject` records it in `postbox.dead_letter`, and its key goes on without it. `park_key` records it
  there, too, and parks its key: later events of the same aggregate id are recorded behind it, in order, and other keys go on. An event without an event id or an aggregate
  id, or with one of more than 1024 bytes, is rejected instead. `dead_letter_topic` publishes the event to that topic. `nack` never gives it up: it goes back to Pub/Sub each
  time, and the subscription's own dead-letter policy counts these attempts.
max_attempts: after how many failed attempts an event is given up; 1 to 1000. With the defaults that is after 8 to 15 s, which is too short to remove a cause by hand. While
  no other event of its type is applied, an event is not given up before it has failed for 10 s, and not at all if its type is suspended.
min_backoff: the delay before the second attempt; 1 ms to 10 min. It doubles with each attempt.
max_backoff: the longest delay between attempts; `min_backoff` to 10 min.
dead_letter_topic: the topic of `on_error => 'dead_letter_topic'`; NULL otherwise.
statement_timeout: how long the events of one transaction may take; 0, no limit, to 24 h. Batches shrink to what fits. An event that alone takes longer is given up when it
  has failed `max_attempts` times and for 10 minutes while other events were applied, or for a day if no other event came.
lock_timeout: how long a transaction waits for a lock; 0, no limit, to 24 h.
parked_min_backoff: with `park_key`, the delay before `postbox pull` retries the first event of a parked key; 1 ms to 24 h. It doubles with each retry.
parked_max_backoff: the longest delay between these retries; `parked_min_backoff` to 24 h.
parked_max_attempts: after how many such retries a parked key waits for a redrive; 0, no retry, to 1000000.
max_parked_keys: the most parked keys of the inbox; 1 to 1000000. At this limit, and at the next two, `postbox pull` receives nothing for the subscription: `stream` of
  `postbox.subscription_status` is `paused`. It goes on by itself when less than nine tenths of each limit are used.
max_parked_events: the most parked events of the inbox; 1 to 10000000.
max_parked_bytes: the most bytes that the payloads and attributes of parked events take; 1 to 1099511627776.
credential: the credential with which the subscription receives and publishes to `dead_letter_topic`; of kind `file`, `environment` or `metadata`. NULL uses the credentials
  of the environment of `postbox pull`. `postbox pull --credential NAME=FILE` gives the credential another file on its machine.

Rights: ownership of the inbox and EXECUTE, which is granted to no role at first. To name a credential, also `grant_credential`.
Errors: 42710 if the name exists; 22023 if a value is out of its range, `dead_letter_topic` does not fit `on_error`, or the credential is of kind `key`; 42602 if a name is
  invalid; 42704 if the credential does not exist; 42809 if `inbox` is not an inbox.
Since: 0.2.0
Example: SELECT postbox.create_subscription('videos', 'catalog_read.inbox', 'catalog.video.events.catalog-reader', max_attempts => 30, max_backoff => '10min');$$;

CREATE OR REPLACE FUNCTION postbox.alter_subscription(name text, subscription text DEFAULT NULL,
        max_outstanding_messages int DEFAULT NULL, max_outstanding_bytes bigint DEFAULT NULL,
        appliers int DEFAULT NULL, batch_size int DEFAULT NULL, batch_delay interval DEFAULT NULL,
        on_error text DEFAULT NULL, max_attempts int DEFAULT NULL, min_backoff interval DEFAULT NULL,
        max_backoff interval DEFAULT NULL, dead_letter_topic text DEFAULT NULL,
        statement_timeout interval DEFAULT NULL, lock_timeout interval DEFAULT NULL,
        parked_min_backoff interval DEFAULT NULL, parked_max_backoff interval DEFAULT NULL, parked_max_attempts int DEFAULT NULL,
        max_parked_keys int DEFAULT NULL, max_parked_events int DEFAULT NULL, max_parked_bytes bigint DEFAULT NULL,
        credential text DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'alter_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.alter_subscription(text, text, int, bigint, int, int, interval, text, int,
        interval, interval, text, interval, interval, interval, interval, int, int, int, bigint, text) IS
$$Changes a subscription in place. No event is lost. NULL leaves a property as it is; the ranges are those of `create_subscription`. The inbox cannot change.

A running `postbox pull` restarts a changed subscription, and no other, when it reads its subscriptions again: every 10 s, and at once after SIGHUP. It first finishes what
  it is applying and gives back the other messages that it holds.

name: the name of the subscription in this database.
subscription: the new Pub/Sub subscription. What the earlier one still holds stays there.
max_outstanding_messages: the most messages that are pulled and not yet acknowledged.
max_outstanding_bytes: the most bytes that are pulled and not yet acknowledged.
appliers: the most connections that apply events at the same time.
batch_size: the most events in one transaction.
batch_delay: the time between the beginnings of transactions that are not full.
on_error: what happens to an event that failed `max_attempts` times. Another value than `dead_letter_topic` removes the dead-letter topic. What is parked
  stays parked, and is retried only with `park_key`.
max_attempts: after how many failed attempts an event is given up.
min_backoff: the delay before the second attempt.
max_backoff: the longest delay between attempts.
dead_letter_topic: the topic of `on_error => 'dead_letter_topic'`.
statement_timeout: how long the events of one transaction may take.
lock_timeout: how long a transaction waits for a lock.
parked_min_backoff: the delay before the first event of a parked key is retried.
parked_max_backoff: the longest delay between these retries.
parked_max_attempts: after how many such retries a parked key waits for a redrive.
max_parked_keys: the most parked keys of the inbox.
max_parked_events: the most parked events of the inbox.
max_parked_bytes: the most bytes that parked events take.
credential: the credential with which the subscription receives and publishes to `dead_letter_topic`; `''` returns to the credentials of the environment of `postbox pull`.

Rights: ownership of the inbox and EXECUTE, which is granted to no role at first. A role that changes the Pub/Sub subscription, the topic or the credential must have been
  granted the credential; see `grant_credential`.
Errors: 42704 if the subscription or the credential does not exist; 22023 if a value is out of its range, `dead_letter_topic` does not fit `on_error`, or the credential is
  of kind `key`; 42602 if a name is invalid; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.alter_subscription('videos', appliers => 8, max_backoff => '10min');$$;

CREATE OR REPLACE FUNCTION postbox.pause_subscription(name text, reason text, until timestamptz DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'pause_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.pause_subscription(text, text, timestamptz) IS
$$Stops a subscription until it is resumed, or until a time. Its events wait at Pub/Sub, for as long as that retains messages. To pause a paused subscription replaces the
  reason and the end.

A running `postbox pull` stops pulling when it reads its subscriptions again: every 10 s, and at once after SIGHUP. It finishes what it is applying and gives back the
  other messages that it holds. It shows the pause in `postbox.subscription_status`, with `stream` being `paused`. The clock of the database decides when the pause is
  over.

name: the name of the subscription in this database.
reason: why, for others; 1 to 500 bytes. Every role can read it.
until: when the subscription goes on by itself. NULL means that it waits for `resume_subscription`.

Rights: ownership of the inbox, or membership in `postbox_operator`.
Errors: 42704 if there is no such subscription; 22004 if `name` or `reason` is NULL; 22023 if `reason` is empty or too long, or `until` is not in the future; 42501 without
  the rights.
Since: 0.2.0
Example: SELECT postbox.pause_subscription('videos', 'catalog migration, see the wiki', until => now() + interval '2 hours');$$;

CREATE OR REPLACE FUNCTION postbox.resume_subscription(name text) RETURNS void
    AS 'MODULE_PATHNAME', 'resume_subscription' LANGUAGE C;
COMMENT ON FUNCTION postbox.resume_subscription(text) IS
$$Ends the pause of a subscription. A running `postbox pull` goes on with it when it reads its subscriptions again: every 10 s, and at once after SIGHUP. Changes nothing if
  the subscription is not paused.

name: the name of the subscription in this database.

Rights: ownership of the inbox, or membership in `postbox_operator`.
Errors: 42704 if there is no such subscription; 42501 without the rights.
Since: 0.2.0
Example: SELECT postbox.resume_subscription('videos');$$;

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

CREATE OR REPLACE FUNCTION postbox.session_is_stopped(pid integer) RETURNS boolean
    LANGUAGE C VOLATILE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.session_is_stopped(integer) IS
    'Internal: whether the process of a session is stopped, for `postbox pull`; NULL unless it is a session of a role that the caller belongs to, or where the system cannot say.';
