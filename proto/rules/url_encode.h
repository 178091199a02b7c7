// Percent-encoding (RFC 3986): everything but letters, digits and - _ . ~
//
// Plain header: standard library only.

#ifndef POSTBOX_PROTO_RULES_URL_ENCODE_H_
#define POSTBOX_PROTO_RULES_URL_ENCODE_H_

#include <string>
#include <string_view>

namespace postbox::pubsub {

inline std::string UrlEncode(std::string_view text) {
  constexpr char kHex[] = "0123456789ABCDEF";
  std::string encoded;
  encoded.reserve(text.size() + 16);
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || c == '.' || c == '~';
    if (plain) {
      encoded += c;
    } else {
      encoded += '%';
      encoded += kHex[byte >> 4];
      encoded += kHex[byte & 15];
    }
  }
  return encoded;
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_PROTO_RULES_URL_ENCODE_H_
