# What owners and the settings of a server do to credentials: an owner holds up neither the rotation of a credential nor the
# publications of others, a secret that is given in a statement does not come into the log by ways that are the function's, and an
# identity that fails is no matter of those who do not use it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.publishers' => 1, 'log_lock_waits' => 'on', 'deadlock_timeout' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
my $key = PostgreSQL::Test::Utils::tempdir() . '/key';
command_ok([ 'openssl', 'genrsa', '-out', $key, '2048' ], 'a private key is made');
my $pem = slurp_file($key) =~ s/\n/\\n/gr;
my ($marker) = slurp_file($key) =~ /^[^-\n].*\n(.*)\n/m;
my $secret = qq('{"type": "service_account", "client_email": "a\@b.example", "private_key": "$pem"}');
$node->safe_psql('postgres', qq{
	CREATE ROLE mallory LOGIN;
	CREATE SCHEMA evil AUTHORIZATION mallory;
	GRANT EXECUTE ON FUNCTION postbox.create_publication, postbox.alter_publication TO mallory;
	SELECT postbox.create_credential('shared', 'metadata'), postbox.grant_credential('shared', 'mallory');
	SET ROLE mallory;
	SELECT postbox.create_outbox('evil.log');
	SELECT postbox.create_publication('evil', 'evil.log', 'no.such.topic', credential => 'shared');
	SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => 'evil.log')});
wait_until($node, 'postgres', q{SELECT state = 'suspended' FROM postbox.publication_status WHERE publication = 'evil'}, 'a publication of another owner is suspended');

sub session_of_mallory { my ($sql) = @_; my $session = $node->background_psql('postgres', extra_params => [ '-U', 'mallory' ]); $session->query_safe("BEGIN; $sql"); return $session; }

sub others_flow
{
	my ($what) = @_;
	emit($node, 'postgres', 5);
	return wait_until($node, 'postgres', q{SELECT pending = 0 FROM postbox.publication_status WHERE publication = 'videos'}, "$what: the events of others are published");
}

subtest 'who keeps his own suspended publication locked does not hold up those of others' => sub {
	my $session = session_of_mallory(q{SELECT postbox.resume_publication('evil')});
	my $position = log_position($node);
	$node->safe_psql('postgres', q{SELECT postbox.alter_credential('shared', 'environment')});
	others_flow('another identity');
	$node->reload;
	$node->safe_psql('postgres', q{SET ROLE mallory; SELECT postbox.create_publication('another', 'evil.log', 'catalog.video.events')});
	others_flow('a reload, and another publication');
	unlike(log_since($node, $position), qr/could not read the publications/, 'workers read the publications meanwhile');
	$session->query_safe('ROLLBACK');
	$session->quit;
};

subtest 'who begins to use a credential does not hold up its rotation, nor that it is taken from him' => sub {
	my $session = session_of_mallory(q{SELECT postbox.alter_publication('evil', credential => 'shared')});
	for my $statement (q{alter_credential('shared', 'metadata')}, q{revoke_credential('shared', 'mallory')}, q{grant_credential('shared', 'mallory')})
	{
		is(($node->psql('postgres', "SET lock_timeout = '1s'; SELECT postbox.$statement"))[0], 0, $statement);
	}
	isnt(($node->psql('postgres', q{SET lock_timeout = '1s'; SELECT postbox.drop_credential('shared')}))[0], 0, 'to drop it must wait');
	$session->query_safe('ROLLBACK');
	$session->quit;
};

subtest 'the log does not have the secret of a statement that waits, is ended, or fails behind the function' => sub {
	my $position = log_position($node);
	$node->safe_psql('postgres', "SELECT postbox.create_credential('key', 'key', secret => $secret)");
	my $holder = $node->background_psql('postgres');
	$holder->query_safe(q{BEGIN; SELECT postbox.revoke_credential('key', 'mallory') FROM postbox.credential_grant WHERE credential = 'key'; SELECT FROM postbox.credential WHERE name = 'key' FOR UPDATE});
	for my $end ('terminate', 'cancel')
	{
		my ($out, $err) = ('', '');
		my $waiting = IPC::Run::start([ 'psql', '-X', '-q', '-d', $node->connstr('postgres'), '-c', "SELECT postbox.alter_credential('key', secret => $secret)" ], '<', \undef, '>', \$out, '2>', \$err);
		wait_for(sub { log_since($node, $position) =~ /still waiting for ShareLock/ }, 'the log says that it waits') if $end eq 'terminate';
		wait_until($node, 'postgres', q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE '%alter_credential(...)%' AND wait_event_type = 'Lock'}, 'it waits');
		$node->safe_psql('postgres', qq{SELECT pg_${end}_backend(pid) FROM pg_stat_activity WHERE query LIKE '%alter_credential(...)%' AND wait_event_type = 'Lock'});
		$waiting->finish;
	}
	$holder->query_safe('ROLLBACK');
	$holder->quit;
	$node->psql('postgres', "SELECT postbox.alter_credential('key', secret => $secret), 1 / (random() * 0)::int");
	$node->psql('postgres', "SET log_executor_stats = on; SELECT postbox.alter_credential('key', secret => $secret)");
	my $log = log_since($node, $position);
	like($log, qr/terminating connection due to administrator command.*?STATEMENT: +SELECT postbox\.alter_credential\(\.\.\.\)/s, 'the log shows the function');
	like($log, qr/division by zero/, 'and what failed behind it');
	like($log, qr/EXECUTOR STATISTICS/, 'and the statistics');
	unlike($log, qr/\Q$marker\E/, 'but not the secret');
};

subtest 'databases of other encodings and owners' => sub {
	my $document = PostgreSQL::Test::Utils::tempdir() . '/document';
	append_to_file($document, $secret =~ s/^'|'$//gr);
	$node->safe_psql('postgres', q{CREATE ROLE extension_owner SUPERUSER; CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0});
	$node->safe_psql('latin', qq{SET ROLE extension_owner; CREATE EXTENSION postbox; RESET ROLE; ALTER ROLE extension_owner NOSUPERUSER; SELECT postbox.create_credential('key', 'key', file => '$document')});
	my ($status, undef, $error) = $node->psql('latin', q{SET client_encoding = 'UTF8'; SELECT postbox.alter_credential('key', secret => '{"type": "ä"}')});
	like($error, qr/the secret has a character that is not ASCII, and this database is not in UTF8\nHINT:  Write such characters as \\uXXXX/, 'what the worker could not read is refused');
	is(($node->psql('latin', "SELECT postbox.alter_credential('key', file => '$document')"))[0], 0, 'the superuser who calls may read files, if the owner of the extension may not');
	$node->safe_psql('latin', 'DROP EXTENSION postbox');
};

subtest 'that an identity cannot be used is told to those who use it' => sub {
	# An endpoint that asks for an identity, and a server whose environment has none.
	$node->safe_psql('postgres', q{SELECT postbox.alter_publication('videos', credential => 'key'); SELECT postbox.drop_publication('another'), postbox.drop_publication('evil')});
	$node->append_conf('postgresql.conf', qq{postbox.endpoint = 'https://127.0.0.1:9'});
	$node->reload;
	$node->safe_psql('postgres', q{
		SET ROLE mallory;
		SELECT postbox.create_publication('poor', 'evil.log', 'catalog.video.events');
		SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => 'evil.log')});
	my $broken = q{SELECT count(*) = 1 FROM postbox.publication_status WHERE publication = 'poor' AND last_error LIKE 'no usable Google credentials%'};
	wait_until($node, 'postgres', $broken, 'the status of its publication says so') or diag($node->safe_psql('postgres', 'SELECT s::text FROM postbox.publication_status s'));
	my $emit = q{SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => 'app.outbox')};
	is(($node->psql('postgres', $emit))[2], '', 'who emits into another outbox is not warned');
	$node->safe_psql('postgres', q{SELECT postbox.drop_publication('poor')});
	is(($node->psql('postgres', $emit))[2], '', 'nor when nobody uses it any more');
};

$node->stop;
done_testing();
