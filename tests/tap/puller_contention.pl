# Transactions of one subscription that want the same rows: fewer of them run at the same time, those that conflict
# are applied alone, and the status says so.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $events = 2_000;
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-counter=catalog.video.events');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
# Each event adds to one of ten counters, and takes 2 ms: transactions that run side by side deadlock.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.counter (id int PRIMARY KEY, n bigint NOT NULL DEFAULT 0) WITH (fillfactor = 10);
	INSERT INTO app.counter (id) SELECT generate_series(1, 10);
	CREATE FUNCTION app.count(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE i int := 1 + floor(random() * 10);
		BEGIN
			UPDATE app.counter SET n = n + 1 WHERE id = i;
			PERFORM pg_sleep(0.002);
		END $$;
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{order.created}', 'app.count(postbox.event)');
	SELECT postbox.create_subscription('counter', 'app.inbox', 'catalog.video.events.test-counter', batch_size => 50);
});
$node->safe_psql('postgres', qq{
	SELECT count(postbox.outbox_emit('order', 'order-' || n, 'order.created', '{}'::jsonb)) FROM generate_series(1, $events) n});

my $puller = start_puller($node, 'postgres', $emulator);
wait_for(
	sub { $node->safe_psql('postgres', 'SELECT conflicts_per_minute > 0 FROM postbox.subscription_status') eq 't' },
	'conflicts are shown');
wait_for(sub { $node->safe_psql('postgres', 'SELECT sum(n) FROM app.counter') eq $events }, 'all events are applied');
wait_for(
	sub { $node->safe_psql('postgres', 'SELECT applied FROM postbox.subscription_status') eq $events },
	'the status knows of all');
is($node->safe_psql('postgres', 'SELECT failures, dead_letters FROM postbox.subscription_status'), '0|0', 'no conflict is a failure of an event');
cmp_ok($node->safe_psql('postgres', 'SELECT conflicts_per_minute FROM postbox.subscription_status'),
	'<=', 12, 'few transactions conflict');
# Transactions of half a second: what takes long does not count where there is no conflict, so the first ones collide.
my $deadlocks = 'SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()';
my $before = $node->safe_psql('postgres', $deadlocks);
$node->safe_psql(
	'postgres', q{
	INSERT INTO app.counter (id) SELECT generate_series(11, 300);
	UPDATE app.counter SET n = 0;
	CREATE OR REPLACE FUNCTION app.count(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE i int := 1 + floor(random() * 300);
		BEGIN
			UPDATE app.counter SET n = n + 1 WHERE id = i;
			PERFORM pg_sleep(0.01);
		END $$;
	SELECT count(postbox.outbox_emit('order', 'late-' || n, 'order.created', '{}'::jsonb)) FROM generate_series(1, 600) n});
wait_for(sub { $node->safe_psql('postgres', 'SELECT sum(n) FROM app.counter') eq '600' }, 'long transactions are applied');
cmp_ok($node->safe_psql('postgres', $deadlocks) - $before, '<=', 5, 'few of them deadlock');
is($node->safe_psql('postgres', 'SELECT failures, dead_letters, last_error FROM postbox.subscription_status'), '0|0|', 'and no event has failed') or diag($puller->{output});
stop_puller($puller);

done_testing();
