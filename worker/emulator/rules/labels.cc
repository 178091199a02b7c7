#include "worker/emulator/rules/labels.h"

#include <algorithm>
#include <cstddef>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "worker/emulator/rules/service_limits.h"

namespace postbox::emulator {
namespace {

bool IsAscii(char c) { return static_cast<unsigned char>(c) < 0x80; }

bool IsLabelCharacter(char c) {
  return !IsAscii(c) || absl::ascii_islower(static_cast<unsigned char>(c)) ||
         absl::ascii_isdigit(static_cast<unsigned char>(c)) || c == '_' || c == '-';
}

// The number of characters of a text in UTF-8.
size_t Characters(absl::string_view text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

absl::Status CheckText(absl::string_view text, absl::string_view what) {
  if (Characters(text) > kMaxLabelCharacters) {
    return absl::InvalidArgumentError(absl::StrCat(what, " \"", text, "\" has ", Characters(text),
                                                   " characters, at most ", kMaxLabelCharacters));
  }
  if (std::all_of(text.begin(), text.end(), IsLabelCharacter)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat(what, " \"", text, "\" may have only lower-case letters, digits, _ and -"));
}

}  // namespace

absl::Status CheckLabels(const google::protobuf::Map<std::string, std::string>& labels) {
  if (labels.size() > kMaxLabels) {
    return absl::InvalidArgumentError(
        absl::StrCat("a resource has ", labels.size(), " labels, at most ", kMaxLabels));
  }
  for (const auto& [key, value] : labels) {
    if (key.empty() ||
        (IsAscii(key[0]) && !absl::ascii_islower(static_cast<unsigned char>(key[0])))) {
      return absl::InvalidArgumentError(
          absl::StrCat("label key \"", key, "\" must begin with a lower-case letter"));
    }
    if (auto s = CheckText(key, "label key"); !s.ok()) return s;
    if (auto s = CheckText(value, "label value"); !s.ok()) return s;
  }
  return absl::OkStatus();
}

}  // namespace postbox::emulator
