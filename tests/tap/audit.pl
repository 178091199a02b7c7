# `postbox audit` is never clean when it should not be: after a restore, without a right, while a type is paused, with another audit at work.
# It is not misled by settings of roles, by odd ids, by parked and discarded events, and by a backfill.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use JSON::PP ();
use Postbox::Puller;
use Postbox::Session;
use Postbox::Test;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($clean, $incomplete, $differences) = (0, 1, 3);
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-items=catalog.video.events,ordered');
my $source = new_node('source', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$source->start;
create_outbox($source, 'postgres', kind => 'log');
my $reader = new_node('reader', emulator => $emulator, allows_streaming => 1, settings => { 'postbox.publishers' => 0 });
$reader->start;
$reader->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	CREATE TABLE app.item (id text PRIMARY KEY, total numeric CHECK (total < 1000), weight float8, at timestamptz, raw bytea, version bigint);
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_projection('app.inbox', '{item.changed}', 'app.item', columns => '{"total": "total", "weight": "weight", "at": "at", "raw": {"path": "raw", "as": "hex"}}');
	SELECT postbox.create_subscription('items', 'app.inbox', 'catalog.video.events.test-items', on_error => 'park_key', max_attempts => 2, min_backoff => '10ms',
		max_backoff => '20ms', parked_max_attempts => 0);
});
my $puller = start_puller($reader, 'postgres', $emulator);
my $state = PostgreSQL::Test::Utils::tempdir() . '/state';
our ($from, $to) = ($source->connstr('postgres'), $reader->connstr('postgres'));

sub command
{
	my (@arguments) = @_;
	# The name that it gives itself shows in pg_stat_activity.
	delete $ENV{PGAPPNAME};
	return [ $ENV{POSTBOX}, 'audit', '--source', $from, '--reader', $to, '--grace', 1, @arguments ];
}

# The report of an audit, which ends with this status.
sub audit
{
	my ($expected, $what, @arguments) = @_;
	IPC::Run::run(command('--json', @arguments), '<', \undef, '>', \my $out, '2>', \my $err);
	is($? >> 8, $expected, $what) or diag("$out$err");
	return eval { JSON::PP::decode_json($out) } // do { fail('valid JSON'); diag("$out$err"); {} };
}
sub found { my ($report) = @_; return join ' ', sort map { "$_->{kind}:" . ($_->{aggregate_id} // '') } @{ $report->{findings} }; }
sub codes { my ($report) = @_; return join ' ', map { $_->{code} } @{ $report->{incomplete} }; }

my $payload = q{jsonb_build_object('total', n, 'weight', n / 3.0::float8, 'at', now(), 'raw', encode(convert_to(n::text, 'UTF8'), 'hex'))};
sub emit_items
{
	my ($keys) = @_;    # an expression with n
	return $source->safe_psql('postgres', "SELECT count(postbox.outbox_emit('item', $keys, 'item.changed', $payload)) FROM generate_series(1, 20) n");
}
sub received
{
	my ($node, $what) = @_;
	my $emitted = $source->safe_psql('postgres', 'SELECT count(*) FROM app.outbox');
	# An event counts as pending until its lane has recorded it, which may be after it is received.
	wait_until($source, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'videos'}, 'the events are published');
	return wait_until($node // $reader, 'postgres', "SELECT count(*) = $emitted FROM app.inbox", $what // 'the events are received') || diag($puller->{output});
}

subtest 'healthy events, and none more' => sub {
	emit_items(q{'i' || n});
	received();
	is(audit($clean, 'everything is clean', '--state', $state)->{events}, 20, 'every event is compared');
	is(audit($clean, 'and what is new since then', '--state', $state)->{full}, JSON::PP::false, 'which is less');
	audit($clean, 'with another scope', '--state', $state, '--event-type', 'item.changed');
	my $report = audit($clean, 'and the first scope', '--state', $state);
	like("@{ $report->{notes} }", qr/everything is compared: the options/, 'everything is compared again');
};

subtest 'settings of roles change no value' => sub {
	for my $node ($source, $reader)
	{
		$node->safe_psql('postgres', q{
			CREATE ROLE odd LOGIN SUPERUSER;
			ALTER ROLE odd SET search_path = app; ALTER ROLE odd SET DateStyle = 'German'; ALTER ROLE odd SET extra_float_digits = -15;
			ALTER ROLE odd SET bytea_output = escape; ALTER ROLE odd SET TimeZone = 'Asia/Kathmandu'; ALTER ROLE odd SET IntervalStyle = 'iso_8601';
			ALTER ROLE odd SET client_encoding = 'LATIN1'; ALTER ROLE odd SET standard_conforming_strings = off; ALTER ROLE odd SET statement_timeout = '1ms';
			ALTER ROLE odd SET default_transaction_isolation = 'serializable'; ALTER ROLE odd SET row_security = off;
			CREATE FUNCTION app.now() RETURNS timestamptz LANGUAGE sql AS $$ SELECT 'epoch'::timestamptz $$;
		});
	}
	local ($from, $to) = ("$from user=odd", "$to user=odd");
	is(audit($clean, 'an audit by such a role')->{rows}, 20, 'compares the rows');
};

subtest 'keys with any bytes' => sub {
	wait_until($reader, 'postgres', q{SELECT created_at < now() - interval '3 s' FROM postbox.inbox}, 'an event of now was emitted after the inbox began, whatever the clocks say');
	my @keys = (q{E'quo"te''s \\\\ {}, NULL'}, q{E'new\\nline\\t\\u009b31m'}, q{'snow ☃ and 🐘'}, q{repeat('long', 250)}, q{'NULL'});
	$source->safe_psql('postgres', "SELECT postbox.outbox_emit('item', $_, 'item.changed', '{\"total\": 1}'::jsonb)") for @keys;
	received();
	audit($clean, 'are compared', '--state', $state);
	$reader->safe_psql('postgres', q{DELETE FROM app.inbox WHERE aggregate_id ~ 'quo|new|snow|long|NULL'; UPDATE app.item SET total = 2 WHERE id ~ 'snow'});
	my $report = audit($differences, 'and what is missing is named', '--repair');
	is(scalar(grep { $_->{kind} =~ /missing|late/ } @{ $report->{findings} }), 5, 'in JSON');
	IPC::Run::run(command('--limit', 3), '<', \undef, '>', \my $text, '2>', \my $err);
	is(scalar(() = $text =~ /^difference: /mg), 3, 'and in lines of text');
	unlike($text, qr/\xC2\x9B|\t/, 'without what a terminal obeys');
	# An inbox that has forgotten events takes them again.
	$source->safe_psql('postgres', q{INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload)
		VALUES (gen_random_uuid(), 'item', repeat('x', 10000), 'item.changed', 1, '{"total": 1}')});
	wait_until($source, 'postgres', 'SELECT count(*) = 1 FROM postbox.paused_keys', 'Pub/Sub does not take a key of 10 kB');
	like(found(audit($differences, 'which is a difference', '--state', $state)), qr/parked_at_source:x{10000}/, 'with its whole key');
	$source->safe_psql('postgres', q{DELETE FROM app.outbox WHERE aggregate_id ~ 'quo|new|snow|long|NULL|xxx'; DELETE FROM app.outbox_parked; });
	$reader->safe_psql('postgres', q{DELETE FROM app.item WHERE id ~ 'quo|new|snow|long|NULL'});
	audit($clean, 'nothing of it is left', '--state', $state);
};

subtest 'parked and discarded events, holes and pauses' => sub {
	$source->safe_psql('postgres', "SELECT postbox.outbox_emit('item', 'bad', 'item.changed', '{\"total\": $_}'::jsonb)") for 1, 5000, 2;
	wait_for(sub { emit_items(q{'i' || n}); $reader->safe_psql('postgres', q{SELECT count(*) = 2 FROM postbox.dead_letter WHERE parked}) eq 't' }, 'a key is parked');
	received();
	is(found(audit($differences, 'parked events are a difference', '--state', $state)), 'parked:bad parked:bad', 'of their own');
	$reader->safe_psql('postgres', q{
		SELECT postbox.discard_dead_letter(d.id, reason => 'test data, ticket 4711', accept_hole => true) FROM (SELECT min(id) AS id FROM postbox.dead_letter) d});
	$reader->safe_psql('postgres', q{SELECT * FROM postbox.redrive_dead_letters('app.inbox')});
	for my $arguments ([ '--state', $state ], [ '--state', $state ], [])
	{
		my $report = audit($clean, 'a hole that was accepted is no difference', @$arguments);
		like("@{ $report->{notes} }", qr/item bad, version 2, .* is a hole: discarded by \S+ at .*: test data, ticket 4711/, 'and said with its reason');
	}
	my $projection = $reader->safe_psql('postgres', 'SELECT name FROM postbox.projection');
	$reader->safe_psql('postgres', qq{SELECT postbox.pause_projection('$projection', 'a migration')});
	emit_items(q{'i' || n});
	wait_until($source, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'more events are published');
	$source->safe_psql('postgres', q{SELECT postbox.outbox_emit('item', 'other', 'item.seen', '{}'::jsonb)});
	wait_until($reader, 'postgres', q{SELECT count(*) = 1 FROM app.inbox WHERE aggregate_id = 'other'}, 'an event that nothing takes is received');
	my $report = audit($differences, 'what a paused projection takes is late', '--state', $state);
	is(join(' ', sort { $a cmp $b } keys %{ $report->{differences} }), 'late', 'and not missing');
	like($report->{findings}[0]{detail}, qr/projection \Q$projection\E is paused since .*: a migration/, 'with the reason');
	$reader->safe_psql('postgres', qq{SELECT postbox.resume_projection('$projection')});
	received();
	audit($clean, 'until it is resumed', '--state', $state);
};

subtest 'a backfill makes no gap' => sub {
	$source->safe_psql('postgres', q{
		CREATE TABLE app.thing (id int PRIMARY KEY, total numeric);
		INSERT INTO app.thing SELECT n, n FROM generate_series(1, 100) n;
		SELECT postbox.create_backfill('things', 'app.thing', aggregate_type => 'item', key => '{id}', outbox => 'app.outbox', event_type => 'item.changed')});
	$source->safe_psql('postgres', q{CALL postbox.run_backfill('things')});
	received();
	audit($clean, 'its events are compared like others', '--state', $state);
};

subtest 'a right that is missing is said' => sub {
	for my $node ($source, $reader)
	{
		$node->safe_psql('postgres', 'CREATE ROLE auditor LOGIN; GRANT USAGE ON SCHEMA app TO auditor');
	}
	local ($from, $to) = ("$from user=auditor", "$to user=auditor");
	is(codes(audit($incomplete, 'no table')), 'no_right', 'of the source');
	$source->safe_psql('postgres', 'GRANT SELECT ON app.outbox TO auditor');
	is(codes(audit($incomplete, 'no inbox')), 'no_right', 'of the reader');
	$reader->safe_psql('postgres', 'GRANT SELECT ON app.inbox TO auditor');
	is(codes(audit($incomplete, 'no rows')), 'no_right', 'of the projection');
	like(codes(audit($incomplete, 'no backlog', '--no-rows', '--state', "$state.auditor")), qr/^backlog$/, 'of the source');
	$source->safe_psql('postgres', 'GRANT SELECT ON app.outbox_parked TO auditor');
	audit($clean, 'the tables alone', '--no-rows', '--state', "$state.auditor");
	is(codes(audit($incomplete, 'no right to store the result', '--no-rows', '--record')), 'no_right', 'is no difference');
	$source->safe_psql('postgres', 'REVOKE USAGE ON SEQUENCE app.outbox_seq FROM PUBLIC');
	is(codes(audit($incomplete, 'no sequence', '--no-rows', '--state', "$state.auditor")), 'no_right', 'also if earlier audits were clean');
	$source->safe_psql('postgres', 'GRANT USAGE ON SEQUENCE app.outbox_seq TO PUBLIC');
};

subtest 'rows that are never published' => sub {
	$source->safe_psql('postgres', q{SELECT postbox.pause_publication('videos', 'a test'); SELECT postbox.outbox_emit('item', 'no', 'item.seen', '{}'::jsonb);
		UPDATE app.outbox SET seq = 1000000000 WHERE aggregate_id = 'no'; SELECT postbox.resume_publication('videos')});
	my $report = audit($incomplete, 'a row beyond the sequence', '--state', $state);
	is(codes($report), 'backlog', 'is a problem of the backlog');
	like($report->{incomplete}[0]{detail}, qr/1 events are not published/, 'as the status says it');
	$source->safe_psql('postgres', q{DELETE FROM app.outbox WHERE aggregate_id = 'no'});
	audit($clean, 'it is gone', '--state', $state);
};

subtest 'an audit that is killed is run again' => sub {
	my $before = slurp_file($state);
	my $lock = Postbox::Session->new($reader, 'postgres');
	for my $signal ('KILL', 'INT')
	{
		$lock->query('BEGIN');
		$lock->query('LOCK TABLE app.inbox IN ACCESS EXCLUSIVE MODE');
		my $run = IPC::Run::start(command('--state', $state, '--full'), '<', \undef, '>', \my $out, '2>', \my $err);
		wait_until($reader, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'postbox audit' AND wait_event_type = 'Lock'}, 'an audit is at work');
		is(codes(audit($incomplete, 'another one with its state', '--state', $state)), 'busy', 'is refused');
		$run->signal($signal);
		$run->finish;
		$lock->query('ROLLBACK');
		is(slurp_file($state), $before, "SIG$signal leaves the state as it was");
	}
	audit($clean, 'the next one goes on', '--state', $state);
};

subtest 'an audit of a standby' => sub {
	$reader->backup('backup');
	my $standby = PostgreSQL::Test::Cluster->new('standby');
	$standby->init_from_backup($reader, 'backup', has_streaming => 1);
	$standby->start;
	$reader->wait_for_catchup($standby);
	local $to = $standby->connstr('postgres');
	audit($clean, 'reads', '--state', "$state.standby");
	my $report = audit($incomplete, 'and stores nothing there', '--state', "$state.standby", '--record');
	like($report->{incomplete}[0]{detail}, qr/the result was not stored: .*read-write mode during recovery/, 'as it says');
	$standby->stop;
};

subtest 'after a restore nothing is taken for proven' => sub {
	audit($clean, 'before', '--state', $state, '--record');
	$reader->safe_psql('postgres', 'CHECKPOINT');
	emit_items(q{'late' || n});
	received();
	audit($clean, 'an audit after the backup', '--state', $state);
	is($reader->safe_psql('postgres', 'SELECT count(*) FROM postbox.audit'), 1, 'a result was stored');
	$reader->command_ok([ 'pg_dump', '-Fc', '-f', "$state.dump", $reader->connstr('postgres') ], 'a dump');
	$reader->safe_psql('postgres', 'CREATE DATABASE copy');
	$reader->command_ok([ 'pg_restore', '-d', $reader->connstr('copy'), "$state.dump" ], 'is restored');
	is($reader->safe_psql('copy', 'SELECT count(*) FROM postbox.audit'), 0, 'a copy has no results of audits');
	{
		local $to = $reader->connstr('copy');
		is(codes(audit($incomplete, 'a state is not taken for that of a copy', '--state', $state)), 'bad_state', 'and the audit says so');
	}
	stop_puller($puller);
	$reader->stop;
	my $again = PostgreSQL::Test::Cluster->new('again');
	$again->init_from_backup($reader, 'backup');
	$again->start;
	local $to = $again->connstr('postgres');
	my $report = audit($differences, 'a reader that went back', '--state', $state);
	like("@{ $report->{notes} }", qr/everything is compared: the reader was restored or promoted/, 'is compared as a whole');
	is($report->{differences}{late}, 20, 'and misses what it has lost');
	$report = audit($differences, 'in each audit', '--state', $state);
	is($report->{full}, JSON::PP::false, 'also when its state is new');
	$again->stop;
};

done_testing();
