# Outboxes and inboxes are renamed, moved to other schemas and given to other owners, each with one plain ALTER TABLE, while events are
# emitted, published and applied. Nobody fails, nothing is lost, each key comes in order, and maintenance goes on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

use constant TOPIC => 'catalog.video.events';

my $seconds = $ENV{POSTBOX_TORTURE_SECONDS} // 3;
my $emulator = start_emulator('--subscription', "@{[TOPIC]}.follower=@{[TOPIC]},ordered");
my $node = new_node('main', emulator => $emulator,
	settings => { 'postbox.publishers' => 2, 'postbox.poll_interval' => '50ms', 'postbox.maintenance_interval' => '1s', 'max_connections' => 60 });
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION postbox;
	CREATE ROLE alice; CREATE ROLE bob; CREATE ROLE writer;
	CREATE SCHEMA app; CREATE SCHEMA "other ""schema""";
	GRANT ALL ON SCHEMA app, "other ""schema""" TO alice, bob});
follow($node, 'postgres', TOPIC . '.follower', 'video.changed');
my %oid = (inbox => $node->safe_psql('postgres', q{SELECT 'app.inbox'::regclass::oid}));
$node->safe_psql('postgres', q{GRANT SELECT, INSERT ON app.seen TO alice, bob; GRANT USAGE ON SEQUENCE app.seen_n_seq TO alice, bob});
# The longest name has no room for a suffix, the other one quotes in it.
my %kinds = ('log' => 'log', 'rows "quoted"' => 'table', 'x' x 50 => 'log');
for my $name (sort keys %kinds)
{
	my $quoted = $node->safe_psql('postgres', "SELECT quote_ident('$name')");
	$node->safe_psql('postgres', "SET ROLE alice; SELECT postbox.create_outbox('app.$quoted', '$kinds{$name}', '1 day'); GRANT INSERT ON app.$quoted TO writer");
	$oid{$name} = $node->safe_psql('postgres', "SELECT 'app.$quoted'::regclass::oid");
	$node->safe_psql('postgres', "SELECT postbox.create_publication('p$oid{$name}', $oid{$name}::regclass, '@{[TOPIC]}', base_backoff => '50ms', max_backoff => '500ms')");
}

# What ALTER TABLE says beside its result: a WARNING names what has stayed behind.
sub alter
{
	my ($which, $change) = @_;
	my ($stdout, $stderr);
	my $code = $node->psql('postgres', "SELECT 'ALTER TABLE ' || $oid{$which}::regclass || \$change\$ $change\$change\$ \\gexec", stdout => \$stdout, stderr => \$stderr);
	return $stderr =~ /deadlock detected/ ? '' : $stderr;
}
sub one_of { return $_[ rand(@_) ]; }

subtest 'renamed, moved and given away under load' => sub {
	my @files;
	for my $name (sort keys %kinds)
	{
		my $file = "$PostgreSQL::Test::Utils::tmp_check/emit-$oid{$name}.sql";
		my $emit = "SELECT postbox.outbox_emit('video', 'k$oid{$name}-' || :key, 'video.changed', '{}'::jsonb, outbox => $oid{$name}::regclass);";
		append_to_file($file, "\\set key random(1, 12)\nBEGIN; SET LOCAL ROLE writer; $emit\n\\sleep 5 ms\n$emit COMMIT;\n\\sleep 15 ms\n");
		push @files, '-f', $file;
	}
	my $output = '';
	my $puller = start_puller($node, 'postgres', $emulator);
	my $writers = IPC::Run::start([ 'pgbench', '-n', '-c', $ENV{POSTBOX_TORTURE_SECONDS} ? 6 : 3, '-j', '1', '-T', $seconds, @files, '-h', $node->host, '-p', $node->port, 'postgres' ], '<', \undef, '>&', \$output);
	my $end = time + $seconds;
	my ($changes, @said) = (0);
	# A slow machine takes longer than the writers for as many.
	while (time < $end || $changes <= $seconds)
	{
		my $change = one_of('OWNER TO alice', 'OWNER TO bob', 'SET SCHEMA app', 'SET SCHEMA "other ""schema"""',
			'RENAME TO "' . one_of('a', 'b', 'c') . "-$changes-" . 'é' x int(rand(25)) . '"');
		my $said = alter(one_of(sort keys %oid), $change);
		push @said, "$change: $said" if $said ne '' && $said !~ /ERROR:  table .* is already in schema|already exists in schema/;
		++$changes;
		Time::HiRes::sleep(rand(0.1));
	}
	$writers->finish;
	is($writers->result(0), 0, 'the writers succeeded') or diag($output);
	is_deeply(\@said, [], 'nothing has stayed behind, and nothing failed');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM postbox.parts_of(ARRAY(SELECT relation FROM postbox.outbox UNION ALL SELECT relation FROM postbox.inbox)) p
		JOIN pg_class c ON c.oid = p.part JOIN pg_class o ON o.oid = p.relation WHERE c.relowner <> o.relowner OR c.relnamespace <> o.relnamespace}), '0', 'what belongs together is together');
	wait_until($node, 'postgres', q{SELECT count(*) = 3 AND bool_and(pending = 0 AND state = 'active') FROM postbox.publication_status}, 'all are published')
	  or diag($node->safe_psql('postgres', 'SELECT * FROM postbox.publication_status'));
	my $all = join ' UNION ALL ', map { 'SELECT aggregate_id, version FROM ' . $node->safe_psql('postgres', "SELECT $oid{$_}::regclass") } sort keys %kinds;
	wait_until($node, 'postgres', "SELECT NOT EXISTS ($all EXCEPT SELECT aggregate_id, version FROM app.seen)", 'all have arrived: none is lost');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM (SELECT version, lag(version, 1, 0::bigint) OVER (PARTITION BY aggregate_id ORDER BY n) AS before FROM app.seen) e WHERE version <> before + 1}), '0', 'each key came in order, once');
	cmp_ok($node->safe_psql('postgres', "SELECT count(*) FROM ($all) o"), '>', 100, 'there were many');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.outbox_status WHERE problem IS NOT NULL'), '0', 'no outbox has a problem');
	stop_puller($puller);
};

subtest 'maintenance goes on under other names' => sub {
	# Both at a time: a worker comes to all of them in one round.
	my @logs = grep { $kinds{$_} eq 'log' } sort keys %kinds;
	for my $name (@logs)
	{
		# As long as a name may be: none made of it has room for a suffix.
		my $long = substr("renamed-$oid{$name}-" . 'y' x 63, 0, 63);
		is(alter($name, qq{RENAME TO "$long"}), '', 'renamed');
		$node->safe_psql('postgres', "DO \$\$ BEGIN EXECUTE (SELECT format('DROP TABLE %s', part) FROM postbox.past_retention((SELECT o FROM postbox.outbox o WHERE relation = $oid{$name})) part LIMIT 1); END \$\$");
	}
	my %past;
	for my $name (@logs)
	{
		wait_until($node, 'postgres', "SELECT count(*) = 6 FROM postbox.generation_partitions($oid{$name})", 'a worker makes the partition that is missing');
		is($node->safe_psql('postgres', "SELECT count(*) FROM postbox.generation_partitions($oid{$name}) p JOIN pg_class c ON c.oid = p.part JOIN pg_class o ON o.oid = $oid{$name} WHERE c.relowner <> o.relowner"), '0', 'for the owner');
		my $part = $past{$name} = $node->safe_psql('postgres', "SELECT part FROM postbox.past_retention((SELECT o FROM postbox.outbox o WHERE relation = $oid{$name})) part LIMIT 1");
		$node->safe_psql('postgres', "UPDATE $oid{$name} SET generation = p.generation FROM postbox.generation_partitions($oid{$name}) p WHERE p.part = '$part'::regclass" =~ s/UPDATE \d+/'UPDATE ' . $node->safe_psql('postgres', "SELECT $oid{$name}::regclass")/er);
	}
	wait_until($node, 'postgres', "SELECT count(*) = 0 FROM $past{$_}", 'and empties one that is past the retention') for @logs;
};

# Dropped under the worker that reads it, while events are emitted as far as they can be.
subtest 'what was dropped is put back, and publishing goes on' => sub {
	my $name = 'log';
	my $called = $node->safe_psql('postgres', "SELECT $oid{$name}::regclass");
	my $emit = "SELECT count(postbox.outbox_emit('video', 'k$oid{$name}-' || n % 5, 'video.changed', '{}'::jsonb, outbox => $oid{$name}::regclass)) FROM generate_series(1, 20) n";
	my $part = sub { return $node->safe_psql('postgres', "SELECT part FROM postbox.parts_of(ARRAY[$oid{$name}::oid]) WHERE kind = '$_[0]' ORDER BY 1 LIMIT 1"); };
	my %losses = (
		counter => sub { 'DROP TABLE ' . $part->('version counter') },
		parked => sub { 'DROP TABLE ' . $part->('table of parked events') },
		sequence => sub { "DROP SEQUENCE " . $node->safe_psql('postgres', "SELECT postbox.log_sequence($oid{$name})") . ' CASCADE' },
		index => sub { 'DROP INDEX ' . $node->safe_psql('postgres', "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = $oid{$name} AND pg_get_indexdef(indexrelid) ~ 'origin, seq'") },
		partition => sub { 'DROP TABLE ' . $node->safe_psql('postgres', "SELECT part FROM postbox.past_retention((SELECT o FROM postbox.outbox o WHERE relation = $oid{$name})) part LIMIT 1") },
		all => sub { join '; ', 'DROP TABLE ' . $part->('version counter'), 'DROP TABLE ' . $part->('table of parked events'),
			'DROP SEQUENCE ' . $node->safe_psql('postgres', "SELECT postbox.log_sequence($oid{$name})") . ' CASCADE' });
	# What failed is tried again after a fifth of a second.
	set_configuration($node, 'postbox.time_scale', 20);
	$node->reload;
	my $puller = start_puller($node, 'postgres', $emulator);
	for my $loss (sort keys %losses)
	{
		$node->psql('postgres', $emit);
		$node->safe_psql('postgres', $losses{$loss}->());
		$node->psql('postgres', $emit);
		unless ($loss eq 'partition')
		{
			isnt($node->safe_psql('postgres', "SELECT problem FROM postbox.outbox_status WHERE outbox = $oid{$name}"), '', "$loss: the status says so");
		}
		isnt($node->safe_psql('postgres', "SELECT count(*) FROM postbox.repair_outbox($oid{$name}, false)"), '0', 'it is repaired') unless $loss eq 'partition';
		is($node->safe_psql('postgres', "SELECT count(*) FROM postbox.repair_outbox($oid{$name})"), '0', 'nothing is left') unless $loss eq 'partition';
		is($node->safe_psql('postgres', $emit), '20', 'events are emitted again');
		wait_until($node, 'postgres', qq{SELECT pending = 0 AND state = 'active' FROM postbox.publication_status WHERE outbox = $oid{$name}}, 'all are published')
		  or diag($node->safe_psql('postgres', 'SELECT * FROM postbox.publication_status'));
	}
	wait_until($node, 'postgres', "SELECT NOT EXISTS (SELECT aggregate_id, version FROM $called EXCEPT SELECT aggregate_id, version FROM app.seen)", 'all have arrived: none is lost');
	is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT version, lag(version, 1, 0::bigint) OVER (PARTITION BY aggregate_id ORDER BY n) AS before FROM app.seen) e WHERE version <= before"), '0', 'each key came in order, and no version twice');
	stop_puller($puller);
};

$node->stop;
done_testing();
