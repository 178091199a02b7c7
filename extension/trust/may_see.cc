#include "extension/trust/may_see.h"

#include "extension/base/relation.h"
#include "extension/trust/operator_role.h"

extern "C" {
#include <catalog/pg_authid.h>
#include <utils/acl.h>
#include <utils/rls.h>
}

namespace postbox {

bool MayRead(Oid relation) {
  return Pg([&] {
    const Oid caller = GetUserId();
    return pg_class_aclcheck(relation, caller, ACL_SELECT) == ACLCHECK_OK &&
           SchemaAclCheck(get_rel_namespace(relation), caller, ACL_USAGE) == ACLCHECK_OK &&
           check_enable_rls(relation, InvalidOid, true) != RLS_ENABLED;
  });
}

bool MaySee(std::initializer_list<Oid> tables) {
  if (IsOperator(GetUserId())) return true;
  if (Pg([] { return has_privs_of_role(GetUserId(), ROLE_PG_MONITOR); })) return true;
  return std::all_of(tables.begin(), tables.end(), MayRead);
}

}  // namespace postbox
