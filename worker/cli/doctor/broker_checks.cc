#include "worker/cli/doctor/broker_checks.h"

#include <algorithm>

#include "worker/cli/base/pubsub_admin.h"

namespace postbox::cli {
namespace {

// What UpdateSubscription and gcloud call the last part of a name.
std::string Id(const std::string& name) { return name.substr(name.rfind('/') + 1); }
std::string Project(const std::string& name) {
  constexpr size_t kBegin = 9;  // projects/
  const size_t end = name.find('/', kBegin);
  return name.size() < kBegin ? "" : name.substr(kBegin, end - kBegin);
}
std::string InProject(const std::string& name) { return " --project=" + Project(name); }

std::string Seconds(int64_t seconds) { return std::to_string(seconds) + " s"; }

std::string CreateCommand(const std::string& what, const std::string& name) {
  if (what == "topic") {
    return "create it: gcloud pubsub topics create " + Id(name) + InProject(name) +
           ", or correct the name";
  }
  return "create it: gcloud pubsub subscriptions create " + Id(name) + InProject(name) +
         " --topic=TOPIC --enable-message-ordering, or correct the name with "
         "postbox.drop_subscription and postbox.create_subscription";
}

void CheckOrder(const pb::Subscription& subscription, const SubscriptionRow& row,
                const std::vector<PublicationRow>& publications, Report* report) {
  if (subscription.enable_message_ordering()) return;
  const auto ordered = std::find_if(
      publications.begin(), publications.end(),
      [&](const PublicationRow& one) { return one.ordered && one.topic == subscription.topic(); });
  const std::string remedy =
      "create the subscription again with message ordering, which cannot be changed: gcloud pubsub "
      "subscriptions create " +
      Id(row.subscription) + InProject(row.subscription) + " --topic=" + Id(subscription.topic()) +
      " --enable-message-ordering";
  if (ordered != publications.end()) {
    report->Error("subscription", row.name,
                  "publication " + ordered->name +
                      " publishes the events of each key in order, and this subscription does not "
                      "keep the order",
                  remedy);
  } else {
    report->Warn("subscription", row.name,
                 "it has no message ordering: the events of a key may arrive in any order", remedy);
  }
}

void CheckDeadLetters(const pb::Subscription& subscription, const SubscriptionRow& row,
                      Report* report) {
  const auto& policy = subscription.dead_letter_policy();
  const std::string update =
      "gcloud pubsub subscriptions update " + Id(row.subscription) + InProject(row.subscription);
  if (!subscription.has_dead_letter_policy()) {
    if (row.on_error != "nack") return;
    report->Warn("subscription", row.name,
                 "on_error is nack, and the subscription has no dead-letter topic: a message that "
                 "cannot be applied is redelivered without end, and its key waits",
                 "run " + update +
                     " --dead-letter-topic=TOPIC, or create the subscription of the database again "
                     "with on_error => 'reject'");
    return;
  }
  if (policy.dead_letter_topic() == "_deleted-topic_") {
    report->Error("subscription", row.name, "its dead-letter topic was deleted",
                  "run " + update + " --dead-letter-topic=TOPIC");
  }
  if (row.on_error != "nack" && policy.max_delivery_attempts() < row.max_attempts) {
    report->Warn("subscription", row.name,
                 "Pub/Sub moves a message to " + policy.dead_letter_topic() + " after " +
                     std::to_string(policy.max_delivery_attempts()) +
                     " deliveries, before max_attempts of the subscription is reached, which is " +
                     std::to_string(row.max_attempts),
                 "run " + update + " --max-delivery-attempts=" +
                     std::to_string(std::clamp<int64_t>(row.max_attempts, 5, 100)) +
                     ", or --clear-dead-letter-policy");
  }
}

// Whether it can be pulled at all.
void CheckUse(const pb::Subscription& subscription, const SubscriptionRow& row, Report* report) {
  const std::string again = "create the subscription again, and start postbox pull";
  if (subscription.topic() == "_deleted-topic_") {
    report->Error("subscription", row.name,
                  "its topic was deleted, so it receives no more messages", again);
  }
  if (subscription.detached()) {
    report->Error("subscription", row.name, "it is detached from its topic", again);
  }
  if (!subscription.push_config().push_endpoint().empty()) {
    report->Error(
        "subscription", row.name,
        "it pushes to " + subscription.push_config().push_endpoint() + ", so it cannot be pulled",
        "run gcloud pubsub subscriptions modify-push-config " + Id(row.subscription) +
            InProject(row.subscription) + " --push-endpoint=''");
  }
  if (subscription.state() == pb::Subscription::RESOURCE_ERROR) {
    report->Error("subscription", row.name, "Pub/Sub cannot deliver to it (RESOURCE_ERROR)",
                  "see the subscription in the console of Google Cloud");
  }
}

void CheckLimits(const pb::Subscription& subscription, const SubscriptionRow& row, Report* report) {
  if (!subscription.filter().empty()) {
    report->Warn("subscription", row.name,
                 "it has a filter, and what does not match never arrives: " + subscription.filter(),
                 "nothing if the filter is intended; it cannot be removed, only the subscription "
                 "created again without it");
  }
  const int64_t kept = subscription.message_retention_duration().seconds();
  if (static_cast<double>(kept) > row.inbox_retention) {
    report->Error(
        "subscription", row.name,
        "Pub/Sub keeps messages for " + Seconds(kept) + ", and inbox " + row.inbox +
            " remembers events for " + Seconds(static_cast<int64_t>(row.inbox_retention)) +
            " only: an event that is redelivered later takes effect again",
        "run gcloud pubsub subscriptions update " + Id(row.subscription) +
            InProject(row.subscription) + " --message-retention-duration=" +
            std::to_string(std::max<int64_t>(600, static_cast<int64_t>(row.inbox_retention))) +
            "s, or use an inbox with a longer retention");
  }
}

}  // namespace

void CheckCall(const grpc::Status& status, const std::string& what, const std::string& subject,
               const std::string& name, Report* report) {
  const std::string text = StatusText(status);
  switch (status.error_code()) {
    case grpc::StatusCode::NOT_FOUND:
      report->Error(what, subject, "the " + what + " " + name + " does not exist",
                    CreateCommand(what, name));
      return;
    case grpc::StatusCode::PERMISSION_DENIED:
      report->Warn(what, subject,
                   "the " + what + " " + name + " cannot be read with these credentials: " + text,
                   "grant roles/pubsub.viewer on it, or run postbox doctor with other credentials");
      return;
    case grpc::StatusCode::UNAUTHENTICATED:
      report->Error("endpoint", subject, "Pub/Sub does not accept the credentials: " + text,
                    "check GOOGLE_APPLICATION_CREDENTIALS");
      return;
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
      report->Error("endpoint", subject, "Pub/Sub does not answer: " + text,
                    "check postbox.endpoint, the network, DNS and firewalls");
      return;
    default:
      report->Error(what, subject, "the " + what + " " + name + " cannot be read: " + text,
                    "see docs/guides/troubleshoot.md");
  }
}

void CheckTopic(const pb::Topic& topic, const std::string& subject, Report* report) {
  if (topic.state() == pb::Topic::INGESTION_RESOURCE_ERROR) {
    report->Warn("topic", subject, "its ingestion has an error (INGESTION_RESOURCE_ERROR)",
                 "see the topic in the console of Google Cloud");
  } else if (topic.has_schema_settings() && !topic.schema_settings().schema().empty()) {
    report->Warn("topic", subject,
                 "it has the schema " + topic.schema_settings().schema() +
                     ": Pub/Sub refuses every event whose payload does not fit, and its key waits",
                 "nothing if all events fit; else run gcloud pubsub topics update " +
                     Id(topic.name()) + InProject(topic.name()) + " --clear-schema-settings");
  } else {
    report->Ok("topic", subject, topic.name());
  }
}

void CheckSubscription(const pb::Subscription& subscription, const SubscriptionRow& row,
                       const std::vector<PublicationRow>& publications, Report* report) {
  Report found;
  CheckUse(subscription, row, &found);
  CheckOrder(subscription, row, publications, &found);
  CheckDeadLetters(subscription, row, &found);
  CheckLimits(subscription, row, &found);
  if (found.Worst() == "ok") {
    report->Ok(
        "subscription", row.name,
        row.subscription + ", ordered, ack deadline " +
            Seconds(subscription.ack_deadline_seconds()) +
            (subscription.enable_exactly_once_delivery() ? ", exactly-once delivery" : "") +
            (subscription.has_dead_letter_policy()
                 ? ", dead letters to " + subscription.dead_letter_policy().dead_letter_topic()
                 : ""));
  }
  for (const Finding& one : found.findings()) report->Add(one);
}

void CheckPermissions(const grpc::Status& status, const std::vector<std::string>& wanted,
                      const std::vector<std::string>& held, const std::string& role,
                      const std::string& subject, const std::string& name, Report* report) {
  if (status.error_code() == grpc::StatusCode::UNIMPLEMENTED) {
    report->Ok("permissions", subject,
               "cannot be checked: the server does not implement TestIamPermissions");
    return;
  }
  if (!status.ok()) {
    report->Warn("permissions", subject, "cannot be checked: " + StatusText(status),
                 "check that the credentials have " + role + " on " + name);
    return;
  }
  std::string missing;
  for (const std::string& permission : wanted) {
    if (std::find(held.begin(), held.end(), permission) != held.end()) continue;
    missing += (missing.empty() ? "" : ", ") + permission;
  }
  if (missing.empty()) {
    report->Ok("permissions", subject, "held");
  } else {
    report->Error("permissions", subject, "the credentials do not have " + missing + " on " + name,
                  "grant " + role + " on it to the account of the credentials");
  }
}

}  // namespace postbox::cli
