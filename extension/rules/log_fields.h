// The fields of a log line as text: name=value pairs with blanks between them, in DETAIL of the
// server's log as in the text form of the puller's. A value with a blank, a quote or the like is
// quoted as in JSON, so a program can take the pairs apart whatever the values are.
#ifndef POSTBOX_EXTENSION_RULES_LOG_FIELDS_H_
#define POSTBOX_EXTENSION_RULES_LOG_FIELDS_H_

#include <algorithm>
#include <string>
#include <string_view>

#include "extension/rules/json_string.h"

namespace postbox {

// `value` is in an encoding whose ASCII bytes are ASCII characters.
inline std::string FieldValue(std::string_view value) {
  const auto plain = [](char c) {
    return static_cast<unsigned char>(c) > ' ' && c != '"' && c != '=' && c != '\\';
  };
  if (!value.empty() && std::all_of(value.begin(), value.end(), plain)) return std::string(value);
  std::string quoted;
  AppendJsonString(value, &quoted);
  return quoted;
}

// An empty value is a field that is not known: it is left out.
inline void AppendField(std::string_view name, std::string_view value, std::string* line) {
  if (value.empty()) return;
  if (!line->empty()) *line += ' ';
  line->append(name).append("=").append(FieldValue(value));
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_RULES_LOG_FIELDS_H_
