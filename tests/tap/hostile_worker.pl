# The table of attempts, first part: triggers that the publisher worker calls, which belong to the owner of an outbox or an
# inbox. Each row is a hook, how it is set, what makes the worker come to it, and what becomes of it. What the code tries
# there is in Postbox/Attempts.pm. Other places are in hostile_places.pl.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Attempts;
use Postbox::Test;
use Test::More;

start_world();

# A trigger that calls the hook: (name, SQL between CREATE and EXECUTE, table).
sub trigger
{
	my ($hook, $when, $table, $kind) = @_;
	return (set => 'CREATE ' . ($kind // '') . " TRIGGER hook $when EXECUTE FUNCTION evil.row_hook('$hook')", unset => "DROP TRIGGER hook ON $table");
}

my $as_owner = 'runs as the owner';
my $suspended = 'is refused, and suspends its own publication';

# Rows of triggers: hook, when and where, what makes the worker come to it, kind.
my @triggers = (
	[ 'a BEFORE row trigger of a table outbox', 'BEFORE UPDATE ON evil.tab FOR EACH ROW', 'evil.tab', \&publish_table ],
	[ 'an AFTER row trigger of a table outbox', 'AFTER UPDATE ON evil.tab FOR EACH ROW', 'evil.tab', \&publish_table ],
	[ 'a BEFORE statement trigger of a table outbox', 'BEFORE UPDATE ON evil.tab FOR EACH STATEMENT', 'evil.tab', \&publish_table ],
	[ 'an AFTER statement trigger of a table outbox', 'AFTER UPDATE ON evil.tab REFERENCING OLD TABLE AS o NEW TABLE AS n FOR EACH STATEMENT', 'evil.tab', \&publish_table ],
	[ 'a condition of a trigger of a table outbox', q{BEFORE UPDATE ON evil.tab FOR EACH ROW WHEN (evil.good(new.aggregate_id, 'a condition of a trigger of a table outbox'))}, 'evil.tab', \&publish_table ],
	[ 'an immediate constraint trigger of a table outbox', 'AFTER UPDATE ON evil.tab DEFERRABLE INITIALLY IMMEDIATE FOR EACH ROW', 'evil.tab', \&publish_table, 'CONSTRAINT' ],
	[ 'a BEFORE row trigger of parked events', 'BEFORE INSERT OR UPDATE OR DELETE ON evil.log_parked FOR EACH ROW', 'evil.log_parked', \&park_log ],
	[ 'an AFTER row trigger of parked events', 'AFTER INSERT ON evil.log_parked FOR EACH ROW', 'evil.log_parked', \&park_log ],
	[ 'an AFTER trigger of parked events that are deleted', 'AFTER DELETE ON evil.log_parked FOR EACH ROW', 'evil.log_parked', \&park_log ],
	[ 'a statement trigger of parked events', 'BEFORE INSERT ON evil.log_parked FOR EACH STATEMENT', 'evil.log_parked', \&park_log ],
	[ 'a trigger of an outbox that is purged', 'BEFORE DELETE ON evil.tab FOR EACH STATEMENT', 'evil.tab', sub { } ],
	[ 'a trigger of an inbox that is purged', 'BEFORE DELETE ON evil.inbox FOR EACH STATEMENT', 'evil.inbox', sub { } ],
	[ 'a trigger of tombstones that are purged', 'BEFORE DELETE ON evil.inbox_tombstone FOR EACH STATEMENT', 'evil.inbox_tombstone', sub { } ],
);
for my $trigger (@triggers)
{
	my ($hook, $when, $table, $act, $kind) = @$trigger;
	attempt($hook, trigger($hook, $when, $table, $kind), act => $act, outcome => $as_owner, flows => [ 'tab', 'log' ]);
}

# What is there to run at COMMIT would run as the worker: it has given the owner's role back.
for my $deferred (
	[ 'a deferred constraint trigger of a table outbox', 'AFTER UPDATE ON evil.tab', 'evil.tab', \&publish_table, 'tab' ],
	[ 'a deferred constraint trigger of parked events', 'AFTER INSERT ON evil.log_parked', 'evil.log_parked', \&park_log, 'log' ])
{
	my ($hook, $when, $table, $act, $publication) = @$deferred;
	attempt($hook, trigger($hook, "$when DEFERRABLE INITIALLY DEFERRED FOR EACH ROW", $table, 'CONSTRAINT'), act => $act, outcome => $suspended,
		never => sub { wait_for(sub { log_since($node, $row) =~ /publication "$publication" is suspended: cannot fire deferred trigger within security-restricted operation/ }, 'the log says why') },
		flows => [ 'tab', 'log' ]);
}
attempt('a constraint trigger that SET CONSTRAINTS defers',
	set => q{CREATE TRIGGER first BEFORE UPDATE ON evil.tab FOR EACH STATEMENT EXECUTE FUNCTION evil.row_hook('a trigger that defers');
		CREATE CONSTRAINT TRIGGER second AFTER UPDATE ON evil.tab DEFERRABLE FOR EACH ROW EXECUTE FUNCTION evil.row_hook('a constraint trigger that SET CONSTRAINTS defers')},
	act => \&publish_table, place => 'a trigger that defers', outcome => 'is refused',
	unset => 'DROP TRIGGER first ON evil.tab; DROP TRIGGER second ON evil.tab',
	flows => ['tab']);

stop_world();
done_testing();
