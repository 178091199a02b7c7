# The claim of a table outbox begins where nothing waited before. What a transaction commits below that, since it has
# taken its seq long ago, is found nevertheless.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $backlog = 1_000;
my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'autovacuum' => 'off', 'fsync' => 'off' });
$node->start;
create_outbox($node, 'postgres');
my $sent = 0;

sub wait_sent
{
	my ($count, $what) = @_;
	$sent += $count;
	wait_for(sub { messages_published($emulator) >= $sent }, $what) or diag(messages_published($emulator) . " of $sent");
	return;
}

# A session that has taken a seq before all the others.
my $late = $node->background_psql('postgres', on_error_die => 1);
$late->query_safe("BEGIN; SELECT postbox.outbox_emit('video', 'late', 'video.changed', '{}'::jsonb)");

emit($node, 'postgres', $backlog);
wait_sent($backlog, 'what comes after it is published');

# Claims begin at a distance of some seconds behind what is new.
my $script = "$PostgreSQL::Test::Utils::tmp_check/emit.sql";
PostgreSQL::Test::Utils::append_to_file($script, q{SELECT postbox.outbox_emit('video', 'video-' || (random() * 300)::int, 'video.changed', '{}'::jsonb)});
$node->command_ok([ 'pgbench', '-n', '-c', '4', '-R', '60', '-T', '5', '-f', $script, 'postgres' ], 'load for some seconds');
wait_sent($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox') - $sent, 'all of it is published');

subtest 'an event whose transaction commits late is published' => sub {
	$late->query_safe('COMMIT');
	wait_sent(1, 'it is published');
	$late->quit;
};

$node->stop;
done_testing();
