# DROP DATABASE is not blocked; CREATE DATABASE ... TEMPLATE is not blocked; and what else is done to whole
# databases.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator);
$node->start;

$node->safe_psql('postgres', 'CREATE DATABASE shop');
create_outbox($node, 'shop');
emit($node, 'shop', 5);
wait_published($node, 'shop', 5);

subtest 'CREATE DATABASE ... TEMPLATE is not blocked by the template\'s worker, and the copy publishes when somebody says so' => sub {
	wait_workers($node, 'shop', 1);
	$node->safe_psql('postgres', 'CREATE DATABASE shop_copy TEMPLATE shop');
	emit($node, 'shop', 5);
	emit($node, 'shop_copy', 5);
	wait_published($node, 'shop', 10);
	$node->safe_psql('shop_copy', 'SELECT postbox.claim_publication()');
	wait_published($node, 'shop_copy', 10);
};

subtest 'a CREATE DATABASE that fails gives the template its worker back' => sub {
	wait_workers($node, 'shop', 1);
	my ($status) = $node->psql('postgres', 'CREATE DATABASE shop_copy TEMPLATE shop');
	isnt($status, 0, 'the name is taken');
	emit($node, 'shop', 5);
	wait_published($node, 'shop', 15);
};

subtest 'ALTER DATABASE ... RENAME is not blocked, and the database publishes under its new name' => sub {
	wait_workers($node, 'shop_copy', 1);
	$node->safe_psql('postgres', 'ALTER DATABASE shop_copy RENAME TO store');
	emit($node, 'store', 5);
	wait_published($node, 'store', 15);
	wait_workers($node, 'store', 1);
};

subtest 'a renamed database is held until the transaction ends' => sub {
	$node->safe_psql('postgres', 'BEGIN; ALTER DATABASE store RENAME TO other; ROLLBACK');
	emit($node, 'store', 5);
	wait_published($node, 'store', 20);
};

subtest 'who does not own a database cannot stop its worker' => sub {
	wait_workers($node, 'shop', 1);
	my @before = worker_pids($node, 'shop');
	$node->safe_psql('postgres', 'CREATE ROLE stranger LOGIN CREATEDB');
	my ($status, undef, $error) = $node->psql('postgres', 'DROP DATABASE shop', extra_params => [ '-U', 'stranger' ]);
	like($error, qr/must be owner/, 'DROP DATABASE is refused');
	$node->psql('postgres', 'CREATE DATABASE stolen TEMPLATE shop', extra_params => [ '-U', 'stranger' ]);
	is_deeply([ worker_pids($node, 'shop') ], \@before, 'it is the same worker');
};

subtest 'ALTER DATABASE ... SET postbox.* reaches the running worker' => sub {
	my $before = worker_pid($node, 'shop');
	$node->safe_psql('postgres', q{ALTER DATABASE shop SET postbox.project_id = 'elsewhere'});
	wait_until($node, 'postgres', "SELECT bool_and(pid <> $before) FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND datname = 'shop'", 'it has been started again');
	$node->safe_psql('postgres', q{ALTER DATABASE shop RESET postbox.project_id});
};

subtest 'a database that nobody may connect to has no worker' => sub {
	$node->safe_psql('postgres', 'ALTER DATABASE store ALLOW_CONNECTIONS false');
	wait_workers($node, 'store', 0);
	$node->safe_psql('postgres', 'ALTER DATABASE store ALLOW_CONNECTIONS true');
	wait_workers($node, 'store', 1);
};

subtest 'DROP DATABASE is not blocked by a worker, even while it publishes' => sub {
	my $position = log_position($node);
	emit($node, 'store', 2000);
	$node->safe_psql('postgres', 'DROP DATABASE store');
	wait_workers($node, 'store', 0);
	emit($node, 'shop', 5);
	wait_published($node, 'shop', 20, 'the other database goes on');
	my @noise = grep { /postbox (?:publisher|launcher)/ && /(?:ERROR|FATAL|PANIC|WARNING):/ } split /\n/, undisturbed_log_since($node, $position);
	is_deeply(\@noise, [], 'no error in the log');
};

$node->stop;
done_testing();
