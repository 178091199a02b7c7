#include "extension/registry/inbox_registration.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/registry/registered_names.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <storage/lmgr.h>
}

namespace postbox {

void ThrowNoInbox(Oid relation) {
  const std::string name = RelationName(relation);
  if (name.empty()) {
    Throw(ERRCODE_UNDEFINED_TABLE, "inbox with OID " + std::to_string(relation) + " does not exist",
          "Its table has been dropped.", "Create it with postbox.create_inbox.");
  }
  Throw(ERRCODE_WRONG_OBJECT_TYPE, "\"" + name + "\" is not an inbox", "",
        "Create an inbox with postbox.create_inbox. The inboxes of this database are listed in "
        "postbox.inbox.");
}

void RequireInboxOwner(Oid relation) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation);
  const std::string name = RelationName(relation);
  if (name.empty() || Run("SELECT FROM postbox.inbox WHERE relation = $1", key) == 0) {
    ThrowNoInbox(relation);
  }
  if (!Pg([&] { return OwnsRelation(relation, GetUserId()); })) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE, "must be owner of inbox \"" + name + "\"");
  }
}

Oid InboxOf(const char* kind, const std::string& name) {
  Parameters key;
  key.AddText(name);
  if (Run("SELECT inbox::oid FROM postbox." + std::string(kind) + " WHERE name = $1", key) == 0) {
    ThrowUnknownName(kind, name);
  }
  return OidColumn(0, 1);
}

void DropNamed(const char* kind, const std::string& name) {
  SpiConnection connection;
  FixedSearchPath search_path;
  RequireInboxOwner(InboxOf(kind, name));
  const Registrar registrar(kind);
  Parameters key;
  key.AddText(name);
  Run("DELETE FROM postbox." + std::string(kind) + " WHERE name = $1", key);
}

void SetParksKeys(Oid relation, bool parks) {
  Parameters key;
  key.AddOid(REGCLASSOID, relation).Add(BOOLOID, BoolGetDatum(parks));
  const std::string sql = "FROM postbox.inbox i WHERE i.relation = $1 AND i.park_keys <> $2";
  if (Run("SELECT " + sql, key) == 0) {
    LockRegistration("inbox", relation);
    if (Run("SELECT " + sql, key) == 0) return;  // another session may have changed it
  }
  Pg([&] { LockRelationOid(relation, ShareRowExclusiveLock); });
  RequireInboxOwner(relation);
  LockRegistration("inbox", relation);
  if (!parks) {
    const Registrar registrar("parked_key");
    Run("SELECT (SELECT count(*) FROM postbox.parked_key k WHERE k.inbox = $1), "
        "(SELECT s.name FROM postbox.subscription s WHERE s.inbox = $1 "
        "AND s.on_error = 'park_key' LIMIT 1)",
        key);
    const int64 keys = Int64Column(0, 1);
    const std::string subscription = TextColumn(0, 2);
    if (keys > 0) {
      Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "keys of inbox \"" + RelationName(relation) + "\" are parked",
            std::to_string(keys) + " keys are in postbox.paused_keys.",
            "Redrive them with postbox.redrive_dead_letters, or discard their events.");
    }
    if (!subscription.empty()) {
      Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
            "subscription \"" + subscription + "\" parks keys of the inbox", "",
            "Give it another on_error first.");
    }
  }
  const Registrar registrar("inbox");
  Run("UPDATE postbox.inbox AS i SET park_keys = $2 WHERE i.relation = $1", key);
}

}  // namespace postbox
