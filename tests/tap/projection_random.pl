# Random projections and random events: each is taken or refused with a reason, the same in a batch and alone, and what is
# written is what Postgres itself makes of the JSON.
#
# A round is made of its seed alone. POSTBOX_FUZZ_SEED is the seed of the first round, POSTBOX_FUZZ_RUNS the number of rounds,
# POSTBOX_FUZZ_SECONDS how long there are more rounds (control/fuzz projection). The seed of what fails is printed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/lib";
use Postbox::Test;
use Test::More;

my $first = $ENV{POSTBOX_FUZZ_SEED} // 1;
my $runs = $ENV{POSTBOX_FUZZ_RUNS} // 100;
my $end = time + ($ENV{POSTBOX_FUZZ_SECONDS} // 0);

# Types of columns, each with values that it takes.
my %values = (
	'text' => ['"x"', '7', 'true', '{"a": 1}', '"\u00e9"', 'null'],
	'varchar(5)' => ['"x"', '"five5"', '12345', 'null'],
	'integer' => [ 0, -1, '"7"', '2147483647' ],
	'bigint' => [ 0, '"9223372036854775807"', -5 ],
	'numeric(6,2)' => [ '1.5', '"-0.005"', '9999.99', '1e2' ],
	'boolean' => [ 'true', '"f"', '"yes"', 'null' ],
	'timestamptz' => [ '"2024-02-29"', '"2025-10-24T10:30:00+02:00"', '"infinity"' ],
	'date' => [ '"2024-02-29"', '"4713-01-01 BC"' ],
	'uuid' => ['"6f1e2d3c-0000-4000-8000-000000000001"'],
	'jsonb' => [ '{"a": [1, null]}', '"x"', '1e5', 'true', 'null', '[]' ],
	'json' => [ '{"a": [1, null]}', '"x"', '1e5', 'null' ],
	'text[]' => [ '["a", null, "b,c"]', '[]', '[["a"], ["b"]]' ],
	'integer[]' => [ '[1, "2", null]', '[]' ],
	'bytea' => [ '"\\\\x00ff"', '"abc"' ],
	'inet' => ['"10.0.0.1/8"'],
	'point' => ['"(1,2)"'],
	'fuzz.small' => [ 7, '"99"', 'null' ],
	'fuzz.pair' => [ '{"a": 1, "b": "x"}', '{}', 'null' ],
	'fuzz.colour' => ['"red"'],
	'fuzz.document' => [ '{"a": 1}', '[1]' ],
	'int4range' => [ '"[1,5)"', '"empty"' ]);
my @types = sort keys %values;
my @scalars = ('null', 'true', 'false', '0', '-1', '7', '1.5', '1e5', '1e400', '9223372036854775808', '""', '"x"', '"7"', '"t"',
	'"longer than five"', '"2024-02-29"', '"2024-02-30"', '"infinity"', '"6f1e2d3c-0000-4000-8000-000000000001"', '"{1,2}"',
	'"[1,5)"', '"(1,2)"', '"10.0.0.1/8"', '"red"', '"\\\\x00ff"', '"\u00e9"', '"\ud83d\ude00"', '"\u0000"', '"\ud800"', '"{\"a\": 1}"');
my @names = ('c1', 'c2', 'c3', 'c4', 'c5', 'outer');

sub any { return $_[ int rand @_ ] }

sub random_json
{
	my ($depth) = @_;
	my $kind = rand;
	return any(@scalars) if $kind < 0.7 || $depth == 0;
	return '[' . join(',', map { random_json($depth - 1) } 1 .. int rand 4) . ']' if $kind < 0.85;
	return random_object($depth - 1);
}

sub random_object
{
	my ($depth) = @_;
	return '{' . join(',', map { '"' . any(@names, 'a', 'b') . '":' . random_json($depth) } 1 .. int rand 6) . '}';
}

# Mostly values that the columns take, else any JSON, sometimes with other bytes in it.
sub random_payload
{
	my ($types) = @_;
	if (rand() < 0.7)
	{
		return '{' . join(',', map { qq("$_":) . any(@{ $values{ $types->{$_} } }) } grep { rand() < 0.6 } sort keys %$types) . '}';
	}
	my $text = rand() < 0.95 ? random_object(2) : random_json(2);
	return $text if rand() < 0.9;
	for (1 .. 1 + int rand 3)
	{
		substr($text, int rand(1 + length $text), int rand 2, any('', '{', '"', "\xff", "\xc3", "\x00", '[[[[', ','));
	}
	return $text;
}

sub random_source
{
	return any('"c1"', '"outer"', '""', 'null', '7', '"$aggregate_id"', '"$version"', '"$payload"', '"$attributes"', '"$occurred_at"',
		'"$event_id"', '"$nothing"', '"$"', '{"path": ["outer", "a"]}', '{"path": ["outer", "outer", "b"]}', '{"path": []}',
		'{"path": [null]}', '{"path": "c1"}', '{"path": ["$version"]}', '{"path": ["a"], "more": 1}', '{}', '["c1"]');
}

sub random_mapping
{
	return 'NULL' if rand() < 0.5;
	return any(q{'[]'}, q{'null'}, q{'"c1"'}, q{'{}'}) if rand() < 0.1;
	my %mapping = map { $_ => random_source() } map { any(@names, 'id', 'version') } 1 .. int rand 5;
	return "'{" . join(',', map { qq("$_":$mapping{$_}) } sort keys %mapping) . "}'";
}

# A table's columns and its key, and the types of those that take JSON. A plain one is sure to fit a projection.
sub random_table
{
	my ($plain) = @_;
	my %of = map { $_ => any(@types) } @names[ 0 .. int rand 4 ];
	my @columns = map { "$_ $of{$_}" . (rand() < 0.1 ? any(' NOT NULL', ' DEFAULT NULL') : '') } sort keys %of;
	return (join(', ', 'id text PRIMARY KEY', @columns, 'version bigint NOT NULL'), \%of) if $plain;
	push @columns, 'id ' . any('text', 'integer', 'uuid', 'fuzz.document', 'bytea');
	push @columns, 'made ' . any(@types) . ' GENERATED ALWAYS AS (NULL) STORED' if rand() < 0.2;
	push @columns, 'version ' . any('bigint', 'bigint', 'bigint', 'integer', 'text') . any('', ' NOT NULL') if rand() < 0.9;
	push @columns, any('PRIMARY KEY (id)', 'PRIMARY KEY (id)', 'UNIQUE (id)', 'PRIMARY KEY (id, version)', 'CHECK (true)');
	return (join(', ', @columns), \%of);
}

sub random_event
{
	my ($seed, $number, $types) = @_;
	my $id = any("'a'", "'a'", "'7'", "'b$number'", "'b$number'", "'b$number'", "''", 'NULL', q{'"'}, "'6f1e2d3c-0000-4000-8000-000000000001'");
	my $version = any(1, 2, 3, $number, $number, '9223372036854775807', 0, -1, 'NULL');
	my $payload = rand() < 0.98 ? q{'\x} . unpack('H*', random_payload($types)) . q{'::bytea} : 'NULL';
	my $type = any("'t$seed'", "'t$seed'", "'t$seed'", "'t$seed'", "'t$seed'", "'d$seed'", "'other'");
	my $time = any('now()', "'-infinity'", "'4714-11-24 BC'", 'NULL');
	return "('e$seed.$number', $type, 'v', $id, $version, $payload, '{}', $time)::postbox.event";
}

sub round_of
{
	my ($seed) = @_;
	srand($seed);
	my $plain = rand() < 0.6;
	my ($table, $types) = random_table($plain);
	my $mapping = $plain && rand() < 0.7 ? 'NULL' : random_mapping();
	my $key = $plain ? 'NULL' : any('NULL', q{'{id}'}, q{'{version}'}, q{'{id,id}'}, q{'{c1}'}, q{'{}'}, q{'{NULL}'});
	my $deletes = $plain ? qq('{d$seed}') : any(q{'{}'}, qq{'{d$seed}'}, qq{'{t$seed}'}, q{'{NULL}'});
	my $events = join(",\n", map { random_event($seed, $_, $types) } 1 .. 8);
	return "SELECT fuzz.round($seed, \$table\$$table\$table\$, $mapping, $key, $deletes, ARRAY[$events]);\n";
}

my $node = new_node('main', settings => { 'postbox.publishers' => 0 });
$node->start;
$node->safe_psql('postgres', slurp("$FindBin::RealBin/lib/projection_random.sql"));

my ($done, $failures) = (0, '');
while (($done < $runs || time < $end) && $failures eq '')
{
	my $script = join('', map { round_of($first + $_) } $done .. $done + 24);
	my ($status, undef, $error) = $node->psql('postgres', $script, on_error_stop => 1);
	is($status, 0, 'rounds from seed ' . ($first + $done)) or diag($error) or last;
	$failures = $node->safe_psql('postgres', 'SELECT seed, what, detail FROM fuzz.failure ORDER BY seed');
	$done += 25;
}
is($failures, '', "every round from seed $first to " . ($first + $done - 1) . ' has an outcome that is right');
cmp_ok($node->safe_psql('postgres', "SELECT sum(applied) FROM fuzz.done"), '>', $done / 4, 'many events were applied');
cmp_ok($node->safe_psql('postgres', "SELECT sum(compared) FROM fuzz.done"), '>', $done / 4, 'many values were compared');
unlike(slurp($node->logfile), qr/PANIC|terminated by signal|server process .* was terminated/, 'no process crashed');

sub slurp
{
	my ($path) = @_;
	open(my $file, '<:raw', $path) or die "$path: $!";
	local $/;
	return scalar <$file>;
}

$node->stop;
done_testing();
