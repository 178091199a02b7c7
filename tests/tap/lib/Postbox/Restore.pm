# What the tests of restored logs share: an old cluster whose databases have events that are published and events that are not,
# dumps of them, and what must be sent after a restore.
package Postbox::Restore;

use strict;
use warnings;

use Exporter 'import';
use Postbox::Delivery;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(take_xids emit_into dump_old_cluster restore sent %settings @schemas $tmp $xid_of_dump);

our %settings = ('postbox.poll_interval' => '50ms', 'postbox.checkpoint_interval' => '20ms', 'max_worker_processes' => 24);
our @schemas = ('app', 'shop');
our $tmp;
our $xid_of_dump;    # of the old cluster, when it was dumped
my $emulator;

# Takes transaction ids, so that those of one cluster are far beyond those of another.
sub take_xids
{
	my ($node, $count) = @_;
	$node->safe_psql('postgres', "DO \$\$ BEGIN FOR i IN 1..$count LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END \$\$");
	return;
}

sub emit_into
{
	my ($node, $database, $schema, $count) = @_;
	return $node->safe_psql($database, "SELECT count(postbox.outbox_emit('video', 'video-' || n % 3, 'video.created', '{}'::jsonb, outbox => '$schema.outbox')) FROM generate_series(1, $count) n");
}

# In each database, 30 events that are published, and 8 that are not: one late, seven new. The dumps are in $tmp, named by
# schema and kind: sql, archive; of a cluster that is dumped in parts also schema, data, copy. Two more have events that are
# emitted during the restore.
sub dump_old_cluster
{
	my ($in_parts);
	($emulator, $in_parts) = @_;
	$tmp = PostgreSQL::Test::Utils::tempdir();
	my $old = new_node('old', emulator => $emulator, settings => { %settings, 'postbox.publishers' => 1 });
	$old->start;
	take_xids($old, 3000);
	for my $schema (@schemas)
	{
		$old->safe_psql('postgres', "CREATE DATABASE $schema");
		$old->safe_psql($schema, "CREATE EXTENSION postbox; CREATE SCHEMA $schema; SELECT postbox.create_outbox('$schema.outbox'); SELECT postbox.create_publication('videos', '$schema.outbox', 'catalog.video.events', lanes => 2)");
		emit_into($old, $schema, $schema, 10);
	}
	my %held;
	for my $schema (@schemas)
	{
		$held{$schema} = $old->background_psql($schema);
		$held{$schema}->query_safe("BEGIN; SELECT postbox.outbox_emit('video', 'held', 'video.created', '{}'::jsonb, outbox => '$schema.outbox')");
		emit_into($old, $schema, $schema, 20);
		wait_until($old, $schema, 'SELECT pending = 0 FROM postbox.publication_status', "all of $schema is published");
	}
	$old->append_conf('postgresql.conf', 'postbox.publishers = 0');
	$old->reload;
	wait_workers($old, $_, 0) for @schemas;
	for my $schema (@schemas)
	{
		$held{$schema}->query_safe('COMMIT');
		$held{$schema}->quit;
		emit_into($old, $schema, $schema, 7);
		$old->command_ok([ 'pg_dump', '-d', $old->connstr($schema), '-f', "$tmp/$schema.sql" ], "dump of $schema");
		if ($in_parts)
		{
			$old->command_ok([ 'pg_dump', '--schema-only', '-d', $old->connstr($schema), '-f', "$tmp/$schema.schema" ], "dump of the schema of $schema");
			$old->command_ok([ 'pg_dump', '--data-only', '-d', $old->connstr($schema), '-f', "$tmp/$schema.data" ], "dump of the data of $schema");
			$old->safe_psql($schema, "COPY (SELECT * FROM $schema.outbox) TO '$tmp/$schema.copy'");
		}
		$old->command_ok([ 'pg_dump', '-Fc', '-d', $old->connstr($schema), '-f', "$tmp/$schema.archive" ], "dump of $schema as an archive");
		# Two events are emitted meanwhile, before the sequence goes on where the old one stood. (There is no index yet to count
		# versions with.)
		my $emit = "SELECT count(postbox.outbox_emit('video', 'during', 'video.created', '{}'::jsonb, version => n, outbox => '$schema.outbox')) FROM pg_catalog.generate_series(1, 2) n;\n";
		append_to_file("$tmp/$schema.during.sql", slurp_file("$tmp/$schema.sql") =~ s/^(?=SELECT pg_catalog\.setval\('$schema\.outbox_seq)/$emit/mr);
		# With pauses, in which a worker looks at what is there so far.
		append_to_file("$tmp/$schema.slow.sql", slurp_file("$tmp/$schema.during.sql") =~ s/^(?=COPY |SELECT pg_catalog\.setval)/SELECT pg_catalog.pg_sleep(0.15);\n/gmr);
	}
	$xid_of_dump = $old->safe_psql('postgres', 'SELECT pg_current_xact_id()');
	$old->stop;
	return;
}

sub restore
{
	my ($node, $database, $kind) = @_;
	my ($schema) = $database =~ /^([a-z]*)/;
	$node->safe_psql('postgres', "CREATE DATABASE $database");
	if ($kind eq 'archive')
	{
		$node->command_ok([ 'pg_restore', '-j', '4', '-e', '-d', $node->connstr($database), "$tmp/$schema.archive" ], "restore of $database by several processes");
	}
	else
	{
		$node->command_ok([ 'psql', '-X', '-q', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr($database), '-f', "$tmp/$schema.$kind" ], "restore of $database");
	}
	return $schema;
}

# All that was pending and `emitted` more are sent, and nothing else.
sub sent
{
	my ($node, $database, $schema, $before, $emitted) = @_;
	my $expected = $before + 8 + $emitted;
	wait_until($node, $database, 'SELECT pending = 0 FROM postbox.publication_status', 'all is published') or return;
	wait_for(sub { messages_published($emulator) >= $expected }, 'what was pending, and what was emitted, is sent') or diag('sent ' . (messages_published($emulator) - $before));
	emit_into($node, $database, $schema, 1);
	wait_for(sub { messages_published($emulator) > $expected }, 'and what is emitted now');
	wait_until($node, $database, 'SELECT pending = 0 FROM postbox.publication_status', 'all is published');
	sent_once($emulator, $node, $expected + 1, 'nothing else is');
	return;
}

1;
