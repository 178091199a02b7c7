# A key may stand still for days behind an event that cannot be published, and go on emitting. However many events wait there,
# other keys cost what they cost without them, for both kinds of outbox: counted in rows and index entries that workers read.
# When the event is through or discarded, what waits follows in steps, in order, and each event once. POSTBOX_WAITING is how
# many events wait.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $waiting = $ENV{POSTBOX_WAITING} // 1200;
my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.poll_interval' => '10s',    # a poll passes old index entries until a VACUUM
	'postbox.maintenance_interval' => '1h',    # no repair
	'autovacuum' => 'off',
	# Smaller than what waits.
	'postbox.read_chunk_size' => 100,
	'postbox.claim_batch_size' => 150,
});
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', max_attempts => 1);
	SELECT postbox.create_outbox('app.tab', 'table');
	SELECT postbox.create_publication('tab', 'app.tab', 'catalog.video.events', max_attempts => 1);
});
my %parked = (
	log => 'SELECT count(*) FROM app.log_parked',
	tab => 'SELECT count(*) FROM app.tab WHERE published_at IS NULL AND next_retry_at IS NOT NULL AND lock_token IS NULL');
my %table = (log => 'log_parked', tab => 'tab');

sub emit_to
{
	my ($outbox, $key, $type, $count) = @_;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('video', '$key', 'video.$type', '{}'::jsonb, outbox => 'app.$outbox')) FROM generate_series(1, $count)");
	return;
}

sub wait_parked
{
	my ($outbox, $count, $what) = @_;
	wait_until($node, 'postgres', "SELECT ($parked{$outbox}) = $count", $what)
	  or diag($node->safe_psql('postgres', "$parked{$outbox}; SELECT publication_status::text FROM postbox.publication_status"));
	return;
}

# By what the server counts, which reads nothing of the table.
sub few
{
	my ($read, $most, $outbox, $what) = @_;
	cmp_ok($read, '<', $most, "$read entries for $what")
	  or diag($node->safe_psql('postgres', "SELECT indexrelname, idx_scan, idx_tup_read FROM pg_stat_all_indexes WHERE relname = '$table{$outbox}'"));
	return;
}

sub wait_written
{
	my ($outbox, $column, $count, $what) = @_;
	wait_until($node, 'postgres', "SELECT $column >= $count FROM pg_stat_all_tables WHERE relname = '$table{$outbox}'", $what)
	  or diag($node->safe_psql('postgres', "SELECT $column FROM pg_stat_all_tables WHERE relname = '$table{$outbox}'"));
	return;
}

sub wait_sent
{
	my ($count, $what) = @_;
	wait_for(sub { messages_published($emulator) >= $count }, $what) or diag(messages_published($emulator));
	return;
}

# Rows of the table, and entries of its indexes, that were read since the server started.
sub entries_read
{
	my ($outbox) = @_;
	wait_reported($node);
	return $node->safe_psql('postgres', "SELECT sum(idx_tup_read) + (SELECT seq_tup_read FROM pg_stat_all_tables WHERE relname = '$table{$outbox}') FROM pg_stat_all_indexes WHERE relname = '$table{$outbox}'");
}

my $poison = 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison';
emulator_fault($emulator, $poison);

for my $outbox ('log', 'tab')
{
	my ($before, $read);
	my $log = $outbox eq 'log';

	subtest "parking what comes behind a parked event of a $outbox outbox reads each event a few times" => sub {
		emit_to($outbox, 'stuck', 'poison', 1);
		wait_parked($outbox, 1, 'the event is parked');
		$before = entries_read($outbox);
		emit_to($outbox, 'stuck', 'changed', $waiting / 2) for 1 .. 2;
		wait_written($outbox, $log ? 'n_tup_ins' : 'n_tup_upd', $waiting, 'what follows is parked');
		$read = entries_read($outbox) - $before;
		few($read, ($log ? 8 : 60) * $waiting, $outbox, "$waiting events");
	};

	subtest "other keys of a $outbox outbox do not read what waits" => sub {
		wait_parked($outbox, $waiting + 1, 'all of it waits');
		$node->safe_psql('postgres', "VACUUM ANALYZE app.$table{$outbox}");
		my $sent = messages_published($emulator);
		$before = entries_read($outbox);
		for my $round (1 .. 20) { emit_to($outbox, "healthy-$round", 'changed', 5); wait_sent($sent + 5 * $round, 'they are published'); }
		$read = entries_read($outbox) - $before;
		few($read, $waiting, $outbox, '100 events');
	};

	subtest "what waits in a $outbox outbox follows a redriven event, each event once" => sub {
		emulator_fault($emulator, '--clear');
		my $sent = messages_published($emulator);
		$node->safe_psql('postgres', "VACUUM ANALYZE app.$table{$outbox}");
		# A backup has a snapshot: entries of what is deleted stay in the indexes.
		my $backup = $node->background_psql('postgres', on_error_stop => 1);
		$backup->query_safe('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1') if $log;
		$before = entries_read($outbox);
		is($node->safe_psql('postgres', "SELECT postbox.redrive('app.$outbox')"), '1', 'one event is redriven');
		wait_sent($sent + $waiting + 1, 'all are published');
		$read = entries_read($outbox) - $before;
		few($read, 10 * $waiting, $outbox, "$waiting events");
		wait_parked($outbox, 0, 'nothing is parked any more');
		$backup->quit;
		is(messages_published($emulator), $sent + $waiting + 1, 'no event was sent twice');
	};

	subtest "discarding an event of a $outbox outbox does not touch what waits behind it" => sub {
		emulator_fault($emulator, $poison);
		my $few = $waiting / 10;
		emit_to($outbox, 'discarded', 'poison', 1);
		wait_parked($outbox, 1, 'the event is parked');
		emit_to($outbox, 'discarded', 'changed', $few);
		wait_parked($outbox, $few + 1, 'so is what follows');
		my $sent = messages_published($emulator);
		my $id = $node->safe_psql('postgres', q{SELECT first_event_id FROM postbox.paused_keys});
		my ($discarded, $changed) = split /\n/, $node->safe_psql('postgres', "BEGIN; SELECT postbox.discard('app.$outbox', '$id'); SELECT n_tup_upd + n_tup_del FROM pg_stat_xact_all_tables WHERE relname = '$table{$outbox}'; COMMIT");
		is($discarded, 't', 'the event is discarded');
		cmp_ok($changed, '<=', 2, 'with two rows changed');
		wait_sent($sent + $few, 'the rest is published');
		wait_parked($outbox, 0, 'nothing is parked any more');
		is(messages_published($emulator), $sent + $few, 'no event was sent twice');
	};
}

subtest 'the log has a line for many parked events' => sub {
	my $start = log_position($node);
	for my $outbox ('log', 'tab')
	{
		$node->safe_psql('postgres', "SELECT postbox.outbox_emit('video', 'bad-' || $_ || '-' || n, 'video.poison', '{}'::jsonb, outbox => 'app.$outbox') FROM generate_series(1, 10) n") for 1 .. 20;
		wait_parked($outbox, 200, 'they are parked');
		my $lines = () = log_since($node, $start) =~ /publication "$outbox": event \S+ of key "bad-\S+" has failed permanently: INVALID_ARGUMENT/g;
		# One in ten seconds: more only on a machine that takes that long.
		cmp_ok($lines, '<=', 4, "$lines lines");
	}
};

$node->stop;
done_testing();
