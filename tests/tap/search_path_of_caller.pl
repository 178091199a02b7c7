# What a superuser calls in schema postbox finds its operators, functions, types and tables in pg_catalog, whatever the search_path of his
# session: a role has put one of each name before those of pg_catalog, and none of them is ever run.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Session;
use Postbox::Test;
use Test::More;

# They say who runs them, and then do what the original does.
my $traps = <<'SQL';
CREATE ROLE evil LOGIN;
CREATE SCHEMA evil AUTHORIZATION evil;
GRANT USAGE ON SCHEMA evil TO PUBLIC;
SET ROLE evil;
SET search_path = pg_catalog;
CREATE FUNCTION evil.ran(what text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'trap % runs as %', what, current_user; RETURN true; END $$;

-- operators and functions
DO $do$
DECLARE
	o record;
	made int := 0;
BEGIN
	FOR o IN SELECT oprname, oid, nullif(oprleft, 0)::regtype AS l, oprright::regtype AS r, oprresult::regtype AS result FROM pg_operator
		WHERE oprnamespace = 'pg_catalog'::regnamespace AND oprkind IN ('b', 'l')
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION evil.op_%s(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran(%L); RETURN %s OPERATOR(pg_catalog.%s) %s; END $$',
				o.oid, concat_ws(', ', o.l, o.r), o.result, 'operator ' || o.oprname, CASE WHEN o.l IS NULL THEN '' ELSE '$1' END, o.oprname,
				CASE WHEN o.l IS NULL THEN '$1' ELSE '$2' END);
			EXECUTE format('CREATE OPERATOR evil.%s (%s RIGHTARG = %s, FUNCTION = evil.op_%s)', o.oprname, 'LEFTARG = ' || o.l || ',', o.r, o.oid);
			made := made + 1;
		EXCEPTION WHEN OTHERS THEN
			NULL;  -- of a type that only C can take
		END;
	END LOOP;
	RAISE NOTICE 'made % operators', made;
END $do$;
DO $do$
DECLARE
	f record;
	made int := 0;
BEGIN
	FOR f IN SELECT p.proname, p.proretset, p.prorettype::regtype AS result, oidvectortypes(p.proargtypes) AS arguments,
			'pg_catalog.' || quote_ident(p.proname) || '(' || array_to_string(ARRAY(SELECT '$' || n FROM generate_series(1, p.pronargs) n), ', ') || ')' AS call
		FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f' AND p.provariadic = 0 AND p.prorettype <> 'trigger'::regtype
			AND NOT ARRAY['internal', 'cstring', 'trigger', '"any"']::regtype[]::oid[] && p.proargtypes::oid[]
	LOOP
		BEGIN
			EXECUTE format('CREATE FUNCTION evil.%I(%s) RETURNS %s LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran(%L); %s; END $$',
				f.proname, f.arguments, CASE WHEN f.proretset THEN 'SETOF ' ELSE '' END || f.result, 'function ' || f.proname,
				CASE WHEN f.proretset THEN 'RETURN QUERY SELECT * FROM ' || f.call WHEN f.result = 'void'::regtype THEN 'PERFORM ' || f.call
					ELSE 'RETURN ' || f.call END);
			made := made + 1;
		EXCEPTION WHEN OTHERS THEN
			NULL;
		END;
	END LOOP;
	RAISE NOTICE 'made % functions', made;
END $do$;
CREATE FUNCTION evil.format(text, VARIADIC anyarray) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran('function format'); RETURN $1; END $$;
CREATE FUNCTION evil.concat_ws(text, VARIADIC text[]) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran('function concat_ws'); RETURN $1; END $$;

-- aggregates
CREATE FUNCTION evil.counted(bigint) RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran('aggregate'); RETURN $1; END $$;
CREATE FUNCTION evil.picked(anyelement, anyelement) RETURNS anyelement LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran('aggregate'); RETURN $1; END $$;
CREATE FUNCTION evil.joined(text, text, text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran('aggregate'); RETURN $1; END $$;
CREATE FUNCTION evil.gathered(anyarray, anynonarray) RETURNS anyarray LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran('aggregate'); RETURN $1; END $$;
CREATE FUNCTION evil.gathered(jsonb, anyelement) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.ran('aggregate'); RETURN $1; END $$;
CREATE AGGREGATE evil.count(*) (SFUNC = evil.counted, STYPE = bigint, INITCOND = '0');
CREATE AGGREGATE evil.min(anyelement) (SFUNC = evil.picked, STYPE = anyelement);
CREATE AGGREGATE evil.max(anyelement) (SFUNC = evil.picked, STYPE = anyelement);
CREATE AGGREGATE evil.string_agg(text, text) (SFUNC = evil.joined, STYPE = text);
CREATE AGGREGATE evil.array_agg(anynonarray) (SFUNC = evil.gathered, STYPE = anyarray);
CREATE AGGREGATE evil.jsonb_agg(anyelement) (SFUNC = evil.gathered, STYPE = jsonb);

-- tables and types
SELECT format('CREATE VIEW evil.%1$I AS SELECT * FROM %2$I.%1$I WHERE evil.ran(%3$L)', c.relname, n.nspname, 'table ' || c.relname)
FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE c.relkind IN ('r', 'v') AND has_table_privilege(c.oid, 'SELECT') AND n.nspname IN ('pg_catalog', 'postbox') AND c.relname !~ '^pg_(attribute$|stat|shmem|hba|ident|file)' \gexec
CREATE VIEW evil.pg_attribute AS SELECT attrelid, attname, atttypid, attnum, attisdropped, attnotnull FROM pg_attribute WHERE evil.ran('table pg_attribute');
SELECT format('CREATE DOMAIN evil.%1$I AS pg_catalog.%1$I CHECK (evil.ran(%2$L))', t, 'type ' || t)
FROM unnest('{text,name,oid,regclass,regtype,int4,int8,jsonb,uuid,xid8,pg_snapshot,timestamptz,interval}'::pg_catalog.text[]) t \gexec
RESET ROLE;
SQL

# One call at least of each function, with every branch that a statement of its own stands in.
my @calls = (
	q{SELECT postbox.create_outbox('app.log'), postbox.create_outbox('app.jobs', 'table'), postbox.create_inbox('app.inbox')},
	q{CREATE TABLE app.adopted (id pg_catalog.uuid PRIMARY KEY, aggregatetype pg_catalog.text NOT NULL, aggregateid pg_catalog.text NOT NULL, type pg_catalog.text NOT NULL, payload pg_catalog.jsonb NOT NULL, version pg_catalog.int8 NOT NULL)},
	q{INSERT INTO app.adopted VALUES ('550e8400-e29b-41d4-a716-446655440000', 'a', 'b', 'c', '{}', 1)},
	q{SELECT postbox.adopt_outbox('app.adopted')},
	(map { "SELECT postbox.create_publication('$_', 'app.$_', 'shop.order.events')" } qw(log jobs adopted)),
	q{SELECT postbox.alter_publication('log', topic => 'shop.order.events2', max_attempts => 3)},
	q{SELECT postbox.create_publication('other', 'app.log', 'shop.order.events', aggregate_types => '{order}'), postbox.drop_publication('other')},
	q{SELECT postbox.pause_publication('log', 'why', '2999-01-01'), postbox.resume_publication('log')},
	q{SELECT postbox.alter_outbox('app.log', '30 days'), postbox.alter_outbox('app.jobs', '30 days')},
	q{SELECT postbox.pause_text('2024-01-01', '2999-01-01', 'why')},
	q{SELECT postbox.create_credential('machine', 'metadata'), postbox.alter_credential('machine', 'file', file => '/nowhere')},
	q{SELECT postbox.grant_credential('machine', 'pg_monitor'), postbox.revoke_credential('machine', 'pg_monitor'), postbox.drop_credential('machine')},
	q{SELECT postbox.doctor_of_credentials()},
	q{SELECT postbox.check_topic_name('shop.order.events'), postbox.wake_publishers(), postbox.is_operator()},
	(
		map {
			(
				"SELECT postbox.outbox_emit('order', '1', 'order.created', '{}'::pg_catalog.jsonb, outbox => 'app.$_')",
				"SELECT postbox.outbox_emit('order', '1', 'order.created', '{}'::pg_catalog.text, version => 7, outbox => 'app.$_')",
				"SELECT postbox.outbox_emit('order', '2', 'order.created', '{}'::pg_catalog.bytea, source_event_id => 's', attributes => '{\"a\": \"b\"}', outbox => 'app.$_')",
				"SELECT postbox.outbox_emit_json('{\"aggregate_type\": \"order\", \"aggregate_id\": 3, \"event_type\": \"order.created\", \"payload\": {}}', 'app.$_')",
				"SELECT postbox.outbox_emit('order', 4, 'order.created', '{}'::pg_catalog.json, outbox => 'app.$_')",
				"SET postbox.default_outbox = 'app.$_'; SELECT postbox.outbox_emit('order', '1', 'order.created', '{}'); RESET postbox.default_outbox",
				"SELECT * FROM postbox.publication_status", "SELECT * FROM postbox.expired_event",
				"SELECT * FROM postbox.paused_keys",
				"SELECT postbox.redrive('app.$_'), postbox.discard('app.$_', '550e8400-e29b-41d4-a716-446655440000')",
				"SELECT postbox.republish('$_'), postbox.cancel_republish('$_'), postbox.count_republished('$_'), postbox.remove_republished('$_')",
				"SELECT postbox.republish_events('$_', NULL, NULL, NULL, NULL, true, 1, NULL), postbox.event_state('app.$_', '550e8400-e29b-41d4-a716-446655440002', NULL)",
				"SELECT postbox.republish_filter('a', 'b', 'c'), postbox.republish_step(o, p, NULL, NULL, NULL, NULL, true, 1, 0), "
				  . 'postbox.republish_form(o), ' . ($_ eq 'log' ? 'postbox.log_event_state' : 'postbox.table_event_state')
				  . "(o, '550e8400-e29b-41d4-a716-446655440002', NULL) FROM postbox.outbox o, postbox.publication p WHERE p.name OPERATOR(pg_catalog.=) '$_' AND p.outbox OPERATOR(pg_catalog.=) o.relation",
				"SELECT postbox.redrive_events('app.$_', NULL), postbox.discard_event('app.$_', '550e8400-e29b-41d4-a716-446655440001')",
				"SELECT postbox.purge_outbox('app.$_'), postbox.purge_events('app.$_', 10)",
				"SELECT postbox.show_paused_keys('app.$_'), postbox.outbox_paused_keys('app.$_'), postbox.require_outbox('app.$_'), postbox.code_of_users('app.$_')",
				"SELECT postbox.show_backlog('$_'), postbox.publication_backlog('$_'), postbox.publishing_state('$_'), postbox.publication_gauges('$_'), postbox.parked_gauges('$_')",
				"SELECT postbox.outbox_problem(o), postbox.lock_holders(o), postbox.unlogged_problem(o.relation, o.parked), postbox.outbox_column(o, 'id'), postbox.outbox_column(o, 'occurred_at', 'e.'), postbox.log_key('q.'), postbox.waiting_since('2026-01-01', '2025-01-01'), postbox.has_passed('2026-01-01'), postbox.not_expired('e.attributes'), postbox.without_delay(o) FROM postbox.outbox o",
				"SELECT postbox.counted_versions('app.$_', '{video}', '{v1}'), postbox.sees_outbox('app.$_'), postbox.expiry_problem('$_', o) FROM postbox.outbox o",
				"SELECT postbox.parked_form(o), postbox.remove_event(o, '550e8400-e29b-41d4-a716-446655440002') FROM postbox.outbox o",
			)
		} qw(log jobs adopted)),
	q{SELECT postbox.outbox_emit('order', '1', 'order.created', '{}')},    # more than one
	(
		map {
			(
				"SELECT postbox.audit_emitted('$_', postbox.cluster_origin(), 0, '00000000-0000-0000-0000-000000000000', 1000, 10), postbox.read_emitted('$_', 0, 0, '00000000-0000-0000-0000-000000000000', 9000000000000000, 10)",
				"SELECT postbox.audit_events('$_', '{550e8400-e29b-41d4-a716-446655440000}', true), postbox.read_events('$_', '{550e8400-e29b-41d4-a716-446655440000}', false), postbox.read_events('$_', '{550e8400-e29b-41d4-a716-446655440000}', NULL)",
				"SELECT postbox.audit_repeated_versions('$_', 10), postbox.read_repeated_versions('$_', 10)",
				"SELECT postbox.audit_last_versions('$_', '{item.changed}', '{item}', '{i1}'), postbox.read_last_versions('$_', '{item.changed}', '{item}', '{i1}')",
				"SELECT postbox.find_events('$_', NULL, 'i1', NULL, 100, 10, 50), postbox.read_found_events('$_', NULL, 'i1', 'f', 100, 10, 50)",
				"SELECT postbox.find_events('$_', '550e8400-e29b-41d4-a716-446655440000', NULL, NULL, 100, 10, 50), postbox.read_found_events('$_', '550e8400-e29b-41d4-a716-446655440000', NULL, NULL, 100, 10, 50)",
			)
		} qw(log jobs adopted)),
	q{SELECT postbox.emitted_form(o, 'app.log'::pg_catalog.text) FROM postbox.outbox o},
	q{SELECT postbox.audit_history(), postbox.audit_lanes('log'), postbox.audit_withheld('log')},
	q{SELECT postbox.audit_source(), postbox.micros(pg_catalog.now()), postbox.time_of_micros(1)},
	q{SELECT postbox.audit_emit_again('log', id) FROM app.log WHERE aggregate_id OPERATOR(pg_catalog.=) '3'},
	q{SELECT postbox.emit_event_again('log', id) FROM app.log WHERE aggregate_id OPERATOR(pg_catalog.=) '4'},
	q{CREATE TABLE app.changed (id pg_catalog.int4 PRIMARY KEY, at pg_catalog.timestamptz)},
	q{SELECT postbox.change_arguments('app.changed', NULL, '{id}', 'app.log', NULL, NULL), postbox.create_change_triggers('app.changed', outbox => 'app.log')},
	q{INSERT INTO app.changed VALUES (1, '2026-01-01'), (2, NULL)},
	q{UPDATE app.changed SET id = id OPERATOR(pg_catalog.+) 2},
	q{DELETE FROM app.changed},
	q{SELECT postbox.drop_change_triggers('app.changed')},
	q{SELECT postbox.wait_published(e.id, '0', 'app.log') FROM app.log e LIMIT 1},
	q{CREATE TABLE app.filled (id pg_catalog.int4 PRIMARY KEY, at pg_catalog.timestamptz)},
	q{INSERT INTO app.filled VALUES (1, '2026-01-01'), (2, NULL)},
	q{CREATE FUNCTION app.filled_json(f app.filled) RETURNS pg_catalog.json LANGUAGE sql SET search_path = pg_catalog RETURN pg_catalog.row_to_json(f)},
	q{SELECT postbox.change_mapping('app.filled'), postbox.key_range('app.filled'), postbox.check_backfill('a', 'app.filled', 'app.log', NULL)},
	q{SELECT postbox.create_backfill('a', 'app.filled', outbox => 'app.log'), postbox.create_backfill('b', 'app.filled', outbox => 'app.jobs', payload => 'app.filled_json(app.filled)')},
	q{SELECT postbox.pause_backfill('a', 'x'), postbox.resume_backfill('a'), postbox.emit_backfill_chunk('a', 1, '1s', '1h')},
	q{SELECT postbox.doctor_of_backfills(), postbox.list_backfill_status()},
	q{CALL postbox.run_backfill('a', max_lag => '1h')},
	q{CALL postbox.run_backfill('b', max_lag => NULL)},
	q{SELECT * FROM postbox.backfill_status},
	q{SELECT postbox.create_backfill('c', 'app.filled', outbox => 'app.log'), postbox.cancel_backfill('c'), postbox.set_backfill_state('c', '{cancelled}', 'cancelled', NULL), postbox.drop_backfill('c')},
	q{SELECT postbox.doctor_of_rebuilds(), postbox.list_rebuild_status()},
	q{SELECT * FROM postbox.rebuild_status},
	q{SELECT postbox.list_publication_status(), postbox.list_paused_keys(), postbox.list_workers(), postbox.list_projection_status(), postbox.report_number('1'), postbox.list_metric_names(), postbox.list_metrics('postbox_info'), postbox.metered_objects(), postbox.small_gauges()},
	q{SELECT postbox.outbox_gauges('app.log'), postbox.outbox_gauges('app.jobs'), postbox.inbox_gauges('app.inbox')},
	q{SELECT * FROM postbox.workers},
	q{SELECT postbox.count_backlog('jobs'), postbox.count_backlog('log')},
	q{SELECT postbox.foreign_backlog('app.log', 'log'), postbox.log_sequence('app.log')},
	q{SELECT postbox.park_unread('log', 0, '3:3:', 1)},
	q{SELECT postbox.copied_from(home), postbox.copied_from(postbox.this_database()), postbox.copy_problem(name), postbox.state_problem(name), postbox.replicated_problem('app.log') FROM postbox.publication},
	q{UPDATE postbox.publication SET home = '1/2'; SELECT postbox.claim_publication('log'), postbox.claim_publication()},
	q{SELECT postbox.is_read('app.log', 'app.log_g0'), postbox.purge_log_outbox('app.log'), postbox.settle_foreign_events('app.log')},
	q{UPDATE postbox.lane SET system_identifier = 1, floor = 0, hwm = 0, snapshot = '3:3:', next_xid = '3' WHERE publication OPERATOR(pg_catalog.=) 'log'},
	q{SELECT postbox.settle_foreign_events('app.log')},
	q{SELECT postbox.has_read(l, '3', 1) FROM postbox.lane_progress l},
	q{UPDATE app.log SET origin = 7 WHERE seq OPERATOR(pg_catalog.=) 1},
	q{SELECT postbox.foreign_origins('app.log', 'app.log'), postbox.cluster_origin(), postbox.origin_of(1)},
	q{SELECT postbox.resolve_unknown_origin('app.log', false)},
	q{SELECT postbox.has_unsettled('app.log', 'app.log'), postbox.foreign_unread('app.log', 'app.log', f.origin, f.hwm, f.xmin, f.next_xid, 1) FROM postbox.foreign_origins('app.log', 'app.log') f},
	q{SELECT postbox.begin_here('app.log'), postbox.settle_rows('app.log', 10), postbox.park_settled('log', 'app.log'), postbox.parking_statement('app.log_parked', 'app.log e')},
	q{SELECT postbox.generation_span('1 day'), postbox.generation_expression('1 day'), postbox.generation_of(pg_catalog.now(), 60)},
	q{SELECT * FROM postbox.outbox_status},
	q{SELECT * FROM postbox.doctor()},
	q{SELECT postbox.doctor_of_changes()}, q{SELECT postbox.doctor_of_connections()}, q{SELECT postbox.list_pullers()},
	(map { "SELECT postbox.doctor_of_$_()" } qw(server settings transactions tables rights publications subscriptions pauses)),
	q{SELECT postbox.show_findings('app.log'), postbox.findings_of('app.log'), postbox.show_findings('app.inbox'), postbox.findings_of('app.inbox')},
	q{SELECT postbox.latest_time(o), postbox.known_until(), postbox.library_state(), postbox.make_finding('a', 'b', 'c', 'd', 'e'), postbox.problem_text(ROW('a', 'b', 'c', 'd', 'e')::postbox.problem) FROM postbox.outbox o},
	q{SELECT postbox.list_outbox_status(), postbox.show_retention_problem('app.log'), postbox.retention_problem('app.log')},
	q{SELECT postbox.generation_partitions('app.log'), postbox.partition_generation('app.log_g1'::pg_catalog.regclass), postbox.rotation_problem('app.inbox'), postbox.read_by_all('app.log')},
	q{SELECT postbox.parts_of(ARRAY['app.log'::pg_catalog.regclass::pg_catalog.oid]), postbox.free_name('app', 'log', '_g0'), postbox.parts_problem('app.log')},
	q{SELECT postbox.repair_outbox('app.log'), postbox.repair_outbox('app.jobs', false), postbox.repair_outbox('app.adopted', false), postbox.repair_inbox('app.inbox', false)},
	q{DROP TABLE app.log_version, app.log_parked, app.inbox_tombstone, app.log_g3; DROP SEQUENCE app.log_seq CASCADE; DROP INDEX app.log_seq_idx},
	q{SELECT postbox.repair_outbox('app.log', false), postbox.repair_inbox('app.inbox', false)},
	q{CREATE ROLE other; GRANT ALL ON SCHEMA app TO other; ALTER TABLE app.log OWNER TO other; ALTER TABLE app.inbox OWNER TO other; ALTER TABLE app.inbox OWNER TO CURRENT_USER; ALTER TABLE app.log OWNER TO CURRENT_USER},
	q{CREATE SCHEMA elsewhere; ALTER TABLE app.log SET SCHEMA elsewhere; ALTER TABLE elsewhere.log SET SCHEMA app},
	q{SELECT postbox.past_retention(o), postbox.empty_partition('app.log_g0', 'false'), postbox.is_empty('app.log_g0') FROM postbox.outbox o WHERE relation OPERATOR(pg_catalog.=) 'app.log'::pg_catalog.regclass},
	q{DROP TRIGGER postbox_replicated ON app.log; SELECT postbox.add_outbox_triggers('app.log', 'log'), postbox.add_stamp_trigger('app.log_g0')},
	q{SELECT postbox.lane_slice('a', 3)},
	q{SELECT postbox.make_partitions('app.log'), postbox.add_missing_partitions('app.log'), postbox.add_partitions('app.inbox', 3)},
	q{CREATE TABLE app.orders (id pg_catalog.text PRIMARY KEY, total pg_catalog.int4, version pg_catalog.int8)},
	q{CREATE FUNCTION app.handle(event postbox.event) RETURNS void LANGUAGE sql RETURN NULL},
	q{SELECT postbox.create_projection('app.inbox', '{order.created}', 'app.orders', delete_types => '{order.deleted}')},
	q{SELECT postbox.create_handler('app.inbox', '{order.created}', 'app.handle(postbox.event)')},
	q{SELECT postbox.create_subscription('follower', 'app.inbox', 'shop.order.events.follower')},
	q{SELECT postbox.alter_subscription('follower', appliers => 2)},
	q{SELECT postbox.pause_subscription('follower', 'why', '2999-01-01'), postbox.resume_subscription('follower')},
	q{SELECT postbox.puller_endpoint(), postbox.session_is_stopped(0)},
	q{SELECT postbox.inbox_apply('app.inbox', 'event-1', 'order.created', 'order', '1', 1, '{"total": 1}')},
	q{SELECT postbox.inbox_apply('app.inbox', 'event-2', 'order.created', 'order', '1', 2, '{"total": {}}', on_error => 'reject')},
	q{SELECT postbox.inbox_apply('app.inbox', ROW('event-3', 'order.deleted', 'order', '1', 3, '{}', '{}', NULL)::postbox.event)},
	q{SELECT postbox.rebuild_projection('app.orders', dry_run => true), postbox.rebuild_projection('app.orders', 'shop.order.events.rebuild', keys => '{1,2}', absent => 'delete')},
	q{SELECT postbox.inbox_apply('app.orders_rebuild_inbox', 'event-1', 'order.created', 'order', '1', 1, '{"total": 1}')},
	q{SELECT postbox.inbox_apply('app.orders_rebuild_inbox', ROW('event-3', 'order.deleted', 'order', '1', 3, '{}', '{}', NULL)::postbox.event)},
	q{SELECT postbox.inbox_apply('app.orders_rebuild_inbox', 'event-4', 'order.created', 'order', '2', 1, '{"total": 1}')},
	q{SELECT postbox.note_rebuild('app.orders', 'error', 'why'), postbox.note_rebuild('app.orders', 'pubsub_subscription', NULL), postbox.key_text('app.orders', '1'::pg_catalog.text)},
	q{SELECT * FROM postbox.rebuild_status},
	q{SELECT postbox.finish_rebuild('app.orders', lag_time => '0')},
	q{SELECT postbox.rebuild_projection('app.orders')}, q{SELECT postbox.cancel_rebuild('app.orders')},
	q{SELECT postbox.inbox_apply_batch('app.inbox', ARRAY[ROW('event-4', 'order.created', 'order', '2', 1, '{"total": 1}', '{}', NULL)::postbox.event, ROW('event-5', 'order.created', 'order', '2', 2, '{"total": []}', '{}', NULL)::postbox.event], on_error => 'reject')},
	q{SELECT postbox.audit_reader(), postbox.audit_received('app.inbox', '{550e8400-e29b-41d4-a716-446655440000}'), postbox.read_received('app.inbox', '{550e8400-e29b-41d4-a716-446655440000}')},
	q{SELECT postbox.audit_arrivals('app.inbox', 0, '00000000-0000-0000-0000-000000000000', 9000000000000000, 10), postbox.read_arrivals('app.inbox', 0, '00000000-0000-0000-0000-000000000000', 9000000000000000, 10)},
	q{SELECT postbox.find_received('app.inbox', '2', 100, 10), postbox.read_found_received('app.inbox', '2', 100, 10)},
	q{SELECT postbox.record_console_action('pause', 'publication log', 1, 1, 'why', '{"until": null}'), postbox.prune_console_actions('1 year')},
	q{SELECT postbox.may_act_on('app.inbox'), postbox.may_act_for('postgres'), postbox.may_record_action()},
	q{SELECT postbox.audit_rows('app.inbox', ARRAY[ROW('event-4', 'order.created', 'order', '2', 1, '{"total": 1}', '{}', NULL)::postbox.event, ROW('event-3', 'order.deleted', 'order', '1', 3, '{}', '{}', NULL)::postbox.event])},
	q{SELECT postbox.record_audit('follower', 'shop', 'incomplete', pg_catalog.now(), '{"missing": 1}', 'why')}, q{SELECT postbox.doctor_of_audits()},
	q{SELECT postbox.wait_for_version('app.orders', '2', 1), postbox.wait_for_version('app.orders', '1', 3), postbox.wait_for_version('app.orders', '1', 9, '10ms')},
	q{SELECT postbox.record_dead_letter('app.inbox', ROW('event-6', 'order.created', 'order', '1', 1, '{}', '{}', NULL)::postbox.event, '23502', 'no')},
	q{SELECT postbox.redrive_dead_letter(id), postbox.owns_inbox(inbox) FROM postbox.dead_letter},
	q{SELECT postbox.alter_inbox('app.inbox', '1 day', true)},
	q{SELECT postbox.record_dead_letter('app.inbox', ROW('event-7', 'order.created', 'order', '1', 1, '{}', '{}', NULL)::postbox.event, '23502', 'no', on_error => 'park_key')},
	q{SELECT postbox.claim_parked_key('app.inbox', true), postbox.redrive_parked_key('app.inbox', '1'), postbox.inbox_paused_keys()},
	q{SELECT postbox.redrive_dead_letters('app.inbox', 'order', '1', 'order.created', '23502', NULL, '2100-01-01')},
	q{SELECT postbox.discard_dead_letter(id, 'reason', true) FROM postbox.dead_letter},
	q{SELECT postbox.discard_dead_letters('app.inbox', 'order', '1', 'order.created', '23502', 'stale', '2100-01-01', 'reason', true), postbox.event_version()},
	q{SELECT postbox.projection_problem(id) FROM postbox.projection},
	q{SELECT postbox.handler_problem(id) FROM postbox.handler},
	q{SELECT postbox.handler_problem(1)},
	q{SELECT postbox.alter_projection(name, columns => 'null'), postbox.pause_projection(name, 'why', '2999-01-01'), postbox.resume_projection(name) FROM postbox.projection},
	q{SELECT postbox.alter_handler(name, new_name => 'noted') FROM postbox.handler},
	q{SELECT postbox.pause_handler('noted', 'why'), postbox.resume_handler('noted')},
	q{UPDATE postbox.inbox SET generation_since = '2020-01-01', previous_since = '2020-01-01'},
	q{SELECT postbox.rotation_problem('app.inbox')},
	q{SELECT postbox.keep_parked('app.inbox', 1, 0, '{}'), postbox.lock_for_rotation(ARRAY['app.inbox'::pg_catalog.regclass])},
	q{SELECT postbox.purge_inbox('app.inbox')},
	q{SELECT postbox.drop_handler('noted'), postbox.drop_projection('app.orders'), postbox.drop_subscription('follower')},
	q{SELECT postbox.drop_inbox('app.inbox'), postbox.drop_outbox('app.jobs'), postbox.drop_outbox('app.adopted')},
	q{DROP TABLE app.log},
	q{SELECT postbox.create_outbox('app.log'), postbox.create_outbox('app.jobs', 'table'), postbox.create_inbox('app.inbox'), postbox.adopt_outbox('app.adopted')},
	q{DROP EXTENSION postbox CASCADE},
	q{CREATE EXTENSION postbox},
	q{ALTER TABLE app.log_version DROP CONSTRAINT log_version_pkey; ALTER TABLE app.log_version ADD PRIMARY KEY (aggregate_type, aggregate_id); DROP TABLE app.jobs_version, app.inbox_tombstone},
	q{SELECT postbox.register_outbox('app.log'), postbox.adopt_outbox('app.adopted'), postbox.register_outbox('app.jobs'), postbox.register_inbox('app.inbox')});

my $node = new_node('main', settings => { 'postbox.publishers' => 0, 'postbox.project_id' => 'shop-1' });
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE SCHEMA app');
my (undef, undef, $made) = $node->psql('postgres', $traps, on_error_die => 1);
my ($operators) = $made =~ /made (\d+) operators/;
my ($functions) = $made =~ /made (\d+) functions/;
cmp_ok($operators, '>', 600, 'operators lie in wait');
cmp_ok($functions, '>', 1500, 'functions lie in wait');

my $session = Postbox::Session->new($node, 'postgres');
$session->run(1, 'SET search_path = evil, pg_catalog', 'SET client_min_messages = warning');

# What the traps said, and an error.
sub called
{
	my ($sql) = @_;
	my (undef, undef, $said) = $session->run(0, Postbox::Session::statements($sql));
	my %ran = map { $_ => 1 } $said =~ /trap (.*? runs as \w+)/g;
	return (join(', ', sort keys %ran), $said =~ /^.*ERROR: +(.*)/m);
}

is((called($_->[0]))[0], $_->[1], "a trap says what it is: $_->[0]")
  for [ q{SELECT 1 = 1}, 'operator = runs as postgres' ], [ q{SELECT lower('A')}, 'function lower runs as postgres' ],
  [ q{SELECT 'a'::text}, 'type text runs as postgres' ], [ q{SELECT FROM pg_class LIMIT 1}, 'table pg_class runs as postgres' ],
  [ q{SELECT count(*) FROM pg_catalog.pg_am}, 'aggregate runs as postgres' ];

my @missing = grep {
	my $function = $_;
	!grep { /postbox\.$function\(/ } @calls
} split /\n/, $node->safe_psql('postgres', q{SELECT DISTINCT proname FROM pg_proc WHERE pronamespace = 'postbox'::regnamespace AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)});
is("@missing", '', 'every function of the schema is called');

foreach my $call (@calls)
{
	my ($ran, $error) = called($call);
	is($ran, '', $call);
	is($error, undef, "$call: no error") unless $call =~ /'order.created', '\{\}'\)$/ || $call =~ /RESET/;
}

# The test can fail.
$node->safe_psql('postgres', 'ALTER FUNCTION postbox.list_paused_keys() RESET search_path; CREATE SCHEMA IF NOT EXISTS app; SELECT postbox.create_outbox(\'app.last\')');
like((called('SELECT * FROM postbox.paused_keys'))[0], qr/as postgres/, 'a function without its search_path is caught');
$session->quit;
$node->stop;
done_testing();
