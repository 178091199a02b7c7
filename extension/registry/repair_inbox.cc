// postbox.repair_inbox puts back what was dropped or altered of a registered inbox.
// postbox.register_inbox registers a table that was an inbox, before a DROP EXTENSION or in a dump.
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/registry/generations.h"
#include "extension/registry/inbox_registration.h"
#include "extension/registry/inbox_shape.h"
#include "extension/registry/repair.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

constexpr char kTombstones[] = "table of tombstones";

std::vector<std::string> TombstoneStatements(const NewRelation& made) {
  std::vector<std::string> statements = CreateStatements(TombstoneShape(), made.schema, made.name);
  statements.push_back(AddPartitionsStatement(made.Qualified(), kInboxGenerations));
  return statements;
}

// `tombstones` may be missing.
std::vector<Flaw> FindInboxFlaws(Oid relation, Oid tombstones) {
  std::vector<Flaw> flaws = FindFlaws(relation, InboxShape());
  const auto add = [&](std::vector<Flaw> more) {
    std::move(more.begin(), more.end(), std::back_inserter(flaws));
  };
  add(FindMissingPartitions(relation, kInboxGenerations, "its event ids are lost",
                            AddPartitionsStatement(RelationName(relation), kInboxGenerations)));
  if (!OidIsValid(tombstones)) return flaws;
  add(FindFlaws(tombstones, TombstoneShape()));
  add(FindMissingPartitions(tombstones, kInboxGenerations, "its tombstones are lost",
                            AddPartitionsStatement(RelationName(tombstones), kInboxGenerations)));
  return flaws;
}

// Makes the table of tombstones if there is none.
Oid MakeMissingTombstones(Oid relation, Oid tombstones, Repair* repair) {
  if (OidIsValid(tombstones)) return tombstones;
  const NewRelation made = FreeRelation(relation, "tombstone");
  repair->Do({RelationName(relation),
              std::string("the ") + kTombstones +
                  " is missing: a late event with an older version may bring back a deleted row",
              TombstoneStatements(made)});
  return repair->dry_run() ? InvalidOid : RelationNamed(made.Qualified());
}

void RepairInbox(Oid relation, Repair* repair) {
  repair->FixOwners(relation);
  Oid tombstones = RegisteredPart(relation, kTombstones, "inbox", "tombstone");
  const bool missing = !OidIsValid(tombstones);
  tombstones = MakeMissingTombstones(relation, tombstones, repair);
  repair->DoAll(FindInboxFlaws(relation, tombstones));
  if (repair->dry_run() || !missing) return;
  const Registrar registrar("inbox");
  Parameters row;
  row.AddOid(REGCLASSOID, relation).AddOid(REGCLASSOID, tombstones);
  Run("UPDATE postbox.inbox SET tombstone = $2 WHERE relation = $1", row);
}

[[noreturn]] void RefuseInbox(Oid relation, int sqlstate, const std::string& why) {
  Throw(sqlstate, "\"" + RelationName(relation) + "\" cannot be registered as an inbox", why);
}

void CheckUnregistered(Oid relation) {
  if (RelationName(relation).empty()) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "relation with OID " + std::to_string(relation) + " does not exist");
  }
  Pg([&] {
    if (OwnsRelation(relation, GetUserId())) return;
    aclcheck_error(ACLCHECK_NOT_OWNER, OBJECT_TABLE, get_rel_name(relation));
  });
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  if (Run("SELECT FROM postbox.inbox i WHERE i.relation = $1", key) > 0) {
    RefuseInbox(relation, ERRCODE_DUPLICATE_OBJECT, "It is an inbox already.");
  }
  TableShape least = InboxShape();
  // They can be put back. The ids that were seen cannot.
  std::erase_if(least.columns, [](const ColumnShape& column) { return column.can_be_added; });
  CheckFreePart(relation, "inbox", RelationOwner(relation), least);
  for (const Flaw& flaw : FindFlaws(relation, InboxShape())) {
    if (flaw.repair.empty()) {
      RefuseInbox(relation, ERRCODE_INVALID_TABLE_DEFINITION, "Its " + flaw.problem + ".");
    }
  }
}

void RegisterInbox(Oid relation, Datum retention, Oid given) {
  Oid tombstones = FindFreePart(relation, given, "tombstone", kTombstones, TombstoneShape());
  Repair repair(RelationOwner(relation), false);
  tombstones = MakeMissingTombstones(relation, tombstones, &repair);
  repair.DoAll(FindInboxFlaws(relation, tombstones));
  repair.Announce();
  const Registrar registrar("inbox");
  Parameters row;
  row.AddOid(REGCLASSOID, relation).AddOid(REGCLASSOID, tombstones).Add(INTERVALOID, retention);
  // Generation 0 is current, whatever the others hold: they are kept for the retention from now.
  Run("INSERT INTO postbox.inbox (relation, tombstone, retention) VALUES ($1, $2, $3)", row);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(repair_inbox) {
  using namespace postbox;
  return Guarded([&] {
    Pg([&] { InitMaterializedSRF(fcinfo, 0); });
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    const bool dry_run = DatumGetBool(Argument(fcinfo, 1, "dry_run"));
    SpiConnection connection;
    FixedSearchPath search_path;
    RequireInboxOwner(relation);
    if (!dry_run) {
      LockForRepair(relation);
      RequireInboxOwner(relation);
    }
    Repair repair(RelationOwner(relation), dry_run);
    RepairInbox(relation, &repair);
    repair.Return(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(register_inbox) {
  using namespace postbox;
  return Guarded([&] {
    const Oid relation = OidArgument(fcinfo, 0, "relation");
    const Datum retention = Argument(fcinfo, 1, "retention");
    const Oid tombstones =
        HasArgument(fcinfo, 2) ? DatumGetObjectId(fcinfo->args[2].value) : InvalidOid;
    CheckInboxRetention(retention);
    SpiConnection connection;
    FixedSearchPath search_path;
    CheckUnregistered(relation);
    // A role that may not register it does not wait for it, and blocks no other.
    LockForRepair(relation);
    CheckUnregistered(relation);
    RegisterInbox(relation, retention, tombstones);
    return ObjectIdGetDatum(relation);
  });
}
