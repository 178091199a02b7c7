# A database with outboxes is dumped and restored like any other: configuration, events, versions and the
# order go with it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('main', settings => { 'postbox.publishers' => 0 });
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE source');
$node->safe_psql('postgres', 'CREATE ROLE owner');
$node->safe_psql(
	'source', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app AUTHORIZATION owner;
	SET ROLE owner;
	SELECT postbox.create_outbox('app.outbox', 'table', '3 days');
	SELECT postbox.create_outbox('app."Odd name"', 'log');
	CREATE TABLE app.adopted (id uuid PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload jsonb);
	SELECT postbox.adopt_outbox('app.adopted');
	RESET ROLE;
	SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events', aggregate_types => '{video}', max_attempts => 7);
	SELECT postbox.create_publication('odd', 'app."Odd name"', 'projects/other/topics/catalog.odd.events');
	SELECT postbox.outbox_emit('video', 'v' || n % 3, 'video.changed', '{}'::jsonb, outbox => 'app.outbox') FROM generate_series(1, 9) n;
	SELECT postbox.outbox_emit('video', 'v1', 'video.changed', '{}'::jsonb, version => 6, outbox => 'app."Odd name"');
	UPDATE app.outbox SET published_at = now() WHERE seq <= 3;
	INSERT INTO postbox.expired_event SELECT 'videos', 'app.outbox', 'one', 'video', 'v1', 'video.changed', 1, now(), now(), true;
	INSERT INTO app.adopted VALUES ('00000000-0000-4000-8000-000000000001', 'video', 'v1', 'video.changed', '{}');
});

# What must be the same afterwards.
my $configuration = q{
	SELECT relation, kind, counter, retention, adopted, columns FROM postbox.outbox ORDER BY relation::text;
	SELECT * FROM postbox.publication ORDER BY name;
	SELECT * FROM postbox.publication_state ORDER BY publication;
	SELECT * FROM postbox.lane ORDER BY publication;
	SELECT * FROM postbox.expired_event;
	SELECT c.relname, c.relowner::regrole FROM pg_class c WHERE c.relnamespace = 'app'::regnamespace ORDER BY 1;
	SELECT * FROM app.outbox ORDER BY seq;
	SELECT * FROM app.adopted ORDER BY seq;
	SELECT tgname, tgenabled FROM pg_trigger WHERE tgrelid = 'app.adopted'::regclass ORDER BY 1;
	SELECT * FROM app.outbox_version ORDER BY aggregate_id};
my $before = $node->safe_psql('source', $configuration);

sub check
{
	my ($database) = @_;
	is($node->safe_psql($database, $configuration), $before, 'everything is there');
	is( $node->safe_psql($database, q{SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.changed', '{}', outbox => 'app.outbox')}),
		'4', 'versions go on counting');
	is($node->safe_psql($database, q{SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.changed', '{}', outbox => 'app."Odd name"')}),
		'7', 'also above those that were given');
	is($node->safe_psql($database, q{SELECT max(seq) FROM app.outbox}), '10', 'so does the order');
	is($node->safe_psql($database, q{SELECT version FROM postbox.outbox_emit('video', 'v1', 'video.changed', '{}', outbox => 'app.adopted')}),
		'2', 'an adopted table is still one');
	$node->safe_psql($database, 'DROP TABLE app.outbox, app.adopted');
	is( $node->safe_psql($database, q{SELECT relation FROM postbox.outbox; SELECT name FROM postbox.publication; SELECT to_regclass('app.outbox_version')}),
		qq{app."Odd name"\nodd\n}, 'a dropped outbox is forgotten');
	return;
}

my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump';

subtest 'as SQL' => sub {
	$node->command_ok([ 'pg_dump', '-d', $node->connstr('source'), '-f', "$dump.sql" ], 'dump');
	$node->safe_psql('postgres', 'CREATE DATABASE sql');
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('sql'), '-f', "$dump.sql" ], 'restore');
	check('sql');
};

subtest 'as an archive, restored by several processes' => sub {
	$node->command_ok([ 'pg_dump', '-Fc', '-d', $node->connstr('source'), '-f', "$dump.archive" ], 'dump');
	$node->safe_psql('postgres', 'CREATE DATABASE archive');
	$node->command_ok([ 'pg_restore', '-j', '2', '-e', '-d', $node->connstr('archive'), "$dump.archive" ], 'restore');
	check('archive');
};

subtest 'as SQL that drops first what is there' => sub {
	$node->command_ok([ 'pg_dump', '--clean', '-d', $node->connstr('source'), '-f', "$dump.clean.sql" ], 'dump');
	# Older minor versions (16.2) also drop each index of a partition, which the server refuses: it goes with
	# that of the whole table.
	my $script = slurp_file("$dump.clean.sql");
	$script =~ s/^DROP INDEX app\."Odd name_g\d+_\w+";\n//mg;
	append_to_file("$dump.again.sql", $script);
	$node->safe_psql('postgres', 'CREATE DATABASE again');
	$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('again'), '-f', $_ ], 'restore') for "$dump.sql", "$dump.again.sql";
	check('again');
};

subtest 'of the extension without the outboxes: their publications can be made again' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE part');
	my $errors;
	IPC::Run::run([ 'pg_restore', '-N', 'app', '-d', $node->connstr('part'), "$dump.archive" ], '2>', \$errors);
	is($node->safe_psql('part', 'SELECT count(*) > 0 FROM postbox.publication_state WHERE publication NOT IN (SELECT name FROM postbox.publication)'), 't', 'rows are left over');
	$node->safe_psql('part', q{
		CREATE SCHEMA IF NOT EXISTS app;
		SELECT postbox.create_outbox('app.outbox', 'table'), postbox.create_outbox('app.log');
		SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events'), postbox.create_publication('odd', 'app.log', 'catalog.odd.events', lanes => 2)});
	is($node->safe_psql('part', 'SELECT (SELECT count(*) FROM postbox.publication_state), (SELECT count(*) FROM postbox.lane)'), '2|2', 'and these have theirs');
};

$node->stop;
done_testing();
