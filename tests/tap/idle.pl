# A server with publications, inboxes, workers and a puller, and nothing to do: it writes nothing.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

# So long nothing happens. Leases, checkpoints, retention, repairs and the look of the launcher at all databases, every 12 s, are due meanwhile.
my $seconds = 13;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
# wal_level is minimal, or the server itself logged the transactions that run, every 15 s after something was written.
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2, 'postbox.lease_timeout' => '10s', 'postbox.time_scale' => 20, 'postbox.maintenance_interval' => '2s',
	'autovacuum' => 'off' });
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql('postgres', q{
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', lanes => 3);
	SELECT postbox.create_outbox('app.other');
	SELECT postbox.create_publication('other', 'app.other', 'catalog.video.events');
});
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.created');
my $puller = start_puller($node, 'postgres', $emulator);

# Transaction ids and bytes of WAL.
sub counts { return $node->safe_psql('postgres', q{SELECT pg_snapshot_xmax(pg_current_snapshot()) || ' ' || pg_current_wal_insert_lsn() - '0/0'}); }

# How often a process has given up the processor by itself: it has slept so often.
sub sleeps
{
	my ($pid) = @_;
	my ($count) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;
	return $count;
}

my $emitted = 0;

sub emit_everywhere
{
	$node->safe_psql('postgres', qq{
		SELECT count(postbox.outbox_emit('video', 'v' || n, 'video.created', '{}'::jsonb, outbox => o))
		FROM generate_series(1, 20) n, unnest('{app.outbox,app.log,app.other}'::regclass[]) o});
	$emitted += 60;
	wait_until($node, 'postgres', 'SELECT sum(pending) = 0 FROM postbox.publication_status', 'all is published');
	return wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", 'and applied');
}

wait_workers($node, 'postgres', 2);
emit_everywhere();

subtest "nothing happens for $seconds s: no transaction id, no WAL, few wake-ups" => sub {
	$node->safe_psql('postgres', 'VACUUM');
	$node->safe_psql('postgres', 'CHECKPOINT');
	my @pids = (worker_pids($node, 'postgres'), launcher_pid($node));
	my (@sleeps, $since, $quiet, $late);
	my $before = '';
	# What has just been done leaves work behind for some seconds: positions, reports of the puller, rows to prune. The time begins again
	# with everything that is written, until for five seconds nothing was.
	wait_for(sub {
		my $now = counts();
		if ($now ne $before)
		{
			$late = "$before, then $now" if $quiet;
			($before, $since, @sleeps) = ($now, time, map { sleeps($_) } @pids);
		}
		$quiet ||= time - $since >= 5;
		return $late || time - $since >= $seconds;
	}, 'nothing is left to be done');
	is($late, undef, 'transaction ids and bytes of WAL are as they were');
	my @slept = map { sleeps($pids[$_]) - $sleeps[$_] } 0 .. $#pids;
	# The poll, every second. Leases are looked through and retention is applied every few seconds. One of the two measures the gauges as well:
	# with postbox.time_scale at 20 twice a second, and not every 10 s.
	my ($one, $measures) = sort { $a <=> $b } @slept[0, 1];
	cmp_ok($one, '<=', 8 * $seconds, "a worker woke up $one times");
	cmp_ok($measures, '<=', 11 * $seconds, "the one that measures the gauges woke up $measures times");
	cmp_ok($slept[2], '<=', 3, "the launcher woke up $slept[2] times");
};

subtest 'work is done at once afterwards' => sub {
	emit_everywhere();
};

stop_puller($puller);
$node->stop;
done_testing();
