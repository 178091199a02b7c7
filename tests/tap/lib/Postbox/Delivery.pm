# What the TAP tests of publishing share: what the broker took, in which order it went out, and the state
# of the rows of an outbox.
package Postbox::Delivery;

use strict;
use warnings;

use Exporter 'import';
use Postbox::Test;
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(counted messages_published follow states);

my $looked_at = 0;

# What the emulator counts. A look starts a process, which costs a tenth of a second of a processor: so there are not more than
# five in a second.
sub stats
{
	my ($emulator) = @_;
	my $left = $looked_at + 0.2 - Time::HiRes::time();
	Time::HiRes::sleep($left) if $left > 0;
	$looked_at = Time::HiRes::time();
	return `$ENV{POSTBOX} emulator-fault --endpoint $emulator->{address} --stats`;
}

# How many messages the emulator has taken since it started.
sub messages_published
{
	my ($emulator) = @_;
	return stats($emulator) =~ /messages_?published"?\s*:\s*"?(\d+)/i ? $1 : 0;
}

# A counter of the emulator's: the sum of all of that name.
sub counted
{
	my ($emulator, $name) = @_;
	my $stats = stats($emulator);
	my $sum = 0;
	$sum += $1 while $stats =~ /"$name"\s*:\s*"?(\d+)/g;
	return $sum;
}

# Makes app.inbox in the database, fed by the subscription, whose handler notes every event in app.seen:
# the column `n` is the order in which they came.
sub follow
{
	my ($node, $database, $subscription, @types) = @_;
	my $types = join(', ', map { "'$_'" } @types);
	$node->safe_psql(
		$database, qq{
		CREATE TABLE app.seen (n bigserial PRIMARY KEY, aggregate_id text, version bigint);
		CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql
			AS 'INSERT INTO app.seen (aggregate_id, version) VALUES (event.aggregate_id, event.version)';
		SELECT postbox.create_inbox('app.inbox');
		SELECT postbox.create_subscription('follower', 'app.inbox', '$subscription');
		SELECT postbox.create_handler('app.inbox', ARRAY[$types], 'app.note(postbox.event)');
	});
	return;
}

# The states of a key's rows in the order of the key, for example 'published failed behind'.
sub states
{
	my ($node, $database, $key, $table) = @_;
	$table //= 'app.outbox';
	return $node->safe_psql(
		$database, qq{
		SELECT string_agg(CASE WHEN published_at = '-infinity' THEN 'discarded'
			WHEN published_at IS NOT NULL THEN 'published'
			WHEN lock_token IS NOT NULL THEN 'inflight'
			WHEN next_retry_at IS NULL THEN 'pending'
			WHEN publish_attempts = 0 THEN 'behind'
			WHEN next_retry_at = 'infinity' THEN 'failed'
			ELSE 'retry' END, ' ' ORDER BY seq)
		FROM $table WHERE aggregate_id = '$key'
	});
}

1;
