# `postbox pull` as a process of a test: { run, output }. Its log goes to `output`.
package Postbox::Puller;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use Postbox::Test;
use Test::More;
use Time::HiRes qw(time);

our @EXPORT = qw(start_puller puller_says stop_puller stop_puller_within end_puller_within);

# Without an emulator, the settings of the server say where Pub/Sub is. Options: dsn, if not that of the database; grace_period, in
# seconds; environment => { name => value }; failpoints => [ 'name=action' ], see worker/puller/failpoint.h; alone => 1, if the report of an
# earlier one, which could not reach the database at its end, is not to be taken for its own. What it has to report it reports ten
# times a second, unless report_interval is one of them.
sub start_puller
{
	my ($node, $database, $emulator, %options) = @_;
	my $puller = { output => '' };
	$node->safe_psql($database, 'DELETE FROM postbox.subscription_status') if $options{alone};
	# The name that it gives itself shows in pg_stat_activity.
	delete local $ENV{PGAPPNAME};
	my %environment = (POSTBOX_FAILPOINT => join(',', @{ $options{failpoints} // [] }, 'report_interval=100'), %{ $options{environment} // {} });
	local @ENV{ keys %environment } = values %environment;
	my @peer = $emulator ? ('--endpoint', $emulator->{endpoint}, '--project', 'postbox-dev') : ();
	my @grace = defined $options{grace_period} ? ('--grace-period', $options{grace_period}) : ();
	$puller->{run} = IPC::Run::start(
		[ $ENV{POSTBOX}, 'pull', '--dsn', $options{dsn} // $node->connstr($database), @peer, @grace ],
		'<', \undef, '>&', \$puller->{output});
	return $puller;
}

# Waits until its log matches.
sub puller_says
{
	my ($puller, $pattern, $what) = @_;
	return wait_for(sub { $puller->{run}->pump_nb; return $puller->{output} =~ $pattern }, $what) || diag($puller->{output});
}

sub stop_puller
{
	my ($puller) = @_;
	$puller->{run}->signal('TERM');
	return end_puller($puller);
}

# Of one that has been told to end.
sub end_puller
{
	my ($puller) = @_;
	$puller->{run}->finish;
	is($puller->{run}->full_result(0), 0, 'the puller leaves cleanly') or diag($puller->{output});
	return;
}

# Takes the time from SIGTERM until the process is gone.
sub stop_puller_within
{
	my ($puller, $seconds, $what) = @_;
	my $begin = time;
	$puller->{run}->signal('TERM');
	return end_puller_within($puller, $begin, $seconds, $what);
}

# Of one that has had SIGTERM at that time.
sub end_puller_within
{
	my ($puller, $begin, $seconds, $what) = @_;
	end_puller($puller);
	my $took = time - $begin;
	cmp_ok($took, '<', $seconds, $what) or diag($puller->{output});
	note(sprintf('%s: %.1f s', $what, $took));
	return;
}

1;
