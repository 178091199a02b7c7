// Finding a row by its primary key with a dirty read: for the race between a delete and a late
// update (projection.h). No policy hides a row from it.
#ifndef POSTBOX_EXTENSION_APPLY_DIRTY_FIND_H_
#define POSTBOX_EXTENSION_APPLY_DIRTY_FIND_H_

#include "extension/base/guard.h"

namespace postbox {

struct SearchColumn {
  AttrNumber number;
  Oid type;
  Datum value;
};

// The column to read: a bigint or an integer.
struct VersionColumn {
  AttrNumber number;
  Oid type;
};

// Finds the row whose key columns hold the values of `columns`, by a unique index, with a dirty
// read: waits until every transaction that is writing such a row has ended, and locks the row. If
// it returns true, `found` is the version of the row, 0 if that is null.
//
// Nothing converts here. So the types are compared with those of the relation as it is now: code of
// its owner may have run in this transaction since the columns were resolved.
bool DirtyFind(Oid relation, Oid index, std::span<const SearchColumn> columns,
               const VersionColumn& version, int64* found);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_DIRTY_FIND_H_
