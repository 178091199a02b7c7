// Checks that a text is valid UTF-8 (RFC 3629: no overlong forms, no surrogates, nothing above
// U+10FFFF).
//
// Plain header: standard library only. A proto3 `string` field must be valid UTF-8. If it is not, a
// server refuses the whole request with INTERNAL or INVALID_ARGUMENT. So the texts of a message are
// checked before it becomes part of a request. Message data is `bytes` and is not checked.

#ifndef POSTBOX_PROTO_RULES_UTF8_H_
#define POSTBOX_PROTO_RULES_UTF8_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <type_traits>

namespace postbox::pubsub {

// Where the ASCII characters but NUL end that begin at `begin`, or up to seven bytes before: most
// texts have no others, and are read eight bytes at a time.
constexpr std::size_t SkipAscii(std::string_view text, std::size_t begin) {
  if (std::is_constant_evaluated()) return begin;
  std::uint64_t bytes = 0;
  for (; text.size() - begin >= sizeof(bytes); begin += sizeof(bytes)) {
    std::memcpy(&bytes, text.data() + begin, sizeof(bytes));
    // A byte that is 0 borrows from its highest bit.
    const std::uint64_t less_one = bytes - 0x0101'0101'0101'0101;
    if (((bytes | less_one) & 0x8080'8080'8080'8080) != 0) break;
  }
  return begin;
}

// The position of the first byte that is not part of a valid sequence, or text.size() if all are.
constexpr std::size_t FirstInvalidUtf8(std::string_view text) {
  const std::size_t size = text.size();
  std::size_t i = SkipAscii(text, 0);
  while (i < size) {
    const auto byte = [&](std::size_t offset) {
      return static_cast<unsigned char>(text[i + offset]);
    };
    const unsigned char lead = byte(0);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    std::size_t length = 0;
    // The range of the second byte excludes overlong forms, surrogates and code points above
    // U+10FFFF.
    unsigned char low = 0x80;
    unsigned char high = 0xBF;
    if (lead >= 0xC2 && lead <= 0xDF) {
      length = 2;
    } else if (lead >= 0xE0 && lead <= 0xEF) {
      length = 3;
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
    } else if (lead >= 0xF0 && lead <= 0xF4) {
      length = 4;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    } else {
      return i;
    }
    if (size - i < length || byte(1) < low || byte(1) > high) return i;
    for (std::size_t k = 2; k < length; ++k) {
      if (byte(k) < 0x80 || byte(k) > 0xBF) return i;
    }
    i += length;
  }
  return size;
}

constexpr bool IsValidUtf8(std::string_view text) { return FirstInvalidUtf8(text) == text.size(); }

// A text from outside as part of a message to people: in quotes, with control characters replaced
// by spaces. It ends after `most` bytes at a character boundary, and before what is not valid
// UTF-8; then three dots follow.
inline std::string Shown(std::string_view text, std::size_t most) {
  std::size_t length = FirstInvalidUtf8(text);
  const bool whole = length == text.size() && length <= most;
  if (length > most) {
    length = most;
    while (length > 0 && (static_cast<unsigned char>(text[length]) & 0xC0) == 0x80) --length;
  }
  std::string shown = "\"";
  for (const char c : text.substr(0, length))
    shown += (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) ? ' ' : c;
  return shown + (whole ? "\"" : "...\"");
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_UTF8_H_
