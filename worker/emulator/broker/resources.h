// The topics, subscriptions and snapshots that exist, by name. What changes is told to the journal.
// Without a mutex: guarded_state.h has it.
#ifndef POSTBOX_WORKER_EMULATOR_BROKER_RESOURCES_H_
#define POSTBOX_WORKER_EMULATOR_BROKER_RESOURCES_H_

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "google/iam/v1/policy.pb.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/broker/broker_options.h"
#include "worker/emulator/broker/feed.h"
#include "worker/emulator/broker/journal.h"
#include "worker/emulator/broker/run_ids.h"
#include "worker/emulator/subscription/stored_message.h"

namespace postbox::emulator {

// The messages of a request that a topic has taken and that no subscription has yet.
struct Undelivered {
  std::string topic;
  std::vector<std::shared_ptr<StoredMessage>> messages;
  absl::Time accepted;
  bool due = false;  // its publisher was answered
};

struct TopicState {
  google::pubsub::v1::Topic proto;
  google::iam::v1::Policy policy;
  std::map<std::string, std::shared_ptr<Feed>> feeds;  // by the subscription's name
  std::deque<std::shared_ptr<Undelivered>> undelivered;
  std::deque<StoredMessagePtr> retained;  // with message_retention_duration
};

struct SnapshotState {
  google::pubsub::v1::Snapshot proto;
  google::iam::v1::Policy policy;
  absl::Time expires;
  // The messages that were unacked when it was taken, and those that were published since.
  std::vector<StoredMessagePtr> unacked;
};

inline absl::Status NotFound(absl::string_view name) {
  return absl::NotFoundError(absl::StrCat("resource not found (resource=", name, ")"));
}

inline absl::Status AlreadyExists(absl::string_view name) {
  return absl::AlreadyExistsError(absl::StrCat("resource already exists (resource=", name, ")"));
}

inline absl::Status Detached(absl::string_view name) {
  return absl::FailedPreconditionError(
      absl::StrCat("subscription is detached from its topic (resource=", name, ")"));
}

class Resources {
 public:
  Resources(const BrokerOptions& options, Journal* journal, RunIds* ids)
      : deliver_twice_(options.deliver_twice),
        auto_create_(options.auto_create),
        journal_(*journal),
        ids_(*ids) {}
  Resources(const Resources&) = delete;
  Resources& operator=(const Resources&) = delete;

  std::map<std::string, TopicState>& topics() { return topics_; }
  std::map<std::string, std::shared_ptr<Feed>>& feeds() { return feeds_; }
  std::map<std::string, SnapshotState>& snapshots() { return snapshots_; }

  TopicState* FindTopic(const std::string& name);  // null: there is none
  // Creates the topic if that is what the options say; null if not.
  TopicState* TakeTopic(const std::string& name);
  // There must be none of this name.
  TopicState* AddTopic(const google::pubsub::v1::Topic& proto);
  // After a change of the topic's message_retention_duration, or of its subscriptions.
  void ApplyRetention(TopicState* topic);

  absl::StatusOr<std::shared_ptr<Feed>> FindFeed(const std::string& name);
  // Gives the subscription to its topic, if that exists.
  std::shared_ptr<Feed> AddFeed(const google::pubsub::v1::Subscription& config);
  // Takes a subscription from its topic, and collects all calls that wait for its messages.
  void Unplug(Feed* feed, WakeList* wakes);

  // A free name for a resource that is created without one (run_ids.h).
  std::string NewName(absl::string_view neighbour, absl::string_view kind);
  // Of a topic, subscription or snapshot; null if it does not exist.
  google::iam::v1::Policy* FindPolicy(const std::string& resource);

  // Tells the journal of a topic, subscription or snapshot that exists.
  void Save(const std::string& resource);
  // Tells the journal which messages of the subscription have changed.
  void SaveEntries(Feed* feed);

 private:
  const bool deliver_twice_;
  const bool auto_create_;
  Journal& journal_;
  RunIds& ids_;
  std::map<std::string, TopicState> topics_;
  std::map<std::string, std::shared_ptr<Feed>> feeds_;
  std::map<std::string, SnapshotState> snapshots_;
};

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_BROKER_RESOURCES_H_
