# However large events are and however many there are, a worker takes a bounded amount of memory: less than four times
# postbox.max_outstanding_bytes, in claims, in repeats after failures and of parked events alike. Here that is 28 MB. With
# POSTBOX_MEMORY_TIMES, which multiplies the number of events of each case, it is the default of 64 MB.
# Measured is RssAnon of /proc/PID/status, which is resident less shared in the shorter statm, read every few milliseconds by a
# process of its own: what the worker has allocated, without shared_buffers and the pages of files.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $budget = $ENV{POSTBOX_MEMORY_TIMES} ? 64 : 28;    # MB
my $limit = 4 * $budget * 1024;    # kB
my $largest = 9_990_000;    # a request has 10,000,000 bytes at most
my $large = 156_000 * $budget;
my $too_large = 4_700_000 * $budget;
my $times = $ENV{POSTBOX_MEMORY_TIMES} || 1;
my $timeout = '5s';
my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.max_outstanding_bytes' => "${budget}MB",
	'postbox.publish_timeout' => $timeout,
	'postbox.poll_interval' => '100ms',
	'shared_buffers' => '32MB',
	'max_wal_size' => '4GB',
	'fsync' => 'off',
	'default_toast_compression' => 'lz4',    # in a tenth of the time
});
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE SCHEMA app');

# Runs a function; then the worker must be the same and must never have had more memory than it may have.
sub bounded
{
	my ($what, $function) = @_;
	my $pid = worker_pid($node, 'postgres');
	pipe(my $stop_reader, my $stop) or BAIL_OUT("pipe: $!");
	pipe(my $result, my $result_writer) or BAIL_OUT("pipe: $!");
	my $watcher = fork() // BAIL_OUT("fork: $!");
	if ($watcher == 0)
	{
		close($stop);
		my $peak = 0;
		open(my $memory, '<', "/proc/$pid/statm") or POSIX::_exit(1);
		my $stopped = IO::Select->new($stop_reader);
		until ($stopped->can_read(0.003))
		{
			sysseek($memory, 0, 0) && sysread($memory, my $pages, 256) or last;
			my (undef, $resident, $shared) = split / /, $pages;
			$peak = $resident - $shared if $resident - $shared > $peak;
		}
		syswrite($result_writer, $peak * POSIX::sysconf(POSIX::_SC_PAGESIZE()) / 1024);
		POSIX::_exit(0);
	}
	close($result_writer);
	$function->();
	close($stop);
	my $peak = <$result>;
	waitpid($watcher, 0);
	is((worker_pids($node, 'postgres'))[0], $pid, 'the worker lives');
	cmp_ok($peak, '>', 0, 'its memory is seen');
	cmp_ok($peak, '<', $limit, sprintf('%s: at most %d MiB', $what, $peak / 1024));
	return;
}

# Emits in one transaction, so that one claim sees all of it. `keys`: how many; `bytes`: of a payload, which is easily
# compressed; `attributes`: how many of 1,000 bytes.
sub emit_events
{
	my ($outbox, %of) = @_;
	my $key = $of{key} // "'key-' || n % $of{keys}";
	my $type = $of{type} // 'changed';
	my $attributes = $of{attributes} // 0;
	$node->safe_psql(
		'postgres', qq{
		SELECT count(postbox.outbox_emit('video', $key, 'video.$type', (SELECT convert_to(repeat('x', $of{bytes}), 'UTF8')), attributes => a.all, outbox => 'app.$outbox'))
		FROM generate_series(1, $of{count} * $times) n,
			(SELECT coalesce(jsonb_object_agg('name-' || i, repeat('y', 1000)), '{}') FROM generate_series(1, $attributes) i OFFSET 0) a("all")
	});
	return;
}

# How long an event is tried: long where all of them are sent, short where none is.
sub set_timeout
{
	my ($time) = @_;
	set_configuration($node, 'postbox.publish_timeout', $time);
	$node->reload;
	return;
}

my $sent = 0;

sub wait_sent
{
	my ($count, $what) = @_;
	$sent += $count * $times;
	wait_for(sub { messages_published($emulator) >= $sent }, $what)
	  or diag(messages_published($emulator) . " of $sent\n" . $node->safe_psql('postgres', 'SELECT s::text FROM postbox.publication_status s'));
	return;
}

my %parked = (
	log => 'SELECT count(*) FROM app.log_parked WHERE true',
	tab => 'SELECT count(*) FROM app.tab WHERE published_at IS NULL AND next_retry_at IS NOT NULL AND lock_token IS NULL');

sub wait_parked
{
	my ($outbox, $count) = @_;
	wait_until($node, 'postgres', "SELECT ($parked{$outbox} AND next_retry_at = 'infinity') >= $count", "$count events are parked")
	  or diag($node->safe_psql('postgres', "$parked{$outbox}; SELECT s::text FROM postbox.publication_status s"));
	return;
}

for my $outbox ('log', 'tab')
{
	my $kind = $outbox eq 'log' ? 'log' : 'table';
	$node->safe_psql(
		'postgres', qq{
		SELECT postbox.create_outbox('app.$outbox', '$kind');
		SELECT postbox.create_publication('$outbox', 'app.$outbox', 'catalog.video.events', max_attempts => 1, base_backoff => '100ms', max_backoff => '100ms');
	});
	wait_workers($node, 'postgres' => 1);
	emit_events($outbox, count => 10, keys => 10, bytes => 10);
	wait_sent(10, 'the first events are sent');

	subtest "many events of 10 MB in a $outbox outbox" => sub {
		emulator_fault($emulator, 'rpc=Publish,latency-ms=200');
		bounded('in one claim', sub { emit_events($outbox, count => $budget / 2, keys => $budget / 2, bytes => $largest); wait_sent($budget / 2, 'all are sent') });
		emulator_fault($emulator, '--clear');
	};

	subtest "events of a tenth of that in a $outbox outbox" => sub {
		bounded('in one claim', sub { emit_events($outbox, count => 300, keys => 100, bytes => $large / 10); wait_sent(300, 'all are sent') });
	};

	subtest "events with 100 attributes in a $outbox outbox" => sub {
		bounded('in one claim', sub { emit_events($outbox, count => 50 * $budget, keys => 100, bytes => 100, attributes => 85); wait_sent(50 * $budget, 'all are sent') });
	};

	subtest "events that are not compressed in a $outbox outbox" => sub {
		$node->safe_psql('postgres', "ALTER TABLE app.$outbox ALTER payload SET STORAGE EXTERNAL");
		bounded('in one claim', sub { emit_events($outbox, count => 14, keys => 14, bytes => $large); wait_sent(14, 'all are sent') });
		$node->safe_psql('postgres', "ALTER TABLE app.$outbox ALTER payload SET STORAGE EXTENDED");
	};

	subtest "small events before large ones in a $outbox outbox" => sub {
		bounded('mixed', sub {
			emit_events($outbox, count => 5000, keys => 1000, bytes => 61 * $budget);
			emit_events($outbox, count => 14, keys => 7, bytes => $large);
			emit_events($outbox, count => 1000, keys => 100, bytes => 470 * $budget);
			emit_events($outbox, count => 14, keys => 7, bytes => $large);
			wait_sent(6028, 'all are sent');
		});
	};

	subtest "repeats after an outage in a $outbox outbox" => sub {
		bounded('unknown, then sent', sub {
			emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE');
			set_timeout('1s');
			emit_events($outbox, count => 26, keys => 26, bytes => $large);
			emit_events($outbox, count => 40, keys => 26, bytes => $large / 10);
			wait_until($node, 'postgres', "SELECT bool_or(attempts > 0) FROM postbox.publication_state WHERE publication = '$outbox'", 'the result is unknown');
			set_timeout($timeout);
			emulator_fault($emulator, '--clear');
			wait_sent(66, 'all are sent');
		});
	};

	subtest "parked events of a $outbox outbox" => sub {
		bounded('parked and redriven', sub {
			emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison');
			emit_events($outbox, count => 1, key => "'stuck'", type => 'poison', bytes => $large);
			emit_events($outbox, count => 2, keys => 2, type => 'poison', bytes => $large);
			wait_parked($outbox, 3 * $times);
			emit_events($outbox, count => 26, key => "'stuck'", bytes => $large);
			emit_events($outbox, count => 2, keys => 2, bytes => $large);
			wait_parked($outbox, 31 * $times);
			emulator_fault($emulator, '--clear');
			$node->safe_psql('postgres', "SELECT postbox.redrive('app.$outbox')");
			wait_sent(31, 'all are sent');
		});
	};

	subtest "an event in a $outbox outbox that is larger than any message" => sub {
		bounded('parked', sub {
			$node->safe_psql('postgres', "INSERT INTO app.$outbox (id, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at)"
				. " SELECT gen_random_uuid(), 'video', 'too-large', 'video.changed', 1, 'v1', convert_to(repeat('x', n), 'UTF8'), '{}', now() FROM generate_series($too_large, $too_large) n");
			wait_parked($outbox, 1);
		});
		like($node->safe_psql('postgres', 'SELECT last_error FROM postbox.paused_keys'), qr/has $too_large bytes/, 'the reason is shown');
	};
	$node->safe_psql('postgres', "SELECT postbox.drop_outbox('app.$outbox')");
}

subtest 'many publications share the budget' => sub {
	$node->safe_psql('postgres', "SELECT postbox.create_outbox('app.log')");
	emit_events('log', count => 6, keys => 3, bytes => $large);
	emulator_fault($emulator, 'rpc=Publish,latency-ms=300');
	bounded('each has large events', sub {
		$node->safe_psql('postgres', "SELECT postbox.create_publication('p' || n, 'app.log', 'catalog.video.events') FROM generate_series(1, 6) n");
		wait_sent(6 * 6, 'all are sent');
	});
};

$node->stop;
done_testing();
