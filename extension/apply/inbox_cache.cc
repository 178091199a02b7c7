#include "extension/apply/inbox_cache.h"

#include "extension/apply/inbox_tables.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/statement.h"
#include "extension/registry/inbox_registration.h"

extern "C" {
#include <storage/lmgr.h>
#include <utils/snapmgr.h>
}

namespace postbox {

// A load is repeated while the catalogs change under it.
constexpr int kMostLoads = 20;

struct InboxCache {
  // Never destroyed: invalidation callbacks come until the process ends.
  static std::unordered_map<Oid, std::shared_ptr<Inbox>>& entries() {
    static auto& entries = *new std::unordered_map<Oid, std::shared_ptr<Inbox>>;
    return entries;
  }

  // Callbacks run wherever a lock is taken, so they only set marks.
  static void RelationChanged(Datum /*argument*/, Oid relation) {
    for (auto& [key, inbox] : entries()) {
      if (relation == InvalidOid || inbox->Watches(relation)) inbox->valid_ = false;
    }
  }
  static void CatalogChanged(Datum argument, SystemCacheId /*cache*/, uint32 /*hash*/) {
    RelationChanged(argument, InvalidOid);
  }

  static void Watch() {
    static bool watching = false;
    if (watching) return;
    Pg([] {
      CacheRegisterRelcacheCallback(RelationChanged, Datum{0});
      CacheRegisterSyscacheCallback(NAMESPACEOID, CatalogChanged, Datum{0});
      CacheRegisterSyscacheCallback(PROCOID, CatalogChanged, Datum{0});
    });
    watching = true;
  }

  static std::shared_ptr<Inbox> Find(Oid relation, LOCKMODE mode) {
    Watch();
    for (int loads = 0;; ++loads) {
      std::shared_ptr<Inbox>& entry = entries()[relation];
      if (entry == nullptr || !entry->valid_) entry = std::make_shared<Inbox>(relation);
      const std::shared_ptr<Inbox> inbox = entry;
      try {
        if (inbox->loading_) inbox->Load();
        inbox->Lock(mode);
      } catch (...) {
        // Also if only a lock was not to be had: it is read again then.
        if (inbox->loading_) entries().erase(relation);
        throw;
      }
      if (inbox->valid_ || loads == kMostLoads) {
        inbox->loading_ = false;
        if (mode == RowExclusiveLock) inbox->RequireGenerationOfSnapshot();
        return inbox;
      }
    }
  }
};

std::shared_ptr<Inbox> Inbox::Find(Oid relation, LOCKMODE mode) {
  return InboxCache::Find(relation, mode);
}

namespace {

struct InboxState {
  Oid tombstone;
  bool parks_keys;
  int generation;
  TimestampTz generation_since;
};

// Nothing if it is no inbox.
std::optional<InboxState> ReadState(Oid relation) {
  static auto& look = *new Statement(
      "SELECT i.tombstone::oid, i.park_keys, i.generation::int4, i.generation_since "
      "FROM postbox.inbox i WHERE i.relation = $1",
      {REGCLASSOID});
  if (look.RunReadOnly({ObjectIdGetDatum(relation)}) == 0) return std::nullopt;
  return InboxState{OidColumn(0, 1), BoolColumn(0, 2), Int32Column(0, 3),
                    DatumGetTimestampTz(DatumColumn(0, 4))};
}

// What is committed, also if the transaction has an older snapshot.
std::optional<InboxState> ReadStateNow(Oid relation) {
  Pg([] { PushActiveSnapshot(GetLatestSnapshot()); });
  const std::optional<InboxState> state = ReadState(relation);
  Pg([] { PopActiveSnapshot(); });
  return state;
}

}  // namespace

Inbox::Inbox(Oid relation) : relation_(relation) {
  context_ = Pg([] {
    return AllocSetContextCreate(TopMemoryContext, "postbox inbox", ALLOCSET_SMALL_SIZES);
  });
}

Inbox::~Inbox() { MemoryContextDelete(context_); }

// While it is being read, a change of any relation counts.
bool Inbox::Watches(Oid relation) const {
  return loading_ || relation == relation_ || relation == tombstones_->relation() ||
         std::find(std::begin(config_), std::end(config_), relation) != std::end(config_) ||
         rows_->IsPartition(relation) || tombstones_->IsPartition(relation) ||
         routes_->DependOn(relation);
}

void Inbox::Lock(LOCKMODE mode) const {
  Pg([&] {
    LockRelationOid(relation_, mode);
    LockRelationOid(tombstones_->relation(), mode);
    routes_->LockTargets(mode);
  });
}

void Inbox::Load() {
  const std::string name = RelationName(relation_);
  if (name.empty()) ThrowNoInbox(relation_);
  config_[0] = PostboxRelation("inbox");
  config_[1] = PostboxRelation("projection");
  config_[2] = PostboxRelation("handler");

  const std::optional<InboxState> state = ReadStateNow(relation_);
  if (!state) ThrowNoInbox(relation_);
  parks_keys_ = state->parks_keys;
  generation_ = state->generation;
  generation_since_ = state->generation_since;
  rows_ = std::make_unique<InboxRows>(relation_, name, generation_);
  tombstones_ =
      std::make_unique<Tombstones>(ResolveTombstones(state->tombstone, name), generation_);
  routes_ = std::make_unique<Routes>(relation_, name, context_, tombstones_.get());
  runs_user_code_ =
      rows_->has_triggers() || tombstones_->RunsUnknownCode() || routes_->RunUserCode();
}

void Inbox::RequireGenerationOfSnapshot() const {
  if (!IsolationUsesXactSnapshot()) return;
  Pg([] { PushActiveSnapshot(GetTransactionSnapshot()); });
  const std::optional<InboxState> seen = ReadState(relation_);
  Pg([] { PopActiveSnapshot(); });
  if (seen && seen->generation == generation_ && seen->generation_since == generation_since_) {
    return;
  }
  Throw(ERRCODE_T_R_SERIALIZATION_FAILURE, "could not serialize access due to concurrent purge",
        "The current generation of inbox " + name() +
            " has changed since the transaction began, so it does not see all events.",
        "The transaction might succeed if retried.");
}

}  // namespace postbox
