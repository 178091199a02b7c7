# Pub/Sub takes 1 MB/s of one ordering key. A backlog of one key that is larger goes out at that rate, from an outbox of each kind: nothing of it is
# unknown, parked, suspended or sent twice because it has waited in the worker, and other keys do not wait for it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

my $emulator = start_emulator('--key-throughput', 1_000_000);
# A table gives back what it could not send in a quarter of the lease, here 2.5 s.
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.publish_timeout' => '1s',
	'postbox.lease_timeout' => '10s',
});
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql(
	'postgres', q{
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events');
});

my $session = $node->background_psql('postgres');
my $sent = 0;

sub emit_bytes
{
	my ($outbox, $key, $count, $size) = @_;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('video', '$key', 'video.changed', convert_to(repeat('x', $size), 'UTF8'), outbox => '$outbox')) FROM generate_series(1, $count) n");
	$sent += $count;
	return;
}

my %outboxes = (log => 'app.log', videos => 'app.outbox');

subtest 'a backlog of 6 MB in one key of each outbox goes out at the rate of the key, each event once' => sub {
	my (%states, %quiet, %took);
	emit_bytes($outboxes{$_}, "busy $_", 600, 10_000) for sort keys %outboxes;
	my $begin = time;
	wait_for(sub {
		for (split /\n/, $session->query_safe("SELECT publication, pending, state || coalesce(': ' || last_error, '') FROM postbox.publication_status"))
		{
			my ($name, $pending, $state) = split /\|/, $_, 3;
			++$states{$state};
			$took{$name} //= time - $begin if $pending eq '0';
			# While it goes out, another key has an event.
			if (!defined $quiet{$name} && messages_published($emulator) > 0)
			{
				emit_bytes($outboxes{$name}, "quiet $name", 1, 10);
				$quiet{$name} = $session->query_safe("SELECT pending FROM postbox.publication_status WHERE publication = '$name'");
			}
		}
		return keys %took == keys %outboxes;
	}, 'all of it is published');
	for my $name (sort keys %outboxes)
	{
		my $outbox = $outboxes{$name};
		note(sprintf('%s: %.1f s', $outbox, $took{$name}));
		cmp_ok($took{$name}, '>', 4.5, "$outbox: at the rate of the key");
		cmp_ok($took{$name}, '<', 60, "$outbox: and not much slower");
		cmp_ok($quiet{$name}, '>', 1, "$outbox: while the other key had its event, the backlog was there");
	}
	is_deeply([ grep { !/took longer than/ } keys %states ], ['active'], 'the publications were active all the time');
	wait_until($node, 'postgres', 'SELECT bool_and(pending = 0) FROM postbox.publication_status', 'the other keys have all, too');
	sent_once($emulator, $node, $sent, 'no event was sent twice');
};

subtest 'nothing was parked or counted' => sub {
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.paused_keys'), '0', 'no key is paused');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE publish_attempts > 0 OR last_error IS NOT NULL OR published_at IS NULL'), '0', 'no event of the table was blamed');
	unlike(undisturbed_log_since($node, 0), qr/is suspended|lease of \d+ events was lost|took over/, 'nobody complains');
};

subtest 'the events of the key came in their order' => sub {
	is($node->safe_psql('postgres', q{SELECT bool_and(published_at >= before) FROM (SELECT published_at, lag(published_at) OVER (ORDER BY seq) AS before FROM app.outbox WHERE aggregate_id = 'busy videos') e}), 't', 'of the table');
};

$session->quit;
$node->stop;
done_testing();
