# Workers read their configuration again when a publication or an outbox of their database changes, and for nothing else.
#
# A worker logs at debug1 when it has read it. It does so before it publishes what was committed later. So when an event that
# was emitted afterwards is published, the log is complete.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $emulator = start_emulator('--topic', 'catalog.other.events');
my $node = new_node('main', emulator => $emulator,
	settings => { 'log_min_messages' => 'debug1', 'max_prepared_transactions' => 10, 'postbox.poll_interval' => '60s', 'postbox.maintenance_interval' => '1h' });
$node->start;
$node->safe_psql('postgres', 'CREATE DATABASE other');
create_outbox($node, $_) for 'postgres', 'other';

my %emitted = (postgres => 0, other => 0);
my %settled;    # databases whose worker has published an event after all that it had to read

sub publish_one
{
	my ($database) = @_;
	$node->safe_psql($database, q{SELECT postbox.outbox_emit('video', 'video-1', 'video.created', '{}'::jsonb, outbox => 'app.outbox')});
	wait_published($node, $database, ++$emitted{$database}, "an event of $database is published");
	return;
}

# How often the worker of a database reads its configuration because of `statements`, run one by one in `where`. Where this machine was too
# busy for a step of a worker, the end of the suspension is a reason, too.
sub reads
{
	my ($database, $where, @statements) = @_;
	publish_one($database) unless $settled{$database}++;
	my $position = log_position($node);
	$node->safe_psql($where, $_) for @statements;
	publish_one($database);
	my $pid = worker_pid($node, $database);
	my $log = log_since($node, $position);
	my ($reads, $suspensions) = (scalar(() = $log =~ /\[$pid\] .*DEBUG:  postbox: publications were read/g), scalar(() = $log =~ /is suspended: .*took longer than/g));
	return $reads > $suspensions ? $reads - $suspensions : 0;
}

sub changes_nothing { my ($what, @statements) = @_; is(reads('postgres', 'postgres', @statements), 0, $what); return; }
sub changes { my ($what, @statements) = @_; cmp_ok(reads('postgres', 'postgres', @statements), '>', 0, $what); return; }

subtest 'a DROP of what is not of Postbox changes nothing' => sub {
	changes_nothing('a temporary table', 'CREATE TEMP TABLE t (); DROP TABLE t');
	changes_nothing('a temporary table at the end of its session', 'CREATE TEMP TABLE t ()');
	changes_nothing('a table', 'CREATE TABLE app.t (id int PRIMARY KEY)', 'DROP TABLE app.t');
	changes_nothing('a function', 'CREATE FUNCTION app.f() RETURNS int LANGUAGE sql RETURN 1', 'DROP FUNCTION app.f');
	changes_nothing('a schema', 'CREATE SCHEMA s', 'CREATE TABLE s.t ()', 'DROP SCHEMA s CASCADE');
	changes_nothing('a role and what it owns', 'CREATE ROLE r', 'CREATE TABLE app.t (); ALTER TABLE app.t OWNER TO r', 'DROP OWNED BY r', 'DROP ROLE r');
};

subtest 'a statement that finds no row changes nothing' => sub {
	changes_nothing('UPDATE and DELETE', 'UPDATE postbox.publication SET lanes = 2 WHERE false', 'DELETE FROM postbox.outbox WHERE false');
};

subtest 'COMMIT PREPARED of a transaction that changed no configuration changes nothing' => sub {
	changes_nothing('a transaction that wrote a row', 'CREATE TABLE app.t ()', q{BEGIN; INSERT INTO app.t DEFAULT VALUES; PREPARE TRANSACTION 'p'}, q{COMMIT PREPARED 'p'}, 'DROP TABLE app.t');
	changes_nothing('one that altered a table', 'CREATE TABLE app.t ()', q{BEGIN; ALTER TABLE app.t ADD id int; PREPARE TRANSACTION 'p'}, q{COMMIT PREPARED 'p'}, 'DROP TABLE app.t');
	changes_nothing('ROLLBACK PREPARED of one that changed a publication', q{BEGIN; SELECT postbox.alter_publication('videos', max_attempts => 9); PREPARE TRANSACTION 'p'}, q{ROLLBACK PREPARED 'p'});
};

subtest 'an inbox is no matter of a worker' => sub {
	changes_nothing('create_inbox, drop_inbox', q{SELECT postbox.create_inbox('app.inbox')}, q{SELECT postbox.drop_inbox('app.inbox')});
};

subtest 'the configuration of another database is no matter of a worker' => sub {
	is(reads('postgres', 'other', q{SELECT postbox.alter_publication('videos', max_attempts => 9)}), 0, 'a publication there');
	cmp_ok(reads('other', 'other', q{SELECT postbox.alter_publication('videos', max_attempts => 8)}), '>', 0, 'the worker there reads it');
};

subtest 'a change of an outbox or publication is read, by whichever statement' => sub {
	changes('alter_publication', q{SELECT postbox.alter_publication('videos', max_attempts => 7)});
	changes('create_outbox and create_publication', q{SELECT postbox.create_outbox('app.more'); SELECT postbox.create_publication('more', 'app.more', 'catalog.other.events')});
	changes('drop_outbox', q{SELECT postbox.drop_outbox('app.more')});
	changes('DROP TABLE', q{SELECT postbox.create_outbox('app.more')}, 'DROP TABLE app.more');
	changes('TRUNCATE', q{BEGIN; CREATE TEMP TABLE saved AS TABLE postbox.publication; TRUNCATE postbox.publication; INSERT INTO postbox.publication SELECT * FROM saved; COMMIT});
};

subtest 'a prepared transaction that created a publication is picked up at its COMMIT PREPARED' => sub {
	$node->safe_psql('postgres', q{BEGIN; SELECT postbox.create_outbox('app.prepared', 'table'); SELECT postbox.create_publication('prepared', 'app.prepared', 'catalog.other.events');
		SELECT postbox.outbox_emit('video', 'p', 'video.created', '{}'::jsonb, outbox => 'app.prepared'); PREPARE TRANSACTION 'p'});
	is(reads('postgres', 'postgres', 'SELECT 1'), 0, 'not before');
	# Its messages are kept on disk with it.
	$node->restart;
	%settled = ();
	wait_workers($node, 'postgres', 1);
	changes('COMMIT PREPARED', q{COMMIT PREPARED 'p'});
	wait_until($node, 'postgres', 'SELECT count(*) = 1 AND count(*) = count(published_at) FROM app.prepared', 'its event is published');
	changes('COMMIT PREPARED of one that dropped the outbox', q{BEGIN; DROP TABLE app.prepared; PREPARE TRANSACTION 'p'}, q{COMMIT PREPARED 'p'});
};

$node->stop;
done_testing();
