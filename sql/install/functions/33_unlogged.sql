-- Tables of an outbox or inbox that are UNLOGGED. An owner can make them so at any time, so the status views report it.
CREATE OR REPLACE FUNCTION postbox.unlogged_problem(VARIADIC tables regclass[]) RETURNS postbox.problem
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.unlogged_problem(regclass[]) IS 'Internal: which of these tables and their partitions are UNLOGGED, and the repair; NULL if none is.';
