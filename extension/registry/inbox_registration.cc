#include "extension/registry/inbox_registration.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"

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

}  // namespace postbox
