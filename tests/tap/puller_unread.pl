# Standard error and standard output that nothing reads, as full pipes, hold up neither the puller nor the emulator: events are applied, and
# SIGTERM ends them. Once the pipe is read, the puller says how many lines were dropped.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Fcntl qw(F_GETFL F_SETFL O_NONBLOCK);
use IO::Select;
use IO::Socket::INET;
use POSIX ();
use PostgreSQL::Test::Cluster;
use Postbox::Delivery;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

# A pipe that is full. Each end is closed by its owner.
sub full_pipe
{
	pipe(my $reader, my $writer) or BAIL_OUT("pipe: $!");
	my $flags = fcntl($writer, F_GETFL, 0);
	fcntl($writer, F_SETFL, $flags | O_NONBLOCK);
	1 while syswrite($writer, '.' x 4096);
	fcntl($writer, F_SETFL, $flags);
	return ($reader, $writer);
}

# Starts a program of which both outputs are the pipe.
sub start_with
{
	my ($writer, @command) = @_;
	my $pid = fork() // BAIL_OUT("fork: $!");
	if ($pid == 0)
	{
		open(STDOUT, '>&', $writer) and open(STDERR, '>&', $writer) and open(STDIN, '<', '/dev/null') and exec(@command);
		POSIX::_exit(127);
	}
	close($writer);
	return $pid;
}

# On a loaded machine a process that ends needs a moment.
sub ends_soon
{
	my ($pid, $what) = @_;
	my $begin = time;
	kill('TERM', $pid);
	my $ended = wait_for(sub { return waitpid($pid, POSIX::WNOHANG()) == $pid }, "$what ends at SIGTERM");
	my ($status, $took) = ($?, time - $begin);
	kill('KILL', $pid), waitpid($pid, 0), return unless $ended;
	is($status, 0, "$what leaves cleanly");
	cmp_ok($took, '<', 2 + 4, "$what ends soon");
	note(sprintf('%s: %.1f s', $what, $took));
	return;
}

# Reads until the text matches.
sub says
{
	my ($reader, $text, $pattern, $what) = @_;
	return wait_for(sub {
		sysread($reader, $$text, 65536, length $$text) while $$text !~ $pattern && IO::Select->new($reader)->can_read(0.05);
		return $$text =~ $pattern;
	}, $what) || diag(substr($$text, -2000));
}

my $subscription = 'catalog.video.events.test-follower';
my $emulator = start_emulator('--release-on-disconnect', '--subscription', "$subscription=catalog.video.events,ordered");
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', qq{
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_subscription('follower', 'app.inbox', '$subscription');
});
# Each event has a line.
my @pull = ($ENV{POSTBOX}, 'pull', '--dsn', $node->connstr('postgres'), '--endpoint', $emulator->{endpoint}, '--project', 'postbox-dev', '--grace-period', 1);
$ENV{SPDLOG_LEVEL} = 'debug';

subtest 'a puller whose log nothing reads' => sub {
	my ($reader, $writer) = full_pipe();
	my $pid = start_with($writer, @pull);
	emit($node, 'postgres', 20);
	wait_until($node, 'postgres', 'SELECT count(*) = 20 FROM app.inbox', 'events are applied');
	ends_soon($pid, 'the puller');
	close($reader);
};

subtest 'what was dropped is counted, and said when the pipe is read' => sub {
	my ($reader, $writer) = full_pipe();
	my $pid = start_with($writer, @pull);
	emit($node, 'postgres', 10_000);
	wait_until($node, 'postgres', 'SELECT count(*) = 10020 FROM app.inbox', 'events are applied');
	my $text = '';
	says($reader, \$text, qr/log lines were dropped, since nothing read them lines=[1-9]\d*\n/, 'the log says how many lines are missing');
	unlike($text, qr/lines were dropped.*lines were dropped/s, 'once');
	emit($node, 'postgres', 1);
	wait_until($node, 'postgres', 'SELECT count(*) = 10021 FROM app.inbox', 'the puller goes on');
	my $more = '';
	says($reader, \$more, qr/subscription started|event applied|outcome=/, 'and so does its log');
	ends_soon($pid, 'the puller');
	close($reader);
};

subtest 'a puller whose log is read by nothing any more' => sub {
	pipe(my $reader, my $writer) or BAIL_OUT("pipe: $!");
	close($reader);
	my $pid = start_with($writer, @pull);
	emit($node, 'postgres', 20);
	wait_until($node, 'postgres', 'SELECT count(*) = 10041 FROM app.inbox', 'events are applied');
	ends_soon($pid, 'the puller');
};

subtest 'a puller with gRPC\'s own lines' => sub {
	my ($reader, $writer) = full_pipe();
	local $ENV{GRPC_VERBOSITY} = 'DEBUG';
	local $ENV{GRPC_TRACE} = 'http';
	my $pid = start_with($writer, @pull);
	emit($node, 'postgres', 20);
	wait_until($node, 'postgres', 'SELECT count(*) = 10061 FROM app.inbox', 'events are applied');
	ends_soon($pid, 'the puller');
	close($reader);
};

subtest 'an emulator whose lines nothing reads' => sub {
	my ($reader, $writer) = full_pipe();
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $pid = start_with($writer, $ENV{POSTBOX}, 'emulator', '--host', own_address(), '--port', $port);
	wait_for(sub { return IO::Socket::INET->new(own_address() . ":$port") }, 'the emulator serves');
	ends_soon($pid, 'the emulator');
	close($reader);
	my ($second, $to) = full_pipe();
	$pid = start_with($to, $ENV{POSTBOX}, 'emulator', '--port', 0, '--topic', 'x');
	wait_for(sub { return waitpid($pid, POSIX::WNOHANG()) == $pid }, 'one that is refused ends by itself') or kill('KILL', $pid);
	is($? >> 8, 1, 'with the status of an error');
	close($second);
};

$node->stop;
done_testing();
