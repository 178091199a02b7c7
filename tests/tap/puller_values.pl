# The whole way of values that a database cannot hold, that JSON says in its own way, and that a projection does not find: from a
# table whose changes are emitted, through Pub/Sub and the puller, into the table of a projection.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
# author is not what the events have: they say author_name.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.video (id int PRIMARY KEY, title text, note json, image text, made double precision, author_name text);
	SELECT postbox.create_change_triggers('app.video', outbox => 'app.outbox');
	CREATE SCHEMA reading;
	SELECT postbox.create_inbox('reading.inbox');
	SELECT postbox.create_subscription('videos', 'reading.inbox', 'catalog.video.events.test-follower', max_attempts => 2);
	CREATE TABLE reading.video (id int PRIMARY KEY, title varchar(10), image bytea, made timestamptz, pieces int, "authorName" text, version bigint NOT NULL);
	SELECT postbox.create_projection('reading.inbox', '{video.created,video.updated}', 'reading.video', '{
		"title": "title", "image": {"path": "image", "as": "base64"}, "made": {"path": "made", "as": "epoch_seconds"}, "authorName": "authorName"}');
	CREATE TABLE reading.noted (id int PRIMARY KEY, text text, version bigint NOT NULL);
	UPDATE postbox.subscription SET min_backoff = '10ms', max_backoff = '100ms';
});
my $puller = start_puller($node, 'postgres', $emulator);

sub row { my ($id) = @_; return $node->safe_psql('postgres', "SELECT title, image, made AT TIME ZONE 'UTC' FROM reading.video WHERE id = $id") }

subtest 'a field that no projection takes may hold \u0000 and half a surrogate' => sub {
	$node->safe_psql('postgres', q{INSERT INTO app.video VALUES (1, 'Intro', '{"a": "\u0000", "b": "\ud800"}', 'AP9+/w==', 1714604399.5, 'Ada')});
	wait_until($node, 'postgres', 'SELECT EXISTS (SELECT FROM reading.video WHERE id = 1)', 'its event is applied') or diag($puller->{output});
	is(row(1), 'Intro|\x00ff7eff|2024-05-01 22:59:59.5', 'with bytes and time as they are meant');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.dead_letter'), '0', 'and there is no dead letter');
};

subtest 'a value that a column cannot hold names column, table and field, and the others go on' => sub {
	$node->safe_psql('postgres', q{INSERT INTO app.video VALUES (2, 'much too long', NULL, NULL, NULL, NULL), (3, 'short', NULL, 'no base64!', 0, NULL), (4, 'last', NULL, NULL, 12.0, NULL)});
	wait_until($node, 'postgres', 'SELECT count(*) = 2 FROM postbox.dead_letter', 'they are recorded') or diag($puller->{output});
	wait_until($node, 'postgres', 'SELECT EXISTS (SELECT FROM reading.video WHERE id = 4)', 'the other one is applied');
	my $errors = $node->safe_psql('postgres', 'SELECT error FROM postbox.dead_letter ORDER BY aggregate_id');
	like($errors, qr/character varying\(10\).*column "title" of reading\.video, from field "title".*base64.*column "image" of reading\.video, from field "image"/s, 'with all of it');
	is(row(4), 'last||1970-01-01 00:00:12', 'what is whole is whole');
};

subtest 'a column that is renamed stops the events until it is back' => sub {
	$node->safe_psql('postgres', 'ALTER TABLE reading.video RENAME title TO name');
	$node->safe_psql('postgres', q{INSERT INTO app.video VALUES (5, 'five', NULL, NULL, NULL, NULL)});
	puller_says($puller, qr/column \\"title\\" of relation \\"video\\" does not exist/, 'the puller says why');
	like($node->safe_psql('postgres', 'SELECT problem FROM postbox.inbox_problem'), qr/^column "title"/, 'so does inbox_problem');
	$node->safe_psql('postgres', 'ALTER TABLE reading.video RENAME name TO title');
	wait_until($node, 'postgres', 'SELECT EXISTS (SELECT FROM reading.video WHERE id = 5)', 'then the event is applied');
	is(row(5), 'five||', 'with the column');
};

subtest 'a field that no event has is a warning' => sub {
	$node->safe_psql('postgres', q{INSERT INTO app.video SELECT n, 'many' FROM generate_series(100, 250) n});
	wait_until($node, 'postgres', 'SELECT count(*) = 154 FROM reading.video', 'all are applied');
	my $times = 0;
	# Each session of the puller counts the events that it applies.
	wait_for(
		sub {
			++$times;
			$node->safe_psql('postgres', "UPDATE app.video SET title = 'again $times' WHERE id >= 100");
			return $node->safe_psql('postgres', q{SELECT EXISTS (SELECT FROM postbox.inbox_problem WHERE kind = 'field')}) eq 't';
		},
		'it is noticed');
	like(
		$node->safe_psql('postgres', 'SELECT problem FROM postbox.inbox_problem'),
		qr/^field "authorName", the source of column "authorName" of reading\.video, was in none.*have a field "author_name"/,
		'with the name that the events have');
	like($node->safe_psql('postgres', 'SELECT missing_fields FROM postbox.projection_status'), qr/authorName in none of the last 100 events of type video\.\w+/, 'the status of the projection has it');
	like($node->safe_psql('postgres', q{SELECT status FROM postbox.doctor() WHERE detail LIKE 'field "authorName"%'}), qr/^warning$/, 'the doctor says so');
};

subtest 'a version in a foreign body that is something else' => sub {
	$node->safe_psql('postgres', q{
		CREATE TABLE reading.noticed (id text, version bigint);
		CREATE FUNCTION reading.notice(event postbox.event) RETURNS void LANGUAGE sql AS 'INSERT INTO reading.noticed VALUES (event.event_id, event.version)';
		SELECT postbox.create_handler('reading.inbox', '{video.noticed}', 'reading.notice(postbox.event)');
		SELECT postbox.create_projection('reading.inbox', '{video.noted}', 'reading.noted');
		DELETE FROM postbox.dead_letter});
	my $number = 0;
	for (map { my $type = $_; map { [ $type, $_ ] } '"1.2.0"', '"1.0"', '7' } qw(noticed noted))
	{
		my ($type, $version) = @$_;
		++$number;
		command_ok([ $ENV{POSTBOX}, 'publish', 'catalog.video.events', '--project', 'postbox-dev', '--endpoint', $emulator->{endpoint},
			'--data', qq({"eventId": "$number", "eventType": "video.$type", "aggregateType": "video", "aggregateId": "$number", "id": $number, "text": "x", "version": $version}) ], "$type $version");
	}
	wait_until($node, 'postgres', 'SELECT (SELECT count(*) FROM postbox.dead_letter) = 3 AND (SELECT count(*) FROM reading.noticed) = 2 AND EXISTS (SELECT FROM reading.noted)', 'each is applied or a dead letter')
	  or diag($puller->{output});
	is($node->safe_psql('postgres', 'SELECT id, version FROM reading.noticed ORDER BY id'), "1|\n3|7", 'a handler gets NULL for what is no number');
	is($node->safe_psql('postgres', 'SELECT id, text, version FROM reading.noted'), '6|x|7', 'a projection takes the version of the aggregate only');
	is($node->safe_psql('postgres', q{SELECT event_id, split_part(error, ' (', 1) FROM postbox.dead_letter ORDER BY event_id}),
		"2|member version of the JSON body is not a bigint\n4|event has no version\n5|member version of the JSON body is not a bigint", 'the others say why');
	puller_says($puller, qr/an event has no version: the member version of its JSON body is not a number.*event_id=1\b/, 'the log names what was left alone');
};

stop_puller($puller);
$node->stop;
done_testing();
