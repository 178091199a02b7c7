# Databases that are not UTF-8: messages are, and the keys of events that wait are those of the database.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.poll_interval' => '50ms',
	'postbox.maintenance_interval' => '1h',    # no repair
});
$node->start;

my %parked = (
	log => q{SELECT coalesce(string_agg(CASE WHEN publish_attempts = 0 THEN 'behind' ELSE 'failed' END, ' ' ORDER BY seq), '') FROM app.log_parked WHERE aggregate_id = KEY},
	tab => q{SELECT coalesce(string_agg(CASE WHEN publish_attempts = 0 THEN 'behind' ELSE 'failed' END, ' ' ORDER BY seq), '') FROM app.tab WHERE aggregate_id = KEY AND published_at IS NULL AND next_retry_at IS NOT NULL});

sub create
{
	my ($database, $encoding) = @_;
	$node->safe_psql('postgres', "CREATE DATABASE $database ENCODING '$encoding' LOCALE 'C' TEMPLATE template0");
	$node->safe_psql(
		$database, q{
		CREATE EXTENSION postbox;
		CREATE SCHEMA app;
		SELECT postbox.create_outbox('app.log');
		SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', max_attempts => 1);
		SELECT postbox.create_outbox('app.tab', 'table');
		SELECT postbox.create_publication('tab', 'app.tab', 'catalog.video.events', max_attempts => 1);
	});
	return;
}

sub emit_to
{
	my ($database, $outbox, $key, @types) = @_;
	$node->safe_psql($database, join(';', map { "SELECT postbox.outbox_emit('video', $key, 'video.$_', '{}'::jsonb, attributes => jsonb_build_object('name', $key), outbox => 'app.$outbox')" } @types));
	return;
}

# What outbox_emit refuses: a plain INSERT into a database that takes any bytes for text.
sub insert_into
{
	my ($outbox, $key, $attributes, @types) = @_;
	$node->safe_psql('bytes', join(';', map { "INSERT INTO app.$outbox (id, aggregate_type, aggregate_id, event_type, version, payload, attributes) VALUES (gen_random_uuid(), 'video', $key, 'video.$_', 1, '{}', $attributes)" } @types));
	return;
}

sub wait_parked
{
	my ($database, $outbox, $key, $expected, $what) = @_;
	my $query = $parked{$outbox} =~ s/KEY/$key/r;
	wait_until($node, $database, "SELECT ($query) = '$expected'", $what) or diag($node->safe_psql($database, $query));
	return;
}

my $poison = 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison';

create('latin', 'LATIN1');
for my $outbox ('log', 'tab')
{
	subtest "a key outside of ASCII in a LATIN1 database waits behind its parked event, in a $outbox outbox" => sub {
		emulator_fault($emulator, $poison);
		my $key = "'ol' || chr(233)";
		emit_to('latin', $outbox, $key, 'poison');
		wait_parked('latin', $outbox, $key, 'failed', 'the event is parked');
		my $sent = messages_published($emulator);
		emit_to('latin', $outbox, $key, 'one', 'two');
		wait_parked('latin', $outbox, $key, 'failed behind behind', 'what follows waits behind it');
		emit_to('latin', $outbox, "'another'", 'one');
		wait_for(sub { messages_published($emulator) >= $sent + 1 }, 'another key goes on');
		emulator_fault($emulator, '--clear');
		is($node->safe_psql('latin', "SELECT postbox.redrive('app.$outbox')"), '1', 'the event is redriven');
		wait_for(sub { messages_published($emulator) >= $sent + 4 }, 'all are published') or diag(messages_published($emulator) - $sent);
		wait_parked('latin', $outbox, $key, '', 'nothing is parked any more');
		emit_to('latin', $outbox, $key, 'three');
		wait_for(sub { messages_published($emulator) >= $sent + 5 }, 'the key goes on');
	};
}

# Each event of such a key is refused by itself, or waits behind one that was.
sub wait_stopped
{
	my ($outbox, $count, $what) = @_;
	my $query = $parked{$outbox} =~ s/KEY/E'k\\xe9'/r;
	wait_until($node, 'bytes', "SELECT ($query) ~ '^(failed( failed| behind){@{[ $count - 1 ]}})\$'", $what) or diag($node->safe_psql('bytes', $query));
	return;
}

create('bytes', 'SQL_ASCII');
for my $outbox ('log', 'tab')
{
	subtest "a key that is no text stops itself and no other, in a $outbox outbox" => sub {
		emulator_fault($emulator, '--clear');
		my $sent = messages_published($emulator);
		my $key = "E'k\\xe9'";
		insert_into($outbox, $key, q{'{}'}, 'one', 'two');
		wait_stopped($outbox, 2, 'its events are parked');
		insert_into($outbox, $key, q{'{}'}, 'three');
		emit_to('bytes', $outbox, "'another'", 'one');
		wait_for(sub { messages_published($emulator) >= $sent + 1 }, 'another key goes on');
		wait_stopped($outbox, 3, 'what comes later is, too');
		$node->safe_psql('bytes', "SELECT postbox.redrive('app.$outbox')");
		wait_stopped($outbox, 3, 'redrive tries it again, and it fails again');
		my $discard = "SELECT postbox.discard(relation, first_event_id::uuid) FROM postbox.paused_keys WHERE relation = 'app.$outbox'::regclass AND aggregate_id = $key";
		for my $left (2, 1)
		{
			is($node->safe_psql('bytes', $discard), 't', 'its events can be discarded');
			wait_stopped($outbox, $left, 'the next one is tried');
		}
		is($node->safe_psql('bytes', $discard), 't', 'down to the last');
		sent_once($emulator, $node, $sent + 1, 'nothing of it was sent');
	};

	subtest "an attribute that is no text stops its event, in a $outbox outbox" => sub {
		my $sent = messages_published($emulator);
		insert_into($outbox, q{'attribute'}, q{jsonb_build_object('name', E'\\xe9')}, 'one');
		wait_parked('bytes', $outbox, q{'attribute'}, 'failed', 'it is parked');
		sent_once($emulator, $node, $sent, 'and not sent');
	};
}

$node->stop;
done_testing();
