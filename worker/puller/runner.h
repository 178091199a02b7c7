// Pulls one subscription:
//
//     SubscriptionStream  ->  WorkQueue  ->  ApplierPool  ->  acks over the stream
//     (I/O thread)                ^          (threads)
//                                 |              |
//                                 +------ DeadLetterTopic, of what is given up
//                                         (thread)
//
//   - A message is acked only after the transaction that applied it is committed, or after the
//     dead-letter topic has taken it.
//   - Shutdown: StopPulling, then Finish, which returns before the time that it is given, whatever
//     does not answer: the database, a pooler before it, Pub/Sub, or the dead-letter topic. It lets
//     the appliers apply what the puller holds, as long as any of them has a connection. It keeps
//     the last part of the time (end_times.h) to cancel the statements that still run, to end the
//     connections that do not answer a little later, and to nack the rest.
//   - Each part guards its own state. The mutex of the WorkQueue is the outermost one: no other one
//     of the puller is held where it is taken.
#ifndef POSTBOX_WORKER_PULLER_RUNNER_H_
#define POSTBOX_WORKER_PULLER_RUNNER_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker/puller/applier_pool.h"
#include "worker/puller/apply_gate.h"
#include "worker/puller/attempt_counter.h"
#include "worker/puller/config.h"
#include "worker/puller/connection_shares.h"
#include "worker/puller/consumer_health.h"
#include "worker/puller/dead_letter_topic.h"
#include "worker/puller/liveness.h"
#include "worker/puller/parked_retry.h"
#include "worker/puller/pull_status.h"
#include "worker/puller/status_reporter.h"
#include "worker/puller/subscription_metrics.h"
#include "worker/puller/subscription_stream.h"
#include "worker/puller/work_queue.h"

namespace postbox::puller {

class Runner {
 public:
  using Clock = std::chrono::steady_clock;

  // `status` and `metrics`: those of an earlier runner of the subscription, or new ones. `shares`,
  // of the process, outlives it. `paused`: it only retries what is parked, and receives nothing;
  // the reason that OverLimit() of an earlier runner gave.
  Runner(SubscriptionConfig config, std::string dsn, std::shared_ptr<PullStatus> status,
         std::shared_ptr<SubscriptionMetrics> metrics, ConnectionShares* shares,
         const std::string& paused);
  ~Runner();  // Finish(now)
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // Returns false and puts the reason into `error` if no thread can be started.
  bool Start(std::string* error);
  void StopPulling() { stream_.StopPulling(); }
  // Returns before `end`, or 2 s from now if that is later.
  void Finish(Clock::time_point end);
  // Any thread: what ends, or will, has no more time than until then, or 2 s from now.
  void EndBy(Clock::time_point end) { queue_.EndBy(end); }
  // Before Finish: the subscription is started again, so its report stays.
  void StartsAgain() { starts_again_ = true; }

  const std::shared_ptr<PullStatus>& status() const { return status_; }
  const SubscriptionConfig& config() const { return config_; }
  StatusReporter* reporter() { return &reporter_; }
  // True if the service refused the subscription with an error that does not pass. It was logged.
  bool failed() const { return stream_.failed(); }
  // Which limit of what may be parked is reached (parked_retry.h), and whether it is to be paused,
  // or to go on, for that: by starting it again.
  std::string OverLimit() const { return parked_.OverLimit(); }
  bool PauseChanges() const { return parked_.paused_for().empty() != OverLimit().empty(); }
  // The statement that has had no answer for longest, if that is kUnansweredTime or more; the
  // status shows it from then on. No more than that is said: a long statement may be in order.
  std::optional<Unanswered> LookForAnswers();
  static constexpr std::chrono::seconds kUnansweredTime{20};
  // After Finish: its report is still there. It starts again, or no applier had a connection to
  // remove it.
  bool report_left() const { return report_left_; }
  // Lets appliers that wait look again at what other subscriptions need.
  void LookAtShares() { queue_.Wake(); }
  // What its threads have got done. Asks the I/O thread for a sign, which the next call sees.
  ThreadSigns Signs();
  // What keeps it from applying events now: it is not connected to the database, or to Pub/Sub.
  // Empty if nothing does, or if it is paused.
  std::string NotReady();

 private:
  void OnMessages(std::vector<pubsub::ReceivedMessage> messages);
  // One at least have come.
  void NoteReceived(const std::vector<Delivery>& deliveries);
  // On the I/O thread.
  std::vector<uint64_t> TakeSuspended();
  void OnApplied(const std::vector<Delivery>& batch, const std::vector<Disposition>& dispositions,
                 Clock::duration took);
  void OnDeadLetterResult(DeadLetterTopic::Letter letter);
  void StartAppliers();
  SubscriptionGauges Gauges();

  const SubscriptionConfig config_;
  const std::shared_ptr<PullStatus> status_;
  const std::shared_ptr<SubscriptionMetrics> metrics_;
  AttemptCounter attempts_;
  ParkedRetry parked_;
  ApplyGate gate_;
  ConsumerHealth health_;
  StatusReporter reporter_;
  WorkQueue queue_;
  SubscriptionStream stream_;
  DeadLetterTopic dead_letter_topic_;
  ApplierPool appliers_;
  bool finished_ = false;
  bool starts_again_ = false;
  bool report_left_ = false;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_RUNNER_H_
