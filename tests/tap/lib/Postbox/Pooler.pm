# PgBouncer before a server: { run, output, dsn }. `dsn` lacks only the name of the database, which may be `postgres` or,
# for its console, `pgbouncer`.
package Postbox::Pooler;

use strict;
use warnings;

use Exporter 'import';
use IPC::Run ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Postbox::Test;
use Test::More;

our @EXPORT = qw(has_pooler start_pooler stop_pooler);

my ($pgbouncer) = grep { -x } '/usr/sbin/pgbouncer', map { "$_/pgbouncer" } split(/:/, $ENV{PATH});

sub has_pooler { return defined $pgbouncer; }

# Options: user, pool_mode, pool_size.
sub start_pooler
{
	my ($node, %options) = @_;
	my $port = PostgreSQL::Test::Cluster::get_free_port();
	my $address = own_address();
	my $pooler = { output => '', dsn => "host=$address port=$port user=$options{user} dbname=" };
	my $folder = PostgreSQL::Test::Utils::tempdir();
	append_to_file("$folder/users", qq{"$options{user}" ""\n});
	append_to_file(
		"$folder/pgbouncer.ini", qq{
[databases]
postgres = host=@{[$node->host]} port=@{[$node->port]} dbname=postgres
[pgbouncer]
listen_addr = $address
listen_port = $port
unix_socket_dir =
auth_type = trust
auth_file = $folder/users
admin_users = $options{user}
pool_mode = $options{pool_mode}
default_pool_size = $options{pool_size}
logfile = $folder/log
});
	$pooler->{run} = IPC::Run::start([ $pgbouncer, "$folder/pgbouncer.ini" ], '<', \undef, '>&', \$pooler->{output});
	wait_for(sub { return system_log('psql', '-XAtq', '-c', 'SHOW VERSION', "$pooler->{dsn}pgbouncer") == 0 }, 'the pooler answers') or diag($pooler->{output});
	return $pooler;
}

sub stop_pooler
{
	my ($pooler) = @_;
	$pooler->{run}->signal('INT');
	$pooler->{run}->finish;
	return;
}

1;
