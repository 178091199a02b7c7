// Whether the generations of an inbox that are not current have the ids of events.
//
// Most ids are in none of them, and each event asks. So the index of a generation is read without
// SQL: a statement would cost several times what a look costs. No policy hides a row, as none hides
// it from the unique index of the current generation.
//
// No transaction inserts into these generations. So what is found in none of them is in none of
// them when it is inserted into the current one. A row that another transaction is about to delete
// there counts as long as that is not committed: it is inserted into the current one, then.
//
// Ids of outboxes begin with their time, so new ones are mostly greater than all of an older
// generation. Of many ids those are not looked for that are greater than the greatest there.
#ifndef POSTBOX_EXTENSION_APPLY_SEEN_IDS_H_
#define POSTBOX_EXTENSION_APPLY_SEEN_IDS_H_

#include "extension/base/guard.h"

namespace postbox {

// A partition of an inbox, and its unique index on (event_id, generation).
struct InboxPartition {
  Oid relation = InvalidOid;
  Oid index = InvalidOid;
};

// Sets `seen` for the ids that the partition has; fastest if they are in their order. Its column
// event_id is a uuid.
void FindSeen(const InboxPartition& partition, std::span<const pg_uuid_t* const> ids,
              std::vector<bool>* seen);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_SEEN_IDS_H_
