// The rights with which the tables of an outbox or inbox are altered and filled: those of their
// owner, in a restricted operation unless that is the current role, and with row_security off. What
// a policy would hide is an error.
#ifndef POSTBOX_EXTENSION_TRUST_OWNER_RIGHTS_H_
#define POSTBOX_EXTENSION_TRUST_OWNER_RIGHTS_H_

#include "extension/trust/act_as.h"

namespace postbox {

// For the life of the object. Needs FixedSearchPath.
class OwnerRights {
 public:
  explicit OwnerRights(Oid owner);

 private:
  ActAs act_as_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_TRUST_OWNER_RIGHTS_H_
