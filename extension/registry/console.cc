// What `postbox console` reads of outboxes and inboxes, and the line that it stores with an action.
//
// Tables of users are read as `postbox audit` reads them: as their owner, by callers who may read
// them (extension/registry/read_as_owner.h). The SQL is in sql/install/functions/84_console.sql.
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/registry/read_as_owner.h"
#include "extension/trust/operator_role.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <access/detoast.h>
}

namespace postbox {
namespace {

// The rows are kept for long, so they are short. A filter of postbox console has at most 200 ids.
constexpr size_t kLongestText = 1000;
constexpr size_t kLargestFilter = 16384;

void CheckLength(const std::string& text, const char* name) {
  if (text.size() <= kLongestText) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE,
        std::string(name) + " may have at most " + std::to_string(kLongestText) + " bytes");
}

void CheckFilter(Datum filter) {
  if (Pg([&] { return toast_raw_datum_size(filter); }) <= kLargestFilter) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE,
        "filter may have at most " + std::to_string(kLargestFilter) + " bytes");
}

void CheckExpected(int64 affected, FunctionCallInfo fcinfo) {
  if (!HasArgument(fcinfo, 3)) return;
  const int64 expected = DatumGetInt64(Argument(fcinfo, 3, "expected"));
  if (affected <= expected) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        std::to_string(affected) + " events match, and " + std::to_string(expected) +
            " were confirmed",
        "", "Look at them, and confirm again.");
}

// Each action has checked the rights to its subject before. A role that can do none of them has
// nothing to store, so it does not fill the table.
bool IsActor() {
  if (IsOperator(GetUserId())) return true;
  const SpiConnection connection;
  const FixedSearchPath search_path;
  Parameters none;
  Run("SELECT EXISTS (SELECT FROM (SELECT o.relation FROM postbox.outbox o "
      "UNION ALL SELECT i.relation FROM postbox.inbox i) r "
      "JOIN pg_class c ON c.oid = r.relation WHERE pg_has_role(c.relowner, 'USAGE')) "
      "OR EXISTS (SELECT FROM postbox.backfill_status b WHERE pg_has_role(b.owner, 'USAGE'))",
      none);
  return BoolColumn(0, 1);
}

void RequireActor() {
  if (IsActor()) return;
  Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied to record an action of a console",
        "The role owns no outbox, no inbox and no backfill.",
        "Use a role that owns one, or a member of postbox_operator.");
}

// Those whose actions the rows tell cannot delete them at once.
void CheckAge(Parameters& age) {
  Run("SELECT clock_timestamp() - $1 <= clock_timestamp() - interval '30 days'", age);
  if (BoolColumn(0, 1)) return;
  Throw(ERRCODE_INVALID_PARAMETER_VALUE, "older_than must be at least 30 days", "",
        "The rows say who did what, and are kept for that long.");
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(may_act_on) {
  using namespace postbox;
  return Guarded(
      [&] { return BoolGetDatum(MayActOn(OidArgument(fcinfo, 0, "relation"), GetUserId())); });
}

POSTBOX_FUNCTION(may_act_for) {
  using namespace postbox;
  return Guarded(
      [&] { return BoolGetDatum(MayActFor(OidArgument(fcinfo, 0, "owner"), GetUserId())); });
}

POSTBOX_FUNCTION(may_record_action) {
  return postbox::Guarded([&] { return BoolGetDatum(postbox::IsActor()); });
}

// The row says who the caller is, whatever the caller says.
POSTBOX_FUNCTION(record_console_action) {
  using namespace postbox;
  return Guarded([&] {
    RequireActor();
    CheckLength(TextArgument(fcinfo, 0, "action"), "action");
    CheckLength(TextArgument(fcinfo, 1, "subject"), "subject");
    CheckExpected(DatumGetInt64(Argument(fcinfo, 2, "affected")), fcinfo);
    if (HasArgument(fcinfo, 4)) CheckLength(TextArgument(fcinfo, 4, "reason"), "reason");
    if (HasArgument(fcinfo, 5)) CheckFilter(Argument(fcinfo, 5, "filter"));
    // The fourth is not stored.
    Parameters row =
        ArgumentsAsParameters(fcinfo, {TEXTOID, TEXTOID, INT8OID, INT8OID, TEXTOID, JSONBOID});
    row.AddText(RoleName(GetUserId()));
    const SqlAs as(std::nullopt);
    const Registrar registrar("console_action");
    Run("INSERT INTO postbox.console_action (action, subject, affected, reason, filter, acted_by) "
        "VALUES ($1, $2, $3, $5, $6, $7::name) RETURNING id",
        row);
    return Int64GetDatum(Int64Column(0, 1));
  });
}

POSTBOX_FUNCTION(prune_console_actions) {
  using namespace postbox;
  return Guarded([&] {
    if (!IsOperator(GetUserId())) {
      Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "permission denied to delete the actions of consoles",
            "", "Use a member of postbox_operator.");
    }
    Parameters age;
    age.Add(INTERVALOID, Argument(fcinfo, 0, "older_than"));
    const std::string caller = RoleName(GetUserId());
    const SqlAs as(std::nullopt);
    const Registrar registrar("console_action");
    CheckAge(age);
    age.AddText(caller);
    Run("WITH gone AS (DELETE FROM postbox.console_action a WHERE a.acted_at < clock_timestamp() - "
        "$1 RETURNING a.id), told AS (INSERT INTO postbox.console_action (action, subject, "
        "affected, filter, acted_by) SELECT 'prune', 'actions', count(*), "
        "jsonb_build_object('older_than', $1::text), $2::name FROM gone HAVING count(*) > 0) "
        "SELECT count(*) FROM gone",
        age);
    return Int64GetDatum(Int64Column(0, 1));
  });
}

POSTBOX_FUNCTION(find_events) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, OutboxArgument(fcinfo),
                       "SELECT * FROM postbox.read_found_events($1, $2, $3, $4, $5, $6, $7)",
                       {TEXTOID, UUIDOID, TEXTOID, TEXTOID, INT8OID, INT4OID, INT4OID});
  });
}

POSTBOX_FUNCTION(find_received) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, InboxArgument(fcinfo),
                       "SELECT * FROM postbox.read_found_received($1, $2, $3, $4)",
                       {REGCLASSOID, TEXTOID, INT8OID, INT4OID});
  });
}
