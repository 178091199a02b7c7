// Which aggregate types have written the rows of a target, in postbox.projection.aggregate_types.
//
// A row has one version, and versions count for each aggregate. If events of two aggregate types
// are written to one row, the version of the one says nothing about the other: an event that looks
// stale may be new. Which type has written a row is not stored, so whether types meet in a row is
// not known. But an event that is stale in a target that has had events of another type is not
// taken for old: it fails, and says what to do. A target whose rows have the type in their key
// mixes none.
//
// The first two types of each projection are stored, with the first event of a type that is
// applied. That is two updates in the life of a projection. No session waits for another one that
// is doing it: then the next event stores it.
#ifndef POSTBOX_EXTENSION_INBOX_AGGREGATE_TYPES_H_
#define POSTBOX_EXTENSION_INBOX_AGGREGATE_TYPES_H_

#include "extension/inbox/inbox_event.h"

namespace postbox {

// Those of one version column of one target, for all its projections. All of it needs an open SPI
// connection.
class AggregateTypes {
 public:
  void Add(std::string type) { types_.insert(std::move(type)); }

  // An event of the projection was applied.
  void NoteApplied(int64 projection, const InboxEvent& event);
  // An event is stale. Throws if another type than its own has written to the target.
  void RequireComparable(const InboxEvent& event, const std::string& target_name,
                         const std::string& version_column) const;

 private:
  std::set<std::string, std::less<>> types_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_INBOX_AGGREGATE_TYPES_H_
