// The appliers of a subscription: threads, each with its own database session. What they do
// next, the queue says (work_queue.h).
//
// The connection of an applier is that of its thread. Others only cancel or abort what it waits
// for, and ask since when it has waited; the session has a mutex for that (inbox_client.h).
#ifndef POSTBOX_WORKER_PULLER_APPLIER_POOL_H_
#define POSTBOX_WORKER_PULLER_APPLIER_POOL_H_

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "worker/puller/apply_gate.h"
#include "worker/puller/batch_applier.h"
#include "worker/puller/config.h"
#include "worker/puller/consumer_health.h"
#include "worker/puller/inbox_client.h"
#include "worker/puller/liveness.h"
#include "worker/puller/metered_inbox.h"
#include "worker/puller/paced_inbox.h"
#include "worker/puller/status_reporter.h"
#include "worker/puller/subscription_metrics.h"
#include "worker/puller/work_queue.h"

namespace postbox::puller {

class ApplierPool {
 public:
  using Clock = std::chrono::steady_clock;
  // Acks what is settled of a batch. On the thread of the applier, before its queues go on.
  using OnApplied =
      std::function<void(const std::vector<Delivery>& batch,
                         const std::vector<Disposition>& dispositions, Clock::duration took)>;
  using OnLetter = std::function<void(DeadLetterTopic::Letter)>;
  // What the appliers share with other parts of the subscription. It outlives them.
  struct Shared {
    WorkQueue* queue;
    ApplyGate* gate;
    AttemptCounter* attempts;
    ConsumerHealth* health;
    PullStatus* status;
    SubscriptionMetrics* metrics;
    StatusReporter* reporter;
  };

  // `config` outlives it.
  ApplierPool(const SubscriptionConfig& config, std::string dsn, Shared shared,
              OnApplied on_applied, OnLetter on_letter)
      : config_(config),
        dsn_(std::move(dsn)),
        shared_(shared),
        on_applied_(std::move(on_applied)),
        on_letter_(std::move(on_letter)) {}

  void Start();
  // After WorkQueue::ApplyHeld: cancels the statements that still run, and after `time` ends the
  // connections that do not answer. Returns when all threads have ended.
  void Stop(Clock::duration time);

  // The statement that has had no answer for longest.
  std::optional<Unanswered> OldestUnanswered() const;
  std::vector<ThreadSigns::Applier> Signs() const;
  // After Stop: the sessions that have a connection.
  std::vector<DatabaseInboxClient*> Connected() const;

 private:
  struct Applier {
    std::unique_ptr<DatabaseInboxClient> inbox;
    std::thread thread;
  };

  ApplyPolicy Policy() const;
  // The thread of an applier.
  void Run(DatabaseInboxClient* inbox);
  void Apply(std::vector<Delivery> batch, BatchApplier* applier, MeteredInbox* metered,
             const WorkQueue::Applier& self);
  void RetryParked(const WorkQueue::Applier& self, bool count);
  void Abort(DatabaseInboxClient* inbox) const;

  const SubscriptionConfig& config_;
  const std::string dsn_;
  const Shared shared_;
  const OnApplied on_applied_;
  const OnLetter on_letter_;
  std::atomic<bool> cancelling_ = false;  // no statement begins any more
  std::vector<Applier> appliers_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_APPLIER_POOL_H_
