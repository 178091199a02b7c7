-- Publications: the events of an outbox go to a topic. Their lanes, their status, and the functions that repair a stuck
-- event.

CREATE TABLE postbox.publication (
    name            text        PRIMARY KEY,
    outbox          regclass    NOT NULL,
    topic           text        NOT NULL,
    aggregate_types text[]      CHECK (cardinality(aggregate_types) > 0),
    ordering        text        NOT NULL DEFAULT 'key',
    lanes           int         NOT NULL DEFAULT 1 CHECK (lanes > 0),
    max_attempts    int         NOT NULL DEFAULT 5 CHECK (max_attempts > 0),
    base_backoff    interval    NOT NULL DEFAULT '10s' CHECK (base_backoff > interval '0'),
    max_backoff     interval    NOT NULL DEFAULT '10min' CHECK (max_backoff BETWEEN base_backoff AND interval '1 day'),
    on_failure      text        NOT NULL DEFAULT 'park_key' CHECK (on_failure IN ('park_key', 'park_event')),
    created_at      timestamptz NOT NULL DEFAULT now(),
    wanted_lanes    int         CHECK (wanted_lanes > 0),
    filter_changes  xid8[]      NOT NULL DEFAULT '{0}',
    home            text        NOT NULL,
    credential      text,
    paused_at       timestamptz,
    paused_reason   text,
    paused_until    timestamptz
);
CREATE INDEX publication_outbox ON postbox.publication (outbox);
COMMENT ON TABLE postbox.publication IS
$$One row for each publication: which events of an outbox go to which topic. Only the functions of publications change it; workers set `lanes` to `wanted_lanes` when they have redistributed the keys.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.publication.name IS 'The name of the publication';
COMMENT ON COLUMN postbox.publication.outbox IS 'The outbox that it reads';
COMMENT ON COLUMN postbox.publication.topic IS 'The topic: an id, which postbox.project_id completes, or a full name';
COMMENT ON COLUMN postbox.publication.aggregate_types IS 'The aggregate types whose events are published; NULL: all';
COMMENT ON COLUMN postbox.publication.ordering IS 'key, bucket:N or none; see create_publication';
COMMENT ON COLUMN postbox.publication.lanes IS 'The number of lanes';
COMMENT ON COLUMN postbox.publication.max_attempts IS 'How many times a rejected event is attempted';
COMMENT ON COLUMN postbox.publication.base_backoff IS 'The delay before the second attempt of a rejected event; it doubles with each attempt';
COMMENT ON COLUMN postbox.publication.max_backoff IS 'The longest delay between attempts';
COMMENT ON COLUMN postbox.publication.on_failure IS 'park_key: later events of the key wait for a rejected event; park_event: they do not';
COMMENT ON COLUMN postbox.publication.created_at IS 'When the publication was created';
COMMENT ON COLUMN postbox.publication.wanted_lanes IS 'The number of lanes that it will have when workers have redistributed its keys; NULL if it has them';
COMMENT ON COLUMN postbox.publication.filter_changes IS
    'The transactions that last changed aggregate_types, up to 100, the latest one last; 0 stands for the creation. Workers read again what they read with the filter '
    'from before a change and a snapshot that sees the change';
COMMENT ON COLUMN postbox.publication.home IS 'The database that publishes it: the system identifier of the cluster and the OID of the database; see claim_publication';
COMMENT ON COLUMN postbox.publication.credential IS 'The credential with which it publishes, see postbox.credential; NULL: the identity of the server''s environment';
COMMENT ON COLUMN postbox.publication.paused_at IS 'When it was paused; NULL if it was not, or was resumed';
COMMENT ON COLUMN postbox.publication.paused_reason IS 'Why it was paused';
COMMENT ON COLUMN postbox.publication.paused_until IS
    'Until when it is paused: infinity means until it is resumed. It is not paused if this is NULL or has passed';
SELECT pg_catalog.pg_extension_config_dump('postbox.publication', '');
GRANT SELECT ON postbox.publication TO PUBLIC;

CREATE TABLE postbox.publication_state (
    publication     text        PRIMARY KEY,
    attempts        int         NOT NULL DEFAULT 0,
    next_retry_at   timestamptz,
    suspended_since timestamptz,
    last_error      text,
    sent_again      bigint      NOT NULL DEFAULT 0,
    sent_again_at   timestamptz
) WITH (fillfactor = 50);
COMMENT ON TABLE postbox.publication_state IS
$$One row for each publication: whether it is suspended after failed attempts, and what was sent again. Workers write it. `postbox.publication_status` shows it with the
  rest of the state.

Rights: SELECT, which PUBLIC has on all columns except `last_error`: an error may show data of events. Members of `postbox_operator` and `pg_monitor` have it on all
  columns.$$;
COMMENT ON COLUMN postbox.publication_state.publication IS 'The name of the publication';
COMMENT ON COLUMN postbox.publication_state.attempts IS 'How many attempts in a row have failed';
COMMENT ON COLUMN postbox.publication_state.next_retry_at IS 'When the next attempt is due; NULL: immediately';
COMMENT ON COLUMN postbox.publication_state.suspended_since IS 'Since when attempts in a row have failed; NULL if the last one succeeded';
COMMENT ON COLUMN postbox.publication_state.last_error IS 'Why the last attempt failed; NULL if it succeeded';
COMMENT ON COLUMN postbox.publication_state.sent_again IS
    'How many events were sent again, at most, beside those that the lanes of a log count; see sent_again_at_most of postbox.publication_status';
COMMENT ON COLUMN postbox.publication_state.sent_again_at IS 'When the last of them were counted; NULL if there were none';
SELECT pg_catalog.pg_extension_config_dump('postbox.publication_state', '');
-- An error may show data of events, so last_error is for roles that may read the outbox: postbox.publication_status shows it to them.
GRANT SELECT (publication, attempts, next_retry_at, suspended_since, sent_again, sent_again_at) ON postbox.publication_state TO PUBLIC;
GRANT SELECT ON postbox.publication_state TO pg_monitor, postbox_operator;

-- A long backlog does not hold up later events: they are read ahead of it, with a separate position beside that of the lane. Readers
-- that ignore it take what was read ahead for unread.
CREATE TYPE postbox.position_ahead AS (
    after    bigint,
    upto     bigint[],
    snapshot pg_snapshot[],
    next_xid xid8[],
    withheld bigint[]
);
COMMENT ON TYPE postbox.position_ahead IS 'Internal: what a lane has read ahead of a long backlog.';
COMMENT ON COLUMN postbox.position_ahead.after IS 'Every event of the backlog has at most this seq';
COMMENT ON COLUMN postbox.position_ahead.upto IS 'Upper ends of the zones of seq, as zone_upto of postbox.lane; rows above the last one are unread';
COMMENT ON COLUMN postbox.position_ahead.snapshot IS 'The snapshot of each zone';
COMMENT ON COLUMN postbox.position_ahead.next_xid IS 'The next transaction id of the cluster, read after the snapshot of each zone';
COMMENT ON COLUMN postbox.position_ahead.withheld IS 'The seqs of events in these zones that count as unread, because the backlog has earlier events of their keys';

CREATE TABLE postbox.lane (
    publication   text NOT NULL,
    slice         int  NOT NULL,
    lock_token    text,
    locked_at     timestamptz,
    system_identifier numeric,
    floor         bigint,
    hwm           bigint,
    snapshot      pg_snapshot,
    next_xid      xid8,
    zone_upto     bigint[],
    zone_snapshot pg_snapshot[],
    zone_next_xid xid8[],
    ahead         postbox.position_ahead,
    sent_again    bigint NOT NULL DEFAULT 0,
    sent_again_at timestamptz,
    PRIMARY KEY (publication, slice)
) WITH (fillfactor = 50);
COMMENT ON TABLE postbox.lane IS
$$One row for each lane of a publication of a `log`: a hash slice of its keys, the worker that serves it, and its position. Workers write it.

Rights: SELECT, which PUBLIC has.$$;
COMMENT ON COLUMN postbox.lane.publication IS 'The name of the publication';
COMMENT ON COLUMN postbox.lane.slice IS 'The number of the lane, from 0. Its keys are those for which lane_slice(aggregate_id, lanes) returns this number';
COMMENT ON COLUMN postbox.lane.lock_token IS 'The worker that holds the lane, see postbox.workers, or that held it when it was lost; NULL: the last worker gave it up';
COMMENT ON COLUMN postbox.lane.locked_at IS 'When that worker last wrote this row';
COMMENT ON COLUMN postbox.lane.system_identifier IS 'The cluster whose transaction ids the position consists of';
COMMENT ON COLUMN postbox.lane.floor IS 'Every row of the log up to this seq is read';
COMMENT ON COLUMN postbox.lane.hwm IS 'Every row of the log above this seq is unread, except those read ahead';
COMMENT ON COLUMN postbox.lane.snapshot IS 'The rows that were visible when the lane last caught up; NULL: the lane has not begun';
COMMENT ON COLUMN postbox.lane.next_xid IS 'The next transaction id of the cluster, read after that snapshot';
COMMENT ON COLUMN postbox.lane.zone_upto IS 'Upper ends of the zones of seq up to hwm; the rows of a zone are read if its snapshot sees them';
COMMENT ON COLUMN postbox.lane.zone_snapshot IS 'The snapshot of each zone';
COMMENT ON COLUMN postbox.lane.zone_next_xid IS 'The next transaction id of the cluster, read after the snapshot of each zone';
COMMENT ON COLUMN postbox.lane.ahead IS 'What is read above hwm, ahead of a long backlog; NULL: nothing';
COMMENT ON COLUMN postbox.lane.sent_again IS 'How many of its events were sent again, at most; see sent_again_at_most of postbox.publication_status';
COMMENT ON COLUMN postbox.lane.sent_again_at IS 'When the last of them were counted; NULL if there were none';
SELECT pg_catalog.pg_extension_config_dump('postbox.lane', '');
GRANT SELECT ON postbox.lane TO PUBLIC;

-- An event that was not sent because its time was over. In a table outbox its row says so, too; in a log nothing else does.
CREATE TABLE postbox.expired_event (
    publication       text        NOT NULL,
    outbox            regclass    NOT NULL,
    event_id          text        NOT NULL,
    aggregate_type    text        NOT NULL,
    aggregate_id      text        NOT NULL,
    event_type        text        NOT NULL,
    version           bigint      NOT NULL,
    expires_at        timestamptz NOT NULL,
    expired_at        timestamptz NOT NULL DEFAULT now(),
    last_of_aggregate boolean     NOT NULL,
    PRIMARY KEY (publication, event_id)
);
CREATE INDEX expired_event_outbox ON postbox.expired_event (outbox, expired_at);
CREATE INDEX expired_event_last ON postbox.expired_event (publication, expired_at) WHERE last_of_aggregate;
COMMENT ON TABLE postbox.expired_event IS
$$One row for each event of a publication that was not sent, because its `expires_at` was over. Workers write it, and delete it after the retention of the outbox.

Rights: SELECT, which PUBLIC has. A role sees the rows of the outboxes that it may read, as in `paused_keys`.$$;
COMMENT ON COLUMN postbox.expired_event.publication IS 'The name of the publication';
COMMENT ON COLUMN postbox.expired_event.outbox IS 'The outbox';
COMMENT ON COLUMN postbox.expired_event.event_id IS 'The id of the event';
COMMENT ON COLUMN postbox.expired_event.aggregate_type IS 'Its aggregate type';
COMMENT ON COLUMN postbox.expired_event.aggregate_id IS 'Its aggregate id';
COMMENT ON COLUMN postbox.expired_event.event_type IS 'Its event type';
COMMENT ON COLUMN postbox.expired_event.version IS 'Its version';
COMMENT ON COLUMN postbox.expired_event.expires_at IS 'Its expires_at';
COMMENT ON COLUMN postbox.expired_event.expired_at IS 'When a worker settled it';
COMMENT ON COLUMN postbox.expired_event.last_of_aggregate IS
    'Whether no later version of the aggregate was known then: consumers may keep an older state until another event of the aggregate is emitted';
ALTER TABLE postbox.expired_event ENABLE ROW LEVEL SECURITY;
SELECT pg_catalog.pg_extension_config_dump('postbox.expired_event', '');
REVOKE ALL ON postbox.expired_event FROM PUBLIC;
GRANT SELECT ON postbox.expired_event TO PUBLIC;

-- A log keeps an event that was discarded, and no row of it says so.
CREATE TABLE postbox.discarded_outgoing (
    publication  text        NOT NULL,
    event_id     uuid        NOT NULL,
    discarded_at timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (publication, event_id)
);
COMMENT ON TABLE postbox.discarded_outgoing IS
    'Internal: the events of a log that were discarded, for the retention of the outbox; republish leaves them out.';
COMMENT ON COLUMN postbox.discarded_outgoing.publication IS 'The name of the publication';
COMMENT ON COLUMN postbox.discarded_outgoing.event_id IS 'The id of the event';
COMMENT ON COLUMN postbox.discarded_outgoing.discarded_at IS 'When it was discarded';
SELECT pg_catalog.pg_extension_config_dump('postbox.discarded_outgoing', '');
REVOKE ALL ON postbox.discarded_outgoing FROM PUBLIC;
GRANT SELECT ON postbox.discarded_outgoing TO PUBLIC;
