-- Tables of an outbox or inbox that somebody has made UNLOGGED. Nothing keeps an owner from it; so it is said where one looks.

-- In PL/pgSQL, which keeps the plan: the status asks for each publication.
CREATE FUNCTION postbox.unlogged_problem(VARIADIC tables regclass[]) RETURNS text
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN (
        WITH RECURSIVE part(oid) AS (
            SELECT t.t::oid FROM unnest(tables) AS t(t)
            UNION SELECT i.inhrelid FROM part p JOIN pg_inherits i ON i.inhparent = p.oid
        ), unlogged(name) AS (
            SELECT c.oid::regclass::text FROM part p JOIN pg_class c ON c.oid = p.oid WHERE c.relpersistence = 'u'
        )
        SELECT format('%s UNLOGGED: a crash of the server or a failover empties what is, and may have done so; run %s',
                      string_agg(u.name, ', ' ORDER BY u.name) || CASE WHEN count(*) = 1 THEN ' is' ELSE ' are' END,
                      string_agg(format('ALTER TABLE %s SET LOGGED', u.name), '; ' ORDER BY u.name))
        FROM unlogged u HAVING count(*) > 0);
END
$$;
COMMENT ON FUNCTION postbox.unlogged_problem(regclass[]) IS
    'Which of these tables and their partitions are UNLOGGED, and the repair; NULL if none is';

