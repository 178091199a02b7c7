#include "worker/cli/admin/broker_commands.h"

#include <google/protobuf/util/time_util.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <iostream>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "worker/base/write_while.h"
#include "worker/cli/base/open_place.h"
#include "worker/cli/base/pubsub_admin.h"
#include "worker/cli/base/seek.h"

namespace postbox::cli {
namespace {

using Json = nlohmann::ordered_json;

// How long one call of `tail` waits for messages, and so a signal for its end.
constexpr std::chrono::seconds kPullTime{1};
constexpr int kPullMessages = 100;
constexpr int kPageSize = 1000;

std::string Id(const std::string& name) { return name.substr(name.rfind('/') + 1); }

// Rows as a table with aligned columns, the first of them the head.
void PrintTable(const std::vector<std::vector<std::string>>& rows) {
  std::vector<size_t> widths(rows.front().size());
  for (const auto& row : rows) {
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  for (const auto& row : rows) {
    std::string line;
    for (size_t i = 0; i < row.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line += std::string(widths[i] + 2 - row[i].size(), ' ');
    }
    std::printf("%s\n", line.c_str());
  }
}

std::string Dump(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

// Calls `page` until there is no further page. It returns the token of the next one.
template <class Request, class Response, class Call, class Take>
grpc::Status ForEachPage(Request request, Call call, Take take) {
  request.set_page_size(kPageSize);
  do {
    Response response;
    const grpc::Status status = call(request, &response);
    if (!status.ok()) return status;
    take(response);
    request.set_page_token(response.next_page_token());
  } while (!request.page_token().empty());
  return grpc::Status::OK;
}

Json SubscriptionJson(const pb::Subscription& subscription) {
  Json json = {{"name", subscription.name()},
               {"topic", subscription.topic()},
               {"ordered", subscription.enable_message_ordering()},
               {"exactly_once", subscription.enable_exactly_once_delivery()},
               {"ack_deadline_seconds", subscription.ack_deadline_seconds()},
               {"retention_seconds", subscription.message_retention_duration().seconds()},
               {"filter", subscription.filter()},
               {"detached", subscription.detached()}};
  json["dead_letter_topic"] = subscription.dead_letter_policy().dead_letter_topic();
  return json;
}

Json MessageJson(const pb::ReceivedMessage& received) {
  const pb::PubsubMessage& message = received.message();
  Json attributes = Json::object();
  for (const auto& [name, value] : message.attributes()) attributes[name] = value;
  Json json = {{"message_id", message.message_id()},
               {"publish_time", google::protobuf::util::TimeUtil::ToString(message.publish_time())},
               {"ordering_key", message.ordering_key()},
               {"attributes", std::move(attributes)},
               {"data", message.data()}};
  if (received.delivery_attempt() > 0) json["delivery_attempt"] = received.delivery_attempt();
  return json;
}

std::atomic<bool> stop = false;
static_assert(std::atomic<bool>::is_always_lock_free);

void StopAtSignals() {
  struct sigaction action {};
  action.sa_handler = [](int) { stop = true; };
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

// Shows the messages of a subscription once each. What it holds is given back at the end, and at
// once what comes again: so other consumers do not get it meanwhile, but lose nothing.
class Tail {
 public:
  Tail(PubSubAdmin* admin, std::string subscription, bool ack, int count)
      : admin_(admin), subscription_(std::move(subscription)), ack_(ack), count_(count) {}

  int Run() {
    grpc::Status status;
    while (status.ok() && !stop && (count_ == 0 || shown_ < count_)) status = Pull();
    const grpc::Status given = GiveBack();
    if (!status.ok()) return Fail(status);
    return given.ok() ? 0 : Fail(given);
  }

 private:
  grpc::Status Pull() {
    pb::PullRequest request;
    request.set_subscription(subscription_);
    request.set_max_messages(count_ == 0 ? kPullMessages
                                         : std::min(kPullMessages, count_ - shown_));
    pb::PullResponse response;
    grpc::ClientContext context;
    admin_->Prepare(&context, "subscription", subscription_, kPullTime);
    const grpc::Status status = admin_->subscriber()->Pull(&context, request, &response);
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) return grpc::Status::OK;
    if (!status.ok()) return status;
    pb::AcknowledgeRequest acks;
    for (const pb::ReceivedMessage& received : response.received_messages()) {
      const bool is_new = seen_.insert(received.message().message_id()).second;
      // What is not shown, since nothing reads it when the end comes, is given back.
      const bool shown = !is_new || Show(received);
      if (is_new && shown) ++shown_;
      if (ack_ && shown) acks.add_ack_ids(received.ack_id());
      if (!ack_ || !shown) held_.push_back(received.ack_id());
    }
    if (acks.ack_ids().empty()) return grpc::Status::OK;
    acks.set_subscription(subscription_);
    grpc::ClientContext ack_context;
    admin_->Prepare(&ack_context, "subscription", subscription_);
    google::protobuf::Empty none;
    return admin_->subscriber()->Acknowledge(&ack_context, acks, &none);
  }

  static bool Show(const pb::ReceivedMessage& received) {
    return !stop && WriteWhile(STDOUT_FILENO, Dump(MessageJson(received)) + "\n",
                               [] { return !stop.load(); });
  }

  grpc::Status GiveBack() {
    if (held_.empty()) return grpc::Status::OK;
    pb::ModifyAckDeadlineRequest request;
    request.set_subscription(subscription_);
    request.set_ack_deadline_seconds(0);
    for (const std::string& id : held_) request.add_ack_ids(id);
    grpc::ClientContext context;
    admin_->Prepare(&context, "subscription", subscription_);
    google::protobuf::Empty none;
    const grpc::Status status = admin_->subscriber()->ModifyAckDeadline(&context, request, &none);
    // With exactly-once delivery, ids are refused that are not valid any more: those of later
    // messages of a key whose first one is given back, for example. They are not held either.
    return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT ? grpc::Status::OK : status;
  }

  PubSubAdmin* const admin_;
  const std::string subscription_;
  const bool ack_;
  const int count_;
  int shown_ = 0;
  std::set<std::string> seen_;
  std::vector<std::string> held_;
};

}  // namespace

int RunTopics(const ListOptions& options) {
  const auto broker = Connect(options.broker);
  if (!broker) return 1;
  std::vector<std::vector<std::string>> rows = {{"TOPIC", "RETENTION", "SCHEMA"}};
  pb::ListTopicsRequest request;
  request.set_project("projects/" + broker->project);
  const grpc::Status status = ForEachPage<pb::ListTopicsRequest, pb::ListTopicsResponse>(
      request,
      [&](const auto& page, auto* response) {
        grpc::ClientContext context;
        broker->admin->Prepare(&context, "project", page.project());
        return broker->admin->publisher()->ListTopics(&context, page, response);
      },
      [&](const pb::ListTopicsResponse& response) {
        for (const pb::Topic& topic : response.topics()) {
          const int64_t kept = topic.message_retention_duration().seconds();
          const std::string& schema = topic.schema_settings().schema();
          if (!options.json) {
            rows.push_back({Id(topic.name()), kept == 0 ? "-" : std::to_string(kept) + " s",
                            schema.empty() ? "-" : schema});
            continue;
          }
          const Json json = {
              {"name", topic.name()}, {"retention_seconds", kept}, {"schema", schema}};
          std::printf("%s\n", Dump(json).c_str());
        }
      });
  if (!status.ok()) return Fail(status);
  if (!options.json) PrintTable(rows);
  return 0;
}

int RunSubscriptions(const ListOptions& options) {
  const auto broker = Connect(options.broker);
  if (!broker) return 1;
  std::vector<std::vector<std::string>> rows = {
      {"SUBSCRIPTION", "TOPIC", "ORDERED", "ACK DEADLINE", "RETENTION", "DEAD LETTERS", "FILTER"}};
  pb::ListSubscriptionsRequest request;
  request.set_project("projects/" + broker->project);
  const grpc::Status status =
      ForEachPage<pb::ListSubscriptionsRequest, pb::ListSubscriptionsResponse>(
          request,
          [&](const auto& page, auto* response) {
            grpc::ClientContext context;
            broker->admin->Prepare(&context, "project", page.project());
            return broker->admin->subscriber()->ListSubscriptions(&context, page, response);
          },
          [&](const pb::ListSubscriptionsResponse& response) {
            for (const pb::Subscription& one : response.subscriptions()) {
              if (options.json) {
                std::printf("%s\n", Dump(SubscriptionJson(one)).c_str());
                continue;
              }
              const std::string dead = Id(one.dead_letter_policy().dead_letter_topic());
              rows.push_back(
                  {Id(one.name()), Id(one.topic()), one.enable_message_ordering() ? "yes" : "no",
                   std::to_string(one.ack_deadline_seconds()) + " s",
                   std::to_string(one.message_retention_duration().seconds()) + " s",
                   dead.empty() ? "-" : dead, one.filter().empty() ? "-" : one.filter()});
            }
          });
  if (!status.ok()) return Fail(status);
  if (!options.json) PrintTable(rows);
  return 0;
}

int RunPublish(const PublishOptions& options) {
  const auto broker = Connect(options.broker);
  if (!broker) return 1;
  pb::PublishRequest request;
  request.set_topic(broker->Name("topics", options.topic));
  if (request.topic().empty()) return 1;
  pb::PubsubMessage* message = request.add_messages();
  message->set_ordering_key(options.key);
  for (const std::string& attribute : options.attributes) {
    const size_t equals = attribute.find('=');
    if (equals == std::string::npos || equals == 0) {
      return Fail("attribute \"" + attribute + "\" is not NAME=VALUE");
    }
    (*message->mutable_attributes())[attribute.substr(0, equals)] = attribute.substr(equals + 1);
  }
  message->set_data(options.data ? *options.data
                                 : std::string(std::istreambuf_iterator<char>(std::cin), {}));
  pb::PublishResponse response;
  grpc::ClientContext context;
  broker->admin->Prepare(&context, "topic", request.topic());
  const grpc::Status status = broker->admin->publisher()->Publish(&context, request, &response);
  if (!status.ok()) return Fail(status);
  for (const std::string& id : response.message_ids()) std::printf("%s\n", id.c_str());
  return 0;
}

int RunTail(const TailOptions& options) {
  const auto broker = Connect(options.broker);
  if (!broker) return 1;
  const std::string name = broker->Name("subscriptions", options.subscription);
  if (name.empty()) return 1;
  StopAtSignals();
  return Tail(broker->admin.get(), name, options.ack, options.count).Run();
}

int RunSeek(const SeekOptions& options) {
  if (!options.time.empty() && !SeekTime(options.time)) {
    return Fail("time \"" + options.time + "\" is not one", kSeekTimeRemedy);
  }
  const auto broker = Connect(options.broker);
  if (!broker) return 1;
  const auto failure = Seek(*broker, options.subscription, {options.time, options.snapshot});
  return failure ? Fail(failure->problem, failure->remedy) : 0;
}

int RunSnapshotCreate(const SnapshotOptions& options) {
  const auto broker = Connect(options.broker);
  if (!broker) return 1;
  pb::CreateSnapshotRequest request;
  request.set_name(broker->Name("snapshots", options.snapshot));
  request.set_subscription(broker->Name("subscriptions", options.subscription));
  if (request.name().empty() || request.subscription().empty()) return 1;
  pb::Snapshot snapshot;
  grpc::ClientContext context;
  broker->admin->Prepare(&context, "name", request.name());
  const grpc::Status status =
      broker->admin->subscriber()->CreateSnapshot(&context, request, &snapshot);
  if (!status.ok()) return Fail(status);
  std::printf("%s, kept until %s\n", snapshot.name().c_str(),
              google::protobuf::util::TimeUtil::ToString(snapshot.expire_time()).c_str());
  return 0;
}

int RunSnapshotDelete(const SnapshotOptions& options) {
  const auto broker = Connect(options.broker);
  if (!broker) return 1;
  pb::DeleteSnapshotRequest request;
  request.set_snapshot(broker->Name("snapshots", options.snapshot));
  if (request.snapshot().empty()) return 1;
  google::protobuf::Empty none;
  grpc::ClientContext context;
  broker->admin->Prepare(&context, "snapshot", request.snapshot());
  const grpc::Status status = broker->admin->subscriber()->DeleteSnapshot(&context, request, &none);
  return status.ok() ? 0 : Fail(status);
}

}  // namespace postbox::cli
