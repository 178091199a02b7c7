#include "extension/trust/operator_role.h"

#include "extension/base/relation.h"
#include "extension/base/version.h"

namespace postbox {

bool IsOperator(Oid role) {
  return Pg([&] {
    const Oid operators = get_role_oid("postbox_operator", true);
    return OidIsValid(operators) && has_privs_of_role(role, operators);
  });
}

bool MayActOn(Oid relation, Oid role) {
  if (RelationName(relation).empty()) return false;
  return Pg([&] { return OwnsRelation(relation, role); }) || IsOperator(role);
}

bool MayActFor(Oid owner, Oid role) {
  return Pg([&] { return has_privs_of_role(role, owner); }) || IsOperator(role);
}

}  // namespace postbox
