# Copies of a database with outboxes do not publish the same events twice: a copy in the same cluster does not publish until the original is gone
# or somebody says so, rows that logical replication brings are not published where they arrive, and a physical copy publishes nothing when
# it is started as docs/guides/copy-a-database.md says.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator();
my %settings = ('postbox.poll_interval' => '50ms', 'postbox.checkpoint_interval' => '20ms', 'max_worker_processes' => 40, 'max_wal_senders' => 20,
	'max_replication_slots' => 20, 'wal_level' => 'logical', 'postbox.publishers' => 1);
my $node = new_node('main', emulator => $emulator, allows_streaming => 'logical', settings => \%settings);
$node->start;

# Both kinds of outboxes, without publications: a database that is made of it gets its own.
sub create_blank
{
	my ($server) = @_;
	$server->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE DATABASE blank');
	$server->safe_psql('blank', q{
		CREATE EXTENSION postbox;
		CREATE SCHEMA app;
		SELECT postbox.create_outbox('app.log');
		SELECT postbox.create_outbox('app.tab', 'table')});
	$server->safe_psql('postgres', 'ALTER DATABASE blank ALLOW_CONNECTIONS false; SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE datname = $$blank$$');
	return;
}
sub create_both
{
	my ($server, $database) = @_;
	$server->safe_psql('postgres', "CREATE DATABASE $database TEMPLATE blank");
	$server->safe_psql($database, q{SELECT postbox.create_publication(name, ('app.' || name)::regclass, 'catalog.video.events') FROM unnest('{log,tab}'::text[]) name});
	return;
}
# As many events into each of the two.
sub emit_both
{
	my ($server, $database, $count, $key) = @_;
	$key //= 'video';
	return $server->safe_psql($database, "SELECT count(postbox.outbox_emit('video', '$key-' || n % 3, 'video.changed', '{}'::jsonb, outbox => o)) FROM generate_series(1, $count) n, unnest('{app.log,app.tab}'::regclass[]) o");
}
sub publishers
{
	my ($server, $count) = @_;
	$server->safe_psql('postgres', "ALTER SYSTEM SET postbox.publishers = $count; SELECT pg_reload_conf()");
	wait_until($server, 'postgres', q{SELECT count(*) = 0 FROM postbox.workers}, 'the workers have left') if $count == 0;
	return;
}
my $sent = 0;
sub all_sent
{
	my ($count, $what) = @_;
	$sent += $count;
	wait_for(sub { messages_published($emulator) >= $sent }, $what);
	$sent = sent_once($emulator, $node, $sent, "$what, and nothing else");
	return;
}
# Sent by another database meanwhile: so a look at all workers is over.
sub nothing_sent
{
	my ($what) = @_;
	emit_both($node, 'witness', 1);
	return all_sent(2, $what);
}

create_blank($node);
create_both($node, 'witness');
nothing_sent('a witness publishes');

subtest 'a copy by CREATE DATABASE ... TEMPLATE does not publish beside its original' => sub {
	create_both($node, 'shop');
	emit_both($node, 'shop', 3);
	all_sent(6, 'the original publishes');
	publishers($node, 0);
	emit_both($node, 'shop', 2);
	$node->safe_psql('postgres', 'CREATE DATABASE beside TEMPLATE shop');
	emit_both($node, 'beside', 4);
	publishers($node, 1);
	wait_workers($node, 'beside', 1);
	all_sent(4, 'the original publishes what was pending');
	nothing_sent('the copy does not publish');
	is($node->safe_psql('beside', q{SELECT publication, state, pending, last_error ~ 'copied from database "shop"' FROM postbox.publication_status}), "log|unserved|6|t\ntab|unserved|6|t",
		'and says so') or diag($node->safe_psql('beside', 'SELECT * FROM postbox.publication_status'));
	like(log_since($node, 0), qr/publication "log" is not published: it was copied from database "shop"/, 'so does the log');
	is($node->safe_psql('shop', q{SELECT DISTINCT state FROM postbox.publication_status}), 'active', 'the original is active');
	is($node->safe_psql('beside', q{SELECT postbox.claim_publication('tab')}), '1', 'somebody says that a publication of the copy is one of its own');
	all_sent(6, 'then it publishes');
	$node->safe_psql('postgres', 'ALTER DATABASE shop RENAME TO shop_before');
	emit_both($node, 'shop_before', 1);
	all_sent(2, 'a database that is renamed goes on');
	$node->safe_psql('postgres', 'DROP DATABASE shop_before');
	all_sent(6, 'when the original is dropped, the copy goes on by itself');
	$node->safe_psql('postgres', 'CREATE DATABASE third TEMPLATE beside');
	emit_both($node, 'third', 1);
	nothing_sent('a copy of the copy does not publish');
	is($node->safe_psql('third', q{SELECT postbox.claim_publication()}), '2', 'until somebody says so');
	all_sent(2, 'then it publishes');
	$node->safe_psql('postgres', 'DROP DATABASE third; DROP DATABASE beside');
};

subtest 'a database that is marked as a template is there to be copied' => sub {
	create_both($node, 'tenant_template');
	$node->safe_psql('postgres', 'ALTER DATABASE tenant_template IS_TEMPLATE true; CREATE DATABASE tenant_1 TEMPLATE tenant_template; CREATE DATABASE tenant_2 TEMPLATE tenant_template');
	emit_both($node, "tenant_$_", 1) for 1, 2;
	all_sent(4, 'its copies publish');
	$node->safe_psql('postgres', 'ALTER DATABASE tenant_template IS_TEMPLATE false; DROP DATABASE tenant_1; DROP DATABASE tenant_2; DROP DATABASE tenant_template');
};

subtest 'a dump that is restored beside its original does not publish' => sub {
	create_both($node, 'shop');
	emit_both($node, 'shop', 3);
	all_sent(6, 'the original publishes');
	publishers($node, 0);
	emit_both($node, 'shop', 2);
	my $dump = PostgreSQL::Test::Utils::tempdir() . '/shop.dump';
	command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('shop'), '-f', $dump ], 'pg_dump');
	publishers($node, 1);
	all_sent(4, 'the original publishes what was pending');
	$node->safe_psql('postgres', 'CREATE DATABASE restored');
	command_ok([ 'pg_restore', '-e', '-d', $node->connstr('restored'), $dump ], 'pg_restore into another database');
	emit_both($node, 'restored', 1);
	nothing_sent('the restored database does not publish');
	is($node->safe_psql('restored', q{SELECT publication, state, pending, last_error ~ 'copied from database "shop"' FROM postbox.publication_status}), "log|unserved|3|t\ntab|unserved|3|t", 'and says so');
	$node->safe_psql('postgres', 'DROP DATABASE shop; ALTER DATABASE restored RENAME TO shop');
	all_sent(6, 'when it takes the place of the original, it goes on by itself');
	$node->safe_psql('postgres', 'DROP DATABASE shop');
};

# Rows that logical replication brings into a database with publications on its outboxes.
sub subscribe
{
	my ($down, $database, $copy_data, $publication) = @_;
	$publication //= 'outboxes';
	$node->safe_psql('source', "SELECT pg_create_logical_replication_slot('$database', 'pgoutput')");
	$down->safe_psql($database, "CREATE SUBSCRIPTION $database CONNECTION 'host=@{[$node->host]} port=@{[$node->port]} dbname=source' PUBLICATION $publication WITH (create_slot = false, slot_name = '$database', copy_data = $copy_data)");
	wait_until($down, $database, q{SELECT count(*) > 0 AND bool_and(srsubstate IN ('r', 's')) FROM pg_subscription_rel}, "the subscription of $database is in step");
	return;
}
sub caught_up
{
	my (@databases) = @_;
	my $lsn = $node->lsn('insert');
	my $names = join ', ', map { "'$_'" } @databases;
	return wait_until($node, 'source', "SELECT bool_and(confirmed_flush_lsn >= '$lsn') FROM pg_replication_slots WHERE slot_name IN ($names)", "what was emitted has arrived in @databases");
}
sub unsubscribe
{
	my ($down, $database) = @_;
	$down->safe_psql($database, "ALTER SUBSCRIPTION $database DISABLE; ALTER SUBSCRIPTION $database SET (slot_name = NONE); DROP SUBSCRIPTION $database");
	wait_until($node, 'source', "SELECT NOT active FROM pg_replication_slots WHERE slot_name = '$database'", "the subscription of $database is gone");
	return $node->safe_psql('source', "SELECT pg_drop_replication_slot('$database')");
}

sub source_publishes
{
	my ($count, $kind) = @_;
	emit_both($node, 'source', $count, $kind);
	return all_sent(2 * $count, 'the source publishes');
}

create_both($node, 'source');
$node->safe_psql('source', q{CREATE PUBLICATION outboxes FOR TABLE app.log, app.tab});
my $down = new_node('down', emulator => $emulator, allows_streaming => 'logical', settings => \%settings);
$down->start;
create_blank($down);

subtest 'rows that logical replication brings are not published, in another cluster or in the same, with copy_data or without' => sub {
	my %server = (copied => $down, fresh => $down, same => $node, same_fresh => $node);
	my @databases = sort keys %server;
	my @copied = grep { !/fresh/ } @databases;
	my @fresh = grep { /fresh/ } @databases;
	my $emit_own = sub {
		my ($count, $what) = @_;
		emit_both($server{$_}, $_, $count, 'own') for @databases;
		all_sent(2 * @databases * $count, $what // 'each database publishes what is its own');
	};
	source_publishes(5, 'early');
	create_both($server{$_}, $_) for @databases;
	subscribe($server{$_}, $_, 'true') for @copied;
	subscribe($server{$_}, $_, 'false') for @fresh;
	source_publishes(6, 'late');
	$emit_own->(4);
	# Its sequence passes the numbers of the rows that came.
	$emit_own->(60);
	# What the source has not published yet, or somebody publishes there.
	$node->safe_psql('source', "SELECT postbox.alter_publication(name, topic => 'catalog.gone.events') FROM postbox.publication");
	emit_both($node, 'source', 3, 'late');
	wait_until($node, 'source', q{SELECT bool_and(state = 'suspended') FROM postbox.publication_status}, 'the source cannot publish');
	$node->safe_psql('source', q{UPDATE app.tab SET lock_token = 'of no worker', locked_at = now() WHERE aggregate_id = 'late-1' AND published_at IS NULL});
	caught_up(@databases);
	is($server{$_}->safe_psql($_, q{SELECT count(*) FROM app.tab WHERE aggregate_id ~ '^late' AND published_at IS NULL}), '3', "$_: events have come before they are published") for @databases;
	$emit_own->(1, 'they do not publish them');
	$node->safe_psql('source', q{UPDATE app.tab SET lock_token = NULL, locked_at = NULL WHERE lock_token IS NOT NULL; SELECT postbox.alter_publication(name, topic => 'catalog.video.events') FROM postbox.publication});
	all_sent(6, 'the source publishes them');
	wait_until($node, 'source', 'SELECT bool_and(pending = 0) FROM postbox.publication_status', 'the source has stored that');
	caught_up(@databases);
	wait_until($server{$_}, $_, q{SELECT count(*) = 0 FROM app.tab WHERE published_at IS NULL}, "$_: that arrives, too") for @databases;
	$emit_own->(1, 'nothing that came is published');
	my $came = q{SELECT count(*) FROM app.log WHERE aggregate_id !~ '^own'};
	for my $database (@databases)
	{
		my ($server, $problem) = ($server{$database}, q{SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.log'::regclass});
		my $rows = $server->safe_psql($database, $came);
		cmp_ok($rows, '>=', 9, "$database: $rows rows of the log have come");
		like($server->safe_psql($database, $problem), qr/events that came by logical replication are kept/, "$database: the status says that they are kept");
		is($server->safe_psql($database, q{SELECT count(*) FROM postbox.outbox_status WHERE outbox = 'app.tab'::regclass AND problem IS NOT NULL}), '0', "$database: those of the table are published where they were emitted");
	}
	my $problems = q{SELECT count(*) FROM postbox.outbox_status WHERE problem IS NOT NULL};
	for my $database (@copied)
	{
		$server{$database}->safe_psql($database, q{SELECT postbox.resolve_unknown_origin('app.log', true)});
		is($server{$database}->safe_psql($database, $problems), '0', "$database: somebody says that they are published: then nothing is the matter");
	}
	source_publishes(2, 'late');
	caught_up(@databases);
	emit_both($server{$_}, $_, 1, 'own') for @copied;
	all_sent(2 * @copied, 'they publish what is their own only');
	is($server{$_}->safe_psql($_, $problems), '0', "$_: that holds for what comes later") for @copied;
	my $rows = 0;
	$rows += $server{$_}->safe_psql($_, $came) for @fresh;
	$server{$_}->safe_psql($_, q{SELECT postbox.resolve_unknown_origin('app.log', false)}) for @fresh;
	all_sent($rows, 'somebody says that those of the others are not: then they are published there');
	for (@databases) { unsubscribe($server{$_}, $_); $server{$_}->safe_psql('postgres', "DROP DATABASE $_"); }
};

subtest 'a parked event of a log that logical replication brings is not published where it arrives' => sub {
	create_both($down, 'mirror');
	$node->safe_psql('source', 'CREATE PUBLICATION parked FOR TABLE app.log_parked');
	subscribe($down, 'mirror', 'true', 'parked');
	emulator_fault($emulator, 'rpc=Publish,ordering-key=poison-1,code=INVALID_ARGUMENT');
	$node->safe_psql('source', q{SELECT postbox.outbox_emit('video', 'poison-1', 'video.changed', '{}'::jsonb, outbox => 'app.log')});
	wait_until($node, 'source', q{SELECT count(*) = 1 FROM app.log_parked}, 'the source has parked it');
	caught_up('mirror');
	is($down->safe_psql('mirror', q{SELECT count(*) FROM app.log_parked WHERE next_retry_at = 'infinity' AND last_error ~ '^came by logical replication'}), '1', 'it has arrived, and waits');
	emulator_fault($emulator, '--clear');
	$node->safe_psql('source', q{SELECT postbox.redrive('app.log')});
	all_sent(1, 'the source publishes it');
	wait_until($down, 'mirror', 'SELECT count(*) = 0 FROM app.log_parked', 'then it is gone where it arrived');
	unsubscribe($down, 'mirror');
	$node->safe_psql('source', 'DROP PUBLICATION parked');
};

subtest 'what a source never publishes waits in a table where it has arrived, and can be published there' => sub {
	create_both($down, 'heir');
	subscribe($down, 'heir', 'false');
	publishers($node, 0);
	emit_both($node, 'source', 2, 'left');
	caught_up('heir');
	emit_both($down, 'heir', 1, 'own');
	all_sent(2, 'the heir publishes what is its own only');
	is($down->safe_psql('heir', q{SELECT publication, state, pending, parked FROM postbox.publication_status WHERE publication = 'tab'}), 'tab|active|2|2', 'what came is parked');
	is($down->safe_psql('heir', q{SELECT DISTINCT last_error FROM postbox.paused_keys}), 'came by logical replication, and is published where it was emitted; postbox.redrive publishes it here', 'and the reason is said');
	$node->stop('immediate');
	$down->safe_psql('heir', q{SELECT postbox.redrive('app.tab'); SELECT postbox.resolve_unknown_origin('app.log', false)});
	all_sent(4, 'the source is lost, and the heir publishes what it has left');
	$node->start;
	unsubscribe($down, 'heir');
	$down->stop;
};

subtest 'a physical copy that is started as documented publishes nothing beside its primary' => sub {
	emit_both($node, 'witness', 2);
	$node->backup('copy');
	publishers($node, 1);
	all_sent(8, 'the primary publishes what was pending');
	my $copy = PostgreSQL::Test::Cluster->new('copy');
	$copy->init_from_backup($node, 'copy', has_streaming => 1);
	# As docs/guides/copy-a-database.md says.
	append_to_file($copy->data_dir . '/postgresql.auto.conf', "\npostbox.publishers = 0\n");
	$copy->start;
	$copy->promote;
	emit_both($copy, 'witness', 3);
	nothing_sent('the copy does not publish');
	is($copy->safe_psql('witness', q{SELECT publication, state, last_error FROM postbox.publication_status}),
		"log|unserved|no worker publishes it: postbox.publishers is 0; raise it, and reload the configuration\ntab|unserved|no worker publishes it: postbox.publishers is 0; raise it, and reload the configuration",
		'it says why');
	# For good.
	for my $database (qw(witness source)) { $copy->safe_psql($database, 'SELECT postbox.drop_publication(name) FROM postbox.publication'); }
	publishers($copy, 1);
	wait_workers($copy, 'witness', 1);
	emit_both($copy, 'witness', 1);
	nothing_sent('without its publications it has workers, and does not publish');
	$copy->stop;
};

$node->stop;
done_testing();
