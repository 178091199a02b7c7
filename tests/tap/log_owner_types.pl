# What the owner of a log has made of its columns never runs with the rights of a superuser who says what became of rows of other clusters.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $node = new_node('main', settings => { 'postbox.publishers' => 0 });
$node->start;
$node->safe_psql(
	'postgres', q{
	CREATE EXTENSION postbox;
	CREATE ROLE owner LOGIN;
	GRANT CREATE ON DATABASE postgres TO owner;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA postbox TO owner;
	SET ROLE owner;
	CREATE SCHEMA app;
	SELECT postbox.create_outbox('app.outbox', 'log');
	SELECT postbox.create_publication('videos', 'app.outbox', 'catalog.video.events', lanes => 2);
	CREATE TYPE app.number AS (value int);
	CREATE FUNCTION app.to_int(app.number) RETURNS int LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'a cast runs as %', current_user; RETURN ($1).value; END $$;
	CREATE FUNCTION app.to_number(int) RETURNS app.number LANGUAGE sql AS 'SELECT row($1)::app.number';
	CREATE CAST (app.number AS int) WITH FUNCTION app.to_int AS IMPLICIT;
	CREATE CAST (int AS app.number) WITH FUNCTION app.to_number AS ASSIGNMENT;
	INSERT INTO app.outbox (id, aggregate_type, aggregate_id, event_type, version, payload, origin)
		VALUES ('11111111-1111-4111-8111-111111111111', 'video', '1', 'video.created', 1, '', 77);
	ALTER TABLE app.outbox ALTER origin DROP DEFAULT, ALTER origin TYPE app.number USING row(origin)::app.number;
});

for my $statement (
	q{SELECT postbox.decide_unknown('app.outbox', true)}, q{SELECT postbox.rebase_outbox('app.outbox')}, q{SELECT postbox.purge_outbox('app.outbox')},
	q{SELECT * FROM postbox.outbox_status}, q{SELECT * FROM postbox.publication_status}, q{SELECT postbox.create_publication('more', 'app.outbox', 'catalog.video.events')})
{
	my ($code, $out, $error) = $node->psql('postgres', $statement);
	unlike($error, qr/a cast runs as postgres/, $statement);
}
is($node->safe_psql('postgres', q{SELECT DISTINCT origin, floor FROM postbox.former_position WHERE publication = 'videos'}), '77|9223372036854775807', 'it is decided');

done_testing();
