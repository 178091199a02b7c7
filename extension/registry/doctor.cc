// What postbox.doctor() needs of the server. The checks themselves are SQL.
//
// show_findings looks at the tables of an outbox or inbox as their owner, in a security-restricted
// operation and under a fixed search_path, for the owner, operators and monitors: as the status
// views do (extension/registry/outbox_operations.cc).
#include "extension/base/arguments.h"
#include "extension/base/library_version.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/shared/shared_state.h"
#include "extension/trust/act_as.h"
#include "extension/trust/operator_role.h"

extern "C" {
#include <catalog/pg_authid.h>
}

namespace postbox {
namespace {

// The owner of a registered table, if the caller may be told what is wrong with it.
std::optional<Oid> OwnerToExamine(Oid relation) {
  Parameters table;
  table.AddOid(REGCLASSOID, relation);
  if (Run("SELECT FROM pg_class c WHERE c.oid = $1 AND (EXISTS (SELECT FROM postbox.outbox o WHERE "
          "o.relation = c.oid) OR EXISTS (SELECT FROM postbox.inbox i WHERE i.relation = c.oid))",
          table) == 0) {
    return std::nullopt;
  }
  const Oid owner = RelationOwner(relation);
  const bool may_see = IsOperator(GetUserId()) || Pg([&] {
                         return has_privs_of_role(GetUserId(), owner) ||
                                has_privs_of_role(GetUserId(), ROLE_PG_MONITOR);
                       });
  return may_see ? std::optional<Oid>(owner) : std::nullopt;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(library_state) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    return Pg([&] {
      TupleDesc descriptor = nullptr;
      if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE) {
        ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                        errmsg("library_state must return a row")));
      }
      Datum values[] = {CStringGetTextDatum(LibraryVersion()), BoolGetDatum(Preloaded())};
      bool nulls[] = {false, false};
      return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
  });
}

POSTBOX_FUNCTION(show_findings) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    const Oid relation = OidArgument(fcinfo, 0, "relation");
    const SpiConnection connection;
    const FixedSearchPath search_path;
    const std::optional<Oid> owner = OwnerToExamine(relation);
    if (!owner.has_value()) return Datum{0};
    const ActAs rights(*owner, TrustIn(*owner));
    Parameters table;
    table.AddOid(REGCLASSOID, relation);
    ReturnRows(fcinfo, Run("SELECT * FROM postbox.findings_of($1)", table));
    return Datum{0};
  });
}
