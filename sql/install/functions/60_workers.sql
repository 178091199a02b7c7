-- The publisher workers.

CREATE OR REPLACE FUNCTION postbox.list_workers(
    OUT database_id oid, OUT pid int, OUT ordinal int, OUT state text, OUT lock_token text, OUT started_at timestamptz)
    RETURNS SETOF record
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.list_workers() IS 'Internal: the rows of postbox.workers; none if postbox is not in shared_preload_libraries.';

CREATE OR REPLACE VIEW postbox.workers AS
    SELECT w.pid, d.datname AS database, w.ordinal, w.state, w.lock_token, w.started_at
    FROM postbox.list_workers() w LEFT JOIN pg_catalog.pg_database d ON d.oid = w.database_id;
COMMENT ON VIEW postbox.workers IS
$$One row for each publisher worker of the whole server, and one for each database that has no worker because there are not enough slots (`unserved`). No rows if postbox is
  not in shared_preload_libraries, and none of the workers of the primary on a standby.

Rights: SELECT for members of pg_monitor and postbox_operator.$$;
COMMENT ON COLUMN postbox.workers.pid IS 'The process ID of the worker. NULL if the database is `unserved`.';
COMMENT ON COLUMN postbox.workers.database IS 'The database that the worker serves.';
COMMENT ON COLUMN postbox.workers.ordinal IS 'The number of the worker in its database, from 0.';
COMMENT ON COLUMN postbox.workers.state IS '`starting`, `running`, or `unserved`: there is no worker for the database.';
COMMENT ON COLUMN postbox.workers.lock_token IS 'Marks the rows and lanes that the worker has claimed. NULL if the database is `unserved`.';
COMMENT ON COLUMN postbox.workers.started_at IS 'When the worker started. NULL if the database is `unserved`.';
