# The table of attempts, fourth part: the code of an owner that takes the worker's time, for ever or by waiting for a lock, in
# every place where the worker calls it, and memory. Others' events flow meanwhile, the status says why hers do not, and hers
# go on when she lets them.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Attempts;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

# A step may take a fifth of a second.
start_world(settings => { 'postbox.time_scale' => 20 });

# The filter on aggregate types calls the cast of this type.
my $odd = q{ALTER TABLE evil.log ALTER aggregate_type TYPE evil.odd USING 'video'};
my $not_odd = q{ALTER TABLE evil.log ALTER aggregate_type TYPE text USING 'video'};

# A session of mallory's that keeps what it has locked.
sub hold
{
	my (@sql) = @_;
	my $held = IPC::Run::start([ $node->installed_command('psql'), '-XAtq', '-d', $node->connstr('postgres') . ' user=mallory application_name=mallory', '-c', join('; ', 'BEGIN', @sql, 'SELECT pg_sleep(100000)') ]);
	wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE usename = 'mallory' AND wait_event = 'PgSleep'}, 'the lock is held');
	return $held;
}

sub let_go
{
	my ($held) = @_;
	as_superuser(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'mallory'});
	$held->finish;
	return;
}

# In case the worker is in the code and nothing has ended that.
sub end_all
{
	my ($unset, $new_worker) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while (time < $end)
	{
		as_superuser(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type = 'postbox publisher'});
		my ($status) = $node->psql('postgres', "SET lock_timeout = '500ms'; $unset", extra_params => [ '-U', 'mallory' ], on_error_stop => 1);
		last if $status == 0;
	}
	set_goal();
	# A new one neither leaves out what the retention of this one avoids for ten minutes, nor lets the outbox rest nine times as long as it took.
	as_superuser(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'postbox publisher'}) if $new_worker;
	# What is suspended is tried at once.
	as_superuser(q{
		UPDATE postbox.publication_state SET next_retry_at = NULL, attempts = 0, last_error = NULL WHERE attempts > 0;
		SELECT postbox.alter_publication(name, max_attempts => max_attempts) FROM postbox.publication});
	as_mallory(q{SELECT postbox.redrive('evil.tab'), postbox.redrive('evil.log'), postbox.wake_publishers()});
	return;
}

# Hook, how it is set and taken away, what makes the worker come to it, the publication that is suspended.
my @hooks = (
	[ 'the claim of a table outbox', q{CREATE TRIGGER hook BEFORE UPDATE ON evil.tab FOR EACH ROW WHEN (new.lock_token IS NOT NULL) EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.tab', \&publish_table, 'tab' ],
	[ 'the results of a table outbox', q{CREATE TRIGGER hook BEFORE UPDATE ON evil.tab FOR EACH ROW WHEN (new.lock_token IS NULL) EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.tab', \&publish_table, undef ],
	[ 'the claim of a log', $odd, $not_odd, \&publish_log, 'log' ],
	[ 'the parking of an event', q{CREATE TRIGGER hook BEFORE INSERT ON evil.log_parked FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.log_parked', \&park_log, undef ],
	[ 'retention', q{CREATE TRIGGER hook BEFORE DELETE ON evil.tab FOR EACH STATEMENT EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.tab', sub { }, undef ],
);

# Goal, the statement, whether the process of the worker may end.
my @goals = (
	[ 'sleeps for ever', 'SELECT pg_sleep(1000000)' ],
	[ 'sleeps for ever and does not let itself be cancelled', q{DO $r$ BEGIN LOOP BEGIN PERFORM pg_sleep(1000000); EXCEPTION WHEN query_canceled THEN NULL; END; END LOOP; END $r$}, 1 ],
	[ 'computes for ever', 'DO $r$ BEGIN LOOP NULL; END LOOP; END $r$' ],
);
for my $hook (@hooks)
{
	my ($place, $set, $unset, $act, $publication) = @$hook;
	for my $goal (@goals)
	{
		my ($what, $statement, $may_end) = @$goal;
		attempt("code that $what in $place",
			place => $place, may_end => $may_end, outcome => "others' events flow",
			act => sub {
				as_mallory($set =~ s/HOOK/$place/r);
				set_goal($statement);
				$act->();
			},
			after => sub {
				wait_until($node, 'postgres', "SELECT last_error IS NOT NULL FROM postbox.publication_state WHERE publication = '$publication'", 'the status says why hers do not') if $publication;
				# After a rest hers go on in the same worker, too: in the first place.
				end_all($unset, $place ne $hooks[0][0]);
			},
			flows => [ 'tab', 'log' ]);
	}
}

attempt('a cast that sleeps for ever when somebody looks at publication_status',
	place => $hooks[2][0], may_end => 1, outcome => 'does not hide what others have',
	act => sub {
		as_mallory($odd);
		set_goal('SELECT pg_sleep(1000000)');
		publish_log();
		wait_until($node, 'postgres', q{SELECT state IS DISTINCT FROM 'unserved' FROM postbox.publishing_state('alice')}, 'a worker has read the publications');
		my (undef, $state) = $node->psql('postgres', q{SET application_name = 'victim'; SET statement_timeout = '30s'; SELECT state || coalesce(': ' || last_error, '') FROM postbox.publication_status WHERE publication = 'alice'});
		# Hers are suspended for a moment where this machine was too busy for a step of the worker.
		like($state, qr/^active$|took longer than/, 'the state of the others is shown');
	},
	after => sub { end_all($not_odd, 1) }, flows => ['log']);

# A lock that a session of hers holds.
for my $lock (
	[ 'an outbox of kind table that is locked', 'LOCK TABLE evil.tab IN ACCESS EXCLUSIVE MODE', \&publish_table, 'tab', 'locked' ],
	[ 'an outbox of kind log that is locked', 'LOCK TABLE evil.log IN ACCESS EXCLUSIVE MODE', \&publish_log, 'log', 'locked' ],
	[ 'a table outbox that is locked against writing', 'LOCK TABLE evil.tab IN SHARE MODE', \&publish_table, 'tab', 'locked' ],
	[ 'parked events that are locked', 'LOCK TABLE evil.log_parked IN ACCESS EXCLUSIVE MODE', \&park_log, undef ],
	[ 'an inbox that is locked', 'LOCK TABLE evil.inbox IN ACCESS EXCLUSIVE MODE', sub { }, undef ])
{
	my ($what, $statement, $act, $publication, $reason) = @$lock;
	my $held;
	attempt($what,
		never => 1, outcome => "others' events flow",
		act => sub { $act->(); $held = hold($statement); as_superuser('SELECT postbox.wake_publishers()'); },
		after => sub {
			wait_until($node, 'postgres', "SELECT last_error LIKE '%$reason%' FROM postbox.publication_state WHERE publication = '$publication'", 'the status says why hers do not') if $publication;
			let_go($held);
			end_all('SELECT 1');
		},
		flows => [ 'tab', 'log' ]);
}
my $held;
attempt('code that waits for an advisory lock',
	place => $hooks[0][0], outcome => "others' events flow",
	act => sub {
		as_mallory($hooks[0][1] =~ s/HOOK/$hooks[0][0]/r);
		set_goal('SELECT pg_advisory_lock(42)');
		$held = hold('SELECT pg_advisory_lock(42)');
		publish_table();
	},
	after => sub {
		let_go($held);
		end_all($hooks[0][2]);
	},
	flows => ['tab']);

# Enough time for so much memory, also on a slow machine.
set_configuration($node, 'postbox.time_scale', 1000);
$node->reload;
attempt('code that fills memory',
	place => $hooks[0][0], outcome => 'is stopped, with the reason',
	act => sub {
		as_mallory($hooks[0][1] =~ s/HOOK/$hooks[0][0]/r);
		# A megabyte at a time.
		set_goal(q{DO $r$ BEGIN PERFORM array_agg(repeat(repeat('x', 1000), 1000)) FROM generate_series(1, 2500); LOOP NULL; END LOOP; END $r$});
		publish_table();
	},
	after => sub {
		wait_until($node, 'postgres', q{SELECT last_error LIKE '%took more than % of memory%' FROM postbox.publication_state WHERE publication = 'tab'}, 'the status says why')
			or diag(column('tab', 'publication_status::text'));
		end_all($hooks[0][2], 1);
	},
	flows => ['tab']);

stop_world();
done_testing();
