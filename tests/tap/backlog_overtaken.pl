# A long backlog holds up nobody: events that come after it go out at once if their keys have none in it, and wait for their own
# earlier events if they have. So it stays when the server is stopped or killed meanwhile, and when the publication is altered.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Backlog;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

use constant MIDDLE => BACKLOG / 2;    # a key of the backlog whose turn is not soon
# So many that it lasts for a while when as many as are kept together, 8192, are published.
use constant LARGE => 14_000;
# A key of it whose turn comes when the keys of all have been read, and before half of it is published.
use constant EARLY => LARGE / 8;

start_backlog_test();
# What is asked again and again is whether events of a few keys are published.
sql('CREATE INDEX ON app.outbox (aggregate_id)');

my $expected = 0;

# `count` events. Around the middle, or else those of these numbers, each has a key of its own; of the others 25 have one, which costs a
# request for all of them.
sub emit_backlog
{
	my ($prefix, $count, @own) = @_;
	@own = (MIDDLE .. MIDDLE + 10) unless @own;
	$expected += $count;
	return "SELECT count(postbox.outbox_emit('video', '$prefix-' || CASE WHEN n IN (@{[join ', ', @own]}) THEN n::text ELSE 'many-' || n / 25 END, 'video.changed', '{}'::jsonb)) FROM generate_series(1, $count) n";
}

sub emit_watched
{
	my (@keys) = @_;
	$expected += @keys;
	return join('; ', map { "SELECT postbox.outbox_emit('video', '$_', 'video.watched', '{}'::jsonb)" } @keys);
}

sub pending { return sql("SELECT pending FROM postbox.publication_status"); }

# The condition that an event of the log is published, as far as the lanes have stored it.
use constant IS_READ => q{(SELECT bool_or(postbox.has_read(l, e.txid, e.seq)) FROM postbox.publication p JOIN postbox.lane_progress l ON l.publication = p.name
	WHERE l.slice = postbox.lane_slice(e.aggregate_id, p.lanes))};

# The events of these keys are published while much of the backlog is waiting.
sub overtake
{
	my ($backlog, $what, @keys) = @_;
	my $list = join ', ', map { "'$_'" } @keys;
	wait_until($node, 'postgres', "SELECT bool_and(@{[IS_READ]}) FROM app.outbox e WHERE aggregate_id IN ($list)", "$what: published");
	cmp_ok(pending(), '>', $backlog / 4, "$what: the backlog is still there");
	return;
}

sub has_come
{
	my ($key, $versions, $what) = @_;
	return is(sql("SELECT coalesce(string_agg(version::text, ' ' ORDER BY n), '') FROM app.seen WHERE aggregate_id = '$key'"), $versions, $what);
}

sub finish
{
	my ($what) = @_;
	fast();
	most_outstanding(20_000);
	wait_until($node, 'postgres', "SELECT pending = 0 FROM postbox.publication_status", "$what: all is published");
	wait_until($node, 'postgres', "SELECT bool_and(ahead IS NULL) FROM postbox.lane", "$what: there is one position again");
	most_outstanding(MOST_OUTSTANDING);
	return;
}

# A worker that leaves may not get the result of what was on its way.
sub each_once
{
	my ($what, %options) = @_;
	$expected = sent_once($emulator, $node, $expected, "$what: each event was sent once", $options{left} ? MOST_OUTSTANDING : 0);
	return;
}

sub set_publishers
{
	my ($count, $what) = @_;
	set_configuration($node, 'postbox.publishers', $count);
	$node->reload;
	return wait_workers($node, 'postgres', $count, $what);
}

subtest 'a lane that is given up is taken where it stands: nothing is sent again' => sub {
	slow();
	sql(emit_backlog('c', BACKLOG));
	my $key = 'c-' . MIDDLE;
	sql(emit_watched($key, 'given-1'));
	overtake(BACKLOG, 'before', 'given-1');
	wait_until($node, 'postgres', 'SELECT bool_and(ahead IS NOT NULL) FROM postbox.lane', 'the position of what was read ahead is stored');
	set_publishers(0, 'the worker has left');
	my $left = $expected - messages_published($emulator);
	is(sql("SELECT count(*) FROM app.outbox e WHERE @{[IS_READ]} IS NOT TRUE"),
		$left, 'of each event is known whether it was read');
	cmp_ok(abs(pending() - $left), '<', $left / 20, 'the status counts those that were not');
	is(sql("SELECT bool_or(NOT postbox.is_read('app.outbox', relid)) FROM pg_partition_tree('app.outbox') WHERE isleaf"), 't', 'retention keeps the log');
	set_publishers(1, 'another worker has come');
	sql(emit_watched($key, 'given-2'));
	overtake(BACKLOG, 'after', 'given-2');
	finish('given up');
	wait_until($node, 'postgres', "SELECT count(*) = 2 FROM app.seen WHERE aggregate_id = '$key'", 'the key of the backlog has come');
	has_come($key, '2 3', 'in order');
	each_once('given up', left => 1);
};

# These have one backlog, which lasts for 42 s.
most_outstanding(MOST_OUTSTANDING / 2);
slow();
sql(emit_backlog('a', BACKLOG));
my @own = map { 'a-' . (MIDDLE + $_) } 0 .. 3;

subtest 'events of other keys do not wait for a mass of new ones, those of the same keys do' => sub {
	sql(emit_watched($own[0], 'other-1', 'other-2', $own[1], 'other-1'));
	overtake(BACKLOG, 'other keys', 'other-1', 'other-2');
	is(sql("SELECT string_agg((@{[IS_READ]})::text, ' ' ORDER BY version) FROM app.outbox e WHERE aggregate_id = '$own[0]'"), 'false false', 'the key of the backlog waits')
	  or diag(sql("SELECT e.seq, e.txid FROM app.outbox e WHERE aggregate_id = '$own[0]'; SELECT * FROM postbox.lane"));
	sql(emit_watched('other-3', $own[0]));
	overtake(BACKLOG, 'another one', 'other-3');
	my $pending;
	wait_for(sub { ($pending = pending()) < BACKLOG }, 'the status does not count what has been published');
	cmp_ok($pending, '>', BACKLOG / 4, 'while most of it waits');
};

subtest 'the keys are divided meanwhile: nothing is sent again' => sub {
	sql(emit_watched($own[2], $own[3], 'divided-1', 'divided-2'));
	overtake(BACKLOG, 'before', 'divided-1', 'divided-2');
	sql("SELECT postbox.alter_publication('videos', lanes => 3)");
	wait_until($node, 'postgres', "SELECT count(*) = 3 FROM postbox.lane WHERE lock_token IS NOT NULL", 'there are three lanes');
	sql(emit_watched($own[2], $own[3], 'divided-3', 'divided-4', 'divided-1'));
	overtake(BACKLOG, 'after', 'divided-1', 'divided-2', 'divided-3', 'divided-4');
	sql("SELECT postbox.alter_publication('videos', lanes => 1)");
	finish('a mass of new events');
	wait_until($node, 'postgres', "SELECT count(*) = 20 FROM app.seen", 'the others have come, too');
	has_come($_, $_ eq $own[1] ? '2' : '2 3', 'in order') for @own;
	has_come($_, '1 2', 'in order') for 'other-1', 'divided-1';
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM postbox.lane", 'there is one lane again');
	each_once('a mass of new events');
};

subtest 'a key waits for its own earlier events, not for the end of the backlog' => sub {
	slow(LATENCY / 4);
	sql(emit_backlog('own', LARGE, EARLY, LARGE));
	sql(emit_watched('own-' . EARLY, 'own-' . LARGE, 'own-other'));
	overtake(LARGE, 'another key', 'own-other');
	# After the turn of the first key. In between no event is fast.
	wait_until($node, 'postgres', "SELECT pending < @{[LARGE / 2]} FROM postbox.publication_status", 'half of the backlog is published');
	emulator_fault($emulator, '--clear', "rpc=Publish,action=delay,latency-ms=@{[LATENCY / 2]},count=1000000");
	wait_until($node, 'postgres', "SELECT bool_and(@{[IS_READ]}) FROM app.outbox e WHERE aggregate_id = 'own-@{[EARLY]}'", 'both events of the first key are published');
	cmp_ok(pending(), '>', LARGE / 8, 'the backlog is still there');
	is(sql("SELECT string_agg((@{[IS_READ]})::text, ' ' ORDER BY version) FROM app.outbox e WHERE aggregate_id = 'own-@{[LARGE]}'"), 'false false', 'its last key waits');
	# Whoever has the lane next knows what is withheld.
	fast();
	$node->restart;
	finish('own earlier events');
	wait_until($node, 'postgres', "SELECT count(*) = 2 FROM app.seen WHERE aggregate_id IN ('own-@{[EARLY]}', 'own-@{[LARGE]}')", 'the keys of the backlog have come');
	has_come("own-$_", '2', 'after its first one') for EARLY, LARGE;
	each_once('own earlier events', left => 1);
};

subtest 'events do not wait for a mass that was committed late' => sub {
	# Some thousands of the mass are published first, as many as are read together.
	slow(LATENCY / 2);
	my $late = $node->background_psql('postgres', on_error_stop => 1);
	$late->query_safe('BEGIN');
	$late->query_safe(emit_backlog('b', BACKLOG));
	# It ends after the mass.
	my $open = $node->background_psql('postgres', on_error_stop => 1);
	$open->query_safe('BEGIN');
	$open->query_safe(emit_watched('open'));
	sql(emit_watched('meanwhile'));
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM app.seen WHERE aggregate_id = 'meanwhile'", 'one that was emitted meanwhile has come');
	# It is seen together with the mass, and before the last of its events.
	my $worker = worker_pid($node, 'postgres');
	stop_between_transactions($node, $worker);
	sql(emit_watched('together'));
	$late->query_safe(emit_backlog('b-last', 100));
	$late->query_safe('COMMIT');
	kill('CONT', $worker);
	$late->quit;
	sql(emit_watched('b-' . MIDDLE, 'afterwards'));
	overtake(BACKLOG, 'one that was emitted afterwards', 'afterwards');
	overtake(BACKLOG, 'one that was committed together with it', 'together');
	$open->query_safe('COMMIT');
	$open->quit;
	overtake(BACKLOG, 'one that was emitted before its end and committed after it', 'open');
	finish('a mass of late events');
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM app.seen WHERE aggregate_id = 'b-@{[MIDDLE]}'", 'the key of the late ones has come');
	each_once('a mass of late events');
};

subtest 'a refused event of the backlog keeps its key waiting, whatever comes after the backlog' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison', "rpc=Publish,action=delay,latency-ms=@{[LATENCY]},count=1000000");
	sql("SELECT postbox.alter_publication('videos', max_attempts => 1)");
	my ($before, $after) = (emit_backlog('e', MIDDLE), emit_backlog('f', MIDDLE));
	sql("BEGIN; $before; SELECT postbox.outbox_emit('video', 'refused', 'video.poison', '{}'::jsonb); $after; COMMIT");
	sql(emit_watched('refused', 'unrefused'));
	overtake(BACKLOG, 'another key', 'unrefused');
	emulator_fault($emulator, '--clear', 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison');
	wait_until($node, 'postgres', "SELECT string_agg(version::text, ' ' ORDER BY seq) = '1 2' FROM app.outbox_parked WHERE aggregate_id = 'refused'", 'both events of the key are parked')
	  or diag(sql('SELECT * FROM postbox.publication_status; SELECT aggregate_id, version, last_error FROM app.outbox_parked'));
	fast();
	sql("SELECT postbox.redrive('app.outbox')");
	wait_until($node, 'postgres', "SELECT pending = 0 FROM postbox.publication_status", 'all is published');
	++$expected;
	each_once('a refused event');
};

subtest 'killed at any moment, nothing is lost and no event comes before an earlier one of its key' => sub {
	slow();
	sql("DELETE FROM app.seen");
	sql(emit_backlog('g', BACKLOG));
	for my $round (1 .. 6)
	{
		sql(join '; ', map { emit_watched("kill-$_", 'g-' . (MIDDLE + $_)) } 1 .. 10);
		wait_until($node, 'postgres', "SELECT count(*) FILTER (WHERE @{[IS_READ]}) >= $round FROM app.outbox e WHERE aggregate_id LIKE 'kill-%'", "round $round: something is published");
		$node->stop('immediate');
		$node->start;
		wait_workers($node, 'postgres', 1, "round $round: a worker has come");
	}
	finish('killed');
	wait_until($node, 'postgres', "SELECT count(*) >= 120 FROM app.seen", 'all has come');
	is(sql("SELECT count(*) FROM (SELECT version, lag(version) OVER (PARTITION BY aggregate_id ORDER BY n) AS before FROM app.seen) s WHERE version <= before"),
		0, 'each key in order');
	is(sql("SELECT count(*) FROM (SELECT aggregate_id, max(version) - min(version) + 1 AS span, count(*) AS came FROM app.seen GROUP BY 1) s WHERE span <> came"), 0, 'without a gap');
	cmp_ok(messages_published($emulator), '>=', $expected, 'nothing is lost');
};

# From here on no transaction has an id but those of the test, so that the long one is above all that have ended.
stop_puller($puller);

subtest 'one event that is committed late beside a mass is not lost, however little is read at a time' => sub {
	set_configuration($node, $_->[0], $_->[1]) for [ 'postbox.read_chunk_size', 1 ], [ 'postbox.checkpoint_interval', '60s' ];
	$node->restart;
	wait_until($node, 'postgres', 'SELECT bool_and(lock_token IS NOT NULL) FROM postbox.lane', 'a worker has the lane');
	my $before = messages_published($emulator);
	my ($early, $mass, $open) = map { $node->background_psql('postgres', on_error_stop => 1) } 1 .. 3;
	$early->query_safe('BEGIN; SELECT pg_current_xact_id()');
	$mass->query_safe('BEGIN; ' . emit_backlog('h', BACKLOG));
	$open->query_safe('BEGIN; ' . emit_watched('open'));
	$early->query_safe(emit_watched('early') . '; COMMIT');
	wait_for(sub { messages_published($emulator) > $before }, 'the lane has looked beyond all of them');
	my $worker = worker_pid($node, 'postgres');
	stop_between_transactions($node, $worker);
	is(sql('SELECT pg_snapshot_xmax(pg_current_snapshot())::text::bigint') <= $mass->query_safe('SELECT pg_current_xact_id()'), 1, 'no later transaction has ended');
	$_->query_safe('COMMIT') for $mass, $open;
	kill('CONT', $worker);
	wait_for(sub { messages_published($emulator) > $before + 20 }, 'the mass is read');
	set_configuration($node, 'postbox.read_chunk_size', undef);
	most_outstanding(20_000);
	wait_for(sub { messages_published($emulator) >= $before + BACKLOG + 2 }, 'all are published') or diag(messages_published($emulator) - $before);
	is(messages_published($emulator), $before + BACKLOG + 2, 'once');
	$_->quit for $early, $mass, $open;
};

$node->stop;
stop_emulator($emulator);
done_testing();
