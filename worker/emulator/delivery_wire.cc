#include "worker/emulator/delivery_wire.h"

#include <google/protobuf/io/coded_stream.h>
#include <grpcpp/support/slice.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>

#include "worker/emulator/subscription/ack_id.h"

namespace postbox::emulator {
namespace {

using google::protobuf::io::CodedOutputStream;

constexpr char kReceived = 1 << 3 | 2;
constexpr char kAckId = 1 << 3 | 2;
constexpr char kMessage = 2 << 3 | 2;
constexpr char kAttempt = 3 << 3;

// Of a field with a length.
size_t FieldSize(size_t length) { return 1 + CodedOutputStream::VarintSize64(length) + length; }

size_t ReceivedSize(const LeasedMessage& delivery) {
  const auto attempt = static_cast<size_t>(delivery.delivery_attempt);
  return FieldSize(kAckIdLength) + FieldSize(delivery.message->wire.size()) +
         (attempt == 0 ? 0 : 1 + CodedOutputStream::VarintSize64(attempt));
}

char* WriteNumber(char tag, size_t value, char* out) {
  *out++ = tag;
  auto* const number = reinterpret_cast<uint8_t*>(out);
  return out + (CodedOutputStream::WriteVarint64ToArray(value, number) - number);
}

char* Write(const LeasedMessage& delivery, char* out) {
  const std::string& wire = delivery.message->wire;
  out = WriteNumber(kReceived, ReceivedSize(delivery), out);
  out = WriteAckId(delivery.ack_id, WriteNumber(kAckId, kAckIdLength, out));
  out = std::copy(wire.begin(), wire.end(), WriteNumber(kMessage, wire.size(), out));
  if (delivery.delivery_attempt == 0) return out;
  return WriteNumber(kAttempt, static_cast<size_t>(delivery.delivery_attempt), out);
}

}  // namespace

grpc::ByteBuffer EncodeDeliveries(const std::vector<LeasedMessage>& deliveries,
                                  const google::pubsub::v1::StreamingPullResponse& others) {
  const std::string rest = others.SerializeAsString();
  size_t bytes = rest.size();
  for (const LeasedMessage& delivery : deliveries) bytes += FieldSize(ReceivedSize(delivery));
  grpc::Slice slice(bytes);
  // The slice is new, and nothing else refers to it.
  char* out = reinterpret_cast<char*>(const_cast<uint8_t*>(slice.begin()));
  for (const LeasedMessage& delivery : deliveries) out = Write(delivery, out);
  std::copy(rest.begin(), rest.end(), out);
  return grpc::ByteBuffer(&slice, 1);
}

}  // namespace postbox::emulator
