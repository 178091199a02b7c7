# Deleting what is older than its retention: where that is slow, fewer rows go at a time, and an owner whose code makes it slow holds up nobody.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.maintenance_interval' => '1s', 'postbox.time_scale' => 20 });
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql('postgres', q{
	CREATE FUNCTION app.fill(outbox regclass, rows int) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		EXECUTE format('INSERT INTO %s (id, aggregate_type, aggregate_id, event_type, version, payload, published_at)
			SELECT gen_random_uuid(), ''video'', n::text, ''video.changed'', 1, ''{}'', now() - interval ''1 year'' FROM generate_series(1, %s) n', outbox, rows);
	END $$;
	CREATE FUNCTION app.slow() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_sleep(0.002); RETURN OLD; END $$;
	CREATE TRIGGER slow BEFORE DELETE ON app.outbox FOR EACH ROW WHEN (OLD.aggregate_id ~ '(00|25|50|75)$') EXECUTE FUNCTION app.slow();
	SELECT app.fill('app.outbox', 12000)});
wait_until($node, 'postgres', 'SELECT count(*) = 0 FROM app.outbox', 'a table of which 10,000 rows cannot be deleted in time is purged');
unlike(log_since($node, 0), qr/could not purge/, 'nothing has failed');

# The last one registered. Each purge finds a row that was put there by the one before.
$node->safe_psql('postgres', q{
	SELECT postbox.create_outbox('app.evil', 'table');
	CREATE SEQUENCE app.called;
	CREATE FUNCTION app.evil() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM nextval('app.called'); PERFORM pg_sleep(0.15); PERFORM app.fill('app.evil', 1); RETURN NULL; END $$;
	CREATE TRIGGER evil AFTER DELETE ON app.evil FOR EACH STATEMENT EXECUTE FUNCTION app.evil();
	SELECT app.fill('app.evil', 1);
	DROP TRIGGER slow ON app.outbox});
my $begin = time;
wait_until($node, 'postgres', q{SELECT last_value > 2 FROM app.called}, 'the code of an owner runs again and again');
$node->safe_psql('postgres', q{SELECT app.fill('app.outbox', 25000)});
wait_until($node, 'postgres', 'SELECT count(*) = 0 FROM app.outbox', 'the table of another owner is purged nevertheless');
$node->safe_psql('postgres', q{SELECT count(postbox.outbox_emit('video', n::text, 'video.created', '{}'::jsonb, outbox => 'app.outbox')) FROM generate_series(1, 10) n});
wait_published($node, 'postgres', 10, 'and its events are published');
my $held = 0.15 * $node->safe_psql('postgres', 'SELECT last_value FROM app.called');
cmp_ok($held, '<', 0.45 + 0.3 * (time - $begin), 'that code has a part of the time of the worker');

$node->stop;
done_testing();
