# A handler or projection that is broken for many keys suspends its type: nothing becomes a dead letter, other types go on, and when the cause
# is gone all of it is applied, in order, within seconds. A poisonous key becomes a dead letter in the end.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Puller;
use Postbox::Test;
use PostgreSQL::Test::Utils qw(run_command);
use Test::More;
use Time::HiRes qw(time);

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.seen (n bigserial PRIMARY KEY, type text, aggregate_id text, version bigint, note text);
	CREATE FUNCTION app.work(event postbox.event) RETURNS void LANGUAGE plpgsql AS $$
		BEGIN
			IF event.aggregate_id = 'poison' THEN RAISE 'poison' USING ERRCODE = '22000'; END IF;
			INSERT INTO app.seen (type, aggregate_id, version, note) VALUES ('work', event.aggregate_id, event.version, 'x');
		END $$;
	CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql AS
		$$ INSERT INTO app.seen (type, aggregate_id, version) VALUES ('other', event.aggregate_id, event.version) $$;
	CREATE TABLE app.target (id text PRIMARY KEY, title text, version bigint NOT NULL);
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_handler('app.inbox', '{work}', 'app.work(postbox.event)');
	SELECT postbox.create_handler('app.inbox', '{other}', 'app.note(postbox.event)');
	SELECT postbox.create_projection('app.inbox', '{shown}', 'app.target');
	SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.video.events.test-follower', max_attempts => 1, max_outstanding_messages => 2000);
});

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }

sub wait_sql
{
	my ($condition, $what) = @_;
	return wait_until($node, 'postgres', "SELECT $condition", $what) || diag(sql('SELECT row_to_json(s) FROM postbox.subscription_status s'));
}

# Emits some hundred events a second over 50 keys for each type, until the table app.stop has a row.
sub start_load
{
	my (@types) = @_;
	my $emit = join(' ', map { "PERFORM postbox.outbox_emit('video', '$_-' || n % 50, '$_', '{\"title\": \"x\"}'::jsonb) FROM generate_series(i, i + 4) n;" } @types);
	my $load = { output => '' };
	sql('DROP TABLE IF EXISTS app.stop; CREATE TABLE app.stop ()');
	$load->{run} = IPC::Run::start(
		[ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-c', qq{
			DO \$\$
			DECLARE i int := 0;
			BEGIN
				LOOP
					$emit
					i := i + 5;
					COMMIT;
					EXIT WHEN EXISTS (SELECT FROM app.stop);
					PERFORM pg_sleep(0.01);
				END LOOP;
			END \$\$} ], '<', \undef, '>&', \$load->{output});
	return $load;
}

sub stop_load
{
	my ($load) = @_;
	sql('INSERT INTO app.stop DEFAULT VALUES');
	$load->{run}->finish;
	is($load->{run}->full_result(0), 0, 'the load ends') or diag($load->{output});
	return;
}

# How many events are not applied, of those up to a seq.
sub missing
{
	my ($last) = @_;
	return qq{(SELECT count(*) FROM app.outbox o WHERE aggregate_id <> 'poison' AND seq <= $last
		AND NOT EXISTS (SELECT FROM app.inbox i WHERE i.event_id = o.id AND i.outcome = 'applied'))};
}

# Repairs the consumer, and waits until what was emitted before is applied.
sub repair
{
	my ($repair) = @_;
	sql($repair);
	my $begin = time;
	my $last = sql('SELECT max(seq) FROM app.outbox');
	wait_sql(missing($last) . ' = 0', 'everything that waited is applied') or return;
	my $took = time - $begin;
	cmp_ok($took, '<', 10, 'within 10 s of the repair');
	note(sprintf('after %.1f s', $took));
	return;
}

sub in_order
{
	is(sql('SELECT count(*) FROM (SELECT version - lag(version, 1, 0::bigint) OVER (PARTITION BY type, aggregate_id ORDER BY n) AS step FROM app.seen) s WHERE step <> 1'),
		'0', 'each key in order, and each event once');
	return;
}

my $puller = start_puller($node, 'postgres', $emulator);

subtest 'a handler whose table lost a column' => sub {
	my $load = start_load('work', 'other');
	wait_sql(q{count(*) > 300 FROM app.seen WHERE type = 'work'}, 'events are applied');
	sql('ALTER TABLE app.seen RENAME COLUMN note TO renamed');
	sql(q{SELECT postbox.outbox_emit('video', 'poison', 'work', '{}'::jsonb)});
	wait_sql(q{suspended_types = '{work}' AND suspended_since <= now() AND suspended_error LIKE '42703: column "note"%' FROM postbox.subscription_status},
		'the type is suspended, and the status says why');
	is(sql(q{SELECT count(*) FROM postbox.doctor() WHERE status = 'error' AND subject = 'follower' AND detail LIKE 'events of type work have been suspended since %42703%'}),
		'1', 'the doctor says so');
	my ($status) = run_command([ $ENV{POSTBOX}, 'status', '--dsn', $node->connstr('postgres') ]);
	like($status, qr/^follower +suspended .*work: 42703/m, 'and postbox status');
	puller_says($puller, qr/events of a type are suspended, they all fail with the same error.*event_type=work.*sqlstate=42703/, 'and the log');
	# More than may be outstanding.
	my $before = sql(q{SELECT count(*) FROM app.seen WHERE type = 'other'});
	wait_sql(missing('seq') . ' > 3000', 'many events wait');
	wait_sql("count(*) > $before + 1000 FROM app.seen WHERE type = 'other'", 'events of another type go on');
	is(sql('SELECT count(*) FROM postbox.dead_letter'), '0', 'nothing is a dead letter');
	repair('ALTER TABLE app.seen RENAME COLUMN renamed TO note');
	wait_sql('suspended_types IS NULL AND suspended_since IS NULL AND suspended_error IS NULL FROM postbox.subscription_status', 'the status says that it is over');
	puller_says($puller, qr/events of a type are not suspended any more.*event_type=work/, 'and the log');
	stop_load($load);
	wait_sql(missing('seq') . ' = 0', 'all is applied');
	in_order();
	wait_sql(q{count(*) = 1 AND min(aggregate_id) = 'poison' AND min(sqlstate) = '22000' FROM postbox.dead_letter}, 'the poisonous event is a dead letter in the end, alone');
	my $suspended = () = $puller->{output} =~ /events of a type are suspended/g;
	is($suspended, 1, 'it was suspended once') or diag($puller->{output});
};

subtest 'a projection whose target lost a column' => sub {
	my $load = start_load('shown');
	wait_sql('count(*) = 50 FROM app.target', 'events are applied');
	sql('ALTER TABLE app.target RENAME COLUMN title TO renamed');
	wait_sql(q{suspended_types = '{shown}' AND suspended_error LIKE '%title%' FROM postbox.subscription_status}, 'the type is suspended');
	repair('ALTER TABLE app.target RENAME COLUMN renamed TO title');
	stop_load($load);
	wait_sql(missing('seq') . ' = 0', 'all is applied');
	is(sql('SELECT count(*) FROM postbox.dead_letter'), '1', 'nothing is a dead letter');
};

stop_puller($puller);
$node->stop;
done_testing();
