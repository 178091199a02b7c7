# Tables of an outbox or an inbox that somebody has made UNLOGGED: the status says so, with the repair, before a crash
# empties them and after it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'restart_after_crash' => 'on' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', q{
	SELECT postbox.create_outbox('app.jobs', 'table');
	SELECT postbox.create_publication('jobs', 'app.jobs', 'catalog.video.events');
	SELECT postbox.create_inbox('app.inbox');
});
my ($partition) = split /\n/, $node->safe_psql('postgres', q{SELECT inhrelid::regclass FROM pg_inherits WHERE inhparent = 'app.outbox'::regclass ORDER BY 1 LIMIT 1});

sub problems
{
	return $node->safe_psql('postgres', q{
		SELECT 'publication ' || publication || ': ' || last_error FROM postbox.publication_status WHERE last_error ~ 'UNLOGGED'
		UNION ALL SELECT 'outbox ' || outbox || ': ' || problem || '; ' || remedy FROM postbox.outbox_status WHERE problem ~ 'UNLOGGED'
		UNION ALL SELECT kind || ' ' || inbox || ': ' || problem || '; ' || remedy FROM postbox.inbox_problem ORDER BY 1});
}

sub repair { my ($table) = @_; return "a crash of the server or a failover empties such a table, and may already have done so; run ALTER TABLE $table SET LOGGED"; }

is(problems(), '', 'nothing is wrong');
for my $case ([ $partition, 'app.outbox', 'videos' ], [ 'app.outbox_parked', 'app.outbox', 'videos' ], [ 'app.outbox_version', 'app.outbox', 'videos' ], [ 'app.jobs', 'app.jobs', 'jobs' ], [ 'app.jobs_version', 'app.jobs', 'jobs' ])
{
	my ($table, $outbox, $publication) = @$case;
	$node->safe_psql('postgres', "ALTER TABLE $table SET UNLOGGED");
	is(problems(), "outbox $outbox: $table is UNLOGGED: " . repair($table) . "\npublication $publication: $table is UNLOGGED: " . repair($table), "$table: outbox and publication say so");
	$node->safe_psql('postgres', "ALTER TABLE $table SET LOGGED");
	is(problems(), '', "$table: the repair ends it");
}
for my $table ('app.inbox_g1', 'app.inbox_tombstone_g2')
{
	$node->safe_psql('postgres', "ALTER TABLE $table SET UNLOGGED");
	is(problems(), "inbox app.inbox: $table is UNLOGGED: " . repair($table), "$table: the inbox says so");
	$node->safe_psql('postgres', "ALTER TABLE $table SET LOGGED");
	is(problems(), '', "$table: the repair ends it");
}

# The target of a projection, and one of its partitions.
$node->safe_psql('postgres', q{
	CREATE TABLE app.video (id text PRIMARY KEY, version bigint);
	CREATE TABLE app.parted (id int PRIMARY KEY, version bigint) PARTITION BY RANGE (id);
	CREATE TABLE app.parted_1 PARTITION OF app.parted DEFAULT;
	SELECT postbox.create_projection('app.inbox', '{video}', 'app.video'), postbox.create_projection('app.inbox', '{parted}', 'app.parted');
});
for my $table ('app.video', 'app.parted_1')
{
	$node->safe_psql('postgres', "ALTER TABLE $table SET UNLOGGED");
	is(problems(), "projection app.inbox: $table is UNLOGGED: " . repair($table), "$table: its projection says so");
	$node->safe_psql('postgres', "ALTER TABLE $table SET LOGGED");
	is(problems(), '', "$table: the repair ends it");
}

$node->safe_psql('postgres', 'ALTER TABLE app.jobs SET UNLOGGED; ALTER TABLE app.jobs_version SET UNLOGGED');
like(problems(), qr/app.jobs, app.jobs_version are UNLOGGED: .*run ALTER TABLE app.jobs SET LOGGED; ALTER TABLE app.jobs_version SET LOGGED/, 'several are named together');
my $emit = q{SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => 'app.jobs') FROM generate_series(1, 10)};
$node->safe_psql('postgres', $emit);
wait_until($node, 'postgres', 'SELECT count(published_at) = 10 FROM app.jobs', 'its events are published nevertheless');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.jobs'), '0', 'a crash empties it');
wait_for(sub { problems() =~ /^publication jobs: app.jobs, app.jobs_version are UNLOGGED: a crash .* may already have done so/m }, 'which the status says may be so, once workers have started');
$node->safe_psql('postgres', $emit);
wait_until($node, 'postgres', 'SELECT count(published_at) = 10 FROM app.jobs', 'what comes afterwards is published');

my (undef, undef, $error) = $node->psql('postgres', q{
	CREATE UNLOGGED TABLE app.adopted (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload bytea NOT NULL);
	SELECT postbox.adopt_outbox('app.adopted')});
like($error, qr/table "adopted" may not be unlogged/, 'an unlogged table is not adopted');

$node->stop;
done_testing();
