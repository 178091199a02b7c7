-- Rebuilds: the targets of projections that are being made again from events that come once more (extension/apply/rebuild.h). A target has one row:
-- that of its last rebuild.

CREATE TABLE postbox.rebuild (
    target regclass PRIMARY KEY,
    projection text NOT NULL UNIQUE,
    inbox regclass NOT NULL,
    shadow regclass NOT NULL,
    shadow_inbox regclass NOT NULL,
    subscription text,
    source text,
    pubsub_subscription text,
    keys text[],
    absent text NOT NULL CHECK (absent IN ('keep', 'delete')),
    home text NOT NULL,
    start_xid xid8 NOT NULL,
    started_at timestamptz NOT NULL DEFAULT now(),
    state text NOT NULL DEFAULT 'active' CHECK (state IN ('active', 'done', 'cancelled')),
    reason text,
    waits_for text,
    waits_since timestamptz,
    last_error text,
    last_error_at timestamptz,
    ended_at timestamptz,
    locked_for interval,
    updated bigint,
    inserted bigint,
    deleted bigint,
    absent_rows bigint,
    lagging bigint,
    lagging_key text,
    incomplete bigint,
    incomplete_key text
) WITH (fillfactor = 50);
COMMENT ON TABLE postbox.rebuild IS
$$One row for each target that was rebuilt: its last rebuild. `postbox.rebuild_status` shows it with its progress. Only the functions of rebuilds change it.

Rights: the owner of the inbox, roles that may read the target, members of postbox_operator and of pg_monitor see a rebuild.$$;
COMMENT ON COLUMN postbox.rebuild.target IS 'The table that is rebuilt.';
COMMENT ON COLUMN postbox.rebuild.projection IS 'The projection that was named. All projections of the target are rebuilt together.';
COMMENT ON COLUMN postbox.rebuild.inbox IS 'The inbox of the projections.';
COMMENT ON COLUMN postbox.rebuild.shadow IS 'The table that events are applied to meanwhile; 0 after the end.';
COMMENT ON COLUMN postbox.rebuild.shadow_inbox IS 'The inbox of the shadow; 0 after the end.';
COMMENT ON COLUMN postbox.rebuild.subscription IS 'The subscription in `postbox.subscription` that feeds it. NULL if it was begun without one.';
COMMENT ON COLUMN postbox.rebuild.source IS 'Where the events come from, as the caller said.';
COMMENT ON COLUMN postbox.rebuild.pubsub_subscription IS 'The Pub/Sub subscription that `postbox pull --rebuild` has created for it and has not deleted yet. NULL if there is none.';
COMMENT ON COLUMN postbox.rebuild.keys IS 'The keys that are replaced. NULL: all.';
COMMENT ON COLUMN postbox.rebuild.absent IS 'What becomes of rows of the target that no event of the rebuild was for: `keep` or `delete`.';
COMMENT ON COLUMN postbox.rebuild.home IS 'Internal: the database in which it began, as in column home of postbox.publication. In a copy of that it cannot go on.';
COMMENT ON COLUMN postbox.rebuild.start_xid IS 'Internal: the transaction with which it began. Rows that were written later are not absent.';
COMMENT ON COLUMN postbox.rebuild.started_at IS 'When it began.';
COMMENT ON COLUMN postbox.rebuild.state IS 'active, done or cancelled.';
COMMENT ON COLUMN postbox.rebuild.reason IS 'Why it was cancelled, as the caller said.';
COMMENT ON COLUMN postbox.rebuild.waits_for IS 'Why the last `finish_rebuild` could not replace the rows. NULL if there was none.';
COMMENT ON COLUMN postbox.rebuild.waits_since IS 'Since when.';
COMMENT ON COLUMN postbox.rebuild.last_error IS 'The error of the last `finish_rebuild` of `postbox pull`. NULL if there was none.';
COMMENT ON COLUMN postbox.rebuild.last_error_at IS 'When it happened.';
COMMENT ON COLUMN postbox.rebuild.ended_at IS 'When it was done or cancelled.';
COMMENT ON COLUMN postbox.rebuild.locked_for IS 'How long sessions that write the target had to wait at the end.';
COMMENT ON COLUMN postbox.rebuild.updated IS 'Rows of the target that differed and were updated.';
COMMENT ON COLUMN postbox.rebuild.inserted IS 'Rows that were missing in the target.';
COMMENT ON COLUMN postbox.rebuild.deleted IS 'Rows that were deleted, those that were absent included.';
COMMENT ON COLUMN postbox.rebuild.absent_rows IS 'Rows of the target that no event was for, and that were kept.';
COMMENT ON COLUMN postbox.rebuild.lagging IS 'Keys in which the target was ahead when the last `finish_rebuild` compared. After the end: those whose rows were kept for it.';
COMMENT ON COLUMN postbox.rebuild.lagging_key IS 'One of them.';
COMMENT ON COLUMN postbox.rebuild.incomplete IS
    'Keys whose rows were kept because their first event of the rebuild was not their first of all, and no event had all mapped fields.';
COMMENT ON COLUMN postbox.rebuild.incomplete_key IS 'One of them.';
ALTER TABLE postbox.rebuild ENABLE ROW LEVEL SECURITY;
SELECT pg_catalog.pg_extension_config_dump('postbox.rebuild', '');
REVOKE ALL ON postbox.rebuild FROM PUBLIC;
GRANT SELECT ON postbox.rebuild TO PUBLIC;
