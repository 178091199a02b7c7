// Row security that is forced on the owner of an outbox, as whom workers read it.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_ROW_SECURITY_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_ROW_SECURITY_H_

#include "extension/base/guard.h"

namespace postbox::publisher {

// Locks the relation in this mode until the transaction ends, and returns its owner; InvalidOid if
// it does not exist.
Oid LockOwned(Oid relation, LOCKMODE mode);

// Throws insufficient_privilege if policies of the relation hold for `role`. What they hide would
// be passed over for ever. The setting row_security = off does the same, but for the triggers of
// the owner as well, whatever they read. Nothing changes as long as the relation is locked.
void RefuseRowSecurity(Oid relation, Oid role);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_ROW_SECURITY_H_
