#include "worker/emulator/schema/shallow_json.h"

#include <nlohmann/json.hpp>

namespace postbox::emulator {
namespace {

bool JsonNestsTooDeeply(absl::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::Status ParseShallowJson(absl::string_view text, nlohmann::json* value) {
  if (JsonNestsTooDeeply(text)) return absl::InvalidArgumentError("JSON is nested too deeply");
  *value = nlohmann::json::parse(text.begin(), text.end(), /*cb=*/nullptr,
                                 /*allow_exceptions=*/false);
  return value->is_discarded() ? absl::InvalidArgumentError("it is not JSON") : absl::OkStatus();
}

}  // namespace postbox::emulator
