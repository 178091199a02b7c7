# The configuration changes all the time while events are emitted: publications are altered, dropped and created again, outboxes
# are renamed, locked, and get other owners, settings change, workers come and go, stand still, and some requests fail. When it is quiet
# again, everything is published soon, nothing is lost, each key came in order, and each lane has one worker.
#
# POSTBOX_TORTURE_SECONDS=600 runs it for longer, POSTBOX_TORTURE_SEED with the same changes again.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Postbox::Puller;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

use constant TOPIC => 'catalog.video.events';
use constant OTHER_TOPIC => 'catalog.other.events';

my $seconds = $ENV{POSTBOX_TORTURE_SECONDS} // 15;
my $seed = $ENV{POSTBOX_TORTURE_SEED} // int(rand(1_000_000));
srand($seed);
note("POSTBOX_TORTURE_SEED=$seed");

# Leases, and the workers' own limits and pauses, last half as long as they say.
use constant { SCALE => 50, LONGER_THAN_A_LEASE => 7 };

# ordered: it keeps its topic and on_failure, so its keys come in order without a gap.
my %outboxes = (
	log4 => { kind => 'log', lanes => 4, ordered => 1 },
	log8 => { kind => 'log', lanes => 8, ordered => 1 },
	rows => { kind => 'table', lanes => 1, ordered => 1 },
	log_moved => { kind => 'log', lanes => 3 },
	rows_moved => { kind => 'table', lanes => 1 });

my $emulator = start_emulator('--topic', OTHER_TOPIC,
	'--subscription', "@{[TOPIC]}.follower=@{[TOPIC]},ordered", '--subscription', "@{[OTHER_TOPIC]}.follower=@{[OTHER_TOPIC]},ordered");
my %calm = (
	'postbox.publishers' => '3', 'postbox.poll_interval' => '200ms', 'postbox.maintenance_interval' => '1s', 'postbox.lease_timeout' => '10s',
	'postbox.time_scale' => SCALE);
my $node = new_node('main', emulator => $emulator, settings => { %calm, 'postbox.restart_delay' => '100ms', 'max_connections' => 60 });
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	CREATE ROLE owner_of_outbox;
	GRANT ALL ON SCHEMA app TO owner_of_outbox;
	CREATE TABLE app.seen (n bigserial PRIMARY KEY, aggregate_id text, version bigint);
	CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql
		AS 'INSERT INTO app.seen (aggregate_id, version) VALUES (event.aggregate_id, event.version)'});
for my $topic (TOPIC, OTHER_TOPIC)
{
	my ($name) = $topic =~ /catalog\.(\w+)/;
	$node->safe_psql('postgres', qq{
		SELECT postbox.create_inbox('app.inbox_$name');
		SELECT postbox.create_subscription('$name', 'app.inbox_$name', '$topic.follower');
		SELECT postbox.create_handler('app.inbox_$name', ARRAY['video.changed'], 'app.note(postbox.event)')});
}

sub create_publication
{
	my ($name, $topic) = @_;
	return "SELECT postbox.create_publication('$name', $outboxes{$name}{oid}::regclass, '$topic', lanes => $outboxes{$name}{lanes}, max_attempts => 50, base_backoff => '50ms', max_backoff => '500ms')";
}
for my $name (sort keys %outboxes)
{
	$node->safe_psql('postgres', "SELECT postbox.create_outbox('app.$name', '$outboxes{$name}{kind}')");
	$outboxes{$name}{oid} = $node->safe_psql('postgres', "SELECT 'app.$name'::regclass::oid");
	$node->safe_psql('postgres', create_publication($name, TOPIC));
}

sub start_writers
{
	my $tmp = $PostgreSQL::Test::Utils::tmp_check;
	my @files;
	for my $name (sort keys %outboxes)
	{
		my $emit = sub { "SELECT postbox.outbox_emit('video', '$name-' || :key, 'video.$_[0]', '{}'::jsonb, outbox => $outboxes{$name}{oid}::regclass);" };
		my %scripts = (
			short => "BEGIN; @{[$emit->('changed')]} @{[$emit->('changed')]} COMMIT;",
			soon => "BEGIN; SET LOCAL synchronous_commit = off; @{[$emit->('changed')]} COMMIT;",
			long => "BEGIN; @{[$emit->('changed')]}\n\\sleep 60 ms\n@{[$emit->('changed')]} COMMIT;",
			undone => "BEGIN; @{[$emit->('changed')]} SAVEPOINT s; @{[$emit->('undone')]} ROLLBACK TO s; COMMIT;",
			rolled_back => "BEGIN; @{[$emit->('undone')]}\n\\sleep 5 ms\nROLLBACK;");
		for my $kind (sort keys %scripts)
		{
			append_to_file("$tmp/$name-$kind.sql", "\\set key random(1, 12)\n$scripts{$kind}\n\\sleep 20 ms\n");
			push @files, '-f', "$tmp/$name-$kind.sql";
		}
	}
	my $output = '';
	return { output => \$output, run => IPC::Run::start(
		[ 'pgbench', '-n', '-c', $ENV{POSTBOX_TORTURE_SECONDS} ? 12 : 5, '-j', '1', '-T', $seconds, @files, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'<', \undef, '>&', \$output) };
}

sub sql
{
	my ($statement) = @_;
	my ($stdout, $stderr);
	my $code = $node->psql('postgres', $statement, stdout => \$stdout, stderr => \$stderr);
	diag("$statement: $stderr") if $code != 0 && $stderr !~ /deadlock detected|could not obtain lock|lock timeout/;
	return $stdout;
}
sub one_of { return $_[ rand(@_) ]; }
sub any_outbox { return one_of(sort keys %outboxes); }
sub moved { return one_of(grep { !$outboxes{$_}{ordered} } sort keys %outboxes); }
sub now_called { my ($name) = @_; return sql("SELECT $outboxes{$name}{oid}::regclass"); }
sub tables_of
{
	my ($name) = @_;
	return split /\n/, sql("SELECT unnest(ARRAY[counter, parked]) FROM postbox.outbox WHERE relation = $outboxes{$name}{oid}
		UNION ALL SELECT relid::regclass FROM pg_partition_tree($outboxes{$name}{oid}) UNION ALL SELECT $outboxes{$name}{oid}::regclass");
}

# What a worker has locked that stands still may keep this process waiting: so another one lets it go on.
my %stopped;    # pid of the worker => { until => time, run => that process }
sub stop_worker
{
	my ($pid, $for) = @_;
	kill('STOP', $pid);
	my $output = '';
	my $run = IPC::Run::start([ 'sh', '-c', "sleep $for; kill -CONT $pid" ], '<', \undef, '>&', \$output);
	$stopped{$pid} = { until => time + $for, run => $run };
	return;
}
sub stopped
{
	for my $pid (grep { $stopped{$_}{until} < time } keys %stopped) { (delete $stopped{$pid})->{run}->finish; }
	return scalar keys %stopped;
}

my $end;
my %settings = (
	'postbox.publishers' => [ 1 .. 4 ],
	'postbox.lease_timeout' => [ 10, 20, 300 ],
	'postbox.poll_interval' => [ 20, 200, 1000 ],
	'postbox.publish_timeout' => [ 1, 5, 60 ],
	'postbox.claim_batch_size' => [ 5, 50, 1000 ],
	'postbox.read_chunk_size' => [ 10, 50, 1000 ],
	'postbox.checkpoint_interval' => [ 10, 200, 1000 ],
	'postbox.max_outstanding_messages' => [ 3, 50, 20000 ],
	'postbox.max_outstanding_bytes' => [ 1024, 65536 ]);

my %changes = (
	attempts => sub { sql("SELECT postbox.alter_publication('@{[any_outbox()]}', max_attempts => @{[50 + int(rand(50))]})"); },
	backoff => sub { my $base = 20 + int(rand(80)); sql("SELECT postbox.alter_publication('@{[any_outbox()]}', base_backoff => '$base ms', max_backoff => '@{[$base * 5]} ms')"); },
	types => sub { sql("SELECT postbox.alter_publication('@{[any_outbox()]}', aggregate_types => '@{[one_of('{}', '{video}', '{video,other}')]}')"); },
	lanes => sub { sql("SELECT postbox.alter_publication('@{[one_of('log4', 'log8', 'log_moved')]}', lanes => @{[1 + int(rand(8))]})"); },
	ordering => sub { sql("SELECT postbox.alter_publication('@{[one_of('log4', 'log8', 'log_moved')]}', ordering => '@{[one_of('key', 'bucket:8')]}')"); },
	topic => sub { sql("SELECT postbox.alter_publication('@{[moved()]}', topic => '@{[one_of(TOPIC, OTHER_TOPIC)]}')"); },
	on_failure => sub { sql("SELECT postbox.alter_publication('@{[moved()]}', on_failure => '@{[one_of('park_key', 'park_event')]}')"); },
	again => sub { my $name = moved(); sql("BEGIN; SELECT postbox.drop_publication('$name'); @{[create_publication($name, one_of(TOPIC, OTHER_TOPIC))]}; COMMIT"); },
	extra => sub {
		my $kind = one_of('log', 'table');
		sql("SELECT postbox.create_outbox('app.extra', '$kind'); SELECT postbox.create_publication('extra', 'app.extra', '@{[OTHER_TOPIC]}');
			SELECT count(postbox.outbox_emit('video', 'extra-' || n, 'video.extra', '{}'::jsonb, outbox => 'app.extra')) FROM generate_series(1, 50) n");
		Time::HiRes::sleep(rand(0.3));
		sql("SELECT postbox.drop_outbox('app.extra')");
	},
	setting => sub { my $name = one_of(sort keys %settings); sql("ALTER SYSTEM SET $name = @{[one_of(@{ $settings{$name} })]}"); $node->reload; },
	terminate => sub { my @pids = worker_pids($node, 'postgres'); sql("SELECT pg_terminate_backend(@{[one_of(@pids)]})") if @pids; },
	stop => sub {
		my @pids = worker_pids($node, 'postgres');
		return if !@pids || stopped();
		# None stands still for long when everything else has ended.
		stop_worker(one_of(@pids), one_of(0.3, 2, $end - time > LONGER_THAN_A_LEASE ? LONGER_THAN_A_LEASE : ()));
	},
	rename => sub { my $name = any_outbox(); my $called = now_called($name); sql("ALTER TABLE $called RENAME TO ${name}_renamed") if $called !~ /renamed/; },
	rename_back => sub { for my $name (sort keys %outboxes) { my $called = now_called($name); sql("ALTER TABLE $called RENAME TO $name") if $called =~ /renamed/; } },
	owner => sub { my $role = one_of('owner_of_outbox', 'CURRENT_USER'); sql(join('; ', 'BEGIN', (map { "ALTER TABLE $_ OWNER TO $role" } grep { $_ ne '' } tables_of(any_outbox())), 'COMMIT')); },
	lock => sub { sql("BEGIN; LOCK TABLE @{[now_called(any_outbox())]} IN ACCESS EXCLUSIVE MODE; SELECT pg_sleep(@{[one_of(0.2, 1.5)]}); COMMIT"); });
# What is quick comes more often.
my @names = ((sort keys %changes), ('attempts', 'types', 'topic', 'again', 'setting') x 2);

my $puller = start_puller($node, 'postgres', $emulator);
emulator_fault($emulator, 'rpc=Publish,latency-ms=400,probability=0.05', 'rpc=Publish,code=UNAVAILABLE,after-effect,probability=0.02',
	'rpc=Publish,code=INVALID_ARGUMENT,probability=0.01', 'rpc=Publish,code=NOT_FOUND,latency-ms=300,probability=0.01');
my $writers = start_writers();
$end = time + $seconds;
my %made;
while (time < $end)
{
	my $name = one_of(@names);
	note(sprintf('%.1f s left: %s', $end - time, $name));
	$changes{$name}->();
	++$made{$name};
	Time::HiRes::sleep(rand(0.1));
}
$_->{run}->finish for values %stopped;
$writers->{run}->finish;
# The changes lock several tables, so writers may be victims of deadlocks. pgbench of 14 ends a client then, later ones count it.
my @errors = grep { /error/ } split /\n/, ${ $writers->{output} };
my $ended = server_version($node) < 15 && !grep { !/deadlock detected/ } @errors;
is($writers->{run}->result(0), $ended && @errors ? 2 : 0, 'the writers succeeded') or diag(join "\n", @errors);
note('changes: ' . join(', ', map { "$_ $made{$_}" } sort keys %made));

emulator_fault($emulator, '--clear');
$changes{rename_back}->();
sql('ALTER SYSTEM RESET ALL');
$node->reload;

wait_workers($node, 'postgres', 3);
wait_until($node, 'postgres', q{SELECT count(*) = 5 AND bool_and(pending = 0 AND parked = 0 AND state = 'active' AND last_error IS NULL) FROM postbox.publication_status}, 'all are published, and every publication is active')
  or diag($node->safe_psql('postgres', 'SELECT * FROM postbox.publication_status; SELECT * FROM postbox.workers; SELECT * FROM postbox.lane; SELECT * FROM postbox.paused_keys'));
my $all = join ' UNION ALL ', map { "SELECT aggregate_id, version, event_type FROM app.$_" } sort keys %outboxes;
wait_until($node, 'postgres', "SELECT NOT EXISTS (SELECT aggregate_id, version FROM ($all) o EXCEPT SELECT aggregate_id, version FROM app.seen)", 'all have arrived: none is lost')
  or diag($node->safe_psql('postgres', "SELECT aggregate_id, version FROM ($all) o EXCEPT SELECT aggregate_id, version FROM app.seen"));
is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT aggregate_id, version FROM app.seen EXCEPT SELECT aggregate_id, version FROM ($all) o) s"), '0', 'nothing else has');
is($node->safe_psql('postgres', "SELECT count(*) FROM ($all) o WHERE event_type <> 'video.changed'"), '0', 'what was rolled back is not there');
my $keys = join '|', grep { $outboxes{$_}{ordered} } sort keys %outboxes;
my $disorder = qq{SELECT * FROM (SELECT n, aggregate_id, lag(version, 1, 0::bigint) OVER (PARTITION BY aggregate_id ORDER BY n) AS before, version FROM app.seen WHERE aggregate_id ~ '^($keys)-') e
	WHERE version <> before + 1 ORDER BY n};
is($node->safe_psql('postgres', $disorder), '', 'each key of a publication that kept its topic came in order, without a gap');
cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM ($all) o"), '>', 100 * $seconds / 10, 'there were many');

wait_until($node, 'postgres', q{SELECT count(*) = count(w.pid) AND bool_and(p.wanted_lanes IS NULL)
		AND count(*) = (SELECT sum(q.lanes) FROM postbox.publication q JOIN postbox.outbox o ON o.relation = q.outbox WHERE o.kind = 'log') FROM postbox.lane l JOIN postbox.publication p ON p.name = l.publication JOIN postbox.outbox o ON o.relation = p.outbox
	LEFT JOIN postbox.workers w ON w.lock_token = l.lock_token AND w.state = 'running' WHERE o.kind = 'log'}, 'each lane of a log has a worker that lives');
wait_until($node, 'postgres', q{SELECT bool_and(n <= ceil(lanes / 3.0)) FROM (SELECT p.lanes, l.lock_token, count(*) AS n FROM postbox.lane l JOIN postbox.publication p ON p.name = l.publication
	WHERE l.lock_token IS NOT NULL GROUP BY p.name, l.lock_token) s}, 'none has more than its share');
for my $name (sort keys %outboxes)
{
	my $left = $outboxes{$name}{kind} eq 'log' ? "SELECT count(*) FROM app.${name}_parked" : "SELECT count(*) FROM app.$name WHERE lock_token IS NOT NULL OR published_at IS NULL";
	is($node->safe_psql('postgres', $left), '0', "nothing of $name is claimed or parked");
}
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP/, 'no process has crashed');

stop_puller($puller);
$node->stop;
done_testing();
