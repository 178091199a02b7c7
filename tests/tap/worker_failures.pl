# Worker killed (-9) and cluster recovers; worker ERROR restarts with backoff; and
# other ways for workers and launcher to end.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
# The launcher begins once in a second at most, not once in five.
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.time_scale' => 20 });
$node->start;
create_outbox($node, 'postgres');
emit($node, 'postgres', 5);
wait_published($node, 'postgres', 5);

subtest 'a worker that raises an error is started again, after a longer time each time' => sub {
	my $position = log_position($node);
	with_new_workers($node, 'postgres', 'postbox.failpoint', 'after_claim=error');
	emit($node, 'postgres', 5);
	my @delays;
	wait_for(sub {
		@delays = log_since($node, $position) =~ /postbox publisher of database "postgres" failed, starting it again in (\d+) ms/g;
		return @delays >= 4;
	}, 'four failures are in the log');
	is_deeply(\@delays, [ sort { $a <=> $b } @delays ], "the delays grow: @delays");
	cmp_ok($delays[3], '>', $delays[0], 'and do not stay the same');
	set_configuration($node, 'postbox.failpoint', undef);
	$node->reload;
	wait_published($node, 'postgres', 10);
};

subtest 'a worker that is killed (-9) makes the cluster recover, and publishing goes on' => sub {
	my $worker = worker_pid($node, 'postgres');
	my $launcher = launcher_pid($node);
	crash($node, $worker);
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'postbox launcher' AND pid <> $launcher", 'there is a new launcher');
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 15);
};

subtest 'a worker that is terminated with pg_terminate_backend comes back' => sub {
	wait_workers($node, 'postgres', 1);
	my $before = worker_pid($node, 'postgres');
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($before)");
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND pid <> $before", 'as another process');
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 20);
};

subtest 'a launcher that is terminated comes back with workers of its own' => sub {
	wait_workers($node, 'postgres', 1);
	my $before = worker_pid($node, 'postgres');
	my $launcher = launcher_pid($node);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($launcher)");
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND pid <> $before", 'another worker has taken over');
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 25);
};

subtest 'when the server has no room for all workers, the log names the setting and the others publish' => sub {
	my $position = log_position($node);
	# Two of them go to the launchers of Postbox and of logical replication.
	$node->append_conf('postgresql.conf', "max_worker_processes = 3\npostbox.publishers = 2");
	$node->restart;
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 30);
	wait_for(sub { log_since($node, $position) =~ /WARNING:\s+could not start all postbox publishers.*max_worker_processes is 3.*Raise max_worker_processes/s }, 'it says so');
};

$node->stop;
done_testing();
