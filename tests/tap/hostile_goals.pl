# The table of attempts, third part: what the code of an owner may try in any hook to end the process that runs it, to
# fill its memory, to flood the log, or to pass for another error. Each goal in each place where it meets other code of
# Postbox: the claim and the results of a table outbox, the claim of a log, its parked events, retention, inbox_apply. (The
# hooks are in hostile_worker.pl and hostile_session.pl; time and locks are in hostile_block.pl.)
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Attempts;
use Postbox::Test;
use Test::More;

# Pauses are short.
start_world(settings => { 'postbox.time_scale' => 20 });

# The filter on aggregate types calls the cast of this type.
my $odd = q{ALTER TABLE evil.log ALTER aggregate_type TYPE evil.odd USING 'video'};
my $not_odd = q{ALTER TABLE evil.log ALTER aggregate_type TYPE text USING 'video'};

# hook, set, unset, what makes Postbox come to it, publication that is suspended.
my @hooks = (
	[ 'the claim of a table outbox', q{CREATE TRIGGER hook BEFORE UPDATE ON evil.tab FOR EACH ROW WHEN (new.lock_token IS NOT NULL) EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.tab', \&publish_table, 'tab' ],
	[ 'the results of a table outbox', q{CREATE TRIGGER hook BEFORE UPDATE ON evil.tab FOR EACH ROW WHEN (new.lock_token IS NULL) EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.tab', \&publish_table, undef ],
	[ 'the claim of a log', $odd, $not_odd, \&publish_log, 'log' ],
	[ 'the parking of an event', q{CREATE TRIGGER hook BEFORE INSERT ON evil.log_parked FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.log_parked', \&park_log, undef ],
	[ 'retention', q{CREATE TRIGGER hook BEFORE DELETE ON evil.tab FOR EACH STATEMENT EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.tab', sub { }, undef ],
	[ 'inbox_apply', q{CREATE TRIGGER hook BEFORE INSERT ON evil.inbox FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.inbox', sub { apply_event('set') }, undef ],
);

my $keys = 0;    # a key for each event: what is parked stops its own
sub raise { my ($code) = @_; return "DO \$r\$ BEGIN RAISE EXCEPTION 'made' USING ERRCODE = '$code'; END \$r\$"; }

# goal, statements, what is in the reason that is shown.
my @goals = (
	[ 'an error', [ raise('P0001') ], 'made' ],
	[ 'an error that says that the row is at fault', [ raise('22P02') ], undef ],
	[ 'an error that says that the server shuts down', [ raise('57P01') ], 'made' ],
	[ 'an error that says that the connection is lost', [ raise('08006') ], 'made' ],
	[ 'an error that says that memory is short', [ raise('53200') ], 'made' ],
	[ 'an error that says that there was a deadlock', [ raise('40P01') ], 'made' ],
	[ 'an error that says that the statement was cancelled', [ raise('57014') ], 'made' ],
	[ 'an error that says that data are damaged', [ raise('XX001') ], undef ],
	[ 'a value of a gigabyte and more', [q{SELECT lpad('', 1200000000)}], 'requested length too large' ],
	[ 'recursion without end', ['SELECT evil.deep()'], 'stack depth limit exceeded' ],
	[ 'an error with a line and conversions in it', [ "DO \$r\$ BEGIN RAISE EXCEPTION USING MESSAGE = E'made %s %n\\nLOG:  forged'; END \$r\$" ], 'made' ],
);
for my $hook (@hooks)
{
	my ($place, $set, $unset, $act, $publication) = @$hook;
	attempt("every error in $place",
		place => $place, outcome => 'costs the owner that publication until it is repaired, and nobody anything else',
		act => sub {
			as_mallory($set =~ s/HOOK/$place/r);
			# Where the same is tried again with a growing pause, one of them has to do.
			for my $goal ($publication ? @goals : $goals[2])
			{
				my ($what, $statements, $reason) = @$goal;
				set_goal(@$statements);
				my $position = log_position($node);
				$act->('key-' . ++$keys);
				wait_for(sub { log_since($node, $position) =~ /attempt: \Q$place\E runs as mallory/ }, "the code ran: $what") unless $publication;
				next unless $publication && $reason;
				wait_until($node, 'postgres', "SELECT last_error LIKE '%$reason%' FROM postbox.publication_state WHERE publication = '$publication'", "$what: the reason is shown")
				  or diag(column($publication, 'last_error'));
				# What is suspended is tried at once.
				as_superuser("UPDATE postbox.publication_state SET next_retry_at = NULL, attempts = 0, last_error = NULL WHERE publication = '$publication'");
			}
			as_mallory($unset);
			set_goal();
		});
	as_superuser('UPDATE postbox.publication_state SET next_retry_at = NULL, attempts = 0, last_error = NULL WHERE attempts > 0');
	as_mallory(q{SELECT postbox.redrive('evil.tab'), postbox.redrive('evil.log')});
	wait_empty([ 'tab', 'log' ], 'both go on');
}

# In the worker's process, an owner's error must stay an error.
for my $hook (@hooks[ 0, 2, 4 ])
{
	my ($place, $set, $unset, $act) = @$hook;
	attempt("exit_on_error in $place",
		place => $place, outcome => 'does not end the worker',
		act => sub {
			as_mallory($set =~ s/HOOK/$place/r);
			set_goal(q{SELECT set_config('exit_on_error', 'on', true)}, raise('P0001'));
			$act->();
		},
		unset => $unset, after => sub { set_goal() });
}

# Nor may it end the session of whoever looks at the status.
attempt('exit_on_error in a cast that publication_status meets',
	place => $hooks[2][0], outcome => 'does not end the session',
	act => sub {
		as_mallory($odd);
		set_goal(q{SELECT set_config('exit_on_error', 'on', true)}, raise('P0001'));
		publish_log('status');
		as_victim('SELECT count(*) FROM postbox.publication_status');
	},
	unset => $not_odd, after => sub { set_goal() });

# A step that takes its time, and pauses that are those of every server.
set_configuration($node, 'postbox.time_scale', 100);
$node->reload;

attempt('a thousand warnings in each claim',
	place => $hooks[0][0], outcome => 'are in the log as often as the claim is tried, and that is seldom',
	act => sub {
		as_mallory($hooks[0][1] =~ s/HOOK/$hooks[0][0]/r);
		set_goal(q{DO $r$ BEGIN FOR i IN 1..1000 LOOP RAISE WARNING 'flood'; END LOOP; RAISE EXCEPTION 'made'; END $r$});
		publish_table();
		wait_until($node, 'postgres', q{SELECT attempts > 1 FROM postbox.publication_state WHERE publication = 'tab'}, 'it is tried again');
		my $lines = () = log_since($node, $row) =~ /WARNING:  flood/g;
		cmp_ok($lines, '<=', 5000, 'the claim is not tried without a pause');
	},
	unset => $hooks[0][2], after => sub { set_goal(); });

# A message of 50 MB would go into the log, into postbox.publication_state and into the memory of everyone who looks at the status, with
# each attempt. (It is a new one each time, so that it is not the same message again.)
attempt('an error with a long message in the claim of a table outbox',
	place => $hooks[0][0], outcome => 'is cut',
	act => sub {
		as_mallory($hooks[0][1] =~ s/HOOK/$hooks[0][0]/r);
		set_goal(q{DO $r$ BEGIN RAISE EXCEPTION '%', clock_timestamp() || repeat('ä', 25000000); END $r$});
		publish_table();
		wait_until($node, 'postgres', q{SELECT last_error LIKE '%ääää%' FROM postbox.publication_state WHERE publication = 'tab'}, 'the reason is shown');
		wait_until($node, 'postgres', q{SELECT attempts > 1 FROM postbox.publication_state WHERE publication = 'tab'}, 'and it is tried again');
		cmp_ok($node->safe_psql('postgres', q{SELECT max(octet_length(last_error)) FROM postbox.publication_state}), '<', 10_000, 'it is short where it is stored');
		cmp_ok(log_position($node) - $row, '<', 1_000_000, 'and in the log');
	},
	unset => $hooks[0][2], after => sub { set_goal(); });

stop_world();
done_testing();
