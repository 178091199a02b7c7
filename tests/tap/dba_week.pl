# What a DBA does in a week, in random order, while services emit: tables are rewritten, clustered, reindexed, moved and truncated,
# defaults are set that help nobody, workers and pullers are ended, the server restarts, dumps are restored, events are refused, given up and tried again.
# After each step events of every outbox go on to the projection. In the end the projection has what the source has, no event is
# lost, each key came in order, nothing is parked, and every publication is active.
#
# POSTBOX_WEEK_SEED is the seed of the order, which is printed; POSTBOX_WEEK_STEPS has the names of steps, if not all are
# wanted. Each is done once and three of them again, or, under more load, each as often as POSTBOX_WEEK_ROUNDS says and half of them again.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use List::Util qw(shuffle);
use PostgreSQL::Test::Utils;
use Postbox::Load;
use Postbox::Puller;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

my $seed = $ENV{POSTBOX_WEEK_SEED} // int(rand(1_000_000));
srand($seed);
note("POSTBOX_WEEK_SEED=$seed");

use constant TOPIC => 'catalog.video.events';
my @outboxes = qw(log tab own);

my $emulator = start_emulator('--subscription', TOPIC . '.reader=' . TOPIC . ',ordered');
my $node = new_node('main', emulator => $emulator, allows_streaming => 1, settings => {
	'postbox.publishers' => 2, 'postbox.poll_interval' => '200ms', 'postbox.maintenance_interval' => '1s', 'max_worker_processes' => 30,
	'max_connections' => 80, 'max_prepared_transactions' => 20, 'allow_in_place_tablespaces' => 'on' });
$node->start;

# Statements, one after the other in one session, as a role of the cluster, with time-outs of its own. What is in the way of a lock for
# long is tried again, from the statement on that met it.
sub does
{
	my ($database, $statements, $role) = @_;
	my @left = ref $statements ? @$statements : ($statements);
	my ($answer, $stderr) = ('');
	for my $try (1 .. 10)
	{
		my $stdout;
		my $code = $node->psql($database, join("\n", "SET statement_timeout = 0; SET lock_timeout = '10s';", map { ($_ =~ /\\gexec$/ ? $_ : "$_;", '\echo -- done') } @left),
			stdout => \$stdout, stderr => \$stderr, extra_params => [ '-U', $role // 'postgres' ], on_error_stop => 1);
		my @lines = lines_of($stdout);
		$answer = join("\n", ($answer eq '' ? () : $answer), grep { $_ ne '-- done' } @lines);
		return $answer if $code == 0;
		splice(@left, 0, scalar grep { $_ eq '-- done' } @lines);
		last unless $stderr =~ /deadlock detected|lock timeout|could not obtain lock/;
	}
	fail("$left[0]: $stderr");
	return '';
}
sub by_owner { my ($statements) = @_; return does('week', $statements, 'app_owner'); }
sub lines_of { return split /\n/, $_[0]; }
# The tables that outboxes and an inbox are made of, as the catalogs have them.
my %tables = (
	week => q{SELECT DISTINCT t.relid::regclass AS called FROM postbox.outbox o
		CROSS JOIN LATERAL (SELECT relid FROM pg_partition_tree(o.relation) WHERE isleaf UNION ALL SELECT o.relation UNION ALL SELECT unnest(ARRAY[o.counter, o.parked])) t
		JOIN pg_class c ON c.oid = t.relid WHERE c.relkind = 'r'},
	reader => q{SELECT c.oid::regclass AS called FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace = 'app'::regnamespace});
# Statements for each table of a database; %s is its name.
sub of_each
{
	my ($database, @statements) = @_;
	return 'SELECT ' . join(', ', map { "replace('$_', '%s', called::text)" } @statements) . " FROM ($tables{$database}) AS t ORDER BY called \\gexec";
}
sub one_of { return $_[ rand(@_) ]; }

$node->safe_psql('postgres', q{
	CREATE ROLE app_owner LOGIN; CREATE ROLE app_writer LOGIN; CREATE ROLE app_reader LOGIN;
	CREATE DATABASE week; CREATE DATABASE reader;
	CREATE TABLESPACE other LOCATION ''; GRANT CREATE ON TABLESPACE other TO app_owner});
$node->safe_psql('week', q{
	CREATE EXTENSION postbox;
	GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.alter_publication TO app_owner;
	CREATE SCHEMA app AUTHORIZATION app_owner});
# The truth is app.thing: each change of it emits an event with the version and the value. An outbox is found by its identity.
by_owner(q{
	GRANT USAGE ON SCHEMA app TO app_writer;
	SELECT postbox.create_outbox('app.log', 'log', '6 seconds');
	SELECT postbox.create_outbox('app.tab', 'table', '1 second');
	SELECT postbox.create_outbox('app.small');
	CREATE TABLE app.own (id uuid PRIMARY KEY DEFAULT gen_random_uuid(), aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, version bigint NOT NULL, payload jsonb);
	SELECT postbox.adopt_outbox('app.own');
	CREATE TABLE app.place (name text PRIMARY KEY, outbox regclass);
	INSERT INTO app.place VALUES ('log', 'app.log'), ('tab', 'app.tab'), ('own', 'app.own'), ('small', 'app.small');
	SELECT postbox.create_publication(name, outbox, 'catalog.video.events', lanes => CASE name WHEN 'log' THEN 3 ELSE 1 END, max_attempts => 2, base_backoff => '100ms', max_backoff => '1s') FROM app.place;
	CREATE TABLE app.thing (id text PRIMARY KEY, value bigint NOT NULL DEFAULT 0);
	CREATE TABLE app.discarded (id text NOT NULL);
	INSERT INTO app.thing SELECT name || '-' || n FROM app.place, generate_series(1, 15) n;
	GRANT INSERT ON app.log, app.tab, app.own, app.small TO app_writer;
	GRANT SELECT, UPDATE ON app.thing TO app_writer;
	GRANT SELECT ON app.place TO app_writer});
# A generation of the log is written to for ten seconds, not for a minute, so that it is emptied often.
$node->safe_psql('week', q{
	UPDATE postbox.outbox SET generation_span = '10 seconds' WHERE relation = 'app.log'::regclass;
	SELECT format('ALTER TABLE app.log ALTER generation SET DEFAULT (%s)', postbox.generation_expression('10 seconds')) \gexec
});
# Adopted tables are written by the application itself.
by_owner(q{
	CREATE FUNCTION app.change(thing text) RETURNS void LANGUAGE plpgsql AS $$
	DECLARE
		place app.place;
		changed bigint;
	BEGIN
		SELECT p.* INTO place FROM app.place p WHERE p.name = split_part(thing, '-', 1);
		UPDATE app.thing t SET value = value + 1 WHERE t.id = thing RETURNING t.value INTO changed;
		IF place.name = 'own' THEN
			EXECUTE format('INSERT INTO %s (aggregate_type, aggregate_id, event_type, version, payload) VALUES ($1, $2, $3, $4, $5)', place.outbox)
				USING 'thing', thing, 'thing.changed', changed, jsonb_build_object('value', changed);
		ELSE
			PERFORM postbox.outbox_emit('thing', thing, 'thing.changed', jsonb_build_object('value', changed), outbox => place.outbox);
		END IF;
	END
	$$});
$node->safe_psql('reader', q{
	CREATE EXTENSION postbox;
	GRANT EXECUTE ON FUNCTION postbox.create_subscription TO app_owner;
	CREATE SCHEMA app AUTHORIZATION app_owner});
does('reader', q{
	CREATE TABLE app.thing (id text PRIMARY KEY, value bigint, version bigint);
	CREATE TABLE app.seen (n bigserial PRIMARY KEY, id text, version bigint);
	CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql AS 'INSERT INTO app.seen (id, version) VALUES (event.aggregate_id, event.version)';
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_subscription('things', 'app.inbox', 'catalog.video.events.reader');
	SELECT postbox.create_projection('app.inbox', '{thing.changed}', 'app.thing', key => '{id}');
	SELECT postbox.create_handler('app.inbox', '{thing.changed}', 'app.note(postbox.event)');
	GRANT USAGE ON SCHEMA app TO app_reader;
	GRANT INSERT ON app.inbox TO app_reader}, 'app_owner');

# The load: every way to commit and not to commit.
my $change = q{SELECT app.change((ARRAY['log', 'tab', 'own'])[:outbox] || '-' || :key);};
my %writers = (
	one => $change,
	several => "BEGIN; " . $change x 20 . " COMMIT;",
	undone => "BEGIN; $change\n\\sleep 5 ms\nROLLBACK;",
	savepoint => "BEGIN; $change SAVEPOINT s; $change ROLLBACK TO s; COMMIT;",
	long => "BEGIN; $change\n\\sleep 100 ms\nCOMMIT;",
	prepared => "\\set gid random(1, 1000000000)\nBEGIN; $change PREPARE TRANSACTION 'p:gid';\nCOMMIT PREPARED 'p:gid';");
$_ = "\\set outbox random(1, 3)\n\\set key random(2, 15)\n$_\n" for values %writers;
sub begin_load { return start_load($node, 'week', \%writers, user => 'app_writer', $ENV{POSTBOX_WEEK_ROUNDS} ? (clients => 8, rate => 250) : (clients => 4, rate => 30), seconds => 6); }
my $load = begin_load();
# At once: the load does not wait for its sessions to have had their time.
sub end_load
{
	append_to_file($load->{stop}, '');
	end_writers();
	stop_load($load);
	end_prepared($node, 'week');
	return;
}
sub end_writers { return does('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app_writer'}); }
my $puller = start_puller($node, 'reader', $emulator, dsn => $node->connstr('reader') . ' user=app_reader');

# One event of each outbox goes all the way.
sub goes_on
{
	my ($what) = @_;
	my @marks = map { "$_-1" } @outboxes, 'small';
	my %value = map { split /\|/ } grep { $_ ne '' } lines_of(does('week', [ (map { "SELECT app.change('$_')" } @marks), q{SELECT id, value FROM app.thing WHERE id LIKE '%-1'} ], 'app_writer'));
	my $reached = join(' AND ', map { "(id = '$_') <= (value >= $value{$_})" } @marks);
	wait_until($node, 'reader', "SELECT count(*) = 4 AND bool_and($reached) FROM app.thing WHERE id LIKE '%-1'", "$what: events of every outbox go on")
	  or diag(does('week', 'SELECT * FROM postbox.publication_status; SELECT * FROM postbox.outbox_status; SELECT * FROM postbox.workers'), substr($puller->{output}, -3000));
	return;
}

sub again_up
{
	wait_until($node, 'week', 'SELECT true', 'the server is up again');
	end_prepared($node, 'week');
	return;
}

my $dump = PostgreSQL::Test::Utils::tempdir() . '/week.dump';
my $poisons = 0;
my %steps = (
	vacuum_full => sub { does($_, of_each($_, 'VACUUM FULL %s')) for qw(week reader); },
	vacuum_of_postbox => sub { does($_, [ (map { "VACUUM FULL postbox.$_" } qw(lane publication outbox inbox)), 'VACUUM (FREEZE, ANALYZE)' ]) for qw(week reader); },
	cluster => sub {
		does('week', "SELECT DISTINCT ON (i.indrelid) format('CLUSTER %s USING %I', i.indrelid::regclass, c.relname) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
			. " WHERE i.indrelid IN ($tables{week}) AND i.indpred IS NULL AND i.indexprs IS NULL \\gexec");
	},
	reindex => sub { does('week', 'REINDEX DATABASE week'); does('reader', [ 'REINDEX SCHEMA postbox', 'REINDEX SCHEMA app' ]); },
	reindex_concurrently => sub { does($_, of_each($_, 'REINDEX TABLE CONCURRENTLY %s')) for qw(week reader); },
	analyze => sub { does($_, 'ANALYZE') for qw(week reader); },
	fillfactor => sub { my $fill = one_of(50, 80, 100); by_owner(of_each('week', "ALTER TABLE %s SET (fillfactor = $fill, autovacuum_vacuum_scale_factor = 0.5)")); },
	tablespace => sub {
		by_owner([ map { of_each('week', "ALTER TABLE %s SET TABLESPACE $_") } qw(other pg_default) ]);
		does('reader', of_each('reader', 'ALTER TABLE %s SET TABLESPACE other'));
	},
	column => sub {
		by_owner([ map { ("ALTER TABLE app.$_ ADD COLUMN note text DEFAULT 'none'", "COMMENT ON TABLE app.$_ IS 'events'") } shuffle(@outboxes) ]);
		goes_on('with a column more');
		by_owner([ map { "ALTER TABLE app.$_ DROP COLUMN note" } @outboxes ]);
	},
	properties => sub {
		by_owner([ of_each('week', 'ALTER TABLE %s REPLICA IDENTITY FULL', 'ALTER TABLE %s SET (autovacuum_enabled = false)'),
			(map { "ALTER TABLE app.$_ ALTER payload SET STORAGE EXTERNAL, ALTER payload SET STATISTICS 500" } @outboxes),
			'CREATE STATISTICS app.of_tab ON aggregate_type, event_type FROM app.tab', 'ALTER TABLE app.tab ADD CONSTRAINT known CHECK (event_type <> $$$$) NOT VALID',
			'ALTER TABLE app.tab VALIDATE CONSTRAINT known', 'ANALYZE app.log, app.tab, app.own' ]);
		goes_on('with other properties');
		by_owner([ 'DROP STATISTICS app.of_tab', 'ALTER TABLE app.tab DROP CONSTRAINT known',
			of_each('week', 'ALTER TABLE %s REPLICA IDENTITY DEFAULT', 'ALTER TABLE %s RESET (autovacuum_enabled)') ]);
	},
	# A tool that locks one table after the other, for longer than workers wait.
	locks => sub { does('week', [ map { "BEGIN; LOCK TABLE app.$_ IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(1.2); COMMIT" } shuffle(@outboxes) ]); },
	audit => sub {
		by_owner([ 'CREATE TABLE app.audit (at timestamptz DEFAULT now(), id uuid)',
			'CREATE FUNCTION app.audit() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN INSERT INTO app.audit (id) VALUES (NEW.id); RETURN NULL; END $$',
			(map { "CREATE TRIGGER audit AFTER INSERT ON app.$_ FOR EACH ROW EXECUTE FUNCTION app.audit()" } @outboxes) ]);
		goes_on('with a trigger of the owner');
		by_owner([ 'SELECT 1 / count(*) FROM app.audit', (map { "DROP TRIGGER audit ON app.$_" } @outboxes), 'DROP FUNCTION app.audit', 'DROP TABLE app.audit' ]);
	},
	rights => sub {
		by_owner('REVOKE INSERT ON app.log, app.tab, app.own FROM app_writer; ALTER DEFAULT PRIVILEGES IN SCHEMA app REVOKE ALL ON TABLES FROM app_writer');
		by_owner('GRANT INSERT ON app.log, app.tab, app.own TO app_writer');
	},
	index => sub {
		by_owner([ 'CREATE INDEX CONCURRENTLY by_time_of_tab ON app.tab (occurred_at)', 'CREATE INDEX CONCURRENTLY by_type_of_own ON app.own (event_type, aggregate_id)',
			'CREATE INDEX by_time_of_log ON app.log (occurred_at)', 'DROP INDEX CONCURRENTLY app.by_time_of_tab', 'DROP INDEX app.by_type_of_own', 'DROP INDEX app.by_time_of_log' ]);
	},
	defaults => sub {
		my @settings = (q{default_transaction_isolation = 'serializable'}, q{statement_timeout = '3s'}, q{lock_timeout = '1s'}, 'synchronous_commit = off', q{search_path = ''},
			'row_security = off', q{TimeZone = 'Pacific/Kiritimati'}, q{DateStyle = 'German, DMY'}, 'bytea_output = escape', 'enable_seqscan = off', 'enable_indexscan = off', q{work_mem = '64kB'},
			'default_transaction_deferrable = on', 'plan_cache_mode = force_custom_plan');
		my $end_sessions = q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'postbox publisher' OR usename = 'app_reader'};
		my @roles = ('app_owner', 'app_reader', 'postgres IN DATABASE week');
		does('postgres', [ (map { my $database = $_; map { "ALTER DATABASE $database SET $_" } @settings, 'jit = on', 'jit_above_cost = 0' } qw(week reader)),
			"ALTER ROLE app_owner SET statement_timeout = '1ms'", map { "ALTER ROLE $_ SET default_transaction_read_only = on" } @roles[ 1, 2 ] ]);
		# Compiling takes longer than all else, so only the events of these sessions go this way.
		end_load();
		does('postgres', $end_sessions);
		goes_on('with hostile defaults, and each statement compiled');
		does('postgres', [ (map { "ALTER DATABASE $_ RESET jit" } qw(week reader)), $end_sessions ]);
		$load = begin_load();
		goes_on('with hostile defaults');
		does('postgres', [ (map { "ALTER DATABASE $_ RESET ALL" } qw(week reader)), map { "ALTER ROLE $_ RESET ALL" } @roles ]);
	},
	workers => sub { does('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'postbox publisher'}); },
	launcher => sub { does('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE backend_type = 'postbox launcher'}); },
	pullers_sessions => sub { does('postgres', q{SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = 'app_reader'}); },
	writers_sessions => sub { end_writers(); end_prepared($node, 'week'); },
	another_puller => sub { stop_puller($puller); $puller = start_puller($node, 'reader', $emulator, dsn => $node->connstr('reader') . ' user=app_reader'); },
	restart_fast => sub { $node->stop('fast'); $node->start; again_up(); },
	restart_immediate => sub { $node->stop('immediate'); $node->start; again_up(); },
	# Only this session emits into it, so it is empty of what has to be published when it is truncated.
	truncate => sub {
		for my $round (1 .. 2)
		{
			does('week', "SELECT app.change('small-' || 1 + n % 15) FROM generate_series(1, 20) n", 'app_writer');
			wait_until($node, 'week', q{SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'small'}, 'what is to be truncated is published') or return;
			by_owner('TRUNCATE app.small RESTART IDENTITY');
		}
	},
	dump => sub {
		command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('week'), '-f', $dump ], 'pg_dump under load');
		does('postgres', 'CREATE DATABASE beside');
		command_ok([ 'pg_restore', '-e', '-j', '2', '-d', $node->connstr('beside'), $dump ], 'pg_restore beside it');
		wait_until($node, 'beside', q{SELECT count(*) = 4 AND bool_and(state = 'unserved') FROM postbox.publication_status}, 'the copy does not publish');
		does('postgres', 'DROP DATABASE beside WITH (FORCE)');
		unlink $dump;
	},
	prepared => sub {
		my $which = one_of(@outboxes);
		does('week', "BEGIN; SELECT app.change('$which-1'); PREPARE TRANSACTION 'held'", 'app_writer');
		$node->stop(one_of('fast', 'immediate'));
		$node->start;
		does('week', q{COMMIT PREPARED 'held'});
		again_up();
	},
	another_database => sub {
		does('postgres', 'CREATE DATABASE spare');
		does('spare', [ 'CREATE EXTENSION postbox', 'CREATE SCHEMA app', "SELECT postbox.create_outbox('app.outbox')", "SELECT postbox.create_publication('spare', 'app.outbox', 'catalog.video.events')" ]);
		does('spare', [ 'SET client_min_messages = warning', 'DROP EXTENSION postbox CASCADE', 'DROP SCHEMA app CASCADE' ]);
		does('postgres', 'DROP DATABASE spare WITH (FORCE)');
	},
	topic => sub {
		my $name = one_of(@outboxes);
		by_owner("SELECT postbox.alter_publication('$name', topic => 'catalog.gone.events')");
		does('week', "SELECT app.change('$name-1')", 'app_writer');
		wait_until($node, 'week', "SELECT state = 'suspended' AND last_error ~ 'NOT_FOUND' FROM postbox.publication_status WHERE publication = '$name'", "$name is suspended while its topic is missing");
		by_owner("SELECT postbox.alter_publication('$name', topic => '@{[TOPIC]}')");
	},
	refused => sub {
		++$poisons;
		my @keys = map { "$_-poison$poisons" } @outboxes;
		emulator_fault($emulator, map { "rpc=Publish,ordering-key=$_,code=INVALID_ARGUMENT" } @keys);
		by_owner([ map { "INSERT INTO app.thing (id) VALUES ('$_')" } @keys ]);
		does('week', [ map { ("SELECT app.change('$_')") x 3 } @keys ], 'app_writer');
		my $failed = "SELECT count(*) = 3 FROM postbox.paused_keys WHERE aggregate_id LIKE '%poison%' AND next_retry_at = 'infinity'";
		wait_until($node, 'week', $failed, 'what is refused is parked') or return;
		by_owner(q{INSERT INTO app.discarded SELECT aggregate_id FROM postbox.paused_keys WHERE postbox.discard(relation, first_event_id::uuid)});
		wait_until($node, 'week', $failed, 'so is what follows, when the first is discarded') or return;
		emulator_fault($emulator, '--clear');
		by_owner('SELECT postbox.redrive(relation, first_event_id::uuid) FROM postbox.paused_keys');
		wait_until($node, 'week', 'SELECT count(*) = 0 FROM postbox.paused_keys', 'what is tried again goes out');
	},
	retention => sub {
		by_owner("SELECT postbox.purge_outbox('app.log'), postbox.purge_outbox('app.tab')");
		does('reader', "SELECT postbox.purge_inbox('app.inbox')", 'app_owner');
		wait_until($node, 'week', q{SELECT count(*) < 2000 FROM app.log}, 'the log is emptied behind its readers');
	},
	settings => sub {
		my %values = ('postbox.publishers' => [ 1, 2, 3, 4 ], 'postbox.read_chunk_size' => [ 10, 1000 ], 'postbox.poll_interval' => [ '50ms', '1s' ], 'postbox.checkpoint_interval' => [ '10ms', '1s' ],
			'postbox.max_outstanding_messages' => [ 10, 1000 ], 'synchronous_commit' => [ 'off', 'on' ], 'work_mem' => [ '64kB', '16MB' ]);
		does('postgres', [ (map { "ALTER SYSTEM SET $_ = '" . one_of(@{ $values{$_} }) . q{'} } sort keys %values), 'SELECT pg_reload_conf()' ]);
	},
	backup => sub {
		does('postgres', q{SELECT pg_create_physical_replication_slot('week', true)});
		$node->backup('week' . time);
		does('postgres', [ q{SELECT pg_drop_replication_slot('week')}, 'CHECKPOINT', 'SELECT pg_switch_wal()' ]);
	});
# New names, schemas and owners come last: the other steps use the old ones.
my %last = (
	names => sub {
		my $old = does('week', q{SELECT coalesce(max(seq), 0) FROM app.log WHERE occurred_at < now() - interval '15 s'});
		does('week', 'CREATE ROLE app_heir; CREATE SCHEMA moved; GRANT ALL ON SCHEMA moved, app TO app_owner, app_heir; GRANT USAGE ON SCHEMA moved TO app_writer');
		for my $name (shuffle(@outboxes))
		{
			my @changes = shuffle("ALTER TABLE %s RENAME TO \"New $name\"", 'ALTER TABLE %s SET SCHEMA moved', 'ALTER TABLE %s OWNER TO app_heir');
			for my $change (@changes)
			{
				does('week', "SELECT format('$change', outbox) FROM app.place WHERE name = '$name' \\gexec");
				goes_on($change);
			}
		}
		$steps{$_}->() for qw(vacuum_full cluster reindex_concurrently workers restart_immediate);
		my $log = does('week', q{SELECT outbox FROM app.place WHERE name = 'log'});
		wait_until($node, 'week', "SELECT count(*) < 2000 AND coalesce(min(seq), 1) > $old FROM $log", 'the log is still emptied behind its readers');
	});
# It needs that what belongs to an outbox follows its name and owner.
my $names_follow = does('week', q{SELECT count(*) > 0 FROM pg_proc WHERE proname = 'repair_outbox' AND pronamespace = 'postbox'::regnamespace}) eq 't';
my @order = $ENV{POSTBOX_WEEK_STEPS} ? split(/[ ,]+/, $ENV{POSTBOX_WEEK_STEPS})
  : ((map { shuffle(sort keys %steps) } 1 .. $ENV{POSTBOX_WEEK_ROUNDS} // 1), (shuffle(sort keys %steps))[ 0 .. ($ENV{POSTBOX_WEEK_ROUNDS} ? keys(%steps) / 2 : 2) ], $names_follow ? 'names' : ());
note("steps: @order");

goes_on('at the beginning');
for my $step (@order)
{
	my $begin = time;
	($steps{$step} // $last{$step})->();
	goes_on($step);
	note(sprintf('%s: %.1f s', $step, time - $begin));
}

# Steps may be short, and a server that is down takes no events: the load goes on until there were many.
wait_until($node, 'reader', "SELECT count(*) > 50 * @{[scalar @order]} FROM app.seen", 'the services have emitted fifty events a step') or diag(substr(slurp_file($load->{output}), -3000));
end_load();
wait_until($node, 'week', q{SELECT count(*) = 4 AND bool_and(pending = 0 AND parked = 0 AND state = 'active' AND last_error IS NULL) FROM postbox.publication_status}, 'every publication is active, and nothing is pending or parked')
  or diag(does('week', 'SELECT * FROM postbox.publication_status'));
my $truth = does('week', 'SELECT id, value, value FROM app.thing WHERE value > 0 ORDER BY id COLLATE "C"');
wait_for(sub { does('reader', 'SELECT id, value, version FROM app.thing ORDER BY id COLLATE "C"') eq $truth }, 'the projection has what the source has')
  or diag("source:\n$truth\nprojection:\n" . does('reader', 'SELECT id, value, version FROM app.thing ORDER BY id COLLATE "C"'), substr($puller->{output}, -3000));
is( does('reader', 'SELECT id, count(*) FROM app.seen GROUP BY id ORDER BY id COLLATE "C"'),
	does('week', 'SELECT id, value - (SELECT count(*) FROM app.discarded d WHERE d.id = t.id) FROM app.thing t WHERE value > 0 ORDER BY id COLLATE "C"'),
	'every event has come once, but those that were discarded');
is(does('reader', 'SELECT count(*) FROM (SELECT version <= lag(version) OVER (PARTITION BY id ORDER BY n) AS wrong FROM app.seen) s WHERE wrong'), '0', 'each key came in order');
is(does('reader', q{SELECT sum(out_of_order) FROM postbox.subscription_status}), '0', 'the puller says so, too');
is(does('reader', 'SELECT count(*) FROM postbox.dead_letter'), '0', 'there are no dead letters');
# Retention goes by stored positions, which may be a moment old.
wait_until($node, 'week', 'SELECT count(*) = 0 FROM postbox.outbox_status WHERE problem IS NOT NULL', 'no outbox has a problem') or diag(does('week', 'SELECT * FROM postbox.outbox_status; SELECT * FROM postbox.lane; SELECT tableoid::regclass, count(*), min(occurred_at), max(seq) FROM app.log GROUP BY 1'));
my @bad = grep { /PANIC|terminated by signal|TRAP:|invalid memory alloc|could not open relation/ } lines_of(log_since($node, 0));
is("@bad", '', 'no process has crashed');
note(does('reader', 'SELECT count(*) FROM app.seen') . ' events');
stop_puller($puller);
$node->stop;
done_testing();
