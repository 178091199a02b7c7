# A standby does not publish, promotion does.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use PostgreSQL::Test::Cluster;
use Test::More;

my $emulator = start_emulator();
my $primary = new_node('primary', emulator => $emulator, allows_streaming => 1);
$primary->start;
create_outbox($primary, 'postgres');
emit($primary, 'postgres', 5);
wait_published($primary, 'postgres', 5);

$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

subtest 'a standby has neither launcher nor workers, and follows what the primary publishes' => sub {
	emit($primary, 'postgres', 5);
	wait_published($primary, 'postgres', 10);
	$primary->wait_for_catchup($standby);
	wait_published($standby, 'postgres', 10, 'the standby sees that the primary has published');
	is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'postbox'"), '0', 'no process of Postbox');
	is($standby->safe_psql('postgres', 'SELECT count(*) FROM postbox.workers'), '0', 'postbox.workers is empty');
};

subtest 'promotion publishes what the old primary has left behind' => sub {
	$primary->append_conf('postgresql.conf', 'postbox.publishers = 0');
	$primary->reload;
	wait_workers($primary, 'postgres', 0);
	emit($primary, 'postgres', 5);
	$primary->wait_for_catchup($standby);
	$primary->stop;
	is($standby->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE published_at IS NULL'), '5', 'events wait in the standby');
	$standby->promote;
	wait_published($standby, 'postgres', 15);
	emit($standby, 'postgres', 5);
	wait_published($standby, 'postgres', 20);
};

$standby->stop;
done_testing();
