// What the threads of a subscription share: the messages that it holds (held_deliveries.h), what
// the appliers do next (applier_schedule.h), and when it ends (end_times.h).
//
//     I/O thread                 appliers                      dead-letter topic
//     Push, TakeSuspended        Next, ConnectDone,            LetterDone
//                                ReportDone, Applied
//
//   - One mutex guards all of it. It is released while an applier waits or does what Next returned.
//     While it is held, the gate, the health, the status and the subscriber are called, which have
//     separate mutexes and call nothing back.
//   - A change wakes all appliers that wait, because one alone might have no connection.
//   - A key is given back in one step: its queue is emptied and its gate is closed (key_gate.h) on
//     the thread that hands messages on. It used to be emptied by an applier, and closed when the
//     nack came to that thread. A later message of the key that was handed on in between found
//     neither, and was applied before the one that had failed:
//         applier                               I/O thread
//         m1 fails; its queue is forgotten
//                                               m2 arrives, the gate is open: a new queue, ready
//         another applier takes m2              nack of m1: the gate closes, too late
//     Now m2 arrives either before the step, and is given back with m1, or after it, and is turned
//     away.
#ifndef POSTBOX_WORKER_PULLER_WORK_QUEUE_H_
#define POSTBOX_WORKER_PULLER_WORK_QUEUE_H_

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker/puller/applier_schedule.h"
#include "worker/puller/end_times.h"
#include "worker/puller/held_deliveries.h"
#include "worker/puller/inbox_client.h"
#include "worker/puller/paced_inbox.h"
#include "worker/puller/parked_retry.h"
#include "worker/puller/pull_status.h"

namespace postbox::puller {

// Thread-safe.
class WorkQueue {
 public:
  using Clock = std::chrono::steady_clock;
  using Step = ApplierSchedule::Step;
  // An applier; for its own thread.
  struct Applier {
    DatabaseInboxClient* inbox;
    PacedInbox* paced;
    ApplierSchedule::Session session{};
  };
  struct Task {
    Step step;
    std::vector<Delivery> batch{};  // of kApply; the gate has been entered for it
    bool count = false;             // of kRetryParked: what is parked
  };

  // `give_back` lets the I/O thread call TakeSuspended and nack what it returns, and returns at
  // once. What is passed outlives the queue.
  WorkQueue(const SubscriptionConfig& config, ConnectionShares* shares, ApplyGate* gate,
            ConsumerHealth* health, PullStatus* status, ParkedRetry* parked,
            std::function<void()> give_back);

  // On the I/O thread: messages come, and are given back.
  void Push(std::vector<Delivery> deliveries);
  std::vector<uint64_t> TakeSuspended();
  std::vector<uint64_t> Drain();

  // Which messages the subscription has.
  struct Holding {
    size_t in_hand = 0;
    std::map<std::string, WaitingEvents, std::less<>> waiting;
    std::optional<std::chrono::system_clock::time_point> oldest;
  };
  Holding Held();
  // What its appliers do.
  struct Crew {
    int connections = 0;
    int busy = 0;
    int idle = 0;
  };
  Crew Appliers();

  // An applier begins; before its thread is started.
  void Join();
  // Waits until the applier has something to do, with a batch of at most `limit` messages. The step
  // is never kWait. Empty at the end: the applier has left.
  std::optional<Task> Next(Applier* applier, size_t limit);
  // It has done what Next returned. For kDisconnect there is no call.
  void ConnectDone(Applier* applier, bool connected, const std::string& error);
  void ReportDone(const Applier& applier);
  void RetryDone(const Applier& applier, const ParkedStep& step);
  // Moves the unsettled messages out of its batch. Returns those for the dead-letter topic.
  std::vector<HeldDeliveries::Letter> Applied(const Applier& applier,
                                              const std::vector<Disposition>& dispositions,
                                              std::vector<Delivery>* batch);
  // The topic has taken a letter, or not. Returns the delay before it is tried again.
  std::optional<std::chrono::milliseconds> LetterDone(HeldDeliveries::Letter letter);

  // The status, the gate, or what other subscriptions need has changed: appliers that wait look
  // again. One that is about to wait has seen the change, or is woken by it.
  void Wake();

  // As EndTimes::EndBy.
  void EndBy(Clock::time_point end);
  // Waits until what can be applied is applied, but no longer than EndBy allows. Then lets the
  // appliers leave. Returns the times for the rest of the end.
  EndTimes ApplyHeld();
  // False if some are busy, or have not left, by then.
  bool AwaitNoneBusy(Clock::time_point until);
  bool AwaitAllLeft(Clock::time_point until);

 private:
  const std::string subscription_;
  PullStatus* const status_;
  ParkedRetry* const parked_;
  const std::function<void()> give_back_;

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  HeldDeliveries held_;
  ApplierSchedule schedule_;
  EndTimes end_times_;
  bool ending_ = false;  // no parked key is retried any more
  bool stopping_ = false;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_WORK_QUEUE_H_
