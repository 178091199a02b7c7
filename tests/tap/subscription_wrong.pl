# A row of postbox.subscription that is wrong, as a restore or a person may leave it, stops its own subscription only.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Delivery;
use Postbox::Puller;
use Postbox::Test;
use Test::More;

my $emulator = start_emulator(
	'--subscription', 'catalog.video.events.test-follower=catalog.video.events,ordered',
	'--subscription', 'catalog.video.events.test-other=catalog.video.events,ordered');
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
create_outbox($node, 'postgres', kind => 'log');
follow($node, 'postgres', 'catalog.video.events.test-follower', 'video.created');
$node->safe_psql(
	'postgres', q{
	CREATE TABLE app.other_seen (aggregate_id text, version bigint);
	CREATE FUNCTION app.note_other(event postbox.event) RETURNS void LANGUAGE sql
		AS 'INSERT INTO app.other_seen VALUES (event.aggregate_id, event.version)';
	SELECT postbox.create_inbox('app.other_inbox');
	SELECT postbox.create_subscription('other', 'app.other_inbox', 'catalog.video.events.test-other');
	SELECT postbox.create_handler('app.other_inbox', '{video.created}', 'app.note_other(postbox.event)');
	ALTER TABLE postbox.subscription DROP CONSTRAINT subscription_on_error_check;
	UPDATE postbox.subscription SET subscription = 'no/such name' WHERE name = 'other';
});
my $puller = start_puller($node, 'postgres', $emulator);
my $emitted = 0;

sub follows
{
	my ($what) = @_;
	emit($node, 'postgres', 10);
	$emitted += 10;
	return wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.seen", $what);
}

# What the puller has said about the subscription `other`.
sub said
{
	$puller->{run}->pump_nb;
	return grep { /could not be started/ && /other/ } split(/\n/, $puller->{output});
}

# Sets columns of the row and waits until the puller has said what is wrong.
sub wrong
{
	my ($change, $reason, $what) = @_;
	$node->safe_psql('postgres', "UPDATE postbox.subscription SET $change WHERE name = 'other'");
	$puller->{run}->signal('HUP');
	wait_for(sub { return scalar grep { /$reason/ } said() }, "the log says: $what");
	return;
}

follows('the other subscription runs beside a row whose name is wrong');
wait_for(sub { return said() == 1 }, 'the log names the subscription');
like((said())[0], qr{no/such name}, 'and says what is wrong');

wrong(q{subscription = 'catalog.video.events.test-other', batch_size = -1}, 'batch_size must be between 1 and 10000, not -1', 'a negative number');
wrong(q{batch_size = 500, batch_delay = '-1 day'}, 'batch_delay', 'a negative time');
wrong(q{batch_delay = '5ms', min_backoff = '9 min', max_backoff = '1 min'}, 'max_backoff is less than min_backoff', 'a range without room');
wrong(q{min_backoff = '1s', on_error = 'ignore'}, 'unknown on_error', 'an unknown policy');
wrong(q{on_error = 'reject', inbox = 'pg_class'}, 'its inbox pg_class does not exist', 'a table that is no inbox');
wrong(q{inbox = 4000000000}, 'its inbox 4000000000 does not exist', 'an inbox that is gone');
$puller->{run}->signal('HUP');
follows('the other subscription still runs');
is(scalar(said()), 7, 'each was logged once');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.other_seen'), '0', 'the wrong one took nothing');

$node->safe_psql('postgres', q{UPDATE postbox.subscription SET inbox = 'app.other_inbox' WHERE name = 'other'});
$puller->{run}->signal('HUP');
wait_until($node, 'postgres', "SELECT count(*) = $emitted FROM app.other_seen", 'repaired, it starts and takes everything');

# One that runs is stopped when its row becomes wrong.
wrong(q{appliers = 0}, 'appliers must be between 1 and 64, not 0', 'a number that is too small, of one that runs');
wait_for(sub { $puller->{run}->pump_nb; return $puller->{output} =~ /subscription stopped.*other/ }, 'it is stopped');
follows('and the other one runs');
is($node->safe_psql('postgres', 'SELECT count(*) FROM app.other_seen'), $emitted - 10, 'alone');

stop_puller($puller);
$node->stop;
done_testing();
