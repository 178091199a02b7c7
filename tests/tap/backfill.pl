# Backfills beside sessions that change the table, and through crashes: whatever happens meanwhile, the projection ends as the table does. No old value
# stays, no deleted row comes back, no row is left out, and each version of each row has one event. POSTBOX_ROWS=1000000 is the full size, with a
# PG_TEST_TIMEOUT_DEFAULT of an hour.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my $seed = $ENV{POSTBOX_SEED} // int(time);
srand($seed);
note("POSTBOX_SEED=$seed");

my $rows = $ENV{POSTBOX_ROWS} // 6000;
my $few = 600;    # as many rows as the table has before the crashes
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'deadlock_timeout' => '500ms', 'max_wal_size' => '4GB' });
$node->start;
$node->safe_psql(
	'postgres', qq{
	CREATE EXTENSION postbox;
	CREATE SCHEMA catalog;
	SELECT postbox.create_outbox('catalog.outbox');
	SELECT postbox.create_publication('lists', 'catalog.outbox', 'catalog.video.events');
	CREATE TABLE catalog.playlist (playlist_id bigint PRIMARY KEY, title text NOT NULL, note text);
	INSERT INTO catalog.playlist SELECT n * 10, 'old ' || n FROM generate_series(1, $few) n;
	ANALYZE catalog.playlist;
	SELECT postbox.create_change_triggers('catalog.playlist', 'playlist', outbox => 'catalog.outbox', columns => ARRAY['playlist_id', 'title']);
	CREATE SCHEMA read;
	CREATE TABLE read.playlist (playlist_id bigint PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
	SELECT postbox.create_inbox('read.inbox');
	SELECT postbox.create_subscription('follower', 'read.inbox', 'catalog.video.events.test-follower');
	SELECT postbox.create_projection('read.inbox', ARRAY['playlist.created', 'playlist.updated', 'playlist.deleted'], 'read.playlist', delete_types => ARRAY['playlist.deleted']);
});
my $puller = start_puller($node, 'postgres', $emulator);

my $files = 0;
sub start_session
{
	my ($name, $statements) = @_;
	my $file = PostgreSQL::Test::Utils::tempdir() . '/' . ++$files . '.sql';
	append_to_file($file, $statements);
	my $session = { output => '', name => $name };
	local $ENV{PGAPPNAME} = $name;
	$session->{run} = IPC::Run::start([ 'psql', '-X', '-q', '-f', $file, '-d', $node->connstr('postgres') ], '<', \undef, '>&', \$session->{output});
	return $session;
}

sub finish
{
	my ($session, $allowed) = @_;
	$session->{run}->finish;
	my @odd = grep { /ERROR|FATAL|PANIC/ && !($allowed && /$allowed/) } split /\n/, $session->{output};
	return is_deeply(\@odd, [], "$session->{name} has done what it has to");
}

sub start_backfill
{
	my ($name, $arguments) = @_;
	return start_session("backfill $name", "CALL postbox.run_backfill('$name'" . ($arguments // '') . ');');
}

sub value { my ($query) = @_; return $node->safe_psql('postgres', $query); }
sub state_of { my ($name) = @_; return value("SELECT state FROM postbox.backfill_status WHERE backfill = '$name'"); }
sub wait_state { my ($name, $state) = @_; return wait_until($node, 'postgres', "SELECT state = '$state' FROM postbox.backfill_status WHERE backfill = '$name'", "backfill $name is $state"); }

sub check
{
	my ($what) = @_;
	my $differences = '(SELECT playlist_id, title FROM catalog.playlist EXCEPT SELECT playlist_id, title FROM read.playlist)'
	  . ' UNION ALL (SELECT playlist_id, title FROM read.playlist EXCEPT SELECT playlist_id, title FROM catalog.playlist)';
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status}, "$what: all events are published");
	wait_until($node, 'postgres', "SELECT NOT EXISTS ($differences)", "$what: the projection is the table")
	  || diag($node->safe_psql('postgres', "SELECT * FROM ($differences) d ORDER BY playlist_id LIMIT 10"));
	is(value(q{SELECT count(*) FROM (SELECT FROM catalog.outbox GROUP BY aggregate_id HAVING count(*) <> max(version) OR count(DISTINCT version) <> count(*)) a}),
		0, "$what: each version of each row has one event");
	return is(value(q{SELECT count(*) FROM (SELECT FROM catalog.outbox WHERE attributes ? 'postbox_snapshot' GROUP BY aggregate_id, attributes->>'postbox_snapshot' HAVING count(*) > 1) a}),
		0, "$what: no row was emitted twice");
}

subtest 'a row that a session holds while the backfill comes to it' => sub {
	my %change = (
		'gets another value' => q{UPDATE catalog.playlist SET title = 'new' WHERE playlist_id = 500},
		'gets a key behind all others' => q{UPDATE catalog.playlist SET playlist_id = 100000005 WHERE playlist_id = 510},
		'gets a key before all others' => q{UPDATE catalog.playlist SET playlist_id = 5 WHERE playlist_id = 520},
		'gets another key of the chunk' => q{UPDATE catalog.playlist SET playlist_id = 905 WHERE playlist_id = 530},
		'is deleted' => q{DELETE FROM catalog.playlist WHERE playlist_id = 540});
	foreach my $what (sort keys %change)
	{
		$node->safe_psql('postgres', "TRUNCATE read.playlist, read.inbox, read.inbox_tombstone; SELECT postbox.create_backfill('$what', 'catalog.playlist')");
		my $session = $node->background_psql('postgres');
		$session->query_safe("BEGIN; $change{$what}");
		my $backfill = start_backfill($what);
		wait_until($node, 'postgres', "SELECT state = 'waiting' AND reason LIKE 'another transaction holds a lock: %' FROM postbox.backfill_status WHERE backfill = '$what'",
			"the backfill waits for a row that $what, and says so");
		$session->query_safe('COMMIT');
		finish($backfill);
		is(state_of($what), 'done', 'it is done');
		check("a row that $what");
		$session->quit;
	}
};

subtest 'pause, resume, a second caller, and cancel, from another session' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.create_backfill('hands', 'catalog.playlist'); SELECT postbox.pause_backfill('hands', 'not now')});
	my $session = $node->background_psql('postgres');
	$session->query_safe(q{BEGIN; UPDATE catalog.playlist SET title = 'held' WHERE playlist_id = 4000});
	my $backfill = start_backfill('hands');
	wait_until($node, 'postgres', q{SELECT pid IS NOT NULL FROM postbox.backfill_status WHERE backfill = 'hands'}, 'a session runs it');
	is(value(q{SELECT state, reason, row_count FROM postbox.backfill_status WHERE backfill = 'hands'}), 'paused|not now|0', 'and waits, because it is paused');
	my ($status, undef, $stderr) = $node->psql('postgres', q{CALL postbox.run_backfill('hands')}, extra_params => [ '-v', 'VERBOSITY=verbose' ]);
	like($stderr, qr/55006: a backfill of table .*playlist is running already/, 'a second session is refused');
	$node->safe_psql('postgres', q{SELECT postbox.resume_backfill('hands')});
	wait_until($node, 'postgres', q{SELECT row_count > 0 AND state = 'waiting' FROM postbox.backfill_status WHERE backfill = 'hands'}, 'it goes on, and waits for a row');
	is(value(q{SELECT rows_estimated >= row_count, time_left_estimated IS NOT NULL FROM postbox.backfill_status WHERE backfill = 'hands'}), 't|t', 'and says how long it may take');
	$node->safe_psql('postgres', q{SELECT postbox.cancel_backfill('hands', 'enough')});
	finish($backfill);
	like($backfill->{output}, qr/backfill "hands" is cancelled/, 'the session that runs it returns');
	is(value(q{SELECT state, reason, ended_at IS NOT NULL, pid FROM postbox.backfill_status WHERE backfill = 'hands'}), 'cancelled|enough|t|', 'what is left is its record');
	is(value(q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND mode = 'ExclusiveLock'}), 0, 'and no lock');
	$session->query_safe('COMMIT');
	$session->quit;
	check('a cancelled backfill');
};

subtest 'it gives way to publications that lag' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE');
	$node->safe_psql('postgres', q{UPDATE catalog.playlist SET title = 'waits' WHERE playlist_id = (SELECT min(playlist_id) FROM catalog.playlist)});
	wait_until($node, 'postgres', q{SELECT oldest_ready > interval '300 ms' FROM postbox.publication_status}, 'the publication lags');
	$node->safe_psql('postgres', q{SELECT postbox.create_backfill('lag', 'catalog.playlist')});
	my $backfill = start_backfill('lag', q{, max_lag => '300ms'});
	wait_state('lag', 'waiting');
	like(value(q{SELECT row_count || ' ' || reason FROM postbox.backfill_status WHERE backfill = 'lag'}), qr/^0 publication lists lags by more than max_lag, which is 300 ms$/, 'the status says for which');
	emulator_fault($emulator, '--clear');
	finish($backfill);
	is(state_of('lag'), 'done', 'it goes on when they have caught up');
	check('after the lag');
};

subtest 'a statement that is cancelled while a chunk waits repeats nothing' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.create_backfill('statement', 'catalog.playlist')});
	my $session = $node->background_psql('postgres');
	$session->query_safe(q{BEGIN; UPDATE catalog.playlist SET title = 'held' WHERE playlist_id = 4000});
	my $backfill = start_backfill('statement');
	wait_until($node, 'postgres', q{SELECT row_count > 0 AND state = 'waiting' FROM postbox.backfill_status WHERE backfill = 'statement'}, 'it has emitted some rows, and waits for one');
	$node->safe_psql('postgres', q{SELECT pg_cancel_backend(pid) FROM postbox.backfill_status WHERE backfill = 'statement'});
	finish($backfill, 'canceling statement');
	is(state_of('statement'), 'stopped', 'it is stopped');
	$session->query_safe('COMMIT');
	$session->quit;
	$node->safe_psql('postgres', q{CALL postbox.run_backfill('statement')});
	check('after the cancelled statement');
};

# Statements of one row and of many, in both directions, with keys that change.
sub statement
{
	my ($from, $word) = (10 * int(rand($rows)), int(rand(100000)));
	my $to = $from + int(rand(300));
	my @statements = (
		"UPDATE catalog.playlist SET title = 'changed $word' WHERE playlist_id BETWEEN $from AND $to;",
		"UPDATE catalog.playlist p SET title = 'down $word' FROM (SELECT playlist_id FROM catalog.playlist WHERE playlist_id BETWEEN $from AND $to ORDER BY 1 DESC FOR UPDATE) d WHERE d.playlist_id = p.playlist_id;",
		"DELETE FROM catalog.playlist WHERE playlist_id BETWEEN $from AND " . ($from + 30) . ';',
		"INSERT INTO catalog.playlist VALUES ($from + 1 + $word % 9, 'inserted $word') ON CONFLICT DO NOTHING;",
		"UPDATE catalog.playlist SET playlist_id = 10 * $rows + 10 * $from + $word % 10 WHERE playlist_id = $from;",
		"UPDATE catalog.playlist SET playlist_id = $word - 200000 WHERE playlist_id = $from;",
		"UPDATE catalog.playlist SET playlist_id = $from + 10 - (playlist_id - $from) WHERE playlist_id IN ($from, $from + 10);");
	return $statements[ rand @statements ];
}

sub start_writers
{
	my ($statements) = @_;
	return map { my $number = $_; start_session("writer $number", join "\n", map { rand(4) < 1 ? 'BEGIN; ' . statement() . ' ' . statement() . (rand(2) < 1 ? ' ROLLBACK;' : ' COMMIT;') : statement() } 1 .. $statements) } 1 .. 3;
}

# A session may lose against another one, as without the backfill, and all of them lose the server.
my $lost = 'duplicate key|deadlock detected|transaction is aborted|terminating connection|server closed|connection to server|the database system is|canceling statement';

subtest 'sessions that change the table while it is backfilled, and three crashes' => sub {
	$node->safe_psql('postgres', 'TRUNCATE read.playlist, read.inbox, read.inbox_tombstone');
	$node->safe_psql('postgres', qq{BEGIN; SET LOCAL postbox.mute_changes = on; UPDATE catalog.playlist SET title = 'not said ' || playlist_id;
		INSERT INTO catalog.playlist SELECT n * 10, 'old ' || n FROM generate_series($few + 1, $rows) n; COMMIT; ANALYZE catalog.playlist});
	$node->safe_psql('postgres', q{SELECT postbox.create_backfill('crashes', 'catalog.playlist')});
	my $begin = time;
	my $statements = $rows > 100000 ? int($rows / 500) : 100;
	foreach my $crash ('the backend of the backfill is killed', 'the publisher worker is killed', 'the server is stopped at once')
	{
		my @writers = start_writers($statements);
		my $count = value(q{SELECT row_count FROM postbox.backfill_status WHERE backfill = 'crashes'});
		# Chunks are small, so that it does not end too early.
		my $backfill = start_backfill('crashes', $rows > 100000 ? '' : q{, max_chunk_time => '1ms'});
		my $more = int($rows / ($rows > 100000 ? 8 : 40));
		wait_until($node, 'postgres', "SELECT row_count > $count + $more FROM postbox.backfill_status WHERE backfill = 'crashes'", "it has emitted some rows before $crash");
		isnt(state_of('crashes'), 'done', 'it is not done yet');
		if ($crash =~ /stopped/)
		{
			$node->stop('immediate');
			$node->start;
		}
		else
		{
			my $which = $crash =~ /worker/ ? q{backend_type = 'postbox publisher'} : q{application_name = 'backfill crashes'};
			crash($node, value("SELECT pid FROM pg_stat_activity WHERE $which"));
		}
		finish($_, $lost) for $backfill, @writers;
		is(state_of('crashes'), 'stopped', "$crash: the status says that no session runs it");
	}
	my @writers = start_writers($statements);
	my $backfill = start_backfill('crashes');
	finish($backfill);
	note(sprintf('%d rows in %.1f s', value(q{SELECT row_count FROM postbox.backfill_status WHERE backfill = 'crashes'}), time - $begin));
	finish($_, $lost) for @writers;
	check('sessions side by side');
	my $beside = value(q{
		WITH event AS (SELECT seq, attributes ? 'postbox_snapshot' AS loaded FROM catalog.outbox WHERE seq > (SELECT min(seq) FROM catalog.outbox WHERE attributes->>'postbox_snapshot' = 'crashes'))
		SELECT count(*) FROM event WHERE NOT loaded AND seq < (SELECT max(seq) FROM event WHERE loaded)});
	cmp_ok($beside, '>', 0, 'their events are between those of the backfill');
	note("these are $beside");
};

stop_puller($puller);
$node->stop;
done_testing();
