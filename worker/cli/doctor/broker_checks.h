// Checks of topics and subscriptions: what Pub/Sub says of them, compared with what the database
// expects. Nothing here calls Pub/Sub or the database.
#ifndef POSTBOX_WORKER_CLI_DOCTOR_BROKER_CHECKS_H_
#define POSTBOX_WORKER_CLI_DOCTOR_BROKER_CHECKS_H_

#include <grpcpp/support/status.h>

#include <cstdint>
#include <string>
#include <vector>

#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/cli/doctor/report.h"

namespace postbox::cli {

struct PublicationRow {
  std::string name;
  std::string topic;  // full name
  bool ordered = true;
  std::string credential;  // its own; empty: that of the environment
};

struct SubscriptionRow {
  std::string name;
  std::string subscription;  // full name
  std::string on_error;
  int64_t max_attempts = 0;
  std::string inbox;
  double inbox_retention = 0;  // seconds
  std::string credential;      // its own; empty: that of the environment
};

// What is wrong if a call about the topic or subscription `name` has failed. `what`: "topic" or
// "subscription".
void CheckCall(const grpc::Status& status, const std::string& what, const std::string& subject,
               const std::string& name, Report* report);

void CheckTopic(const google::pubsub::v1::Topic& topic, const std::string& subject, Report* report);

void CheckSubscription(const google::pubsub::v1::Subscription& subscription,
                       const SubscriptionRow& row, const std::vector<PublicationRow>& publications,
                       Report* report);

// `held`: those of the permissions that the credentials have.
void CheckPermissions(const grpc::Status& status, const std::vector<std::string>& wanted,
                      const std::vector<std::string>& held, const std::string& role,
                      const std::string& subject, const std::string& name, Report* report);

}  // namespace postbox::cli

#endif  // POSTBOX_WORKER_CLI_DOCTOR_BROKER_CHECKS_H_
