# An event that cannot be published is parked: its key waits behind it, other keys go on, and SQL shows
# which, why, and how to go on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Load;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2,
	'postbox.poll_interval' => '50ms',
	'postbox.publish_timeout' => '1s',
	'postbox.maintenance_interval' => '1s',
});
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', max_attempts => 3, base_backoff => '100ms', max_backoff => '500ms')});

my $poison = 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison';

sub emit_to
{
	my ($key, @types) = @_;
	$node->safe_psql('postgres', join('; ', map { "SELECT postbox.outbox_emit('video', '$key', 'video.$_', '{}'::jsonb)" } @types));
}

sub wait_states
{
	my ($key, $expected, $what) = @_;
	wait_until($node, 'postgres', "SELECT (@{[states_query($key)]}) = '$expected'", $what) or diag("$key is: " . states($node, 'postgres', $key));
}

sub event_id { return $node->safe_psql('postgres', "SELECT id FROM app.outbox WHERE aggregate_id = '$_[0]' AND event_type = 'video.poison' AND published_at IS NULL"); }

emulator_fault($emulator, $poison);

subtest 'a refused event stops its key after max_attempts, and only its key' => sub {
	emit_to('a', 'one', 'poison', 'two', 'three');
	emit_to('b', 'one', 'two');
	wait_states('a', 'published failed behind behind', 'the key stands still behind the event');
	wait_states('b', 'published published', 'another key goes on');
	emit_to('a', 'four');
	wait_states('a', 'published failed behind behind behind', 'what comes later waits, too');
	is( $node->safe_psql('postgres', 'SELECT outbox, aggregate_id, event_type, attempts, next_retry_at, waiting FROM postbox.paused_keys'),
		'app.outbox|a|video.poison|3|infinity|3', 'paused_keys shows it');
	like($node->safe_psql('postgres', 'SELECT last_error FROM postbox.paused_keys'), qr/^INVALID_ARGUMENT/, 'and why');
};

subtest 'redrive tries again, in order; while the event is refused it fails again' => sub {
	is($node->safe_psql('postgres', q{SELECT postbox.redrive('app.outbox', '} . event_id('a') . q{')}), '1', 'one event is redriven');
	wait_until($node, 'postgres', q{SELECT publish_attempts = 3 AND next_retry_at = 'infinity' FROM app.outbox WHERE event_type = 'video.poison'}, 'it has failed again');
	wait_states('a', 'published failed behind behind behind', 'its key waits again');
	emulator_fault($emulator, '--clear');
	$node->safe_psql('postgres', q{SELECT postbox.redrive('app.outbox')});
	wait_states('a', 'published published published published published', 'all are published once it is accepted');
	is($node->safe_psql('postgres', q{SELECT bool_and(published_at >= before) FROM (SELECT published_at, lag(published_at) OVER (ORDER BY seq) AS before FROM app.outbox WHERE aggregate_id = 'a') e}), 't', 'in the order of the key');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.paused_keys'), '0', 'no key is paused');
};

subtest 'discard lets the key go on without the event' => sub {
	emulator_fault($emulator, $poison);
	emit_to('c', 'poison', 'one', 'two');
	wait_states('c', 'failed behind behind', 'the key stands still');
	is($node->safe_psql('postgres', q{SELECT postbox.discard('app.outbox', '} . event_id('c') . q{')}), 't', 'the event is discarded');
	wait_states('c', 'discarded published published', 'the rest goes out');
};

subtest 'an event that goes through at the second try takes along what waited behind it' => sub {
	emulator_fault($emulator, '--clear', "$poison,count=1");
	emit_to('d', 'poison', 'one', 'two');
	wait_states('d', 'published published published', 'all are published');
	# A refused request may be cut in two and sent again before the event is blamed, so one refusal need not show.
	cmp_ok($node->safe_psql('postgres', q{SELECT max(publish_attempts) FROM app.outbox WHERE aggregate_id = 'd'}), '<=', 1, 'with one retry at most');
};

subtest 'an outage is no fault of the event: it is tried for ever, and does not count' => sub {
	emulator_fault($emulator, '--clear', 'rpc=Publish,code=UNAVAILABLE');
	emit_to('e', 'one', 'two');
	wait_until($node, 'postgres', q{SELECT attempts > 3 AND last_error LIKE 'UNAVAILABLE%' FROM postbox.lane WHERE publication = 'videos'}, 'more often than max_attempts');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.outbox WHERE aggregate_id = 'e' AND (publish_attempts > 0 OR next_retry_at IS NOT NULL)}), '0', 'no event is blamed');
	emulator_fault($emulator, '--clear');
	wait_states('e', 'published published', 'and goes out when the broker is back');
};

subtest 'that nobody answers for one event alone does not count, and its key waits' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE,attribute=event_type:video.poison');
	$node->safe_psql('postgres', q{
		CREATE TABLE app.retry (at timestamptz);
		CREATE FUNCTION app.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO app.retry VALUES (new.next_retry_at); RETURN NULL; END';
		CREATE TRIGGER note AFTER UPDATE ON app.outbox FOR EACH ROW
			WHEN (new.aggregate_id = 'i' AND new.event_type = 'video.poison' AND new.lock_token IS NULL AND new.last_error LIKE 'UNAVAILABLE%') EXECUTE FUNCTION app.note()});
	emit_to('i', 'poison', 'one');
	# Others go through all the time, so this is no outage. It is parked more often than max_attempts.
	my $others = start_load($node, 'postgres', { one => q{SELECT postbox.outbox_emit('video', 'j', 'video.one', '{}'::jsonb);} }, clients => 2, rate => 40);
	wait_until($node, 'postgres', 'SELECT count(DISTINCT at) > 4 FROM app.retry', 'it is tried again and again');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', base_backoff => '1h', max_backoff => '1h')});
	wait_until($node, 'postgres', q{SELECT max(at) > now() + interval '10 min' FROM app.retry}, 'with the backoff of the publication');
	stop_load($others);
	$node->safe_psql('postgres', 'DROP TRIGGER note ON app.outbox');
	is($node->safe_psql('postgres', q{SELECT attempts, waiting FROM postbox.paused_keys WHERE aggregate_id = 'i'}), '0|1', 'paused_keys shows it, without an attempt');
	is($node->safe_psql('postgres', q{SELECT max(publish_attempts) FROM app.outbox WHERE aggregate_id = 'i'}), '0', 'no attempt counts');
	emulator_fault($emulator, '--clear');
	# What was in one request with it has the same result.
	cmp_ok($node->safe_psql('postgres', q{SELECT postbox.redrive('app.outbox')}), '>=', 1, 'redrive tries it at once');
	wait_states('i', 'published published', 'it goes out when it is answered, and what waits behind it');
	wait_until($node, 'postgres', q{SELECT count(*) = count(published_at) FROM app.outbox WHERE aggregate_id = 'j'}, 'the other key went on');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', base_backoff => '100ms', max_backoff => '500ms')});
};

subtest 'on_failure park_event lets the key go on past the parked event' => sub {
	emulator_fault($emulator, $poison);
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', on_failure => 'park_event')});
	emit_to('f', 'poison', 'one', 'two');
	wait_states('f', 'failed published published', 'only the event itself is parked');
	emulator_fault($emulator, '--clear');
	$node->safe_psql('postgres', q{SELECT postbox.redrive('app.outbox')});
	wait_states('f', 'published published published', 'redrive sends it');
};

subtest 'rows that came apart find together again' => sub {
	# A retry that is due, but with an event before it that waits; and events behind a parked one that is not there.
	$node->safe_psql(
		'postgres', q{
		SELECT postbox.alter_publication('videos', on_failure => 'park_key');
		BEGIN;
		SELECT postbox.outbox_emit('video', key, 'video.' || type, '{}'::jsonb)
		FROM unnest(ARRAY['g', 'g', 'h', 'h'], ARRAY['first', 'second', 'first', 'second']) AS e(key, type);
		UPDATE app.outbox SET publish_attempts = 1, next_retry_at = now() WHERE aggregate_id = 'g' AND event_type = 'video.second';
		UPDATE app.outbox SET next_retry_at = 'infinity' WHERE aggregate_id = 'h';
		COMMIT;
	});
	wait_states('g', 'published published', 'both are published');
	wait_states('h', 'published published', 'what waits behind nothing goes out');
};

$node->stop;
done_testing();
