# An event that comes after a backlog is published while most of the backlog is waiting, however large it is: also if it is larger than
# the part of a claim that is kept for it, since the backlog takes all of what its publication may take beside another one.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Backlog;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

use constant EVENTS => 1500;
use constant TEXT => 20_000;

start_backlog_test();
# Bytes are what there is least of.
# Nobody looks but when something is committed.
$node->append_conf('postgresql.conf', "postbox.poll_interval = '1min'\npostbox.max_outstanding_messages = 20000\npostbox.max_outstanding_bytes = '1MB'");
$node->reload;
sql(qq{
	SELECT postbox.create_outbox('app.other', 'log');
	SELECT postbox.create_publication('others', 'app.other', '@{[TOPIC]}');
	SELECT postbox.outbox_emit('video', 'first', 'video.changed', '{}'::jsonb, outbox => o) FROM unnest(ARRAY['app.outbox', 'app.other']::regclass[]) o});
wait_until($node, 'postgres', 'SELECT bool_and(pending = 0) FROM postbox.publication_status', 'both publications are known to work');

sub emit_watched
{
	my ($key, $length) = @_;
	return sql("SELECT postbox.outbox_emit('video', '$key', 'video.watched', to_jsonb(repeat('x', $length)), outbox => 'app.outbox')");
}

sub pending { return sql("SELECT pending FROM postbox.publication_status WHERE publication = 'videos'"); }

emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=500,count=1000000');
my $backlog = "postbox.outbox_emit('video', 'key-' || n / 10, 'video.changed', to_jsonb(repeat('x', @{[TEXT]})), outbox => 'app";
# In the one outbox the worker looks while the transaction is running, so that the first of its events, more than the budget has room for, are late.
my $writer = $node->background_psql('postgres');
$writer->query_safe("BEGIN; SELECT count($backlog.outbox')) FROM generate_series(1, 100) n");
sql("SELECT postbox.outbox_emit('video', 'beside', 'video.changed', '{}'::jsonb, outbox => 'app.outbox')");
wait_for(sub { messages_published($emulator) == 3 }, 'what was committed meanwhile is published');
$writer->query_safe("SELECT count($backlog.outbox')), count($backlog.other')) FROM generate_series(101, @{[EVENTS]}) n; COMMIT");
$writer->quit;
wait_until($node, 'postgres', "SELECT bool_and(pending BETWEEN 1 AND @{[EVENTS - 1]}) FROM postbox.publication_status", 'both publications have begun with a backlog');

my @sizes = ([ 'hundreds of kilobytes', 200_000 ], [ 'more than the budget', 3_000_000 ], [ 'nearly the most', 9_500_000 ], [ 'kilobytes', 40_000 ], [ 'little', 10 ]);
my $seen = 0;
for my $size (@sizes)
{
	my ($what, $length) = @$size;
	emit_watched("large-$seen", $length);
	emit_watched("small-$seen", 10);
	++$seen;
	wait_until($node, 'postgres', "SELECT count(*) = 2 * $seen FROM app.seen", "$what: it is published, and so is what comes behind it");
	cmp_ok(pending(), '>', EVENTS / 8, "$what: the backlog is still there");
}

fast();
set_configuration($node, 'postbox.max_outstanding_bytes', undef);
$node->reload;
wait_until($node, 'postgres', 'SELECT bool_and(pending = 0) FROM postbox.publication_status', 'in the end all is published');
is(messages_published($emulator), 2 * EVENTS - 100 + 1 + 2 * @sizes + 2, 'each event once');

stop_puller($puller);
$node->stop;
stop_emulator($emulator);
done_testing();
