# Fewer slots for workers than databases that need one: the databases are served in turn, and this is said where one looks.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Cluster;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
# Two of the four go to the launchers of Postbox and of logical replication. A turn takes a fifth of its time.
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.time_scale' => 20, 'max_worker_processes' => 4, 'postbox.poll_interval' => '1s', 'log_min_messages' => 'debug1', 'max_connections' => 100, 'postbox.max_workers' => 128 });
$node->start;
my @databases = map { sprintf 'shop_%02d', $_ } 1 .. 5;
my $all = @databases;

sub set
{
	my ($name, $value) = @_;
	set_configuration($node, $name, $value);
	return;
}

sub starts { my ($position) = @_; return scalar(() = log_since($node, $position) =~ /postbox starts a publisher for database "shop/g); }
sub warnings_in_log { my ($position) = @_; return log_since($node, $position) =~ /^(.*WARNING:  could not start all postbox publishers\n.*DETAIL:.*\n.*HINT:.*)$/mg; }
sub state_of { my ($database) = @_; return $node->safe_psql($database, q{SELECT state || ': ' || coalesce(last_error, '') FROM postbox.publication_status}); }
# Of some database that waits just now.
sub wait_unserved_state
{
	my ($pattern, $what) = @_;
	return wait_for(sub {
		my ($database) = split /\n/, $node->safe_psql('postgres', q{SELECT datname FROM pg_database WHERE datname ~ 'shop' AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.datname = pg_database.datname AND a.backend_type = 'postbox publisher') LIMIT 1});
		return defined $database && state_of($database) =~ $pattern;
	}, $what);
}

sub kind_of { return $_[0] =~ /[02468]$/ ? 'log' : 'table'; }

# Of one database that has the extension and nothing to publish.
my $position = log_position($node);
$node->safe_psql('postgres', 'CREATE DATABASE blank');
$node->safe_psql('blank', 'CREATE EXTENSION postbox; CREATE SCHEMA app');
$node->safe_psql('postgres', 'ALTER DATABASE blank ALLOW_CONNECTIONS false; SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $$blank$$');
for my $database (@databases)
{
	my $kind = kind_of($database);
	$node->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE blank");
	$node->safe_psql($database, "SELECT postbox.create_outbox('app.outbox', '$kind'); SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events')");
}

sub unpublished
{
	return kind_of($_[0]) eq 'log' ? 'SELECT pending = 0 FROM postbox.publication_status' : 'SELECT count(*) = count(published_at) FROM app.outbox';
}

subtest 'five databases with max_worker_processes = 4: the events of every database are published' => sub {
	emit($node, $_, 5) for @databases;
	wait_until($node, $_, unpublished($_), "all of $_ are published") for @databases;
	emit($node, $_, 5) for reverse @databases;
	wait_until($node, $_, unpublished($_), "all of $_ are published again") for @databases;
	is($node->safe_psql('postgres', q{SELECT bool_and(n <= 2) FROM (SELECT count(*) n FROM pg_stat_activity WHERE backend_type = 'postbox publisher') s}), 't', 'by two workers at most');
};

subtest 'a database without a worker says so' => sub {
	wait_unserved_state(qr/^unserved: no worker publishes it: all background worker slots of the server are in use; raise max_worker_processes, which is 4, and restart the server; until then it waits for its turn/, 'its publications are unserved, with what to raise');
	wait_until($node, $databases[0], q{SELECT count(*) >= 3 AND count(*) = count(database) FROM postbox.workers WHERE state = 'unserved' AND pid IS NULL}, 'the view of the workers names all of them');
	wait_for(sub { starts($position) > 10 }, 'there were turns');
	my @warnings = warnings_in_log($position);
	cmp_ok(scalar @warnings, '>=', 1, 'the log has a WARNING');
	cmp_ok(scalar @warnings, '<=', 10, 'and not one for each turn') or diag(@warnings);
	like($warnings[0], qr/max_worker_processes is 4.*Databases without a publisher, which are served in turn: .*"shop_\d\d".*Raise max_worker_processes \(needs a restart\)/s, 'it names databases and the setting');
};

subtest 'who emits in a database without a worker is warned, once a session' => sub {
	my $messages = '';
	wait_for(sub {
		my ($database) = split /\n/, $node->safe_psql($databases[0], q{SELECT database FROM postbox.workers WHERE state = 'unserved' AND database ~ 'shop' LIMIT 1});
		return 0 unless defined $database;
		my $emit = q{SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb);};
		my $session = $node->background_psql($database);
		$session->query("BEGIN; $emit $emit COMMIT; BEGIN; $emit COMMIT");
		$session->quit;
		$messages = $session->{reports};
		return $messages =~ /no postbox publisher serves database "$database" now/;
	}, 'there is a WARNING');
	is(scalar(() = $messages =~ /WARNING/g), 1, 'one') or diag($messages);
	like($messages, qr/DETAIL:  All background worker slots of the server are in use \(max_worker_processes is 4\)\. Events wait.*HINT:  Raise max_worker_processes/s, 'with the setting to raise');
	unlike(log_since($node, $position), qr/WARNING:  no postbox publisher serves/, 'the server log has none of it');
};

subtest 'a busy database gives up its slot after its turn, with its results stored, and gets another one' => sub {
	my @busy = @databases[0 .. 3];
	my @emitters;
	for my $database (@busy)
	{
		my $pid = fork() // BAIL_OUT("fork: $!");
		if ($pid == 0)
		{
			open(STDOUT, '>', '/dev/null') and open(STDERR, '>', '/dev/null');
			# More often than a worker needs to be idle.
			exec('psql', '-X', '-q', '-d', $node->connstr($database), '-c', q{
				DO $$ BEGIN
					FOR i IN 1 .. 100000 LOOP
						PERFORM postbox.outbox_emit('video', 'busy', 'video.created', '{}'::jsonb);
						COMMIT;
						PERFORM pg_sleep(0.1);
					END LOOP;
				END $$});
			POSIX::_exit(127);
		}
		push @emitters, $pid;
	}
	my $since = log_position($node);
	my $one = $databases[-1];
	emit($node, $one, 5);
	wait_until($node, $one, unpublished($one), 'a database with few events is served among four that have always some');
	wait_for(sub { my %turns; ++$turns{$_} for log_since($node, $since) =~ /starts a publisher for database "(shop_0[1-4])"/g; return 4 == grep { ($turns{$_} // 0) >= 1 } @busy; }, 'each of the four had a turn');
	unlike(log_since($node, $since), qr/was taken over|took over|lease of .* lost|terminating background worker "postbox/, 'nobody was interrupted');
	kill('KILL', @emitters);
	waitpid($_, 0) for @emitters;
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%DO $$ BEGIN%' AND pid <> pg_backend_pid()});
	wait_until($node, $_, unpublished($_), "all of $_ are published") for @busy;
};

subtest 'with enough slots nothing rotates' => sub {
	set('max_worker_processes', 30);
	$node->stop;
	my $since = log_position($node);
	$node->start;
	wait_until($node, $databases[0], qq{SELECT count(*) = $all FROM postbox.workers WHERE state = 'running' AND database ~ 'shop'}, 'each has a worker');
	emit($node, $_, 5) for @databases;
	wait_until($node, $_, unpublished($_), "all of $_ are published") for @databases;
	is($node->safe_psql($databases[0], q{SELECT count(*) FROM postbox.workers WHERE state = 'unserved'}), '0', 'nobody is unserved');
	is(starts($since), $all, 'each was started once');
	is(scalar(() = warnings_in_log($since)), 0, 'and no WARNING was written');
	like(state_of($databases[-2]), qr/^active/, 'the state is active');
};

subtest 'postbox.max_workers leaves slots to others' => sub {
	my $since = log_position($node);
	set('postbox.max_workers', 3);
	$node->reload;
	wait_until($node, 'postgres', q{SELECT count(*) <= 3 FROM pg_stat_activity WHERE backend_type = 'postbox publisher'}, 'workers that are too many leave');
	wait_unserved_state(qr/^unserved: no worker publishes it: as many publishers run as postbox.max_workers allows, which is 3; raise it/, 'the state says why');
	emit($node, $_, 5) for @databases;
	wait_until($node, $_, unpublished($_), "all of $_ are published, in turn") for @databases;
	is($node->safe_psql('postgres', q{SELECT count(*) <= 3 FROM pg_stat_activity WHERE backend_type = 'postbox publisher'}), 't', 'by three workers');
	like((warnings_in_log($since))[0] // '', qr/postbox.max_workers allows, which is 3.*Raise postbox.max_workers/s, 'the log names the setting');
	set('postbox.max_workers', 128);
	$node->reload;
	wait_until($node, $databases[0], qq{SELECT count(*) = $all FROM postbox.workers WHERE state = 'running' AND database ~ 'shop'}, 'raised again: each has a worker');
	wait_for(sub { log_since($node, $since) =~ /LOG:  all postbox publishers run again/ }, 'the log says so');
};

$node->stop;
done_testing();
