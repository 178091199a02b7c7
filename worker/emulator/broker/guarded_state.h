// What the parts of the broker work on, behind its one mutex. An operation on a message takes a few
// hundred nanoseconds, and messages are built and copied without the mutex.
//
// The state is reached through an object that holds the mutex as long as it lives:
// - BrokerAccess, for what is neither saved nor of interest to a listener.
// - BrokerChange, to change something. At its end what has changed is on disk, then the mutex is
//   released, then the listeners are woken.
// - FeedChange, to change one subscription. It ticks the subscription first, so that a lease that
//   is over does not count, and sends its dead letters at the end.
// A thread has at most one of them.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_GUARDED_STATE_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_GUARDED_STATE_H_

#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/time/time.h"
#include "worker/emulator/broker/broker_options.h"
#include "worker/emulator/broker/clock.h"
#include "worker/emulator/broker/feed.h"
#include "worker/emulator/broker/journal.h"
#include "worker/emulator/broker/publish_quotas.h"
#include "worker/emulator/broker/resources.h"
#include "worker/emulator/broker/run_ids.h"
#include "worker/emulator/broker/topic_delivery.h"

namespace postbox::emulator {

struct BrokerState {
  BrokerState(Clock now, BrokerOptions broker_options)
      : clock(std::move(now)), options(std::move(broker_options)) {}

  const Clock clock;
  const BrokerOptions options;
  Journal journal;
  RunIds ids{clock()};
  Resources resources{options, &journal, &ids};
  TopicDelivery delivery{clock, &journal, &ids, &resources};
  PublishQuotas quotas{options.publish_rates};
};

class GuardedState {
 public:
  GuardedState(Clock clock, BrokerOptions options) : state_(std::move(clock), std::move(options)) {}
  GuardedState(const GuardedState&) = delete;
  GuardedState& operator=(const GuardedState&) = delete;

  // Delivers whatever was accepted. A call that asks for messages, or for a position among them,
  // does this first: its client may have had the answer of a Publish already.
  void DeliverAccepted();

 private:
  friend class BrokerAccess;
  friend class BrokerChange;

  std::mutex mu_;
  BrokerState state_ ABSL_GUARDED_BY(mu_);
};

class BrokerAccess {
 public:
  explicit BrokerAccess(GuardedState* state) ABSL_NO_THREAD_SAFETY_ANALYSIS
      : lock_(state->mu_),
        state_(&state->state_) {}

  BrokerState* operator->() const { return state_; }

 private:
  const std::lock_guard<std::mutex> lock_;
  BrokerState* const state_;
};

class BrokerChange {
 public:
  explicit BrokerChange(GuardedState* state) ABSL_NO_THREAD_SAFETY_ANALYSIS
      : lock_(state->mu_),
        state_(&state->state_) {}
  ~BrokerChange() {
    state_->journal.Write();
    lock_.unlock();
    for (const auto& listener : wakes_) listener->Wake();
  }
  BrokerChange(const BrokerChange&) = delete;
  BrokerChange& operator=(const BrokerChange&) = delete;

  BrokerState* operator->() const { return state_; }
  BrokerState* state() const { return state_; }
  WakeList* wakes() { return &wakes_; }

 private:
  WakeList wakes_;
  std::unique_lock<std::mutex> lock_;
  BrokerState* const state_;
};

class FeedChange {
 public:
  // status() is NOT_FOUND if there is no subscription of this name. Then only that may be called.
  FeedChange(GuardedState* state, const std::string& subscription);
  FeedChange(GuardedState* state, std::shared_ptr<Feed> feed);
  ~FeedChange() {
    if (feed_ != nullptr) change_->delivery.Finish(feed_.get(), change_.wakes());
  }
  FeedChange(const FeedChange&) = delete;
  FeedChange& operator=(const FeedChange&) = delete;

  const absl::Status& status() const { return status_; }
  // FAILED_PRECONDITION if the subscription is detached from its topic.
  absl::Status CheckAttached() const;
  Feed* feed() const { return feed_.get(); }
  Subscription* operator->() const { return &feed_->state; }
  absl::Time now() const { return now_; }
  BrokerState* broker() const { return change_.state(); }

 private:
  BrokerChange change_;
  absl::Status status_;
  std::shared_ptr<Feed> feed_;
  absl::Time now_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_GUARDED_STATE_H_
