# An owner's code never gets the worker's rights through what it leaves behind: settings that a trigger changes are rolled
# back before the worker goes on as itself, and everything that touches an owner's table runs as the owner.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.maintenance_interval' => '1s' });
$node->start;
create_outbox($node, 'postgres');

# A role that may create in one schema. Its code takes superuser if somebody with that right ever runs it: in operators
# that stand before those of pg_catalog in a search_path, in triggers, in column defaults.
$node->safe_psql(
	'postgres', q{
	CREATE ROLE evil LOGIN;
	GRANT EXECUTE ON FUNCTION postbox.create_publication TO evil;
	CREATE SCHEMA evil AUTHORIZATION evil;
	SET ROLE evil;
	CREATE TABLE evil.ran (place text, as_role text, superuser boolean);
	GRANT INSERT ON evil.ran TO PUBLIC;
	CREATE FUNCTION evil.take(place text) RETURNS void LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO evil.ran SELECT place, current_user, rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user;
		IF (SELECT rolsuper FROM pg_catalog.pg_roles WHERE rolname OPERATOR(pg_catalog.=) current_user) THEN
			ALTER ROLE evil SUPERUSER;
		END IF;
	END $$;
	CREATE FUNCTION evil.equal(text, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.take('operator'); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
	CREATE OPERATOR evil.= (LEFTARG = text, RIGHTARG = text, FUNCTION = evil.equal);
	CREATE FUNCTION evil.equal(name, text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.take('operator'); RETURN $1::text OPERATOR(pg_catalog.=) $2; END $$;
	CREATE OPERATOR evil.= (LEFTARG = name, RIGHTARG = text, FUNCTION = evil.equal);
	CREATE FUNCTION evil.equal(int, int) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.take('operator'); RETURN $1 OPERATOR(pg_catalog.=) $2; END $$;
	CREATE OPERATOR evil.= (LEFTARG = int, RIGHTARG = int, FUNCTION = evil.equal);
	CREATE FUNCTION evil.leave() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM evil.take('trigger');
		PERFORM set_config('search_path', 'evil, pg_catalog', false);
		RETURN new;
	END $$;
});

my $emitted = 0;

# Another owner's events flow; and the worker runs statements of its own, with each claim.
sub others_flow
{
	my ($what) = @_;
	$emitted += 10;
	$node->safe_psql('postgres', q{SELECT count(postbox.outbox_emit('video', 'video-' || n % 7, 'video.created', '{}'::jsonb, outbox => 'app.outbox')) FROM generate_series(1, 10) n});
	wait_published($node, 'postgres', $emitted, "$what: another owner's events are published");
	return;
}

sub is_superuser { return $node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'evil'}); }

sub no_superuser_ran
{
	my ($what) = @_;
	is($node->safe_psql('postgres', q{SELECT DISTINCT place || ' as ' || as_role FROM evil.ran WHERE superuser ORDER BY 1}), '', "$what: nothing ran as a superuser");
	is(is_superuser(), 'f', "$what: the role is no superuser");
	return;
}

subtest 'a search_path that a trigger sets does not reach the worker' => sub {
	$node->safe_psql(
		'postgres', q{
		SET ROLE evil;
		SELECT postbox.create_outbox('evil.jobs', 'table');
		SELECT postbox.create_publication('jobs', 'evil.jobs', 'catalog.video.events');
		CREATE TRIGGER leave BEFORE UPDATE ON evil.jobs FOR EACH ROW EXECUTE FUNCTION evil.leave();
		SELECT postbox.outbox_emit('job', 'job-' || n, 'job.created', '{}'::jsonb, outbox => 'evil.jobs') FROM generate_series(1, 10) n});
	wait_until($node, 'postgres', q{SELECT count(*) = 10 FROM evil.jobs WHERE published_at IS NOT NULL}, 'its events are published');
	others_flow('after the triggers');
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('job', 'last', 'job.created', '{}'::jsonb, outbox => 'evil.jobs')});
	wait_until($node, 'postgres', q{SELECT count(*) = 11 FROM evil.jobs WHERE published_at IS NOT NULL}, 'and later ones');
	cmp_ok($node->safe_psql('postgres', q{SELECT count(*) FROM evil.ran WHERE place = 'trigger' AND as_role = 'evil'}), '>', 0, 'the trigger ran as the owner');
	no_superuser_ran('a trigger of a table outbox');
};

subtest 'a re-base runs the triggers and defaults of a log as its owner' => sub {
	$node->safe_psql(
		'postgres', q{
		SET ROLE evil;
		SELECT postbox.create_outbox('evil.log', 'log');
		SELECT postbox.create_publication('log', 'evil.log', 'catalog.video.events');
		SELECT postbox.outbox_emit('job', 'first', 'job.created', '{}'::jsonb, outbox => 'evil.log')});
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'log'}, 'its events are published');
	$node->append_conf('postgresql.conf', 'postbox.publishers = 0');
	$node->reload;
	wait_workers($node, 'postgres', 0);
	$node->safe_psql(
		'postgres', q{
		SET ROLE evil;
		CREATE FUNCTION evil.schema_version() RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.take('default'); RETURN 'v1'; END $$;
		CREATE FUNCTION evil.delete() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM evil.take('trigger of a deleted row'); PERFORM set_config('search_path', 'evil, pg_catalog', false); RETURN old; END $$;
		ALTER TABLE evil.log_parked ADD COLUMN extra text DEFAULT evil.schema_version();
		CREATE TRIGGER leave BEFORE INSERT ON evil.log_parked FOR EACH ROW EXECUTE FUNCTION evil.leave();
		CREATE TRIGGER removed BEFORE DELETE ON evil.log_parked FOR EACH ROW EXECUTE FUNCTION evil.delete();
		SELECT postbox.outbox_emit('job', 'unread-' || n, 'job.created', '{}'::jsonb, outbox => 'evil.log') FROM generate_series(1, 5) n;
		TRUNCATE evil.ran});
	# As a restore from another cluster leaves it.
	$node->safe_psql('postgres', q{UPDATE postbox.lane SET system_identifier = 1 WHERE publication = 'log'; UPDATE evil.log SET origin = postbox.origin_of(1)});
	my $position = log_position($node);
	$node->append_conf('postgresql.conf', 'postbox.publishers = 1');
	$node->reload;
	wait_for(sub { log_since($node, $position) =~ /the outbox of publication "log" has events of another cluster; 5 that were not published there are published here/ }, 'the worker re-bases');
	wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'log'}, 'what was not published is');
	# Its operator may run, too: rows are settled as the owner, and the trigger has set the search_path.
	is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT place, ', ' ORDER BY place) FROM evil.ran WHERE place <> 'operator'}),
		'default, trigger, trigger of a deleted row', 'its code ran');
	no_superuser_ran('a re-base');
};

subtest 'retention runs the triggers of an outbox as its owner' => sub {
	$node->safe_psql(
		'postgres', q{
		TRUNCATE evil.ran;
		SET ROLE evil;
		CREATE TRIGGER removed BEFORE DELETE ON evil.jobs FOR EACH ROW EXECUTE FUNCTION evil.delete();
		UPDATE evil.jobs SET published_at = now() - interval '30 days'});
	wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM evil.jobs}, 'what is old is purged');
	others_flow('after the purge');
	no_superuser_ran('retention');
};

unlike(slurp_file($node->logfile), qr/PANIC|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
