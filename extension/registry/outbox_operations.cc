// What a caller asks of an outbox without touching its table: redrive, discard, purge, the
// partitions, the backlog and the paused keys.
//
// The SQL functions behind these name columns, casts and operators of a table that belongs to a
// user, and its triggers, policies and types are that user's code. So they run as the owner of the
// outbox, in a security-restricted operation and under a fixed search_path, whenever the caller did
// not choose that table or has more rights than its owner:
//   - postbox.publication_status, outbox_status and paused_keys look at every outbox that the
//     caller may read, always as its owner;
//   - the functions act as the owner for those who have the rights of the owner, superusers among
//     them; redrive and discard also for members of postbox_operator. Other callers act with
//     their own rights, as an UPDATE or DELETE would.
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/statement.h"
#include "extension/registry/publishing_state.h"
#include "extension/registry/sql_as.h"
#include "extension/shared/problem.h"
#include "extension/trust/may_see.h"
#include "extension/trust/operator_role.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

// Whom a function acts as whose first argument is an outbox: its owner if the caller has the rights
// of the owner, as superusers do, or is an operator where these may call.
enum class Callers { kOwners, kOwnersAndOperators };
std::optional<Oid> OwnerToActAs(FunctionCallInfo fcinfo, Callers callers) {
  if (!HasArgument(fcinfo, 0)) return std::nullopt;  // the SQL function says what is wrong
  const Oid outbox = DatumGetObjectId(fcinfo->args[0].value);
  if (!IsThere(outbox)) return std::nullopt;
  const Oid owner = RelationOwner(outbox);
  const bool owns = Pg([&] { return has_privs_of_role(GetUserId(), owner); });
  if (!owns && (callers == Callers::kOwners || !IsOperator(GetUserId()))) return std::nullopt;
  return owner;
}

// The tables that hold the events of an outbox, as it is registered. What the caller names is only
// looked up, so that rights on one table never open another.
struct Tables {
  Oid outbox = InvalidOid;
  Oid parked = InvalidOid;  // of a log outbox
};

constexpr char kFindTables[] =
    "SELECT o.relation::oid, coalesce(o.parked, 0)::oid FROM postbox.outbox o WHERE ";

Tables FindTables(Statement& statement, Datum value) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  if (statement.Run({value}) == 0) return {};
  return {OidColumn(0, 1), OidColumn(0, 2)};
}

Tables FindTables(Oid outbox) {
  static Statement& find =
      *new Statement(std::string(kFindTables) + "o.relation = $1", {REGCLASSOID});
  return FindTables(find, ObjectIdGetDatum(outbox));
}

Tables FindTablesOf(const std::string& publication) {
  static Statement& find = *new Statement(
      std::string(kFindTables) +
          "o.relation = (SELECT p.outbox FROM postbox.publication p WHERE p.name = $1)",
      {TEXTOID});
  return FindTables(find, TextValue(publication));
}

// Why a publication is suspended or retrying. An error may show data of events, so the column is
// for the owner of the outbox, operators and members of pg_monitor.
std::optional<std::string> LastError(const std::string& publication) {
  static Statement& find = *new Statement(
      "SELECT s.last_error FROM postbox.publication_state s WHERE s.publication = $1 "
      "AND s.attempts > 0 AND s.next_retry_at IS NOT NULL",
      {TEXTOID});
  if (std::optional<std::string> error = RetryError(publication)) return error;
  const SpiConnection connection;
  const FixedSearchPath search_path;
  const Registrar registrar("publication_state");
  const uint64 rows = find.Run({TextValue(publication)});
  if (rows == 0 || IsNull(0, 1)) return std::nullopt;
  return TextColumn(0, 1);
}

// A log has nothing that says that an event was discarded. The publications come out of a table of
// its owner.
void RecordDiscarded(FunctionCallInfo fcinfo, const std::vector<std::string>& publications) {
  Parameters parameters = ArgumentsAsParameters(fcinfo, {REGCLASSOID, UUIDOID});
  parameters.Add(TEXTARRAYOID, TextArrayValue(publications));
  const Registrar registrar("discarded_outgoing");
  Run("INSERT INTO postbox.discarded_outgoing (publication, event_id) SELECT p.name, $2 "
      "FROM postbox.publication p JOIN postbox.outbox o ON o.relation = p.outbox "
      "WHERE p.outbox = $1 AND p.name = ANY ($3) AND o.kind = 'log' "
      "ON CONFLICT (publication, event_id) DO NOTHING",
      parameters);
}

// Kept for longer than the events are.
void ForgetDiscarded(FunctionCallInfo fcinfo) {
  if (!HasArgument(fcinfo, 0)) return;
  Parameters outbox;
  outbox.AddOid(REGCLASSOID, OidArgument(fcinfo, 0, "outbox"));
  if (Run("SELECT FROM postbox.discarded_outgoing d JOIN postbox.publication p ON p.name = "
          "d.publication WHERE p.outbox = $1 LIMIT 1",
          outbox) == 0) {
    return;
  }
  const Registrar registrar("discarded_outgoing");
  Run("DELETE FROM postbox.discarded_outgoing d USING postbox.publication p, postbox.outbox o "
      "WHERE p.name = d.publication AND p.outbox = $1 AND o.relation = p.outbox "
      "AND d.discarded_at < now() - o.retention - 2 * o.generation_span",
      outbox);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(redrive) {
  using namespace postbox;
  return Guarded([&] {
    Parameters parameters = ArgumentsAsParameters(fcinfo, {REGCLASSOID, UUIDOID});
    const SqlAs rights(OwnerToActAs(fcinfo, Callers::kOwnersAndOperators));
    Run("SELECT postbox.redrive_events($1, $2)", parameters);
    return Int64GetDatum(Int64Column(0, 1));
  });
}

POSTBOX_FUNCTION(discard) {
  using namespace postbox;
  return Guarded([&] {
    Parameters parameters = ArgumentsAsParameters(fcinfo, {REGCLASSOID, UUIDOID});
    const SpiConnection connection;
    const FixedSearchPath search_path;
    std::vector<std::string> publications;
    {
      const SqlAs rights(OwnerToActAs(fcinfo, Callers::kOwnersAndOperators));
      Run("SELECT postbox.discard_event($1, $2)", parameters);
      if (IsNull(0, 1)) return BoolGetDatum(false);
      publications = TextArrayColumn(0, 1);
    }
    RecordDiscarded(fcinfo, publications);
    return BoolGetDatum(true);
  });
}

POSTBOX_FUNCTION(purge_outbox) {
  using namespace postbox;
  return Guarded([&] {
    Parameters parameters = ArgumentsAsParameters(fcinfo, {REGCLASSOID, INT4OID});
    const SqlAs rights(OwnerToActAs(fcinfo, Callers::kOwners));
    Run("SELECT postbox.purge_events($1, $2)", parameters);
    const int64 purged = Int64Column(0, 1);
    ForgetDiscarded(fcinfo);
    return Int64GetDatum(purged);
  });
}

// So partitions belong to the owner of the outbox, who has to be able to drop them, and its code
// runs as the owner, whatever role puts them back.
POSTBOX_FUNCTION(make_partitions) {
  using namespace postbox;
  return Guarded([&] {
    Parameters outbox;
    outbox.AddOid(REGCLASSOID, OidArgument(fcinfo, 0, "outbox"));
    const SqlAs rights(OwnerToActAs(fcinfo, Callers::kOwners));
    Run("SELECT postbox.add_missing_partitions($1)", outbox);
    return Int32GetDatum(Int32Column(0, 1));
  });
}

// Not an error for a table that is gone or may not be seen: the view shows the others.
POSTBOX_FUNCTION(show_backlog) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    const std::string name = TextArgument(fcinfo, 0, "publication");
    const Tables tables = FindTablesOf(name);
    if (!IsThere(tables.outbox)) return Datum{0};
    if (!MaySee({tables.outbox, IsThere(tables.parked) ? tables.parked : tables.outbox})) {
      return Datum{0};
    }
    const std::optional<std::string> error = LastError(name);
    const Datum values[] = {TextValue(name), error.has_value() ? TextValue(*error) : Datum{0}};
    static Statement& look =
        *new Statement("SELECT b.*, $2 FROM postbox.publication_backlog($1) b", {TEXTOID, TEXTOID});
    const SqlAs owner(RelationOwner(tables.outbox));
    ReturnRows(fcinfo, look.Run(values, error.has_value() ? "  " : " n"));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(show_paused_keys) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    Parameters outbox;
    outbox.AddOid(REGCLASSOID, OidArgument(fcinfo, 0, "outbox"));
    const Tables tables = FindTables(OidArgument(fcinfo, 0, "outbox"));
    if (!IsThere(tables.outbox)) return Datum{0};
    if (!MaySee({IsThere(tables.parked) ? tables.parked : tables.outbox})) return Datum{0};
    const SqlAs owner(RelationOwner(tables.outbox));
    ReturnRows(fcinfo, Run("SELECT * FROM postbox.outbox_paused_keys($1)", outbox));
    return Datum{0};
  });
}

POSTBOX_FUNCTION(show_retention_problem) {
  using namespace postbox;
  return Guarded([&] {
    Parameters outbox;
    outbox.AddOid(REGCLASSOID, OidArgument(fcinfo, 0, "outbox"));
    const Tables tables = FindTables(OidArgument(fcinfo, 0, "outbox"));
    std::optional<Problem> problem;
    if (IsThere(tables.outbox) && MaySee({tables.outbox})) {
      const SqlAs owner(RelationOwner(tables.outbox));
      Run("SELECT p.* FROM postbox.retention_problem($1) p", outbox);
      problem = ProblemRow();
    }
    return ProblemResult(fcinfo, problem);
  });
}

POSTBOX_FUNCTION(sees_outbox) {
  using namespace postbox;
  return Guarded([&] {
    const Tables tables = FindTables(OidArgument(fcinfo, 0, "outbox"));
    return BoolGetDatum(IsThere(tables.outbox) &&
                        MaySee({IsThere(tables.parked) ? tables.parked : tables.outbox}));
  });
}

POSTBOX_FUNCTION(is_operator) {
  return postbox::Guarded([&] { return BoolGetDatum(postbox::IsOperator(GetUserId())); });
}
