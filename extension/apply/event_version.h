// postbox.event_version(): the version of the event that is being applied, for triggers of targets
// and for handlers.
#ifndef POSTBOX_EXTENSION_APPLY_EVENT_VERSION_H_
#define POSTBOX_EXTENSION_APPLY_EVENT_VERSION_H_

#include "extension/apply/inbox_event.h"

namespace postbox {

// While it lives, postbox.event_version() is that of `event`. A trigger or a handler may apply
// another event meanwhile, so the one around it comes back.
class AppliedVersion {
 public:
  explicit AppliedVersion(const InboxEvent& event);
  ~AppliedVersion();
  AppliedVersion(const AppliedVersion&) = delete;
  AppliedVersion& operator=(const AppliedVersion&) = delete;

 private:
  const std::optional<int64> outer_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_EVENT_VERSION_H_
