#include "extension/trust/operator_role.h"

namespace postbox {

bool IsOperator(Oid role) {
  return Pg([&] {
    const Oid operators = get_role_oid("postbox_operator", true);
    return OidIsValid(operators) && has_privs_of_role(role, operators);
  });
}

}  // namespace postbox
