# Change triggers: whatever sessions do to a table at the same time, also when they roll back, are ended or crash, a projection of
# the events ends as the table does. A dump has the triggers, and its restore emits nothing.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{POSTBOX_SEED} // time;
srand($seed);
note("POSTBOX_SEED=$seed");

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'deadlock_timeout' => '100ms', 'work_mem' => '64kB' });
$node->start;

subtest 'a dump has the triggers, and its restore emits nothing' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE dumped; CREATE DATABASE restored');
	$node->safe_psql(
		'dumped', q{
		CREATE EXTENSION postbox;
		CREATE SCHEMA app;
		SELECT postbox.create_outbox('app."The outbox"');
		CREATE TABLE app.item (id int, "the lot" text, title text, PRIMARY KEY (id, "the lot"));
		SELECT postbox.create_change_triggers('app.item', 'Item''s', outbox => 'app."The outbox"', columns => ARRAY['title', 'the lot'], event_prefix => 'item');
		INSERT INTO app.item SELECT n, 'a', 'title' FROM generate_series(1, 10) n;
	});
	my $file = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
	$node->command_ok([ 'pg_dump', '-f', $file, '-d', $node->connstr('dumped') ], 'the database is dumped');
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $file, '-d', $node->connstr('restored') ], 'and restored');
	my $triggers = q{SELECT string_agg(pg_get_triggerdef(oid), E'\n' ORDER BY tgname) FROM pg_trigger WHERE tgrelid = 'app.item'::regclass};
	is($node->safe_psql('restored', $triggers), $node->safe_psql('dumped', $triggers), 'its triggers are the same');
	is($node->safe_psql('restored', q{SELECT count(*) FROM app."The outbox"}), '10', 'no event was emitted');
	$node->safe_psql('restored', q{UPDATE app.item SET title = 'other' WHERE id = 3});
	is($node->safe_psql('restored', q{SELECT aggregate_type, aggregate_id, event_type, version, convert_from(payload, 'UTF8') FROM app."The outbox" WHERE version > 1}),
		q(Item's|3:a|item.updated|2|{"title":"other","the lot":"a"}), 'the next change is');
	# Their workers are no longer needed.
	$node->safe_psql('postgres', "DROP DATABASE $_ WITH (FORCE)") for qw(dumped restored);
};

subtest 'the log says who has changed which rows without events' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE muting');
	$node->safe_psql(
		'muting', q{
		CREATE EXTENSION postbox;
		CREATE SCHEMA app;
		SELECT postbox.create_outbox('app.outbox');
		CREATE ROLE one;
		CREATE ROLE two;
		GRANT USAGE ON SCHEMA app TO one, two;
		CREATE TABLE app.of_one (id int PRIMARY KEY);
		CREATE TABLE app.of_two (id int PRIMARY KEY);
		SELECT postbox.create_change_triggers(t, outbox => 'app.outbox') FROM unnest('{app.of_one,app.of_two}'::regclass[]) t;
		ALTER TABLE app.of_one OWNER TO one;
		ALTER TABLE app.of_two OWNER TO two});
	my $position = log_position($node);
	$node->safe_psql(
		'muting', q{
		BEGIN;
		SET LOCAL ROLE one;
		SET LOCAL postbox.mute_changes = on;
		INSERT INTO app.of_one SELECT generate_series(1, 3);
		SET LOCAL ROLE two;
		SET LOCAL postbox.mute_changes = off;
		SET LOCAL postbox.mute_changes = on;
		INSERT INTO app.of_two VALUES (1);
		COMMIT});
	my $log = log_since($node, $position);
	like($log, qr/3 rows of app\.of_one were changed without events\n[^\n]*Role "one" has set/, 'those of the one');
	like($log, qr/1 row of app\.of_two was changed without events\n[^\n]*Role "two" has set/, 'and of the other');
	$node->safe_psql('postgres', 'DROP DATABASE muting');
};

create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.item (id int PRIMARY KEY DEFERRABLE, title text, amount numeric(10, 2)) PARTITION BY RANGE (id);
	CREATE TABLE app.item_1 PARTITION OF app.item FOR VALUES FROM (0) TO (400);
	CREATE TABLE app.item_2 (amount numeric(10, 2), title text, id int NOT NULL);
	ALTER TABLE app.item ATTACH PARTITION app.item_2 DEFAULT;
	SELECT postbox.create_change_triggers('app.item');
	CREATE TABLE app.stock (id int PRIMARY KEY, title text, amount numeric(10, 2));
	SELECT postbox.create_change_triggers('app.stock');
	CREATE SCHEMA read;
	CREATE TABLE read.item (id int PRIMARY KEY, title text, amount numeric(10, 2), version bigint NOT NULL);
	CREATE TABLE read.stock (LIKE read.item INCLUDING ALL);
	SELECT postbox.create_inbox('read.inbox');
	SELECT postbox.create_subscription('follower', 'read.inbox', 'catalog.video.events.test-follower');
	SELECT postbox.create_projection('read.inbox', ARRAY[t || '.created', t || '.updated', t || '.deleted'], ('read.' || t)::regclass,
		key => ARRAY['id'], delete_types => ARRAY[t || '.deleted']) FROM unnest(ARRAY['item', 'stock']) t;
});
my $puller = start_puller($node, 'postgres', $emulator);
my $has_merge = server_version($node) >= 15;

# Statements that change one row or many, of which some fail: a key is there already, or others have locked the rows.
sub statement
{
	my ($from, $rows, $table) = (1 + int(rand(800)), 1 + int(rand(rand(10) < 9 ? 20 : 200)), rand(3) < 2 ? 'item' : 'stock');
	my $to = $from + $rows;
	my $word = int(rand(1000));
	my @statements = (
		# Not FROM stdin: psql of older minor versions (16.2) takes the rows of a COPY that is refused for statements.
		"COPY app.$table (id, title) FROM PROGRAM 'seq -f \"%.0f\tcopied $word\" $from $to';\n",
		"INSERT INTO app.$table SELECT n, 'inserted $word', n * 1.5 FROM generate_series($from, $to) n WHERE NOT EXISTS (SELECT FROM app.$table WHERE id = n);\n",
		"UPDATE app.$table SET amount = $word WHERE id BETWEEN $from AND $to;\n",
		"UPDATE app.$table SET title = 'odd' WHERE id BETWEEN $from AND $to AND id % 2 = 1;\n",
		"DELETE FROM app.$table WHERE id BETWEEN $from AND $to;\n");
	# Keys that are moved past each other and into the other partition, or exchanged; and rows that are there are updated.
	push @statements, $table eq 'item'
	  ? ("UPDATE app.item SET id = id + $rows WHERE id BETWEEN $from AND $to;\n", "UPDATE app.item SET id = $from + $to - id WHERE id BETWEEN $from AND $to;\n")
	  : ("INSERT INTO app.stock SELECT n, 'upserted $word', 0 FROM generate_series($from, $to) n ON CONFLICT (id) DO UPDATE SET title = EXCLUDED.title;\n",
		$has_merge
		? "MERGE INTO app.stock s USING generate_series($from, $to) n ON s.id = n WHEN MATCHED AND n % 3 = 0 THEN DELETE WHEN MATCHED THEN UPDATE SET amount = n"
		  . " WHEN NOT MATCHED THEN INSERT VALUES (n, 'merged $word', 1);\n"
		: ());
	return $statements[ rand @statements ];
}

sub transaction
{
	my $what = rand(10);
	return statement() if $what < 4;
	return 'BEGIN;' . statement() . statement() . 'ROLLBACK;' if $what < 5;
	return 'BEGIN;' . statement() . "SAVEPOINT s;\n" . statement() . "ROLLBACK TO s;\n" . statement() . 'COMMIT;' if $what < 8;
	return 'BEGIN ISOLATION LEVEL REPEATABLE READ;' . statement() . statement() . 'COMMIT;';
}

my $written = 0;
my $waits = "BEGIN; SELECT pg_current_xact_id(); SELECT pg_advisory_xact_lock_shared(1); COMMIT;\n";

# Options: waits, in a transaction, half way, while somebody has the lock.
sub start_writer
{
	my ($transactions, %options) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/' . ++$written . '.sql';
	append_to_file($file, join("\n", map { ($options{waits} && $_ == int($transactions / 2) ? $waits : ()), transaction() } 1 .. $transactions));
	my $writer = { output => '' };
	local $ENV{PGAPPNAME} = 'writer';
	$writer->{run} = IPC::Run::start([ 'psql', '-X', '-q', '-f', $file, '-d', $node->connstr('postgres') ], '<', \undef, '>&', \$writer->{output});
	return $writer;
}

# What became of the statements must be what is meant to. Who ends a session ends the program that it reads from, too.
sub finish_writers
{
	foreach my $writer (@_)
	{
		$writer->{run}->finish;
		my @odd = grep { /ERROR|FATAL|PANIC/ && !/duplicate key|deadlock detected|could not serialize|transaction is aborted|savepoint "s" does not exist|terminating connection|the database system is|cannot affect row|already moved to another partition|program ".*" failed/ }
		  split /\n/, $writer->{output};
		is_deeply(\@odd, [], 'statements of a writer fail for the reasons that are meant');
	}
	return;
}

# The events say the same as the table, and a projection of them, too.
sub check
{
	my ($what) = @_;
	foreach my $table (qw(item stock))
	{
		my $differences = "(SELECT id, title, amount FROM app.$table EXCEPT SELECT id, title, amount FROM read.$table)"
		  . " UNION ALL (SELECT id, title, amount FROM read.$table EXCEPT SELECT id, title, amount FROM app.$table)";
		wait_until($node, 'postgres', "SELECT NOT EXISTS ($differences)", "$what: the projection of $table ends as the table does")
		  or diag($node->safe_psql('postgres', "SELECT * FROM ($differences) d ORDER BY id LIMIT 10"));
		is($node->safe_psql('postgres', qq{SELECT count(*) FROM (SELECT DISTINCT ON (aggregate_id) aggregate_id, event_type, payload FROM app.outbox
				WHERE aggregate_type = '$table' ORDER BY aggregate_id, seq DESC) e FULL JOIN app.$table t ON t.id::text = e.aggregate_id
				WHERE (t.id IS NOT NULL) <> (e.event_type IS DISTINCT FROM '$table.deleted')
				OR t.id IS NOT NULL AND convert_from(e.payload, 'UTF8')::jsonb IS DISTINCT FROM to_jsonb(t)}),
			'0', "$what: the last event of each key of $table has the row that is there");
	}
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT count(*), max(version) FROM app.outbox GROUP BY aggregate_type, aggregate_id) k WHERE count <> max'),
		'0', "$what: the versions of each key have no gap");
	is($node->safe_psql('postgres', 'SELECT count(*) FROM (SELECT version, lag(version) OVER (PARTITION BY aggregate_type, aggregate_id ORDER BY seq) AS last FROM app.outbox) e WHERE version <= last'),
		'0', "$what: and grow with seq");
	cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox'), '>', 1000, "$what: there are many events");
	return;
}

my $some = q{SELECT pid FROM pg_stat_activity WHERE application_name = 'writer' AND state = 'active' AND backend_xid IS NOT NULL LIMIT 1};

my @writers = map { start_writer(60) } 1 .. 4;
finish_writers(@writers);
check('sessions side by side');

my $gate = $node->background_psql('postgres');
$gate->query_safe('SELECT pg_advisory_lock(1)');
@writers = map { start_writer(100) } 1 .. 2;
foreach my $number (1 .. 3)
{
	my $pid;
	# The others may be done already; this one is not before it is found.
	push @writers, start_writer(100, waits => 1);
	wait_for(sub { return $pid = $node->safe_psql('postgres', $some) }, "a writer is in a transaction ($number)");
	is($node->safe_psql('postgres', "SELECT count(pg_terminate_backend($pid))"), '1', 'it is ended');
}
$gate->query_safe('SELECT pg_advisory_unlock(1)');
finish_writers(@writers);
check('sessions that are ended');

$gate->query_safe('SELECT pg_advisory_lock(1)');
@writers = map { start_writer(100, waits => 1) } 1 .. 3;
my $killed;
wait_for(sub { return $killed = $node->safe_psql('postgres', $some) }, 'a writer is in a transaction');
crash($node, $killed);
finish_writers(@writers);
@writers = map { start_writer(20) } 1 .. 2;
finish_writers(@writers);
check('after a crash');

stop_puller($puller);
$node->stop;
done_testing();
