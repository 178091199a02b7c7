# The table of attempts, second part: every place in which a function or a view of Postbox calls code of the owner of an
# outbox or an inbox in the session of somebody else, here of a superuser. A new place in which a session calls another
# user's code gets a row here.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Attempts;
use Postbox::Test;
use Test::More;

start_world();
my $as_owner = 'runs as the owner';
my $deferred_error = qr/cannot fire deferred trigger within security-restricted operation/;

sub rejected { return as_superuser(q{SELECT count(*) FROM evil.inbox WHERE outcome = 'rejected'}); }

# Triggers and other places of what inbox_apply touches: hook, set, unset, types of the events.
my @apply = (
	[ 'a BEFORE row trigger of an inbox', q{CREATE TRIGGER hook BEFORE INSERT ON evil.inbox FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.inbox', 'set' ],
	[ 'an AFTER row trigger of an inbox', q{CREATE TRIGGER hook AFTER INSERT OR UPDATE ON evil.inbox FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.inbox', 'set' ],
	[ 'a statement trigger of an inbox', q{CREATE TRIGGER hook AFTER INSERT ON evil.inbox FOR EACH STATEMENT EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.inbox', 'set' ],
	[ 'a DEFAULT of an inbox', q{ALTER TABLE evil.inbox ADD extra text DEFAULT evil.same('x', 'HOOK')}, 'ALTER TABLE evil.inbox DROP extra', 'set' ],
	[ 'a generated column of an inbox', q{ALTER TABLE evil.inbox ADD extra text GENERATED ALWAYS AS (evil.same(event_type, 'HOOK')) STORED}, 'ALTER TABLE evil.inbox DROP extra', 'set' ],
	[ 'a CHECK of an inbox', q{ALTER TABLE evil.inbox ADD CONSTRAINT hook CHECK (evil.good(event_type, 'HOOK')) NOT VALID}, 'ALTER TABLE evil.inbox DROP CONSTRAINT hook', 'set' ],
	[ 'an index expression of an inbox', q{CREATE INDEX hook ON evil.inbox (evil.same(event_type, 'HOOK'))}, 'DROP INDEX evil.hook', 'set' ],
	[ 'a policy of an inbox', q{CREATE POLICY hook ON evil.inbox USING (evil.good(event_type, 'HOOK')); ALTER TABLE evil.inbox ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
		'DROP POLICY hook ON evil.inbox; ALTER TABLE evil.inbox DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', 'set' ],
	[ 'a BEFORE row trigger of a target', q{CREATE TRIGGER hook BEFORE INSERT OR UPDATE ON evil.target FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.target', 'set' ],
	[ 'an AFTER row trigger of a target', q{CREATE TRIGGER hook AFTER INSERT OR UPDATE ON evil.target FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.target', 'set' ],
	[ 'a trigger of a row that is deleted', q{CREATE TRIGGER hook BEFORE DELETE ON evil.target FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.target', 'set', 'gone' ],
	[ 'a policy of a target', q{CREATE POLICY hook ON evil.target USING (evil.good(id, 'HOOK')); ALTER TABLE evil.target ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
		'DROP POLICY hook ON evil.target; ALTER TABLE evil.target DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', 'set', 'set' ],
	[ 'a DEFAULT of a target', q{TRUNCATE evil.target; ALTER TABLE evil.target ADD extra text DEFAULT evil.same('x', 'HOOK')}, 'ALTER TABLE evil.target DROP extra', 'set' ],
	[ 'a generated column of a target', q{ALTER TABLE evil.target ADD extra text GENERATED ALWAYS AS (evil.same(version::text, 'HOOK')) STORED}, 'ALTER TABLE evil.target DROP extra', 'set' ],
	[ 'a CHECK of a target', q{ALTER TABLE evil.target ADD CONSTRAINT hook CHECK (evil.good(title, 'HOOK')) NOT VALID}, 'ALTER TABLE evil.target DROP CONSTRAINT hook', 'set' ],
	[ 'a domain in a target', q{CREATE DOMAIN evil.title AS text CHECK (evil.good(VALUE, 'HOOK')); ALTER TABLE evil.target ALTER title TYPE evil.title}, 'ALTER TABLE evil.target ALTER title TYPE text; DROP DOMAIN evil.title', 'set' ],
	[ 'an index expression of a target', q{CREATE INDEX hook ON evil.target (evil.same(version::text, 'HOOK'))}, 'DROP INDEX evil.hook', 'set' ],
	[ 'an index predicate of a target', q{CREATE INDEX hook ON evil.target (id) WHERE evil.good(version::text, 'HOOK')}, 'DROP INDEX evil.hook', 'set' ],
	# Postbox notes in a table of its own of what type the events of a target are.
	[ 'a trigger of a target that gets its first event', q{CREATE TABLE evil.fresh (id text PRIMARY KEY, title text, version bigint); SELECT postbox.create_projection('evil.inbox', '{fresh}', 'evil.fresh');
		CREATE TRIGGER hook BEFORE INSERT ON evil.fresh FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, q{SELECT postbox.drop_projection(name) FROM postbox.projection WHERE event_types = '{fresh}'; DROP TABLE evil.fresh}, 'fresh' ],
	[ 'a trigger of the tombstones', q{CREATE TRIGGER hook BEFORE INSERT OR UPDATE ON evil.inbox_tombstone FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.inbox_tombstone', 'gone' ],
	[ 'a CHECK of the tombstones', q{ALTER TABLE evil.inbox_tombstone ADD CONSTRAINT hook CHECK (evil.good(key, 'HOOK')) NOT VALID}, 'ALTER TABLE evil.inbox_tombstone DROP CONSTRAINT hook', 'gone' ],
	[ 'a handler', q{SELECT postbox.create_handler('evil.inbox', '{handled}', 'evil.handler(postbox.event)')}, 'SELECT postbox.drop_handler(name) FROM postbox.handler', 'handled' ],
	[ 'a handler that is SECURITY DEFINER', q{CREATE FUNCTION evil.definer(event postbox.event) RETURNS void LANGUAGE plpgsql SECURITY DEFINER SET search_path = evil AS $x$ BEGIN PERFORM evil.hook('HOOK'); END $x$;
		SELECT postbox.create_handler('evil.inbox', '{defined}', 'evil.definer(postbox.event)')}, 'SELECT postbox.drop_handler(name) FROM postbox.handler; DROP FUNCTION evil.definer', 'defined' ],
);
for my $place (@apply)
{
	my ($hook, $set, $unset, @types) = @$place;
	attempt($hook, set => $set =~ s/HOOK/$hook/r, unset => $unset, place => $hook eq 'a handler' ? 'handler' : $hook, outcome => $as_owner, act => sub {
		my (undef, $error) = apply_event(@types);
		is($error, '', 'the event is applied');
	});
}

# What would run at COMMIT would run as the caller.
for my $table ('inbox', 'target')
{
	attempt("a deferred constraint trigger of the $table",
		set => "CREATE CONSTRAINT TRIGGER hook AFTER INSERT OR UPDATE ON evil.$table DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION evil.row_hook('deferred')",
		act => sub {
			my $before = rejected();
			my (undef, $error) = apply_event('set');
			ok($error =~ $deferred_error || rejected() == $before + 1, 'it is refused') or diag($error);
		},
		never => 1, outcome => 'is refused', unset => "DROP TRIGGER hook ON evil.$table");
}

attempt('a rule of a target',
	set => q{CREATE RULE hook AS ON INSERT TO evil.target DO ALSO INSERT INTO evil.ran SELECT evil.same('rule', 'a rule')},
	act => sub {
		my (undef, $error) = apply_event('set');
		like($error, qr/ERROR: .*rules/, 'it is refused');
	},
	never => 1, outcome => 'is refused', unset => 'DROP RULE hook ON evil.target');

# Other functions and views, and what of the owner they come to: hook, set, unset, what the superuser runs.
my @others = (
	[ 'a policy that publication_status meets in a log', q{CREATE POLICY hook ON evil.log USING (evil.good(aggregate_id, 'HOOK')); ALTER TABLE evil.log ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
		'DROP POLICY hook ON evil.log; ALTER TABLE evil.log DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', 'SELECT count(*) FROM postbox.publication_status' ],
	[ 'a policy that publication_status meets in a table', q{CREATE POLICY hook ON evil.tab USING (evil.good(aggregate_id, 'HOOK')); ALTER TABLE evil.tab ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
		'DROP POLICY hook ON evil.tab; ALTER TABLE evil.tab DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', 'SELECT count(*) FROM postbox.publication_status' ],
	[ 'a policy that paused_keys meets', q{CREATE POLICY hook ON evil.log_parked USING (evil.good(aggregate_id, 'HOOK')); ALTER TABLE evil.log_parked ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
		'DROP POLICY hook ON evil.log_parked; ALTER TABLE evil.log_parked DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', 'SELECT count(*) FROM postbox.paused_keys' ],
	[ 'a trigger that redrive meets in parked events', q{CREATE TRIGGER hook BEFORE UPDATE ON evil.log_parked FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.log_parked', q{SELECT postbox.redrive('evil.log')} ],
	[ 'a trigger that redrive meets in a table outbox', q{CREATE TRIGGER hook BEFORE UPDATE ON evil.tab FOR EACH STATEMENT EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.tab', q{SELECT postbox.redrive('evil.tab')} ],
	[ 'a trigger that discard meets', q{CREATE TRIGGER hook BEFORE UPDATE OR DELETE ON evil.log_parked FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.log_parked',
		q{SELECT postbox.discard('evil.log', id) FROM evil.log_parked WHERE publish_attempts > 0} ],
	[ 'a trigger that purge_outbox meets', q{CREATE TRIGGER hook BEFORE DELETE ON evil.tab FOR EACH STATEMENT EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.tab', q{SELECT postbox.purge_outbox('evil.tab')} ],
	[ 'a trigger that purge_inbox meets', q{CREATE TRIGGER hook BEFORE TRUNCATE ON evil.inbox_g1 FOR EACH STATEMENT EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.inbox_g1',
		q{INSERT INTO evil.inbox (event_id, outcome, generation) VALUES (gen_random_uuid(), 'applied', 1); UPDATE postbox.inbox SET generation = 0, generation_since = '2020-01-01', previous_since = '2020-01-01'; SELECT postbox.purge_inbox('evil.inbox')} ],
	[ 'a policy that wait_for_version meets', q{CREATE POLICY hook ON evil.target USING (evil.good(id, 'HOOK')); ALTER TABLE evil.target ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY},
		'DROP POLICY hook ON evil.target; ALTER TABLE evil.target DISABLE ROW LEVEL SECURITY, NO FORCE ROW LEVEL SECURITY', q{SELECT postbox.wait_for_version('evil.target', 'key', 1, '0')} ],
	[ 'a trigger that redrive_dead_letter meets', q{CREATE TRIGGER hook BEFORE INSERT OR UPDATE ON evil.target FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, 'DROP TRIGGER hook ON evil.target',
		q{SELECT postbox.record_dead_letter('evil.inbox', ROW('dead', 'set', 'video', 'dead', 1, '{"title": "x"}', '{}', NULL)::postbox.event, '22000', 'made'); SELECT postbox.redrive_dead_letter(max(id)) FROM postbox.dead_letter} ],
	[ 'a trigger of a version counter', q{DO $x$ BEGIN EXECUTE (SELECT format('CREATE TRIGGER hook BEFORE INSERT OR UPDATE ON %s FOR EACH ROW EXECUTE FUNCTION evil.row_hook(''HOOK'')', counter) FROM postbox.outbox WHERE relation = 'evil.tab'::regclass); END $x$},
		q{DO $x$ BEGIN EXECUTE (SELECT format('DROP TRIGGER hook ON %s', counter) FROM postbox.outbox WHERE relation = 'evil.tab'::regclass); END $x$},
		q{SELECT postbox.outbox_emit('video', 'counted', 'video.changed', '{}'::jsonb, outbox => 'evil.tab')} ],
	[ 'a trigger that adopt_outbox meets', q{CREATE TABLE evil.adopted (id uuid DEFAULT gen_random_uuid() PRIMARY KEY, aggregate_type text NOT NULL, aggregate_id text NOT NULL, event_type text NOT NULL, payload jsonb NOT NULL, occurred_at timestamptz NOT NULL DEFAULT now());
		INSERT INTO evil.adopted (aggregate_type, aggregate_id, event_type, payload) VALUES ('video', 'k', 'video.changed', '{}');
		CREATE TRIGGER hook BEFORE UPDATE ON evil.adopted FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, q{SELECT postbox.drop_outbox('evil.adopted'); DROP TABLE evil.adopted}, q{SELECT postbox.adopt_outbox('evil.adopted')} ],	[ 'cast', q{SELECT postbox.create_outbox('evil.broken', 'table'); SELECT postbox.outbox_emit('video', 'k', 'video.changed', '{}'::jsonb, outbox => 'evil.broken');
		ALTER TABLE evil.broken ALTER aggregate_type TYPE evil.kind USING 'video'::evil.kind; DROP TABLE evil.broken_version}, q{SELECT postbox.drop_outbox('evil.broken')}, q{SELECT postbox.repair_outbox('evil.broken', false)} ],
	[ 'an index of a log that gets a partition back', q{CREATE INDEX hook ON evil.log ((evil.same('x', 'HOOK') || aggregate_id));
		DO $x$ BEGIN EXECUTE (SELECT format('DROP TABLE %s', part) FROM postbox.past_retention((SELECT o FROM postbox.outbox o WHERE relation = 'evil.log'::regclass)) part LIMIT 1); END $x$},
		q{DROP INDEX evil.hook}, q{SELECT postbox.make_partitions('evil.log')} ],
	[ 'a trigger that register_outbox meets', q{CREATE TABLE evil.again (LIKE evil.tab INCLUDING ALL); COMMENT ON TABLE evil.again IS 'Events to publish (postbox outbox)'; CREATE TABLE evil.again_version (LIKE evil.tab_version INCLUDING ALL);
		INSERT INTO evil.again (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'video', 'k', 'video.changed', 1, '');
		CREATE TRIGGER hook BEFORE INSERT ON evil.again_version FOR EACH ROW EXECUTE FUNCTION evil.row_hook('HOOK')}, q{SELECT postbox.drop_outbox('evil.again')}, q{SELECT postbox.register_outbox('evil.again')} ],
);
for my $place (@others)
{
	my ($hook, $set, $unset, $sql) = @$place;
	# What code of users hides is not read, and not by workers either.
	my $never = $hook =~ /policy that (publication_status|paused_keys)/;
	my $parked = $sql =~ /discard|redrive\('evil\.log'/;
	attempt($hook, set => $set =~ s/HOOK/$hook/r, unset => $unset, outcome => $never ? 'is not read' : $as_owner, never => $never, act => sub {
		if ($parked)
		{
			# An event that stays parked.
			emulator_fault($emulator, '--clear', 'rpc=Publish,ordering-key=poison,code=INVALID_ARGUMENT');
			publish_log('poison');
			wait_until($node, 'postgres', q{SELECT count(*) > 0 FROM evil.log_parked WHERE publish_attempts > 0}, 'an event is parked');
		}
		apply_event('set') if $hook =~ /wait_for_version/;
		publish_log() if $hook =~ /status meets in a log/;
		publish_table() if $hook =~ /status meets in a table/;
		as_victim($sql);
	}, after => $parked && sub {
		emulator_fault($emulator, '--clear');
		as_mallory(q{SELECT postbox.redrive('evil.log')});
	});
}

# A row of an outbox is written as whoever emits it: that is PostgreSQL's rule for an INSERT, and no matter of Postbox. With
# no right of the emitter's, the owner's code gets that of the emitter and not more.
$node->safe_psql('postgres', 'CREATE ROLE emitter; GRANT USAGE ON SCHEMA evil TO emitter; GRANT INSERT ON evil.tab TO emitter; GRANT USAGE ON ALL SEQUENCES IN SCHEMA evil TO emitter');
subtest 'a trigger of the INSERT of outbox_emit runs as the emitter, as with a plain INSERT' => sub {
	as_mallory(q{CREATE FUNCTION evil.note() RETURNS trigger LANGUAGE plpgsql AS $x$ BEGIN RAISE LOG 'note: % of %', current_user, current_setting('application_name'); RETURN new; END $x$;
		CREATE TRIGGER hook BEFORE INSERT ON evil.tab FOR EACH ROW EXECUTE FUNCTION evil.note()});
	my $position = log_position($node);
	$node->safe_psql('postgres', q{SET application_name = 'victim'; SET ROLE emitter; SELECT postbox.outbox_emit('video', 'k', 'video.changed', '{}'::jsonb, outbox => 'evil.tab')});
	like(log_since($node, $position), qr/note: emitter of victim/, 'as the emitter');
	as_mallory('DROP TRIGGER hook ON evil.tab');
};

stop_world();
done_testing();
