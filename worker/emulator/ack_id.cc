#include "worker/emulator/ack_id.h"

#include <cstddef>

namespace postbox::emulator {
namespace {

constexpr size_t kDigits = 16;
constexpr size_t kLength = 4 * kDigits;
constexpr char kHex[] = "0123456789abcdef";

// Differs in half of its bits for ids that differ in one.
uint64_t Check(const AckId& id) {
  uint64_t hash = 0x9E3779B97F4A7C15;
  for (const uint64_t part : {id.subscription, id.sequence, id.lease}) {
    hash ^= part;
    hash = (hash ^ hash >> 30) * 0xBF58476D1CE4E5B9;
    hash = (hash ^ hash >> 27) * 0x94D049BB133111EB;
    hash ^= hash >> 31;
  }
  return hash;
}

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
  Append(Check(id), &text);
  return text;
}

bool ParseAckId(absl::string_view text, AckId* id) {
  if (text.size() != kLength) return false;
  uint64_t check = 0;
  return Read(text.substr(0, kDigits), &id->subscription) &&
         Read(text.substr(kDigits, kDigits), &id->sequence) &&
         Read(text.substr(2 * kDigits, kDigits), &id->lease) &&
         Read(text.substr(3 * kDigits, kDigits), &check) && check == Check(*id);
}

}  // namespace postbox::emulator
