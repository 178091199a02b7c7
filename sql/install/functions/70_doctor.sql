-- postbox.doctor(): what is wrong with Postbox in this database, why, and what to do. It reads the status views and runs the repairs as dry runs.
-- Tables of users are read as their owner (show_findings, extension/registry/doctor.cc), and only if that cannot run users' code. No check waits
-- longer than 100 ms for a lock, and a check that fails hides no other.

CREATE OR REPLACE FUNCTION postbox.library_state(OUT version text, OUT preloaded boolean)
    LANGUAGE C STABLE AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.library_state() IS 'Internal: the version of the library that the server has loaded, and whether it is preloaded (shared_preload_libraries).';

CREATE OR REPLACE FUNCTION postbox.make_finding("check" text, status text, subject text, detail text, remedy text) RETURNS postbox.finding
    LANGUAGE sql IMMUTABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT "check", status, subject, detail, remedy
$$;
COMMENT ON FUNCTION postbox.make_finding(text, text, text, text, text) IS 'Internal: builds a row of postbox.doctor().';

-- A standby shows its primary as of this time, by the clock of the primary. It has replayed no transaction if it has just been copied, or was
-- started while its primary was stopped. Ages are compared with coalesce(known_until(), now()), so they may seem greater, never smaller.
CREATE OR REPLACE FUNCTION postbox.known_until() RETURNS timestamptz
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN pg_is_in_recovery() THEN pg_last_xact_replay_timestamp() ELSE now() END
$$;
COMMENT ON FUNCTION postbox.known_until() IS
    'Internal: the time up to which this server knows what was committed: now, or on a standby the time of the last replayed transaction, NULL if none was replayed.';

CREATE OR REPLACE FUNCTION postbox.doctor_of_server() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    library record;
    installed text := (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'postbox');
    files text := (SELECT a.default_version FROM pg_available_extensions a WHERE a.name = 'postbox');
BEGIN
    IF pg_is_in_recovery() THEN
        RETURN NEXT ROW('standby', 'ok', NULL, format('this server is a standby: tables, events and subscriptions are shown as they were on the primary at %s; '
            'what only the workers of the primary know is not shown', coalesce(date_trunc('second', postbox.known_until())::text,
            'an unknown time (nothing has been replayed since this server started)')), NULL)::postbox.finding;
    END IF;
    SELECT * INTO library FROM postbox.library_state();
    IF NOT library.preloaded THEN
        RETURN NEXT postbox.make_finding('preloaded', CASE WHEN EXISTS (SELECT FROM postbox.publication) THEN 'error' ELSE 'warning' END, 'shared_preload_libraries',
            'postbox is not in shared_preload_libraries, so no worker publishes events or purges inboxes', 'add it to the configuration, and restart the server');
    END IF;
    IF installed <> library.version THEN
        RETURN NEXT postbox.make_finding('version', 'error', 'postbox',
            format('the SQL objects of this database have version %s, but the server has loaded version %s of the library', installed, library.version),
            CASE WHEN installed = files THEN 'restart the server to load the new library' ELSE 'run ALTER EXTENSION postbox UPDATE' END);
    ELSIF files <> library.version THEN
        RETURN NEXT postbox.make_finding('version', 'warning', 'postbox', format('the installed files have version %s, but the server has loaded '
            'version %s of the library', files, library.version), 'restart the server, and run ALTER EXTENSION postbox UPDATE');
    END IF;
    IF library.preloaded AND current_setting('postbox.publishers')::int >= current_setting('max_worker_processes')::int THEN
        RETURN NEXT postbox.make_finding('workers', 'error', 'max_worker_processes', format('postbox.publishers is %s, which together with the launcher exceeds '
            'max_worker_processes, which is %s', current_setting('postbox.publishers'), current_setting('max_worker_processes')),
            'raise max_worker_processes, and restart the server');
    END IF;
    IF current_setting('postbox.publishers')::int > current_setting('postbox.max_workers')::int THEN
        RETURN NEXT postbox.make_finding('workers', 'warning', 'postbox.max_workers', format('postbox.publishers is %s, but postbox.max_workers allows only %s',
            current_setting('postbox.publishers'), current_setting('postbox.max_workers')), 'raise postbox.max_workers, or lower postbox.publishers');
    END IF;
    IF has_function_privilege('postbox.list_workers()', 'EXECUTE') THEN
        RETURN QUERY SELECT (postbox.make_finding('workers', 'error', d.datname, 'the database has no worker: there are not enough worker slots, or worker processes do not start',
            'raise max_worker_processes or postbox.max_workers; the server log says which')).*
            FROM postbox.list_workers() w JOIN pg_database d ON d.oid = w.database_id WHERE w.state = 'unserved';
    END IF;
    IF has_function_privilege('postbox.list_metrics(text)', 'EXECUTE') THEN
        RETURN QUERY SELECT (postbox.make_finding('metrics', 'warning', 'postbox.metrics', format('there is no room for the metrics of some objects: %s times something was not '
            'counted since the server started', m.value), 'see docs/guides/metrics.md for the limits; what is dropped makes room after 10 minutes')).*
            FROM postbox.list_metrics('postbox_metrics_not_counted_total') m WHERE m.value > 0;
    END IF;
    RETURN QUERY SELECT (postbox.make_finding('workers', 'warning', t.evtname, 'the event trigger is disabled, so the parts of an outbox or inbox are not '
        'kept consistent when its table is dropped, moved or given to another owner', format('run ALTER EVENT TRIGGER %I ENABLE ALWAYS', t.evtname))).*
        FROM pg_event_trigger t WHERE t.evtname IN ('postbox_forget_dropped', 'postbox_follow_altered', 'postbox_refuse_drop') AND t.evtenabled <> 'A';
    IF NOT pg_has_role('pg_monitor', 'USAGE') AND NOT (SELECT r.rolsuper FROM pg_roles r WHERE r.rolname = current_user) THEN
        RETURN NEXT postbox.make_finding('visibility', 'warning', current_user, 'this role cannot see everything that is checked',
            format('run GRANT pg_monitor TO %I, or call postbox.doctor() as a member of pg_monitor', current_user));
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_server() IS 'Internal: the checks of postbox.doctor() on the library, its version, the workers and what the caller can see.';

CREATE OR REPLACE FUNCTION postbox.doctor_of_settings() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    lease int := (SELECT s.setting FROM pg_settings s WHERE s.name = 'postbox.lease_timeout');
    publish int := (SELECT s.setting FROM pg_settings s WHERE s.name = 'postbox.publish_timeout');
BEGIN
    IF current_setting('postbox.project_id') = '' THEN
        RETURN QUERY SELECT (postbox.make_finding('settings', 'error', p.name, format('postbox.project_id is not set, but the topic %s has a short name', p.topic),
            'set postbox.project_id in postgresql.conf, and reload the configuration')).*
            FROM postbox.publication p WHERE p.topic NOT LIKE 'projects/%';
        RETURN QUERY SELECT (postbox.make_finding('settings', 'warning', s.name, format('postbox.project_id is not set, but the subscription %s has a short name', s.subscription),
            'set postbox.project_id in postgresql.conf and reload the configuration, or start postbox pull with --project')).*
            FROM postbox.subscription s WHERE s.subscription NOT LIKE 'projects/%';
    END IF;
    IF publish * 2 > lease THEN
        RETURN NEXT postbox.make_finding('settings', 'warning', 'postbox.publish_timeout', format('postbox.publish_timeout is %s s, but at most half of postbox.lease_timeout '
            'is used, and that is set to %s s', publish, lease), 'raise postbox.lease_timeout, or lower postbox.publish_timeout');
    END IF;
    RETURN QUERY SELECT (postbox.make_finding('settings', 'warning', s.name, 'this setting is for tests of Postbox: it makes workers fail, or changes their time limits',
        'remove it from the configuration')).*
        FROM pg_settings s WHERE s.name = 'postbox.failpoint' AND s.setting <> '' OR s.name = 'postbox.time_scale' AND s.setting <> '100';
    RETURN QUERY SELECT (postbox.make_finding('durability', 'error', s.name, 'it is off: a crash of the machine may corrupt the database, and lose events that consumers have already seen',
        format('set %s = on in postgresql.conf, and reload the configuration', s.name))).*
        FROM pg_settings s WHERE s.name IN ('fsync', 'full_page_writes') AND s.setting = 'off';
    RETURN QUERY SELECT (postbox.make_finding('durability', 'warning', s.name, 'it is off, so autovacuum does not keep the tables of Postbox small',
        format('set %s = on in postgresql.conf, and reload the configuration', s.name))).*
        FROM pg_settings s WHERE s.name IN ('autovacuum', 'track_counts') AND s.setting = 'off';
    IF pg_has_role('pg_read_all_stats', 'USAGE') AND NOT pg_is_in_recovery() AND current_setting('synchronous_standby_names') <> ''
       AND NOT EXISTS (SELECT FROM pg_stat_replication r WHERE r.sync_state IN ('sync', 'quorum')) THEN
        RETURN NEXT postbox.make_finding('durability', 'error', 'synchronous_standby_names', format('it is ''%s'', but no such standby is connected: commits wait, and events are '
            'not published', current_setting('synchronous_standby_names')), 'start the standby, or remove it from synchronous_standby_names and reload the configuration');
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_settings() IS 'Internal: the checks of postbox.doctor() on settings and durability.';

-- Events older than the retention stay while a transaction that may have seen them is open. So the limit for a long transaction follows from the retention.
CREATE OR REPLACE FUNCTION postbox.doctor_of_transactions() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    span interval := least('1 hour', (SELECT min(o.retention) / 4 FROM postbox.outbox o), (SELECT min(i.retention) / 4 FROM postbox.inbox i));
    old text := 'for longer than ' || span || ': retention cannot remove events, and vacuum cannot remove rows';
BEGIN
    RETURN QUERY SELECT (postbox.make_finding('transactions', 'warning', 'process ' || a.pid, format('a transaction of role %I has been open since %s, ', a.usename,
            date_trunc('second', a.xact_start)) || old, format('end it in the application, or run SELECT pg_terminate_backend(%s)', a.pid))).*
        FROM pg_stat_activity a
        WHERE a.backend_type = 'client backend' AND a.pid <> pg_backend_pid() AND (a.backend_xid IS NOT NULL OR a.backend_xmin IS NOT NULL AND a.datname = current_database())
          AND a.xact_start < clock_timestamp() - span
        ORDER BY a.xact_start LIMIT 10;
    RETURN QUERY SELECT (postbox.make_finding('transactions', 'warning', p.gid, format('a prepared transaction of database %I has been waiting since %s, ', p.database,
            date_trunc('second', p.prepared)) || old, format('run COMMIT PREPARED %L or ROLLBACK PREPARED %L in that database', p.gid, p.gid))).*
        FROM pg_prepared_xacts p WHERE p.prepared < clock_timestamp() - span ORDER BY p.prepared LIMIT 10;
    RETURN QUERY SELECT (postbox.make_finding('transactions', 'error', d.datname, format('the oldest unfrozen transaction ID is %s transactions old; at 2 billion '
            'the server refuses writes', age(d.datfrozenxid)), 'end old transactions, remove unused replication slots, and run VACUUM (FREEZE) in that database')).*
        FROM pg_database d WHERE age(d.datfrozenxid) > 1500000000;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_transactions() IS 'Internal: the checks of postbox.doctor() on transactions that hold up retention and vacuum.';

-- Reads only the last events, with an index.
CREATE OR REPLACE FUNCTION postbox.latest_time(registered postbox.outbox) RETURNS timestamptz
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms' SET enable_seqscan = off SET jit = off
AS $$
DECLARE
    latest timestamptz;
    occurred text := postbox.outbox_column(registered, 'occurred_at', 'e.');
BEGIN
    IF registered.kind = 'log' THEN
        EXECUTE format('SELECT max(o.at) FROM (SELECT %s FROM %s e WHERE e.origin = postbox.cluster_origin() AND e.seq > $1 - 10) AS o(at) WHERE isfinite(o.at)',
                       occurred, registered.relation) INTO latest USING pg_sequence_last_value(postbox.log_sequence(registered.relation));
    ELSE
        EXECUTE format('SELECT max(o.at) FROM ((SELECT %1$s FROM %2$s e WHERE e.published_at IS NOT NULL ORDER BY e.published_at DESC LIMIT 10) UNION ALL '
                       '(SELECT %1$s FROM %2$s e WHERE e.published_at IS NULL AND e.next_retry_at IS NULL ORDER BY e.seq DESC LIMIT 10)) '
                       'AS o(at) WHERE isfinite(o.at)', occurred, registered.relation) INTO latest;
    END IF;
    RETURN latest;
END
$$;
COMMENT ON FUNCTION postbox.latest_time(postbox.outbox) IS 'Internal: the greatest occurred_at of about the last 10 events, read with the rights of the current user.';

CREATE OR REPLACE FUNCTION postbox.findings_of(relation regclass) RETURNS SETOF postbox.finding
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    registered postbox.outbox;
    latest timestamptz;
BEGIN
    IF EXISTS (SELECT FROM postbox.inbox i WHERE i.relation = findings_of.relation) THEN
        RETURN QUERY SELECT (postbox.make_finding('tables', 'error', f.object, f.problem, CASE WHEN f.repair IS NULL THEN 'it cannot be repaired: create another inbox'
                             ELSE format('run SELECT * FROM postbox.repair_inbox(%L, dry_run => false)', relation) END)).*
            FROM postbox.repair_inbox(relation) f;
        RETURN;
    END IF;
    SELECT o.* INTO registered FROM postbox.outbox o WHERE o.relation = findings_of.relation;
    -- Neither runs code of users nor counts a missing part: both might take for ever.
    IF (postbox.outbox_problem(registered)).code IS NOT NULL OR postbox.code_of_users(registered.relation, registered.parked) IS NOT NULL THEN
        RETURN;
    END IF;
    RETURN QUERY SELECT (postbox.make_finding('tables', 'error', f.object, f.problem, CASE WHEN f.repair IS NULL THEN 'it cannot be repaired: create another outbox'
                         ELSE format('run SELECT * FROM postbox.repair_outbox(%L, dry_run => false)', relation) END)).*
        FROM postbox.repair_outbox(relation) f;
    IF FOUND THEN
        RETURN;
    END IF;
    latest := postbox.latest_time(registered);
    IF latest > clock_timestamp() + interval '1 minute' THEN
        RETURN NEXT postbox.make_finding('clock', 'warning', relation::text, format('occurred_at of one of the last events is %s, which is in the future: the clock of an emitter or of this '
            'server is wrong', date_trunc('second', latest)), 'correct the clock, and let emitters leave out occurred_at; the warning ends after the next 10 events');
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.findings_of(regclass) IS 'Internal: the checks of postbox.doctor() on the tables of one outbox or inbox, run as its owner.';

CREATE OR REPLACE FUNCTION postbox.show_findings(relation regclass) RETURNS SETOF postbox.finding
    LANGUAGE C AS 'MODULE_PATHNAME';
COMMENT ON FUNCTION postbox.show_findings(regclass) IS
    'Internal: runs postbox.findings_of as the owner of the outbox or inbox; no rows unless the caller has the rights of the owner, of pg_monitor or of postbox_operator.';

-- Change triggers are statement-level. Changes by logical replication fire row-level triggers only; a user's own row-level trigger may emit.
CREATE OR REPLACE FUNCTION postbox.doctor_of_changes() RETURNS SETOF postbox.finding
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (postbox.make_finding('tables', 'warning', c.relation::text, format('logical replication changes it (subscription %s), and its change triggers emit no events for these changes',
        string_agg(DISTINCT quote_ident(s.subname), ', ')), 'emit the events in the database where the rows are changed, or see docs/guides/logical-replication.md')).*
    FROM (SELECT DISTINCT t.tgrelid::regclass FROM pg_trigger t WHERE t.tgfoid = 'postbox.emit_changes()'::regprocedure) AS c(relation)
    CROSS JOIN LATERAL (SELECT c.relation UNION SELECT a.relid FROM pg_partition_ancestors(c.relation) a UNION SELECT p.relid FROM pg_partition_tree(c.relation) p) AS k(kin)
    JOIN pg_subscription_rel r ON r.srrelid = k.kin JOIN pg_subscription s ON s.oid = r.srsubid
    WHERE NOT EXISTS (SELECT FROM pg_trigger t JOIN pg_proc f ON f.oid = t.tgfoid WHERE t.tgenabled IN ('A', 'R') AND t.tgtype & 1 = 1 AND strpos(f.prosrc, 'outbox_emit') > 0
                      AND (t.tgrelid = c.relation OR t.tgrelid IN (SELECT p.relid FROM pg_partition_tree(c.relation) p)))
    GROUP BY c.relation
$$;
COMMENT ON FUNCTION postbox.doctor_of_changes() IS 'Internal: the check of postbox.doctor() on tables with change triggers that logical replication changes.';

CREATE OR REPLACE FUNCTION postbox.doctor_of_tables() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET lock_timeout = '100ms'
AS $$
DECLARE
    registered regclass;
    table_of record;
    problem postbox.problem;
BEGIN
    FOR registered IN SELECT o.relation FROM postbox.outbox o UNION ALL SELECT i.relation FROM postbox.inbox i ORDER BY 1 LOOP
        -- Checked just before the table is used: its owner may add code at any time.
        SELECT o.relation, postbox.outbox_problem(o) AS problem, postbox.code_of_users(o.relation, o.parked) AS code,
               postbox.unlogged_problem(o.relation, o.parked, o.counter) AS unlogged, o AS outbox, 'outbox' AS kind
        INTO table_of FROM postbox.outbox o WHERE o.relation = registered;
        IF NOT FOUND THEN
            SELECT i.relation, postbox.parts_problem(i.relation) AS problem, NULL::text AS code, postbox.unlogged_problem(i.relation, i.tombstone) AS unlogged,
                   NULL::postbox.outbox AS outbox, 'inbox' AS kind
            INTO table_of FROM postbox.inbox i WHERE i.relation = registered;
        END IF;
        IF (table_of.unlogged).code IS NOT NULL THEN
            RETURN NEXT postbox.make_finding('unlogged', (table_of.unlogged).severity, table_of.relation::text, (table_of.unlogged).detail, (table_of.unlogged).remedy);
        END IF;
        IF (table_of.problem).code IS NOT NULL THEN
            RETURN NEXT postbox.make_finding('tables', (table_of.problem).severity, table_of.relation::text, (table_of.problem).detail, (table_of.problem).remedy);
            CONTINUE;
        ELSIF table_of.code IS NOT NULL THEN
            RETURN NEXT postbox.make_finding('tables', 'warning', table_of.relation::text, 'the tables are not checked: ' || table_of.code,
                format('let the owner drop that code, or run SELECT * FROM postbox.repair_outbox(%L)', table_of.relation));
            CONTINUE;
        END IF;
        -- The state of one outbox neither hides nor delays the findings of others.
        BEGIN
            RETURN QUERY SELECT * FROM postbox.show_findings(table_of.relation);
            problem := CASE WHEN table_of.kind = 'outbox' THEN postbox.show_retention_problem(table_of.relation) ELSE postbox.rotation_problem(table_of.relation) END;
        EXCEPTION
            WHEN lock_not_available THEN
                RETURN NEXT postbox.make_finding('tables', 'warning', table_of.relation::text,
                    'not checked: ' || coalesce(postbox.lock_holders(table_of.outbox), 'a table is locked'), 'wait for the process that holds the lock, or end it, and try again');
                CONTINUE;
            WHEN OTHERS THEN
                problem := ROW('unreadable', 'warning', table_of.relation, format('the table cannot be read: %s', SQLERRM), 'remove the cause, and try again');
        END;
        IF problem.code IS NOT NULL THEN
            RETURN NEXT postbox.make_finding('retention', problem.severity, table_of.relation::text, problem.detail, problem.remedy);
        END IF;
    END LOOP;
    RETURN QUERY SELECT * FROM postbox.doctor_of_changes();
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_tables() IS 'Internal: the checks of postbox.doctor() on the tables of outboxes and inboxes.';

CREATE OR REPLACE FUNCTION postbox.doctor_of_rights() RETURNS SETOF postbox.finding
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (postbox.make_finding('rights', 'error', c.oid::regclass::text,
            format('its owner %s may not read and write it, but workers act as the owner', quote_ident(pg_get_userbyid(c.relowner))),
            format('run GRANT ALL ON %s TO %I', c.oid::regclass, pg_get_userbyid(c.relowner)))).*
    FROM (SELECT o.relation FROM postbox.outbox o UNION ALL SELECT o.parked FROM postbox.outbox o UNION ALL SELECT i.relation FROM postbox.inbox i
          UNION ALL SELECT i.tombstone FROM postbox.inbox i) r(relation) JOIN pg_class c ON c.oid = r.relation
    WHERE NOT (has_table_privilege(c.relowner, c.oid, 'SELECT') AND has_table_privilege(c.relowner, c.oid, 'INSERT')
               AND has_table_privilege(c.relowner, c.oid, 'UPDATE') AND has_table_privilege(c.relowner, c.oid, 'DELETE'))
    UNION ALL
    SELECT (postbox.make_finding('rights', 'warning', c.oid::regclass::text, format('role %s may insert into it, but has no USAGE on its schema, so it cannot name it',
            quote_ident(pg_get_userbyid(a.grantee))), format('run GRANT USAGE ON SCHEMA %s TO %I', c.relnamespace::regnamespace, pg_get_userbyid(a.grantee)))).*
    FROM postbox.outbox o JOIN pg_class c ON c.oid = o.relation CROSS JOIN LATERAL aclexplode(c.relacl) a
    WHERE a.privilege_type = 'INSERT' AND a.grantee <> 0 AND NOT has_schema_privilege(a.grantee, c.relnamespace, 'USAGE')
    UNION ALL
    SELECT (postbox.make_finding('rights', 'warning', c.oid::regclass::text, format('its owner %s has no USAGE on its schema', quote_ident(pg_get_userbyid(c.relowner))),
            format('run GRANT USAGE ON SCHEMA %s TO %I', c.relnamespace::regnamespace, pg_get_userbyid(c.relowner)))).*
    FROM (SELECT o.relation FROM postbox.outbox o UNION ALL SELECT i.relation FROM postbox.inbox i) r(relation) JOIN pg_class c ON c.oid = r.relation
    WHERE NOT has_schema_privilege(c.relowner, c.relnamespace, 'USAGE')
    UNION ALL
    SELECT (postbox.make_finding('rights', 'error', r.rolname, 'the role has attributes that operators must not have, and its sessions and members may redrive and discard events',
            'run ALTER ROLE postbox_operator NOLOGIN NOSUPERUSER NOCREATEROLE NOCREATEDB NOREPLICATION NOBYPASSRLS')).*
    FROM pg_roles r WHERE r.rolname = 'postbox_operator'
      AND (r.rolcanlogin OR r.rolsuper OR r.rolcreaterole OR r.rolcreatedb OR r.rolreplication OR r.rolbypassrls)
$$;
COMMENT ON FUNCTION postbox.doctor_of_rights() IS 'Internal: the checks of postbox.doctor() on roles and rights.';

CREATE OR REPLACE FUNCTION postbox.doctor_of_publications() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT (postbox.make_finding('publications', CASE WHEN s.state IN ('active', 'waiting') THEN 'warning' ELSE 'error' END, s.publication,
            -- Without the failure from before it was unserved.
            format('it is %s: ', s.state) || coalesce(CASE WHEN s.state = 'unserved' THEN (w.problem).detail END, s.last_error, 'this role may not see why'), CASE
            WHEN (w.problem).code IS NOT NULL THEN (w.problem).remedy
            WHEN s.last_error LIKE 'NOT_FOUND%' THEN format('create the topic %s, or run SELECT postbox.alter_publication(%L, topic => ...)', s.topic, s.publication)
            WHEN s.last_error ~ '^(PERMISSION_DENIED|UNAUTHENTICATED)' THEN format('grant roles/pubsub.publisher on the topic %s to the service account of the server', s.topic)
            WHEN s.last_error ~ '^(UNAVAILABLE|DEADLINE_EXCEEDED)' THEN 'check postbox.endpoint, the network, DNS and firewalls between the server and Pub/Sub'
            WHEN s.last_error LIKE 'RESOURCE_EXHAUSTED%' THEN 'raise the quota, or wait'
            ELSE 'look up the detail in docs/guides/troubleshoot.md'
            END)).*
        FROM postbox.publication_status s LEFT JOIN postbox.outbox o ON o.relation = s.outbox CROSS JOIN LATERAL postbox.publishing_state(s.publication) p
        CROSS JOIN LATERAL (SELECT coalesce(postbox.copy_problem(s.publication), CASE WHEN s.state = p.state THEN p.problem END) AS problem) w
        -- Other checks report problems of the tables, the library and settings, and pauses. A standby is not meant to publish.
        WHERE (s.state <> 'active' OR s.last_error IS NOT NULL) AND s.state NOT IN ('broken', 'paused') AND NOT (s.state = 'unserved' AND pg_is_in_recovery())
          AND (s.state <> 'active' OR s.last_error <> concat_ws('; ', postbox.problem_text(postbox.unlogged_problem(o.relation, o.parked, o.counter)),
              postbox.problem_text(postbox.state_problem(s.publication)))) AND NOT (s.state = 'unserved' AND NOT (postbox.library_state()).preloaded);
    RETURN QUERY SELECT (postbox.make_finding('publications', w.severity, w.subject, w.detail, w.remedy)).*
        FROM postbox.publication p CROSS JOIN LATERAL postbox.state_problem(p.name) w WHERE w.code IS NOT NULL AND NOT pg_is_in_recovery();
    RETURN QUERY SELECT (postbox.make_finding('publications', 'warning', o.relation::text, 'no publication reads this outbox', 'run SELECT postbox.create_publication, or drop the outbox')).*
        FROM postbox.outbox o WHERE NOT EXISTS (SELECT FROM postbox.publication p WHERE p.outbox = o.relation);
    RETURN QUERY SELECT (postbox.make_finding('paused keys', 'warning', k.relation::text, format('keys wait behind an event that cannot be published: %s, the first behind event %s: %s',
            count(*), min(k.first_event_id), min(k.last_error)),
            format('remove the cause and run SELECT postbox.redrive(%L), or give up the events one by one with SELECT postbox.discard(%L, %L)',
                   k.relation, k.relation, min(k.first_event_id)))).*
        FROM postbox.list_paused_keys() k WHERE k.side = 'outbox' GROUP BY k.relation;
    RETURN QUERY SELECT (postbox.make_finding('paused keys', 'warning', k.relation::text, format('%s keys with %s events wait behind an event that could not be applied, the '
            'first since %s; %s keys wait for a redrive, and the others are retried: %s', count(*), sum(k.waiting) + count(k.dead_letter), date_trunc('second', min(k.since)),
            count(*) FILTER (WHERE k.next_retry_at = 'infinity'), min(k.last_error)),
            format('see postbox.paused_keys, remove the cause and run SELECT * FROM postbox.redrive_dead_letters(%L), or give up an event with SELECT postbox.discard_dead_letter(%s, '
                   'reason => ...)', k.relation, min(k.dead_letter)))).*
        FROM postbox.inbox_paused_keys() k GROUP BY k.relation;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_publications() IS 'Internal: the checks of postbox.doctor() on publications and paused keys.';

-- A puller without rights on the inbox cannot report; only its session shows that it is there. But any role can give its session that name. So only
-- a session that may apply events counts as a puller, and no remedy grants a right to the role of another session unconditionally.
CREATE OR REPLACE FUNCTION postbox.list_pullers(OUT subscription text, OUT pid int, OUT rolname name, OUT may_apply boolean) RETURNS SETOF record
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT DISTINCT ON (b.name, m.may_apply) b.name, a.pid, r.rolname, m.may_apply
    FROM postbox.subscription b CROSS JOIN pg_stat_activity a JOIN pg_roles r ON r.oid = a.usesysid
    CROSS JOIN LATERAL (SELECT coalesce(has_table_privilege(r.oid, b.inbox, 'INSERT'), false) AS may_apply) m
    WHERE a.datname = current_database() AND (a.application_name = 'postbox pull' OR a.application_name LIKE 'postbox pull %')
    ORDER BY b.name, m.may_apply, a.application_name = left('postbox pull ' || b.name, 63) DESC, a.pid
$$;
COMMENT ON FUNCTION postbox.list_pullers() IS
    'Internal: for each subscription one session of this database with application_name "postbox pull" whose role may apply its events, and one whose role may not.';

-- postbox pull needs one connection for its configuration and one for each subscription; while there is work, one for each applier. Publisher
-- workers are background workers, which no connection limit counts.
CREATE OR REPLACE FUNCTION postbox.doctor_of_connections() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    subscriptions int := (SELECT count(*) FROM postbox.subscription s WHERE (s.paused_until > now()) IS NOT TRUE);
    appliers int := (SELECT sum(s.appliers) FROM postbox.subscription s WHERE (s.paused_until > now()) IS NOT TRUE);
    room int := current_setting('max_connections')::int - current_setting('superuser_reserved_connections')::int
        - coalesce(current_setting('reserved_connections', true)::int, 0);
    most int := 1 + appliers;
    bound int;
BEGIN
    IF subscriptions = 0 THEN
        RETURN;
    END IF;
    -- The roles of possible pullers that have a connection limit.
    RETURN QUERY SELECT (postbox.make_finding('connections', 'error', r.rolname, format('role %I may have %s connections, but its postbox pull needs %s: one for its configuration, and one '
            'for each of %s subscriptions', r.rolname, r.rolconnlimit, 1 + n.subscriptions, n.subscriptions),
            format('if this role runs postbox pull, run ALTER ROLE %I CONNECTION LIMIT %s, which is enough for all appliers', r.rolname, 1 + n.appliers))).*
        FROM pg_roles r CROSS JOIN LATERAL (SELECT count(*) AS subscriptions, sum(s.appliers) AS appliers FROM postbox.subscription s
                WHERE (s.paused_until > now()) IS NOT TRUE AND has_table_privilege(r.oid, s.inbox, 'INSERT')) n
        WHERE r.rolconnlimit BETWEEN 0 AND n.subscriptions AND NOT r.rolsuper AND r.rolname IN (SELECT p.rolname FROM postbox.list_pullers() p WHERE p.may_apply);
    RETURN QUERY SELECT (postbox.make_finding('connections', 'error', d.datname, format('the database may have %s connections, but postbox pull needs %s: one for its configuration, '
            'and one for each of %s subscriptions', d.datconnlimit, 1 + subscriptions, subscriptions), format('run ALTER DATABASE %I CONNECTION LIMIT %s, or more for other clients', d.datname, most))).*
        FROM pg_database d WHERE d.datname = current_database() AND d.datconnlimit BETWEEN 0 AND subscriptions;
    SELECT CASE WHEN bool_and(r.rolconnlimit >= 0) THEN sum(r.rolconnlimit) END INTO bound
        FROM pg_roles r WHERE r.rolname IN (SELECT p.rolname FROM postbox.list_pullers() p WHERE p.may_apply);
    IF room <= subscriptions THEN
        RETURN NEXT postbox.make_finding('connections', 'error', 'max_connections', format('the server has %s connections for all clients, but postbox pull needs %s: one for its '
            'configuration, and one for each of %s subscriptions', room, 1 + subscriptions, subscriptions), 'raise max_connections, and restart the server');
    ELSIF room < least(most, bound) THEN
        RETURN NEXT postbox.make_finding('connections', 'warning', 'max_connections', format('the server has %s connections for all clients, but postbox pull may use %s while there is work '
            'for all appliers: one for its configuration, and one for each of %s appliers', room, most, appliers), 'raise max_connections and restart the server, create the '
            'subscriptions with fewer appliers, or limit the role that runs postbox pull with ALTER ROLE ... CONNECTION LIMIT');
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_connections() IS 'Internal: the checks of postbox.doctor() on the connections that subscriptions need and the limits of server, database and role.';

CREATE OR REPLACE FUNCTION postbox.doctor_of_subscriptions() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    known timestamptz := coalesce(postbox.known_until(), now());
BEGIN
    RETURN QUERY SELECT (postbox.make_finding('inboxes', 'error', format('%s %s', p.kind, p.name), p.problem,
            coalesce(p.remedy, 'repair or drop it; see docs/guides/projections.md'))).*
        FROM postbox.inbox_problem p WHERE p.kind IN ('projection', 'handler');
    RETURN QUERY SELECT (postbox.make_finding('inboxes', 'warning', format('projection %s', p.name), p.problem, p.remedy)).*
        FROM postbox.inbox_problem p WHERE p.kind = 'field';
    -- A puller reports at least every 5 minutes. Roles that may not see its reports get no finding. A standby has the reports that it has replayed,
    -- but not the sessions of the primary. A rebuild without a puller is a finding of the check `rebuilds`.
    RETURN QUERY SELECT (postbox.make_finding('subscriptions', CASE WHEN s.stream IS NULL AND pg_is_in_recovery() THEN 'warning' ELSE 'error' END, s.name, CASE
            WHEN s.stream IS NULL AND pg_is_in_recovery() THEN 'this server is a standby, and has no report of a puller'
            WHEN s.stream IS NULL THEN CASE WHEN s.pid IS NULL THEN 'no puller reports on it' ELSE format('no puller reports on it, although a session of role %I with application_name postbox pull '
                'is connected (process %s): it serves other subscriptions, has just started, or cannot open another connection', s.rolname, s.pid) END
                || CASE WHEN s.other_pid IS NULL THEN '' ELSE format('; a session of role %I with application_name postbox pull (process %s) may neither apply its events nor report on it: the role '
                'has no INSERT on %s', s.other_role, s.other_pid, s.inbox) END
            WHEN s.stream = 'paused' THEN format('it is paused: %s', s.stream_error)
            WHEN s.stream <> 'connected' THEN format('its stream is %s: %s', s.stream, coalesce(s.stream_error, 'no error is known'))
            ELSE format('nothing has been applied since %s: %s', date_trunc('second', s.retrying_since), coalesce(s.last_error, 'no error is known')) END,
            CASE WHEN s.stream IS NULL AND pg_is_in_recovery() THEN 'run SELECT * FROM postbox.doctor() on the primary'
            WHEN s.stream IS NULL THEN CASE WHEN s.other_pid IS NULL THEN '' ELSE format('grant INSERT on %s to that role if it is meant to run postbox pull; otherwise ', s.inbox) END
                || CASE WHEN s.pid IS NULL THEN format('start postbox pull, or run SELECT postbox.drop_subscription(%L)', s.name)
                   ELSE 'see the log of postbox pull, and run postbox doctor; if that session is not a puller, start postbox pull' END
            WHEN s.stream = 'paused' THEN format('redrive or discard parked events of %s, see postbox.paused_keys, or raise the limit of the subscription', s.inbox)
            ELSE 'see the log of postbox pull, and run postbox doctor' END)).*
        FROM (SELECT b.name, b.inbox, t.*, p.pid, p.rolname, o.pid AS other_pid, o.rolname AS other_role
              FROM postbox.subscription b LEFT JOIN postbox.list_pullers() p ON p.subscription = b.name AND p.may_apply
              LEFT JOIN postbox.list_pullers() o ON o.subscription = b.name AND NOT o.may_apply LEFT JOIN LATERAL (
                  SELECT t.stream, t.stream_error, t.retrying_since, t.last_error FROM postbox.subscription_status t
                  WHERE t.subscription = b.name AND t.last_seen > known - interval '6 minutes'
                  ORDER BY t.stream = 'connected' DESC, t.retrying_since NULLS FIRST LIMIT 1) t ON true
              WHERE (b.paused_until > now()) IS NOT TRUE AND (postbox.is_operator() OR pg_has_role('pg_monitor', 'USAGE') OR postbox.owns_inbox(b.inbox))) s
        WHERE s.stream <> 'connected' OR s.retrying_since < known - interval '1 minute' OR s.stream IS NULL AND NOT EXISTS (SELECT FROM postbox.rebuild r WHERE r.subscription = s.name);
    -- The server would have cancelled a statement that takes too long. On a standby the process is one of the primary.
    RETURN QUERY SELECT (postbox.make_finding('subscriptions', CASE WHEN t.unanswered_since < known - b.statement_timeout - interval '10 s' AND b.statement_timeout > '0'
                THEN 'error' ELSE 'warning' END, b.name, format('process %s of the %s has not answered since %s', t.unanswered_pid,
                CASE WHEN pg_is_in_recovery() THEN 'primary' ELSE 'server' END, date_trunc('second', t.unanswered_since)),
            CASE WHEN pg_is_in_recovery() THEN 'run SELECT * FROM postbox.doctor() on the primary' ELSE format('see pg_stat_activity; if the process does not continue, '
                'run SELECT pg_terminate_backend(%s), or kill -CONT if it is stopped', t.unanswered_pid) END)).*
        FROM postbox.subscription_status t JOIN postbox.subscription b ON b.name = t.subscription
        WHERE t.unanswered_since IS NOT NULL AND t.last_seen > known - interval '6 minutes'
          AND (postbox.is_operator() OR pg_has_role('pg_monitor', 'USAGE') OR postbox.owns_inbox(b.inbox));
    RETURN QUERY SELECT (postbox.make_finding('subscriptions', 'error', t.subscription, format('events of type %s have been suspended since %s: %s',
            array_to_string(t.suspended_types, ', '), date_trunc('second', t.suspended_since), t.suspended_error),
            'correct the handler or projection, or what it needs; its events then go on within seconds, and none is lost meanwhile')).*
        FROM postbox.subscription_status t JOIN postbox.subscription b ON b.name = t.subscription
        WHERE t.suspended_types IS NOT NULL AND t.last_seen > known - interval '6 minutes'
          AND (postbox.is_operator() OR pg_has_role('pg_monitor', 'USAGE') OR postbox.owns_inbox(b.inbox));
    RETURN QUERY SELECT (postbox.make_finding('dead letters', 'warning', d.inbox::text,
            format('%s events could not be applied, the last at %s', count(*), date_trunc('second', max(d.failed_at))),
            'see postbox.dead_letter, and run SELECT postbox.redrive_dead_letter(id) or SELECT postbox.discard_dead_letter(id) for each')).*
        FROM postbox.dead_letter d WHERE NOT d.parked GROUP BY d.inbox;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_subscriptions() IS 'Internal: the checks of postbox.doctor() on inboxes, subscriptions and dead letters.';

-- A pause without an end that is older than this may have been forgotten.
CREATE OR REPLACE FUNCTION postbox.doctor_of_pauses() RETURNS SETOF postbox.finding
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (postbox.make_finding('pauses', CASE WHEN p.forgotten THEN 'warning' ELSE 'ok' END, format('%s %s', p.kind, p.name),
            'it has been ' || postbox.pause_text(p.paused_at, p.paused_until, p.paused_reason),
            CASE WHEN p.forgotten THEN format('run SELECT postbox.resume_%s(%L)', p.kind, p.name) END)).*
    FROM (SELECT x.*, x.paused_until = 'infinity' AND x.paused_at < now() - interval '1 day' AS forgotten
          FROM (SELECT 'publication' AS kind, b.name, b.paused_at, b.paused_until, b.paused_reason FROM postbox.publication b UNION ALL
                SELECT 'subscription', s.name, s.paused_at, s.paused_until, s.paused_reason FROM postbox.subscription s UNION ALL
                SELECT 'projection', r.name, r.paused_at, r.paused_until, r.paused_reason FROM postbox.projection r UNION ALL
                SELECT 'handler', h.name, h.paused_at, h.paused_until, h.paused_reason FROM postbox.handler h UNION ALL
                SELECT 'backfill', f.name, f.paused_at, f.paused_until, f.paused_reason FROM postbox.backfill f WHERE f.state = 'active') x
          WHERE x.paused_until > now()) p
$$;
COMMENT ON FUNCTION postbox.doctor_of_pauses() IS 'Internal: the part of postbox.doctor() that shows what is paused.';

CREATE OR REPLACE FUNCTION postbox.doctor_of_credentials() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY SELECT (postbox.make_finding('credentials', 'error', u.name, format('it uses credential %I, which does not exist', u.credential),
            format('run SELECT postbox.create_credential(%L, ...), or give it another credential', u.credential))).*
        FROM (SELECT p.name, p.credential FROM postbox.publication p UNION ALL SELECT s.name, s.credential FROM postbox.subscription s) u
        WHERE u.credential IS NOT NULL AND NOT EXISTS (SELECT FROM postbox.credential c WHERE c.name = u.credential);
    RETURN QUERY SELECT (postbox.make_finding('credentials', 'warning', g.credential,
            format('it is granted to %L, but no role has this name: a role that is given the name may use the credential', g.grantee),
            format('run SELECT postbox.revoke_credential(%L, %L)', g.credential, g.grantee))).*
        FROM postbox.credential_grant g WHERE NOT EXISTS (SELECT FROM pg_roles r WHERE r.rolname = g.grantee);
    -- Roles that may not see the status get no finding.
    IF has_table_privilege('postbox.credential_status', 'SELECT') THEN
        RETURN QUERY SELECT (postbox.make_finding('credentials', CASE WHEN s.used_by = '{}' THEN 'warning' ELSE 'error' END, coalesce(s.name, 'the environment of the server'),
                s.last_error, CASE WHEN s.name IS NULL THEN 'set GOOGLE_APPLICATION_CREDENTIALS for the server, or give publications a credential made with postbox.create_credential'
                                   ELSE format('run SELECT postbox.alter_credential(%L, ...), or correct what the detail names', s.name) END)).*
            FROM postbox.credential_status s WHERE s.last_error IS NOT NULL;
    END IF;
END
$$;
COMMENT ON FUNCTION postbox.doctor_of_credentials() IS 'Internal: the checks of postbox.doctor() on credentials.';

-- A minute is much longer than any wait of a backfill that emits: a session that holds a row, or a backlog, is the cause.
CREATE OR REPLACE FUNCTION postbox.doctor_of_backfills() RETURNS SETOF postbox.finding
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (postbox.make_finding('backfills', CASE WHEN s.last_error IS NULL THEN 'warning' ELSE 'error' END, s.backfill,
        CASE s.state
            WHEN 'waiting' THEN format('it has emitted nothing for %s: %s', date_trunc('second', clock_timestamp() - coalesce(s.updated_at, s.started_at)), s.reason)
            ELSE format('no session runs it; it has emitted %s rows', s.row_count) || coalesce('; the last run ended with ' || s.last_error, '') END,
        CASE s.state
            WHEN 'waiting' THEN 'end the transaction that holds its rows, or see postbox.publication_status'
            ELSE concat_ws(', then ', CASE WHEN s.last_error IS NOT NULL THEN 'remove the cause' END,
                           format('run CALL postbox.run_backfill(%L), or SELECT postbox.cancel_backfill(%L)', s.backfill, s.backfill)) END)).*
    FROM postbox.backfill_status s
    WHERE s.state = 'stopped'
       OR s.state = 'waiting' AND coalesce(s.updated_at, s.started_at) < clock_timestamp() - interval '1 minute'
$$;
COMMENT ON FUNCTION postbox.doctor_of_backfills() IS 'Internal: the check of postbox.doctor() on backfills that emit nothing.';

CREATE OR REPLACE FUNCTION postbox.doctor_of_rebuilds() RETURNS SETOF postbox.finding
    LANGUAGE sql STABLE
    SET search_path = pg_catalog, pg_temp
AS $$
    SELECT (postbox.make_finding('rebuilds', CASE WHEN s.state = 'failing' OR s.last_error IS NOT NULL AND s.state <> 'stopped' THEN 'error' ELSE 'warning' END, s.projection,
        CASE WHEN s.state IN ('done', 'cancelled') THEN format('its rebuild is %s, and Pub/Sub subscription %s is left of it', s.state, s.pubsub_subscription)
             WHEN s.state = 'stopped' THEN 'its rebuild does not move: no puller reports' || coalesce('; the last error was ' || s.last_error, '')
             WHEN s.state = 'failing' THEN format('its rebuild is stopped by an error: %s', s.last_error)
             WHEN s.last_error IS NOT NULL THEN format('its rows cannot be replaced: %s', s.last_error)
             ELSE format('its rows could not be replaced since %s: %s%s', date_trunc('second', r.waits_since), s.reason,
                         format(', in %s keys, for example %s', s.lagging, s.lagging_key)) END,
        CASE WHEN s.state IN ('done', 'cancelled') THEN format('run postbox pull --rebuild %s --cancel', quote_literal(s.projection))
             WHEN s.state = 'stopped' THEN format('run postbox pull --rebuild %s, or cancel it: SELECT postbox.cancel_rebuild(%L)', quote_literal(s.projection), s.projection)
             WHEN s.state = 'failing' THEN format('remove the cause; or, if an event fails, give such events up: SELECT postbox.alter_subscription(%L, on_error => ''reject'')', s.subscription)
             WHEN s.last_error IS NOT NULL THEN format('remove the cause, and run postbox pull --rebuild %s', quote_literal(s.projection))
             WHEN s.lagging > 0 THEN format('if its message is gone, keep such rows: SELECT postbox.finish_rebuild(%L, lagging => ''keep'')', s.projection)
             ELSE 'end the transactions that write the target' END)).*
    FROM postbox.rebuild_status s JOIN postbox.rebuild r ON r.target = s.target
    WHERE s.state IN ('stopped', 'failing') OR r.state = 'active' AND s.last_error IS NOT NULL OR r.state <> 'active' AND s.pubsub_subscription IS NOT NULL
       OR s.state = 'waiting' AND r.waits_since < clock_timestamp() - interval '1 minute'
$$;
COMMENT ON FUNCTION postbox.doctor_of_rebuilds() IS 'Internal: the check of postbox.doctor() on rebuilds that do not move, or have left something behind.';

CREATE OR REPLACE FUNCTION postbox.doctor() RETURNS SETOF postbox.finding
    LANGUAGE plpgsql
    SET search_path = pg_catalog, pg_temp
    SET row_security = on
    SET lock_timeout = '100ms'
AS $$
DECLARE
    checks text[] := '{preloaded,version,workers,metrics,settings,durability,transactions,rights,tables,unlogged,retention,clock,publications,"paused keys",'
        'inboxes,connections,subscriptions,"dead letters",pauses,audits,credentials,backfills,rebuilds,visibility}';
    part text;
    found postbox.finding;
    findings postbox.finding[] := '{}';
BEGIN
    FOREACH part IN ARRAY '{server,settings,transactions,rights,tables,publications,connections,subscriptions,pauses,audits,credentials,backfills,rebuilds}'::text[] LOOP
        BEGIN
            FOR found IN EXECUTE format('SELECT * FROM postbox.doctor_of_%s()', part) LOOP
                findings := findings || found;
            END LOOP;
        EXCEPTION WHEN OTHERS THEN
            -- Then none of its checks is known to be ok.
            findings := findings || ARRAY(SELECT postbox.make_finding(c.name, 'error', NULL, 'not checked: ' || SQLERRM, 'remove the cause, and try again; the server log has details')
                FROM unnest((CASE part WHEN 'server' THEN '{preloaded,version,workers,metrics,visibility}' WHEN 'settings' THEN '{settings,durability}'
                             WHEN 'tables' THEN '{tables,unlogged,retention,clock}' WHEN 'publications' THEN '{publications,"paused keys"}'
                             WHEN 'subscriptions' THEN '{inboxes,subscriptions,"dead letters"}' ELSE format('{%s}', part) END)::text[]) AS c(name));
        END;
    END LOOP;
    RETURN QUERY
        SELECT f.* FROM unnest(findings) f
        UNION ALL
        SELECT c.name, 'ok', NULL, NULL, NULL FROM unnest(checks) AS c(name) WHERE NOT EXISTS (SELECT FROM unnest(findings) f WHERE f.check = c.name)
        ORDER BY 2 DESC, 1, 3;
END
$$;
COMMENT ON FUNCTION postbox.doctor() IS
$$Checks Postbox in this database. Returns one row with status `ok` for each check without a problem, and one row for each problem found: `check`, `status` (`warning`, or
  `error` if something does not work), `subject`, `detail` (the cause) and `remedy` (what to do). Errors come before warnings, `ok` last.

The checks are `preloaded` (shared_preload_libraries), `version` (of the SQL objects, the installed files and the loaded library), `workers`, `metrics` (that have no room), `settings`, `durability`,
  `transactions` (that hold up retention and vacuum), `rights`, `tables` (of outboxes and inboxes), `unlogged`, `retention`, `clock`, `publications`, `paused keys`,
  `inboxes` (broken projections and handlers, fields that no event has), `connections`, `subscriptions`, `dead letters`, `pauses`, `audits` (the last results of
  `postbox audit`), `credentials`, `backfills` (that emit nothing), `rebuilds` (that do not
  move) and `visibility` (whether the caller can see everything). What is paused has a row with the reason; it is a
  warning if the pause has no end and is older than a day.

It changes nothing, runs no code of users, and waits at most 100 ms for a lock. A check that cannot be run is an `error` that begins with `not checked`. On a standby a row
  `standby` has the time of the data shown. `postbox doctor` runs the same checks and adds those that need a client.

Rights: none. Members of pg_monitor and postbox_operator see the most.
Errors: none.
Since: 0.2.0
Example: SELECT * FROM postbox.doctor() WHERE status <> 'ok';$$;
