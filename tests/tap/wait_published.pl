# postbox.wait_published returns when a worker has stored that the event is published: of both kinds of outbox, and without looking all the time.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator);
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_outbox('app.tab', 'table');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events');
	SELECT postbox.create_publication('tab', 'app.tab', 'catalog.video.events');
});

for my $kind ('log', 'tab')
{
	my $emit = sub { return $node->safe_psql('postgres', "SELECT (postbox.outbox_emit('video', 'a', 'video.changed', '{}'::jsonb, outbox => 'app.$kind')).event_id") };
	my $id = $emit->();
	is($node->safe_psql('postgres', "SELECT postbox.wait_published('$id', '60s')"), 't', "$kind: the event is published");

	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE');
	$id = $emit->();
	is($node->safe_psql('postgres', "SELECT postbox.wait_published('$id', '200ms', 'app.$kind')"), 'f', "$kind: while the broker does not answer it is not");
	my $answer = '';
	my $waiter = IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres'), '-c', "SELECT postbox.wait_published('$id', '60s')" ], '>', \$answer);
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND query LIKE '%postbox.wait_published(''%' AND pid <> pg_backend_pid()}, "$kind: a session sleeps");
	emulator_fault($emulator, '--clear');
	$waiter->finish;
	is($answer, "t\n", "$kind: and is woken when the event has gone through");
}

$node->stop;
done_testing();
