# Random calls of every function of Postbox with random arguments, as an ordinary owner, as a member of postbox_operator, as a
# role with no rights and as a superuser: each call succeeds or raises an error. None ends a process, and none is an internal
# error.
#
# A round is made of its seed alone. POSTBOX_FUZZ_SEED is the seed of the first round, POSTBOX_FUZZ_RUNS the number of rounds,
# POSTBOX_FUZZ_SECONDS how long there are more rounds.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $first = $ENV{POSTBOX_FUZZ_SEED} // 1;
my $runs = $ENV{POSTBOX_FUZZ_RUNS} // 15;
my $end = time + ($ENV{POSTBOX_FUZZ_SECONDS} // 0);
my $calls = 60;    # of a round

my $node = new_node('main', settings => { 'postbox.publishers' => 0, 'max_prepared_transactions' => 2, 'log_error_verbosity' => 'verbose' });
$node->start;
$node->safe_psql('postgres', world());

# Relations of every kind, those of Postbox too, and OIDs of nothing.
my @relations = ('NULL', '0', '1', '4294967295', map { "'$_'::regclass" } qw(fuzz.log fuzz.tab fuzz.inbox fuzz.adopted fuzz.log_parked
	fuzz.log_version fuzz.log_g0 fuzz.inbox_tombstone fuzz.target fuzz.plain fuzz.seen fuzz.counted fuzz.plain_pkey fuzz.rows fuzz.renamed fuzz.wide
	fuzz.altered_inbox other.log pg_class pg_toast.pg_toast_1255 postbox.outbox postbox.lane postbox.dead_letter postbox.publication_status
	postbox.event information_schema.tables));
my @names = ('NULL', "''", "'log'", "'tab'", "'feed'", "'renamed'", "'nobody'", "'fuzz.made'", "'fuzz.log'", "'other.made'", "'made'", q{'"'}, q{'a.b.c.d'},
	"'pg_catalog.made'", "'pg_temp.made'", "'postbox.made'", "repeat('x', 100)", q{'fuzz."x' || chr(10) || 'y"'}, "'fuzz.' || repeat('x', 63)");
my @texts = (@names, "'order'", "'order.created'", "'k1'", "'shop.order.events'", "'projects/p/topics/shop.order.events'", "'key'", "'none'", "'park_key'",
	"'park_event'", "'reject'", "'nack'", "'dead_letter_topic'", "'table'", "'id'", "'version'", "'payload'", "'22012'", "'{}'", "'[1'", q{'{"total": 1}'},
	"repeat('long', 100000)", "chr(233) || chr(128512)", "chr(1)", "'%s%n%1\$s'", "'550e8400-e29b-41d4-a716-446655440000'");
my %values = (
	'regclass' => \@relations,
	'text' => \@texts,
	'name' => [ 'NULL', "''", "'version'", "'id'", "'ctid'", "'nothing'", "repeat('x', 70)::name" ],
	'integer' => [ 'NULL', 0, 1, 2, 3, 5, 100, -1, 2147483647, '(-2147483648)' ],
	'bigint' => [ 'NULL', 0, 1, 2, 3, 7, -1, '9223372036854775807', '(-9223372036854775808)' ],
	'boolean' => [ 'NULL', 'true', 'false' ],
	'uuid' => [ 'NULL', "'00000000-0000-0000-0000-000000000000'", "'ffffffff-ffff-7fff-ffff-ffffffffffff'", 'gen_random_uuid()',
		"'550e8400-e29b-41d4-a716-446655440000'", "'ffffffff-ffff-7fff-bfff-ffffffffffff'" ],
	'interval' => [ 'NULL', "'0'", "'1 s'", "'1 us'", "'-1 day'", "'7 days'", "'178000000 years'", "'-178000000 years'", "'1 month -30 days'",
		"make_interval(days => 2147483647)" ],
	'timestamp with time zone' => [ 'NULL', 'now()', "'infinity'", "'-infinity'", "'4713-01-01 BC'", "'294276-12-31'", "'0001-01-01'" ],
	'bytea' => [ 'NULL', "''", "'{}'", q{'\x00ff'}, "convert_to(repeat('[', 20000), 'UTF8')", q('{"id": "7", "total": 1}'), "decode(repeat('ff', 100000), 'hex')" ],
	'jsonb' => [ "NULL", "'null'", "'{}'", "'[]'", "'7'", q('"x"'), q('{"a": null}'), q('{"a": "b"}'), q('{"a": {"b": [1]}}'), q('{"version": "seq"}'),
		q('{"id": "other", "aggregate_id": "k"}'), q('{"total": "$version"}'), q('{"total": {"path": ["a"]}}'), "jsonb_build_object(repeat('k', 300), 'v')",
		"(SELECT jsonb_object_agg('k' || n, 'v') FROM generate_series(1, 200) n)", "repeat('[', 5000) || repeat(']', 5000)" ],
	'json' => [ 'NULL', "'null'", "'{}'", "'[1, 2]'", q('{"a":1,  "a":"\\u0000"}'), q('{"outbox": 1}'), q('{"payload": {}, "payload": []}'),
		q('{"aggregate_type": "order", "aggregate_id": "k1", "event_type": "order.created", "payload": {"total": 1}}'),
		q('{"aggregate_type": "order", "aggregate_id": 7, "event_type": "order.created", "payload": "\\ud800", "version": 3, "attributes": {"n": 1}}'),
		q('{"event_id": 1}'), "(repeat('[', 5000) || repeat(']', 5000))" ],
	'postbox.outcome' => [ 'NULL', map { "'$_'::postbox.outcome" } qw(applied stale ignored rejected) ],
	'postbox.problem' => [ 'NULL', 'ROW(NULL, NULL, NULL, NULL, NULL)', q{ROW('unlogged', 'error', 'fuzz.log', 'detail', NULL)}, q{ROW('', '', '', '', '; ')} ],
	'oid' => [ 'NULL', '0', '1', '1259', '4294967295', "'fuzz.log'::regclass::oid", "'fuzz.inbox'::regclass::oid", "'fuzz.log_version'::regclass::oid" ],
	'pg_snapshot' => [ 'NULL', "'3:3:'", "'1:9:3'", 'pg_current_snapshot()', "'3:9223372036854775807:'" ],
	'numeric' => [ 'NULL', '0', '1', '-1', "'NaN'", '18446744073709551615', '1e1000', '0.5' ],
	'xid8' => [ 'NULL', "'0'", "'3'", "'18446744073709551615'", 'pg_current_xact_id()' ],
	'regrole' => [ 'NULL', '0', '1', '10', "'pg_monitor'", "'postbox_operator'" ],
	'regprocedure' => [ 'NULL', '0', '1', "'fuzz.handle(postbox.event)'", "'fuzz.fails(postbox.event)'", "'pg_catalog.now()'", "'postbox.wake_publishers()'",
		"'postbox.inbox_apply_batch(regclass, postbox.event[])'" ],
	'postbox.lane_progress' => [ 'NULL', '(SELECT l FROM postbox.lane_progress l LIMIT 1)', "ROW('log', 0, 7, 1, 5, '1:9:3', '9', '{3,NULL}', '{NULL}')",
		"ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)", "ROW('log', -1, NULL, 9, 1, '1:1:', '0', '{{1,2},{3,4}}', '{1:1:,5:9:6}')" ],
	'postbox.publication' => [ 'NULL', '(SELECT p FROM postbox.publication p LIMIT 1)', 'jsonb_populate_record(NULL::postbox.publication, \'{"name": "log", "lanes": -1}\')' ],
	'postbox.outbox' => [ 'NULL', "(SELECT o FROM postbox.outbox o WHERE kind = 'log' LIMIT 1)", "(SELECT o FROM postbox.outbox o WHERE adopted LIMIT 1)",
		q{ROW(0, 'log', 0, 0, NULL, NULL, '[]', NULL, NULL, NULL)}, q{ROW(1259, 'table', 1259, NULL, '1 s', true, '{"id": "oid", "seq": null}', NULL, '1 s', 9223372036854775807)},
		'ROW(NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL)' ]);

$values{$_} = \@texts for 'character varying', 'postbox.event_type';

sub any { return $_[ int rand @_ ] }

# A type for an argument: of "any" a random one.
sub type_of { return $_[0] eq '"any"' ? any(sort keys %values) : $_[0] }

sub array_of
{
	my ($type) = @_;
	my $kind = rand;
	return "NULL::${type}[]" if $kind < 0.1;
	return "'{}'::${type}[]" if $kind < 0.2;
	return "ARRAY[ARRAY[" . value_of($type) . "::$type],ARRAY[" . value_of($type) . "::$type]]" if $kind < 0.25;
	return "array_fill(" . value_of($type) . "::$type, ARRAY[" . any(1, 5, 3000) . '], ARRAY[' . any(1, -3, 0) . '])' if $kind < 0.4;
	return 'ARRAY[' . join(',', map { value_of($type) . "::$type" } 1 .. 1 + int rand 5) . "]::${type}[]";
}

sub value_of
{
	my ($type) = @_;
	return array_of($1) if $type =~ /^(.*)\[\]$/;
	if ($type eq 'postbox.event')
	{
		return 'NULL' if rand() < 0.1;
		return 'ROW(' . join(',', map { rand() < 0.15 ? 'NULL' : value_of($_) } 'text', 'text', 'text', 'text', 'bigint', 'bytea', 'jsonb', 'timestamp with time zone')
		  . ')' if rand() < 0.5;
		return "ROW('e' || " . any(1 .. 9) . ", " . any("'order.created'", "'order.deleted'", "'order.handled'", "'order.fails'", "'other'") . ", 'order', "
		  . any("'k1'", "'k2'", 'NULL') . ', ' . any(1 .. 5, 'NULL') . ', ' . any(q('{"total": 1}'), q('{"total": "x"}'), "'{}'", "'['", 'NULL') . q{, '{}', now())};
	}
	die "no values of type $type" unless $values{$type};
	return any(@{ $values{$type} });
}

# What can be called: everything in the schema but triggers. Each is called as often as any other.
my @functions = map { [ split /\|/, $_, 2 ] } split /\n/, $node->safe_psql(
	'postgres', q{SELECT proname, (SELECT coalesce(string_agg(format_type(t, NULL), ';' ORDER BY n), '') FROM unnest(proargtypes) WITH ORDINALITY AS a(t, n))
	FROM pg_proc WHERE pronamespace = 'postbox'::regnamespace AND prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype) ORDER BY 1, 2});
cmp_ok(scalar @functions, '>', 50, 'functions are found');

sub call
{
	my ($name, $types) = @{ any(@functions) };
	my @arguments = map { value_of($_) . "::$_" } map { type_of($_) } split /;/, $types;
	# Nothing is waited for, and partitions are made for a few spans only.
	$arguments[1] = any(-1, 0, 3) . '::integer' if $name =~ /_partitions$/ && $arguments[1] =~ /2147483647/;
	$arguments[3] = any('NULL::interval', "'0'::interval", "'-1 s'::interval", "'10 ms'::interval") if $name eq 'wait_for_version';
	my $call = "postbox.$name(" . join(', ', @arguments) . ')';
	return any("SELECT $call", "SELECT $call", "SELECT * FROM $call");
}

sub statement
{
	my $kind = rand;
	return call() if $kind < 0.93;
	return any(
		'SELECT * FROM postbox.publication_status', 'SELECT * FROM postbox.paused_keys', 'SELECT * FROM postbox.workers', 'SELECT * FROM postbox.dead_letter',
		"SET postbox.default_outbox = 'fuzz.tab'", 'RESET postbox.default_outbox',
		'DISCARD ALL', 'SET LOCAL search_path = fuzz, pg_temp',
		"SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter",
		q{SELECT postbox.inbox_apply('fuzz.inbox', d.event) FROM (SELECT ROW(event_id, event_type, aggregate_type, aggregate_id, version, payload, attributes, occurred_at)::postbox.event FROM postbox.dead_letter) AS d(event)});
}

# Each round ends with a rollback or a commit; within, what fails is rolled back alone.
sub round_of
{
	my ($seed) = @_;
	srand($seed);
	my $role = any('fuzz_owner', 'fuzz_owner', 'fuzz_operator', 'fuzz_nobody', 'NONE');
	my $script = "SET SESSION AUTHORIZATION DEFAULT; SET ROLE $role; BEGIN;\n";
	for (1 .. $calls)
	{
		$script .= statement() . ";\n";
		$script .= any('COMMIT', 'ROLLBACK') . "; SET ROLE $role; BEGIN;\n" if rand() < 0.1;
	}
	return $script . any('COMMIT', 'ROLLBACK', 'ROLLBACK') . ";\n";
}

my $start = log_position($node);
my ($done, $alive) = (0, 1);
while ($alive && ($done < $runs || time < $end))
{
	my $seed = $first + $done++;
	my (undef, undef, $error) = $node->psql('postgres', "\\set ON_ERROR_ROLLBACK on\nSET statement_timeout = '20s';\n" . round_of($seed), on_error_stop => 0);
	my @wrong = grep { /server closed the connection|connection to server was lost|internal error in postbox|statement timeout/ } split /\n/, $error;
	$alive = !@wrong || fail("seed $seed: $wrong[0]");
}
my $log = log_since($node, $start);
unlike($log, qr/PANIC|terminated by signal|server process.*exited with exit code/, "no process ended in $done rounds from seed $first");
my @internal = grep { /(?:ERROR|FATAL|WARNING): +XX/ } split /\n/, $log;
is(join("\n", @internal), '', 'no error is an internal one');
my %outcomes;
$outcomes{$1}++ while $log =~ /ERROR: +(\w{5}):/g;
cmp_ok(scalar keys %outcomes, '>=', 12, 'calls fail for many reasons: ' . join(' ', map { "$_:$outcomes{$_}" } sort keys %outcomes));
# What was called in vain has left the world as it was made.
is($node->safe_psql('postgres', q{SELECT count(*) > 0 FROM postbox.outbox}), 't', 'the extension is there');

sub world
{
	return q{
	CREATE EXTENSION postbox;
	CREATE ROLE fuzz_owner;
	CREATE ROLE fuzz_nobody;
	CREATE ROLE fuzz_operator IN ROLE postbox_operator;
	CREATE SCHEMA fuzz AUTHORIZATION fuzz_owner;
	GRANT USAGE ON SCHEMA fuzz TO PUBLIC;
	CREATE SCHEMA other;
	SELECT postbox.create_outbox('other.log');
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA postbox TO fuzz_owner;
	REVOKE EXECUTE ON FUNCTION postbox.settle_foreign_events FROM fuzz_owner;
	SET postbox.project_id = 'shop-1';
	SET ROLE fuzz_owner;
	SELECT postbox.create_outbox('fuzz.log'), postbox.create_outbox('fuzz.tab', 'table'), postbox.create_outbox('fuzz.renamed'),
		postbox.create_inbox('fuzz.inbox'), postbox.create_inbox('fuzz.altered_inbox');
	SELECT postbox.create_publication('log', 'fuzz.log', 'shop.order.events', lanes => 3), postbox.create_publication('tab', 'fuzz.tab', 'shop.order.events'),
		postbox.create_publication('renamed', 'fuzz.renamed', 'shop.order.events');
	CREATE TABLE fuzz.adopted (id uuid PRIMARY KEY, aggregatetype varchar(255) NOT NULL, aggregateid varchar(255) NOT NULL, type varchar(255) NOT NULL, payload jsonb);
	SELECT postbox.adopt_outbox('fuzz.adopted');
	CREATE TABLE fuzz.target (id text PRIMARY KEY, total int, version bigint);
	CREATE TABLE fuzz.plain (id int PRIMARY KEY);
	CREATE TABLE fuzz.wide (other uuid PRIMARY KEY, k text, aggregate_type text NOT NULL, event_type text, payload bytea, version smallint);
	CREATE VIEW fuzz.seen AS SELECT 1 AS id;
	CREATE MATERIALIZED VIEW fuzz.rows AS SELECT 1 AS id;
	CREATE SEQUENCE fuzz.counted;
	CREATE FUNCTION fuzz.handle(e postbox.event) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM (e).event_id; END';
	CREATE FUNCTION fuzz.fails(e postbox.event) RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM 1 / 0; END';
	SELECT postbox.create_projection('fuzz.inbox', '{order.created}', 'fuzz.target', delete_types => '{order.deleted}');
	SELECT postbox.create_handler('fuzz.inbox', '{order.handled}', 'fuzz.handle'::regproc), postbox.create_handler('fuzz.inbox', '{order.fails}', 'fuzz.fails'::regproc);
	SELECT postbox.create_subscription('feed', 'fuzz.inbox', 'shop.order.events.fuzz');
	ALTER TABLE fuzz.renamed RENAME seq TO place;
	ALTER TABLE fuzz.altered_inbox ALTER event_id TYPE text, DROP COLUMN version;
	GRANT INSERT ON fuzz.log, fuzz.tab, fuzz.inbox TO fuzz_operator;
	RESET ROLE;
	};
}

$node->stop;
done_testing();
