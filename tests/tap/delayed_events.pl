# deliver_at and expires_at, in an outbox of each kind: a delayed event keeps its place in its key unless the key may pass it, other keys go on,
# and it is no failure; an event whose time is over is not sent, and is recorded.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my @kinds = ('log', 'table');
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered', '--topic', 'catalog.late.events', '--topic', 'catalog.other.events');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2,
	'postbox.poll_interval' => '50ms',
	'postbox.maintenance_interval' => '1s',
});
$node->start;
$node->safe_psql('postgres', join(';', 'CREATE EXTENSION postbox; CREATE SCHEMA app', map { qq{
	SELECT postbox.create_outbox('app.${_}s', '$_');
	SELECT postbox.create_publication('$_', 'app.${_}s', 'catalog.video.events', base_backoff => '100ms', max_backoff => '500ms')} } @kinds));
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.changed');
my $puller = start_puller($node, 'postgres', $emulator);

sub ask { my ($query) = @_; return $node->safe_psql('postgres', $query); }

# Keys of both outboxes are in one subscription, so their names begin with the kind. Returns the id.
sub emit_to
{
	my ($kind, $key, $options) = @_;
	return ask("SELECT r.event_id FROM postbox.outbox_emit('video', '$kind-$key', 'video.changed', '{}'::jsonb, outbox => 'app.${kind}s'" . ($options ? ", $options" : '') . ') r');
}

my %parked = (log => 'app.logs_parked', table => 'app.tables');
my $later = q{deliver_at => now() + interval '1 hour'};

# The versions of a key in the order in which they came.
sub arrived_query { my ($kind, $key) = @_; return "SELECT coalesce(string_agg(version::text, ' ' ORDER BY n), '') FROM app.seen WHERE aggregate_id = '$kind-$key'"; }
sub wait_arrived
{
	my ($kind, $key, $expected, $what) = @_;
	wait_until($node, 'postgres', "SELECT (@{[arrived_query($kind, $key)]}) = '$expected'", $what) or diag(ask(arrived_query($kind, $key)));
	return;
}

# What of a key waits, in its order.
sub wait_states
{
	my ($kind, $key, $expected, $what) = @_;
	my $unpublished = $kind eq 'table' ? ' AND published_at IS NULL' : '';
	my $query = qq{SELECT coalesce(string_agg(version || CASE WHEN next_retry_at IS NULL THEN ' pending' WHEN publish_attempts = 0 AND next_retry_at = 'infinity' THEN ' behind'
		WHEN next_retry_at > now() AND publish_attempts = 0 AND last_error IS NULL THEN ' delayed' ELSE ' due' END, ', ' ORDER BY seq), '')
		FROM $parked{$kind} WHERE aggregate_id = '$kind-$key'$unpublished};
	wait_until($node, 'postgres', "SELECT ($query) = '$expected'", $what) or diag(ask($query));
	return;
}

sub status { my ($columns, $publication) = @_; return ask("SELECT $columns FROM postbox.publication_status WHERE publication = '$publication'"); }

# What a log has published counts as ready until the next checkpoint.
sub wait_status { my ($publication, $columns, $expected, $what) = @_; return wait_until($node, 'postgres', "SELECT ($columns) = $expected FROM postbox.publication_status WHERE publication = '$publication'", $what); }

for my $kind (@kinds)
{
	subtest "$kind: a delayed event keeps its place in its key, and other keys go on" => sub {
		emit_to($kind, 'a');
		my $id = emit_to($kind, 'a', $later);
		emit_to($kind, 'a') for 1 .. 2;
		emit_to($kind, 'b') for 1 .. 3;
		wait_arrived($kind, 'b', '1 2 3', 'another key goes on');
		wait_states($kind, 'a', '2 delayed, 3 behind, 4 behind', 'what follows waits behind it');
		wait_arrived($kind, 'a', '1', 'what came before it is published');
		is(ask("SELECT next_retry_at = (attributes ->> 'postbox_deliver_at')::timestamptz FROM $parked{$kind} WHERE aggregate_id = '$kind-a' AND version = 2"), 't', 'it waits for exactly its time');

		wait_status($kind, 'pending, ready, parked, delayed, expired, oldest_pending IS NULL, last_error IS NULL, state', q{(3, 0, 0, 3, 0, true, true, 'active')}, 'the status counts it as delayed, and of no age');
		is(ask("SELECT count(*) FROM postbox.paused_keys"), '0', 'no key is paused');
		is(ask("SELECT count(*) FROM postbox.doctor() WHERE subject IN ('$kind', 'app.${kind}s') AND status <> 'ok'"), '0', 'the doctor finds nothing wrong');
		is(ask("SELECT postbox.redrive('app.${kind}s')"), '0', 'redrive of an outbox leaves it alone');

		is(ask("SELECT postbox.redrive('app.${kind}s', '$id')"), '1', 'redrive of the event sends it early');
		wait_arrived($kind, 'a', '1 2 3 4', 'it comes in its place');
	};

	subtest "$kind: it is published when its time has come, and not before" => sub {
		my $until = ask(q{SELECT now() + interval '2 s'});
		emit_to($kind, 'c', "deliver_at => '$until'");
		emit_to($kind, 'c');
		wait_arrived($kind, 'c', '1 2', 'both come');
		is(ask("SELECT clock_timestamp() >= '$until'"), 't', 'after its time');
		wait_states($kind, 'c', '', 'nothing of the key waits');
	};

	# A table keeps the order of each key.
	subtest "$kind: an event that its key may pass holds up nothing, however many there are" => sub {
		plan(skip_all => 'a table refuses it') if $kind eq 'table';
		my @ids = map { emit_to($kind, 'd', "$later, key_may_pass => true") } 1 .. 3;
		emit_to($kind, 'd');
		wait_arrived($kind, 'd', '4', 'what follows goes on');
		wait_states($kind, 'd', '1 delayed, 2 delayed, 3 delayed', 'they wait');
		emit_to($kind, 'd', $later);
		emit_to($kind, 'd');
		wait_states($kind, 'd', '1 delayed, 2 delayed, 3 delayed, 5 delayed, 6 behind', 'one that the key may not pass holds it up');
		ask("SELECT postbox.redrive('app.${kind}s', '$ids[1]')");
		wait_arrived($kind, 'd', '4 2', 'each comes in its time, also past the key that waits');
		ask("SELECT postbox.discard('app.${kind}s', '$ids[0]')");
		wait_states($kind, 'd', '3 delayed, 5 delayed, 6 behind', 'one is given up');
		ask("SELECT postbox.redrive('app.${kind}s', event_id => id) FROM $parked{$kind} WHERE aggregate_id = '$kind-d' AND version IN (3, 5)");
		wait_until($node, 'postgres', "SELECT count(*) = 5 FROM app.seen WHERE aggregate_id = '$kind-d'", 'the others come');
	};

	subtest "$kind: a delayed event that is discarded lets its key go on" => sub {
		my $id = emit_to($kind, 'e', $later);
		emit_to($kind, 'e');
		wait_states($kind, 'e', '1 delayed, 2 behind', 'the key waits');
		is(ask("SELECT postbox.discard('app.${kind}s', '$id')"), 't', 'it is discarded');
		wait_arrived($kind, 'e', '2', 'the key goes on');
	};

	subtest "$kind: two delayed events of a key come one after the other" => sub {
		my @ids = map { emit_to($kind, 'f', $later) } 1 .. 2;
		emit_to($kind, 'f');
		wait_states($kind, 'f', '1 delayed, 2 behind, 3 behind', 'all wait behind the first');
		ask("SELECT postbox.redrive('app.${kind}s', '$ids[0]')");
		wait_states($kind, 'f', '2 delayed, 3 behind', 'the second waits for its own time then');
		wait_arrived($kind, 'f', '1', 'the first has come');
		ask("SELECT postbox.redrive('app.${kind}s', '$ids[1]')");
		wait_arrived($kind, 'f', '1 2 3', 'all come in order');
	};

	subtest "$kind: an event whose time is over is not sent, and is recorded; its key goes on" => sub {
		my $soon = q{expires_at => now() + interval '100 ms'};
		# Over when it is committed.
		my $id = ask("BEGIN; SELECT r.event_id FROM postbox.outbox_emit('video', '$kind-g', 'video.changed', '{}'::jsonb, outbox => 'app.${kind}s', $soon) r;
			SELECT pg_sleep(0.2); SELECT (postbox.outbox_emit('video', '$kind-g', 'video.changed', '{}'::jsonb, outbox => 'app.${kind}s')).version; COMMIT");
		$id = (split /\n/, $id)[0];
		wait_arrived($kind, 'g', '2', 'what follows comes');
		is(ask("SELECT outbox, event_id, aggregate_type, aggregate_id, event_type, version, expired_at > expires_at, last_of_aggregate FROM postbox.expired_event WHERE publication = '$kind' AND aggregate_id = '$kind-g'"),
			"app.${kind}s|$id|video|$kind-g|video.changed|1|t|f", 'it is recorded');
		wait_status($kind, 'pending, expired, last_error IS NULL', '(0, 1, true)', 'the status counts it, and sees no problem: a later event follows');
		is(ask("SELECT published_at, last_error FROM app.tables WHERE id = '$id'"), '-infinity|expired', 'its row says so') if $kind eq 'table';
	};

	subtest "$kind: an event that expires as the last of its aggregate is a problem until another one is emitted" => sub {
		my $position = log_position($node);
		ask("BEGIN; SELECT postbox.outbox_emit('video', '$kind-h', 'video.changed', '{}'::jsonb, outbox => 'app.${kind}s', expires_at => now() + interval '100 ms'); SELECT pg_sleep(0.2); COMMIT");
		wait_until($node, 'postgres', "SELECT last_of_aggregate FROM postbox.expired_event WHERE aggregate_id = '$kind-h'", 'it is recorded');
		like(status('last_error', $kind), qr/^1 events expired as the last ones of their aggregates.*'$kind-h'/, 'the status says so');
		like(ask("SELECT status || ': ' || detail FROM postbox.doctor() WHERE subject = '$kind' AND status <> 'ok'"), qr/warning: .*expired.*'$kind-h'/, 'so does the doctor');
		like(log_since($node, $position), qr/WARNING:  publication "$kind": event [-0-9a-f]{36} of key "$kind-h" has expired as the last event of its aggregate/, 'and the log');
		emit_to($kind, 'h');
		wait_arrived($kind, 'h', '2', 'another event comes');
		is(status('last_error IS NULL', $kind), 't', 'that is the end of it');
	};

	subtest "$kind: one that is delayed, or waits behind a delayed one, expires as well" => sub {
		my $first = emit_to($kind, 'i', $later);
		emit_to($kind, 'i', q{expires_at => now() + interval '200 ms'});
		emit_to($kind, 'i');
		wait_states($kind, 'i', '1 delayed, 2 behind, 3 behind', 'they wait');
		wait_until($node, 'postgres', "SELECT clock_timestamp() > (attributes ->> 'postbox_expires_at')::timestamptz FROM $parked{$kind} WHERE aggregate_id = '$kind-i' AND version = 2", 'its time is over');
		ask("SELECT postbox.redrive('app.${kind}s', '$first')");
		wait_arrived($kind, 'i', '1 3', 'the key goes on without it');
		is(ask("SELECT version FROM postbox.expired_event WHERE aggregate_id = '$kind-i'"), '2', 'it is recorded');
	};
}

subtest 'what is delayed survives a worker that is killed, and comes once' => sub {
	my %ids;
	for my $kind (@kinds)
	{
		$ids{$kind} = emit_to($kind, 'k', $later);
		emit_to($kind, 'k');
	}
	emit_to('log', 'k', "$later, key_may_pass => true");
	wait_states('table', 'k', '1 delayed, 2 behind', 'table: the key waits');
	wait_states('log', 'k', '1 delayed, 2 behind, 3 delayed', 'log: the key waits');
	crash($node, worker_pid($node, 'postgres'));
	for my $kind (@kinds)
	{
		emit_to($kind, 'k');
		my ($passed, $last) = $kind eq 'log' ? (', 3 delayed', 4) : ('', 3);
		wait_states($kind, 'k', "1 delayed, 2 behind$passed, $last behind", "$kind: it still waits");
	}
	ask(q{SELECT postbox.redrive('app.logs', id) FROM app.logs_parked WHERE aggregate_id = 'log-k' AND version = 3});
	wait_arrived('log', 'k', '3', 'what the key may pass comes, although no key is due');
	ask("SELECT postbox.redrive('app.${_}s', '$ids{$_}')") for @kinds;
	wait_arrived('log', 'k', '3 1 2 4', 'log: each has come once, in its place');
	wait_arrived('table', 'k', '1 2 3', 'table: each has come once, in its place');
};

subtest 'events of a suspended publication expire, and many of them do not keep it from going on' => sub {
	ask(join ';', map { qq{SELECT postbox.create_outbox('app.late_$_', '$_'); SELECT postbox.create_publication('late_$_', 'app.late_$_', 'catalog.late.events', base_backoff => '100ms', max_backoff => '200ms')} } @kinds);
	emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND,attribute=aggregate_type:late');
	for my $kind (@kinds)
	{
		ask("SELECT count(postbox.outbox_emit('late', 'first', 'late.changed', '{}'::jsonb, outbox => 'app.late_$kind'))");
		wait_until($node, 'postgres', "SELECT state = 'suspended' FROM postbox.publication_status WHERE publication = 'late_$kind'", "$kind: the topic is broken");
		ask("SELECT count(postbox.outbox_emit('late', 'k' || n, 'late.changed', '{}'::jsonb, expires_at => now() + interval '500 ms', outbox => 'app.late_$kind')) FROM generate_series(1, 2000) n;
			SELECT postbox.outbox_emit('late', 'last', 'late.changed', '{}'::jsonb, outbox => 'app.late_$kind')");
	}
	ask('SELECT pg_sleep(0.6)');
	emulator_fault($emulator, '--clear');
	for my $kind (@kinds)
	{
		wait_until($node, 'postgres', "SELECT pending = 0 AND state = 'active' FROM postbox.publication_status WHERE publication = 'late_$kind'", "$kind: it goes on");
		is(ask("SELECT count(*) FROM postbox.expired_event WHERE publication = 'late_$kind'"), '2000', "$kind: all that were over are recorded");
	}
};

# A request that was sent before its event expired is repeated for the time of publish_timeout.
subtest 'events expire while Pub/Sub does not answer' => sub {
	ask(q{ALTER SYSTEM SET postbox.publish_timeout = '1s'});
	ask('SELECT pg_reload_conf()');
	emulator_fault($emulator, 'rpc=Publish,code=UNAVAILABLE,attribute=aggregate_type:unanswered');
	my $before = messages_published($emulator);
	for my $kind (@kinds)
	{
		ask("SELECT postbox.create_outbox('app.unanswered_$kind', '$kind'); SELECT postbox.create_publication('unanswered_$kind', 'app.unanswered_$kind', 'catalog.other.events')");
		ask("SELECT count(postbox.outbox_emit('unanswered', 'k' || n, 'x', '{}'::jsonb, outbox => 'app.unanswered_$kind', expires_at => CASE round WHEN 1 THEN now() + interval '1 s' END)) FROM generate_series(1, 2) round, generate_series(1, 10) n");
	}
	wait_status("unanswered_$_", 'expired', 10, "$_: those whose time is over are recorded, before there is an answer") for @kinds;
	emulator_fault($emulator, '--clear');
	wait_status("unanswered_$_", 'pending, expired, state', q{(0, 10, 'active')}, "$_: the others go on") for @kinds;
	is(messages_published($emulator) - $before, 20, 'none that is recorded was sent');
	is(ask(q{SELECT count(*) FROM postbox.paused_keys}), '0', 'no key is paused');
	ask('ALTER SYSTEM RESET postbox.publish_timeout');
	ask('SELECT pg_reload_conf()');
};

subtest 'several publications, lanes and filters: each delays its own copy' => sub {
	ask(q{SELECT postbox.create_outbox('app.many'); SELECT postbox.create_publication('one', 'app.many', 'catalog.other.events', lanes => 4);
		SELECT postbox.create_publication('two', 'app.many', 'catalog.other.events', aggregate_types => '{film}')});
	my $before = messages_published($emulator);
	ask(qq{SELECT count(postbox.outbox_emit(CASE n % 2 WHEN 0 THEN 'video' ELSE 'film' END, 'k' || n, 'x', '{}'::jsonb, outbox => 'app.many', $later, key_may_pass => n % 3 = 0)) FROM generate_series(1, 20) n});
	wait_until($node, 'postgres', q{SELECT sum(delayed) = 30 FROM postbox.publication_status WHERE publication IN ('one', 'two')}, 'all wait');
	ask(q{SELECT postbox.alter_publication('one', lanes => 2); SELECT postbox.alter_publication('two', aggregate_types => '{}')});
	ask(qq{SELECT count(postbox.outbox_emit('video', 'k' || n, 'x', '{}'::jsonb, outbox => 'app.many')) FROM generate_series(1, 20) n});
	# The keys of 14 events of 20 wait in the one publication, those of 7 of 10 in the other.
	wait_until($node, 'postgres', q{SELECT array_agg(delayed ORDER BY publication) = '{34,17}' AND sum(ready) = 0 FROM postbox.publication_status WHERE publication IN ('one', 'two')}, 'what follows waits')
	  or diag(ask(q{SELECT publication, ready, delayed FROM postbox.publication_status WHERE publication IN ('one', 'two')}));
	is(ask(q{SELECT sum(postbox.redrive('app.many', e.id)) FROM (SELECT DISTINCT id FROM app.many_parked WHERE next_retry_at > now() AND next_retry_at < 'infinity') e}), '30', 'all are sent early');
	wait_until($node, 'postgres', q{SELECT sum(pending) = 0 FROM postbox.publication_status WHERE publication IN ('one', 'two')}, 'nothing waits any more');
	is(messages_published($emulator) - $before, 20 + 10 + 20 + 20, 'each was sent once');
};

subtest 'while a publication is paused, an event becomes due and another one expires: one is published, one recorded when it is resumed' => sub {
	for my $kind (@kinds)
	{
		ask("SELECT postbox.create_outbox('app.still_$kind', '$kind'); SELECT postbox.create_publication('still_$kind', 'app.still_$kind', 'catalog.other.events')");
		ask("SELECT postbox.outbox_emit('video', 'a', 'x', '{}'::jsonb, occurred_at => now() - interval '30 days', outbox => 'app.still_$kind', deliver_at => now() + interval '3 s'),
			postbox.outbox_emit('video', 'b', 'x', '{}'::jsonb, outbox => 'app.still_$kind', deliver_at => now() + interval '3 s', expires_at => now() + interval '3100 ms')");
		wait_status("still_$kind", 'delayed', 2, "$kind: a worker has seen both");
		ask("SELECT postbox.pause_publication('still_$kind', 'a test')");
	}
	my $before = messages_published($emulator);
	wait_until($node, 'postgres', "SELECT now() > (SELECT max((attributes ->> 'postbox_deliver_at')::timestamptz) FROM app.still_table)", 'both times have passed');
	ask('SELECT pg_sleep(0.5)');
	is(messages_published($emulator) - $before, 0, 'nothing is published');
	for my $kind (@kinds)
	{
		wait_status("still_$kind", 'state, pending, expired', q{('paused', 2, 0)}, "$kind: both wait");
		is(ask("SELECT oldest_pending BETWEEN '0' AND '1 day' FROM postbox.publication_status WHERE publication = 'still_$kind'"), 't', "$kind: the age counts from the time when the event became due");
		ask("SELECT postbox.resume_publication('still_$kind')");
		wait_status("still_$kind", 'pending, expired', '(0, 1)', "$kind: one has expired");
	}
	is(messages_published($emulator) - $before, 2, 'one of each is published');
};

# In one bucket, the events of all keys share an ordering key.
subtest 'whatever the order of a publication, a delayed event holds up no other key' => sub {
	for my $ordering ('bucket:1', 'none')
	{
		my $name = substr $ordering, 0, 4;
		my $before = messages_published($emulator);
		ask("SELECT postbox.create_outbox('app.$name'); SELECT postbox.create_publication('$name', 'app.$name', 'catalog.other.events', ordering => '$ordering')");
		ask("SELECT count(postbox.outbox_emit('video', 'k' || n % 5, 'x', '{}'::jsonb, outbox => 'app.$name', deliver_at => CASE WHEN n = 10 THEN now() + interval '1 hour' END)) FROM generate_series(1, 20) n");
		my $waits = $ordering eq 'none' ? 1 : 3;
		wait_status($name, 'pending, delayed', "($waits, $waits)", "$ordering: only the delayed event, and in a bucket what follows in its key, waits");
		is(messages_published($emulator) - $before, 20 - $waits, "$ordering: the others are published");
		ask("SELECT postbox.redrive('app.$name', id) FROM app.${name}_parked WHERE next_retry_at BETWEEN now() AND '9999-01-01'");
		wait_status($name, 'pending', 0, "$ordering: it is published");
		is(messages_published($emulator) - $before, 20, "$ordering: each once");
	}
};

subtest 'a publication that is dropped leaves the delayed events of another one alone, and one of the same name begins again' => sub {
	ask(q{SELECT postbox.create_outbox('app.two'); SELECT postbox.create_publication(p, 'app.two', 'catalog.other.events') FROM unnest('{stays,goes}'::text[]) p});
	my $id = ask(qq{SELECT r.event_id FROM postbox.outbox_emit('video', 'a', 'x', '{}'::jsonb, outbox => 'app.two', $later) r; SELECT postbox.outbox_emit('video', 'a', 'x', '{}'::jsonb, outbox => 'app.two')});
	$id = (split /\n/, $id)[0];
	wait_until($node, 'postgres', q{SELECT sum(delayed) = 4 FROM postbox.publication_status WHERE publication IN ('stays', 'goes')}, 'both wait');
	ask(q{SELECT postbox.drop_publication('goes')});
	is(ask(q{SELECT delayed FROM postbox.publication_status WHERE publication = 'stays'}), '2', 'the copies of the other one stay');
	my $before = messages_published($emulator);
	ask("SELECT postbox.redrive('app.two', '$id')");
	wait_status('stays', 'pending', 0, 'the other one goes on');
	is(messages_published($emulator) - $before, 2, 'with its events');
	ask(q{SELECT postbox.create_publication('goes', 'app.two', 'catalog.other.events')});
	wait_status('goes', 'ready, delayed', '(0, 2)', 'one of the same name delays them again');
};

subtest 'a plain INSERT may write any attributes' => sub {
	my $insert = sub {
		my ($kind, $key, $attributes) = @_;
		return ask("INSERT INTO app.${kind}s (id, aggregate_type, aggregate_id, event_type, version, payload, attributes) VALUES (gen_random_uuid(), 'video', '$kind-$key', 'video.changed', (SELECT count(*) + 1 FROM app.${kind}s WHERE aggregate_id = '$kind-$key'), '{}', $attributes)");
	};
	my $in_an_hour = q{'postbox_deliver_at', now() + interval '1 hour'};
	$insert->('table', 'p', "jsonb_build_object($in_an_hour, 'postbox_key_may_pass', true)");
	$insert->('table', 'p', q{'{}'});
	wait_states('table', 'p', '1 delayed, 2 behind', 'a table keeps the order of the key all the same');
	for my $value ('true', 'false', q{NULL::text}, q{'{}'::json})
	{
		my $key = "p$value" =~ s/\W//gr;
		$insert->('log', $key, "jsonb_build_object($in_an_hour, 'postbox_key_may_pass', $value)");
		$insert->('log', $key, q{'{}'});
		wait_arrived('log', $key, '2', "in a log its key passes it, whatever the value is: $value");
		wait_states('log', $key, '1 delayed', 'it waits');
	}
	# 3 days, in a unit that is none.
	for my $time (q{'infinity'}, q{259200}, q{'3 days'}, q{''}, q{'{}'::json})
	{
		my $key = "q$time" =~ s/\W//gr;
		for my $kind (@kinds)
		{
			$insert->($kind, $key, "jsonb_build_object('postbox_deliver_at', $time)");
			wait_until($node, 'postgres', "SELECT last_error LIKE '%is no time' FROM postbox.paused_keys WHERE aggregate_id = '$kind-$key'", "$kind: $time is no time");
		}
	}
	$insert->('log', 'r', q{jsonb_build_object('postbox_deliver_at', NULL, 'postbox_expires_at', NULL)});
	$insert->('log', 'r', q{jsonb_build_object('postbox_deliver_at', now() - interval '1 day', 'postbox_expires_at', timestamptz '9999-12-31')});
	wait_arrived('log', 'r', '1 2', 'times that are null, passed, or far away, are times');
	$insert->('log', 's', q{jsonb_build_object('postbox_deliver_at', timestamptz '9999-12-31')});
	wait_states('log', 's', '1 delayed', 'one that comes in 8000 years waits');
	$insert->('log', 't', q{jsonb_build_object('postbox_deliver_at', now() + interval '2 hours', 'postbox_expires_at', now() + interval '1 hour')});
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.expired_event WHERE aggregate_id = 'log-t'}, 'one that expires before its time is recorded at once');
};

subtest 'the retention takes a log from which a delayed event was read, and the event comes all the same' => sub {
	ask(q{SELECT postbox.create_outbox('app.short', retention => '5 min'); SELECT postbox.create_publication('short', 'app.short', 'catalog.other.events')});
	my ($generation, $part) = split /\|/, ask(q{SELECT p.generation, p.part FROM postbox.generation_partitions('app.short') p
		WHERE p.part IN (SELECT postbox.past_retention(o) FROM postbox.outbox o WHERE o.relation = 'app.short'::regclass) LIMIT 1});
	# A plain INSERT, with the time as JSON writes it.
	ask(qq{INSERT INTO app.short (id, aggregate_type, aggregate_id, event_type, version, payload, generation, attributes)
		VALUES ('00000000-0000-4000-8000-000000000001', 'video', 'x', 'video.changed', 1, '{}', $generation, jsonb_build_object('postbox_deliver_at', now() + interval '1 hour'))});
	wait_until($node, 'postgres', "SELECT NOT EXISTS (SELECT FROM $part) AND EXISTS (SELECT FROM app.short_parked WHERE next_retry_at > now())", 'the partition is emptied, the event waits');
	my $before = messages_published($emulator);
	ask(q{SELECT postbox.redrive('app.short', '00000000-0000-4000-8000-000000000001')});
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'short'}, 'it is published');
	is(messages_published($emulator) - $before, 1, 'once');
};

subtest 'the record of an expired event is kept for the retention of its outbox' => sub {
	my ($aged, $kept) = split /\|/, ask(q{UPDATE postbox.expired_event SET expired_at = now() - interval '8 days' WHERE aggregate_id = 'log-g' RETURNING (SELECT count(*) FROM postbox.expired_event) - 1});
	wait_until($node, 'postgres', q{SELECT NOT EXISTS (SELECT FROM postbox.expired_event WHERE aggregate_id = 'log-g')}, 'it goes when that is over');
	is(ask('SELECT count(*) FROM postbox.expired_event'), $aged, 'and no other one');
};

subtest 'roles see the records of the outboxes that they may read; a dropped publication leaves none' => sub {
	ask(q{CREATE ROLE reader; CREATE ROLE stranger; GRANT USAGE ON SCHEMA app TO reader, stranger; GRANT SELECT ON app.logs_parked TO reader});
	is(ask(q{SET ROLE reader; SELECT string_agg(DISTINCT publication, ' ') FROM postbox.expired_event}), 'log', 'a reader of one outbox');
	is(ask(q{SET ROLE stranger; SELECT count(*) FROM postbox.expired_event}), '0', 'a stranger');
	is(ask(q{SET ROLE pg_monitor; SELECT count(*) > 2000 FROM postbox.expired_event}), 't', 'a monitor');
	ask(q{SELECT postbox.drop_publication('late_log')});
	is(ask(q{SELECT count(*) FROM postbox.expired_event WHERE publication = 'late_log'}), '0', 'nothing is left');
};

stop_puller($puller);
$node->stop;
done_testing();
