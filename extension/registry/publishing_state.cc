// postbox.publishing_state(publication): why a publication is not published although nothing is
// wrong with it, for postbox.publication_status. It reads shared memory and no table.
#include "extension/registry/publishing_state.h"

#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/base/postgres.h"
#include "extension/shared/problem.h"
#include "extension/shared/settings.h"
#include "extension/shared/shared_state.h"
#include "extension/shared/time_scale.h"

extern "C" {
#include <access/xlog.h>
#include <postmaster/bgworker.h>
}

namespace postbox {
namespace {

// What the slots say about this database.
struct Service {
  bool held = false;     // free of workers
  bool no_slot = false;  // no worker for lack of slots
  bool did_not_come_up = false;
  int starting = 0;                  // workers that are not there yet
  int running = 0;                   // workers that have found the extension
  int serving = 0;                   // those that have read the publications, and are heard of
  pid_t silent = 0;                  // one that is not heard of
  bool waits = false;                // events of the publication wait for a standby
  StandbyWait first = {};            // the one that has waited longest
  std::optional<OutageSlot> outage;  // with the first failure and the next try of all
  StartProblem start_problem = StartProblem::kNone;
};

void Look(WorkerSlot* slot, uint64 publication, Service* service) {
  if (slot->state == SlotState::kStarting || slot->state == SlotState::kAttached) {
    ++service->starting;
  }
  if (slot->state != SlotState::kRunning) return;
  ++service->running;
  if (!SeenWithin(slot, static_cast<uint64>(LeaseTime().count()))) {
    service->silent = slot->pid;
  } else if (slot->serving) {
    ++service->serving;
  }
  for (int i = 0; i < slot->standby_wait_count; ++i) {
    const StandbyWait& wait = slot->standby_waits[i];
    if (wait.publication != publication && wait.publication != 0) continue;
    if (!service->waits || wait.since < service->first.since) service->first = wait;
    service->waits = true;
  }
  for (int i = 0; i < slot->outage_count; ++i) {
    const OutageSlot& one = slot->outages[i];
    if (one.publication != publication && one.publication != 0) continue;
    OutageSlot& outage = service->outage ? *service->outage : service->outage.emplace(one);
    outage.since = std::min(outage.since, one.since);
    outage.next_try = std::min(outage.next_try, one.next_try);
  }
}

Service LookAtSlots(const std::string& publication) {
  SharedState* state = shared_state();
  const uint64 hash = HashOfName(publication);
  Service service;
  LWLockAcquire(SharedStateLock(), LW_SHARED);
  for (WorkerSlot& slot : state->workers) {
    if (pg_atomic_read_u32(&slot.database) == MyDatabaseId) Look(&slot, hash, &service);
  }
  service.held = IsHeld(state, MyDatabaseId);
  service.no_slot = service.starting + service.running == 0 && IsUnserved(state, MyDatabaseId);
  service.start_problem = state->start_problem;
  service.did_not_come_up =
      service.start_problem == StartProblem::kDidNotComeUp && IsUnserved(state, MyDatabaseId);
  LWLockRelease(SharedStateLock());
  return service;
}

Problem Unserved(const char* code, const std::string& cause, std::string remedy,
                 const char* severity = "error") {
  return {.code = code,
          .severity = severity,
          .detail = "no worker publishes it: " + cause,
          .remedy = std::move(remedy)};
}

Problem WhyNobodyServes(const Service& service) {
  if (settings().publishers == 0) {
    return Unserved("no_publishers", "postbox.publishers is 0",
                    "raise it, and reload the configuration");
  }
  if (service.silent != 0) {
    return Unserved("worker_stopped",
                    "worker process " + std::to_string(service.silent) + " does not respond",
                    "terminate it if it does not recover");
  }
  if (service.running > 0) {
    return Unserved("publications_unreadable", "a worker runs, but cannot read the publications",
                    "see the server log");
  }
  const std::string slots = std::to_string(max_worker_processes);
  if (pg_atomic_read_u32(&shared_state()->launcher_proc_number) == kNobody) {
    return Unserved("no_launcher", "the launcher is not running",
                    "see the server log, and raise max_worker_processes, which is " + slots +
                        ", if it was used up when the server started");
  }
  if (service.held) {
    return Unserved("database_held", "a session drops, renames, moves or copies the database", "");
  }
  if (service.did_not_come_up) {
    return Unserved("workers_fail_to_start", "worker processes fail to start",
                    "see the server log: most often postbox_worker.so, or a library that it needs, "
                    "is not installed");
  }
  if (service.starting > 0) return Unserved("starting", "the workers are starting", "", "warning");
  if (!service.no_slot) {
    return Unserved("no_worker", "none runs in this database", "see the server log");
  }
  if (service.start_problem == StartProblem::kNoWorkerSlot) {
    return Unserved("max_workers",
                    "as many publishers run as postbox.max_workers allows, which is " +
                        std::to_string(settings().max_workers),
                    "raise it; until then it waits for its turn");
  }
  return Unserved("max_worker_processes", "all background worker slots of the server are in use",
                  "raise max_worker_processes, which is " + slots +
                      ", and restart the server; until then it waits for its turn");
}

struct State {
  const char* name = nullptr;      // nullptr: nothing is the matter
  std::optional<Problem> problem;  // nothing: not shown to every role
  TimestampTz since = 0, next_try = 0;
};

State LookAt(const std::string& publication) {
  if (RecoveryInProgress()) {
    return {"unserved", Unserved("standby", "this server is a standby, and its primary publishes",
                                 "", "warning")};
  }
  if (!Preloaded()) {
    return {"unserved", Unserved("not_preloaded", "postbox is not in shared_preload_libraries",
                                 "add it, and restart the server")};
  }
  const Service service = LookAtSlots(publication);
  if (service.serving == 0) return {"unserved", WhyNobodyServes(service)};
  if (service.outage) {
    return {"retrying", std::nullopt, service.outage->since, service.outage->next_try};
  }
  if (!service.waits) return {};
  const TimestampTz since = service.first.since;
  const char* since_text = Pg([since] { return timestamptz_to_str(since); });
  return {"waiting",
          Problem{.code = "waits_for_standby",
                  .severity = "warning",
                  .detail = "its events wait for a synchronous standby to confirm WAL up to " +
                            LsnText(service.first.position) + ", since " + since_text,
                  .remedy = "see pg_stat_replication and synchronous_standby_names"}};
}

}  // namespace

std::optional<std::string> RetryError(const std::string& publication) {
  if (!Preloaded()) return std::nullopt;
  const Service service = LookAtSlots(publication);
  if (service.serving == 0 || !service.outage) return std::nullopt;
  return service.outage->error;
}

}  // namespace postbox

POSTBOX_FUNCTION(publishing_state) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    const std::string publication = TextArgument(fcinfo, 0, "publication");
    State state = LookAt(publication);
    if (state.problem) state.problem->subject = publication;
    return Pg([&] {
      TupleDesc descriptor = nullptr;
      if (get_call_result_type(fcinfo, nullptr, &descriptor) != TYPEFUNC_COMPOSITE) {
        elog(ERROR, "publishing_state must return a row");
      }
      bool nulls[] = {state.name == nullptr, !state.problem, state.since == 0, state.next_try == 0};
      const Oid problem_type = TupleDescAttr(descriptor, 1)->atttypid;
      Datum values[] = {nulls[0] ? 0 : CStringGetTextDatum(state.name),
                        nulls[1] ? 0 : ProblemValue(problem_type, *state.problem),
                        TimestampTzGetDatum(state.since), TimestampTzGetDatum(state.next_try)};
      return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
  });
}
