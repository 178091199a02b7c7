// The members of a JSON object, as they are written.
//
// PostgreSQL's own functions give the fields of a json one at a time, each by reading all of it, or
// through jsonb, which does not keep what was written. This reads it once.
#ifndef POSTBOX_EXTENSION_OUTBOX_JSON_MEMBERS_H_
#define POSTBOX_EXTENSION_OUTBOX_JSON_MEMBERS_H_

#include <string_view>
#include <vector>

namespace postbox {

struct JsonMember {
  std::string_view key;    // without quotes, its escapes as they are
  std::string_view value;  // without the white space around it
};

// What ReadJsonMembers() finds.
struct JsonMembers {
  bool is_object = false;
  std::vector<JsonMember> members;
};

// `json` must be JSON, as a value of type json is.
inline JsonMembers ReadJsonMembers(std::string_view json) {
  constexpr std::string_view kBlank = " \t\n\r";
  size_t at = json.find_first_not_of(kBlank);
  JsonMembers found;
  if (at == std::string_view::npos || json[at] != '{') return found;
  found.is_object = true;
  // Behind the string that begins there.
  const auto end_of_string = [&](size_t begin) {
    size_t end = begin + 1;
    while (end < json.size() && json[end] != '"') end += json[end] == '\\' ? 2 : 1;
    return end + 1;
  };
  // Behind the value that begins there: where the comma or the brace is that follows it.
  const auto end_of_value = [&](size_t begin) {
    int depth = 0;
    size_t end = begin;
    while (end < json.size()) {
      const char c = json[end];
      if (c == '"') {
        end = end_of_string(end);
        continue;
      }
      if (depth == 0 && (c == ',' || c == '}')) break;
      if (c == '{' || c == '[') ++depth;
      if (c == '}' || c == ']') --depth;
      ++end;
    }
    return end;
  };
  for (++at; (at = json.find_first_not_of(kBlank, at)) < json.size() && json[at] != '}';) {
    const size_t key_end = end_of_string(at);
    const std::string_view key = json.substr(at + 1, key_end - at - 2);
    const size_t value = json.find_first_not_of(kBlank, json.find(':', key_end) + 1);
    const size_t end = end_of_value(value);
    const size_t last = json.find_last_not_of(kBlank, end - 1);
    found.members.push_back({key, json.substr(value, last + 1 - value)});
    at = end < json.size() && json[end] == ',' ? end + 1 : end;
  }
  return found;
}

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_OUTBOX_JSON_MEMBERS_H_
