# SIGHUP changes settings.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Relay;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $other;
my $node = new_node('main', emulator => $emulator, settings => { 'max_prepared_transactions' => 5, 'postbox.maintenance_interval' => '1h', 'autovacuum' => 'off' });
$node->start;
create_outbox($node, 'postgres');
emit($node, 'postgres', 5);
wait_published($node, 'postgres', 5);

sub set
{
	my ($name, $value) = @_;
	$node->append_conf('postgresql.conf', "$name = '$value'");
	$node->reload;
	return;
}

subtest 'postbox.publishers starts and stops workers' => sub {
	set('postbox.publishers', 3);
	wait_workers($node, 'postgres', 3);
	wait_until($node, 'postgres', "SELECT array_agg(ordinal ORDER BY ordinal) = '{0,1,2}' AND count(DISTINCT lock_token) = 3 FROM postbox.workers WHERE state = 'running'", 'each is another one');
	emit($node, 'postgres', 50);
	wait_published($node, 'postgres', 55);
	set('postbox.publishers', 1);
	wait_workers($node, 'postgres', 1);
};

subtest 'with postbox.publishers = 0 events wait, and leave when it is raised again' => sub {
	set('postbox.publishers', 0);
	wait_workers($node, 'postgres', 0);
	emit($node, 'postgres', 5);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE published_at IS NULL'), '5', 'nobody publishes');
	set('postbox.publishers', 1);
	wait_published($node, 'postgres', 60);
};

# Stops the next process that the postmaster starts, and returns its pid, if it has the configuration of the postmaster and does
# not hear of another yet: a background worker begins by ignoring SIGHUP, which also drops one that has come before.
sub stop_newborn
{
	my ($postmaster) = slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/;
	my $children = sub { return split ' ', slurp_file("/proc/$postmaster/task/$postmaster/children") };
	my %old = map { $_ => 1 } $children->();
	my $newborn;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while (!$newborn && time < $end) { ($newborn) = grep { !$old{$_} } $children->(); }
	return unless $newborn && kill('STOP', $newborn);
	my ($ignored) = slurp_file("/proc/$newborn/status") =~ /^SigIgn:\s+(\w+)$/m;
	return $newborn unless hex($ignored) & 1;
	kill('CONT', $newborn);
	return;
}

subtest 'a reload that comes while a worker starts is not lost' => sub {
	set('postbox.failpoint', 'after_claim=pause');
	my $newborn;
	wait_for(sub {
		my ($pid) = worker_pids($node, 'postgres') or return 0;
		# The session that ends it is one of the processes that are there.
		my $session = $node->background_psql('postgres');
		$session->query_safe("SELECT pg_terminate_backend($pid)");
		$newborn = stop_newborn();
		$session->quit;
		return $newborn;
	}, 'a worker is stopped that does not listen yet');
	set('postbox.failpoint', '');
	kill('CONT', $newborn);
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 65, 'it has heard of the reload');
	is_deeply([ worker_pids($node, 'postgres') ], [$newborn], 'it was the worker');
};

subtest 'postbox.endpoint takes effect in the running worker' => sub {
	$other = start_emulator();
	wait_workers($node, 'postgres', 1);
	set('postbox.endpoint', $other->{endpoint});
	stop_emulator($emulator);
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 70);
};

subtest 'postbox.compression = gzip makes requests smaller, and so does it no more when it is off again' => sub {
	my $relay = start_relay($other->{address});
	set('postbox.endpoint', "http://127.0.0.1:$relay->{port}");
	my $count = 70;
	# How many bytes come to Pub/Sub for an event of 500,000.
	my $bytes = sub {
		my $before = relay_state($relay)->{said};
		$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'video-1', 'video.created', to_jsonb(repeat('x', 500000)))});
		wait_published($node, 'postgres', ++$count);
		return relay_state($relay)->{said} - $before;
	};
	# A reload has come to the worker when a request is of another size than the last one.
	my $becomes = sub {
		my ($condition, $what) = @_;
		my $now;
		wait_for(sub { return $condition->($now = $bytes->()) }, $what);
		return note("$now bytes");
	};
	$becomes->(sub { $_[0] > 500_000 }, 'as it is');
	set('postbox.compression', 'gzip');
	$becomes->(sub { $_[0] < 50_000 }, 'compressed');
	set('postbox.compression', 'off');
	$becomes->(sub { $_[0] > 500_000 }, 'as it is again');
	set('postbox.endpoint', $other->{endpoint});
	# As many as before, for what follows.
	$node->safe_psql('postgres', 'DELETE FROM app.outbox');
	emit($node, 'postgres', 70);
	wait_published($node, 'postgres', 70);
};

subtest 'a value that makes no sense is refused, and the workers go on with the old one' => sub {
	my $position = log_position($node);
	set('postbox.publishers', 'many');
	wait_for(sub { log_since($node, $position) =~ /invalid value for parameter "postbox.publishers"/ }, 'the log says so');
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 75);
};

subtest 'a commit wakes the worker, which need not wait for its poll' => sub {
	set('postbox.poll_interval', '60s');
	wait_until($node, 'postgres', "SELECT current_setting('postbox.poll_interval') = '1min'", 'the poll is a minute away');
	my $count = 75;
	my $start = time;
	for (1 .. 3)
	{
		emit($node, 'postgres', 1);
		wait_published($node, 'postgres', ++$count);
	}
	# Nobody knows what a prepared transaction did, so COMMIT PREPARED wakes too.
	$node->safe_psql('postgres', q{
		BEGIN;
		SELECT postbox.outbox_emit('video', 'video-1', 'video.created', '{}'::jsonb);
		PREPARE TRANSACTION 'emits';
	});
	$node->safe_psql('postgres', q{COMMIT PREPARED 'emits'});
	wait_published($node, 'postgres', ++$count, 'the event of a prepared transaction');
	$node->safe_psql('postgres', q{
		SELECT postbox.alter_publication('videos', aggregate_types => '{other}');
		SELECT postbox.outbox_emit('video', 'video-1', 'video.created', '{}'::jsonb);
	});
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', aggregate_types => '{}')});
	wait_published($node, 'postgres', ++$count, 'an event that waited for its publication');
	cmp_ok(time - $start, '<', 120, 'five waits took less than two polls');
};

subtest 'a shorter postbox.maintenance_interval does not wait for the end of the longer one' => sub {
	$node->safe_psql('postgres', "UPDATE app.outbox SET published_at = now() - interval '8 days'");
	set('postbox.maintenance_interval', '1s');
	wait_until($node, 'postgres', 'SELECT count(*) = 0 FROM app.outbox', 'what is older than the retention is purged');
};

$node->stop;
done_testing();
