# A line of the server log about an event has the fields of the event, for a program: in DETAIL, as text and as JSON.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use JSON::PP ();
use PostgreSQL::Test::Utils qw(slurp_file);
use Postbox::Test;
use Test::More;

use constant TRACE => '0af7651916cd43dd8448eb211c80319c';

my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, settings => { 'postbox.poll_interval' => '50ms' });
$node->start;
my $json = server_version($node) >= 15;
if ($json)
{
	$node->append_conf('postgresql.conf', "logging_collector = on\nlog_destination = 'jsonlog'\nlog_directory = 'log'\nlog_filename = 'server.log'");
	$node->restart;
}
create_outbox($node, 'postgres', kind => 'log');
$node->safe_psql('postgres', q{
	SELECT postbox.create_outbox('app.jobs', 'table');
	SELECT postbox.create_publication('jobs', 'app.jobs', 'catalog.video.events', max_attempts => 1);
	SELECT postbox.alter_publication('videos', max_attempts => 1);
});

# The DETAIL of the lines that match.
sub details
{
	my ($line) = @_;
	return log_since($node, 0) =~ /$line.*\n(?:.*DETAIL:  (.*)\n)?/g unless $json;
	my @rows = map { JSON::PP::decode_json($_) } grep { /^\{.*\}$/ } split /\n/, slurp_file(join '/', $node->data_dir, 'log', 'server.json');
	return map { $_->{detail} // '' } grep { $_->{message} =~ $line } @rows;
}

# As any program may take the pairs apart.
sub fields
{
	my ($detail) = @_;
	my %fields;
	while ($detail =~ /\G ?(\w+)=("(?:[^"\\]|\\.)*"|[^ "]+)/gc)
	{
		my ($name, $value) = ($1, $2);
		$fields{$name} = $value =~ /^"/ ? JSON::PP->new->allow_nonref->decode($value) : $value;
	}
	return \%fields;
}

emulator_fault($emulator, 'rpc=Publish,code=INVALID_ARGUMENT,attribute=event_type:video.bad');
for my $case ([ 'app.outbox', 'videos' ], [ 'app.jobs', 'jobs' ])
{
	my ($outbox, $publication) = @$case;
	my $parent = '00-' . TRACE . '-b7ad6b7169203331-01';
	my $id = $node->safe_psql('postgres', qq{
		SET postbox.traceparent = '$parent';
		SELECT event_id FROM postbox.outbox_emit('video', 'a "b" version=9', 'video.bad', '{}'::jsonb, version => 7, outbox => '$outbox')});
	my $line = qr/publication "$publication": event $id of key .* has failed permanently/;
	my @details;
	wait_for(sub { @details = details($line) }, "$publication: the log has the line");
	is_deeply(fields($details[0]), { event_id => $id, event_type => 'video.bad', aggregate_id => 'a "b" version=9', aggregate_type => 'video', version => 7, trace_id => TRACE },
		'with the fields of the event, and no value is taken for a field') or diag(explain(\@details));
	is(scalar(@details), 1, 'one line for one thing');
}

$node->stop;
done_testing();
