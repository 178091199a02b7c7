# A log is emptied with TRUNCATE ... RESTART IDENTITY, and then has a long backlog: no key of that is overtaken.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

use constant TOPIC => 'catalog.video.events';
use constant BACKLOG => 20_000;

my $emulator = start_emulator('--subscription', "@{[TOPIC]}.follower=@{[TOPIC]},ordered");
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms', 'postbox.checkpoint_interval' => '100ms', 'autovacuum' => 'off',
	'postbox.max_outstanding_messages' => 1000 });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
follow($node, 'postgres', "@{[TOPIC]}.follower", 'video.watched');
my $puller = start_puller($node, 'postgres', $emulator);

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

sub slow { emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=500,count=1000000'); return; }
sub fast { emulator_fault($emulator, '--clear'); return; }

# As many keys as events; that of one of them is watched.
sub emit_backlog
{
	my ($prefix, $count, $watched) = @_;
	return sql("SELECT count(postbox.outbox_emit('video', '$prefix-' || n, CASE n WHEN $watched THEN 'video.watched' ELSE 'video.changed' END, '{}'::jsonb))
		FROM generate_series(1, $count) n");
}

sub emit_watched
{
	my (@keys) = @_;
	sql("SELECT postbox.outbox_emit('video', '$_', 'video.watched', '{}'::jsonb)") for @keys;
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

subtest 'no key of a backlog is overtaken whose numbers had been read before the log was emptied' => sub {
	emit_backlog('b', 5000, 1);
	wait_until($node, 'postgres', "SELECT pending = 0 AND (SELECT bool_and(hwm = 5000) FROM postbox.lane) FROM postbox.publication_status", 'as many numbers are read');
	set_workers(0);
	sql('TRUNCATE app.outbox RESTART IDENTITY');
	slow();
	emit_backlog('c', BACKLOG, 4900);
	# More transactions and numbers than anybody looks through for copied rows.
	sql("SELECT setval('app.outbox_seq', 1200000)");
	sql('DO $$ BEGIN FOR i IN 1 .. 6000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$');
	emit_watched('c-4900', 'after');
	set_workers(1, 'postbox.checkpoint_interval' => '60s');
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM app.seen WHERE aggregate_id = 'after'", 'an event of another key has overtaken the backlog');
	fast();
	wait_come('c-4900', '1 2', 'a key of the backlog');
};

stop_puller($puller);
$node->stop;
stop_emulator($emulator);
done_testing();
