# The broker comes back at another address behind its name, as a container does that is started again. What connects looks the name up
# again, so publishing and applying go on soon. The name may also be missing for a while.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

my $name = 'broker.postbox.test';
my $subscription = 'catalog.video.events.test-follower';
my $directory = PostgreSQL::Test::Utils::tempdir();

sub write_file
{
	my ($file, $text) = @_;
	open(my $out, '>', "$directory/$file.new") or BAIL_OUT("$file: $!");
	print $out $text;
	close($out);
	rename("$directory/$file.new", "$directory/$file") or BAIL_OUT("$file: $!");
	return;
}
# For IPv6, too, or a server of names would be asked for that.
sub set_address { my ($address) = @_; write_file('hosts', join '', map { "$_ $name\n" } $address ? ($address, "::ffff:$address") : ()); return; }

# No server of names answers.
write_file('resolv.conf', "nameserver 127.0.0.1:1\noptions timeout:1 attempts:1\n");
# Every address of 127.0.0.0/8 is this machine.
sub start_broker { my ($host, $port) = @_; return start_emulator('--host', $host, '--port', $port, '--subscription', "$subscription=catalog.video.events,ordered"); }

my $broker = start_broker('127.0.0.2', 0);
my ($port) = $broker->{address} =~ /:(\d+)$/;
set_address('127.0.0.2');
local $ENV{POSTBOX_OWN_HOSTS} = $directory;
local $ENV{LD_PRELOAD} = join ' ', grep { defined } $ENV{LD_PRELOAD}, "$ENV{POSTBOX_BUILD_DIR}/tests/own_hosts.so";
my $node = new_node('main', settings => { 'postbox.poll_interval' => '50ms', 'postbox.endpoint' => "http://$name:$port" });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', qq{
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_subscription('follower', 'app.inbox', '$subscription');
});
my $puller = start_puller($node, 'postgres');
my $emitted = 0;

sub emit_more { emit($node, 'postgres', 5); $emitted += 5; return; }
sub published { return $node->safe_psql('postgres', 'SELECT pending FROM postbox.publication_status') eq '0'; }
sub applied { return $node->safe_psql('postgres', 'SELECT count(*) FROM app.inbox') eq $emitted; }

# How soon everything is published and applied, in seconds.
sub goes_on
{
	my ($most, $what) = @_;
	my $begin = time;
	my $published;
	wait_for(sub { $published //= time if published(); return $published && applied(); }, "$what: everything is published and applied") or diag($puller->{output});
	my $applied = time;
	$published //= $applied;
	note(sprintf('%s: published after %.1f s, applied after %.1f s', $what, $published - $begin, $applied - $begin));
	cmp_ok($applied - $begin, '<', $most, "$what: soon");
	return;
}

emit_more();
goes_on($PostgreSQL::Test::Utils::timeout_default, 'at the first address');

stop_emulator($broker);
emit_more();
$broker = start_broker('127.0.0.3', $port);
set_address('127.0.0.3');
goes_on(10, 'at another address');

# The resolver of gRPC waits longer and longer.
stop_emulator($broker);
set_address('');
emit_more();
select(undef, undef, undef, 20);
$broker = start_broker('127.0.0.4', $port);
set_address('127.0.0.4');
goes_on(15, 'after the name was missing');

stop_puller($puller);
$node->stop;
done_testing();
