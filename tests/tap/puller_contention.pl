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
# Each event adds to all counters, in an order of its own, and takes 2 ms: whatever runs beside it deadlocks.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.counter (id int PRIMARY KEY, n bigint NOT NULL DEFAULT 0) WITH (fillfactor = 10);
	INSERT INTO app.counter (id) SELECT generate_series(1, 10);
	CREATE FUNCTION app.count(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
		DECLARE i int;
		BEGIN
			FOR i IN SELECT id FROM generate_series(1, 10) id ORDER BY random() LOOP
				UPDATE app.counter SET n = n + 1 WHERE id = i;
			END LOOP;
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
wait_for(sub { $node->safe_psql('postgres', 'SELECT min(n) FROM app.counter') eq $events }, 'all events are applied');
is($node->safe_psql('postgres', 'SELECT DISTINCT n FROM app.counter'), $events, 'each counts once for each counter');
wait_for(
	sub { $node->safe_psql('postgres', 'SELECT applied FROM postbox.subscription_status') eq $events },
	'the status knows of all');
is($node->safe_psql('postgres', 'SELECT failures, dead_letters FROM postbox.subscription_status'), '0|0', 'no conflict is a failure of an event');
# Four appliers without a pace have one each 2 s for a start, and one for each of their transactions later.
cmp_ok($node->safe_psql('postgres', 'SELECT conflicts_per_minute FROM postbox.subscription_status'),
	'<=', 12, 'few transactions conflict');
stop_puller($puller);

done_testing();
