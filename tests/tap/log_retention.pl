# Retention of a log outbox: what is older than the retention goes away while writers write, and nothing goes away that a
# publication has not read, at whatever moment it is committed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $seconds = $ENV{POSTBOX_TORTURE_SECONDS} // 8;
my @topics = map { "catalog.$_.events" } qw(rotation worst absent orphan referenced hidden held);
my $emulator = start_emulator('--subscription', 'catalog.rotation.events.follower=catalog.rotation.events,ordered', map { ('--topic', $_) } @topics);
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.poll_interval' => '200ms',
	'postbox.checkpoint_interval' => '20ms',
	'postbox.maintenance_interval' => '1s',
	'max_connections' => 60,
	'log_lock_waits' => 'on',
	'deadlock_timeout' => '10ms',
	'log_min_messages' => 'debug1',    # the postmaster says which processes it starts
});
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION postbox; CREATE SCHEMA app; ALTER DATABASE postgres SET postbox.default_outbox = 'app.rotation'});

# A log and its publication. A plain INSERT writes to the generation of its choice.
sub create_log
{
	my ($name, $retention, %options) = @_;
	$node->safe_psql('postgres', "SELECT postbox.create_outbox('app.$name', 'log', '$retention')");
	$node->safe_psql('postgres', "SELECT postbox.create_publication('$name', 'app.$name', 'catalog.$name.events')") unless $options{unpublished};
	return;
}

sub insert_into
{
	my ($name, $generation, $id) = @_;
	$id //= 'gen_random_uuid()';
	return "INSERT INTO app.$name (id, aggregate_type, aggregate_id, event_type, version, payload, generation) SELECT $id, 'video', 'x', 'video.changed', 1, '{}', $generation;";
}

# The generation that the retention does not reach now, and its partition.
sub past_retention
{
	my ($name) = @_;
	my $row = $node->safe_psql('postgres', "SELECT p.generation, p.part FROM postbox.generation_partitions('app.$name') p
		WHERE p.part IN (SELECT postbox.past_retention(o) FROM postbox.outbox o WHERE o.relation = 'app.$name'::regclass)");
	return split /\|/, $row;
}

sub count_of { my ($table) = @_; return $node->safe_psql('postgres', "SELECT count(*) FROM $table"); }
sub problem_of { my ($name) = @_; return $node->safe_psql('postgres', "SELECT concat_ws('; ', problem, remedy) FROM postbox.outbox_status WHERE outbox = 'app.$name'::regclass"); }
sub wait_read { my ($name) = @_; return wait_until($node, 'postgres', "SELECT pending = 0 FROM postbox.publication_status WHERE publication = '$name'", "$name is read"); }

subtest 'with a new generation every second, under load, nothing is lost and each key is in order' => sub {
	create_log('rotation', '2 seconds');
	$node->safe_psql('postgres', q{UPDATE postbox.outbox SET generation_span = '1 second' WHERE relation = 'app.rotation'::regclass;
		SELECT format('ALTER TABLE app.rotation ALTER generation SET DEFAULT (%s)', postbox.generation_expression('1 second')) \gexec});
	follow($node, 'postgres', 'catalog.rotation.events.follower', 'video.changed', { batch_delay => '50ms' });
	$node->safe_psql('postgres', 'CREATE TABLE app.emitted (aggregate_id text, version bigint, event_id uuid); CREATE SEQUENCE app.source');
	my $puller = start_puller($node, 'postgres', $emulator);
	my $record = 'INSERT INTO app.emitted SELECT aggregate_id, version, event_id FROM postbox.outbox_emit(\'video\', :key, \'video.changed\', \'{}\'::jsonb';
	my %scripts = (
		'generated' => "BEGIN; $record); $record); COMMIT;",
		'long' => "BEGIN; $record); \n\\sleep 2500 ms\n $record); COMMIT;",
		'undone' => "BEGIN; $record); ROLLBACK;",
		'random' => "$record, event_id => gen_random_uuid());",
		'derived' => "$record, source_event_id => nextval('app.source')::text);",
		'future' => "$record, event_id => overlay(gen_random_uuid()::text placing 'ffffffff-ffff-7' from 1)::uuid);",
	);
	my $tmp = $PostgreSQL::Test::Utils::tmp_check;
	# Long transactions have keys of their own: they hold the lock of the key.
	append_to_file("$tmp/$_.sql", "\\set n random(1, 20)\n" . ($scripts{$_} =~ s/:key/"'" . ($_ eq 'long' ? 'long-' : 'key-') . "' || :n"/ger) . "\n") for keys %scripts;
	my $output = '';
	my $writers = IPC::Run::start([ 'pgbench', '-n', '-c', '12', '-R', '100', '-T', $seconds, (map { ('-f', "$tmp/$_.sql@" . ($_ eq 'long' ? 1 : 30)) } sort keys %scripts),
		'-h', $node->host, '-p', $node->port, 'postgres' ], '<', \undef, '>&', \$output);
	my ($emptied, %filled) = (0);
	while ($writers->pumpable)
	{
		$writers->pump_nb;
		my ($generations) = split /\n/, $node->safe_psql('postgres', q{SELECT string_agg(DISTINCT generation::text, ' ') FROM app.rotation; SELECT postbox.purge_outbox('app.rotation')});
		my %now = map { $_ => 1 } split / /, $generations;
		$emptied += grep { !$now{$_} } keys %filled;
		%filled = %now;
		select(undef, undef, undef, 0.2);
	}
	$writers->finish;
	is($writers->result(0), 0, 'the writers succeeded') or diag($output);
	cmp_ok($emptied, '>', 2, "generations were emptied meanwhile: $emptied times");
	wait_read('rotation');
	my $events = count_of('app.emitted');
	wait_until($node, 'postgres', "SELECT count(*) >= $events FROM app.seen", "the $events events have come");
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.emitted e WHERE NOT EXISTS (SELECT FROM app.seen s WHERE s.aggregate_id = e.aggregate_id AND s.version = e.version)}), '0', 'none is lost');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT version < lag(version) OVER (PARTITION BY aggregate_id ORDER BY n) AS back FROM app.seen) e WHERE back}), '0', 'none came after a later one of its key');
	# A worker that has to wait 0.1 s for the lock of a partition, as on a busy machine, begins at its stored position again.
	my $sent = messages_published($emulator);
	cmp_ok($sent, '<=', 1.1 * $events, "and hardly any is sent again: $sent of $events");
	wait_until($node, 'postgres', 'SELECT count(*) = 0 OR count(*) < 0.5 * (SELECT count(*) FROM app.emitted) FROM app.rotation', 'the log is shorter than what was emitted');
	wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM app.rotation}, 'when nothing is emitted any more, it becomes empty');
	stop_puller($puller);
};

subtest 'a row that is committed while retention waits for the lock of its partition is published' => sub {
	create_log('worst', '40 days');
	my ($generation, $part) = past_retention('worst');
	my $before = messages_published($emulator);
	my $position = log_position($node);
	$node->append_conf('postgresql.conf', "postbox.maintenance_interval = '1h'");
	$node->reload;
	my ($inserted, $met) = (0, 0);
	for my $attempt (1 .. 60)
	{
		$node->safe_psql('postgres', insert_into('worst', $generation));
		++$inserted;
		wait_until($node, 'postgres', "SELECT postbox.is_read('app.worst', '$part')", 'all of the partition is read') or last;
		my $writer = $node->background_psql('postgres');
		$writer->query_safe('BEGIN; ' . insert_into('worst', $generation));
		++$inserted;
		my $output = '';
		my $purge = IPC::Run::start([ 'psql', '-X', '-c', q{SELECT postbox.purge_outbox('app.worst')}, $node->connstr('postgres') ], '<', \undef, '>&', \$output);
		my $end = time + 2;
		select(undef, undef, undef, 0.005) until log_since($node, $position) =~ /still waiting for AccessExclusiveLock/ || time > $end;
		$writer->query_safe('COMMIT');
		$writer->quit;
		$purge->finish;
		my $log = log_since($node, $position);
		$position = log_position($node);
		++$met if $log =~ /acquired AccessExclusiveLock on relation/;
		last if $met == 3;
	}
	cmp_ok($met, '>=', 3, 'retention had its lock right after the row was committed');
	wait_for(sub { messages_published($emulator) >= $before + $inserted }, "all $inserted events are published") or diag(messages_published($emulator) - $before);
	wait_until($node, 'postgres', "SELECT postbox.is_read('app.worst', '$part')", 'all of the partition is read');
	$node->safe_psql('postgres', q{SELECT postbox.purge_outbox('app.worst')});
	is(count_of($part), '0', 'then it is emptied');
};

subtest 'without a worker for months, events of all ids are kept, and published when there is one' => sub {
	$node->append_conf('postgresql.conf', "postbox.publishers = 0");
	$node->reload;
	wait_workers($node, 'postgres', 0);
	create_log('absent', '40 days');
	my $before = messages_published($emulator);
	# As many turns of the generations: each has rows of long ago, and of ids of every kind.
	my @ids = ('gen_random_uuid()', q{'016f5e66-e800-7000-8000-' || lpad(g::text, 12, '0')}, q{'ffffffff-ffff-7000-8000-' || lpad(g::text, 12, '0')}, q{'6ba7b810-9dad-51d1-80b4-' || lpad(g::text, 12, '0')});
	$node->safe_psql('postgres', "INSERT INTO app.absent (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at, generation)
		SELECT ($_)::uuid, 'video', 'x' || g, 'video.changed', 1, '{}', now() - interval '40 days', g FROM generate_series(0, 5) g") for @ids;
	is($node->safe_psql('postgres', q{SELECT postbox.purge_outbox('app.absent'); SELECT count(*) FROM app.absent}), "0\n24", 'nothing that is unread is purged');
	like(problem_of('absent'), qr/^events older than the retention are kept: a publication has not read all of them/, 'the status says so');
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'new', 'video.changed', '{}'::jsonb, outbox => 'app.absent')});
	$node->append_conf('postgresql.conf', "postbox.publishers = 1\npostbox.maintenance_interval = '1s'");
	$node->reload;
	wait_for(sub { messages_published($emulator) == $before + 25 }, 'all are published') or diag(messages_published($emulator) - $before);
	my ($generation, $part) = past_retention('absent');
	wait_until($node, 'postgres', "SELECT count(*) = 0 FROM $part", 'and purged in turn');
	is(problem_of('absent'), '', 'the status has nothing to say');
};

subtest 'without a publication nothing is purged, and the status says so' => sub {
	create_log('orphan', '40 days', unpublished => 1);
	$node->safe_psql('postgres', insert_into('orphan', 'generate_series(0, 5)'));
	is($node->safe_psql('postgres', q{SELECT postbox.purge_outbox('app.orphan'); SELECT count(*) FROM app.orphan}), "0\n6", 'all are kept');
	is(problem_of('orphan'), 'events older than the retention are kept: no publication reads this outbox; create a publication with postbox.create_publication, or drop the outbox', 'the status says why');
	is($node->safe_psql('postgres', q{SELECT publications FROM postbox.outbox_status WHERE outbox = 'app.orphan'::regclass}), '0', 'it has no publication');
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', q{SELECT postbox.create_publication('orphan', 'app.orphan', 'catalog.orphan.events')});
	wait_for(sub { messages_published($emulator) == $before + 6 }, 'a publication has them all');
	my ($generation, $part) = past_retention('orphan');
	wait_until($node, 'postgres', "SELECT count(*) = 0 FROM $part", 'then they are purged in turn');
};

subtest 'a foreign key that keeps a partition from being emptied is shown, and keeps no other' => sub {
	create_log('referenced', '40 days');
	my ($generation, $part) = past_retention('referenced');
	$node->safe_psql('postgres', "CREATE TABLE app.audit (id uuid CONSTRAINT of_event REFERENCES $part (id))");
	$node->safe_psql('postgres', insert_into('referenced', $_)) for 0 .. 5;
	wait_read('referenced');
	is(problem_of('referenced'), "events older than the retention are kept: $part cannot be emptied, because foreign key of_event of app.audit references it; run ALTER TABLE app.audit DROP CONSTRAINT of_event", 'the status says which');
	# All generations are past a retention of a microsecond, but the one that is written to.
	$node->safe_psql('postgres', q{UPDATE postbox.outbox SET retention = '1 microsecond' WHERE relation = 'app.referenced'::regclass});
	wait_until($node, 'postgres', "SELECT count(*) = 2 AND count(*) FILTER (WHERE tableoid = '$part'::regclass) = 1 FROM app.referenced", 'the others are emptied');
	$node->safe_psql('postgres', 'DROP TABLE app.audit');
	wait_until($node, 'postgres', "SELECT count(*) = 0 FROM $part", 'it is emptied when the foreign key is dropped');
	is(problem_of('referenced'), '', 'and nothing is shown any more');
};

subtest 'what row security hides is kept, and the status says so' => sub {
	create_log('hidden', '40 days', unpublished => 1);
	my ($generation, $part) = past_retention('hidden');
	$node->safe_psql('postgres', 'CREATE ROLE tenant; GRANT USAGE, CREATE ON SCHEMA app TO tenant; ALTER TABLE app.hidden OWNER TO tenant');
	$node->safe_psql('postgres', "ALTER TABLE $_ OWNER TO tenant") for split /\n/, $node->safe_psql('postgres', "SELECT p.part FROM postbox.generation_partitions('app.hidden') p UNION ALL SELECT o.parked FROM postbox.outbox o WHERE o.relation = 'app.hidden'::regclass");
	$node->safe_psql('postgres', q{SELECT postbox.create_publication('hidden', 'app.hidden', 'catalog.hidden.events', base_backoff => '1h', max_backoff => '1h')});
	$node->safe_psql('postgres', "CREATE TABLE app.keep (id uuid REFERENCES $part (id))");
	$node->safe_psql('postgres', insert_into('hidden', $generation));
	wait_read('hidden');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('hidden', topic => 'catalog.missing.events')});
	$node->safe_psql('postgres', insert_into('hidden', $generation));
	wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status WHERE publication = 'hidden'}, 'it is suspended');
	my $last = $node->safe_psql('postgres', "SELECT max(seq) FROM $part");
	$node->safe_psql('postgres', "CREATE POLICY lower ON $part USING (seq < $last); ALTER TABLE $part ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY; DROP TABLE app.keep");
	$node->safe_psql('postgres', q{SELECT postbox.purge_outbox('app.hidden')});
	is(count_of($part), 2, 'the event that the policy hides is kept');
	is(problem_of('hidden'), "events older than the retention are kept: row security is forced on the owner of $part; run ALTER TABLE $part NO FORCE ROW LEVEL SECURITY", 'and the status says why');
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', qq{ALTER TABLE $part NO FORCE ROW LEVEL SECURITY; SELECT postbox.alter_publication('hidden', topic => 'catalog.hidden.events')});
	wait_for(sub { messages_published($emulator) == $before + 1 }, 'it is published when the publication goes on');
	wait_until($node, 'postgres', "SELECT count(*) = 0 FROM $part", 'and then purged');
};

subtest 'a lane without keys, and a publication that takes none of the events, keep nothing' => sub {
	create_log('idle', '1 day', unpublished => 1);
	$node->safe_psql('postgres', q{
		SELECT postbox.create_publication('idle_lanes', 'app.idle', 'catalog.rotation.events', lanes => 8);
		SELECT postbox.create_publication('idle_types', 'app.idle', 'catalog.rotation.events', aggregate_types => '{rare}')});
	wait_until($node, 'postgres', q{SELECT count(*) = 9 FROM postbox.lane WHERE publication ~ '^idle' AND lock_token IS NOT NULL}, 'every lane has a worker');
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'one', 'video.changed', '{}'::jsonb, outbox => 'app.idle')});
	wait_read($_) for qw(idle_lanes idle_types);
	# Its transaction is older than the events, and ends after they are read.
	my $old = $node->background_psql('postgres');
	$old->query_safe('BEGIN; SELECT pg_current_xact_id()');
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'one', 'video.changed', '{}'::jsonb, outbox => 'app.idle') FROM generate_series(1, 3)});
	wait_read($_) for qw(idle_lanes idle_types);
	wait_until($node, 'postgres', q{SELECT count(*) = 9 AND min(hwm) = 4 FROM postbox.lane WHERE publication ~ '^idle'}, 'every lane has stored that it has passed the events');
	$old->query_safe('COMMIT');
	$old->quit;
	$node->safe_psql('postgres', 'SELECT pg_current_xact_id()');
	wait_until($node, 'postgres', q{SELECT bool_and(postbox.is_read('app.idle', p.part)) FROM postbox.generation_partitions('app.idle') p}, 'all of the log counts as read');
};

subtest 'a suspended publication keeps what it has not read' => sub {
	create_log('held', '40 days');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('held', topic => 'catalog.missing.events', base_backoff => '1h', max_backoff => '1h')});
	my ($generation, $part) = past_retention('held');
	$node->safe_psql('postgres', insert_into('held', $generation));
	wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status WHERE publication = 'held'}, 'it is suspended');
	is($node->safe_psql('postgres', "SELECT postbox.purge_outbox('app.held'); SELECT count(*) FROM app.held"), "0\n1", 'the event is kept');
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('held', topic => 'catalog.held.events')});
	wait_for(sub { messages_published($emulator) == $before + 1 }, 'it is published when the publication goes on');
	wait_until($node, 'postgres', "SELECT count(*) = 0 FROM $part", 'and then purged');
};

unlike(undisturbed_log_since($node, 0), qr/could not purge events/, 'no purge has failed');

subtest 'no worker takes slots of other processes for parallel queries' => sub {
	my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
	my %publishers = map { $_ => 1 } $log =~ /\[(\d+)\] postbox publisher /g;
	ok(%publishers, 'there were workers');
	is(join(' ', grep { $publishers{$_} } $log =~ /starting background worker process "parallel worker for PID (\d+)"/g), '', 'none of them had a parallel worker');
};

$node->stop;
done_testing();
