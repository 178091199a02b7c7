// The retention of an inbox and its tombstones: generations are emptied, and the next one becomes
// current. sql/install/functions/40_inbox.sql has the rules.
#ifndef POSTBOX_EXTENSION_REGISTRY_PURGE_INBOX_H_
#define POSTBOX_EXTENSION_REGISTRY_PURGE_INBOX_H_

#include "extension/base/guard.h"

namespace postbox {

// Returns how many partitions were emptied.
int PurgeInbox(Oid relation);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_PURGE_INBOX_H_
