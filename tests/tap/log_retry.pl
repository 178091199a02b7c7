# An event of a log outbox that cannot be published is moved aside: its key waits behind it, other keys go on,
# the position goes on, and SQL shows which, why, and how to go on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2,
	'postbox.poll_interval' => '50ms',
	'postbox.publish_timeout' => '1s',
});
$node->start;
create_outbox($node, 'postgres', kind => 'log');
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.one', 'video.two', 'video.three', 'video.four', 'video.poison');
$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', max_attempts => 3, base_backoff => '100ms', max_backoff => '500ms')});
my $puller = start_puller($node, 'postgres', $emulator);

my $poison = 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison';

sub emit_to
{
	my ($key, @types) = @_;
	$node->safe_psql('postgres', join('; ', map { "SELECT postbox.outbox_emit('video', '$key', 'video.$_', '{}'::jsonb)" } @types));
}

# The versions of a key in the order in which they came.
sub wait_arrived
{
	my ($key, $expected, $what) = @_;
	my $seen = "SELECT string_agg(version::text, ' ' ORDER BY n) FROM app.seen WHERE aggregate_id = '$key'";
	wait_until($node, 'postgres', "SELECT ($seen) = '$expected'", $what) or diag("$key: " . $node->safe_psql('postgres', $seen));
}

sub wait_parked
{
	my ($key, $expected, $what) = @_;
	wait_until($node, 'postgres', "SELECT coalesce(string_agg(version || CASE WHEN publish_attempts = 0 THEN ' behind' WHEN next_retry_at = 'infinity' THEN ' failed' ELSE ' retry' END, ', ' ORDER BY seq), '') = '$expected' FROM app.outbox_parked WHERE aggregate_id = '$key'", $what);
}

emulator_fault($emulator, $poison);

subtest 'a refused event stops its key after max_attempts, and only its key' => sub {
	emit_to('a', 'one', 'poison', 'two', 'three');
	emit_to('b', 'one', 'two');
	wait_parked('a', '2 failed, 3 behind, 4 behind', 'the key stands still behind the event');
	wait_arrived('a', '1', 'what came before it is published');
	wait_arrived('b', '1 2', 'another key goes on');
	emit_to('a', 'four');
	wait_parked('a', '2 failed, 3 behind, 4 behind, 5 behind', 'what comes later waits, too');
	is( $node->safe_psql('postgres', 'SELECT outbox, aggregate_id, event_type, attempts, next_retry_at, waiting FROM postbox.paused_keys'),
		'app.outbox|a|video.poison|3|infinity|3', 'paused_keys shows it');
	like($node->safe_psql('postgres', 'SELECT last_error FROM postbox.paused_keys'), qr/^INVALID_ARGUMENT/, 'and why');
	is($node->safe_psql('postgres', 'SELECT parked FROM postbox.publication_status'), '4', 'publication_status counts it');
};

subtest 'what is parked survives a restart of the server' => sub {
	# (restart() of PostgreSQL 15's test module ignores a mode.)
	$node->stop('immediate');
	$node->start;
	$node->poll_query_until('postgres', 'SELECT true');
	emit_to('a', 'one');
	emit_to('b', 'three');
	wait_parked('a', '2 failed, 3 behind, 4 behind, 5 behind, 6 behind', 'the key still waits');
	wait_arrived('b', '1 2 3', 'the other key goes on');
};

subtest 'redrive tries again, in order' => sub {
	emulator_fault($emulator, '--clear');
	is($node->safe_psql('postgres', q{SELECT postbox.redrive('app.outbox')}), '1', 'one event is redriven');
	wait_parked('a', '', 'nothing is parked any more');
	wait_arrived('a', '1 2 3 4 5 6', 'all came, in order');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.paused_keys'), '0', 'no key is paused');
};

subtest 'discard lets the key go on without the event' => sub {
	emulator_fault($emulator, $poison);
	emit_to('c', 'poison', 'one', 'two');
	wait_parked('c', '1 failed, 2 behind, 3 behind', 'the key stands still');
	my $id = $node->safe_psql('postgres', q{SELECT first_event_id FROM postbox.paused_keys WHERE aggregate_id = 'c'});
	is($node->safe_psql('postgres', "SELECT postbox.discard('app.outbox', '$id')"), 't', 'the event is discarded');
	wait_arrived('c', '2 3', 'the rest comes');
	wait_parked('c', '', 'nothing is parked any more');
};

subtest 'with park_event the key goes on' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', on_failure => 'park_event')});
	emit_to('d', 'poison', 'one', 'two');
	wait_arrived('d', '2 3', 'the rest comes');
	wait_parked('d', '1 failed', 'the event alone is parked');
};

subtest 'an outage parks nothing, and what it held up follows in order' => sub {
	emulator_fault($emulator, '--clear');
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE');
	emit_to('e', 'one', 'two');
	wait_until($node, 'postgres', q{SELECT state = 'retrying' AND last_error LIKE 'UNAVAILABLE%' FROM postbox.publication_status}, 'the publication is retrying and says why');
	emit_to('e', 'three');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.outbox_parked WHERE aggregate_id = 'e'}), '0', 'nothing is parked');
	emulator_fault($emulator, '--clear');
	wait_arrived('e', '1 2 3', 'all came, in order');
};

subtest 'an event that alone gets no answer is parked in the end, and the publication is never suspended for it' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', on_failure => 'park_key')});
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE,attribute=event_type:video.poison');
	# The other key goes on all the time, or it would be an outage.
	$node->safe_psql('postgres', q{
		CREATE TABLE app.states (state text, error text);
		CREATE FUNCTION app.go_on() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
			PERFORM postbox.outbox_emit('video', 'h', 'video.one', '{}'::jsonb);
			INSERT INTO app.states SELECT state, last_error FROM postbox.publication_status;
			RETURN (SELECT count(*) = 2 FROM app.outbox_parked WHERE aggregate_id = 'g');
		END $$;
		SELECT postbox.outbox_emit('video', 'g', 'video.' || type, '{}'::jsonb) FROM unnest(ARRAY['poison', 'one']) AS type});
	wait_until($node, 'postgres', 'SELECT app.go_on()', 'it is parked, and what follows it');
	# It is retrying where this machine was too busy to publish anything for half a second, and suspended where it was too busy for a step.
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.states WHERE state NOT IN ('active', 'retrying') AND error !~ 'took longer than'}), '0', 'the publication was never suspended');
	cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM app.states WHERE state = 'active'}), '>', 0, 'but active while the other key went on');
	my $others = $node->safe_psql('postgres', 'SELECT count(*) FROM app.states');
	wait_arrived('h', join(' ', 1 .. $others), 'the other key went on');
	emulator_fault($emulator, '--clear');
	wait_arrived('g', '1 2', 'all came in the end, in order');
};

subtest 'a missing topic suspends the publication until it is there' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND');
	emit_to('f', 'one', 'two');
	wait_until($node, 'postgres', q{SELECT state = 'suspended' AND last_error LIKE 'NOT_FOUND%' FROM postbox.publication_status}, 'the publication is suspended and says why');
	emulator_fault($emulator, '--clear');
	wait_arrived('f', '1 2', 'all came, in order');
};

stop_puller($puller);
$node->stop;
done_testing();
