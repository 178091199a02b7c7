# SIGHUP changes settings.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'max_prepared_transactions' => 5, 'postbox.maintenance_interval' => '1h' });
$node->start;
create_outbox($node, 'postgres');
emit($node, 'postgres', 5);
wait_published($node, 'postgres', 5);

sub set
{
	my ($name, $value) = @_;
	$node->append_conf('postgresql.conf', "$name = '$value'");
	$node->reload;
	return;
}

subtest 'postbox.publishers starts and stops workers' => sub {
	set('postbox.publishers', 3);
	wait_workers($node, 'postgres', 3);
	wait_until($node, 'postgres', "SELECT array_agg(ordinal ORDER BY ordinal) = '{0,1,2}' AND count(DISTINCT lock_token) = 3 FROM postbox.workers WHERE state = 'running'", 'each is another one');
	emit($node, 'postgres', 50);
	wait_published($node, 'postgres', 55);
	set('postbox.publishers', 1);
	wait_workers($node, 'postgres', 1);
};

subtest 'with postbox.publishers = 0 events wait, and leave when it is raised again' => sub {
	set('postbox.publishers', 0);
	wait_workers($node, 'postgres', 0);
	emit($node, 'postgres', 5);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE published_at IS NULL'), '5', 'nobody publishes');
	set('postbox.publishers', 1);
	wait_published($node, 'postgres', 60);
};

subtest 'postbox.endpoint takes effect in the running worker' => sub {
	my $other = start_emulator();
	wait_workers($node, 'postgres', 1);
	set('postbox.endpoint', $other->{endpoint});
	stop_emulator($emulator);
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 65);
};

subtest 'a value that makes no sense is refused, and the workers go on with the old one' => sub {
	my $position = log_position($node);
	set('postbox.publishers', 'many');
	wait_for(sub { log_since($node, $position) =~ /invalid value for parameter "postbox.publishers"/ }, 'the log says so');
	emit($node, 'postgres', 5);
	wait_published($node, 'postgres', 70);
};

subtest 'a commit wakes the worker, which need not wait for its poll' => sub {
	set('postbox.poll_interval', '60s');
	wait_until($node, 'postgres', "SELECT current_setting('postbox.poll_interval') = '1min'", 'the poll is a minute away');
	my $count = 70;
	my $start = time;
	for (1 .. 3)
	{
		emit($node, 'postgres', 1);
		wait_published($node, 'postgres', ++$count);
	}
	# Nobody knows what a prepared transaction did, so COMMIT PREPARED wakes too.
	$node->safe_psql('postgres', q{
		BEGIN;
		SELECT postbox.outbox_emit('video', 'video-1', 'video.created', '{}'::jsonb);
		PREPARE TRANSACTION 'emits';
	});
	$node->safe_psql('postgres', q{COMMIT PREPARED 'emits'});
	wait_published($node, 'postgres', ++$count, 'the event of a prepared transaction');
	$node->safe_psql('postgres', q{
		SELECT postbox.alter_publication('videos', aggregate_types => '{other}');
		SELECT postbox.outbox_emit('video', 'video-1', 'video.created', '{}'::jsonb);
	});
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', aggregate_types => '{}')});
	wait_published($node, 'postgres', ++$count, 'an event that waited for its publication');
	cmp_ok(time - $start, '<', 120, 'five waits took less than two polls');
};

subtest 'a shorter postbox.maintenance_interval does not wait for the end of the longer one' => sub {
	$node->safe_psql('postgres', "UPDATE app.outbox SET published_at = now() - interval '8 days'");
	set('postbox.maintenance_interval', '1s');
	wait_until($node, 'postgres', 'SELECT count(*) = 0 FROM app.outbox', 'what is older than the retention is purged');
};

$node->stop;
done_testing();
