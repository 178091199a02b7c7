// The subscriptions to pull: the rows of postbox.subscription, completed with the settings of the
// extension.
#ifndef POSTBOX_WORKER_PULLER_CONFIG_H_
#define POSTBOX_WORKER_PULLER_CONFIG_H_

#include <libpq-fe.h>

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "proto/rules/endpoint.h"
#include "worker/pubsub/auth/credential_spec.h"
#include "worker/puller/batch_applier.h"
#include "worker/puller/database.h"
#include "worker/puller/parked_retry.h"
#include "worker/puller/pull.h"
#include "worker/puller/subscription_metrics.h"

namespace postbox::puller {

struct SubscriptionConfig {
  std::string name;
  Oid inbox = InvalidOid;
  Oid event_type = InvalidOid;  // postbox.event
  std::string inbox_name;       // for the log
  std::string subscription;     // full name
  int64_t max_outstanding_messages = 0;
  int64_t max_outstanding_bytes = 0;
  int appliers = 1;
  int64_t batch_size = 1;
  std::chrono::milliseconds batch_delay{0};
  OnError on_error = OnError::kReject;
  int max_attempts = 1;
  std::chrono::milliseconds statement_timeout{0};  // 0: none
  std::chrono::milliseconds lock_timeout{0};       // 0: none
  std::chrono::milliseconds min_backoff{0};
  std::chrono::milliseconds max_backoff{0};
  std::string dead_letter_topic;  // full name, if on_error is kDeadLetterTopic
  ParkedAmount most_parked;       // if on_error is kParkKey
  pubsub::Endpoint endpoint;
  std::string quota_project;
  pubsub::CredentialSpec credential;        // a file, or the metadata server; or the environment's
  std::shared_ptr<pubsub::SpanSink> spans;  // null: there are no traces

  // A subscription whose configuration has changed is stopped and started again.
  friend bool operator==(const SubscriptionConfig&, const SubscriptionConfig&) = default;
};

// The subscriptions that the options name; if they name none, all. By name.
struct Subscriptions {
  std::map<std::string, SubscriptionConfig> good;
  // What is wrong with the row, and what to do about it. One wrong row stops no other subscription.
  std::map<std::string, std::string> wrong;
  std::map<std::string, std::string> paused;           // with the reason
  std::map<std::string, ProjectionTypes> projections;  // of each subscription that has some
};

// On failure returns nothing, and puts into `error` what is wrong and what to do about it. It fails
// if a query fails, or if `must_exist` is true and a subscription or a credential that the options
// name does not exist.
std::optional<Subscriptions> LoadConfig(Connection* connection, const PullOptions& options,
                                        bool must_exist, std::string* error);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_CONFIG_H_
