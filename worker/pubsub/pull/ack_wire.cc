#include "worker/pubsub/pull/ack_wire.h"

#include <cstdint>

#include "proto/rules/wire_size.h"

namespace postbox::pubsub {
namespace {

void AppendVarint(std::uint64_t value, std::string* out) {
  for (; value >= 0x80; value >>= 7) out->push_back(static_cast<char>(value | 0x80));
  out->push_back(static_cast<char>(value));
}

void AppendText(int field, std::string_view text, std::string* out) {
  out->push_back(static_cast<char>(field << 3 | 2));
  AppendVarint(text.size(), out);
  out->append(text);
}

}  // namespace

std::string EncodeAckRequest(std::string_view subscription, const AckRequest& request) {
  constexpr std::size_t kDeadlineBytes = 6;
  std::size_t bytes = FieldSize(subscription.size()) + kDeadlineBytes;
  for (const AckEntry& entry : request.entries) bytes += FieldSize(entry.ack_id.size());
  std::string out;
  out.reserve(bytes);
  AppendText(1, subscription, &out);
  if (request.deadline_seconds > 0) {
    out.push_back(3 << 3);
    AppendVarint(static_cast<std::uint64_t>(request.deadline_seconds), &out);
  }
  const int ids = request.is_ack() ? 2 : 4;
  for (const AckEntry& entry : request.entries) AppendText(ids, entry.ack_id, &out);
  return out;
}

}  // namespace postbox::pubsub
