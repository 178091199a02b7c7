// Pulls one subscription:
//
//     Subscriber (its I/O thread) -> KeyQueue -> appliers (a thread and a connection each) -> ack
//
//   - An applier takes a batch as soon as it is full or its oldest message has waited batch_delay.
//   - A message is acked only after the transaction that applied it is committed.
//   - A failed message rests in the queue until its delay is over, and its key with it; then it and
//     what follows of its key are nacked, in order.
//   - An applier whose connection is gone takes nothing until it has another one.
//   - Shutdown: StopPulling; Finish lets the appliers finish what is in hand until a deadline, then
//     cancels what still runs and nacks the rest.
#ifndef POSTBOX_WORKER_PULLER_RUNNER_H_
#define POSTBOX_WORKER_PULLER_RUNNER_H_

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "worker/pubsub/subscriber.h"
#include "worker/puller/batch_applier.h"
#include "worker/puller/config.h"
#include "worker/puller/dead_letter_topic.h"
#include "worker/puller/inbox.h"
#include "worker/puller/key_queue.h"

namespace postbox::puller {

class Runner {
 public:
  using Clock = std::chrono::steady_clock;

  Runner(SubscriptionConfig config, std::string dsn);
  ~Runner();  // Finish(now)
  Runner(const Runner&) = delete;
  Runner& operator=(const Runner&) = delete;

  // False and the reason in `error` if it cannot even begin (credentials, threads).
  bool Start(std::string* error);
  void StopPulling();
  void Finish(Clock::time_point deadline);

  const SubscriptionConfig& config() const { return config_; }
  // The service refused the subscription for good; it was logged.
  bool failed();

 private:
  struct Applier {
    std::unique_ptr<DatabaseInbox> inbox;
    std::thread thread;
  };

  void OnMessage(pubsub::ReceivedMessage message);
  void ApplierLoop(DatabaseInbox* inbox);
  // Until when the caller has to wait; now or earlier: there is something to do.
  Clock::time_point NextWork(bool connected, Clock::time_point connect_at);
  void ApplyBatch(std::vector<Delivery> batch, BatchApplier* applier);

  const SubscriptionConfig config_;
  const std::string dsn_;
  AttemptCounter attempts_;
  DeadLetterTopic dead_letter_topic_;
  std::unique_ptr<pubsub::Subscriber> subscriber_;
  std::vector<Applier> appliers_;

  std::mutex mutex_;
  std::condition_variable changed_;
  KeyQueue queue_;
  int busy_ = 0;  // appliers with a batch
  bool stopping_ = false;
  bool failed_ = false;
  bool finished_ = false;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_RUNNER_H_
