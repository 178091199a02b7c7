# Each generation of a log has a partition, whatever tables are there already: without one, nobody could emit when its turn comes.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $node = new_node('main', settings => { 'postbox.publishers' => 0 });
$node->start;
$node->safe_psql('postgres', q{CREATE EXTENSION postbox; CREATE SCHEMA app; CREATE TABLE app.outbox_g1 (x int); CREATE VIEW app.outbox_g1_1 AS SELECT 1});

sub generations
{
	return $node->safe_psql('postgres', q{SELECT string_agg(generation::text, ' ' ORDER BY generation) FROM postbox.log_partitions('app.outbox')});
}

$node->safe_psql('postgres', q{SELECT postbox.create_outbox('app.outbox', 'log')});
is(generations(), '0 1 2 3 4 5', 'a table has the name of a partition');

# As it is done to archive events.
$node->safe_psql('postgres', q{ALTER TABLE app.outbox DETACH PARTITION app.outbox_g3});
is($node->safe_psql('postgres', q{SELECT postbox.add_partitions('app.outbox')}), '1', 'one is added for a partition that was detached');
is(generations(), '0 1 2 3 4 5', 'all are there');
$node->safe_psql('postgres', qq{INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, generation) VALUES (gen_random_uuid(), 'video', '1', 'video.created', 1, '', $_)}) for 0 .. 5;
is($node->safe_psql('postgres', q{SELECT postbox.add_partitions('app.outbox')}), '0', 'no more are added');

# Whatever the owner of the database has set: these change how strings are read, and how names are written.
$node->safe_psql('postgres', q{ALTER DATABASE postgres SET standard_conforming_strings = off; ALTER DATABASE postgres SET quote_all_identifiers = on});
is(generations(), '0 1 2 3 4 5', 'all are found');
is($node->safe_psql('postgres', q{SELECT postbox.add_partitions('app.outbox')}), '0', 'no more are added with these settings');
is($node->safe_psql('postgres', q{SELECT postbox.outbox_problem(o) IS NULL FROM postbox.outbox o}), 't', 'and nothing is the matter');

done_testing();
