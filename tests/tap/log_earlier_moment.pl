# A physical backup is restored to an earlier moment. What was emitted and sent after it is gone from the database; nothing that is
# emitted now is lost.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator();
my $first = new_node('first', emulator => $emulator, allows_streaming => 1, settings => { 'postbox.checkpoint_interval' => '20ms' });
$first->enable_archiving;
$first->start;
create_outbox($first, 'postgres', kind => 'log');
$first->backup('backup');
my $before = messages_published($emulator);
emit($first, 'postgres', 10);
wait_for(sub { messages_published($emulator) >= $before + 10 }, 'ten events are sent');
$first->safe_psql('postgres', q{SELECT pg_create_restore_point('moment')});
emit($first, 'postgres', 3);
wait_for(sub { messages_published($emulator) >= $before + 13 }, 'and three after the moment');
$first->safe_psql('postgres', 'SELECT pg_switch_wal()');
$first->stop;
my $again = PostgreSQL::Test::Cluster->new('again');
$again->init_from_backup($first, 'backup', has_restoring => 1, standby => 0);
$again->append_conf('postgresql.conf', "recovery_target_name = 'moment'\nrecovery_target_action = promote");
$again->start;
$again->poll_query_until('postgres', 'SELECT NOT pg_is_in_recovery()');
$before = messages_published($emulator);
emit($again, 'postgres', 5);
wait_until($again, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'what is emitted now is published');
is($again->safe_psql('postgres', 'SELECT count(*) FROM app.outbox'), '15', 'the three events are gone');
my $sent = messages_published($emulator) - $before;
cmp_ok($sent, '>=', 5, "none of the new ones is lost ($sent were sent)");
cmp_ok($sent, '<=', 15, 'what was sent before the moment may be sent again, once');
is($again->safe_psql('postgres', "SELECT max(version) FROM app.outbox WHERE aggregate_id = 'video-3'"), '3', 'versions that were issued after the moment are issued again');
$again->stop;

done_testing();
