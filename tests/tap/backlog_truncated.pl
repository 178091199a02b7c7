# A log is emptied with TRUNCATE ... RESTART IDENTITY while a lane reads ahead of a long backlog, or before it does: what is brought back is
# published, and of the new backlog no key is overtaken.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Backlog;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

# Where it is enough that a lane falls behind. At half the rate it lasts for 16 s.
use constant SHORT => 4000;

start_backlog_test();

# 25 events of each key but the one that is watched, which has one.
sub backlog
{
	my ($prefix, $first, $last, $watched) = @_;
	return "SELECT count(postbox.outbox_emit('video', '$prefix-' || CASE n WHEN $watched THEN n::text ELSE 'many-' || n / 25 END, CASE n WHEN $watched THEN 'video.watched' ELSE 'video.changed' END, '{}'::jsonb))
		FROM generate_series($first, $last) n";
}

sub emit_backlog
{
	my ($prefix, $count, $watched) = @_;
	return sql(backlog($prefix, 1, $count, $watched));
}

sub emit_watched
{
	my (@keys) = @_;
	sql(join '; ', map { "SELECT postbox.outbox_emit('video', '$_', 'video.watched', '{}'::jsonb)" } @keys);
	return;
}

sub wait_come
{
	my ($key, $versions, $what) = @_;
	wait_until($node, 'postgres', "SELECT count(*) >= @{[scalar split ' ', $versions]} FROM app.seen WHERE aggregate_id = '$key'", "$what: all of $key have come");
	return is(sql("SELECT string_agg(version::text, ' ' ORDER BY n) FROM app.seen WHERE aggregate_id = '$key'"), $versions, "$what: $key in order");
}

sub set_workers
{
	my ($count, %settings) = @_;
	$node->append_conf('postgresql.conf', join("\n", "postbox.publishers = $count", map { "$_ = '$settings{$_}'" } keys %settings));
	$node->reload;
	wait_workers($node, 'postgres', $count);
	return;
}

subtest 'what the lane had not read when its log was emptied is published when it comes back' => sub {
	slow(4 * LATENCY);
	emit_backlog('a', SHORT, SHORT - 1);
	# What it sees together with the backlog is part of that.
	wait_for(sub { messages_published($emulator) > 0 }, 'the lane has fallen behind');
	emit_watched('a-' . (SHORT - 1), 'before');
	wait_until($node, 'postgres', 'SELECT bool_and(ahead IS NOT NULL) FROM postbox.lane', 'the lane reads ahead');
	sql('CREATE TABLE app.saved AS SELECT * FROM app.outbox; CREATE TABLE app.last AS SELECT last_value FROM app.outbox_seq; TRUNCATE app.outbox RESTART IDENTITY');
	fast();
	# The worker looks at the empty log, again and again.
	sql("SELECT postbox.create_outbox('app.clock'); SELECT postbox.create_publication('clock', 'app.clock', '@{[TOPIC]}')");
	for my $tick (1 .. 10)
	{
		sql("SELECT postbox.outbox_emit('clock', 'clock', 'ticked', '{}'::jsonb, outbox => 'app.clock')");
		wait_until($node, 'postgres', "SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'clock'", "tick $tick");
	}
	sql("SELECT postbox.drop_publication('clock'); SELECT postbox.drop_outbox('app.clock')");
	my $published = messages_published($emulator);
	most_outstanding(20_000);
	# In this order: while the sequence is set back, an empty log is not taken for one that is read.
	sql('SET session_replication_role = replica; INSERT INTO app.outbox SELECT * FROM app.saved; RESET session_replication_role');
	sql("SELECT setval('app.outbox_seq', last_value) FROM app.last");
	wait_come('a-' . (SHORT - 1), '1 2', 'after the log came back');
	wait_until($node, 'postgres', "SELECT pending = 0 AND (SELECT bool_and(ahead IS NULL) FROM postbox.lane) FROM postbox.publication_status WHERE publication = 'videos'", 'all is published')
	  or diag(sql('SELECT * FROM postbox.publication_status'));
	most_outstanding(MOST_OUTSTANDING);
	cmp_ok($published, '<', SHORT, 'much was missing');
	cmp_ok(messages_published($emulator), '>=', 10 + SHORT + 2, 'nothing is lost');
};

subtest 'no key of a backlog is overtaken whose numbers had been read before the log was emptied' => sub {
	sql('TRUNCATE app.outbox RESTART IDENTITY');
	emit_backlog('b', 500, 1);
	wait_until($node, 'postgres', "SELECT pending = 0 AND (SELECT bool_and(hwm = 500) FROM postbox.lane) FROM postbox.publication_status", 'as many numbers are read');
	set_workers(0);
	sql('TRUNCATE app.outbox RESTART IDENTITY');
	slow();
	# More transactions and numbers than anybody looks through for repeated ones.
	sql(join('; ', 'BEGIN', backlog('c', 1, 600, 490), "SELECT setval('app.outbox_seq', 1200000)", backlog('c', 601, BACKLOG, 490), 'COMMIT'));
	sql('DO $$ BEGIN FOR i IN 1 .. 6000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$');
	emit_watched('c-490', 'after');
	set_workers(1, 'postbox.checkpoint_interval' => '60s');
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM app.seen WHERE aggregate_id = 'after'", 'an event of another key has overtaken the backlog');
	fast();
	wait_come('c-490', '1 2', 'a key of the backlog');
};

stop_puller($puller);
$node->stop;
stop_emulator($emulator);
done_testing();
