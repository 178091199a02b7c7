// The publisher worker: the loop that lets lanes claim, hands their events to the Pub/Sub client,
// and gives the results back to the lanes.
//
//   loop: settings and configuration
//         results of the client -> their lanes, which store them
//         what synchronous standbys have confirmed -> the client
//         lanes do what is due by the clock, then claim -> the client, or wait for the standbys
//         one worker of the database applies the retention, and measures gauges
//         nothing to do: wait for a commit (latch), a result (eventfd), a time (poll, backoff), or
//         the postmaster's death
//
// Invariants:
//  - No transaction is open while the worker waits or talks to the client. The client never waits
//    for the network in this thread.
//  - An event is handed over only after the claim's commit, and given back or confirmed only after
//    the client has returned its result (or is gone).
//  - An error in one lane suspends that publication and no other (lane_failures.h). An error
//    outside of a lane's transaction ends the worker with ERROR; its leases are then those of a
//    dead worker.
//  - The lanes of a publication that was altered finish before those of the altered one begin.
//  - Publications with different identities have different clients (outlet.h). What becomes of one
//    identity concerns its publications and no others.
//  - On SIGTERM: no new claim, a second for what is on its way, then cancel and give back. A worker
//    that is to give up its slot to another database waits longer for the results.
#ifndef POSTBOX_WORKER_PUBLISHER_WORKER_H_
#define POSTBOX_WORKER_PUBLISHER_WORKER_H_

#include "extension/base/guard.h"
#include "extension/shared/shared_state.h"
#include "worker/publisher/budget.h"
#include "worker/publisher/configuration.h"
#include "worker/publisher/delivery/outlet.h"
#include "worker/publisher/gauges.h"
#include "worker/publisher/heap.h"
#include "worker/publisher/lane.h"
#include "worker/publisher/poll.h"
#include "worker/publisher/retention.h"
#include "worker/publisher/settlements.h"
#include "worker/publisher/succession.h"
#include "worker/publisher/traces.h"
#include "worker/publisher/wait_point.h"
#include "worker/publisher/worker_reports.h"

namespace postbox::publisher {

class Worker {
 public:
  Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Works until SIGTERM, until another database needs the slot, or until the extension is gone, and
  // leaves the process.
  [[noreturn]] void Run();

  // Ends the clients' threads; for a process that exits on another way than Run(). Results are
  // lost, leases stay.
  void StopClients() noexcept {
    outlets_.StopClients();
    traces_.Stop();
  }

 private:
  // One turn of the loop. Returns whether there may be more to do at once.
  bool Step();
  void Wait();
  void Heartbeat();
  // Others may have this worker's lanes by now.
  void MarkLeasesUncertain() {
    for (const LanePointer& lane : lanes_) lane->MarkLeaseUncertain();
    for (const LanePointer& lane : succession_.finishing()) lane->MarkLeaseUncertain();
    GiveBackUnsafe(0);
  }
  void WantIn(const WakeSet& outboxes) {
    for (const LanePointer& lane : lanes_) {
      if (outboxes.Has(lane->publication().outbox)) lane->MarkReady();
    }
  }

  void FollowSettings();
  // What was wrong with a publication may be right with another identity.
  void FollowCredentials();
  void LoadLanes();
  void RetireOutdated();
  // After lanes were added or taken away.
  void ArrangeLanes();
  // What has ended an earlier worker of the database is not touched again at once.
  void SuspendSuspects();
  bool ClaimLanes();
  // Whether events of other publications go through.
  bool OthersPublish(const Lane& lane) const;
  // Takes the results that the clients have, and lets the lanes store theirs.
  bool CollectResults();
  // Whether a lane has stored some of its results, and not all.
  bool SettleLanes();
  // Shows for which publications events wait for a synchronous standby, and gives them back when
  // they have waited for too long.
  void WatchStandbys();
  void GiveBackUnsafe(int64 most);

  // Gives back everything that is in flight, in a few seconds at most.
  void Drain();
  void WaitForResults(int64 milliseconds);
  // Waits for the results of what is on its way, as long as there is no hurry.
  void Finish();
  // Whether there is something to publish.
  bool WorkLeft() const;

  WaitPoint wait_point_;
  Traces traces_;  // before the clients, which add spans
  Outlets outlets_;
  Configuration configuration_;
  std::vector<LanePointer> lanes_;
  Succession succession_;
  Settlements settlements_;
  Budget budget_;
  HeapTrimmer heap_;
  Poll poll_;
  // Of the first worker of a database only.
  struct {
    Retention retention;
    Gauges gauges;
  } upkeep_;
  WorkerReports reports_;
  std::size_t first_lane_ = 0;  // whose turn it is to claim first
  TimestampTz now_ = 0;         // as of the current step
  TimestampTz next_credentials_look_ = 0;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_WORKER_H_
