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

sub with_trigger
{
	my ($function, $act) = @_;
	$node->safe_psql('postgres', "SELECT setval('app.tries', 1, false); CREATE TRIGGER passing BEFORE UPDATE ON app.outbox FOR EACH STATEMENT EXECUTE FUNCTION app.$function()");
	my $position = log_position($node);
	my ($worker) = worker_pids($node, 'postgres');
	$act->($worker);
	my $log = log_since($node, $position);
	unlike($log, qr/is suspended/, 'the publication was not suspended');
	is($node->safe_psql('postgres', 'SELECT max(attempts) FROM postbox.lane'), '0', 'no failed attempt is counted');
	is((worker_pids($node, 'postgres'))[0], $worker, 'the worker is the same');
	$node->safe_psql('postgres', 'DROP TRIGGER passing ON app.outbox');
	return;
}

# The server reports them after a while.
sub deadlocks { return $node->safe_psql('postgres', q{SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'}); }

subtest 'a deadlock with a session that alters the outbox' => sub {
	my $before = deadlocks();
	with_trigger('look', sub {
		my $pid = fork() // BAIL_OUT("fork: $!");
		if ($pid == 0)
		{
			open(STDOUT, '>', '/dev/null');
			exec('psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', q{SET deadlock_timeout = '60s'}, '-c', q{
				BEGIN;
				LOCK TABLE app.other IN ACCESS EXCLUSIVE MODE;
				DO $$ BEGIN
					WHILE NOT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'app.other'::regclass) LOOP PERFORM pg_sleep(0.001); END LOOP;
				END $$;
				ALTER TABLE app.outbox ADD COLUMN note text;
				COMMIT});
			POSIX::_exit(127);
		}
		wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_locks WHERE granted AND mode = 'AccessExclusiveLock' AND relation = 'app.other'::regclass}, 'the session has its first lock');
		emit($node, 'postgres', 5);
		waitpid($pid, 0);
		is($?, 0, 'the session has altered the outbox');
		wait_published($node, 'postgres', 10);
	});
	wait_for(sub { deadlocks() > $before }, 'there was a deadlock');
};

subtest 'a serialization failure in code of the owner' => sub {
	with_trigger('conflict', sub {
		emit($node, 'postgres', 5);
		wait_published($node, 'postgres', 15);
	});
	cmp_ok($node->safe_psql('postgres', 'SELECT last_value FROM app.tries'), '>', 3, 'there were some');
};

subtest 'a statement that an administrator cancels' => sub {
	with_trigger('rest', sub {
		my ($worker) = @_;
		emit($node, 'postgres', 5);
		wait_until($node, 'postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE pid = $worker AND wait_event = 'PgSleep'", 'it is cancelled');
		wait_published($node, 'postgres', 20);
	});
};

subtest 'an idle worker that an administrator cancels' => sub {
	with_trigger('look', sub {
		my ($worker) = @_;
		$node->safe_psql('postgres', "SELECT pg_cancel_backend($worker)") for 1 .. 10;
		emit($node, 'postgres', 5);
		wait_published($node, 'postgres', 25);
	});
};

subtest 'a lock on what the worker reads its publications from' => sub {
	with_trigger('look', sub {
		my $position = log_position($node);
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
		wait_published($node, 'postgres', 30);
		unlike(log_since($node, $position), qr/could not read the publications/, 'nothing is logged');
	});
};

$node->stop;
done_testing();
