#include "extension/trust/rights.h"

extern "C" {
#include <utils/regproc.h>
}

#include "extension/base/relation.h"

namespace postbox {
namespace {

bool MayUseSchema(Oid schema, Oid role) {
  return Pg([&] { return SchemaAclCheck(schema, role, ACL_USAGE) == ACLCHECK_OK; });
}

}  // namespace

void RequireTargetRights(Oid owner, Oid target, const std::string& target_name, bool deletes) {
  struct Right {
    AclMode mode;
    const char* name;
    bool needed;
  };
  const Right rights[] = {{ACL_SELECT, "SELECT", true},
                          {ACL_INSERT, "INSERT", true},
                          {ACL_UPDATE, "UPDATE", true},
                          {ACL_DELETE, "DELETE", deletes}};
  std::string missing;
  for (const Right& right : rights) {
    if (!right.needed ||
        Pg([&] { return pg_class_aclcheck(target, owner, right.mode) == ACLCHECK_OK; })) {
      continue;
    }
    missing += (missing.empty() ? "" : ", ") + std::string(right.name);
  }
  if (!MayUseSchema(Pg([&] { return get_rel_namespace(target); }), owner)) {
    missing += std::string(missing.empty() ? "" : ", ") + "USAGE on its schema";
  }
  if (missing.empty()) return;
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied for table " + target_name,
        "Projections run with the rights of the inbox's owner, role \"" + RoleName(owner) +
            "\", which lacks " + missing + ".",
        "Grant the missing rights to the role.");
}

void RequireHandlerRights(Oid owner, Oid function) {
  const bool execute =
      Pg([&] { return FunctionAclCheck(function, owner, ACL_EXECUTE) == ACLCHECK_OK; });
  if (execute && MayUseSchema(Pg([&] { return get_func_namespace(function); }), owner)) return;
  const std::string signature =
      Pg([&]() -> const char* { return format_procedure_qualified(function); });
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied for function " + signature,
        "Handlers run with the rights of the inbox's owner, role \"" + RoleName(owner) + "\".",
        "Grant the role EXECUTE on the function and USAGE on its schema.");
}

}  // namespace postbox
