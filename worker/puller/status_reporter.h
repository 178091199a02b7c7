// Stores the report of a subscription (pull_status.h) and notes what became of it: appliers do that
// when it is due, the main thread when it is late, and the last applier when the subscription ends.
// Thread-safe.
#ifndef POSTBOX_WORKER_PULLER_STATUS_REPORTER_H_
#define POSTBOX_WORKER_PULLER_STATUS_REPORTER_H_

#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "worker/puller/apply_gate.h"
#include "worker/puller/consumer_health.h"
#include "worker/puller/database.h"
#include "worker/puller/inbox_client.h"
#include "worker/puller/pull_status.h"
#include "worker/puller/work_queue.h"

namespace postbox::puller {

class StatusReporter {
 public:
  using TimePoint = PullStatus::TimePoint;

  // What is passed outlives it, and may be constructed later. `appliers`: how many the subscription
  // may have.
  StatusReporter(std::string subscription, int appliers, PullStatus* status, const ApplyGate* gate,
                 const ConsumerHealth* health, WorkQueue* queue)
      : subscription_(std::move(subscription)),
        appliers_(appliers),
        status_(status),
        gate_(gate),
        health_(health),
        queue_(queue) {}

  void Report(DatabaseInboxClient* inbox);
  // The numbers of a report that no applier has stored in time: all are busy, or have no
  // connection. Then Stored() tells what became of it.
  std::optional<StatusNumbers> TakeLate();
  void Stored(const QueryResult& result);
  // Removes the report of this process, or stores one that stays if `keep`: over the first of the
  // connections that takes it until then. False if none does.
  bool ReportEnd(const std::vector<DatabaseInboxClient*>& connected, bool keep, TimePoint until);

 private:
  StatusNumbers Take();
  void Note(bool stored, const std::string& sqlstate, const std::string& error);

  const std::string subscription_;
  const int appliers_;
  PullStatus* const status_;
  const ApplyGate* const gate_;
  const ConsumerHealth* const health_;
  WorkQueue* const queue_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_STATUS_REPORTER_H_
