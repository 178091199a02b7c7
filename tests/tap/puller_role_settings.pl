# Settings of the puller's role do not change what an event does, nor keep the puller from saying what it has done: what changes the effect
# of SQL has the same value for everyone while events are applied.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator,
	settings => { 'postbox.poll_interval' => '50ms', 'default_text_search_config' => 'pg_catalog.english' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE ROLE reader LOGIN;
	GRANT EXECUTE ON FUNCTION postbox.create_subscription TO reader;
	CREATE SCHEMA reading AUTHORIZATION reader;
	SET ROLE reader;
	CREATE TABLE reading.channel (id text PRIMARY KEY);
	INSERT INTO reading.channel VALUES ('c');
	CREATE TABLE reading.video (video_id text PRIMARY KEY, channel text REFERENCES reading.channel, words tsvector, nothing boolean, version bigint NOT NULL);
	CREATE FUNCTION reading.fill() RETURNS trigger LANGUAGE plpgsql AS $$
	DECLARE
		missing text;
	BEGIN
		NEW.words := to_tsvector('the cats');
		EXECUTE 'SELECT ($1 = NULL) IS NULL' INTO NEW.nothing USING missing;
		RETURN NEW;
	END $$;
	CREATE TRIGGER fill BEFORE INSERT ON reading.video FOR EACH ROW EXECUTE FUNCTION reading.fill();
	SELECT postbox.create_inbox('reading.inbox');
	SELECT postbox.create_subscription('videos', 'reading.inbox', 'catalog.video.events.test-follower', max_attempts => 2, min_backoff => '10 ms', max_backoff => '20 ms');
	SELECT postbox.create_projection('reading.inbox', '{video.created}', 'reading.video', columns => '{"channel": "channel"}');
	RESET ROLE;
	ALTER ROLE reader SET session_replication_role = replica;
	ALTER ROLE reader SET row_security = off;
	ALTER ROLE reader SET transform_null_equals = on;
	ALTER ROLE reader SET standard_conforming_strings = off;
	ALTER ROLE reader SET default_text_search_config = 'pg_catalog.simple';
	ALTER ROLE reader SET gin_fuzzy_search_limit = 1;
});
my $puller = start_puller($node, 'postgres', undef, dsn => $node->connstr('postgres') . ' user=reader');
$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', id, 'video.created', jsonb_build_object('channel', channel)) FROM (VALUES ('v1', 'c'), ('v2', 'missing')) AS v(id, channel)});
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.dead_letter WHERE aggregate_id = 'v2' AND sqlstate = '23503'}, 'the foreign keys of the target are checked');
wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM reading.video}, 'what they allow is applied');
is($node->safe_psql('postgres', q{SELECT words, nothing FROM reading.video}), q{'cat':2|t}, 'by its triggers, with the search configuration of postgresql.conf, and NULL is equal to nothing');
wait_until($node, 'postgres', q{SELECT applied = 1 AND dead_letters = 1 AND stream = 'connected' FROM postbox.subscription_status}, 'and the status says so');
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET default_text_search_config = 'pg_catalog.german'});
$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'v3', 'video.created', '{"channel": "c"}')});
wait_until($node, 'postgres', q{SELECT words = to_tsvector('german', 'the cats') FROM reading.video WHERE video_id = 'v3'}, 'a value of the database is for every role');
my $id = $node->safe_psql('postgres', 'SELECT id FROM postbox.dead_letter');
is($node->safe_psql('postgres', "SELECT postbox.redrive_dead_letter($id)", connstr => $node->connstr('postgres') . ' user=reader'), 'rejected',
	'redriving is applied likewise');
like($node->safe_psql('postgres', q{SELECT string_agg(status, ',') FROM postbox.doctor() WHERE "check" = 'subscriptions'}, connstr => $node->connstr('postgres') . ' user=reader'), qr/^ok$/,
	'the role may ask the doctor');
stop_puller($puller);
unlike($puller->{output} . slurp_file($node->logfile), qr/row-level security/, 'no log says anything of policies');

$node->stop;
done_testing();
