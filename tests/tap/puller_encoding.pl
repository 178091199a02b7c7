# In a database that is not UTF-8 an event with characters outside of its encoding is a dead letter. The others of its
# batch are applied.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', q{CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
is($node->safe_psql('postgres', 'SHOW server_encoding'), 'UTF8', 'the events come from a database with UTF-8');
$node->safe_psql('latin', 'CREATE EXTENSION postbox; CREATE SCHEMA app');
follow($node, 'latin', 'catalog.video.events.test-follower', 'video.created');
$node->safe_psql('latin', q{UPDATE postbox.subscription SET min_backoff = '10ms', max_backoff = '100ms'});

emit($node, 'postgres', 100);
$node->safe_psql(
	'postgres', q{
	SELECT postbox.outbox_emit('video', U&'key \4E2D', 'video.created', '{"a": 1}'::jsonb, version => 1);
	SELECT postbox.outbox_emit('video', 'attribute', 'video.created', '{"a": 1}'::jsonb, version => 1, attributes => jsonb_build_object('name', U&'\4E2D'));
	SELECT postbox.outbox_emit('video', U&'caf\00E9', 'video.created', '{"a": 1}'::jsonb, version => 1);
});
emit($node, 'postgres', 100);
my $puller = start_puller($node, 'latin', $emulator);
wait_until($node, 'latin', 'SELECT count(*) = 201 FROM app.seen', 'what the encoding can hold is applied') or diag(substr($puller->{output}, 0, 5000));
wait_until($node, 'latin', 'SELECT count(*) = 2 FROM postbox.dead_letter', 'what it cannot hold is recorded') or diag(substr($puller->{output}, -5000));
is($node->safe_psql('latin', q{SELECT count(*) FROM postbox.dead_letter WHERE raw IS NOT NULL AND error IS NOT NULL}), '2', 'with its bytes, and the reason');
stop_puller($puller);
$node->stop;
done_testing();
