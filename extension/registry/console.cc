// What `postbox console` reads of outboxes and inboxes, and the line that it stores with an action.
//
// Tables of users are read as `postbox audit` reads them: as their owner, by callers who may read
// them (extension/registry/read_as_owner.h). The SQL is in sql/install/functions/84_console.sql.
#include "extension/registry/read_as_owner.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <access/detoast.h>
}

namespace postbox {
namespace {

// Any role may store rows, so they are short. A filter of postbox console has at most 200 ids.
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

}  // namespace
}  // namespace postbox

// The row says who the caller is, whatever the caller says.
POSTBOX_FUNCTION(record_console_action) {
  using namespace postbox;
  return Guarded([&] {
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

POSTBOX_FUNCTION(find_events) {
  using namespace postbox;
  return Guarded([&] {
    return RowsAsOwner(fcinfo, OutboxArgument(fcinfo),
                       "SELECT * FROM postbox.read_found_events($1, $2, $3, $4, $5, $6)",
                       {TEXTOID, UUIDOID, TEXTOID, TEXTOID, INT8OID, INT4OID});
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
