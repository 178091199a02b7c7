// Which aggregate types have written the rows of a target, in postbox.projection.aggregate_types.
//
// A row has one version, and versions count for each aggregate. If events of two aggregate types
// are written to one row, the version of the one says nothing about the other: an event that looks
// stale may be new. Which type has written a row is not stored, so whether types meet in a row is
// not known. But an event that is stale in a target that has had events of another type is not
// taken for old: it fails, and says what to do. A target whose rows have the type in their key
// mixes none.
//
// Two first events, of two types for one row, in two sessions: the second waits for the row of the
// first, and has read the types before that. So before an event is taken for old they are read
// again.
//
// The first two types of each projection are stored, with the first event of a type that is
// applied. That is two updates in the life of a projection. A session waits for another one that
// is doing it, which may be rolled back.
#ifndef POSTBOX_EXTENSION_APPLY_AGGREGATE_TYPES_H_
#define POSTBOX_EXTENSION_APPLY_AGGREGATE_TYPES_H_

#include "extension/apply/inbox_event.h"

namespace postbox {

// Those of one version column of one target, for all its projections. All of it needs an open SPI
// connection.
class AggregateTypes {
 public:
  void Add(std::string type) { types_.insert(std::move(type)); }

  // Whether there is nothing to store when the event is applied.
  bool Knows(const InboxEvent& event) const;
  // An event of the projection was applied.
  void NoteApplied(int64 projection, const InboxEvent& event);
  // An event of the projection is stale. Throws if another type than its own has written to the
  // target.
  void RequireComparable(int64 projection, const InboxEvent& event, const std::string& target_name,
                         const std::string& version_column);

 private:
  std::string Other(int64 projection, std::string_view type);

  std::set<std::string, std::less<>> types_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_AGGREGATE_TYPES_H_
