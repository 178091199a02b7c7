# The schema postbox is Postbox's own. A role that owns a database may have created it before CREATE EXTENSION, to put a function
# into it that a superuser's statement calls. CREATE EXTENSION and ALTER EXTENSION UPDATE refuse such a schema.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use PostgreSQL::Test::Utils;
use Test::More;

my $installation = own_installation();
system_or_bail('cp', glob("$ENV{POSTBOX_BUILD_DIR}/released/postbox--0.0.1*.sql"), $installation->{scripts});
my $node = new_node('main', install_path => $installation->{path}, settings => { 'postbox.publishers' => 0 });
$node->start;
$node->safe_psql('postgres', 'CREATE ROLE attacker; CREATE ROLE admin SUPERUSER');

# A literal is a text rather than a regclass, so this one is called and not that of Postbox.
my $trap = q{CREATE FUNCTION postbox.drop_outbox(outbox text) RETURNS void LANGUAGE plpgsql
	AS 'BEGIN ALTER ROLE attacker SUPERUSER; END'};

my $databases = 0;

sub database
{
	my ($preparation) = @_;
	my $database = 'db' . ++$databases;
	$node->safe_psql('postgres', "CREATE DATABASE $database OWNER attacker");
	$node->safe_psql($database, $preparation);
	return $database;
}

# A superuser runs the statement and uses the extension. The attacker leaves his function before or in between.
sub becomes_superuser
{
	my ($database, $statement) = @_;
	my (undef, undef, $error) = $node->psql($database, $statement);
	$node->psql($database, "SET ROLE attacker; $trap");
	$node->psql($database, q{CREATE SCHEMA app; SELECT postbox.create_outbox('app.outbox'); SELECT postbox.drop_outbox('app.outbox')});
	is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'attacker'}), 'f', 'the attacker does not become a superuser');
	$node->safe_psql('postgres', 'ALTER ROLE attacker NOSUPERUSER');
	return $error;
}

sub refuses
{
	my ($preparation, $detail) = @_;
	my $database = database($preparation);
	my $error = becomes_superuser($database, 'CREATE EXTENSION postbox');
	like($error, qr/ERROR:  schema "postbox" is not safe for extension postbox\nDETAIL:  $detail\nHINT:  Drop the schema or rename it\. CREATE EXTENSION creates it\./, 'the error says why and what to do');
	is($node->safe_psql($database, q{SELECT count(*) FROM pg_extension WHERE extname = 'postbox'}), '0', 'there is no extension');
	$node->safe_psql($database, 'DROP SCHEMA postbox CASCADE; CREATE EXTENSION postbox');
	is($node->safe_psql($database, q{SELECT nspowner = 10 FROM pg_namespace WHERE nspname = 'postbox'}), 't', 'without it, CREATE EXTENSION creates it');
	return;
}

subtest 'CREATE EXTENSION refuses a schema that the owner of the database made' => sub {
	refuses('SET ROLE attacker; CREATE SCHEMA postbox', 'Its owner attacker is not a superuser\.');
};

subtest 'CREATE EXTENSION refuses a schema in which somebody else may create objects' => sub {
	refuses('CREATE SCHEMA postbox; GRANT CREATE ON SCHEMA postbox TO attacker', 'attacker may create objects in it\.');
	refuses('CREATE SCHEMA postbox; GRANT ALL ON SCHEMA postbox TO PUBLIC', 'PUBLIC may create objects in it\.');
};

subtest 'CREATE EXTENSION refuses a schema with objects in it' => sub {
	refuses("CREATE SCHEMA postbox; GRANT ALL ON SCHEMA postbox TO attacker; SET ROLE attacker; $trap; RESET ROLE; REVOKE ALL ON SCHEMA postbox FROM attacker",
		'It contains function postbox\.drop_outbox\(text\)\.');
};

subtest 'the check itself calls nothing of the schema' => sub {
	my $operator = q{CREATE FUNCTION postbox.trap(name, text) RETURNS boolean LANGUAGE plpgsql
		AS 'BEGIN ALTER ROLE attacker SUPERUSER; RETURN false; END';
		CREATE OPERATOR postbox.= (FUNCTION = postbox.trap, LEFTARG = name, RIGHTARG = text);
		CREATE FUNCTION postbox.format(text, name) RETURNS text LANGUAGE plpgsql AS 'BEGIN ALTER ROLE attacker SUPERUSER; RETURN NULL; END'};
	refuses("SET ROLE attacker; CREATE SCHEMA postbox; $operator", 'Its owner attacker is not a superuser\.');
};

subtest 'CREATE EXTENSION takes an empty schema of a superuser' => sub {
	my $database = database('CREATE EXTENSION postbox; DROP EXTENSION postbox');
	is($node->safe_psql($database, q{SELECT nspacl FROM pg_namespace WHERE nspname = 'postbox'}) =~ /\{\w+=UC\/\w+,=U\//, 1, 'the one that DROP EXTENSION left');
	$node->safe_psql($database, 'CREATE EXTENSION postbox');
	$database = database('CREATE SCHEMA postbox AUTHORIZATION admin');
	$node->safe_psql($database, 'CREATE EXTENSION postbox');
	pass('and the one of another superuser, which a restore makes');
};

subtest 'ALTER EXTENSION UPDATE refuses a schema that is not a superuser\'s own' => sub {
	my $drop = 'DROP FUNCTION IF EXISTS postbox.drop_outbox(text)';
	my $database = database("CREATE EXTENSION postbox VERSION '0.0.1'");
	my @cases = (
		[ 'ALTER SCHEMA postbox OWNER TO attacker', 'Its owner attacker is not a superuser\.', 'ALTER SCHEMA postbox OWNER TO CURRENT_USER' ],
		[ 'GRANT CREATE ON SCHEMA postbox TO attacker', 'attacker may create objects in it\.', 'REVOKE CREATE ON SCHEMA postbox FROM attacker' ],
		[ "GRANT CREATE ON SCHEMA postbox TO attacker; SET ROLE attacker; $trap; RESET ROLE; REVOKE CREATE ON SCHEMA postbox FROM attacker",
			'It contains function postbox\.drop_outbox\(text\), which no superuser owns\.', $drop ]);
	for my $case (@cases)
	{
		my ($preparation, $detail, $repair) = @$case;
		$node->safe_psql($database, $preparation);
		my (undef, undef, $error) = $node->psql($database, 'ALTER EXTENSION postbox UPDATE');
		like($error, qr/ERROR:  schema "postbox" is not safe for extension postbox\nDETAIL:  $detail\nHINT:  Check which objects its owner or other roles have created in it\. /, "refused: $detail");
		$node->safe_psql($database, $repair);
	}
	$node->safe_psql($database, 'CREATE VIEW postbox.mine AS SELECT FROM postbox.outbox; ALTER EXTENSION postbox UPDATE');
	isnt($node->safe_psql($database, q{SELECT extversion FROM pg_extension WHERE extname = 'postbox'}), '0.0.1', 'then it succeeds, with a view of a superuser in the schema');
};

$node->stop;
done_testing();
