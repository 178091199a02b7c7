# How many connections `postbox pull` takes: one for each subscription, more for those that have work for them, none that others need
# more, and what a subscription says that gets none.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $subscriptions = 12;
my @names = map { "s$_" } 1 .. $subscriptions;
my $topic = 'catalog.video.events';
my $emulator = start_emulator(map { ('--subscription', "$topic.test-$_=$topic,ordered") } @names, 'late', 'busy');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '200ms', 'max_connections' => 40 });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', q{
	CREATE TABLE app.work ();
	CREATE FUNCTION app.work(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			body jsonb := convert_from(event.payload, 'UTF8');
		BEGIN
			IF body ? 'wait' THEN LOCK TABLE app.work IN ACCESS SHARE MODE; END IF;
			PERFORM pg_sleep(coalesce((body ->> 'sleep')::float, 0));
		END $$;
	CREATE FUNCTION app.ignore(event postbox.event) RETURNS void LANGUAGE sql AS ''});

sub subscribe
{
	my ($name, $options) = @_;
	my $handler = $name eq 'late' ? 'ignore' : 'work';
	$node->safe_psql('postgres', qq{SELECT postbox.create_inbox('app.inbox_$name');
		SELECT postbox.create_handler('app.inbox_$name', '{work}', 'app.$handler(postbox.event)');
		SELECT postbox.create_subscription('$name', 'app.inbox_$name', '$topic.test-$name', appliers => 4, lock_timeout => '0', statement_timeout => '0'} . ($options // '') . ')');
	return;
}

my $emitted = 0;

sub work
{
	my ($count, $payload) = @_;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('work', 'k' || n, 'work', '$payload'::jsonb)) FROM generate_series(1, $count) n");
	$emitted += $count;
	return;
}

sub applied
{
	my ($what, @of) = @_;
	for my $name (@of)
	{
		wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.inbox_$name", "$what: $name has applied all") or return 0;
	}
	return 1;
}

sub connections_of
{
	my ($name) = @_;
	return $node->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE '$name'");
}

sub connected { my ($name, $condition, $what) = @_;
	return wait_until($node, 'postgres', "SELECT count(*) $condition FROM pg_stat_activity WHERE application_name = 'postbox pull $name'", $what); }

subtest 'twelve subscriptions with four appliers each, and 40 connections' => sub {
	subscribe($_) for @names;
	my $puller = start_puller($node, 'postgres', $emulator);
	work(200, '{}');
	applied('together', @names) or diag($puller->{output});
	# Applications come in meanwhile, which all of this asks over.
	wait_until($node, 'postgres', q{SELECT count(*) = 13 FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%'}, 'it keeps one each, and that of the configuration');
	unlike($puller->{output}, qr/no connection to the database/, 'none was refused one');
	puller_says($puller, qr/connections=13 at_most=49 subscriptions=12 appliers=48/, 'it says how many it needs');
	stop_puller($puller);
	$node->safe_psql('postgres', 'SELECT postbox.drop_subscription(name) FROM postbox.subscription');
};

# A role that may have a few connections.
$node->safe_psql('postgres', q{CREATE ROLE puller LOGIN; GRANT USAGE ON SCHEMA app TO puller; ALTER DEFAULT PRIVILEGES IN SCHEMA app GRANT INSERT ON TABLES TO puller});
# It closes what it has not used for a quarter of a second, not for ten, and waits as long after a refusal.
my @as_puller = (dsn => $node->connstr('postgres') . ' user=puller', failpoints => [ 'idle_time=250', 'connection_pause=250' ]);

subtest 'work that takes long gets more connections, which are given back' => sub {
	subscribe('busy', q{, batch_size => 1});
	my $puller = start_puller($node, 'postgres', $emulator, @as_puller, grace_period => 0);
	connected('busy', '= 1', 'one is there from the beginning');
	# Work waits for the lock.
	my $lock = $node->background_psql('postgres', on_error_stop => 1);
	my $hold = 'BEGIN; LOCK TABLE app.work IN ACCESS EXCLUSIVE MODE';
	$lock->query_safe($hold);
	work(8, '{"wait": true}');
	connected('busy', '= 4', 'each applier has one when there is work for all');
	$lock->query_safe('COMMIT');
	applied('in the end', 'busy');
	connected('busy', '= 1', 'all but one are given back when there is nothing to do');
	$node->safe_psql('postgres', 'ALTER ROLE puller CONNECTION LIMIT 5');
	$lock->query_safe($hold);
	work(200, '{"wait": true, "sleep": 0.4}');
	connected('busy', '= 4', 'it has all that the role may have');
	$lock->query_safe('COMMIT');
	$lock->quit;
	subscribe('late');
	$puller->{run}->signal('HUP');
	connected('late', '= 1', 'one that comes later gets its first one, since the other one gives back what is more than one');
	wait_until($node, 'postgres', q{SELECT stream = 'connected' AND last_error IS NULL OR last_error ~ 'no connection' FROM postbox.subscription_status WHERE subscription = 'late'},
		'and it is shown');
	wait_until($node, 'postgres', q{SELECT retrying_since IS NULL FROM postbox.subscription_status WHERE subscription = 'late'}, 'what could not be connected is over');
	work(5, '{}');
	wait_until($node, 'postgres', "SELECT count(*) > 200 FROM app.inbox_late", 'it applies while the other one works');
	stop_puller($puller);
};

subtest 'a subscription without a connection says why' => sub {
	$node->safe_psql('postgres', 'ALTER ROLE puller CONNECTION LIMIT 2');
	# At first another session of the role is there, so neither gets one.
	my $other = $node->background_psql('postgres', extra_params => [ '-U', 'puller' ]);
	my $puller = start_puller($node, 'postgres', $emulator, @as_puller, grace_period => 0);
	my $no_connection = q{last_error ~ '^no connection to the database: .*too many connections for role'};
	wait_until($node, 'postgres', "SELECT count(*) FILTER (WHERE $no_connection) = 2 FROM postbox.subscription_status", 'both say it');
	$other->quit;
	# The last error of one that has gone on stays.
	wait_until($node, 'postgres', qq{SELECT count(*) = 2 AND count(*) FILTER (WHERE $no_connection AND retrying_since IS NOT NULL) = 1
		FROM postbox.subscription_status WHERE stream = 'connected'}, 'its row says it, over the connection of the configuration') or diag($puller->{output});
	my $starving = $node->safe_psql('postgres', "SELECT subscription FROM postbox.subscription_status WHERE $no_connection AND retrying_since IS NOT NULL");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM postbox.doctor() WHERE detail ~ 'no puller'}), '0', 'the doctor does not say that it is not pulled');
	like($node->safe_psql('postgres', q{SELECT status, detail, remedy FROM postbox.doctor() WHERE "check" = 'connections'}),
		qr/^error\|.*role puller may have 2 connections.*3.*\|.*ALTER ROLE puller CONNECTION LIMIT/, 'postbox.doctor() compares the need with the limit');
	emulator_fault($emulator, 'rpc=StreamingPull,action=abort-stream,code=UNAVAILABLE,message=away');
	wait_until($node, 'postgres', qq{SELECT stream = 'reconnecting' AND stream_error ~ 'away' AND now() - stream_since < '5 s' FROM postbox.subscription_status WHERE subscription = '$starving'},
		'what becomes of its stream is shown at once');
	emulator_fault($emulator, '--clear');
	$node->safe_psql('postgres', 'ALTER ROLE puller CONNECTION LIMIT 9');
	connected($starving, '= 1', 'it goes on by itself');
	wait_until($node, 'postgres', "SELECT retrying_since IS NULL FROM postbox.subscription_status WHERE subscription = '$starving'", 'and its row says so');
	$node->safe_psql('postgres', 'ALTER ROLE puller CONNECTION LIMIT 2');
	$node->safe_psql('postgres', qq{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'postbox pull $starving'});
	work(1, '{}');
	wait_until($node, 'postgres', "SELECT retrying_since IS NOT NULL FROM postbox.subscription_status WHERE subscription = '$starving'", 'it has none again');
	stop_puller_within($puller, 2 + 2, 'SIGTERM is answered at once');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.subscription_status'), '0', 'and its report is removed');
};

subtest 'a puller that ends while a subscription is started again leaves no report' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.drop_subscription(name) FROM postbox.subscription});
	$node->safe_psql('postgres', "SELECT postbox.create_subscription('$_', 'app.inbox_$_', '$topic.test-$_', appliers => 1, lock_timeout => '0', statement_timeout => '0')") for qw(s1 s2);
	my $lock = $node->background_psql('postgres', on_error_stop => 1);
	$lock->query_safe('BEGIN; LOCK TABLE app.work IN ACCESS EXCLUSIVE MODE');
	work(1, '{"wait": true}');
	my $puller = start_puller($node, 'postgres', $emulator, grace_period => 0, failpoints => ['reconfigure_time=60000']);
	wait_until($node, 'postgres', q{SELECT count(*) = 2 FROM pg_stat_activity WHERE application_name LIKE 'postbox pull s%' AND wait_event_type = 'Lock'}, 'both apply');
	# Over the connection of the configuration, since their own ones are in use.
	wait_until($node, 'postgres', q{SELECT count(*) = 2 FROM postbox.subscription_status}, 'both have reports');
	$node->safe_psql('postgres', q{UPDATE postbox.subscription SET batch_size = 40 WHERE name = 's1'});
	$puller->{run}->signal('HUP');
	wait_for(sub { counted($emulator, 'streams') == 1 }, 'one is being stopped');
	wait_until($node, 'postgres', q{SELECT max(last_seen) < clock_timestamp() - interval '1 s' FROM postbox.subscription_status}, 'a report of the other one is due');
	stop_puller_within($puller, 2 + 2, 'the other one ends beside it');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.subscription_status'), '0', 'both reports are removed');
	$lock->query_safe('COMMIT');
	$lock->quit;
};

$node->stop;
done_testing();
