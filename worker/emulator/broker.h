// The emulator's state: topics, subscriptions, snapshots, and everything that is done to them.
// Free of gRPC; errors are absl::Status with the code that the service would answer with, and
// google.rpc details as payloads (see status.h).
//
// One mutex guards it all: an operation on a message is a few hundred nanoseconds of pointer work,
// and messages are built and copied outside of it. It is never held while a Listener is called.
//
// Time passes only when Tick() is called; every Pull, ack and seek first ticks its subscription, so
// no lease that is over counts.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/clock.h"
#include "worker/emulator/subscription.h"

namespace postbox::emulator {

// Somebody who waits for messages. Wake() comes from any thread, without locks held, and may come
// for nothing. It must not block.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Wake() = 0;
};

struct BrokerOptions {
  // Every message comes once more after its first ack.
  bool deliver_twice = false;
  // A stream that ends gives back what it holds, instead of holding it until the ack deadline.
  bool release_on_disconnect = false;
};

struct SubscriptionStats {
  std::string name;
  int64_t backlog = 0;
  int64_t leased = 0;
  int64_t streams = 0;
  SubscriptionCounters counters;
};

class Broker {
 public:
  struct Feed;
  // An open StreamingPull. Close it before it goes away.
  struct StreamHandle {
    std::shared_ptr<Feed> feed;
    Subscription::StreamId id = 0;
  };
  struct StreamBatch {
    std::vector<LeasedMessage> deliveries;
    bool exactly_once = false;
    bool ordered = false;
  };

  Broker(Clock clock, BrokerOptions options);
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // ---- topics ----
  absl::StatusOr<google::pubsub::v1::Topic> CreateTopic(const google::pubsub::v1::Topic& topic);
  absl::StatusOr<google::pubsub::v1::Topic> GetTopic(const std::string& name);
  absl::StatusOr<google::pubsub::v1::Topic> UpdateTopic(
      const google::pubsub::v1::UpdateTopicRequest& request);
  absl::StatusOr<google::pubsub::v1::ListTopicsResponse> ListTopics(
      const google::pubsub::v1::ListTopicsRequest& request);
  absl::StatusOr<google::pubsub::v1::ListTopicSubscriptionsResponse> ListTopicSubscriptions(
      const google::pubsub::v1::ListTopicSubscriptionsRequest& request);
  absl::StatusOr<google::pubsub::v1::ListTopicSnapshotsResponse> ListTopicSnapshots(
      const google::pubsub::v1::ListTopicSnapshotsRequest& request);
  // Its subscriptions stay, with what they hold, and get nothing more.
  absl::Status DeleteTopic(const std::string& name);
  absl::StatusOr<google::pubsub::v1::PublishResponse> Publish(
      const google::pubsub::v1::PublishRequest& request);

  // ---- subscriptions ----
  absl::StatusOr<google::pubsub::v1::Subscription> CreateSubscription(
      const google::pubsub::v1::Subscription& subscription);
  absl::StatusOr<google::pubsub::v1::Subscription> GetSubscription(const std::string& name);
  absl::StatusOr<google::pubsub::v1::Subscription> UpdateSubscription(
      const google::pubsub::v1::UpdateSubscriptionRequest& request);
  absl::StatusOr<google::pubsub::v1::ListSubscriptionsResponse> ListSubscriptions(
      const google::pubsub::v1::ListSubscriptionsRequest& request);
  absl::Status DeleteSubscription(const std::string& name);

  // ---- messages ----
  // What there is now, perhaps nothing; then `waiter` is woken once when that has changed.
  absl::StatusOr<std::vector<LeasedMessage>> Pull(const google::pubsub::v1::PullRequest& request,
                                             const std::shared_ptr<Listener>& waiter);
  absl::Status Acknowledge(const google::pubsub::v1::AcknowledgeRequest& request);
  absl::Status ModifyAckDeadline(const google::pubsub::v1::ModifyAckDeadlineRequest& request);

  // `listener` is woken whenever TakeFromStream may have something to say. `request` is the
  // stream's first and was checked.
  absl::StatusOr<StreamHandle> OpenStream(const google::pubsub::v1::StreamingPullRequest& request,
                                          std::shared_ptr<Listener> listener);
  void CloseStream(const StreamHandle& stream);
  void SetStreamDeadline(const StreamHandle& stream, int seconds);
  // NOT_FOUND when the subscription is gone.
  absl::StatusOr<StreamBatch> TakeFromStream(const StreamHandle& stream);
  void GiveBack(const StreamHandle& stream, const std::vector<LeasedMessage>& deliveries);
  AckOutcome AcknowledgeOnStream(const StreamHandle& stream, const std::vector<std::string>& ids);
  AckOutcome ModifyOnStream(const StreamHandle& stream,
                           const std::vector<std::pair<std::string, int>>& changes);

  // ---- seek and snapshots ----
  absl::Status Seek(const google::pubsub::v1::SeekRequest& request);
  absl::StatusOr<google::pubsub::v1::Snapshot> CreateSnapshot(
      const google::pubsub::v1::CreateSnapshotRequest& request);
  absl::StatusOr<google::pubsub::v1::Snapshot> GetSnapshot(const std::string& name);
  absl::StatusOr<google::pubsub::v1::ListSnapshotsResponse> ListSnapshots(
      const google::pubsub::v1::ListSnapshotsRequest& request);
  absl::Status DeleteSnapshot(const std::string& name);

  // Lets the time pass: deadlines, backoffs, retention, snapshots.
  void Tick();
  // Wakes every stream, so that each looks at the faults (or at the shutdown) again.
  void WakeAll();

  std::vector<SubscriptionStats> Stats();
  int64_t messages_published();

 private:
  struct Snapshot {
    google::pubsub::v1::Snapshot proto;
    absl::Time expires;
    // What was unacked when it was taken, and everything that was published since.
    std::vector<StoredMessagePtr> unacked;
  };
  struct Topic {
    google::pubsub::v1::Topic proto;
    std::map<std::string, std::shared_ptr<Feed>> feeds;  // by the subscription's name
  };
  using WakeList = std::vector<std::shared_ptr<Listener>>;

  absl::StatusOr<std::shared_ptr<Feed>> FindFeed(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Deliver(const Topic& topic, const std::vector<std::shared_ptr<StoredMessage>>& messages,
               WakeList* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // To be called after everything that was done to a subscription: passes dead letters on and
  // finds out who is to be woken.
  void Finish(Feed* feed, WakeList* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs `action` on a subscription at the present time and wakes whom it concerns.
  template <class Action>
  auto With(const std::shared_ptr<Feed>& feed, Action action) ABSL_LOCKS_EXCLUDED(mu_);
  absl::StatusOr<std::shared_ptr<Feed>> LookUp(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);

  std::string MessageId(uint64_t sequence) const {
    return std::to_string(first_message_id_ + sequence);
  }

  const Clock clock_;
  const BrokerOptions options_;
  absl::Mutex mu_;
  std::map<std::string, Topic> topics_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Feed>> feeds_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Snapshot> snapshots_ ABSL_GUARDED_BY(mu_);
  uint64_t last_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  const uint64_t first_message_id_;  // so that ids differ from those of an earlier run
  uint64_t last_incarnation_ ABSL_GUARDED_BY(mu_);
  int64_t published_ ABSL_GUARDED_BY(mu_) = 0;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_H_
