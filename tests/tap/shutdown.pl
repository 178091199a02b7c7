# Smart/fast/immediate shutdown; postmaster death.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 2 });
$node->start;
create_outbox($node, 'postgres');
my $events = 0;

sub emit_some
{
	emit($node, 'postgres', 500);
	$events += 500;
	return;
}

# A process that nobody has reaped yet does not run any more.
sub is_running
{
	my ($pid) = @_;
	open(my $file, '<', "/proc/$pid/stat") or return 0;
	my $line = <$file> // '';
	return $line !~ /\) Z /;
}

for my $mode (qw(smart fast immediate))
{
	subtest "$mode shutdown ends the workers without a crash, and nothing is lost" => sub {
		wait_workers($node, 'postgres', 2);
		emit_some();
		my $position = log_position($node);
		$node->stop($mode);
		my $log = log_since($node, $position);
		if ($mode ne 'immediate')
		{
			unlike($log, qr/was terminated by signal|terminating any other active server processes/, 'no crash');
			# The server writes it when it has removed the file with its pid, which is when pg_ctl ends.
			wait_for(sub { log_since($node, $position) =~ /database system is shut down/ }, 'the server has shut down');
		}
		$node->start;
		emit_some();
		wait_published($node, 'postgres', $events);
	};
}

subtest 'a fast shutdown does not wait for a Pub/Sub that does not answer' => sub {
	wait_workers($node, 'postgres', 2);
	kill('STOP', $emulator->{pid});
	emit_some();
	wait_until($node, 'postgres', 'SELECT count(*) > 0 FROM app.outbox WHERE lock_token IS NOT NULL', 'events are on their way');
	$node->stop('fast');
	kill('CONT', $emulator->{pid});
	$node->start;
	wait_published($node, 'postgres', $events);
};

subtest 'workers and launcher do not outlive the postmaster' => sub {
	wait_workers($node, 'postgres', 2);
	my @pids = (launcher_pid($node), worker_pids($node, 'postgres'));
	is(scalar @pids, 3, 'a launcher and two workers');
	emit_some();
	$node->kill9;
	wait_for(sub { !grep { is_running($_) } @pids }, 'all have left');
};

done_testing();
