# The puller sets what its transactions depend on: the defaults of its role and database may be hostile, and PgBouncer
# may pool transactions between it and the server.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Pooler;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

plan skip_all => 'pgbouncer is not installed' unless has_pooler();

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'wal_writer_delay' => '10s' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
my @settings = qw(transaction_isolation transaction_read_only transaction_deferrable synchronous_commit statement_timeout lock_timeout TimeZone DateStyle
  IntervalStyle extra_float_digits bytea_output client_encoding client_min_messages jit);
my $values = join(', ', map { "current_setting('$_')" } @settings);
$node->safe_psql(
	'postgres', qq{
	CREATE ROLE reader LOGIN;
	GRANT EXECUTE ON FUNCTION postbox.create_subscription TO reader;
	CREATE SCHEMA reader AUTHORIZATION reader;
	SET ROLE reader;
	CREATE TABLE reader.target (id text PRIMARY KEY, title text, version bigint NOT NULL);
	CREATE TABLE reader.seen (aggregate_id text, version bigint, backend int, settings text);
	CREATE FUNCTION reader.note(event postbox.event) RETURNS void LANGUAGE sql AS \$\$
		INSERT INTO reader.seen VALUES (event.aggregate_id, event.version, pg_backend_pid(), concat_ws(' | ', $values))
	\$\$;
	SELECT postbox.create_inbox('reader.inbox');
	SELECT postbox.create_projection('reader.inbox', '{video.created}', 'reader.target');
	SELECT postbox.create_handler('reader.inbox', '{video.created}', 'reader.note(postbox.event)');
	SELECT postbox.create_subscription('follower', 'reader.inbox', 'catalog.video.events.test-follower', appliers => 4, batch_size => 20,
		min_backoff => '10ms', max_backoff => '100ms');
});

# Operators and functions that a statement without schemas would find before those of pg_catalog.
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA evil AUTHORIZATION reader;
	CREATE FUNCTION evil.fail(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.fail);
	CREATE FUNCTION evil.set_config(text, text, boolean) RETURNS text LANGUAGE plpgsql AS $$ BEGIN RAISE 'evil'; END $$;
	ALTER ROLE reader SET search_path = evil, pg_catalog;
	ALTER ROLE reader SET default_transaction_isolation = 'repeatable read';
	ALTER ROLE reader SET default_transaction_read_only = on;
	ALTER ROLE reader SET default_transaction_deferrable = on;
	ALTER ROLE reader SET lock_timeout = 1;
	ALTER ROLE reader SET statement_timeout = 20;
	ALTER ROLE reader SET client_encoding = 'LATIN1';
	ALTER ROLE reader SET client_min_messages = error;
	ALTER DATABASE postgres SET synchronous_commit = off;
	ALTER DATABASE postgres SET TimeZone = 'Asia/Kolkata';
	ALTER DATABASE postgres SET DateStyle = 'SQL, DMY';
	ALTER DATABASE postgres SET IntervalStyle = 'iso_8601';
	ALTER DATABASE postgres SET extra_float_digits = 0;
	ALTER DATABASE postgres SET bytea_output = 'escape';
	ALTER DATABASE postgres SET jit = on;
});

# A pooler with fewer connections to the server than the puller has to the pooler.
my $pooler = start_pooler($node, user => 'reader', pool_mode => 'transaction', pool_size => 2);

sub pull_through { my ($dsn) = @_; return start_puller($node, 'postgres', $emulator, dsn => $dsn); }

emit($node, 'postgres', 1000);
my $puller = pull_through("$pooler->{dsn}postgres");
wait_until($node, 'postgres', 'SELECT count(*) = 1000 FROM reader.seen', 'the puller applies through a pooler of transactions') or diag($puller->{output});
is( $node->safe_psql('postgres', 'SELECT DISTINCT settings FROM reader.seen'),
	join(' | ', 'read committed', 'off', 'off', 'on', '30s', '5s', 'UTC', 'ISO, MDY', 'postgres', 1, 'hex', 'UTF8', 'warning', 'off'),
	'with its own settings, whatever those of the role and the database are');
cmp_ok($node->safe_psql('postgres', 'SELECT count(DISTINCT backend) FROM reader.seen'), '<=', 2, 'in sessions that it shares');
is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT (aggregate_id, version)) FROM reader.seen'), '0', 'each event once');
is($node->safe_psql('postgres', "SELECT count(*), min(title) FROM reader.target"), '7|x', 'into the projection, too');
stop_puller($puller);
stop_pooler($pooler);

# Without the pooler the same holds. An effect that was acknowledged survives a crash.
$puller = pull_through($node->connstr('postgres') . ' user=reader');
emit($node, 'postgres', 60);
wait_until($node, 'postgres', 'SELECT count(*) = 1060 FROM reader.seen', 'the puller applies in sessions of its own');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT settings) FROM reader.seen'), '1', 'with the same settings');
$node->stop('immediate');
$node->start;
is($node->safe_psql('postgres', 'SELECT count(*) FROM reader.seen'), '1060', 'and after a crash nothing of it is missing');
emit($node, 'postgres', 40);
wait_until($node, 'postgres', 'SELECT count(*) = 1100 FROM reader.seen', 'it goes on');
stop_puller($puller);

# A weaker or a stronger choice of durability.
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET synchronous_commit = remote_apply});
$puller = pull_through($node->connstr('postgres') . ' user=reader');
emit($node, 'postgres', 1);
wait_until($node, 'postgres', 'SELECT count(*) = 1101 FROM reader.seen', 'with remote_apply as the default it applies');
is($node->safe_psql('postgres', q{SELECT count(*) FROM reader.seen WHERE settings LIKE '%remote_apply%'}), '1', 'and waits as the default says');
stop_puller($puller);
$node->stop;
done_testing();
