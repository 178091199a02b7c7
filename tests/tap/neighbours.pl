# What the owner of one outbox does to it holds up nobody else: one worker, one thread, two owners. While the owner
# `hostile` sleeps, locks, eats memory, or cannot be published at all, the events of `app` are published, and
# postbox.publication_status says what is wrong with `hostile`.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

# A step may take a second, and half a minute passes after one that has ended a worker: here less, in percent.
use constant SCALE => 20;

my $emulator = start_emulator('--topic', 'catalog.hostile.events');
my $node = new_node(
	'main',
	emulator => $emulator,
	settings => {
		'postbox.publishers' => 1,
		'postbox.time_scale' => SCALE,
		'postbox.poll_interval' => '50ms',
		'postbox.max_outstanding_messages' => 250,    # the owner emits more
	});
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql(
	'postgres', q{
	CREATE ROLE hostile LOGIN;
	CREATE SCHEMA hostile AUTHORIZATION hostile;
	GRANT CREATE ON DATABASE postgres TO hostile;
});
my $postgres_pid = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $total = 0;
my $app = $node->background_psql('postgres', on_error_stop => 1);

# A fresh outbox of the owner, published to a topic of its own, with a backoff that tests can wait for.
sub hostile_outbox
{
	my ($kind) = @_;
	$node->safe_psql(
		'postgres', qq{
		DO \$\$ BEGIN
			IF to_regclass('hostile.outbox') IS NOT NULL THEN PERFORM postbox.drop_outbox('hostile.outbox'); END IF;
		END \$\$;
		SET ROLE hostile;
		SELECT postbox.create_outbox('hostile.outbox', '$kind');
		RESET ROLE;
		SELECT postbox.create_publication('hostile', 'hostile.outbox', 'catalog.hostile.events', base_backoff => '100ms', max_backoff => '500ms');
	});
	return;
}

sub as_hostile
{
	my ($sql) = @_;
	$node->safe_psql('postgres', "SET ROLE hostile; $sql");
	return;
}

sub emit_hostile
{
	my ($count, $key) = @_;
	$key //= "'k' || n";
	as_hostile("SELECT count(postbox.outbox_emit('hostile', $key, 'hostile.changed', '{}'::jsonb, outbox => 'hostile.outbox')) FROM generate_series(1, $count) n");
	return;
}

# Several rounds, since a single one may slip through before the other owner's turn.
sub app_flows
{
	my ($what) = @_;
	for my $round (1 .. 3)
	{
		$app->query_safe(q{SELECT count(postbox.outbox_emit('video', 'video-' || n % 7, 'video.created', '{}'::jsonb, outbox => 'app.outbox')) FROM generate_series(1, 50) n});
		$total += 50;
		wait_until($node, 'postgres', "SELECT count(published_at) = $total FROM app.outbox", "$what: the other owner's events go out, round $round");
	}
	return;
}

sub hostile_is
{
	my ($state, $error, $what) = @_;
	wait_until($node, 'postgres',
		"SELECT state = '$state' AND last_error ~ '$error' FROM postbox.publication_status WHERE publication = 'hostile'",
		"$what: the status says so")
	  or diag($node->safe_psql('postgres', q{SELECT * FROM postbox.publication_status WHERE publication = 'hostile'}));
	return;
}

sub no_server_restart
{
	is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $postgres_pid, 'the postmaster is the same');
	unlike(log_since($node, 0), qr/terminating any other active server processes|was terminated by signal/, 'and never restarted its processes');
	return;
}

subtest 'a trigger that sleeps' => sub {
	hostile_outbox('table');
	as_hostile(q{
		CREATE FUNCTION hostile.sleep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(3600); RETURN NEW; END';
		CREATE TRIGGER sleep BEFORE UPDATE ON hostile.outbox FOR EACH ROW EXECUTE FUNCTION hostile.sleep()});
	emit_hostile(5);
	hostile_is('suspended', 'took longer than', 'a claim that sleeps is ended');
	app_flows('while a trigger sleeps');
	as_hostile('DROP TRIGGER sleep ON hostile.outbox');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('hostile', max_attempts => 6)});
	wait_until($node, 'postgres', 'SELECT count(*) = count(published_at) FROM hostile.outbox', 'its own events go out when it is repaired');
};

subtest 'a trigger that sleeps and does not let itself be cancelled' => sub {
	hostile_outbox('table');
	as_hostile(q{
		CREATE OR REPLACE FUNCTION hostile.stubborn() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			LOOP
				BEGIN PERFORM pg_sleep(3600); EXCEPTION WHEN query_canceled THEN NULL; END;
			END LOOP;
		END $$;
		CREATE TRIGGER sleep BEFORE UPDATE ON hostile.outbox FOR EACH ROW EXECUTE FUNCTION hostile.stubborn()});
	emit_hostile(5);
	hostile_is('suspended', 'terminated a worker', 'its worker is replaced');
	app_flows('while a trigger does not let itself be cancelled');
	no_server_restart();
};

subtest 'a trigger that sleeps when results are stored' => sub {
	hostile_outbox('table');
	as_hostile(q{
		CREATE TRIGGER sleep BEFORE UPDATE ON hostile.outbox FOR EACH ROW WHEN (NEW.published_at IS NOT NULL) EXECUTE FUNCTION hostile.sleep()});
	emit_hostile(500);
	hostile_is('suspended', 'took longer than', 'a result that cannot be stored');
	app_flows('while results cannot be stored');
};

subtest 'a trigger that sleeps when results are stored, and does not let itself be cancelled' => sub {
	hostile_outbox('table');
	as_hostile(q{
		CREATE TRIGGER sleep BEFORE UPDATE ON hostile.outbox FOR EACH ROW WHEN (NEW.lock_token IS NULL) EXECUTE FUNCTION hostile.stubborn()});
	my ($position, $begin) = (log_position($node), time);
	emit_hostile(5);
	hostile_is('suspended', 'terminated a worker', 'its worker is replaced');
	app_flows('while a worker had to be replaced');
	my $ends = () = log_since($node, $position) =~ /terminating background worker "postbox publisher"/g;
	cmp_ok($ends, '<=', 1 + (time - $begin) / (0.3 * SCALE), 'the next worker does not run into it for a long while');
};

subtest 'results that cannot be stored do not use up the budget of all' => sub {
	hostile_outbox('table');
	as_hostile(q{
		CREATE OR REPLACE FUNCTION hostile.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'never'; END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON hostile.outbox FOR EACH ROW WHEN (NEW.published_at IS NOT NULL) EXECUTE FUNCTION hostile.refuse()});
	emit_hostile(1250);
	hostile_is('suspended', '^never', 'an error of the trigger');
	app_flows('while results cannot be stored');
};

for my $kind ('table', 'log')
{
	subtest "a $kind outbox that its owner has locked" => sub {
		hostile_outbox($kind);
		my $session = $node->background_psql('postgres');
		$session->query_safe('BEGIN; SET LOCAL ROLE hostile; LOCK TABLE hostile.outbox IN ACCESS EXCLUSIVE MODE');
		my $pid = $session->query_safe('SELECT pg_backend_pid()');
		# The view must not wait either: it is asked for the state, which holds the reason.
		wait_until($node, 'postgres', "SELECT last_error ~ 'locked by process $pid' FROM postbox.publication_state WHERE publication = 'hostile'", 'the reason names who holds the lock');
		app_flows('while an outbox is locked');
		$session->query_safe('COMMIT');
		$session->quit;
		emit_hostile(5);
		wait_until($node, 'postgres', q{SELECT pending = 0 AND state = 'active' FROM postbox.publication_status WHERE publication = 'hostile'}, 'it goes on when the lock is gone');
	};
}

subtest 'a trigger that eats memory' => sub {
	hostile_outbox('table');
	as_hostile(q{
		CREATE FUNCTION hostile.eat() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			PERFORM array_agg(repeat('x', 1000000)) FROM generate_series(1, 100000);
			RETURN NEW;
		END $$;
		CREATE TRIGGER eat BEFORE UPDATE ON hostile.outbox FOR EACH ROW EXECUTE FUNCTION hostile.eat()});
	emit_hostile(5);
	hostile_is('suspended', 'took (more than .* of memory|longer than)', 'a claim that eats memory is ended');
	app_flows('while a trigger eats memory');
	no_server_restart();
};

for my $kind ('table', 'log')
{
	subtest "a topic that refuses every event as invalid, $kind" => sub {
		hostile_outbox($kind);
		$node->safe_psql('postgres', q{SELECT postbox.alter_publication('hostile', max_attempts => 1000)});
		my $position = log_position($node);
		emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=aggregate_type:hostile');
		emit_hostile(300);
		hostile_is('suspended', 'every event .* was refused: INVALID_ARGUMENT', 'a first batch that is refused throughout');
		app_flows('while a topic refuses everything');
		is($node->safe_psql('postgres', q{SELECT parked FROM postbox.publication_status WHERE publication = 'hostile'}), '0', 'no event is blamed');
		my $lines = () = log_since($node, $position) =~ /publication "hostile"/g;
		cmp_ok($lines, '<', 20, "the log has few lines about it: $lines");
		emulator_fault($emulator, '--clear');
		wait_until($node, 'postgres', q{SELECT pending = 0 AND parked = 0 AND state = 'active' FROM postbox.publication_status WHERE publication = 'hostile'}, 'all go out when the topic takes them');
	};

	subtest "events that are refused among others that are not, $kind" => sub {
		hostile_outbox($kind);
		emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=aggregate_id:bad');
		emit_hostile(20, "CASE WHEN n % 10 = 0 THEN 'bad' ELSE 'k' || n END");
		wait_until($node, 'postgres', q{SELECT pending = 2 AND parked = 2 FROM postbox.publication_status WHERE publication = 'hostile'}, 'are parked');
		emulator_fault($emulator, '--clear');
	};

	subtest "a publication that is refused throughout for long parks a few events, and looks on, $kind" => sub {
		hostile_outbox($kind);
		$node->safe_psql('postgres', q{SELECT postbox.alter_publication('hostile', max_attempts => 2)});
		emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=aggregate_type:refused');
		as_hostile(q{SELECT count(postbox.outbox_emit(CASE WHEN n <= 40 THEN 'refused' ELSE 'hostile' END, 'k' || n, 'hostile.changed', '{}'::jsonb,
			outbox => 'hostile.outbox')) FROM generate_series(1, 50) n});
		wait_until($node, 'postgres', q{SELECT parked = 40 AND pending = 40 FROM postbox.publication_status WHERE publication = 'hostile'}, 'events behind the refused ones go out');
		emulator_fault($emulator, '--clear');
	};
}

# It comes last: its events are on their way for long.
subtest 'a topic that never answers, with many keys' => sub {
	hostile_outbox('log');
	emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=600000,attribute=aggregate_type:hostile');
	emit_hostile(750);
	app_flows('while a topic does not answer');
	emulator_fault($emulator, '--clear');
};

no_server_restart();
$app->quit;
$node->stop;
done_testing();
