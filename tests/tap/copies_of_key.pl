# More rows of one key with the same seq than a worker takes together, or publishes at once. Whoever may INSERT can write them.
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
	'postbox.poll_interval' => '50ms',
	'postbox.checkpoint_interval' => '20ms',
	# It looks for what is parked by then.
	'postbox.maintenance_interval' => '1h',
	'postbox.read_chunk_size' => 500,
});
$node->start;
create_outbox($node, 'postgres', kind => 'log');
emit($node, 'postgres', 20);
wait_for(sub { messages_published($emulator) >= 20 }, 'the publication works');

# 2,100 rows of as many keys
sub insert_copies
{
	my ($keys) = @_;
	$node->safe_psql('postgres', qq{INSERT INTO app.outbox (seq, id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT last, gen_random_uuid(), 'video', 'copied-' || n % $keys, 'video.changed', 1, '{}'
		FROM nextval('app.outbox_seq') last, generate_series(1, 2100) n});
	return;
}

for my $on_failure ('park_key', 'park_event')
{
	subtest "on_failure => '$on_failure'" => sub {
		$node->safe_psql('postgres', "SELECT postbox.alter_publication('videos', on_failure => '$on_failure')");
		for my $keys (1, 2, 2100)
		{
			my $before = messages_published($emulator);
			insert_copies($keys);
			wait_for(sub { messages_published($emulator) >= $before + 2100 }, "all rows of $keys keys are published") or diag(messages_published($emulator) - $before);
			wait_until($node, 'postgres', q{SELECT pending = 0 AND parked = 0 FROM postbox.publication_status}, 'nothing waits');
			sent_once($emulator, $node, $before + 2100, 'once');
		}
	};
}
$node->stop;
done_testing();
