-- Rows of other clusters in a log outbox: extension/registry/foreign_events.cc says how they come and what becomes of them.

-- Where lanes stood in other clusters. A position is made of transaction ids, which mean nothing in another cluster. When a
-- lane comes from one, by a restore or pg_upgrade, its position goes here and it begins again with the rows of this cluster.
-- What the old position had not read of the rows of its own origin is settled: see postbox.settle_rows.
CREATE TABLE postbox.former_position (
    publication   text   NOT NULL,
    slice         int    NOT NULL,
    origin        int    NOT NULL,
    floor         bigint,
    hwm           bigint,
    snapshot      pg_snapshot,
    next_xid      xid8,
    zone_upto     bigint[],
    zone_snapshot pg_snapshot[],
    settled       bigint NOT NULL DEFAULT 0,
    ahead         postbox.position_ahead,
    PRIMARY KEY (publication, slice, origin)
);
COMMENT ON TABLE postbox.former_position IS 'Internal: log outboxes: how far each lane had read in other clusters from which the database was restored.';
COMMENT ON COLUMN postbox.former_position.publication IS 'The name of the publication';
COMMENT ON COLUMN postbox.former_position.slice IS 'The number of the lane';
COMMENT ON COLUMN postbox.former_position.origin IS 'The cluster, as in column origin of the log';
COMMENT ON COLUMN postbox.former_position.floor IS 'As in postbox.lane; if this and snapshot are NULL, the lane had read nothing';
COMMENT ON COLUMN postbox.former_position.hwm IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.snapshot IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.next_xid IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.zone_upto IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.zone_snapshot IS 'As in postbox.lane';
COMMENT ON COLUMN postbox.former_position.settled IS 'How many times unread events of that cluster were settled';
COMMENT ON COLUMN postbox.former_position.ahead IS 'As in postbox.lane';
SELECT pg_catalog.pg_extension_config_dump('postbox.former_position', '');
GRANT SELECT ON postbox.former_position TO PUBLIC;
