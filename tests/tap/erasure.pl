# Erasing what is stored of a person while others are emitted, published and applied: the SQL of docs/guides/erase-personal-data.md, as it stands there. Nothing of
# the person is left in any table, and nothing of the others is lost.
use strict;
use warnings;

use FindBin;
use IPC::Run ();
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $guide = slurp_file("$ENV{POSTBOX_BUILD_DIR}/tree/docs/guides/erase-personal-data.md");
my @steps = $guide =~ /^```sql\n(.*?)^```$/msg;
is(scalar(@steps), 2, 'the guide has a step for the database that emits, and one for each that consumes');

my ($of_table) = $guide =~ /^```sql fragment\n(.*?)^```$/ms;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA catalog;
	CREATE SCHEMA catalog_read;
	SELECT postbox.create_outbox('catalog.outbox');
	SELECT postbox.create_publication('customers', 'catalog.outbox', 'catalog.video.events', max_attempts => 1);
	SELECT postbox.create_inbox('catalog_read.inbox');
	CREATE TABLE catalog_read.customer (id text PRIMARY KEY, name text, mail text CHECK (length(mail) < 30), version bigint);
	SELECT postbox.create_projection('catalog_read.inbox', '{customer.changed}', 'catalog_read.customer', delete_types => '{customer.deleted}');
	SELECT postbox.create_subscription('customers', 'catalog_read.inbox', 'catalog.video.events.test-follower', max_attempts => 2, min_backoff => '10 ms', max_backoff => '20 ms');
});
my $emit = q{SELECT postbox.outbox_emit('customer', '%s', 'customer.changed', jsonb_build_object('name', 'secret-name', 'mail', %s), attributes => '%s', outbox => 'catalog.outbox')};
my $puller = start_puller($node, 'postgres', $emulator);

# Others, in three sessions, until it is over.
my $work = q{
	DO $$
	BEGIN
		FOR n IN 1 .. 400 LOOP
			PERFORM postbox.outbox_emit('customer', 'other-%d-' || n % 20, 'customer.changed', jsonb_build_object('name', n), outbox => 'catalog.outbox');
			COMMIT;
			PERFORM pg_sleep(0.002);
		END LOOP;
	END $$};
my @running = map { start_load($_) } 1 .. 3;

sub start_load
{
	my ($n) = @_;
	my $load = { output => '' };
	$load->{run} = IPC::Run::start([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', sprintf($work, $n) ], '<', \undef, '>&', \$load->{output});
	return $load;
}

# The person: an event that is applied, one that is a dead letter with a DETAIL that quotes it, and one that Pub/Sub refuses.
$node->safe_psql('postgres', sprintf($emit, 'c_42', q{'secret-mail'}, '{}'));
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM catalog_read.customer WHERE id = 'c_42'}, 'an event of the person is applied');
$node->safe_psql('postgres', sprintf($emit, 'c_42', q{repeat('secret-mail', 100)}, '{}'));
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.dead_letter WHERE aggregate_id = 'c_42'}, 'one is a dead letter');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.subscription_status WHERE last_error ~ 'secret-'}, 'which the puller has reported');
emulator_fault($emulator, 'rpc=Publish,attribute=refused,code=INVALID_ARGUMENT');
$node->safe_psql('postgres', sprintf($emit, 'c_42', q{'secret-mail'}, '{"refused": "yes"}'));
$node->safe_psql('postgres', sprintf($emit, 'c_42', q{'secret-mail'}, '{}'));
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.paused_keys WHERE aggregate_id = 'c_42'}, 'one is parked, and holds up the key');
wait_until($node, 'postgres', q{SELECT count(*) = 2 FROM catalog.outbox_parked WHERE aggregate_id = 'c_42'}, 'with the next one behind it');

# The tables that have something of the person, whatever the type of the column.
sub places
{
	my @tables = split /\n/, $node->safe_psql('postgres', q{
		SELECT c.oid::regclass FROM pg_class c WHERE c.relkind = 'r' AND c.relnamespace IN ('catalog'::regnamespace, 'catalog_read'::regnamespace, 'postbox'::regnamespace) ORDER BY 1});
	my $hex = unpack('H*', 'secret-');
	return join(' ', grep { $node->safe_psql('postgres', "SELECT count(*) FROM $_ t WHERE to_jsonb(t)::text ~ '(secret-|$hex)'") > 0 } @tables);
}
my $before = places();
like($before, qr/(^| )\Q$_\E( |$)/, "the person is in $_") for qw(catalog_read.customer postbox.dead_letter catalog.outbox_parked postbox.subscription_status);
like($before, qr/catalog\.outbox_g\d/, 'and in the log');
my $longest = $node->safe_psql('postgres', 'SELECT max(octet_length(last_error)) FROM postbox.subscription_status');
cmp_ok($longest, '<=', 500, 'the last error of a puller has 500 bytes at most');

# The steps run as psql reads them.
sub run_step
{
	my ($step, $what) = @_;
	my ($stdout, $stderr) = ('', '');
	IPC::Run::run([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', '-' ], '<', \$step, '>', \$stdout, '2>', \$stderr);
	is($stderr, '', $what);
	return $stdout;
}
run_step($steps[0], 'the first step runs under load');
wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM catalog_read.customer WHERE id = 'c_42'}, 'the row of the person is deleted in the target');
is($node->safe_psql('postgres', q{SELECT count(*) FROM catalog_read.inbox_tombstone WHERE key = 'c_42'}), '1', 'and its tombstone keeps late events out');
is(run_step($steps[1], 'the second step runs under load'), "1\n", 'and discards the dead letter');
stop_puller($puller);
$puller = start_puller($node, 'postgres', $emulator);
is(places(), '', 'nothing of the person is left in any table');

# The same in a `table` outbox.
$node->safe_psql('postgres', q{SELECT postbox.create_outbox('catalog.jobs', 'table'); SELECT postbox.create_publication('jobs', 'catalog.jobs', 'catalog.video.events', max_attempts => 1)});
$node->safe_psql('postgres', sprintf($emit, 'c_42', q{'secret-mail'}, '{"refused": "yes"}') =~ s/catalog\.outbox/catalog.jobs/r);
$node->safe_psql('postgres', sprintf($emit, 'c_42', q{'secret-mail'}, '{}') =~ s/catalog\.outbox/catalog.jobs/r);
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.paused_keys WHERE relation = 'catalog.jobs'::regclass}, 'an event in a table is refused');
my $step = $steps[0] =~ s/^SELECT postbox\.discard\(.*?;\n/$of_table/msr =~ s/catalog\.outbox/catalog.jobs/gr;
like($step, qr/catalog\.jobs j/, 'the first step has another statement there');
run_step($step, 'and runs');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM catalog.jobs WHERE published_at > '-infinity'}, 'the event that deletes is published');
is(places(), '', 'and alone is left');

for my $load (@running)
{
	$load->{run}->finish;
	is($load->{run}->full_result(0), 0, 'the load went on all the time') or diag($load->{output});
}
wait_until($node, 'postgres', q{SELECT count(*) = 60 AND min(version) = 20 AND max(version) = 20 FROM catalog_read.customer}, 'everything of the others is applied');
is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.dead_letter'), '0', 'no event of theirs was given up');
is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.paused_keys'), '0', 'no key is held up');
is($node->safe_psql('postgres', 'SELECT count(*) FROM catalog.outbox WHERE aggregate_id LIKE $$other-%$$'), '1200', 'and no event of theirs is missing');
is(places(), '', 'nothing has come back');

stop_puller($puller);
$node->stop;
done_testing();
