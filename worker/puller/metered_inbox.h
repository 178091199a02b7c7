// An inbox whose transactions are counted and timed (subscription_metrics.h). For the thread of an
// applier.
#ifndef POSTBOX_WORKER_PULLER_METERED_INBOX_H_
#define POSTBOX_WORKER_PULLER_METERED_INBOX_H_

#include <chrono>
#include <optional>
#include <vector>

#include "worker/puller/inbox_client.h"
#include "worker/puller/subscription_metrics.h"

namespace postbox::puller {

class MeteredInbox : public InboxClient {
 public:
  using InboxClient::Apply;
  using Clock = std::chrono::steady_clock;

  // Both outlive it.
  MeteredInbox(InboxClient* inbox, SubscriptionMetrics* metrics)
      : inbox_(inbox), metrics_(metrics) {}

  // The messages of the next transactions were taken.
  void Taken(Clock::time_point now) { taken_ = now; }

  InboxResult Apply(const std::vector<const Delivery*>& events,
                    std::optional<std::chrono::milliseconds> time) override {
    InboxResult result = inbox_->Apply(events, time);
    if (!events.empty()) Count(result, events.size());
    return result;
  }
  InboxResult RecordDeadLetter(const Delivery& delivery, const EventFailure& failure,
                               bool park) override {
    InboxResult result = inbox_->RecordDeadLetter(delivery, failure, park);
    Count(result, 1);
    return result;
  }

 private:
  void Count(const InboxResult& result, size_t messages) {
    const auto took = Clock::now() - taken_;
    if (result.ok) {
      metrics_->Committed(messages, took);
    } else {
      metrics_->AttemptFailed(result.sqlstate, took);
    }
  }

  InboxClient* const inbox_;
  SubscriptionMetrics* const metrics_;
  Clock::time_point taken_ = Clock::now();
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_METERED_INBOX_H_
