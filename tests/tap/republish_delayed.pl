# What delayed and expiring events and those that postbox.republish has queued do to each other: the order of a key that has all of them, live ones
# beside them, and a worker that is killed; what of them expires while it is queued. Both kinds of outbox.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $subscription = 'projects/postbox-dev/subscriptions/catalog.video.events.test-all';
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-all=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 3, 'postbox.poll_interval' => '100ms', 'postbox.maintenance_interval' => '1s', 'postbox.read_chunk_size' => 20,
	'postbox.claim_batch_size' => 20 });
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log');
	SELECT postbox.create_outbox('app.tab', 'table');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', lanes => 4);
	SELECT postbox.create_publication('tab', 'app.tab', 'catalog.video.events');
});

sub query { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }

sub status { my ($columns, $publication) = @_; return query("SELECT $columns FROM postbox.publication_status WHERE publication = '$publication'"); }

sub wait_status
{
	my ($publication, $condition, $what) = @_;
	wait_until($node, 'postgres', "SELECT $condition FROM postbox.publication_status WHERE publication = '$publication'", $what)
	  or diag(query('SELECT * FROM postbox.publication_status'));
	return;
}

sub emit_keys
{
	my ($kind, $prefix, $keys, $rounds, $options) = @_;
	query(qq{SELECT count(postbox.outbox_emit('video', '$prefix' || k, 'video.changed', '{}'::jsonb, outbox => 'app.$kind'}
		  . ($options ? ", $options" : '') . qq{)) FROM generate_series(1, $rounds) r, generate_series(1, $keys) k});
	return;
}

# The versions that came, by key, in the order of arrival.
sub received
{
	my %came;
	push @{ $came{ $_->[1] } }, $_->[2] for taken_from($emulator, $subscription);
	return map { ($_ => "@{ $came{$_} }") } keys %came;
}

my $old = join ' ', 1 .. 30;
for my $kind ('log', 'tab')
{
	subtest "$kind: queued events, a delayed one and what waits behind it" => sub {
		emit_keys($kind, 'a', 10, 30);
		wait_status($kind, 'pending = 0', 'all are published');
		received();
		emit_keys($kind, 'a', 10, 1, q{deliver_at => now() + interval '4 s'});
		emit_keys($kind, 'a', 10, 3);
		is(query("SELECT events FROM postbox.republish('$kind', keys => ARRAY(SELECT 'a' || k FROM generate_series(1, 10) k))"), 300, 'the old ones are queued');
		emit_keys($kind, 'a', 10, 2);
		wait_status($kind, 'pending = 0', 'all are sent');
		my %came = received();
		is_deeply([ grep { $came{$_} ne "$old 31 32 33 34 35 36" } sort keys %came ], [], 'in order') or diag(explain(\%came));
		is(scalar keys %came, 10, 'of all keys');
	};

	subtest "$kind: delayed events become due while old ones of their keys are sent, and a worker is killed" => sub {
		emit_keys($kind, 'b', 10, 30);
		wait_status($kind, 'pending = 0', 'all are published');
		received();
		emulator_fault($emulator, 'rpc=Publish,latency-ms=100');
		emit_keys($kind, 'b', 10, 1, q{deliver_at => now() + interval '1 s' + random() * interval '1 s'});
		emit_keys($kind, 'b', 10, 2);
		query("SELECT events FROM postbox.republish('$kind', keys => ARRAY(SELECT 'b' || k FROM generate_series(1, 10) k))");
		my $before = messages_published($emulator);
		wait_for(sub { messages_published($emulator) > $before + 60 }, 'some are sent');
		crash($node, (worker_pids($node, 'postgres'))[0]);
		emit_keys($kind, 'b', 10, 2);
		emulator_fault($emulator, '--clear');
		wait_status($kind, 'pending = 0', 'all are sent');
		my %came = received();
		# What is sent twice is sent from an earlier event of its key on.
		my @wrong = grep { my @v = split / /, $came{$_}; my %seen; my @first = grep { !$seen{$_}++ } @v;
			"@first" ne join(' ', 1 .. 35) || $v[-1] != 35 || grep { $v[$_] > $v[ $_ - 1 ] + 1 } 1 .. $#v } sort keys %came;
		is_deeply(\@wrong, [], 'in order') or diag(explain(\%came));
		is(scalar keys %came, 10, 'of all keys');
	};

	subtest "$kind: an event that expires while it is queued was published" => sub {
		emit_keys($kind, 'c', 1, 2, q{expires_at => now() + interval '3 s'});
		wait_status($kind, 'pending = 0', 'they are published');
		my $id = query("SELECT id FROM app.$kind WHERE aggregate_id = 'c1' AND version = 2");
		query("SELECT postbox.pause_publication('$kind', 'a test')");
		is(query("SELECT events FROM postbox.republish('$kind', keys => '{c1}')"), 2, 'they are queued');
		wait_until($node, 'postgres', "SELECT now() > occurred_at + interval '3 s' FROM app.$kind WHERE id = '$id'", 'they expire');
		received();
		query("SELECT postbox.resume_publication('$kind')");
		wait_status($kind, 'pending = 0', 'nothing waits');
		is_deeply({ received() }, {}, 'they are not sent again');
		is(query("SELECT count(*) FROM postbox.expired_event WHERE publication = '$kind'"), 0, 'they are no expired events');
		is(status('expired, last_error IS NULL', $kind), '0|t', 'the status has none');
		is(query("SELECT postbox.wait_published('$id')"), 't', 'they are published');
		is(query("SELECT events FROM postbox.republish('$kind', keys => '{c1}', dry_run => true)"), 0, 'and are not queued again');
	};

	subtest "$kind: what was inserted with a time of another zone" => sub {
		for my $zone ('Pacific/Kiritimati', 'Pacific/Midway')
		{
			query(qq{SET TimeZone = '$zone'; INSERT INTO app.$kind (id, aggregate_type, aggregate_id, event_type, version, payload, attributes)
				VALUES (gen_random_uuid(), 'video', 'z', 'video.changed', 1, '{}', jsonb_build_object('postbox_expires_at', now() + interval '1 hour'))});
		}
		wait_status($kind, 'pending = 0', 'they are published');
		is(query("SELECT events FROM postbox.republish('$kind', keys => '{z}', dry_run => true)"), 2, 'has not expired');
		query("UPDATE app.$kind SET attributes = jsonb_build_object('postbox_expires_at', to_char(now() AT TIME ZONE 'UTC' + interval '9 hours', 'YYYY-MM-DD\"T\"HH24:MI:SS+10:00')) WHERE aggregate_id = 'z'");
		is(query("SELECT events FROM postbox.republish('$kind', keys => '{z}', dry_run => true)"), 0, 'and has expired when it is over');
		received();
	};

	subtest "$kind: a delayed event that was sent early is sent again at once" => sub {
		emit_keys($kind, 'd', 1, 1, q{deliver_at => now() + interval '1 hour'});
		wait_status($kind, 'delayed = 1', 'it waits');
		is(query("SELECT postbox.redrive('app.$kind', id) FROM app.$kind WHERE aggregate_id = 'd1'"), 1, 'it is sent early');
		wait_status($kind, 'pending = 0', 'it is published');
		received();
		is(query("SELECT events FROM postbox.republish('$kind', keys => '{d1}')"), 1, 'it is queued');
		emit_keys($kind, 'd', 1, 1);
		wait_status($kind, 'pending = 0', 'nothing waits');
		# A lane of a log may read a new event before it has found the queued one; then the new one goes first (source/log/parked_events.h).
		like({ received() }->{d1}, $kind eq 'log' ? qr/^(?:1 2|2 1)$/ : qr/^1 2$/, 'it comes, and what follows');
	};

	subtest "$kind: what is queued is taken back, and a delayed event stays" => sub {
		emit_keys($kind, 'e', 2, 3);
		wait_status($kind, 'pending = 0', 'all are published');
		received();
		emit_keys($kind, 'e', 2, 1, q{deliver_at => now() + interval '1 hour'});
		emit_keys($kind, 'e', 2, 1);
		wait_status($kind, 'delayed = 4', 'the key waits');
		query("SELECT postbox.pause_publication('$kind', 'a test')");
		query("SELECT postbox.republish('$kind', keys => '{e1,e2}')");
		is(status('republishing, pending', $kind), '6|10', 'all are counted');
		is(query("SELECT postbox.cancel_republish('$kind')"), 6, 'they are taken back');
		is(status('republishing, pending, delayed', $kind), '0|4|4', 'what is delayed stays');
		query("SELECT postbox.resume_publication('$kind')");
		query("SELECT postbox.redrive('app.$kind', id) FROM app.$kind WHERE aggregate_id LIKE 'e_' AND version = 4");
		wait_status($kind, 'pending = 0', 'it can be sent');
		is_deeply({ received() }, { e1 => '4 5', e2 => '4 5' }, 'with what follows, and nothing else');
	};
}

subtest 'log: an event that its key may pass has the id of an aggregate' => sub {
	my $id = '00000000-0000-4000-8000-00000000000a';
	query("SELECT postbox.outbox_emit('video', '$id', 'video.changed', '{}'::jsonb, outbox => 'app.log', deliver_at => now() + interval '1 hour', key_may_pass => true, event_id => '$id')");
	wait_status('log', 'delayed = 1', 'it waits');
	query("SELECT postbox.outbox_emit('video', '$id', 'video.changed', '{}'::jsonb, outbox => 'app.log')");
	wait_status('log', 'ready = 0 AND delayed = 1', 'the aggregate goes on');
	is_deeply({ received() }, { $id => '2' }, 'without it');
	is(query("SELECT postbox.discard('app.log', '$id')"), 't', 'it is given up');
};

# A lane that reads the keys finds the event of the other lane as the first one of the key, and so not the key.
subtest 'log: an aggregate has the name that stands for an event of another lane' => sub {
	my $id = '00000000-0000-4000-8000-00000000000b';
	my $other = query("SELECT 'h' || n FROM generate_series(1, 100) n WHERE postbox.lane_slice('h' || n, 4) <> postbox.lane_slice('postbox_event:$id', 4) LIMIT 1");
	query("SELECT postbox.outbox_emit('video', '$other', 'video.changed', '{}'::jsonb, outbox => 'app.log', deliver_at => now() + interval '1 hour', key_may_pass => true, event_id => '$id')");
	query("SELECT postbox.outbox_emit('video', 'postbox_event:$id', 'video.changed', '{}'::jsonb, outbox => 'app.log', deliver_at => now() + interval '3 s')");
	wait_status('log', 'delayed = 2', 'both wait');
	$node->restart;
	wait_until($node, 'postgres', "SELECT next_retry_at = 'infinity' FROM app.log_parked WHERE aggregate_id = 'postbox_event:$id'", 'when it is due, it waits behind that one')
	  or diag(query('SELECT id, aggregate_id, seq, next_retry_at FROM app.log_parked'));
	is(query("SELECT postbox.discard('app.log', '$id')"), 't', 'that one is given up');
	wait_status('log', 'pending = 0', 'the other one is sent');
	is_deeply({ received() }, { "postbox_event:$id" => '1' }, 'once');
};

$node->stop;
done_testing();
