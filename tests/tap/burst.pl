# A burst into an outbox that was small: the plans of the worker's statements were made when there was next to nothing in its tables, and
# nothing renews them, since autovacuum has not come yet. What is counted is what they read: not the time, and not the plans.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

use constant TOPIC => 'catalog.video.events';
use constant BURST => 6_000;
# Entries of indexes and rows that publishing an event may read: it is looked at, locked, leased and confirmed, and its key is looked up.
use constant MOST => 12;

my $emulator = start_emulator('--subscription', TOPIC . '.follower=' . TOPIC . ',ordered,filter=attributes.aggregate_type = "item"');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1, 'postbox.poll_interval' => '10s', 'autovacuum' => 'off',
	# A burst is so many claims and chunks.
	'postbox.claim_batch_size' => BURST / 40, 'postbox.read_chunk_size' => BURST / 10 });
$node->start;

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

# Tables as Postbox makes them, of three tenants, and one of an application, with an index of its own on what waits.
my @tables = qw(first second third adopted);
sql(q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	CREATE TABLE app.adopted (
		id uuid PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, version bigint NOT NULL,
		schema_version text NOT NULL DEFAULT 'v1', payload jsonb NOT NULL, occurred_at timestamptz NOT NULL DEFAULT now(), published_at timestamptz,
		publish_attempts int NOT NULL DEFAULT 0, next_retry_at timestamptz, lock_token text, locked_at timestamptz);
	CREATE INDEX ON app.adopted (published_at) WHERE published_at IS NULL;
	CREATE INDEX ON app.adopted (lock_token);
	SELECT postbox.adopt_outbox('app.adopted');
});
sql("SELECT postbox.create_outbox('app.$_', 'table')") for qw(first second third);
sql("SELECT postbox.create_publication('$_', 'app.$_', '@{[TOPIC]}')") for @tables;

sub insert
{
	my ($count, @into) = @_;
	my $payload = q{'{"title": "a title of some length"}'};
	# In one transaction.
	sql(join ';', 'BEGIN', (map { my $text = $_ eq 'adopted' ? "$payload\::jsonb" : "$payload\::bytea";
		"INSERT INTO app.$_ (id, aggregate_type, aggregate_id, event_type, version, payload)
			SELECT gen_random_uuid(), 'video', 'key-' || n, 'video.changed', n, $text FROM generate_series(1, $count) n" } @into), 'SELECT postbox.wake_publishers()', 'COMMIT');
	return;
}

# By what the emulator counts, which reads nothing of a table.
my $sent = 0;
sub wait_sent
{
	my ($count) = @_;
	$sent += $count;
	wait_for(sub { messages_published($emulator) >= $sent }, "$sent events are sent");
	return;
}

# What was read of tables: entries of indexes and rows, and pages of indexes.
sub read_of
{
	my $tables = join ', ', map { "'app.$_'::regclass" } @_;
	wait_reported($node);
	return split /\|/, sql(qq{SELECT (SELECT sum(idx_tup_read) FROM pg_stat_all_indexes WHERE relid IN ($tables)) +
		(SELECT sum(seq_tup_read) FROM pg_stat_all_tables WHERE relid IN ($tables)),
		(SELECT sum(idx_blks_hit + idx_blks_read) FROM pg_statio_all_indexes WHERE relid IN ($tables))});
}

sub explain
{
	my $tables = join ', ', map { "'app.$_'::regclass" } @_;
	diag(sql("SELECT i.indexrelname, i.idx_scan, i.idx_tup_read, b.idx_blks_hit FROM pg_stat_all_indexes i JOIN pg_statio_all_indexes b USING (indexrelid) WHERE i.relid IN ($tables)"));
	return;
}

# The statistics are those of a few rows that are published.
for my $analyze (1, 0)
{
	insert(10, @tables);
	wait_until($node, 'postgres', "SELECT count(*) = 0 FROM app.$_ WHERE published_at IS NULL", "$_ is published") for @tables;
	$sent += 10 * @tables;
	sql("VACUUM (ANALYZE) app.$_") for $analyze ? @tables : ();
}

# The events have keys of their own, and their results come in any order. The more scattered those are, the more ranges of what waits are looked
# at again, with what is dead in them: so the least of some bursts counts. A plan that reads all that waits reads it in each of them.
sub entries_of_burst
{
	my ($table) = @_;
	return sql("SELECT sum(idx_tup_read) + (SELECT seq_tup_read FROM pg_stat_all_tables WHERE relid = 'app.$table'::regclass) FROM pg_stat_all_indexes WHERE relid = 'app.$table'::regclass") / BURST;
}

my $worker = worker_pid($node, 'postgres');
for my $into ([ 'first' ], [ 'adopted' ], [ 'second', 'third' ])
{
	my %least;
	for (1 .. 4)
	{
		sql('SELECT pg_stat_reset()');
		insert(BURST, @$into);
		wait_sent(BURST * @$into);
		read_of(@$into);
		for my $table (@$into)
		{
			my $read = entries_of_burst($table);
			$least{$table} = $read if $read < ($least{$table} // $read + 1);
		}
		last unless grep { $_ >= MOST } values %least;
	}
	ok($least{$_} > 1 && $least{$_} < MOST, sprintf('%.1f entries are read for an event of a burst into %s', $least{$_}, $_)) or explain($_) for @$into;
}
is(worker_pid($node, 'postgres'), $worker, 'one worker has published all of them, with the plans that it had made');

# A log: reading it writes nothing, but what is refused is parked, with what comes behind it, found again and published later.
sql("SELECT postbox.create_outbox('app.log'); SELECT postbox.create_publication('log', 'app.log', '@{[TOPIC]}', max_attempts => 1)");
my @log = ('log_parked', split /\n/, sql(q{SELECT c.relname FROM postbox.generation_partitions('app.log') p JOIN pg_class c ON c.oid = p.part}));
emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison');

sub emit_to_log
{
	my ($keys, $behind) = @_;
	sql("SELECT count(postbox.outbox_emit('video', 'key-' || k, CASE n WHEN 0 THEN 'video.poison' ELSE 'video.changed' END, '{}'::jsonb, outbox => 'app.log'))
		FROM generate_series(1, $keys) k, generate_series(0, $behind) n");
	return;
}

sub wait_parked { my ($count) = @_; wait_until($node, 'postgres', "SELECT count(*) = $count FROM app.log_parked", "$count are parked"); return; }

emit_to_log(2, 0);
wait_parked(2);
sql("VACUUM (ANALYZE) app.$_") for @log;
emit_to_log(4, 0);
wait_parked(6);
my @refused = read_of(@log);
# The worker looks while the transaction is running, so its events are late.
my $other = q{SELECT count(postbox.outbox_emit('video', '%s-' || n, 'video.changed', '{}'::jsonb, outbox => 'app.log')) FROM generate_series(1, %d) n};
my $writer = $node->background_psql('postgres');
$writer->query_safe('BEGIN; ' . sprintf($other, 'other', 1));
sql(sprintf($other, 'beside', 1));
wait_sent(1);
$writer->query_safe(sprintf($other, 'other', BURST - 2) . '; COMMIT');
$writer->quit;
wait_sent(BURST - 1);
my @published = read_of(@log);
my $read = ($published[0] - $refused[0]) / BURST;
cmp_ok($read, '<', 4, sprintf('%.1f entries are read for an event of a burst into a log', $read)) or explain(@log);
# They are found in front of a backlog without reading it.
sub pages_by_seq { return sql(q{SELECT sum(idx_blks_hit + idx_blks_read) FROM pg_statio_all_indexes WHERE indexrelname ~ '^log_g._origin_seq_idx$'}); }
my $before = pages_by_seq();
sql(qq{SELECT count(postbox.outbox_emit('video', 'key-' || k, CASE n WHEN 0 THEN 'video.poison' ELSE 'video.changed' END, '{}'::jsonb, outbox => 'app.log'))
		FROM generate_series(1, 60) k, generate_series(0, 5) n;
	SELECT count(postbox.outbox_emit('video', 'later-' || n, 'video.changed', '{}'::jsonb, outbox => 'app.log')) FROM generate_series(1, @{[2 * BURST]}) n});
wait_until($node, 'postgres', 'SELECT count(*) = 6 + 360 FROM app.log_parked', 'events are parked, and those behind them');
wait_sent(2 * BURST);
my @parked = read_of(@log);
$read = ($parked[0] - $published[0] - 2 * BURST) / 360;
# The keys of the backlog are read, too, once or with new ones: 34 for each of these events.
cmp_ok($read, '<', 70, sprintf('%.1f entries are read to park an event of a log', $read)) or explain(@log);
# To emit an event touches two pages of an index.
my $pages = (pages_by_seq() - $before) / (2 * BURST + 360);
cmp_ok($pages, '<', 3.5, sprintf('%.1f pages of the index by seq are touched to emit an event of a log, to publish and to park it', $pages)) or explain(@log);
emulator_fault($emulator, '--clear');
sql(q{SELECT postbox.redrive('app.log')});
wait_sent(6 + 360);
my @redriven = read_of(@log);
$read = ($redriven[0] - $parked[0]) / 360;
$pages = ($redriven[1] - $parked[1]) / 360;
cmp_ok($read, '<', 20, sprintf('%.1f entries are read to publish a parked event of a log', $read)) or explain(@log);
cmp_ok($pages, '<', 100, sprintf('%.1f pages of indexes are read to publish a parked event of a log', $pages)) or explain(@log);

# What emits and what applies: sessions of applications, whose plans are made by costs unless they find rows by a key.
sql(qq{
	CREATE TABLE app.item (id text PRIMARY KEY, title text, note text, version bigint NOT NULL);
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_projection('app.inbox', '{item.changed,item.removed}', 'app.item', delete_types => '{item.removed}');
	SELECT postbox.create_subscription('follower', 'app.inbox', '@{[TOPIC]}.follower', appliers => 1);
});
my $puller = start_puller($node, 'postgres', $emulator);

# Every third event leaves a column as it is, which is an UPDATE.
sub emit_items
{
	my ($session, $count) = @_;
	$session->query_safe(qq{SELECT count(postbox.outbox_emit('item', 'item-' || n, CASE n % 10 WHEN 9 THEN 'item.removed' ELSE 'item.changed' END,
		CASE n % 3 WHEN 0 THEN '{"title": "x"}' ELSE '{"title": "x", "note": "y"}' END::jsonb, outbox => 'app.log')) FROM generate_series(1, $count) n});
	$sent += $count;
	return;
}

my $applied = 0;
sub wait_applied { my ($count) = @_; $applied += $count; wait_until($node, 'postgres', "SELECT sum(applied) = $applied FROM postbox.subscription_status", "$applied are applied"); return; }

my $session = $node->background_psql('postgres');
emit_items($session, 10);
wait_applied(10);
my @of_items = ('item', 'inbox', 'inbox_tombstone', 'log_version');
sql("VACUUM (ANALYZE) app.$_") for @of_items;
# More often than plans are tried out. (What is applied is acknowledged at once, and reported a second later.)
for (1 .. 12)
{
	emit_items($session, 50);
	$applied += 50;
	wait_for(sub { counted($emulator, 'acked') >= $applied }, "$applied are acknowledged");
}
sql('SELECT pg_stat_reset()');
emit_items($session, 2000) for 1 .. 2;
wait_applied(4000);
$session->quit;
stop_puller($puller);
my $scans = q{SELECT coalesce(string_agg(format('%s %s: %s', relname, seq_scan, seq_tup_read), ', '), 'none') FROM pg_stat_user_tables WHERE relname ~ '^(item|inbox.*|log_version)$' AND seq_tup_read > 10000};
wait_until($node, 'postgres', q{SELECT n_tup_upd >= 1600 FROM pg_stat_user_tables WHERE relname = 'item'}, 'what was read to apply them is known');
is(sql($scans), 'none', 'no table is read from end to end for an event that is emitted or applied');

sent_once($emulator, $node, $sent, 'each event is sent once');
$node->stop;
done_testing();
