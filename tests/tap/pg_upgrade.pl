# pg_upgrade carries a cluster with Postbox over: nothing of Postbox runs meanwhile, and the new cluster goes on
# where the old one stopped. The old one is of the same version, or, with POSTBOX_OLDER, of an installation of an older
# version (control/test-versions).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use File::Find ();
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator('--topic', 'catalog.video.audit', '--topic', 'catalog.job.events',
	map { ('--subscription', "catalog.$_.test-follower=catalog.$_,ordered") } 'video.events', 'video.audit', 'job.events');
my %settings = ('postbox.poll_interval' => '50ms', 'postbox.checkpoint_interval' => '50ms', 'postbox.maintenance_interval' => '1h');
# Since 18 a new cluster has checksums; pg_upgrade wants both to be alike.
my @initdb = $ENV{POSTBOX_OLDER} ? (initdb => ['--data-checksums']) : ();
my $node = new_node('old', emulator => $emulator, settings => \%settings, @initdb,
	$ENV{POSTBOX_OLDER} ? (install_path => $ENV{POSTBOX_OLDER}) : ());
$node->start;

my %inboxes = ('video.events' => 'videos', 'video.audit' => 'audit', 'job.events' => 'jobs');

# The versions of each key in a table, in an order.
sub keys_of
{
	my ($table, $order) = @_;
	return $node->safe_psql('postgres', qq{
		SELECT string_agg(aggregate_id || ':' || versions, ' ' ORDER BY aggregate_id COLLATE "C")
		FROM (SELECT aggregate_id, string_agg(version::text, ',' ORDER BY $order) AS versions FROM $table GROUP BY 1) AS keys});
}

# Waits until the events of an outbox have come from a topic, those of each key in order.
sub wait_seen
{
	my ($topic, $outbox) = @_;
	my $expected = keys_of($outbox, 'version');
	my $seen = '';
	return wait_for(sub { ($seen = keys_of("app.seen_$inboxes{$topic}", 'n')) eq $expected }, "$topic has brought all of $outbox, each key in order")
	  || diag("expected $expected\nbut saw $seen");
}

# What a program of a server's installation prints.
sub prints
{
	my ($server, $program, $option) = @_;
	my ($printed) = run_command([ $server->installed_command($program), $option ]);
	return $printed;
}

sub set_publishers
{
	my ($count) = @_;
	$node->append_conf('postgresql.conf', "postbox.publishers = $count");
	$node->reload;
	return wait_workers($node, 'postgres', $count);
}

sub emit_jobs
{
	my ($count) = @_;
	return $node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('job', 'job-' || n % 3, 'job.changed', '{}'::jsonb, outbox => 'app.jobs')) FROM generate_series(1, $count) n");
}

sub emit_as_writer
{
	return $node->safe_psql('postgres', q{SET ROLE writer;
		SELECT version FROM postbox.outbox_emit('video', 'written', 'video.created', '{"title": "x"}')});
}

# A log outbox with two publications, and a table outbox; what follows their topics.
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	SELECT postbox.alter_publication('videos', max_attempts => 1);
	SELECT postbox.create_publication('audit', 'app.outbox', 'catalog.video.audit', lanes => 2);
	SELECT postbox.create_outbox('app.jobs', 'table');
	SELECT postbox.create_publication('jobs', 'app.jobs', 'catalog.job.events');
	CREATE ROLE writer;
	GRANT USAGE ON SCHEMA app TO writer;
	GRANT INSERT ON app.outbox TO writer;
	ALTER DATABASE postgres SET postbox.default_outbox = 'app.outbox';
	CREATE TABLE app.video (id text PRIMARY KEY, title text, version bigint);
});
for my $topic (sort keys %inboxes)
{
	my $inbox = $inboxes{$topic};
	$node->safe_psql(
		'postgres', qq{
		CREATE TABLE app.seen_$inbox (n bigserial PRIMARY KEY, aggregate_id text, version bigint);
		CREATE FUNCTION app.note_$inbox(event postbox.event) RETURNS void LANGUAGE sql
			AS 'INSERT INTO app.seen_$inbox (aggregate_id, version) VALUES (event.aggregate_id, event.version)';
		SELECT postbox.create_inbox('app.inbox_$inbox');
		SELECT postbox.create_subscription('$inbox', 'app.inbox_$inbox', 'catalog.$topic.test-follower');
		SELECT postbox.create_handler('app.inbox_$inbox', '{video.created,video.poison,job.changed}', 'app.note_$inbox(postbox.event)');
	});
}
$node->safe_psql('postgres', q{SELECT postbox.create_projection('app.inbox_videos', '{video.created,video.poison}', 'app.video')});
my $puller = start_puller($node, 'postgres', $emulator);

# Some events are published everywhere.
emit($node, 'postgres', 10);
is(emit_as_writer(), '1', 'a role with nothing but INSERT on the outbox emits');
emit_jobs(5);
wait_seen('video.events', 'app.outbox');
wait_seen('video.audit', 'app.outbox');
wait_seen('job.events', 'app.jobs');

# Then one publication falls behind, with an event whose id is of long ago; an event is parked; in the end
# nobody publishes any more.
$node->safe_psql('postgres', q{SELECT postbox.alter_publication('audit', topic => 'catalog.video.missing', base_backoff => '1h', max_backoff => '1h')});
$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'old', 'video.created', '{}'::jsonb, event_id => '016f5e66-e800-7000-8000-000000000001')});
wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status WHERE publication = 'audit'}, 'one publication is suspended');
my $held = $node->background_psql('postgres');
$held->query_safe(q{BEGIN; SELECT postbox.outbox_emit('video', 'held', 'video.created', '{}'::jsonb)});
emit($node, 'postgres', 20);
emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison');
$node->safe_psql('postgres', "SELECT postbox.outbox_emit('video', 'poisoned', 'video.$_', '{}'::jsonb)") for 'poison', 'created';
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.paused_keys WHERE aggregate_id = 'poisoned' AND next_retry_at = 'infinity' AND waiting = 1}, 'an event is parked, and one behind it');
wait_until($node, 'postgres', q{SELECT pending = 2 FROM postbox.publication_status WHERE publication = 'videos'}, 'the rest of the publication is published');
wait_until($node, 'postgres', q{SELECT pending = 23 AND state = 'suspended' FROM postbox.publication_status WHERE publication = 'audit'}, 'the other one falls behind');
set_publishers(0);
$held->query_safe('COMMIT');
$held->quit;
emit($node, 'postgres', 12);
emit_jobs(4);
stop_puller($puller);

# What must be the same afterwards; of relations and the extension's members also which they are.
my $configuration = q{
	SELECT relation::oid, relation, kind, counter, parked, retention FROM postbox.outbox ORDER BY 1;
	SELECT * FROM postbox.publication ORDER BY name;
	SELECT publication, state, parked, retry_at, suspended_since, last_error, "position" FROM postbox.publication_status ORDER BY 1;
	SELECT relation, aggregate_id, first_event_id, attempts, next_retry_at, last_error, waiting FROM postbox.paused_keys;
	SELECT relation::oid, relation, tombstone FROM postbox.inbox ORDER BY 1;
	SELECT * FROM postbox.subscription ORDER BY name;
	SELECT id, inbox, event_types, target FROM postbox.projection ORDER BY id;
	SELECT id, inbox, event_types, function FROM postbox.handler ORDER BY id;
	SELECT last_value FROM postbox.handler_id_seq;
	SELECT extversion, extconfig::regclass[], extcondition FROM pg_extension WHERE extname = 'postbox';
	-- Later versions count types of rows and of arrays, too.
	SELECT pg_describe_object(classid, objid, objsubid) FROM pg_depend
		WHERE refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'postbox') AND deptype = 'e'
		AND NOT (classid = 'pg_type'::regclass AND EXISTS (SELECT FROM pg_type t LEFT JOIN pg_class c ON c.oid = t.typrelid WHERE t.oid = objid AND (t.typcategory = 'A' OR c.relkind <> 'c'))) ORDER BY 1;
	SELECT inhrelid::regclass, pg_get_expr(relpartbound, c.oid) FROM pg_inherits JOIN pg_class c ON c.oid = inhrelid WHERE inhparent = 'app.outbox'::regclass ORDER BY 1;
	-- 17 has one privilege more, MAINTAIN, and whoever had all of them has all of them.
	SELECT relname, relowner::regrole, replace(relacl::text, 'arwdDxtm', 'arwdDxt') FROM pg_class WHERE relnamespace = 'postbox'::regnamespace OR relname LIKE 'outbox%' ORDER BY oid::regclass::text;
	SELECT evtname, evtenabled FROM pg_event_trigger ORDER BY 1};
my $before = $node->safe_psql('postgres', $configuration);
my $published = messages_published($emulator);
# Some builds of 15 stamp columns with an option that their own pg_dump leaves out, that of a later version does not, and no
# other server takes: no table of theirs can be upgraded.
$node->safe_psql('postgres', q{SET allow_system_table_mods = on;
	UPDATE pg_attribute SET attoptions = NULL WHERE array_to_string(attoptions, ' ') ~ '^pg_attver='}) if $ENV{POSTBOX_OLDER};
# Both servers are set up to publish at once: that pg_upgrade starts them must not be enough.
$node->append_conf('postgresql.conf', 'postbox.publishers = 1');
$node->stop;

my $new = new_node('new', emulator => $emulator, settings => \%settings, @initdb);
note('from ' . prints($node, 'pg_config', '--version') . ' to ' . prints($new, 'pg_config', '--version'));
# This level says which background workers are started.
$_->append_conf('postgresql.conf', "log_min_messages = 'debug1'") for $node, $new;
my @no_sync = prints($new, 'pg_upgrade', '--help') =~ /(--no-sync)/;    # 14 does not have it
my @command = ('pg_upgrade', @no_sync, '-d', $node->data_dir, '-D', $new->data_dir,
	'-b', prints($node, 'pg_config', '--bindir'), '-B', prints($new, 'pg_config', '--bindir'),
	'-s', $new->host, '-p', $node->port, '-P', $new->port);

subtest 'pg_upgrade has nothing to say against it' => sub {
	command_checks_all([ @command, '--check' ], 0, [qr/Clusters are compatible/], [qr/^$/], 'pg_upgrade --check');
	command_checks_all([ @command, '--retain' ], 0, [qr/Upgrade Complete/], [qr/^$/], 'pg_upgrade');
};

subtest 'while it ran there was no launcher and no worker' => sub {
	my $log = '';
	# 14 leaves its logs where it was called.
	my ($logs) = grep { -d } $new->data_dir . '/pg_upgrade_output.d', '.';
	File::Find::find(sub { $log .= slurp_file($_) if /server\.log$/ }, $logs);
	like($log, qr/ DEBUG:  loaded library "postbox".*database system is ready to accept connections/s, 'there is a log of the servers, which had loaded Postbox');
	my @started = $log =~ /starting background worker process "(postbox[^"]*)"/g;
	is_deeply(\@started, [], 'none of Postbox was started');
	is(messages_published($emulator), $published, 'and nothing was published');
};

$node = $new;
$node->append_conf('postgresql.conf', "log_min_messages = 'warning'\npostbox.publishers = 0");
$node->start;

subtest 'everything is there' => sub {
	is($node->safe_psql('postgres', $configuration), $before, 'configuration, status and members of the extension');
	# The old cluster did not count the late one.
	is($node->safe_psql('postgres', 'SELECT publication, pending FROM postbox.publication_status ORDER BY 1'), "audit|36\njobs|4\nvideos|15", 'what is pending');
	is(emit_as_writer(), '2', 'the role with nothing but INSERT emits, versions go on counting');
	is($node->safe_psql('postgres', q{SELECT version FROM postbox.outbox_emit('job', 'job-0', 'job.changed', '{}', outbox => 'app.jobs')}), '3', 'those of the other outbox too');
};

subtest 'what was pending is published once, in order, and nothing else' => sub {
	set_publishers(1);
	$puller = start_puller($node, 'postgres', $emulator);
	wait_until($node, 'postgres', q{SELECT pending = 2 AND parked = 2 FROM postbox.publication_status WHERE publication = 'videos'}, 'the log outbox is read');
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'jobs'}, 'the table outbox is read');
	wait_seen('job.events', 'app.jobs');
	# The late one, the twelve and the writer's; four jobs and one.
	is(messages_published($emulator), $published + 14 + 5, 'that many were sent');
	like(log_since($node, 0), qr/has events of another cluster; \d+ that were not published there are published here/, 'the log says so');
};

subtest 'a key that was paused goes on when its event is redriven' => sub {
	is($node->safe_psql('postgres', q{SELECT aggregate_id, waiting FROM postbox.paused_keys}), 'poisoned|1', 'it is still paused');
	emulator_fault($emulator, '--clear');
	is($node->safe_psql('postgres', q{SELECT postbox.redrive('app.outbox')}), '1', 'redrive');
	wait_seen('video.events', 'app.outbox');
	is(messages_published($emulator), $published + 14 + 5 + 2, 'the two are sent');
};

subtest 'a publication that was suspended goes on where it was' => sub {
	is($node->safe_psql('postgres', q{SELECT state, pending FROM postbox.publication_status WHERE publication = 'audit'}), 'suspended|37', 'it still is');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('audit', topic => 'catalog.video.audit')});
	wait_until($node, 'postgres', q{SELECT pending = 0 AND state = 'active' FROM postbox.publication_status WHERE publication = 'audit'}, 'it is read');
	wait_seen('video.audit', 'app.outbox');
	is(messages_published($emulator), $published + 14 + 5 + 2 + 37, 'that many were sent');
};

subtest 'new events go into the partition of their generation, the old event goes away' => sub {
	emit($node, 'postgres', 5);
	is($node->safe_psql('postgres', q{SELECT count(DISTINCT generation), bool_and(tableoid::regclass::text = 'app.outbox_g' || generation) FROM (SELECT tableoid, generation FROM app.outbox ORDER BY seq DESC LIMIT 5) AS new}),
		'1|t', 'all in that of now');
	wait_seen('video.events', 'app.outbox');
	wait_seen('video.audit', 'app.outbox');
	# As if it lay in the generation that is past the retention.
	is($node->safe_psql('postgres', q{UPDATE app.outbox SET generation = (generation + 1) % 6 WHERE aggregate_id = 'old' RETURNING aggregate_id}), 'old', 'there is an old event');
	$node->append_conf('postgresql.conf', "postbox.maintenance_interval = '1s'");
	$node->reload;
	wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM app.outbox WHERE aggregate_id = 'old'}, 'retention takes it away');
	is($node->safe_psql('postgres', q{SELECT version FROM app.video WHERE id = 'written'}), '2', 'the projection has followed');
};

subtest 'the event triggers have come along' => sub {
	my ($status, undef, $error) = $node->psql('postgres', 'DROP EXTENSION postbox');
	like($error, qr/cannot drop extension postbox because outboxes or inboxes depend on it/, 'DROP EXTENSION asks for CASCADE');
	$node->safe_psql('postgres', 'GRANT ALL ON SCHEMA app TO writer; ALTER TABLE app.jobs OWNER TO writer');
	is($node->safe_psql('postgres', q{SELECT relowner::regrole FROM pg_class WHERE oid = 'app.jobs_version'::regclass}), 'writer', 'what belongs to an outbox follows it');
};

stop_puller($puller);
$node->stop;
done_testing();
