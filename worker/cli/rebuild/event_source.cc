#include "worker/cli/rebuild/event_source.h"

#include <google/protobuf/util/time_util.h>

#include <algorithm>
#include <ctime>

namespace postbox::cli {
namespace {

constexpr int64_t kDay = 86400;
constexpr int64_t kDefaultRetention = 7 * kDay;  // of Pub/Sub

Trouble Of(const grpc::Status& status, const std::string& what) {
  if (status.ok()) return {};
  return {what + ": " + StatusText(status), RemedyOf(status.error_code())};
}

bool ParseTime(const std::string& text, google::protobuf::Timestamp* time) {
  return google::protobuf::util::TimeUtil::FromString(text, time);
}

// Like the live one. It is deleted by Pub/Sub itself if it is forgotten.
pb::Subscription Like(const pb::Subscription& live, const std::string& name) {
  pb::Subscription made;
  made.set_name(name);
  made.set_topic(live.topic());
  made.set_filter(live.filter());
  made.set_enable_message_ordering(live.enable_message_ordering());
  made.set_ack_deadline_seconds(live.ack_deadline_seconds());
  const int64_t kept = live.message_retention_duration().seconds();
  const int64_t retention = kept > 0 ? kept : kDefaultRetention;
  made.mutable_message_retention_duration()->set_seconds(retention);
  // Pub/Sub wants it to be no shorter than the retention.
  made.mutable_expiration_policy()->mutable_ttl()->set_seconds(std::max(kDay, retention));
  return made;
}

bool Fits(const pb::Subscription& there, const pb::Subscription& made) {
  return there.topic() == made.topic() && there.filter() == made.filter() &&
         there.enable_message_ordering() == made.enable_message_ordering();
}

}  // namespace

// A new subscription has of the past what the topic retains; one that was there, also what it
// retains itself.
Trouble EventSource::CheckRetention(const pb::Subscription& subscription, bool is_new) const {
  if (options_->since.empty()) return {};
  google::protobuf::Timestamp since;
  if (!ParseTime(options_->since, &since)) {
    return {"time \"" + options_->since + "\" is not one",
            "write it like 2026-01-31T12:00:00Z or 2026-01-31T12:00:00+01:00"};
  }
  int64_t kept = subscription.topic_message_retention_duration().seconds();
  if (!is_new && subscription.retain_acked_messages()) {
    kept = std::max(kept, subscription.message_retention_duration().seconds());
  }
  const int64_t age = std::time(nullptr) - since.seconds();
  if (age <= kept) return {};
  const std::string& topic = subscription.topic();
  const std::string id = topic.substr(topic.rfind('/') + 1);
  return {kept == 0 ? "topic " + topic + " does not retain messages that were acknowledged"
                    : "topic " + topic + " retains messages for " + std::to_string(kept) +
                          " s, and --since is " + std::to_string(age) + " s ago",
          "run gcloud pubsub topics update " + id +
              " --message-retention-duration=31d, which keeps what is published from then on; or "
              "rebuild from a snapshot (--snapshot), or from a backfill (--now)"};
}

Trouble EventSource::Seek(const std::string& name) {
  pb::SeekRequest request;
  request.set_subscription(name);
  if (!options_->since.empty()) {
    ParseTime(options_->since, request.mutable_time());
  } else if (!options_->snapshot.empty()) {
    request.set_snapshot(broker_->Name("snapshots", options_->snapshot));
  } else {
    return {};
  }
  pb::SeekResponse response;
  grpc::ClientContext context;
  broker_->admin->Prepare(&context, "subscription", name);
  return Of(broker_->admin->subscriber()->Seek(&context, request, &response),
            "cannot move subscription " + name);
}

Trouble EventSource::Create(const std::string& live, const std::string& name) {
  pb::Subscription like;
  if (Trouble bad =
          Of(broker_->admin->GetSubscription(live, &like), "cannot read subscription " + live);
      !bad.none()) {
    return bad;
  }
  if (Trouble bad = CheckRetention(like, true); !bad.none()) return bad;
  const pb::Subscription wanted = Like(like, name);
  pb::Subscription there;
  const grpc::Status found = broker_->admin->GetSubscription(name, &there);
  if (found.ok() && !Fits(there, wanted)) {
    if (Trouble bad = Delete(name); !bad.none()) return bad;
  }
  if (!found.ok() || !Fits(there, wanted)) {
    pb::Subscription made;
    grpc::ClientContext context;
    broker_->admin->Prepare(&context, "name", name);
    const grpc::Status status =
        broker_->admin->subscriber()->CreateSubscription(&context, wanted, &made);
    if (status.error_code() != grpc::StatusCode::ALREADY_EXISTS && !status.ok()) {
      Trouble bad = Of(status, "cannot create subscription " + name);
      if (status.error_code() == grpc::StatusCode::PERMISSION_DENIED) {
        bad.remedy =
            "grant the account roles/pubsub.editor on the project, or have the "
            "subscription created, and name it with --subscription";
      }
      return bad;
    }
  }
  return Seek(name);
}

Trouble EventSource::Take(const std::string& name) {
  pb::Subscription there;
  if (Trouble bad =
          Of(broker_->admin->GetSubscription(name, &there), "cannot read subscription " + name);
      !bad.none()) {
    return bad;
  }
  if (there.has_dead_letter_policy()) {
    return {
        "subscription " + name + " has a dead-letter policy, so events that fail would be missing",
        "run gcloud pubsub subscriptions update " + name.substr(name.rfind('/') + 1) +
            " --clear-dead-letter-policy"};
  }
  if (Trouble bad = CheckRetention(there, false); !bad.none()) return bad;
  return Seek(name);
}

Trouble EventSource::Delete(const std::string& name) {
  pb::DeleteSubscriptionRequest request;
  request.set_subscription(name);
  grpc::ClientContext context;
  broker_->admin->Prepare(&context, "subscription", name);
  google::protobuf::Empty none;
  const grpc::Status status =
      broker_->admin->subscriber()->DeleteSubscription(&context, request, &none);
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) return {};
  Trouble bad = Of(status, "cannot delete subscription " + name);
  if (!bad.none()) {
    bad.remedy = "run gcloud pubsub subscriptions delete " + name.substr(name.rfind('/') + 1);
  }
  return bad;
}

}  // namespace postbox::cli
