# What the TAP tests of publishing share: what the broker took, in which order it went out, and the state
# of the rows of an outbox.
package Postbox::Delivery;

use strict;
use warnings;

use Exporter 'import';
use List::Util ();
use Postbox::Grpc;
use Postbox::Test;
use Test::More;

our @EXPORT = qw(all_acknowledged calls_of counted messages_published sent_once taken_from follow states states_query wait_reported);

# StatsResponse of proto/postbox/emulator/v1/faults.proto: numbers of fields.
my %of_all = (3 => 'messages_published', 4 => 'faults_fired', 5 => 'faults_waiting');
my %of_rpc = (1 => 'name', 2 => 'calls', 3 => 'errors');
my %of_subscription = (1 => 'name', 2 => 'backlog', 3 => 'outstanding', 4 => 'delivered', 5 => 'redelivered', 6 => 'acked', 7 => 'nacked', 8 => 'expired', 9 => 'dead_lettered', 10 => 'streams');

# What the emulator counts: [name of a counter, its value], those of RPCs and subscriptions among them. undef if it does not answer; one that has done
# nothing yet has no counters.
sub stats
{
	my ($emulator) = @_;
	my $response = grpc_call($emulator->{address}, 'postbox.emulator.v1.Faults/Stats', '');
	return defined $response ? [ map {
		my ($number, $value) = @$_;
		my $names = $number == 1 ? \%of_rpc : $number == 2 ? \%of_subscription : undef;
		$names ? map { [ $names->{ $_->[0] }, $_->[1] ] } protobuf_fields($value) : [ $of_all{$number}, $value ];
	} protobuf_fields($response) ] : undef;
}

# A counter of the emulator's: the sum of all of that name; undef if it does not answer, which is no number of messages.
sub counted
{
	my ($emulator, $name) = @_;
	my $stats = stats($emulator);
	return $stats ? List::Util::sum0(map { $_->[1] } grep { $_->[0] eq $name } @$stats) : undef;
}

# Whether every message of the subscriptions is acknowledged, at one moment: a message that is given back waits before it is outstanding again.
sub all_acknowledged
{
	my ($emulator) = @_;
	my $stats = stats($emulator);
	return $stats && List::Util::none { $_->[0] =~ /^(backlog|outstanding)$/ && $_->[1] > 0 } @$stats;
}

# How many messages the emulator has taken since it started.
sub messages_published { my ($emulator) = @_; return counted($emulator, 'messages_published'); }

# The emulator has taken that many messages, so none twice but for `again`; more only if the log of the server says why. Returns how
# many it has taken.
sub sent_once
{
	my ($emulator, $node, $expected, $what, $again) = @_;
	my $sent = messages_published($emulator);
	my $most = $expected + ($again // 0);
	ok($sent >= $expected && ($sent <= $most || disturbed($node)), $what) or diag("$sent messages, not $expected to $most");
	return $sent;
}

# Takes what is in a subscription, and acknowledges it: [id, key, version] of each event, in the order of arrival.
sub taken_from
{
	my ($emulator, $subscription) = @_;
	my @taken;
	# A pull of nothing would wait. A hundred messages fit into the window of HTTP/2, and few large ones.
	while ((counted($emulator, 'backlog') // 0) > 0)
	{
		my $response = grpc_call($emulator->{address}, 'google.pubsub.v1.Subscriber/Pull', protobuf_text(1, $subscription) . protobuf_number(3, 100));
		my $done = protobuf_text(1, $subscription);
		for my $received (map { $_->[1] } protobuf_fields($response // ''))
		{
			my %part = map { @$_ } protobuf_fields($received);
			$done .= protobuf_text(2, $part{1});
			my %attribute;
			for my $pair (map { $_->[1] } grep { $_->[0] == 2 } protobuf_fields($part{2}))
			{
				my %of = map { @$_ } protobuf_fields($pair);
				$attribute{ $of{1} } = $of{2};
			}
			push @taken, [ @attribute{qw(event_id aggregate_id version)} ];
		}
		grpc_call($emulator->{address}, 'google.pubsub.v1.Subscriber/Acknowledge', $done);
	}
	return @taken;
}

# How often an RPC was called; undef if the emulator does not answer.
sub calls_of
{
	my ($emulator, $rpc) = @_;
	my $stats = stats($emulator);
	my $name = '';
	for my $field (@{ $stats // [] })
	{
		$name = $field->[1] if $field->[0] eq 'name';
		return $field->[1] if $field->[0] eq 'calls' && $name eq $rpc;
	}
	return $stats ? 0 : undef;
}

# Makes app.inbox in the database, fed by the subscription, whose handler notes every event in app.seen:
# the column `n` is the order in which they came. After the types may come options of the subscription, { name => value }: many
# events cost less when they come in larger batches.
sub follow
{
	my ($node, $database, $subscription, @types) = @_;
	my %options = ref $types[-1] ? %{ pop @types } : ();
	my $more = join '', map { ", $_ => '$options{$_}'" } sort keys %options;
	my $types = join(', ', map { "'$_'" } @types);
	$node->safe_psql(
		$database, qq{
		CREATE TABLE app.seen (n bigserial PRIMARY KEY, aggregate_id text, version bigint);
		CREATE FUNCTION app.note(event postbox.event) RETURNS void LANGUAGE sql
			AS 'INSERT INTO app.seen (aggregate_id, version) VALUES (event.aggregate_id, event.version)';
		SELECT postbox.create_inbox('app.inbox');
		SELECT postbox.create_subscription('follower', 'app.inbox', '$subscription'$more);
		SELECT postbox.create_handler('app.inbox', ARRAY[$types], 'app.note(postbox.event)');
	});
	return;
}

# Waits until the statistics have all that the workers have read. One reports it when it has done nothing for a tenth of a second, so none
# may poll more often than every second.
sub wait_reported
{
	my ($node) = @_;
	return wait_until($node, 'postgres', q{SELECT bool_and(state = 'idle' AND state_change < clock_timestamp() - interval '0.6 s')
		FROM pg_stat_activity WHERE backend_type = 'postbox publisher'}, 'the workers have reported what they read');
}

# The states of a key's rows in the order of the key, for example 'published failed behind'.
sub states
{
	my ($node, $database, $key, $table) = @_;
	return $node->safe_psql($database, states_query($key, $table));
}

sub states_query
{
	my ($key, $table) = @_;
	$table //= 'app.outbox';
	return qq{
		SELECT string_agg(CASE WHEN published_at = '-infinity' THEN 'discarded'
			WHEN published_at IS NOT NULL THEN 'published'
			WHEN lock_token IS NOT NULL THEN 'inflight'
			WHEN next_retry_at IS NULL THEN 'pending'
			WHEN publish_attempts = 0 THEN 'behind'
			WHEN next_retry_at = 'infinity' THEN 'failed'
			ELSE 'retry' END, ' ' ORDER BY seq)
		FROM $table WHERE aggregate_id = '$key'
	};
}

1;
