# Sessions that write until they are told to stop, whatever happens to the server meanwhile: { run, output => file, stop => file }.
package Postbox::Load;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(start_load stop_load end_prepared);

my $loads = 0;

# Scripts of pgbench by name. Options: user; clients; rate, in transactions a second; seconds. A session that was ended comes back
# within so many, two if nothing is said, with all the others.
sub start_load
{
	my ($node, $database, $scripts, %options) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir() . '/load' . ++$loads;
	mkdir $folder;
	append_to_file("$folder/$_.sql", $scripts->{$_}) for keys %$scripts;
	my $load = { stop => "$folder/stop", output => "$folder/output" };
	$load->{run} = IPC::Run::start(
		[ 'sh', '-c', 'stop=$1; shift; while [ ! -e "$stop" ]; do "$@"; [ $? = 0 ] || sleep 0.1; done', 'load', $load->{stop},
			'pgbench', '-n', '-c', $options{clients} // 6, '-j', '1', '-T', $options{seconds} // 2, '-R', $options{rate} // 100, '-U', $options{user} // 'postgres',
			(map { ('-f', "$folder/$_.sql") } sort keys %$scripts), '-h', $node->host, '-p', $node->port, $database ],
		'<', \undef, '>', $load->{output}, '2>&1');
	return $load;
}

sub stop_load
{
	my ($load) = @_;
	append_to_file($load->{stop}, '');
	$load->{run}->finish;
	return;
}

# Prepared transactions survive the session and the server that made them, with their locks. Whoever made one may be about to end it, too.
sub end_prepared
{
	my ($node, $database) = @_;
	$node->psql($database, "COMMIT PREPARED '$_'")
	  for split /\n/, $node->safe_psql($database, 'SELECT gid FROM pg_prepared_xacts WHERE database = current_database()');
	return;
}

1;
