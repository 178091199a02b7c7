// Lists in pages.
#ifndef POSTBOX_WORKER_EMULATOR_RULES_PAGING_H_
#define POSTBOX_WORKER_EMULATOR_RULES_PAGING_H_

#include <algorithm>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

// The token of a page is the last name of the one before it, so it must be a name of the
// collection.
inline absl::Status CheckPage(int page_size, const std::string& token,
                              absl::string_view collection) {
  if (page_size < 0) {
    return absl::InvalidArgumentError(absl::StrCat("page_size must not be negative: ", page_size));
  }
  if (token.empty() || CheckName(token, collection).ok()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("invalid page_token \"", token, "\": it must be a next_page_token"));
}

// One page of a map by name. Calls `add` for each element for whose name `wanted` returns true.
// Returns the token of the next page; empty if there is no next page.
template <class Map, class Wanted, class Add>
std::string Page(const Map& map, int page_size, const std::string& token, Wanted wanted, Add add) {
  constexpr int kMaxPage = 1000;
  const int most = page_size > 0 ? std::min(page_size, kMaxPage) : kMaxPage;
  int count = 0;
  std::string last;
  for (auto it = token.empty() ? map.begin() : map.upper_bound(token); it != map.end(); ++it) {
    if (!wanted(it->first)) continue;
    if (count == most) return last;
    add(*it);
    ++count;
    last = it->first;
  }
  return "";
}

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RULES_PAGING_H_
