// Filling in the templates of SQL text.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_FILL_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_FILL_H_

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace postbox::publisher {

// `text` with every {name} replaced by its value; a name without one by nothing.
inline std::string Fill(
    std::string_view text,
    std::initializer_list<std::pair<std::string_view, std::string_view>> values) {
  std::string filled;
  while (!text.empty()) {
    const std::size_t open = text.find('{');
    filled += text.substr(0, open);
    if (open == std::string_view::npos) break;
    const std::size_t close = text.find('}', open);
    const std::string_view name = text.substr(open + 1, close - open - 1);
    for (const auto& [key, value] : values) {
      if (key == name) filled += value;
    }
    text.remove_prefix(close + 1);
  }
  return filled;
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_FILL_H_
