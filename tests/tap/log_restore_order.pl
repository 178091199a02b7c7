# A log is restored in an order of its own: the data after the schema, the positions of its lanes before or after the rows, rows when a worker
# has published for long, or rows alone. Nothing is lost, and nothing is sent without being asked for.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Restore;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator();
dump_old_cluster($emulator, 1);

my $node = new_node('other', emulator => $emulator, settings => { %settings, 'postbox.publishers' => 1 });
$node->start;

sub load
{
	my ($database, $file) = @_;
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', "$tmp/$file" ], "$file is loaded into $database");
	return;
}

subtest 'a data-only restore while a worker runs' => sub {
	for my $schema (@schemas)
	{
		my $before = messages_published($emulator);
		$node->safe_psql('postgres', "CREATE DATABASE ${schema}_data");
		load("${schema}_data", "$schema.schema");
		load("${schema}_data", "$schema.data");
		emit_into($node, "${schema}_data", $schema, 5);
		sent($node, "${schema}_data", $schema, $before, 5);
	}
};

# Restores an archive in an order of the test's own: the entries that match come first, or last.
sub restore_in_order
{
	my ($database, $schema, $first, $pattern) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	my ($list) = run_command([ 'pg_restore', '-l', "$tmp/$schema.archive" ]);
	my @entries = split /\n/, $list;
	my @data = grep { / TABLE DATA / } @entries;
	my @moved = grep { /$pattern/ } @data;
	my @kept = grep { !/$pattern/ } @data;
	ok(@moved > 0, 'there is something to move');
	my ($at) = grep { $entries[$_] =~ / TABLE DATA / } 0 .. $#entries;
	my @rest = grep { !/ TABLE DATA / } @entries[$at .. $#entries];
	append_to_file("$tmp/$database.list", join("\n", @entries[0 .. $at - 1], $first ? (@moved, @kept) : (@kept, @moved), @rest) . "\n");
	$node->command_ok([ 'pg_restore', '-e', '-L', "$tmp/$database.list", '-d', $node->connstr($database), "$tmp/$schema.archive" ], "$database is restored");
	return;
}

subtest 'the positions of the lanes come before the rows, and after them' => sub {
	for my $schema (@schemas)
	{
		for my $first (1, 0)
		{
			my $database = "${schema}_lanes_" . ($first ? 'first' : 'last');
			my $before = messages_published($emulator);
			restore_in_order($database, $schema, $first, 'postbox (lane|publication|outbox) ');
			emit_into($node, $database, $schema, 5);
			sent($node, $database, $schema, $before, 5);
		}
	}
};

subtest 'rows that come when a worker has published for long are settled once' => sub {
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', 'CREATE DATABASE late');
	load('late', 'app.sql');
	wait_until($node, 'late', 'SELECT pending = 0 FROM postbox.publication_status', 'all is published');
	emit_into($node, 'late', 'app', 5);
	wait_for(sub { messages_published($emulator) >= $before + 13 }, 'what was pending and what is emitted is sent');
	# As if the rows had come now: those that were pending, and those that had been published.
	$node->safe_psql('late', "CREATE TABLE app.kept AS SELECT * FROM app.outbox WHERE origin <> postbox.cluster_origin(); DELETE FROM app.outbox WHERE origin <> postbox.cluster_origin()");
	$node->safe_psql('late', "COPY app.outbox FROM '$tmp/app.copy'");
	wait_for(sub { messages_published($emulator) >= $before + 21 }, 'what was pending is sent') or diag(messages_published($emulator) - $before);
	$node->safe_psql('late', "INSERT INTO app.outbox SELECT * FROM app.kept ON CONFLICT DO NOTHING");
	sent($node, 'late', 'app', $before + 13, 0);
	is($node->safe_psql('late', "SELECT count(*) FROM app.outbox WHERE origin = -2147483648"), '8', 'their rows are marked');
};

subtest 'a copy of the table without the positions of its lanes' => sub {
	for my $published ('true', 'false')
	{
		my $database = "copy_$published";
		my $before = messages_published($emulator);
		$node->safe_psql('postgres', "CREATE DATABASE $database");
		$node->safe_psql($database, "CREATE EXTENSION postbox; CREATE SCHEMA app; SELECT postbox.create_outbox('app.outbox'); SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events', lanes => 2)");
		$node->safe_psql($database, "COPY app.outbox FROM '$tmp/app.copy'");
		emit_into($node, $database, 'app', 5);
		wait_for(sub { messages_published($emulator) >= $before + 5 }, 'what is emitted is sent');
		like($node->safe_psql($database, 'SELECT problem FROM postbox.outbox_status'), qr/^events of another cluster are kept/, 'the status says that the others are kept');
		is($node->safe_psql($database, "SELECT postbox.purge_outbox('app.outbox'); SELECT count(*) FROM app.outbox"), "0\n43", 'they are');
		sent_once($emulator, $node, $before + 5, 'nothing else is sent');
		$node->safe_psql($database, "SELECT postbox.decide_unknown('app.outbox', $published)");
		my $more = $published eq 'true' ? 0 : 38;
		wait_for(sub { messages_published($emulator) >= $before + 5 + $more }, 'until somebody says what they are');
		emit_into($node, $database, 'app', 1);
		wait_for(sub { messages_published($emulator) >= $before + 6 + $more }, 'new events follow');
		wait_until($node, $database, 'SELECT pending = 0 FROM postbox.publication_status', 'all is published');
		sent_once($emulator, $node, $before + 6 + $more, 'nothing is sent twice');
		is($node->safe_psql($database, 'SELECT problem FROM postbox.outbox_status'), '', 'the status has nothing to say');
	}
};

subtest 'a publication that is created after a restore has all that the log has' => sub {
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', 'CREATE DATABASE joined');
	load('joined', 'app.sql');
	wait_for(sub { messages_published($emulator) >= $before + 8 }, 'what was pending is sent');
	$node->safe_psql('joined', q{SELECT postbox.create_publication('audit', 'app.outbox', 'catalog.video.events')});
	wait_for(sub { messages_published($emulator) >= $before + 8 + 38 }, 'the new publication has all');
	emit_into($node, 'joined', 'app', 1);
	wait_for(sub { messages_published($emulator) >= $before + 48 }, 'both have what is emitted now');
	wait_until($node, 'joined', 'SELECT bool_and(pending = 0) FROM postbox.publication_status', 'all is published');
	sent_once($emulator, $node, $before + 48, 'nothing is sent twice');
};

subtest 'a row that cannot be an event is parked for that publication, too, and says so' => sub {
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', 'CREATE DATABASE altered');
	load('altered', 'app.sql');
	wait_for(sub { messages_published($emulator) >= $before + 8 }, 'what was pending is sent');
	wait_until($node, 'altered', 'SELECT pending = 0 FROM postbox.publication_status', 'and is published');
	$node->safe_psql('altered', q{ALTER TABLE app.outbox ALTER payload DROP NOT NULL; UPDATE app.outbox SET payload = NULL WHERE aggregate_id = 'held';
		SELECT postbox.create_publication('audit', 'app.outbox', 'catalog.video.events')});
	wait_for(sub { messages_published($emulator) >= $before + 8 + 37 }, 'the new publication has the others');
	wait_until($node, 'altered', q{SELECT parked = 1 AND pending = 1 FROM postbox.publication_status WHERE publication = 'audit'}, 'this one is parked');
	is($node->safe_psql('altered', q{SELECT aggregate_id, last_error FROM app.outbox_parked WHERE publication = 'audit'}),
		'held|the row cannot be an event: a column is null', 'with the reason');
};

subtest 'a log of 0.1, whose rows do not say where they come from' => sub {
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', 'CREATE DATABASE first_release');
	# Five rows, of which two were published in the other cluster.
	$node->safe_psql('first_release', q{BEGIN; CREATE EXTENSION postbox; CREATE SCHEMA app; SELECT postbox.create_outbox('app.outbox');
		SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events');
		SELECT count(postbox.outbox_emit('video', 'video', 'video.created', '{}'::jsonb, outbox => 'app.outbox')) FROM generate_series(1, 5);
		ALTER TABLE app.outbox DROP COLUMN origin;
		UPDATE postbox.lane SET system_identifier = 1, floor = 2, hwm = 2, snapshot = '3:3:', next_xid = '3';
		COMMIT});
	wait_until($node, 'first_release', q{SELECT count(*) = 1 FROM pg_attribute WHERE attrelid = 'app.outbox'::regclass AND attname = 'origin'}, 'get the column');
	wait_for(sub { messages_published($emulator) >= $before + 3 }, 'what was pending is sent');
	emit_into($node, 'first_release', 'app', 1);
	wait_for(sub { messages_published($emulator) >= $before + 4 }, 'and what is emitted now');
	wait_until($node, 'first_release', 'SELECT pending = 0 FROM postbox.publication_status', 'all is published');
	sent_once($emulator, $node, $before + 4, 'nothing else is');
};
$node->stop;

done_testing();
