# A worker that has nothing to do looks at an outbox once a poll, and not because of its own timers.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '60s', 'autovacuum' => 'off' });
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE SCHEMA app');

# How often the worker has looked for new events, by what the server counts. An idle worker reports within a second.
sub looks
{
	my ($index) = @_;
	return $node->safe_psql('postgres', "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_all_indexes WHERE schemaname = 'app' AND indexrelname LIKE '$index'");
}

# How often it has given up the processor by itself: it has slept so often.
sub sleeps { my ($pid) = @_; return (slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m)[0]; }

my %index = (log => 'log%\_seq_idx', tab => 'tab\_claim');
my $sent = 0;
for my $outbox ('log', 'tab')
{
	my $kind = $outbox eq 'log' ? 'log' : 'table';
	subtest "an idle worker does not look at a $kind" => sub {
		$node->safe_psql(
			'postgres', qq{
			SELECT postbox.create_outbox('app.$outbox', '$kind');
			SELECT postbox.create_publication('$outbox', 'app.$outbox', 'catalog.video.events');
		});
		# That has looked, too: for what the publication begins with.
		$node->safe_psql('postgres', 'SELECT pg_stat_reset()');
		$node->safe_psql('postgres', "SELECT postbox.outbox_emit('video', 'one', 'video.changed', '{}'::jsonb, outbox => 'app.$outbox')");
		++$sent;
		wait_for(sub { messages_published($emulator) >= $sent }, 'an event is published');
		my $read = -1;
		my $looks;
		wait_for(sub { ($read, $looks) = ($looks // -1, looks($index{$outbox})); select(undef, undef, undef, 2); $looks > 0 && $read == $looks },
			'the worker becomes idle');
		cmp_ok($looks, '>', 0, 'it has looked');
		# What is measured is that nothing happens, for some seconds.
		my ($pid) = worker_pids($node, 'postgres');
		my $sleeps = sleeps($pid);
		select(undef, undef, undef, 5);
		$sleeps = sleeps($pid) - $sleeps;
		cmp_ok(looks($index{$outbox}), '<=', $looks + 1, 'and does so no more');
		# For a look at leases, and a second later to report what that has counted.
		cmp_ok($sleeps, '<', 4, "it woke up $sleeps times");
	};
}

$node->stop;
done_testing();
