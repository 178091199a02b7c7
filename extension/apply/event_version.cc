#include "extension/apply/event_version.h"

#include "extension/base/guard.h"

namespace postbox {

namespace {
std::optional<int64> applied_version;
}  // namespace

AppliedVersion::AppliedVersion(const InboxEvent& event) : outer_(applied_version) {
  applied_version =
      event.IsNull(EventField::kVersion) ? std::nullopt : std::optional<int64>(event.version());
}

AppliedVersion::~AppliedVersion() { applied_version = outer_; }

}  // namespace postbox

POSTBOX_FUNCTION(event_version) {
  return postbox::Guarded([&] {
    const std::optional<int64>& version = postbox::applied_version;
    fcinfo->isnull = !version.has_value();
    return version.has_value() ? Int64GetDatum(*version) : Datum{0};
  });
}
