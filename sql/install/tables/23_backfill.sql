-- Backfills: what they emit, and how far they are. The definition is written once, by the role that the backfill emits as, and never changed.
-- Sessions that run a backfill write the rest as Postbox's own role (extension/emit/backfill.h).

CREATE TABLE postbox.backfill (
    name           text PRIMARY KEY CHECK (octet_length(name) BETWEEN 1 AND 200),
    outbox         regclass NOT NULL,
    relation       regclass NOT NULL,
    owner          regrole NOT NULL DEFAULT current_user::regrole,
    aggregate_type text NOT NULL,
    event_type     text NOT NULL,
    key            text[] NOT NULL CHECK (cardinality(key) > 0 AND array_position(key, NULL) IS NULL),
    columns        text[],
    payload        text,
    page_key       text[] NOT NULL,
    page_types     text[] NOT NULL,
    first_key      text[],
    last_key       text[],
    rows_estimated bigint,
    created_at     timestamptz NOT NULL DEFAULT now(),
    state          text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'done', 'cancelled')),
    reason         text,
    paused_at      timestamptz,
    paused_reason  text,
    paused_until   timestamptz,
    position       text[],
    row_count      bigint NOT NULL DEFAULT 0,
    chunk_after    text[],
    chunk_rows     int,
    chunk_time     interval,
    rate           float8,
    waits_for      text,
    started_at     timestamptz,
    updated_at     timestamptz,
    ended_at       timestamptz,
    last_error     text,
    last_error_at  timestamptz
) WITH (fillfactor = 50);
CREATE UNIQUE INDEX backfill_active ON postbox.backfill (outbox, relation) WHERE state = 'active';
COMMENT ON TABLE postbox.backfill IS
$$One row for each backfill. `postbox.backfill_status` shows it with what runs now.

Rights: the role that created a backfill, its members and members of postbox_operator see and change its state; members of pg_monitor see it.$$;
COMMENT ON COLUMN postbox.backfill.name IS 'The name of the backfill';
COMMENT ON COLUMN postbox.backfill.outbox IS 'The outbox into which it emits';
COMMENT ON COLUMN postbox.backfill.relation IS 'The table whose rows it emits';
COMMENT ON COLUMN postbox.backfill.owner IS 'The role that created it, with whose rights it emits';
COMMENT ON COLUMN postbox.backfill.aggregate_type IS 'The aggregate type of its events';
COMMENT ON COLUMN postbox.backfill.event_type IS 'The type of its events';
COMMENT ON COLUMN postbox.backfill.key IS 'The columns whose values are the aggregate id';
COMMENT ON COLUMN postbox.backfill.columns IS 'The columns of the payload; NULL: all, or a function makes it';
COMMENT ON COLUMN postbox.backfill.payload IS 'The function that makes the payload; NULL: it consists of columns';
COMMENT ON COLUMN postbox.backfill.page_key IS 'The columns of the primary key, in whose order it goes through the table';
COMMENT ON COLUMN postbox.backfill.page_types IS 'Their types and collations, which say what that order is';
COMMENT ON COLUMN postbox.backfill.first_key IS 'The first key of the table when the backfill was created; NULL: the table was empty';
COMMENT ON COLUMN postbox.backfill.last_key IS 'The last key of the table when the backfill was created, which is its bound; NULL: the table was empty';
COMMENT ON COLUMN postbox.backfill.rows_estimated IS 'How many rows the table had by its statistics when the backfill was created; NULL: unknown';
COMMENT ON COLUMN postbox.backfill.created_at IS 'When it was created';
COMMENT ON COLUMN postbox.backfill.state IS 'active, done or cancelled';
COMMENT ON COLUMN postbox.backfill.reason IS 'Why it was cancelled, as the caller said';
COMMENT ON COLUMN postbox.backfill.paused_at IS 'When it was paused. NULL if it was not, or was resumed.';
COMMENT ON COLUMN postbox.backfill.paused_reason IS 'Why it was paused';
COMMENT ON COLUMN postbox.backfill.paused_until IS
    'Until when it is paused: `infinity` means until it is resumed. It is not paused if this is NULL or has passed.';
COMMENT ON COLUMN postbox.backfill.position IS 'The key up to which all rows are emitted; NULL: none is';
COMMENT ON COLUMN postbox.backfill.row_count IS 'How many rows it has emitted';
COMMENT ON COLUMN postbox.backfill.chunk_after IS 'The key behind which the last chunk began; NULL: before the first row';
COMMENT ON COLUMN postbox.backfill.chunk_rows IS 'How many rows the last chunk had';
COMMENT ON COLUMN postbox.backfill.chunk_time IS 'How long the last chunk took';
COMMENT ON COLUMN postbox.backfill.rate IS 'Rows per second, the average of the last chunks with the waits between them';
COMMENT ON COLUMN postbox.backfill.waits_for IS 'What the session that runs it waited for when it last looked; NULL: nothing';
COMMENT ON COLUMN postbox.backfill.started_at IS 'When it was first run';
COMMENT ON COLUMN postbox.backfill.updated_at IS 'When its last chunk was emitted';
COMMENT ON COLUMN postbox.backfill.ended_at IS 'When it was done or cancelled';
COMMENT ON COLUMN postbox.backfill.last_error IS 'The error with which the last run ended; NULL if a chunk was emitted after it';
COMMENT ON COLUMN postbox.backfill.last_error_at IS 'When the last error happened; NULL if there was none';
ALTER TABLE postbox.backfill ENABLE ROW LEVEL SECURITY;
SELECT pg_catalog.pg_extension_config_dump('postbox.backfill', '');
GRANT SELECT, DELETE, UPDATE (state, reason, ended_at) ON postbox.backfill TO PUBLIC;
-- Not what says how far it is.
GRANT INSERT (name, outbox, relation, aggregate_type, event_type, key, columns, payload, page_key, page_types, first_key, last_key, rows_estimated)
    ON postbox.backfill TO PUBLIC;
