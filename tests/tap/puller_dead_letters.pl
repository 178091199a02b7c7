# Every message can be settled: a dead letter that has no room for its error, one that the dead-letter topic refuses, and
# a topic that does not answer, which holds up its own keys only. The log stays short.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $letters = 'catalog.video.dead-letters';
my $emulator = start_emulator(
	'--topic', $letters,
	'--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered',
	'--subscription', "catalog.video.dead-letters.test-reader=$letters,ordered");
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'postbox.publish_timeout' => '60s' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', qq{
	CREATE TABLE app.seen (aggregate_id text);
	CREATE TABLE app.letter (aggregate_id text, bytes int, attributes jsonb);
	-- One type has good and bad events: a type that always fails would be suspended.
	CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE plpgsql AS \$\$
		BEGIN
			IF position('good' IN convert_from(event.payload, 'UTF8')) = 0 THEN
				RAISE 'cannot take %', convert_from(event.payload, 'UTF8') USING ERRCODE = '23514';
			END IF;
			INSERT INTO app.seen VALUES (event.aggregate_id);
		END \$\$;
	CREATE FUNCTION app.note_letter(event postbox.event) RETURNS void LANGUAGE sql AS
		'INSERT INTO app.letter VALUES (event.aggregate_id, length(event.payload), event.attributes)';
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{work}', 'app.note(postbox.event)');
	SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.video.events.test-follower', on_error => 'dead_letter_topic',
		dead_letter_topic => '$letters', max_attempts => 2, min_backoff => '10ms', max_backoff => '200ms');
	SELECT postbox.create_inbox('app.letters');
	SELECT postbox.create_handler('app.letters', '{work}', 'app.note_letter(postbox.event)');
	SELECT postbox.create_subscription('letters', 'app.letters', 'catalog.video.dead-letters.test-reader');
});

sub emit_keys
{
	my ($kind, @keys) = @_;
	my $is = { good => 'good', bad => 'it' }->{$kind};
	my $keys = join(', ', map { "'$_'" } @keys);
	$node->safe_psql('postgres', qq{SELECT postbox.outbox_emit('video', key, 'work', '{"is": "$is"}'::jsonb, version => 1) FROM unnest(ARRAY[$keys]) AS key});
	return;
}

# The largest event that Pub/Sub takes.
$node->safe_psql(
	'postgres', q{
	DO $$
	DECLARE
		payload bytea := convert_to(repeat('x', 9999990), 'UTF8');
	BEGIN
		FOR size IN REVERSE 9999990 .. 9990000 BY 10 LOOP
			BEGIN
				PERFORM postbox.outbox_emit('video', 'large', 'work', substr(payload, 1, size), version => 1);
				RETURN;
			EXCEPTION WHEN program_limit_exceeded THEN
			END;
		END LOOP;
	END $$});
my $puller = start_puller($node, 'postgres', $emulator);
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM app.letter WHERE aggregate_id = 'large'}, 'a dead letter without room for its error is published')
  or diag(substr($puller->{output}, 0, 3000));
cmp_ok($node->safe_psql('postgres', 'SELECT bytes FROM app.letter'), '>', 9_990_000, 'with its whole payload');
is($node->safe_psql('postgres', q{SELECT attributes ->> 'postbox_error_message' FROM app.letter}), '', 'without the message of the error');

emit_keys('bad', 'small');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM app.letter WHERE aggregate_id = 'small'}, 'a small one too');
is( $node->safe_psql(
		'postgres', q{SELECT attributes ->> 'postbox_error_sqlstate', attributes ->> 'postbox_error_message' FROM app.letter WHERE aggregate_id = 'small'}),
	'23514|cannot take {"is": "it"}',
	'and that has its error');

# The topic does not answer.
emulator_fault($emulator, 'rpc=Publish,attribute=postbox_error_sqlstate,action=delay,latency-ms=600000');
my @held = map { "held-$_" } 1 .. 8;
emit_keys('bad', @held);
emit_keys('good', @held);
emit_keys('good', map { "free-$_" } 1 .. 50);
wait_until($node, 'postgres', q{SELECT count(*) = 50 FROM app.seen WHERE aggregate_id LIKE 'free-%'}, 'other keys go on while the topic does not answer');
for my $tens (0 .. 2)
{
	# For longer than the puller waits for a letter before it goes on with others.
	select(undef, undef, undef, 0.5);
	emit_keys('good', map { "later-$tens$_" } 0 .. 9);
}
wait_until($node, 'postgres', q{SELECT count(*) = 30 FROM app.seen WHERE aggregate_id LIKE 'later-%'}, 'all the time');
is($node->safe_psql('postgres', q{SELECT count(*) FROM app.seen WHERE aggregate_id LIKE 'held-%'}), '0', 'the keys of the dead letters wait');
emulator_fault($emulator, '--clear');
wait_until($node, 'postgres', q{SELECT count(DISTINCT aggregate_id) = 8 FROM app.letter WHERE aggregate_id LIKE 'held-%'}, 'when it answers the letters go out');
wait_until($node, 'postgres', q{SELECT count(*) = 8 FROM app.seen WHERE aggregate_id LIKE 'held-%'}, 'and their keys go on');

# The topic refuses a letter for good.
emulator_fault($emulator, 'rpc=Publish,attribute=postbox_error_sqlstate,code=INVALID_ARGUMENT');
emit_keys('bad', 'refused');
emit_keys('good', 'refused');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.dead_letter WHERE aggregate_id = 'refused'}, 'what the topic refuses for good is recorded');
like( $node->safe_psql('postgres', 'SELECT sqlstate, error FROM postbox.dead_letter'),
	qr/^23514\|cannot take .*refused by the dead-letter topic/,
	'with both reasons');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM app.seen WHERE aggregate_id = 'refused'}, 'and its key goes on');

stop_puller($puller);
cmp_ok(length $puller->{output}, '<', 60_000, 'the log is short, although an error repeats 10 MB');
$node->stop;
done_testing();
