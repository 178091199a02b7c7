# A puller needs no right on the server's settings: it finds Pub/Sub by what those who may apply events are told.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
# The reading service as README.md has it: one role that was granted create_subscription, and owns what it creates.
$node->safe_psql(
	'postgres', q{
	CREATE ROLE reader LOGIN;
	CREATE ROLE applier LOGIN;
	CREATE ROLE guest LOGIN;
	GRANT EXECUTE ON FUNCTION postbox.create_subscription TO reader;
	CREATE SCHEMA reading AUTHORIZATION reader;
	SET ROLE reader;
	CREATE TABLE reading.video (video_id text PRIMARY KEY, version bigint NOT NULL);
	SELECT postbox.create_inbox('reading.inbox');
	SELECT postbox.create_subscription('videos', 'reading.inbox', 'catalog.video.events.test-follower');
	SELECT postbox.create_projection('reading.inbox', '{video.created}', 'reading.video');
	GRANT INSERT ON reading.inbox TO applier;
});
my $emitted = 0;

sub applies
{
	my ($role) = @_;
	my $puller = start_puller($node, 'postgres', undef, dsn => $node->connstr('postgres') . " user=$role");
	$emitted += 10;
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('video', 'v' || n, 'video.created', jsonb_build_object('video_id', 'v' || n))) FROM generate_series($emitted - 9, $emitted) n");
	wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM reading.video", "events are applied by $role") or diag($puller->{output});
	stop_puller($puller);
	unlike($puller->{output}, qr/postbox\.endpoint/, 'it has nothing to say about the setting');
	return;
}

subtest 'the role that was granted create_subscription pulls' => sub { applies('reader') };

subtest 'so does a role that may only apply' => sub { applies('applier') };

subtest 'others are not told where Pub/Sub is, nor does a puller of theirs look elsewhere in silence' => sub {
	my ($status, $stdout, $stderr) = $node->psql('postgres', 'SET ROLE guest; SELECT postbox.puller_endpoint()');
	isnt($status, 0, 'it is an error');
	like($stderr, qr/ERROR:  permission denied.*\n.*\n?HINT: .*GRANT INSERT/s, 'which says what to grant') or diag($stderr);
	is($stdout, '', 'and no address');
	my $puller = start_puller($node, 'postgres', undef, dsn => $node->connstr('postgres') . ' user=guest');
	puller_says($puller, qr/postbox\.endpoint cannot be read.*permission denied/, 'a puller says so');
	$puller->{run}->signal('TERM');
	$puller->{run}->finish;
};

subtest 'the value that counts is that of the server, also after a reload' => sub {
	is($node->safe_psql('postgres', 'SET ROLE reader; SELECT postbox.puller_endpoint()'), $emulator->{endpoint}, 'as it is set');
	$node->append_conf('postgresql.conf', "postbox.endpoint = ''");
	$node->reload;
	wait_until($node, 'postgres', q{SELECT postbox.puller_endpoint() = ''}, 'empty: the default');
};

$node->stop;
done_testing();
