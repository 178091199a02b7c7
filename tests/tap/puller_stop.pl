# The puller answers SIGTERM within its grace period, or 2 s if that is shorter, whatever does not answer: the database, Pub/Sub,
# or the dead-letter topic. A server that is silent for too long counts as gone, and the events are applied over another connection.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IO::Socket::INET;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $subscription = 'catalog.video.events.test-follower';
my $silent = 'catalog.silent.events.test-follower';
my $emulator = start_emulator('--release-on-disconnect', '--topic', 'catalog.video.dead', '--subscription', "$subscription=catalog.video.events,ordered", '--subscription', "$silent=catalog.silent.events,ordered");
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', qq{
	CREATE TABLE app.seen (aggregate_id text, version bigint);
	CREATE TABLE app.work ();
	CREATE FUNCTION app.work(event postbox.event) RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			IF convert_from(event.payload, 'UTF8')::jsonb ? 'wait' THEN LOCK TABLE app.work IN ACCESS SHARE MODE; END IF;
			IF convert_from(event.payload, 'UTF8')::jsonb ? 'fail' THEN RAISE 'it failed'; END IF;
			INSERT INTO app.seen VALUES (event.aggregate_id, event.version);
		END \$\$;
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{work}', 'app.work(postbox.event)');
	SELECT postbox.create_subscription('follower', 'app.inbox', '$subscription', appliers => 1, max_attempts => 1, batch_size => 1,
		on_error => 'dead_letter_topic', dead_letter_topic => 'catalog.video.dead', statement_timeout => '10min', lock_timeout => '0');
});
# Another database, for what takes long.
$node->safe_psql('postgres', 'CREATE DATABASE silent');
$node->safe_psql(
	'silent', qq{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.outbox');
	SELECT postbox.create_publication('silent', 'app.outbox', 'catalog.silent.events');
	CREATE TABLE app.seen (aggregate_id text, version bigint);
	CREATE FUNCTION app.work(event postbox.event) RETURNS void LANGUAGE sql AS 'INSERT INTO app.seen VALUES (event.aggregate_id, event.version)';
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{work}', 'app.work(postbox.event)');
	SELECT postbox.create_subscription('silent', 'app.inbox', '$silent', appliers => 1, batch_size => 1, statement_timeout => '1s', min_backoff => '100ms', max_backoff => '1s');
});
my $emitted = 0;

sub work
{
	my ($count, $payload) = @_;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('work', 'k' || n, 'work', '$payload'::jsonb)) FROM generate_series(1, $count) n");
	$emitted += $count;
	return;
}

# An event that shows that the handler works: without one, three keys that fail suspend their type.
sub healthy
{
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('work', 'healthy', 'work', '{}'::jsonb)});
	++$emitted;
	return;
}

# In general a puller of this test ends after half a second, with the first one after the product's 2 s.
sub start_pull
{
	my (%options) = @_;
	return start_puller($node, 'postgres', $emulator, alone => 1, grace_period => 0, failpoints => ['closing_time=500'], %options);
}

# On a loaded machine a process that ends needs a moment. What would hold it up lasts for 10 s or more.
sub ends_soon { my ($puller, $what, $closing) = @_; return stop_puller_within($puller, ($closing // 0.5) + 4, $what); }

sub applier
{
	return $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'postbox pull follower' LIMIT 1});
}

sub wait_connected
{
	wait_until($node, 'postgres', q{SELECT count(*) > 0 FROM postbox.subscription_status WHERE stream = 'connected'
		AND EXISTS (SELECT FROM pg_stat_activity WHERE application_name = 'postbox pull follower')}, 'the puller is there');
	return applier();
}

sub wait_working
{
	wait_until($node, 'postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'postbox pull follower' AND wait_event_type = 'Lock'}, 'an event is being applied');
	return;
}

# Events whose payload says that they wait do so for the session that this returns.
sub hold_work
{
	my $holder = $node->background_psql('postgres', on_error_stop => 1);
	$holder->query_safe('BEGIN; LOCK TABLE app.work IN ACCESS EXCLUSIVE MODE');
	return $holder;
}

sub release_work { my ($holder) = @_; $holder->query_safe('COMMIT'); $holder->quit; return; }

sub all_seen
{
	my $seen = 0;
	wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", 'every event has taken effect once');
	return;
}

# What becomes of this one is looked at later.
my $held_up = start_puller($node, 'silent', $emulator, grace_period => 0, failpoints => [ 'answer_time=4000', 'cancel_time=1000' ]);
my $silent_sessions = q{FROM pg_stat_activity WHERE application_name = 'postbox pull silent'};
wait_until($node, 'silent', "SELECT count(*) > 0 FROM postbox.subscription_status WHERE stream = 'connected' AND EXISTS (SELECT $silent_sessions)", 'a puller of another database is there');
my $silent_pid = $node->safe_psql('postgres', "SELECT pid $silent_sessions LIMIT 1");
stop_between_transactions($node, $silent_pid);
$node->safe_psql('silent', q{SELECT count(postbox.outbox_emit('work', 'k' || n, 'work', '{}'::jsonb)) FROM generate_series(1, 3) n});

subtest 'an event that is being applied for long: its statement is cancelled, and the next event is not begun' => sub {
	my $puller = start_pull(failpoints => []);
	wait_connected();
	my $holder = hold_work();
	work(5, '{"wait": true}');
	wait_working();
	ends_soon($puller, 'during a long statement', 2);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.seen'), '0', 'nothing of it has taken effect');
	wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%' AND datname = current_database()}, 'the server has no session of it');
	release_work($holder);
	$puller = start_pull(grace_period => 30);
	wait_connected();
	all_seen();
	ends_soon($puller, 'without anything to do');
};

subtest 'a server that does not answer while it applies' => sub {
	my $puller = start_pull();
	my $pid = wait_connected();
	stop_between_transactions($node, $pid);
	work(5, '{}');
	wait_until($node, 'postgres', "SELECT pending = 0 FROM postbox.publication_status", 'the events are published');
	select(undef, undef, undef, 0.5);
	ends_soon($puller, 'while a session is stopped');
	kill('CONT', $pid);
	$puller = start_pull(grace_period => 30);
	wait_connected();
	all_seen();
	ends_soon($puller, 'afterwards');
};

subtest 'a server that does not answer a new connection' => sub {
	my $puller = start_pull(dsn => $node->connstr('postgres') . ' connect_timeout=0', failpoints => [ 'closing_time=500', 'connect_time=1000' ]);
	my $pid = wait_connected();
	my $postmaster = (split /\n/, slurp($node->data_dir . '/postmaster.pid'))[0];
	# All of them lose their connection, and the postmaster does not make new ones.
	$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%' AND datname = current_database()});
	kill('STOP', $postmaster);
	# It reads its configuration at once.
	$puller->{run}->signal('HUP');
	puller_says($puller, qr/no connection to the database|could not be read/, 'the puller has noticed');
	ends_soon($puller, 'while it connects');
	kill('CONT', $postmaster);
};

subtest 'a server that never answered' => sub {
	my $listener = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => 0, Listen => 5) or BAIL_OUT("listen: $!");
	my $puller = start_pull(dsn => 'host=127.0.0.1 connect_timeout=0 dbname=postgres port=' . $listener->sockport);
	my $taken = $listener->accept;
	ok($taken, 'the puller has connected');
	ends_soon($puller, 'at its first connection');
};

subtest 'the configuration is being read' => sub {
	my $puller = start_pull();
	wait_connected();
	my $pid = $node->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE application_name = 'postbox pull' AND datname = current_database()});
	like($pid, qr/^\d+$/, 'its session is there');
	stop_between_transactions($node, $pid);
	$puller->{run}->signal('HUP');
	select(undef, undef, undef, 0.5);
	ends_soon($puller, 'while the session of the configuration is stopped');
	kill('CONT', $pid);
};

subtest 'a dead-letter topic that does not answer' => sub {
	emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=60000,attribute=postbox_error_sqlstate');
	my $puller = start_pull();
	wait_connected();
	work(3, '{"fail": true}');
	$emitted -= 3;
	work(3, '{}');
	wait_for(sub { healthy(); emulator_fault_count() > 0 }, 'the dead letters are on their way');
	ends_soon($puller, 'while dead letters are on their way');
	emulator_fault($emulator, '--clear');
	$puller = start_pull(grace_period => 30);
	wait_connected();
	wait_for(sub { healthy(); $puller->{run}->pump_nb; my @dead = $puller->{output} =~ /event published to the dead-letter topic/g; return @dead >= 3 }, 'the dead letters are published later')
	  or diag($puller->{output});
	all_seen();
	ends_soon($puller, 'afterwards');
};

subtest 'a server that is silent for too long counts as gone' => sub {
	# The statement timeout, 4 s, and 1 s for a cancel, since long before.
	wait_until($node, 'silent', 'SELECT count(*) = 3 FROM app.seen', 'every event has taken effect once');
	puller_says($held_up, qr/the server has not answered in time/, 'the log says why');
	is($node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'postbox pull silent' AND pid <> $silent_pid"), '1', 'over another connection');
	ends_soon($held_up, 'afterwards', 2);
	kill('CONT', $silent_pid);
};

subtest 'a broker that does not take the acks' => sub {
	my $puller = start_pull();
	wait_connected();
	my $holder = hold_work();
	work(3, '{"wait": true}');
	wait_working();
	kill('STOP', $emulator->{pid});
	release_work($holder);
	wait_until($node, 'postgres', "SELECT count(*) > $emitted - 3 FROM app.seen", 'it is applied');
	ends_soon($puller, 'while the broker is stopped');
	kill('CONT', $emulator->{pid});
	$puller = start_pull(grace_period => 30);
	wait_connected();
	all_seen();
	ends_soon($puller, 'afterwards');
};

sub emulator_fault_count
{
	return counted($emulator, 'faults_fired');
}

sub slurp
{
	my ($file) = @_;
	open(my $handle, '<', $file) or BAIL_OUT("$file: $!");
	local $/;
	return scalar <$handle>;
}

$node->stop;
done_testing();
