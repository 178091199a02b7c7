# Whoever may INSERT into a log outbox can write any seq. Such a row waits and is shown; it takes no event of others along.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 1,
	'postbox.poll_interval' => '50ms',
	'postbox.checkpoint_interval' => '20ms',
});
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', q{CREATE ROLE emitter; GRANT USAGE ON SCHEMA app TO emitter; GRANT INSERT ON app.outbox TO emitter});

sub insert
{
	my ($seq) = @_;
	$node->safe_psql('postgres', "SET ROLE emitter; INSERT INTO app.outbox (seq, id, aggregate_type, aggregate_id, event_type, version, payload) VALUES ($seq, gen_random_uuid(), 'video', 'x', 'video.changed', 1, '{}')");
	return;
}

sub others_flow
{
	my ($waiting) = @_;
	my $before = messages_published($emulator);
	emit($node, 'postgres', 20);
	wait_for(sub { messages_published($emulator) >= $before + 20 }, 'the events of others flow');
	wait_until($node, 'postgres', "SELECT pending = $waiting FROM postbox.publication_status", "$waiting events wait");
	return;
}

others_flow(0);
my $start = log_position($node);

subtest 'a row with a seq that the sequence has not given out waits and is shown' => sub {
	insert('9223372036854775000');
	others_flow(1);
	wait_until($node, 'postgres', q{SELECT last_error ~ '^1 events have no seq or one that the sequence has not given out.*UPDATE app\.outbox SET txid = DEFAULT' FROM postbox.publication_status}, 'the status says why, and the repair');
	is($node->safe_psql('postgres', 'SELECT position < 1000 FROM postbox.publication_status'), 't', 'the position does not go along');
	is($node->safe_psql('postgres', q{SELECT bool_or(postbox.is_read('app.outbox', i.inhrelid)) FROM pg_inherits i WHERE i.inhparent = 'app.outbox'::regclass AND EXISTS (SELECT FROM app.outbox e WHERE e.tableoid = i.inhrelid AND e.seq > 1000000)}), 'f', 'retention does not drop it');
};

subtest 'a row with seq 0 and one with a negative seq are shown' => sub {
	insert('0');
	insert('-7');
	others_flow(3);
};

subtest 'a seq that is close is published when the sequence comes to it' => sub {
	my $before = messages_published($emulator);
	insert(q{(SELECT 30 + pg_sequence_last_value('app.outbox_seq'))});
	emit($node, 'postgres', 60);
	wait_for(sub { messages_published($emulator) >= $before + 61 }, 'with the events of others');
	others_flow(3);
};

subtest 'rows that were copied with their seq are published, and take nothing of others along' => sub {
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', q{
		INSERT INTO app.outbox (seq, id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT seq, gen_random_uuid(), aggregate_type, 'copy-' || aggregate_id, event_type, version, payload
		FROM app.outbox WHERE seq BETWEEN 1 AND 15});
	wait_for(sub { messages_published($emulator) >= $before + 15 }, 'they are published');
	others_flow(3);
	is(messages_published($emulator), $before + 35, 'once');
};

subtest 'they are published when they are repaired as the status says' => sub {
	my ($repair) = $node->safe_psql('postgres', 'SELECT last_error FROM postbox.publication_status') =~ /(UPDATE .*)$/ or die 'no repair';
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', $repair);
	wait_for(sub { messages_published($emulator) >= $before + 3 }, 'they are published');
	others_flow(0);
};

subtest 'an event of an infinite time that waits behind a parked one does not hide the backlog' => sub {
	$node->safe_psql('postgres', q{SET ROLE emitter; INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
		SELECT gen_random_uuid(), 'video', 'endless', 'video.changed', 1, '{}', '-infinity' FROM generate_series(1, 2) n});
	wait_until($node, 'postgres', q{SELECT count(*) = 2 FROM app.outbox_parked}, 'they are parked');
	wait_until($node, 'postgres', q{SELECT state = 'active' AND pending = 2 AND parked = 2 FROM postbox.publication_status}, 'the status counts them');
	$node->safe_psql('postgres', q{SELECT postbox.discard('app.outbox', id) FROM app.outbox_parked});
	others_flow(0);
};

subtest 'rows with the same seq are read together, wherever a chunk ends' => sub {
	$node->safe_psql('postgres', 'ALTER SYSTEM SET postbox.read_chunk_size = 10; SELECT pg_reload_conf()');
	wait_until($node, 'postgres', q{SELECT current_setting('postbox.read_chunk_size') = '10'}, 'chunks are small');
	my $before = messages_published($emulator);
	# Nine events, then three with the seq of the tenth: all appear at once.
	$node->safe_psql('postgres', q{
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT gen_random_uuid(), 'video', 'same-' || n, 'video.changed', 1, '{}' FROM generate_series(1, 10) n;
		INSERT INTO app.outbox (seq, id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT pg_sequence_last_value('app.outbox_seq'), gen_random_uuid(), 'video', 'copy-' || n, 'video.changed', 1, '{}' FROM generate_series(1, 3) n;
	} =~ s/\A/BEGIN;/r . 'COMMIT;');
	wait_for(sub { messages_published($emulator) >= $before + 13 }, 'all are published') or diag(messages_published($emulator) - $before);
	others_flow(0);
	$node->safe_psql('postgres', 'ALTER SYSTEM RESET postbox.read_chunk_size; SELECT pg_reload_conf()');
};

subtest 'rows of a paused key that have the same seq are each parked once' => sub {
	$node->safe_psql('postgres', q{INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at) VALUES (gen_random_uuid(), 'video', 'paused', 'video.changed', 1, '{}', 'infinity')});
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM app.outbox_parked}, 'the key is paused');
	my $seq = $node->safe_psql('postgres', q{SELECT nextval('app.outbox_seq')});
	$node->safe_psql('postgres', qq{SET ROLE emitter; INSERT INTO app.outbox (seq, id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT $seq, gen_random_uuid(), 'video', 'paused', 'video.changed', 1, '{}' FROM generate_series(1, 400)});
	wait_until($node, 'postgres', q{SELECT count(*) = 401 FROM app.outbox_parked}, 'what follows is parked');
	# A look at the primary key for each row that is to be inserted.
	wait_until($node, 'postgres', q{SELECT idx_scan > 400 FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_parked_pkey'}, 'the statistics say so');
	cmp_ok($node->safe_psql('postgres', q{SELECT idx_scan FROM pg_stat_user_indexes WHERE indexrelname = 'outbox_parked_pkey'}), '<', 10000, 'and costs no more than its rows');
	$node->safe_psql('postgres', q{DELETE FROM app.outbox_parked});
	others_flow(0);
};

# More than can be read together, with small chunks.
sub insert_copies
{
	my ($seq, $name) = @_;
	$node->safe_psql('postgres', qq{SET ROLE emitter; INSERT INTO app.outbox (seq, id, aggregate_type, aggregate_id, event_type, version, payload)
		SELECT $seq, gen_random_uuid(), 'video', '$name-' || n % 50, 'video.changed', 1, '{}' FROM generate_series(1, 2500) n});
	return;
}

subtest 'a seq that very many rows have holds up nobody for long, and loses none' => sub {
	$node->safe_psql('postgres', 'ALTER SYSTEM SET postbox.read_chunk_size = 500; SELECT pg_reload_conf()');
	wait_until($node, 'postgres', q{SELECT current_setting('postbox.read_chunk_size') = '500'}, 'chunks are small');
	my $seq = $node->safe_psql('postgres', q{SELECT nextval('app.outbox_seq')});
	my $before = messages_published($emulator);
	insert_copies($seq, 'new');
	others_flow(0);
	wait_for(sub { messages_published($emulator) >= $before + 2520 }, 'all are published') or diag(messages_published($emulator) - $before);
	is(messages_published($emulator), $before + 2520, 'once');
	insert_copies($seq, 'late');
	others_flow(0);
	wait_for(sub { messages_published($emulator) >= $before + 5040 }, 'rows that have it later are published') or diag(messages_published($emulator) - $before);
	is(messages_published($emulator), $before + 5040, 'once');
};

subtest 'a sequence that does not count one by one is shown with the repair' => sub {
	$node->safe_psql('postgres', 'ALTER SEQUENCE app.outbox_seq CACHE 20');
	is($node->safe_psql('postgres', 'SELECT state FROM postbox.publication_status'), 'broken', 'the publication is broken');
	my ($repair) = $node->safe_psql('postgres', 'SELECT last_error FROM postbox.publication_status') =~ /run (ALTER SEQUENCE .*)$/ or die 'no repair';
	$node->safe_psql('postgres', $repair);
	wait_until($node, 'postgres', q{SELECT state = 'active' FROM postbox.publication_status}, 'and active when it is repaired');
	others_flow(0);
};

subtest 'rows of any number of clusters that somebody has made up hold up no events of others' => sub {
	$node->safe_psql('postgres', q{SET ROLE emitter; INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, origin)
		SELECT gen_random_uuid(), 'video', 'x', 'video.changed', 1, '{}', n FROM generate_series(-20000, 20000) n});
	my $position = log_position($node);
	# More than one look for rows of other clusters, of which there is one a second.
	others_flow(0);
	for (1 .. 2)
	{
		$node->safe_psql('postgres', 'SELECT pg_sleep(1)');
		others_flow(0);
	}
	unlike(undisturbed_log_since($node, $position), qr/is suspended/, 'the publication is not suspended');
	my $status = q{SET statement_timeout = '30s'; SELECT problem FROM postbox.outbox_status};
	like($node->safe_psql('postgres', $status), qr/^events of another cluster are kept: .*postbox\.resolve_unknown_origin\('app\.outbox', true\)/, 'the status says what is the matter');
	my $before = messages_published($emulator);
	my ($code, $stdout, $stderr) = $node->psql('postgres', q{SELECT postbox.resolve_unknown_origin('app.outbox', true)});
	like($stderr, qr/"app.outbox" has events of more than 100 unknown clusters\n.*HINT:  DELETE the events whose origin/s, 'nobody is to decide about so many');
	$node->safe_psql('postgres', 'DELETE FROM app.outbox WHERE origin <> postbox.cluster_origin() AND origin NOT IN (7, 8)');
	$node->safe_psql('postgres', q{SELECT postbox.resolve_unknown_origin('app.outbox', true)});
	is($node->safe_psql('postgres', q{SELECT problem FROM postbox.outbox_status WHERE outbox = 'app.outbox'::regclass}), '', 'the others are decided about');
	is(messages_published($emulator), $before, 'as published');
	$node->safe_psql('postgres', 'DELETE FROM app.outbox WHERE origin <> postbox.cluster_origin(); DELETE FROM postbox.former_position');
};

subtest 'rows of a table outbox that no claim takes are shown with the repair' => sub {
	$node->safe_psql('postgres', q{
		SELECT postbox.create_outbox('app.jobs', 'table');
		SELECT postbox.create_publication('jobs', 'app.jobs', 'catalog.video.events');
		INSERT INTO app.jobs (seq, id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (-7, gen_random_uuid(), 'video', 'x', 'video.changed', 1, '{}')});
	my $status = q{SELECT last_error FROM postbox.publication_status WHERE publication = 'jobs'};
	my ($repair) = $node->safe_psql('postgres', $status) =~ /^1 events have no seq or one below 1.* (UPDATE .*)$/ or die 'no repair';
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', $repair);
	wait_for(sub { messages_published($emulator) == $before + 1 }, 'it is published when it is repaired');
	is($node->safe_psql('postgres', $status), '', 'and nothing is shown any more');
	$node->safe_psql('postgres', q{SELECT postbox.drop_publication('jobs'), postbox.drop_outbox('app.jobs')});
};

# What failed is tried again after a fifth of a second.
set_configuration($node, 'postbox.time_scale', 20);
$node->reload;

subtest 'a sequence that was set back suspends the publication, and the repair loses nothing' => sub {
	my $last = $node->safe_psql('postgres', q{SELECT pg_sequence_last_value('app.outbox_seq')});
	$node->safe_psql('postgres', q{SELECT setval('app.outbox_seq', 1)});
	wait_until($node, 'postgres', q{SELECT state = 'suspended' AND last_error LIKE '%sequence app.outbox_seq stands at 1,%' FROM postbox.publication_status}, 'the status says why');
	$node->safe_psql('postgres', "SELECT setval('app.outbox_seq', $last)");
	others_flow(0);
};

subtest 'a sequence that was set back and has come to where it was again loses nothing' => sub {
	emit($node, 'postgres', 2000);
	others_flow(0);
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', q{SELECT setval('app.outbox_seq', pg_sequence_last_value('app.outbox_seq') - 2000)});
	wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status}, 'the publication is suspended');
	$node->safe_psql('postgres', q{DO $$ BEGIN FOR i IN 1 .. 6000 LOOP PERFORM postbox.outbox_emit('video', 'v' || i % 7, 'video.created', '{}'::jsonb); COMMIT; END LOOP; END $$});
	wait_for(sub { messages_published($emulator) >= $before + 6000 }, 'all that was emitted meanwhile is published when it has');
	others_flow(0);
	is(messages_published($emulator), $before + 6020, 'once');
};

unlike(log_since($node, $start), qr/terminated by signal|PANIC/, 'nothing crashed');

subtest 'nor does one whose worker is lost meanwhile' => sub {
	my $seq = $node->safe_psql('postgres', q{SELECT nextval('app.outbox_seq')});
	my $before = messages_published($emulator);
	my $pid = worker_pid($node, 'postgres');
	# None of them is published before the worker is lost, so those that are parked stay so.
	emulator_fault($emulator, 'rpc=Publish,action=delay,latency-ms=600000');
	insert_copies($seq, 'killed');
	wait_until($node, 'postgres', q{SELECT count(*) > 1000 FROM app.outbox_parked}, 'some are parked');
	crash($node, $pid);
	emulator_fault($emulator, '--clear');
	wait_until($node, 'postgres', q{SELECT pending = 0 AND parked = 0 FROM postbox.publication_status}, 'nothing waits');
	wait_for(sub { messages_published($emulator) >= $before + 2500 }, 'none is lost');
	others_flow(0);
};
$node->stop;
done_testing();
