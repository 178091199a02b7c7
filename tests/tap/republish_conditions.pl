# What happens to events that postbox.republish has queued: while the publication is paused or its topic is missing, to large ones, in a
# dump, when their rows in the log are purged, and when the session or the worker is killed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $subscription = 'projects/postbox-dev/subscriptions/catalog.video.events.test-all';
my $emulator = start_emulator('--subscription', 'catalog.video.events.test-all=catalog.video.events,ordered', '--topic', 'catalog.large.events');
my $publishers = 2;
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => $publishers, 'postbox.poll_interval' => '200ms', 'postbox.maintenance_interval' => '1h' });
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.log', retention => '1 hour');
	SELECT postbox.create_outbox('app.tab', 'table');
	SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', lanes => 2);
	SELECT postbox.create_publication('tab', 'app.tab', 'catalog.video.events');
});

sub settled
{
	my ($publication, $what) = @_;
	wait_until($node, 'postgres', "SELECT pending = 0 FROM postbox.publication_status WHERE publication = '$publication'", $what)
	  or diag($node->safe_psql('postgres', 'SELECT * FROM postbox.publication_status'));
	return;
}

sub query { my ($sql) = @_; return $node->safe_psql('postgres', $sql); }

# So many workers run.
sub workers
{
	my ($count) = @_;
	set_configuration($node, 'postbox.publishers', $count);
	$node->reload;
	wait_until($node, 'postgres', "SELECT (count(*) > 0) = ($count > 0) FROM pg_stat_activity WHERE backend_type = 'postbox publisher'", "$count workers run");
	return;
}

# The versions that came of a key, in the order of arrival.
sub came
{
	my ($key, @taken) = @_;
	return join ' ', map { $_->[2] } grep { $_->[1] eq $key } @taken;
}

my $all = join ' ', 1 .. 20;
for my $kind ('log', 'tab')
{
	query("SELECT postbox.outbox_emit('video', 'k' || k, 'video.changed', '{}'::jsonb, outbox => 'app.$kind') FROM generate_series(1, 20) n, generate_series(1, 3) k");
	settled($kind, "$kind: all are published");
	taken_from($emulator, $subscription);

	subtest "$kind: a paused publication sends them when it goes on" => sub {
		query("SELECT postbox.pause_publication('$kind', 'a test')");
		is(query("SELECT events FROM postbox.republish('$kind')"), 60, 'queued');
		is(query("SELECT republishing FROM postbox.publication_status WHERE publication = '$kind'"), 60, 'and kept');
		is(query("SELECT postbox.cancel_republish('$kind')"), 60, 'they can be taken back');
		is(query("SELECT events FROM postbox.republish('$kind')"), 60, 'and queued again');
		query("SELECT postbox.resume_publication('$kind')");
		settled($kind, 'sent');
		my @taken = taken_from($emulator, $subscription);
		is(came('k1', @taken), $all, 'in order');
		is(scalar @taken, 60, 'each once');
	};

	subtest "$kind: a missing topic suspends them" => sub {
		emulator_fault($emulator, 'rpc=Publish,code=NOT_FOUND');
		is(query("SELECT events FROM postbox.republish('$kind')"), 60, 'queued');
		wait_until($node, 'postgres', "SELECT state = 'suspended' FROM postbox.publication_status WHERE publication = '$kind'", 'the publication is suspended');
		is(query("SELECT pending FROM postbox.publication_status WHERE publication = '$kind'"), 60, 'nothing is lost');
		query("SELECT postbox.outbox_emit('video', 'k1', 'video.changed', '{}'::jsonb, outbox => 'app.$kind')");
		emulator_fault($emulator, '--clear');
		query("SELECT postbox.resume_publication('$kind')");
		settled($kind, 'sent');
		my @taken = taken_from($emulator, $subscription);
		like(came('k1', @taken), qr/^(?:$all 21|21 $all)$/, 'in order, the new one before or behind them');
		is(came('k2', @taken), $all, 'in order');
		is(scalar @taken, 61, 'each once');
	};

	subtest "$kind: large events" => sub {
		query(qq{SELECT postbox.create_outbox('app.large_$kind', '} . ($kind eq 'log' ? 'log' : 'table') . qq{')});
		query(qq{SELECT postbox.create_publication('large_$kind', 'app.large_$kind', 'catalog.large.events')});
		query(qq{SELECT postbox.outbox_emit('large', 'large', 'video.changed', convert_to('"' || repeat('x', 9900000) || '"', 'UTF8'), outbox => 'app.large_$kind') FROM generate_series(1, 4)});
		settled("large_$kind", 'published');
		my $before = messages_published($emulator);
		is(query("SELECT events || ' ' || bytes FROM postbox.republish('large_$kind')"), '4 39600008', 'queued');
		query("SELECT postbox.outbox_emit('video', 'small', 'video.changed', '{}'::jsonb, outbox => 'app.large_$kind')");
		settled("large_$kind", 'sent');
		is(messages_published($emulator) - $before, 5, 'each once, and a new one beside them');
		query("SELECT postbox.drop_outbox('app.large_$kind')");
	};

	subtest "$kind: the session that queues them is killed" => sub {
		my $session = $node->background_psql('postgres', on_error_die => 0);
		my $pid = $session->query("SELECT pg_backend_pid()");
		$session->query("BEGIN; SELECT postbox.republish('$kind')");
		crash($node, $pid);
		eval { $session->quit };
		settled($kind, 'nothing waits');
		is(query("SELECT republishing FROM postbox.publication_status WHERE publication = '$kind'"), 0, 'nothing is queued');
		is(query("SELECT events FROM postbox.republish('$kind', dry_run => true)"), 61, 'and all can be');
	};

	subtest "$kind: a dump has them, and each is sent once by one database" => sub {
		query("SELECT postbox.pause_publication('$kind', 'a dump')");
		# No worker that has yet to notice the pause sends them.
		workers(0);
		query("SELECT postbox.republish('$kind', keys => '{k2}')");
		my $dump = PostgreSQL::Test::Utils::tempdir() . '/dump.sql';
		$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', $dump ], 'dump');
		query("SELECT postbox.cancel_republish('$kind'), postbox.resume_publication('$kind')");
		workers($publishers);
		query("CREATE DATABASE copy_$kind");
		$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr("copy_$kind"), '-f', $dump ], 'restore');
		is($node->safe_psql("copy_$kind", "SELECT republishing FROM postbox.publication_status WHERE publication = '$kind'"), 20, 'they are queued there');
		$node->safe_psql("copy_$kind", "SELECT postbox.claim_publication('$kind')");
		$node->safe_psql("copy_$kind", "SELECT postbox.resume_publication('$kind')");
		wait_until($node, "copy_$kind", "SELECT pending = 0 FROM postbox.publication_status WHERE publication = '$kind'", 'sent from there')
		  or diag($node->safe_psql("copy_$kind", 'SELECT * FROM postbox.publication_status'));
		my @taken = taken_from($emulator, $subscription);
		is(came('k2', @taken), $all, 'in order');
		is(scalar @taken, 20, 'and nothing else');
		$node->safe_psql('postgres', "DROP DATABASE copy_$kind");
	};
}

subtest 'log: their rows are purged before they are sent' => sub {
	query("SELECT postbox.pause_publication('log', 'a test')");
	is(query("SELECT events FROM postbox.republish('log')"), 61, 'queued');
	query('TRUNCATE app.log');
	query("SELECT postbox.resume_publication('log')");
	settled('log', 'sent');
	my @taken = taken_from($emulator, $subscription);
	is(came('k2', @taken), $all, 'in order');
	is(scalar @taken, 61, 'and complete');
};

$node->stop;
done_testing();
