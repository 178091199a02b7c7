# What the tests of long backlogs share: a log of one lane whose server keeps few messages on their way and stores its position
# often, an emulator that can be slow, and a puller that gets and notes the events of one type.
package Postbox::Backlog;

use strict;
use warnings;

use Exporter 'import';
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;

our @EXPORT = qw(TOPIC BACKLOG MOST_OUTSTANDING LATENCY $emulator $node $puller start_backlog_test sql slow fast most_outstanding);

use constant TOPIC => 'catalog.video.events';
# More seqs than a lane looks at one by one, which are 10,000.
use constant BACKLOG => 10_500;
# What a leaving worker has on its way has its results in less than the second that it waits for them, and the backlog
# lasts for 21 s.
use constant { MOST_OUTSTANDING => 200, LATENCY => 400 };

our ($emulator, $node, $puller);

# Starts all of them. Events of type video.watched are noted in app.seen.
sub start_backlog_test
{
	$emulator = start_emulator('--subscription', "@{[TOPIC]}.follower=@{[TOPIC]},ordered,filter=attributes.event_type = \"video.watched\"");
	$node = new_node('main', emulator => $emulator, settings => {
		'postbox.publishers' => 1, 'postbox.checkpoint_interval' => '100ms', 'autovacuum' => 'off',
		'postbox.max_outstanding_messages' => MOST_OUTSTANDING });
	$node->start;
	create_outbox($node, 'postgres', kind => 'log');
	follow($node, 'postgres', "@{[TOPIC]}.follower", 'video.watched');
	$puller = start_puller($node, 'postgres', $emulator);
	return;
}

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

# Each Publish takes this long, in milliseconds, until fast().
sub slow
{
	my ($latency) = @_;
	emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=' . ($latency // LATENCY) . ',count=1000000');
	return;
}
sub fast { emulator_fault($emulator, '--clear'); return; }

# So many messages may be on their way. Of a rest of which nothing is asked any more, many at once cost less.
sub most_outstanding
{
	my ($count) = @_;
	set_configuration($node, 'postbox.max_outstanding_messages', $count);
	$node->reload;
	return;
}

1;
