# A session of a server in this process, with the methods of PostgreSQL::Test::BackgroundPsql that tests need. To start psql takes
# more of the processor than most of what a test asks, and so does each question to one that runs.
package Postbox::Session;

use strict;
use warnings;

use Errno ();
use IO::Select;
use IO::Socket::UNIX ();

my %kept;    # what it was opened for => session

# What only a session that is opened later sees, or what a session that is open is in the way of.
my $of_later_sessions = qr/\b(?:(?:CREATE|ALTER|DROP)\s+(?:DATABASE|ROLE|USER|SYSTEM|EXTENSION)|LOAD|pg_reload_conf|pg_terminate_backend)\b/i;

# The statements that psql would send one by one; none if some of it is for psql itself.
sub statements
{
	my ($script) = @_;
	return if $script =~ /\bSTDIN\b|\bATOMIC\b|\bDO\s+(?:ALSO\s+|INSTEAD\s+)?\(/i;
	my @statements = ('');
	while ($script =~ m{\G(?:[^;\\'"e\$/-]+|(;)|\\|E'(?:[^'\\]++|''|\\.)*+'|'[^']*'|"[^"]*"|--[^\n]*|/\*.*?\*/|(\$\w*\$).*?\g2|.)}gcsi)
	{
		return if $& eq '\\';
		$statements[-1] .= $&;
		push @statements, '' if $1;
	}
	return grep { /[^;]/ } map { s/^\s+//r } @statements;
}

# new($node, $database, user => name, timeout => seconds that the server may be silent): undef if the server does not let it in,
# or not without a password.
sub new
{
	my ($class, $node, $database, %options) = @_;
	my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or return;
	my $self = bless { socket => $socket, received => '', reports => '', timeout => $options{timeout} }, $class;
	my %parameters = (user => $options{user} // $ENV{PGUSER} // scalar getpwuid($>), database => $database);
	$parameters{application_name} = $ENV{PGAPPNAME} if defined $ENV{PGAPPNAME};
	$parameters{options} = $ENV{PGOPTIONS} if defined $ENV{PGOPTIONS};
	return defined $self->ask('', pack('N', 3 << 16) . join('', map { "$_\0" } %parameters, '')) ? $self : undef;
}

# with($node, $database, $function, statements => [of the session], option of new...): what $function returns for a session, which is as
# a new one and is gone afterwards for all that a server can say. In truth most are kept for the next time, since what a server has in
# its memory takes more to fill than most of what a test asks. undef if the server does not let it in.
sub with
{
	my ($class, $node, $database, $function, %options) = @_;
	my $alone = grep { /$of_later_sessions/ } @{ delete $options{statements} // [] };
	my $for = join "\0", $$, $node->host, $node->port, $database, map { $_ // '' } $options{user}, @ENV{qw(PGUSER PGAPPNAME PGOPTIONS)};
	end_kept() if $alone;
	my $self = delete $kept{$for};
	if ($self && $self->has_ended)
	{
		$self->quit;
		undef $self;
	}
	$self //= $class->new($node, $database, %options) // return;
	$self->{timeout} = $options{timeout};
	my @returned = $function->($self);
	if ($alone || !$self->forget) { $self->quit; }
	else { $kept{$for} = $self; }
	return wantarray ? @returned : $returned[0];
}

# Ends all that is kept by this process.
sub end_kept
{
	my @own = grep { /^$$\0/ } keys %kept;
	$_->quit for delete @kept{@own};
	return;
}

# Whether the server has said something that nobody has asked for: most often, that it is gone.
sub has_ended { my ($self) = @_; return $self->{received} ne '' || IO::Select->new($self->{socket})->can_read(0); }

# Whether nothing of what was done is left in the session, and all has been reported to the statistics. (Which 14 does later.)
sub forget
{
	my ($self) = @_;
	return !$self->{lost} && $self->{state} eq 'I' && $self->{version} >= 15 && defined $self->rows('DISCARD ALL') && defined $self->rows('SELECT pg_stat_force_next_flush()');
}

# What psql would print of one statement; undef after an error.
sub rows
{
	my ($self, $statement) = @_;
	return $self->ask('Q', "$statement\0");
}

# psql's status after the statements, what it would print, and what it would say beside. Without $stop, it goes on after errors.
sub run
{
	my ($self, $stop, @statements) = @_;
	my ($status, $output) = (0, '');
	$self->{reports} = '';
	for my $statement (@statements)
	{
		my $rows = $self->rows($statement);
		$output .= $rows // '';
		$status = $self->{lost} ? 2 : defined $rows || !$stop ? 0 : 3;
		last if $status;
	}
	return ($status, $output, $self->{reports});
}

sub query
{
	my ($self, $script) = @_;
	my @statements = statements($script) or die "only psql can say this: $script";
	my ($status, $output) = $self->run(1, @statements);
	die "query failed: $self->{reports}" if $status;
	chomp $output;
	return $output;
}

# The same, and the server has nothing to say about it.
sub query_safe
{
	my ($self, $script) = @_;
	my $output = $self->query($script);
	die "the server said: $self->{reports}" if $self->{reports} ne '';
	return $output;
}

# Leaves, and waits until the process of the server has ended. (It may wait for one that a test has stopped.)
sub quit
{
	my ($self) = @_;
	$self->put('X', '');
	$self->{timeout} = 5;
	eval { 1 while defined $self->get(1) };
	close($self->{socket});
	return;
}

sub put
{
	my ($self, $type, $content) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $message = $type . pack('N', 4 + length $content) . $content;
	while ($message ne '')
	{
		my $written = syswrite($self->{socket}, $message) // ($!{EINTR} ? 0 : last);
		substr($message, 0, $written, '');
	}
	return;
}

# So many bytes that the server has sent; undef if it has closed the connection.
sub get
{
	my ($self, $count) = @_;
	while (length $self->{received} < $count)
	{
		die "the server is silent for $self->{timeout} s" if $self->{timeout} && !IO::Select->new($self->{socket})->can_read($self->{timeout});
		my $read = sysread($self->{socket}, $self->{received}, 65536, length $self->{received});
		return unless $read || !defined $read && $!{EINTR};
	}
	return substr($self->{received}, 0, $count, '');
}

# Sends a message and reads until the server is ready for the next one.
sub ask
{
	my ($self, @message) = @_;
	my $output = '';
	$self->put(@message);
	while (defined(my $head = $self->get(5)))
	{
		my ($type, $length) = unpack('a N', $head);
		my $content = $self->get($length - 4) // last;
		last if $type eq 'R' && unpack('N', $content) != 0;
		if ($type eq 'Z')
		{
			$self->{state} = $content;
			return $output;
		}
		$self->{version} = $1 if $type eq 'S' && $content =~ /^server_version\0(\d+)/;
		if ($type eq 'E') { undef $output; }
		if ($type eq 'E' || $type eq 'N') { $self->{reports} .= report($content); }
		if ($type eq 'D') { $output .= row($content); }
		if ($type eq 'd') { $output .= $content; }
	}
	$self->{lost} = 1;
	$self->{reports} .= "server closed the connection unexpectedly\n";
	return;
}

sub row
{
	my ($content) = @_;
	my ($at, @values) = (2);
	while ($at < length $content)
	{
		my $length = unpack("x$at l>", $content);
		push @values, $length < 0 ? '' : substr($content, $at + 4, $length);
		$at += 4 + ($length < 0 ? 0 : $length);
	}
	return join('|', @values) . "\n";
}

sub report
{
	my ($content) = @_;
	my %field = map { substr($_, 0, 1) => substr($_, 1) } grep { $_ ne '' } split /\0/, $content;
	my $report = "psql:<stdin>: $field{S}:  $field{M}\n";
	$report .= "DETAIL:  $field{D}\n" if defined $field{D};
	$report .= "HINT:  $field{H}\n" if defined $field{H};
	$report .= "CONTEXT:  $field{W}\n" if defined $field{W} && $field{S} =~ /ERROR|FATAL|PANIC/;
	return $report;
}

1;
