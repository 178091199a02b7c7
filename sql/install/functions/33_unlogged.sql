-- Tables of an outbox or inbox that are UNLOGGED. Nothing keeps an owner from it; so it is said where one looks.
CREATE OR REPLACE FUNCTION postbox.unlogged_problem(VARIADIC tables regclass[]) RETURNS postbox.problem
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.unlogged_problem(regclass[]) IS
    'Which of these tables and their partitions are UNLOGGED, and the repair; NULL if none is';
