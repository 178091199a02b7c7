# Extension present but library not preloaded: emit works, events wait, a WARNING says so once.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, preload => 0);
$node->start;

subtest 'a WARNING says once a session that events wait' => sub {
	my ($status, undef, $messages) = $node->psql('postgres', q{
		CREATE EXTENSION postbox;
		CREATE SCHEMA app;
		SELECT postbox.create_outbox('app.outbox', 'table');
		SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events', aggregate_types => '{video}');
		SELECT postbox.create_publication('more', 'app.outbox', 'catalog.video.events', aggregate_types => '{other}');
		SELECT postbox.drop_publication('more');
	});
	is($status, 0, 'everything works');
	my @warnings = $messages =~ /WARNING:.*\n(?:.*\n)*?(?:HINT|DETAIL):.*shared_preload_libraries/g;
	is(scalar @warnings, 1, 'one WARNING') or diag($messages);
};

subtest 'events are emitted and wait' => sub {
	emit($node, 'postgres', 5);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE published_at IS NULL'), '5', 'five events wait');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.workers'), '0', 'there are no workers');
};

# The puller's session does not load the library, so nothing has checked the setting. gRPC would end the process.
subtest 'a quota project that cannot be a header stops the subscription, not the puller' => sub {
	follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.created');
	$node->safe_psql('postgres', qq{ALTER DATABASE postgres SET postbox.quota_project = E'two\\nlines'});
	my $puller = start_puller($node, 'postgres', $emulator);
	wait_for(sub { $puller->{run}->pump_nb; return !$puller->{run}->pumpable || $puller->{output} =~ /quota_project cannot be used/ },
		'the log says what is wrong');
	like($puller->{output}, qr/follower.*postbox\.quota_project cannot be used/, 'it names subscription and setting');
	$puller->{run}->finish;
	is($puller->{run}->full_result(0), 1 << 8, 'it has no other subscription and leaves with status 1, not by a signal');
	$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET postbox.quota_project');
};

subtest 'with the library preloaded they leave' => sub {
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'postbox'");
	$node->restart;
	wait_published($node, 'postgres', 5);
};

$node->stop;
done_testing();
