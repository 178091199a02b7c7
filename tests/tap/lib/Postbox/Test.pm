# What the TAP tests share: a server with Postbox, the embedded emulator as its peer, and waiting for
# things to be so. Everything waits by polling, with PostgreSQL::Test's own generous time-out.
package Postbox::Test;

use strict;
use warnings;

use Cwd qw(abs_path);
use Exporter 'import';
use File::Basename qw(dirname);
use File::Temp ();
use IO::Select;
use List::Util qw(max min);
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Postbox::Grpc;
use Postbox::Session;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(own_address start_emulator stop_emulator emulator_fault new_node create_outbox emit wait_published
	own_installation set_configuration with_new_workers crash stop_between_transactions wait_workers worker_pids worker_pid launcher_pid wait_until wait_for server_version log_since log_position
	disturbed undisturbed_log_since);

my $topic = 'catalog.video.events';
my %emulators;    # pid => object

# PostgreSQL's module has a handler for the end of children since 17, which ends each waiting for a socket when any child ends. That looks
# like a time-out then.
INIT { delete $SIG{CHLD}; }

# psql is started only for what a session of this process does not understand, or is not let in to say.
{
	no warnings 'redefine';
	my $psql = PostgreSQL::Test::Cluster->can('psql');
	my $user = sub { my ($parameters) = @_; return "@{ $parameters // [] }" =~ /^(?:-U (\w+))?$/; };
	*PostgreSQL::Test::Cluster::psql = sub {
		my ($node, $database, $script, %options) = @_;
		my ($parameters, $stdout, $stderr, $stop, $die) = delete @options{qw(extra_params stdout stderr on_error_stop on_error_die)};
		my @statements = %options ? () : Postbox::Session::statements($script);
		my @user = $user->($parameters);
		my ($status, @said) = @statements && @user ? Postbox::Session->with($node, $database, sub { $_[0]->run($stop // 1, @statements) }, user => $user[0], statements => \@statements) : ();
		return $psql->(@_) unless defined $status;
		chomp @said;
		die "error running SQL: '$said[1]'\nwith sql '$script'" if $status && $die;
		$$stdout = $said[0] if $stdout;
		$$stderr = $said[1] if $stderr;
		return wantarray ? ($status, @said) : $status;
	};
	*PostgreSQL::Test::Cluster::background_psql = sub {
		my ($node, $database, %options) = @_;
		my @user = $user->($options{extra_params});
		return @user && Postbox::Session->new($node, $database, user => $user[0], timeout => $PostgreSQL::Test::Utils::timeout_default) || die "$database lets no session in";
	};
}

# A server that is told to read its configuration again has done so, and has told its processes. One that is told to wait for the
# sessions that it has does not wait for those of this process.
{
	no warnings 'redefine';
	my ($reload, $stop) = map { PostgreSQL::Test::Cluster->can($_) } 'reload', 'stop';
	*PostgreSQL::Test::Cluster::reload = sub {
		my ($node, @arguments) = @_;
		my $read = 'SELECT pg_conf_load_time()';
		my $before = Postbox::Session->with($node, 'postgres', sub { $_[0]->rows($read) }) // return $reload->(@_);
		$reload->($node, @arguments);
		return comes_true(sub { (Postbox::Session->with($node, 'postgres', sub { $_[0]->rows($read) }) // $before) ne $before }) || die 'the server does not read its configuration';
	};
	*PostgreSQL::Test::Cluster::stop = sub {
		Postbox::Session::end_kept() if ($_[1] // '') eq 'smart';
		goto &$stop;
	};
}

# An address of the loopback interface that no other test has, so that a port of it is still free when it is used again.
sub own_address { return join '.', 127, unpack('x C3', pack('N', $$)); }

# start_emulator(argument...): an emulator, on a free port of this test's address unless --port or --host are given, with the topic of
# these tests. Returns { pid, address => 'host:port', endpoint => the value of postbox.endpoint }.
sub start_emulator
{
	my @arguments = @_;
	my @place = map { my ($option, $value) = @$_; (grep { $_ eq $option } @arguments) ? () : ($option, $value) } [ '--host', own_address() ], [ '--port', '0' ];
	my $log = "$PostgreSQL::Test::Utils::log_path/emulator_" . (1 + keys %emulators) . '.log';
	pipe(my $reader, my $writer) or BAIL_OUT("pipe: $!");
	my $pid = fork() // BAIL_OUT("fork: $!");
	if ($pid == 0)
	{
		open(STDOUT, '>&', $writer) and open(STDERR, '>>', $log) and open(STDIN, '<', '/dev/null')
		  and exec($ENV{POSTBOX}, 'emulator', @place, '--no-auto-create', '--project', 'postbox-dev', '--topic', $topic, @arguments);
		POSIX::_exit(127);
	}
	close($writer);
	my $line = IO::Select->new($reader)->can_read($PostgreSQL::Test::Utils::timeout_default) ? <$reader> : undef;
	BAIL_OUT('the emulator did not start') unless defined $line && $line =~ /listening on (\S+)$/;
	return $emulators{$pid} = { pid => $pid, address => $1, endpoint => "http://$1", output => $reader };
}

sub stop_emulator
{
	my ($emulator, $signal) = @_;
	return unless delete $emulators{ $emulator->{pid} };
	kill($signal // 'TERM', $emulator->{pid});
	waitpid($emulator->{pid}, 0);
	return;
}

# Fault of proto/postbox/emulator/v1/faults.proto: its fields, and what the numbers in them are called.
my %fault_numbers = (action => 1, code => 3, count => 5, 'latency-ms' => 7, 'after-effect' => 8);
my %fault_texts = (rpc => 2, message => 4, 'ordering-key' => 9);
my @codes = qw(OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED
	FAILED_PRECONDITION ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED);
my %called = ('abort-stream' => 1, delay => 6, '' => 1, map { $codes[$_] => $_ } keys @codes);

# A rule as `postbox emulator-fault` takes it.
sub fault
{
	my ($rule) = @_;
	my %fault = map { /^([^=]+)=?(.*)$/ } split /,/, $rule;
	$fault{action} //= 'delay' unless $fault{code};
	my ($attribute, $with) = split /:/, delete $fault{attribute} // '', 2;
	my $probability = delete $fault{probability};
	for (keys %fault)
	{
		die "no such fault: $_=$fault{$_}" unless $fault_texts{$_} || $fault_numbers{$_} && ($called{ $fault{$_} } // $fault{$_}) =~ /^\d+$/;
	}
	return join '', (map { $fault_numbers{$_} ? protobuf_number($fault_numbers{$_}, $called{ $fault{$_} } // $fault{$_}) : protobuf_text($fault_texts{$_}, $fault{$_}) } keys %fault),
	  defined $probability ? chr(6 << 3 | 1) . pack('d<', $probability) : '',
	  defined $attribute ? protobuf_text(10, $attribute) . protobuf_text(11, $with // '') : '';
}

# emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE,count=3') or '--clear', or both.
sub emulator_fault
{
	my ($emulator, @what) = @_;
	my @rules = grep { $_ ne '--clear' } @what;
	my $done = @rules == @what || defined grpc_call($emulator->{address}, 'postbox.emulator.v1.Faults/ClearFaults', '');
	$done &&= defined grpc_call($emulator->{address}, 'postbox.emulator.v1.Faults/AddFault', join '', map { protobuf_text(1, fault($_)) } @rules) if @rules;
	return ok($done, "emulator-fault @what");
}

# Copies the stage for a test that changes files of the installation. Returns { path => for new_node, library => folder of
# the modules, scripts => folder of the extension's scripts, original => that of the modules in
# the stage }.
sub own_installation
{
	my $root = PostgreSQL::Test::Utils::tempdir() . '/installation';
	my $stage = abs_path($ENV{POSTBOX_STAGE});
	system_or_bail('cp', '-a', $stage, $root);
	my ($path, $library, $share) =
	  map { `pg_config --$_` =~ m{^\Q$stage\E(/.*)$} or BAIL_OUT("pg_config is not that of $stage"); $1 } qw(bindir pkglibdir sharedir);
	return { path => dirname("$root$path"), library => "$root$library", scripts => "$root$share/extension", original => "$stage$library" };
}

# new_node($name, emulator => $emulator, preload => 0|1, settings => { name => value }, install_path => of a
# private installation, initdb => [option]): a server, not started yet.
sub new_node
{
	my ($name, %options) = @_;
	# On 14, new() does not know install_path.
	my $make = PostgreSQL::Test::Cluster->can('get_new_node') // PostgreSQL::Test::Cluster->can('new');
	my $node = PostgreSQL::Test::Cluster->$make($name, $options{install_path} ? (install_path => $options{install_path}) : ());
	# The first cluster of a test is a copy of one that is there. Others are made, since those that are no copies of each other
	# differ in their system identifiers.
	my $template = $options{install_path} || $options{initdb} ? undef : $ENV{POSTBOX_CLUSTER_TEMPLATE};
	delete $ENV{POSTBOX_CLUSTER_TEMPLATE} if $template;
	my $run = \&PostgreSQL::Test::Utils::system_or_bail;
	no warnings 'redefine';
	local *PostgreSQL::Test::Utils::system_or_bail = sub { return $run->($_[0] eq 'initdb' ? ('cp', '-a', $template, $node->data_dir) : @_) } if $template;
	$node->init(allows_streaming => $options{allows_streaming}, $options{initdb} ? (extra => $options{initdb}) : ());
	my %settings = (
		'restart_after_crash' => 'on',    # the test framework turns it off
		'log_statement' => 'none',
		'jit' => 'off',    # to compile a statement of a test takes longer than to run it
		'max_worker_processes' => 16,
		'postbox.project_id' => 'postbox-dev',
		'postbox.restart_delay' => '100ms',
		'log_line_prefix' => '%m [%p] %b %q%a ',
		%{ $options{settings} // {} });
	$settings{'shared_preload_libraries'} = 'postbox' if $options{preload} // 1;
	$settings{'postbox.endpoint'} = $options{emulator}{endpoint} if $options{emulator};
	$node->append_conf('postgresql.conf', "$_ = '$settings{$_}'") for sort keys %settings;
	return $node;
}

# What postgresql.conf of a server says of a setting from its next reload or start on; undef: the default. (The functions that
# PostgreSQL's own test module has for this, and for pg_config, came with 15.)
sub set_configuration
{
	my ($node, $name, $value) = @_;
	my $file = $node->data_dir . '/postgresql.conf';
	my @lines = grep { !/^\Q$name\E\W/ } split /^/, slurp_file($file);
	push @lines, "$name = '" . $value =~ s/'/''/gr . "'\n" if defined $value;
	open(my $out, '>', $file) or BAIL_OUT("$file: $!");
	print $out @lines;
	close($out) or BAIL_OUT("$file: $!");
	return;
}

# Sets it for workers that begin with it: one that is told of a reload may claim events before it reads the files.
sub with_new_workers
{
	my ($node, $database, $name, $value) = @_;
	set_configuration($node, 'postbox.publishers', 0);
	$node->reload;
	wait_workers($node, $database, 0);
	set_configuration($node, $name, $value);
	set_configuration($node, 'postbox.publishers', undef);
	$node->reload;
	return;
}

# Creates the extension, an outbox (kind => 'table' or 'log') and its publication (lanes => n) in a
# database.
sub create_outbox
{
	my ($node, $database, %options) = @_;
	my $kind = $options{kind} // 'table';
	my $lanes = $options{lanes} // 1;
	$node->safe_psql(
		$database, qq{
		CREATE EXTENSION postbox;
		CREATE SCHEMA app;
		SELECT postbox.create_outbox('app.outbox', '$kind');
		SELECT postbox.create_publication('videos', 'app.outbox', '$topic', lanes => $lanes);
	});
	return;
}

# Emits `count` events, in one transaction.
sub emit
{
	my ($node, $database, $count) = @_;
	$node->safe_psql(
		$database, qq{
		SELECT count(postbox.outbox_emit('video', 'video-' || n % 7, 'video.created', '{"title": "x"}'::jsonb))
		FROM generate_series(1, $count) n
	});
	return;
}

# Between two looks at what is waited for since `begin`, of which the last one began at `asked`. Most comes within milliseconds. What takes
# long to ask, or to come, is asked less often: the processor is for what is waited for.
sub pause
{
	my ($begin, $asked) = @_;
	my $now = time;
	select(undef, undef, undef, max(0.005, min(3 * ($now - $asked), 0.5), min(($now - $begin) / 15, 0.2)));
	return;
}

# Whether `query` in `database` says t within `seconds`. It is asked again and again, also after an error, since the server may just be
# restarted, for example.
sub becomes_true
{
	my ($node, $database, $query, $seconds) = @_;
	my $begin = time;
	my $so;
	while (!$so && (my $asked = time) < $begin + $seconds)
	{
		my $answer = eval { Postbox::Session->with($node, $database, sub {
			my ($session) = @_;
			while (1)
			{
				my $answer = $session->rows($query);
				return $answer if !defined $answer || $answer eq "t\n" || time > $begin + $seconds;
				pause($begin, $asked);
				$asked = time;
			}
		}, timeout => $seconds) };
		$so = ($answer // '') eq "t\n";
		pause($begin, $asked) unless $so;
	}
	return $so;
}

# Waits until `query` in `database` says t.
sub wait_until
{
	my ($node, $database, $query, $what) = @_;
	my $so = becomes_true($node, $database, $query, $PostgreSQL::Test::Utils::timeout_default);
	ok($so, $what);
	diag("$what: still not so: $query\n" . ($node->psql('postgres', 'SELECT pid, datname, backend_type, application_name, state, wait_event FROM pg_stat_activity'))[1])
	  unless $so;
	return $so;
}

# Waits until the outbox holds `count` events and all are published.
sub wait_published
{
	my ($node, $database, $count, $what) = @_;
	return wait_until($node, $database,
		"SELECT count(*) = $count AND count(*) = count(published_at) FROM app.outbox",
		$what // "$count events of $database are published");
}

# The major version of a server.
sub server_version { my ($node) = @_; return $node->safe_psql('postgres', q{SELECT current_setting('server_version_num')::int / 10000}); }

# Whether `condition`, a function, says yes at last.
sub comes_true
{
	my ($condition) = @_;
	my $begin = time;
	while (1)
	{
		my $asked = time;
		my $so = $condition->();
		return $so if $so || time > $begin + $PostgreSQL::Test::Utils::timeout_default;
		pause($begin, $asked);
	}
}

# Waits until it does.
sub wait_for
{
	my ($condition, $what) = @_;
	return ok(comes_true($condition), $what);
}

# Kills processes of the server with SIGKILL, and waits until it has recovered from that.
sub crash
{
	my ($node, @pids) = @_;
	my $position = log_position($node);
	kill('KILL', @pids);
	return wait_for(sub { log_since($node, $position) =~ /ready to accept (?:read-only )?connections/ }, 'the server has recovered');
}

# Stops processes of the server with SIGSTOP, between two transactions: they hold nothing then that others would wait for.
sub stop_between_transactions
{
	my ($node, @pids) = @_;
	my $list = join ', ', @pids;
	return wait_for(sub {
		if (kill('STOP', @pids) == @pids)
		{
			# One that was stopped with a lock of the server's own, such as those of the lock table, keeps the question waiting, too.
			my $busy = eval {
				Postbox::Session->with($node, 'postgres', sub { $_[0]->query(qq{SELECT (SELECT count(*) FROM pg_stat_activity WHERE pid IN ($list) AND xact_start IS NOT NULL)
					+ (SELECT count(*) FROM pg_locks WHERE pid IN ($list) AND locktype = 'relation')
					+ (SELECT count(*) * 0 FROM postbox.workers)}) }, timeout => 5);
			};
			return 1 if ($busy // '') eq '0';
		}
		kill('CONT', @pids);
		return 0;
	}, "@pids stopped between two transactions");
}

# Waits until `count` workers stand in the database.
sub wait_workers
{
	my ($node, $database, $count, $what) = @_;
	return wait_until($node, 'postgres',
		"SELECT count(*) = $count FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND datname = '$database'",
		$what // "$count workers in $database");
}

sub worker_pids
{
	my ($node, $database) = @_;
	return split /\n/, $node->safe_psql('postgres',
		"SELECT pid FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND datname = '$database' ORDER BY pid");
}

# The first of them, as soon as there is one.
sub worker_pid
{
	my ($node, $database) = @_;
	my $pid;
	comes_true(sub { ($pid) = worker_pids($node, $database) }) or die "there is no worker in $database";
	return $pid;
}

sub launcher_pid
{
	my ($node) = @_;
	return $node->safe_psql('postgres', "SELECT pid FROM pg_stat_activity WHERE backend_type = 'postbox launcher'");
}

sub log_position { my ($node) = @_; return -s $node->logfile // 0; }
sub log_since { my ($node, $position) = @_; return slurp_file($node->logfile, $position); }

# Whether this machine was too busy for a step of a worker, which the log says: it took longer than a step may. It was rolled back
# then, its publication was suspended for a moment, and what had been sent may have been sent again.
my $disturbance = qr/took longer than \d+ ms/;
sub disturbed { my ($node) = @_; return log_since($node, 0) =~ $disturbance; }

# What the log has beside that, and beside locks that were held for too long by somebody who had the same machine.
sub undisturbed_log_since
{
	my ($node, $position) = @_;
	return join '', grep { !/$disturbance|locked by process \d+/ } split /^/, log_since($node, $position);
}

# An emulator left running would keep the harness waiting.
END
{
	my $status = $?;
	stop_emulator($_, 'KILL') for values %emulators;
	$? = $status;
}

1;
