-- What tests/tap/projection_random.pl calls for each round.
CREATE EXTENSION postbox;
CREATE SCHEMA fuzz;
CREATE DOMAIN fuzz.small AS integer CHECK (value < 100);
CREATE DOMAIN fuzz.document AS jsonb CHECK (jsonb_typeof(value) <> 'number');
CREATE TYPE fuzz.pair AS (a integer, b text);
CREATE TYPE fuzz.colour AS ENUM ('red', 'green');
CREATE TABLE fuzz.failure (seed bigint, what text, detail text);
CREATE TABLE fuzz.done (seed bigint, applied bigint, compared bigint);
SELECT postbox.create_inbox('fuzz.alone');
SELECT postbox.create_inbox('fuzz.batch');

-- What became of a statement: its result, or its error.
CREATE FUNCTION fuzz.attempt(statement text, event postbox.event) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    result text;
BEGIN
    EXECUTE statement INTO result USING event;
    RETURN coalesce(result, 'done');
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE || ' ' || SQLERRM;
END $$;

-- The outcome of an event with the error that it was rejected with. Names of the two inboxes and targets are left out.
CREATE FUNCTION fuzz.apply(inbox text, statement text, event postbox.event) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    outcome text := fuzz.attempt(format(statement, inbox), event);
    letter text;
BEGIN
    IF outcome = 'rejected' THEN
        SELECT 'rejected ' || d.sqlstate || ' ' || coalesce(d.error, '') INTO letter FROM postbox.dead_letter d ORDER BY d.id DESC LIMIT 1;
    END IF;
    RETURN replace(coalesce(letter, outcome), inbox || '_', '_');
END $$;

CREATE FUNCTION fuzz.failed(seed bigint, what text, detail text) RETURNS void LANGUAGE sql AS
    'INSERT INTO fuzz.failure VALUES (seed, what, detail)';

-- Whether a payload is what jsonb takes: fields that are not projected may hold what it does not.
CREATE FUNCTION fuzz.is_jsonb(payload bytea) RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RETURN convert_from(payload, 'UTF8')::jsonb IS NOT NULL;
EXCEPTION WHEN untranslatable_character OR invalid_text_representation THEN
    RETURN false;
END $$;

-- Every column that the payload names has the value that jsonb_populate_record makes of it; a text, of an object or an array,
-- as it is written. Returns how many were compared.
CREATE FUNCTION fuzz.compare(seed bigint, event postbox.event) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    stored jsonb;
    expected jsonb;
    names text[];
    name text;
BEGIN
    IF NOT fuzz.is_jsonb(event.payload) THEN
        RETURN 0;
    END IF;
    EXECUTE 'SELECT to_jsonb(t) FROM fuzz.alone_target t WHERE version = $1' INTO stored USING event.version;
    EXECUTE 'SELECT to_jsonb(jsonb_populate_record(NULL::fuzz.alone_target, $1))' INTO expected
        USING convert_from(event.payload, 'UTF8')::jsonb;
    SELECT coalesce(array_agg(key), '{}') INTO names FROM jsonb_object_keys(convert_from(event.payload, 'UTF8')::jsonb) AS k(key)
        WHERE expected ? key AND key NOT IN ('id', 'version');
    FOREACH name IN ARRAY names LOOP
        CONTINUE WHEN stored->name IS NOT DISTINCT FROM expected->name;
        IF expected->>name ~ '^[[{]' AND left(stored->>name, 1) = left(expected->>name, 1) THEN
            CONTINUE WHEN (stored->>name)::jsonb::text = expected->>name;
        END IF;
        PERFORM fuzz.failed(seed, 'a value differs from jsonb_populate_record', name || E'\n' || stored || E'\n' || expected);
    END LOOP;
    RETURN cardinality(names);
END $$;

CREATE FUNCTION fuzz.round(seed bigint, columns text, mapping jsonb, key text[], deletes text[], events postbox.event[])
    RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    made text[] := '{}';
    event postbox.event;
    alone text;
    batch text;
    applied bigint := 0;
    compared bigint := 0;
    by_name boolean := mapping IS NULL AND key IS NULL;
    inbox text;
    seen text[] := '{}';
BEGIN
    FOREACH inbox IN ARRAY ARRAY['alone', 'batch'] LOOP
        EXECUTE format('DROP TABLE IF EXISTS fuzz.%I', inbox || '_target');
        BEGIN
            EXECUTE format('CREATE TABLE fuzz.%I (%s)', inbox || '_target', columns);
        EXCEPTION WHEN syntax_error_or_access_rule_violation THEN
            RETURN;  -- not a table
        END;
        made := made || replace(fuzz.attempt(format(
            'SELECT postbox.create_projection(%L, %L, %L, %L, %L, delete_types => %L)', 'fuzz.' || inbox, ARRAY['t' || seed],
            'fuzz.' || inbox || '_target', mapping, key, deletes), NULL), inbox || '_', '_');
    END LOOP;
    IF made[1] <> made[2] OR made[1] ~ '^(XX|58|57)' THEN
        PERFORM fuzz.failed(seed, 'create_projection', array_to_string(made, E'\n'));
    END IF;
    FOREACH event IN ARRAY events LOOP
        alone := fuzz.apply('alone', 'SELECT postbox.inbox_apply(''fuzz.%s'', $1, on_error => ''reject'')', event);
        batch := fuzz.apply('batch', 'SELECT (postbox.inbox_apply_batch(''fuzz.%s'', ARRAY[$1], on_error => ''reject''))[1]', event);
        IF alone <> batch THEN
            PERFORM fuzz.failed(seed, 'alone and in a batch', alone || E'\n' || batch);
        END IF;
        IF alone !~ '^(applied|stale|ignored|rejected [0-9A-Z]{5} .)' OR alone ~ '^rejected XX' THEN
            PERFORM fuzz.failed(seed, 'outcome of ' || event::text, alone);
        END IF;
        IF alone = 'applied' AND event.event_type ^@ 't' THEN
            applied := applied + 1;
            IF by_name AND NOT (event.event_type = ANY (deletes)) AND event.version > 3 AND NOT (event.version::text = ANY (seen)) THEN
                compared := compared + fuzz.compare(seed, event);
                seen := seen || event.version::text;
            END IF;
        END IF;
    END LOOP;
    EXECUTE 'SELECT string_agg(t::text, E''\n'' ORDER BY t::text) FROM fuzz.alone_target t' INTO alone;
    EXECUTE 'SELECT string_agg(t::text, E''\n'' ORDER BY t::text) FROM fuzz.batch_target t' INTO batch;
    IF alone IS DISTINCT FROM batch THEN
        PERFORM fuzz.failed(seed, 'rows', alone || E'\n' || batch);
    END IF;
    INSERT INTO fuzz.done VALUES (seed, applied, compared);
    PERFORM postbox.drop_projection(name) FROM postbox.projection;
END $$;
