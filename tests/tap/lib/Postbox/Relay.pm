# A proxy before a server that behaves as proxies do on a bad day: it accepts and says nothing, stops in the middle of the
# startup, passes statements on in pieces or keeps their answers, or reads nothing any more.
package Postbox::Relay;

use strict;
use warnings;

use Exporter 'import';
use IO::Select;
use IO::Socket::INET;
use IO::Socket::UNIX;
use POSIX ();
use Socket ();
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(start_relay relay_mode relay_state);

my @relays;    # process ids
my $parent = $$;

# start_relay($server): { port, pid }. It listens on the loopback interface. The server is a cluster, or the address of an emulator.
sub start_relay
{
	my ($server) = @_;
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 100) or BAIL_OUT("listen: $!");
	my $folder = PostgreSQL::Test::Utils::tempdir();
	my $relay = { port => $listener->sockport, folder => $folder };
	relay_mode($relay, 'pass');
	my $connect = sub { return ref $server ? IO::Socket::UNIX->new(Peer => $server->host . '/.s.PGSQL.' . $server->port) : IO::Socket::INET->new($server) };
	$relay->{pid} = fork() // BAIL_OUT("fork: $!");
	if ($relay->{pid} == 0)
	{
		# The files and sockets of the test are the test's.
		eval { relay($listener, $connect, $folder); };
		print STDERR $@;
		POSIX::_exit(1);
	}
	push @relays, $relay->{pid};
	close($listener);
	return $relay;
}

# What it does from now on:
#   pass       all that comes
#   hold       nothing is read, of either side
#   deaf       what clients say is passed on, what the server says is not
#   startup N  connections from now on get the first N bytes of the server's answers
#   tls        connections from now on get an S, as if TLS could begin
#   stammer N  of the first N times that a connection says anything after its startup, only the first message is passed on
#              at once, and the rest 20 ms later
sub relay_mode
{
	my ($relay, $mode) = @_;
	write_whole("$relay->{folder}/mode", $mode);
	return;
}

# { accepted => connections since its start, open => those that the client has not closed, unread => those on which the
# client has said something that was not read, said => bytes that clients have said }
sub relay_state
{
	my ($relay) = @_;
	my %state = split /[= ]/, read_whole("$relay->{folder}/state") // 'accepted=0 open=0 unread=0 said=0';
	return \%state;
}

sub write_whole
{
	my ($file, $text) = @_;
	open(my $handle, '>', "$file.new") or die("$file: $!");
	print $handle $text;
	close($handle);
	rename("$file.new", $file) or die("$file: $!");
	return;
}

sub read_whole
{
	my ($file) = @_;
	open(my $handle, '<', $file) or return;
	local $/;
	return scalar <$handle>;
}

sub relay
{
	my ($listener, $connect, $folder) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my @pairs;    # { client, server, left => bytes of answers that may still be passed, or undef }
	my ($accepted, $said) = (0, 0);
	my $written = '';
	while (1)
	{
		my $mode = read_whole("$folder/mode");
		my $wanted = IO::Select->new($listener);
		if ($mode ne 'hold')
		{
			$wanted->add($_->{client}) for @pairs;
			$wanted->add($_->{server}) for grep { $_->{server} && $mode ne 'deaf' && !(defined $_->{left} && $_->{left} == 0) } @pairs;
		}
		my %ready = map { $_ => 1 } $wanted->can_read(0.02);
		@pairs = grep { pass_on($_, \%ready, \$said) } @pairs;
		if ($ready{$listener} && (my $client = $listener->accept))
		{
			++$accepted;
			push @pairs, { client => $client, server => $connect->(), left => $mode =~ /^startup (\d+)/ ? $1 : undef, stammers => $mode =~ /^stammer (\d+)/ ? $1 : 0 };
			$pairs[-1]{server} = undef, syswrite($client, 'S') if $mode eq 'tls';
		}
		# A client that has gone shows when its end is read, so it is looked for without reading.
		my $unread = 0;
		@pairs = grep {
			my $look = '';
			my $got = IO::Select->new($_->{client})->can_read(0) ? recv($_->{client}, $look, 1, Socket::MSG_PEEK()) : undef;
			$unread += length($look);
			!(defined $got && $look eq '');
		} @pairs if $mode ne 'pass';
		my $state = "accepted=$accepted open=" . @pairs . " unread=$unread said=$said";
		write_whole("$folder/state", $written = $state) if $state ne $written;
	}
	return;
}

# Passes on what is ready of a pair, and adds to $$said what its client has said. False if one side has closed; then both are closed.
sub pass_on
{
	my ($pair, $ready, $said) = @_;
	my ($client, $server) = @{$pair}{qw(client server)};
	return !$ready->{$client} || sysread($client, my $unused, 65536) unless $server;
	foreach my $way ([ $client, $server ], [ $server, $client ])
	{
		my ($from, $to) = @$way;
		next unless $ready->{$from};
		my $limit = $from == $server && defined $pair->{left} ? $pair->{left} : 65536;
		my $got = sysread($from, my $bytes, $limit);
		return 0 unless $got;
		$$said += $got if $from == $client;
		# Statements begin with a Parse message; its length does not count its first byte.
		if ($from == $client && $pair->{stammers} > 0 && $bytes =~ /^P/ && $got > 5)
		{
			--$pair->{stammers};
			my $first = substr($bytes, 0, 1 + unpack('N', substr($bytes, 1, 4)), '');
			return 0 unless (syswrite($to, $first) // 0) == length($first);
			select(undef, undef, undef, 0.02);
		}
		return 0 unless (syswrite($to, $bytes) // 0) == length($bytes);
		$pair->{left} -= $got if $from == $server && defined $pair->{left};
	}
	return 1;
}

END
{
	if ($$ == $parent)
	{
		local $?;
		kill('KILL', $_), waitpid($_, 0) for @relays;
	}
}

1;
