# What the owner of a log may make of its partitions and of its columns.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $node = new_node('main', settings => { 'postbox.publishers' => 0 });
$node->start;

sub generations
{
	return $node->safe_psql('postgres', q{SELECT string_agg(generation::text, ' ' ORDER BY generation) FROM postbox.generation_partitions('app.outbox')});
}

# Without one, nobody could emit when its turn comes.
subtest 'each generation of a log has a partition, whatever tables are there already' => sub {
	$node->safe_psql('postgres', q{CREATE EXTENSION postbox; CREATE SCHEMA app; CREATE TABLE app.outbox_g1 (x int); CREATE VIEW app.outbox_g1_1 AS SELECT 1});
	$node->safe_psql('postgres', q{SELECT postbox.create_outbox('app.outbox', 'log')});
	is(generations(), '0 1 2 3 4 5', 'a table has the name of a partition');

	# As it is done to archive events.
	$node->safe_psql('postgres', q{ALTER TABLE app.outbox DETACH PARTITION app.outbox_g3});
	is($node->safe_psql('postgres', q{SELECT postbox.make_partitions('app.outbox')}), '1', 'one is added for a partition that was detached');
	is(generations(), '0 1 2 3 4 5', 'all are there');
	$node->safe_psql('postgres', qq{INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, generation) VALUES (gen_random_uuid(), 'video', '1', 'video.created', 1, '', $_)}) for 0 .. 5;
	is($node->safe_psql('postgres', q{SELECT postbox.make_partitions('app.outbox')}), '0', 'no more are added');

	# Whatever the owner of the database has set: these change how strings are read, and how names are written.
	$node->safe_psql('postgres', q{ALTER DATABASE postgres SET standard_conforming_strings = off; ALTER DATABASE postgres SET quote_all_identifiers = on});
	is(generations(), '0 1 2 3 4 5', 'all are found');
	is($node->safe_psql('postgres', q{SELECT postbox.make_partitions('app.outbox')}), '0', 'no more are added with these settings');
	is($node->safe_psql('postgres', q{SELECT postbox.outbox_problem(o) IS NULL FROM postbox.outbox o}), 't', 'and nothing is the matter');
	$node->safe_psql('postgres', q{ALTER DATABASE postgres RESET ALL; DROP SCHEMA app CASCADE});
};

# These may be a superuser who says what became of rows of other clusters.
subtest 'what the owner has made of its columns never runs with the rights of who calls' => sub {
	$node->safe_psql(
		'postgres', q{
		CREATE ROLE owner LOGIN;
		GRANT CREATE ON DATABASE postgres TO owner;
		GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA postbox TO owner;
		SET ROLE owner;
		CREATE SCHEMA owned;
		SELECT postbox.create_outbox('owned.outbox', 'log');
		SELECT postbox.create_publication('videos', 'owned.outbox', 'catalog.video.events', lanes => 2);
		CREATE TYPE owned.number AS (value int);
		CREATE FUNCTION owned.to_int(owned.number) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'a cast runs as %', current_user; RETURN ($1).value; END $$;
		CREATE FUNCTION owned.to_number(int) RETURNS owned.number LANGUAGE sql AS 'SELECT row($1)::owned.number';
		CREATE CAST (owned.number AS int) WITH FUNCTION owned.to_int AS IMPLICIT;
		CREATE CAST (int AS owned.number) WITH FUNCTION owned.to_number AS ASSIGNMENT;
		INSERT INTO owned.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, origin)
			VALUES ('11111111-1111-4111-8111-111111111111', 'video', '1', 'video.created', 1, '', 77);
		ALTER TABLE owned.outbox ALTER origin DROP DEFAULT, ALTER origin TYPE owned.number USING row(origin)::owned.number;
	});

	for my $statement (
		q{SELECT postbox.resolve_unknown_origin('owned.outbox', true)}, q{SELECT postbox.settle_foreign_events('owned.outbox')}, q{SELECT postbox.purge_outbox('owned.outbox')},
		q{SELECT * FROM postbox.outbox_status}, q{SELECT * FROM postbox.publication_status}, q{SELECT postbox.create_publication('more', 'owned.outbox', 'catalog.video.events')})
	{
		my ($code, $out, $error) = $node->psql('postgres', $statement);
		unlike($error, qr/a cast runs as postgres/, $statement);
	}
	is($node->safe_psql('postgres', q{SELECT DISTINCT origin, floor FROM postbox.former_position WHERE publication = 'videos'}), '77|9223372036854775807', 'it is decided');
};

$node->stop;
done_testing();
