# ALTER EXTENSION UPDATE from every release: what was configured and stored stays, the extension is afterwards the same
# as a new installation, and events are emitted, published and applied as before.
#
# The releases are those of sql/upgrade/releases, and one, 0.0.1, that tests/upgrade/earlier-release makes for a rehearsal: its
# tables, functions, rights and event triggers differ from the present ones. The modules are the present ones.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $installation = own_installation();
my @released = sort grep { !/--/ } map { m{/postbox--([^/]*)\.sql$} } glob("$ENV{POSTBOX_BUILD_DIR}/released/postbox--*.sql");
my ($present) = slurp_file("$installation->{scripts}/postbox.control") =~ /^default_version = '(.*)'$/m;
ok(scalar(@released), "there are releases: @released; the present version is $present");
system_or_bail('cp', glob("$ENV{POSTBOX_BUILD_DIR}/released/*"), $installation->{scripts});

# For each release a topic of its own, which its database follows.
sub database { my ($version) = @_; return 'from_' . $version =~ tr/./_/r; }
sub topic { my ($version) = @_; return 'catalog.' . database($version) =~ tr/_/-/r . '.events'; }
my $emulator = start_emulator(map { ('--subscription', topic($_) . '.follower=' . topic($_) . ',ordered') } @released);
my $node = new_node('main', emulator => $emulator, install_path => $installation->{path}, settings => { 'postbox.publishers' => 0, 'postbox.poll_interval' => '50ms' });
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE writer; CREATE ROLE configurator');
$node->safe_psql('postgres', 'CREATE DATABASE fresh');
$node->safe_psql('fresh', 'CREATE EXTENSION postbox');

# The rows of lib/catalog.sql, and how often each is there. The rights that this test grants are taken out, to be asked
# for by name.
sub catalog
{
	my ($database) = @_;
	my %count;
	$count{$_}++ for grep { !/configurator=/ } split /\n/, $node->safe_psql($database, slurp_file("$FindBin::RealBin/lib/catalog.sql"));
	return \%count;
}

# The rows of one catalog that are not as often in another one, a line each.
sub only_in
{
	my ($one, $other) = @_;
	return join("\n", grep { $one->{$_} != ($other->{$_} // 0) } sort keys %$one);
}

# A database as an application of that release may have left it. No worker runs: what workers write is written by hand.
sub fill
{
	my ($version) = @_;
	my $database = database($version);
	my $topic = topic($version);
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql(
		$database, qq{
		CREATE EXTENSION postbox VERSION '$version';
		CREATE SCHEMA app;
		SELECT postbox.create_outbox('app.outbox', 'log');
		SELECT postbox.create_outbox('app.jobs', 'table', NULL);
		CREATE TABLE app.old_events (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb NOT NULL);
		SELECT postbox.adopt_outbox('app.old_events');
		SELECT postbox.create_publication('videos', 'app.outbox', '$topic', '{video}', lanes => 3);
		SELECT postbox.create_publication('broken', 'app.outbox', 'catalog.missing.events', '{other}');
		SELECT postbox.create_publication('jobs', 'app.jobs', '$topic', max_attempts => 7, on_failure => 'park_event');
		ALTER DATABASE $database SET postbox.default_outbox = 'app.outbox';
		GRANT USAGE ON SCHEMA app TO writer;
		GRANT INSERT ON app.outbox, app.jobs TO writer;
		GRANT EXECUTE ON FUNCTION postbox.alter_publication TO configurator;
	});
	# Outboxes: pending and parked events, a publication that failed three times.
	$node->safe_psql(
		$database, q{
		SELECT postbox.outbox_emit('video', 'video-' || n % 5, 'video.created', '{"title": "x"}'::jsonb) FROM generate_series(1, 20) n;
		SELECT postbox.outbox_emit('other', 'other', 'other.created', '{}'::jsonb);
		SELECT postbox.outbox_emit('job', 'job-' || n % 3, 'job.changed', '{}'::jsonb, outbox => 'app.jobs') FROM generate_series(1, 6) n;
		UPDATE app.jobs SET publish_attempts = 7, next_retry_at = 'infinity', last_error = 'INVALID_ARGUMENT' WHERE seq = 1;
		INSERT INTO app.outbox_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, publish_attempts, next_retry_at, last_error)
			SELECT 'videos', 0, gen_random_uuid(), 'video', 'parked', 'video.created', 1, 'v1', '{"title": "p"}', '{}', now(), 5, 'infinity', 'INVALID_ARGUMENT';
		UPDATE postbox.publication_state SET attempts = 3, suspended_since = now(), next_retry_at = now() + interval '1 hour', last_error = 'NOT_FOUND: no such topic' WHERE publication = 'broken';
	});
	# The inbox: a projection, a handler, a subscription, applied events, a tombstone, a dead letter.
	follow($node, $database, "$topic.follower", 'video.created', 'job.changed');
	$node->safe_psql(
		$database, q{
		CREATE TABLE app.video (id text PRIMARY KEY, title text NOT NULL, version bigint);
		SELECT postbox.create_projection('app.inbox', '{video.created}', 'app.video', delete_types => '{video.deleted}');
		SELECT postbox.inbox_apply('app.inbox', 'event-1', 'video.created', 'video', 'applied', 1, '{"title": "y"}');
		SELECT postbox.inbox_apply('app.inbox', 'event-2', 'video.deleted', 'video', 'deleted', 1, '{}');
		SELECT postbox.inbox_apply('app.inbox', 'event-3', 'video.created', 'video', 'rejected', 1, '{"title": null}', on_error => 'reject');
	});
	return;
}

# What pg_dump writes.
sub dumped
{
	my ($database) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . "/$database.sql";
	$node->command_ok([ 'pg_dump', '--schema-only', '-f', $file, '-d', $node->connstr($database) ], "a dump of $database");
	return slurp_file($file);
}

# The rows of the extension's tables and of those of the application, as JSON: `[table, row]`.
my $rows = q{
	CREATE FUNCTION pg_temp.rows() RETURNS TABLE (relation regclass, content jsonb) LANGUAGE plpgsql AS $$
	BEGIN
		FOR relation IN SELECT c.oid FROM pg_class c WHERE c.relkind IN ('r', 'p') AND NOT c.relispartition
			AND c.relnamespace IN ('postbox'::regnamespace, 'app'::regnamespace) AND c.relname <> 'before'
		LOOP
			RETURN QUERY EXECUTE format('SELECT $1, to_jsonb(t) FROM %s t', relation) USING relation;
		END LOOP;
	END
	$$;
};

sub updates
{
	my ($version) = @_;
	my $database = database($version);
	fill($version);
	is($node->safe_psql($database, q{SELECT (SELECT count(*) FROM app.outbox), (SELECT count(*) FROM postbox.lane),
		(SELECT count(*) FROM postbox.paused_keys), (SELECT count(*) FROM postbox.dead_letter), (SELECT count(*) FROM app.inbox_tombstone)}),
		'21|4|2|1|1', 'the database is filled');
	$node->safe_psql($database, "$rows CREATE TABLE app.before AS SELECT * FROM pg_temp.rows()");
	my $session = $node->background_psql($database);
	$session->query_safe('SET client_min_messages = error');    # that nobody publishes
	my $emit = q{SELECT version FROM postbox.outbox_emit('video', 'session', 'video.created', '{"title": "z"}'::jsonb)};
	is($session->query_safe($emit), '1', 'a session emits before the update');

	$node->safe_psql($database, 'ALTER EXTENSION postbox UPDATE');
	my ($fresh, $updated) = (catalog('fresh'), catalog($database));
	cmp_ok(scalar(keys %$fresh), '>', 500, 'the catalog is described');
	is(only_in($fresh, $updated), '', 'nothing of a new installation is missing');
	is(only_in($updated, $fresh), '', 'there is nothing that a new installation does not have');
	is_deeply([ grep { /^\["undescribed"/ } keys %$fresh ], [], 'every member of the extension is described');

	is($node->safe_psql($database, "$rows SELECT * FROM app.before b WHERE NOT EXISTS (SELECT FROM pg_temp.rows() r WHERE r.relation = b.relation AND r.content @> b.content - 'gone')
		AND NOT (b.relation = 'app.outbox_version'::regclass)"), '', 'every row is there as it was');
	is($node->safe_psql($database, q{SELECT has_function_privilege('configurator', p.oid, 'EXECUTE') FROM pg_proc p WHERE proname = 'alter_publication'}), 't', 'rights that were granted stay');
	like(dumped($database), qr/^GRANT ALL ON FUNCTION postbox\.alter_publication\(.* TO configurator;$/m, 'and a dump has them');
	is($node->safe_psql($database, q{SELECT string_agg(publication || ' ' || state || ' ' || pending || ' ' || parked, ', ' ORDER BY publication) FROM postbox.publication_status}),
		'broken unserved 1 0, jobs unserved 6 1, videos unserved 22 1', 'the status is right');
	is($node->safe_psql($database, q{SELECT publication FROM postbox.publication_status WHERE suspended_since <= now() AND retry_at > now()}), 'broken', 'since when it is suspended is known');
	is($session->query_safe($emit), '2', 'the session emits after the update');
	$session->quit;
	return;
}

# Workers and the puller deliver what was pending, and what is emitted now.
sub delivers
{
	my ($version) = @_;
	my $database = database($version);
	my $puller = start_puller($node, $database, $emulator);
	is($node->safe_psql($database, q{SET ROLE writer; SELECT version FROM postbox.outbox_emit('video', 'written', 'video.created', '{"title": "w"}')}), '1', 'a role with nothing but INSERT emits');
	wait_until($node, $database, q{SELECT bool_and(pending = parked) AND sum(parked) = 2 FROM postbox.publication_status WHERE publication <> 'broken'}, 'what was pending is published, parked events stay');
	is($node->safe_psql($database, q{SELECT postbox.redrive('app.jobs'), postbox.redrive('app.outbox')}), '1|1', 'parked events are redriven');
	$node->safe_psql($database, q{SELECT postbox.alter_publication('broken', topic => 'catalog.video.events')});
	wait_until($node, $database, q{SELECT sum(pending) = 0 AND bool_and(state = 'active') FROM postbox.publication_status}, 'and published, and the suspended publication goes on');
	# Of the 20 videos, the two of the session, the writer's, the parked one, and 6 jobs; one more was applied directly.
	wait_until($node, $database, q{SELECT count(*) = 31 FROM app.seen}, 'all of them are applied');
	is($node->safe_psql($database, q{SELECT string_agg(id || ' ' || version, ', ' ORDER BY id) FROM app.video WHERE id IN ('applied', 'session', 'video-0')}), 'applied 1, session 2, video-0 4', 'the projection has followed');
	stop_puller($puller);
	return;
}

subtest "from $_" => sub { updates($_) }
  for @released;

subtest 'an update does not make workers wait behind a transaction that goes on' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE busy');
	$node->safe_psql('busy', q{CREATE EXTENSION postbox VERSION '0.0.1'});
	my $reader = $node->background_psql('busy');
	$reader->query_safe('BEGIN; SELECT count(*) FROM postbox.lane');
	my ($status, undef, $error) = $node->psql('busy', 'ALTER EXTENSION postbox UPDATE');
	isnt($status, 0, 'the update gives up');
	like($error, qr/ERROR:  cannot update extension postbox because another transaction uses postbox\.lane.*HINT:  Try again when that transaction, for example of pg_dump, has ended/s, 'it says what to do');
	$reader->query_safe('COMMIT');
	$reader->quit;
	# What views of Postbox read belongs to all databases.
	my ($other, $updater) = map { $node->background_psql($_) } 'fresh', 'busy';
	$other->query_safe('BEGIN; SELECT count(*) FROM pg_database');
	$updater->query_safe('BEGIN; ALTER EXTENSION postbox UPDATE');
	my $new = $node->background_psql('fresh');
	is($new->query_safe('SELECT 1'), '1', 'a new session of another database does not wait for an update');
	$_->quit for $new, $other;
	$updater->query_safe('ROLLBACK');
	$updater->quit;
	is($node->safe_psql('busy', q{BEGIN; SET LOCAL lock_timeout = '111ms'; ALTER EXTENSION postbox UPDATE; SHOW lock_timeout; COMMIT; SELECT extversion FROM pg_extension WHERE extname = 'postbox'}),
		"111ms\n$present", 'and succeeds when that has ended, with the time-outs of the session');
};

subtest 'an update ends no transaction of an application for a deadlock' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE emitting');
	$node->safe_psql('emitting', q{
		CREATE EXTENSION postbox VERSION '0.0.1'; CREATE SCHEMA app;
		SELECT postbox.create_outbox('app.outbox'); SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events')});
	my $emitter = $node->background_psql('emitting');
	# It has read one table of Postbox, and goes on to another when the update has waited for longer than deadlock_timeout, which is 1 s.
	$emitter->query_safe('BEGIN; SELECT count(*) FROM postbox.lane');
	my $updater = IPC::Run::start([ 'psql', '-XAtd', $node->connstr('emitting'), '-c', 'ALTER EXTENSION postbox UPDATE' ], '<', \undef, '>&', \my $said);
	wait_until($node, 'emitting', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'ALTER EXTENSION%' AND query_start < now() - interval '1.5 s'}, 'the update waits');
	my $answer = $emitter->query(q{SELECT version FROM postbox.outbox_emit('video', 'a', 'video.created', '{}'::jsonb); COMMIT});
	is($answer, '1', 'it emits') or diag($emitter->{stderr});
	$emitter->quit;
	$updater->finish;
	is($updater->result(0), 0, 'and the update succeeds') or diag($said);
};

$node->append_conf('postgresql.conf', 'postbox.publishers = 1');
$node->reload;
subtest "from $_: events are published and applied" => sub { delivers($_) }
  for @released;

subtest 'a worker that meets an extension that is not updated yet says so once, and publishes after the update' => sub {
	my ($version) = @released;
	my $position = log_position($node);
	$node->safe_psql('postgres', 'CREATE DATABASE late');
	$node->safe_psql('late', qq{CREATE EXTENSION postbox VERSION '$version'; CREATE SCHEMA app; SELECT postbox.create_outbox('app.outbox');
		SELECT postbox.create_publication('late', 'app.outbox', '@{[ topic($version) ]}');
		SELECT postbox.outbox_emit('video', 'late', 'video.created', '{}'::jsonb)});
	my $notice = qr/could not read the publications: extension postbox has version \Q$version\E, the installed library has version \Q$present\E/;
	wait_for(sub { log_since($node, $position) =~ $notice }, 'the log says it');
	like(log_since($node, $position), qr/HINT:  Run ALTER EXTENSION postbox UPDATE in this database\./, 'and what to do');
	$node->safe_psql('late', q{SELECT postbox.outbox_emit('video', 'late', 'video.created', '{}'::jsonb)});
	$node->safe_psql('late', 'ALTER EXTENSION postbox UPDATE');
	wait_until($node, 'late', 'SELECT pending = 0 FROM postbox.publication_status', 'events are published after the update');
	my @notices = log_since($node, $position) =~ /$notice/g;
	is(scalar(@notices), 1, 'it was said once');
};

$node->stop;
done_testing();
