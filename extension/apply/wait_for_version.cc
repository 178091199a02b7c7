// postbox.wait_for_version: reading one's own writes from a projection.
//
// Rule: prepare the sleep, then look, then sleep. It looks, each time with a new snapshot, for the
// row of the key (as the caller, who needs SELECT on the target) and then for the key's tombstone
// (as the owner of the inbox), and sleeps on a condition variable of SharedState::applied, which
// every commit of inbox_apply broadcasts that wrote this row, or another one with its place. The
// row or the tombstone counts if its version is at least the wanted one.
//
// The races:
//  - The commit comes after the look and before the sleep. Preparing the sleep put this backend on
//    the list of waiters before the look, so the broadcast sets its latch, and the sleep ends at
//    once.
//  - The broadcast comes before the commit is visible. It does not: the commit callback runs after
//    the transaction has left the proc array (lifecycle/wakeup.h), so the next snapshot sees it.
//  - The key is deleted between the two looks, row first and tombstone second. The look at the
//    tombstone has a later snapshot, which sees it.
//  - A deleted row comes back between the two looks, with a version that would do. Its commit
//    broadcasts, and the loop looks again.
//  - A commit applied an older version, or to a row with the same place. The loop looks and sleeps
//    again, which costs two index lookups.
//  - A handler or a trigger writes the row. The commit wakes all that wait, since the inbox runs
//    code that may write any row.
//  - The transaction of the event is prepared. Nothing is visible before COMMIT PREPARED, which
//    wakes all that wait (lifecycle/hooks.h).
//
// Without the shared memory of a preloaded library it looks every 20 ms; on a standby, where no
// session commits, every 50 ms. A transaction with a fixed snapshot (REPEATABLE READ) would
// never see the row, so that is an error.
//
// On disk are the rows and tombstones; the list of waiters is in shared memory only.
#include "extension/apply/inbox_cache.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/trust/act_as.h"
#include "extension/trust/pinned_settings.h"

namespace postbox {
namespace {

constexpr long kLongestSleepMs = 60 * 1000;

struct Wanted {
  Oid target;
  std::string key;
  int64 version;
  TimestampTz deadline;
};

void CheckIsolation() {
  if (!IsolationUsesXactSnapshot()) return;
  Throw(ERRCODE_INVALID_TRANSACTION_STATE, "wait_for_version needs isolation level READ COMMITTED",
        "This transaction will not see what is committed after its first statement.",
        "Call it in a separate transaction before the one that reads.");
}

// The inbox that feeds the target.
Oid InboxOfTarget(Oid target) {
  static auto& find = *new Statement(
      "SELECT inbox::oid::int8 FROM postbox.projection WHERE target = $1 LIMIT 1", {REGCLASSOID});
  const std::string name = RelationName(target);
  if (name.empty()) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "relation with OID " + std::to_string(target) + " does not exist");
  }
  const Datum value = ObjectIdGetDatum(target);
  int64 inbox = 0;
  if (!find.RunForInt64(&value, nullptr, &inbox)) {
    Throw(
        ERRCODE_WRONG_OBJECT_TYPE, "\"" + name + "\" is not the target of a projection", "",
        "Projections are created with postbox.create_projection and listed in postbox.projection.");
  }
  return static_cast<Oid>(inbox);
}

std::shared_ptr<Inbox> OpenInbox(Oid relation, Oid owner) {
  const ActAs act_as(owner);
  return Inbox::Find(relation, AccessShareLock);
}

bool IsThere(Inbox& inbox, Projection& projection, const BoundValues& key, Oid owner,
             int64 version) {
  int64 stored = 0;
  if (projection.rows().FindStored(key, &stored) && stored >= version) return true;
  if (!projection.keeps_tombstones()) return false;
  const ActAs act_as(owner);
  return inbox.tombstones().FindCommitted(projection.target(), projection.key().Text(key)) >=
         version;
}

bool Wait(const Wanted& wanted) {
  CheckIsolation();
  SpiConnection connection;
  FixedSearchPath search_path;
  PinSettings();
  const Oid relation = InboxOfTarget(wanted.target);
  const Oid owner = RelationOwner(relation);
  const std::shared_ptr<Inbox> inbox = OpenInbox(relation, owner);
  Projection* projection = inbox->routes().ProjectionOf(wanted.target);
  if (projection == nullptr) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, "the projection was dropped concurrently");
  }
  if (inbox->routes().HasSeveralVersions(wanted.target)) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "projections of table " + projection->target_name() + " have different version columns",
          "It is ambiguous which of them the version refers to.",
          "Query the version column in question instead.");
  }
  const BoundValues key = projection->key().FromText(wanted.key);
  return WaitUntil(Awaited::Applied(projection->HashOf(key)), wanted.deadline, kLongestSleepMs,
                   [&] { return IsThere(*inbox, *projection, key, owner, wanted.version); });
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(wait_for_version) {
  using namespace postbox;
  return Guarded([&] {
    Wanted wanted;
    wanted.target = OidArgument(fcinfo, 0, "target");
    wanted.key = TextArgument(fcinfo, 1, "key");
    wanted.version = DatumGetInt64(Argument(fcinfo, 2, "version"));
    wanted.deadline = DeadlineAfter(Argument(fcinfo, 3, "timeout"));
    return BoolGetDatum(Wait(wanted));
  });
}
