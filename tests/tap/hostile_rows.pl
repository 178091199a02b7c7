# Whoever owns an outbox can alter it, and whoever may INSERT can write anything into it. A row that cannot be an event stops
# itself or its key, and columns that are not what they were stop their outbox. Nothing of it restarts the server, and the
# events of others flow.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => {
	'postbox.publishers' => 2,
	'postbox.poll_interval' => '50ms',
	'postbox.checkpoint_interval' => '20ms',
	'postbox.maintenance_interval' => '1s',
	'postbox.time_scale' => 20,    # what failed is tried again after a fifth of a second
});
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE ROLE mallory;
	CREATE SCHEMA evil AUTHORIZATION mallory;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA postbox TO mallory;
	GRANT USAGE ON SCHEMA postbox TO mallory;
	SET ROLE mallory;
	SELECT postbox.create_outbox('evil.log');
	SELECT postbox.create_publication('log', 'evil.log', 'catalog.video.events', base_backoff => '100ms', max_backoff => '300ms', max_attempts => 3);
	SELECT postbox.create_outbox('evil.tab', 'table');
	SELECT postbox.create_publication('tab', 'evil.tab', 'catalog.video.events', base_backoff => '100ms', max_backoff => '300ms', max_attempts => 3);
});
my $start = log_position($node);
# One session for all, since a psql for each statement costs more than the statements.
my $session = $node->background_psql('postgres');
$session->query_safe('SET client_min_messages = error');

# As the owner of the hostile outboxes.
sub as_mallory
{
	my (@sql) = @_;
	$session->query_safe(join(';', 'SET ROLE mallory', @sql, 'RESET ROLE'));
	return;
}

sub insert
{
	my ($outbox, %columns) = @_;
	my %event = (
		id => 'gen_random_uuid()', aggregate_type => q{'video'}, aggregate_id => q{'k'}, event_type => q{'video.changed'}, version => 1,
		schema_version => q{'v1'}, payload => q{'{}'}, attributes => q{'{}'}, occurred_at => 'now()', %columns);
	my @names = sort keys %event;
	as_mallory("INSERT INTO $outbox (" . join(', ', @names) . ') VALUES (' . join(', ', map { $event{$_} } @names) . ')');
	return;
}

# Waits until a query says t, in the session.
sub wait_so { my ($query, $what) = @_; return wait_for(sub { return $session->query_safe($query) eq 't' }, $what); }

sub column { my ($publication, $column) = @_; return $session->query_safe("SELECT $column FROM postbox.publication_status WHERE publication = '$publication'"); }

sub wait_empty
{
	my ($publication, $what) = @_;
	wait_so("SELECT pending = 0 AND state = 'active' FROM postbox.publication_status WHERE publication = '$publication'", $what)
	  or diag(column($publication, 'publication_status::text'));
	return;
}

sub others_flow
{
	my $before = messages_published($emulator);
	$session->query_safe(q{SELECT count(postbox.outbox_emit('video', 'k' || n, 'video.created', '{}'::jsonb, outbox => 'app.outbox')) FROM generate_series(1, 20) n});
	wait_empty('videos', "others' events flow");
	wait_for(sub { messages_published($emulator) >= $before + 20 }, 'all of them');
	return;
}

sub no_restart
{
	unlike(log_since($node, $start), qr/terminated by signal|PANIC|server process.*exited with exit code/, 'nothing crashed');
	return;
}

my %parked = (
	log => q{SELECT count(*) FROM evil.log_parked WHERE last_error LIKE '%PATTERN%'},
	tab => q{SELECT count(*) FROM evil.tab WHERE published_at IS NULL AND publish_attempts > 0 AND last_error LIKE '%PATTERN%'});

# Each row: its columns, what makes it possible, the reason that is shown, and what repairs the row.
my @rows = (
	[ 'a NULL payload', { payload => 'NULL' }, 'ALTER payload DROP NOT NULL', 'column "payload" is null', q{payload = 'repaired'} ],
	[ 'NULL attributes', { attributes => 'NULL' }, 'ALTER attributes DROP NOT NULL', 'column "attributes" is null', q{attributes = '{}'} ],
	[ 'a NULL aggregate_id', { aggregate_id => 'NULL' }, 'ALTER aggregate_id DROP NOT NULL', 'column "aggregate_id" is null', q{aggregate_id = 'k'} ],
	[ 'a NULL aggregate_type', { aggregate_type => 'NULL' }, 'ALTER aggregate_type DROP NOT NULL', 'column "aggregate_type" is null', q{aggregate_type = 'video'} ],
	[ 'a NULL event_type', { event_type => 'NULL' }, 'ALTER event_type DROP NOT NULL', 'column "event_type" is null', q{event_type = 'video.changed'} ],
	[ 'a NULL version', { version => 'NULL' }, 'ALTER version DROP NOT NULL', 'column "version" is null', q{version = 1} ],
	[ 'a NULL schema_version', { schema_version => 'NULL' }, 'ALTER schema_version DROP NOT NULL', 'column "schema_version" is null', q{schema_version = 'v1'} ],
	[ 'a NULL occurred_at', { occurred_at => 'NULL' }, 'ALTER occurred_at DROP NOT NULL', 'column "occurred_at" is null', q{occurred_at = now()} ],
	[ 'an infinite occurred_at', { occurred_at => q{'infinity'} }, undef, 'occurred_at is infinite', q{occurred_at = now()} ],
	[ 'attributes that are an array', { attributes => q{'[1]'} }, undef, 'attributes are not a JSON object', q{attributes = '{}'} ],
	[ 'attributes that are a number', { attributes => q{'1'} }, undef, 'attributes are not a JSON object', q{attributes = '{}'} ],
	[ 'an attribute that is too long', { attributes => q{jsonb_build_object('a', repeat('x', 1025))} }, undef, 'INVALID_ARGUMENT', q{attributes = '{}'} ],
);

# All of an outbox are there at once, each with a key of its own where it has a key.
for my $publication ('log', 'tab')
{
	my $outbox = "evil.$publication";
	my $number = 0;
	my @inserted;
	for my $row (@rows)
	{
		my ($what, $columns, $alter, $reason, $repair) = @$row;
		my $id = sprintf('00000000-0000-4000-8000-%012d', ++$number);
		as_mallory("ALTER TABLE $outbox $alter") if $alter;
		insert($outbox, aggregate_id => "'k$number'", %$columns, id => "'$id'");
		push @inserted, [ $id, @$row ];
	}
	for my $row (@inserted)
	{
		my ($id, $what, $columns, $alter, $reason, $repair) = @$row;
		my $query = $parked{$publication} =~ s/PATTERN/$reason/r;
		wait_so("SELECT ($query AND id = '$id' AND next_retry_at = 'infinity') = 1", "$what in a $publication outbox is parked with the reason, and has failed permanently")
		  or diag(column($publication, 'publication_status::text'));
	}
	subtest "rows of a $publication outbox that are no events stop themselves only" => sub {
		insert($outbox, aggregate_id => q{'another'});
		wait_so("SELECT pending = @{[scalar @rows]} AND state = 'active' FROM postbox.publication_status WHERE publication = '$publication'", 'another key of the outbox goes on');
		others_flow();
		for my $row (@inserted)
		{
			my ($id, $what, $columns, $alter, $reason, $repair) = @$row;
			# What could be read was copied when it was parked.
			my $stored = $outbox eq 'evil.log' && $reason eq 'INVALID_ARGUMENT' ? 'evil.log_parked' : $outbox;
			as_mallory("UPDATE $stored SET $repair WHERE id = '$id'", "SELECT postbox.redrive('$outbox', '$id')");
			wait_so("SELECT pending = @{[--$number]} FROM postbox.publication_status WHERE publication = '$publication'", "$what: when it is repaired it is published");
		}
		wait_empty($publication, 'nothing is left');
		no_restart();
	};
	as_mallory("TRUNCATE $outbox");
}

# Each column that is altered: how, the reason that is shown, how it is altered back, and what an event then has there.
my @columns = (
	[ 'a payload that is a number', 'ALTER payload TYPE bigint USING 0', 'column "payload"', q{ALTER payload TYPE bytea USING '{}'} ],
	[ 'a key that is a number', 'ALTER aggregate_id TYPE bigint USING 0', 'column "aggregate_id"', 'ALTER aggregate_id TYPE text' ],
	[ 'an event type that is a number', 'ALTER event_type TYPE bigint USING 0', 'column "event_type"', 'ALTER event_type TYPE text' ],
	[ 'a time that is a text', 'ALTER occurred_at DROP DEFAULT, ALTER occurred_at TYPE text', 'column "occurred_at"', 'ALTER occurred_at TYPE timestamptz USING now()' ],
	[ 'attributes that are a number', 'ALTER attributes DROP DEFAULT, ALTER attributes TYPE bigint USING 0', 'column "attributes"', q{ALTER attributes TYPE jsonb USING '{}'}, attributes => q{'7'} ],
	[ 'a payload that is renamed', 'RENAME payload TO away', 'column "payload"', 'RENAME away TO payload', away => q{'7'} ],
	[ 'a seq that is renamed', 'RENAME seq TO away', 'column "seq"', 'RENAME away TO seq' ],
);

for my $column (@columns)
{
	my ($what, $alter, $reason, $back, %values) = @$column;
	subtest "$what breaks the log outbox and nothing else" => sub {
		my %event = (
			id => 'gen_random_uuid()', aggregate_type => q{'video'}, aggregate_id => q{'7'}, event_type => q{'7'}, version => 1,
			payload => q{'7'}, attributes => q{'{}'}, occurred_at => q{'now'}, %values);
		delete $event{payload} if $event{away};
		my @names = sort keys %event;
		my $insert = 'INSERT INTO evil.log (' . join(', ', @names) . ') VALUES (' . join(', ', map { $event{$_} } @names) . ')';
		# Without a seq none can be inserted.
		as_mallory(join '; ', 'BEGIN', ($alter =~ /seq/ ? ($insert, "ALTER TABLE evil.log $alter") : ("ALTER TABLE evil.log $alter", $insert)), 'COMMIT');
		wait_so("SELECT state = 'broken' AND last_error LIKE '%$reason%' FROM postbox.publication_status WHERE publication = 'log'", 'the status says why')
		  or diag(column('log', 'last_error'));
		wait_so("SELECT last_error LIKE '%$reason%' FROM postbox.publication_state WHERE publication = 'log'", 'the worker has found it')
		  or diag($node->safe_psql('postgres', 'SELECT last_error FROM postbox.publication_state'));
		like(($node->psql('postgres', "SET ROLE mallory; $insert"))[2], qr/outbox "evil\.log" is incomplete.*column seq no longer owns a sequence.*postbox\.repair_outbox/s, 'an INSERT is refused with the remedy') if $alter =~ /seq/;
		others_flow();
		as_mallory("ALTER TABLE evil.log $back");
		wait_empty('log', 'and it goes on when the table is as it was');
		no_restart();
	};
}

subtest 'a column of which a row is told when it was emitted has another type: an INSERT is refused' => sub {
	for my $column ('txid', 'seq', 'origin')
	{
		my ($type) = $node->safe_psql('postgres', "SELECT format_type(atttypid, NULL) FROM pg_attribute WHERE attrelid = 'evil.log'::regclass AND attname = '$column'");
		as_mallory("ALTER TABLE evil.log ALTER $column DROP DEFAULT, ALTER $column TYPE text");
		like(($node->psql('postgres', qq{SET ROLE mallory; INSERT INTO evil.log ($column, id, aggregate_type, aggregate_id, event_type, version, payload) VALUES ('1', gen_random_uuid(), 'video', '7', '7', 1, '7')}))[2],
			qr/log outbox "evil\.log_g\d" has no column "$column" of type $type\n.*HINT:  Rename it back or change its type back/s, $column);
		as_mallory("ALTER TABLE evil.log ALTER $column TYPE $type USING $column\::$type");
	}
	no_restart();
};

$session->quit;
$node->stop;
done_testing();
