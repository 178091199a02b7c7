// postbox.finish_rebuild: the target becomes what the shadow says. rebuild.h narrates the steps.
#include <functional>

#include "extension/apply/projection_key.h"
#include "extension/apply/rebuild.h"
#include "extension/apply/rebuild_merge.h"
#include "extension/base/arguments.h"
#include "extension/base/relation.h"
#include "extension/base/subtransaction.h"
#include "extension/lifecycle/wakeup.h"
#include "extension/trust/act_as.h"
#include "extension/trust/effect_settings.h"
#include "extension/trust/pinned_settings.h"
#include "extension/trust/registrar.h"

extern "C" {
#include <access/transam.h>
#include <storage/lmgr.h>
#include <utils/lsyscache.h>
}

namespace postbox {
namespace {

using Clock = std::chrono::steady_clock;

// Live writers queue behind a lock that is asked for, so it is not asked for longer than this.
constexpr char kLockTry[] = "200ms";
// Rows of the target may be locked by sessions that do not write it.
constexpr char kRowLockTime[] = "5s";
constexpr long kPauseMs = 100;

struct ClassCount {
  int64 count = 0;
  std::string key;
};
using Counts = std::map<std::string, ClassCount>;

// Thrown out of the subtransaction in which the shadow had not caught up, so that its locks go.
struct StillLagging {
  ClassCount lagging;
};

void Set(const char* setting, const char* value) {
  Pg([&] {
    set_config_option(setting, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
  });
}

// The statistics decide how the rows are joined.
void Analyze(const Rebuild& rebuild) {
  const std::string shadow = RelationName(rebuild.shadow);
  if (shadow.empty()) return;
  const Oid owner = RelationOwner(rebuild.inbox);
  const ActAs act_as(owner, TrustIn(owner));
  Run("ANALYZE " + shadow);
}

// The keys as parameters: an array for each column.
Parameters KeyParameters(const ShadowLayout& layout, const ProjectionConfig& projection,
                         const std::vector<std::string>& keys) {
  Parameters parameters;
  if (keys.empty()) return parameters;
  const ProjectionKey key(ResolveColumns(projection), CurrentMemoryContext);
  std::vector<BoundValues> values;
  for (const std::string& text : keys) values.push_back(key.FromText(text));
  for (size_t column = 0; column < layout.key().size(); ++column) {
    const Oid type = layout.key()[column].type;
    std::vector<Datum> datums;
    for (const BoundValues& value : values) datums.push_back(value.values[column]);
    const Oid array_type = Pg([&] { return get_array_type(type); });
    parameters.Add(array_type,
                   Pg([&] { return ArrayValue(type, datums.data(), nullptr, datums.size()); }));
  }
  return parameters;
}

class Finish {
 public:
  Finish(const Rebuild& rebuild, bool keep_lagging, Clock::duration lag_time)
      : rebuild_(rebuild), keep_lagging_(keep_lagging), lag_time_(lag_time) {}

  // Under the lock on the target: true if it was merged.
  void Run();

  const Counts& counts() const { return counts_; }
  Clock::duration locked() const { return Clock::now() - locked_at_; }

 private:
  void Prepare();
  void RequireSameLayout(const std::vector<ProjectionConfig>& projections) const;
  void RequireNotEmpty() const;
  void MergeNow();
  void Merge();
  uint64 Execute(const std::string& sql);
  void MergeClass(const char* name, const std::function<uint64()>& run);
  [[noreturn]] void ThrowSuppressed(const std::string& detail) const;
  int64 CountOf(const char* name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second.count;
  }

  const Rebuild& rebuild_;
  const bool keep_lagging_;
  const Clock::duration lag_time_;
  std::optional<ShadowLayout> layout_;
  std::optional<RebuildMerge> merge_;
  Parameters keys_;
  Counts counts_;
  Clock::time_point locked_at_;
};

// A transaction with an older snapshot may have altered a projection without seeing the rebuild.
bool SameMapping(const ProjectionConfig& left, const ProjectionConfig& right) {
  return left.event_types == right.event_types && left.columns == right.columns &&
         left.key == right.key && left.version_column == right.version_column &&
         left.delete_types == right.delete_types;
}

// What writes the target, and the target, are as they were when the rebuild began.
void Finish::RequireSameLayout(const std::vector<ProjectionConfig>& projections) const {
  const std::vector<ProjectionConfig> shadows = ProjectionsOf(rebuild_.shadow);
  bool same = shadows.size() == projections.size();
  for (size_t i = 0; same && i < shadows.size(); ++i) {
    same = SameMapping(shadows[i], projections[i]) &&
           shadows[i].marks.Stored() == layout_->Marks(i).Stored();
  }
  if (same) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "table " + layout_->target_name() + " or its projections were changed during the rebuild",
        "The shadow is made for the table and the projections as they were when it began.",
        "Cancel the rebuild, and begin another one.");
}

void Finish::Prepare() {
  const std::vector<ProjectionConfig> projections = ProjectionsOf(rebuild_.target);
  if (RelationName(rebuild_.shadow).empty() || RelationName(rebuild_.shadow_inbox).empty() ||
      projections.empty()) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "a table of the rebuild of projection \"" + rebuild_.projection + "\" was dropped",
          "It is the target, the shadow, or the inbox of the shadow.",
          "Cancel the rebuild, and begin another one.");
  }
  layout_.emplace(projections);
  RequireSameLayout(projections);
  keys_ = KeyParameters(*layout_, projections[0], rebuild_.keys);
  MergePlan plan{.shadow = RelationName(rebuild_.shadow),
                 .tombstone = "",
                 .delete_absent = rebuild_.delete_absent,
                 .some_keys = !rebuild_.keys.empty(),
                 .start_xid = std::stoull(rebuild_.start_xid),
                 .next_xid = U64FromFullTransactionId(ReadNextFullTransactionId())};
  bool has_tombstones = false;
  const bool deletes = std::any_of(projections.begin(), projections.end(),
                                   [](const auto& one) { return !one.delete_types.empty(); });
  if (deletes) {
    Parameters key;
    key.AddOid(REGCLASSOID, rebuild_.inbox).AddOid(REGCLASSOID, rebuild_.target);
    postbox::Run("SELECT tombstone::oid FROM postbox.inbox WHERE relation = $1", key);
    const Oid tombstone = OidColumn(0, 1);
    plan.tombstone = RelationName(tombstone);
    // No other generation becomes current while it is held (purge_inbox.h).
    Pg([&] { LockRelationOid(tombstone, RowExclusiveLock); });
    postbox::Run("SELECT generation::int4 FROM postbox.inbox WHERE relation = $1", key);
    plan.generation = Int32Column(0, 1);
    has_tombstones =
        postbox::Run("SELECT FROM " + plan.tombstone + " WHERE target = $2 LIMIT 1", key) > 0;
  }
  merge_.emplace(*layout_, plan, has_tombstones);
}

uint64 Finish::Execute(const std::string& sql) {
  return keys_.size() == 0 ? postbox::Run(sql) : postbox::Run(sql, keys_);
}

// Runs the statement if the class has rows: the rights for it are needed only then.
void Finish::MergeClass(const char* name, const std::function<uint64()>& run) {
  const int64 planned = CountOf(name);
  if (planned == 0) return;
  const uint64 done = run();
  if (static_cast<int64>(done) != planned) {
    ThrowSuppressed("Of " + std::to_string(planned) + " rows of class " + name + ", " +
                    std::to_string(done) + " were.");
  }
}

void Finish::ThrowSuppressed(const std::string& detail) const {
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "rows of " + layout_->target_name() + " were not written",
        detail + " A trigger or a rule of the table has suppressed the rest.",
        "Disable the trigger or the rule for the time of finish_rebuild, or change it.");
}

void Finish::Merge() {
  MergeClass("delete", [&] { return Execute(merge_->Delete()); });
  MergeClass("delete_absent", [&] { return Execute(merge_->DeleteAbsent()); });
  MergeClass("update", [&] { return Execute(merge_->Update()); });
  MergeClass("insert", [&] {
    uint64 inserted = 0;
    for (const std::string& mask : TextColumns(Execute(merge_->Masks()), 1)) {
      inserted += Execute(merge_->Insert(mask));
    }
    return inserted;
  });
  Execute(merge_->CountLeft());
  if (const int64 left = Int64Column(0, 1); left > 0) {
    ThrowSuppressed(std::to_string(left) + " rows have older versions than they were given.");
  }
  for (const std::string& sql : {merge_->RaiseTombstones(), merge_->RemoveTombstones()}) {
    if (!sql.empty()) Execute(sql);
  }
  NotifyAppliedAtCommit();
}

// A rebuild that has got nothing would delete everything.
void Finish::RequireNotEmpty() const {
  if (CountOf("delete_absent") == 0) return;
  if (postbox::Run("SELECT FROM " + RelationName(rebuild_.shadow) + " LIMIT 1") > 0) return;
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "the rebuild of projection \"" + rebuild_.projection + "\" has got no events",
        "All " + std::to_string(CountOf("delete_absent")) + " rows of " + layout_->target_name() +
            " would be deleted, since absent is delete.",
        "Wait until its events have come, or cancel it.");
}

// With the inbox of the shadow locked, so that nothing is applied to it.
void Finish::MergeNow() {
  Pg([&] { LockRelationOid(rebuild_.shadow_inbox, AccessExclusiveLock); });
  counts_.clear();
  const uint64 rows = Execute(merge_->Compare());
  for (uint64 row = 0; row < rows; ++row) {
    counts_[TextColumn(row, 1)] = {Int64Column(row, 2), TextColumn(row, 3)};
  }
  RequireNotEmpty();
  const bool wait = !keep_lagging_ || Clock::now() - locked_at_ < lag_time_;
  if (CountOf("lagging") > 0 && wait) throw StillLagging{counts_["lagging"]};
  Merge();
}

void Finish::Run() {
  const Oid owner = RelationOwner(rebuild_.inbox);
  const std::string text_search = TextSearchConfig();
  const ActAs act_as(owner, TrustIn(owner));
  PinSettings();
  PinEffects(text_search);
  // What a policy would hide is an error.
  Set("row_security", "off");
  Set("lock_timeout", kLockTry);
  // As sessions that apply live events do, in their order.
  Pg([&] {
    LockRelationOid(rebuild_.inbox, RowExclusiveLock);
    LockRelationOid(rebuild_.target, ShareRowExclusiveLock);
  });
  locked_at_ = Clock::now();
  Set("lock_timeout", kRowLockTime);
  Prepare();
  while (true) {
    try {
      InSubtransaction([&] { MergeNow(); });
      return;
    } catch (const StillLagging&) {
      if (!keep_lagging_ && Clock::now() - locked_at_ >= lag_time_) throw;
    }
    Pg([] { SleepOnLatch(kPauseMs); });
  }
}

void NoteWait(const Rebuild& rebuild, const std::string& why, const ClassCount& lagging) {
  Parameters more;
  more.AddText(why)
      .Add(INT8OID, Int64GetDatum(lagging.count))
      .AddTextOrNull(lagging.key.empty() ? std::nullopt : std::optional(lagging.key));
  UpdateRebuild(rebuild,
                "waits_for = $2, waits_since = coalesce(waits_since, clock_timestamp()), "
                "lagging = $3, lagging_key = $4",
                more);
}

void NoteDone(const Rebuild& rebuild, const Finish& finish, const std::string& microseconds) {
  Parameters more;
  more.AddText(microseconds);
  const auto add = [&](const char* name) {
    const auto found = finish.counts().find(name);
    const bool none = found == finish.counts().end();
    more.Add(INT8OID, Int64GetDatum(none ? 0 : found->second.count));
    return none ? std::string() : found->second.key;
  };
  for (const char* name : {"update", "insert", "delete", "delete_absent", "absent"}) add(name);
  const std::string lagging = add("lagging");
  const std::string incomplete = add("incomplete");
  for (const std::string& key : {lagging, incomplete}) {
    more.AddTextOrNull(key.empty() ? std::nullopt : std::optional(key));
  }
  UpdateRebuild(rebuild,
                "state = 'done', ended_at = clock_timestamp(), shadow = 0, shadow_inbox = 0, "
                "waits_for = NULL, waits_since = NULL, last_error = NULL, last_error_at = NULL, "
                "locked_for = $2::interval, updated = $3, inserted = $4, deleted = $5 + $6, "
                "absent_rows = $7, lagging = $8, incomplete = $9, lagging_key = $10, "
                "incomplete_key = $11",
                more);
}

void RequireReadCommitted() {
  if (!IsolationUsesXactSnapshot()) return;
  Throw(ERRCODE_ACTIVE_SQL_TRANSACTION, "finish_rebuild needs isolation level READ COMMITTED",
        "An older snapshot does not show what was applied to the shadow.",
        "Begin the transaction with BEGIN ISOLATION LEVEL READ COMMITTED.");
}

// The result: done, lagging or locked.
std::string FinishRebuild(const std::string& projection, bool keep_lagging,
                          Clock::duration lag_time, Clock::duration lock_time) {
  const SpiConnection connection;
  const FixedSearchPath search_path;
  const Rebuild rebuild = LockRebuild(projection);
  if (!rebuild.is_here) {
    Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
          "the rebuild of projection \"" + rebuild.projection + "\" began in another database",
          "This database is a copy of it. Which rows were written since the rebuild began is not "
          "known here.",
          "Cancel the rebuild, and begin another one.");
  }
  LockRegistration("inbox", rebuild.inbox);
  Analyze(rebuild);
  const auto give_up = Clock::now() + lock_time;
  while (true) {
    Finish finish(rebuild, keep_lagging, lag_time);
    try {
      InSubtransaction([&] { finish.Run(); });
      DropShadow(rebuild);
      const auto locked =
          std::chrono::duration_cast<std::chrono::microseconds>(finish.locked()).count();
      NoteDone(rebuild, finish, std::to_string(locked) + " microseconds");
      return "done";
    } catch (const StillLagging& still) {
      NoteWait(rebuild, "the shadow has not caught up", still.lagging);
      return "lagging";
    } catch (const PostgresError& error) {
      if (error.sqlstate != ERRCODE_LOCK_NOT_AVAILABLE) throw;
      if (Clock::now() >= give_up) {
        NoteWait(rebuild, "a lock: " + error.message, {});
        return "locked";
      }
    }
    Pg([] { SleepOnLatch(kPauseMs); });
  }
}

Clock::duration Duration(FunctionCallInfo fcinfo, int number, const char* name) {
  const int64 time = Microseconds(Argument(fcinfo, number, name));
  if (time < 0 || time > USECS_PER_DAY) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, std::string(name) + " must be between 0 and 24 hours");
  }
  return std::chrono::microseconds(time);
}

}  // namespace
}  // namespace postbox

// (projection text, lagging text, lag_time interval, lock_time interval)
POSTBOX_FUNCTION(finish_rebuild) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    const std::string projection = TextArgument(fcinfo, 0, "projection");
    const std::string lagging = TextArgument(fcinfo, 1, "lagging");
    if (lagging != "wait" && lagging != "keep") {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "invalid lagging \"" + lagging + "\"", "",
            "It is wait or keep.");
    }
    const auto lag_time = Duration(fcinfo, 2, "lag_time");
    const auto lock_time = Duration(fcinfo, 3, "lock_time");
    RequireReadCommitted();
    return TextValue(FinishRebuild(projection, lagging == "keep", lag_time, lock_time));
  });
}
