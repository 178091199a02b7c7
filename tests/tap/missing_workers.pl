# Fewer workers than postbox.publishers says, or none: those that live publish everything, and a publication that nobody
# serves says so, with the cause.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Cluster;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my %settings = ('postbox.poll_interval' => '200ms', 'postbox.checkpoint_interval' => '50ms', 'postbox.lease_timeout' => '10s');
my $node = new_node('main', emulator => $emulator, allows_streaming => 1, settings => { %settings, 'postbox.publishers' => 4, 'max_worker_processes' => 3 });
$node->start;
create_outbox($node, 'postgres', kind => 'log', lanes => 4);

sub wait_empty { my ($what) = @_; return wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', $what); }

sub wait_state
{
	my ($server, $state, $reason, $what) = @_;
	return wait_until($server, 'postgres', "SELECT state = '$state' AND coalesce(last_error, '') ~ '$reason' FROM postbox.publication_status", $what);
}

sub set
{
	my ($name, $value) = @_;
	set_configuration($node, $name, $value);
	return;
}

# The leases of workers that stand still last so many percent of postbox.lease_timeout.
sub set_scale
{
	my ($percent) = @_;
	set('postbox.time_scale', $percent);
	$node->reload;
	return;
}

# An attempt failed long ago, as the one of a worker that the machine was too busy for, and there has been nothing to publish since.
sub fail_once_before { return $node->safe_psql('postgres', q{UPDATE postbox.publication_state SET attempts = 1, next_retry_at = now() - interval '1 hour', suspended_since = now() - interval '2 hours'}); }

# How many lanes each living worker has.
use constant SHARES => q{SELECT string_agg(n::text, ' ' ORDER BY n) FROM (
	SELECT count(l.slice) AS n FROM postbox.workers w LEFT JOIN postbox.lane l USING (lock_token) WHERE w.state = 'running' GROUP BY w.pid) s};
sub wait_shares { my ($shares, $what) = @_; return wait_until($node, 'postgres', "SELECT (@{[SHARES]}) = '$shares'", $what); }

subtest 'four workers are configured and one has room: it publishes all keys' => sub {
	emit($node, 'postgres', 100);
	wait_empty('all are published');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.workers WHERE pid IS NOT NULL'), '1', 'by one worker');
	is($node->safe_psql('postgres', SHARES), '4', 'which has all lanes');
	wait_state($node, 'active', '^$', 'the publication is active');
};

subtest 'lanes are shared by those that live' => sub {
	set('max_worker_processes', 16);
	$node->restart;
	wait_shares('1 1 1 1', 'each of four has one');
	set('postbox.restart_delay', '60s');
	$node->reload;
	my @pids = worker_pids($node, 'postgres');
	wait_until($node, 'postgres', q{SELECT current_setting('postbox.restart_delay') = '1min'}, 'a worker that ends stays away');
	sleep 1;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pids[0]), pg_terminate_backend($pids[1])");
	wait_shares('2 2', 'two are left, and have two each');
	emit($node, 'postgres', 100);
	wait_empty('all are published');
};

subtest 'the lanes of a worker that stands still go to the others, and it does not disturb when it comes back' => sub {
	my ($stopped, @others) = worker_pids($node, 'postgres');
	set_scale(20);
	stop_between_transactions($node, $stopped);
	wait_until($node, 'postgres', qq{
		SELECT count(*) = 4 FROM postbox.lane l JOIN postbox.workers w USING (lock_token) WHERE w.pid <> $stopped}, 'they are taken over after postbox.lease_timeout');
	emit($node, 'postgres', 100);
	wait_empty('all are published');
	my $position = log_position($node);
	kill('CONT', $stopped);
	wait_for(sub { log_since($node, $position) =~ /lane \d was taken over/ }, 'it finds out');
	set_scale(100);
	wait_shares('2 2', 'and has its share again');
	emit($node, 'postgres', 100);
	wait_empty('all are published');
};

subtest 'a worker that takes other lanes when its publication is altered leaves none behind' => sub {
	my ($stopped, $other) = worker_pids($node, 'postgres');
	stop_between_transactions($node, $stopped);
	# As if it had not come to take its lanes yet.
	$node->safe_psql('postgres', qq{UPDATE postbox.lane SET lock_token = NULL WHERE lock_token = (SELECT lock_token FROM postbox.workers WHERE pid = $stopped)});
	for my $attempts (11 .. 18)
	{
		my $now = $node->safe_psql('postgres', 'SELECT now()');
		$node->safe_psql('postgres', "SELECT postbox.alter_publication('videos', max_attempts => $attempts)");
		wait_until($node, 'postgres', "SELECT count(*) >= 2 FROM postbox.lane WHERE locked_at > '$now'", "altered $attempts: the other one has its share again");
	}
	kill('CONT', $stopped);
	wait_shares('2 2', 'both have their share');
	emit($node, 'postgres', 100);
	wait_empty('all are published');
};

subtest 'nobody serves a publication: its state says so, and why' => sub {
	# What stays away for a minute is forgotten by a launcher that begins anew.
	set('postbox.publishers', 2);
	set('postbox.restart_delay', '100ms');
	$node->restart;
	wait_shares('2 2', 'both workers have their share');
	set('postbox.publishers', 0);
	$node->reload;
	wait_state($node, 'unserved', 'no worker publishes it: postbox.publishers is 0; raise it', 'no workers are wanted');
	set('postbox.publishers', 2);
	$node->reload;
	wait_state($node, 'active', '^$', 'it is served again');
	set('max_worker_processes', 2);
	$node->restart;
	wait_state($node, 'unserved', 'all background worker slots of the server are in use; raise max_worker_processes, which is 2,', 'no room for a worker');
	set('max_worker_processes', 1);
	$node->restart;
	wait_state($node, 'unserved', 'the launcher is not running.*max_worker_processes, which is 1,', 'no room for the launcher');
	set('max_worker_processes', 16);
	set('shared_preload_libraries', '');
	$node->restart;
	wait_state($node, 'unserved', 'postbox is not in shared_preload_libraries; add it', 'not preloaded');
	set('shared_preload_libraries', 'postbox');
	$node->restart;
	wait_state($node, 'active', '^$', 'it is served again');
};

subtest 'a worker that stands still while it is alone is named' => sub {
	set('postbox.publishers', 1);
	$node->reload;
	wait_workers($node, 'postgres', 1);
	my $pid = worker_pid($node, 'postgres');
	set_scale(20);
	stop_between_transactions($node, $pid);
	fail_once_before();
	wait_state($node, 'unserved', "worker process $pid does not respond", 'after postbox.lease_timeout');
	kill('CONT', $pid);
	wait_state($node, 'active', '^$', 'it goes on');
	set_scale(100);
};

subtest 'a standby says that its primary publishes' => sub {
	fail_once_before();
	$node->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($node, 'backup', has_streaming => 1);
	$standby->start;
	wait_state($standby, 'unserved', 'this server is a standby', 'on the standby');
	$standby->stop;
};

subtest 'what nobody has begun to read is pending, however far the other lanes are' => sub {
	set('postbox.publishers', 0);
	$node->reload;
	wait_workers($node, 'postgres', 0);
	$node->safe_psql('postgres', 'DELETE FROM postbox.lane WHERE slice = 1');
	my $count = $node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE postbox.lane_slice(aggregate_id, 4) = 1');
	cmp_ok($count, '>', 0, 'a lane has events');
	is($node->safe_psql('postgres', 'SELECT pending, "position" FROM postbox.publication_status'), "$count|0", 'and no row yet: they are pending');
};

$node->stop;
done_testing();
