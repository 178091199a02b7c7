CREATE OR REPLACE FUNCTION postbox.create_inbox(name text, retention interval DEFAULT '14 days') RETURNS regclass
    AS 'MODULE_PATHNAME', 'create_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.create_inbox(text, interval) IS
$$Creates an inbox: the table of the event ids that were seen, and the table `<name>_tombstone` of the versions at which keys were deleted. Returns the inbox table.

name: the table, with its schema; at most 45 bytes without the schema.
retention: how long event ids and tombstones are kept. An event that is delivered again later takes effect again in handlers; a projection still recognizes it by its
  version. Keep ids longer than the Pub/Sub subscription keeps messages.

Rights: CREATE on the schema. The caller becomes the owner. Projections and handlers of the inbox run with the rights of the owner.
Errors: 42P07 if the table exists; 22023 if the retention is not positive; 42622 if the name is too long; 42P16 if the table would be temporary.
Since: 0.2.0
Example: SELECT postbox.create_inbox('catalog_read.inbox');$$;

CREATE OR REPLACE FUNCTION postbox.alter_inbox(inbox regclass, retention interval DEFAULT NULL, park_keys boolean DEFAULT NULL) RETURNS void
    AS 'MODULE_PATHNAME', 'alter_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.alter_inbox(regclass, interval, boolean) IS
$$Changes properties of an inbox. An argument that is NULL changes nothing.

inbox: the inbox table.
retention: how long event ids and tombstones are kept.
park_keys: whether keys of the inbox may be parked (`on_error => 'park_key'`). If so, each transaction that applies events looks for parked keys first, and must be READ
  COMMITTED. A change waits for the transactions that apply events. `create_subscription` with `on_error => 'park_key'` sets it.

Rights: ownership of the inbox.
Errors: 42809 if the table is not an inbox; 22023 if the retention is not positive; 55000 if `park_keys` is false, and keys are parked or a subscription parks keys.
Since: 0.2.0
Example: SELECT postbox.alter_inbox('catalog_read.inbox', park_keys => true);$$;

CREATE OR REPLACE FUNCTION postbox.drop_inbox(inbox regclass) RETURNS void
    AS 'MODULE_PATHNAME', 'drop_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.drop_inbox(regclass) IS
$$Drops an inbox with its subscriptions, projections, handlers, dead letters, parked keys and tombstones. The targets of projections keep their rows; the functions of handlers and the
  Pub/Sub subscriptions stay.

inbox: the inbox table.

Rights: ownership of the inbox.
Errors: 42809 if the table is not an inbox; 2BP01 if other objects depend on it.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.purge_inbox(inbox regclass, batch int DEFAULT 10000) RETURNS bigint
    AS 'MODULE_PATHNAME', 'purge_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.purge_inbox(regclass, int) IS
$$Deletes event ids, and then tombstones, that are older than the retention of an inbox. Ids of parked events stay. Returns the number of deleted rows. Workers call it regularly, see
  `postbox.maintenance_interval`; call it where no worker runs.

inbox: the inbox table.
batch: the largest number of rows that one call deletes; at least 1.

Rights: ownership of the inbox.
Errors: 42809 if the table is not an inbox; 22023 if `batch` is less than 1.
Since: 0.2.0$$;

CREATE OR REPLACE FUNCTION postbox.repair_inbox(inbox regclass, dry_run boolean DEFAULT true)
    RETURNS TABLE (object text, problem text, repair text)
    AS 'MODULE_PATHNAME', 'repair_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.repair_inbox(regclass, boolean) IS
$$Lists what is missing or wrong in the tables of an inbox, one row for each: `object`, `problem`, and `repair`, the statements that repair it, NULL if none can. With
  `dry_run => false` it also runs these statements, under a lock that blocks all use of the inbox until the transaction ends.

If the tombstones were dropped, an event that is older than a delete and arrives late brings the row back.

inbox: the inbox table.
dry_run: whether it only lists problems and changes nothing.

Rights: ownership of the inbox.
Errors: 42809 if the table is not an inbox; 25001 if `dry_run` is false and the isolation level is not READ COMMITTED.
Since: 0.2.0
Example: SELECT * FROM postbox.repair_inbox('catalog_read.inbox');$$;

CREATE OR REPLACE FUNCTION postbox.register_inbox(relation regclass, retention interval DEFAULT '14 days', tombstone regclass DEFAULT NULL)
    RETURNS regclass
    AS 'MODULE_PATHNAME', 'register_inbox' LANGUAGE C;
COMMENT ON FUNCTION postbox.register_inbox(regclass, interval, regclass) IS
$$Registers a table that `create_inbox` made and that is not an inbox at present: after DROP EXTENSION postbox CASCADE, or from a dump without the registration. Repairs
  missing parts, with a NOTICE for each, and refuses a table that cannot be an inbox. Returns the table. Rows whose `outcome` was dropped with the extension count as
  `applied`.

relation: the table.
retention: how long event ids and tombstones are kept.
tombstone: the table of tombstones. NULL takes the one that is named after the inbox, or creates an empty one. If another table may be that of the inbox, for example after
  a rename, name it.

Rights: ownership of the table; the tombstones must have the same owner.
Errors: 42710 if it is an inbox already; 42809 if it is not an ordinary, logged table; 42P16 if its columns do not fit; 42P08 if the tombstones must be named; 55006 if a
  table belongs to another outbox or inbox; 22023 if the retention is not positive; 25001 if the isolation level is not READ COMMITTED.
Since: 0.2.0
Example: SELECT postbox.register_inbox('catalog_read.inbox', retention => '14 days');$$;
