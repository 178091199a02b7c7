# An event that cannot be published is parked, in an outbox of each kind: its key waits behind it, other keys go on, the position of a
# log goes on, and SQL shows which, why, and how to go on.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Load;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my @kinds = ('log', 'table');
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2,
	# A retry that is due is found by the next poll.
	'postbox.poll_interval' => '50ms',
	'postbox.publish_timeout' => '1s',
	'postbox.maintenance_interval' => '1s',
});
$node->start;
$node->safe_psql('postgres', join(';', 'CREATE EXTENSION postbox; CREATE SCHEMA app', map { qq{
	SELECT postbox.create_outbox('app.${_}s', '$_');
	SELECT postbox.create_publication('$_', 'app.${_}s', 'catalog.video.events', max_attempts => 3, base_backoff => '100ms', max_backoff => '500ms')} } @kinds));
follow($node, 'postgres', 'catalog.video.events.test-follower', map { "video.$_" } qw(one two three four poison first second));
my $puller = start_puller($node, 'postgres', $emulator);
my $session;

sub connect_session { $session = $node->background_psql('postgres'); return; }
sub ask { my ($query) = @_; return $session->query_safe($query); }

connect_session();

my $poison = 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.poison';

# Keys of both outboxes are in one subscription, so their names begin with the kind.
sub emit_to
{
	my ($kind, $key, @types) = @_;
	ask(join('; ', map { "SELECT postbox.outbox_emit('video', '$kind-$key', 'video.$_', '{}'::jsonb, outbox => 'app.${kind}s')" } @types));
	return;
}

my %parked = (log => 'app.logs_parked', table => 'app.tables');

# The states of a key's events that are not published, with their versions, such as '2 failed, 3 behind'.
sub waiting_query
{
	my ($kind, $key) = @_;
	return qq{
		SELECT coalesce(string_agg(version || CASE WHEN @{[$kind eq 'table' ? 'lock_token IS NOT NULL' : 'false']} THEN ' inflight' WHEN next_retry_at IS NULL THEN ' pending'
			WHEN publish_attempts = 0 THEN ' behind' WHEN next_retry_at = 'infinity' THEN ' failed' ELSE ' retry' END, ', ' ORDER BY seq), '')
		FROM $parked{$kind} WHERE aggregate_id = '$kind-$key'} . ($kind eq 'table' ? ' AND published_at IS NULL' : '');
}

# The versions of a key in the order in which they came.
sub arrived_query { my ($kind, $key) = @_; return "SELECT coalesce(string_agg(version::text, ' ' ORDER BY n), '') FROM app.seen WHERE aggregate_id = '$kind-$key'"; }

# Waits until a key's events are in these states, in the order of the key, and those that are published have come, in that order.
sub wait_states
{
	my ($kind, $key, $expected, $what) = @_;
	my @states = split / /, $expected;
	my $waiting = join(', ', map { "$_ $states[$_ - 1]" } grep { $states[ $_ - 1 ] !~ /published|discarded/ } 1 .. @states);
	my $arrived = join(' ', grep { $states[ $_ - 1 ] eq 'published' } 1 .. @states);
	my @of_rows = $kind eq 'table' ? "(@{[states_query(qq{$kind-$key}, 'app.tables')]}) = '$expected'" : ();
	wait_until($node, 'postgres', 'SELECT ' . join(' AND ', "(@{[waiting_query($kind, $key)]}) = '$waiting'", "(@{[arrived_query($kind, $key)]}) = '$arrived'", @of_rows), $what)
	  or diag("$kind-$key: " . ask(waiting_query($kind, $key)) . '; came: ' . ask(arrived_query($kind, $key)));
	return;
}

# What is parked for an error of its own, and waits for somebody.
sub event_id { my ($kind, $key) = @_; return ask("SELECT first_event_id FROM postbox.paused_keys WHERE aggregate_id = '$kind-$key'"); }
sub redrive { my ($kind) = @_; return ask("SELECT postbox.redrive('app.${kind}s')"); }

sub alter { my ($kind, $option) = @_; ask("SELECT postbox.alter_publication('$kind', $option)"); return; }

emulator_fault($emulator, $poison);

for my $kind (@kinds)
{
	subtest "$kind: a refused event stops its key after max_attempts, and only its key" => sub {
		emit_to($kind, 'a', 'one', 'poison', 'two', 'three');
		emit_to($kind, 'b', 'one', 'two');
		wait_states($kind, 'a', 'published failed behind behind', 'the key stands still behind the event, and what came before it is published');
		wait_states($kind, 'b', 'published published', 'another key goes on');
		emit_to($kind, 'a', 'four');
		wait_states($kind, 'a', 'published failed behind behind behind', 'what comes later waits, too');
		is(ask("SELECT relation, aggregate_id, event_type, attempts, next_retry_at, waiting FROM postbox.paused_keys WHERE relation = 'app.${kind}s'::regclass"),
			"app.${kind}s|$kind-a|video.poison|3|infinity|3", 'paused_keys shows it');
		like(ask("SELECT last_error FROM postbox.paused_keys WHERE relation = 'app.${kind}s'::regclass"), qr/^INVALID_ARGUMENT/, 'and why');
		is(ask("SELECT parked FROM postbox.publication_status WHERE publication = '$kind'"), '4', 'publication_status counts it');
	};

	subtest "$kind: an event that is redriven while it is refused fails again" => sub {
		is(ask("SELECT postbox.redrive('app.${kind}s', '" . event_id($kind, 'a') . q{')}), '1', 'one event is redriven');
		wait_until($node, 'postgres', "SELECT publish_attempts = 3 AND next_retry_at = 'infinity' FROM $parked{$kind} WHERE event_type = 'video.poison'", 'it has failed again');
		wait_states($kind, 'a', 'published failed behind behind behind', 'its key waits again');
	};
}

subtest 'what is parked survives a restart of the server' => sub {
	$session->quit;
	# (restart() of PostgreSQL 15's test module ignores a mode.)
	$node->stop('immediate');
	$node->start;
	$node->poll_query_until('postgres', 'SELECT true');
	connect_session();
	for my $kind (@kinds)
	{
		emit_to($kind, 'a', 'one');
		emit_to($kind, 'b', 'three');
		wait_states($kind, 'a', 'published failed behind behind behind behind', "$kind: the key still waits");
		wait_states($kind, 'b', 'published published published', "$kind: the other key goes on");
	}
};

emulator_fault($emulator, '--clear');
for my $kind (@kinds)
{
	subtest "$kind: redrive tries again, in order" => sub {
		is(redrive($kind), '1', 'one event is redriven');
		wait_states($kind, 'a', 'published published published published published published', 'all came, in order, and nothing is parked any more');
		is(ask("SELECT count(*) FROM postbox.paused_keys WHERE relation = 'app.${kind}s'::regclass"), '0', 'no key is paused');
	};
}
is(ask(q{SELECT bool_and(published_at >= before) FROM (SELECT published_at, lag(published_at) OVER (ORDER BY seq) AS before FROM app.tables WHERE aggregate_id = 'table-a') e}), 't', 'table: they were published in the order of the key');

emulator_fault($emulator, $poison);
for my $kind (@kinds)
{
	subtest "$kind: discard lets the key go on without the event" => sub {
		emit_to($kind, 'c', 'poison', 'one', 'two');
		wait_states($kind, 'c', 'failed behind behind', 'the key stands still');
		is(ask("SELECT postbox.discard('app.${kind}s', '" . event_id($kind, 'c') . q{')}), 't', 'the event is discarded');
		wait_states($kind, 'c', 'discarded published published', 'the rest comes, and nothing is parked any more');
	};

	subtest "$kind: on_failure park_event lets the key go on past the parked event" => sub {
		alter($kind, q{on_failure => 'park_event'});
		emit_to($kind, 'f', 'poison', 'one', 'two');
		wait_states($kind, 'f', 'failed published published', 'the rest comes, and the event alone is parked');
	};
}

emulator_fault($emulator, '--clear');
for my $kind (@kinds)
{
	subtest "$kind: redrive sends an event that its key has passed" => sub {
		is(redrive($kind), '1', 'one event is redriven');
		wait_until($node, 'postgres', "SELECT (@{[waiting_query($kind, 'f')]}) = '' AND (@{[arrived_query($kind, 'f')]}) = '2 3 1'", 'it comes after the others');
		alter($kind, q{on_failure => 'park_key'});
	};
}

subtest 'an outage is no fault of the events: they are tried for ever, nothing is parked, and all follow in order' => sub {
	# From here on an event that is blamed once is parked for good.
	alter($_, 'max_attempts => 1') for @kinds;
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE');
	emit_to($_, 'e', 'one', 'two') for @kinds;
	for my $kind (@kinds)
	{
		wait_until($node, 'postgres', "SELECT state = 'retrying' AND last_error LIKE 'UNAVAILABLE%' FROM postbox.publication_status WHERE publication = '$kind'", "$kind: the publication is retrying and says why");
		emit_to($kind, 'e', 'three');
	}
	wait_until($node, 'postgres', q{SELECT attempts > 1 AND last_error LIKE 'UNAVAILABLE%' FROM postbox.publication_state WHERE publication = 'table'}, 'table: more often than max_attempts');
	is(ask("SELECT count(*) FROM $parked{$_} WHERE aggregate_id = '$_-e' AND (publish_attempts > 0 OR next_retry_at IS NOT NULL)"), '0', "$_: no event is blamed") for @kinds;
	is(ask(q{SELECT count(*) FROM app.logs_parked WHERE aggregate_id = 'log-e'}), '0', 'log: nothing is parked');
	emulator_fault($emulator, '--clear');
	wait_states($_, 'e', 'published published published', "$_: all came, in order") for @kinds;
};

# While one event gets no answer, the other key goes on all the time, or it would be an outage.
my $unanswered = 'rpc=Publish,code=UNAVAILABLE,attribute=event_type:video.poison';
sub start_other
{
	my ($kind) = @_;
	my $load = start_load($node, 'postgres', { one => "SELECT postbox.outbox_emit('video', '$kind-h', 'video.one', '{}'::jsonb, outbox => 'app.${kind}s');" }, clients => 2, rate => 40);
	wait_until($node, 'postgres', "SELECT (@{[arrived_query($kind, 'h')]}) <> ''", 'the other key is on its way');
	return $load;
}

sub other_went_on
{
	my ($kind) = @_;
	wait_until($node, 'postgres', "SELECT (@{[arrived_query($kind, 'h')]}) = (SELECT string_agg(version::text, ' ' ORDER BY version) FROM app.${kind}s WHERE aggregate_id = '$kind-h')", 'the other key went on, in order');
	return;
}

subtest 'log: an event that alone gets no answer is parked in the end, and the publication is never suspended for it' => sub {
	emulator_fault($emulator, $unanswered);
	# So long that a busy machine looks at it more than once.
	set_configuration($node, 'postbox.publish_timeout', '4s');
	$node->reload;
	my $others = start_other('log');
	# A look at the other key going on: the event is not parked yet, and what was emitted a second after it has come. That is more than the
	# half of a second for which a publication is active whatever fails.
	ask('CREATE TABLE app.states (state text, error text, went_on boolean)');
	emit_to('log', 'g', 'poison', 'one');
	wait_until($node, 'postgres', q{WITH look AS (INSERT INTO app.states SELECT state, last_error, NOT EXISTS (SELECT FROM app.logs_parked WHERE aggregate_id = 'log-g')
			AND EXISTS (SELECT FROM app.seen JOIN app.logs h USING (aggregate_id, version) WHERE aggregate_id = 'log-h'
				AND h.occurred_at > (SELECT min(occurred_at) + interval '1 s' FROM app.logs WHERE aggregate_id = 'log-g'))
			FROM postbox.publication_status WHERE publication = 'log')
		SELECT count(*) = 2 FROM app.logs_parked WHERE aggregate_id = 'log-g'}, 'it is parked, and what follows it');
	stop_load($others);
	set_configuration($node, 'postbox.publish_timeout', '1s');
	$node->reload;
	# It is retrying where this machine was too busy to publish anything for half a second, and suspended where it was too busy for a step.
	is(ask(q{SELECT count(*) FROM app.states WHERE state NOT IN ('active', 'retrying') AND error !~ 'took longer than'}), '0', 'the publication was never suspended');
	cmp_ok(ask(q{SELECT count(*) FROM app.states WHERE state = 'active' AND went_on}), '>', 0, 'but active while the other key went on');
	other_went_on('log');
	emulator_fault($emulator, '--clear');
	wait_states('log', 'g', 'published published', 'all came in the end, in order');
};

subtest 'log: a missing topic suspends the publication until it is there' => sub {
	emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND');
	emit_to('log', 'm', 'one', 'two');
	wait_until($node, 'postgres', q{SELECT state = 'suspended' AND last_error LIKE 'NOT_FOUND%' FROM postbox.publication_status WHERE publication = 'log'}, 'the publication is suspended and says why');
	emulator_fault($emulator, '--clear');
	wait_states('log', 'm', 'published published', 'all came, in order');
};

# From here on the topic has one publication, whose retries no other one holds up, and one worker: of two, one may have the event alone,
# which is an outage to it.
ask(q{SELECT postbox.drop_publication('log')});
set_configuration($node, 'postbox.publishers', 1);
$node->reload;
wait_workers($node, 'postgres', 1);

subtest 'table: that nobody answers for one event alone does not count, and its key waits' => sub {
	emulator_fault($emulator, $unanswered);
	ask(q{
		CREATE TABLE app.retry (at timestamptz);
		CREATE FUNCTION app.note_retry() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO app.retry VALUES (new.next_retry_at); RETURN NULL; END';
		CREATE TRIGGER note AFTER UPDATE ON app.tables FOR EACH ROW
			WHEN (new.aggregate_id IN ('table-g', 'table-i') AND new.event_type = 'video.poison' AND new.lock_token IS NULL AND new.last_error LIKE 'UNAVAILABLE%') EXECUTE FUNCTION app.note_retry()});
	my $others = start_other('table');
	emit_to('table', 'g', 'poison', 'one');
	# It is parked more often than max_attempts.
	wait_until($node, 'postgres', 'SELECT count(DISTINCT at) > 2 FROM app.retry', 'it is tried again and again');
	is(ask(q{SELECT max(publish_attempts) FROM app.tables WHERE aggregate_id = 'table-g'}), '0', 'no attempt counts');
	emulator_fault($emulator, '--clear');
	wait_states('table', 'g', 'published published', 'it goes out when it is answered, and what waits behind it');
	alter('table', q{base_backoff => '1h', max_backoff => '1h'});
	emulator_fault($emulator, $unanswered);
	emit_to('table', 'i', 'poison', 'one');
	wait_until($node, 'postgres', q{SELECT max(at) > now() + interval '10 min' FROM app.retry}, 'another one waits for the backoff of the publication');
	stop_load($others);
	ask('DROP TRIGGER note ON app.tables');
	is(ask(q{SELECT attempts, waiting FROM postbox.paused_keys WHERE aggregate_id = 'table-i'}), '0|1', 'paused_keys shows it, without an attempt');
	is(ask(q{SELECT max(publish_attempts) FROM app.tables WHERE aggregate_id = 'table-i'}), '0', 'no attempt counts here, either');
	emulator_fault($emulator, '--clear');
	# What was in one request with it has the same result.
	cmp_ok(redrive('table'), '>=', 1, 'redrive tries it at once');
	wait_states('table', 'i', 'published published', 'it goes out, and what waits behind it');
	other_went_on('table');
	alter('table', q{max_attempts => 3, base_backoff => '100ms', max_backoff => '500ms'});
};

subtest 'table: an event that goes through at the second try takes along what waited behind it' => sub {
	emulator_fault($emulator, "$poison,count=1");
	emit_to('table', 'd', 'poison', 'one', 'two');
	wait_states('table', 'd', 'published published published', 'all are published');
	# A refused request may be cut in two and sent again before the event is blamed, so one refusal need not show.
	cmp_ok(ask(q{SELECT max(publish_attempts) FROM app.tables WHERE aggregate_id = 'table-d'}), '<=', 1, 'with one retry at most');
};

subtest 'table: rows that came apart find together again' => sub {
	# A retry that is due, but with an event before it that waits; and events behind a parked one that is not there.
	ask(q{
		BEGIN;
		SELECT postbox.outbox_emit('video', 'table-' || key, 'video.' || type, '{}'::jsonb, outbox => 'app.tables')
		FROM unnest(ARRAY['k', 'k', 'l', 'l'], ARRAY['first', 'second', 'first', 'second']) AS e(key, type);
		UPDATE app.tables SET publish_attempts = 1, next_retry_at = now() WHERE aggregate_id = 'table-k' AND event_type = 'video.second';
		UPDATE app.tables SET next_retry_at = 'infinity' WHERE aggregate_id = 'table-l';
		COMMIT});
	wait_states('table', 'k', 'published published', 'both are published');
	wait_states('table', 'l', 'published published', 'what waits behind nothing goes out');
};

$session->quit;
stop_puller($puller);
$node->stop;
done_testing();
