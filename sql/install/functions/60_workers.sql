-- The publisher workers.

CREATE OR REPLACE FUNCTION postbox.list_workers(
    OUT database_id oid, OUT pid int, OUT ordinal int, OUT state text, OUT lock_token text, OUT started_at timestamptz)
    RETURNS SETOF record
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.list_workers() IS
    'The rows of postbox.workers; none if postbox is not in shared_preload_libraries';

CREATE OR REPLACE VIEW postbox.workers AS
    SELECT w.pid, d.datname AS database, w.ordinal, w.state, w.lock_token, w.started_at
    FROM postbox.list_workers() w LEFT JOIN pg_catalog.pg_database d ON d.oid = w.database_id;
COMMENT ON VIEW postbox.workers IS
    'The publisher workers of the whole server, and the databases that are unserved because there are not enough slots. '
    'lock_token marks the rows and lanes that a worker has claimed. For members of '
    'pg_monitor and postbox_operator';
