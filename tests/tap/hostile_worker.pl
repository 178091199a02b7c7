# The table of attempts, first part: triggers and other places in which the publisher worker calls code of the owner of an outbox or
# an inbox, and what stands in the place of a table. Each row is a hook, how it is set, what makes the worker come to it, and what
# becomes of it. What the code tries there is in Postbox/Attempts.pm. A new place in which the worker calls a user's code gets a row
# here.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Attempts;
use Postbox::Test;
use Test::More;

# What fails is tried again sooner, and what was locked is looked at again.
start_world(settings => { 'postbox.poll_interval' => '50ms', 'postbox.time_scale' => 40 });
my $as_owner = 'runs as the owner';
my $suspended = 'is refused, and suspends its own publication';

# A trigger that calls the hook: (name, SQL between CREATE and EXECUTE, table).
sub trigger
{
	my ($hook, $when, $table, $kind) = @_;
	return (set => 'CREATE ' . ($kind // '') . " TRIGGER hook $when EXECUTE FUNCTION evil.row_hook('$hook')", unset => "DROP TRIGGER hook ON $table");
}

# Rows of triggers: hook, when and where, what makes the worker come to it, kind.
# Fills a generation of the inbox that is older than the retention.
sub past_retention
{
	my ($fill) = @_;
	return as_superuser("$fill; UPDATE postbox.inbox SET generation = 0, generation_since = '2020-01-01', previous_since = '2020-01-01' WHERE relation = 'evil.inbox'::regclass");
}

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
	[ 'a trigger of an inbox that is purged', 'BEFORE TRUNCATE ON evil.inbox_g1 FOR EACH STATEMENT', 'evil.inbox_g1',
		sub { past_retention(q{INSERT INTO evil.inbox (event_id, outcome, generation) VALUES (gen_random_uuid(), 'applied', 1)}) } ],
	[ 'a trigger of tombstones that are purged', 'BEFORE TRUNCATE ON evil.inbox_tombstone_g1 FOR EACH STATEMENT', 'evil.inbox_tombstone_g1',
		sub { past_retention(q{INSERT INTO evil.inbox_tombstone (target, key, version, generation) VALUES ('evil.target', 'purged', 1, 1)}) } ],
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

# Places other than triggers: hook, table outbox or log, how it is set and taken away. The code logs the name of the hook.
my @places = (
	[ 'a DEFAULT of parked events', q{ALTER TABLE evil.log_parked ADD extra text DEFAULT evil.same('x', 'HOOK')}, 'ALTER TABLE evil.log_parked DROP extra', \&park_log ],
	[ 'a generated column of a table outbox', q{ALTER TABLE evil.tab ADD extra text GENERATED ALWAYS AS (evil.same(lock_token, 'HOOK')) STORED}, 'ALTER TABLE evil.tab DROP extra', \&publish_table ],
	[ 'a generated column of parked events', q{ALTER TABLE evil.log_parked ADD extra text GENERATED ALWAYS AS (evil.same(last_error, 'HOOK')) STORED}, 'ALTER TABLE evil.log_parked DROP extra', \&park_log ],
	[ 'a CHECK of a table outbox', q{ALTER TABLE evil.tab ADD CONSTRAINT hook CHECK (evil.good(lock_token, 'HOOK')) NOT VALID}, 'ALTER TABLE evil.tab DROP CONSTRAINT hook', \&publish_table ],
	[ 'a CHECK of parked events', q{ALTER TABLE evil.log_parked ADD CONSTRAINT hook CHECK (evil.good(last_error, 'HOOK'))}, 'ALTER TABLE evil.log_parked DROP CONSTRAINT hook', \&park_log ],
	[ 'a domain in a table outbox', q{CREATE DOMAIN evil.token AS text CHECK (evil.good(VALUE, 'HOOK')); ALTER TABLE evil.tab ALTER lock_token TYPE evil.token}, 'ALTER TABLE evil.tab ALTER lock_token TYPE text; DROP DOMAIN evil.token', \&publish_table ],
	[ 'a domain in parked events', q{CREATE DOMAIN evil.reason AS text CHECK (evil.good(VALUE, 'HOOK')); ALTER TABLE evil.log_parked ALTER last_error TYPE evil.reason}, 'ALTER TABLE evil.log_parked ALTER last_error TYPE text; DROP DOMAIN evil.reason', \&park_log ],
	[ 'an index expression of a table outbox', q{CREATE INDEX hook ON evil.tab (evil.same(lock_token, 'HOOK'))}, 'DROP INDEX evil.hook', \&publish_table ],
	[ 'an index predicate of a table outbox', q{CREATE INDEX hook ON evil.tab (seq) WHERE evil.good(lock_token, 'HOOK')}, 'DROP INDEX evil.hook', \&publish_table ],
	[ 'an index expression of parked events', q{CREATE INDEX hook ON evil.log_parked (evil.same(last_error, 'HOOK'))}, 'DROP INDEX evil.hook', \&park_log ],
	[ 'an exclusion constraint of parked events', q{ALTER TABLE evil.log_parked ADD CONSTRAINT hook EXCLUDE (evil.same(id::text, 'HOOK') WITH =)}, 'ALTER TABLE evil.log_parked DROP CONSTRAINT hook', \&park_log ],
	[ 'a rule of a table outbox', q{CREATE RULE hook AS ON UPDATE TO evil.tab DO ALSO INSERT INTO evil.ran SELECT evil.same('rule', 'HOOK')}, 'DROP RULE hook ON evil.tab', \&publish_table ],
	[ 'a child of a table outbox', q{CREATE TABLE evil.child () INHERITS (evil.tab); CREATE TRIGGER hook BEFORE UPDATE ON evil.child FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')},
		'DROP TABLE evil.child', sub { as_mallory(q{INSERT INTO evil.child (id, seq, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 1000000, 'video', 'child', 'video.changed', 1, '{}')}) } ],
	[ 'a SECURITY DEFINER function of the owner', q{CREATE FUNCTION evil.definer() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER SET search_path = evil SET work_mem = '64' AS $x$ BEGIN PERFORM evil.hook('HOOK'); RETURN new; END $x$;
		CREATE TRIGGER hook BEFORE UPDATE ON evil.tab FOR EACH ROW EXECUTE FUNCTION evil.definer()}, 'DROP TRIGGER hook ON evil.tab; DROP FUNCTION evil.definer', \&publish_table ],
);
for my $place (@places)
{
	my ($hook, $set, $unset, $act) = @$place;
	attempt($hook, set => $set =~ s/HOOK/$hook/r, unset => $unset, act => $act, outcome => $as_owner, flows => [ 'tab', 'log' ]);
}

# Workers read and write all rows, or none: policies would hide events from them.
for my $policy (
	[ 'a policy that a table outbox is read with', 'tab', q{USING (evil.good(aggregate_id, 'a policy'))}, \&publish_table, 'tab' ],
	[ 'a policy that a table outbox is written with', 'tab', q{USING (true) WITH CHECK (evil.good(aggregate_id, 'a policy'))}, \&publish_table, 'tab' ],
	[ 'a policy of a log', 'log', q{USING (evil.good(aggregate_id, 'a policy'))}, \&publish_log, 'log' ],
	[ 'a policy of parked events', 'log_parked', q{USING (evil.good(aggregate_id, 'a policy'))}, \&park_log, 'log' ])
{
	my ($hook, $table, $expression, $act, $publication) = @$policy;
	attempt($hook,
		set => "CREATE POLICY hook ON evil.$table $expression; ALTER TABLE evil.$table ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
		act => $act, outcome => $suspended,
		never => sub { wait_until($node, 'postgres', qq{SELECT last_error LIKE '%affected by row-level security%NO FORCE%' FROM postbox.publication_state WHERE publication = '$publication'}, 'the reason is shown') },
		unset => "DROP POLICY hook ON evil.$table; ALTER TABLE evil.$table DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY", flows => [$publication]);
}

# The filter on aggregate types compares with a text.
attempt('a cast of the owner',
	set => q{SELECT postbox.create_outbox('evil.cast'); SELECT postbox.create_publication('cast', 'evil.cast', 'catalog.video.events', aggregate_types => '{video}');
		ALTER TABLE evil.cast ALTER aggregate_type TYPE evil.kind USING 'video'::evil.kind},
	act => sub { as_mallory(q{INSERT INTO evil.cast (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'other', 'k', 'video.changed', 1, '{}')}) },
	place => 'cast', outcome => $as_owner, unset => q{SELECT postbox.drop_outbox('evil.cast')});

attempt('a function whose SET clause names another role',
	set => q{CREATE FUNCTION evil.as_other() RETURNS trigger LANGUAGE plpgsql SET role = 'none' AS $x$ BEGIN PERFORM evil.hook('as another role'); RETURN new; END $x$;
		CREATE TRIGGER hook BEFORE UPDATE ON evil.tab FOR EACH ROW EXECUTE FUNCTION evil.as_other()},
	act => \&publish_table, outcome => $suspended,
	never => sub { wait_until($node, 'postgres', q{SELECT last_error LIKE '%role%' FROM postbox.publication_state WHERE publication = 'tab'}, 'the reason is shown') },
	unset => 'DROP TRIGGER hook ON evil.tab', flows => ['tab']);

attempt('a view in the place of a table outbox',
	set => q{ALTER TABLE evil.tab RENAME TO away; CREATE VIEW evil.tab AS SELECT *, evil.same('x', 'a view') FROM evil.away;
		CREATE TRIGGER hook INSTEAD OF UPDATE ON evil.tab FOR EACH ROW EXECUTE FUNCTION evil.row_hook('a view')},
	act => sub { as_mallory(q{INSERT INTO evil.away (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'video', 'k', 'video.changed', 1, '{}')}) },
	never => sub { wait_empty('tab', 'the table is found by its identity') },
	outcome => 'is not read', unset => 'DROP VIEW evil.tab; ALTER TABLE evil.away RENAME TO tab', flows => ['tab']);

# (16 refuses to make a view of a table.)
attempt('a table outbox that becomes a view',
	set => q{SELECT postbox.create_outbox('evil.turned', 'table'); SELECT postbox.create_publication('turned', 'evil.turned', 'catalog.video.events');
		DROP TRIGGER postbox_replicated ON evil.turned;
		CREATE TABLE evil.rows AS SELECT * FROM evil.turned;
		DO $x$ DECLARE c name; BEGIN
			FOR c IN SELECT conname FROM pg_constraint WHERE conrelid = 'evil.turned'::regclass LOOP EXECUTE format('ALTER TABLE evil.turned DROP CONSTRAINT %I', c); END LOOP;
			FOR c IN SELECT indexrelid::regclass FROM pg_index WHERE indrelid = 'evil.turned'::regclass LOOP EXECUTE 'DROP INDEX ' || c; END LOOP;
			FOR c IN SELECT attname FROM pg_attribute WHERE attrelid = 'evil.turned'::regclass AND attnum > 0 AND attidentity <> '' LOOP EXECUTE format('ALTER TABLE evil.turned ALTER %I DROP IDENTITY', c); END LOOP;
		END $x$;
		INSERT INTO evil.rows (id, seq, aggregate_type, aggregate_id, event_type, version, schema_version, payload, attributes, occurred_at, publish_attempts)
			VALUES (gen_random_uuid(), 1, 'video', 'k', 'video.changed', 1, 'v1', '{}', '{}', now(), 0);
		VACUUM evil.turned;
		CREATE RULE "_RETURN" AS ON SELECT TO evil.turned DO INSTEAD SELECT * FROM evil.rows WHERE evil.good(aggregate_id, 'a table that is a view')},
	act => sub {
		as_mallory('SELECT postbox.wake_publishers()');
		wait_until($node, 'postgres', q{SELECT last_error LIKE '%column%ctid%does not exist%' FROM postbox.publication_state WHERE publication = 'turned'}, 'the worker does not run its query');
		as_victim('SELECT count(*) FROM postbox.publication_status');
	},
	never => 1, outcome => 'suspends its own publication, and its query is not run', unset => 'DROP VIEW evil.turned')
  if server_version($node) < 16;

attempt('an event trigger',
	act => sub {
		my (undef, undef, $error) = $node->psql('postgres', 'SET ROLE mallory; CREATE EVENT TRIGGER hook ON ddl_command_end EXECUTE FUNCTION evil.event_hook()');
		like($error, qr/Must be superuser to create an event trigger/, 'it is refused');
		publish_log();
	},
	never => 1, outcome => 'is for superusers only');

attempt('an operator class',
	act => sub {
		my (undef, undef, $error) = $node->psql('postgres', q{SET ROLE mallory; CREATE OPERATOR CLASS evil.texts FOR TYPE text USING hash AS OPERATOR 1 evil.=});
		like($error, qr/must be superuser to create an operator class/, 'it is refused');
		publish_table();
	},
	never => 1, outcome => 'is for superusers only');

attempt('temporary tables of the names that the worker uses',
	set => q{CREATE TEMP TABLE lane (publication text); CREATE TEMP TABLE pg_class AS SELECT * FROM pg_catalog.pg_class; CREATE TEMP VIEW pg_namespace AS SELECT evil.same('x', 'a temporary view')},
	act => \&publish_log, never => 1, outcome => 'are seen by her own session only');

my @settings = ("search_path = 'evil'", q{role = 'none'}, "default_transaction_read_only = 'on'", "default_transaction_isolation = 'serializable'", "statement_timeout = '1ms'",
	"lock_timeout = '1ms'", "row_security = 'off'", "TimeZone = 'Asia/Tokyo'", "bytea_output = 'escape'", "client_encoding = 'latin1'", "exit_on_error = 'on'");
attempt('ALTER ROLE ... SET ' . join(', ', map { s/ =.*//r } @settings),
	act => sub {
		publish_log();
		publish_table();
		as_mallory(map { "ALTER ROLE mallory SET $_" } @settings);
		my $old = worker_pid($node, 'postgres');
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
		wait_until($node, 'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND pid <> $old", 'another worker begins');
		$node->safe_psql('postgres', q{SET ROLE mallory; SELECT postbox.outbox_emit('video', 'k', 'video.changed', '{}'::jsonb, outbox => o::regclass) FROM unnest('{evil.log,evil.tab}'::text[]) o});
		wait_empty($_, 'her events flow, too') for 'log', 'tab';
	},
	never => 1, may_end => 1, outcome => 'holds for her own logins only', after => sub { $node->safe_psql('postgres', 'ALTER ROLE mallory RESET ALL') });

stop_world();
done_testing();
