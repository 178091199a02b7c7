# What an event has not done is said, on the whole way from outbox_emit through Pub/Sub and the puller to the projection: it is neither stale
# nor gone without a word.
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
$node->safe_psql(
	'postgres', q{
	CREATE SCHEMA reading;
	SELECT postbox.create_inbox('reading.inbox');
	SELECT postbox.create_subscription('videos', 'reading.inbox', 'catalog.video.events.test-follower', max_attempts => 2, min_backoff => '10 ms', max_backoff => '20 ms');
	CREATE TABLE reading.kept (id text PRIMARY KEY, title text, version bigint);
	CREATE FUNCTION reading.keep() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
	CREATE TRIGGER keep BEFORE DELETE ON reading.kept FOR EACH ROW EXECUTE FUNCTION reading.keep();
	CREATE TABLE reading.marked (id text PRIMARY KEY, title text, deleted boolean DEFAULT false, version bigint);
	CREATE FUNCTION reading.mark() RETURNS trigger LANGUAGE plpgsql AS
		'BEGIN UPDATE reading.marked SET deleted = true, version = postbox.event_version() WHERE id = OLD.id; RETURN NULL; END';
	CREATE TRIGGER mark BEFORE DELETE ON reading.marked FOR EACH ROW EXECUTE FUNCTION reading.mark();
	CREATE TABLE reading.person (id text PRIMARY KEY, name text, city text, version bigint);
	CREATE TABLE reading.contact (id text PRIMARY KEY, name text CHECK (name <> 'refused'), note text, city text, name_version bigint, city_version bigint);
	SELECT postbox.create_projection('reading.inbox', '{created}', 'reading.kept', '{"title": "title"}', delete_types => '{deleted}');
	SELECT postbox.create_projection('reading.inbox', '{created}', 'reading.marked', '{"title": "title"}', delete_types => '{marked}');
	SELECT postbox.create_projection('reading.inbox', '{named}', 'reading.person', '{"name": "name"}');
	SELECT postbox.create_projection('reading.inbox', '{moved}', 'reading.person', '{"city": "city"}');
	SELECT postbox.create_projection('reading.inbox', '{contact.named}', 'reading.contact', '{"name": "name", "note": "note"}', version_column => 'name_version');
	SELECT postbox.create_projection('reading.inbox', '{contact.moved}', 'reading.contact', '{"city": "city"}', version_column => 'city_version');
});
my $puller = start_puller($node, 'postgres', $emulator);

sub emit_event
{
	my ($aggregate, $id, $type, $version, $payload) = @_;
	$node->safe_psql('postgres', "SELECT postbox.outbox_emit('$aggregate', '$id', '$type', '$payload'::jsonb, version => $version)");
	return;
}

sub dead_letters { my ($where) = @_; return $node->safe_psql('postgres', "SELECT string_agg(event_type || ' ' || version || ' ' || sqlstate, ', ' ORDER BY id) FROM postbox.dead_letter WHERE $where"); }

emit_event('video', 'v', 'created', 1, '{"title": "one"}');
emit_event('video', 'v', 'deleted', 3, '{}');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.dead_letter WHERE aggregate_id = 'v'}, 'a delete that a trigger suppresses is a dead letter');
is(dead_letters(q{aggregate_id = 'v'}), 'deleted 3 55000', 'which says what it is');
emit_event('video', 'm', 'created', 1, '{"title": "one"}');
emit_event('video', 'm', 'marked', 3, '{}');
emit_event('video', 'm', 'created', 2, '{"title": "late"}');
wait_until($node, 'postgres', q{SELECT count(*) = 3 FROM reading.inbox WHERE aggregate_id = 'm'}, 'a table that keeps what is deleted takes the events');
is($node->safe_psql('postgres', q{SELECT * FROM reading.marked WHERE id = 'm'}), 'm|one|t|3', 'and its row, which moves on with the delete, keeps the late one out');

emit_event('customer', 'p', 'named', 3, '{"name": "Ada"}');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM reading.person}, 'an event of one aggregate type is applied');
emit_event('address', 'p', 'moved', 1, '{"city": "Rome"}');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.dead_letter WHERE aggregate_type = 'address'}, 'one of another type for the same row is a dead letter');
emit_event('customer', 'p', 'contact.named', 4, '{"name": "Ada"}');
emit_event('address', 'p', 'contact.moved', 2, '{"city": "Rome"}');
wait_until($node, 'postgres', q{SELECT name = 'Ada' AND city = 'Rome' FROM reading.contact}, 'with version columns of their own both are applied');

emit_event('customer', 'q', 'contact.named', 1, '{"name": "refused", "note": "only here"}');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.dead_letter WHERE aggregate_id = 'q'}, 'an event is given up');
emit_event('customer', 'q', 'contact.named', 2, '{"name": "Eve"}');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM reading.contact WHERE id = 'q'}, 'a newer one is applied');
$node->safe_psql('postgres', 'ALTER TABLE reading.contact DROP CONSTRAINT contact_name_check');
is($node->safe_psql('postgres', q{SELECT postbox.redrive_dead_letter(id) FROM postbox.dead_letter WHERE aggregate_id = 'q'}), 'stale', 'redriving the first one is stale');
is($node->safe_psql('postgres', q{SELECT outcome, convert_from(payload, 'UTF8')::jsonb ->> 'note' FROM postbox.dead_letter WHERE aggregate_id = 'q'}), 'stale|only here',
	'and it stays, with what no other event has');

emit_event('video', 'g', 'created', 6, '{"title": "given"}');
emit_event('video', 'g', 'created', 'NULL', '{"title": "counted"}');
wait_until($node, 'postgres', q{SELECT title = 'counted' AND version = 7 FROM reading.marked WHERE id = 'g'}, 'a version that is counted after one that was given is newer');

# The first is checked at COMMIT; the trigger of the other says that another event has failed.
$node->safe_psql(
	'postgres', q{
	CREATE TABLE reading.folder (id text PRIMARY KEY);
	CREATE TABLE reading.file (id text PRIMARY KEY, folder text REFERENCES reading.folder DEFERRABLE INITIALLY DEFERRED, version bigint);
	SELECT postbox.create_projection('reading.inbox', '{filed}', 'reading.file', '{"folder": "folder"}');
	CREATE FUNCTION reading.lie() RETURNS trigger LANGUAGE plpgsql AS $$BEGIN
		IF NEW.id = 'liar' THEN RAISE 'no' USING DETAIL = '{"event": ' || NEW.folder || '}'; END IF;
		RETURN NULL;
	END$$;
	CREATE CONSTRAINT TRIGGER lie AFTER INSERT ON reading.file DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION reading.lie();
	INSERT INTO reading.folder VALUES ('there'), ('1'), ('18446744073709551615');
});
my $filed = sub { my ($id, $folder) = @_; return "SELECT postbox.outbox_emit('file', '$id', 'filed', '{\"folder\": \"$folder\"}'::jsonb, version => 1);" };
$node->safe_psql('postgres', join('', map { $filed->($_, 'there') } 1 .. 5) . $filed->('lost', 'nowhere') . join('', map { $filed->($_, 'there') } 6 .. 10));
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.dead_letter WHERE event_type = 'filed'}, 'an event whose effect fails at COMMIT is given up');
like($node->safe_psql('postgres', q{SELECT error FROM postbox.dead_letter WHERE aggregate_id = 'lost'}), qr/violates foreign key .*Key \(folder\)=\(nowhere\) is not present/s, 'with the detail of the error');
wait_until($node, 'postgres', q{SELECT count(*) = 10 FROM reading.file}, 'and no other event');
for my $position ('1', '18446744073709551615')
{
	$node->safe_psql('postgres', $filed->("before $position", 'there') . $filed->("between $position", 'there') . $filed->('liar', $position) . $filed->("after $position", 'there'));
	wait_until($node, 'postgres', qq{SELECT count(*) = 3 FROM reading.file WHERE id LIKE '% $position'}, 'a trigger that names another event harms none');
}
wait_until($node, 'postgres', q{SELECT count(*) FILTER (WHERE aggregate_id = 'liar') = 2 AND count(*) = 3 FROM postbox.dead_letter WHERE event_type = 'filed'}, 'its own are given up');

stop_puller($puller);
$node->stop;
done_testing();
