#include "worker/emulator/subscription/ack_id.h"

#include <array>
#include <cstddef>

namespace postbox::emulator {
namespace {

constexpr size_t kDigits = 16;
static_assert(kAckIdLength == 4 * kDigits);
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

char* Write(uint64_t value, char* out) {
  for (int shift = 60; shift >= 0; shift -= 4) *out++ = kHex[(value >> shift) & 15];
  return out;
}

// The value of each digit, and kNone. A look at a table is several times as fast as comparisons.
constexpr uint8_t kNone = 0xFF;
constexpr std::array<uint8_t, 256> kValues = [] {
  std::array<uint8_t, 256> values{};
  values.fill(kNone);
  for (uint8_t value = 0; value < 16; ++value) values[static_cast<uint8_t>(kHex[value])] = value;
  return values;
}();

bool Read(absl::string_view text, uint64_t* value) {
  uint64_t read = 0;
  uint8_t all = 0;
  for (const char c : text) {
    const uint8_t digit = kValues[static_cast<uint8_t>(c)];
    all |= digit;
    read = read << 4 | (digit & 15);
  }
  *value = read;
  return all < 16;
}

}  // namespace

char* WriteAckId(const AckId& id, char* out) {
  for (const uint64_t part : {id.subscription, id.sequence, id.lease, Check(id)}) {
    out = Write(part, out);
  }
  return out;
}

std::string FormatAckId(const AckId& id) {
  std::string text(kAckIdLength, '\0');
  WriteAckId(id, text.data());
  return text;
}

bool ParseAckId(absl::string_view text, AckId* id) {
  if (text.size() != kAckIdLength) return false;
  uint64_t check = 0;
  return Read(text.substr(0, kDigits), &id->subscription) &&
         Read(text.substr(kDigits, kDigits), &id->sequence) &&
         Read(text.substr(2 * kDigits, kDigits), &id->lease) &&
         Read(text.substr(3 * kDigits, kDigits), &check) && check == Check(*id);
}

}  // namespace postbox::emulator
