# A paused subscription is not pulled: its events wait at the broker, and come in order when it is resumed or its end has come. One that is
# altered goes on with its new properties. Other subscriptions of the puller go on meanwhile.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator(
	'--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered',
	'--subscription', 'catalog.video.events.test-other=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.created');
$node->safe_psql(
	'postgres', q{
	ALTER TABLE app.seen ADD COLUMN seen_at timestamptz DEFAULT clock_timestamp();
	CREATE TABLE app.other_seen (n bigserial PRIMARY KEY, aggregate_id text, version bigint);
	CREATE FUNCTION app.note_other(event postbox.event) RETURNS void LANGUAGE sql
		AS 'INSERT INTO app.other_seen (aggregate_id, version) VALUES (event.aggregate_id, event.version)';
	SELECT postbox.create_inbox('app.other_inbox');
	SELECT postbox.create_subscription('other', 'app.other_inbox', 'catalog.video.events.test-other');
	SELECT postbox.create_handler('app.other_inbox', '{video.created}', 'app.note_other(postbox.event)');
});
# The configuration is read again every 10 s, and here more often.
my $puller = start_puller($node, 'postgres', $emulator, failpoints => ['reload_interval=200']);
my $emitted = 0;

sub emit_some { emit($node, 'postgres', 20); $emitted += 20; return; }

# In each key the versions came as they were emitted, each once.
sub all_in_order
{
	my ($table) = @_;
	is($node->safe_psql('postgres', qq{SELECT count(*) = $emitted AND bool_and(version = rank) FROM (
		SELECT version, row_number() OVER (PARTITION BY aggregate_id ORDER BY n) AS rank FROM app.$table) v}), 't', "$table has each event once, in the order of its key");
	return;
}

sub all_seen
{
	my ($what, @tables) = @_;
	for my $table (@tables ? @tables : qw(seen other_seen))
	{
		wait_until($node, 'postgres', "SELECT count(*) >= $emitted FROM app.$table", "$what: $table has all events") or diag($puller->{output});
		all_in_order($table);
	}
	return;
}

sub pause
{
	my ($arguments) = @_;
	$node->safe_psql('postgres', "SELECT postbox.pause_subscription('follower', $arguments)");
	return wait_until($node, 'postgres', q{SELECT stream = 'paused' FROM postbox.subscription_status WHERE subscription = 'follower'}, 'the puller has stopped pulling it')
	  || diag($puller->{output});
}

# What `postbox status` shows.
sub shown
{
	local $ENV{PGAPPNAME};
	my ($line) = grep { /^follower/ } split /\n/, `$ENV{POSTBOX} status --dsn '@{[ $node->connstr('postgres') ]}'`;
	return $line // '';
}

emit_some();
all_seen('at first');
my $other_started = q{SELECT started_at FROM postbox.subscription_status WHERE subscription = 'other'};
my $started = $node->safe_psql('postgres', $other_started);

subtest 'events of a paused subscription wait at the broker, and come after resume' => sub {
	pause(q{'a migration of the target'});
	is($node->safe_psql('postgres', q{SELECT stream_error FROM postbox.subscription_status WHERE subscription = 'follower'}), 'a migration of the target', 'its row says why');
	puller_says($puller, qr/subscription is paused.*a migration of the target/, 'so does its log');
	like(shown(), qr/^follower\s+paused .*a migration of the target/, 'so does postbox status');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM postbox.doctor() WHERE "check" = 'subscriptions' AND subject = 'follower'}), '0', 'it is no error');
	my $before = $emitted;
	emit_some();
	all_seen('meanwhile', 'other_seen');
	is(counted($emulator, 'backlog'), 20, 'its events wait at the broker');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM app.seen'), $before, 'none of them is applied');
	$node->safe_psql('postgres', q{SELECT postbox.resume_subscription('follower')});
	all_seen('after resume');
	puller_says($puller, qr/subscription is no longer paused/, 'its log says that it goes on');
};

subtest 'a pause with an end is over by itself' => sub {
	pause(q{'for a moment', until => clock_timestamp() + interval '3 s'});
	emit_some();
	all_seen('after the end');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.seen, postbox.subscription WHERE name = 'follower' AND seen_at BETWEEN paused_at AND paused_until}), '0', 'nothing came before');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM postbox.doctor() WHERE "check" = 'pauses' AND subject IS NOT NULL}), '0', 'it is not shown any more');
	wait_until($node, 'postgres', q{SELECT stream = 'connected' FROM postbox.subscription_status WHERE subscription = 'follower'}, 'its row shows the stream');
};

subtest 'what is being applied at the time of the pause is applied once' => sub {
	my $session = $node->background_psql('postgres');
	$session->query_safe('BEGIN; LOCK TABLE app.seen');
	emit_some();
	wait_until($node, 'postgres', q{SELECT count(*) > 0 FROM pg_locks WHERE relation = 'app.seen'::regclass AND NOT granted}, 'events are being applied');
	pause(q{'amid the events'});
	$session->query_safe('COMMIT');
	$session->quit;
	$node->safe_psql('postgres', q{SELECT postbox.resume_subscription('follower')});
	all_seen('after resume');
};

subtest 'a paused subscription alone does not end the puller, nor does a restart forget it' => sub {
	pause(q{'a longer time'});
	stop_puller($puller);
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.subscription_status'), '0', 'no report of it is left behind');
	$puller = start_puller($node, 'postgres', $emulator, failpoints => ['reload_interval=200']);
	wait_until($node, 'postgres', q{SELECT stream = 'paused' FROM postbox.subscription_status WHERE subscription = 'follower'}, 'the next puller does not pull it');
	$node->safe_psql('postgres', q{SELECT postbox.pause_subscription('other', 'as well')});
	wait_until($node, 'postgres', q{SELECT bool_and(stream = 'paused') FROM postbox.subscription_status}, 'all are paused');
	emit_some();
	wait_for(sub { counted($emulator, 'backlog') == 40 }, 'the events of both wait at the broker');
	$node->safe_psql('postgres', q{SELECT postbox.resume_subscription('other'), postbox.resume_subscription('follower')});
	all_seen('after resume');
};

subtest 'a subscription is altered while events come' => sub {
	$started = $node->safe_psql('postgres', $other_started);
	emit_some();
	$node->safe_psql('postgres', q{SELECT postbox.alter_subscription('follower', appliers => 2, batch_size => 3)});
	emit_some();
	wait_until($node, 'postgres', q{SELECT appliers = 2 FROM postbox.subscription_status WHERE subscription = 'follower'}, 'the puller takes the change') or diag($puller->{output});
	emit_some();
	all_seen('with the new properties');
	is($node->safe_psql('postgres', $other_started), $started, 'the other subscription was not restarted');
};

stop_puller($puller);
$node->stop;
done_testing();
