# A default statement_timeout of 1 ms, and a network that brings a transaction in two pieces: the time is over before the
# transaction has set its own. It is begun again, by the puller and by commands.
use strict;
use warnings;

use FindBin;
use IPC::Run ();
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Relay;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
follow($node, 'postgres', 'catalog.video.events.test-follower', 'work');
$node->safe_psql('postgres', q{CREATE ROLE hasty LOGIN SUPERUSER; ALTER ROLE hasty SET statement_timeout = '1ms'});
$node->safe_psql('postgres', q{SELECT count(postbox.outbox_emit('work', 'k' || n, 'work', '{}'::jsonb)) FROM generate_series(1, 20) n});

my $relay = start_relay($node);
relay_mode($relay, 'stammer 3');
my $dsn = "host=127.0.0.1 port=$relay->{port} dbname=postgres user=hasty";
my $puller = start_puller($node, 'postgres', $emulator, dsn => $dsn);
wait_until($node, 'postgres', q{SELECT applied = 20 FROM postbox.subscription_status WHERE stream = 'connected'}, 'the puller has started and applies')
  or diag($puller->{output});
stop_puller($puller);
my $answer;
ok(IPC::Run::run([ $ENV{POSTBOX}, 'status', '--dsn', $dsn ], '<', \undef, '>&', \$answer), 'a command answers, too') or diag($answer);
my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
cmp_ok(scalar(() = $log =~ /canceling statement due to statement timeout/g), '>=', 6, 'though the time was over again and again');
$node->stop;
done_testing();
