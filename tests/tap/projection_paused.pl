# While a projection or a handler is paused, the events that it takes wait at the broker, and the later events of their keys: nothing becomes
# a dead letter, and no attempt counts. Other events go on. After the pause each event is applied once, in the order of its key.
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
# One attempt: what counted as the fault of an event would become a dead letter at once. The backoff would take minutes.
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.noted', 'video.created', { max_attempts => 1, min_backoff => '5min', max_backoff => '10min' });
$node->safe_psql(
	'postgres', q{
	ALTER TABLE app.seen ADD COLUMN seen_at timestamptz DEFAULT clock_timestamp(), ADD COLUMN title text;
	CREATE TABLE app.video (id text PRIMARY KEY, title text, version bigint NOT NULL);
	SELECT postbox.create_projection('app.inbox', '{video.created}', 'app.video', name => 'videos');
	CREATE TABLE app.other (id text PRIMARY KEY, title text, version bigint NOT NULL);
	SELECT postbox.create_projection('app.inbox', '{video.rated}', 'app.other')});
my $puller = start_puller($node, 'postgres', $emulator);
my ($created, $rated) = (0, 0);

sub sql { my ($text) = @_; return $node->safe_psql('postgres', $text); }

# Of seven keys each, which do not mix: versions follow each other.
sub emit_type
{
	my ($type, $count) = @_;
	sql(qq{SELECT count(postbox.outbox_emit('video', '$type-' || n % 7, 'video.$type', jsonb_build_object('title', n))) FROM generate_series(1, $count) n});
	return;
}
sub emit_created { emit_type('created', 35); $created += 35; return; }
sub emit_rated { emit_type('rated', 35); $rated += 35; return; }

# Handlers take each event, so app.seen has them in the order in which they were applied.
sub all_created
{
	my ($what) = @_;
	wait_until($node, 'postgres', "SELECT count(*) >= $created FROM app.seen", "$what: all events are applied") or diag($puller->{output});
	is(sql(qq{SELECT count(*) = $created AND bool_and(version = rank) FROM (SELECT version, row_number() OVER (PARTITION BY aggregate_id ORDER BY n) AS rank FROM app.seen) v}),
		't', 'each once, in the order of its key');
	is(sql('SELECT count(*), min(version) = max(version) FROM app.video'), '7|t', 'the projection has the last version of each key');
	is(sql('SELECT count(*) FROM postbox.dead_letter'), '0', 'there is no dead letter');
	return;
}
sub all_rated { return wait_until($node, 'postgres', "SELECT count(*) = 7 AND sum(version) = $rated FROM app.other", 'events of another type are applied') || diag($puller->{output}); }

emit_created();
all_created('at first');

subtest 'events of a paused projection wait, and others are applied' => sub {
	sql(q{SELECT postbox.pause_projection('videos', 'its index is rebuilt')});
	emit_created();
	emit_rated();
	all_rated();
	emit_rated();
	all_rated();
	puller_says($puller, qr/events of a type wait, because what takes them is paused.*its index is rebuilt/, 'the log says why');
	is(sql('SELECT count(*) FROM app.seen'), $created - 35, 'no handler was called for the events of the paused projection');
	is(counted($emulator, 'backlog') + counted($emulator, 'outstanding') >= 35 ? 'wait' : 'gone', 'wait', 'the events wait at the broker');
	is(sql(q{SELECT coalesce(sum(failures), 0) FROM postbox.subscription_status}), '0', 'it is no failure of the subscription');
	is(sql(q{SELECT count(*) FROM postbox.doctor() WHERE "check" IN ('inboxes', 'subscriptions', 'dead letters') AND subject IS NOT NULL}), '0', 'nor a problem');
	like((grep { /^projection/ } split /\n/, `$ENV{POSTBOX} status --dsn '@{[ $node->connstr('postgres') ]}'`)[0] // '', qr/^projection\s+videos\s.*its index is rebuilt/, 'postbox status shows the pause');
	my $resumed = sql(q{SELECT clock_timestamp() FROM postbox.resume_projection('videos')});
	all_created('after resume');
	is(sql(qq{SELECT count(*) FROM app.seen WHERE seen_at > timestamptz '$resumed' + interval '20 s'}), '0', 'within seconds');
};

subtest 'a pause with an end is over by itself' => sub {
	sql(q{SELECT postbox.pause_projection('videos', 'a moment', until => clock_timestamp() + interval '2 s')});
	emit_created();
	emit_rated();
	all_rated();
	all_created('after the end');
	is(sql(q{SELECT count(*) FROM app.seen, postbox.projection WHERE name = 'videos' AND seen_at BETWEEN paused_at AND paused_until}), '0', 'nothing came before');
};

subtest 'what is being applied at the time of the pause is applied once' => sub {
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN; LOCK TABLE app.video');
	emit_created();
	wait_until($node, 'postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE relation = 'app.video'::regclass AND NOT granted}, 'events are being applied');
	sql(q{SELECT postbox.pause_projection('videos', 'amid the events')});
	$session->query_safe('COMMIT');
	$session->quit;
	emit_rated();
	all_rated();
	sql(q{SELECT postbox.resume_projection('videos')});
	all_created('after resume');
};

subtest 'a paused handler holds up its events likewise, also through a crash of the server and a restart of the puller' => sub {
	sql(q{SELECT postbox.pause_handler('app.note', 'the other service is down')});
	emit_created();
	emit_rated();
	all_rated();
	stop_puller($puller);
	$puller = start_puller($node, 'postgres', $emulator);
	crash($node, worker_pid($node, 'postgres'));
	emit_rated();
	all_rated();
	is(sql('SELECT count(*) FROM app.seen'), $created - 35, 'its events wait');
	sql(q{SELECT postbox.resume_handler('app.note')});
	all_created('after resume');
};

subtest 'a projection is altered while events come' => sub {
	sql(q{SELECT postbox.alter_projection('videos', columns => '{"title": "title"}')});
	emit_created();
	sql(q{SELECT postbox.alter_projection('videos', event_types => '{video.created,video.made}', new_name => 'films')});
	emit_created();
	all_created('with the new properties');
};

stop_puller($puller);
$node->stop;
done_testing();
