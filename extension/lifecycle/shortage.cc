#include "extension/lifecycle/shortage.h"

#include "extension/base/guard.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/shared/settings.h"
#include "extension/trust/act_as.h"
#include "extension/trust/registrar.h"

namespace postbox {
namespace {

constexpr char kSubject[] = "slots";
// A line names so many databases.
constexpr size_t kMaxNames = 30;

std::string Listed(const std::set<std::string>& names) {
  std::string text;
  size_t count = 0;
  for (const std::string& name : names) {
    if (count == kMaxNames) {
      return text + ", and " + std::to_string(names.size() - kMaxNames) + " more";
    }
    if (count++ > 0) text += ", ";
    text += '"' + name + '"';
  }
  return text;
}

}  // namespace

std::string CauseOf(StartProblem problem) {
  switch (problem) {
    case StartProblem::kNoWorkerSlot:
      return "As many publishers run as postbox.max_workers allows, which is " +
             std::to_string(settings().max_workers) + ".";
    case StartProblem::kDidNotComeUp:
      return "Worker processes fail to start.";
    default:
      return "All background worker slots of the server are in use (max_worker_processes is " +
             std::to_string(max_worker_processes) + ").";
  }
}

const char* RemedyOf(StartProblem problem) {
  switch (problem) {
    case StartProblem::kNoWorkerSlot:
      return "Raise postbox.max_workers, or lower postbox.publishers.";
    case StartProblem::kDidNotComeUp:
      return "The server log says why. Most often postbox_worker.so, or a library that it needs, "
             "is "
             "not installed.";
    default:
      return "Raise max_worker_processes (needs a restart), or lower postbox.publishers.";
  }
}

namespace {

// Why the events of this database are not published, and what to do.
struct Obstacle {
  bool served = false;  // there are workers
  std::string cause, remedy;
};

std::optional<Obstacle> LookAtSlots() {
  SharedState* state = shared_state();
  Obstacle found;
  std::string problem;
  bool serving = false;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  for (WorkerSlot& worker : state->workers) {
    if (worker.pid == 0 || pg_atomic_read_u32(&worker.database) != MyDatabaseId) continue;
    found.served = true;
    serving |= worker.serving;
    if (worker.problem[0] != '\0') problem = worker.problem;
  }
  const bool unserved = !found.served && IsUnserved(state, MyDatabaseId);
  const StartProblem start_problem = state->start_problem;
  LWLockRelease(SharedStateLock());
  if (!problem.empty()) {
    found.cause = "Its workers cannot publish them: " + problem + ".";
    found.remedy = "See postbox.publication_status.";
  } else if (unserved) {
    found.cause = CauseOf(start_problem);
    if (start_problem != StartProblem::kDidNotComeUp) {
      found.cause += " Events wait for the turn of this database.";
    }
    found.remedy = RemedyOf(start_problem);
  } else if (!serving && settings().publishers == 0) {
    // A worker that only looks whether this database has its own value serves no publication.
    found.served = false;
    found.cause = "postbox.publishers is 0.";
    found.remedy = "Raise it, and reload the configuration.";
  } else {
    return std::nullopt;
  }
  return found;
}

std::optional<Obstacle> FindObstacle() {
  if (Preloaded()) return LookAtSlots();
  return Obstacle{false, "postbox is not in shared_preload_libraries.",
                  "Add it, and restart the server."};
}

// A publication reads the outbox. Asked again only when that may have changed.
bool IsPublished(Oid outbox) {
  static Oid asked_of = InvalidOid;
  static uint64 asked_at = 0;
  static bool answer = false;
  const uint64 generation = ConfigGeneration();
  if (asked_of == outbox && asked_at == generation) return answer;
  const SpiConnection connection;
  const FixedSearchPath search_path;
  // To emit needs no right on tables of Postbox.
  const Registrar registrar("publication");
  Parameters parameters;
  parameters.AddOid(REGCLASSOID, outbox);
  answer = Run("SELECT FROM postbox.publication WHERE outbox = $1 LIMIT 1", parameters) > 0;
  asked_of = outbox;
  asked_at = generation;
  return answer;
}

}  // namespace

void WarnUnserved(Oid outbox) {
  static bool warned = false;
  if (warned || !IsPublished(outbox)) return;
  const std::optional<Obstacle> obstacle = FindObstacle();
  if (!obstacle) return;
  warned = true;
  // Not to the server log: launcher and workers have written there.
  Pg([&] {
    const char* database = get_database_name(MyDatabaseId);
    ereport(WARNING_CLIENT_ONLY,
            (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
             obstacle->served ? errmsg("events of database \"%s\" are not published now", database)
                              : errmsg("no postbox publisher serves database \"%s\" now", database),
             errdetail_internal("%s", obstacle->cause.c_str()),
             errhint("%s", obstacle->remedy.c_str())));
  });
}

void Shortage::NotePublishers(int publishers) {
  const bool none = publishers == 0;
  if (none && !told_of_none_) {
    Pg([] {
      ereport(LOG,
              (errmsg("postbox starts no publishers"),
               errdetail("postbox.publishers is 0; databases with their own value are served."),
               errhint("Raise it, and reload the configuration.")));
    });
  }
  told_of_none_ = none;
}

void Shortage::Note(const std::vector<std::string>& unserved,
                    const std::vector<std::string>& short_of, StartProblem problem, bool refused) {
  if (unserved.empty() && short_of.empty()) {
    if (told_) Pg([] { ereport(LOG, (errmsg("all postbox publishers run again"))); });
    told_ = false;
    return;
  }
  unserved_.insert(unserved.begin(), unserved.end());
  short_of_.insert(short_of.begin(), short_of.end());
  if (problem != StartProblem::kNone) problem_ = problem;
  if (!refused && told_) return;
  const auto line = limit_.Note(kSubject, "", Clock::now());
  if (!line.has_value()) return;
  Write(*line);
  told_ = true;
  unserved_.clear();
  short_of_.clear();
}

void Shortage::Write(const RepeatLimit::Line& line) const {
  std::string detail = CauseOf(problem_);
  if (!unserved_.empty()) {
    detail +=
        " Databases without a publisher, which are served in turn: " + Listed(unserved_) + ".";
  }
  if (!short_of_.empty()) {
    detail += " Databases with fewer than postbox.publishers: " + Listed(short_of_) + ".";
  }
  const std::string count = line.Count();
  if (!count.empty()) detail += " This was " + count + ".";
  const char* hint = RemedyOf(problem_);
  Pg([&detail, hint] {
    ereport(WARNING, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
                      errmsg("could not start all postbox publishers"),
                      errdetail("%s", detail.c_str()), errhint("%s", hint)));
  });
}

}  // namespace postbox
