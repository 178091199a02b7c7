// The tombstone table of an inbox: at which version keys of targets were deleted. projection.h has
// the protocol.
#ifndef POSTBOX_EXTENSION_APPLY_TOMBSTONES_H_
#define POSTBOX_EXTENSION_APPLY_TOMBSTONES_H_

#include "extension/apply/inbox_tables.h"
#include "extension/base/statement.h"

namespace postbox {

class Tombstones {
 public:
  explicit Tombstones(TombstoneTable table);

  Oid relation() const { return table_.relation; }

  // Notes that `key` was deleted at `version`. False if it was already, at that version or later.
  bool Raise(Oid target, Datum key, int64 version);
  void Remove(Oid target, Datum key);
  // The version at which `key` was deleted, 0 if it was not. Waits for a transaction that is about
  // to delete it.
  int64 Find(Oid target, Datum key);
  // The same for a reader: what its snapshot shows.
  int64 FindCommitted(Oid target, Datum key);

 private:
  const TombstoneTable table_;
  Statement raise_;
  Statement remove_;
  Statement find_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_TOMBSTONES_H_
