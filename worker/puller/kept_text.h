// For tests: texts that live as long as the process, for the views of messages and events.
#ifndef POSTBOX_WORKER_PULLER_KEPT_TEXT_H_
#define POSTBOX_WORKER_PULLER_KEPT_TEXT_H_

#include <list>
#include <string>
#include <string_view>
#include <utility>

namespace postbox::puller {

inline std::string_view Kept(std::string text) {
  static std::list<std::string> texts;
  return texts.emplace_back(std::move(text));
}

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_KEPT_TEXT_H_
