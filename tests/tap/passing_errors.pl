# Errors that say nothing about the outbox: somebody was in the way for a moment. The worker tries again soon, and the
# publication is not suspended.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use POSIX ();
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
# The worker gives up waiting for a lock after 100 ms, and looks for a deadlock before.
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'deadlock_timeout' => '30ms', 'log_lock_waits' => 'off' });
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql('postgres', q{
	CREATE TABLE app.other (n int);
	CREATE SEQUENCE app.tries;
	CREATE FUNCTION app.look() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM FROM app.other; RETURN NULL; END';
	CREATE FUNCTION app.conflict() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		IF nextval('app.tries') <= 3 THEN RAISE EXCEPTION 'could not serialize' USING ERRCODE = '40001'; END IF; RETURN NULL; END$$;
	CREATE FUNCTION app.rest() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		IF nextval('app.tries') <= 1 THEN PERFORM pg_sleep(60); END IF; RETURN NULL; END$$;
});
emit($node, 'postgres', 5);
wait_published($node, 'postgres', 5);

# Starts a session that runs these commands by itself. Returns its process.
sub start_session
{
	my (@commands) = @_;
	my $pid = fork() // BAIL_OUT("fork: $!");
	if ($pid == 0)
	{
		open(STDOUT, '>', '/dev/null');
		exec('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), map { ('-c', $_) } @commands)
		  or POSIX::_exit(127);
	}
	return $pid;
}

sub wait_all_published { return wait_until($node, 'postgres', 'SELECT count(*) = count(published_at) FROM app.outbox', 'all events are published'); }

# What is in the way of the worker is so for a few milliseconds. Where it is so for the second after which the worker rightly complains,
# the machine was too busy for the test, and it is done again.
sub with_trigger
{
	my ($function, $act) = @_;
	$node->safe_psql('postgres', "CREATE TRIGGER passing BEFORE UPDATE ON app.outbox FOR EACH STATEMENT EXECUTE FUNCTION app.$function()");
	my $complaint = qr/is suspended|could not read the publications/;
	my ($worker, $log);
	for (1 .. 3)
	{
		# By another worker, since one that has complained does not write it again for a while.
		$node->restart if defined $log;
		wait_workers($node, 'postgres', 1);
		($worker) = worker_pids($node, 'postgres');
		$node->safe_psql('postgres', q{SELECT setval('app.tries', 1, false)});
		my $position = log_position($node);
		$act->($worker);
		wait_all_published();
		$log = log_since($node, $position);
		last unless $log =~ $complaint;
	}
	unlike($log, $complaint, 'the worker has not complained');
	is($node->safe_psql('postgres', 'SELECT max(attempts) FROM postbox.publication_state'), '0', 'no failed attempt is counted');
	is((worker_pids($node, 'postgres'))[0], $worker, 'the worker is the same');
	$node->safe_psql('postgres', 'DROP TRIGGER passing ON app.outbox');
	return;
}

# The server reports them after a while.
sub deadlocks { return $node->safe_psql('postgres', q{SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'}); }

subtest 'a deadlock with a session that alters the outbox' => sub {
	my $before = deadlocks();
	with_trigger('look', sub {
		my $pid = start_session(q{SET deadlock_timeout = '60s'}, q{
			BEGIN;
			LOCK TABLE app.other IN ACCESS EXCLUSIVE MODE;
			DO $$ BEGIN
				WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'app.other'::regclass) LOOP PERFORM pg_sleep(0.001); END LOOP;
			END $$;
			ALTER TABLE app.outbox ADD COLUMN IF NOT EXISTS note text;
			COMMIT});
		wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock' AND relation = 'app.other'::regclass}, 'the session has its first lock');
		emit($node, 'postgres', 5);
		waitpid($pid, 0);
		is($?, 0, 'the session has altered the outbox');
	});
	wait_for(sub { deadlocks() > $before }, 'there was a deadlock');
};

subtest 'a serialization failure in code of the owner' => sub {
	with_trigger('conflict', sub {
		emit($node, 'postgres', 5);
	});
	cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM app.tries'), '>', 3, 'there were some');
};

subtest 'a statement that an administrator cancels' => sub {
	with_trigger('rest', sub {
		my ($worker) = @_;
		# The session is there before the step is, which has a second. It looks until the step is tried again.
		my $pid = start_session(q{SET application_name = 'administrator'}, qq{
			DO \$\$ BEGIN
				WHILE (SELECT count(pg_cancel_backend(pid)) = 0 FROM pg_stat_activity WHERE pid = $worker AND wait_event = 'PgSleep')
					AND (SELECT last_value FROM app.tries) = 1
				LOOP PERFORM pg_sleep(0.01), pg_stat_clear_snapshot(); END LOOP;
			END \$\$});
		wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'administrator' AND wait_event = 'PgSleep'}, 'an administrator waits');
		emit($node, 'postgres', 5);
		waitpid($pid, 0);
		is($?, 0, 'the step is cancelled');
	});
};

subtest 'an idle worker that an administrator cancels' => sub {
	with_trigger('look', sub {
		my ($worker) = @_;
		$node->safe_psql('postgres', "SELECT pg_cancel_backend($worker)") for 1 .. 10;
		emit($node, 'postgres', 5);
	});
};

subtest 'a lock on what the worker reads its publications from' => sub {
	with_trigger('look', sub {
		my ($held, undef, $error) = $node->psql('postgres', q{
			BEGIN; LOCK TABLE postbox.publication IN ACCESS EXCLUSIVE MODE; SELECT pg_reload_conf();
			DO $$ DECLARE first text; next text; BEGIN
				-- Another wait than the first one: that was in vain.
				LOOP
					SELECT l.waitstart::text INTO next FROM pg_locks l WHERE NOT l.granted AND l.relation = 'postbox.publication'::regclass;
					first := coalesce(first, next);
					EXIT WHEN next <> first;
					PERFORM pg_sleep(0.005);
				END LOOP;
			END $$;
			COMMIT});
		is($held, 0, 'the worker waited for it, in vain') or diag($error);
		emit($node, 'postgres', 5);
	});
};

$node->stop;
done_testing();
