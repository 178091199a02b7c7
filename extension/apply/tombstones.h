// The tombstone table of an inbox: at which version keys of targets were deleted. projection.h has
// the protocol.
//
// A key may have a row in each generation; the highest version counts. Versions are raised in the
// current generation only. While a transaction that has raised one is open, no other generation
// becomes current, so the others hold no uncommitted version; what is removed there may be.
#ifndef POSTBOX_EXTENSION_APPLY_TOMBSTONES_H_
#define POSTBOX_EXTENSION_APPLY_TOMBSTONES_H_

#include "extension/apply/inbox_tables.h"
#include "extension/base/statement.h"

namespace postbox {

class Tombstones {
 public:
  Tombstones(TombstoneTable table, int generation);

  Oid relation() const { return table_.relation; }
  bool IsPartition(Oid relation) const {
    return std::any_of(table_.generations.begin(), table_.generations.end(),
                       [&](const auto& one) { return one.relation == relation; });
  }
  // Whether code of users may run when a tombstone is written.
  bool RunsUnknownCode() const;

  // Notes that `key` was deleted at `version`. False if it was already, at that version or later.
  bool Raise(Oid target, Datum key, int64 version);
  void Remove(Oid target, Datum key);
  // The version at which `key` was deleted, 0 if it was not. Waits for a transaction that is about
  // to delete it.
  int64 Find(Oid target, Datum key);
  // The same of the current generation. With what Find() has said before in this transaction, it is
  // what Find() says: the version in another one does not grow.
  int64 FindCurrent(Oid target, Datum key);
  // The same for a reader: what its snapshot shows.
  int64 FindCommitted(Oid target, Datum key);

 private:
  int64 FindIn(const TombstonePartition& partition, Oid target, Datum key);

  const TombstoneTable table_;
  const int generation_;
  Statement raise_;
  Statement remove_;
  Statement find_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_TOMBSTONES_H_
