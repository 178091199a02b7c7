# A subscription that cannot be pulled has a row in postbox.subscription_status with the reason, and `postbox pull` goes on until that is
# over. Only what nobody pulls is called so.
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

sub doctor_says
{
	my ($pattern, $what) = @_;
	my $said = $node->safe_psql('postgres', q{SELECT status, subject, detail, remedy FROM postbox.doctor() WHERE "check" = 'subscriptions'});
	like($said, $pattern, $what);
	unlike($said, qr/nobody pulls/, 'and not that nobody pulls it') unless "$pattern" =~ /nobody pulls/;
	return;
}

# What `postbox status` shows as its state.
sub state_shown
{
	local $ENV{PGAPPNAME};
	my ($line) = grep { /^follower/ } split /\n/, `$ENV{POSTBOX} status --dsn '@{[ $node->connstr('postgres') ]}'`;
	return (split /\s{2,}/, $line // '')[1];
}

doctor_says(qr/^error\|follower\|nobody pulls it\|start postbox pull, or run SELECT postbox.drop_subscription\('follower'\)$/, 'nobody pulls it');
is(state_shown(), 'nobody pulls', 'so says postbox status');

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

subtest 'the role may not apply' => sub {
	my $puller = start_puller($node, 'postgres', $emulator, @as_puller);
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE application_name = 'postbox pull follower'}, 'it is there');
	doctor_says(qr/^error\|follower\|a postbox pull of role puller \(process \d+\) may not apply it, nor report on it: the role has no INSERT on app.inbox\|run GRANT INSERT ON app.inbox TO puller$/, 'postbox.doctor() says why');
	is(state_shown(), 'no report', 'postbox status says what is known');
	$node->safe_psql('postgres', 'GRANT INSERT ON app.inbox TO puller');
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM postbox.subscription_status WHERE stream = 'connected'}, 'it reports when it may');
	is(state_shown(), 'connected', 'and is shown');
	stop_puller($puller);
};

subtest 'the row of the subscription is wrong' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.create_subscription('other', 'app.inbox', 'catalog.video.events.test-other');
		UPDATE postbox.subscription SET batch_size = -1 WHERE name = 'other'});
	my $puller = start_puller($node, 'postgres', $emulator);
	wait_until($node, 'postgres', q{SELECT stream = 'failed' AND stream_error ~ 'batch_size must be between' FROM postbox.subscription_status WHERE subscription = 'other'}, 'its row says what is wrong');
	$node->safe_psql('postgres', q{UPDATE postbox.subscription SET enabled = false WHERE name = 'other'});
	$puller->{run}->signal('HUP');
	wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM postbox.subscription_status WHERE subscription = 'other'}, 'no report stays of one that is disabled');
	stop_puller($puller);
};

$node->stop;
done_testing();
