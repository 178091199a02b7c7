#include "worker/emulator/ack_id.h"

#include <cstddef>

namespace postbox::emulator {
namespace {

constexpr size_t kDigits = 16;
constexpr size_t kLength = 188;  // ack ids of the service were seen with 184 characters and more
constexpr char kHex[] = "0123456789abcdef";

void Append(uint64_t value, std::string* text) {
  for (int shift = 60; shift >= 0; shift -= 4) text->push_back(kHex[(value >> shift) & 15]);
}

bool Read(absl::string_view text, uint64_t* value) {
  *value = 0;
  for (const char c : text) {
    if (c >= '0' && c <= '9') {
      *value = *value << 4 | static_cast<uint64_t>(c - '0');
    } else if (c >= 'a' && c <= 'f') {
      *value = *value << 4 | static_cast<uint64_t>(c - 'a' + 10);
    } else {
      return false;
    }
  }
  return true;
}

}  // namespace

std::string FormatAckId(const AckId& id) {
  std::string text;
  text.reserve(kLength);
  Append(id.subscription, &text);
  Append(id.sequence, &text);
  Append(id.lease, &text);
  text.append(kLength - text.size(), '-');
  return text;
}

bool ParseAckId(absl::string_view text, AckId* id) {
  if (text.size() != kLength) return false;
  if (text.find_first_not_of('-', 3 * kDigits) != absl::string_view::npos) return false;
  return Read(text.substr(0, kDigits), &id->subscription) &&
         Read(text.substr(kDigits, kDigits), &id->sequence) &&
         Read(text.substr(2 * kDigits, kDigits), &id->lease);
}

}  // namespace postbox::emulator
