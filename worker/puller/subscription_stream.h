// The messages of a subscription as they come from Pub/Sub, over the subscriber of the client.
//
// What the stream says of itself, errors above all, goes into the status and the log. A thread of
// its own, the I/O thread, calls `on_messages` and `on_change`. The other calls do nothing before
// Open has succeeded; all may be made on any thread until Stop.
#ifndef POSTBOX_WORKER_PULLER_SUBSCRIPTION_STREAM_H_
#define POSTBOX_WORKER_PULLER_SUBSCRIPTION_STREAM_H_

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "worker/pubsub/pull/subscriber.h"
#include "worker/puller/config.h"
#include "worker/puller/pull_status.h"
#include "worker/puller/sign_of_life.h"
#include "worker/puller/subscription_metrics.h"

namespace postbox::puller {

class SubscriptionStream {
 public:
  using Clock = std::chrono::steady_clock;
  using OnMessages = std::function<void(std::vector<pubsub::ReceivedMessage>)>;

  // `config`, `status` and `metrics` outlive it. `on_change`: the status has changed.
  SubscriptionStream(const SubscriptionConfig& config, PullStatus* status,
                     SubscriptionMetrics* metrics, OnMessages on_messages,
                     std::function<void()> on_change)
      : config_(config),
        status_(status),
        metrics_(metrics),
        on_messages_(std::move(on_messages)),
        on_change_(std::move(on_change)) {}

  // Returns false and puts the reason into `error` if no thread can be started.
  bool Open(std::string* error);
  void Ack(std::vector<uint64_t> handles);
  // Nacks what `take` returns, which the I/O thread calls (pubsub::Subscriber::GiveBack).
  void GiveBack(std::function<std::vector<uint64_t>()> take);
  void StopPulling();
  // Nacks what has not been acked, and ends the thread.
  void Stop(Clock::duration timeout);

  // The service refused the subscription with an error that does not pass. It was logged.
  bool failed() const { return failed_; }
  // As the service said last.
  bool ordered() const { return ordered_; }
  // How long the thread has given no sign. Asks it for one, which the next call sees.
  Clock::duration Silence();

 private:
  pubsub::SubscriberCallbacks Callbacks();
  void SetState(PullStatus::Stream state, const std::string& error);

  const SubscriptionConfig& config_;
  PullStatus* const status_;
  SubscriptionMetrics* const metrics_;
  const OnMessages on_messages_;
  const std::function<void()> on_change_;
  std::unique_ptr<pubsub::Subscriber> subscriber_;
  std::atomic<bool> ordered_ = false;
  std::atomic<bool> failed_ = false;
  SignOfLife sign_;
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_SUBSCRIPTION_STREAM_H_
