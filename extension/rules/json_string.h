// A text as a JSON string.
#ifndef POSTBOX_EXTENSION_RULES_JSON_STRING_H_
#define POSTBOX_EXTENSION_RULES_JSON_STRING_H_

#include <string>
#include <string_view>

namespace postbox {

// Appends it, with its quotes. `value` is in an encoding whose ASCII bytes are ASCII characters.
inline void AppendJsonString(std::string_view value, std::string* json) {
  *json += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      *json += '\\';
      *json += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kDigits[] = "0123456789abcdef";
      *json += "\\u00";
      *json += kDigits[static_cast<unsigned char>(c) >> 4];
      *json += kDigits[static_cast<unsigned char>(c) & 15];
    } else {
      *json += c;
    }
  }
  *json += '"';
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_RULES_JSON_STRING_H_
