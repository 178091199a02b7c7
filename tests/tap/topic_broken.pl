# A publication that cannot publish at all is suspended, with a backoff and a reason that SQL shows. Its events are not
# blamed, other publications go on, and it goes on by itself when it can.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 2, 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql(
	'postgres', q{
	SELECT postbox.alter_publication('videos', base_backoff => '100ms', max_backoff => '500ms');
	SELECT postbox.create_outbox('app.other', 'table');
	SELECT postbox.create_publication('other', 'app.other', 'catalog.video.events');
});

sub emit_to
{
	my ($outbox, $count) = @_;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit(substr('$outbox', 5), 'k' || n, 'video.changed', '{}'::jsonb, outbox => '$outbox')) FROM generate_series(1, $count) n");
}

sub wait_all_published
{
	my ($outbox, $what) = @_;
	wait_until($node, 'postgres', "SELECT count(*) = count(published_at) FROM $outbox", $what);
}

subtest 'a topic that refuses: the publication is suspended, its events stay as they are, others go on' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND,attribute=aggregate_type:outbox');
	emit_to('app.outbox', 20);
	wait_until($node, 'postgres', q{SELECT attempts >= 3 FROM postbox.publication_state WHERE publication = 'videos'}, 'it has been tried several times');
	like($node->safe_psql('postgres', q{SELECT last_error FROM postbox.publication_state WHERE publication = 'videos'}), qr/^NOT_FOUND/, 'the reason is kept');
	wait_until($node, 'postgres', q{SELECT state = 'suspended' AND last_error LIKE 'NOT_FOUND%' AND retry_at IS NOT NULL FROM postbox.publication_status WHERE publication = 'videos'}, 'the status view shows it');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE published_at IS NOT NULL OR publish_attempts > 0 OR next_retry_at IS NOT NULL'), '0', 'no event is blamed');
	emit_to('app.other', 20);
	wait_all_published('app.other', 'the other publication goes on');
};

subtest 'it recovers by itself' => sub {
	emulator_fault($emulator, '--clear');
	wait_all_published('app.outbox', 'its events go out');
	wait_until($node, 'postgres', q{SELECT attempts = 0 AND next_retry_at IS NULL AND last_error IS NULL FROM postbox.publication_state WHERE publication = 'videos'}, 'and nothing of it is left');
	wait_until($node, 'postgres', q{SELECT bool_and(state = 'active') FROM postbox.publication_status}, 'both are active');
};

subtest 'a publication whose state a restore left out says so, and its workers wait after a failure' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND,attribute=aggregate_type:outbox');
	$node->safe_psql('postgres', q{DELETE FROM postbox.publication_state WHERE publication = 'videos'});
	my $position = log_position($node);
	my $calls = calls_of($emulator, 'Publish');
	emit_to('app.outbox', 20);
	wait_for(sub { calls_of($emulator, 'Publish') >= $calls + 3 }, 'it is tried again');
	my $begin = time;
	wait_for(sub { time >= $begin + 3 }, 'three seconds pass');
	cmp_ok(calls_of($emulator, 'Publish'), '<', $calls + 1000, 'with pauses of up to half a second, 20 events of two workers each time');
	like($node->safe_psql('postgres', q{SELECT last_error FROM postbox.publication_status WHERE publication = 'videos'}),
		qr/failures of the publication are not stored.*INSERT INTO postbox.publication_state \(publication\) VALUES \('videos'\) as a superuser/, 'the status says so');
	is($node->safe_psql('postgres', q{SELECT remedy FROM postbox.doctor() WHERE detail ~ '^failures of the publication are not stored'}),
		"if no restore is running, run INSERT INTO postbox.publication_state (publication) VALUES ('videos') as a superuser", 'and so does the doctor');
	emulator_fault($emulator, '--clear');
	wait_all_published('app.outbox', 'its events go out');
	$node->safe_psql('postgres', q{INSERT INTO postbox.publication_state (publication) VALUES ('videos')});
	wait_until($node, 'postgres', q{SELECT bool_and(state = 'active' AND last_error IS NULL) FROM postbox.publication_status}, 'and the repair ends it');
};

subtest 'a publication is no longer suspended when it is altered' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', topic => 'catalog.video.missing', base_backoff => '1h', max_backoff => '1h')});
	emit_to('app.outbox', 5);
	wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status WHERE publication = 'videos'}, 'a topic that does not exist suspends it for long');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', topic => 'catalog.video.events', base_backoff => '100ms', max_backoff => '500ms')});
	wait_all_published('app.outbox', 'the right topic is used at once');
};

subtest 'an outbox that somebody has locked holds up nobody else' => sub {
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN; LOCK TABLE app.outbox IN ACCESS EXCLUSIVE MODE');
	my $position = log_position($node);
	$node->safe_psql('postgres', 'SELECT postbox.wake_publishers()');
	wait_for(sub { log_since($node, $position) =~ /publication "videos" is suspended: the outbox is locked by process \d+/ }, 'the log says who has locked it');
	emit_to('app.other', 20);
	wait_all_published('app.other', 'the other publication goes on');
	$session->query_safe('COMMIT');
	$session->quit;
	emit_to('app.outbox', 5);
	wait_all_published('app.outbox', 'and this one when the lock is gone');
};

subtest 'an outbox that was altered so that it cannot be read is broken, and recovers' => sub {
	$node->safe_psql('postgres', 'ALTER TABLE app.outbox RENAME COLUMN payload TO payload_away');
	$node->safe_psql('postgres', 'SELECT postbox.wake_publishers()');
	wait_until($node, 'postgres', q{SELECT state = 'broken' AND last_error LIKE '%payload%' FROM postbox.publication_status WHERE publication = 'videos'}, 'the status view says why');
	emit_to('app.other', 20);
	wait_all_published('app.other', 'the other publication goes on');
	$node->safe_psql('postgres', 'ALTER TABLE app.outbox RENAME COLUMN payload_away TO payload');
	emit_to('app.outbox', 5);
	wait_all_published('app.outbox', 'it goes on when the table is repaired');
};

subtest 'a renamed outbox goes on' => sub {
	$node->safe_psql('postgres', 'ALTER TABLE app.outbox RENAME TO events; CREATE SCHEMA elsewhere; ALTER TABLE app.events SET SCHEMA elsewhere');
	emit_to('elsewhere.events', 5);
	wait_all_published('elsewhere.events', 'under its new name');
};

subtest 'an outbox that is dropped while its events are on their way leaves nothing behind' => sub {
	$node->append_conf('postgresql.conf', "postbox.failpoint = 'after_publish_before_mark=pause'");
	$node->reload;
	# The workers may have been in the middle of their loop when the setting came: until events stay in flight.
	my $sent = messages_published($emulator);
	wait_for(sub {
		emit_to('app.other', 1);
		return messages_published($emulator) > $sent && $node->safe_psql('postgres', q{
			SELECT count(*) > 0 FROM app.other WHERE lock_token IS NOT NULL AND locked_at < clock_timestamp() - interval '0.3 s'}) eq 't';
	}, 'events are on their way');
	my $position = log_position($node);
	$node->safe_psql('postgres', q{SELECT postbox.drop_outbox('app.other')});
	set_configuration($node, 'postbox.failpoint', undef);
	$node->reload;
	emit_to('elsewhere.events', 5);
	wait_all_published('elsewhere.events', 'the other publication goes on');
	unlike(log_since($node, $position), qr/publication "other" is suspended/, 'nobody complains');
};

$node->stop;
done_testing();
