# A process of the server that is stopped, with a statement of the puller: 10 s after the time for an answer, which is 2 s here, the status, the
# service manager, postbox.doctor() and the log name it. What it does not hold goes on, and SIGTERM is answered.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use File::Temp ();
use IO::Select;
use IO::Socket::UNIX;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Socket qw(SOCK_DGRAM);
use Test::More;
use Time::HiRes qw(time);

my $subscription = 'catalog.video.events.test-follower';
my $emulator = start_emulator('--release-on-disconnect', '--subscription', "$subscription=catalog.video.events,ordered");
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
follow($node, 'postgres', $subscription, 'work', { appliers => 2 });
my $directory = File::Temp->newdir;
my $path = "$directory/notify";
my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $path) or BAIL_OUT("socket: $!");
my $select = IO::Select->new($socket);
my $told = '';
my $emitted = 0;

sub work
{
	my ($prefix, $count) = @_;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('work', '$prefix' || n, 'work', '{}'::jsonb)) FROM generate_series(1, $count) n");
	$emitted += $count;
	return;
}

sub told
{
	my ($pattern) = @_;
	while ($select->can_read(0))
	{
		$socket->recv(my $message, 4096);
		$told .= "$message\n";
	}
	return $told =~ $pattern;
}

sub session_of
{
	my ($name) = @_;
	my $sessions = "FROM pg_stat_activity WHERE application_name = '$name'";
	wait_until($node, 'postgres', "SELECT count(*) > 0 $sessions", "there is a session $name");
	return $node->safe_psql('postgres', "SELECT pid $sessions LIMIT 1");
}

# A session that was stopped does what it had been sent when it goes on, also after the end of the puller: a report.
sub continue_session
{
	kill('CONT', $_[0]);
	return wait_until($node, 'postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $_[0]", 'the session that was stopped ends');
}

sub start_pull
{
	my (%environment) = @_;
	my $puller = start_puller($node, 'postgres', $emulator, alone => 1, grace_period => 2, environment => \%environment, failpoints => [ 'unanswered_time=2000', 'read_time=2000' ]);
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.subscription_status WHERE stream = 'connected'}, 'the puller is there');
	return $puller;
}

my $puller = start_pull(NOTIFY_SOCKET => $path, WATCHDOG_USEC => 180_000_000);
work('first', 3);
wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", 'it applies');
my $stopped = session_of('postbox pull follower');
stop_between_transactions($node, $stopped);
my $begun = time;

subtest 'while its session is stopped, other events go on over another one' => sub {
	work('held', 1);
	wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'one event is with the session that is stopped');
	select(undef, undef, undef, 0.5);
	work('free', 50);
	wait_until($node, 'postgres', 'SELECT count(*) = 50 FROM app.seen WHERE aggregate_id LIKE \'free%\'', 'the next ones are applied');
	cmp_ok(time - $begun, '<', 15, 'at once');
};

subtest 'within 12 s everything that can be asked names it' => sub {
	wait_until($node, 'postgres', "SELECT unanswered_pid = $stopped AND now() - unanswered_since > '1 s' FROM postbox.subscription_status", 'the status');
	wait_for(sub { $puller->{run}->pump_nb; return told(qr/^STATUS=1 of 1 subscriptions streaming; follower: no answer from process $stopped of the server$/m) }, 'the service manager');
	puller_says($puller, qr/a session of the server has not answered.*subscription=follower.*backend=$stopped/, 'the log');
	like($node->safe_psql('postgres', q{SELECT status, subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'subscriptions'}),
		qr/^warning\|follower\|process $stopped of the server has not answered since .*\|.*pg_terminate_backend\($stopped\)/, 'postbox.doctor()');
	cmp_ok(time - $begun, '<', 12, 'within 12 s');
	told(qr/./);
	unlike($told, qr/^WATCHDOG=TRIGGER/m, 'nobody is killed for it');
};

subtest 'the server says that it is stopped, to roles that it belongs to' => sub {
	is($node->safe_psql('postgres', "SELECT postbox.session_is_stopped(pid => '$stopped')"), 't', 'it is stopped');
	is($node->safe_psql('postgres', 'SELECT postbox.session_is_stopped(pg_backend_pid())'), 'f', 'the session that asks is not');
	is($node->safe_psql('postgres', "CREATE ROLE stranger; SET ROLE stranger; SELECT postbox.session_is_stopped($stopped) IS NULL"), 't', 'another role learns nothing');
	is($node->safe_psql('postgres', 'SELECT postbox.session_is_stopped(1) IS NULL'), 't', 'what is no session is not looked at');
};

subtest 'SIGTERM is answered, and the log says what did not answer' => sub {
	stop_puller_within($puller, 2 + 4, 'at the end of the grace period');
	like($puller->{output}, qr/ended without the answer of a session of the server.*subscription=follower.*backend=$stopped/, 'the log names the process');
	continue_session($stopped);
};

subtest 'when it answers again, the status says nothing of it any more' => sub {
	$puller = start_pull();
	$stopped = session_of('postbox pull follower');
	stop_between_transactions($node, $stopped);
	work('again', 1);
	wait_until($node, 'postgres', "SELECT unanswered_pid = $stopped FROM postbox.subscription_status", 'it does not answer');
	kill('CONT', $stopped);
	wait_until($node, 'postgres', 'SELECT unanswered_pid IS NULL AND unanswered_since IS NULL FROM postbox.subscription_status', 'it answers');
	wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", 'every event has taken effect once');
	stop_puller_within($puller, 2 + 4, 'with nothing to do');
};

subtest 'a report is with the session that is stopped: events go on' => sub {
	$puller = start_pull();
	$stopped = session_of('postbox pull follower');
	stop_between_transactions($node, $stopped);
	emulator_fault($emulator, 'rpc=StreamingPull,action=abort-stream,code=UNAVAILABLE,message=away,count=1');
	puller_says($puller, qr/stream failed, trying again/, 'there is something to report');
	select(undef, undef, undef, 1.5);
	my $before = time;
	work('report', 50);
	wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", 'events are applied');
	cmp_ok(time - $before, '<', 10, 'at once');
	wait_until($node, 'postgres', "SELECT applied = 50 FROM postbox.subscription_status", 'and reported');
	stop_puller_within($puller, 2 + 4, 'SIGTERM is answered');
	continue_session($stopped);
};

subtest 'the session of the configuration is stopped: events go on, and the log says it' => sub {
	$puller = start_pull();
	my $configuration = session_of('postbox pull');
	stop_between_transactions($node, $configuration);
	$puller->{run}->signal('HUP');
	work('beside', 20);
	wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", 'events are applied');
	puller_says($puller, qr/(?:the configuration could not be read|the connection for the configuration is lost).*the server has not answered in time/, 'the log says it');
	stop_puller_within($puller, 2 + 4, 'SIGTERM is answered');
	continue_session($configuration);
};

$node->stop;
done_testing();
