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

# How often the worker has looked for new events, by what the server counts.
sub looks
{
	my ($index) = @_;
	return $node->safe_psql('postgres', "SELECT coalesce(sum(idx_scan), 0) FROM pg_stat_all_indexes WHERE schemaname = 'app' AND indexrelname LIKE '$index'");
}

# How often it has given up the processor by itself: it has slept so often.
sub sleeps { my ($pid) = @_; return (slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m)[0]; }

my %index = (log => 'log%\_seq_idx', tab => 'tab\_claim');
$node->safe_psql('postgres', qq{SELECT postbox.create_outbox('app.$_->[0]', '$_->[1]'); SELECT postbox.create_publication('$_->[0]', 'app.$_->[0]', 'catalog.video.events')})
  for [ 'log', 'log' ], [ 'tab', 'table' ];
# That has looked, too: for what the publications begin with.
$node->safe_psql('postgres', 'SELECT pg_stat_reset()');
$node->safe_psql('postgres', "SELECT postbox.outbox_emit('video', 'one', 'video.changed', '{}'::jsonb, outbox => 'app.$_')") for sort keys %index;
wait_for(sub { messages_published($emulator) >= 2 }, 'events are published');
wait_reported($node);
my %looks = map { $_ => looks($index{$_}) } keys %index;
cmp_ok($looks{$_}, '>', 0, "it has looked at $_") for sort keys %index;
# What is measured is that nothing happens, for some seconds.
my $pid = worker_pid($node, 'postgres');
my $sleeps = sleeps($pid);
select(undef, undef, undef, 5);
$sleeps = sleeps($pid) - $sleeps;
cmp_ok(looks($index{$_}), '<=', $looks{$_} + 1, "and does so no more at $_") for sort keys %index;
# For a look at leases, and a moment later to report what that has counted.
cmp_ok($sleeps, '<', 4, "it woke up $sleeps times");

$node->stop;
done_testing();
