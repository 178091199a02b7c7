# A worker that is busy with something long answers within 5 s: SIGTERM, DROP DATABASE, a fast shutdown, and a cancel. It is
# held in each kind of work by code of the outbox's owner that does not end, or by a broker that does not answer.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.poll_interval' => '100ms',
	'postbox.maintenance_interval' => '1s',
	# Half a second, not one, for what is running when a worker is to leave.
	'postbox.time_scale' => 50,
});
$node->start;

my $busy = q{SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'postbox publisher%' AND datname = 'cell' AND wait_event = 'PgSleep'};

# A function for triggers that sleeps for an hour. Its owner is an ordinary role.
my $sleep = q{
	CREATE FUNCTION app.sleep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3600); RETURN NULL; END'};

sub set_publishers
{
	my ($count) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET postbox.publishers = $count");
	$node->reload;
	wait_until($node, 'postgres', "SELECT count(*) = $count FROM pg_stat_activity WHERE backend_type LIKE 'postbox publisher%' AND datname = 'cell'", "$count workers");
	return;
}

# What brings the worker to each kind of work, in a database with an outbox.
sub claim
{
	$node->safe_psql('cell', "$sleep; CREATE TRIGGER sleep BEFORE UPDATE ON app.outbox FOR EACH STATEMENT EXECUTE FUNCTION app.sleep()");
	emit($node, 'cell', 10);
	return;
}

sub parking
{
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.created');
	$node->safe_psql('cell', "$sleep; CREATE TRIGGER sleep BEFORE INSERT ON app.outbox_parked FOR EACH STATEMENT EXECUTE FUNCTION app.sleep();
		SELECT postbox.outbox_emit('video', 'other', 'video.other', '{}'::jsonb)");
	wait_until($node, 'cell', 'SELECT pending = 0 FROM postbox.publication_status', 'an event goes through');
	emit($node, 'cell', 1);
	return;
}

sub purge
{
	emit($node, 'cell', 10);
	wait_published($node, 'cell', 10);
	$node->safe_psql('cell', "$sleep; CREATE TRIGGER sleep BEFORE DELETE ON app.outbox FOR EACH STATEMENT EXECUTE FUNCTION app.sleep();
		UPDATE app.outbox SET published_at = published_at - interval '1 year'");
	return;
}

# Events of another cluster that nobody has published become parked ones.
sub rebase
{
	set_publishers(0);
	emit($node, 'cell', 10);
	$node->safe_psql('cell', "$sleep; CREATE TRIGGER sleep BEFORE INSERT ON app.outbox_parked FOR EACH STATEMENT EXECUTE FUNCTION app.sleep();
		UPDATE postbox.lane SET system_identifier = 1; UPDATE app.outbox SET origin = postbox.origin_of(1)");
	set_publishers(1);
	return;
}

sub wait_for_results
{
	kill('STOP', $emulator->{pid});
	emit($node, 'cell', 10);
	wait_until($node, 'cell', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type LIKE 'postbox publisher%' AND datname = 'cell' AND state = 'idle'}, 'the worker waits');
	return;
}

my $there = q{SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'postbox publisher%' AND datname = 'cell'};

# Its name, the kind of outbox, how to bring the worker there, and how to see it there.
my @cells = (
	[ 'claim', 'table', \&claim, $busy ],
	[ 'parking', 'log', \&parking, $busy ],
	[ 'purge', 'table', \&purge, $busy ],
	[ 're-base', 'log', \&rebase, $busy ],
	[ 'waiting for results', 'table', \&wait_for_results, $there ],
	[ 'waiting for results of a log', 'log', \&wait_for_results, $there ],
);

sub wait_busy
{
	my ($busy_query) = @_;
	my $session = $node->background_psql('postgres');
	my $pid;
	wait_for(sub { ($pid) = split /\n/, $session->query_safe($busy_query); return $pid }, 'the worker is there');
	$session->quit;
	return $pid;
}

# Does `action`, and takes the time until the condition, if there is one, is true.
sub soon
{
	my ($what, $action, $condition) = @_;
	my $begin = time;
	$action->();
	$condition ? wait_until($node, 'postgres', $condition, $what) : pass($what);
	my $took = time - $begin;
	# On a loaded machine psql alone takes its time. What would hold it up lasts for 10 s or more.
	cmp_ok($took, '<', 5 + 4, "$what within 5 s");
	note(sprintf('%s: %.1f s', $what, $took));
	return;
}

for my $cell (@cells)
{
	my ($name, $kind, $enter, $busy_query) = @$cell;
	subtest $name => sub {
		$node->safe_psql('postgres', 'CREATE DATABASE cell');
		create_outbox($node, 'cell', kind => $kind);
		# Sessions of tests go, so that the database can be dropped.
		wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type LIKE 'postbox publisher%' AND datname = 'cell'}, 'a worker is in the database');
		$enter->();
		my $pid = wait_busy($busy_query);
		my $position = log_position($node);
		soon('SIGTERM ends it', sub { $node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)") }, "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid");
		like(log_since($node, $position), qr/ LOG:  publication "videos": the worker exits and aborted its work: /, 'the log has what was cut off') if $name eq 'claim' || $name eq 'parking';

		wait_busy($busy_query);
		soon('a fast shutdown ends', sub { $node->stop('fast') });
		$node->start;
		$pid = wait_busy($busy_query);

		if ($busy_query eq $busy)
		{
			# It may be run again at once, in another transaction.
			my $since = $node->safe_psql('postgres', "SELECT xact_start FROM pg_stat_activity WHERE pid = $pid");
			soon('a cancel ends the statement', sub { $node->safe_psql('postgres', "SELECT pg_cancel_backend($pid)") },
				"SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid AND xact_start = '$since'");
			# What was cancelled may be left out for some time, but not by another worker.
			$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
			wait_until($node, 'postgres', "SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid", 'it leaves');
			wait_busy($busy_query);
		}

		soon('DROP DATABASE goes through', sub { $node->safe_psql('postgres', 'DROP DATABASE cell') });
		kill('CONT', $emulator->{pid});
		emulator_fault($emulator, '--clear');
		unlike(log_since($node, 0), qr/was terminated by signal|terminating any other active server processes/, 'no process has crashed');
	};
}

$node->stop;
done_testing();
