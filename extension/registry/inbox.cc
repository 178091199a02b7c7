// postbox.create_inbox, alter_inbox, drop_inbox and purge_inbox (purge_inbox.h).
//
// The tables are created and dropped as the caller, with the caller's rights. The row of
// postbox.inbox is written as the owner of postbox.inbox.
#include "extension/base/arguments.h"
#include "extension/base/new_relation.h"
#include "extension/base/relation.h"
#include "extension/registry/active_rebuild.h"
#include "extension/registry/generations.h"
#include "extension/registry/inbox_registration.h"
#include "extension/registry/inbox_shape.h"
#include "extension/registry/purge_inbox.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <storage/lmgr.h>
}

namespace postbox {
namespace {

// The longest name made from that of the inbox: <name>_tombstone_g0_pkey.
constexpr size_t kInboxSuffixLength = 18;

void CreateTables(const NewRelation& relation) {
  RunAll(CreateStatements(InboxShape(), relation.schema, relation.name));
  Run(AddPartitionsStatement(relation.Qualified(), kInboxGenerations));
  RunAll(CreateStatements(TombstoneShape(), relation.schema, relation.name + "_tombstone"));
  Run(AddPartitionsStatement(relation.Qualified("_tombstone"), kInboxGenerations));
}

}  // namespace

Oid CreateInbox(const NewRelation& relation, Datum retention) {
  SpiConnection connection;
  FixedSearchPath search_path;
  CreateTables(relation);
  Parameters names;
  names.AddText(relation.Qualified()).AddText(relation.Qualified("_tombstone"));
  Run("SELECT $1::regclass::oid, $2::regclass::oid", names);
  const Oid table = OidColumn(0, 1);
  Parameters row;
  row.AddOid(REGCLASSOID, table).AddOid(REGCLASSOID, OidColumn(0, 2));
  row.Add(INTERVALOID, retention);
  const Registrar registrar("inbox");
  Run("INSERT INTO postbox.inbox (relation, tombstone, retention) VALUES ($1, $2, $3)", row);
  return table;
}

// Drops the tables and their registration. The event trigger of 90_lifecycle.sql would delete the
// registration, but event triggers may be disabled.
void DropInbox(Oid relation) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(relation);
  // The same order as plain DROP TABLE takes: the table first, then its registration.
  Pg([&] { LockRelationOid(relation, AccessExclusiveLock); });
  RequireInboxOwner(relation);
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  Oid tombstone = InvalidOid;
  {
    const Registrar registrar("inbox");
    Run("DELETE FROM postbox.inbox WHERE relation = $1 RETURNING tombstone::oid", key);
    tombstone = OidColumn(0, 1);
  }
  Run("DROP TABLE " + RelationName(relation));
  const std::string tombstone_name = RelationName(tombstone);
  if (!tombstone_name.empty()) Run("DROP TABLE " + tombstone_name);
}

namespace {

void AlterInbox(FunctionCallInfo fcinfo) {
  const Oid relation = OidArgument(fcinfo, 0, "inbox");
  if (HasArgument(fcinfo, 1)) CheckInboxRetention(fcinfo->args[1].value);
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(relation);
  if (HasArgument(fcinfo, 2)) SetParksKeys(relation, DatumGetBool(fcinfo->args[2].value));
  if (!HasArgument(fcinfo, 1)) return;
  LockRegistration("inbox", relation);
  Parameters row;
  row.AddOid(REGCLASSOID, relation).Add(INTERVALOID, fcinfo->args[1].value);
  const Registrar registrar("inbox");
  Run("UPDATE postbox.inbox AS i SET retention = $2 WHERE i.relation = $1", row);
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(create_inbox) {
  using namespace postbox;
  return Guarded([&] {
    const std::string name = TextArgument(fcinfo, 0, "name");
    const Datum retention = Argument(fcinfo, 1, "retention");
    CheckInboxRetention(retention);
    const NewRelation relation = ParseNewRelation(name, kInboxSuffixLength);
    return ObjectIdGetDatum(CreateInbox(relation, retention));
  });
}

POSTBOX_FUNCTION(alter_inbox) {
  using namespace postbox;
  return Guarded([&] {
    AlterInbox(fcinfo);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(drop_inbox) {
  using namespace postbox;
  return Guarded([&] {
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    SpiConnection connection;
    FixedSearchPath search_path;
    RequireNoRebuildWith(relation);
    DropInbox(relation);
    return Datum{0};
  });
}

POSTBOX_FUNCTION(purge_inbox) {
  using namespace postbox;
  return Guarded([&] {
    const Oid relation = OidArgument(fcinfo, 0, "inbox");
    return Int32GetDatum(PurgeInbox(relation));
  });
}
