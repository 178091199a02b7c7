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
    on_error text NOT NULL DEFAULT 'reject' CHECK (on_error IN ('reject', 'dead_letter_topic', 'nack', 'park_key')),
    max_attempts int NOT NULL DEFAULT 5,
    min_backoff interval NOT NULL DEFAULT '1s',
    max_backoff interval NOT NULL DEFAULT '60s',
    dead_letter_topic text,
    statement_timeout interval NOT NULL DEFAULT '30s',
    lock_timeout interval NOT NULL DEFAULT '5s',
    parked_min_backoff interval NOT NULL DEFAULT '10s',
    parked_max_backoff interval NOT NULL DEFAULT '10min',
    parked_max_attempts int NOT NULL DEFAULT 20,
    max_parked_keys int NOT NULL DEFAULT 10000,
    max_parked_events int NOT NULL DEFAULT 100000,
    max_parked_bytes bigint NOT NULL DEFAULT 1073741824,
    credential text,
    paused_at timestamptz,
    paused_reason text,
    paused_until timestamptz,
    CHECK (on_error <> 'dead_letter_topic' OR dead_letter_topic IS NOT NULL)
);
CREATE INDEX subscription_inbox ON postbox.subscription (inbox);
COMMENT ON TABLE postbox.subscription IS
$$The subscriptions of this database, one row for each: which Pub/Sub subscriptions `postbox pull` applies to which inbox, and how. Only the functions
  of subscriptions change it.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.subscription.name IS 'The name of the subscription in this database.';
COMMENT ON COLUMN postbox.subscription.inbox IS 'The inbox to which the events are applied.';
COMMENT ON COLUMN postbox.subscription.subscription IS 'The Pub/Sub subscription: a full name, or an id in the project of `postbox pull`.';
COMMENT ON COLUMN postbox.subscription.max_outstanding_messages IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.max_outstanding_bytes IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.appliers IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.batch_size IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.batch_delay IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.on_error IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.max_attempts IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.min_backoff IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.max_backoff IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.dead_letter_topic IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.statement_timeout IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.lock_timeout IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.parked_min_backoff IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.parked_max_backoff IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.parked_max_attempts IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.max_parked_keys IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.max_parked_events IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.max_parked_bytes IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.credential IS 'See the argument of `postbox.create_subscription`.';
COMMENT ON COLUMN postbox.subscription.paused_at IS 'When the subscription was paused. NULL if it was not, or was resumed.';
COMMENT ON COLUMN postbox.subscription.paused_reason IS 'Why it was paused.';
COMMENT ON COLUMN postbox.subscription.paused_until IS
    'Until when the subscription is paused: `infinity` means until it is resumed. It is not paused if this is NULL or has passed.';

-- The reports of pullers, at most one a second each. The table is logged, so that standbys have it, but no report waits for the disk or for a
-- standby (worker/puller/status_report.cc).
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
    parked bigint NOT NULL DEFAULT 0,
    failures bigint NOT NULL,
    retrying_since timestamptz,
    next_try timestamptz,
    last_error text,
    last_error_at timestamptz,
    stream text,
    stream_since timestamptz,
    stream_error text,
    conflicts_per_minute int NOT NULL DEFAULT 0,
    suspended_types text[],
    suspended_since timestamptz,
    suspended_error text,
    received bigint,
    nacked bigint,
    in_hand bigint,
    waiting jsonb,
    oldest_waiting timestamptz,
    apply_time_p50 interval,
    apply_time_p99 interval,
    unanswered_since timestamptz,
    lag interval,
    behind_at timestamptz,
    events_per_second float8,
    catch_up float8,
    unanswered_pid int,
    PRIMARY KEY (subscription, puller)
) WITH (fillfactor = 50);
COMMENT ON TABLE postbox.subscription_status IS
$$What running pullers report: one row for each running `postbox pull` and subscription, with what it has done since it started and what fails. A puller writes its row at
  most once a second.

Rights: the owner of the inbox, roles with INSERT on the inbox, and members of pg_monitor and postbox_operator see the rows of a subscription. Roles with INSERT on the
  inbox write them.$$;
COMMENT ON COLUMN postbox.subscription_status.subscription IS 'The name of the subscription in this database.';
COMMENT ON COLUMN postbox.subscription_status.puller IS 'Host and process ID of `postbox pull`.';
COMMENT ON COLUMN postbox.subscription_status.started_at IS 'When the puller began with the subscription.';
COMMENT ON COLUMN postbox.subscription_status.last_seen IS 'The time of the last report. A running puller reports at most a second after the last event, and at least every 5 minutes.';
COMMENT ON COLUMN postbox.subscription_status.appliers IS 'The most connections that apply events at the same time, as configured; 0 if the subscription could not be started.';
COMMENT ON COLUMN postbox.subscription_status.applied IS 'Events that took effect, and events that no projection or handler takes (`ignored`).';
COMMENT ON COLUMN postbox.subscription_status.duplicates IS 'Events that the inbox had seen before. They are acknowledged again.';
COMMENT ON COLUMN postbox.subscription_status.stale IS 'Events older than what every projection that takes them had stored.';
COMMENT ON COLUMN postbox.subscription_status.out_of_order IS
    'The stale events that came over a subscription with message ordering: an older version after a newer one of its key. Should be 0.';
COMMENT ON COLUMN postbox.subscription_status.dead_letters IS 'Events that were given up. Parked events do not count.';
COMMENT ON COLUMN postbox.subscription_status.parked IS 'Events that were stored in their parked key instead of being applied (`on_error => ''park_key''`).';
COMMENT ON COLUMN postbox.subscription_status.failures IS 'Attempts that failed, of events and of batches.';
COMMENT ON COLUMN postbox.subscription_status.retrying_since IS 'Since when there have been failures and no success. NULL if nothing has failed since the last success.';
COMMENT ON COLUMN postbox.subscription_status.next_try IS 'When the attempt that failed last is repeated. NULL if nothing waits for a retry.';
COMMENT ON COLUMN postbox.subscription_status.last_error IS 'The last error, also of an acknowledgement, at most 500 bytes of it. It may quote values of an event. NULL if there was none.';
COMMENT ON COLUMN postbox.subscription_status.last_error_at IS 'When the last error happened. NULL if there was none.';
COMMENT ON COLUMN postbox.subscription_status.stream IS
    'The state of the stream from Pub/Sub: `connecting` for the first time, `connected`, `reconnecting` after an error that may pass, or `failed`: it is tried again every '
    '10 s. See Troubleshooting. `paused` if the puller has stopped pulling, because the subscription is paused or a limit of what may be parked is reached.';
COMMENT ON COLUMN postbox.subscription_status.stream_since IS 'Since when the stream has been in this state.';
COMMENT ON COLUMN postbox.subscription_status.stream_error IS 'Why the stream ended, or the reason of the pause. NULL while it is connected.';
COMMENT ON COLUMN postbox.subscription_status.conflicts_per_minute IS
    'Transactions of the subscription that conflicted over locks with each other, and were rolled back and applied again alone, in the minute before `last_seen`. Fewer '
    'run at the same time after conflicts.';
COMMENT ON COLUMN postbox.subscription_status.unanswered_since IS 'Since when the longest-waiting statement of its connections has had no answer. NULL unless that is 20 s or more.';
COMMENT ON COLUMN postbox.subscription_status.unanswered_pid IS 'The process of the server that has not answered. Behind a connection pooler the number is of no use.';
COMMENT ON COLUMN postbox.subscription_status.suspended_types IS
    'The event types that are suspended, at most 100: their handler or projection fails for several keys with the same error. Their events wait until it works. NULL if '
    'there are none.';
COMMENT ON COLUMN postbox.subscription_status.suspended_since IS 'Since when the first of `suspended_types` has been suspended. NULL if there are none.';
COMMENT ON COLUMN postbox.subscription_status.suspended_error IS
    'The last error of the first of `suspended_types`, at most 500 bytes of it. It may quote values of an event. NULL if there are none.';
COMMENT ON COLUMN postbox.subscription_status.received IS 'Messages that the puller has received, redeliveries included. NULL if its release does not report it, as for the next columns.';
COMMENT ON COLUMN postbox.subscription_status.nacked IS 'Messages that the puller gave back to Pub/Sub because of a failure: the one that failed, and those behind it in its key.';
COMMENT ON COLUMN postbox.subscription_status.in_hand IS 'Messages that the puller has received, and has neither acknowledged nor given back.';
COMMENT ON COLUMN postbox.subscription_status.waiting IS
    'The messages in hand that are not being applied, by event type, at most 100 types: `{TYPE: {"events": n, "versions": n, "oldest_ms": n}}`. `versions` is the most versions '
    'of one aggregate that wait, `oldest_ms` the age of the oldest message since it was published, at `last_seen`.';
COMMENT ON COLUMN postbox.subscription_status.oldest_waiting IS 'When the oldest of these messages was published. NULL if none waits.';
COMMENT ON COLUMN postbox.subscription_status.apply_time_p50 IS
    'The time that half of the batches did not exceed, in the minute before `last_seen`: from the first statement of a batch to its last COMMIT. It may be a fifth too long. '
    'NULL if there was none.';
COMMENT ON COLUMN postbox.subscription_status.apply_time_p99 IS 'Likewise, the time that 99 of 100 batches did not exceed.';
COMMENT ON COLUMN postbox.subscription_status.lag IS
    'How long before its arrival the oldest of the messages that came last had been published, by the clock of the puller. NULL if none has come.';
COMMENT ON COLUMN postbox.subscription_status.behind_at IS
    'When a message came last that had been published more than 10 s before, so that the subscription had not caught up with its topic. NULL if none did.';
COMMENT ON COLUMN postbox.subscription_status.events_per_second IS 'Messages that came per second, in the minute before `last_seen`.';
COMMENT ON COLUMN postbox.subscription_status.catch_up IS 'By how many seconds `lag` has decreased per second in that minute. Negative if it has grown.';
ALTER TABLE postbox.subscription_status ENABLE ROW LEVEL SECURITY;

SELECT pg_catalog.pg_extension_config_dump('postbox.subscription', '');
REVOKE ALL ON postbox.subscription FROM PUBLIC;
GRANT SELECT ON postbox.subscription TO PUBLIC;
REVOKE ALL ON postbox.subscription_status FROM PUBLIC;
GRANT SELECT, INSERT, UPDATE, DELETE ON postbox.subscription_status TO PUBLIC;
