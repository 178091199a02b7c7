// See row_security.h.
#include "worker/publisher/source/row_security.h"

#include "extension/base/relation.h"

extern "C" {
#include <utils/rls.h>
}

namespace postbox::publisher {

Oid LockOwned(Oid relation, LOCKMODE mode) {
  return Pg([&]() -> Oid {
    Relation locked = try_relation_open(relation, mode);
    if (locked == nullptr) return InvalidOid;
    const Oid owner = locked->rd_rel->relowner;
    relation_close(locked, NoLock);
    return owner;
  });
}

void RefuseRowSecurity(Oid relation, Oid role) {
  if (Pg([&] { return check_enable_rls(relation, role, true); }) != RLS_ENABLED) return;
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
        "query would be affected by row-level security policy for table " + RelationName(relation),
        "Workers read and write all events of an outbox, or none.",
        "To disable the policy for the table's owner, use ALTER TABLE NO FORCE ROW LEVEL "
        "SECURITY.");
}

}  // namespace postbox::publisher
