# What postbox.publication_status says about a backlog is true: late events count, running transactions do not, parked events are
# told apart from those that are ready, and a large backlog is estimated well. Monitors see all of it without rights on the outbox.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Load;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'autovacuum' => 'off' });
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_outbox('app.jobs', 'table');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', max_attempts => 1);
	SELECT postbox.create_publication('jobs', 'app.jobs', 'catalog.video.events', aggregate_types => '{video}', max_attempts => 1);
});

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

sub emit_sql
{
	my ($count, %more) = @_;
	my ($outbox, $type, $key, $event) =
	  ($more{outbox} // 'app.log', $more{type} // 'video', $more{key} // "'k' || n", $more{event} // 'changed');
	return "SELECT count(postbox.outbox_emit('$type', $key, 'video.$event', '{}'::jsonb, outbox => '$outbox')) FROM generate_series(1, $count) n";
}

# pending|ready|parked
sub backlog
{
	my ($publication) = @_;
	return sql("SELECT pending, ready, parked FROM postbox.publication_status WHERE publication = '$publication'");
}

sub is_about
{
	my ($publication, $count, $what) = @_;
	my $ready = sql("SELECT ready FROM postbox.publication_status WHERE publication = '$publication'");
	cmp_ok(abs($ready - $count), '<=', $count / 20, "$what: $ready of $count") or diag(backlog($publication));
	return;
}

sub publishers
{
	my ($count) = @_;
	$node->append_conf('postgresql.conf', "postbox.publishers = $count");
	$node->reload;
	wait_until($node, 'postgres', "SELECT count(*) = $count FROM pg_stat_activity WHERE backend_type = 'postbox publisher'", "$count workers run");
	return;
}

my $read = sub { sql("SELECT max(hwm) FROM postbox.lane WHERE publication = 'log'") };

# A transaction that has emitted, for keys of its own, with everything after it read. Twenty events have one key, so one request has
# all of them.
my $transactions = 0;
sub begin_late
{
	my ($count) = @_;
	++$transactions;
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN');
	$session->query_safe(emit_sql($count, key => "'late_${transactions}_' || n / 20"));
	sql(emit_sql(1, key => "'later'"));
	my $last = sql('SELECT last_value FROM app.log_seq');
	wait_for(sub { $read->() >= $last }, 'the worker has read what came after');
	return $session;
}

sub drained { wait_until($node, 'postgres', "SELECT bool_and(pending = 0) FROM postbox.publication_status", 'nothing is pending'); return; }

sql(emit_sql(1));
drained();

subtest 'events of a transaction that commits late count, and those of one that runs or was rolled back do not' => sub {
	my $late = begin_late(500);
	my $aborted = begin_late(300);
	publishers(0);
	is(backlog('log'), '0|0|0', 'they run');
	$late->query_safe('COMMIT');
	is(backlog('log'), '500|500|0', 'one has committed');
	$aborted->query_safe('ROLLBACK');
	is(backlog('log'), '500|500|0', 'the other is rolled back');
	is(sql("SELECT oldest_ready > interval '0' AND oldest_ready = oldest_pending FROM postbox.publication_status WHERE publication = 'log'"), 't', 'with their age');
	$_->quit for $late, $aborted;
	publishers(1);
	drained();
};

subtest 'many events of a late transaction are estimated, also among those of others and beside new ones' => sub {
	my $late = begin_late(3500);
	publishers(0);
	$late->query_safe('COMMIT');
	$late->quit;
	is_about('log', 3500, 'late ones');
	sql(emit_sql(3500, key => "'new' || n / 20"));
	is_about('log', 7000, 'late and new ones');
	sql('BEGIN; ' . emit_sql(3500, key => "'gone' || n") . '; ROLLBACK');
	sql(emit_sql(3500, key => "'newer' || n / 20"));
	is_about('log', 10_500, 'behind as many that were rolled back');
	publishers(1);
	drained();
};

subtest 'a publication of some types, and one of many lanes, counts its own events' => sub {
	publishers(0);
	sql(q{SELECT postbox.create_publication('typed', 'app.log', 'catalog.video.events', aggregate_types => '{order}', lanes => 3)});
	sql(emit_sql(10, type => 'order'));
	sql(emit_sql(10));
	is(backlog('typed'), '10|10|0', 'few');
	is(backlog('log'), '20|20|0', 'few of all types');
	sql(join '; ', map { (emit_sql(900, key => "'v' || n / 20"), emit_sql(100, type => 'order', key => "'o' || n / 20")) } 1 .. 10);
	is(sql("SELECT ready BETWEEN 700 AND 1300 FROM postbox.publication_status WHERE publication = 'typed'"), 't', 'a tenth of many')
	  or diag(backlog('typed'));
	is_about('log', 10_020, 'all of many');
	sql(q{SELECT postbox.drop_publication('typed')});
	publishers(1);
	drained();
};

subtest 'parked events are told apart from ready ones, in both kinds of outbox' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison');
	for (['log', 'app.log'], ['jobs', 'app.jobs'])
	{
		my ($publication, $outbox) = @$_;
		sql(emit_sql(1, outbox => $outbox, key => "'stuck'", event => 'poison'));
		sql(emit_sql(3, outbox => $outbox, key => "'stuck'"));
		wait_until($node, 'postgres', "SELECT parked = 4 AND ready = 0 FROM postbox.publication_status WHERE publication = '$publication'",
			"$publication: one is parked, with those behind it")
		  or diag(backlog($publication));
		publishers(0);
		sql(emit_sql(7, outbox => $outbox));
		sql(emit_sql(5, outbox => $outbox, type => 'other')) if $publication eq 'jobs';
		is(backlog($publication), '11|7|4', "$publication: others are ready");
		is(sql("SELECT oldest_pending > oldest_ready FROM postbox.publication_status WHERE publication = '$publication'"), 't',
			"$publication: and are younger");
		publishers(1);
		wait_until($node, 'postgres', "SELECT ready = 0 FROM postbox.publication_status WHERE publication = '$publication'", 'they are published');
	}
	sql(q{SELECT postbox.discard('app.log', first_event_id::uuid) FROM postbox.paused_keys WHERE relation = 'app.log'::regclass});
	sql(q{SELECT postbox.discard('app.jobs', first_event_id::uuid) FROM postbox.paused_keys WHERE relation = 'app.jobs'::regclass});
	drained();
};

subtest 'many events of a table outbox are estimated' => sub {
	publishers(0);
	sql(emit_sql(2500, outbox => 'app.jobs', key => "'k' || n / 20"));
	is(backlog('jobs'), '2500|2500|0', 'without gaps exactly');
	publishers(1);
	drained();
};

subtest 'what is claimed and given back while it is counted is counted once' => sub {
	publishers(0);
	sql(emit_sql(1, outbox => 'app.jobs'));
	my $load = start_load($node, 'postgres', { lease => q{
		UPDATE app.jobs SET lock_token = 'test', locked_at = now() WHERE published_at IS NULL;
		UPDATE app.jobs SET lock_token = NULL, locked_at = NULL WHERE published_at IS NULL;} }, clients => 1, rate => 1000);
	sql(q{
		CREATE TABLE app.pending (n bigint);
		CREATE FUNCTION app.look() RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			FOR n IN 1 .. 1000 LOOP
				INSERT INTO app.pending SELECT pending FROM postbox.publication_status WHERE publication = 'jobs';
			END LOOP;
		END $$});
	wait_until($node, 'postgres', q{SELECT n_tup_upd > 100 FROM pg_stat_user_tables WHERE relid = 'app.jobs'::regclass}, 'leases come and go');
	sql('SELECT app.look()');
	stop_load($load);
	is(sql('SELECT n, count(*) FROM app.pending GROUP BY n ORDER BY n'), '1|1000', 'it is pending at every look');
	publishers(1);
	drained();
};

subtest 'monitors and operators see the backlog without rights on the outbox, others do not' => sub {
	publishers(0);
	sql(emit_sql(3));
	sql('CREATE ROLE monitor IN ROLE pg_monitor; CREATE ROLE operator IN ROLE postbox_operator; CREATE ROLE stranger');
	my $seen = "SELECT coalesce(pending::text, 'null') || ' ' || (oldest_ready IS NOT NULL) FROM postbox.publication_status WHERE publication = 'log'";
	is(sql("SET ROLE $_; $seen"), '3 true', $_) for qw(monitor operator);
	is(sql("SET ROLE stranger; $seen"), 'null false', 'stranger');
	publishers(1);
	drained();
};

subtest 'code of an owner that runs while its outbox is counted may rename a table of it, and count it again' => sub {
	sql(q{
		CREATE ROLE renamer;
		CREATE SCHEMA own AUTHORIZATION renamer;
		SET ROLE renamer;
		SELECT postbox.create_outbox('own.log');
		SELECT count(postbox.outbox_emit('video', 'k' || n, 'video.changed', '{}'::jsonb, outbox => 'own.log')) FROM generate_series(1, 3) n;
		CREATE FUNCTION own.visible() RETURNS boolean LANGUAGE plpgsql AS $$
		BEGIN
			IF to_regclass('own.log_parked') IS NOT NULL THEN
				ALTER TABLE own.log_parked RENAME TO renamed;
				PERFORM postbox.count_backlog('own');
			END IF;
			RETURN true;
		END $$;
		CREATE POLICY visible ON own.log USING (own.visible());
		RESET ROLE;
		SELECT postbox.create_publication('own', 'own.log', 'catalog.video.events', aggregate_types => '{video}');
		ALTER TABLE own.log ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY});
	my ($stdout, $stderr);
	$node->psql('postgres', q{SET ROLE renamer; SELECT postbox.count_backlog('own')}, stdout => \$stdout, stderr => \$stderr);
	like($stderr, qr/relation "own.log_parked" does not exist/, 'the count that it began with fails');
	sql('ALTER TABLE own.log NO FORCE ROW LEVEL SECURITY');
	is(sql(q{SET ROLE renamer; SELECT parked FROM postbox.count_backlog('own')}), '0', 'one without such code does not');
};

$node->stop;
done_testing();
