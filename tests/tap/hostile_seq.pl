# Whoever may INSERT into a log outbox gives its rows no txid, seq, origin or generation: they get true ones, whatever the INSERT says. What
# a superuser puts there past the trigger, or does to the sequence, waits and is shown; it takes no event of others along.
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

use constant COLUMNS => 'id, aggregate_type, aggregate_id, event_type, version, payload';
use constant EVENT => q{gen_random_uuid(), 'video', 'x', 'video.changed', 1, '{}'};

# A row past the trigger.
sub insert
{
	my ($seq) = @_;
	$node->safe_psql('postgres', "SET session_replication_role = replica; INSERT INTO app.outbox (seq, @{[COLUMNS]}) VALUES ($seq, @{[EVENT]})");
	return;
}

# A file of the server's for COPY, in single quotes.
sub quoted { return "'" . $node->data_dir . "/copy'"; }

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

# Whether the last event has true values; its transaction is the one before.
sub newest_is_true
{
	my ($what) = @_;
	return is($node->safe_psql('postgres', q{SELECT e.seq = pg_sequence_last_value('app.outbox_seq') AND pg_xact_status(e.txid) = 'committed' AND e.txid = (SELECT max(txid) FROM app.outbox) AND e.origin = postbox.cluster_origin()
		FROM app.outbox e WHERE seq > 0 AND seq < 1000000 ORDER BY seq DESC LIMIT 1}), 't', $what);
}

subtest 'an emitter says neither seq nor txid' => sub {
	my %lies = ('a seq that an event has' => [ seq => '3' ], 'one far ahead' => [ seq => '9223372036854775000' ], 'one that is near' => [ seq => '(SELECT max(seq) + 5 FROM app.outbox WHERE seq < 1000000)' ],
		'0' => [ seq => '0' ], 'NULL' => [ seq => 'NULL' ], 'an old transaction' => [ txid => q{'5'} ], 'one to come' => [ txid => q{'999999999'} ], 'no origin' => [ origin => 'NULL' ]);
	$node->safe_psql('postgres', 'GRANT SELECT (seq) ON app.outbox TO emitter');
	for my $lie (sort keys %lies)
	{
		my ($column, $value) = @{ $lies{$lie} };
		my $before = messages_published($emulator);
		$node->safe_psql('postgres', "SET ROLE emitter; INSERT INTO app.outbox ($column, @{[COLUMNS]}) VALUES ($value, @{[EVENT]})");
		newest_is_true($lie);
		wait_for(sub { messages_published($emulator) >= $before + 1 }, "$lie: the event is published");
	}
	others_flow(3);
};

subtest 'rows that were copied with all columns are events of their own, each of which is published once' => sub {
	$node->safe_psql('postgres', 'CREATE TABLE app.copy AS SELECT * FROM app.outbox WHERE seq BETWEEN 1 AND 15');
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', $_) for
	  'INSERT INTO app.outbox SELECT txid, seq, gen_random_uuid(), aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, origin, generation FROM app.copy',
	  q{UPDATE app.copy SET id = gen_random_uuid(); COPY app.copy TO '/tmp/' WITH (FORMAT csv)} =~ s{'/tmp/'}{quoted()}er,
	  'COPY app.outbox FROM ' . quoted() . ' WITH (FORMAT csv)',
	  'INSERT INTO app.outbox_g' . $node->safe_psql('postgres', 'SELECT generation FROM app.copy LIMIT 1') . ' SELECT txid, seq, gen_random_uuid(), aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, origin, generation FROM app.copy';
	wait_for(sub { messages_published($emulator) >= $before + 45 }, 'they are published');
	others_flow(3);
	is(messages_published($emulator), $before + 65, 'once');
	is($node->safe_psql('postgres', 'SELECT count(*) - count(DISTINCT seq) FROM app.outbox'), '0', 'no two have one seq');
};

subtest 'an event of another generation is for the owner to put back' => sub {
	my ($code, $stdout, $stderr) = $node->psql('postgres', "SET ROLE emitter; INSERT INTO app.outbox (generation, @{[COLUMNS]}) SELECT (postbox.generation_of(now(), extract(epoch FROM postbox.generation_span('7 days'))::int) + 1) % 6, @{[EVENT]}");
	like($stderr, qr/permission denied for an event of another generation in outbox "app.outbox".*HINT:  Omit txid, seq, origin and generation/s, 'nobody else says when it is purged');
};

subtest 'an event of another cluster is for the owner to restore' => sub {
	my ($code, $stdout, $stderr) = $node->psql('postgres', "SET ROLE emitter; INSERT INTO app.outbox (origin, @{[COLUMNS]}) VALUES (7, @{[EVENT]})");
	like($stderr, qr/permission denied for an event of another origin in outbox "app.outbox".*has origin 7/s, 'nobody else makes one up');
};

subtest 'a plain INSERT wakes the publishers' => sub {
	$node->safe_psql('postgres', q{ALTER SYSTEM SET postbox.poll_interval = '60s'; SELECT pg_reload_conf()});
	wait_until($node, 'postgres', q{SELECT current_setting('postbox.poll_interval') = '1min'}, 'nobody polls');
	others_flow(3);
	my $before = messages_published($emulator);
	$node->safe_psql('postgres', "SET ROLE emitter; INSERT INTO app.outbox (@{[COLUMNS]}) VALUES (@{[EVENT]})");
	wait_for(sub { messages_published($emulator) >= $before + 1 }, 'the event is published');
	$node->safe_psql('postgres', q{ALTER SYSTEM RESET postbox.poll_interval; SELECT pg_reload_conf()});
};

subtest 'the function of the trigger on another table is an error, or does nothing' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.create_outbox('app.tab', 'table'); ALTER TABLE app.tab ADD txid xid8, ADD origin int, ADD generation smallint;
		CREATE TABLE app.other (n int, origin int)});
	for my $table ('tab', 'other')
	{
		for my $kind ('BEFORE INSERT', 'AFTER INSERT', 'BEFORE UPDATE')
		{
			$node->safe_psql('postgres', "CREATE OR REPLACE TRIGGER stamp $kind ON app.$table FOR EACH ROW EXECUTE FUNCTION postbox.stamp_event()");
			my ($code, $stdout, $stderr) = $node->psql('postgres', $table eq 'other' ? 'INSERT INTO app.other VALUES (1, NULL); UPDATE app.other SET n = 2' : "INSERT INTO app.tab (@{[COLUMNS]}) VALUES (@{[EVENT]})");
			my $error = $kind ne 'BEFORE INSERT' ? qr/stamp_event\(\) is the trigger function of log outboxes/ : $table eq 'tab' ? qr/outbox "app.tab" is not a log outbox\n.*Drop the trigger/s : qr/\A\z/;
			$error = qr/\A\z/ if $table eq 'tab' && $kind eq 'BEFORE UPDATE';
			like($stderr, $error, "$table, $kind");
		}
	}
	$node->safe_psql('postgres', q{SELECT postbox.drop_outbox('app.tab'); DROP TABLE app.other});
};

subtest 'a trigger that the owner has disabled or dropped is shown, and put back' => sub {
	my $part = $node->safe_psql('postgres', q{SELECT part FROM postbox.log_partitions('app.outbox') ORDER BY 1 LIMIT 1});
	for my $change ("ALTER TABLE $part DISABLE TRIGGER postbox_stamp", "DROP TRIGGER postbox_stamp ON $part", "ALTER TABLE $part DISABLE TRIGGER ALL", "ALTER TABLE $part ENABLE ALWAYS TRIGGER postbox_stamp",
		"CREATE OR REPLACE TRIGGER postbox_stamp BEFORE INSERT ON $part FOR EACH ROW WHEN (false) EXECUTE FUNCTION postbox.stamp_event()", "CREATE OR REPLACE TRIGGER postbox_stamp BEFORE UPDATE ON $part FOR EACH ROW EXECUTE FUNCTION postbox.stamp_event()")
	{
		$node->safe_psql('postgres', $change);
		is($node->safe_psql('postgres', 'SELECT state FROM postbox.publication_status'), 'broken', "$change: the publication is broken");
		my ($repair) = $node->safe_psql('postgres', 'SELECT last_error FROM postbox.publication_status') =~ /^the trigger postbox_stamp of \S+, .* run (SELECT .*)$/ or die 'no repair';
		$node->safe_psql('postgres', $repair);
		wait_until($node, 'postgres', q{SELECT state = 'active' FROM postbox.publication_status}, 'and active when it is repaired');
	}
	others_flow(3);
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

subtest 'a sequence that does not count one by one is shown with the repair' => sub {
	$node->safe_psql('postgres', 'ALTER SEQUENCE app.outbox_seq CACHE 20');
	is($node->safe_psql('postgres', 'SELECT state FROM postbox.publication_status'), 'broken', 'the publication is broken');
	my ($repair) = $node->safe_psql('postgres', 'SELECT last_error FROM postbox.publication_status') =~ /run (ALTER SEQUENCE .*)$/ or die 'no repair';
	$node->safe_psql('postgres', $repair);
	wait_until($node, 'postgres', q{SELECT state = 'active' FROM postbox.publication_status}, 'and active when it is repaired');
	others_flow(0);
};

subtest 'rows of any number of clusters that somebody has made up hold up no events of others' => sub {
	$node->safe_psql('postgres', q{INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, origin)
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
	my $status = q{SET statement_timeout = '30s'; SELECT concat_ws('; ', problem, remedy) FROM postbox.outbox_status};
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
	wait_until($node, 'postgres', q{SELECT state = 'suspended' AND last_error LIKE '%sequence app.outbox_seq is at 1,%' FROM postbox.publication_status}, 'the status says why');
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

subtest 'a sequence that is set to the greatest seq, as after a restore, while an event is not committed: of both events with its seq none is lost' => sub {
	my $before = messages_published($emulator);
	my $session = $node->background_psql('postgres');
	$session->query_safe(q{BEGIN});
	# All are refused together. One of them is tried, then all that are left at once.
	emulator_fault($emulator, 'rpc=Publish,code=PERMISSION_DENIED,count=1000000');
	emit($node, 'postgres', 4);
	$session->query_safe(q{SELECT postbox.outbox_emit('video', 'held', 'video.changed', '{}'::jsonb)});
	$node->safe_psql('postgres', q{SELECT setval('app.outbox_seq', (SELECT pg_sequence_last_value('app.outbox_seq') - 1)); SELECT postbox.outbox_emit('video', 'other', 'video.changed', '{}'::jsonb)});
	$session->query_safe('COMMIT');
	$session->quit;
	is($node->safe_psql('postgres', q{SELECT count(DISTINCT seq) FROM app.outbox WHERE aggregate_id IN ('held', 'other')}), '1', 'they have one seq');
	wait_until($node, 'postgres', q{SELECT state = 'suspended' AND pending = 6 FROM postbox.publication_status}, 'all wait');
	emulator_fault($emulator, '--clear');
	wait_for(sub { messages_published($emulator) >= $before + 6 }, 'all are published');
	others_flow(0);
	is(messages_published($emulator), $before + 26, 'once');
};

unlike(log_since($node, $start), qr/terminated by signal|PANIC/, 'nothing crashed');

$node->stop;
done_testing();
