// Reads the values of a mapping in a document, and collects what is wrong with them.
//
// Each problem names the file, the path of the value in it, for example subscriptions[2].retry, and
// what is allowed there. A key that was not asked for is a problem, too: the nearest key that is
// known is named.
#ifndef POSTBOX_WORKER_CLI_PROVISION_SECTION_H_
#define POSTBOX_WORKER_CLI_PROVISION_SECTION_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "worker/cli/provision/document.h"

namespace postbox::cli {

class Problems {
 public:
  explicit Problems(std::string file) : file_(std::move(file)) {}
  void Add(const std::string& path, const std::string& text);
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  const std::string file_;
  std::vector<std::string> lines_;
};

// The whole seconds of 90, "90s", "15m", "36h" or "7d"; nothing if the value is none of these.
std::optional<int64_t> SecondsOf(const Json& value);
// The shortest text that SecondsOf() reads: "7d", "600s".
std::string DurationText(int64_t seconds);

// The one of `known` that is nearest to `key`, or "" if none is near.
std::string Nearest(const std::string& key, const std::vector<std::string>& known);

class Section {
 public:
  // `value` outlives the section. What is no mapping is a problem, and then has no keys.
  Section(const Json& value, std::string path, Problems* problems);

  // The accessors return nothing if the key is missing or its value is wrong. null counts as wrong.
  // A text has no control characters.
  std::optional<std::string> Text(const std::string& key);
  std::optional<std::string> TextOfLines(const std::string& key);  // newlines and tabs, too
  std::optional<bool> Truth(const std::string& key);
  std::optional<int64_t> Whole(const std::string& key, int64_t least, int64_t most);
  // With `word`, this text stands for the value -1.
  std::optional<int64_t> Duration(const std::string& key, int64_t least, int64_t most,
                                  const std::string& word = "");
  std::optional<std::string> OneOf(const std::string& key, const std::vector<std::string>& words);
  std::optional<std::vector<std::string>> Texts(const std::string& key);
  std::optional<std::map<std::string, std::string>> TextMap(const std::string& key);
  // A problem if the key is missing.
  void Require(const std::string& key);
  // Not missing, and not empty.
  std::string RequiredText(const std::string& key);
  // Calls `each` with the values of a list and their paths.
  void ForEach(const std::string& key,
               const std::function<void(const Json&, const std::string&)>& each);
  // The value as it is; null if the key is missing.
  const Json* Value(const std::string& key);

  std::string PathOf(const std::string& key) const {
    return path_.empty() ? key : path_ + "." + key;
  }
  void Complain(const std::string& key, const std::string& text) const {
    problems_->Add(PathOf(key), text);
  }
  // To be called last: reports the keys that were not asked for.
  void End() const;

 private:
  const Json* const value_;
  const std::string path_;
  Problems* const problems_;
  std::vector<std::string> known_;
};

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_PROVISION_SECTION_H_
