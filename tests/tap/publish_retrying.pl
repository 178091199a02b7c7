# When Pub/Sub cannot be reached, the status says so within a second or so of the first failed attempt, and the log has one line at the
# beginning, one a minute, and one at the end, whatever the number of workers and of events.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

my $emulator = start_emulator('--topic', 'catalog.other.events');
my ($port) = $emulator->{address} =~ /:(\d+)$/;
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 2, 'postbox.publish_timeout' => '20s', 'postbox.time_scale' => 20 });
$node->start;
create_outbox($node, 'postgres', kind => 'log', lanes => 2);
$node->safe_psql(
	'postgres', q{
	SELECT postbox.create_outbox('app.idle', 'table');
	SELECT postbox.create_publication('idle', 'app.idle', 'catalog.video.events');
	CREATE ROLE guest;
});

sub emit_some
{
	$node->safe_psql('postgres', q{SELECT count(postbox.outbox_emit('video', 'v' || n, 'video.created', '{}'::jsonb, outbox => 'app.outbox')) FROM generate_series(1, 20) n});
	return;
}

sub all_published { return $node->safe_psql('postgres', 'SELECT sum(pending) FROM postbox.publication_status') eq '0'; }

my $retrying = q{SELECT state = 'retrying' AND last_error ~ '^UNAVAILABLE: ' AND suspended_since BETWEEN now() - interval '3 min' AND now()
	AND retry_at BETWEEN now() - interval '30 s' AND now() + interval '2 s' FROM postbox.publication_status WHERE publication = 'videos'};
emit_some();
wait_for(\&all_published, 'events are published as long as Pub/Sub can be reached');
my $position = log_position($node);

sub lines
{
	my ($pattern) = @_;
	return scalar(() = log_since($node, $position) =~ /$pattern/g);
}

my $begin = time;

subtest 'the status says it at once: since when, why, and when it is tried next' => sub {
	stop_emulator($emulator);
	$begin = time;
	emit_some();
	wait_until($node, 'postgres', $retrying, 'retrying');
	my $took = time - $begin;
	note(sprintf('%.1f s after the event was emitted', $took));
	# Half a second, or more on a loaded machine; the event is given up after publish_timeout.
	cmp_ok($took, '<', 15, 'soon');
	is($node->safe_psql('postgres', q{SELECT state FROM postbox.publication_status WHERE publication = 'idle'}), 'active', 'a publication that has nothing to publish is not');
	is($node->safe_psql('postgres', q{SET ROLE guest; SELECT state, last_error IS NULL FROM postbox.publication_status WHERE publication = 'videos'}),
		'retrying|t', 'whoever may not read the outbox is not told why');
};

subtest 'the log has one line, of one of the workers' => sub {
	wait_for(sub { lines('WARNING:  publication "videos" is retrying: UNAVAILABLE: ') == 1 }, 'at the beginning');
	emit_some() for 1 .. 5;
	is(lines('publication "videos"'), 1, 'and no more with more events');
};

subtest 'it stays so for as long as it lasts, also when what was tried is given up and tried again' => sub {
	my ($looks, $others) = (0, 0);
	while (lines('is still retrying') == 0 && time < $begin + 120)
	{
		++$looks;
		++$others if $node->safe_psql('postgres', $retrying) ne 't';
		emit_some();
		select(undef, undef, undef, 0.5);
	}
	cmp_ok($looks, '>', 3, 'many looks');
	is($others, 0, 'saw the same') or diag($node->safe_psql('postgres', 'SELECT * FROM postbox.publication_status'));
	my $minute = time - $begin;
	cmp_ok($minute, '>', 11, 'the second line comes after a minute, which has 12 s here');
	cmp_ok($minute, '<', 23, 'and no later');
	is(lines('WARNING:  publication "videos" is still retrying: UNAVAILABLE: '), 1, 'one');
};

subtest 'and it goes on within seconds, which the log says once' => sub {
	$emulator = start_emulator('--port', $port);
	my $back = time;
	wait_for(\&all_published, 'everything is published');
	cmp_ok(time - $back, '<', 40, 'soon');
	wait_until($node, 'postgres', q{SELECT count(*) = 2 FROM postbox.publication_status WHERE state = 'active' AND last_error IS NULL AND suspended_since IS NULL}, 'both are active');
	wait_for(sub { lines('LOG:  publication "videos" has resumed after \d+ s') == 1 }, 'the end has a line');
	is(lines('publication "videos"'), 3, 'so there are three') or diag(log_since($node, $position));
};

subtest 'a request that fails now and then is nothing to speak of' => sub {
	$position = log_position($node);
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE,count=2');
	emit_some();
	wait_for(\&all_published, 'everything is published');
	is(lines('publication "videos"'), 0, 'the log has nothing');
};

$node->stop;
done_testing();
