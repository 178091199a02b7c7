# A paused publication is not read: its events stay in the outbox, also past the retention, and go out in order when it is resumed or the
# pause has ended. What is in flight at the time of the pause is finished. Other publications of the outbox go on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--topic', 'catalog.other.events', '--topic', 'catalog.jobs.events', '--topic', 'catalog.kept.events',
	'--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms', 'postbox.checkpoint_interval' => '20ms', 'postbox.maintenance_interval' => '1s' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.created');
$node->safe_psql(
	'postgres', q{
	ALTER DATABASE postgres SET postbox.default_outbox = 'app.outbox';
	ALTER TABLE app.seen ADD COLUMN seen_at timestamptz DEFAULT clock_timestamp();
	SELECT postbox.create_publication('other', 'app.outbox', 'catalog.other.events');
	SELECT postbox.create_outbox('app.jobs', 'table');
	SELECT postbox.create_publication('jobs', 'app.jobs', 'catalog.jobs.events')});
my $puller = start_puller($node, 'postgres', $emulator);
my $emitted = 0;

sub emit_some { emit($node, 'postgres', 20); $emitted += 20; return; }
sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }
sub status { my ($publication, $columns) = @_; return sql("SELECT $columns FROM postbox.publication_status WHERE publication = '$publication'"); }
sub wait_empty { my ($name, $what) = @_; return wait_until($node, 'postgres', "SELECT pending = 0 AND state = 'active' FROM postbox.publication_status WHERE publication = '$name'", $what); }

# The other publication has read all events: so the worker knows of the pause, and has had the time to break it.
sub others_read { return wait_empty('other', 'the other publication goes on'); }

sub all_seen
{
	my ($what) = @_;
	wait_until($node, 'postgres', "SELECT count(*) >= $emitted FROM app.seen", "$what: all events came") or diag($puller->{output});
	is(sql(qq{SELECT count(*) = $emitted AND bool_and(version = rank) FROM (SELECT version, row_number() OVER (PARTITION BY aggregate_id ORDER BY n) AS rank FROM app.seen) v}),
		't', 'each once, in the order of its key');
	return;
}

emit_some();
all_seen('at first');

subtest 'events of a paused publication stay in the outbox, and go out after resume' => sub {
	sql(q{SELECT postbox.pause_publication('videos', 'consumers are migrated')});
	wait_until($node, 'postgres', q{SELECT leases IS NULL FROM postbox.publication_status WHERE publication = 'videos'}, 'the worker gives up the lane');
	emit_some();
	others_read();
	my ($state, $pending, $error) = split /\|/, status('videos', 'state, pending, last_error'), 3;
	is("$state $pending", 'paused 20', 'the status shows it');
	like($error, qr/^paused since .*: consumers are migrated$/, 'and why');
	like(sql(q{SELECT status || ' ' || detail FROM postbox.doctor() WHERE "check" = 'pauses' AND subject = 'publication videos'}), qr/^ok .*consumers are migrated/, 'so does the doctor');
	is(sql(q{SELECT count(*) FROM postbox.doctor() WHERE "check" = 'publications' AND subject = 'videos'}), '0', 'it is no problem');
	like((grep { /^videos/ } split /\n/, `$ENV{POSTBOX} status --dsn '@{[ $node->connstr('postgres') ]}'`)[0], qr/^videos\s+paused .*consumers are migrated/, 'so does postbox status');
	is(sql('SELECT count(*) FROM app.seen'), $emitted - 20, 'nothing came');
	sql(q{SELECT postbox.resume_publication('videos')});
	all_seen('after resume');
};

subtest 'a pause with an end is over by itself' => sub {
	sql(q{SELECT postbox.pause_publication('videos', 'a moment', until => clock_timestamp() + interval '2 s')});
	emit_some();
	all_seen('after the end');
	is(sql(q{SELECT count(*) FROM app.seen, postbox.publication WHERE name = 'videos' AND seen_at BETWEEN paused_at + interval '1 s' AND paused_until}), '0', 'nothing came before');
	is(sql(q{SELECT count(*) FROM postbox.doctor() WHERE "check" = 'pauses' AND subject IS NOT NULL}), '0', 'it is not shown any more');
};

subtest 'what is in flight is finished, and is not sent again' => sub {
	my $sent = messages_published($emulator);
	emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=1500,count=1000');
	emit_some();
	wait_for(sub { (counted($emulator, 'faults_fired') // 0) > 0 }, 'requests are in flight');
	sql(q{SELECT postbox.pause_publication('videos', 'amid the events')});
	wait_until($node, 'postgres', q{SELECT leases IS NULL FROM postbox.publication_status WHERE publication = 'videos'}, 'the lane is given up when their results are stored');
	emulator_fault($emulator, '--clear');
	others_read();
	sql(q{SELECT postbox.resume_publication('videos')});
	all_seen('after resume');
	wait_empty('videos', 'nothing is left');
	sent_once($emulator, $node, $sent + 40, 'each event was sent once by each publication');
	is(status('videos', 'sent_again_at_most'), '0', 'and nothing is counted as sent again');
};

subtest 'a crash and a restart of the server do not forget a pause' => sub {
	sql(q{SELECT postbox.pause_publication('videos', 'across a crash')});
	emit_some();
	others_read();
	crash($node, worker_pid($node, 'postgres'));
	emit($node, 'postgres', 20);
	$emitted += 20;
	others_read();
	is(status('videos', 'state, pending'), 'paused|40', 'its events still wait');
	$node->restart;
	wait_workers($node, 'postgres', 1);
	sql(q{SELECT postbox.resume_publication('videos')});
	all_seen('after resume');
};

subtest 'a publication of a table outbox' => sub {
	my $emit = q{SELECT count(postbox.outbox_emit('job', 'job-' || n % 3, 'job.done', '{}'::jsonb, outbox => 'app.jobs')) FROM generate_series(1, 10) n};
	sql($emit);
	wait_empty('jobs', 'its events go out');
	sql(q{SELECT postbox.pause_publication('jobs', 'the table is rebuilt')});
	sql($emit);
	emit_some();
	others_read();
	is(sql('SELECT count(*) FROM app.jobs WHERE published_at IS NULL AND lock_token IS NULL'), '10', 'its events are not claimed');
	sql(q{SELECT postbox.resume_publication('jobs')});
	wait_empty('jobs', 'they go out after resume');
};

subtest 'a suspended publication that is paused is not tried, and is tried again at once when it is resumed' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND,count=1000');
	emit_some();
	wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status WHERE publication = 'videos'}, 'it is suspended');
	sql(q{SELECT postbox.pause_publication('videos', 'the topic is made anew')});
	is(status('videos', 'state, retry_at, suspended_since'), 'paused||', 'it is paused');
	wait_until($node, 'postgres', q{SELECT leases IS NULL FROM postbox.publication_status WHERE publication = 'videos'}, 'it is not tried');
	emulator_fault($emulator, '--clear');
	others_read();
	is(status('videos', 'pending'), '20', 'its events wait');
	sql(q{SELECT postbox.resume_publication('videos')});
	all_seen('after resume');
};

subtest 'the retention takes nothing that a paused publication has not read' => sub {
	sql(q{SELECT postbox.create_outbox('app.kept', 'log', '2 s');
		UPDATE postbox.outbox SET generation_span = '1 s' WHERE relation = 'app.kept'::regclass;
		SELECT format('ALTER TABLE app.kept ALTER generation SET DEFAULT (%s)', postbox.generation_expression('1 s')) \gexec
		SELECT postbox.create_publication('kept', 'app.kept', 'catalog.kept.events')});
	sql(q{SELECT postbox.pause_publication('kept', 'for long')});
	my $emit = q{SELECT postbox.outbox_emit('video', 'k', 'video.created', '{}'::jsonb, outbox => 'app.kept')};
	sql($emit);
	# Its partition is past the retention, and is purged in its turn.
	wait_until($node, 'postgres', q{SELECT EXISTS (SELECT FROM app.kept e WHERE e.tableoid IN (SELECT postbox.past_retention(o) FROM postbox.outbox o WHERE o.relation = 'app.kept'::regclass))},
		'the event is past the retention');
	sql(q{SELECT postbox.purge_outbox('app.kept')});
	is(sql('SELECT count(*) FROM app.kept'), '1', 'it is kept');
	sql(q{SELECT postbox.resume_publication('kept')});
	wait_empty('kept', 'it goes out after resume');
	wait_until($node, 'postgres', q{SELECT NOT EXISTS (SELECT FROM app.kept)}, 'and is purged then');
};

stop_puller($puller);
$node->stop;
done_testing();
