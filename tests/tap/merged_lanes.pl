# Lanes are merged at one moment, and what they have not read by then becomes parked events that go first. Nothing is left out of that,
# and each key stays in order.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

use constant TOPIC => 'catalog.video.events';

my $emulator = start_emulator('--subscription', "@{[TOPIC]}.follower=@{[TOPIC]},ordered");
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2, 'postbox.poll_interval' => '50ms', 'postbox.publish_timeout' => '1s', 'autovacuum' => 'off' });
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE SCHEMA app');
follow($node, 'postgres', "@{[TOPIC]}.follower", 'video.changed');

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

# So many events, of a few keys in turn.
sub emit_to
{
	my ($name, $count, $keys) = @_;
	return sql("SELECT count(postbox.outbox_emit('video', '$name-' || n % $keys, 'video.changed', '{}'::jsonb, outbox => 'app.$name')) FROM generate_series(1, $count) n");
}

# A publication of which events wait because the broker cannot be reached.
sub held_up
{
	my ($name, %options) = @_;
	my $more = join '', map { ", $_ => $options{$_}" } sort keys %options;
	sql("SELECT postbox.create_outbox('app.$name'); SELECT postbox.create_publication('$name', 'app.$name', '@{[TOPIC]}', lanes => 2$more)");
	emit_to($name, 10, 10);
	wait_pending($name, 0);
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE');
	return;
}

sub wait_pending
{
	my ($name, $pending) = @_;
	return wait_until($node, 'postgres', "SELECT pending = $pending FROM postbox.publication_status WHERE publication = '$name'", "$name: $pending wait")
	  || diag(sql('SELECT * FROM postbox.publication_status; SELECT name, lanes, wanted_lanes FROM postbox.publication'));
}

sub merge
{
	my ($name, $lanes) = @_;
	sql("SELECT postbox.alter_publication('$name', lanes => $lanes)");
	return wait_until($node, 'postgres', "SELECT lanes = $lanes AND wanted_lanes IS NULL FROM postbox.publication WHERE name = '$name'", "$name has $lanes lanes");
}

# Of the events that a follower has seen: out of order, twice or left out between others.
my $disordered = q{SELECT count(*) FROM (SELECT version, coalesce(lag(version) OVER (PARTITION BY aggregate_id ORDER BY n), 0) + 1 AS expected FROM app.seen) s
	WHERE version <> expected};

for my $on_failure ('park_key', 'park_event')
{
	subtest "on_failure => '$on_failure': keys stay in order when lanes are merged while their events wait" => sub {
		my $name = "waits_$on_failure";
		my $puller = start_puller($node, 'postgres', $emulator);
		held_up($name, on_failure => "'$on_failure'");
		emit_to($name, 450, 3);
		merge($name, 1);
		is(sql("SELECT count(*) FROM app.${name}_parked"), 450, 'they go before what is emitted now');
		emit_to($name, 450, 3);
		emulator_fault($emulator, '--clear');
		wait_pending($name, 0);
		wait_until($node, 'postgres', "SELECT count(DISTINCT (aggregate_id, version)) = 910 FROM app.seen WHERE aggregate_id LIKE '$name-%'", 'all have arrived');
		is(sql($disordered), '0', 'in the order of their keys')
		  or diag(sql('SELECT * FROM (SELECT n, aggregate_id, version, lag(version) OVER (PARTITION BY aggregate_id ORDER BY n) AS before FROM app.seen) s WHERE version <> before + 1 ORDER BY n LIMIT 5'));
		stop_puller($puller);
	};
}

$node->stop;
done_testing();
