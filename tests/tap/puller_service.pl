# `postbox pull` as a service of systemd: what it tells over NOTIFY_SOCKET, when the watchdog hears nothing more, and how it gets its
# secrets. The socket is the test's own.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use File::Temp ();
use IO::Select;
use IO::Socket::UNIX;
use PostgreSQL::Test::Utils;
use Postbox::Puller;
use Postbox::Test;
use Socket qw(SOCK_DGRAM);
use Test::More;

my $subscription = 'catalog.video.events.test-follower';
my $emulator = start_emulator('--release-on-disconnect', '--subscription', "$subscription=catalog.video.events,ordered");
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '200ms' });
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql('postgres', "SELECT postbox.create_inbox('app.inbox')");

my $directory = File::Temp->newdir;
my $path = "$directory/notify";
my $socket = IO::Socket::UNIX->new(Type => SOCK_DGRAM, Local => $path) or BAIL_OUT("socket: $!");
my $select = IO::Select->new($socket);
my @told;

sub take_messages
{
	while ($select->can_read(0))
	{
		$socket->recv(my $message, 4096);
		push @told, split /\n/, $message;
	}
	return;
}

# How many messages have matched.
sub told { my ($pattern) = @_; take_messages(); return scalar(grep { /$pattern/ } @told); }

sub start_service
{
	my ($watchdog_seconds, @failpoints) = @_;
	take_messages();
	@told = ();
	return start_puller($node, 'postgres', $emulator, grace_period => 3,
		failpoints => \@failpoints,
		environment => { NOTIFY_SOCKET => $path, ($watchdog_seconds ? (WATCHDOG_USEC => $watchdog_seconds * 1_000_000) : ()) });
}

# Waits until `pattern` has come `count` times. What the puller logs meanwhile must not fill its pipe.
sub is_told
{
	my ($puller, $pattern, $count, $what) = @_;
	return wait_for(sub { $puller->{run}->pump_nb; return told($pattern) >= $count }, $what) || diag("@told\n$puller->{output}");
}

sub ends
{
	my ($puller, $what) = @_;
	stop_puller($puller);
	is(told(qr/^STOPPING=1$/), 1, "$what: that it ends is told once");
	return;
}

subtest 'without a subscription there is nothing to wait for' => sub {
	my $puller = start_service();
	is_told($puller, qr/^READY=1$/, 1, 'ready');
	is(told(qr/^STATUS=no subscription$/), 1, 'the status says why it does nothing');
	ends($puller, 'without work');
};

$node->safe_psql('postgres', "SELECT postbox.create_subscription('follower', 'app.inbox', '$subscription', statement_timeout => '1s')");

subtest 'ready once messages can come, not before' => sub {
	emulator_fault($emulator, 'rpc=StreamingPull,code=UNAVAILABLE');
	my $puller = start_service();
	puller_says($puller, qr/stream failed, trying again.*\n(?:.*\n)*.*stream failed, trying again/, 'Pub/Sub cannot be reached');
	is(told(qr/^READY=1$/), 0, 'not ready');
	is_told($puller, qr/^STATUS=0 of 1 subscriptions streaming$/, 1, 'the status says so');
	emulator_fault($emulator, '--clear');
	is_told($puller, qr/^READY=1$/, 1, 'ready when the stream is open');
	wait_until($node, 'postgres', q{SELECT stream = 'connected' FROM postbox.subscription_status}, 'and it is open');
	is_told($puller, qr/^STATUS=1 of 1 subscriptions streaming$/, 1, 'the status says so');
	is(told(qr/^WATCHDOG=1$/), 0, 'nobody wants to hear that it is alive');
	ends($puller, 'while it streams');
	is(told(qr/^READY=1$/), 1, 'ready was told once');
};

subtest 'a subscription that Pub/Sub does not know holds up no other' => sub {
	$node->safe_psql('postgres', "SELECT postbox.create_subscription('wrong', 'app.inbox', 'no.such.subscription')");
	my $puller = start_service();
	is_told($puller, qr/^READY=1$/, 1, 'ready');
	is_told($puller, qr/^STATUS=1 of 2 subscriptions streaming$/, 1, 'the status says that one is missing');
	ends($puller, 'with one that failed');
	$node->safe_psql('postgres', "SELECT postbox.drop_subscription('wrong')");
};

subtest 'the watchdog hears of a puller that waits, for events or for Pub/Sub' => sub {
	my $puller = start_service(2, 'stuck_time=2000');
	is_told($puller, qr/^WATCHDOG=1$/, 6, 'while there are no events');    # longer than a thread may be stuck
	emulator_fault($emulator, 'rpc=StreamingPull,action=abort-stream', 'rpc=StreamingPull,code=UNAVAILABLE');
	is_told($puller, qr/^STATUS=0 of 1 subscriptions streaming$/, 1, 'the stream is gone') if told(qr/^READY=1$/) or is_told($puller, qr/^READY=1$/, 1, 'ready');
	my $before = told(qr/^WATCHDOG=1$/);
	is_told($puller, qr/^WATCHDOG=1$/, $before + 5, 'a restart would not help when Pub/Sub cannot be reached');
	emulator_fault($emulator, '--clear');
	ends($puller, 'watched');
};

subtest 'the watchdog hears nothing of a puller of which a thread is stuck' => sub {
	my $puller = start_service(1, 'before_apply=hang', 'stuck_time=1000');
	is_told($puller, qr/^READY=1$/, 1, 'ready');
	emit($node, 'postgres', 5);
	puller_says($puller, qr{no progress; /livez fails, and the watchdog is no longer notified.*subscription=follower}, 'the log says which subscription it is');
	my $before = told(qr/^WATCHDOG=1$/);
	puller_says($puller, qr/(?:no progress.*\n(?s:.)*){4}/, 'time passes, and the main thread still looks');
	is(told(qr/^WATCHDOG=1$/), $before, 'nothing is told from then on');
	# What systemd does then.
	$puller->{run}->signal('ABRT');
	$puller->{run}->finish;
};

subtest 'secrets come from the directory that the service manager names' => sub {
	my $credentials = File::Temp->newdir;
	PostgreSQL::Test::Utils::append_to_file("$credentials/password", "s3cret\n");
	$node->safe_psql('postgres', "CREATE ROLE reader LOGIN SUPERUSER PASSWORD 's3cret'");
	my $hba = $node->data_dir . '/pg_hba.conf';
	my $hba_before = slurp_file($hba);
	open(my $file, '>', $hba) or BAIL_OUT("$hba: $!");
	print $file "local all reader scram-sha-256\nhost all reader all scram-sha-256\n$hba_before";
	close($file);
	$node->reload;
	my %connection = (PGHOST => $node->host, PGPORT => $node->port, PGDATABASE => 'postgres', PGUSER => 'reader');
	take_messages();
	@told = ();
	my $start = sub {
		my (%environment) = (%connection, @_);
		delete local $ENV{PGAPPNAME};
		my $endpoint = delete $environment{endpoint} // $emulator->{endpoint};
		local @ENV{ keys %environment } = values %environment;
		my $puller = { output => '' };
		$puller->{run} = IPC::Run::start([ $ENV{POSTBOX}, 'pull', '--endpoint', $endpoint, '--project', 'postbox-dev', '--grace-period', 3 ],
			'<', \undef, '>&', \$puller->{output});
		return $puller;
	};
	my $without = $start->();
	puller_says($without, qr/no password supplied/, 'without it there is no way in');
	$without->{run}->signal('TERM');
	$without->{run}->finish;
	my $puller = $start->(CREDENTIALS_DIRECTORY => "$credentials", NOTIFY_SOCKET => $path);
	is_told($puller, qr/^READY=1$/, 1, 'with it there is');
	my $pid = $puller->{run}->{KIDS}[0]{PID};
	unlike(slurp_file("/proc/$pid/cmdline") . slurp_file("/proc/$pid/environ"), qr/s3cret/, 'it is neither in the arguments nor in the environment that others see');
	emit($node, 'postgres', 1);
	wait_until($node, 'postgres', 'SELECT count(*) >= 1 FROM app.inbox', 'and events are applied');
	ends($puller, 'as another role');
	append_to_file("$credentials/google.json", 'this is no JSON');
	my $google = $start->(CREDENTIALS_DIRECTORY => "$credentials", endpoint => 'https://127.0.0.1:1');
	puller_says($google, qr{\Q$credentials\E/google\.json}, 'credentials for Pub/Sub are taken from there, too');
	$google->{run}->signal('TERM');
	$google->{run}->finish;
};

$node->stop;
done_testing();
