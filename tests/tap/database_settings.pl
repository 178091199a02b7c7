# Settings that somebody has made the defaults of a database: events are emitted, published, parked and applied as before,
# with the payload that was given, and what is dropped leaves nothing behind.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my @tables = qw(outbox publication lane inbox projection handler subscription subscription_status);
# The session of an administrator, who does what the defaults would not let him.
my $own = '-c statement_timeout=0 -c lock_timeout=0 -c idle_in_transaction_session_timeout=0 -c default_transaction_read_only=off -c default_transaction_isolation=read\\ committed';
my %settings = (
	transactions => [ "default_transaction_isolation = 'serializable'", 'default_transaction_read_only = on', 'default_transaction_deferrable = on', q{statement_timeout = '1ms'},
		q{lock_timeout = '1ms'}, q{idle_in_transaction_session_timeout = '1ms'}, 'synchronous_commit = off' ],
	replica => [ 'session_replication_role = replica', q{search_path = ''}, 'row_security = off' ],
	quotes => [ 'standard_conforming_strings = off', 'escape_string_warning = on', 'quote_all_identifiers = on', 'backslash_quote = off' ],
	formats => [ q{DateStyle = 'German, DMY'}, 'IntervalStyle = iso_8601', q{TimeZone = 'Pacific/Kiritimati'}, 'bytea_output = escape', 'extra_float_digits = -15', 'xmlbinary = hex',
		'xmloption = document', 'array_nulls = off', 'transform_null_equals = on', q{client_encoding = 'LATIN1'} ]);
my @databases = sort keys %settings;

my $emulator = start_emulator(map { ('--subscription', "catalog.$_.events.test-follower=catalog.$_.events,ordered") } @databases);
emulator_fault($emulator, 'rpc=Publish,ordering-key=poison,code=INVALID_ARGUMENT');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'max_prepared_transactions' => 5 });
$node->start;

my $session;
sub by_owner { my ($sql) = @_; return $session->query($sql); }
sub wait_own { my ($database, $condition, $what) = @_; local $ENV{PGOPTIONS} = $own; return wait_until($node, $database, "SELECT $condition", $what); }

for my $database (@databases)
{
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	$node->safe_psql('postgres', join('; ', map { "ALTER DATABASE $database SET $_" } @{ $settings{$database} }));
	{
		local $ENV{PGOPTIONS} = $own;
		$session = $node->background_psql($database);
	}
	by_owner(qq{
		CREATE EXTENSION postbox;
		CREATE SCHEMA app;
		SELECT postbox.create_outbox('app.log');
		SELECT postbox.create_outbox('app.tab', 'table');
		CREATE TABLE app.adopted (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, aggregatetype text NOT NULL, aggregateid text NOT NULL, type text NOT NULL, payload bytea NOT NULL);
		SELECT postbox.adopt_outbox('app.adopted');
		SELECT postbox.create_publication(replace(o, 'app.', ''), o::regclass, 'catalog.$database.events') FROM unnest('{app.log,app.tab,app.adopted}'::text[]) o;
		SELECT postbox.create_inbox('app.inbox');
		SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.$database.events.test-follower', max_attempts => 1, min_backoff => '10ms', max_backoff => '20ms');
		CREATE TABLE app.seen (n bigserial PRIMARY KEY, aggregate_id text, version bigint, payload bytea);
		CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql AS 'INSERT INTO app.seen (aggregate_id, version, payload) VALUES (event.aggregate_id, event.version, event.payload)';
		SELECT postbox.create_handler('app.inbox', '{video.created,video.deleted}', 'app.note(postbox.event)');
		CREATE TABLE app.target (id text PRIMARY KEY, title text, tags text[], at timestamptz, day date, length interval, n float8, version bigint);
		SELECT postbox.create_projection('app.inbox', '{video.created}', 'app.target', delete_types => '{video.deleted}');
	});
	wait_workers($node, $database, 1);
	my $puller = start_puller($node, $database, $emulator);
	# Every way to emit. A payload with what quoting and formats could change.
	my $payload = '{"title": "a\\\\b \'c\' \"d\"", "tags": ["NULL", null, "a"], "at": "2024-02-03T10:00:00Z", "day": "2024-03-02", "length": "P1DT2H", "n": 0.1}';
	$payload =~ s/ \\"d\\"//;
	by_owner(qq{
		SELECT postbox.outbox_emit('video', key || n % 2, 'video.created', convert_to(\$p\$$payload\$p\$, 'UTF8'), outbox => o)
			FROM generate_series(1, 6) n, (VALUES ('log-', 'app.log'::regclass), ('tab-', 'app.tab'), ('adopted-', 'app.adopted')) AS o(key, o);
		INSERT INTO app.adopted (aggregatetype, aggregateid, type, payload) VALUES ('video', 'plain', 'video.created', convert_to(\$p\$$payload\$p\$, 'UTF8'));
		INSERT INTO app.log (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'video', 'log-plain', 'video.created', 1, convert_to(\$p\$$payload\$p\$, 'UTF8'));
		SELECT postbox.outbox_emit('video', 'gone', 'video.' || type, convert_to(\$p\$$payload\$p\$, 'UTF8'), outbox => 'app.log', source_event_id => 'source-' || type) FROM unnest('{created,deleted}'::text[]) type;
		BEGIN;
		SELECT postbox.outbox_emit('video', 'prepared', 'video.created', convert_to(\$p\$$payload\$p\$, 'UTF8'), outbox => 'app.log');
		PREPARE TRANSACTION 'prepared_$database';
		COMMIT PREPARED 'prepared_$database';
		SELECT postbox.outbox_emit('video', 'poison', 'video.created', '{}'::jsonb, outbox => o) FROM (VALUES ('app.log'::regclass), ('app.tab'), ('app.adopted')) AS o(o);
	});
	wait_own($database, 'count(*) = 23 FROM app.seen', "$database: all is published and applied") or diag($puller->{output}, by_owner('SELECT * FROM postbox.publication_status'));
	is(by_owner("SELECT count(*) FROM app.seen WHERE payload <> convert_to(\$p\$$payload\$p\$, 'UTF8')"), '0', "$database: with the payload as it was given")
	  or diag(by_owner(q{SELECT DISTINCT left(aggregate_id, 3), encode(payload, 'escape') FROM app.seen}));
	is(by_owner('SELECT count(*) FROM (SELECT version <= lag(version) OVER (PARTITION BY aggregate_id ORDER BY n) AS wrong FROM app.seen) s WHERE wrong'), '0', "$database: in order");
	is( by_owner(q{BEGIN; SET LOCAL TimeZone = 'UTC'; SET LOCAL DateStyle = 'ISO, MDY'; SET LOCAL IntervalStyle = 'postgres'; SET LOCAL extra_float_digits = 1; SELECT DISTINCT row(title, tags, at, day, length, n)::text FROM app.target; COMMIT}),
		q{("a\\\\b 'c'","{""NULL"",NULL,a}","2024-02-03 10:00:00+00",2024-03-02,"1 day 02:00:00",0.1)}, "$database: with the same effect");
	is(by_owner(q{SELECT count(*) FROM app.target WHERE id = 'gone'}), '0', "$database: a deleted row stays deleted");
	wait_own($database, 'count(*) = 3 FROM postbox.paused_keys', "$database: what is refused is parked");
	is(by_owner('SELECT postbox.discard(relation, first_event_id::uuid) FROM postbox.paused_keys'), "t\nt\nt", "$database: and discarded");
	wait_own($database, q{count(*) = 1 FROM postbox.subscription_status WHERE stream = 'connected' AND applied >= 23}, "$database: the puller shows itself");
	is(by_owner(q{SELECT postbox.wait_for_version('app.target', 'tab-1', 3, '1s')}), 't', "$database: a version can be waited for");
	is(by_owner(q{SELECT count(*) FROM postbox.outbox_status WHERE problem IS NOT NULL}), '0', "$database: no outbox has a problem");
	by_owner(q{SELECT postbox.purge_outbox('app.log'), postbox.purge_outbox('app.tab'), postbox.purge_inbox('app.inbox')});
	stop_puller($puller);

	# Without a function of Postbox, and with one.
	by_owner(q{DROP TABLE app.tab; SELECT postbox.drop_outbox('app.log'); SELECT postbox.drop_outbox('app.adopted'); SELECT postbox.drop_subscription('follower'); DROP TABLE app.inbox});
	is(by_owner(join(' UNION ALL ', map { "SELECT '$_' FROM postbox.$_" } @tables)), '', "$database: nothing is left of what was dropped");
	is(by_owner(q{SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = 'app'::regnamespace AND relkind IN ('r', 'p')}), 'adopted seen target', "$database: neither are its tables");
	by_owner('SET client_min_messages = warning; DROP EXTENSION postbox CASCADE');
	$session->quit;
	$node->safe_psql('postgres', "DROP DATABASE $database");
}
$node->stop;
done_testing();
