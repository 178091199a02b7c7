// The state of the emulator: topics, subscriptions and snapshots, and all operations on them.
// Without gRPC. Errors are absl::Status with the code that the service would return, and google.rpc
// details as payloads (status.h).
//
// One mutex guards everything. An operation on a message takes a few hundred nanoseconds, and
// messages are built and copied without the mutex. It is not held while a Listener is called.
//
// Time passes only when Tick() is called. Every Pull, ack and seek first ticks its subscription, so
// that a lease that is over does not count.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_BROKER_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_BROKER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/iam/v1/iam_policy.pb.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker/clock.h"
#include "worker/emulator/broker/journal.h"
#include "worker/emulator/broker/publish_quotas.h"
#include "worker/emulator/broker/schemas.h"
#include "worker/emulator/subscription/subscription.h"

namespace postbox::emulator {

// A call that waits for messages. Wake() is called on any thread without locks held, and possibly
// without a message. It must not block.
class Listener {
 public:
  virtual ~Listener() = default;
  virtual void Wake() = 0;
};

struct BrokerOptions {
  // Every message is delivered once more after its first ack.
  bool deliver_twice = false;
  // A stream that ends gives its messages back at once. Otherwise they stay leased until their
  // deadlines.
  bool release_on_disconnect = false;
  // How much may be published in a second.
  PublishRates publish_rates = {};
  // Where topics, subscriptions, snapshots, schemas and messages are kept; empty: in memory only.
  std::string data_directory = {};
  // A topic that does not exist is created when something is published to it, or when a
  // subscription to it is created.
  bool auto_create = false;
};

struct SubscriptionStats {
  std::string name;
  int64_t streams = 0;
  SubscriptionCounters counters;
};

class Broker {
 public:
  struct Feed;
  // An open StreamingPull. It must be closed before the handle is destroyed.
  struct StreamHandle {
    std::shared_ptr<Feed> feed;
    StreamId id = 0;
  };
  struct StreamBatch {
    std::vector<LeasedMessage> deliveries;
    bool exactly_once = false;
    bool ordered = false;
  };

  Broker(Clock clock, BrokerOptions options);
  Broker(const Broker&) = delete;
  Broker& operator=(const Broker&) = delete;

  // With a data directory: takes it, and what is in it. Once, before anything else.
  absl::Status Recover();

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
  // Its subscriptions stay with their messages and get no more.
  absl::Status DeleteTopic(const std::string& name);
  absl::StatusOr<google::pubsub::v1::PublishResponse> Publish(
      const google::pubsub::v1::PublishRequest& request);
  // Publish() in two steps, so that the publisher can be answered before delivery:
  // Accept() gives the messages their ids and their place, Deliver() delivers them. Messages of a
  // topic are delivered in the order in which they were accepted. If Deliver() is not called within
  // a second, Tick() does it.
  struct Undelivered;
  struct Accepted {
    google::pubsub::v1::PublishResponse response;
    std::shared_ptr<Undelivered> messages;
  };
  absl::StatusOr<Accepted> Accept(const google::pubsub::v1::PublishRequest& request);
  void Deliver(const std::shared_ptr<Undelivered>& messages);
  // Delivers whatever was accepted. A call that asks for messages, or for a position among them,
  // does this first: its client may have had the answer of a Publish already.
  void DeliverAccepted();

  // ---- subscriptions ----
  absl::StatusOr<google::pubsub::v1::Subscription> CreateSubscription(
      const google::pubsub::v1::Subscription& subscription);
  absl::StatusOr<google::pubsub::v1::Subscription> GetSubscription(const std::string& name);
  absl::StatusOr<google::pubsub::v1::Subscription> UpdateSubscription(
      const google::pubsub::v1::UpdateSubscriptionRequest& request);
  absl::StatusOr<google::pubsub::v1::ListSubscriptionsResponse> ListSubscriptions(
      const google::pubsub::v1::ListSubscriptionsRequest& request);
  absl::Status DeleteSubscription(const std::string& name);
  // Drops its messages. It gets no more, and can only be deleted.
  absl::Status DetachSubscription(const std::string& name);
  absl::Status ModifyPushConfig(const google::pubsub::v1::ModifyPushConfigRequest& request);

  // ---- messages ----
  // Returns the messages that there are now. If there are none, `waiter` is woken once when that
  // has changed.
  absl::StatusOr<std::vector<LeasedMessage>> Pull(const google::pubsub::v1::PullRequest& request,
                                                  const std::shared_ptr<Listener>& waiter);
  absl::Status Acknowledge(const google::pubsub::v1::AcknowledgeRequest& request);
  absl::Status ModifyAckDeadline(const google::pubsub::v1::ModifyAckDeadlineRequest& request);

  // `listener` is woken whenever TakeFromStream may return something. `request` is the first one of
  // the stream and must be checked.
  absl::StatusOr<StreamHandle> OpenStream(const google::pubsub::v1::StreamingPullRequest& request,
                                          std::shared_ptr<Listener> listener);
  void CloseStream(const StreamHandle& stream);
  void SetStreamDeadline(const StreamHandle& stream, int seconds);
  // NOT_FOUND if the subscription was deleted, FAILED_PRECONDITION if it was detached.
  absl::StatusOr<StreamBatch> TakeFromStream(const StreamHandle& stream);
  void GiveBack(const StreamHandle& stream, const std::vector<LeasedMessage>& deliveries);
  AckOutcome AcknowledgeOnStream(const StreamHandle& stream,
                                 const std::vector<absl::string_view>& ids);
  AckOutcome ModifyOnStream(const StreamHandle& stream,
                            const std::vector<std::pair<absl::string_view, int>>& changes);

  // ---- seek and snapshots ----
  absl::Status Seek(const google::pubsub::v1::SeekRequest& request);
  absl::StatusOr<google::pubsub::v1::Snapshot> CreateSnapshot(
      const google::pubsub::v1::CreateSnapshotRequest& request);
  absl::StatusOr<google::pubsub::v1::Snapshot> GetSnapshot(const std::string& name);
  absl::StatusOr<google::pubsub::v1::Snapshot> UpdateSnapshot(
      const google::pubsub::v1::UpdateSnapshotRequest& request);
  absl::StatusOr<google::pubsub::v1::ListSnapshotsResponse> ListSnapshots(
      const google::pubsub::v1::ListSnapshotsRequest& request);
  absl::Status DeleteSnapshot(const std::string& name);

  // ---- schemas ----
  Schemas* schemas() { return &schemas_; }
  // Topics that have it refuse what is published to them.
  absl::Status DeleteSchema(const std::string& name);

  // ---- IAM policies of topics, subscriptions and snapshots ----
  absl::StatusOr<google::iam::v1::Policy> GetIamPolicy(
      const google::iam::v1::GetIamPolicyRequest& request);
  // ABORTED if the request has the etag of an older policy.
  absl::StatusOr<google::iam::v1::Policy> SetIamPolicy(
      const google::iam::v1::SetIamPolicyRequest& request);
  absl::StatusOr<google::iam::v1::TestIamPermissionsResponse> TestIamPermissions(
      const google::iam::v1::TestIamPermissionsRequest& request);
  // Whether the policy of a resource gives this caller a permission; no if there is no such one.
  bool Allows(const std::string& resource, const std::string& caller,
              const std::string& permission);

  // Applies the time that has passed to deadlines, backoffs, retention and snapshots.
  void Tick();
  // Wakes every stream, so that it checks the faults and the shutdown again.
  void WakeAll();

  std::vector<SubscriptionStats> Stats();
  int64_t messages_published();

 private:
  struct Snapshot {
    google::pubsub::v1::Snapshot proto;
    google::iam::v1::Policy policy;
    absl::Time expires;
    // The messages that were unacked when it was taken, and those that were published since.
    std::vector<StoredMessagePtr> unacked;
  };
  struct Topic {
    google::pubsub::v1::Topic proto;
    google::iam::v1::Policy policy;
    std::map<std::string, std::shared_ptr<Feed>> feeds;  // by the subscription's name
    std::deque<std::shared_ptr<Undelivered>> undelivered;
    std::deque<StoredMessagePtr> retained;  // with message_retention_duration
  };
  using WakeList = std::vector<std::shared_ptr<Listener>>;
  // Holds the mutex while something is changed. What has changed is on disk when it is released.
  class Change {
   public:
    explicit Change(Broker* broker) : broker_(broker), lock_(broker->mu_) {}
    ~Change() ABSL_NO_THREAD_SAFETY_ANALYSIS { broker_->journal_.Write(); }
    Change(const Change&) = delete;
    Change& operator=(const Change&) = delete;

   private:
    Broker* const broker_;
    const std::lock_guard<std::mutex> lock_;
  };

  absl::StatusOr<std::shared_ptr<Feed>> FindFeed(const std::string& name)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Of a name that was checked. Creates it if that is what the options say; null if not.
  Topic* TakeTopic(const std::string& name) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Stamps the messages and adds them to those that the topic has to deliver.
  std::shared_ptr<Undelivered> Enqueue(Topic* topic,
                                       std::vector<std::shared_ptr<StoredMessage>> messages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Delivers what is due, up to the first that is not.
  void DeliverDue(Topic* topic, WakeList* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // After a change of the topic's message_retention_duration, or of its subscriptions.
  void ApplyRetention(Topic* topic) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Delivers all that was accepted until `until`.
  void DeliverAll(Topic* topic, absl::Time until, WakeList* wakes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Accept(), once the messages are made.
  absl::StatusOr<Accepted> Take(const google::pubsub::v1::PublishRequest& request, Topic* topic,
                                std::vector<std::shared_ptr<StoredMessage>> messages)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Tells the journal of a topic, subscription or snapshot that exists.
  void Save(const std::string& resource) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void SaveEntries(Feed* feed) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::shared_ptr<Feed> AddFeed(const google::pubsub::v1::Subscription& config)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The parts of Recover(). `messages` has all that are on disk.
  using Messages = std::map<uint64_t, std::shared_ptr<StoredMessage>>;
  absl::StatusOr<Messages> RecoverMessages() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecoverResources() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecoverReferences(const Messages& messages) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status RecoverSchemas();
  // Null if the resource does not exist.
  google::iam::v1::Policy* FindPolicy(const std::string& resource)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Must be called after each change of a subscription. Publishes its dead letters and collects the
  // listeners to wake.
  void Finish(Feed* feed, WakeList* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Runs `action` on a subscription with the current time, and wakes its listeners.
  template <class Action>
  auto With(const std::shared_ptr<Feed>& feed, Action action) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes a subscription from its topic, and collects all who wait for its messages.
  void Unplug(Feed* feed, WakeList* wakes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<std::shared_ptr<Feed>> LookUp(const std::string& name) ABSL_LOCKS_EXCLUDED(mu_);

  // The name of a resource that was created without one: free, and in the project of `neighbour`.
  // `kind` is "subscription" or "snapshot".
  std::string NewName(absl::string_view neighbour, absl::string_view kind)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::string MessageId(uint64_t sequence) const {
    return std::to_string(first_message_id_ + sequence);
  }

  const Clock clock_;
  const BrokerOptions options_;
  Schemas schemas_;
  Journal journal_ ABSL_GUARDED_BY(mu_);
  std::mutex mu_;
  std::map<std::string, Topic> topics_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, std::shared_ptr<Feed>> feeds_ ABSL_GUARDED_BY(mu_);
  std::map<std::string, Snapshot> snapshots_ ABSL_GUARDED_BY(mu_);
  uint64_t last_sequence_ ABSL_GUARDED_BY(mu_) = 0;
  const uint64_t first_message_id_;  // so that ids differ from those of an earlier run
  uint64_t last_incarnation_ ABSL_GUARDED_BY(mu_);
  uint64_t last_name_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t last_etag_ ABSL_GUARDED_BY(mu_) = 0;
  int64_t published_ ABSL_GUARDED_BY(mu_) = 0;
  PublishQuotas publish_quotas_ ABSL_GUARDED_BY(mu_);
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_BROKER_H_
