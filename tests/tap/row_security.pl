# Row security that is forced on the owner of an outbox does not hide events from the workers: they are not passed over. The
# publication says what is the matter, and everything is published when it is mended.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms' });
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION postbox;
	CREATE ROLE owner;
	CREATE SCHEMA app AUTHORIZATION owner;
	GRANT EXECUTE ON FUNCTION postbox.create_publication TO owner;
	SET ROLE owner;
	SELECT postbox.create_outbox('app.log'), postbox.create_outbox('app.jobs', 'table');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events'), postbox.create_publication('jobs', 'app.jobs', 'catalog.video.events');
});
my $published = 0;

sub emit_both
{
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', n || '', 'video.created', '{}', outbox => o::regclass)
		FROM generate_series(1, 10) n, unnest('{app.log,app.jobs}'::text[]) o});
	$published += 20;
	return;
}

sub wait_all { my ($what) = @_; return wait_for(sub { messages_published($emulator) == $published }, $what); }

emit_both();
wait_all('what is emitted is published');
wait_until($node, 'postgres', 'SELECT sum(pending) = 0 FROM postbox.publication_status', 'and that is stored, so that it is not sent again');

$node->safe_psql('postgres', qq{SET ROLE owner; CREATE POLICY half ON $_ USING (aggregate_id::int % 2 = 0) WITH CHECK (true);
	ALTER TABLE $_ ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY}) for qw(app.log app.jobs);
emit_both();
wait_until($node, 'postgres', q{SELECT bool_and(state = 'suspended' AND last_error ~ 'would be affected by row-level security policy.*NO FORCE ROW LEVEL SECURITY')
	FROM postbox.publication_status}, 'both publications say that row security is forced, and what to do');
is(messages_published($emulator), $published - 20, 'and nothing is passed over');

$node->safe_psql('postgres', "SET ROLE owner; ALTER TABLE $_ NO FORCE ROW LEVEL SECURITY") for qw(app.log app.jobs);
wait_all('when it is not forced any more, everything is published');
wait_until($node, 'postgres', 'SELECT sum(pending) = 0 FROM postbox.publication_status', 'nothing is left');

# What a trigger of the owner reads has nothing to do with the outbox.
subtest 'a trigger of the owner may read a table that has row security' => sub {
	$node->safe_psql('postgres', q{
		CREATE TABLE app.tenant (name text);
		INSERT INTO app.tenant VALUES ('mine'), ('other');
		ALTER TABLE app.tenant ENABLE ROW LEVEL SECURITY;
		CREATE POLICY mine ON app.tenant USING (name = 'mine');
		GRANT SELECT ON app.tenant TO owner;
		SET ROLE owner;
		CREATE TABLE app.seen (place text, tenants int);
		CREATE FUNCTION app.look() RETURNS trigger LANGUAGE plpgsql AS
			'BEGIN INSERT INTO app.seen SELECT TG_TABLE_NAME, count(*) FROM app.tenant; RETURN new; END';
		CREATE TRIGGER look BEFORE UPDATE ON app.jobs FOR EACH ROW EXECUTE FUNCTION app.look();
		CREATE TRIGGER look BEFORE INSERT ON app.log_parked FOR EACH ROW EXECUTE FUNCTION app.look();
	});
	emit_both();
	wait_all('events are published');
	emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,count=1');
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'refused', 'video.created', '{}', outbox => 'app.log')});
	wait_until($node, 'postgres', q{SELECT array_agg(DISTINCT place || ' ' || tenants) = '{jobs 1,log_parked 1}' FROM app.seen}, 'and the trigger sees what its owner may see');
};

$node->stop;
done_testing();
