# A right that the owner of an inbox lacks is not the fault of the events that need it: they come again until it is
# there, and nothing is given up.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '200ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE ROLE owner;
	CREATE SCHEMA reader AUTHORIZATION owner;
	CREATE TABLE app.video (id text PRIMARY KEY, version bigint);
	CREATE TABLE app.other (id text PRIMARY KEY, version bigint);
	GRANT USAGE ON SCHEMA app TO owner;
	GRANT SELECT, INSERT, UPDATE ON app.video, app.other TO owner;
	GRANT EXECUTE ON FUNCTION postbox.create_subscription TO owner;
	SET ROLE owner;
	SELECT postbox.create_inbox('reader.inbox');
	SELECT postbox.create_projection('reader.inbox', '{video.created}', 'app.video');
	SELECT postbox.create_projection('reader.inbox', '{video.other}', 'app.other');
	SELECT postbox.create_subscription('follower', 'reader.inbox', 'catalog.video.events.test-follower',
		max_attempts => 1, min_backoff => '50ms', max_backoff => '200ms');
});
my $puller = start_puller($node, 'postgres', $emulator);

sub emit_types
{
	my ($type, $count) = @_;
	return $node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('video', 'key-' || n % 5, 'video.$type', '{}'::jsonb)) FROM generate_series(1, $count) n");
}

sub wait_version
{
	my ($table, $version, $what) = @_;
	return wait_until($node, 'postgres', "SELECT count(*) = 5 AND min(version) = $version FROM app.$table", $what);
}

emit_types('created', 20);
wait_version('video', 4, 'events are applied');

$node->safe_psql('postgres', 'REVOKE UPDATE ON app.video FROM owner');
my $position = length $puller->{output};
emit_types('created', 5);
$node->safe_psql('postgres', q{SELECT count(postbox.outbox_emit('video', 'apart-' || n, 'video.other', '{}'::jsonb)) FROM generate_series(1, 5) n});
wait_version('other', 1, 'events that need another right are applied');
wait_for(
	sub {
		$puller->{run}->pump_nb;
		my @said = substr($puller->{output}, $position) =~ /42501.*?permission denied for table app\.video/g;
		return @said > 5;    # as many as there are events may be said once each, and ten are before they are summed up
	},
	'the others come again and again, and the log says why');
is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.dead_letter'), '0', 'nothing is given up');

$node->safe_psql('postgres', 'GRANT UPDATE ON app.video TO owner');
wait_version('video', 5, 'they are applied when the right is back');
is($node->safe_psql('postgres', q{SELECT string_agg(outcome || ' ' || count, ', ') FROM (SELECT outcome, count(*) FROM reader.inbox GROUP BY 1) o}),
	'applied 30', 'each of them, in order');
is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.dead_letter'), '0', 'and nothing was given up');

stop_puller($puller);
$node->stop;
done_testing();
