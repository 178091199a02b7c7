#include "extension/registry/read_as_owner.h"

#include "extension/registry/inbox_registration.h"
#include "extension/registry/outbox_facts.h"
#include "extension/trust/may_see.h"
#include "extension/trust/operator_role.h"

namespace postbox {
namespace {

void RequireRegisteredInbox(Oid relation) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  Parameters inbox;
  inbox.AddOid(REGCLASSOID, relation);
  if (Run("SELECT FROM postbox.inbox i WHERE i.relation = $1", inbox) == 0) ThrowNoInbox(relation);
}

// The owner of the table.
Oid RequireReadable(Oid relation) {
  if (!IsThere(relation)) Throw(ERRCODE_UNDEFINED_TABLE, "the table was dropped");
  const Oid owner = RelationOwner(relation);
  if (!IsOperator(GetUserId()) && !MayRead(relation)) {
    const std::string name = RelationName(relation);
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied for table " + name,
          "All of its rows are read.",
          "Grant SELECT on " + name +
              " and USAGE on its schema, without row security; or membership in postbox_operator.");
  }
  return owner;
}

}  // namespace

Datum RowsAsOwner(FunctionCallInfo fcinfo, Oid relation, const char* sql,
                  std::initializer_list<Oid> types) {
  const Oid owner = RequireReadable(relation);
  Pg([&] { InitMaterializedSRF(fcinfo, 0); });
  Parameters parameters = ArgumentsAsParameters(fcinfo, types);
  const SqlAs as(owner);
  ReturnRows(fcinfo, Run(sql, parameters));
  return Datum{0};
}

Oid OutboxArgument(FunctionCallInfo fcinfo) {
  const std::string publication = TextArgument(fcinfo, 0, "publication");
  const SpiConnection connection;
  const FixedSearchPath search_path;
  return OutboxOfPublication(publication);
}

Oid InboxArgument(FunctionCallInfo fcinfo) {
  const Oid relation = OidArgument(fcinfo, 0, "inbox");
  RequireRegisteredInbox(relation);
  return relation;
}

}  // namespace postbox
