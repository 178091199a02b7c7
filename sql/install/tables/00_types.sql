-- The types that both sides share. The install script is made of the numbered parts of this folder, one after the other
-- (control/install-script). Whatever changes here must change in the newest script of sql/upgrade, too.

COMMENT ON SCHEMA postbox IS 'Transactional outbox and inbox over Google Cloud Pub/Sub';
GRANT USAGE ON SCHEMA postbox TO PUBLIC;

CREATE TYPE postbox.receipt AS (event_id uuid, aggregate_id text, version bigint);
COMMENT ON TYPE postbox.receipt IS 'The result of outbox_emit, and what wait_for_version needs to wait for this event';

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
COMMENT ON TYPE postbox.event IS 'An event as it arrives; the argument of handlers';

CREATE TYPE postbox.outcome AS ENUM ('applied', 'duplicate', 'stale', 'ignored', 'rejected');
COMMENT ON TYPE postbox.outcome IS
    'The result of applying an event: applied, duplicate (seen before), stale (older than what is stored), '
    'ignored (nothing takes its type), rejected (recorded in postbox.dead_letter)';

-- How PostgreSQL chooses between the forms of outbox_emit: functions/20_emit.sql.
CREATE DOMAIN postbox.event_type AS text;
COMMENT ON DOMAIN postbox.event_type IS 'Text. The forms of outbox_emit that take any type have it, so that PostgreSQL prefers those with text';

-- What a function whose name ends in _problem returns. Where there is none, it is NULL as a whole; only the remedy may be NULL by itself.
CREATE TYPE postbox.problem AS (code text, severity text, subject text, detail text, remedy text);
COMMENT ON TYPE postbox.problem IS 'Something that is wrong with what belongs to an outbox or inbox';
COMMENT ON COLUMN postbox.problem.code IS 'Its kind, for programs, such as column_missing or unlogged';
COMMENT ON COLUMN postbox.problem.severity IS 'warning, or error: something does not work';
COMMENT ON COLUMN postbox.problem.subject IS 'The table, publication, projection or handler that has it';
COMMENT ON COLUMN postbox.problem.detail IS 'What it is, and the cause';
COMMENT ON COLUMN postbox.problem.remedy IS 'What to do, with the statement that does it; NULL if that depends';

CREATE TYPE postbox.finding AS ("check" text, status text, subject text, detail text, remedy text);
COMMENT ON TYPE postbox.finding IS 'What a check of postbox.doctor() has found';
COMMENT ON COLUMN postbox.finding.status IS 'ok, warning, or error: something does not work';
COMMENT ON COLUMN postbox.finding.subject IS 'The publication, table, role or setting; NULL if it is the server or all of them';
COMMENT ON COLUMN postbox.finding.detail IS 'What was found, and the cause';
COMMENT ON COLUMN postbox.finding.remedy IS 'What to do; NULL if the status is ok';
