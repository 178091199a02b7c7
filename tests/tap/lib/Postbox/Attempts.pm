# What the table of attempts needs: a server with two owners, alice and mallory. What mallory owns calls her code,
# evil.hook(), in whatever place an attempt puts it. The code tries all that it must not be able to do. An attempt runs the
# hook where Postbox calls it and then looks at what has become of the server, of alice's events and of the rights.
#
# The code tells the server's log as whom it runs, since that stays when its transaction is rolled back. What mallory's own
# sessions log does not count: their application_name is mallory.
package Postbox::Attempts;

use strict;
use warnings;

use Exporter 'import';
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

our @EXPORT = qw($node $emulator $row start_world stop_world as_mallory as_victim as_superuser column attempt publish_table publish_log park_log wait_empty
	wait_ran others_flow set_goal apply_event);

our ($node, $emulator);
our $row = 0;          # of the log, where the present attempt begins
my $alice = 0;         # events that alice has emitted
my $applied = 0;       # events given to mallory's inbox
my $settings;          # what the worker's own statements see
my $steady;            # a session of a superuser's, for what is asked in every attempt
my $hers;              # mallory's, which a test may end

# POSTBOX_ATTEMPT=REGEX runs the attempts whose hook has this in its name.

# Statements that must fail wherever Postbox calls the code. Each of them would be a way to other rights, or would leave
# something behind in the session.
my @escapes = (
	'RESET ROLE', 'SET ROLE NONE', 'SET ROLE alice', 'SET SESSION AUTHORIZATION DEFAULT', 'SET SESSION AUTHORIZATION alice',
	q{SELECT set_config('role', 'none', false)}, q{SELECT set_config('session_authorization', 'default', true)},
	'CREATE ROLE made', 'ALTER ROLE mallory SUPERUSER', 'ALTER ROLE mallory CREATEROLE', 'GRANT alice TO mallory', 'GRANT pg_read_server_files TO mallory',
	'CREATE TABLE pg_catalog.made (a int)', 'CREATE FUNCTION pg_catalog.made() RETURNS int LANGUAGE sql RETURN 1',
	'CREATE TABLE postbox.made (a int)', 'CREATE FUNCTION postbox.made() RETURNS int LANGUAGE sql RETURN 1', 'CREATE TABLE app.made (a int)',
	q{UPDATE postbox.publication_state SET last_error = 'made'}, 'DELETE FROM postbox.publication', q{UPDATE postbox.outbox SET retention = '1 s'},
	'CREATE TRIGGER made BEFORE INSERT ON postbox.lane FOR EACH ROW EXECUTE FUNCTION evil.row_hook()',
	'SELECT FROM app.log', 'DELETE FROM app.log', 'TRUNCATE app.log', 'LOCK TABLE app.log IN ACCESS EXCLUSIVE MODE',
	'LOCK TABLE postbox.lane IN ACCESS EXCLUSIVE MODE', 'LOCK TABLE postbox.publication IN SHARE MODE',
	q{SELECT postbox.drop_publication('alice')}, q{SELECT postbox.settle_foreign_events('evil.log')},
	q{COPY (SELECT 1) TO PROGRAM 'true'}, q{SELECT pg_read_file('PG_VERSION')}, q{SELECT lo_export(0, 'made')}, q{LOAD 'auto_explain'},
	'CREATE EVENT TRIGGER made ON sql_drop EXECUTE FUNCTION evil.event_hook()', 'CREATE EXTENSION file_fdw', q{ALTER SYSTEM SET work_mem = '1MB'},
	'SELECT pg_terminate_backend(pg_backend_pid())', 'SELECT pg_cancel_backend(pg_backend_pid())', 'SELECT pg_reload_conf()',
	q{SELECT set_config('session_replication_role', 'replica', false)}, q{SELECT set_config('log_min_messages', 'panic', false)},
	'CREATE TEMP TABLE pg_class (oid oid) ON COMMIT DELETE ROWS', 'DECLARE left_behind CURSOR WITH HOLD FOR SELECT evil.held()',
	'PREPARE left_behind AS SELECT 1', 'LISTEN left_behind', 'DISCARD PLANS', 'COMMIT', 'CALL evil.commit()', 'CHECKPOINT');

# What a statement of the worker's own sees, and what is left behind in its session.
my $probe = q{concat_ws(' ', current_user, session_user, current_setting('role'), current_setting('search_path'),
	current_setting('synchronous_commit'), current_setting('exit_on_error'), current_setting('lock_timeout'), current_setting('statement_timeout'),
	current_setting('row_security'), current_setting('bytea_output'), current_setting('DateStyle'), current_setting('IntervalStyle'), current_setting('TimeZone'),
	current_setting('work_mem'), current_setting('quote_all_identifiers'), current_setting('standard_conforming_strings'),
	current_setting('transaction_read_only'), current_setting('check_function_bodies'), current_setting('client_min_messages'),
	current_setting('default_transaction_isolation'), current_setting('default_transaction_read_only'), current_setting('application_name'),
	'left:' || nullif(current_setting('attempt.left', true), ''),
	'temporary:' || pg_my_temp_schema()::text, 'prepared:' || (SELECT count(*) FROM pg_prepared_statements WHERE name = 'left_behind'),
	'cursors:' || (SELECT count(*) FROM pg_cursors WHERE name = 'left_behind'), 'channels:' || (SELECT count(*) FROM pg_listening_channels()),
	'locks:' || (SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'advisory'))};

sub start_world
{
	my (%options) = @_;
	$emulator = start_emulator();
	# One worker: what mallory's code leaves behind in it, alice's events would meet.
	$node = new_node('main', emulator => $emulator, settings => {
		'postbox.publishers' => 1, 'postbox.checkpoint_interval' => '20ms',
		'postbox.maintenance_interval' => '1s', 'client_min_messages' => 'error', %{ $options{settings} // {} } });
	$node->start;
	$node->safe_psql('postgres', world_sql());
	$steady = $node->background_psql('postgres');
	as_mallory(mallory_sql(), types_sql());
	as_superuser(q{SET application_name = 'alice'});
	others_flow();
	wait_for(sub { worker_settings(0) ne '' }, 'the settings of the worker are known');
	$settings = worker_settings(0);
	return;
}

sub world_sql
{
	return qq{
	CREATE EXTENSION postbox;
	CREATE ROLE alice;
	CREATE ROLE mallory LOGIN;
	CREATE SCHEMA app AUTHORIZATION alice;
	CREATE SCHEMA evil AUTHORIZATION mallory;
	GRANT USAGE ON SCHEMA app TO mallory;
	GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.create_subscription TO alice, mallory;
	SET ROLE alice;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('alice', 'app.log', 'catalog.video.events');
	RESET ROLE;
	CREATE FUNCTION public.probe() RETURNS trigger LANGUAGE plpgsql AS \$\$
	BEGIN
		RAISE LOG 'probe: %', $probe;
		RETURN new;
	END \$\$;
	CREATE TRIGGER probe BEFORE UPDATE ON postbox.lane FOR EACH ROW WHEN (new.publication = 'alice') EXECUTE FUNCTION public.probe();
	};
}

sub mallory_sql
{
	my $escapes = join(",\n", map { "\$e\$$_\$e\$" } @escapes);
	my $retries = q{base_backoff => '100ms', max_backoff => '300ms', max_attempts => 2};
	return qq{
	CREATE TABLE evil.goal (statement text);
	CREATE TABLE evil.ran (place text);
	CREATE PROCEDURE evil.commit() LANGUAGE plpgsql AS 'BEGIN COMMIT; END';
	CREATE FUNCTION evil.row_hook() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM evil.hook(TG_ARGV[0]); IF TG_OP = \$x\$DELETE\$x\$ THEN RETURN old; END IF; RETURN new; END';
	CREATE FUNCTION evil.deep() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM evil.deep(); END';
	CREATE FUNCTION evil.held() RETURNS int LANGUAGE plpgsql AS 'BEGIN PERFORM evil.hook(\$x\$held cursor\$x\$); RETURN 1; END';
	CREATE FUNCTION evil.event_hook() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN PERFORM evil.hook(\$x\$event trigger\$x\$); END';
	CREATE FUNCTION evil.hook(place text) RETURNS boolean LANGUAGE plpgsql AS \$\$
	DECLARE
		statement text;
	BEGIN
		-- In her own session she may do what she likes.
		IF session_user = 'mallory' THEN RETURN true; END IF;
		RAISE LOG 'attempt: % runs as % of % in %', place, current_user, session_user, pg_backend_pid();
		FOREACH statement IN ARRAY ARRAY[$escapes] LOOP
			BEGIN
				EXECUTE statement;
				RAISE LOG 'attempt: ESCAPED by % in %', statement, place;
			EXCEPTION WHEN OTHERS THEN NULL;
			END;
		END LOOP;
		PERFORM set_config(name, value, is_local) FROM (VALUES ('search_path', 'evil, pg_catalog'), ('attempt.left', 'here'), ('synchronous_commit', 'off'),
			('statement_timeout', '1'), ('lock_timeout', '1'), ('bytea_output', 'escape'), ('DateStyle', 'German'), ('work_mem', '64'),
			('IntervalStyle', 'sql_standard'), ('TimeZone', 'Asia/Tokyo'), ('quote_all_identifiers', 'on'), ('standard_conforming_strings', 'off'),
			('check_function_bodies', 'off'), ('default_transaction_isolation', 'serializable'), ('default_transaction_read_only', 'on')) AS s(name, value), (VALUES (false), (true)) AS l(is_local);
		SET CONSTRAINTS ALL DEFERRED;
		PERFORM pg_advisory_lock_shared(4711);
		INSERT INTO evil.ran VALUES (place);
		FOR statement IN SELECT g.statement FROM evil.goal g LOOP
			EXECUTE statement;
		END LOOP;
		RETURN true;
	END \$\$;
	-- As a function that an index, a generated column or a constraint may call.
	CREATE FUNCTION evil.same(value text, place text) RETURNS text LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN PERFORM evil.hook(place); RETURN value; END \$\$;
	CREATE FUNCTION evil.good(value text, place text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN PERFORM evil.hook(place); RETURN true; END \$\$;
	CREATE FUNCTION evil.yes(a text, b text) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN PERFORM evil.hook('operator of her own'); RETURN a OPERATOR(pg_catalog.=) b; END \$\$;
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
	SELECT postbox.create_outbox('evil.log');
	SELECT postbox.create_publication('log', 'evil.log', 'catalog.video.events', aggregate_types => '{video}', $retries);
	SELECT postbox.create_outbox('evil.tab', 'table', retention => '1 day');
	SELECT postbox.create_publication('tab', 'evil.tab', 'catalog.video.events', $retries);
	SELECT postbox.create_inbox('evil.inbox');
	CREATE TABLE evil.target (id text PRIMARY KEY, title text, version bigint);
	SELECT postbox.create_projection('evil.inbox', '{set,gone}', 'evil.target', delete_types => '{gone}');
	CREATE FUNCTION evil.handler(event postbox.event) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM evil.hook(\$x\$handler\$x\$); END';
	};
}

# Types of columns whose casts are called in the filter on aggregate types: [type, what its hook is called].
sub types_sql
{
	return join('', map { my ($type, $hook) = @$_; qq{
	CREATE TYPE evil.$type AS ENUM ('video', 'other');
	CREATE FUNCTION evil.${type}_to_text(evil.$type) RETURNS text LANGUAGE plpgsql IMMUTABLE AS \$\$ BEGIN PERFORM evil.hook('$hook'); RETURN 'video'; END \$\$;
	CREATE CAST (evil.$type AS text) WITH FUNCTION evil.${type}_to_text(evil.$type) AS IMPLICIT;
	CREATE CAST (text AS evil.$type) WITH INOUT AS ASSIGNMENT;
	} } [ 'kind', 'cast' ], [ 'odd', 'the claim of a log' ]);
}

sub stop_world
{
	$steady->quit;
	eval { $hers->quit };
	$node->stop;
	return;
}

# As the owner of the hostile objects, in her own session, which is like a new one each time. What her code leaves behind there is her own affair.
sub as_mallory
{
	my (@sql) = @_;
	my $begin = q{DISCARD ALL; SET application_name = 'mallory'};
	unless ($hers && eval { $hers->query_safe($begin); 1 })
	{
		eval { $hers->quit } if $hers;
		$hers = $node->background_psql('postgres', extra_params => [ '-U', 'mallory' ]);
		$hers->query_safe($begin);
	}
	$hers->query_safe(join(";\n", @sql));
	return;
}

# As a superuser, in whose session Postbox calls the code. Shows what the session has after it: (settings, error).
sub as_victim
{
	my ($sql, %options) = @_;
	my $look = "SELECT $probe";
	my ($status, $output, $error) = $node->psql('postgres', "SET application_name = 'victim';\n$look;\n$sql;\n$look", on_error_stop => 0);
	my @lines = grep { /temporary:/ } split /\n/, $output // '';
	unless ($options{leaves_lock}) { s/ locks:\d+// for @lines; }
	is($lines[1], $lines[0], 'nothing is left in the session') if @lines == 2;
	is(scalar @lines, 2, 'the session goes on');
	return ($output, $error);
}

# In the session that asks again and again.
sub as_superuser { my ($sql) = @_; return $steady->query_safe($sql); }

sub worker_settings
{
	my ($from) = @_;
	my @seen = log_since($node, $from) =~ /postbox publisher LOG:  probe: (.*)/g;
	return $seen[-1] // '';
}

sub column
{
	my ($publication, $column) = @_;
	return $node->safe_psql('postgres', "SELECT $column FROM postbox.publication_status WHERE publication = '$publication'");
}

sub set_goal
{
	my (@statements) = @_;
	as_mallory('TRUNCATE evil.goal', map { "INSERT INTO evil.goal VALUES (\$g\$$_\$g\$)" } @statements);
	return;
}

# Events of mallory's outboxes, one each.
sub publish_table { my ($key) = @_; return emit_one('evil.tab', $key // 'k'); }
sub publish_log { my ($key) = @_; return emit_one('evil.log', $key // 'k'); }

sub emit_one
{
	my ($outbox, $key) = @_;
	as_mallory("SELECT postbox.outbox_emit('video', '$key', 'video.changed', '{}'::jsonb, outbox => '$outbox')");
	return;
}

# An event that the broker refuses once, so that it is parked and then published.
sub park_log
{
	emulator_fault($emulator, '--clear', 'rpc=Publish,ordering-key=poison,code=INVALID_ARGUMENT,count=1');
	return emit_one('evil.log', 'poison');
}

# Gives events of these types to mallory's inbox, as a superuser.
sub apply_event
{
	my (@types) = @_;
	my @calls = map {
		++$applied;
		qq{SELECT postbox.inbox_apply('evil.inbox', 'event-$applied', '$_', 'video', 'key', $applied, '{"title": "x"}'::bytea)}
	} @types;
	return as_victim(join(";\n", @calls));
}

# Of one publication, or of several.
sub wait_empty
{
	my ($publications, $what) = @_;
	my @publications = ref $publications ? @$publications : $publications;
	my $names = join(', ', map { "'$_'" } @publications);
	my $so = wait_until($node, 'postgres',
		"SELECT count(*) = @{[scalar @publications]} FROM postbox.publication_status WHERE publication IN ($names) AND pending = 0 AND state = 'active'", $what);
	diag(column($_, 'publication_status::text')) for $so ? () : @publications;
	return $so;
}

# Lines of the log since the attempt began about hooks that ran in sessions of others: [who, line].
sub runs
{
	my @runs;
	for my $line (split /\n/, log_since($node, $row))
	{
		next unless $line =~ /\] (postbox publisher|client backend \S+) LOG:  attempt: (.*)/;
		push @runs, [ $1, $2 ] unless $1 =~ /mallory/;
	}
	return @runs;
}

sub wait_ran
{
	my ($place) = @_;
	return wait_for(sub { grep { $_->[1] =~ /^\Q$place\E runs as/ } runs() }, "the code ran: $place");
}

# Alice's events are published, and none of her rows has changed.
sub others_flow
{
	my ($count) = @_;
	$count //= 5;
	my $before = messages_published($emulator);
	$alice += $count;
	as_superuser("SET ROLE alice; SELECT count(postbox.outbox_emit('video', 'k' || n, 'video.created', '{}'::jsonb, outbox => 'app.log')) FROM generate_series(1, $count) n; RESET ROLE");
	# Not in publication_status, which looks at mallory's outboxes, too.
	wait_for(sub { as_superuser(q{SELECT ready + parked = 0 FROM postbox.show_backlog('alice')}) eq 't' }, "others' events flow");
	is(as_superuser('SELECT count(*) FROM app.log'), $alice, 'none is lost');
	cmp_ok(messages_published($emulator), '>=', $before + $count, 'all were sent');
	return;
}

sub harmless
{
	my ($place, $may_end) = @_;
	my @runs = runs();
	is_deeply([ grep { $_->[1] =~ / runs as / && $_->[1] !~ / runs as mallory of / } @runs ], [], 'it ran as nobody else');
	is_deeply([ grep { $_->[1] =~ /ESCAPED/ } @runs ], [], 'it got at nothing');
	is(as_superuser(q{
		SELECT (SELECT count(*) FROM pg_roles WHERE (rolsuper OR rolcreaterole OR rolbypassrls) AND oid <> 10) || ' '
			|| (SELECT count(*) FROM pg_roles WHERE rolname IN ('made')) || ' '
			|| (SELECT count(*) FROM pg_auth_members WHERE member = 'mallory'::regrole) || ' '
			|| (SELECT count(*) FROM pg_class c WHERE (relowner = 'mallory'::regrole) <> (relnamespace = 'evil'::regnamespace) AND relkind <> 't' AND relnamespace <> 'pg_toast'::regnamespace) || ' '
			|| (SELECT count(*) FROM pg_proc WHERE (proowner = 'mallory'::regrole) <> (pronamespace = 'evil'::regnamespace))}),
		'0 0 0 0 0', 'rights and objects are as they were');
	my $log = log_since($node, $row);
	unlike($log, qr/PANIC|terminated by signal|server process|terminating any other/, 'the server did not restart');
	unlike($log, qr/FATAL/, 'no process ended') unless $may_end;
	return;
}

# attempt($hook, set => SQL of mallory, act => function, place => name that the code logs (default: the hook), never => 1 if
# the code must not run (or a function that sees what happens instead), unset => SQL of mallory, after => function that ends
# it, outcome => what becomes of it, flows => publications of hers that go on in the end, may_end => 1 if the code may make
# the worker's process leave, but not the server restart).
sub attempt
{
	my ($hook, %do) = @_;
	return if $ENV{POSTBOX_ATTEMPT} && $hook !~ /$ENV{POSTBOX_ATTEMPT}/;
	subtest "$hook: $do{outcome}" => sub {
		$row = log_position($node);
		as_mallory($do{set}) if $do{set};
		$do{act}->();
		my $place = $do{place} // $hook;
		if ($do{never}) { $do{never}->() if ref $do{never}; }
		else { wait_ran($place); }
		others_flow();
		is(scalar(grep { $_->[1] =~ / runs as / } runs()), 0, 'the code did not run') if $do{never};
		harmless($place, $do{may_end});
		wait_for(sub { worker_settings($row) ne '' }, 'the worker has run statements of its own');
		is(worker_settings($row), $settings, 'with the settings that it had');
		as_mallory($do{unset}) if $do{unset};
		$do{after}->() if $do{after};
		wait_empty($do{flows}, join(' and ', @{ $do{flows} }) . (@{ $do{flows} } > 1 ? ' go on' : ' goes on')) if $do{flows};
	};
	return;
}

1;
