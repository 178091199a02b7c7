#include "extension/server/shortage.h"

#include "extension/base/guard.h"
#include "extension/shared/settings.h"

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
  if (problem == StartProblem::kNoWorkerSlot) {
    return "As many publishers run as postbox.max_workers allows, which is " +
           std::to_string(settings().max_workers) + ".";
  }
  return "All background worker slots of the server are in use (max_worker_processes is " +
         std::to_string(max_worker_processes) + ").";
}

const char* RemedyOf(StartProblem problem) {
  return problem == StartProblem::kNoWorkerSlot
             ? "Raise postbox.max_workers, or lower postbox.publishers."
             : "Raise max_worker_processes (needs a restart), or lower postbox.publishers.";
}

namespace {

bool ThisDatabaseIsUnserved(StartProblem* problem) {
  SharedState* state = shared_state();
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  const bool served =
      std::any_of(std::begin(state->workers), std::end(state->workers), [](WorkerSlot& worker) {
        return worker.pid != 0 && pg_atomic_read_u32(&worker.database) == MyDatabaseId;
      });
  const bool unserved = !served && IsUnserved(state, MyDatabaseId);
  *problem = state->start_problem;
  LWLockRelease(SharedStateLock());
  return unserved;
}

}  // namespace

void WarnUnserved() {
  static bool warned = false;
  StartProblem problem = StartProblem::kNone;
  if (warned || !ThisDatabaseIsUnserved(&problem)) return;
  warned = true;
  const std::string cause = CauseOf(problem);
  // Not to the server log: the launcher has written there about all databases.
  Pg([&cause, problem] {
    ereport(
        WARNING_CLIENT_ONLY,
        (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
         errmsg("no postbox publisher serves database \"%s\" now", get_database_name(MyDatabaseId)),
         errdetail("%s Events wait until it is the turn of this database.", cause.c_str()),
         errhint("%s", RemedyOf(problem))));
  });
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
