# CREATE EXTENSION while running; DROP EXTENSION while running.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator);
$node->start;

subtest 'without the extension there is a launcher and no worker' => sub {
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'postbox launcher' AND application_name = 'postbox launcher'", 'the launcher shows itself');
	wait_workers($node, 'postgres', 0);
};

subtest 'CREATE EXTENSION in a running server starts a worker that publishes' => sub {
	create_outbox($node, 'postgres');
	emit($node, 'postgres', 20);
	wait_published($node, 'postgres', 20);
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM postbox.workers WHERE database = 'postgres' AND state = 'running' AND lock_token ~ '^postbox-[0-9a-f]{16}\$'", 'the worker stands in postbox.workers');
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND application_name = 'postbox publisher' AND pid IN (SELECT pid FROM postbox.workers)", 'and in pg_stat_activity');
};

subtest 'a DROP EXTENSION that is rolled back disturbs nobody' => sub {
	my @before = worker_pids($node, 'postgres');
	$node->safe_psql('postgres', 'BEGIN; DROP EXTENSION postbox CASCADE; ROLLBACK');
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 25);
	is_deeply([ worker_pids($node, 'postgres') ], \@before, 'it is the same worker');
};

subtest 'DROP EXTENSION while events are published does not hang, and the worker leaves quietly' => sub {
	my $position = log_position($node);
	emit($node, 'postgres', 2000);
	$node->safe_psql('postgres', 'DROP EXTENSION postbox CASCADE');
	wait_workers($node, 'postgres', 0);
	my @noise = grep { /postbox publisher/ && /(?:ERROR|FATAL|PANIC|WARNING):/ } split /\n/, undisturbed_log_since($node, $position);
	is_deeply(\@noise, [], 'no error in the log');
	$node->safe_psql('postgres', 'DROP SCHEMA app CASCADE');
};

subtest 'CREATE EXTENSION again, in a transaction with other work, brings the worker back' => sub {
	create_outbox($node, 'postgres');
	emit($node, 'postgres', 3);
	wait_published($node, 'postgres', 3);
};

subtest 'DROP SCHEMA postbox CASCADE ends the workers too' => sub {
	$node->safe_psql('postgres', 'DROP SCHEMA postbox CASCADE');
	wait_workers($node, 'postgres', 0);
	$node->safe_psql('postgres', 'DROP SCHEMA app CASCADE');
};

subtest 'a CREATE EXTENSION that is dropped again before the worker came leaves no worker' => sub {
	# Often, and after another time each, because the worker comes at some moment of its own; none may be in a deadlock with it.
	$node->safe_psql('postgres', "CREATE EXTENSION postbox; SELECT pg_sleep(0.01 * $_); DROP EXTENSION postbox") for 1 .. 8;
	create_outbox($node, 'postgres');
	emit($node, 'postgres', 2);
	wait_published($node, 'postgres', 2);
	$node->safe_psql('postgres', 'DROP EXTENSION postbox CASCADE');
	wait_workers($node, 'postgres', 0);
};

$node->stop;
done_testing();
