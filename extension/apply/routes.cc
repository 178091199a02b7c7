#include "extension/apply/routes.h"

#include "extension/apply/consumer_names.h"
#include "extension/apply/unknown_code.h"
#include "extension/rules/sqlstate_class.h"
#include "extension/trust/rights.h"

extern "C" {
#include <storage/lmgr.h>
}

// NOLINTNEXTLINE(cppcoreguidelines-macro-usage): it is named and read as those of the server are.
#define ERRCODE_POSTBOX_PAUSED                                                              \
  MAKE_SQLSTATE(kPauseSqlstate[0], kPauseSqlstate[1], kPauseSqlstate[2], kPauseSqlstate[3], \
                kPauseSqlstate[4])

namespace postbox {

bool Route::Fits() const {
  return problem == nullptr && std::none_of(pauses.begin(), pauses.end(), [](const auto& pause) {
           return pause->until > GetCurrentTimestamp();
         });
}

void Route::RequireFit() const {
  if (problem != nullptr) throw PostgresError(*problem);
  for (const auto& pause : pauses) {
    if (pause->until > GetCurrentTimestamp()) throw PostgresError(pause->error);
  }
}

Routes::Routes(Oid inbox, const std::string& name, MemoryContext context, Tombstones* tombstones)
    : inbox_name_(name) {
  ReadProjectionsOf(inbox, context, tombstones);
  ReadHandlersOf(inbox);
  ReadPausesOf(inbox);
}

const Route* Routes::Of(std::string_view event_type) const {
  const auto route = by_type_.find(event_type);
  return route == by_type_.end() ? nullptr : &route->second;
}

Projection* Routes::ProjectionOf(Oid target) const {
  for (const auto& projection : projections_) {
    if (projection->target() == target) return projection.get();
  }
  for (const Problem& problem : problems_) {
    if (problem.target == target) throw PostgresError(*problem.error);
  }
  return nullptr;
}

bool Routes::HasSeveralVersions(Oid target) const {
  std::set<std::string> columns;
  for (const auto& projection : projections_) {
    if (projection->target() == target) columns.insert(projection->version_column());
  }
  return columns.size() > 1;
}

void Routes::CheckUsable() const {
  if (problems_.size() == 1) throw PostgresError(*problems_[0].error);
  if (!problems_.empty()) {
    std::string all;
    for (const Problem& problem : problems_)
      all += (all.empty() ? "" : "; ") + problem.error->message;
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "projections or handlers of inbox " + inbox_name_ + " are broken", all + ".",
          "See postbox.inbox_problem.");
  }
  CheckRights();
}

void Routes::CheckRights() const {
  const Oid owner = GetUserId();
  for (const auto& projection : projections_) {
    RequireTargetRights(owner, projection->target(), projection->target_name(),
                        projection->deletes());
  }
  for (const auto& handler : handlers_) RequireHandlerRights(owner, handler->function);
}

void Routes::NoteProblem(const std::vector<std::string>& event_types, Oid target,
                         const PostgresError& error) {
  problems_.push_back({target, std::make_shared<const PostgresError>(error)});
  for (const std::string& type : event_types) by_type_[type].problem = problems_.back().error;
}

void Routes::Add(std::unique_ptr<Projection> added, const ProjectionConfig& config) {
  Projection* projection = projections_.emplace_back(std::move(added)).get();
  for (const std::string& type : config.delete_types) {
    by_type_[type].projections.push_back({projection, true});
  }
  for (const std::string& type : config.event_types) {
    if (std::find(config.delete_types.begin(), config.delete_types.end(), type) ==
        config.delete_types.end()) {
      by_type_[type].projections.push_back({projection, false});
    }
  }
}

void Routes::ReadProjectionsOf(Oid inbox, MemoryContext context, Tombstones* tombstones) {
  std::set<Oid> deleting;
  Parameters key;
  key.AddOid(REGCLASSOID, inbox);
  const std::vector<ProjectionConfig> configs =
      ReadProjections("SELECT " + std::string(kProjectionColumns) +
                          " FROM postbox.projection p WHERE inbox = $1 ORDER BY id",
                      key);
  for (const ProjectionConfig& config : configs) {
    if (!config.delete_types.empty() && config.marks.empty()) deleting.insert(config.target);
    try {
      Add(std::make_unique<Projection>(config, context, tombstones), config);
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
  ShareAggregateTypes(inbox);
}

void Routes::ShareAggregateTypes(Oid inbox) {
  std::map<std::pair<Oid, std::string>, std::shared_ptr<AggregateTypes>> all;
  Parameters key;
  key.AddOid(REGCLASSOID, inbox);
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

void Routes::ReadHandlersOf(Oid inbox) {
  Parameters key;
  key.AddOid(REGCLASSOID, inbox);
  const uint64 rows =
      Run("SELECT h.event_types, h.function, h.name, quote_ident(n.nspname), "
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
                                "Inbox " + inbox_name_ + " calls it for events.",
                                "Create the function again, or remove the handler with "
                                "postbox.drop_handler(" +
                                    NameLiteral(TextColumn(row, 3)) + ")."));
      continue;
    }
    // create_handler has seen to it, but the function may have been dropped and made again. The
    // rows of one that returns a set would all be kept in memory.
    if (!BoolColumn(row, 7)) {
      NoteProblem(TextArrayColumn(row, 1), InvalidOid,
                  PostgresError(ERRCODE_INVALID_FUNCTION_DEFINITION,
                                "handler " + TextColumn(row, 2) + " no longer returns void",
                                "Inbox " + inbox_name_ + " calls it for events.",
                                "Create the function as it was, or remove the handler with "
                                "postbox.drop_handler(" +
                                    NameLiteral(TextColumn(row, 3)) + ")."));
      continue;
    }
    handlers_.push_back(std::make_unique<Handler>(
        OidColumn(row, 6), schema + ", pg_temp",
        "SELECT " + schema + "." + TextColumn(row, 5) + "($1)", event_type));
    for (const std::string& type : TextArrayColumn(row, 1)) {
      by_type_[type].handlers.push_back(handlers_.back().get());
    }
  }
}

void Routes::ReadPausesOf(Oid inbox) {
  Parameters key;
  key.AddOid(REGCLASSOID, inbox);
  const uint64 rows =
      Run("SELECT c.kind, c.name, c.types, c.paused_reason, c.paused_until, "
          "CASE WHEN isfinite(c.paused_until) THEN date_trunc('second', c.paused_until)::text END "
          "FROM (SELECT inbox, 'projection' AS kind, name, event_types || delete_types AS types, "
          "paused_reason, paused_until FROM postbox.projection UNION ALL "
          "SELECT inbox, 'handler', name, event_types, paused_reason, paused_until "
          "FROM postbox.handler) AS c WHERE c.inbox = $1 AND c.paused_until > clock_timestamp()",
          key);
  for (uint64 row = 0; row < rows; ++row) {
    const std::string kind = TextColumn(row, 1);
    const std::string name = TextColumn(row, 2);
    const std::string end = IsNull(row, 6) ? "" : "until " + TextColumn(row, 6) + " or ";
    const auto pause = std::make_shared<const Route::Pause>(Route::Pause{
        Int64Column(row, 5),
        PostgresError(ERRCODE_POSTBOX_PAUSED,
                      kind + " \"" + name + "\" is paused: " + TextColumn(row, 4),
                      "Events of the types that it takes wait " + end + "until it is resumed.",
                      "To end the pause, run SELECT postbox.resume_" + kind + "(" +
                          NameLiteral(name) + ").")});
    for (const std::string& type : TextArrayColumn(row, 3)) by_type_[type].pauses.push_back(pause);
  }
}

bool Routes::RunUserCode() const {
  return !handlers_.empty() ||
         std::any_of(projections_.begin(), projections_.end(), [](const auto& projection) {
           return WritingRunsUnknownCode(projection->target());
         });
}

bool Routes::DependOn(Oid relation) const {
  return std::any_of(projections_.begin(), projections_.end(),
                     [&](const auto& projection) { return projection->DependsOn(relation); }) ||
         std::any_of(problems_.begin(), problems_.end(),
                     [&](const Problem& problem) { return problem.target == relation; });
}

void Routes::LockTargets(LOCKMODE mode) const {
  for (const auto& projection : projections_) LockRelationOid(projection->target(), mode);
}

}  // namespace postbox
