#include "worker/cli/console/page_files.h"

#include <algorithm>

namespace postbox::cli {

const PageFile* FindPageFile(std::string_view name) {
  const auto files = PageFiles();
  const auto found = std::find_if(files.begin(), files.end(),
                                  [name](const PageFile& file) { return file.name == name; });
  return found == files.end() ? nullptr : &*found;
}

bool HasTag(std::string_view if_none_match, std::string_view tag) {
  if (if_none_match == "*") return true;
  while (!if_none_match.empty()) {
    const size_t comma = std::min(if_none_match.find(','), if_none_match.size());
    std::string_view one = if_none_match.substr(0, comma);
    if_none_match.remove_prefix(std::min(comma + 1, if_none_match.size()));
    one.remove_prefix(std::min(one.find_first_not_of(" \t"), one.size()));
    one = one.substr(0, one.find_last_not_of(" \t") + 1);
    // A proxy that compresses makes the tag a weak one.
    if (one.starts_with("W/")) one.remove_prefix(2);
    if (one == tag) return true;
  }
  return false;
}

}  // namespace postbox::cli
