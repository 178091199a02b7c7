# Upgrade while running: ALTER EXTENSION UPDATE under sessions and workers that work, and new files under a running
# server. It has an installation of its own, since other tests use the stage.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $installation = own_installation();
my $library = $installation->{library};
my $original = "$installation->{original}/postbox_worker.so";
my ($version) = slurp_file("$installation->{scripts}/postbox.control") =~ /^default_version = '(.*)'$/m;

# What a release may do to the tables and functions that sessions and workers use all the time.
append_to_file("$installation->{scripts}/postbox--$version--upgraded.sql", q{
	ALTER TABLE postbox.outbox ADD COLUMN note text;
	ALTER TABLE postbox.publication ADD COLUMN note text NOT NULL DEFAULT '';
	ALTER TABLE postbox.lane ADD COLUMN note text;
	ALTER TABLE postbox.inbox ADD COLUMN note text;
	ALTER TABLE postbox.projection ADD COLUMN note text;
	ALTER TABLE postbox.handler ALTER COLUMN function TYPE varchar;
	DROP VIEW postbox.workers;
	CREATE VIEW postbox.workers AS SELECT w.*, d.datname AS database
		FROM postbox.list_workers() w LEFT JOIN pg_catalog.pg_database d ON d.oid = w.database_id;
	CREATE OR REPLACE FUNCTION postbox.wake_publishers() RETURNS void LANGUAGE C AS 'MODULE_PATHNAME';
	CREATE FUNCTION postbox.release() RETURNS text LANGUAGE sql RETURN 'upgraded';
});

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, install_path => $installation->{path}, settings => { 'postbox.publishers' => 2 });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	SELECT postbox.create_outbox('app.jobs', 'table');
	SELECT postbox.create_publication('jobs', 'app.jobs', 'catalog.video.events');
	CREATE TABLE app.video (id text PRIMARY KEY, version bigint);
});
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.created');
$node->safe_psql('postgres', q{SELECT postbox.create_projection('app.inbox', '{video.created}', 'app.video')});

sub emits
{
	my ($count, $key) = @_;
	return "SELECT count(postbox.outbox_emit('video', '$key-' || n % 7, 'video.created', '{}'::jsonb, outbox => o)) FROM generate_series(1, $count) n, (VALUES ('app.outbox'::regclass), ('app.jobs')) AS o(o)";
}

sub applies
{
	my ($key, $version) = @_;
	return "SELECT postbox.inbox_apply('app.inbox', '$key-$version', 'video.created', 'video', '$key', $version, '{}')";
}

my $emitted = 0;

sub wait_followed
{
	my ($what) = @_;
	return wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen WHERE aggregate_id <> 'direct'", $what);
}

my $puller = start_puller($node, 'postgres', $emulator);
my $session = $node->background_psql('postgres');
$session->query_safe('SET client_min_messages = error');    # that nobody publishes
$session->query_safe(emits(10, 'first'));
is($session->query_safe(applies('direct', 1)), 'applied', 'a session emits and applies');
$emitted += 20;
wait_followed('workers publish, the puller applies');

subtest 'ALTER EXTENSION UPDATE while events are emitted, published and applied' => sub {
	my $position = log_position($node);
	$node->safe_psql('postgres', emits(1000, 'before'));
	$node->safe_psql('postgres', q{ALTER EXTENSION postbox UPDATE TO 'upgraded'});
	$session->query_safe(emits(10, 'after'));
	is($session->query_safe(applies('direct', 2)), 'applied', 'the session goes on emitting and applying');
	$emitted += 2 * 1010;
	wait_followed('workers and puller go on');
	is($node->safe_psql('postgres', 'SELECT postbox.release(), string_agg(version::text, \',\' ORDER BY n) FROM app.seen WHERE aggregate_id = \'direct\''), 'upgraded|1,2', 'the release is the new one');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.workers WHERE database = \'postgres\''), '2', 'there are two workers');
	my @noise = grep { /(?:ERROR|FATAL|PANIC|WARNING):/ } split /\n/, undisturbed_log_since($node, $position);
	is_deeply(\@noise, [], 'nothing in the log');
};

# Files are replaced as packages do it: a new file takes the place of the old one.
sub replace_worker
{
	my ($file) = @_;
	system_or_bail('cp', $file, "$library/postbox_worker.new");
	rename("$library/postbox_worker.new", "$library/postbox_worker.so") or BAIL_OUT("rename: $!");
	return;
}

sub restart_workers { $node->safe_psql('postgres', q{SELECT count(pg_terminate_backend(pid, 10000)) FROM pg_stat_activity WHERE backend_type = 'postbox publisher'}); return; }

subtest 'a worker of another release does not start, and sessions go on' => sub {
	my $position = log_position($node);
	replace_worker("$ENV{POSTBOX_BUILD_DIR}/other_release/postbox_worker.so");
	restart_workers();
	wait_for(sub { log_since($node, $position) =~ /ERROR:  the running server has loaded another release of postbox.*HINT:  Restart the server to finish the upgrade\./s }, 'the log says that a restart is due');
	wait_workers($node, 'postgres', 0);
	$session->query_safe(emits(10, 'meanwhile'));
	is($session->query_safe(applies('direct', 3)), 'applied', 'the session goes on emitting and applying');
	$emitted += 20;
	is($node->safe_psql('postgres', q{SELECT string_agg(publication || ' ' || pending, ', ' ORDER BY publication) FROM postbox.publication_status}), 'jobs 10, videos 10', 'events wait');
	unlike(log_since($node, $position), qr/PANIC|terminated by signal/, 'nothing crashes');
};

subtest 'workers come when their file fits again' => sub {
	replace_worker($original);
	wait_workers($node, 'postgres', 2);
	wait_followed('what has waited is published');
};

subtest 'a file that is missing for a moment is waited for' => sub {
	my $position = log_position($node);
	unlink("$library/postbox_worker.so") or BAIL_OUT("unlink: $!");
	restart_workers();
	wait_for(sub { log_since($node, $position) =~ /could not (?:access|load).*postbox_worker/ }, 'the log says what is missing');
	$session->query_safe(emits(10, 'last'));
	$emitted += 20;
	replace_worker($original);
	wait_followed('events are published when it is back');
};

stop_puller($puller);
$session->quit;
$node->stop;
done_testing();
