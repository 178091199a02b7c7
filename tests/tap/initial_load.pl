# The initial load of docs/guides/initial-load.md, with the SQL that stands there: whatever sessions do to the table meanwhile, the projection ends as
# the table does. No old value stays, no deleted row comes back, and no row is left out.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Docs;
use Postbox::Puller;
use Postbox::Test;
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{POSTBOX_SEED} // time;
srand($seed);
note("POSTBOX_SEED=$seed");

my ($rows, $part) = (3000, 100);
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'deadlock_timeout' => '1s' });
$node->start;
$node->safe_psql(
	'postgres', qq{
	CREATE EXTENSION postbox;
	CREATE SCHEMA catalog;
	SELECT postbox.create_outbox('catalog.outbox');
	SELECT postbox.create_publication('lists', 'catalog.outbox', 'catalog.video.events');
	CREATE TABLE catalog.playlist (playlist_id bigint PRIMARY KEY, title text NOT NULL, note text);
	INSERT INTO catalog.playlist SELECT n * 10, 'old ' || n FROM generate_series(1, $rows) n;
	SELECT postbox.create_change_triggers('catalog.playlist', 'playlist', outbox => 'catalog.outbox', columns => ARRAY['playlist_id', 'title']);
	CREATE SCHEMA read;
	CREATE TABLE read.playlist (playlist_id bigint PRIMARY KEY, title text NOT NULL, version bigint NOT NULL);
	SELECT postbox.create_inbox('read.inbox');
	SELECT postbox.create_subscription('follower', 'read.inbox', 'catalog.video.events.test-follower');
	SELECT postbox.create_projection('read.inbox', ARRAY['playlist.created', 'playlist.updated', 'playlist.deleted'], 'read.playlist', delete_types => ARRAY['playlist.deleted']);
});
my ($procedure, $call) = sql_of('docs/guides/initial-load.md', 'Run the load');
$node->safe_psql('postgres', $procedure);
$call =~ s/load_playlists\(\)/load_playlists(part_size => $part)/ or BAIL_OUT('the documentation calls the procedure in another way');
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

sub check
{
	my ($what) = @_;
	my $differences = '(SELECT playlist_id, title FROM catalog.playlist EXCEPT SELECT playlist_id, title FROM read.playlist)'
	  . ' UNION ALL (SELECT playlist_id, title FROM read.playlist EXCEPT SELECT playlist_id, title FROM catalog.playlist)';
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status}, "$what: all events are published");
	return wait_until($node, 'postgres', "SELECT NOT EXISTS ($differences)", "$what: the projection is the table")
	  || diag($node->safe_psql('postgres', "SELECT * FROM ($differences) d ORDER BY playlist_id LIMIT 10"));
}

# In the middle of the first part, while the load waits for it.
subtest 'a row that a session holds while the load comes to it' => sub {
	my %change = (
		'gets another value' => q{UPDATE catalog.playlist SET title = 'new' WHERE playlist_id = 500},
		'gets a key behind all others' => q{UPDATE catalog.playlist SET playlist_id = 1000005 WHERE playlist_id = 510},
		'gets a key before all others' => q{UPDATE catalog.playlist SET playlist_id = 5 WHERE playlist_id = 520},
		'gets another key of the part' => q{UPDATE catalog.playlist SET playlist_id = 905 WHERE playlist_id = 530},
		'is deleted' => q{DELETE FROM catalog.playlist WHERE playlist_id = 540});
	foreach my $what (sort keys %change)
	{
		$node->safe_psql('postgres', 'TRUNCATE read.playlist, read.inbox, read.inbox_tombstone');
		my $session = $node->background_psql('postgres');
		$session->query_safe("BEGIN; $change{$what}");
		my $load = start_session('load', $call);
		wait_until($node, 'postgres', q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'load' AND wait_event_type = 'Lock')}, "the load waits for a row that $what");
		$session->query_safe('COMMIT');
		finish($load);
		check("a row that $what");
		$session->quit;
	}
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

subtest 'sessions that change the table while it is loaded' => sub {
	$node->safe_psql('postgres', 'TRUNCATE read.playlist, read.inbox, read.inbox_tombstone');
	$node->safe_psql('postgres', qq{BEGIN; SET LOCAL postbox.mute_changes = on; UPDATE catalog.playlist SET title = 'not said ' || playlist_id; COMMIT});
	my @writers = map { my $number = $_; start_session("writer $number", join "\n", map { rand(4) < 1 ? 'BEGIN; ' . statement() . ' ' . statement() . (rand(2) < 1 ? ' ROLLBACK;' : ' COMMIT;') : statement() } 1 .. 400) } 1 .. 3;
	wait_until($node, 'postgres', q{SELECT count(*) > 0 FROM catalog.outbox WHERE event_type <> 'playlist.updated'}, 'they have begun');
	my $load = start_session('load', $call);
	finish($load);
	# A session may lose against another one, as without the load.
	finish($_, 'duplicate key|deadlock detected|transaction is aborted') for @writers;
	check('sessions side by side');
	my $beside = $node->safe_psql('postgres', q{
		WITH event AS (SELECT seq, convert_from(payload, 'UTF8') LIKE '%not said%' AS loaded FROM catalog.outbox)
		SELECT count(*) FROM event WHERE NOT loaded AND seq > (SELECT min(seq) FROM event WHERE loaded) AND seq < (SELECT max(seq) FROM event WHERE loaded)});
	cmp_ok($beside, '>', 0, 'their events are between those of the load');
	note("these are $beside; the load has tried again " . (() = $load->{output} =~ /trying again/g) . ' times');
};

stop_puller($puller);
$node->stop;
done_testing();
