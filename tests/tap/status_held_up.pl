# An owner who locks the outbox, or makes reading it run code that never ends, holds up nobody who looks at the status: the other publications
# and keys are shown at once, and for this outbox what is the matter.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $node = new_node('main', settings => { 'postbox.publishers' => 0, 'postbox.project_id' => 'shop-1' });
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE ROLE owner LOGIN;
	CREATE ROLE watcher LOGIN IN ROLE pg_monitor;
	CREATE SCHEMA app;
	CREATE SCHEMA held AUTHORIZATION owner;
	GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.alter_publication TO owner;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('zebra', 'app.log', 'shop.order.events');
	SELECT postbox.outbox_emit('order', '1', 'order.created', '{}', outbox => 'app.log');
	INSERT INTO app.log_parked (publication, seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, publish_attempts, next_retry_at, last_error)
		SELECT 'zebra', seq, id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, 1, now(), 'why' FROM app.log;
	SET ROLE owner;
	SELECT postbox.create_outbox('held.log'), postbox.create_outbox('held.jobs', 'table');
	SELECT postbox.create_publication('log', 'held.log', 'shop.order.events'), postbox.create_publication('jobs', 'held.jobs', 'shop.order.events');
	-- Sleeps while there is a row in held.armed, whoever cancels it.
	CREATE TABLE held.armed ();
	CREATE FUNCTION held.sleep(anyelement) RETURNS boolean LANGUAGE plpgsql IMMUTABLE AS $$
	BEGIN
		WHILE EXISTS (SELECT FROM held.armed) LOOP
			BEGIN PERFORM pg_sleep(600); EXCEPTION WHEN query_canceled THEN NULL; END;
		END LOOP;
		RETURN true;
	END $$;
});

# The status as a monitor sees it. What takes longer than 5 s is held up.
sub status
{
	my ($columns) = @_;
	my ($code, $stdout, $stderr) = $node->psql('postgres', "SET statement_timeout = '5s'; SELECT $columns FROM postbox.publication_status ORDER BY publication",
		connstr => $node->connstr('postgres') . ' user=watcher', timeout => 30, timed_out => \my $timed_out);
	return $timed_out ? 'held up' : $stdout . ($stderr // '');
}

sub paused_keys
{
	my ($code, $stdout, $stderr) = $node->psql('postgres', q{SET statement_timeout = '5s'; SELECT relation, aggregate_id FROM postbox.paused_keys},
		connstr => $node->connstr('postgres') . ' user=watcher', timeout => 30, timed_out => \my $timed_out);
	return $timed_out ? ('held up', '') : ($stdout, $stderr);
}

# [outbox, what is shown] of each outbox.
sub problems
{
	my ($code, $stdout, $stderr) = $node->psql('postgres', q{SET statement_timeout = '5s'; SELECT outbox, problem FROM postbox.outbox_status},
		connstr => $node->connstr('postgres') . ' user=watcher', timeout => 30, timed_out => \my $timed_out);
	return $timed_out ? 'held up' : $stdout . ($stderr // '');
}

# What is shown of the retention when this is shown of the log of the owner.
sub problems_with
{
	my ($problem) = @_;
	return "app.log|\nheld.log|$problem\nheld.jobs|";
}

# There are no workers here.
my $unserved = 'no worker publishes it: postbox.publishers is 0; raise it, and reload the configuration';
is(status('publication, state, pending, last_error'), "jobs|unserved|0|$unserved\nlog|unserved|0|$unserved\nzebra|unserved|2|$unserved", 'all is counted at first');
is((paused_keys())[0], 'app.log|1', 'and the paused key is shown');

# [table, publications that are not counted, outboxes whose keys are not read]
foreach my $case (
	[ 'held.log', 'log', '' ],
	[ 'held.log_g0', 'log', '' ],
	[ 'held.log_parked', 'log', 'held.log' ],
	[ 'held.log_g0_origin_seq_idx', 'log', '', 'REINDEX INDEX held.log_g0_origin_seq_idx' ],
	[ 'held.jobs', 'jobs', 'held.jobs' ])
{
	my ($table, $publication, $outbox, $lock) = @$case;
	my $session = $node->background_psql('postgres', on_error_stop => 1);
	$session->query_safe('SET ROLE owner');
	my $pid = $session->query_safe('SELECT pg_backend_pid()');
	$session->query_safe('BEGIN; ' . ($lock // "LOCK TABLE ONLY $table"));
	my $expected = join("\n", map { $_ eq $publication ? "$_|unserved||$unserved; the backlog is not counted: a table of the outbox is locked by process $pid" : "$_|unserved|0|$unserved" } qw(jobs log));
	is(status('publication, state, pending, last_error'), "$expected\nzebra|unserved|2|$unserved", "$table is locked: the status is shown, and who locks it");
	my ($keys, $warnings) = paused_keys();
	is($keys, 'app.log|1', "$table is locked: paused keys are shown");
	like($warnings, qr/could not read the paused keys of outbox \Q$outbox\E\n.*locked by process $pid/, "$table is locked: and who locks it") if $outbox;
	# The table of parked events is looked at only if something is past the retention.
	is(problems(), problems_with("the outbox cannot be read: a table of the outbox is locked by process $pid"), "$table is locked: the retention of the others is shown")
	  if $table =~ /^held\.log(_g0)?$/;
	$session->query_safe('ROLLBACK');
	$session->quit;
}

# [what, statement, undo, publication, reason, statement for the paused keys as well]
foreach my $case (
	[   'a policy', 'CREATE POLICY p ON held.log USING (held.sleep(seq)); ALTER TABLE held.log ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY',
		'ALTER TABLE held.log DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', 'log', 'row security is forced on held.log' ],
	[   'an index', 'CREATE INDEX late ON held.log_g0 (seq) WHERE held.sleep(1)', 'DROP INDEX held.late', 'log', 'held.log uses function held.sleep(anyelement)' ],
	[   'a constraint of a partition', 'ALTER TABLE held.log_g0 ADD CONSTRAINT late CHECK (held.sleep(1))', 'ALTER TABLE held.log_g0 DROP CONSTRAINT late',
		'log', 'held.log uses function held.sleep(anyelement)' ],
	[   'an index of parked events', 'CREATE INDEX late ON held.log_parked (seq) WHERE held.sleep(1)', 'DROP INDEX held.late', 'log',
		'held.log_parked uses function held.sleep(anyelement)', 'held.log' ],
	[   'statistics', 'CREATE STATISTICS held.late ON (held.sleep(1)), seq FROM held.jobs', 'DROP STATISTICS held.late', 'jobs',
		'held.jobs uses function held.sleep(anyelement)', 'held.jobs' ],
	[   'a cast', q{CREATE TYPE held.kind AS ENUM ('a'); CREATE FUNCTION held.text(held.kind) RETURNS text LANGUAGE sql AS $$ SELECT held.sleep(1)::text $$;
		CREATE CAST (held.kind AS text) WITH FUNCTION held.text(held.kind); ALTER TABLE held.jobs ADD COLUMN extra held.kind DEFAULT 'a'},
		'ALTER TABLE held.jobs DROP COLUMN extra', 'jobs', 'held.jobs uses function held.text(held.kind)', 'held.jobs' ],
	[   'a cast of what a domain is made of', q{CREATE TYPE held.pair AS (a text); CREATE FUNCTION held.text(held.pair) RETURNS text LANGUAGE sql AS $$ SELECT held.sleep(1)::text $$;
		CREATE CAST (held.pair AS text) WITH FUNCTION held.text(held.pair); CREATE DOMAIN held.outer AS held.pair; CREATE DOMAIN held.outermost AS held.outer;
		DROP INDEX held.jobs_key; ALTER TABLE held.jobs ALTER aggregate_type TYPE held.outermost USING ROW(aggregate_type); SELECT postbox.alter_publication('jobs', aggregate_types => '{order}');
		INSERT INTO held.jobs (id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at)
			VALUES (gen_random_uuid(), ROW('order'), '1', 'order.created', 1, 'v1', '{}', '{}', now())},
		'TRUNCATE held.jobs; ALTER TABLE held.jobs ALTER aggregate_type TYPE text USING NULL; ALTER TABLE held.jobs ALTER aggregate_type SET NOT NULL', 'jobs', 'held.jobs uses function held.text(held.pair)', 'held.jobs' ],
	[   'an inherited foreign table', q{RESET ROLE; CREATE FOREIGN DATA WRAPPER files; CREATE SERVER files FOREIGN DATA WRAPPER files; GRANT USAGE ON FOREIGN SERVER files TO owner; SET ROLE owner;
		CREATE FOREIGN TABLE held.files () INHERITS (held.jobs) SERVER files},
		'DROP FOREIGN TABLE held.files', 'jobs', 'held.files is not a table', 'held.jobs' ])
{
	my ($what, $statement, $undo, $publication, $reason, $outbox) = @$case;
	$node->safe_psql('postgres', "SET ROLE owner; $statement");
	$node->safe_psql('postgres', 'INSERT INTO held.armed DEFAULT VALUES');
	my $expected = join("\n", map { $_ eq $publication ? "$_|unserved||$unserved; the backlog is not counted: $reason" : "$_|unserved|0|$unserved" } qw(jobs log));
	is(status('publication, state, pending, last_error'), "$expected\nzebra|unserved|2|$unserved", "$what: the status is shown, and what is the matter");
	my ($keys, $warnings) = paused_keys();
	is($keys, 'app.log|1', "$what: paused keys are shown");
	like($warnings, qr/could not read the paused keys of outbox \Q$outbox\E\n.*\Q$reason\E/, "$what: and what is the matter") if $outbox;
	my $shown = $publication eq 'log' ? "the retention is not checked: $reason" : '';
	is(problems(), problems_with($shown), "$what: the retention of the others is shown");
	$node->safe_psql('postgres', 'TRUNCATE held.armed');
	$node->safe_psql('postgres', "SET ROLE owner; $undo");
}
is(problems(), problems_with(''), 'nothing is the matter with the retention at the end');
is(status('publication, state, pending, last_error'), "jobs|unserved|0|$unserved\nlog|unserved|0|$unserved\nzebra|unserved|2|$unserved", 'all is counted at the end');

$node->stop;
done_testing();
