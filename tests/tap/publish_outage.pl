# After an outage of the broker publishing resumes within 2 s of the first event that goes through, not at the end of a
# backoff of minutes: a broker that does not answer (SIGSTOP), and one to which nobody can connect. Nothing is blamed for it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

use constant OUTAGE => 62;    # seconds

my $emulator = start_emulator();
my ($port) = $emulator->{address} =~ /:(\d+)$/;
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2,
	'postbox.publish_timeout' => '10s',
});
$node->start;
create_outbox($node, 'postgres');
# The backoff of the publications would be minutes by the end of the outage.
$node->safe_psql(
	'postgres', q{
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', lanes => 4);
	SELECT postbox.alter_publication('videos', max_attempts => 2);
	SELECT postbox.alter_publication('log', max_attempts => 2);
});
my $emitted = 0;

sub emit_both
{
	$node->safe_psql(
		'postgres', q{
		SELECT count(postbox.outbox_emit('video', 'k' || n, 'video.changed', '{}'::jsonb, outbox => o::regclass))
		FROM generate_series(1, 20) n, unnest(ARRAY['app.log', 'app.outbox']) o});
	$emitted += 40;
	return;
}

sub all_published
{
	return $node->safe_psql('postgres', 'SELECT sum(pending) FROM postbox.publication_status') eq '0';
}

# What is emitted during an outage that `begin` begins and `end` ends.
sub outage
{
	my ($begin, $end) = @_;
	emit_both();
	wait_for(\&all_published, 'everything is published before it');
	$begin->();
	my $until = time + OUTAGE;
	my $suspended = 0;
	while (time < $until)
	{
		emit_both();
		$suspended = 1 if $node->safe_psql('postgres', q{SELECT count(*) FROM postbox.publication_status WHERE last_error IS NOT NULL}) eq '2';
		select(undef, undef, undef, 1);
	}
	ok($suspended, 'the status of both publications says what is wrong');
	my $before = $end->();
	my $back = time;
	my ($first, $all);
	wait_for(sub {
		$first //= time if messages_published($emulator) > $before;
		$all = time if all_published();
		return $all;
	}, 'everything is published');
	$first //= $all;
	note(sprintf('the first event %.1f s after the end of the outage, everything %.1f s later', $first - $back, $all - $first));
	cmp_ok($first - $back, '<', 12, 'soon');
	# Both times are those of a look, and a look takes its time on a loaded machine.
	cmp_ok($all - $first, '<', 2 + 1, 'within 2 s of the first event');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.paused_keys'), '0', 'no key is paused');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.log_parked'), '0', 'no event of the log was parked');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE publish_attempts > 0 OR last_error IS NOT NULL'), '0', 'no event of the table was blamed');
	is($node->safe_psql('postgres', q{SELECT string_agg(state, ' ') FROM postbox.publication_status}), 'active active', 'both publications are active');
	return;
}

subtest 'a broker that does not answer' => sub {
	my $before;
	outage(
		sub { $before = messages_published($emulator); kill('STOP', $emulator->{pid}); },
		sub { kill('CONT', $emulator->{pid}); return $before; });
	my $twice = messages_published($emulator) - $emitted;
	note("$twice of $emitted were sent twice");
	cmp_ok($twice, '>=', 0, 'every event was published');
	# Whatever was on its way when the broker stopped, and one probe at a time since then.
	cmp_ok($twice, '<', $emitted / 2, 'few were sent twice');
};

subtest 'a broker to which nobody can connect' => sub {
	outage(
		sub { stop_emulator($emulator); },
		sub { $emulator = start_emulator('--port', $port); return 0; });
};

$node->stop;
done_testing();
