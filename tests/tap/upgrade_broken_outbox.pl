# The update from 0.1 changes tables of users. What the owner of one outbox has made of his keeps nobody else from the update: a
# WARNING names it, and its publication is broken until it is repaired.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use PostgreSQL::Test::Utils;
use Postbox::Delivery;
use Postbox::Test;
use Test::More;

my $installation = own_installation();
system_or_bail('cp', "$ENV{POSTBOX_BUILD_DIR}/released/postbox--0.1.sql", $installation->{scripts});
my $emulator = start_emulator();
my $node = new_node('main', emulator => $emulator, install_path => $installation->{path}, settings => { 'postbox.publishers' => 1, 'postbox.poll_interval' => '50ms' });
$node->start;
$node->safe_psql('postgres', q{
	CREATE EXTENSION postbox VERSION '0.1';
	CREATE ROLE owner;
	CREATE SCHEMA app AUTHORIZATION owner;
	GRANT EXECUTE ON FUNCTION postbox.create_publication TO owner;
	SET ROLE owner;
	SELECT postbox.create_outbox('app.named'), postbox.create_outbox('app.parked'), postbox.create_outbox('app.good');
	SELECT postbox.create_publication(n, 'app.' || n, 'catalog.video.events') FROM unnest('{named,parked,good}'::text[]) n;
	SELECT postbox.outbox_emit('video', '1', 'video.created', '{}', outbox => o::regclass) FROM unnest('{app.named,app.good}'::text[]) o;
	ALTER TABLE app.named ADD COLUMN origin text DEFAULT 'web';
	ALTER TABLE app.parked_parked RENAME COLUMN publish_attempts TO tries;
});
# A table with the indexes of 0.1, beside others that have the names of those that it needs now.
$node->safe_psql('postgres', q{
	SET ROLE owner;
	SELECT postbox.create_outbox('app.jobs', 'table');
	DROP INDEX app.jobs_claim, app.jobs_retry;
	CREATE INDEX jobs_free ON app.jobs (seq) WHERE published_at IS NULL AND lock_token IS NULL AND next_retry_at IS NULL;
	CREATE INDEX jobs_later ON app.jobs (next_retry_at) WHERE published_at IS NULL AND lock_token IS NULL AND next_retry_at IS NOT NULL;
	CREATE INDEX jobs_lease ON app.jobs (locked_at) WHERE lock_token IS NOT NULL;
	CREATE TABLE app.jobs_claim ();
	CREATE INDEX jobs_retry ON app.jobs (version);
	CREATE INDEX jobs_brin ON app.jobs USING brin (seq) WHERE published_at IS NULL AND next_retry_at IS NULL;
});

my ($code, $stdout, $stderr) = $node->psql('postgres', 'SET quote_all_identifiers = on; ALTER EXTENSION postbox UPDATE');
is($code, 0, 'the extension is updated') or diag($stderr);
like($stderr, qr/WARNING:  outbox app\.named is not complete\nDETAIL:  column "origin" of relation "named" already exists\nHINT:  /, 'a WARNING names an outbox with a column of that name');
like($stderr, qr/WARNING:  outbox app\.parked is not complete\nDETAIL:  column "publish_attempts" does not exist\nHINT:  /, 'and one whose table of parked events has been altered');
is(() = $stderr =~ /WARNING:  outbox/g, 2, 'and no other');

is($node->safe_psql('postgres', q{SELECT string_agg(pg_get_indexdef(i.indexrelid, 1, true) || pg_get_expr(i.indpred, i.indrelid), ', ' ORDER BY i.indexrelid) FROM pg_index i
	WHERE i.indrelid = 'app.jobs'::regclass AND pg_get_expr(i.indpred, i.indrelid) LIKE '%AND%' AND i.indexrelid <> 'app.jobs_brin'::regclass}),
	'seq((published_at IS NULL) AND (next_retry_at IS NULL)), next_retry_at((published_at IS NULL) AND (next_retry_at IS NOT NULL))',
	'a table has the indexes that it needs now, though others have their names, and those of 0.1 no more');
sub problems { return $node->safe_psql('postgres', q{SELECT outbox, problem FROM postbox.outbox_status WHERE problem IS NOT NULL ORDER BY outbox::text}); }
is(problems(), qq{app.named|column "origin" of app.named has type text instead of integer; change its type back\n}
	. q{app.parked|column "publish_attempts" of app.parked_parked does not exist; rename it back or add it again}, 'the status says what is the matter');
wait_for(sub { messages_published($emulator) == 1 }, 'the events of the others are published');

# As the hints say.
$node->safe_psql('postgres', 'ALTER TABLE app.named RENAME COLUMN origin TO source');
$node->safe_psql('postgres', 'ALTER TABLE app.parked_parked RENAME COLUMN tries TO publish_attempts');
$node->safe_psql('postgres', $_) for $stderr =~ /run (CREATE INDEX .*)$/gm, $stderr =~ /^HINT:  Run (SELECT .*)\.$/gm;
wait_for(sub { messages_published($emulator) == 2 }, 'those of a repaired one, too');
is(problems(), '', 'and nothing is the matter any more');
is($node->safe_psql('postgres', q{SELECT count(*) FROM pg_class WHERE relname LIKE '%_parked_due'}), '3', 'each has its index of parked events');

$node->stop;
done_testing();
