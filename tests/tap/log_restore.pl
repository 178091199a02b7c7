# A dump of a database with a log outbox is restored into another cluster. What the old cluster had not published is published
# once, what it had published is not sent again, and what is emitted in the new cluster is published: whichever comes first,
# the events, the restore or the worker, and whatever the schema of the log is called. (pg_dump orders tables by the names of
# their schemas: the rows of app come before those of postbox, which are before those of shop.) Rows that come later, or without
# their positions, are neither lost nor sent without being asked for.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Restore;
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $emulator = start_emulator();
dump_old_cluster($emulator);

for my $case ([ 'lower', 0 ], [ 'higher', 8000 ])
{
	my ($name, $xids) = @$case;
	my $node = new_node($name, emulator => $emulator, preload => 0, settings => \%settings);
	subtest "events that are emitted during the restore and before the first worker looks, with $name transaction ids than in the dump" => sub {
		$node->start;
		take_xids($node, $xids) if $xids;
		for my $schema (@schemas)
		{
			restore($node, $schema, 'during.sql');
			emit_into($node, $schema, $schema, 5);
		}
		my $before = messages_published($emulator);
		# Without the library nobody publishes. With it, one database after the other.
		$node->append_conf('postgresql.conf', "shared_preload_libraries = 'postbox'\npostbox.publishers = 0");
		$node->restart;
		$node->safe_psql('postgres', 'ALTER DATABASE shop ALLOW_CONNECTIONS false');
		$node->append_conf('postgresql.conf', 'postbox.publishers = 1');
		$node->reload;
		sent($node, 'app', 'app', $before, 7);
		$before = messages_published($emulator);
		$node->safe_psql('postgres', 'ALTER DATABASE shop ALLOW_CONNECTIONS true');
		$node->restart;
		sent($node, 'shop', 'shop', $before, 7);
		is($node->safe_psql($_, "SELECT count(*) FROM (SELECT version <> lag(version, 1, 0::bigint) OVER (PARTITION BY aggregate_id ORDER BY seq) + 1 AS wrong FROM $_.outbox) e WHERE wrong"), '0', "the keys of $_ are in order") for @schemas;
	};
	subtest "a worker that runs during the restore, with $name transaction ids than in the dump" => sub {
		for my $kind ('slow.sql', 'archive')
		{
			for my $schema (@schemas)
			{
				my $before = messages_published($emulator);
				my $database = $schema . ($kind eq 'archive' ? '_archive' : '_slow');
				restore($node, $database, $kind);
				emit_into($node, $database, $schema, 5);
				sent($node, $database, $schema, $before, $kind eq 'archive' ? 5 : 7);
			}
		}
		cmp_ok($node->safe_psql('postgres', 'SELECT pg_current_xact_id()'), $xids ? '>' : '<', $xid_of_dump, "its transaction ids are $name");
		$node->stop;
	};
}

done_testing();
