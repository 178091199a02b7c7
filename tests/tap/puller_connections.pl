# The puller is gone at the end of its grace period wherever libpq waits: for any step of a new connection, for an answer, for
# room to send, or for a pooler whose connections are all in use. Nothing is lost: what was not applied comes again, and what
# was applied without being acknowledged comes again and is a duplicate.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Pooler;
use Postbox::Puller;
use Postbox::Relay;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

# A puller needs half a second of it for its end; that of the product, which is 2 s, and a longer grace period are tested once.
my $grace = 1;
my $subscription = 'catalog.video.events.test-follower';
my $emulator = start_emulator('--subscription', "$subscription=catalog.video.events,ordered");
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '1s' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
follow($node, 'postgres', $subscription, 'work');
$node->safe_psql('postgres', q{UPDATE postbox.subscription SET appliers = 2, statement_timeout = '1min'});
my $relay = start_relay($node);
my $through_relay = "host=127.0.0.1 port=$relay->{port} dbname=postgres";
my $emitted = 0;

sub work
{
	my ($count, $bytes) = @_;
	my $payload = "jsonb_build_object('x', repeat('x', " . ($bytes // 1) . '))';
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('work', 'k' || n, 'work', $payload)) FROM generate_series(1, $count) n");
	$emitted += $count;
	wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'the events are published');
	return;
}

sub start_pull
{
	my ($dsn, $period, @failpoints) = @_;
	push @failpoints, 'closing_time=500' unless $period;
	return start_puller($node, 'postgres', $emulator, alone => 1, dsn => $dsn, grace_period => $period || $grace, failpoints => \@failpoints);
}

# Where libpq waits, the process ends a moment before the end of its grace period, which a loaded machine may not manage. What would
# hold it up lasts for 10 s or more.
my $late = 4;
sub leaves { my ($puller, $what) = @_; return stop_puller_within($puller, $grace + $late, $what); }

sub sessions
{
	my ($name) = @_;
	return split /\n/, $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE application_name = '$name'");
}

sub wait_connected
{
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.subscription_status WHERE stream = 'connected'}, 'its stream is connected');
	wait_for(sub { sessions('postbox pull follower') >= 1 }, 'and so is the first of its appliers');
	return;
}

sub state_until
{
	my ($condition, $what, $of) = @_;
	$of //= $relay;
	return wait_for(sub { $condition->(relay_state($of)) }, $what) || diag(explain(relay_state($of)));
}

# Another puller gets what was given back. Returns how many of its events were duplicates.
sub all_seen
{
	my ($what) = @_;
	my $before = counted($emulator, 'acked');
	my $puller = start_pull($node->connstr('postgres'));
	wait_until($node, 'postgres', "SELECT count(*) >= $emitted FROM app.seen", "$what: nothing is lost") or diag($puller->{output});
	is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT (aggregate_id, version)) FROM app.seen'), "$emitted|$emitted", 'and nothing has taken effect twice');
	wait_for(sub { all_acknowledged($emulator) }, 'everything is acknowledged');
	# What it took is acknowledged, and is in its next report. The one before it may have left a report that it had no way to remove.
	my $report = 'FROM postbox.subscription_status ORDER BY started_at DESC LIMIT 1';
	my $took = counted($emulator, 'acked') - $before;
	wait_until($node, 'postgres', "SELECT applied + duplicates = $took $report", 'it reports');
	my $duplicates = $node->safe_psql('postgres', "SELECT duplicates $report");
	leaves($puller, 'with nothing to do');
	return $duplicates;
}

subtest 'how many connections it needs is the first thing that it says' => sub {
	my $puller = start_pull($node->connstr('postgres'));
	puller_says($puller, qr/subscription started/, 'it starts');
	my @lines = split /\n/, $puller->{output};
	like($lines[0], qr/opens connections to the database.* one=?.*each applier/, 'in general in the first line');
	like($puller->{output}, qr/connections=2 at_most=3 .*appliers=2/, 'and in numbers when it knows its subscriptions');
	wait_connected();
	is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%'}), '2', 'it has what it needs');
	$node->safe_psql('postgres', 'UPDATE postbox.subscription SET appliers = 5');
	$puller->{run}->signal('HUP');
	puller_says($puller, qr/connections=2 at_most=6 .*appliers=5/, 'and again when their number changes');
	leaves($puller, 'with nothing to do');
	$node->safe_psql('postgres', 'UPDATE postbox.subscription SET appliers = 2');
	like(`$ENV{POSTBOX} pull --help`, qr/one connection.*each applier/s, 'so does --help');
};

subtest 'its first connection stops at any step' => sub {
	# Nothing; the refusal of TLS; AuthenticationOk; in the middle of the parameters; and where TLS would begin.
	my @tries = map { { mode => $_, relay => start_relay($node) } } 'startup 1', 'startup 10', 'startup 60', 'tls', 'startup 0';
	$tries[-1]{period} = 3;
	foreach my $try (@tries)
	{
		relay_mode($try->{relay}, $try->{mode});
		$try->{puller} = start_pull("host=127.0.0.1 port=$try->{relay}{port} dbname=postgres", $try->{period});
	}
	state_until(sub { $_[0]{accepted} > 0 }, 'it connects', $_->{relay}) foreach @tries;
	my $begin = time;
	$_->{puller}{run}->signal('TERM') foreach @tries;
	foreach my $try (@tries)
	{
		end_puller_within($try->{puller}, $begin, ($try->{period} // $grace) + $late, "after $try->{mode}");
		state_until(sub { $_[0]{open} == 0 }, 'and leaves no connection behind', $try->{relay});
	}
};

subtest 'its appliers connect again, and each connection stops at a step' => sub {
	foreach my $mode ('startup 0', 'startup 10', 'tls')
	{
		my $puller = start_pull($through_relay);
		wait_connected();
		my $before = relay_state($relay)->{accepted};
		relay_mode($relay, $mode);
		$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postbox pull follower'});
		work(3);
		state_until(sub { $_[0]{accepted} > $before }, 'they connect again');
		leaves($puller, "after $mode");
		relay_mode($relay, 'pass');
	}
	all_seen('after the connections that stopped');
};

subtest 'the statement has taken effect, and its answer does not come' => sub {
	my $puller = start_pull($through_relay);
	wait_connected();
	relay_mode($relay, 'deaf');
	work(20);
	wait_until($node, 'postgres', "SELECT count(*) > $emitted - 20 FROM app.seen", 'events are applied');
	leaves($puller, 'while it waits for the answer');
	relay_mode($relay, 'pass');
	my $applied = $node->safe_psql('postgres', "SELECT count(*) - ($emitted - 20) FROM app.seen");
	cmp_ok(all_seen('after answers that did not come'), '>=', $applied, "the $applied that had taken effect come again, as duplicates");
};

subtest 'nobody reads what it sends' => sub {
	my $puller = start_pull($through_relay);
	wait_connected();
	state_until(sub { $_[0]{unread} == 0 }, 'it has said what it had to say');
	relay_mode($relay, 'hold');
	# More than the buffers of two sockets.
	work(3, 9_000_000);
	state_until(sub { $_[0]{unread} > 0 }, 'it sends');
	leaves($puller, 'while there is no room to send');
	relay_mode($relay, 'pass');
	is(all_seen('after statements that were not read'), 0, 'all of it comes for the first time');
};

subtest 'the grace period counts from the signal, also while a subscription is started again' => sub {
	my $puller = start_pull($node->connstr('postgres'), 0, 'reconfigure_time=60000');
	wait_connected();
	my @stopped = sessions('postbox pull follower');
	stop_between_transactions($node, @stopped);
	work(5);
	my $changed = $node->safe_psql('postgres', 'UPDATE postbox.subscription SET batch_size = 400 RETURNING clock_timestamp()');
	$puller->{run}->signal('HUP');
	wait_until($node, 'postgres', "SELECT query_start > '$changed' FROM pg_stat_activity WHERE application_name = 'postbox pull'", 'it reads its configuration');
	wait_for(sub { counted($emulator, 'streams') == 0 }, 'it has closed the stream');
	leaves($puller, 'while it waits a minute for appliers of the old configuration');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.subscription_status'), '0', 'its report is removed');
	kill('CONT', @stopped);
	all_seen('after a restart of the subscription that did not end');
};

subtest 'attempts to connect that are given up end' => sub {
	my $puller = start_pull("$through_relay connect_timeout=0", 0, 'connect_time=1000');
	wait_connected();
	my $before = relay_state($relay)->{accepted};
	relay_mode($relay, 'startup 0');
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%'});
	work(3);
	my $most = 0;
	state_until(sub { $most = $_[0]{open} if $_[0]{open} > $most; return $_[0]{accepted} >= $before + 5 }, 'it tries again and again');
	# One applier at a time and the configuration, each of which may be tried again before the attempt before has ended.
	cmp_ok($most, '<=', 4, 'and has never more than a few open');
	leaves($puller, 'while it tries');
	relay_mode($relay, 'pass');
	all_seen('after attempts that were given up');
};

# Waits until so many clients wait for a connection of the pool.
sub pool_waits
{
	my ($pooler, $count) = @_;
	return wait_for(sub {
			my ($pools) = run_command([ 'psql', '-XAtq', '-c', 'SHOW POOLS', "$pooler->{dsn}pgbouncer" ]);
			return $pools =~ /^postgres\|postgres\|\d+\|(\d+)\|/m && $1 >= $count;
	}, "$count of its connections wait for the pool");
}

# A session that has the only connection of the pool.
sub take_pool
{
	my ($pooler) = @_;
	my $session = { in => "BEGIN; SELECT 'taken';\n", out => '' };
	$session->{run} = IPC::Run::start([ 'psql', '-XAtq', "$pooler->{dsn}postgres" ], '<', \$session->{in}, '>', \$session->{out});
	wait_for(sub { $session->{run}->pump_nb; return $session->{out} =~ /taken/ }, 'another session has the only connection of the pool');
	return $session;
}

SKIP:
{
	skip 'pgbouncer is not installed', 1 unless has_pooler();

	subtest 'the pool is full before it starts' => sub {
		my $pooler = start_pooler($node, user => 'postgres', pool_mode => 'transaction', pool_size => 1);
		my $session = take_pool($pooler);
		my $puller = start_pull("$pooler->{dsn}postgres");
		pool_waits($pooler, 1);
		leaves($puller, 'while its first statement waits for the pool');
		$session->{run}->finish;
		stop_pooler($pooler);
	};

	subtest 'the pool becomes full while it runs' => sub {
		my $pooler = start_pooler($node, user => 'postgres', pool_mode => 'transaction', pool_size => 1);
		my $puller = start_pull("$pooler->{dsn}postgres", 0, 'reload_interval=1000');
		wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.subscription_status WHERE stream = 'connected'}, 'its stream is connected');
		work(5);
		wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", 'it applies through one connection, though it has several to the pooler');
		my $session = take_pool($pooler);
		work(50);
		pool_waits($pooler, 2);
		leaves($puller, 'while its appliers wait for the pool');
		$session->{run}->finish;
		is(all_seen('after a pool that was full'), 0, 'none of them had taken effect');
		stop_pooler($pooler);
	};

	subtest 'the pool keeps sessions, and is too small for it' => sub {
		my $pooler = start_pooler($node, user => 'postgres', pool_mode => 'session', pool_size => 1);
		my $puller = start_pull("$pooler->{dsn}postgres");
		work(5);
		pool_waits($pooler, 1);
		puller_says($puller, qr/connections=2 at_most=3 /, 'it has said how many connections it needs');
		leaves($puller, 'while its appliers wait for the session that it has itself');
		all_seen('after a pool that was too small');
		stop_pooler($pooler);
	};
}

$node->stop;
done_testing();
