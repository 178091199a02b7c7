# A standby does not publish, promotion does. It can be asked for the status, and says what it does not know.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use JSON::PP ();
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Cluster;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.follower=catalog.video.events,ordered');
my $primary = new_node('primary', emulator => $emulator, allows_streaming => 1, settings => { 'log_statement' => 'all' });
$primary->start;
create_outbox($primary, 'postgres');
follow($primary, 'postgres', 'catalog.video.events.follower', 'video.created');
emit($primary, 'postgres', 5);
wait_published($primary, 'postgres', 5);

$primary->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($primary, 'backup', has_streaming => 1);
$standby->start;

subtest 'a standby has neither launcher nor workers, and follows what the primary publishes' => sub {
	emit($primary, 'postgres', 5);
	wait_published($primary, 'postgres', 10);
	$primary->wait_for_catchup($standby);
	wait_published($standby, 'postgres', 10, 'the standby sees that the primary has published');
	is($standby->safe_psql('postgres', "SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'postbox'"), '0', 'no process of Postbox');
	is($standby->safe_psql('postgres', 'SELECT count(*) FROM postbox.workers'), '0', 'postbox.workers is empty');
};

sub postbox
{
	my ($node, @arguments) = @_;
	# The name that it gives itself shows in the log.
	delete local $ENV{PGAPPNAME};
	IPC::Run::run([ $ENV{POSTBOX}, @arguments, '--dsn', $node->connstr('postgres') ], '<', \undef, '>', \my $out, '2>', \my $err);
	return ($? >> 8, $out, $err);
}

sub status
{
	my ($node) = @_;
	my ($code, $out, $err) = postbox($node, 'status', '--json');
	is($code, 0, 'postbox status answers') or diag($err);
	return $code == 0 ? JSON::PP::decode_json($out) : {};
}

sub finding
{
	my ($node, $check) = @_;
	return $node->safe_psql('postgres', "SELECT status || ': ' || concat_ws('; ', detail, remedy) FROM postbox.doctor() f WHERE f.check = '$check'");
}

my $no_report = 'this server is a standby, and has no report of a puller; run SELECT * FROM postbox.doctor() on the primary';
my $puller = start_puller($primary, 'postgres', $emulator);
my $report = q{SELECT applied = 10 AND stream = 'connected' FROM postbox.subscription_status};

subtest 'a standby shows the reports of pullers, and doctor() what they say' => sub {
	wait_until($primary, 'postgres', $report, 'the puller has applied the events');
	$primary->wait_for_catchup($standby);
	wait_until($standby, 'postgres', $report, 'the standby knows it');
	is(finding($standby, 'subscriptions'), 'ok: ', 'nothing is wrong with the subscription');
	stop_puller($puller);
	$primary->wait_for_catchup($standby);
	wait_until($standby, 'postgres', 'SELECT count(*) = 0 FROM postbox.subscription_status', 'it knows that the puller has left');
	wait_until($primary, 'postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%'}, 'and its sessions have ended');
	like(finding($primary, 'subscriptions'), qr/^error: no puller reports on it; start postbox pull/, 'and so does doctor() on the primary');
	is(finding($standby, 'subscriptions'), "warning: $no_report", 'which knows of no report on the standby');
};

subtest 'a puller that cannot report is unknown to a standby, which says no more' => sub {
	$primary->safe_psql('postgres', 'CREATE ROLE reader LOGIN');
	$puller = start_puller($primary, 'postgres', $emulator, dsn => $primary->connstr('postgres') . ' user=reader');
	wait_until($primary, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name LIKE 'postbox pull %'}, 'the puller is there');
	$primary->wait_for_catchup($standby);
	like(finding($primary, 'subscriptions'), qr/^error: no puller reports on it; a session of role reader /, 'the primary knows its session');
	is(finding($standby, 'subscriptions'), "warning: $no_report", 'the standby does not, and tells nobody to drop the subscription');
	my (undef, $out) = postbox($standby, 'status');
	like($out, qr/^follower +no report /m, 'nor does postbox status say that it has no puller');
	stop_puller($puller);
};

subtest 'a process that does not answer is one of the primary' => sub {
	$primary->safe_psql('postgres', q{INSERT INTO postbox.subscription_status
			(subscription, puller, started_at, appliers, applied, duplicates, stale, out_of_order, dead_letters, failures, stream, unanswered_since, unanswered_pid)
		SELECT name, 'test', now(), 1, 0, 0, 0, 0, 0, 0, 'connected', now() - interval '25 s', 4711 FROM postbox.subscription});
	$primary->wait_for_catchup($standby);
	like(finding($primary, 'subscriptions'), qr/pg_terminate_backend\(4711\)/, 'doctor() on the primary says how it is ended');
	like(finding($standby, 'subscriptions'), qr/^warning: process 4711 of the primary has not answered since .*; run SELECT \* FROM postbox.doctor\(\) on the primary$/, 'on the standby it ends none of that number');
	my (undef, $out) = postbox($standby, 'status');
	like($out, qr/no answer from process 4711 of the primary/, 'postbox status says whose it is, too');
	$primary->safe_psql('postgres', 'DELETE FROM postbox.subscription_status');
};

subtest 'a report waits for no standby' => sub {
	$primary->append_conf('postgresql.conf', "synchronous_standby_names = 'none_there'");
	$primary->reload;
	$puller = start_puller($primary, 'postgres', $emulator);
	wait_until($primary, 'postgres', q{SELECT count(*) = 1 FROM postbox.subscription_status WHERE stream = 'connected'}, 'the report is there');
	stop_puller($puller);
	is($primary->safe_psql('postgres', 'SELECT count(*) FROM postbox.subscription_status'), '0', 'and is gone when the puller has left');
	set_configuration($primary, 'synchronous_standby_names', undef);
	$primary->reload;
};

subtest 'every view and doctor() answer on a standby' => sub {
	for my $view (split /\n/, $standby->safe_psql('postgres', q{SELECT c.oid::regclass FROM pg_class c
		WHERE c.relnamespace = 'postbox'::regnamespace AND c.relkind IN ('r', 'v') ORDER BY 1}))
	{
		my ($code, undef, $error) = $standby->psql('postgres', "SELECT count(*) FROM (SELECT * FROM $view) v");
		is($code, 0, "$view can be read") or diag($error);
	}
	is($standby->safe_psql('postgres', q{SELECT string_agg(f.check || ': ' || f.detail, '; ') FROM postbox.doctor() f WHERE f.detail ~ '^not (checked|looked at)'}),
		'', 'each check of doctor() has been made');
	like(finding($standby, 'standby'), qr/^ok: this server is a standby: .* as they were on the primary at 20.* is not shown$/, 'it says what a standby does not know');
	is(finding($primary, 'standby'), '', 'which is of no interest on a primary');
	is($standby->safe_psql('postgres', 'SELECT state FROM postbox.publication_status'), 'unserved', 'the publication is unserved');
	is($standby->safe_psql('postgres', 'SELECT last_error FROM postbox.publication_status'), 'no worker publishes it: this server is a standby, and its primary publishes', 'and why');
};

subtest 'status and doctor answer on a standby, and say that it is one' => sub {
	my $json = status($standby);
	ok($json->{standby}, 'the JSON says so');
	like($json->{known_until}, qr/^20\d\d-/, 'and of when it is');
	is($json->{publications}[0]{pending}, 0, 'and what the standby knows of publications');
	is(scalar @{ $json->{subscriptions} }, 1, 'and of subscriptions');
	my ($code, $out, $err) = postbox($standby, 'status');
	is($code, 0, 'postbox status answers in text') or diag($err);
	like($out, qr/^standby: shows what its primary had committed at 20\S+; what only the workers of the primary know is missing$/m, 'and says so');
	($code, $out, $err) = postbox($standby, 'doctor', '--offline');
	like($out, qr/this server is a standby/, 'postbox doctor answers') or diag($err);
	unlike($out, qr/has failed|not checked|recovery/, 'without an error of its own');
	ok(!status($primary)->{standby}, 'the primary is none');
};

subtest 'commands that only read open transactions that only read' => sub {
	my $position = log_position($primary);
	postbox($primary, $_) for 'status', 'doctor';
	my @begun = log_since($primary, $position) =~ /client backend postbox (?:status|doctor) LOG: .*: (BEGIN.*)/g;
	cmp_ok(scalar @begun, '>', 2, 'they have opened transactions');
	is(join('', grep { !/ READ ONLY/ } @begun), '', 'and all of them are read-only');
};

subtest 'what writes says on a standby what it cannot do' => sub {
	for my $call (q{postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb)},
		q{postbox.inbox_apply('app.inbox', 'e1', 'video.created', 'video', 'v', 1, '{}')},
		q{postbox.redrive('app.outbox')}, q{postbox.create_outbox('app.more')})
	{
		my (undef, undef, $error) = $standby->psql('postgres', "SELECT $call");
		like($error, qr/ERROR: +cannot execute [\w ()]+ in a read-only transaction/, $call);
	}
};

subtest 'promotion publishes what the old primary has left behind' => sub {
	$primary->append_conf('postgresql.conf', 'postbox.publishers = 0');
	$primary->reload;
	wait_workers($primary, 'postgres', 0);
	emit($primary, 'postgres', 5);
	$primary->wait_for_catchup($standby);
	$primary->stop;
	is($standby->safe_psql('postgres', 'SELECT count(*) FROM app.outbox WHERE published_at IS NULL'), '5', 'events wait in the standby');

	# Nothing is left to replay then, the checkpoint of the shutdown apart.
	wait_until($standby, 'postgres', 'SELECT pg_last_wal_replay_lsn() = pg_last_wal_receive_lsn()', 'it has replayed everything');
	$standby->restart;
	is($standby->safe_psql('postgres', 'SELECT postbox.known_until() IS NULL'), 't', 'until when a standby knows is not known when it has started without its primary');
	like(finding($standby, 'standby'), qr/are shown as they were on the primary at an unknown time \(nothing has been replayed since this server started\); /, 'so says doctor()');
	is(finding($standby, 'subscriptions'), "warning: $no_report", 'and checks the rest');
	my (undef, $out) = postbox($standby, 'status');
	like($out, qr/^standby: shows what its primary had committed at an unknown time; /m, 'and so does postbox status');
	is(status($standby)->{known_until}, undef, 'and the JSON');
	$standby->promote;
	wait_published($standby, 'postgres', 15);
	emit($standby, 'postgres', 5);
	wait_published($standby, 'postgres', 20);
};

$standby->stop;
done_testing();
