# The files for exporters show what postbox.metrics has: Debian's prometheus-postgres-exporter and prometheus-sql-exporter, as a member of pg_monitor.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use HTTP::Tiny;
use IO::Socket::INET;
use PostgreSQL::Test::Utils;
use Postbox::Test;
use POSIX ();
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'listen_addresses' => own_address(), 'postbox.publishers' => 1 });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
# The gauges of a paused publication stand still.
$node->safe_psql('postgres', q{CREATE ROLE exporter LOGIN PASSWORD 'x' IN ROLE pg_monitor; SELECT postbox.create_inbox('app."In box"')});
$node->append_conf('pg_hba.conf', 'host all exporter 127.0.0.0/8 trust');
$node->reload;
emit($node, 'postgres', 10);
$node->safe_psql('postgres', q{SELECT postbox.inbox_apply('app."In box"', 'one', 'video.created', 'video', 'v', 1, '\x7b7d'::bytea)});
wait_until($node, 'postgres', q{SELECT value = 10 FROM postbox.metrics WHERE name = 'postbox_published_events_total'}, 'events are published');
emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND,count=1');
emit($node, 'postgres', 1);
wait_until($node, 'postgres', q{SELECT value = 11 FROM postbox.metrics WHERE name = 'postbox_published_events_total'}, 'one after an error');
wait_until($node, 'postgres', q{SELECT count(*) = 3 FROM postbox.metrics WHERE name IN ('postbox_parked_events', 'postbox_inbox_retention_behind_seconds', 'postbox_metrics_gauges_age_seconds')},
	'the gauges are measured');

my $examples = "$ENV{POSTBOX_BUILD_DIR}/tree/control/exporters";
my $place = $node->host =~ m{^/} ? own_address() . ':' . $node->port : $node->host . ':' . $node->port;
my $connection = "postgres://exporter\@$place/postgres?sslmode=disable";
my @pids;

sub free_port
{
	my $socket = IO::Socket::INET->new(Listen => 1, LocalAddr => own_address(), LocalPort => 0) or BAIL_OUT("no port: $!");
	return $socket->sockport;
}

sub start
{
	my ($log, %how) = @_;
	my $pid = fork() // BAIL_OUT("fork: $!");
	if ($pid == 0)
	{
		$ENV{$_} = $how{environment}{$_} for keys %{ $how{environment} // {} };
		open(STDOUT, '>', $log) and open(STDERR, '>&', \*STDOUT) and exec(@{ $how{command} });
		POSIX::_exit(127);
	}
	push @pids, $pid;
	return;
}

# { 'name{label="value",...}' => value } of those of Postbox; labels are sorted, and empty ones left out.
sub scrape
{
	my ($address, $prefix) = @_;
	my $answer = HTTP::Tiny->new(timeout => 20)->get("http://$address/metrics");
	return {} unless $answer->{success};
	my %samples;
	for (split /\n/, $answer->{content})
	{
		next unless my ($name, $labels, $value) = /^${prefix}((?:postbox|messaging|rpc)_\w+)(?:\{(.*)\})? (\S+)$/;
		my %labels = ($labels // '') =~ /(\w+)="((?:[^"\\]|\\.)*)"/g;
		delete @labels{ 'server', 'sql_job', 'driver', 'host', 'database', 'user', 'col' };
		my $text = join ',', map { my $v = $labels{$_} =~ s/\\(.)/$1/gr; "$_=$v" } grep { $labels{$_} ne '' } sort keys %labels;
		$samples{"$name\{$text}"} = $value;
	}
	return \%samples;
}

# Names whose values change between two looks.
my $moving = qr/^postbox_(oldest_pending_age_seconds|metrics_gauges_age_seconds|standby_wait_seconds)/;

sub expected
{
	my (@without) = @_;
	my %samples;
	for (split /\n/, $node->safe_psql('postgres', q{SELECT name || '{' || coalesce((SELECT string_agg(key || '=' || value, ',' ORDER BY key COLLATE "C") FROM jsonb_each_text(labels) WHERE value <> ''), '') || '}', value FROM postbox.metrics}))
	{
		my ($series, $value) = /^(.*)\|(\S+)$/;
		$samples{$series} = $value;
	}
	delete @samples{ grep { my $series = $_; grep { $series =~ /^$_\{/ } @without } keys %samples };
	return \%samples;
}

sub shows_all
{
	my ($what, $address, $prefix, @without) = @_;
	subtest $what => sub {
		my ($shown, $expected);
		wait_for(sub { $shown = scrape($address, $prefix); $expected = expected(@without); return join(' ', sort keys %$shown) eq join(' ', sort keys %$expected); }, 'it answers, with every series');
		is_deeply([ sort keys %$shown ], [ sort keys %$expected ], 'every series');
		my @differ = grep { $_ !~ $moving && abs($shown->{$_} - $expected->{$_}) > 1e-6 * (1 + abs $expected->{$_}) } grep { exists $shown->{$_} } sort keys %$expected;
		is(join("\n", map { "$_ $shown->{$_}, not $expected->{$_}" } @differ), '', 'with its value');
	};
	return;
}

# The exporters ask for one name after another.
subtest 'the queries of an exporter make each row once' => sub {
	my $rows = $node->safe_psql('postgres', 'SELECT count(*) FROM postbox.metrics');
	for my $file (qw(postgres-exporter.yml sql-exporter.yml))
	{
		my $made = 0;
		for my $query (slurp_file("$examples/$file") =~ /^ +query: >-\n((?: +(?:SELECT|FROM) .*\n?)+)/mg)
		{
			my $plan = $node->safe_psql('postgres', "EXPLAIN (ANALYZE, COSTS off, TIMING off, FORMAT JSON) $query");
			my ($of_scan) = $plan =~ /"Function Name": "list_metrics"(.*?)\}/s or BAIL_OUT("no such scan: $plan");
			my ($number, $loops) = map { $of_scan =~ /"Actual $_": ([\d.]+)/ } qw(Rows Loops);
			$made += $number * $loops;
		}
		is($made + ($file =~ /^postgres/ ? 1 : 0), $rows, "$file" . ($file =~ /^postgres/ ? ', which has no postbox_info' : ''));
	}
};

my $address = own_address() . ':' . free_port();
start("$PostgreSQL::Test::Utils::log_path/postgres_exporter.log",
	command => [ 'prometheus-postgres-exporter', "--web.listen-address=$address", "--extend.query-path=$examples/postgres-exporter.yml", '--disable-default-metrics', '--disable-settings-metrics' ],
	environment => { DATA_SOURCE_NAME => $connection });
shows_all('prometheus-postgres-exporter', $address, '', 'postbox_info');

my $configuration = slurp_file("$examples/sql-exporter.yml");
$configuration =~ s{^( +- )postgres://.*$}{$1$connection}m or BAIL_OUT('no connection in the example');
$configuration =~ s/^( +interval:) .*$/$1 2s/m or BAIL_OUT('no interval in the example');
PostgreSQL::Test::Utils::append_to_file(my $file = PostgreSQL::Test::Utils::tempdir() . '/sql-exporter.yml', $configuration);
$address = own_address() . ':' . free_port();
start("$PostgreSQL::Test::Utils::log_path/sql_exporter.log", command => [ 'prometheus-sql-exporter', '-config.file', $file, '-web.listen-address', $address ]);
shows_all('prometheus-sql-exporter', $address, 'sql_');

kill 'TERM', @pids;
waitpid($_, 0) for @pids;
done_testing();
