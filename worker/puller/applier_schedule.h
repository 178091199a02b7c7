// What each applier of a subscription does next: to connect, to report, to apply a batch, to retry
// a parked key, or to wait.
//
//   - Without a connection an applier applies nothing. Which of them have one follows from the work
//     (connection_shares.h): those without one wait for their turn to connect, one at a time.
//   - One with a connection stores a report that is due (pull_status.h), or takes the batch that is
//     due, while the gate is open (apply_gate.h). From time to time it looks whether there are too
//     many connections.
//   - Parked keys that are due (parked_retry.h) and batches have turns: after a retry a batch that
//     is due comes first, whatever the number of appliers.
//
// Each step that Next returns has begun, and ends with Done, or with ConnectDone; kDisconnect has
// ended by then. Not thread-safe; the time is passed in.
#ifndef POSTBOX_WORKER_PULLER_APPLIER_SCHEDULE_H_
#define POSTBOX_WORKER_PULLER_APPLIER_SCHEDULE_H_

#include <chrono>
#include <optional>

#include "worker/puller/apply_gate.h"
#include "worker/puller/connection_shares.h"

namespace postbox::puller {

class ApplierSchedule {
 public:
  using TimePoint = ApplyGate::TimePoint;
  // An applier as the schedule knows it.
  struct Session {
    bool connected = false;
  };
  enum class Step { kWait, kConnect, kDisconnect, kReport, kApply, kRetryParked };
  struct Plan {
    Step step;
    TimePoint until{};  // of kWait: it asks again then, or when something has changed
  };
  struct Due {
    TimePoint batch;                      // there is work since then, or from then on
    TimePoint report;                     // is to be stored
    TimePoint give_back;                  // an applier is to be awake then
    TimePoint parked = TimePoint::max();  // a parked key is to be retried
  };

  // `shares` and `gate` outlive it.
  ApplierSchedule(ConnectionShares* shares, ApplyGate* gate) : gate_(gate), connections_(shares) {}

  int running() const { return running_; }
  int busy() const { return busy_; }
  int connections() const { return connections_.open(); }

  void Join() { ++running_; }
  void Leave(const Session& session);
  // The connection was lost.
  void Lost(Session* session);

  // What the applier does now.
  Plan Next(Session* session, const Due& due, TimePoint now);
  void Done(const Session& session, Step step);
  // If no connection could be opened, returns the delay before one is tried again.
  std::optional<std::chrono::milliseconds> ConnectDone(Session* session, bool connected,
                                                       TimePoint now);

 private:
  // When an applier without a connection is to connect, whose turn it is.
  TimePoint NextConnect(TimePoint work, TimePoint now);

  ApplyGate* const gate_;
  SubscriptionConnections connections_;       // as the appliers knew last
  const Session* next_to_connect_ = nullptr;  // whose turn it is
  int running_ = 0;                           // that have not left
  int busy_ = 0;                              // with a batch or a parked key
  int free_ = 0;                              // with a connection that wait for work
  int reporting_ = 0;                         // that store a report
  int retrying_ = 0;                          // of the busy ones, those with a parked key
  bool parked_first_ = false;                 // a batch was taken after the last retry
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_APPLIER_SCHEDULE_H_
