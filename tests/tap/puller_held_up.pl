# A subscription that cannot be pulled has a row in postbox.subscription_status with the reason, and `postbox pull` goes on until that is
# over. Only what has no puller is called so.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $subscription = 'catalog.video.events.test-follower';
my $emulator = start_emulator('--subscription', "$subscription=catalog.video.events,ordered");
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '200ms' });
$node->start;
create_outbox($node, 'postgres');
$node->safe_psql('postgres', "CREATE ROLE puller LOGIN; GRANT USAGE ON SCHEMA app TO puller;
	SELECT postbox.create_inbox('app.inbox'); SELECT postbox.create_subscription('follower', 'app.inbox', '$subscription')");
my @as_puller = (dsn => $node->connstr('postgres') . ' user=puller');

sub doctor { return $node->safe_psql('postgres', q{SELECT status, subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'subscriptions'}); }

sub doctor_says
{
	my ($pattern, $what) = @_;
	my $said = doctor();
	like($said, $pattern, $what);
	unlike($said, qr/no puller/, 'and not that it has no puller') unless "$pattern" =~ /no puller/;
	return;
}

sub connections_said { return $node->safe_psql('postgres', q{SELECT detail, remedy FROM postbox.doctor() WHERE "check" = 'connections' AND status <> 'ok'}); }

# The server may notice a little later than the process has ended.
sub no_session { return wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM pg_stat_activity WHERE application_name LIKE 'postbox pull%' AND usename <> 'mallory'}, $_[0]); }

# What `postbox status` shows as its state.
sub state_shown
{
	local $ENV{PGAPPNAME};
	my ($line) = grep { /^follower/ } split /\n/, `$ENV{POSTBOX} status --dsn '@{[ $node->connstr('postgres') ]}'`;
	return (split /\s{2,}/, $line // '')[1];
}

doctor_says(qr/^error\|follower\|no puller reports on it\|start postbox pull, or run SELECT postbox.drop_subscription\('follower'\)$/, 'no puller reports on it');
is(state_shown(), 'no puller', 'so says postbox status');

subtest 'no credentials can be found' => sub {
	local $emulator->{endpoint} = 'https://127.0.0.1:1';
	# Nobody is there: a metadata server that is late.
	my $puller = start_puller($node, 'postgres', $emulator, environment => { HOME => '/nonexistent', GCE_METADATA_HOST => '127.0.0.1:1', GOOGLE_APPLICATION_CREDENTIALS => '' });
	wait_until($node, 'postgres', q{SELECT stream = 'reconnecting' AND stream_error ~ 'no usable Google credentials' FROM postbox.subscription_status}, 'its row says why') or diag($puller->{output});
	doctor_says(qr/^error\|follower\|its stream is reconnecting: UNAUTHENTICATED: .*no usable Google credentials/, 'postbox.doctor() says why');
	wait_until($node, 'postgres', q{SELECT stream_since < now() - interval '4 s' FROM postbox.subscription_status}, 'it goes on, though it is the only subscription');
	stop_puller_within($puller, 2 + 2, 'SIGTERM is answered at once');
	is($node->safe_psql('postgres', 'SELECT count(*) FROM postbox.subscription_status'), '0', 'and its report is removed');
};

subtest 'a file of credentials that comes later' => sub {
	local $emulator->{endpoint} = 'https://127.0.0.1:1';
	my $file = PostgreSQL::Test::Utils::tempdir() . '/google.json';
	my $puller = start_puller($node, 'postgres', $emulator, environment => { GOOGLE_APPLICATION_CREDENTIALS => $file });
	wait_until($node, 'postgres', qq{SELECT stream_error ~ '$file' FROM postbox.subscription_status}, 'its row names the file');
	open(my $out, '>', $file) or BAIL_OUT("$file: $!");
	print $out '{"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r", "token_uri": "https://127.0.0.1:1/token"}';
	close($out);
	wait_until($node, 'postgres', q{SELECT stream_error ~ '^UNAVAILABLE: no access token' FROM postbox.subscription_status}, 'it is read, and what is wrong next is shown')
	  or diag($node->safe_psql('postgres', 'SELECT stream_error FROM postbox.subscription_status'));
	stop_puller_within($puller, 2 + 2, 'SIGTERM is answered at once');
};

# It names no role: any session may have the name of a puller.
my $granting = qr/grant INSERT on app.inbox to that role if it is meant to run postbox pull; otherwise start postbox pull, or run SELECT postbox.drop_subscription\('follower'\)/;

subtest 'the role may not apply' => sub {
	my $puller = start_puller($node, 'postgres', $emulator, @as_puller);
	# It opens its session again and again.
	wait_for(sub { doctor() =~ /^error\|follower\|no puller reports on it; a session of role puller with application_name postbox pull \(process \d+\) may neither apply its events nor report on it: the role has no INSERT on app.inbox\|$granting$/ },
		'postbox.doctor() says why, and that anybody may call a session so') or diag(doctor());
	is(state_shown(), 'no puller', 'so says postbox status');
	$node->safe_psql('postgres', 'GRANT INSERT ON app.inbox TO puller');
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.subscription_status WHERE stream = 'connected'}, 'it reports when it may');
	is(state_shown(), 'connected', 'and is shown');
	stop_puller($puller);
};

subtest 'a session that only has the name of a puller' => sub {
	no_session('no puller is there');
	$node->safe_psql('postgres', 'CREATE ROLE mallory LOGIN CONNECTION LIMIT 1; GRANT USAGE ON SCHEMA app TO mallory');
	my $session = $node->background_psql('postgres', extra_params => [ '-U', 'mallory' ]);
	$session->query_safe(q{SET application_name = 'postbox pull follower'});
	doctor_says(qr/^error\|follower\|no puller reports on it; a session of role mallory with application_name postbox pull .*\|$granting$/, 'does not hide that it has no puller');
	is(state_shown(), 'no puller', 'nor does postbox status');
	$node->safe_psql('postgres', 'ALTER ROLE mallory CONNECTION LIMIT 0');
	is(connections_said(), '', 'and without INSERT its connections do not count');

	my $applier = $node->background_psql('postgres', extra_params => [ '-U', 'puller' ]);
	$applier->query_safe(q{SET application_name = 'postbox pull'});
	doctor_says(qr/^error\|follower\|no puller reports on it, although a session of role puller with application_name postbox pull is connected .*; a session of role mallory .* has no INSERT on app.inbox\|/,
		'it does not hide a session that may apply, either');
	is(state_shown(), 'no report', 'nor does postbox status');
	$applier->quit;
	no_session('that is gone');

	$node->safe_psql('postgres', 'GRANT INSERT ON app.inbox TO mallory; ALTER ROLE mallory CONNECTION LIMIT 1');
	doctor_says(qr/^error\|follower\|no puller reports on it, although a session of role mallory with application_name postbox pull is connected .*\|.*if that session is not a puller, start postbox pull$/, 'with INSERT it may be one');
	is(connections_said(), 'role mallory may have 1 connections, but its postbox pull needs 2: one for its configuration, and one for each of 1 subscriptions|'
		. 'if this role runs postbox pull, run ALTER ROLE mallory CONNECTION LIMIT 5, which is enough for all appliers', 'and its connections count, if it is');
	$session->quit;
};

subtest 'the row of the subscription is wrong' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.create_subscription('other', 'app.inbox', 'catalog.video.events.test-other');
		UPDATE postbox.subscription SET batch_size = -1 WHERE name = 'other'});
	my $puller = start_puller($node, 'postgres', $emulator);
	wait_until($node, 'postgres', q{SELECT stream = 'failed' AND stream_error ~ 'batch_size must be between' FROM postbox.subscription_status WHERE subscription = 'other'}, 'its row says what is wrong');
	$node->safe_psql('postgres', q{SELECT postbox.pause_subscription('other', 'its row is wrong')});
	$puller->{run}->signal('HUP');
	wait_until($node, 'postgres', q{SELECT stream = 'paused' AND stream_error = 'its row is wrong' FROM postbox.subscription_status WHERE subscription = 'other'}, 'a pause takes the place of the fault');
	stop_puller($puller);
};

$node->stop;
done_testing();
