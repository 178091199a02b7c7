// The list of failpoints, as the setting postbox.failpoint and the puller's environment variable
// POSTBOX_FAILPOINT give it: name=action,name=action.
//
// A failpoint is a named place in the code where a test can end, break or stop a process. The
// process that reads the list decides which names exist and which actions it carries out. An
// unknown name is not an error.
//
//   kill   the process ends itself with SIGKILL
//   error  an error is raised
//   pause  the process waits until the list no longer says pause
#ifndef POSTBOX_EXTENSION_RULES_FAILPOINT_LIST_H_
#define POSTBOX_EXTENSION_RULES_FAILPOINT_LIST_H_

#include <algorithm>
#include <string>
#include <string_view>

namespace postbox::pubsub {

struct FailpointEntry {
  std::string_view name;
  std::string_view action;  // empty if the entry has no '='
};

// Removes the first entry of `*list`, with the comma after it, and returns it. The list is not
// empty.
inline FailpointEntry TakeFailpointEntry(std::string_view* list) {
  const std::string_view entry = list->substr(0, list->find(','));
  list->remove_prefix(std::min(entry.size() + 1, list->size()));
  const size_t equals = entry.find('=');
  if (equals == std::string_view::npos) return {entry, ""};
  return {entry.substr(0, equals), entry.substr(equals + 1)};
}

// The action of the first entry that has this name and an action; empty if there is none. The
// result points into `list`.
inline std::string_view FindFailpoint(std::string_view list, std::string_view name) {
  while (!list.empty()) {
    const FailpointEntry entry = TakeFailpointEntry(&list);
    if (entry.name == name && !entry.action.empty()) return entry.action;
  }
  return "";
}

// What is wrong with the list, as a sentence; empty if nothing is. The empty list is good.
inline std::string CheckFailpointList(std::string_view list) {
  while (!list.empty()) {
    const auto [name, action] = TakeFailpointEntry(&list);
    if (name.empty() || (action != "kill" && action != "error" && action != "pause")) {
      return "The form is name=action,name=action; the actions are kill, error and pause.";
    }
  }
  return "";
}

}  // namespace postbox::pubsub

#endif  // POSTBOX_EXTENSION_RULES_FAILPOINT_LIST_H_
