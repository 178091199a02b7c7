# A publication is altered where it stands: while events are emitted and on their way, its lanes, ordering, topic and filter change.
# Nothing is lost, nothing is sent a second time, and each key stays in order. A new one begins where it is told to.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Load;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

use constant TOPIC => 'catalog.video.events';
use constant OTHER_TOPIC => 'catalog.other.events';
# More than may wait when the keys are divided anew, which are 1000.
use constant MANY => 2500;

my $emulator = start_emulator('--topic', OTHER_TOPIC, '--subscription', "@{[TOPIC]}.follower=@{[TOPIC]},ordered");
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 3, 'postbox.checkpoint_interval' => '1s', 'postbox.publish_timeout' => '5s', 'autovacuum' => 'off' });
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE SCHEMA app');
follow($node, 'postgres', "@{[TOPIC]}.follower", 'video.changed', { batch_delay => '50ms' });

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

sub create
{
	my ($name, %options) = @_;
	my $more = join '', map { ", $_ => $options{$_}" } sort keys %options;
	return sql("SELECT postbox.create_outbox('app.$name'); SELECT postbox.create_publication('$name', 'app.$name', '@{[TOPIC]}'$more)");
}

# The times of a worker's own are a fifth of what they are, and a request is given up sooner.
sub short_times
{
	my ($so) = @_;
	set_configuration($node, 'postbox.time_scale', $so ? 20 : 100);
	set_configuration($node, 'postbox.publish_timeout', $so ? '1s' : '5s');
	$node->reload;
	return;
}

# What nobody reads any more costs its workers time.
sub drop { my ($name) = @_; return sql("SELECT postbox.drop_publication('$name')"); }

sub emit_to
{
	my ($name, $count, $event) = @_;
	return sql(emit_sql($name, $count, $event));
}

sub emit_sql
{
	my ($name, $count, $event) = @_;
	$event //= 'other';
	return "SELECT count(postbox.outbox_emit('video', '$name-' || n % 50, 'video.$event', '{}'::jsonb, outbox => 'app.$name')) FROM generate_series(1, $count) n";
}

sub wait_all
{
	my ($name, $what) = @_;
	return wait_until($node, 'postgres', "SELECT pending = 0 AND state = 'active' FROM postbox.publication_status WHERE publication = '$name'", $what)
	  || diag(sql("SELECT * FROM postbox.publication_status; SELECT publication, slice, lock_token, hwm FROM postbox.lane; SELECT name, lanes, wanted_lanes FROM postbox.publication"));
}

sub wait_lanes
{
	my ($name, $lanes) = @_;
	return wait_until($node, 'postgres', qq{
		SELECT p.lanes = $lanes AND p.wanted_lanes IS NULL AND count(l.lock_token) = $lanes FROM postbox.publication p
		JOIN postbox.lane l ON l.publication = p.name WHERE p.name = '$name' GROUP BY p.lanes, p.wanted_lanes}, "$name has $lanes lanes")
	  || diag(sql("SELECT name, lanes, wanted_lanes FROM postbox.publication; SELECT publication, slice, lock_token, hwm, snapshot FROM postbox.lane"));
}

# Until they are stopped, with all that they have begun.
sub writers
{
	my ($name) = @_;
	return start_load($node, 'postgres', { $name => "\\set key random(1, 40)\nBEGIN;\n"
		. "SELECT postbox.outbox_emit('video', '$name-' || :key, 'video.changed', '{}'::jsonb, outbox => 'app.$name');\n" x 3 . "COMMIT;\n" }, rate => 100);
}

sub stop_writers
{
	my ($writers) = @_;
	stop_load($writers);
	return unlike($writers->{output}, qr/ERROR|aborted/, 'the writers succeeded') || diag($writers->{output});
}

# Of the events of an outbox that a follower has seen: out of order, twice or left out between others.
my $disordered = q{SELECT count(*) FROM (SELECT version, coalesce(lag(version) OVER (PARTITION BY aggregate_id ORDER BY n), 0) + 1 AS expected FROM app.seen) s
	WHERE version <> expected};

subtest 'lanes and ordering change under load, and each event is sent once and in order' => sub {
	create('busy');
	my $puller = start_puller($node, 'postgres', $emulator);
	my $sent = messages_published($emulator);
	my $writers = writers('busy');
	wait_until($node, 'postgres', 'SELECT count(*) > 100 FROM app.seen', 'events flow');
	for my $lanes (4, 8, 3, 6, 1, 2, 5)
	{
		my $ordering = $lanes % 2 ? 'key' : 'bucket:4';
		sql("SELECT postbox.alter_publication('busy', lanes => $lanes, ordering => '$ordering')");
		wait_lanes('busy', $lanes);
		my $seen = sql('SELECT count(*) FROM app.seen');
		wait_until($node, 'postgres', "SELECT count(*) > $seen + 100 FROM app.seen", "events flow with $lanes lanes");
	}
	stop_writers($writers);
	wait_all('busy', 'all are published');
	my $emitted = sql('SELECT count(*) FROM app.busy');
	sent_once($emulator, $node, $sent + $emitted, "each of $emitted was sent once");
	wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", 'all have arrived');
	is(sql($disordered), '0', 'in the order of their keys');
	is(sql('SELECT count(*) FROM app.busy_parked'), '0', 'none is left parked');
	stop_puller($puller);
};

subtest 'events of a type that is added are published from the commit on that adds it, under load' => sub {
	create('filtered', lanes => 2, aggregate_types => "'{video}'");
	my $puller = start_puller($node, 'postgres', $emulator);
	my $writers = writers('filtered');
	wait_until($node, 'postgres', q{SELECT count(*) > 100 FROM app.seen WHERE aggregate_id LIKE 'filtered-%'}, 'events flow');
	my $session = $node->background_psql('postgres');
	for my $round (1 .. 25)
	{
		# Not in one transaction, and at some distance: a worker may read between the two.
		for my $statement ("alter_publication('filtered', aggregate_types => '{video}')", "alter_publication('filtered', aggregate_types => '{video,order}')",
			"outbox_emit('order', 'marker-$round', 'video.changed', '{}'::jsonb, outbox => 'app.filtered')")
		{
			select(undef, undef, undef, rand(0.05));
			$session->query_safe("SELECT postbox.$statement");
		}
		# The next round takes the type away again, and with it what no lane has come to.
		wait_for(sub { return $session->query_safe("SELECT count(*) FROM app.seen WHERE aggregate_id = 'marker-$round'") eq '1' }, "round $round: the event of the added type has come") or last;
	}
	$session->quit;
	stop_writers($writers);
	wait_all('filtered', 'all are published');
	wait_until($node, 'postgres', q{SELECT count(*) = 25 FROM app.seen WHERE aggregate_id LIKE 'marker-%'}, 'those of the added type, too')
	  or diag(sql(q{SELECT string_agg(aggregate_id, ' ') FROM app.filtered f WHERE aggregate_type = 'order' AND NOT EXISTS (SELECT FROM app.seen s WHERE s.aggregate_id = f.aggregate_id)}));
	my $emitted = sql('SELECT count(*) FROM app.filtered');
	wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen WHERE aggregate_id ~ '^(filtered|marker)-'", 'all have arrived');
	is(sql($disordered), '0', 'in the order of their keys');
	stop_puller($puller);
	drop('filtered');
};

subtest 'a multiple of the lanes is there at once whatever waits, another number when little does' => sub {
	short_times(1);
	create('waiting', lanes => 2);
	wait_lanes('waiting', 2);
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE');
	emit_to('waiting', MANY);
	sql("SELECT postbox.alter_publication('waiting', lanes => 4)");
	wait_lanes('waiting', 4);
	sql("SELECT postbox.alter_publication('waiting', lanes => 3)");
	wait_until($node, 'postgres', "SELECT bool_and(lock_token IS NOT NULL) FROM postbox.lane WHERE publication = 'waiting'", 'the lanes are held again');
	is(sql("SELECT lanes || ' ' || wanted_lanes FROM postbox.publication WHERE name = 'waiting'"), '4 3', 'many events wait');
	my $sent = messages_published($emulator);
	emulator_fault($emulator, '--clear');
	wait_lanes('waiting', 3);
	wait_all('waiting', 'all are published');
	# What was sent while others failed may be sent again.
	cmp_ok(messages_published($emulator) - $sent, '>=', MANY, 'none is left out');
	drop('waiting');
	short_times(0);
};

subtest 'events that are on their way when the topic or the filter changes are not sent again' => sub {
	create('moved');
	emit_to('moved', 10);
	wait_all('moved', 'it publishes');
	my $sent = messages_published($emulator);
	my $total = 0;
	for my $change ("topic => '@{[OTHER_TOPIC]}'", "aggregate_types => '{video}'", 'max_attempts => 7', "topic => '@{[TOPIC]}'", "aggregate_types => '{}'")
	{
		my $fired = counted($emulator, 'faults_fired');
		emulator_fault($emulator, 'rpc=Publish,latency-ms=700,count=20');
		emit_to('moved', 200);
		$total += 200;
		wait_for(sub { counted($emulator, 'faults_fired') > $fired }, 'some are on their way');
		sql("SELECT postbox.alter_publication('moved', $change)");
		wait_all('moved', "$change: all are published");
		emulator_fault($emulator, '--clear');
	}
	sent_once($emulator, $node, $sent + $total, 'once');
	drop('moved');
};

# What follows is about other things than the time between two stored positions.
set_configuration($node, 'postbox.checkpoint_interval', undef);

subtest 'a broker that does not answer does not keep a publication from its new topic' => sub {
	short_times(1);
	create('stuck');
	emit_to('stuck', 1);
	wait_all('stuck', 'it publishes');
	emulator_fault($emulator, 'rpc=Publish,latency-ms=600000,count=1');
	my $fired = counted($emulator, 'faults_fired');
	emit_to('stuck', 1);
	wait_for(sub { counted($emulator, 'faults_fired') > $fired }, 'an event is on its way');
	my $sent = messages_published($emulator);
	sql("SELECT postbox.alter_publication('stuck', topic => '@{[OTHER_TOPIC]}')");
	wait_for(sub { messages_published($emulator) > $sent }, 'it goes to the other topic');
	emulator_fault($emulator, '--clear');
	short_times(0);
};

# What psql says on standard error, and how many of the events that were there and that came later are sent.
sub begun
{
	my ($name, $start) = @_;
	my $sent = messages_published($emulator);
	my ($stdout, $stderr);
	$node->psql('postgres', "SELECT postbox.create_publication('$name', 'app.old', '@{[TOPIC]}'$start)", stdout => \$stdout, stderr => \$stderr);
	emit_to('old', 1);
	wait_all($name, "$name has published");
	wait_until($node, 'postgres', "SELECT bool_and(hwm >= (SELECT last_value FROM app.old_seq)) FROM postbox.lane WHERE publication = '$name'", "$name has read all");
	drop($name);
	return (messages_published($emulator) - $sent, $stderr // '');
}

subtest 'a new publication begins where it is told to, and says what it begins with' => sub {
	sql("SELECT postbox.create_outbox('app.old')");
	emit_to('old', 5);
	my ($count, $said) = begun('from_beginning', '');
	is($count, 6, 'with the first event') or diag($said);
	like($said, qr/NOTICE:  publication "from_beginning" begins with 5 events that are already in the outbox/, 'which is said');
	($count, $said) = begun('from_now', ", start => 'now'");
	is($count, 1, 'or with what is committed from now on') or diag($said);
	unlike($said, qr/NOTICE:  publication/, 'of which there is nothing to say');
	my $time = sql('SELECT clock_timestamp()');
	emit_to('old', 2);
	($count, $said) = begun('from_time', ", start => '$time'");
	is($count, 3, 'or with what occurred later than a time') or diag($said);
	($count, $said) = begun('from_future', ", start => 'infinity'");
	is($count, 1, 'a time that has yet to come is now') or diag($said);
};

subtest 'events of transactions that run while a publication begins now are its own' => sub {
	my $running = $node->background_psql('postgres');
	$running->query_safe('BEGIN');
	$running->query_safe(emit_sql('old', 3));
	my $sent = messages_published($emulator);
	sql("BEGIN; SELECT postbox.outbox_emit('video', 'same-transaction', 'video.other', '{}'::jsonb, outbox => 'app.old');
		SELECT postbox.create_publication('from_now', 'app.old', '@{[TOPIC]}', start => 'now', lanes => 2); COMMIT");
	$running->query_safe('COMMIT');
	$running->quit;
	wait_for(sub { messages_published($emulator) >= $sent + 4 }, 'they are published');
	emit_to('old', 1);
	wait_for(sub { messages_published($emulator) >= $sent + 5 }, 'and the next one');
	wait_all('from_now', 'nothing is left');
	is(messages_published($emulator) - $sent, 5, 'and no other');
};

subtest 'what cannot be is refused' => sub {
	my $refused = sub {
		my ($statement, $error) = @_;
		my ($stdout, $stderr);
		isnt($node->psql('postgres', "SELECT postbox.$statement", stdout => \$stdout, stderr => \$stderr), 0, $statement);
		like($stderr, $error, $error);
	};
	sql("SELECT postbox.create_outbox('app.jobs', 'table')");
	$refused->("create_publication('x', 'app.old', '@{[TOPIC]}', start => 'yesterdays')", qr/unknown start: "yesterdays"/);
	$refused->("create_publication('x', 'app.jobs', '@{[TOPIC]}', start => 'now')", qr/not supported for a table outbox/);
	sql("SELECT postbox.create_publication('jobs', 'app.jobs', '@{[TOPIC]}')");
	$refused->("alter_publication('jobs', lanes => 2)", qr/has one lane/);
	$refused->("alter_publication('jobs', ordering => 'none')", qr/not supported for a table outbox/);
	$refused->("alter_publication('busy', lanes => 65)", qr/lanes must be from 1 to 64/);
	$refused->("alter_publication('busy', ordering => 'bucket:0')", qr/unknown ordering/);
};

$node->stop;
done_testing();
