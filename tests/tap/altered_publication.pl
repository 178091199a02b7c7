# A publication that is altered, or dropped and created again, while its events are on their way: what comes back of the old
# one says nothing about the new one.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

use constant TOPIC => 'catalog.video.events';
use constant OTHER_TOPIC => 'catalog.other.events';

my $emulator = start_emulator('--topic', OTHER_TOPIC);
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1, 'postbox.poll_interval' => '200ms', 'postbox.checkpoint_interval' => '20ms' });
$node->start;
$node->safe_psql('postgres', 'CREATE EXTENSION postbox; CREATE SCHEMA app');
# Alters publications at once, while an event is on its way.
my $session = $node->background_psql('postgres');

# An outbox of its own for each test, one event of which has gone through.
sub create
{
	my ($name, %options) = @_;
	$node->safe_psql('postgres', qq{
		SELECT postbox.create_outbox('app.$name', '$options{kind}');
		SELECT postbox.create_publication('$name', 'app.$name', '@{[TOPIC]}', lanes => @{[$options{lanes} // 1]}, max_attempts => 1,
			base_backoff => '1h', max_backoff => '1h')});
	emit_to($name, 'first');
	wait_empty($name, "an event of $name is published");
	return;
}

sub emit_to
{
	my ($name, $key) = @_;
	$session->query_safe("SELECT postbox.outbox_emit('video', '$key', 'video.changed', '{}'::jsonb, outbox => 'app.$name')");
	return;
}

sub wait_empty
{
	my ($name, $what) = @_;
	return wait_until($node, 'postgres', "SELECT pending = 0 AND parked = 0 AND state = 'active' AND last_error IS NULL FROM postbox.publication_status WHERE publication = '$name'", $what);
}

# Of each of these publications an event is on its way to the old topic, which refuses it after three seconds, while the publication gets
# another topic. The three answers come at about the same time.
my @refused = ([ 'suspended_log', 'log', 'NOT_FOUND' ], [ 'suspended_table', 'table', 'NOT_FOUND' ], [ 'parked', 'log', 'INVALID_ARGUMENT' ]);
create($_->[0], kind => $_->[1]) for @refused;
my ($sent_before, $errors_before) = map { counted($emulator, $_) } 'messages_published', 'errors';
for (@refused)
{
	my ($name, undef, $code) = @$_;
	my $fired = counted($emulator, 'faults_fired');
	emulator_fault($emulator, "rpc=Publish,code=$code,latency-ms=3000,count=1");
	# A key of its own: one waits for the answer of the other otherwise, since both are of one topic.
	emit_to($name, "late-$name");
	wait_for(sub { counted($emulator, 'faults_fired') > $fired }, "an event of $name is on its way");
	$session->query_safe("SELECT postbox.alter_publication('$name', topic => '@{[OTHER_TOPIC]}')");
}
wait_for(sub { counted($emulator, 'errors') >= $errors_before + @refused }, 'all are refused');
wait_for(sub { messages_published($emulator) >= $sent_before + @refused }, 'the new topic takes them');

for my $kind ('log', 'table')
{
	subtest "$kind: an error of the old topic that comes late does not suspend the publication" => sub {
		emit_to("suspended_$kind", 'next');
		wait_empty("suspended_$kind", 'all go to the new one');
	};
}

subtest 'what the old topic refuses late and the new one takes is not parked' => sub {
	my $sent = messages_published($emulator);
	emit_to('parked', 'next');
	wait_for(sub { messages_published($emulator) > $sent }, 'the next one goes there, too');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.parked_parked'), '0', 'it is not parked');
	emit_to('parked', 'late-parked');
	wait_empty('parked', 'its key goes on');
};

subtest 'a publication that is dropped and created in one transaction begins with the log again' => sub {
	create('again', kind => 'log', lanes => 2);
	$node->safe_psql('postgres', q{SELECT count(postbox.outbox_emit('video', 'key-' || n, 'video.changed', '{}'::jsonb, outbox => 'app.again')) FROM generate_series(1, 9) n});
	wait_empty('again', 'ten events are published');
	my $sent = messages_published($emulator);
	$node->safe_psql('postgres', qq{BEGIN; SELECT postbox.drop_publication('again');
		SELECT postbox.create_publication('again', 'app.again', '@{[TOPIC]}', lanes => 2, max_attempts => 1, base_backoff => '1h', max_backoff => '1h'); COMMIT});
	wait_for(sub { messages_published($emulator) >= $sent + 10 }, 'they are published again');
	wait_empty('again', 'and nothing is pending');
	wait_until($node, 'postgres', q{SELECT count(*) = 2 FROM postbox.lane JOIN postbox.workers USING (lock_token) WHERE publication = 'again'}, 'the worker has both lanes');
};

subtest 'what is refused for a worker that has lost its lane meanwhile is not parked' => sub {
	create('taken', kind => 'log');
	set_configuration($node, 'postbox.publishers', 2);
	$node->append_conf('postgresql.conf', "postbox.failpoint = 'after_publish_before_mark=pause'");
	$node->reload;
	wait_workers($node, 'postgres', 2);
	my $position = log_position($node);
	my $sent = messages_published($emulator);
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,count=1');
	emit_to('taken', 'late');
	wait_for(sub { log_since($node, $position) =~ /failpoint after_publish_before_mark: paused/ }, 'an event is refused');
	# As if its worker had stood still for longer than its lease.
	$node->safe_psql('postgres', q{UPDATE postbox.lane SET lock_token = NULL WHERE publication = 'taken'});
	wait_for(sub { messages_published($emulator) > $sent }, 'the other worker has the lane, and its event is taken');
	set_configuration($node, 'postbox.failpoint', undef);
	$node->reload;
	wait_for(sub { log_since($node, $position) =~ /publication "taken": lane 0 was taken over/ }, 'the first one finds out');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.taken_parked'), '0', 'it has not parked the event');
	emit_to('taken', 'late');
	wait_empty('taken', 'its key goes on');
};

# Two publications' worth of types, of which the publication takes one at first; the keys are in all lanes.
sub create_filtered
{
	my ($name) = @_;
	create($name, kind => 'log', lanes => 8);
	$node->safe_psql('postgres', "SELECT postbox.alter_publication('$name', aggregate_types => '{video}')");
	emit_to($name, 'second');
	wait_empty($name, 'it takes one type');
	return messages_published($emulator);
}

sub alter_and_emit
{
	my ($name) = @_;
	$node->safe_psql('postgres', "SELECT postbox.alter_publication('$name', aggregate_types => '{}')");
	$node->safe_psql('postgres', "SELECT count(postbox.outbox_emit(type, type || n, 'video.changed', '{}'::jsonb, outbox => 'app.$name'))
		FROM generate_series(1, 40) n, unnest(ARRAY['video', 'other']) AS type");
	return;
}

subtest 'a worker that cannot read an altered publication passes no event that this takes now' => sub {
	set_configuration($node, 'postbox.publishers', 1);
	$node->reload;
	wait_workers($node, 'postgres', 1);
	my $sent = create_filtered('unread');
	my $pid = worker_pid($node, 'postgres');
	stop_between_transactions($node, $pid);
	alter_and_emit('unread');
	$session->query_safe('BEGIN; LOCK TABLE postbox.outbox IN ACCESS EXCLUSIVE MODE');
	my $position = log_position($node);
	kill('CONT', $pid);
	wait_for(sub { log_since($node, $position) =~ /could not read the publications/ }, 'it cannot read the publications');
	$session->query_safe('COMMIT');
	wait_for(sub { messages_published($emulator) >= $sent + 80 }, 'all events are published when it can');
};

subtest 'nor does one that is told to leave before it has read it' => sub {
	my $sent = create_filtered('leaving');
	my $position = log_position($node);
	$node->append_conf('postgresql.conf', "postbox.failpoint = 'before_send=pause'");
	$node->reload;
	wait_for(sub { emit_to('leaving', 'third'); return log_since($node, $position) =~ /failpoint before_send: paused/ }, 'it has claimed from one of its lanes');
	alter_and_emit('leaving');
	set_configuration($node, 'postbox.failpoint', 'after_claim=pause');
	$node->reload;
	wait_for(sub { log_since($node, $position) =~ /failpoint after_claim: paused/ }, 'it goes on with another');
	my $pid = worker_pid($node, 'postgres');
	set_configuration($node, 'postbox.failpoint', undef);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($pid)");
	wait_for(sub { !grep { $_ eq $pid } worker_pids($node, 'postgres') }, 'it has left');
	$node->reload;
	my $all = $node->safe_psql('postgres', 'SELECT count(*) FROM app.leaving');
	wait_for(sub { messages_published($emulator) >= $sent + $all - 2 }, 'all events have been published');
};

subtest 'nor does one that has missed a change before the last' => sub {
	my $sent = create_filtered('missed') + 1;
	# It stores its position when it is told of a change, not before. What it publishes after a reload, it does with the new settings.
	set_configuration($node, 'postbox.checkpoint_interval', '10s');
	$node->reload;
	wait_for(sub { return $session->query_safe('SHOW postbox.checkpoint_interval') eq '10s' }, 'the setting has changed');
	emit_to('missed', 'third');
	wait_for(sub { messages_published($emulator) >= $sent }, 'the worker has it, too');
	# As if it read between the COMMIT of the change and the moment when all are told of it.
	$node->safe_psql('postgres', q{
		BEGIN;
		ALTER TABLE postbox.publication DISABLE TRIGGER changed;
		SELECT postbox.alter_publication('missed', aggregate_types => '{}');
		ALTER TABLE postbox.publication ENABLE ALWAYS TRIGGER changed;
		SELECT count(postbox.outbox_emit(type, type || n, 'video.changed', '{}'::jsonb, outbox => 'app.missed'))
			FROM generate_series(1, 100) n, unnest(ARRAY['other', 'video']) AS type;
		COMMIT});
	wait_for(sub { messages_published($emulator) >= $sent + 100 }, 'it has read them with the filter before');
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('missed', aggregate_types => '{video, other}')});
	wait_for(sub { messages_published($emulator) >= $sent + 200 }, 'what it has passed is published');
	set_configuration($node, 'postbox.checkpoint_interval', '20ms');
	$node->reload;
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'missed'}, 'nothing is left');
};

$session->quit;
$node->stop;
done_testing();
