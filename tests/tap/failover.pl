# A primary is lost under load and its standby promoted. With a synchronous standby nothing was sent whose commit is gone;
# without one it may have been, and this counts it (docs/guides/fail-over.md).
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

# POSTBOX_FAILOVERS=10 counts over more failovers.
my $failovers = $ENV{POSTBOX_FAILOVERS} // 1;

my $emulator = start_emulator('--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered');
my %settings = (
	# A lease ends after five seconds, and a standby that answers nothing is one to be named after a fifth of a second.
	'postbox.checkpoint_interval' => '50ms', 'postbox.lease_timeout' => '25s', 'postbox.time_scale' => 20,
	'autovacuum' => 'off', 'max_connections' => 30);

# What the topic has seen. It has no outbox, so it may be a copy of the same cluster that the primary is a copy of.
my $template = $ENV{POSTBOX_CLUSTER_TEMPLATE};
my $reader = new_node('reader', emulator => $emulator, settings => { 'postbox.publishers' => 0 });
$reader->start;
$reader->safe_psql('postgres', q{
	CREATE EXTENSION postbox;
	CREATE SCHEMA app;
	CREATE TABLE app.seen (n bigserial PRIMARY KEY, id uuid, aggregate_id text, version bigint);
	CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql
		AS 'INSERT INTO app.seen (id, aggregate_id, version) VALUES (event.event_id::uuid, event.aggregate_id, event.version)';
	SELECT postbox.create_inbox('app.inbox');
	SELECT postbox.create_subscription('follower', 'app.inbox', 'catalog.video.events.test-follower');
	SELECT postbox.create_handler('app.inbox', ARRAY['video.created'], 'app.note(postbox.event)');
});
my $puller = start_puller($reader, 'postgres', $emulator);

my $standbys = 0;
my ($primary, $standby);

# A primary with both kinds of outboxes, and a standby that follows it. After a failover the promoted one has a new standby.
sub with_standby
{
	my ($names) = @_;
	unless (defined $primary)
	{
		local $ENV{POSTBOX_CLUSTER_TEMPLATE} = $template;
		$primary = new_node('primary', emulator => $emulator, allows_streaming => 1, settings => \%settings);
		$primary->start;
		create_outbox($primary, 'postgres');
		$primary->safe_psql('postgres', q{
			SELECT postbox.create_outbox('app.log');
			SELECT postbox.create_publication('log', 'app.log', 'catalog.video.events', lanes => 2);
		});
	}
	unless (defined $standby)
	{
		++$standbys;
		$primary->backup("backup$standbys");
		$standby = PostgreSQL::Test::Cluster->new("standby$standbys");
		$standby->init_from_backup($primary, "backup$standbys", has_streaming => 1);
		$standby->start;
	}
	set_configuration($primary, 'synchronous_standby_names', $names);
	$primary->reload;
	wait_until($primary, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming'}, 'the standby follows');
	wait_until($primary, 'postgres', q{SELECT sync_state = 'sync' FROM pg_stat_replication}, 'synchronously') if $names ne '';
	return;
}

# One transaction.
sub emit_to
{
	my ($node, $outbox, $count, %options) = @_;
	my $mode = $options{mode} // 'on';
	my $key = $options{key} // "'video-' || n % 7";
	return $node->safe_psql('postgres', "SET synchronous_commit = $mode;
		SELECT count(postbox.outbox_emit('video', $key, 'video.created', '{}'::jsonb, outbox => '$outbox')) FROM generate_series(1, $count) n");
}

sub events_of { my ($node) = @_; return $node->safe_psql('postgres', 'SELECT id FROM app.outbox UNION ALL SELECT id FROM app.log'); }
sub seen_count { return $reader->safe_psql('postgres', 'SELECT count(*) FROM app.seen'); }

# Waits until the subscriber has all events of a server. Returns how many it has got since then that the server has not.
sub ghosts
{
	my ($node, $before) = @_;
	wait_until($node, 'postgres', 'SELECT sum(pending) = 0 FROM postbox.publication_status', 'all that is there is published');
	my %there = map { $_ => 1 } split /\n/, events_of($node);
	my %seen;
	# The emulator is asked first, since that is cheap.
	wait_for(sub {
		return 0 unless all_acknowledged($emulator);
		%seen = map { split /\|/ } split /\n/, $reader->safe_psql('postgres', 'SELECT id, max(n) FROM app.seen GROUP BY id');
		return !grep { !$seen{$_} } keys %there;
	}, 'and has arrived: lost 0');
	return scalar grep { $seen{$_} > $before && !$there{$_} } keys %seen;
}

# Emits from four sessions, in all modes of synchronous_commit, into both outboxes.
sub start_load
{
	my @scripts;
	for my $mode ('on', 'local', 'off')
	{
		my $script = PostgreSQL::Test::Utils::tempdir() . "/$mode.sql";
		PostgreSQL::Test::Utils::append_to_file($script, qq{\\set k random(1, 40)
SET synchronous_commit = $mode;
SELECT postbox.outbox_emit('video', 'c$standbys-' || :k, 'video.created', '{}'::jsonb, outbox => 'app.log');
SELECT postbox.outbox_emit('video', 'c$standbys-t' || :k, 'video.created', '{}'::jsonb, outbox => 'app.outbox');
});
		push @scripts, '-f', $script;
	}
	my $load = { output => '' };
	$load->{run} = IPC::Run::start([ 'pgbench', '-n', '-c', 4, '-R', 200, '-T', 600, @scripts, $primary->connstr('postgres') ], '<', \undef, '>&', \$load->{output});
	return $load;
}

sub end_load
{
	my ($load) = @_;
	$load->{run}->kill_kill(grace => 1);
	return;
}

# Of the standby: stands still, and then is gone with what it had received and not written.
sub stop_receiver
{
	my $pid = $standby->safe_psql('postgres', q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'walreceiver'});
	kill('STOP', $pid);
	return $pid;
}

# The standby is the primary then.
sub promote
{
	my (@receiver) = @_;
	crash($standby, @receiver) if @receiver;
	$standby->promote;
	($primary, $standby) = ($standby);
	return;
}

subtest 'what a synchronous standby has not confirmed is not sent, and is gone without a trace when it is promoted' => sub {
	with_standby('*');
	my $before = seen_count();
	emit_to($primary, 'app.outbox', 20);
	wait_published($primary, 'postgres', 20);
	wait_for(sub { seen_count() == $before + 20 }, 'events flow');
	# Their marks are stored without waiting for anybody.
	wait_until($standby, 'postgres', 'SELECT count(published_at) = 20 FROM app.outbox', 'the standby knows that they are published');
	my $receiver = stop_receiver();
	my $sent = messages_published($emulator);
	# Their commits do not wait, so the primary shows them.
	emit_to($primary, $_, 5, mode => 'local', key => q{'never'}) for 'app.log', 'app.outbox';
	wait_until($primary, 'postgres', q{SELECT count(*) = 2 FROM postbox.publication_status WHERE state = 'waiting'
		AND last_error ~ 'wait for a synchronous standby to confirm WAL up to [0-9A-F]+/[0-9A-F]+, since 20.*pg_stat_replication'}, 'the status says what they wait for');
	# Longer than a quarter of the lease, after which events go back to where they were.
	wait_until($primary, 'postgres', q{SELECT count(lock_token) = 0 FROM app.outbox WHERE published_at IS NULL}, 'their leases are given back');
	is($primary->safe_psql('postgres', q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND wait_event = 'SyncRep'}), '0', 'the worker does not wait');
	is(messages_published($emulator), $sent, 'nothing was sent');
	$primary->stop('immediate');
	promote($receiver);
	is(ghosts($primary, $before), 0, 'ghosts');
	is($primary->safe_psql('postgres', q{SELECT count(*) FROM app.log WHERE aggregate_id = 'never'}), '0', 'those events are gone');
	is(messages_published($emulator) - $sent, 0, 'and nothing is sent again');
	# Their versions are issued again, and nobody has seen them before.
	emit_to($primary, 'app.log', 5, key => q{'never'});
	is(ghosts($primary, $before), 0, 'the new primary goes on');
};

subtest 'events go on when the standby comes back, or is not asked for any more' => sub {
	with_standby('*');
	my $before = seen_count();
	for my $end ('back', 'dismissed')
	{
		my $receiver = stop_receiver();
		emit_to($primary, $_, 5, mode => 'local') for 'app.log', 'app.outbox';
		wait_until($primary, 'postgres', q{SELECT count(*) = 2 FROM postbox.publication_status WHERE state = 'waiting'}, 'events wait');
		if ($end eq 'dismissed')
		{
			set_configuration($primary, 'synchronous_standby_names', '');
			$primary->reload;
			wait_until($primary, 'postgres', q{SELECT count(*) = 2 FROM postbox.publication_status WHERE state = 'active' AND pending = 0}, 'they go out');
		}
		kill('CONT', $receiver);
		wait_until($primary, 'postgres', q{SELECT count(*) = 2 FROM postbox.publication_status WHERE state = 'active' AND pending = 0}, 'and the status is as before');
	}
	is(ghosts($primary, $before), 0, 'each arrived');
};

# The worker gives them back to their lanes when it makes a new connection to Pub/Sub, and takes them again.
subtest 'events that wait for a standby still do so after the worker has read new settings' => sub {
	with_standby('*');
	my $before = seen_count();
	emit_to($primary, 'app.log', 20);
	wait_for(sub { seen_count() == $before + 20 }, 'events flow');
	my $stored = q{SELECT bool_and(replay_lsn = pg_current_wal_insert_lsn()) AND (SELECT count(*) = 2 FROM postbox.lane WHERE publication = 'log' AND hwm >= (SELECT max(seq) FROM app.log)) FROM pg_stat_replication};
	wait_until($primary, 'postgres', $stored, 'the standby has all that the worker has stored');
	my $receiver = stop_receiver();
	my $sent = messages_published($emulator);
	emit_to($primary, 'app.log', 5, mode => 'local');
	my $waiting = q{SELECT last_error FROM postbox.publication_status WHERE publication = 'log' AND state = 'waiting'};
	wait_until($primary, 'postgres', "SELECT EXISTS ($waiting)", 'events wait');
	my $since = $primary->safe_psql('postgres', $waiting);
	$primary->append_conf('postgresql.conf', 'postbox.publish_timeout = 1s');
	$primary->reload;
	wait_for(sub {
		my $now = $primary->safe_psql('postgres', $waiting);
		return messages_published($emulator) > $sent || ($now ne '' && $now ne $since);
	}, 'the worker has taken them again');
	is(messages_published($emulator), $sent, 'nothing was sent');
	kill('CONT', $receiver);
	is(ghosts($primary, $before), 0, 'and all of it is when the standby is back');
};

for my $mode ('synchronous', 'asynchronous')
{
	subtest "an $mode standby is promoted under load, $failovers times" => sub {
		my ($sent, $ghosts, $twice) = (0, 0, 0);
		for (1 .. $failovers)
		{
			with_standby($mode eq 'synchronous' ? '*' : '');
			my $before = seen_count();
			my $load = start_load();
			wait_for(sub { seen_count() > $before + 200 }, 'events flow');
			my $receiver = stop_receiver();
			# The load goes on for a moment: with a synchronous standby the sessions that wait for it stand still, the others do not.
			my $written = $primary->safe_psql('postgres', 'SELECT count(*) FROM app.log');
			if ($mode eq 'asynchronous')
			{
				wait_until($primary, 'postgres', "SELECT count(*) > $written + 100 FROM app.log", 'the standby has not got all');
				emit_to($primary, 'app.log', 1, key => "'c$standbys-gone'");
				wait_for(sub { $reader->safe_psql('postgres', "SELECT count(*) FROM app.seen WHERE aggregate_id = 'c$standbys-gone'") > 0 }, 'and has missed what was sent');
			}
			if ($mode eq 'synchronous')
			{
				# All of the load may wait for its first commit since then, which nobody sees.
				emit_to($primary, "app.$_", 1, key => "'c$standbys-there'", mode => 'local') for 'log', 'outbox';
				wait_until($primary, 'postgres', q{SELECT count(*) = 2 FROM postbox.publication_status WHERE state = 'waiting'}, 'events wait');
			}
			$primary->stop('immediate');
			end_load($load);
			promote($receiver);
			my $number = ghosts($primary, $before);
			is($number, 0, 'sent, and their commits are gone') if $mode eq 'synchronous';
			$ghosts += $number;
			# New commits take the versions of those that are gone.
			emit_to($primary, 'app.log', 400, key => "'c$standbys-' || (1 + n % 40)");
			emit_to($primary, 'app.log', 1, key => "'c$standbys-gone'") if $mode eq 'asynchronous';
			ghosts($primary, $before);
			$sent += seen_count() - $before;
			$twice += $reader->safe_psql('postgres', "SELECT count(*) FROM (SELECT FROM app.seen WHERE n > $before GROUP BY aggregate_id, version HAVING count(*) > 1) AS t");
		}
		note("$mode, $failovers failovers: $sent events sent, commits gone of $ghosts, versions issued twice $twice");
		is($ghosts + $twice, 0, 'no ghosts, no version twice') if $mode eq 'synchronous';
		cmp_ok($ghosts, '>', 0, 'ghosts, which a synchronous standby prevents') if $mode eq 'asynchronous';
		cmp_ok($twice, '>', 0, 'and versions that were issued twice') if $mode eq 'asynchronous';
	};
}

stop_puller($puller);
$primary->stop;
$reader->stop;
done_testing();
