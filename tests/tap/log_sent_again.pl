# After a failure the events that were not sent are read again, and not the whole log.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

use constant PUBLISHED => 20_000;
use constant FAILED => 40;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'autovacuum' => 'off' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
emit($node, 'postgres', PUBLISHED);
wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'a log of published events');
$node->safe_psql('postgres', 'VACUUM ANALYZE app.outbox');

sub rows_read
{
	return $node->safe_psql('postgres', q{SELECT sum(s.idx_tup_fetch) FROM pg_stat_user_tables s JOIN postbox.log_partitions('app.outbox') p ON p.part = s.relid});
}

# The worker reports what it has counted when it is idle, and at the latest when it ends.
sub restart
{
	$node->restart;
	return rows_read();
}

my $before = restart();
emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND,count=2');
my $sent = messages_published($emulator);
emit($node, 'postgres', FAILED);
wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status}, 'they fail');
wait_for(sub { messages_published($emulator) == $sent + FAILED }, 'and are sent again');
wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'nothing is pending');
my $read = restart() - $before;
cmp_ok($read, '>=', FAILED, 'rows were read through an index');
cmp_ok($read, '<', PUBLISHED / 10, 'but not the rows that had been published');

done_testing();
