# A call of gRPC without a process for it: to start `postbox emulator-fault` costs a tenth of a second of a processor, and tests
# ask the emulator again and again. HTTP/2 as far as a small request needs it, in plain text, over a connection of its own.
package Postbox::Grpc;

use strict;
use warnings;

use Exporter 'import';
use IO::Select;
use IO::Socket::INET;
use Time::HiRes qw(time);

our @EXPORT = qw(grpc_call protobuf_fields protobuf_number protobuf_text);

use constant { DATA => 0, HEADERS => 1, SETTINGS => 4, PING => 6, GOAWAY => 7 };    # types of frames
use constant { ACK => 1, END_STREAM => 1, END_HEADERS => 4 };    # flags
use constant PATIENCE => 20;    # seconds

# The answer of `method` ('package.Service/Method') to the request, or undef if there is none.
sub grpc_call
{
	my ($address, $method, $request) = @_;
	local $SIG{PIPE} = 'IGNORE';
	my $socket = IO::Socket::INET->new(PeerAddr => $address, Timeout => PATIENCE) or return;
	# What HPACK says of each: an entry of its static table, or a name of it and a value.
	my $headers = "\x83\x86\x04" . counted_text("/$method") . "\x01" . counted_text($address) . "\x0f\x10" . counted_text('application/grpc')
	  . "\x00" . counted_text('te') . counted_text('trailers');
	syswrite($socket, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" . frame(SETTINGS, 0, 0, '') . frame(HEADERS, END_HEADERS, 1, $headers)
		  . frame(DATA, END_STREAM, 1, pack('CN', 0, length $request) . $request));
	my $answer = answer_of($socket, time + PATIENCE);
	close($socket);
	return unless defined $answer && length($answer) >= 5 && length($answer) == 5 + unpack('x N', $answer);
	return substr($answer, 5);
}

# All data of the stream.
sub answer_of
{
	my ($socket, $end) = @_;
	my ($buffer, $data) = ('', '');
	while (1)
	{
		while (length($buffer) >= 9)
		{
			my ($high, $low, $type, $flags, $stream) = unpack('C n C C N', $buffer);
			my $length = ($high << 16) + $low;
			last if length($buffer) < 9 + $length;
			my $payload = substr($buffer, 9, $length);
			substr($buffer, 0, 9 + $length) = '';
			return if $type == GOAWAY;
			syswrite($socket, frame($type, ACK, 0, $type == PING ? $payload : '')) if ($type == SETTINGS || $type == PING) && !($flags & ACK);
			$data .= $payload if $type == DATA;
			return $data if ($type == DATA || $type == HEADERS) && $flags & END_STREAM;
		}
		my $left = $end - time;
		return unless $left > 0 && IO::Select->new($socket)->can_read($left) && sysread($socket, $buffer, 65536, length $buffer);
	}
	return;
}

sub frame { my ($type, $flags, $stream, $payload) = @_; return pack('C n C C N', length($payload) >> 16, length($payload) & 0xffff, $type, $flags, $stream) . $payload; }
sub counted_text { my ($text) = @_; return chr(length $text) . $text; }

# A field of a message of protobuf.
sub protobuf_number { my ($number, $value) = @_; return varint($number << 3) . varint($value); }
sub protobuf_text { my ($number, $value) = @_; return varint($number << 3 | 2) . varint(length $value) . $value; }
sub varint { my ($value) = @_; return $value < 128 ? chr $value : chr($value & 127 | 128) . varint($value >> 7); }

# The fields of a message of protobuf: [number, value], where the value is a number, or bytes.
sub protobuf_fields
{
	my ($bytes) = @_;
	my @fields;
	while (length $bytes)
	{
		my $key = take_varint(\$bytes);
		my $value = take_varint(\$bytes);
		die("field of an unknown kind: $key") unless ($key & 7) == 0 || ($key & 7) == 2;
		$value = substr($bytes, 0, $value, '') if ($key & 7) == 2;
		push @fields, [ $key >> 3, $value ];
	}
	return @fields;
}

sub take_varint
{
	my ($bytes) = @_;
	my ($value, $shift) = (0, 0);
	while (length $$bytes)
	{
		my $byte = ord(substr($$bytes, 0, 1, ''));
		$value |= ($byte & 127) << $shift;
		return $value if $byte < 128;
		$shift += 7;
	}
	die('a number without an end');
}

1;
