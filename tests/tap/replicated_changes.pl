# Tables with change triggers that logical replication changes: no events, which postbox.doctor() says, and no end of the subscription's worker.
# The trigger that docs/guides/logical-replication.md has for it emits each change once, and these events are published.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Docs;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator();
my %settings = ('wal_level' => 'logical', 'postbox.poll_interval' => '50ms', 'wal_retrieve_retry_interval' => '100ms');
my $node = new_node('main', emulator => $emulator, allows_streaming => 'logical', settings => \%settings);
$node->start;

my $table = q{CREATE SCHEMA catalog; CREATE TABLE catalog.playlist (playlist_id bigint PRIMARY KEY, title text NOT NULL, note text);};
$node->safe_psql('postgres', 'CREATE DATABASE source; CREATE DATABASE target');
$node->safe_psql('source', "$table CREATE PUBLICATION lists FOR TABLE catalog.playlist; INSERT INTO catalog.playlist VALUES (1, 'copied')");
$node->safe_psql('target', qq{
	CREATE EXTENSION postbox;
	$table
	SELECT postbox.create_outbox('catalog.outbox');
	SELECT postbox.create_publication('lists', 'catalog.outbox', 'catalog.video.events');
	SELECT postbox.create_change_triggers('catalog.playlist', 'playlist', outbox => 'catalog.outbox')});

my $warnings = q{SELECT subject || ': ' || detail FROM postbox.doctor() WHERE detail LIKE '%logical replication%'};
my $rows = q{SELECT string_agg(playlist_id || ' ' || title, ', ' ORDER BY playlist_id) FROM catalog.playlist};
my $events = q{SELECT string_agg(event_type || ' ' || aggregate_id || ' ' || version, ', ' ORDER BY seq) FROM catalog.outbox};

sub source_changes
{
	my ($statements, $rows_then, $what) = @_;
	$node->safe_psql('source', $statements);
	return wait_until($node, 'target', "SELECT ($rows) IS NOT DISTINCT FROM $rows_then", $what);
}

is($node->safe_psql('target', $warnings), '', 'without a subscription there is no warning');
$node->safe_psql('source', "SELECT pg_create_logical_replication_slot('lists', 'pgoutput')");
$node->safe_psql('target', "CREATE SUBSCRIPTION lists CONNECTION 'host=@{[$node->host]} port=@{[$node->port]} dbname=source' PUBLICATION lists WITH (create_slot = false)");
wait_until($node, 'target', q{SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel}, 'the subscription is in step');

source_changes(q{INSERT INTO catalog.playlist VALUES (2, 'new'); UPDATE catalog.playlist SET title = 'other' WHERE playlist_id = 1}, q{'1 other, 2 new'}, 'changes arrive');
is($node->safe_psql('target', $events), '', 'they emit no events');
is($node->safe_psql('target', $warnings),
	'catalog.playlist: logical replication changes it (subscription lists), and its change triggers emit no events for these changes', 'and the doctor warns of it');
is($node->safe_psql('target', "CREATE ROLE anyone; SET ROLE anyone; $warnings"),
	'catalog.playlist: logical replication changes it (subscription lists), and its change triggers emit no events for these changes', 'whoever asks');

my $position = log_position($node);
$node->safe_psql('target', "ALTER TABLE catalog.playlist ENABLE ALWAYS TRIGGER $_") for map { "postbox_$_" } qw(created updated deleted truncated);
source_changes(q{TRUNCATE catalog.playlist}, 'NULL', 'a TRUNCATE arrives where the triggers are enabled for it');
source_changes(q{INSERT INTO catalog.playlist VALUES (3, 'after')}, q{'3 after'}, 'and what comes after it');
like(log_since($node, $position), qr/WARNING:  a TRUNCATE of playlist arrived by logical replication and emits no events/, 'which the log says');
unlike(log_since($node, $position), qr/logical replication worker.*exited with exit code|would emit no events/, 'without an end of the worker');
is($node->safe_psql('target', $events), '', 'still no events');
my ($status, $output, $error) = $node->psql('target', 'TRUNCATE catalog.playlist');
like($error, qr/TRUNCATE of playlist would emit no events/, 'a session still may not');

$node->safe_psql('target', $_) for sql_of('docs/guides/logical-replication.md', 'Emit where the rows arrive');
$node->safe_psql('target', "ALTER TABLE catalog.playlist ENABLE TRIGGER $_") for map { "postbox_$_" } qw(created updated deleted truncated);
is($node->safe_psql('target', $warnings), '', 'with the trigger of the documentation there is no warning');
source_changes(
	q{INSERT INTO catalog.playlist VALUES (4, 'four'), (5, 'five'); UPDATE catalog.playlist SET title = 'third' WHERE playlist_id = 3;
	UPDATE catalog.playlist SET playlist_id = 6 WHERE playlist_id = 5; DELETE FROM catalog.playlist WHERE playlist_id = 4},
	q{'3 third, 6 five'}, 'more changes arrive');
my $emitted = 'playlist.created 4 1, playlist.created 5 1, playlist.updated 3 1, playlist.deleted 5 2, playlist.updated 6 1, playlist.deleted 4 2';
is($node->safe_psql('target', $events), $emitted, 'each emits its events');
$node->safe_psql('target', q{UPDATE catalog.playlist SET title = 'here' WHERE playlist_id = 3});
is($node->safe_psql('target', $events), "$emitted, playlist.updated 3 2", 'a change of a session emits one event');
wait_until($node, 'target', q{SELECT pending = 0 FROM postbox.publication_status}, 'all of them are published');
is($node->safe_psql('target', q{SELECT problem FROM postbox.outbox_status}), '', 'and none is kept as one of the source');

$node->safe_psql('target', 'ALTER SUBSCRIPTION lists DISABLE; ALTER SUBSCRIPTION lists SET (slot_name = NONE); DROP SUBSCRIPTION lists');
$node->stop;
done_testing();
