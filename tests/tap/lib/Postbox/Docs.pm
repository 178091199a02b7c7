# The SQL of the documentation, of which control/run-tap puts a copy beside the tests: a test runs what users read.
package Postbox::Docs;

use strict;
use warnings;

use Exporter 'import';
use FindBin;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(sql_of);

# sql_of('docs/guides/clients.md', 'The tables'): the blocks of SQL of a section, in order, without those of the sections below it.
sub sql_of
{
	my ($document, $heading) = @_;
	my $text = slurp_file("$FindBin::RealBin/$document");
	my ($section) = $text =~ /^#+ \Q$heading\E\n(.*?)(?=^#+ |\z)/ms;
	my @blocks = ($section // '') =~ /^```sql(?: fragment)?\n(.*?)^```$/msg;
	BAIL_OUT("$document has no SQL in section $heading") unless @blocks;
	return @blocks;
}

1;
