# postbox.metrics: what is emitted, published and applied is counted exactly, at commit, and outlasts the workers; a query of it reads no table.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'max_prepared_transactions' => 2 });
$node->start;
create_outbox($node, 'postgres', kind => 'log');

sub sql { my ($text, $database) = @_; return $node->safe_psql($database // 'postgres', $text); }

# The value of the sample that has these labels, or the sum of several; empty if there is none.
sub value
{
	my ($name, $labels, $database) = @_;
	return sql("SELECT sum(value) FROM postbox.metrics WHERE name = '$name' AND labels @> '" . ($labels // '{}') . "'", $database);
}

sub wait_value
{
	my ($name, $labels, $value, $what) = @_;
	return wait_until($node, 'postgres', "SELECT sum(value) = $value FROM postbox.metrics WHERE name = '$name' AND labels @> '$labels'", $what);
}

use constant {
	VIDEOS => '{"publication": "videos"}',
	OUTBOX => '{"outbox": "app.outbox"}',
	INBOX => '{"inbox": "app.inbox"}',
	EMIT => q{SELECT postbox.outbox_emit('video', 'v', 'video.changed', '{}'::jsonb);},
};

subtest 'what is committed is counted as emitted, what is rolled back is not' => sub {
	emit($node, 'postgres', 5);
	is(value('postbox_emitted_events_total', OUTBOX), 5, 'five events of one transaction');
	sql('BEGIN; ' . EMIT . 'ROLLBACK;');
	is(value('postbox_emitted_events_total', OUTBOX), 5, 'a transaction that is rolled back does not count');
	sql('BEGIN;' . EMIT . 'SAVEPOINT a;' . EMIT . EMIT . 'ROLLBACK TO a;' . EMIT . 'RELEASE a;' . 'SAVEPOINT b; SAVEPOINT c;' . EMIT . 'RELEASE c; ROLLBACK TO b; COMMIT;');
	is(value('postbox_emitted_events_total', OUTBOX), 7, 'nor does a savepoint that is');
	sql('DO $$ BEGIN FOR i IN 1..10 LOOP BEGIN PERFORM postbox.outbox_emit(\'video\', \'v\', \'video.changed\', \'{}\'::jsonb);
		IF i % 2 = 0 THEN RAISE division_by_zero; END IF; EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$');
	is(value('postbox_emitted_events_total', OUTBOX), 12, 'blocks with errors count what they keep');
	sql('BEGIN;' . EMIT . q{PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p';});
	is(value('postbox_emitted_events_total', OUTBOX), 12, 'prepared transactions are not counted');
};

subtest 'what Pub/Sub has accepted is counted as published' => sub {
	wait_value('postbox_published_events_total', VIDEOS, 13, 'all events, that of the prepared transaction included');
	is(value('messaging_client_sent_messages_total', VIDEOS), 13, 'each was sent once');
	wait_value('postbox_publish_latency_seconds_count', VIDEOS, 13, 'each has a latency');
	is(value('postbox_publish_errors_total', VIDEOS), '', 'no request has failed');
	is(sql(q{SELECT count(*) FROM postbox.metrics WHERE name = 'rpc_client_call_duration_seconds_count' AND labels ->> 'rpc_response_status_code' <> 'OK'}),
		'0', 'and none is shown that has');
	my $labels = '{"publication": "videos", "messaging_system": "gcp_pubsub", "messaging_operation_name": "publish", "messaging_destination_name": "catalog.video.events"}';
	is(value('messaging_client_sent_messages_total', $labels), 13, 'with the labels of the conventions');
};

subtest 'a request that fails is counted, and its messages are sent again' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE,count=1');
	emit($node, 'postgres', 1);
	wait_value('postbox_published_events_total', VIDEOS, 14, 'the event is published');
	is(value('messaging_client_sent_messages_total', VIDEOS), 15, 'it was sent twice');
	is(value('postbox_publish_errors_total', '{"error_type": "UNAVAILABLE"}'), 1, 'one request has failed');
	is(value('rpc_client_call_duration_seconds_count', '{"rpc_response_status_code": "UNAVAILABLE"}'), 1, 'and has a duration');
	is(value('messaging_client_operation_duration_seconds_count', '{"error_type": "UNAVAILABLE"}'), '', 'the operation has not failed');
};

subtest 'the buckets of a histogram are cumulative' => sub {
	is(sql(q{SELECT count(*), bool_and(grows), max(value) FILTER (WHERE le = '+Inf') FROM (
		SELECT labels ->> 'le' AS le, value, value >= lag(value, 1, 0::float8) OVER (ORDER BY (labels ->> 'le')::float8) AS grows
		FROM (SELECT name, value, jsonb_set(labels, '{le}', to_jsonb(replace(labels ->> 'le', '+Inf', 'Infinity'))) AS labels, labels ->> 'le' AS le
			FROM postbox.metrics WHERE name = 'postbox_publish_latency_seconds_bucket') m(name, value, labels, le)) b}) =~ s/\|[^|]*$//r, '17|t', 'each has those below it');
	is(sql(q{SELECT string_agg(DISTINCT type, ',') FROM postbox.metrics WHERE name LIKE 'postbox_publish_latency_seconds%'}), 'histogram', 'their type is histogram');
};

subtest 'outcomes of applied events are counted at commit' => sub {
	sql(q{SELECT postbox.create_inbox('app.inbox')});
	my $apply = q{SELECT postbox.inbox_apply('app.inbox', '%s', 'video.created', 'video', 'v', 1, '\x7b7d'::bytea);};
	sql(sprintf $apply, 'one') for 1 .. 2;
	sql('BEGIN;' . sprintf($apply, 'two') . 'ROLLBACK;');
	sql(q{SELECT postbox.inbox_apply_batch('app.inbox', ARRAY(SELECT ROW('batch-' || n, 'video.created', 'video', 'v', n, '\x7b7d', '{}', now())::postbox.event FROM generate_series(1, 10) n))});
	is(value('postbox_applied_events_total', '{"inbox": "app.inbox", "outcome": "ignored"}'), 11, 'no projection has taken them');
	is(value('postbox_applied_events_total', '{"inbox": "app.inbox", "outcome": "duplicate"}'), 1, 'one was a duplicate');
	is(value('postbox_applied_events_total', INBOX), 12, 'that is all');
	is(value('postbox_apply_duration_seconds_count', INBOX), 3, 'three calls');
};

subtest 'a worker that is terminated takes no number with it' => sub {
	my $before = sql(q{SELECT string_agg(name || labels::text || value, ',' ORDER BY name, labels::text) FROM postbox.metrics WHERE type <> 'gauge'});
	my $pid = worker_pid($node, 'postgres');
	sql("SELECT pg_terminate_backend($pid)");
	wait_until($node, 'postgres', "SELECT bool_or(pid <> $pid AND state = 'running') FROM postbox.workers", 'another worker runs');
	is(sql(q{SELECT string_agg(name || labels::text || value, ',' ORDER BY name, labels::text) FROM postbox.metrics WHERE type <> 'gauge'}), $before, 'the numbers are the same');
	emit($node, 'postgres', 1);
	wait_value('postbox_published_events_total', VIDEOS, 15, 'it counts on');
};

subtest 'the gauges tell what waits and what is parked' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,ordering-key=bad');
	sql(q{SELECT postbox.alter_publication('videos', max_attempts => 1)});
	sql(q{SELECT postbox.outbox_emit('video', 'bad', 'video.changed', '{}'::jsonb) FROM generate_series(1, 3)});
	emit($node, 'postgres', 7);
	wait_value('postbox_parked_events', VIDEOS, 3, 'the event and what is behind it');
	wait_value('postbox_parked_keys', VIDEOS, 1, 'are of one key');
	wait_value('postbox_max_delivery_attempts', VIDEOS, 1, 'which was tried once');
	wait_value('postbox_pending_events_estimate', VIDEOS, 0, 'nothing is ready');
	wait_value('postbox_oldest_pending_age_seconds', VIDEOS, 0, 'so nothing is old');
	is(value('postbox_publication_state', '{"publication": "videos", "state": "active"}') . value('postbox_publication_state', VIDEOS), '11', 'the publication is active, and nothing else');
	wait_value('postbox_outbox_retention_behind_seconds', OUTBOX, 0, 'the retention is not behind');
	wait_value('postbox_inbox_retention_behind_seconds', INBOX, 0, 'nor is that of the inbox');
	is(join(' ', map { value($_, INBOX) } 'postbox_dead_letters_at_least', 'postbox_inbox_parked_keys_at_least'), '0 0', 'the inbox has no dead letters');
	is(value('postbox_workers_running') . value('postbox_workers_wanted') . value('postbox_workers_short'), '110', 'the worker that is wanted runs');
	is(value('postbox_standby_wait_seconds', VIDEOS), 0, 'nothing waits for a standby');
	cmp_ok(value('postbox_metrics_gauges_age_seconds'), '<', 60, 'they are fresh');
	sql(q{SELECT postbox.pause_publication('videos', 'a test'); SELECT postbox.outbox_emit('video', 'x', 'video.changed', '{}'::jsonb)});
	wait_value('postbox_publication_state', '{"publication": "videos", "state": "paused"}', 1, 'a pause is a state');
	wait_value('postbox_pending_events_estimate', VIDEOS, 1, 'an event waits for its end');
	wait_until($node, 'postgres', q{SELECT value > 0 FROM postbox.metrics WHERE name = 'postbox_oldest_pending_age_seconds'}, 'and has an age');
	sql(q{SELECT postbox.resume_publication('videos')});
	emulator_fault($emulator, '--clear');
};

subtest 'the guide names the metrics that there are' => sub {
	my $root = "$ENV{POSTBOX_BUILD_DIR}/tree";
	my ($half) = slurp_file("$root/docs/guides/metrics.md") =~ /^## The database$(.*?)(?=^## |\z)/ms;
	my %documented = map { $_ => 1 } ($half // '') =~ /^\| `((?:messaging|rpc|postbox)_\w+)` \|/mg;
	my $names = q{SELECT DISTINCT regexp_replace(name, CASE type WHEN 'histogram' THEN '_(bucket|sum|count)$' ELSE '^$' END, '') FROM postbox.};
	my @known = sort split /\n/, sql("${names}list_metric_names()");
	is(join(' ', sort keys %documented), join(' ', @known), 'no more and no fewer');
	my %shown = map { $_ => 1 } split /\n/, sql("${names}metrics");
	is(join(' ', grep { !$shown{$_} } @known), 'postbox_credential_expires_timestamp_seconds postbox_subscription_paused postbox_subscription_pullers', 'all are shown but those of what is not there');
};

subtest 'without a worker no gauge is shown that was measured before' => sub {
	my $measured = q{SELECT count(*) FROM postbox.metrics WHERE name IN ('postbox_pending_events_estimate', 'postbox_publication_state', 'postbox_inbox_parked_keys_at_least')};
	is(sql($measured), 9, 'a worker has measured them');
	sql('ALTER SYSTEM SET postbox.publishers = 0');
	$node->reload;
	wait_workers($node, 'postgres', 0);
	wait_until($node, 'postgres', "SELECT ($measured) = 0", 'they are not shown');
	is(value('postbox_workers_running') . value('postbox_workers_wanted'), '00', 'the number of workers is');
	cmp_ok(value('postbox_metrics_gauges_age_seconds'), '>', 0, 'and the age');
	sql('ALTER SYSTEM RESET postbox.publishers');
	$node->reload;
	wait_until($node, 'postgres', "SELECT ($measured) = 9", 'a worker brings them back');
};

subtest 'an outbox that a prepared transaction takes away is forgotten' => sub {
	sql(q{SELECT postbox.create_outbox('app.gone')});
	wait_value('postbox_emitted_events_total', '{"outbox": "app.gone"}', 0, 'it is there');
	sql(q{BEGIN; DELETE FROM postbox.outbox WHERE relation = 'app.gone'::regclass; PREPARE TRANSACTION 'p'; COMMIT PREPARED 'p'});
	wait_until($node, 'postgres', q{SELECT NOT EXISTS (SELECT FROM postbox.metrics WHERE labels ->> 'outbox' = 'app.gone')}, 'its series ends');
	isnt(value('postbox_emitted_events_total', OUTBOX), '', 'that of the other one does not');
};

subtest 'the gauges of an outbox whose owner is no superuser, and of delayed events' => sub {
	sql(q{CREATE ROLE keeper; CREATE SCHEMA kept AUTHORIZATION keeper; SET ROLE keeper; SELECT postbox.create_outbox('kept.outbox'); RESET ROLE;
		SELECT postbox.create_publication('kept', 'kept.outbox', 'catalog.kept.events')});
	wait_value($_, '{"publication": "kept"}', 0, "$_ is measured") for qw(postbox_parked_keys postbox_max_delivery_attempts);
	wait_value('postbox_outbox_retention_behind_seconds', '{"outbox": "kept.outbox"}', 0, 'and the retention');
	for my $kind (qw(log table))
	{
		sql(qq{SELECT postbox.create_outbox('kept.delayed_$kind', '$kind'); SELECT postbox.create_publication('delayed_$kind', 'kept.delayed_$kind', 'catalog.kept.events');
			SELECT postbox.outbox_emit('video', k, 'video.changed', '{}'::jsonb, outbox => 'kept.delayed_$kind', deliver_at => CASE n WHEN 1 THEN now() + interval '1 hour' END)
			FROM unnest('{a,b}'::text[]) k, generate_series(1, 2) n});
		wait_until($node, 'postgres', "SELECT delayed = 4 FROM postbox.publication_status WHERE publication = 'delayed_$kind'", "four events of a $kind are delayed, or behind one that is");
		my ($keys, $attempts) = split /\|/, sql("SELECT keys, attempts FROM postbox.parked_gauges('delayed_$kind')");
		is("$keys $attempts", '0 0', "their keys are not parked ($kind)");
		sql(qq{UPDATE kept.delayed_$kind} . ($kind eq 'log' ? '_parked' : '') . qq{ SET publish_attempts = 3, next_retry_at = 'infinity' WHERE next_retry_at < 'infinity'});
		is(sql("SELECT keys, attempts FROM postbox.parked_gauges('delayed_$kind')"), '2|3', "those of events that have failed are ($kind)");
		sql(qq{SELECT postbox.drop_publication('delayed_$kind'); SELECT postbox.drop_outbox('kept.delayed_$kind')});
	}
	sql(q{SELECT postbox.drop_publication('kept'); SELECT postbox.drop_outbox('kept.outbox')});
};

subtest 'subscriptions have pullers' => sub {
	sql(q{SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.video.events.test-follower')});
	wait_value('postbox_subscription_pullers', '{"subscription": "follower"}', 0, 'none has reported');
	sql(q{SELECT postbox.drop_subscription('follower')});
	wait_until($node, 'postgres', q{SELECT NOT EXISTS (SELECT FROM postbox.metrics WHERE labels ? 'subscription')}, 'one that is dropped has no metrics');
};

subtest 'a query reads no table' => sub {
	is(sql(q{BEGIN; SELECT count(*) > 50 FROM postbox.metrics;
		SELECT coalesce(sum(seq_scan + coalesce(idx_scan, 0)), 0) FROM pg_stat_xact_all_tables WHERE schemaname NOT IN ('pg_catalog', 'pg_toast'); COMMIT}),
		"t\n0", 'neither of users nor of Postbox');
};

subtest 'a query of one name makes the rows of that name, and no other' => sub {
	# How many rows the functions behind the view have made.
	my $made = sub {
		my $plan = sql("EXPLAIN (ANALYZE, COSTS off, TIMING off) SELECT * FROM postbox.metrics $_[0]");
		my ($rows, $loops) = $plan =~ /Function Scan on list_metrics m \(actual rows=([\d.]+) loops=(\d+)\)/ or BAIL_OUT("no such scan: $plan");
		return "$rows rows, $loops calls";
	};
	is($made->(q{WHERE name = 'postbox_emitted_events_total'}), '1 rows, 1 calls', 'by =');
	is($made->(q{WHERE name IN ('postbox_workers_running', 'postbox_workers_wanted', 'postbox_no_such_name')}), '1 rows, 2 calls', 'by IN');
	is($made->(q{WHERE name LIKE 'postbox\_workers\_%' AND value >= 0}), '1 rows, 3 calls', 'by LIKE');
	is(sql(q{SELECT sum(m.rows) - (SELECT count(*) FROM postbox.metrics) FROM postbox.list_metric_names() n, LATERAL (SELECT count(*) AS rows FROM postbox.metrics WHERE name = n.name) m}),
		'0', 'one name after another gives all rows');
	is(sql(q{SELECT count(*) FROM postbox.list_metrics(NULL)}) . sql(q{SELECT count(*) FROM postbox.list_metrics('postbox_publish_latency_seconds')}), '00', 'what is no name has none');
};

subtest 'roles' => sub {
	sql('CREATE ROLE nobody LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_monitor; CREATE ROLE operator LOGIN IN ROLE postbox_operator');
	for my $role (qw(monitor operator))
	{
		is(sql("SET ROLE $role; SELECT sum(value) FROM postbox.metrics WHERE name = 'postbox_emitted_events_total'") > 0, 1, "$role sees the metrics");
	}
	for my $from (qw(metrics list_metric_names() list_metrics('postbox_info')))
	{
		my (undef, undef, $error) = $node->psql('postgres', "SET ROLE nobody; SELECT * FROM postbox.$from");
		like($error, qr/permission denied for (view metrics|function list_metric)/, "another role may not read $from");
	}
	is(sql(q{PREPARE q AS SELECT sum(value) FROM postbox.metrics WHERE name = $1 AND labels ->> $2 = $3; EXECUTE q('postbox_emitted_events_total', 'outbox', 'app.outbox')}) > 0, 1,
		'parameters may be texts');
};

subtest 'another database has its own metrics' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE other');
	create_outbox($node, 'other', kind => 'table');
	$node->safe_psql('other', EMIT);
	is(value('postbox_emitted_events_total', OUTBOX, 'other'), 1, 'the outbox of the same name has its own number');
	wait_until($node, 'other', q{SELECT sum(value) = 1 FROM postbox.metrics WHERE name = 'postbox_published_events_total'}, 'and so has its publication');
	is(value('postbox_applied_events_total', '{}', 'other'), '', 'there is no inbox');
};

subtest 'what is created again begins at 0' => sub {
	my $topic = 'catalog.video.events';
	sql(qq{BEGIN; SELECT postbox.drop_publication('videos'); SELECT postbox.create_publication('videos', 'app.outbox', '$topic', start => 'now'); COMMIT;});
	emit($node, 'postgres', 2);
	wait_value('postbox_published_events_total', VIDEOS, 2, 'a publication, in one transaction');
	sql(q{SELECT postbox.drop_publication('videos')});
	is(value('postbox_published_events_total', VIDEOS), '', 'one that is dropped is gone at once');
	sql(q{SELECT postbox.drop_outbox('app.outbox'); SELECT postbox.create_outbox('app.outbox')});
	is(value('postbox_emitted_events_total', OUTBOX) || 0, 0, 'an outbox, too');
	sql(q{BEGIN; SELECT postbox.drop_inbox('app.inbox'); ROLLBACK});
	is(value('postbox_applied_events_total', INBOX), 12, 'a drop that is rolled back changes nothing');
	emit($node, 'postgres', 4);
	is(value('postbox_emitted_events_total', OUTBOX), 4, 'the new outbox begins at 0');
};

subtest 'a full registry is counted, and shown by doctor' => sub {
	is(value('postbox_metrics_not_counted_total'), 0, 'it was not full');
	sql(q{SELECT count(postbox.create_subscription('s' || n, 'app.inbox', 'catalog.video.events.test-s' || n)) FROM generate_series(1, 512) n});
	wait_until($node, 'postgres', q{SELECT value > 0 FROM postbox.metrics WHERE name = 'postbox_metrics_not_counted_total'}, 'one subscription finds no room');
	is(sql(q{SELECT count(*) FROM postbox.metrics WHERE name = 'postbox_subscription_pullers'}), '511', 'the others have theirs; the place of one that was dropped is not free yet');
	is(sql(q{SELECT status FROM postbox.doctor() WHERE "check" = 'metrics'}), 'warning', 'doctor says so');
	is(value('postbox_emitted_events_total', OUTBOX), 4, 'other kinds have their own room');
};

subtest 'DROP EXTENSION and DROP DATABASE leave nothing' => sub {
	$node->safe_psql('other', 'DROP EXTENSION postbox CASCADE; DROP SCHEMA app CASCADE');
	wait_workers($node, 'other', 0);
	create_outbox($node, 'other', kind => 'table');
	# A worker may have measured the new one already.
	is(value('postbox_emitted_events_total', OUTBOX, 'other') || 0, 0, 'nothing of before is there');
	$node->safe_psql('postgres', 'DROP DATABASE other');

	# Without a worker, too. The table of the outbox stays, and with it the OID by which it is known.
	$node->safe_psql('postgres', 'CREATE DATABASE quiet');
	$node->safe_psql('postgres', 'ALTER DATABASE quiet SET postbox.publishers = 0');
	create_outbox($node, 'quiet', kind => 'log');
	$node->safe_psql('quiet', EMIT) for 1 .. 3;
	$node->safe_psql('quiet', 'BEGIN; SAVEPOINT a; DROP EXTENSION postbox CASCADE; ROLLBACK TO a; COMMIT');
	is(value('postbox_emitted_events_total', OUTBOX, 'quiet'), 3, 'a drop that is rolled back changes nothing');
	$node->safe_psql('quiet', q{DROP EXTENSION postbox CASCADE; CREATE EXTENSION postbox; SELECT postbox.register_outbox('app.outbox')});
	is(value('postbox_emitted_events_total', OUTBOX, 'quiet'), '', 'without a worker nothing is left either');
	$node->safe_psql('quiet', EMIT);
	is(value('postbox_emitted_events_total', OUTBOX, 'quiet'), 1, 'the outbox that is registered again begins at 0');
	$node->safe_psql('postgres', 'DROP DATABASE quiet');
};

done_testing();
