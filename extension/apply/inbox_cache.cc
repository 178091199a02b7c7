#include "extension/apply/inbox_cache.h"

#include "extension/apply/inbox_tables.h"
#include "extension/apply/unknown_code.h"
#include "extension/base/relation.h"
#include "extension/registry/inbox_registration.h"
#include "extension/trust/rights.h"

extern "C" {
#include <storage/lmgr.h>
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
        // Also if only a lock was not to be had: what is loaded a second time takes events twice.
        if (inbox->loading_) entries().erase(relation);
        throw;
      }
      if (inbox->valid_ || loads == kMostLoads) {
        inbox->loading_ = false;
        return inbox;
      }
    }
  }
};

std::shared_ptr<Inbox> Inbox::Find(Oid relation, LOCKMODE mode) {
  return InboxCache::Find(relation, mode);
}

Inbox::Inbox(Oid relation) : relation_(relation) {
  context_ = Pg([] {
    return AllocSetContextCreate(TopMemoryContext, "postbox inbox", ALLOCSET_SMALL_SIZES);
  });
}

Inbox::~Inbox() { MemoryContextDelete(context_); }

// While it is being read, a change of any relation counts.
bool Inbox::Watches(Oid relation) const {
  if (loading_ || relation == relation_ || relation == tombstone_) return true;
  if (std::find(std::begin(config_), std::end(config_), relation) != std::end(config_)) return true;
  const auto is_it = [&](const auto& projection) { return projection->DependsOn(relation); };
  return std::any_of(projections_.begin(), projections_.end(), is_it) ||
         std::any_of(problems_.begin(), problems_.end(),
                     [&](const Problem& problem) { return problem.target == relation; });
}

void Inbox::Lock(LOCKMODE mode) const {
  Pg([&] {
    LockRelationOid(relation_, mode);
    LockRelationOid(tombstone_, mode);
    for (const auto& projection : projections_) {
      LockRelationOid(projection->target(), mode);
    }
  });
}

const Route* Inbox::RouteOf(std::string_view event_type) const {
  const auto route = routes_.find(event_type);
  return route == routes_.end() ? nullptr : &route->second;
}

Projection* Inbox::ProjectionOf(Oid target) const {
  for (const auto& projection : projections_) {
    if (projection->target() == target) return projection.get();
  }
  for (const Problem& problem : problems_) {
    if (problem.target == target) throw PostgresError(*problem.error);
  }
  return nullptr;
}

bool Inbox::HasSeveralVersions(Oid target) const {
  std::set<std::string> columns;
  for (const auto& projection : projections_) {
    if (projection->target() == target) columns.insert(projection->version_column());
  }
  return columns.size() > 1;
}

void Inbox::CheckUsable() const {
  if (problems_.size() == 1) throw PostgresError(*problems_[0].error);
  if (!problems_.empty()) {
    std::string all;
    for (const Problem& problem : problems_)
      all += (all.empty() ? "" : "; ") + problem.error->message;
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "projections or handlers of inbox " + name_ + " are broken", all + ".",
          "See postbox.inbox_problem.");
  }
  CheckRights();
}

void Inbox::CheckRights() const {
  const Oid owner = GetUserId();
  for (const auto& projection : projections_) {
    RequireTargetRights(owner, projection->target(), projection->target_name(),
                        projection->deletes());
  }
  for (const auto& handler : handlers_) RequireHandlerRights(owner, handler->function);
}

void Inbox::Load() {
  name_ = RelationName(relation_);
  if (name_.empty()) ThrowNoInbox(relation_);
  config_[0] = PostboxRelation("inbox");
  config_[1] = PostboxRelation("projection");
  config_[2] = PostboxRelation("handler");

  Parameters key;
  key.AddOid(REGCLASSOID, relation_);
  if (Run("SELECT i.tombstone::oid FROM postbox.inbox i WHERE i.relation = $1", key) == 0) {
    ThrowNoInbox(relation_);
  }
  tombstone_ = OidColumn(0, 1);
  CheckInboxTable(relation_, name_);
  tombstones_ = std::make_unique<Tombstones>(ResolveTombstones(tombstone_, name_));

  Oid outcome_array = InvalidOid;
  Pg([&] {
    outcome_type_ = PostboxType("outcome");
    outcome_array = get_array_type(outcome_type_);
    OutcomeOids(outcome_oids_);
  });
  const std::string insert = "INSERT INTO " + name_ +
                             " (event_id, event_type, aggregate_type, aggregate_id, version, "
                             "outcome) ";
  insert_ = Statement(insert + "VALUES ($1, $2, $3, $4, $5, $6) ON CONFLICT (event_id) DO NOTHING",
                      {UUIDOID, TEXTOID, TEXTOID, TEXTOID, INT8OID, outcome_type_});
  insert_many_ = Statement(
      insert +
          "SELECT * FROM unnest($1, $2, $3, $4, $5, $6) ON CONFLICT (event_id) DO NOTHING "
          "RETURNING event_id",
      {UUIDARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID, outcome_array});
  set_outcome_ = Statement::ByKey("UPDATE " + name_ + " SET outcome = $2 WHERE event_id = ANY ($1)",
                                  {UUIDARRAYOID, outcome_type_});
  count_ = Statement::ByKey("SELECT count(*) FROM " + name_ + " WHERE event_id = ANY ($1)",
                            {UUIDARRAYOID});
  delete_rejected_ = Statement::ByKey(
      "DELETE FROM " + name_ + " WHERE event_id = $1 AND outcome = 'rejected'", {UUIDOID});

  LoadProjections();
  LoadHandlers();
  LookForUserCode();
}

void Inbox::LookForUserCode() {
  has_triggers_ = WritingRunsUnknownCode(relation_);
  runs_user_code_ = has_triggers_ || !handlers_.empty() || WritingRunsUnknownCode(tombstone_);
  for (const auto& projection : projections_) {
    runs_user_code_ = runs_user_code_ || WritingRunsUnknownCode(projection->target());
  }
}

void Inbox::NoteProblem(const std::vector<std::string>& event_types, Oid target,
                        const PostgresError& error) {
  problems_.push_back({target, std::make_shared<const PostgresError>(error)});
  for (const std::string& type : event_types) routes_[type].problem = problems_.back().error;
}

void Inbox::LoadProjection(const ProjectionConfig& config) {
  projections_.push_back(std::make_unique<Projection>(config, context_, tombstones_.get()));
  Projection* projection = projections_.back().get();
  for (const std::string& type : config.delete_types) {
    routes_[type].projections.push_back({projection, true});
  }
  for (const std::string& type : config.event_types) {
    if (std::find(config.delete_types.begin(), config.delete_types.end(), type) ==
        config.delete_types.end()) {
      routes_[type].projections.push_back({projection, false});
    }
  }
}

void Inbox::LoadProjections() {
  std::set<Oid> deleting;
  Parameters key;
  key.AddOid(REGCLASSOID, relation_);
  const std::vector<ProjectionConfig> configs =
      ReadProjections("SELECT " + std::string(kProjectionColumns) +
                          " FROM postbox.projection p WHERE inbox = $1 ORDER BY id",
                      key);
  for (const ProjectionConfig& config : configs) {
    if (!config.delete_types.empty()) deleting.insert(config.target);
    try {
      LoadProjection(config);
    } catch (const PostgresError& error) {
      // What the server raises, such as a lock time-out, is no finding and leaves the transaction
      // in the state of an error.
      if (error.raised_by_postgres) throw;
      std::vector<std::string> types = config.event_types;
      types.insert(types.end(), config.delete_types.begin(), config.delete_types.end());
      NoteProblem(types, config.target, error);
    }
  }
  for (const auto& projection : projections_) {
    if (deleting.contains(projection->target())) projection->KeepTombstones();
  }
  LoadAggregateTypes();
}

void Inbox::LoadAggregateTypes() {
  std::map<std::pair<Oid, std::string>, std::shared_ptr<AggregateTypes>> all;
  Parameters key;
  key.AddOid(REGCLASSOID, relation_);
  const uint64 rows =
      Run("SELECT p.target::oid, p.version_column::text, p.aggregate_types FROM postbox.projection "
          "p WHERE p.inbox = $1",
          key);
  for (uint64 row = 0; row < rows; ++row) {
    std::shared_ptr<AggregateTypes>& types = all[{OidColumn(row, 1), TextColumn(row, 2)}];
    if (types == nullptr) types = std::make_shared<AggregateTypes>();
    for (std::string& type : TextArrayColumn(row, 3)) types->Add(std::move(type));
  }
  for (const auto& projection : projections_) {
    std::shared_ptr<AggregateTypes>& types =
        all[{projection->target(), projection->version_column()}];
    if (types == nullptr) types = std::make_shared<AggregateTypes>();
    projection->ShareTypes(types);
  }
}

void Inbox::LoadHandlers() {
  Parameters key;
  key.AddOid(REGCLASSOID, relation_);
  const uint64 rows =
      Run("SELECT h.event_types, h.function, h.id::text, quote_ident(n.nspname), "
          "quote_ident(p.proname), p.oid, p.prorettype = 'void'::regtype AND NOT p.proretset AND "
          "p.prokind = 'f' "
          "FROM postbox.handler h LEFT JOIN pg_proc p ON p.oid = to_regprocedure(h.function) "
          "LEFT JOIN pg_namespace n ON n.oid = p.pronamespace WHERE h.inbox = $1 ORDER BY h.id",
          key);
  const Oid event_type = Pg([] { return PostboxType("event"); });
  for (uint64 row = 0; row < rows; ++row) {
    const std::string schema = TextColumn(row, 4);
    if (schema.empty()) {
      NoteProblem(TextArrayColumn(row, 1), InvalidOid,
                  PostgresError(ERRCODE_UNDEFINED_FUNCTION,
                                "handler " + TextColumn(row, 2) + " does not exist",
                                "Inbox " + name_ + " calls it for events.",
                                "Create the function again, or remove the handler with "
                                "postbox.drop_handler(" +
                                    TextColumn(row, 3) + ")."));
      continue;
    }
    // create_handler has seen to it, but the function may have been dropped and made again. The
    // rows of one that returns a set would all be kept in memory.
    if (!BoolColumn(row, 7)) {
      NoteProblem(TextArrayColumn(row, 1), InvalidOid,
                  PostgresError(ERRCODE_INVALID_FUNCTION_DEFINITION,
                                "handler " + TextColumn(row, 2) + " no longer returns void",
                                "Inbox " + name_ + " calls it for events.",
                                "Create the function as it was, or remove the handler with "
                                "postbox.drop_handler(" +
                                    TextColumn(row, 3) + ")."));
      continue;
    }
    handlers_.push_back(std::make_unique<Handler>(
        OidColumn(row, 6), schema + ", pg_temp",
        "SELECT " + schema + "." + TextColumn(row, 5) + "($1)", event_type));
    for (const std::string& type : TextArrayColumn(row, 1)) {
      routes_[type].handlers.push_back(handlers_.back().get());
    }
  }
}

}  // namespace postbox
