# Outboxes and inboxes leave and come back: DROP EXTENSION CASCADE and CREATE EXTENSION, dumps without the registration. Their tables are
# registered again, and what was pending is published.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

use constant TOPIC => 'catalog.video.events';

my $emulator = start_emulator('--subscription', "@{[TOPIC]}.follower=@{[TOPIC]},ordered");
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms' });
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE owner; CREATE ROLE writer; CREATE DATABASE source');

# No publication: nothing of it leaves before it is said where to.
sub fill
{
	my ($database) = @_;
	$node->safe_psql($database, q{
		CREATE EXTENSION postbox;
		CREATE SCHEMA app AUTHORIZATION owner;
		GRANT USAGE ON SCHEMA app TO writer;
		SET ROLE owner;
		SELECT postbox.create_outbox('app."Odd ''name"'), postbox.create_outbox('app.jobs', 'table', '3 days'), postbox.create_inbox('app.seen_events');
		CREATE TABLE app.old (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb NOT NULL);
		SELECT postbox.adopt_outbox('app.old');
		GRANT INSERT ON app."Odd 'name", app.jobs, app.old TO writer;
		CREATE TABLE app.video (id text PRIMARY KEY, title text, version bigint);
		SELECT postbox.inbox_apply('app.seen_events', 'e1', 'video.created', 'video', 'v1', 1, '{"title": "x"}');
		SELECT count(postbox.outbox_emit('video', replace(o::text, '"', '') || n % 3, 'video.changed', '{}'::jsonb, outbox => o))
			FROM unnest(ARRAY['app."Odd ''name"', 'app.jobs', 'app.old']::regclass[]) o, generate_series(1, 9) n});
	return;
}

my $register = q{SET ROLE owner; SELECT postbox.register_outbox('app."Odd ''name"'), postbox.register_outbox('app.jobs', '3 days'), postbox.adopt_outbox('app.old'), postbox.register_inbox('app.seen_events')};
sub check
{
	my ($database, $events) = @_;
	$node->safe_psql($database, $register);
	is($node->safe_psql($database, q{SELECT relation, kind, counter, adopted FROM postbox.outbox ORDER BY relation::text COLLATE "C"}),
		qq{app."Odd 'name"|log|app."Odd 'name_version"|f\napp.jobs|table|app.jobs_version|f\napp.old|table|app.old_version|t}, 'the outboxes are registered, each with its parts');
	is($node->safe_psql($database, q{SELECT count(*) FROM postbox.outbox_status WHERE problem IS NOT NULL}), '0', 'they have no problem');
	is($node->safe_psql($database, q{SELECT count(*) FROM postbox.outbox o, postbox.repair_outbox(o.relation)}), '0', 'and nothing is left to be repaired');
	is($node->safe_psql($database, q{SET ROLE writer; SELECT version FROM postbox.outbox_emit('video', 'app.jobs1', 'video.changed', '{}'::jsonb, outbox => 'app.jobs')}), $events + 1, 'versions count on for a role with INSERT');
	is($node->safe_psql($database, q{SET ROLE owner; SELECT postbox.inbox_apply('app.seen_events', 'e1', 'video.created', 'video', 'v1', 1, '{"title": "x"}')}), $events ? 'duplicate' : 'ignored', 'what the inbox has seen is seen');
	return;
}

sub delivers
{
	my ($database, $count) = @_;
	my $before = messages_published($emulator);
	$node->safe_psql($database, qq{SELECT postbox.create_publication(format('%s_%s', current_database(), oid), oid::regclass, '@{[TOPIC]}') FROM (SELECT relation::oid AS oid FROM postbox.outbox) o});
	wait_until($node, $database, q{SELECT count(*) = 3 AND bool_and(pending = 0 AND state = 'active') FROM postbox.publication_status}, 'all is published')
	  or diag($node->safe_psql($database, 'SELECT * FROM postbox.publication_status'));
	is(messages_published($emulator) - $before, $count, 'once');
	return;
}

subtest 'DROP EXTENSION CASCADE, and back' => sub {
	fill('source');
	my ($status, undef, $error) = $node->psql('source', 'DROP EXTENSION postbox');
	isnt($status, 0, 'it asks for CASCADE');
	like($error, qr/DETAIL:  3 outboxes \(app\."Odd 'name", app\.jobs, app\.old\) .*1 inbox/, 'and names what would be lost');
	$node->safe_psql('source', 'DROP EXTENSION postbox CASCADE');
	wait_workers($node, 'source', 0);
	$node->safe_psql('source', 'CREATE EXTENSION postbox');
	check('source', 3);
};

my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';
sub restore
{
	my ($database, @options) = @_;
	$node->command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-f', "$dump.sql", @options ], "pg_dump @options");
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql($database, 'CREATE EXTENSION postbox') unless grep { $_ eq '--schema-only' } @options;
	$node->safe_psql($database, 'CREATE SCHEMA app AUTHORIZATION owner; GRANT USAGE ON SCHEMA app TO writer') if grep { /^--table/ } @options;
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', "$dump.sql" ], 'it is restored without an error');
	is($node->safe_psql($database, 'SELECT count(*) FROM postbox.outbox'), '0', 'without registrations');
	return;
}

subtest 'from pg_dump --schema-only' => sub {
	restore('schema_only', '--schema-only');
	check('schema_only', 0);
	delivers('schema_only', 1);
};

subtest 'from pg_dump --schema=app, with the events' => sub {
	restore('events', '--schema=app');
	check('events', 4);
	delivers('events', 9 + 10 + 9 + 1);
};

subtest 'from pg_dump --table' => sub {
	restore('of_tables', map { "--table=app.$_" } q{"Odd 'name"*}, 'jobs*', 'old*', 'seen_events*');
	check('of_tables', 4);
	delivers('of_tables', 9 + 10 + 9 + 1);
};

subtest 'what was pending when the extension was dropped is published' => sub {
	delivers('source', 9 + 10 + 9);
};

subtest 'an extension without outboxes is dropped as ever, in a transaction with other extensions' => sub {
	$node->safe_psql('source', q{SELECT postbox.drop_outbox(relation) FROM postbox.outbox; SELECT postbox.drop_inbox('app.seen_events'); CREATE EXTENSION pg_stat_statements; DROP EXTENSION pg_stat_statements, postbox});
	is($node->safe_psql('source', 'SELECT count(*) FROM app.old'), '9', 'the adopted table is there');
};

$node->stop;
done_testing();
