#include "worker/publisher/worker_reports.h"

#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/base/standby.h"

namespace postbox::publisher {

void WorkerReports::Look(const Outlets& outlets, const std::vector<LanePointer>& lanes,
                         TimestampTz now) {
  outages_.Look(outlets, lanes, now);
  credentials_.Look(outlets, now);
}

void WorkerReports::ShowWork(bool work, bool progress) {
  if (!progress && !busy_) return;
  busy_ = work;
  NoteWork(busy_);
}

void WorkerReports::ShowError(const Outlets& outlets, const std::vector<LanePointer>& lanes) {
  std::string error = outlets.error();
  for (const LanePointer& lane : lanes) {
    if (error.empty()) error = lane->configuration_error();
  }
  if (error != error_) ShowProblem(Shortened(ServerText(error), kMaxShownError));
  error_ = std::move(error);
}

void WorkerReports::ShowStandbyWaits(const Outlets& outlets) {
  std::vector<StandbyQueue::Waiting> waiting = outlets.WaitingForStandbys();
  if (waiting == standby_waits_) return;
  std::vector<StandbyWait> waits;
  waits.reserve(waiting.size());
  for (const StandbyQueue::Waiting& one : waiting) {
    waits.push_back({HashOfName(one.publication), one.position, one.since});
  }
  postbox::publisher::ShowStandbyWaits(waits);
  if (standby_waits_.empty()) {
    LogLimited("standby",
               {.message = "events wait for a synchronous standby to confirm WAL up to " +
                           LsnText(waiting.front().position),
                .hint = "See pg_stat_replication and synchronous_standby_names."});
  }
  standby_waits_ = std::move(waiting);
}

bool WorkerReports::EndStandbyWaits() {
  if (standby_waits_.empty()) return false;
  standby_waits_.clear();
  postbox::publisher::ShowStandbyWaits({});
  LogLimited("standby answers", {.message = "events no longer wait for a synchronous standby"});
  return true;
}

}  // namespace postbox::publisher
