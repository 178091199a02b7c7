# Parked events: one whose transaction commits late, with a seq below those of its key that are parked or were parked, keeps its
# place before what is emitted afterwards; and a lane with very many paused keys begins, and is looked over, though that takes
# longer than a step may take.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.maintenance_interval' => '1h',    # no repair
	'postbox.poll_interval' => '50ms',
	'postbox.time_scale' => 20,    # a step may take a fifth of a second
	'autovacuum' => 'off',
});
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', max_attempts => 1);
});
my $parked = 'SELECT count(*) FROM app.log_parked';

# With a version, so that transactions of the same key do not wait for each other.
my $version = 0;
sub emit_sql
{
	my ($key, $type) = @_;
	++$version;
	return "SELECT postbox.outbox_emit('video', '$key', 'video.$type', '{}'::jsonb, version => $version, outbox => 'app.log')";
}
sub emit_event { my ($key, $type) = @_; return $node->safe_psql('postgres', emit_sql($key, $type)); }

sub wait_parked
{
	my ($count, $what) = @_;
	wait_until($node, 'postgres', "SELECT ($parked) = $count", $what)
	  or diag($node->safe_psql('postgres', 'SELECT seq, event_type, publish_attempts, next_retry_at FROM app.log_parked ORDER BY seq'));
	return;
}

sub poison { emulator_fault($emulator, "rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.$_") for @_; return; }

emit_event('first', 'changed');
wait_for(sub { messages_published($emulator) >= 1 }, 'the worker publishes');

subtest 'a late event in front of a parked one goes out, and the parked one when it is redriven' => sub {
	poison('poison');
	my $late = $node->background_psql('postgres');
	$late->query_safe('BEGIN');
	$late->query_safe(emit_sql('one', 'late'));
	emit_event('one', 'poison');
	wait_parked(1, 'the event is parked');
	$late->query_safe('COMMIT');
	$late->quit;
	wait_for(sub { messages_published($emulator) >= 2 }, 'the late event goes out before the parked one');
	emulator_fault($emulator, '--clear');
	$node->safe_psql('postgres', q{SELECT postbox.redrive('app.log')});
	wait_parked(0, 'both are published');
};

subtest 'a late event in front of what was published already goes out before the parked one' => sub {
	poison('poison', 'poison2');
	my $late = $node->background_psql('postgres');
	$late->query_safe('BEGIN');
	$late->query_safe(emit_sql('two', 'late'));
	emit_event('two', 'poison');
	wait_parked(1, 'the event is parked');
	emit_event('two', 'poison2');
	wait_parked(2, 'so is the next');
	# The first of them goes out, the second is parked.
	emulator_fault($emulator, '--clear');
	poison('poison2');
	$node->safe_psql('postgres', q{SELECT postbox.redrive('app.log')});
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM app.log_parked WHERE event_type = 'video.poison2' AND publish_attempts = 1}, 'one is left');
	wait_parked(1, 'and no other');
	$late->query_safe('COMMIT');
	$late->quit;
	wait_for(sub { messages_published($emulator) >= 5 }, 'the late event goes out before the parked one');
	emulator_fault($emulator, '--clear');
	$node->safe_psql('postgres', q{SELECT postbox.redrive('app.log')});
	wait_parked(0, 'all are published');
	emit_event('two', 'after');
	wait_for(sub { messages_published($emulator) >= 7 }, 'what follows is published');
};

subtest 'very many paused keys' => sub {
	my $keys = 120_000;
	set_configuration($node, 'postbox.publishers', 0);
	$node->reload;
	wait_workers($node, 'postgres', 0);
	$node->safe_psql(
		'postgres', qq{
		INSERT INTO app.log_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, publish_attempts, next_retry_at)
			SELECT 'log', -n, gen_random_uuid(), 'video', 'old-' || n, 'video.changed', 1, '1', '', '{}', now(), 5, 'infinity' FROM generate_series(1, $keys) n});
	emit_event('key-1', 'changed');
	my $sent = messages_published($emulator);
	set_configuration($node, 'postbox.publishers', 1);
	$node->reload;
	wait_for(sub { messages_published($emulator) > $sent }, 'an event is published') or diag(log_since($node, 0));
};

$node->stop;
done_testing();
