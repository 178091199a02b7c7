#include "worker/cli/provision/section.h"

#include <algorithm>
#include <charconv>
#include <system_error>
#include <utility>

#include "proto/rules/utf8.h"

namespace postbox::cli {
namespace {

struct Unit {
  char letter;
  int64_t seconds;
};
constexpr Unit kUnits[] = {{'d', 86400}, {'h', 3600}, {'m', 60}, {'s', 1}};
constexpr int64_t kMostSeconds = 10LL * 365 * 86400;

// The number of letters to insert, delete or replace.
size_t Distance(const std::string& left, const std::string& right) {
  std::vector<size_t> row(right.size() + 1);
  for (size_t j = 0; j < row.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= left.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j < row.size(); ++j) {
      const size_t replaced = diagonal + (left[i - 1] == right[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

bool HasControls(const std::string& text, bool lines) {
  return std::any_of(text.begin(), text.end(), [lines](char c) {
    if (lines && (c == '\n' || c == '\t' || c == '\r')) return false;
    return static_cast<unsigned char>(c) < 0x20 || c == 0x7F;
  });
}

std::string Listed(const std::vector<std::string>& words) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : ", ") + word;
  return text;
}

const char* KindOf(const Json& value) {
  if (value.is_null()) return "nothing";
  if (value.is_object()) return "a mapping";
  if (value.is_array()) return "a list";
  if (value.is_boolean()) return "true or false";
  if (value.is_number()) return "a number";
  return "a string";
}

std::string TextWanted(const Json& value) {
  return std::string("this must be a string, and is ") + KindOf(value) +
         (value.is_number() || value.is_boolean() ? "; put it in quotes" : "");
}

}  // namespace

void Problems::Add(const std::string& path, const std::string& text) {
  std::string line = file_ + ": " + (path.empty() ? "" : path + ": ") + text;
  // A key of the file may have anything in it.
  for (char& c : line) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  lines_.push_back(std::move(line));
}

std::optional<int64_t> SecondsOf(const Json& value) {
  int64_t number = 0;
  int64_t unit = 1;
  if (value.is_number_integer()) {
    number = value.is_number_unsigned() && value.get<uint64_t>() > INT64_MAX ? INT64_MAX
                                                                             : value.get<int64_t>();
  } else if (value.is_string()) {
    std::string_view text = value.get_ref<const std::string&>();
    if (text.empty()) return std::nullopt;
    const auto* const found =
        std::find_if(std::begin(kUnits), std::end(kUnits),
                     [&](const Unit& one) { return one.letter == text.back(); });
    if (found == std::end(kUnits)) return std::nullopt;
    unit = found->seconds;
    text.remove_suffix(1);
    const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (problem != std::errc() || end != text.data() + text.size()) return std::nullopt;
  } else {
    return std::nullopt;
  }
  if (number < 0 || number > kMostSeconds / unit) return std::nullopt;
  return number * unit;
}

std::string DurationText(int64_t seconds) {
  if (seconds == 0) return "0s";
  for (const Unit& unit : kUnits) {
    // 600s and 60s are better known than 10m and 1m.
    if (unit.letter == 'm' || seconds % unit.seconds != 0) continue;
    return std::to_string(seconds / unit.seconds) + unit.letter;
  }
  return std::to_string(seconds) + "s";
}

std::string Nearest(const std::string& key, const std::vector<std::string>& known) {
  std::string nearest;
  size_t best = std::max<size_t>(2, key.size() / 2);
  if (key.size() > 64) return "";
  for (const std::string& one : known) {
    const bool part = one.find(key) != std::string::npos || key.find(one) != std::string::npos;
    const size_t distance = part && key.size() > 2 ? 1 : Distance(key, one);
    if (distance > best || (distance == best && !nearest.empty())) continue;
    best = distance;
    nearest = one;
  }
  return nearest;
}

Section::Section(const Json& value, std::string path, Problems* problems)
    : value_(&value), path_(std::move(path)), problems_(problems) {
  if (!value.is_object()) {
    problems_->Add(path_, std::string("a mapping of keys to values is needed here, and it is ") +
                              KindOf(value));
  }
}

const Json* Section::Value(const std::string& key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
  if (!value_->is_object()) return nullptr;
  const auto found = value_->find(key);
  return found == value_->end() ? nullptr : &*found;
}

std::optional<std::string> Section::Text(const std::string& key) {
  const Json* const value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) {
    Complain(key, TextWanted(*value));
    return std::nullopt;
  }
  if (HasControls(value->get_ref<const std::string&>(), false)) {
    Complain(key, "a control character is not allowed here");
    return std::nullopt;
  }
  return value->get<std::string>();
}

std::optional<std::string> Section::TextOfLines(const std::string& key) {
  const Json* const value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string() || HasControls(value->get_ref<const std::string&>(), true)) {
    Complain(key,
             value->is_string() ? "a control character is not allowed here" : TextWanted(*value));
    return std::nullopt;
  }
  return value->get<std::string>();
}

void Section::Require(const std::string& key) {
  if (value_->is_object() && Value(key) == nullptr) Complain(key, "this key is needed");
}

std::string Section::RequiredText(const std::string& key) {
  Require(key);
  const std::optional<std::string> text = Text(key);
  if (text && text->empty()) Complain(key, "it is empty");
  return text.value_or("");
}

std::optional<bool> Section::Truth(const std::string& key) {
  const Json* const value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  Complain(key, std::string("true or false is needed here, and it is ") + KindOf(*value));
  return std::nullopt;
}

std::optional<int64_t> Section::Whole(const std::string& key, int64_t least, int64_t most) {
  const Json* const value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number_integer() && *value >= least && *value <= most) return value->get<int64_t>();
  Complain(key, "allowed is a whole number from " + std::to_string(least) + " to " +
                    std::to_string(most));
  return std::nullopt;
}

std::optional<int64_t> Section::Duration(const std::string& key, int64_t least, int64_t most,
                                         const std::string& word) {
  const Json* const value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (!word.empty() && value->is_string() && value->get<std::string>() == word) return -1;
  const std::optional<int64_t> seconds = SecondsOf(*value);
  if (seconds && *seconds >= least && *seconds <= most) return seconds;
  Complain(key, "allowed is a time from " + DurationText(least) + " to " + DurationText(most) +
                    ", like 90 (seconds), 90s, 15m, 36h or 7d" +
                    (word.empty() ? "" : ", or " + word));
  return std::nullopt;
}

std::optional<std::string> Section::OneOf(const std::string& key,
                                          const std::vector<std::string>& words) {
  const std::optional<std::string> text = Text(key);
  if (!text || std::find(words.begin(), words.end(), *text) != words.end()) return text;
  Complain(key, pubsub::Shown(*text, 80) + " is not allowed; allowed are " + Listed(words));
  return std::nullopt;
}

std::optional<std::vector<std::string>> Section::Texts(const std::string& key) {
  const Json* const value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array()) {
    Complain(key, std::string("a list of strings is needed here, and it is ") + KindOf(*value));
    return std::nullopt;
  }
  std::vector<std::string> texts;
  for (const Json& one : *value) {
    if (!one.is_string() || one.get_ref<const std::string&>().empty() ||
        HasControls(one.get_ref<const std::string&>(), false)) {
      Complain(key + "[" + std::to_string(texts.size()) + "]",
               one.is_string() ? "an empty string or a control character is not allowed here"
                               : TextWanted(one));
      return std::nullopt;
    }
    texts.push_back(one.get<std::string>());
  }
  return texts;
}

std::optional<std::map<std::string, std::string>> Section::TextMap(const std::string& key) {
  const Json* const value = Value(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) {
    Complain(key, std::string("a mapping of strings to strings is needed here, and it is ") +
                      KindOf(*value));
    return std::nullopt;
  }
  std::map<std::string, std::string> texts;
  for (const auto& [name, one] : value->items()) {
    if (!one.is_string()) {
      Complain(key + "." + name, TextWanted(one));
      return std::nullopt;
    }
    texts.emplace(name, one.get<std::string>());
  }
  return texts;
}

void Section::ForEach(const std::string& key,
                      const std::function<void(const Json&, const std::string&)>& each) {
  const Json* const value = Value(key);
  if (value == nullptr) return;
  if (!value->is_array()) {
    return Complain(key, std::string("a list is needed here, and it is ") + KindOf(*value));
  }
  size_t index = 0;
  for (const Json& one : *value) each(one, PathOf(key) + "[" + std::to_string(index++) + "]");
}

void Section::End() const {
  if (!value_->is_object()) return;
  for (const auto& [key, ignored] : value_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string nearest = Nearest(key, known_);
    problems_->Add(path_, "unknown key " + pubsub::Shown(key, 80) +
                              (nearest.empty() ? "" : " (did you mean " + nearest + "?)") +
                              "; allowed are " + Listed(known_));
  }
}

}  // namespace postbox::cli
