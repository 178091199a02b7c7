# After an outage of the broker publishing resumes soon, and all goes out soon after the first event that goes through, not at the end
# of the backoff of events that are refused: a broker that does not answer (SIGSTOP), and one to which nobody can connect. Nothing is blamed for it.
# The two outages happen at the same time, to two servers.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

use constant OUTAGE => 7;    # seconds: a few times postbox.publish_timeout, and until pauses that are too long have become so

# A server with its broker: { emulator, port, node, emitted => events, suspended => whether the status has said what is wrong }
sub new_site
{
	my ($name) = @_;
	my $emulator = start_emulator();
	my ($port) = $emulator->{address} =~ /:(\d+)$/;
	my $node = new_node($name, emulator => $emulator, settings => {
		'postbox.publishers' => 2,
		'postbox.publish_timeout' => '1s',
	});
	$node->start;
	create_outbox($node, 'postgres');
	# The backoff of the publications must not matter.
	$node->safe_psql(
		'postgres', q{
		SELECT postbox.create_outbox('app.log');
		SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', lanes => 4);
		SELECT postbox.alter_publication('videos', max_attempts => 2, base_backoff => '1h', max_backoff => '1h');
		SELECT postbox.alter_publication('log', max_attempts => 2, base_backoff => '1h', max_backoff => '1h');
	});
	return { emulator => $emulator, port => $port, node => $node, emitted => 0, suspended => 0 };
}

sub sql { my ($site, $text) = @_; return $site->{node}->safe_psql('postgres', $text); }

# And looks at the status.
sub emit_both
{
	my ($site) = @_;
	my (undef, $failing, $pause) = split /\n/, sql(
		$site, q{
		SELECT count(postbox.outbox_emit('video', 'k' || n, 'video.changed', '{}'::jsonb, outbox => o::regclass))
		FROM generate_series(1, 20) n, unnest(ARRAY['app.log', 'app.outbox']) o;
		SELECT count(*) FROM postbox.publication_status WHERE last_error IS NOT NULL;
		SELECT coalesce(max(extract(epoch FROM at - clock_timestamp())), 0) FROM (
			SELECT retry_at FROM postbox.publication_status WHERE state = 'retrying'
			UNION ALL SELECT next_retry_at FROM postbox.publication_state WHERE last_error !~ 'took longer than') AS next_try(at)});
	$site->{pause} = $pause if $pause > ($site->{pause} // 0);
	$site->{emitted} += 40;
	$site->{suspended} = 1 if $failing eq '2';
	return;
}

sub all_published
{
	my ($site) = @_;
	return sql($site, 'SELECT sum(pending) FROM postbox.publication_status') eq '0';
}

# What was emitted during an outage that `end` ends, before which the broker had taken so many messages.
sub resumes
{
	my ($site, $before, $end) = @_;
	ok($site->{suspended}, 'the status of both publications says what is wrong');
	cmp_ok($site->{pause}, '<', 2, 'and they are tried again soon, however long it lasts');
	$end->();
	my $back = time;
	my ($first, $all);
	wait_for(sub {
		$first //= time if messages_published($site->{emulator}) > $before;
		$all = time if all_published($site);
		return $all;
	}, 'everything is published');
	$first //= $all;
	note(sprintf('the first event %.1f s after the end of the outage, everything %.1f s later', $first - $back, $all - $first));
	# Both times are those of a look, and a look takes its time on a loaded machine.
	cmp_ok($first - $back, '<', 12, 'soon');
	cmp_ok($all - $first, '<', 8, 'and soon after the first event');
	is(sql($site, 'SELECT count(*) FROM postbox.paused_keys'), '0', 'no key is paused');
	is(sql($site, 'SELECT count(*) FROM app.log_parked'), '0', 'no event of the log was parked');
	is(sql($site, 'SELECT count(*) FROM app.outbox WHERE publish_attempts > 0 OR last_error IS NOT NULL'), '0', 'no event of the table was blamed');
	wait_until($site->{node}, 'postgres', q{SELECT bool_and(state = 'active') FROM postbox.publication_status}, 'both publications are active');
	return;
}

my ($silent, $away) = map { new_site($_) } qw(silent away);
for my $site ($silent, $away)
{
	emit_both($site);
	wait_for(sub { all_published($site) }, 'everything is published before the outage');
}
my $before = messages_published($silent->{emulator});
kill('STOP', $silent->{emulator}{pid});
stop_emulator($away->{emulator});
my $until = time + OUTAGE;
while (time < $until)
{
	emit_both($_) for $silent, $away;
	select(undef, undef, undef, 1);
}

subtest 'a broker that does not answer' => sub {
	resumes($silent, $before, sub { kill('CONT', $silent->{emulator}{pid}) });
	my $twice = messages_published($silent->{emulator}) - $silent->{emitted};
	note("$twice of $silent->{emitted} were sent twice");
	cmp_ok($twice, '>=', 0, 'every event was published');
	# Whatever was on its way when the broker stopped, and one probe at a time since then.
	cmp_ok($twice, '<', $silent->{emitted} / 2, 'few were sent twice');
};

subtest 'a broker to which nobody can connect' => sub {
	resumes($away, 0, sub { $away->{emulator} = start_emulator('--port', $away->{port}) });
};

$_->{node}->stop for $silent, $away;
done_testing();
