-- What is wrong with the tables of an outbox: each sign, one by one, and nothing once it is repaired.
CREATE ROLE regress_alice;
CREATE ROLE regress_bob;
CREATE ROLE regress_mallory;
GRANT regress_bob TO regress_alice;
CREATE SCHEMA app AUTHORIZATION regress_alice;
SET ROLE regress_alice;
SELECT postbox.create_outbox('app.log');
SELECT postbox.create_outbox('app.jobs', 'table');
CREATE TABLE app."Old" (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid int NOT NULL, type text NOT NULL, payload jsonb, number serial);
SELECT postbox.adopt_outbox('app."Old"');

-- tries a statement, and shows what is found meanwhile
CREATE FUNCTION app.try(statements text, OUT outbox text, OUT code text, OUT subject text, OUT problem text) RETURNS SETOF record LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        EXECUTE statements;
        RETURN QUERY SELECT o.relation::text, f.code, f.subject, f.problem FROM postbox.outbox o, LATERAL (
            SELECT (v.p).code, (v.p).subject, postbox.problem_text(v.p) FROM (VALUES (postbox.outbox_problem(o)), (postbox.unlogged_problem(o.relation, o.parked, o.counter))) AS v(p)
            UNION ALL SELECT 'code_of_users', NULL, 'code: ' || postbox.code_of_users(o.relation, o.parked)) AS f(code, subject, problem)
        WHERE f.problem IS NOT NULL ORDER BY 1, 2, 4;
        RAISE SQLSTATE 'PB000';
    EXCEPTION WHEN SQLSTATE 'PB000' THEN NULL;
    END;
END
$$;
SELECT * FROM app.try('');

-- tables
SELECT * FROM app.try('DROP TABLE app.log_version');
SELECT * FROM app.try('DROP TABLE app.log_parked');
SELECT * FROM app.try('DROP TABLE app."Old_version"');
SELECT * FROM app.try('DROP TABLE app.jobs_version; CREATE VIEW app.jobs_version AS SELECT 1 AS version');
-- event triggers keep these from coming about
RESET ROLE;
ALTER EVENT TRIGGER postbox_forget_dropped DISABLE;
SELECT regexp_replace(problem, '[0-9]+', 'N') FROM app.try('DROP TABLE app.jobs; DROP TABLE app.log');
ALTER EVENT TRIGGER postbox_forget_dropped ENABLE ALWAYS;
ALTER EVENT TRIGGER postbox_follow_altered DISABLE;
SELECT * FROM app.try('ALTER TABLE app.log_version OWNER TO regress_mallory');
SELECT * FROM app.try('ALTER TABLE app.log_parked OWNER TO regress_mallory');
SELECT * FROM app.try('ALTER TABLE app.log_g3 OWNER TO regress_mallory');
SELECT * FROM app.try('ALTER TABLE app.log_g3 OWNER TO regress_bob; ALTER TABLE app.log_version OWNER TO regress_bob');
SELECT * FROM app.try('ALTER TABLE app.log OWNER TO regress_bob');
SELECT * FROM app.try('ALTER TABLE app.log_parked OWNER TO regress_mallory; ALTER TABLE app.log_parked DROP COLUMN seq');
ALTER EVENT TRIGGER postbox_follow_altered ENABLE ALWAYS;
SET ROLE regress_alice;

-- columns
SELECT * FROM app.try('ALTER TABLE app.log RENAME occurred_at TO at');
SELECT * FROM app.try('ALTER TABLE app.log DROP COLUMN txid');
SELECT * FROM app.try('ALTER TABLE app.log RENAME origin TO home');
SELECT * FROM app.try('ALTER TABLE app.log RENAME seq TO place; ALTER TABLE app.log RENAME payload TO body');
SELECT * FROM app.try('ALTER TABLE app.log ALTER version TYPE numeric');
SELECT * FROM app.try('ALTER TABLE app.log ALTER aggregate_type TYPE varchar(10)');
SELECT * FROM app.try('CREATE DOMAIN app.name AS text; ALTER TABLE app.log ALTER event_type TYPE app.name');
SELECT * FROM app.try('ALTER TABLE app.log_parked DROP COLUMN last_error');
SELECT * FROM app.try('ALTER TABLE app.log_parked ALTER publish_attempts TYPE bigint');
SELECT * FROM app.try('ALTER TABLE app.log_parked ALTER publication TYPE "char"');
SELECT * FROM app.try('ALTER TABLE app.jobs DROP COLUMN locked_at');
SELECT * FROM app.try('ALTER TABLE app.jobs ALTER next_retry_at TYPE timestamp');
SELECT * FROM app.try('ALTER TABLE app.jobs ALTER payload TYPE text; ALTER TABLE app.jobs ALTER version TYPE int');
SELECT * FROM app.try('ALTER TABLE app.jobs DROP COLUMN attributes');
SELECT * FROM app.try('ALTER TABLE app."Old" RENAME aggregateid TO aggregate_id');
SELECT * FROM app.try('ALTER TABLE app."Old" RENAME type TO "Type"');
SELECT * FROM app.try('ALTER TABLE app."Old" DROP COLUMN seq');
SELECT * FROM app.try('ALTER TABLE app."Old" DROP COLUMN number');

-- sequences
SELECT * FROM app.try('ALTER SEQUENCE app.log_seq OWNED BY NONE');
SELECT * FROM app.try('ALTER SEQUENCE app.log_seq OWNED BY app.log.version');
SELECT * FROM app.try('ALTER SEQUENCE app.log_seq CACHE 10');
SELECT * FROM app.try('ALTER SEQUENCE app.log_seq INCREMENT 2');
SELECT * FROM app.try('ALTER TABLE app.jobs ALTER seq SET CYCLE');
SELECT * FROM app.try('ALTER SEQUENCE app."Old_number_seq" CACHE 10');
SELECT * FROM app.try('ALTER TABLE app."Old" ALTER seq SET CACHE 10');
SELECT postbox.log_sequence('app.log'), postbox.log_sequence('app.log_parked'), postbox.log_sequence(NULL), postbox.log_sequence(0);

-- the index by which workers read
SELECT * FROM app.try('DROP INDEX app.log_seq_idx');
SELECT * FROM app.try('DROP INDEX app.log_seq_idx; CREATE INDEX ON app.log (seq, origin)');
SELECT * FROM app.try('DROP INDEX app.log_seq_idx; CREATE INDEX ON ONLY app.log (origin, seq)');
SELECT * FROM app.try('DROP INDEX app.log_seq_idx; CREATE INDEX ON app.log (origin, seq, id)');

-- the least that has to be repaired first
SELECT * FROM app.try('DROP TABLE app.log_version; ALTER TABLE app.log DROP COLUMN origin; ALTER SEQUENCE app.log_seq CACHE 10');

-- UNLOGGED
SELECT * FROM app.try('ALTER TABLE app.log_g4 SET UNLOGGED');
SELECT * FROM app.try('ALTER TABLE app.log_parked SET UNLOGGED; ALTER TABLE app.log_version SET UNLOGGED; ALTER TABLE app."Old" SET UNLOGGED');
SELECT postbox.unlogged_problem(VARIADIC NULL), postbox.unlogged_problem(NULL, 0);

-- code of users: functions and operators in what the planner and the executor use of a table
CREATE FUNCTION app.same(int, int) RETURNS boolean LANGUAGE sql IMMUTABLE AS 'SELECT $1 OPERATOR(pg_catalog.=) $2';
CREATE OPERATOR app.=== (leftarg = int, rightarg = int, function = app.same);
SELECT * FROM app.try('CREATE INDEX ON app.log (seq) WHERE app.same(1, 1)');
SELECT * FROM app.try('CREATE INDEX ON app.log_parked ((publish_attempts OPERATOR(app.===) 1))');
SELECT * FROM app.try('ALTER TABLE app.jobs ADD CHECK (publish_attempts OPERATOR(app.===) publish_attempts)');
SELECT * FROM app.try('CREATE STATISTICS app.s ON (app.same(publish_attempts, 1)), seq FROM app.jobs');
SELECT * FROM app.try('ALTER TABLE app."Old" ADD EXCLUDE USING hash (number WITH =); ALTER TABLE app."Old" ADD FOREIGN KEY (id) REFERENCES app."Old"');
SELECT * FROM app.try('ALTER TABLE app.jobs ENABLE ROW LEVEL SECURITY');
SELECT * FROM app.try('ALTER TABLE app.jobs ENABLE ROW LEVEL SECURITY; ALTER TABLE app.jobs FORCE ROW LEVEL SECURITY; ALTER TABLE app.jobs ADD CHECK (app.same(1, 1))');
SELECT * FROM app.try('ALTER TABLE app.jobs FORCE ROW LEVEL SECURITY');
SELECT * FROM app.try('ALTER TABLE app.log_g1 ENABLE ROW LEVEL SECURITY; ALTER TABLE app.log_g1 FORCE ROW LEVEL SECURITY');
SELECT * FROM app.try('CREATE TYPE app.kind AS ENUM (); CREATE FUNCTION app.text(app.kind) RETURNS text LANGUAGE sql AS ''SELECT NULL::text'';'
    'CREATE CAST (app.kind AS text) WITH FUNCTION app.text(app.kind); CREATE DOMAIN app.kinds AS app.kind; ALTER TABLE app.jobs ADD COLUMN kind app.kinds');
SELECT * FROM app.try('CREATE TYPE app.kind AS ENUM (); CREATE CAST (app.kind AS text) WITH INOUT; ALTER TABLE app.jobs ADD COLUMN kind app.kind');
-- what a superuser owns is trusted
RESET ROLE;
SELECT * FROM app.try('CREATE FUNCTION app.mine(int) RETURNS int LANGUAGE sql IMMUTABLE AS ''SELECT 1''; CREATE INDEX ON app.jobs (app.mine(publish_attempts))');
SELECT * FROM app.try('CREATE FUNCTION app.mine(int) RETURNS int LANGUAGE sql IMMUTABLE AS ''SELECT 1''; CREATE INDEX ON app.jobs (app.mine(publish_attempts));'
    'ALTER FUNCTION app.mine(int) OWNER TO regress_mallory');
SELECT * FROM app.try('CREATE FUNCTION app.mine(int) RETURNS int LANGUAGE sql IMMUTABLE AS ''SELECT 1''; CREATE INDEX ON app.jobs (app.mine(publish_attempts));'
    'ALTER FUNCTION app.mine(int) OWNER TO regress_mallory; ALTER ROLE regress_mallory SUPERUSER');
SELECT postbox.code_of_users(NULL), postbox.code_of_users(0, NULL), postbox.code_of_users('pg_stat_activity');
SELECT postbox.outbox_problem(NULL), postbox.outbox_problem(ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL));

-- whatever the caller's settings are
SET search_path = app, pg_catalog;
SET quote_all_identifiers = on;
SELECT * FROM app.try('ALTER TABLE app.log RENAME occurred_at TO at');
SELECT * FROM app.try('CREATE DOMAIN app.name AS text; ALTER TABLE app.log ALTER event_type TYPE app.name; CREATE INDEX ON app.log (seq) WHERE app.same(1, 1)');
RESET quote_all_identifiers;
RESET search_path;
SELECT postbox.this_database() = format('%s/%s', (SELECT system_identifier FROM pg_control_system()), d.oid) FROM pg_database d WHERE datname = current_database();

DROP SCHEMA app CASCADE;
DROP ROLE regress_alice, regress_bob, regress_mallory;
