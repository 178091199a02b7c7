# What keeps everything from being published is named where one looks, with its remedy: in postbox.publication_status, in a WARNING at
# outbox_emit, once a session, and in the log.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

delete $ENV{GOOGLE_APPLICATION_CREDENTIALS};
my $emulator = start_emulator();
# Where the server looks for libraries: in a folder of the test's own.
my $libraries = PostgreSQL::Test::Utils::tempdir();
chomp(my $installed = `pg_config --pkglibdir`);
symlink("$installed/$_.so", "$libraries/$_.so") or BAIL_OUT("symlink: $!") for 'postbox', 'postbox_worker';
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'postbox.publishers' => 1, 'dynamic_library_path' => $libraries });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', q{SELECT postbox.create_outbox('app.unread')});
my $position = 0;

sub set
{
	my ($name, $value) = @_;
	set_configuration($node, $name, $value);
	return;
}

# Emits three events in a session, and returns what it said.
sub said
{
	my ($outbox) = @_;
	my $emit = "SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => '$outbox');";
	my (undef, undef, $stderr) = $node->psql('postgres', $emit x 3);
	return $stderr;
}

sub is_named
{
	my ($state, $reason, $warning, $log) = @_;
	wait_until($node, 'postgres', "SELECT state = '$state' AND last_error ~ '$reason' FROM postbox.publication_status", 'the status names cause and remedy')
	  or diag($node->safe_psql('postgres', 'SELECT * FROM postbox.publication_status'));
	my $stderr;
	wait_for(sub { ($stderr = said('app.outbox')) =~ $warning }, 'so does a WARNING') or diag($stderr);
	is(scalar(() = $stderr =~ /WARNING:/g), 1, 'once a session') or diag($stderr);
	is(said('app.unread'), '', 'nobody is warned who emits into an outbox without a publication');
	wait_for(sub { log_since($node, $position) =~ $log }, 'the log names it') or diag(log_since($node, $position));
	is(scalar(() = log_since($node, $position) =~ /WARNING:  (?:no postbox publisher|events of database)/g), 0, 'WARNINGs for sessions are not in the log');
	return;
}

sub goes_on
{
	wait_until($node, 'postgres', q{SELECT state = 'active' AND pending = 0 FROM postbox.publication_status}, 'it is mended: everything is published');
	is(said('app.outbox'), '', 'and there is no WARNING any more');
	$position = log_position($node);
	return;
}

goes_on();

subtest 'postbox.publishers is 0' => sub {
	set('postbox.publishers', 0);
	$node->reload;
	is_named('unserved', 'postbox.publishers is 0; raise it', qr/WARNING:  no postbox publisher serves database "postgres" now\nDETAIL:  postbox\.publishers is 0\..*\nHINT:  Raise/,
		qr/LOG:  postbox starts no publishers\n.*DETAIL:  postbox\.publishers is 0.*\n.*HINT:  Raise/);
	$node->safe_psql('postgres', q{
		CREATE ROLE emitter; GRANT USAGE ON SCHEMA app TO emitter; GRANT INSERT ON app.outbox TO emitter; REVOKE SELECT ON postbox.publication FROM PUBLIC});
	my (undef, undef, $stderr) = $node->psql('postgres', q{SET ROLE emitter; SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => 'app.outbox')});
	like($stderr, qr/WARNING:  no postbox publisher/, 'it takes no right on tables of Postbox');
	unlike($stderr, qr/ERROR/, 'and emitting does not either');
	$node->safe_psql('postgres', 'GRANT SELECT ON postbox.publication TO PUBLIC');
	# The setting of a database makes the launcher start a worker that reads it. It is held by a lock while the session emits.
	my $set = $node->connstr('template1');
	(undef, undef, $stderr) = $node->psql('postgres', qq{
		SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s';
		BEGIN;
		LOCK TABLE pg_catalog.pg_extension;
		\\! psql -X -q -d "$set" -c "ALTER DATABASE postgres SET postbox.publishers = 0"
		DO \$\$ BEGIN
			WHILE NOT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type LIKE 'postbox publisher%' AND wait_event_type = 'Lock') LOOP
				PERFORM pg_stat_clear_snapshot(), pg_sleep(0.01);
			END LOOP;
		END \$\$;
		SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => 'app.outbox');
		COMMIT});
	like($stderr, qr/^psql:\S+ WARNING:  no postbox publisher serves database "postgres" now\n/, 'a worker that only reads the settings of the database does not count');
	$node->safe_psql('template1', 'ALTER DATABASE postgres RESET postbox.publishers');
	set('postbox.publishers', 1);
	$node->reload;
	goes_on();
};

subtest 'no project' => sub {
	set('postbox.project_id', '');
	$node->reload;
	is_named('suspended', 'set postbox.project_id', qr/WARNING:  events of database "postgres" are not published now\nDETAIL:  .*postbox\.project_id/,
		qr/publication "videos" is suspended: .*set postbox\.project_id/);
	set('postbox.project_id', 'postbox-dev');
	$node->reload;
	goes_on();
};

subtest 'no credentials, and no HOME in which they could be' => sub {
	set('postbox.endpoint', '');
	$node->stop;
	{
		delete local $ENV{HOME};
		$node->start;
	}
	my $cause = 'GOOGLE_APPLICATION_CREDENTIALS and HOME are not set';
	is_named('suspended', "$cause.*; set GOOGLE_APPLICATION_CREDENTIALS", qr/WARNING:  events of database "postgres" are not published now\nDETAIL:  .*$cause/,
		qr/publication "videos" is suspended: .*$cause/);
	set('postbox.endpoint', $emulator->{endpoint});
	$node->reload;
	goes_on();
};

subtest 'no library of the workers' => sub {
	$node->stop;
	rename("$libraries/postbox_worker.so", "$libraries/postbox_worker.away") or BAIL_OUT("rename: $!");
	$node->start;
	is_named('unserved', 'worker processes fail to start.*postbox_worker.so', qr/WARNING:  no postbox publisher serves database "postgres" now\nDETAIL:  .*fail to start.*\nHINT:  .*postbox_worker\.so/,
		qr/publisher of database "postgres" failed.*\n.*DETAIL:  It has failed to start.*\n.*HINT:  .*postbox_worker\.so/);
	rename("$libraries/postbox_worker.away", "$libraries/postbox_worker.so") or BAIL_OUT("rename: $!");
	goes_on();
};

subtest 'not preloaded' => sub {
	set('shared_preload_libraries', '');
	$node->restart;
	$position = log_position($node);
	my $stderr = said('app.outbox');
	like($stderr, qr/WARNING:  no postbox publisher serves database "postgres" now\nDETAIL:  postbox is not in shared_preload_libraries\..*\nHINT:  Add it/, 'a WARNING');
	is(scalar(() = $stderr =~ /WARNING:/g), 1, 'once a session') or diag($stderr);
	is(said('app.unread'), '', 'none without a publication');
	wait_until($node, 'postgres', q{SELECT state = 'unserved' AND last_error ~ 'postbox is not in shared_preload_libraries; add it' FROM postbox.publication_status}, 'the status');
	set('shared_preload_libraries', 'postbox');
	$node->restart;
	goes_on();
};

$node->stop;
done_testing();
