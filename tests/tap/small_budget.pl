# A small budget (postbox.max_outstanding_messages) and topics that do not answer: what goes out nevertheless.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--topic', 'catalog.hostile.events');
my $node = new_node(
	'main',
	emulator => $emulator,
	settings => {
		'postbox.publishers' => 1,
		'postbox.poll_interval' => '50ms',
		'postbox.publish_timeout' => '600s',
		'postbox.lease_timeout' => '3600s',
		'postbox.max_outstanding_messages' => 16,
	});
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql('postgres', q{
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', lanes => 4)});

sub emit_to
{
	my ($outbox, $type, $key, $count) = @_;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('$type', $key, 'video.changed', '{}'::jsonb, outbox => '$outbox')) FROM generate_series(1, $count) n");
	return;
}

subtest 'a lane of which nothing has gone through yet does not wait for the other lanes of its publication' => sub {
	emit_to('app.log', 'video', q{'k1'}, 1);
	wait_for(sub { messages_published($emulator) == 1 }, 'one lane is known to work');
	emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=600000,attribute=aggregate_type:slow');
	emit_to('app.log', 'slow', q{'k1'}, 8);
	emit_to('app.log', 'video', q{'other-' || n}, 20);
	wait_for(sub { messages_published($emulator) == 21 }, 'every lane publishes');
};

subtest 'several topics that do not answer hold up nobody, however small the budget is' => sub {
	$node->append_conf('postgresql.conf', 'postbox.max_outstanding_messages = 1');
	for my $i (1 .. 3)
	{
		$node->safe_psql('postgres', qq{
			SELECT postbox.create_outbox('app.slow_$i', 'table');
			SELECT postbox.create_publication('slow_$i', 'app.slow_$i', 'catalog.hostile.events')});
	}
	$node->restart;
	emit_to("app.slow_$_", 'slow', q{'k' || n}, 3) for 1 .. 3;
	wait_until($node, 'postgres', q{SELECT count(*) >= 3 FROM (SELECT lock_token FROM app.slow_1 UNION ALL SELECT lock_token FROM app.slow_2 UNION ALL SELECT lock_token FROM app.slow_3) s WHERE lock_token IS NOT NULL}, 'they have what they may have');
	emit_to('app.outbox', 'video', q{'quick-' || n}, 5);
	wait_until($node, 'postgres', 'SELECT count(*) = count(published_at) FROM app.outbox', 'the others go out');
};

emulator_fault($emulator, '--clear');
$node->stop;
done_testing();
