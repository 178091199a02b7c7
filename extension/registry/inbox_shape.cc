#include "extension/registry/inbox_shape.h"

#include "extension/base/arguments.h"

namespace postbox {

TableShape InboxShape() {
  TableShape shape;
  shape.columns = {
      {"event_id", "uuid", "", true, "", "", false},
      {"event_type", "text", "", false},
      {"aggregate_type", "text", "", false},
      {"aggregate_id", "text", "", false},
      {"version", "bigint", "", false},
      // DROP EXTENSION CASCADE drops the column with its type. What an event came to is
      // lost then; that it was seen is not.
      {"outcome", "postbox.outcome", "", true, "", "'applied'"},
      {"received_at", "timestamp with time zone", "now()"}};
  shape.primary_key = "event_id";
  shape.indexes = {{"_received", "received_at", ""}};
  shape.comment = "Events seen (postbox inbox)";
  return shape;
}

// Tombstones::Find (extension/apply/tombstones.cc) relies on the order of these columns.
TableShape TombstoneShape() {
  TableShape shape;
  shape.columns = {{"target", "regclass", "", false, "", "", false},
                   {"key", "text", "", false, "", "", false},
                   {"version", "bigint", "", true, "", "", false},
                   {"deleted_at", "timestamp with time zone", "now()"}};
  shape.primary_key = "target, key";
  shape.indexes = {{"_deleted", "deleted_at", ""}};
  shape.comment = "Versions at which keys of projections were deleted (postbox inbox)";
  return shape;
}

void CheckInboxRetention(Datum retention) {
  if (Microseconds(retention) > 0) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "retention must be positive",
        "An event that is delivered again after its id was purged takes effect again.",
        "Keep event ids longer than the subscription keeps messages.");
}

}  // namespace postbox
