// What `postbox audit` reads of an outbox and of an inbox, and the result that it stores.
//
// The tables belong to users: they are read as their owner, in a security-restricted operation and
// under a fixed search_path. A caller needs SELECT on them, without row security, or is an
// operator. The SQL is in sql/install/functions/80_audit.sql.
#include "extension/registry/read_as_owner.h"
#include "extension/trust/operator_role.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <utils/jsonb.h>
}

namespace postbox {
namespace {

void CheckAuditStatus(const std::string& status) {
  if (status == "clean" || status == "differences" || status == "incomplete") return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "unknown status of an audit: \"" + status + "\"", "",
        "It is clean, differences or incomplete.");
}

void CheckFindings(Datum findings) {
  if (Pg([&] { return JB_ROOT_IS_OBJECT(DatumGetJsonbP(findings)); })) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "findings must be a JSON object", "",
        "It has the count of each kind of difference, such as {\"missing\": 2}.");
}

// The inbox of a subscription, of which the caller has the rights of the owner.
void RequireAuditor(const std::string& subscription) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  Parameters name;
  name.AddText(subscription);
  if (Run("SELECT postbox.owns_inbox(s.inbox) FROM postbox.subscription s WHERE s.name = $1",
          name) == 0) {
    Throw(ERRCODE_UNDEFINED_OBJECT, "subscription \"" + subscription + "\" does not exist", "",
          "The subscriptions of this database are listed in postbox.subscription.");
  }
  if (BoolColumn(0, 1) || IsOperator(GetUserId())) return;
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
        "permission denied for subscription \"" + subscription + "\"",
        "Results of audits are stored by the owner of its inbox.",
        "Grant membership in the role of the owner, or in postbox_operator.");
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(audit_emitted) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, OutboxArgument(fcinfo),
                       "SELECT * FROM postbox.read_emitted($1, $2, $3, $4, $5, $6)",
                       {TEXTOID, INT4OID, INT8OID, UUIDOID, INT8OID, INT4OID});
  });
}

POSTBOX_FUNCTION(audit_events) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, OutboxArgument(fcinfo),
                       "SELECT * FROM postbox.read_events($1, $2, $3)",
                       {TEXTOID, UUIDARRAYOID, BOOLOID});
  });
}

POSTBOX_FUNCTION(audit_last_versions) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, OutboxArgument(fcinfo),
                       "SELECT * FROM postbox.read_last_versions($1, $2, $3, $4)",
                       {TEXTOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID});
  });
}

POSTBOX_FUNCTION(audit_repeated_versions) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, OutboxArgument(fcinfo),
                       "SELECT * FROM postbox.read_repeated_versions($1, $2)", {TEXTOID, INT4OID});
  });
}

POSTBOX_FUNCTION(audit_received) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, InboxArgument(fcinfo), "SELECT * FROM postbox.read_received($1, $2)",
                       {REGCLASSOID, UUIDARRAYOID});
  });
}

POSTBOX_FUNCTION(audit_arrivals) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, InboxArgument(fcinfo),
                       "SELECT * FROM postbox.read_arrivals($1, $2, $3, $4, $5)",
                       {REGCLASSOID, INT8OID, UUIDOID, INT8OID, INT4OID});
  });
}

// It emits: SELECT is not enough.
POSTBOX_FUNCTION(audit_emit_again) {
  using namespace postbox;
  return Guarded([&] {
    const Oid outbox = OutboxArgument(fcinfo);
    if (!IsThere(outbox)) Throw(ERRCODE_UNDEFINED_TABLE, "the table was dropped");
    const Oid owner = RelationOwner(outbox);
    const bool owns = Pg([&] { return has_privs_of_role(GetUserId(), owner); });
    if (!owns && !IsOperator(GetUserId())) {
      Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied for outbox " + RelationName(outbox),
            "Only its owner and operators emit an event again.",
            "Grant membership in the role of the owner, or in postbox_operator.");
    }
    Parameters parameters = ArgumentsAsParameters(fcinfo, {TEXTOID, UUIDOID});
    const SqlAs as(owner);
    Run("SELECT postbox.emit_event_again($1, $2)", parameters);
    return Int64GetDatum(Int64Column(0, 1));
  });
}

POSTBOX_FUNCTION(record_audit) {
  using namespace postbox;
  return Guarded([&] {
    RequireAuditor(TextArgument(fcinfo, 0, "subscription"));
    TextArgument(fcinfo, 1, "source");
    CheckAuditStatus(TextArgument(fcinfo, 2, "status"));
    CheckFindings(Argument(fcinfo, 4, "findings"));
    Parameters parameters = ArgumentsAsParameters(
        fcinfo, {TEXTOID, TEXTOID, TEXTOID, TIMESTAMPTZOID, JSONBOID, TEXTOID});
    const SqlAs as(std::nullopt);
    const Registrar registrar("audit");
    Run("INSERT INTO postbox.audit (subscription, source, status, watermark, findings, detail) "
        "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (subscription, source) DO UPDATE SET "
        "status = excluded.status, watermark = excluded.watermark, "
        "checked_at = excluded.checked_at, findings = excluded.findings, "
        "detail = excluded.detail",
        parameters);
    return Datum{0};
  });
}
