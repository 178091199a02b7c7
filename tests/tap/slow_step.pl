# A step on an outbox that took long once: while other publications have the worker, its results are stored before its leases end, and it
# goes on before long.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use List::Util qw(max);
use Postbox::Delivery;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(sleep time);

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.poll_interval' => '50ms',
	'postbox.lease_timeout' => '10s',
	'postbox.time_scale' => 20,
});
$node->start;
create_outbox($node, 'postgres');
# All times of the publisher are a fifth of what they are otherwise. The first claim is cancelled after 0.2 s. The second takes 0.58 s, since
# it catches its cancellation.
$node->safe_psql('postgres', q{
	SELECT postbox.create_outbox('app.other', 'table');
	SELECT postbox.create_publication('other', 'app.other', 'catalog.video.events');
	CREATE SEQUENCE app.called;
	CREATE FUNCTION app.slow() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		CASE nextval('app.called')
			WHEN 1 THEN PERFORM pg_sleep(100);
			WHEN 2 THEN BEGIN PERFORM pg_sleep(100); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(0.18); END;
			ELSE NULL;
		END CASE;
		RETURN NEW;
	END $$;
	CREATE TRIGGER slow BEFORE UPDATE ON app.outbox FOR EACH ROW WHEN (NEW.lock_token IS NOT NULL) EXECUTE FUNCTION app.slow();
});

sub emit_one { return $node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'x', 'video.created', '{}'::jsonb, outbox => 'app.outbox')}); }

subtest 'what a slow claim has taken is stored before its lease ends' => sub {
	emit_one();
	wait_for(sub { messages_published($emulator) > 0 }, 'the event is sent');
	$node->append_conf('postgresql.conf', 'postbox.publishers = 2');
	$node->reload;
	wait_until($node, 'postgres', 'SELECT count(published_at) = 1 FROM app.outbox', 'that is stored');
	is(messages_published($emulator), 1, 'it was sent once');
	unlike(log_since($node, 0), qr/took over 1 events/, 'by one worker');
};

subtest 'a worker that was stopped for a while in the middle of a step goes on before long' => sub {
	$node->append_conf('postgresql.conf', "postbox.publishers = 1\npostbox.lease_timeout = '5min'");
	$node->restart;
	$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION app.slow() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			IF nextval('app.called') = 1 THEN EXECUTE format('COPY (SELECT 1) TO PROGRAM %L', 'kill -STOP ' || pg_backend_pid()); PERFORM pg_sleep(100); END IF;
			RETURN NEW;
		END $$;
		SELECT setval('app.called', 1, false)});
	wait_workers($node, 'postgres', 1);
	my $pid = worker_pid($node, 'postgres');
	emit_one();
	wait_for(sub { slurp_file("/proc/$pid/stat") =~ /\) T / }, 'the worker is stopped in a claim');
	sleep(1.4);
	kill('CONT', $pid);
	my $start = time;
	wait_until($node, 'postgres', 'SELECT count(*) = count(published_at) FROM app.outbox', 'the event is published');
	cmp_ok(time - $start, '<', 8, 'within 8 seconds');
};

# Its owner's code takes a tenth of a second for each event, when it is claimed or when its result is stored.
subtest 'an outbox of which every step is slow has a small part of the time of the worker' => sub {
	my %when = (claimed => 'lock_token IS NOT NULL', settled => 'published_at IS NOT NULL');
	set_configuration($node, 'postbox.claim_batch_size', 1);
	$node->reload;
	$node->safe_psql('postgres', qq{
		SELECT postbox.create_outbox('app.$_', 'table');
		SELECT postbox.create_publication('$_', 'app.$_', 'catalog.video.events');
		CREATE SEQUENCE app.${_}_slowly;
		CREATE FUNCTION app.${_}_slowly() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM nextval(\$s\$app.${_}_slowly\$s\$), pg_sleep(0.1); RETURN NEW; END';
		SELECT postbox.outbox_emit('video', 'first', 'video.created', '{}'::jsonb, outbox => 'app.$_')}) for keys %when;
	# Of a publication of which nothing has gone through more than one event is claimed.
	wait_until($node, 'postgres', "SELECT count(published_at) = 1 FROM app.$_", "a first event of $_ is published") for keys %when;
	my $begin = time;
	$node->safe_psql('postgres', qq{
		CREATE TRIGGER slow BEFORE UPDATE ON app.$_ FOR EACH ROW WHEN (NEW.$when{$_}) EXECUTE FUNCTION app.${_}_slowly();
		SELECT count(postbox.outbox_emit('video', 'same', 'video.created', '{}'::jsonb, outbox => 'app.$_')) FROM generate_series(1, 100)}) for keys %when;
	wait_until($node, 'postgres', "SELECT last_value > 1 FROM app.${_}_slowly", "$_ slowly: the code runs") for keys %when;
	sleep(max(0, 5 - (time - $begin)));
	for my $outbox (keys %when)
	{
		my $held = 0.1 * $node->safe_psql('postgres', "SELECT last_value FROM app.${outbox}_slowly");
		my $part = $held / (time - $begin);
		# A ninth, but for what is forgiven.
		cmp_ok($part, '<', 0.3, sprintf('%s slowly: %.2f of the time', $outbox, $part));
	}
};

$node->stop;
done_testing();
