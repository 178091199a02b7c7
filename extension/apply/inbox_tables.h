// The two tables of an inbox, checked as they are now. They belong to the inbox's owner, who may
// alter them. What is read out of them as a Datum, or looked up without SQL, must have the type
// that create_inbox gave it; everything else is left to the server's casts.
#ifndef POSTBOX_EXTENSION_APPLY_INBOX_TABLES_H_
#define POSTBOX_EXTENSION_APPLY_INBOX_TABLES_H_

#include "extension/apply/seen_ids.h"
#include "extension/base/spi.h"

namespace postbox {

// A partition of <name>_tombstone: where its columns are, and the primary key.
struct TombstonePartition {
  Oid relation = InvalidOid;
  Oid index = InvalidOid;
  AttrNumber target = 0;      // regclass
  AttrNumber key = 0;         // text
  AttrNumber generation = 0;  // smallint
  AttrNumber version = 0;     // bigint
};

// <name>_tombstone.
struct TombstoneTable {
  Oid relation = InvalidOid;
  std::string name;                             // quoted, qualified
  std::vector<TombstonePartition> generations;  // all of them
};

// Both need an open SPI connection. They throw what is wrong: object_not_in_prerequisite_state for
// what is missing, datatype_mismatch for a column of another type.
TombstoneTable ResolveTombstones(Oid relation, const std::string& inbox);
// Returns the partitions of the inbox, by their generation.
std::vector<InboxPartition> CheckInboxTable(Oid relation, const std::string& inbox);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_INBOX_TABLES_H_
