// The row of a rebuild in postbox.rebuild: who may use it, finding and locking it, and what goes
// with its end.
#include "extension/apply/rebuild.h"
#include "extension/base/relation.h"
#include "extension/registry/inbox_registration.h"
#include "extension/trust/act_as.h"
#include "extension/trust/operator_role.h"
#include "extension/trust/registrar.h"

namespace postbox {

void RequireRebuilder(Oid inbox) {
  if (!MayActOn(inbox, GetUserId())) RequireInboxOwner(inbox);
}

namespace {

Rebuild ReadRebuild(const std::string& projection, bool may_have_ended) {
  const Oid caller = GetUserId();
  const Registrar registrar("rebuild");
  Parameters key;
  key.AddText(projection);
  if (Run("SELECT r.projection, r.target::oid, r.inbox::oid, r.shadow::oid, r.shadow_inbox::oid, "
          "r.keys, r.absent = 'delete', r.start_xid::text, r.state, r.home = "
          "postbox.this_database() "
          "FROM postbox.rebuild r WHERE r.projection = $1 OR r.target = "
          "(SELECT p.target FROM postbox.projection p WHERE p.name = $1 AND p.target <> 0) "
          "ORDER BY r.state = 'active' DESC LIMIT 1 FOR UPDATE",
          key) == 0) {
    Throw(ERRCODE_UNDEFINED_OBJECT, "projection \"" + projection + "\" is not being rebuilt", "",
          "postbox.rebuild_projection begins a rebuild. postbox.rebuild_status lists them.");
  }
  Rebuild rebuild{.projection = TextColumn(0, 1),
                  .target = OidColumn(0, 2),
                  .inbox = OidColumn(0, 3),
                  .shadow = OidColumn(0, 4),
                  .shadow_inbox = OidColumn(0, 5),
                  .keys = TextArrayColumn(0, 6),
                  .delete_absent = BoolColumn(0, 7),
                  .start_xid = TextColumn(0, 8),
                  .is_here = BoolColumn(0, 10)};
  const std::string state = TextColumn(0, 9);
  if (!MayActOn(rebuild.inbox, caller)) {
    Throw(ERRCODE_INSUFFICIENT_PRIVILEGE,
          "must be owner of inbox \"" + RelationName(rebuild.inbox) + "\"", "",
          "Or be a member of postbox_operator.");
  }
  if (state != "active" && !may_have_ended) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "the rebuild of projection \"" + rebuild.projection + "\" is " + state, "",
          "postbox.rebuild_projection begins another one.");
  }
  return rebuild;
}

}  // namespace

Rebuild LockRebuild(const std::string& projection) { return ReadRebuild(projection, false); }
Rebuild FindRebuild(const std::string& projection) { return ReadRebuild(projection, true); }

std::vector<ProjectionConfig> ProjectionsOf(Oid target) {
  Parameters key;
  key.AddOid(REGCLASSOID, target);
  return ReadProjections("SELECT " + std::string(kProjectionColumns) +
                             " FROM postbox.projection p WHERE target = $1 ORDER BY id",
                         key);
}

void DropShadow(const Rebuild& rebuild) {
  const Oid owner = RelationOwner(rebuild.inbox);
  const ActAs act_as(owner, TrustIn(owner));
  // Either may have been dropped by its owner.
  if (!RelationName(rebuild.shadow_inbox).empty()) DropInbox(rebuild.shadow_inbox);
  const std::string shadow = RelationName(rebuild.shadow);
  if (!shadow.empty()) Run("DROP TABLE " + shadow);
}

void UpdateRebuild(const Rebuild& rebuild, const std::string& assignments, Parameters more) {
  const Registrar registrar("rebuild");
  Parameters row;
  row.AddOid(REGCLASSOID, rebuild.target);
  for (int i = 0; i < more.size(); ++i) {
    if (more.nulls()[i] == 'n') {
      row.AddNull(more.types()[i]);
    } else {
      row.Add(more.types()[i], more.values()[i]);
    }
  }
  Run("UPDATE postbox.rebuild SET " + assignments + " WHERE target = $1", row);
}

}  // namespace postbox
