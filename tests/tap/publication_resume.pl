# A suspended publication goes on within seconds when the cause is gone: by itself, since it is tried every 4 s at least; at once by
# postbox.resume_publication and by a reload. While it is suspended a try is one request, whatever the backlog is. Then the events that
# were not sent are read again, and not the whole log.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'autovacuum' => 'off' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
# The backoff of events that are refused must not matter: with it, the next try would be an hour away.
$node->safe_psql('postgres', q{
	SELECT postbox.alter_publication('videos', base_backoff => '1h', max_backoff => '1h');
	CREATE ROLE guest;
	CREATE ROLE operator IN ROLE postbox_operator;
});

sub emit_keys
{
	my ($count) = @_;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('video', 'v' || n, 'video.created', '{}'::jsonb)) FROM generate_series(1, $count) n");
	return;
}

sub status { return $node->safe_psql('postgres', "SELECT $_[0] FROM postbox.publication_status WHERE publication = 'videos'"); }
sub wait_status { my ($so, $what) = @_; return wait_until($node, 'postgres', "SELECT $so FROM postbox.publication_status WHERE publication = 'videos'", $what); }
sub attempts { return $node->safe_psql('postgres', q{SELECT attempts FROM postbox.publication_state WHERE publication = 'videos'}); }
sub calls { return calls_of($emulator, 'Publish'); }

sub suspend
{
	my ($code, $count) = @_;
	emulator_fault($emulator, "rpc=Publish,code=$code");
	emit_keys($count);
	wait_status(qq{state = 'suspended' AND last_error ~ '$code'}, "suspended: $code") or diag(status('*'));
	return;
}

# Long before the backoff of its events, or the next try that a test has put off, would let it: that is an hour.
sub goes_on
{
	my ($what) = @_;
	my $begin = time;
	wait_status(q{state = 'active' AND pending = 0}, $what) or diag(status('*'));
	my $took = time - $begin;
	note(sprintf('%s: after %.1f s', $what, $took));
	cmp_ok($took, '<', 60, 'soon');
	return;
}

emit_keys(1);
wait_status(q{state = 'active' AND pending = 0}, 'it publishes');

subtest 'after a failure what was published is not read again' => sub {
	my ($published, $failed) = (6_000, 10);
	emit($node, 'postgres', $published);
	wait_status('pending = 0', 'a log of published events');
	$node->safe_psql('postgres', 'VACUUM ANALYZE app.outbox');
	# The worker reports what it has counted when it is idle, and at the latest when it ends.
	my $rows_read = sub {
		$node->restart;
		return $node->safe_psql('postgres', q{SELECT sum(s.idx_tup_fetch) FROM pg_stat_user_tables s JOIN postbox.generation_partitions('app.outbox') p ON p.part = s.relid});
	};
	my $before = $rows_read->();
	my $sent = messages_published($emulator);
	emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND,count=2');
	emit($node, 'postgres', $failed);
	wait_status(q{state = 'suspended'}, 'they fail');
	wait_for(sub { messages_published($emulator) == $sent + $failed }, 'they are sent again');
	wait_status('pending = 0', 'nothing is pending');
	my $read = $rows_read->() - $before;
	cmp_ok($read, '>=', $failed, 'rows were read through an index');
	cmp_ok($read, '<', $published / 10, 'but not the rows that had been published');
};

subtest 'it goes on by itself within seconds' => sub {
	suspend('NOT_FOUND', 200);
	cmp_ok(status(q{extract(epoch FROM retry_at - now())}), '<=', 4, 'the next try is near');
	emulator_fault($emulator, '--clear');
	goes_on('the topic is there again');
};

subtest 'a try is one request' => sub {
	suspend('PERMISSION_DENIED', 200);
	wait_until($node, 'postgres', q{SELECT attempts >= 2 FROM postbox.publication_state WHERE publication = 'videos'}, 'it has been tried again');
	my ($before, $attempts) = (calls(), attempts());
	wait_until($node, 'postgres', "SELECT attempts >= $attempts + 3 FROM postbox.publication_state WHERE publication = 'videos'", 'three more tries');
	my $requests = calls() - $before;
	cmp_ok($requests, '<=', attempts() - $attempts + 1, "took $requests requests");
};

subtest 'tries are 2 to 4 s apart, however long it lasts' => sub {
	$node->safe_psql('postgres', q{UPDATE postbox.publication_state SET attempts = 100, next_retry_at = now() WHERE publication = 'videos'});
	wait_until($node, 'postgres', q{SELECT attempts > 100 FROM postbox.publication_state WHERE publication = 'videos'}, 'also the hundredth');
	is($node->safe_psql('postgres', q{SELECT next_retry_at <= now() + interval '4 s' FROM postbox.publication_state WHERE publication = 'videos'}), 't', 'is followed by the next one');
	my $begin = time;
	my $first = attempts();
	wait_until($node, 'postgres', "SELECT attempts >= $first + 2 FROM postbox.publication_state WHERE publication = 'videos'", 'and that by another one');
	cmp_ok(attempts() - $first, '<=', (time - $begin) / 2 + 1, 'with pauses in between');
};

subtest 'postbox.resume_publication tries it at once' => sub {
	$node->safe_psql('postgres', q{UPDATE postbox.publication_state SET attempts = 100, next_retry_at = now() + interval '1 h' WHERE publication = 'videos'; SELECT postbox.wake_publishers()});
	emulator_fault($emulator, '--clear');
	my ($failed, undef, $stderr) = $node->psql('postgres', q{SET ROLE guest; SELECT postbox.resume_publication('videos')});
	like($stderr, qr/ERROR:  must be owner of .*outbox/, 'it is not for everybody');
	$node->safe_psql('postgres', q{SET ROLE operator; SELECT postbox.resume_publication('videos')});
	goes_on('an operator resumes it');
	$node->safe_psql('postgres', q{SELECT postbox.resume_publication('videos')});
	is(status('state'), 'active', 'one that is not suspended stays as it is');
	(undef, undef, $stderr) = $node->psql('postgres', q{SELECT postbox.resume_publication('none')});
	like($stderr, qr/ERROR:  publication "none" does not exist/, 'one that does not exist is an error');
};

subtest 'if the cause is still there, it is suspended again, and tried soon' => sub {
	suspend('NOT_FOUND', 5);
	$node->safe_psql('postgres', q{UPDATE postbox.publication_state SET attempts = 100, next_retry_at = now() + interval '30 s' WHERE publication = 'videos'});
	my $before = calls();
	$node->safe_psql('postgres', q{SELECT postbox.resume_publication('videos')});
	wait_for(sub { calls() > $before }, 'it is tried');
	wait_status(q{state = 'suspended' AND retry_at < now() + interval '5 s'}, 'and soon again');
};

subtest 'a reload tries all of them at once' => sub {
	$node->safe_psql('postgres', q{UPDATE postbox.publication_state SET attempts = 100, next_retry_at = now() + interval '1 h' WHERE publication = 'videos'; SELECT postbox.wake_publishers()});
	emulator_fault($emulator, '--clear');
	$node->reload;
	goes_on('after the reload');
};

subtest 'a topic that refuses everything is probed with one event; none is blamed before max_attempts of its own backoff' => sub {
	# A worker of which events have gone through takes the first refusals for those of single events.
	$node->restart;
	suspend('INVALID_ARGUMENT', 200);
	my $before = calls();
	wait_until($node, 'postgres', q{SELECT attempts >= 4 FROM postbox.publication_state WHERE publication = 'videos'}, 'it has been tried again and again');
	my $requests = calls() - $before;
	# One try looks whether it is the event or the topic.
	cmp_ok($requests, '<', 4 + 500, "with $requests requests");
	$before = calls();
	my $attempts = $node->safe_psql('postgres', q{SELECT attempts FROM postbox.publication_state WHERE publication = 'videos'});
	wait_until($node, 'postgres', "SELECT attempts >= $attempts + 2 FROM postbox.publication_state WHERE publication = 'videos'", 'two more tries');
	cmp_ok(calls() - $before, '<=', 3, 'take one request each');
	is(status('parked'), '0', 'no event is parked');
	emulator_fault($emulator, '--clear');
	$node->safe_psql('postgres', q{SELECT postbox.resume_publication('videos')});
	goes_on('the topic takes them');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.paused_keys'), '0', 'none is parked');
};

subtest 'an event that is refused for its own sake does not keep a resumed publication suspended' => sub {
	suspend('NOT_FOUND', 5);
	emulator_fault($emulator, '--clear', 'rpc=Publish,code=INVALID_ARGUMENT,attribute=aggregate_id:v1');
	wait_status(q{state = 'active' AND pending = 1 AND parked = 1}, 'the others go out, it is parked') or diag(status('*'));
};

$node->stop;
done_testing();
