# Dumps of a database with two logs are restored into another cluster. What the old cluster had not published is published
# once, what it had published is not sent again, and what is emitted in the new cluster is published: whichever comes first,
# the events, the restore or the worker, in whatever order the dump is restored, and whatever the schema of a log is called.
# (pg_dump orders tables by the names of their schemas: the rows of app come before those of postbox, which are before those of
# shop.) Rows that come later, or without their positions, are neither lost nor sent without being asked for.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

use constant PENDING => 16;    # events of the dump that were not published

my @schemas = ('app', 'shop');
my $emulator = start_emulator();
my %settings = ('postbox.poll_interval' => '200ms', 'postbox.checkpoint_interval' => '20ms', 'max_worker_processes' => 24);
my ($old, $node) = map { new_node($_, emulator => $emulator, preload => $_ eq 'old', settings => \%settings) } 'old', 'other';
my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
my $sent = 0;    # messages that the emulator has taken

# Takes transaction ids, so that those of one cluster are far beyond those of another.
sub take_xids
{
	my ($of, $count) = @_;
	$of->safe_psql('postgres', "DO \$\$ BEGIN FOR i IN 1..$count LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END \$\$");
	return;
}

sub create_sql
{
	my ($schema) = @_;
	return "CREATE SCHEMA $schema; SELECT postbox.create_outbox('$schema.outbox'); SELECT postbox.create_publication('$schema', '$schema.outbox', 'catalog.video.events', lanes => 2);";
}

sub emit_sql
{
	my ($count, @into) = @_;
	return join '', map { "SELECT count(postbox.outbox_emit('video', 'video-' || n % 3, 'video.created', '{}'::jsonb, outbox => '$_.outbox')) FROM generate_series(1, $count) n;" } @into;
}

sub wait_read
{
	my ($of, $database) = @_;
	return wait_until($of, $database, 'SELECT bool_and(pending = 0) FROM postbox.publication_status', 'all is published');
}

sub wait_sent
{
	my ($more, $what) = @_;
	$sent += $more;
	return wait_for(sub { messages_published($emulator) >= $sent }, $what) || diag(messages_published($emulator) . " of $sent");
}

sub nothing_else { $sent = sent_once($emulator, $_[0], $sent, 'nothing else is'); return; }

# So many more are sent, and one that is emitted then into each log, and nothing else.
sub sent
{
	my ($of, $database, $more, @into) = @_;
	wait_read($of, $database);
	wait_sent($more, 'what was pending, and what was emitted, is sent');
	$of->safe_psql($database, emit_sql(1, @into));
	wait_sent(scalar @into, 'and what is emitted now');
	wait_read($of, $database);
	return nothing_else($of);
}

sub set_publishers
{
	my ($of, $count) = @_;
	set_configuration($of, 'postbox.publishers', $count);
	$of->reload;
	return;
}

# Of each log, 30 events that are published, and 8 that are not: one late, seven new. The dumps are named by their kinds: sql,
# archive, schema, data; copy, which is the table of one log. Two more have events that are emitted during the restore.
sub dump_old_cluster
{
	$old->start;
	take_xids($old, 5000);
	$old->safe_psql('postgres', 'CREATE DATABASE dumped');
	$old->safe_psql('dumped', join '', 'CREATE EXTENSION postbox;', map { create_sql($_) } @schemas);
	$old->safe_psql('dumped', emit_sql(10, @schemas));
	my $held = $old->background_psql('dumped');
	$held->query_safe("BEGIN; SELECT postbox.outbox_emit('video', 'held', 'video.created', '{}'::jsonb, outbox => o) FROM unnest('{app.outbox,shop.outbox}'::regclass[]) o");
	$old->safe_psql('dumped', emit_sql(20, @schemas));
	wait_sent(60, 'what is committed is sent');
	wait_read($old, 'dumped');
	set_publishers($old, 0);
	wait_workers($old, 'dumped', 0);
	$held->query_safe('COMMIT');
	$held->quit;
	$old->safe_psql('dumped', emit_sql(7, @schemas) . "COPY (SELECT * FROM app.outbox) TO '$dump.copy'");
	my %options = (sql => [], archive => ['-Fc'], schema => ['--schema-only'], data => ['--data-only']);
	$old->command_ok([ 'pg_dump', @{ $options{$_} }, '-d', $old->connstr('dumped'), '-f', "$dump.$_" ], "dump: $_") for sort keys %options;
	# Two events are emitted meanwhile, before the sequence goes on where the old one stood. (There is no index yet to count
	# versions with, so they are of a type whose versions are given.)
	append_to_file("$dump.during", slurp_file("$dump.sql") =~ s/^(?=SELECT pg_catalog\.setval\('(\w+)\.outbox_seq)/SELECT count(postbox.outbox_emit('film', 'during', 'video.created', '{}'::jsonb, version => n, outbox => '$1.outbox')) FROM pg_catalog.generate_series(1, 2) n;\n/gmr);
	# With pauses, in which a worker looks at what is there so far: before what changes it.
	append_to_file("$dump.slow", slurp_file("$dump.during") =~ s/^(?=COPY .*\n(?!\\\.)|SELECT pg_catalog\.setval\('\w+\.outbox_seq)/SELECT postbox.wake_publishers();\nSELECT pg_catalog.pg_sleep(0.15);\n/gmr);
	return;
}

sub load
{
	my ($of, $database, $kind) = @_;
	$of->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $of->connstr($database), '-f', "$dump.$kind" ], "$kind is loaded into $database");
	return;
}

# Of a database that nobody needs any more, workers read nothing.
sub done { my ($database) = @_; return $node->safe_psql('postgres', "DROP DATABASE $database"); }

# Into a new database.
sub restore
{
	my ($database, @kinds) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	load($node, $database, $_) for @kinds;
	return;
}

sub restore_archive
{
	my ($database, @options) = @_;
	restore($database);
	$node->command_ok([ 'pg_restore', '-e', @options, '-d', $node->connstr($database), "$dump.archive" ], "$database is restored");
	return;
}

dump_old_cluster();
my $xid_of_dump = $old->safe_psql('postgres', 'SELECT pg_current_xact_id()');
# What comes next in this cluster has other logs.
$old->safe_psql('postgres', 'DROP DATABASE dumped');
set_publishers($old, 1);

sub restored_meanwhile
{
	my ($name) = @_;
	subtest "events that are emitted during the restore and before the first worker looks, with $name transaction ids than in the dump" => sub {
		restore("${name}_during", 'during');
		$node->safe_psql("${name}_during", emit_sql(5, @schemas));
		# Without the library nobody publishes.
		set_configuration($node, 'shared_preload_libraries', 'postbox');
		$node->restart;
		sent($node, "${name}_during", PENDING + 14, @schemas);
		is($node->safe_psql("${name}_during", "SELECT count(*) FROM (SELECT version <> lag(version, 1, 0::bigint) OVER (PARTITION BY aggregate_id ORDER BY seq) + 1 AS wrong FROM $_.outbox) e WHERE wrong"), '0', "the keys of $_ are in order") for @schemas;
		done("${name}_during");
	};
	subtest "a worker that runs during the restore, with $name transaction ids than in the dump" => sub {
		for my $kind ('slow', 'archive')
		{
			my $database = "${name}_$kind";
			if ($kind eq 'archive') { restore_archive($database, '-j', '4'); } else { restore($database, $kind); }
			$node->safe_psql($database, emit_sql(5, @schemas));
			sent($node, $database, PENDING + ($kind eq 'archive' ? 10 : 14), @schemas);
			done($database);
		}
		cmp_ok($node->safe_psql('postgres', 'SELECT pg_current_xact_id()'), $name eq 'higher' ? '>' : '<', $xid_of_dump, "its transaction ids are $name");
	};
	return;
}

$node->start;
restored_meanwhile('lower');

subtest 'a data-only restore while a worker runs' => sub {
	restore('data', 'schema', 'data');
	$node->safe_psql('data', emit_sql(5, @schemas));
	sent($node, 'data', PENDING + 10, @schemas);
};

subtest 'a publication that is created after a restore has all that the log has' => sub {
	$node->safe_psql('data', q{SELECT postbox.create_publication('audit', 'app.outbox', 'catalog.video.events')});
	wait_sent(38 + 6, 'the new publication has all');
	$node->safe_psql('data', emit_sql(1, 'app'));
	wait_sent(2, 'both have what is emitted now');
	wait_read($node, 'data');
	nothing_else($node);
};

subtest 'a row that cannot be an event is parked for that publication, too, and says so' => sub {
	$node->safe_psql('data', q{ALTER TABLE app.outbox ALTER payload DROP NOT NULL; UPDATE app.outbox SET payload = NULL WHERE aggregate_id = 'held';
		SELECT postbox.create_publication('altered', 'app.outbox', 'catalog.video.events')});
	wait_sent(37 + 7, 'the new publication has the others');
	wait_until($node, 'data', q{SELECT parked = 1 AND pending = 1 FROM postbox.publication_status WHERE publication = 'altered'}, 'this one is parked');
	is($node->safe_psql('data', q{SELECT publication, aggregate_id, last_error FROM app.outbox_parked}),
		'altered|held|the row cannot be an event: a column is null', 'with the reason');
	done('data');
};

subtest 'the positions of the lanes come before the rows, and after them' => sub {
	my ($list) = run_command([ 'pg_restore', '-l', "$dump.archive" ]);
	my @entries = split /\n/, $list;
	my ($at) = grep { $entries[$_] =~ / TABLE DATA / } 0 .. $#entries;
	my @data = grep { / TABLE DATA / } @entries;
	my @rest = grep { !/ TABLE DATA / } @entries[ $at .. $#entries ];
	my @moved = grep { /postbox (lane|publication|outbox) / } @data;
	my @kept = grep { !/postbox (lane|publication|outbox) / } @data;
	ok(@moved > 0, 'there is something to move');
	my %orders = (first => [ @moved, @kept ], last => [ @kept, @moved ]);
	for my $order ('first', 'last')
	{
		append_to_file("$dump.$order", join("\n", @entries[ 0 .. $at - 1 ], @{ $orders{$order} }, @rest) . "\n");
		restore_archive("lanes_$order", '-L', "$dump.$order");
		$node->safe_psql("lanes_$order", emit_sql(5, @schemas));
		sent($node, "lanes_$order", PENDING + 10, @schemas);
		done("lanes_$order");
	}
};

subtest 'rows that come when a worker has published for long are settled once' => sub {
	restore('late', 'sql');
	wait_read($node, 'late');
	$node->safe_psql('late', emit_sql(5, 'app'));
	wait_sent(PENDING + 5, 'what was pending and what is emitted is sent');
	# As if the rows had come now: those that were pending, and those that had been published.
	$node->safe_psql('late', "CREATE TABLE app.kept AS SELECT * FROM app.outbox WHERE origin <> postbox.cluster_origin(); DELETE FROM app.outbox WHERE origin <> postbox.cluster_origin();
		COPY app.outbox FROM '$dump.copy'");
	wait_sent(8, 'what was pending is sent');
	$node->safe_psql('late', 'INSERT INTO app.outbox SELECT * FROM app.kept ON CONFLICT DO NOTHING');
	sent($node, 'late', 0, 'app');
	is($node->safe_psql('late', 'SELECT count(*) FROM app.outbox WHERE origin = -2147483648'), '8', 'their rows are marked');
	done('late');
};

$node->safe_psql('postgres', 'CREATE DATABASE copied');
$node->safe_psql('copied', 'CREATE EXTENSION postbox');

subtest 'a copy of the table without the positions of its lanes' => sub {
	for my $published ('true', 'false')
	{
		my $schema = "published_$published";
		$node->safe_psql('copied', create_sql($schema) . "COPY $schema.outbox FROM '$dump.copy'");
		$node->safe_psql('copied', emit_sql(5, $schema));
		wait_sent(5, 'what is emitted is sent');
		my $problem = "SELECT problem FROM postbox.outbox_status WHERE outbox = '$schema.outbox'::regclass";
		like($node->safe_psql('copied', $problem), qr/^events of another cluster are kept/, 'the status says that the others are kept');
		is($node->safe_psql('copied', "SELECT postbox.purge_outbox('$schema.outbox'); SELECT count(*) FROM $schema.outbox"), "0\n43", 'they are');
		nothing_else($node);
		$node->safe_psql('copied', "SELECT postbox.resolve_unknown_origin('$schema.outbox', $published)");
		# Until somebody says what they are.
		wait_sent($published eq 'true' ? 0 : 38, 'what was not published is sent');
		sent($node, 'copied', 0, $schema);
		is($node->safe_psql('copied', $problem), '', 'the status has nothing to say');
	}
};

subtest 'a restore of the schema, then of the data, within a cluster' => sub {
	my $database = 'within';
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION postbox;' . create_sql('app'));
	$node->safe_psql($database, emit_sql(5, 'app'));
	wait_sent(5, 'its events are sent');
	wait_read($node, $database);
	$node->command_ok([ 'pg_dump', '-d', $node->connstr($database), "--$_-only", '-f', "$dump.within_$_" ], "dump: $_") for 'schema', 'data';
	$node->safe_psql('postgres', 'CREATE DATABASE beside');
	load($node, 'beside', "within_$_") for 'schema', 'data';
	my $rows = 'SELECT txid, seq, id FROM app.outbox ORDER BY seq';
	is($node->safe_psql('beside', $rows), $node->safe_psql($database, $rows), 'the rows are as they were');
	# The registration may come later than the rows, also of an INSERT in a function.
	$node->safe_psql('beside', q{CREATE TABLE app.kept AS TABLE app.outbox; DELETE FROM app.outbox; DELETE FROM postbox.lane; DELETE FROM postbox.publication; CREATE TABLE app.registered AS TABLE postbox.outbox; DELETE FROM postbox.outbox});
	my $position = log_position($node);
	is($node->safe_psql('beside', q{BEGIN; SET LOCAL search_path = app, postbox; DO $$ DECLARE k kept; n int := 0; BEGIN FOR k IN SELECT * FROM kept LOOP INSERT INTO outbox VALUES (k.*); n := n + 1; END LOOP; IF n <> 5 THEN RAISE 'lost'; END IF; END $$; SHOW search_path; COMMIT}),
		'app, postbox', 'the session is as it was');
	is($node->safe_psql('beside', $rows), $node->safe_psql($database, $rows), 'so are the rows');
	unlike(log_since($node, $position), qr/SPI stack|signal 11/, 'nothing is left behind');
	# A session that has found a log unregistered notices that it is registered.
	my $session = $node->background_psql('beside');
	my $put_back = q{INSERT INTO app.outbox SELECT txid, seq, gen_random_uuid(), aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, origin, generation FROM app.kept LIMIT 1};
	$session->query_safe($put_back);
	$node->safe_psql('beside', 'INSERT INTO postbox.outbox SELECT * FROM app.registered');
	$session->query_safe($put_back);
	$session->quit;
	is($node->safe_psql('beside', 'SELECT count(*) - count(DISTINCT seq) FROM app.outbox'), '1', 'its row has a seq of its own, as the one before had not');
	done($_) for 'beside', $database;
	nothing_else($node);
};

set_configuration($node, 'shared_preload_libraries', undef);
$node->restart;
take_xids($node, 8000);
restored_meanwhile('higher');

# Emits 3 events that are not published any more, and takes a dump.
sub leave
{
	my ($of, $database) = @_;
	set_publishers($of, 0);
	wait_workers($of, $database, 0);
	$of->safe_psql($database, emit_sql(3, 'app'));
	$of->command_ok([ 'pg_dump', '-f', "$dump.$database", '-d', $of->connstr($database) ], "a dump of $database");
	$of->safe_psql('postgres', "ALTER DATABASE $database RENAME TO ${database}_left; UPDATE pg_database SET datallowconn = false WHERE datname = '${database}_left'");
	set_publishers($of, 1);
	return;
}

sub come
{
	my ($to, $database, $from) = @_;
	$to->safe_psql('postgres', "CREATE DATABASE $database");
	return load($to, $database, $from);
}

subtest 'a log goes to another cluster and comes back: what was published in either is not sent again, what was not is sent once' => sub {
	$old->safe_psql('postgres', 'CREATE DATABASE first');
	$old->safe_psql('first', 'CREATE EXTENSION postbox;' . create_sql('app'));
	$old->safe_psql('first', emit_sql(20, 'app'));
	sent($old, 'first', 20, 'app');
	leave($old, 'first');

	come($node, 'second', 'first');
	sent($node, 'second', 3, 'app');
	$node->safe_psql('second', emit_sql(10, 'app'));
	sent($node, 'second', 10, 'app');
	# The position of a merged lane says of the other cluster only that all was read.
	$node->safe_psql('second', "SELECT postbox.alter_publication('app', lanes => 1)");
	wait_until($node, 'second', "SELECT lanes = 1 FROM postbox.publication WHERE name = 'app'", 'the lanes are merged');
	leave($node, 'second');

	come($old, 'third', 'second');
	sent($old, 'third', 3, 'app');
	# So does that of a publication that begins now.
	$old->safe_psql('third', "SELECT postbox.create_publication('late', 'app.outbox', 'catalog.video.events', start => 'now'); SELECT postbox.drop_publication('app')");
	leave($old, 'third');

	come($node, 'fourth', 'third');
	sent($node, 'fourth', 3, 'app');
};

$_->stop for $node, $old;
done_testing();
