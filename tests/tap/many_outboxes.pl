# Many outboxes of one worker: a commit in one of them makes it look at that one, and the poll at those whose sequence has moved.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $outboxes = 15;  # more than all of which claim at each poll

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '60s', 'autovacuum' => 'off' });
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE SCHEMA app');
for my $n (1 .. $outboxes)
{
	$node->safe_psql('postgres', "SELECT postbox.create_outbox('app.o$n'); SELECT postbox.create_publication('o$n', 'app.o$n', 'catalog.video.events')");
}
my $sent = 0;

sub emit
{
	my ($n) = @_;
	return "SELECT postbox.outbox_emit('video', 'one', 'video.changed', '{}'::jsonb, outbox => 'app.o$n')";
}

sub arrives
{
	my ($what, @statements) = @_;
	$node->safe_psql('postgres', $_) for @statements;
	$sent += @statements;
	return wait_for(sub { messages_published($emulator) >= $sent }, $what);
}

# How often the worker has looked into each outbox, as the server counts.
sub looks
{
	wait_reported($node);
	return split / /, $node->safe_psql('postgres', q{SELECT string_agg(scans::text, ' ' ORDER BY n) FROM (SELECT substring(relname, '^o(\d+)_g')::int AS n,
		sum(idx_scan) AS scans FROM pg_stat_all_indexes WHERE schemaname = 'app' AND indexrelname LIKE '%\_seq_idx' GROUP BY 1) s});
}

subtest 'a commit in an outbox makes the worker look at no other' => sub {
	arrives("an event of outbox $_ is published", emit($_)) for 1 .. $outboxes;
	my @before = looks();
	is(scalar @before, $outboxes, 'all are counted');
	arrives('events of one are published', map { emit(3) } 1 .. 5);
	my @after = looks();
	cmp_ok($after[2], '>', $before[2], 'it has looked at that one');
	# Another one may share its mark in the set.
	my @others = grep { $_ != 2 && $after[$_] != $before[$_] } 0 .. $outboxes - 1;
	cmp_ok(scalar @others, '<=', 1, 'and not at the others');
};

subtest 'nor does a statement whose changed rows are stored together' => sub {
	$node->safe_psql('postgres', q{CREATE TABLE app.video (id int PRIMARY KEY); SELECT postbox.create_change_triggers('app.video', 'video', outbox => 'app.o5')});
	my @before = looks();
	$sent += 9;
	arrives('its events are published', 'INSERT INTO app.video SELECT generate_series(1, 10)');
	my @after = looks();
	cmp_ok($after[4], '>', $before[4], 'the worker has looked at their outbox');
	my @others = grep { $_ != 4 && $after[$_] != $before[$_] } 0 .. $outboxes - 1;
	cmp_ok(scalar @others, '<=', 1, 'and not at the others');
};

$node->append_conf('postgresql.conf', "postbox.poll_interval = '20ms'");
$node->reload;

subtest 'plain INSERTs are found' => sub {
	arrives('those of each outbox are published', map {
		"INSERT INTO app.o$_ (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'video', 'plain', 'video.changed', 1, '{}')"
	} 1 .. $outboxes);
};

subtest 'a row that keeps the seq it had is found, too, by a claim in turn' => sub {
	arrives('those of each outbox are published', map {
		"SET session_replication_role = replica; INSERT INTO app.o$_ (seq, id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (1, gen_random_uuid(), 'video', 'copied', 'video.changed', 1, '{}')"
	} 1 .. $outboxes);
};

subtest 'an outbox that is created, dropped or truncated beside them holds up none' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.drop_outbox('app.o1'); TRUNCATE app.o2});
	arrives('events are published', emit(2), emit($outboxes));
};

$node->stop;
done_testing();
