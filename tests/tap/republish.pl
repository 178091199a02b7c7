# postbox.republish sends published events again: with their ids, in the order of each key, beside the live stream. What comes of a key is
# one run of old events, and live events come before or after it. Both kinds of outbox;
# several lanes; a worker that is killed while it sends.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Grpc;
use Postbox::Test;
use Test::More;

my $subscription = 'projects/postbox-dev/subscriptions/catalog.video.events.test-all';
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-all=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2, 'postbox.poll_interval' => '200ms', 'postbox.maintenance_interval' => '1h',
	'postbox.read_chunk_size' => 40, 'postbox.claim_batch_size' => 40 });
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_outbox('app.tab', 'table');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', lanes => 4);
	SELECT postbox.create_publication('tab', 'app.tab', 'catalog.video.events');
});

my @arrived;    # [ id, key, version ], in the order of arrival

# Takes what is in the subscription.
sub receive { push @arrived, taken_from($emulator, $subscription); return; }

sub settled
{
	my ($publication, $what) = @_;
	wait_until($node, 'postgres', "SELECT pending = 0 FROM postbox.publication_status WHERE publication = '$publication'", $what)
	  or diag($node->safe_psql('postgres', q{SELECT * FROM postbox.publication_status}) . $node->safe_psql('postgres', q{SELECT seq, aggregate_id, version, publish_attempts, next_retry_at, republished FROM app.log_parked ORDER BY seq LIMIT 20}) . $node->safe_psql('postgres', q{SELECT seq, aggregate_id, version, published_at, publish_attempts, next_retry_at, lock_token, locked_at FROM app.tab WHERE published_at IS NULL ORDER BY seq LIMIT 20}));
	return;
}

sub emit_keys
{
	my ($outbox, $keys, $rounds, $prefix) = @_;
	$prefix //= 'k';
	return $node->safe_psql('postgres', qq{
		SELECT count(postbox.outbox_emit('video', '$prefix' || k, 'video.changed', '{"a": 1}'::jsonb, outbox => '$outbox')) FROM generate_series(1, $rounds) r, generate_series(1, $keys) k});
}

# What is wrong with what came since the last run of old events of each key began, which begins with version 1: all versions that came are
# there, the first arrivals in order. Those that came just before the run are not sent again.
sub faults
{
	my (%came, @faults);
	push @{ $came{ $_->[1] } }, $_->[2] for @arrived;
	for my $key (sort keys %came)
	{
		my @versions = @{ $came{$key} };
		my ($begin) = grep { $versions[$_] == 1 } reverse 0 .. $#versions;
		my (%seen, %before);
		$before{$_} = 1 for @versions[ 0 .. $begin - 1 ];
		my @first = grep { !$seen{$_}++ } @versions[ $begin .. $#versions ];
		my $wrong = grep { my $at = $_; $first[$at] <= $first[ $at - 1 ] || grep { !$before{$_} } $first[ $at - 1 ] + 1 .. $first[$at] - 1 } 1 .. $#first;
		push @faults, "$key: @versions" if $wrong;
	}
	return join "\n", @faults;
}

# pgbench emits in the background until it is told to stop.
my $script = "$PostgreSQL::Test::Utils::tmp_check/live.sql";
sub start_live
{
	my ($outbox, $keys) = @_;
	unlink $script;
	append_to_file($script, "\\set key random(1, $keys)\nSELECT postbox.outbox_emit('video', 'k' || :key, 'video.changed', '{}'::jsonb, outbox => '$outbox');\n");
	my $live = { output => '' };
	$live->{run} = IPC::Run::start([ $node->installed_command('pgbench'), '-n', '-c', '2', '-T', '300', '-R', '300', '-f', $script, '-h', $node->host, '-p', $node->port, 'postgres' ],
		'>&', \$live->{output});
	return $live;
}
sub stop_live { my ($live) = @_; $live->{run}->kill_kill(); return; }

for my $kind (split / /, $ENV{KINDS} // 'log tab')
{
	my $outbox = "app.$kind";
	subtest "$kind: a dry run, and all events of some keys" => sub {
		@arrived = ();
		emit_keys($outbox, 20, 10);
		settled($kind, 'all are published');
		receive();
		is(scalar @arrived, 200, 'they have come');
		my %id_of = map { ("$_->[1] $_->[2]" => $_->[0]) } @arrived;
		is($node->safe_psql('postgres', "SELECT events, keys, total_events, resume FROM postbox.republish('$kind', dry_run => true)"), '200|20|200|', 'a dry run counts');
		is($node->safe_psql('postgres', "SELECT republishing, pending FROM postbox.publication_status WHERE publication = '$kind'"), '0|0', 'and changes nothing');
		is($node->safe_psql('postgres', "SELECT events, keys, total_events, resume FROM postbox.republish('$kind', keys => '{k1,k2}')"), '20|2|20|', 'two keys are queued');
		settled($kind, 'they are sent');
		@arrived = ();
		receive();
		for my $key ('k1', 'k2')
		{
			is(join(' ', map { $_->[2] } grep { $_->[1] eq $key } @arrived), join(' ', 1 .. 10), "$key is complete, in order");
		}
		is(scalar @arrived, 20, 'and no other');
		is(scalar(grep { $id_of{"$_->[1] $_->[2]"} ne $_->[0] } @arrived), 0, 'with the same ids');
	};

	subtest "$kind: beside a live stream" => sub {
		@arrived = ();
		emulator_fault($emulator, 'rpc=Publish,latency-ms=20');
		my $live = start_live($outbox, 20);
		for my $round (1 .. 3)
		{
			my $before = $node->safe_psql('postgres', "SELECT count(*) FROM $outbox");
			wait_until($node, 'postgres', "SELECT count(*) > $before + 50 FROM $outbox", 'the live stream goes on');
			my ($events, $keys) = split /\|/, $node->safe_psql('postgres', "SELECT events, keys FROM postbox.republish('$kind')");
			cmp_ok($events, '>=', 150, "$events events are queued");
			is($keys, 20, 'of all keys');
			wait_until($node, 'postgres', "SELECT republishing = 0 FROM postbox.publication_status WHERE publication = '$kind'", 'they are sent');
		}
		stop_live($live);
		emulator_fault($emulator, '--clear');
		settled($kind, 'all are sent');
		receive();
		is(faults(), '', 'each key is complete, in order');
	};

	subtest "$kind: a worker that is killed while it sends" => sub {
		@arrived = ();
		emulator_fault($emulator, 'rpc=Publish,latency-ms=50');
		my $live = start_live($outbox, 20);
		my $before = $node->safe_psql('postgres', "SELECT count(*) FROM $outbox");
		wait_until($node, 'postgres', "SELECT count(*) > $before + 20 FROM $outbox", 'the live stream goes on');
		$node->safe_psql('postgres', "SELECT postbox.republish('$kind')");
		wait_for(sub { receive(); @arrived > 100 }, 'some are sent');
		crash($node, (worker_pids($node, 'postgres'))[0]);
		stop_live($live);
		emulator_fault($emulator, '--clear');
		settled($kind, 'all are sent');
		receive();
		is(faults(), '', 'each key is complete, in order, but for what is sent twice');
	};
}

subtest 'tab: events that another worker has on their way' => sub {
	emit_keys('app.tab', 10, 60, 'w');
	settled('tab', 'all are published');
	receive();
	@arrived = ();
	emulator_fault($emulator, 'rpc=Publish,latency-ms=400,count=10', 'rpc=Publish,latency-ms=150');
	emit_keys('app.tab', 10, 1, 'w');
	wait_until($node, 'postgres', q{SELECT count(lock_token) = 10 FROM app.tab WHERE published_at IS NULL}, 'a new event of each key is on its way');
	is($node->safe_psql('postgres', q{SELECT events FROM postbox.republish('tab', keys => ARRAY(SELECT 'w' || k FROM generate_series(1, 10) k))}), 600, 'the old ones are queued');
	settled('tab', 'all are sent');
	emulator_fault($emulator, '--clear');
	receive();
	is(scalar @arrived, 610, 'each came once');
	is(faults(), '', 'and none within the run of its key');
};

$node->stop;
done_testing();
