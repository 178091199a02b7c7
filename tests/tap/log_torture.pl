# Many writers of every kind against a log outbox in three lanes, read in small chunks, with one transaction
# open all the time: nothing is lost, nothing is sent twice, and each key comes in order. Then the same while
# workers are killed and the server restarts: nothing is lost, and in order but for repeats.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Load;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $seconds = $ENV{POSTBOX_TORTURE_SECONDS} // 6;
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.read_chunk_size' => 11,
	'postbox.poll_interval' => '50ms',
	'max_prepared_transactions' => 50,
	'max_connections' => 60,
});
$node->start;
create_outbox($node, 'postgres', kind => 'log', lanes => 3);
# A new generation every second, so that all partitions are written to and read.
$node->safe_psql('postgres', q{UPDATE postbox.outbox SET generation_span = '1 second' WHERE relation = 'app.outbox'::regclass;
	SELECT format('ALTER TABLE app.outbox ALTER generation SET DEFAULT (%s)', postbox.generation_expression('1 second')) \gexec});
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.changed');
$node->safe_psql('postgres', 'CREATE SEQUENCE app.gid; CREATE SEQUENCE app.copied');
wait_until($node, 'postgres', 'SELECT count(*) = 3 AND count(DISTINCT lock_token) = 1 FROM postbox.lane WHERE lock_token IS NOT NULL', 'one worker has all lanes');
$node->append_conf('postgresql.conf', 'postbox.publishers = 3');
$node->reload;

my $emit = q{SELECT postbox.outbox_emit('video', 'key-' || :key, 'video.changed', '{}'::jsonb);};
my $undone = q{SELECT postbox.outbox_emit('video', 'key-' || :key, 'video.undone', '{}'::jsonb);};
my %scripts = (
	short => "BEGIN; $emit $emit COMMIT;",
	long => "BEGIN; $emit \n\\sleep 200 ms\n $emit COMMIT;",
	savepoint => "BEGIN; $emit SAVEPOINT s; $undone ROLLBACK TO s; $emit RELEASE s; COMMIT;",
	rolled_back => "BEGIN; $undone \n\\sleep 5 ms\n ROLLBACK;",
	# The transaction id is old when the sequence number is taken.
	early => "BEGIN; SELECT pg_current_xact_id(); \n\\sleep 150 ms\n $emit COMMIT;",
	prepared => "SELECT nextval('app.gid') AS gid \\gset\nBEGIN; $emit PREPARE TRANSACTION 'p:gid';\n\\sleep 60 ms\nCOMMIT PREPARED 'p:gid';",
	# As COPY and plain INSERT do: only the defaults of txid and seq.
	plain => q{INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), 'video', 'plain-' || c, 'video.changed', n, '{}' FROM nextval('app.copied') c, generate_series(1, 3) n;});
my $tmp = $PostgreSQL::Test::Utils::tmp_check;
for my $name (keys %scripts) { append_to_file("$tmp/$name.sql", "\\set key random(1, 40)\n$scripts{$name}\n"); }

sub start_writers
{
	my ($clients) = @_;
	my %weights = (short => 6, long => 3, early => 3);
	my @files = map { ('-f', "$tmp/$_.sql@" . ($weights{$_} // 2)) } sort keys %scripts;
	my $output = '';
	return IPC::Run::start(
		[ 'pgbench', '-n', '-c', $clients, '-j', '2', '-T', $seconds, @files, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'<', \undef, '>&', \$output);
}

sub copy_some
{
	my ($number) = @_;
	my $rows = join '', map { join("\t", sprintf('%08x-0000-4000-8000-%012x', $number, $_), 'video', "copy-$number", 'video.changed', $_, '{}') . "\n" } 1 .. 20;
	$node->safe_psql('postgres', "COPY app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload) FROM stdin;\n$rows\\.\n");
}

sub check_arrival
{
	wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'all events are published');
	wait_until($node, 'postgres', 'SELECT (SELECT count(*) FROM app.seen) = (SELECT count(*) FROM app.outbox)', 'all events have arrived: none is lost')
	  or diag($node->safe_psql('postgres', q{SELECT o.txid, o.seq, o.aggregate_id, o.version, o.tableoid::regclass, (SELECT string_agg(DISTINCT x.txid::text, ' ') FROM app.outbox x WHERE x.seq BETWEEN o.seq - 12 AND o.seq + 12) FROM app.outbox o
		WHERE NOT EXISTS (SELECT FROM app.seen s WHERE s.aggregate_id = o.aggregate_id AND s.version = o.version) ORDER BY o.seq; SELECT * FROM postbox.lane}));
	is( $node->safe_psql('postgres', q{
		SELECT count(*) FROM (SELECT version, lag(version, 1, 0::bigint) OVER (PARTITION BY aggregate_id ORDER BY n) AS before FROM app.seen) e
		WHERE version <> before + 1}), '0', 'each key came in the order of its versions, without a gap');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.outbox WHERE event_type = 'video.undone'}), '0', 'what was rolled back is not there');
}

wait_workers($node, 'postgres', 3);
wait_until($node, 'postgres', 'SELECT count(DISTINCT lock_token) = 3 FROM postbox.lane', 'the one worker of the beginning has left two of its lanes to the others');
my $puller = start_puller($node, 'postgres', $emulator);

subtest 'without crashes nothing is lost, nothing is sent twice, and each key is in order' => sub {
	my $held = $node->background_psql('postgres');
	$held->query_safe(q{BEGIN; SELECT postbox.outbox_emit('video', 'held', 'video.changed', '{}'::jsonb)});
	my $writers = start_writers(24);
	copy_some($_) for 1 .. 5;
	$writers->finish;
	is($writers->result(0), 0, 'the writers succeeded');
	wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'all that is committed is published while a transaction is open');
	$held->query_safe('COMMIT');
	$held->quit;
	check_arrival();
	my $events = $node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox');
	cmp_ok($events, '>', 100, "$events events");
	sent_once($emulator, $node, $events, 'each was sent once');
};

subtest 'with workers killed and the server restarted nothing is lost and each key is in order' => sub {
	for my $round (1 .. 3)
	{
		end_prepared($node, 'postgres');
		my $writers = start_writers(12);
		my $before = $node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox');
		wait_until($node, 'postgres', "SELECT count(*) > $before + 50 FROM app.outbox", 'writers write');
		if ($round == 2) { $node->stop('immediate'); $node->start; }
		else
		{
			my $pid = worker_pid($node, 'postgres');
			crash($node, $pid);
		}
		$writers->finish;
		wait_workers($node, 'postgres', 3);
	}
	end_prepared($node, 'postgres');
	check_arrival();
};

stop_puller($puller);
$node->stop;
done_testing();
