// The event trigger postbox_follow_altered: what belongs to an outbox or an inbox goes with it when
// it gets another owner or another schema.
//
// PostgreSQL takes indexes and the sequence of a column along. The version counter, the table of
// parked events, the partitions and the tombstones are separate tables (postbox.parts_of). With
// another owner than the outbox they are of no use to it: emitting, publishing and purging run as
// the owner of the outbox.
//
//  - Nothing is done with the rights of Postbox. A part is altered by the role that has altered the
//    outbox, as if it had named it. What it may not do stays undone, and a WARNING says so.
//  - A part goes along only from where the outbox was: what had the old owner gets the new one, and
//    what was in the old schema goes into the new one. The owner of an outbox may have dropped a
//    part, and in a restored database its number may be that of another's table. When a superuser
//    alters the outbox, such a table stays what it is.
//  - Names stay: parts are found by their numbers, and a name may be taken.
//  - Any other statement costs a look at its parse tree.
//
// Where event triggers are disabled, postbox.outbox_status shows what has stayed behind.
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/subtransaction.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <commands/event_trigger.h>
#include <nodes/parsenodes.h>
#include <storage/lmgr.h>
#include <utils/fmgroids.h>
}

namespace postbox {
namespace {

struct Place {
  Oid owner = InvalidOid;
  Oid schema = InvalidOid;
};

bool ChangesPlace(const Node* statement) {
  if (statement == nullptr) return false;
  if (IsA(statement, AlterObjectSchemaStmt)) return true;
  if (!IsA(statement, AlterTableStmt)) return false;
  ListCell* cell;
  foreach (cell, reinterpret_cast<const AlterTableStmt*>(statement)->cmds) {
    if (static_cast<const AlterTableCmd*>(lfirst(cell))->subtype == AT_ChangeOwner) return true;
  }
  return false;
}

// Where a relation is according to a snapshot; nothing if it is not there.
Place PlaceIn(Snapshot snapshot, Oid relation) {
  return Pg([&] {
    Place place;
    Relation catalog = table_open(RelationRelationId, AccessShareLock);
    ScanKeyData key;
    ScanKeyInit(&key, Anum_pg_class_oid, BTEqualStrategyNumber, F_OIDEQ,
                ObjectIdGetDatum(relation));
    SysScanDesc scan = systable_beginscan(catalog, ClassOidIndexId, true, snapshot, 1, &key);
    HeapTuple tuple = systable_getnext(scan);
    if (HeapTupleIsValid(tuple)) {
      const auto* form = reinterpret_cast<Form_pg_class>(GETSTRUCT(tuple));
      place = {form->relowner, form->relnamespace};
    }
    systable_endscan(scan);
    table_close(catalog, AccessShareLock);
    return place;
  });
}

struct Part {
  Oid of;
  Oid relation;
  std::string kind;
};

// The parts of the outboxes and inboxes among the relations that the statement has altered. Asked
// as the owner of Postbox, since no ALTER TABLE needs a right on schema postbox.
std::vector<Part> PartsOfAltered() {
  Run("SELECT coalesce(array_agg(DISTINCT objid), '{}') FROM pg_event_trigger_ddl_commands() "
      "WHERE classid = 'pg_class'::regclass AND objsubid = 0");
  Parameters altered;
  altered.Add(OIDARRAYOID, DatumColumn(0, 1));
  const Registrar registrar("outbox");
  const uint64 rows =
      Run("SELECT p.relation::oid, p.part::oid, p.kind FROM postbox.parts_of($1) p", altered);
  std::vector<Part> parts;
  for (uint64 row = 0; row < rows; ++row) {
    parts.push_back({OidColumn(row, 1), OidColumn(row, 2), TextColumn(row, 3)});
  }
  return parts;
}

void WarnLeftBehind(const Part& part, const std::string& what, const std::string& why,
                    const std::string& repair) {
  const std::string name = RelationName(part.relation);
  const std::string of = RelationName(part.of);
  Pg([&] {
    ereport(WARNING, (errmsg("table %s, the %s of %s, %s", name.c_str(), part.kind.c_str(),
                             of.c_str(), what.c_str()),
                      errdetail_internal("%s", why.c_str()), errhint("%s", repair.c_str())));
  });
}

// Whether the part stays and the statement goes on: the part may not be altered by this role, or
// its place is taken. Anything else, such as a deadlock, ends the statement, which can be repeated.
bool MayStay(const PostgresError& error) {
  return error.sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE ||
         error.sqlstate == ERRCODE_DUPLICATE_TABLE || error.sqlstate == ERRCODE_DUPLICATE_OBJECT ||
         error.sqlstate == ERRCODE_UNDEFINED_TABLE;
}

// Runs ALTER TABLE part `change`. Returns why the part stays; empty if it does not.
std::string Alter(Oid part, const std::string& change) {
  try {
    InSubtransaction([&] { Run("ALTER TABLE " + RelationName(part) + change); });
    return "";
  } catch (const PostgresError& error) {
    if (!MayStay(error)) throw;
    return error.message;
  }
}

void Follow(const Part& part, const Place& before, const Place& now) {
  // Under its lock the name is that of this table.
  Pg([&] { LockRelationOid(part.relation, AccessExclusiveLock); });
  const std::string name = RelationName(part.relation);
  if (name.empty()) return;
  const Oid owner = RelationOwner(part.relation);
  if (now.owner != before.owner && owner != now.owner) {
    const std::string change = " OWNER TO " + Quoted(RoleName(now.owner));
    const std::string why = owner == before.owner ? Alter(part.relation, change)
                                                  : "It did not belong to the old owner either.";
    if (!why.empty()) {
      // The number of a part that was dropped may be that of another's table.
      WarnLeftBehind(part, "still belongs to role \"" + RoleName(owner) + "\"", why,
                     "If it is the right table, run ALTER TABLE " + name + change + ".");
    }
  }
  const Oid schema = Pg([&] { return get_rel_namespace(part.relation); });
  if (now.schema != before.schema && schema == before.schema) {
    const char* to = Pg([&]() -> const char* { return get_namespace_name(now.schema); });
    const std::string why = Alter(part.relation, " SET SCHEMA " + Quoted(to));
    if (!why.empty()) WarnLeftBehind(part, "stays in its schema", why, "It works there, too.");
  }
}

void FollowAltered(const Node* statement) {
  if (!ChangesPlace(statement) || !ActiveSnapshotSet()) return;
  // The snapshot with which the statement began: it shows where the relations were.
  const Snapshot before = Pg([] { return RegisterSnapshot(GetActiveSnapshot()); });
  SpiConnection connection;
  FixedSearchPath search_path;
  for (const Part& part : PartsOfAltered()) {
    const Place was = PlaceIn(before, part.of);
    if (!OidIsValid(was.owner)) continue;  // made in this statement
    Follow(part, was, {RelationOwner(part.of), Pg([&] { return get_rel_namespace(part.of); })});
  }
  Pg([&] { UnregisterSnapshot(before); });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(follow_altered) {
  return postbox::Guarded([&] {
    if (!CALLED_AS_EVENT_TRIGGER(fcinfo)) {
      postbox::Throw(ERRCODE_E_R_I_E_EVENT_TRIGGER_PROTOCOL_VIOLATED,
                     "follow_altered() is an event trigger function");
    }
    const auto* trigger = reinterpret_cast<const EventTriggerData*>(fcinfo->context);
    postbox::FollowAltered(trigger->parsetree);
    return Datum{0};
  });
}
