# on_error => 'park_key' in `postbox pull`: ten events of a key, the third is poison: 4 to 10 wait, other keys flow; after the repair a
# redrive, or a retry of the puller, applies them in order. At a limit the subscription pauses and says so, and goes on when there is room.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.poison (key text, version bigint);
	CREATE TABLE app.seen (n bigint GENERATED ALWAYS AS IDENTITY, key text, version bigint, slow boolean DEFAULT false);
	CREATE FUNCTION app.see(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM app.poison p WHERE p.key = event.aggregate_id AND p.version = event.version) THEN
			RAISE check_violation USING MESSAGE = format('poison %s', event.version);
		END IF;
		INSERT INTO app.seen (key, version) VALUES (event.aggregate_id, event.version);
	END $$;
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{seen}', 'app.see(postbox.event)');
	SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.video.events.test-follower', on_error => 'park_key', max_attempts => 2,
		min_backoff => '10ms', max_backoff => '20ms', parked_max_attempts => 0, max_parked_events => 20);
});

# One after the other, as a service emits them.
sub emit_versions
{
	my ($key, @versions) = @_;
	$node->safe_psql('postgres', qq{SELECT postbox.outbox_emit('video', '$key', 'seen', '{}'::jsonb, version => $_)}) for @versions;
	return;
}
my $healthy = 0;
sub emit_healthy { return emit_versions('healthy', ++$healthy); }
sub order_of { my ($key) = @_; return $node->safe_psql('postgres', "SELECT string_agg(version::text, ' ' ORDER BY n) FROM app.seen WHERE key = '$key'"); }
sub letters { my ($key) = @_; return $node->safe_psql('postgres', "SELECT string_agg(version || ':' || attempts, ' ' ORDER BY id) FROM postbox.dead_letter WHERE aggregate_id = '$key' AND parked"); }
sub seen { my ($key, $count, $what) = @_; return wait_until($node, 'postgres', "SELECT count(*) = $count FROM app.seen WHERE key = '$key'", $what); }

my $puller = start_puller($node, 'postgres', $emulator, failpoints => ['parked_interval=100']);
$node->safe_psql('postgres', q{INSERT INTO app.poison VALUES ('bad', 3), ('bad', 8), ('self', 2)});
emit_versions('bad', 1 .. 10);
emit_versions('good', 1 .. 10);
seen('good', 10, 'other keys flow');
# Another event of the type is applied meanwhile, which shows that the poison is at fault itself.
wait_for(sub { emit_healthy(); return $node->safe_psql('postgres', q{SELECT count(*) = 8 FROM postbox.dead_letter WHERE aggregate_id = 'bad' AND parked}) eq 't' }, 'what follows the poison is parked behind it')
  or diag($puller->{output});
is(order_of('bad'), '1 2', 'and what came before it is applied');
is(letters('bad') =~ s/^3:\d+/3:n/r, '3:n 4:0 5:0 6:0 7:0 8:0 9:0 10:0', 'in order, and tried never');
wait_until($node, 'postgres', q{SELECT parked = 8 AND dead_letters = 0 FROM postbox.subscription_status}, 'the status counts them');
is( $node->safe_psql('postgres', q{SELECT side, relation, aggregate_id, attempts >= 2, next_retry_at, last_error, waiting FROM postbox.paused_keys}),
	'inbox|app.inbox|bad|t|infinity|23514: poison 3|7',
	'and paused_keys shows the key');
puller_says($puller, qr/event parked.*poison 3/, 'the log says so');

$node->safe_psql('postgres', q{DELETE FROM app.poison WHERE version = 3});
is($node->safe_psql('postgres', q{SELECT * FROM postbox.redrive_dead_letters('app.inbox', aggregate_id => 'bad')}), '5|0|1|0', 'a redrive goes up to the next poison');
emit_versions('bad', 11);
wait_until($node, 'postgres', q{SELECT count(*) = 4 FROM postbox.dead_letter WHERE aggregate_id = 'bad' AND parked}, 'a new event comes behind it');
$node->safe_psql('postgres', q{DELETE FROM app.poison WHERE version = 8});
is($node->safe_psql('postgres', q{SELECT * FROM postbox.redrive_dead_letters('app.inbox', aggregate_id => 'bad')}), '4|0|0|0', 'another one goes to the end');
emit_versions('bad', 12);
seen('bad', 12, 'and the key is as it was');
is(order_of('bad'), join(' ', 1 .. 12), 'the order is exact');

# The puller retries by itself. Its retries and live events have turns.
$node->safe_psql('postgres', q{UPDATE postbox.subscription SET parked_min_backoff = '100ms', parked_max_backoff = '200ms', parked_max_attempts = 1000});
emit_versions('self', 1 .. 5);
wait_for(sub { emit_healthy(); return $node->safe_psql('postgres', q{SELECT attempts >= 5 FROM postbox.paused_keys WHERE aggregate_id = 'self'}) eq 't' }, 'the head is retried with backoff')
  or diag($puller->{output});
is(letters('self') =~ s/^2:\d+/2:n/r, '2:n 3:0 4:0 5:0', 'and nothing else');
$node->safe_psql('postgres', q{DELETE FROM app.poison});
seen('self', 5, 'after the repair all of them are applied');
is(order_of('self'), '1 2 3 4 5', 'in order');
is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.parked_key'), '0', 'and no key is parked');

# A limit. Other events of the type are applied meanwhile: that so many fail is not the consumer's fault.
$node->safe_psql('postgres', q{UPDATE postbox.subscription SET parked_max_attempts = 0; INSERT INTO app.poison SELECT 'many' || i, 1 FROM generate_series(1, 30) i});
for (1 .. 22) { emit_versions("many$_", 1); emit_healthy(); }
wait_for(
	sub {
		emit_healthy();
		return $node->safe_psql('postgres', q{SELECT stream = 'paused' AND stream_error LIKE 'max_parked_events is reached: 2_ events%' FROM postbox.subscription_status}) eq 't';
	},
	'at the limit it is paused') or diag($puller->{output});
emit_versions("many$_", 1) for 23 .. 30;
emit_versions('late', 1 .. 3);
is($node->safe_psql('postgres', q{SELECT status || ': ' || detail FROM postbox.doctor() WHERE "check" = 'subscriptions'}) =~ s/: \d+ events/: n events/r,
	'error: it is paused: max_parked_events is reached: n events of parked keys wait in postbox.dead_letter',
	'doctor says so');
puller_says($puller, qr/subscription paused.*max_parked_events/, 'and the log');
is($node->safe_psql('postgres', q{SELECT count(*) FROM app.seen WHERE key = 'late'}), '0', 'nothing is received meanwhile');
$node->safe_psql('postgres', q{DELETE FROM app.poison; SELECT postbox.redrive_dead_letters('app.inbox')});
seen('late', 3, 'when there is room it goes on') or diag($puller->{output});
is($node->safe_psql('postgres', q{SELECT count(*), count(DISTINCT key) FROM app.seen WHERE key LIKE 'many%'}), '30|30', 'and nothing was lost') if
  wait_until($node, 'postgres', q{SELECT count(*) = 30 FROM app.seen WHERE key LIKE 'many%'}, 'what waited at the broker comes');
wait_until($node, 'postgres', q{SELECT stream = 'connected' FROM postbox.subscription_status}, 'the stream is connected again');

# A retry that never ends within statement_timeout does not keep other keys from their turns.
$node->safe_psql(
	'postgres', q{
	INSERT INTO app.poison VALUES ('slow', 1), ('quick', 1);
	UPDATE postbox.subscription SET statement_timeout = '1s', parked_min_backoff = '100ms', parked_max_backoff = '100ms', parked_max_attempts = 1000});
emit_versions('slow', 1);
emit_versions('quick', 1, 2);
wait_for(sub { emit_healthy(); return $node->safe_psql('postgres', q{SELECT count(*) = 3 FROM postbox.dead_letter WHERE aggregate_id IN ('slow', 'quick')}) eq 't' }, 'two keys are parked');
$node->safe_psql(
	'postgres', q{
	CREATE OR REPLACE FUNCTION app.see(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		IF event.aggregate_id = 'slow' THEN PERFORM pg_sleep(600); END IF;
		INSERT INTO app.seen (key, version) VALUES (event.aggregate_id, event.version);
	END $$});
seen('quick', 2, 'one of them is worked off') or diag($puller->{output});
emit_versions('live', 1 .. 3);
seen('live', 3, 'and live events are applied');
is($node->safe_psql('postgres', q{SELECT aggregate_id FROM postbox.paused_keys}), 'slow', 'the slow one stays');
stop_puller($puller);

# Parked keys survive a restart, and a puller that is new finds them.
$node->restart;
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION app.see(event postbox.event) RETURNS void LANGUAGE sql AS 'INSERT INTO app.seen (key, version) VALUES (event.aggregate_id, event.version)'});
$puller = start_puller($node, 'postgres', $emulator, alone => 1);
seen('slow', 1, 'a new puller retries what was parked before it began') or diag($puller->{output});
stop_puller($puller);
$node->stop;
done_testing();
