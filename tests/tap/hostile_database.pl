# The owner of a database may set any user's setting for all sessions in it, also for those of the workers. Events of the
# others in this database flow, whatever it is; nothing of the settings reaches the statements of the workers or of
# Postbox's functions.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms' });
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE mallory LOGIN CREATEDB; CREATE ROLE alice');
$node->safe_psql('postgres', 'CREATE DATABASE shop OWNER mallory');
$node->safe_psql(
	'shop', q{
	CREATE EXTENSION postbox;
	GRANT EXECUTE ON FUNCTION postbox.create_publication TO alice;
	CREATE SCHEMA app AUTHORIZATION alice;
	SET ROLE alice;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_outbox('app.outbox', 'table');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events');
	SELECT postbox.create_publication('table', 'app.outbox', 'catalog.video.events');
});
# The operators of a schema of the owner's, as a trap for whoever has it in the search_path.
$node->safe_psql(
	'shop', q{
	CREATE SCHEMA evil;
	CREATE FUNCTION evil.yes(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'evil operator as %', current_user; RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.yes);
	CREATE FUNCTION evil.lower(text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE LOG 'evil function as %', current_user; RETURN $1; END $$;
}, extra_params => [ '-U', 'mallory' ]);
# Sessions of a superuser, which what is set for later ones does not reach.
my ($session, $in_shop) = map { $node->background_psql($_) } 'postgres', 'shop';
$session->query_safe('SET client_min_messages = error');
my $position = log_position($node);
my $version = server_version($node);
my @time_limits = ('statement_timeout', 'lock_timeout', 'idle_in_transaction_session_timeout', 'idle_session_timeout', $version >= 17 ? 'transaction_timeout' : ());
my $parallel = $version >= 16 ? 'debug_parallel_query' : 'force_parallel_mode';

# Emitting is a session of alice's, who sets what she needs for herself.
sub emit_both
{
	my $no_limits = join(' ', map { "-c $_=0" } @time_limits);
	$node->safe_psql(
		'shop', q{
		SELECT count(postbox.outbox_emit('video', 'k' || n, 'video.created', '{}'::jsonb, outbox => o::regclass)) FROM generate_series(1, 5) n, unnest('{app.log,app.outbox}'::text[]) o
	}, connstr => $node->connstr('shop') . qq{ options='-c role=alice -c search_path=pg_catalog -c default_transaction_read_only=off $no_limits -c exit_on_error=off -c local_preload_libraries= -c client_encoding=UTF8 -c transform_null_equals=off'});
	return;
}

# Each row: what is set. All of it may be set by the owner of a database.
my @settings = (
	[ 'the search_path', "search_path = 'evil', 'pg_catalog'" ],
	[ 'another role', 'role = mallory' ],
	[ 'an end at every error', 'exit_on_error = on' ],
	[ 'read-only transactions', 'default_transaction_read_only = on', 'default_transaction_deferrable = on', "default_transaction_isolation = 'serializable'" ],
	[ 'limits of time', map { "$_ = '1ms'" } @time_limits ],
	[ 'no row security', 'row_security = off' ],
	[ 'forms of values', "DateStyle = 'German'", "IntervalStyle = 'sql_standard'", "TimeZone = 'Asia/Tokyo'", "bytea_output = 'escape'", 'extra_float_digits = -15', "xmloption = 'document'" ],
	[ 'how SQL is read', 'standard_conforming_strings = off', 'quote_all_identifiers = on', 'transform_null_equals = on', 'array_nulls = off', "backslash_quote = 'on'" ],
	[ 'how plans are made', 'enable_indexscan = off', 'enable_indexonlyscan = off', 'enable_partition_pruning = off', 'enable_nestloop = off', "$parallel = on", 'jit = on', 'jit_above_cost = 0', "plan_cache_mode = 'force_custom_plan'", 'from_collapse_limit = 1', 'geqo_threshold = 2' ],
	[ 'no memory', "work_mem = '64kB'", "temp_buffers = '800kB'", "maintenance_work_mem = '1MB'" ],
	[ 'where tables are made', "default_tablespace = 'nowhere'", "temp_tablespaces = 'nowhere'", "default_toast_compression = 'pglz'" ],
	[ 'what is loaded', "local_preload_libraries = 'nothing'" ],
	[ "Postbox's own settings", "postbox.default_outbox = 'evil.nothing'", "postbox.source_service = 'evil'" ],
	[ 'no durability', 'synchronous_commit = off' ],
	[ 'another encoding', "client_encoding = 'latin1'" ],
);
my $emitted = 0;
for my $setting (@settings)
{
	my ($what, @set) = @$setting;
	subtest "ALTER DATABASE ... SET, $what: events flow" => sub {
		my $sent = messages_published($emulator);
		$session->query_safe(join('; ', 'SET ROLE mallory', (map { "ALTER DATABASE shop SET $_" } @set), 'RESET ROLE'));
		# A worker that has begun with it. Some settings make the workers start again by themselves.
		my $worker = q{FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND datname = 'shop'};
		my $old;
		wait_for(sub { $old = $session->query_safe("SELECT pid $worker LIMIT 1"); return $old ne '' }, 'a worker runs');
		$session->query_safe("SELECT pg_terminate_backend($old)");
		wait_for(sub { return $session->query_safe("SELECT count(*) $worker AND pid <> $old") eq '1' }, 'a new worker runs');
		emit_both();
		wait_for(sub { messages_published($emulator) >= $sent + 10 }, 'all is published');
		$session->query_safe('SET ROLE mallory; ALTER DATABASE shop RESET ALL; RESET ROLE');
		wait_for(sub { return $in_shop->query_safe(q{SELECT count(*) FROM postbox.publication_status WHERE pending = 0 AND state = 'active'}) eq '2' }, 'nothing is pending');
	};
}
subtest 'what only superusers may set is refused' => sub {
	for my $setting ("session_preload_libraries = 'auto_explain'", "session_replication_role = 'replica'", "log_min_messages = 'panic'", "postbox.endpoint = 'http://127.0.0.1:1'")
	{
		my (undef, undef, $error) = $node->psql('postgres', "ALTER DATABASE shop SET $setting", extra_params => [ '-U', 'mallory' ]);
		like($error, qr/permission denied|cannot be changed/, $setting);
	}
};
$_->quit for $session, $in_shop;
my $log = log_since($node, $position);
unlike($log, qr/evil (operator|function) as (?!mallory)/, "nobody ran the owner's operators");
unlike($log, qr/PANIC|terminated by signal|server process/, 'nothing crashed');
$node->stop;
done_testing();
