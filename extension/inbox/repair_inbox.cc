// postbox.repair_inbox: puts back what was dropped or altered of a registered inbox.
#include "extension/base/act_as.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/inbox/inbox_cache.h"
#include "extension/inbox/inbox_shape.h"
#include "extension/server/repair.h"

namespace postbox {
namespace {

constexpr char kTombstones[] = "table of tombstones";

// Makes the table of tombstones if there is none.
Oid MakeMissingTombstones(Oid relation, Oid tombstones, Repair* repair) {
  if (OidIsValid(tombstones)) return tombstones;
  const NewRelation made = FreeRelation(relation, "tombstone");
  repair->Do({RelationName(relation),
              std::string("the ") + kTombstones +
                  " is missing: an older event that comes late may bring a deleted row back",
              CreateStatements(TombstoneShape(), made.schema, made.name)});
  return repair->dry_run() ? InvalidOid : RelationNamed(made.Qualified());
}

void RepairInbox(Oid relation, Repair* repair) {
  repair->FixOwners(relation);
  Oid tombstones = RegisteredPart(relation, kTombstones, "inbox", "tombstone");
  const bool missing = !OidIsValid(tombstones);
  tombstones = MakeMissingTombstones(relation, tombstones, repair);
  repair->DoAll(FindFlaws(relation, InboxShape()));
  if (OidIsValid(tombstones)) repair->DoAll(FindFlaws(tombstones, TombstoneShape()));
  if (repair->dry_run() || !missing) return;
  const ActAs registrar(RelationOwner(PostboxRelation("inbox")));
  Parameters row;
  row.AddOid(REGCLASSOID, relation).AddOid(REGCLASSOID, tombstones);
  Run("UPDATE postbox.inbox SET tombstone = $2 WHERE relation = $1", row);
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
