# A log outbox that version 0.1 has made keeps its partitions after the update: ranges of the time in the ids, and a default
# partition for ids without a time. Its retention drops nothing that is unread, and no id stops it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $installation = own_installation();
system_or_bail('cp', "$ENV{POSTBOX_BUILD_DIR}/released/postbox--0.1.sql", $installation->{scripts});
my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, install_path => $installation->{path}, settings => {
	'postbox.publishers' => 0,
	'postbox.poll_interval' => '200ms',
	'postbox.checkpoint_interval' => '20ms',
	'postbox.maintenance_interval' => '1s',
});
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION postbox VERSION '0.1';
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.outbox', 'log', '1 day');
	CREATE TABLE app.outbox_old PARTITION OF app.outbox
		FOR VALUES FROM (postbox.uuid_bound('2020-01-01 00:00+00')) TO (postbox.uuid_bound('2020-01-02 00:00+00'));
	INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at)
		SELECT id, 'video', 'old', 'video.changed', 1, '{}', '2020-01-01 00:00:01+00'
		FROM unnest('{016f5e66-e800-7000-8000-000000000001,00000000-0000-4000-8000-000000000001,ffffffff-ffff-7000-8000-000000000001}'::uuid[]) id;
	ALTER EXTENSION postbox UPDATE;
});

sub purge { return $node->safe_psql('postgres', q{SELECT postbox.purge_outbox('app.outbox')}); }

sub partitions
{
	return $node->safe_psql('postgres', q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'app.outbox'::regclass});
}

sub insert
{
	my ($ids) = @_;
	$node->safe_psql('postgres', "INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload) SELECT $ids, 'video', 'x', 'video.changed', 1, '{}'");
	return;
}

subtest 'without a publication nothing is purged, and the status says so' => sub {
	is(purge(), '0', 'no event is deleted');
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.outbox}), '3', 'all are there');
	is($node->safe_psql('postgres', 'SELECT problem FROM postbox.outbox_status'), 'events older than the retention are kept: no publication reads this outbox', 'the status says why');
	$node->safe_psql('postgres', q{DROP TABLE app.outbox_old;
		INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload) VALUES (gen_random_uuid(), 'video', 'y', 'video.changed', 1, '{}')});
	is($node->safe_psql('postgres', 'SELECT problem FROM postbox.outbox_status'), 'events older than the retention are kept: no publication reads this outbox', 'of the default partition, too');
};

subtest 'an id in the range of a partition to come leaves that range to the default partition, and no other' => sub {
	my $before = partitions();
	# The ids of the fourth span of time from now are taken.
	insert(q{overlay(postbox.uuid_bound(now() + 3 * postbox.partition_span('1 day'))::text placing '7' from 15)::uuid});
	is($node->safe_psql('postgres', q{SELECT postbox.add_partitions('app.outbox', 5)}), '2', 'the other two are added');
	is(partitions(), $before + 2, 'they are there');
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'new', 'video.changed', '{}'::jsonb)});
	is($node->safe_psql('postgres', q{SELECT count(*) FROM app.outbox_default WHERE aggregate_id = 'new'}), '0', 'events of now go to the partition of their time');
};

subtest 'rows of the default partition are deleted while others are written to it' => sub {
	$node->safe_psql('postgres', q{SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events')});
	$node->append_conf('postgresql.conf', "postbox.publishers = 1");
	$node->reload;
	my $tmp = $PostgreSQL::Test::Utils::tmp_check;
	append_to_file("$tmp/plain.sql", "INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, occurred_at) VALUES (gen_random_uuid(), 'video', 'load', 'video.changed', 1, '{}', '2020-01-01');\n");
	my $output = '';
	my $writers = IPC::Run::start([ 'pgbench', '-n', '-c', '4', '-R', '200', '-T', 120, '-f', "$tmp/plain.sql", '-h', $node->host, '-p', $node->port, 'postgres' ], '<', \undef, '>&', \$output);
	wait_until($node, 'postgres', q{SELECT last_value > 200 FROM app.outbox_seq}, 'writers write');
	wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM app.outbox WHERE seq < 200 AND occurred_at < now() - interval '1 day'}, 'what is old and read is deleted');
	$writers->signal('TERM');
	$writers->finish;
	wait_until($node, 'postgres', 'SELECT pending = 0 FROM postbox.publication_status', 'all is read');
	# Every seq was an event, but for those that the last transactions may have rolled back.
	my $taken = $node->safe_psql('postgres', q{SELECT last_value FROM app.outbox_seq});
	my $published = messages_published($emulator);
	# One was dropped with its partition by this test.
	cmp_ok($published, '>=', $taken - 1 - 4, "of $taken events none was lost: $published were published");
	wait_until($node, 'postgres', q{SELECT count(*) = 0 FROM app.outbox WHERE aggregate_id = 'load'}, 'in the end all of them are deleted');
};

unlike(undisturbed_log_since($node, 0), qr/could not purge events/, 'no purge has failed');
$node->stop;
done_testing();
