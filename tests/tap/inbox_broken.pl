# A projection whose target is dropped, and a handler whose function is: their events come again until that is repaired,
# those of other types are applied meanwhile, and nothing is lost or given up.
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
my $create_table = 'CREATE TABLE app.video (id text PRIMARY KEY, version bigint)';
my $create_projection = q{SELECT postbox.create_projection('reader.inbox', '{video.created}', 'app.video')};
my $create_function = q{CREATE FUNCTION reader.see(event postbox.event) RETURNS void LANGUAGE sql AS $$ INSERT INTO app.seen VALUES ((event).event_id) $$};
$node->safe_psql(
	'postgres', qq{
	CREATE SCHEMA reader;
	$create_table;
	CREATE TABLE app.other (id text PRIMARY KEY, version bigint);
	CREATE TABLE app.seen (id text);
	SELECT postbox.create_inbox('reader.inbox');
	$create_projection;
	SELECT postbox.create_projection('reader.inbox', '{video.other}', 'app.other');
	$create_function;
	SELECT postbox.create_handler('reader.inbox', '{video.seen}', 'reader.see(postbox.event)');
	SELECT postbox.create_subscription('follower', 'reader.inbox', 'catalog.video.events.test-follower',
		max_attempts => 1, min_backoff => '50ms', max_backoff => '200ms');
});
my $puller = start_puller($node, 'postgres', $emulator);

sub emit_types
{
	my ($type, $key, $count) = @_;
	return $node->safe_psql('postgres', "SELECT count(postbox.outbox_emit('video', '$key-' || n % 5, 'video.$type', '{}'::jsonb)) FROM generate_series(1, $count) n");
}

sub wait_said
{
	my ($position, $pattern, $what) = @_;
	return wait_for(
		sub {
			$puller->{run}->pump_nb;
			my @said = substr($puller->{output}, $position) =~ /$pattern/g;
			return @said > 5;    # as many as there are events may be said once each, and ten are before they are summed up
		},
		$what);
}

emit_types('created', 'key', 20);
wait_until($node, 'postgres', 'SELECT count(*) = 5 AND min(version) = 4 FROM app.video', 'events are applied');

$node->safe_psql('postgres', 'DROP TABLE app.video; DROP FUNCTION reader.see(postbox.event)');
is($node->safe_psql('postgres', q{SELECT string_agg(kind || ' ' || array_to_string(event_types, ' '), ', ' ORDER BY kind) FROM postbox.inbox_problem}),
	'handler video.seen, projection video.created', 'the view shows what is broken');
my $position = length $puller->{output};
emit_types('created', 'key', 5);
emit_types('seen', 'seen', 5);
emit_types('other', 'apart', 20);
wait_until($node, 'postgres', 'SELECT count(*) = 5 AND min(version) = 4 FROM app.other', 'events of another type are applied');
wait_said($position, qr{the target of projection \W*app\.video\W* has been dropped}, 'those of the dropped table come again and again, and the log says why');
wait_said($position, qr/handler reader\.see\(postbox\.event\) does not exist/, 'so do those of the dropped function');

# The same name is not enough: what the old table had is not in the new one, and nobody has said that this is meant.
$node->safe_psql('postgres', "$create_table; $create_function");
wait_until($node, 'postgres', 'SELECT count(*) = 5 FROM app.seen', 'the function is made again: its events are applied');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.video'), '0', 'the table is created again: its events wait');
$node->safe_psql('postgres', "$create_projection; SELECT postbox.drop_projection('app.video')");
wait_until($node, 'postgres', 'SELECT count(*) = 5 AND min(version) = 5 FROM app.video', 'they are applied when the projection is made again');
is($node->safe_psql('postgres', q{SELECT string_agg(outcome || ' ' || count, ', ') FROM (SELECT outcome, count(*) FROM reader.inbox GROUP BY 1) o}),
	'applied 50', 'each of them, once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.dead_letter'), '0', 'and nothing was given up');
is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.inbox_problem'), '0', 'nothing is broken any more');

stop_puller($puller);
$node->stop;
done_testing();
