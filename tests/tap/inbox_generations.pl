# The current generation of an inbox changes while two pullers apply events, while a purge is killed, and not while a prepared
# transaction holds it off: each event takes effect once, what is delivered again is a duplicate, and the status names what is in the way.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator,
	settings => { 'postbox.poll_interval' => '50ms', 'postbox.publishers' => 1, 'postbox.maintenance_interval' => '1s', 'max_prepared_transactions' => 5, 'restart_after_crash' => 'on' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.seen (id text, generation smallint);
	CREATE FUNCTION app.see(event postbox.event) RETURNS void LANGUAGE sql AS
		$$ INSERT INTO app.seen SELECT event.event_id, i.generation FROM postbox.inbox i $$;
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{seen}', 'app.see(postbox.event)');
	SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.video.events.test-follower');
	-- As if this time had passed.
	CREATE FUNCTION app.pass(by interval) RETURNS void LANGUAGE sql AS
		$$ UPDATE postbox.inbox SET generation_since = generation_since - by, previous_since = previous_since - by $$;
});
sub query { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }
sub current { return query('SELECT generation FROM postbox.inbox'); }
my $emitted = 0;
sub emit_some
{
	my ($count) = @_;
	query(qq{SELECT count(postbox.outbox_emit('video', 'v_' || n % 50, 'seen', '{}'::jsonb)) FROM generate_series(1, $count) n});
	return $emitted += $count;
}
sub all_seen { my ($what) = @_; return wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", $what); }

# Two pullers, and a rotation each second or so.
my @pullers = map { start_puller($node, 'postgres', $emulator) } 1 .. 2;
for my $turn (1 .. 5)
{
	my $before = current();
	emit_some(300);
	query(q{SELECT app.pass('7 days')});
	wait_for(sub { emit_some(20); return current() ne $before }, "a worker rotates while events are applied, turn $turn");
}
all_seen('all events are applied');
is(query('SELECT count(DISTINCT id) FROM app.seen'), $emitted, 'none twice');
cmp_ok(query('SELECT count(DISTINCT generation) FROM app.seen'), '==', 3, 'in all generations');
# All of them again, in batches: those that are kept are duplicates.
my $kept = query('SELECT count(*) FROM app.inbox');
is( query(q{SELECT string_agg(DISTINCT o::text, ' ') FROM (SELECT unnest(postbox.inbox_apply_batch('app.inbox', b.events)) AS o
		FROM (SELECT array_agg(ROW(i.event_id::text, 'seen', 'video', 'v', 1, ''::bytea, NULL, NULL)::postbox.event) AS events FROM app.inbox i GROUP BY get_byte(uuid_send(event_id), 15) % 7) b) a}),
	'duplicate',
	'an event of any generation that is delivered again is a duplicate');
is(query('SELECT count(*) FROM app.inbox'), $kept, 'and leaves no row');
stop_puller($_) for @pullers;

# Killed when a generation is emptied and the next one is current, and nothing of it is committed.
my $before = current();
my $count = query("SELECT count(*) FROM app.inbox WHERE generation = $before");
cmp_ok($count, '>', 0, 'there are ids in the current generation');
cmp_ok($count, '<', $kept, 'and in older ones');
my $position = log_position($node);
$node->append_conf('postgresql.conf', "postbox.failpoint = 'during_rotation=pause'");
query('SELECT pg_reload_conf()');
query(q{SELECT app.pass('30 days')});
wait_for(sub { log_since($node, $position) =~ /failpoint during_rotation: paused/ }, 'a worker is in the middle of a purge');
$node->append_conf('postgresql.conf', "postbox.failpoint = ''");
crash($node, worker_pid($node, 'postgres'));
wait_until($node, 'postgres', "SELECT generation <> $before FROM postbox.inbox", 'a worker rotates after the crash');
is(query('SELECT count(*) FROM app.inbox'), $count, 'and what was older is gone');
emit_some(50);
@pullers = (start_puller($node, 'postgres', $emulator));
all_seen('events are applied after it');
is(query('SELECT count(DISTINCT id) FROM app.seen'), $emitted, 'none twice');
stop_puller($_) for @pullers;

# A prepared transaction that has applied an event holds it off, and the status says so.
query(q{BEGIN; SELECT postbox.inbox_apply('app.inbox', 'prepared', 'other', 'video', 'v', 1, '{}'); PREPARE TRANSACTION 'holds it'});
$before = current();
query(q{SELECT app.pass('20 days')});
query(q{SELECT postbox.purge_inbox('app.inbox')});
is(current(), $before, 'a rotation waits for no prepared transaction');
query(q{SELECT app.pass('2 days')});
is( query('SELECT problem, remedy FROM postbox.inbox_problem'),
	q{event ids older than the retention are kept: the tables are locked by prepared transaction 'holds it'|end it with COMMIT PREPARED or ROLLBACK PREPARED},
	'the status names it');
like(query(q{SELECT detail FROM postbox.doctor() WHERE "check" = 'retention'}), qr/prepared transaction 'holds it'/, 'so does the doctor');
query(q{COMMIT PREPARED 'holds it'});
query(q{SELECT postbox.purge_inbox('app.inbox')});
wait_until($node, 'postgres', "SELECT generation <> $before FROM postbox.inbox", 'after it the inbox rotates');
is(query(q{SELECT postbox.inbox_apply('app.inbox', 'prepared', 'other', 'video', 'v', 1, '{}')}), 'duplicate', 'and its event is known');
is(query('SELECT count(*) FROM postbox.inbox_problem'), '0', 'nothing is wrong');

# A session.
my $session = $node->background_psql('postgres');
$session->query_safe(q{BEGIN; SELECT postbox.inbox_apply('app.inbox', 'held', 'other', 'video', 'v', 1, '{}'), pg_sleep(0)});
my $pid = $session->query_safe('SELECT pg_backend_pid()');
query(q{UPDATE postbox.inbox SET generation_since = '2000-01-01'});
wait_for(sub { query('SELECT problem FROM postbox.inbox_problem') =~ /locked by process $pid/ }, 'the status names a process that has been in its transaction for a while');
$session->query_safe('COMMIT');
$session->quit;
wait_until($node, 'postgres', 'SELECT count(*) = 0 FROM postbox.inbox_problem', 'a worker rotates when it has ended');

# Inboxes are dropped while sessions purge them: a purge does what it can, or says that there is no such inbox.
query('CREATE TABLE app.stop ()');
my $purge = q{DO $$
DECLARE
	due regclass[];
	one regclass;
BEGIN
	LOOP
		SELECT array_agg(relation) INTO due FROM postbox.inbox WHERE relation <> 'app.inbox'::regclass;
		FOREACH one IN ARRAY coalesce(due, '{}') LOOP
			BEGIN
				PERFORM postbox.purge_inbox(one);
			EXCEPTION WHEN undefined_table OR wrong_object_type THEN
				NULL;
			END;
		END LOOP;
		COMMIT;
		EXIT WHEN to_regclass('app.stop') IS NULL;
	END LOOP;
END $$};
my @purges = map {
	my $output = '';
	{ output => \$output, run => IPC::Run::start([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-c', $purge, '-d', $node->connstr('postgres') ], '<', \undef, '>&', \$output) }
} 1 .. 3;
for (1 .. 40)
{
	query(q{SELECT postbox.create_inbox('app.short')});
	query(q{UPDATE postbox.inbox SET generation_since = generation_since - interval '15 days', previous_since = previous_since - interval '30 days' WHERE relation = 'app.short'::regclass});
	query(q{SELECT postbox.drop_inbox('app.short')});
}
query('DROP TABLE app.stop');
for my $session (@purges)
{
	$session->{run}->finish;
	is(${ $session->{output} }, '', 'a session that purges inboxes that are dropped goes on');
}

# A dump in one piece, and one without the registration.
query(q{SELECT app.pass('8 days')});
my $generation = query(q{SELECT postbox.purge_inbox('app.inbox'); SELECT generation FROM postbox.inbox});
query(q{SELECT postbox.inbox_apply('app.inbox', 'dumped', 'other', 'video', 'v', 1, '{}')});
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '--file', $dump, '-d', $node->connstr('postgres') ], 'it is dumped');
$node->safe_psql('postgres', 'CREATE DATABASE whole');
$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-f', $dump, '-d', $node->connstr('whole') ], 'and restored');
is($node->safe_psql('whole', q{SELECT postbox.inbox_apply('app.inbox', id, 'other', 'video', 'v', 1, '{}') FROM unnest('{held,dumped}'::text[]) AS id}),
	"duplicate\nduplicate", 'its events are known there');
is($node->safe_psql('whole', 'SELECT generation FROM postbox.inbox'), query('SELECT generation FROM postbox.inbox'), 'in the same generation');
my $part = $node->basedir . '/part.sql';
$node->command_ok([ 'pg_dump', '--file', $part, '--schema', 'app', '-d', $node->connstr('postgres') ], 'its schema is dumped');
$node->safe_psql('postgres', 'CREATE DATABASE part');
$node->safe_psql('part', 'CREATE EXTENSION postbox');
$node->command_ok([ 'psql', '-X', '-q', '-f', $part, '-d', $node->connstr('part') ], 'and restored without the registration');
$node->safe_psql('part', q{SELECT postbox.register_inbox('app.inbox')});
is($node->safe_psql('part', q{SELECT postbox.inbox_apply('app.inbox', id, 'other', 'video', 'v', 1, '{}') FROM unnest('{held,dumped,new}'::text[]) AS id}),
	"duplicate\nduplicate\nignored", 'when it is registered, its events are known there, too');
is($node->safe_psql('part', q{SELECT count(*) FROM postbox.repair_inbox('app.inbox')}), '0', 'and nothing is to be repaired');

$node->stop;
done_testing();
