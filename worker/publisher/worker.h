// The publisher worker: claims events, hands them to the Publisher, stores what came of them.
//
//   loop: results of the Publisher -> Settle; configuration; leases; maintenance;
//         Claim -> Publisher
//         nothing to do: wait for a commit (latch), a result (eventfd), a time (poll, backoff), or
//         the postmaster's death
//
// Invariants:
//  - No transaction is open while the worker waits or talks to the Publisher, which never waits for
//    the network in this thread.
//  - An event is handed over only after the claim's commit, and given back or confirmed only after
//    the Publisher has returned its result (or is gone).
//  - Results that could not be stored stay in memory and are tried again; until then the lane
//    claims nothing. What is in memory is bounded by postbox.max_outstanding_messages and _bytes.
//  - An error in one lane puts that lane to rest and no other. An error outside of a lane's
//    transaction ends the worker with ERROR; its leases are then those of a dead worker.
//  - On SIGTERM: no new claim, a second for what is on its way, then cancel and give back.
#ifndef POSTBOX_WORKER_PUBLISHER_WORKER_H_
#define POSTBOX_WORKER_PUBLISHER_WORKER_H_

#include "extension/base/guard.h"
#include "extension/shared/settings.h"
#include "worker/publisher/maintenance.h"
#include "worker/publisher/outbox_source.h"
#include "worker/publisher/publication.h"
#include "worker/pubsub/publisher.h"

namespace postbox::publisher {

class Worker {
 public:
  Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  // Works until SIGTERM or until the extension is gone, and leaves the process.
  [[noreturn]] void Run();

  // Ends the Publisher's threads; for a process that exits on another way than Run(). Results are
  // lost, leases stay.
  void StopPublisher() noexcept { publisher_.reset(); }

 private:
  struct Lane {
    Publication publication;
    std::string topic;  // the full name
    std::unique_ptr<OutboxSource> source;
    int Settings::*batch = nullptr;  // how many events it claims at once
    std::string trouble;             // why the lane cannot work at all; empty: it can
    int attempts = 0;                // failures in a row, as in postbox.lane
    TimestampTz rest_until = 0;
    bool wanted = true;  // there may be something to claim
    Events unsettled;    // results that are not stored yet
    TimestampTz settle_after = 0;
    int settle_failures = 0;
    std::string logged_error;  // the last one, to be logged once
  };
  using LanePointer = std::shared_ptr<Lane>;

  // What the Publisher and the topics are made of; another value means another Publisher.
  struct Connection {
    std::string endpoint, project_id, quota_project;
    int channels = 0, publish_timeout = 0, max_messages = 0, max_kilobytes = 0;
    bool operator==(const Connection&) const = default;
  };

  static Connection CurrentConnection();

  bool Step();
  void Wait();
  // Returns false when the time is over and nothing happened.
  bool Sleep(long milliseconds);
  void FollowSettings();
  void WantAll();

  void LoadLanes();
  void MakeLanes(const Publication& publication, const std::string& topic,
                 std::vector<LanePointer>* lanes);
  bool EnsurePublisher();

  bool CollectResults();
  void SettleLanes();
  void SettleLane(const LanePointer& lane);
  // The transaction of SettleLane(); false if it failed. `broken`: a result that says that the
  // topic is, or nullptr.
  bool StoreResults(const LanePointer& lane, const ClaimedEvent* broken, bool published,
                    TimestampTz* rest_until);

  bool ClaimLanes();
  bool ClaimLane(const LanePointer& lane);
  bool Room(int batch_size, ClaimLimits* limits) const;
  void HandOver();
  void AddInFlight(EventPointer event);
  EventPointer TakeInFlight(const ClaimedEvent* event);
  // The result of an event: its lane is to settle it.
  void AddResult(EventPointer event);

  void TakeOverLeases();
  void Checkpoint(bool force);
  void Mend();
  void Fail(Lane* lane, const std::string& error);
  void LeaveIfExtensionGone();
  void LogOnce(Lane* lane, const std::string& error);

  // Gives back everything that is in flight, in a few seconds at most.
  void Drain();
  void DropInFlight();

  int notify_fd_ = -1;
  WaitEventSet* wait_set_ = nullptr;
  std::unique_ptr<pubsub::Publisher> publisher_;
  Connection connection_;
  std::vector<LanePointer> lanes_;
  std::vector<LanePointer> to_settle_;  // lanes with results, also of publications that are gone
  // Events that the Publisher has, or is about to get, by their place; free places hold nothing.
  std::vector<EventPointer> in_flight_;
  std::vector<std::size_t> free_places_;
  std::vector<pubsub::OutgoingMessage*> hand_over_;  // claimed; from handed_over_ on not yet taken
  std::size_t handed_over_ = 0;
  std::size_t bytes_in_flight_ = 0;
  std::size_t first_lane_ = 0;         // whose turn it is to claim first
  bool draining_ = false;              // failures are not counted any more
  uint64 generation_ = PG_UINT64_MAX;  // no configuration yet
  bool reload_ = true;                 // make all lanes anew
  bool clear_rests_ = false;
  TimestampTz now_ = 0;  // as of the current step
  TimestampTz next_poll_ = 0;
  TimestampTz next_load_ = 0;
  TimestampTz next_take_over_ = 0;
  TimestampTz last_mend_ = 0;
  Maintenance maintenance_;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_WORKER_H_
