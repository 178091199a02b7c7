// What a worker shows to sessions and to the other workers: whether it has work, why nothing can be
// published, outages, what waits for a synchronous standby, and what is known of credentials.
#ifndef POSTBOX_WORKER_PUBLISHER_WORKER_REPORTS_H_
#define POSTBOX_WORKER_PUBLISHER_WORKER_REPORTS_H_

#include "worker/publisher/credential_reports.h"
#include "worker/publisher/delivery/outlet.h"
#include "worker/publisher/lane.h"
#include "worker/publisher/outage.h"

namespace postbox::publisher {

class WorkerReports {
 public:
  // To be called in each turn of the worker's loop.
  void Look(const Outlets& outlets, const std::vector<LanePointer>& lanes, TimestampTz now);
  // When it is to be called again though nothing happens.
  TimestampTz NextLook() const { return outages_.NextLook(); }

  // After a turn. `work`: there is some; `progress`: the turn has done some.
  void ShowWork(bool work, bool progress);
  // Why nothing, or not all, can be published.
  void ShowError(const Outlets& outlets, const std::vector<LanePointer>& lanes);
  void ShowStandbyWaits(const Outlets& outlets);
  // Nothing waits for a standby. Returns whether something did before.
  bool EndStandbyWaits();

 private:
  bool busy_ = true;  // as others see it
  std::string error_;
  std::vector<StandbyQueue::Waiting> standby_waits_;
  OutageWatch outages_;
  CredentialReports credentials_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_WORKER_REPORTS_H_
