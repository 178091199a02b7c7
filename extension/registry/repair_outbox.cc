// postbox.repair_outbox and postbox.register_outbox.
//
// repair_outbox puts back what was dropped or altered of a registered outbox. register_outbox
// registers a table that was an outbox: before a DROP EXTENSION, or in a dump. It takes the same
// steps, and refuses what they cannot make whole.
//
// Versions do not go back. A new counter begins where the events that are left are. Retention may
// have taken all events of an aggregate; its versions are not above the number of events that the
// outbox has given out, which its sequence knows. So aggregates that the new counter lacks begin
// above that (postbox.outbox.version_floor).
//
// What was parked is lost with its table: in the log it cannot be told from what was published.
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/registry/generations.h"
#include "extension/registry/log_relations.h"
#include "extension/registry/outbox_parts.h"
#include "extension/registry/outbox_registration.h"
#include "extension/registry/repair.h"
#include "extension/registry/table_relations.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

constexpr char kCounter[] = "version counter";
constexpr char kParked[] = "table of parked events";

OutboxParts ReadParts(Oid relation) {
  OutboxParts parts{.relation = relation, .owner = RelationOwner(relation), .registered = true};
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  Run("SELECT o.kind = 'log', o.adopted, CASE WHEN o.generation_span IS NOT NULL "
      "THEN postbox.generation_expression(o.generation_span) END "
      "FROM postbox.require_outbox($1) o",
      key);
  parts.is_log = BoolColumn(0, 1);
  parts.adopted = BoolColumn(0, 2);
  parts.generation = TextColumn(0, 3);
  parts.counter = RegisteredPart(relation, kCounter, "outbox", "counter");
  if (parts.is_log) parts.parked = RegisteredPart(relation, kParked, "outbox", "parked");
  if (parts.adopted) parts.columns = ReadOutboxColumns(relation);
  return parts;
}

// What no version of an aggregate is above that was given without being counted: an expression of
// e.type, with a comma before it. Empty if nothing was (given_version.h).
std::string GivenFloor(const OutboxParts& parts) {
  if (!parts.is_log) return "";
  Parameters outbox;
  outbox.AddOid(REGCLASSOID, parts.relation);
  if (Run("SELECT FROM postbox.given_version WHERE outbox = $1 LIMIT 1", outbox) == 0) return "";
  const std::string name = RelationName(parts.relation);
  const std::string literal = Pg([&]() -> const char* { return quote_literal_cstr(name.c_str()); });
  return ", (SELECT max(g.version) FROM postbox.given_version g WHERE g.outbox = " + literal +
         "::regclass AND g.aggregate_type = e.type COLLATE \"C\")";
}

// The statement that raises the counter to the events that are there.
std::string CountStatement(const OutboxParts& parts, const std::string& counter) {
  const OutboxColumns& columns = parts.columns;
  const auto versions = [&](const std::string& table) {
    return "SELECT " + columns.aggregate_type.name + "::text, " + columns.AggregateId() + ", " +
           columns.Version() + " FROM " + table;
  };
  std::string events = versions(RelationName(parts.relation));
  if (OidIsValid(parts.parked)) events += " UNION ALL " + versions(RelationName(parts.parked));
  const std::string floor = GivenFloor(parts);
  return "INSERT INTO " + counter +
         " AS c (aggregate_type, aggregate_id, version) SELECT e.type, e.id, " +
         (floor.empty() ? "max(e.version)" : "greatest(max(e.version)" + floor + ")") + " FROM (" +
         events +
         ") AS e(type, id, version) WHERE e.type IS NOT NULL AND e.id IS NOT NULL AND e.version IS "
         "NOT NULL GROUP BY 1, 2 ON CONFLICT (aggregate_type, aggregate_id) DO UPDATE SET version "
         "= "
         "EXCLUDED.version WHERE c.version < EXCLUDED.version";
}

bool CountsVersions(const OutboxParts& parts) {
  return !parts.adopted || !parts.columns.VersionIsSeq();
}

// What no version that the outbox has given out is above, unless its emitters chose it themselves.
int64 VersionFloor(const OutboxParts& parts) {
  if (!CountsVersions(parts)) return 0;
  const OwnerRights rights(parts.owner);
  const int64 seq = GreatestSeq(parts);
  Run("SELECT coalesce(max(" + parts.columns.Version() + "), 0) FROM " +
      RelationName(parts.relation));
  return std::max(seq, Int64Column(0, 1));
}

void WarnParkedLost(Oid relation) {
  const std::string name = RelationName(relation);
  Pg([&] {
    ereport(WARNING, (errmsg("the parked events of outbox %s are lost", name.c_str()),
                      errdetail("In the log they cannot be distinguished from published events."),
                      errhint("Emit them again, or drop and create the publication, which then "
                              "publishes all events that are still in the log.")));
  });
}

// Makes the parts that are missing. Returns the version floor of a new counter, or 0.
int64 MakeMissingParts(OutboxParts* parts, Repair* repair) {
  const std::string name = RelationName(parts->relation);
  if (parts->is_log && !OidIsValid(parts->parked)) {
    const NewRelation parked = FreeRelation(parts->relation, "parked");
    std::vector<std::string> statements =
        CreateStatements(ParkedShape(), parked.schema, parked.name);
    statements.push_back(TriggersStatement(parked.Qualified(), "parked"));
    repair->Do({name, std::string("the ") + kParked + " is missing: the parked events are lost",
                statements});
    if (!repair->dry_run()) {
      parts->parked = RelationNamed(parked.Qualified());
      WarnParkedLost(parts->relation);
    }
  }
  if (OidIsValid(parts->counter)) return 0;
  const int64 floor = VersionFloor(*parts);
  const NewRelation counter = FreeRelation(parts->relation, "version");
  std::vector<std::string> statements =
      CreateStatements(CounterShape(), counter.schema, counter.name);
  if (CountsVersions(*parts)) {
    statements.push_back(CountStatement(*parts, counter.Qualified()));
  }
  repair->Do({name,
              std::string("the ") + kCounter +
                  " is missing: aggregates without an event in the outbox begin above version " +
                  std::to_string(floor),
              statements});
  if (!repair->dry_run()) parts->counter = RelationNamed(counter.Qualified());
  return floor;
}

void RequireOwner(Oid relation) {
  Pg([&] {
    if (OwnsRelation(relation, GetUserId())) return;
    aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relation));
  });
}

[[noreturn]] void RefuseOutbox(Oid relation, int sqlstate, const std::string& why,
                               const std::string& hint = "") {
  Throw(sqlstate, "\"" + RelationName(relation) + "\" cannot be registered as an outbox", why,
        hint);
}

// What the table is, if it may be an outbox.
OutboxParts ReadUnregistered(Oid relation, const NullableDatum& retention) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  if (Run("SELECT c.relkind, c.relpersistence = 'p' AND NOT c.relispartition AND (c.relkind = 'p' "
          "OR "
          "NOT EXISTS (SELECT FROM pg_inherits i WHERE c.oid IN (i.inhrelid, i.inhparent))), "
          "EXISTS (SELECT FROM postbox.outbox o WHERE c.oid IN (o.relation, o.counter, o.parked)) "
          "OR EXISTS (SELECT FROM postbox.inbox i WHERE c.oid IN (i.relation, i.tombstone)), "
          "CASE WHEN c.relkind = 'p' THEN pg_get_partkeydef(c.oid) END, "
          "coalesce(obj_description(c.oid, 'pg_class'), '') FROM pg_class c WHERE c.oid = $1",
          key) == 0) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "relation with OID " + std::to_string(relation) + " does not exist");
  }
  OutboxParts parts{.relation = relation, .owner = RelationOwner(relation)};
  parts.is_log = CharColumn(0, 1) == RELKIND_PARTITIONED_TABLE;
  const std::string partitioning = TextColumn(0, 4);
  if (BoolColumn(0, 3)) {
    RefuseOutbox(relation, ERRCODE_DUPLICATE_OBJECT, "It belongs to an outbox or inbox already.");
  }
  if (!parts.is_log && CharColumn(0, 1) != RELKIND_RELATION) {
    RefuseOutbox(relation, ERRCODE_WRONG_OBJECT_TYPE, "It is not a table.");
  }
  if (!BoolColumn(0, 2)) {
    RefuseOutbox(relation, ERRCODE_WRONG_OBJECT_TYPE,
                 "It is a partition, inherits, or is not logged and permanent.");
  }
  if (!parts.is_log) {
    if (TextColumn(0, 5) == kTableComment) return parts;
    RefuseOutbox(relation, ERRCODE_WRONG_OBJECT_TYPE,
                 std::string("Its comment is not \"") + kTableComment +
                     "\", so it was not created by postbox.create_outbox.",
                 "postbox.adopt_outbox makes an outbox of it, and takes over its version counter.");
  }
  if (partitioning != "LIST (generation)") {
    RefuseOutbox(relation, ERRCODE_WRONG_OBJECT_TYPE,
                 "It is partitioned by " + partitioning + ", not by LIST (generation).");
  }
  if (Pg([&] { return get_attnum(relation, "seq"); }) == InvalidAttrNumber) {
    RefuseOutbox(relation, ERRCODE_WRONG_OBJECT_TYPE,
                 "It has no column \"seq\", so it was not created by postbox.create_outbox.");
  }
  // The default says how long a generation is written to, if it is still there.
  Parameters of;
  of.AddOid(REGCLASSOID, relation);
  if (retention.isnull) {
    of.AddNull(INTERVALOID);
  } else {
    of.Add(INTERVALOID, retention.value);
  }
  Run("SELECT postbox.generation_expression(coalesce((SELECT make_interval(secs => (regexp_match("
      "pg_get_expr(d.adbin, d.adrelid), 'generation_of[(]now[(][)], ([0-9]{1,9})[)]'))[1]::float8) "
      "FROM pg_attrdef d JOIN pg_attribute a ON a.attrelid = d.adrelid AND a.attnum = d.adnum "
      "WHERE d.adrelid = $1 AND a.attname = 'generation'), postbox.generation_span($2)))",
      of);
  parts.generation = TextColumn(0, 1);
  return parts;
}

std::vector<Flaw> FindFlawsAsOwner(const OutboxParts& parts) {
  const OwnerRights rights(parts.owner);
  return FindOutboxFlaws(parts);
}

void RegisterAgain(OutboxParts parts, const NullableDatum& retention, Oid counter, Oid parked) {
  const std::string unfit = parts.is_log ? WhyUnfitPartition(parts.relation) : "";
  if (!unfit.empty()) RefuseOutbox(parts.relation, ERRCODE_WRONG_OBJECT_TYPE, unfit);
  parts.counter = FindFreePart(parts.relation, counter, "version", kCounter, CounterShape());
  if (parts.is_log) {
    parts.parked = FindFreePart(parts.relation, parked, "parked", kParked, ParkedShape());
  } else if (OidIsValid(parked)) {
    RefuseOutbox(parts.relation, ERRCODE_INVALID_PARAMETER_VALUE,
                 std::string("An outbox of kind table has no ") + kParked + ".");
  }
  for (const Flaw& flaw : FindFlawsAsOwner(parts)) {
    if (!flaw.repair.empty()) continue;
    RefuseOutbox(parts.relation, ERRCODE_INVALID_TABLE_DEFINITION,
                 flaw.object + ": " + flaw.problem + ".");
  }
  Repair repair(parts.owner, false);
  const bool counted = OidIsValid(parts.counter);
  const int64 floor = MakeMissingParts(&parts, &repair);
  repair.DoAll(FindFlawsAsOwner(parts));
  if (counted) {
    const OwnerRights rights(parts.owner);
    Run(CountStatement(parts, RelationName(parts.counter)));
  }
  const size_t comma = parts.generation.find(", ");
  RegisterOutbox(
      {.relation = parts.relation,
       .counter = parts.counter,
       .parked = parts.parked,
       .kind = parts.is_log ? "log" : "table",
       .retention = retention,
       .generation_span =
           comma == std::string::npos
               ? ""
               : std::to_string(std::atoi(parts.generation.c_str() + comma + 2)) + " seconds",
       .version_floor = floor});
  repair.Announce();
  if (parts.is_log) MakePartitions(parts.relation);
}

void RepairOutbox(Oid relation, Repair* repair) {
  repair->FixOwners(relation);
  OutboxParts parts = ReadParts(relation);
  const int64 floor = MakeMissingParts(&parts, repair);
  std::vector<Flaw> flaws;
  {
    const OwnerRights rights(parts.owner);
    flaws = FindOutboxFlaws(parts);
  }
  repair->DoAll(flaws);
  if (repair->dry_run()) return;
  // Workers read it again in any case.
  const Registrar registrar("outbox");
  Parameters row;
  row.AddOid(REGCLASSOID, relation).AddOid(REGCLASSOID, parts.counter);
  row.AddOid(REGCLASSOID, parts.parked).Add(INT8OID, Int64GetDatum(floor));
  Run("UPDATE postbox.outbox SET counter = $2, parked = nullif($3::oid, 0)::regclass, "
      "version_floor = greatest(version_floor, $4) WHERE relation = $1",
      row);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(repair_outbox) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    const Oid relation = OidArgument(fcinfo, 0, "outbox");
    const bool dry_run = DatumGetBool(Argument(fcinfo, 1, "dry_run"));
    SpiConnection connection;
    FixedSearchPath search_path;
    Parameters key;
    key.AddOid(REGCLASSOID, relation);
    Run("SELECT FROM postbox.require_outbox($1)", key);
    RequireOwner(relation);
    if (!dry_run) {
      LockForRepair(relation);
      RequireOwner(relation);
      LockRegistration("outbox", relation);
    }
    Repair repair(RelationOwner(relation), dry_run);
    RepairOutbox(relation, &repair);
    repair.Return(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(register_outbox) {
  using namespace postbox;
  return Guarded([&] {
    const Oid relation = OidArgument(fcinfo, 0, "relation");
    CheckRetention(fcinfo->args[1]);
    const auto optional = [&](int argument) {
      return HasArgument(fcinfo, argument) ? DatumGetObjectId(fcinfo->args[argument].value)
                                           : InvalidOid;
    };
    SpiConnection connection;
    FixedSearchPath search_path;
    RequireOwner(relation);
    ReadUnregistered(relation, fcinfo->args[1]);
    // A role that may not register it does not wait for it, and blocks no other.
    LockForRepair(relation);
    RequireOwner(relation);
    const OutboxParts parts = ReadUnregistered(relation, fcinfo->args[1]);
    RegisterAgain(parts, fcinfo->args[1], optional(2), optional(3));
    return ObjectIdGetDatum(relation);
  });
}
