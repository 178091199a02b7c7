# One event that is slow, blocked or hungry costs its batch one retry, and not its batch-mates their attempts; batches
# shrink to what fits the timeout.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Puller;
use Postbox::Test;
use Test::More;
use Time::HiRes 'time';

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');

# The payload says what the handler does: sleep for so many seconds, lock a row, or raise an SQLSTATE.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.seen (n bigserial PRIMARY KEY, aggregate_id text, at timestamptz DEFAULT clock_timestamp());
	CREATE TABLE app.locked (id int PRIMARY KEY);
	INSERT INTO app.locked VALUES (1);
	CREATE FUNCTION app.work(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE
			body jsonb := convert_from(event.payload, 'UTF8');
		BEGIN
			PERFORM pg_sleep((body ->> 'sleep')::float);
			IF body ? 'lock' THEN PERFORM FROM app.locked FOR UPDATE; END IF;
			IF body ? 'raise' THEN RAISE 'it failed' USING ERRCODE = body ->> 'raise'; END IF;
			INSERT INTO app.seen (aggregate_id) VALUES (event.aggregate_id);
		END $$;
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{work}', 'app.work(postbox.event)');
	SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.video.events.test-follower', appliers => 2, batch_size => 150, max_attempts => 2,
		min_backoff => '10ms', max_backoff => '100ms', batch_delay => '200ms', statement_timeout => '500ms', lock_timeout => '300ms');
});

my $session = $node->background_psql('postgres', on_error_stop => 1);

my $openers = 0;

# Emits events for the keys PREFIX-1, PREFIX-2, ... in one transaction, so that they come together.
sub work
{
	my ($prefix, $count, $payload) = @_;
	$session->query_safe("SELECT count(postbox.outbox_emit('work', '$prefix-' || n, 'work', '$payload'::jsonb, version => 1)) FROM generate_series(1, $count) n");
	return;
}

# The next events come while a batch has just begun, and wait for each other.
sub begin_batch
{
	work('opener' . ++$openers, 1, '{}');
	return;
}

sub seen
{
	my ($prefix, $count, $what) = @_;
	my $begin = time;
	wait_until($node, 'postgres', "SELECT count(*) = $count FROM app.seen WHERE aggregate_id LIKE '$prefix-%'", $what);
	diag(sprintf('%s: %.1f s', $what, time - $begin));
	return;
}

sub dead_letters
{
	return $session->query_safe(q{SELECT string_agg(concat_ws(' ', aggregate_id, sqlstate, attempts), ',' ORDER BY id) FROM postbox.dead_letter});
}

sub dead
{
	my ($expected, $what) = @_;
	wait_for(sub { return dead_letters() eq $expected }, $what) or diag(dead_letters());
	return;
}

# An event that takes too long, in the middle of its batch.
work('before', 100, '{}');
work('slow', 1, '{"sleep": 30}');
work('after', 100, '{}');
my $puller = start_puller($node, 'postgres', $emulator);
seen('before', 100, 'what was before the slow event in its batch is applied');
seen('after', 100, 'and what was behind it');
is(dead_letters(), '', 'the slow event is not given up while it may be the fault of others');
stop_puller($puller);
# It is when others are applied meanwhile, all the time, for ten minutes, which are two attempts here.
$puller = start_puller($node, 'postgres', $emulator, failpoints => ['patience=1300']);
my $others = 0;
wait_for(sub { select(undef, undef, undef, 0.2); work('other' . ++$others, 1, '{}'); return dead_letters() =~ /^slow-1 57014 \d+$/ }, 'in the end it is given up, alone')
  or diag(dead_letters());
my $slow = dead_letters();
like($slow, qr/ ([3-9]|\d\d)$/, 'after more than max_attempts');
wait_for(sub { $puller->{run}->pump_nb; return $puller->{output} =~ /event failed.*aggregate_id=slow-1.*sqlstate=57014/ }, 'and the log names it');

stop_puller($puller);
$puller = start_puller($node, 'postgres', $emulator);

# Events that together take longer than a statement may.
work('many', 100, '{"sleep": 0.01}');
seen('many', 100, 'of events that together exceed the timeout all are applied');
is(dead_letters(), $slow, 'and none is given up');

# A row that somebody else has locked.
my $holder = $node->background_psql('postgres', on_error_stop => 1);
$holder->query_safe('BEGIN; SELECT FROM app.locked FOR UPDATE');
begin_batch();
work('blocked', 1, '{"lock": true}');
work('free', 200, '{}');
seen('free', 200, 'what is in a batch with a blocked event is applied');
wait_for(sub { $puller->{run}->pump_nb; return $puller->{output} =~ /event failed.*aggregate_id=blocked-1.*sqlstate=55P03.*attempts=3/ },
	'the blocked event has attempts of its own');
is(dead_letters(), $slow, 'but is not given up for what others do');
$holder->query_safe('ROLLBACK');
seen('blocked', 1, 'and is applied when the lock is gone');
$holder->quit;

# A lack of memory of one event.
begin_batch();
work('hungry', 1, '{"raise": "53200"}');
work('modest', 200, '{}');
seen('modest', 200, 'what is in a batch with an event that lacks memory is applied');

# A permanent error.
begin_batch();
work('wrong', 1, '{"raise": "22000"}');
work('right', 200, '{}');
seen('right', 200, 'what is in a batch with a wrong event is applied');
dead("$slow,wrong-1 22000 2", 'the wrong event is given up');

is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT aggregate_id) FROM app.seen'), '0', 'nothing was applied twice');
$session->quit;
stop_puller($puller);
$node->stop;
done_testing();
