// Acts as the owner of a table of Postbox's own, for statements on it: a superuser, mostly. These
// may come after code of a user that is still on the stack of roles, and that may have left its
// own search_path behind. So the search_path is fixed here, whatever it is outside.
#ifndef POSTBOX_EXTENSION_TRUST_REGISTRAR_H_
#define POSTBOX_EXTENSION_TRUST_REGISTRAR_H_

#include "extension/base/relation.h"
#include "extension/trust/act_as.h"

namespace postbox {

class Registrar {
 public:
  explicit Registrar(const char* table) : owner_(RelationOwner(PostboxRelation(table))) {}

 private:
  const ActAs owner_;
  const FixedSearchPath search_path_;
};

// Locks the registration of an outbox (registry "outbox") or an inbox (registry "inbox") until the
// end of the transaction, acting as the owner of the registry: what refers to it is created and
// dropped under this lock. Needs SPI. Throws undefined_table if it has just been dropped.
void LockRegistration(const char* registry, Oid relation);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_REGISTRAR_H_
