-- Tables that are partitioned by LIST (generation): a log outbox (35_log_outbox.sql), an inbox and its tombstones (40_inbox.sql). The partitions are
-- made with the table and are used in turn. Retention empties a partition as a whole: no row is deleted one by one, and nothing is left to vacuum.

-- In C, because pg_get_expr would wait for the lock of the partition.
CREATE OR REPLACE FUNCTION postbox.partition_generation(part oid) RETURNS smallint
    LANGUAGE C STABLE STRICT AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.partition_generation(oid) IS 'Internal: the generation whose rows a partition holds; NULL if it is no partition for one generation.';

CREATE OR REPLACE FUNCTION postbox.generation_partitions(relation regclass)
    RETURNS TABLE (part regclass, generation smallint)
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT i.inhrelid::regclass, postbox.partition_generation(i.inhrelid) FROM pg_inherits i WHERE i.inhparent = relation
$$;
COMMENT ON FUNCTION postbox.generation_partitions(regclass) IS 'Internal: the partitions of a table that is partitioned by generation, and the generation of each.';

CREATE OR REPLACE FUNCTION postbox.add_partitions(relation regclass, generations int, clause text DEFAULT '') RETURNS SETOF regclass
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    schema name;
    base name;
    part name;
BEGIN
    -- This runs code of the owner, for example in the expressions of indexes.
    SELECT n.nspname, c.relname INTO schema, base
    FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = relation AND c.relowner = current_user::regrole;
    IF NOT FOUND THEN
        RAISE insufficient_privilege USING
            MESSAGE = format('%s does not own table %s', current_user, relation),
            HINT = 'Only the owner of a table can create its partitions and purge it.';
    END IF;
    FOR i IN 0..generations - 1 LOOP
        CONTINUE WHEN EXISTS (SELECT FROM postbox.generation_partitions(relation) p WHERE p.generation = i);
        part := postbox.free_name(schema, base, '_g' || i);
        EXECUTE format('CREATE TABLE %I.%I PARTITION OF %I.%I %s FOR VALUES IN (%s)', schema, part, schema, base, clause, i);
        RETURN NEXT format('%I.%I', schema, part)::regclass;
    END LOOP;
END
$$;
COMMENT ON FUNCTION postbox.add_partitions(regclass, int, text) IS
    'Internal: creates the partitions of a table for these many generations that are missing, with the rights of the current user, who must be its owner, and returns them.';

CREATE OR REPLACE FUNCTION postbox.is_empty(part regclass) RETURNS boolean
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '200ms'
AS $$
DECLARE
    filled boolean;
BEGIN
    -- One that the owner has partitioned itself has no size.
    IF pg_relation_size(part) = 0 AND EXISTS (SELECT FROM pg_class c WHERE c.oid = part AND c.relkind = 'r') THEN
        RETURN true;
    ELSIF row_security_active(part) THEN
        RETURN false;  -- row security hides its rows
    END IF;
    EXECUTE format('SELECT EXISTS (SELECT FROM %s)', part) INTO filled;
    RETURN NOT filled;
END
$$;
COMMENT ON FUNCTION postbox.is_empty(regclass) IS 'Internal: whether a partition has no row; false if that cannot be seen.';

CREATE OR REPLACE FUNCTION postbox.empty_partition(part regclass, ready text DEFAULT 'true') RETURNS boolean
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '200ms'
AS $$
DECLARE
    is_ready boolean;
    reason text;
BEGIN
    -- One at a time: two that have looked at the partition and then want its lock would wait for each other.
    EXECUTE format('LOCK TABLE ONLY %s IN SHARE UPDATE EXCLUSIVE MODE NOWAIT', part);
    -- What row security hides is reported by the status of the outbox or inbox.
    IF row_security_active(part) OR postbox.is_empty(part) THEN
        RETURN false;
    END IF;
    EXECUTE 'SELECT ' || ready INTO is_ready;
    IF NOT is_ready THEN
        RETURN false;
    END IF;
    -- The second look has a new snapshot, taken after the lock.
    EXECUTE format('LOCK TABLE ONLY %s IN ACCESS EXCLUSIVE MODE', part);
    EXECUTE 'SELECT ' || ready INTO is_ready;
    IF NOT is_ready THEN
        RAISE lock_not_available;  -- gives the lock back
    END IF;
    EXECUTE format('TRUNCATE TABLE ONLY %s', part);
    RETURN true;
EXCEPTION
    WHEN lock_not_available OR deadlock_detected THEN
        RETURN false;
    WHEN OTHERS THEN
        -- A partition that cannot be emptied does not keep the others from being emptied.
        GET STACKED DIAGNOSTICS reason = PG_EXCEPTION_DETAIL;
        RAISE WARNING USING
            MESSAGE = format('could not empty partition %s', part),
            DETAIL = concat_ws(': ', SQLERRM, nullif(reason, ''));
        RETURN false;
END
$$;
COMMENT ON FUNCTION postbox.empty_partition(regclass, text) IS
    'Internal: empties a partition if the expression `ready` is true, before and after it is locked; false if it is not, or the partition is locked or cannot be emptied.';
