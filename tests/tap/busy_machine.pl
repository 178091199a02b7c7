# A machine that is busy with something else is not the fault of an outbox's owner: a step that waits for the processor is not cancelled.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres');
# A claim computes for 200 ms of the processor's time, and tells how long that took. Sequences keep it also if the claim is rolled back.
$node->safe_psql('postgres', q{
	CREATE SEQUENCE app.took MINVALUE 0;
	CREATE FUNCTION app.ran() RETURNS numeric LANGUAGE sql AS $$ SELECT split_part(pg_read_file('/proc/self/schedstat'), ' ', 1)::numeric / 1e6 $$;
	CREATE FUNCTION app.compute() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		ran numeric := app.ran();
		begun timestamptz := clock_timestamp();
	BEGIN
		WHILE app.ran() < ran + 200 LOOP END LOOP;
		PERFORM setval('app.took', (extract(epoch FROM clock_timestamp() - begun) * 1000)::bigint);
		RETURN NEW;
	END $$;
	CREATE TRIGGER compute BEFORE UPDATE ON app.outbox FOR EACH ROW WHEN (NEW.lock_token IS NOT NULL) EXECUTE FUNCTION app.compute();
});

my $processor = (split /[-,\s]/, (run_command(['taskset', '-cp', $$]))[0] =~ s/.*: //r)[0];
my @busy;
END { kill('KILL', @busy) if @busy; }

sub keep_busy
{
	my ($processes) = @_;
	for (1 .. $processes)
	{
		my $pid = fork() // BAIL_OUT("fork: $!");
		push(@busy, $pid) if $pid;
		next if $pid;
		@busy = ();
		# The system may share the processor among sessions first, and in a session by priority.
		POSIX::setsid();
		alarm(120);
		1 while 1;
	}
	run_command([ 'taskset', '-cp', $processor, $_ ]) for @busy;
	run_command([ 'renice', '-n', '10', '-p', @busy ]);
	return;
}

# Other tests that run now are disturbed as little as may be: all this is at a low priority, on one processor.
wait_workers($node, 'postgres', 1);
my $worker = worker_pid($node, 'postgres');
run_command([ 'taskset', '-cp', $processor, $worker ]);
run_command([ 'renice', '-n', '10', '-p', $worker ]);

# How busy that must be differs. Six others leave it a seventh of the processor.
my $took = 0;
for my $event (1 .. 8)
{
	keep_busy($event == 1 ? 6 : 3);
	emit($node, 'postgres', 1);
	wait_for(sub { messages_published($emulator) >= $event }, 'an event is published') or last;
	$took = $node->safe_psql('postgres', 'SELECT last_value FROM app.took');
	last if $took > 1200;
}
cmp_ok($took, '>', 1200, 'a claim took longer than a step may');
unlike(log_since($node, 0), qr/took longer than/, 'and none was cancelled');
kill('KILL', @busy);
waitpid($_, 0) for @busy;
@busy = ();

# What computes too long in a processor of its own is cancelled as ever.
$node->safe_psql('postgres', q{ALTER SEQUENCE app.took RESTART WITH 0});
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION app.compute() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOOP END LOOP; END $$});
run_command([ 'renice', '-n', '0', '-p', $worker ]);
emit($node, 'postgres', 1);
wait_until($node, 'postgres', q{SELECT last_error LIKE '%took longer than 1000 ms%' FROM postbox.publication_status}, 'one that computes too long is cancelled');

$node->stop;
done_testing();
