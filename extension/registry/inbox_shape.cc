#include "extension/registry/inbox_shape.h"

#include "extension/base/arguments.h"

namespace postbox {
namespace {

// Without a default: a row that a user inserts is kept for the retention only in the current one.
const ColumnShape kGeneration{"generation", "smallint", "", true, "", "", false};

}  // namespace

std::string GenerationLiteral(int generation) {
  return "'" + std::to_string(generation) + "'::pg_catalog.int2";
}

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
      {"received_at", "timestamp with time zone", "now()"},
      kGeneration};
  shape.primary_key = "event_id, generation";
  shape.options = kByGeneration;
  shape.comment = "Events seen (postbox inbox)";
  return shape;
}

// Tombstones::Find (extension/apply/tombstones.cc) relies on the order of these columns.
TableShape TombstoneShape() {
  TableShape shape;
  shape.columns = {{"target", "regclass", "", false, "", "", false},
                   {"key", "text", "", false, "", "", false},
                   {"version", "bigint", "", true, "", "", false},
                   {"deleted_at", "timestamp with time zone", "now()"},
                   kGeneration};
  shape.primary_key = "target, key, generation";
  shape.options = kByGeneration;
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
