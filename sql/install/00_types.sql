-- The types that both sides share. The install script is made of the numbered parts of this folder, one after the other.

COMMENT ON SCHEMA postbox IS 'Transactional outbox and inbox over Google Cloud Pub/Sub';
GRANT USAGE ON SCHEMA postbox TO PUBLIC;

CREATE TYPE postbox.receipt AS (event_id uuid, aggregate_id text, version bigint);
COMMENT ON TYPE postbox.receipt IS 'What outbox_emit returns: enough to wait until a projection has followed';

CREATE TYPE postbox.event AS (
    event_id       text,
    event_type     text,
    aggregate_type text,
    aggregate_id   text,
    version        bigint,
    payload        bytea,
    attributes     jsonb,
    occurred_at    timestamptz
);
COMMENT ON TYPE postbox.event IS 'An event as it arrives: what handlers are called with';

CREATE TYPE postbox.outcome AS ENUM ('applied', 'duplicate', 'stale', 'ignored', 'rejected');
COMMENT ON TYPE postbox.outcome IS 'What became of an event: applied, duplicate (seen before), stale (older than what is stored), ignored (nothing takes its type), rejected (recorded in postbox.dead_letter)';
