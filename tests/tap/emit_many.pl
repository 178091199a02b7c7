# A transaction that emits many events of one aggregate, most of which are counted in memory: it is prepared, the
# server crashes, the counter cannot be written at COMMIT, the transaction has very many aggregates.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $node = new_node('main', settings => { 'postbox.publishers' => 0, 'max_prepared_transactions' => 5, 'autovacuum' => 'off' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');

sub emits
{
	my ($id, $events) = @_;
	return "SELECT count((postbox.outbox_emit('video', '$id', 'video.changed', '{}'::jsonb, outbox => 'app.outbox')).version)"
	  . " FROM generate_series(1, $events);\n";
}

sub counter
{
	my ($id) = @_;
	return $node->safe_psql('postgres', "SELECT (SELECT version FROM app.outbox_version WHERE aggregate_id = '$id'), max(version),"
		  . " count(DISTINCT version) FROM app.outbox WHERE aggregate_id = '$id'");
}

subtest 'PREPARE TRANSACTION stores the last version, and a crash does not change it' => sub {
	$node->safe_psql('postgres', 'BEGIN;' . emits('kept', 100) . q{PREPARE TRANSACTION 'kept'});
	$node->safe_psql('postgres', 'BEGIN;' . emits('undone', 100) . q{PREPARE TRANSACTION 'undone'});
	$node->safe_psql('postgres', 'BEGIN; SAVEPOINT s;' . emits('part', 100) . 'ROLLBACK TO s;' . emits('part', 50) . q{PREPARE TRANSACTION 'part'});
	is(counter('kept'), '||0', 'nothing is to be seen before COMMIT PREPARED');
	$node->stop('immediate');
	$node->start;
	$node->safe_psql('postgres', "COMMIT PREPARED 'kept'");
	$node->safe_psql('postgres', "ROLLBACK PREPARED 'undone'");
	$node->safe_psql('postgres', "COMMIT PREPARED 'part'");
	is(counter('kept'), '100|100|100', 'the versions of a transaction that was committed');
	is(counter('undone'), '||0', 'those of one that was rolled back');
	is(counter('part'), '50|50|50', 'those of one that went back to a savepoint');
	$node->safe_psql('postgres', emits('kept', 1));
	is(counter('kept'), '101|101|101', 'counting goes on');
};

subtest 'a session that dies has counted nothing' => sub {
	$node->psql('postgres', 'BEGIN;' . emits('died', 100) . 'SELECT pg_terminate_backend(pg_backend_pid()); COMMIT;');
	is(counter('died'), '||0', 'nothing is left');
};

subtest 'a counter that cannot be written at COMMIT fails the COMMIT' => sub {
	my ($result, $stdout, $stderr) = $node->psql('postgres',
		'BEGIN;' . emits('failed', 100) . 'ALTER TABLE app.outbox_version ADD CONSTRAINT nothing CHECK (version <> 100); COMMIT;',
		on_error_stop => 1);
	like($stderr, qr/violates check constraint "nothing"/, 'the error says why');
	is(counter('failed'), '||0', 'nothing was emitted');
	$node->safe_psql('postgres', emits('failed', 40));
	is(counter('failed'), '40|40|40', 'the next transaction is not affected');
};

subtest 'a transaction with very many aggregates needs bounded memory' => sub {
	my $kb = sub { return "SELECT 'kB', split_part(line, ':', 2) FROM regexp_split_to_table(pg_read_file('/proc/' || pg_backend_pid() || '/status'), E'\\n') line WHERE line LIKE 'RssAnon:%';\n" };
	my $turns = "SELECT count((postbox.outbox_emit('many', repeat('x', 900) || n, 'e', '{}'::jsonb, outbox => 'app.outbox')).version) FROM generate_series(1, 40) turn, generate_series(1, 400) n;\n";
	my $some = "SELECT count((postbox.outbox_emit('some', repeat('x', 900) || n, 'e', '{}'::jsonb, outbox => 'app.outbox')).version) FROM generate_series(1, 7000) n;\n";
	my $out = $node->safe_psql('postgres', emits('first', 40) . 'BEGIN;' . $kb->() . $some . $kb->() . $turns . $kb->() . 'COMMIT;');
	my ($before, $once, $often) = $out =~ /kB\|\s*(\d+) kB/g;
	cmp_ok($once - $before, '<', 4 * 1024, '7,000 aggregates with an event each are not remembered');
	cmp_ok($often - $once, '<', 4 * 1024, '400 aggregates with 40 events each take little');
	is($node->safe_psql('postgres', q{SELECT count(*), min(version), max(version) FROM app.outbox_version WHERE aggregate_type = 'many'}),
		'400|40|40', 'each is counted');
};

subtest 'an UPDATE that emits nothing needs bounded memory' => sub {
	my $peak = q{SELECT 'kB', split_part(line, ':', 2) FROM regexp_split_to_table(pg_read_file('/proc/' || pg_backend_pid() || '/status'), E'\\n') line WHERE line LIKE 'VmPeak:%';};
	$node->safe_psql('postgres', q{
		CREATE TABLE app.item (id int PRIMARY KEY, title text, stock int);
		INSERT INTO app.item SELECT n, 'title', 0 FROM generate_series(1, 300000) n;
		SELECT postbox.create_change_triggers('app.item', outbox => 'app.outbox', columns => ARRAY['id', 'title'])});
	my $out = $node->safe_psql('postgres', "SET work_mem = '1MB'; UPDATE app.item SET stock = 1 WHERE id <= 20000; $peak UPDATE app.item SET stock = 2; $peak");
	my ($before, $after) = $out =~ /kB\|\s*(\d+) kB/g;
	cmp_ok($after - $before, '<', 8 * 1024, 'rows whose payload is as it was are forgotten');
	$node->safe_psql('postgres', q{UPDATE app.item SET stock = 3, title = CASE WHEN id = 290000 THEN 'other' ELSE title END});
	is($node->safe_psql('postgres', q{SELECT string_agg(aggregate_id || ':' || version, ' ') FROM app.outbox WHERE aggregate_type = 'item'}),
		'290000:1', 'a row behind them that has changed is found');
};

$node->stop;
done_testing();
