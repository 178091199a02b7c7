# TRUNCATE ... RESTART IDENTITY of a log, as test suites clean up with: what is emitted afterwards has sequence numbers that had
# been read, and is published nevertheless, whether workers run meanwhile or not.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 2, 'postbox.checkpoint_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log', lanes => 4);
my $published = 0;

sub wait_all
{
	my ($what) = @_;
	wait_for(sub { messages_published($emulator) >= $published }, $what);
	wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', "$what: that is stored");
	$published = sent_once($emulator, $node, $published, "$what, and nothing twice");
	return;
}

sub emit_more
{
	my ($count) = @_;
	emit($node, 'postgres', $count);
	$published += $count;
	return;
}

sub event_of { my ($key) = @_; return "SELECT postbox.outbox_emit('video', '$key', 'video.created', '{}'::jsonb)"; }
sub emit_key { my ($key) = @_; return $node->safe_psql('postgres', event_of($key)); }

my $truncate = 'TRUNCATE app.outbox RESTART IDENTITY';
my $many_transactions = 'DO $$ BEGIN FOR i IN 1 .. 6000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$';

subtest 'while workers run' => sub {
	for my $count (100, 110, 20, 300)
	{
		emit_more($count);
		wait_all("$count events");
		$node->safe_psql('postgres', $truncate);
	}
	wait_until($node, 'postgres', 'SELECT last_error IS NULL FROM postbox.publication_status', 'no error is shown');
};

subtest 'lanes that get none of the new events store that the log began again, too' => sub {
	set_configuration($node, 'postbox.maintenance_interval', '1h');
	$node->reload;
	emit_more(100);
	wait_all('100 events');
	wait_until($node, 'postgres', 'SELECT min(hwm) >= 100 FROM postbox.lane', 'all lanes have passed them');
	$node->safe_psql('postgres', $truncate);
	emit_key('one');
	++$published;
	wait_all('one event');
	wait_until($node, 'postgres', 'SELECT max(hwm) = 1 FROM postbox.lane', 'no lane has an earlier position');
	set_configuration($node, 'postbox.maintenance_interval', undef);
	$node->reload;
};

subtest 'what is refused after its log was emptied parks no new event of the same number' => sub {
	my ($fired, $errors) = (counted($emulator, 'faults_fired'), counted($emulator, 'errors'));
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,latency-ms=5000,count=1');
	# A session that is there before, since all of this is to happen before the refusal.
	my $session = $node->background_psql('postgres');
	emit_key('refused');
	wait_for(sub { counted($emulator, 'faults_fired') > $fired }, 'an event is on its way');
	$session->query_safe($truncate);
	$session->query_safe(event_of('next'));
	$session->quit;
	++$published;
	wait_for(sub { messages_published($emulator) >= $published }, 'the next one, which has its number, is published');
	wait_for(sub { counted($emulator, 'errors') > $errors }, 'the first one is refused');
	emit_key('next');
	++$published;
	wait_all('another one of its key');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox_parked'), '0', 'nothing is parked');
};

subtest 'while none runs, with more transactions in between than anybody looks through' => sub {
	emit_more(100);
	wait_all('100 events');
	wait_until($node, 'postgres', 'SELECT min(hwm) >= 100 FROM postbox.lane', 'the position is stored');
	$node->append_conf('postgresql.conf', 'postbox.publishers = 0');
	$node->reload;
	wait_workers($node, 'postgres', 0);
	$node->safe_psql('postgres', $truncate);
	$node->safe_psql('postgres', $many_transactions);
	emit_more(150);
	$node->append_conf('postgresql.conf', 'postbox.publishers = 2');
	$node->reload;
	wait_all('150 events');
};

subtest 'while the workers have its lanes and read nothing for as many transactions' => sub {
	$node->restart;
	my $hwm = $node->safe_psql('postgres', 'SELECT last_value FROM app.outbox_seq');
	emit_more(10);
	wait_all('10 events');
	my @pids = worker_pids($node, 'postgres');
	stop_between_transactions($node, @pids);
	$node->safe_psql('postgres', $truncate);
	$node->safe_psql('postgres', $many_transactions);
	emit_more($hwm + 50);
	kill('CONT', @pids);
	wait_all('all events');
};

subtest 'the status counts what no worker has read yet' => sub {
	emit_more(50);
	wait_all('50 events');
	my @pids = worker_pids($node, 'postgres');
	stop_between_transactions($node, @pids);
	$node->safe_psql('postgres', $truncate);
	$node->safe_psql('postgres', $many_transactions);
	emit_more(10);
	is($node->safe_psql('postgres', 'SELECT sum(pending) FROM postbox.publication_status'), 10, 'although they have numbers that were read before');
	kill('CONT', @pids);
	wait_all('10 events');
};

subtest 'a log whose rows are put back is not read again' => sub {
	$node->safe_psql('postgres', 'CREATE TABLE copy AS SELECT * FROM app.outbox');
	my $last = $node->safe_psql('postgres', 'SELECT last_value FROM app.outbox_seq');
	$node->safe_psql('postgres', $truncate);
	$node->restart;
	wait_until($node, 'postgres', 'SELECT count(*) = 4 FROM postbox.lane JOIN postbox.workers USING (lock_token)', 'workers have the lanes');
	$node->safe_psql('postgres', 'SET session_replication_role = replica; INSERT INTO app.outbox SELECT * FROM copy');
	$node->safe_psql('postgres', "SELECT setval('app.outbox_seq', $last)");
	emit_more(10);
	wait_all('10 events');
};

subtest 'a log that is only empty is not read again' => sub {
	$node->safe_psql('postgres', 'DELETE FROM app.outbox');
	$node->restart;
	emit_more(10);
	wait_all('10 events');
};

subtest 'a log with rows that were read goes on where it was' => sub {
	$node->restart;
	emit_more(10);
	wait_all('10 events');
};

$node->stop;
done_testing();
