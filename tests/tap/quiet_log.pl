# What the server log has of Postbox: what belongs to the client only is not in it, and what goes on is one line with a count.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use POSIX ();
use Postbox::Test;
use Test::More;

# Between two lines on the same error there are 10 s first, of which postbox.time_scale makes two.
use constant { SCALE => 20, PAUSE => 2 };

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms', 'postbox.publish_timeout' => '10s', 'postbox.time_scale' => SCALE, 'log_min_messages' => 'warning' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');

subtest 'a name that does not follow the convention is a WARNING for the client only' => sub {
	my $position = log_position($node);
	my (undef, undef, $messages) = $node->psql('postgres', q{
		SELECT postbox.create_publication('odd', 'app.outbox', 'Odd_Topic', aggregate_types => '{odd}');
		SELECT postbox.alter_publication('odd', topic => 'Odder_Topic');
		SELECT postbox.drop_publication('odd');
		SELECT postbox.create_inbox('app.inbox');
		SELECT postbox.create_subscription('odd', 'app.inbox', 'Odd_Subscription');
		SET postbox.project_id = '';
		SELECT postbox.create_publication('none', 'app.outbox', 'catalog.video.events', aggregate_types => '{none}');
		SELECT postbox.drop_publication('none')});
	is(scalar(() = $messages =~ /WARNING:/g), 4, 'the client gets them') or diag($messages);
	like($messages, qr/WARNING:  postbox.project_id is not set/, 'also that there is no project');
	is(scalar(() = log_since($node, $position) =~ /WARNING/g), 0, 'the log has none') or diag(log_since($node, $position));
};

subtest 'a database whose sessions begin as another user is served, without a line' => sub {
	$node->safe_psql('postgres', 'CREATE DATABASE shop; CREATE ROLE guest');
	create_outbox($node, 'shop', kind => 'log');
	$node->safe_psql('postgres', 'ALTER DATABASE shop SET role = guest; ALTER DATABASE shop SET session_authorization = guest');
	wait_workers($node, 'shop', 1);
	my $old = worker_pid($node, 'shop');
	my $position = log_position($node);
	$node->safe_psql('postgres', "SELECT pg_terminate_backend($old)");
	wait_until($node, 'postgres', "SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'postbox publisher' AND datname = 'shop' AND pid <> $old", 'a worker has begun with that');
	my $superuser = $node->safe_psql('postgres', 'SELECT current_user');
	local $ENV{PGOPTIONS} = "-c role=none -c session_authorization=$superuser";
	is($node->safe_psql('shop', 'SELECT current_user'), $superuser, 'this session is its own');
	emit($node, 'shop', 5);
	wait_until($node, 'shop', 'SELECT pending = 0 FROM postbox.publication_status', 'all are published');
	unlike(undisturbed_log_since($node, $position), qr/WARNING|ERROR|LOG:/, 'the log has nothing');
	$node->safe_psql('postgres', 'ALTER DATABASE shop SET postbox.publishers = 0');
	wait_workers($node, 'shop', 0);
};

# The time of day of a line of the log.
sub seconds_of { my ($line) = @_; return $line =~ /^\S+ (\d+):(\d+):(\d+\.\d+) / ? ($1 * 60 + $2) * 60 + $3 : die "no time: $line"; }

# Each attempt fails, with one of two errors in turn.
subtest 'a failure that goes on has a few lines with their count, and another one in between is not lost' => sub {
	my $position = log_position($node);
	$node->safe_psql('postgres', q{
		SELECT postbox.create_outbox('app.jobs', 'table');
		CREATE SEQUENCE app.tries;
		CREATE FUNCTION app.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			RAISE EXCEPTION USING MESSAGE = CASE WHEN nextval('app.tries') % 2 = 0 THEN 'even try ' ELSE 'odd try ' END || currval('app.tries');
		END $$;
		CREATE TRIGGER refuse BEFORE UPDATE ON app.jobs FOR EACH STATEMENT EXECUTE FUNCTION app.refuse();
		SELECT postbox.create_publication('jobs', 'app.jobs', 'catalog.video.events');
		SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => 'app.jobs');
	});
	# An administrator tries it again and again.
	my $tries = 0;
	my $session = $node->background_psql('postgres');
	wait_for(sub {
		$session->query_safe(q{UPDATE postbox.publication_state SET next_retry_at = now() WHERE publication = 'jobs' AND next_retry_at > now(); SELECT postbox.alter_publication('jobs', max_attempts => 5 + (random() * 5)::int)});
		$tries = $session->query_safe('SELECT last_value FROM app.tries');
		return $tries > 10 && log_since($node, $position) =~ /is suspended: even try.*\n.*DETAIL:  This was repeated/;
	}, 'it has failed for a while, and a line has the number of those that have none');
	$session->quit;
	my $log = log_since($node, $position);
	my %lines;
	push @{ $lines{$2} }, $1 while $log =~ /^(.*WARNING:  publication "jobs" is suspended: (odd|even) try.*)$/mg;
	is(join(' ', sort keys %lines), 'even odd', 'each of the errors has a line');
	# However late a try comes: after a line on an error there is none on it for a pause. One may be written late.
	my @gaps = map { my @at = map { seconds_of($_) } @$_; map { POSIX::fmod($at[$_] - $at[ $_ - 1 ] + 86400, 86400) } 1 .. $#at } values %lines;
	is_deeply([ grep { $_ < PAUSE / 2 } @gaps ], [], 'and none again for a pause') or diag($log);
	is_deeply([ grep { $_ < PAUSE } $log =~ /This was repeated \d+ times? in the last (\d+) s\./g ], [], 'which is what the number is about');
	my $written = map { @$_ } values %lines;
	cmp_ok($written, '<', $tries, "$written of $tries tries have a line") or diag($log);
};

subtest 'gRPC does not write into the log by itself' => sub {
	my $position = log_position($node);
	$node->append_conf('postgresql.conf', "postbox.endpoint = ''");
	$node->reload;
	$node->safe_psql('postgres', q{SELECT postbox.outbox_emit('video', 'v', 'video.created', '{}'::jsonb, outbox => 'app.outbox')});
	wait_for(sub { log_since($node, $position) =~ /publication "videos" is suspended: no usable Google credentials/ }, 'the worker says what is wrong');
	unlike(log_since($node, $position), qr/^[EIW]\d{4} /m, 'gRPC says nothing');
};

$node->stop;
done_testing();
