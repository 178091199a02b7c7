-- The types that both sides share. The install script is made of the numbered parts of this folder, one after the other
-- (control/install-script). What changes here must change in the newest script of sql/upgrade, too.

COMMENT ON SCHEMA postbox IS 'Transactional outbox and inbox over Google Cloud Pub/Sub';
GRANT USAGE ON SCHEMA postbox TO PUBLIC;

CREATE TYPE postbox.receipt AS (event_id uuid, aggregate_id text, version bigint);
COMMENT ON TYPE postbox.receipt IS 'The result of outbox_emit. wait_for_version takes its parts, so that a client reads what it wrote.';
COMMENT ON COLUMN postbox.receipt.event_id IS 'The id of the event';
COMMENT ON COLUMN postbox.receipt.aggregate_id IS 'The aggregate id, as text';
COMMENT ON COLUMN postbox.receipt.version IS 'The version of the event within its aggregate';

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
COMMENT ON TYPE postbox.event IS 'An event as a consumer receives it: the argument of inbox_apply and of handlers.';
COMMENT ON COLUMN postbox.event.event_id IS 'The id of the event, the same for each delivery: a UUID as text; the inbox stores another text as its UUIDv5';
COMMENT ON COLUMN postbox.event.event_type IS 'The type of the event, such as video.created';
COMMENT ON COLUMN postbox.event.aggregate_type IS 'The type of the aggregate, such as video';
COMMENT ON COLUMN postbox.event.aggregate_id IS 'The id of the aggregate';
COMMENT ON COLUMN postbox.event.version IS 'The version of the event within its aggregate';
COMMENT ON COLUMN postbox.event.payload IS 'The content, as bytes';
COMMENT ON COLUMN postbox.event.attributes IS 'The other attributes of the message, a JSON object of strings';
COMMENT ON COLUMN postbox.event.occurred_at IS 'When the event occurred';

CREATE TYPE postbox.outcome AS ENUM ('applied', 'duplicate', 'stale', 'ignored', 'rejected', 'parked');
COMMENT ON TYPE postbox.outcome IS
    'The result of applying an event: applied; duplicate: an event with this id was applied before; stale: older than what is stored; ignored: nothing takes its type; '
    'rejected: recorded in postbox.dead_letter; parked: recorded there, to be applied later in the order of its key';

-- How PostgreSQL chooses between the forms of outbox_emit: functions/20_emit.sql.
CREATE DOMAIN postbox.event_type AS text;
COMMENT ON DOMAIN postbox.event_type IS 'Internal: text. Forms of outbox_emit that take arguments of any type have it, so that PostgreSQL prefers the forms with text.';

-- The result of the functions whose names end in _problem. Without a problem it is NULL as a whole; only the remedy may be NULL alone.
CREATE TYPE postbox.problem AS (code text, severity text, subject text, detail text, remedy text);
COMMENT ON TYPE postbox.problem IS 'Internal: a problem of an outbox, inbox, publication or subscription; the status views and postbox.doctor() show its parts.';
COMMENT ON COLUMN postbox.problem.code IS 'The kind of problem, for programs, such as column_missing or unlogged';
COMMENT ON COLUMN postbox.problem.severity IS 'error: something does not work; warning: it may not';
COMMENT ON COLUMN postbox.problem.subject IS 'The table, publication, projection or handler that has the problem';
COMMENT ON COLUMN postbox.problem.detail IS 'What is wrong, and the cause';
COMMENT ON COLUMN postbox.problem.remedy IS 'What to do, with the statement that does it; NULL if that depends on the cause';

CREATE TYPE postbox.finding AS ("check" text, status text, subject text, detail text, remedy text);
COMMENT ON TYPE postbox.finding IS
    'The result of a check of postbox.doctor(). A check that finds nothing wrong has one row with status ok, others one row for each warning and error.';
COMMENT ON COLUMN postbox.finding."check" IS 'The name of the check';
COMMENT ON COLUMN postbox.finding.status IS 'ok; warning: something may not work; error: something does not work';
COMMENT ON COLUMN postbox.finding.subject IS 'The publication, table, role or setting; NULL if it is the server, or all of them';
COMMENT ON COLUMN postbox.finding.detail IS 'What was found, and the cause';
COMMENT ON COLUMN postbox.finding.remedy IS 'What to do; NULL if the status is ok';

CREATE TYPE postbox.republished AS (events bigint, keys bigint, bytes bigint, total_events bigint, resume text);
COMMENT ON TYPE postbox.republished IS 'The result of republish: what one call has queued, and how to go on.';
COMMENT ON COLUMN postbox.republished.events IS 'How many events the call has queued; of a dry run, how many it would queue';
COMMENT ON COLUMN postbox.republished.keys IS 'How many keys they have';
COMMENT ON COLUMN postbox.republished.bytes IS 'The size of their payloads';
COMMENT ON COLUMN postbox.republished.total_events IS 'How many events match, those of later steps included; NULL if the call has resumed';
COMMENT ON COLUMN postbox.republished.resume IS 'The argument resume of the next step; NULL if this was the last one';
