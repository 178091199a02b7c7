#include "worker/emulator/broker/subscription_calls.h"

#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/rules/paging.h"
#include "worker/emulator/rules/unsupported.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

absl::Status ApplyMask(const pb::UpdateSubscriptionRequest& request, pb::Subscription* changed) {
  const pb::Subscription& wanted = request.subscription();
  for (const std::string& path : request.update_mask().paths()) {
    if (path == "ack_deadline_seconds") {
      changed->set_ack_deadline_seconds(wanted.ack_deadline_seconds());
    } else if (path == "retain_acked_messages") {
      changed->set_retain_acked_messages(wanted.retain_acked_messages());
    } else if (path == "enable_exactly_once_delivery") {
      changed->set_enable_exactly_once_delivery(wanted.enable_exactly_once_delivery());
    } else if (path == "labels") {
      *changed->mutable_labels() = wanted.labels();
    } else if (path == "message_retention_duration") {
      changed->clear_message_retention_duration();
      if (wanted.has_message_retention_duration()) {
        *changed->mutable_message_retention_duration() = wanted.message_retention_duration();
      }
    } else if (path == "dead_letter_policy") {
      changed->clear_dead_letter_policy();
      if (wanted.has_dead_letter_policy()) {
        *changed->mutable_dead_letter_policy() = wanted.dead_letter_policy();
      }
    } else if (path == "retry_policy") {
      changed->clear_retry_policy();
      if (wanted.has_retry_policy()) *changed->mutable_retry_policy() = wanted.retry_policy();
    } else if (path == "expiration_policy") {
      changed->clear_expiration_policy();
      if (wanted.has_expiration_policy()) {
        *changed->mutable_expiration_policy() = wanted.expiration_policy();
      }
    } else if (path != "push_config") {  // it has no fields, or CheckSupported() has refused it
      return CannotUpdate(*pb::Subscription::descriptor(), path);
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<pb::Subscription> SubscriptionCalls::Create(const pb::Subscription& subscription) {
  if (auto s = CheckSupported(subscription); !s.ok()) return s;
  pb::Subscription config = subscription;
  config.clear_detached();
  config.clear_topic_message_retention_duration();
  SetDefaults(&config);
  if (auto s = CheckName(config.topic(), "topics"); !s.ok()) return s;
  if (config.name().empty()) {
    const BrokerAccess access(state_);
    config.set_name(access->resources.NewName(config.topic(), "subscription"));
  }
  if (auto s = CheckSubscription(config); !s.ok()) return s;
  state_->DeliverAccepted();
  const BrokerChange change(state_);
  Resources& resources = change->resources;
  if (resources.feeds().contains(config.name())) return AlreadyExists(config.name());
  TopicState* topic = resources.TakeTopic(config.topic());
  if (topic == nullptr) return NotFound(config.topic());
  if (config.has_dead_letter_policy()) {
    const std::string& dead_letters = config.dead_letter_policy().dead_letter_topic();
    if (resources.TakeTopic(dead_letters) == nullptr) return NotFound(dead_letters);
  }
  const std::shared_ptr<Feed> feed = resources.AddFeed(config);
  resources.ApplyRetention(topic);
  return feed->state.config();
}

absl::StatusOr<pb::Subscription> SubscriptionCalls::Get(const std::string& name) {
  if (auto s = CheckName(name, "subscriptions"); !s.ok()) return s;
  const BrokerAccess access(state_);
  const auto feed = access->resources.FindFeed(name);
  if (!feed.ok()) return feed.status();
  return (*feed)->state.config();
}

absl::StatusOr<pb::Subscription> SubscriptionCalls::Update(
    const pb::UpdateSubscriptionRequest& request) {
  const pb::Subscription& wanted = request.subscription();
  if (auto s = CheckName(wanted.name(), "subscriptions"); !s.ok()) return s;
  if (request.update_mask().paths().empty()) {
    return absl::InvalidArgumentError("update_mask must name at least one field");
  }
  if (auto s = CheckSupported(wanted); !s.ok()) return s;
  const FeedChange feed(state_, wanted.name());
  if (!feed.status().ok()) return feed.status();
  pb::Subscription changed = feed->config();
  if (auto s = ApplyMask(request, &changed); !s.ok()) return s;
  SetDefaults(&changed);
  if (auto s = CheckSubscription(changed); !s.ok()) return s;
  Resources& resources = feed.broker()->resources;
  if (const std::string& dead_letters = changed.dead_letter_policy().dead_letter_topic();
      !dead_letters.empty() && resources.TakeTopic(dead_letters) == nullptr) {
    return NotFound(dead_letters);
  }
  feed->Configure(changed);
  resources.Save(changed.name());
  return changed;
}

absl::StatusOr<pb::ListSubscriptionsResponse> SubscriptionCalls::List(
    const pb::ListSubscriptionsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "subscriptions"); !s.ok()) {
    return s;
  }
  pb::ListSubscriptionsResponse response;
  const std::string prefix = absl::StrCat(request.project(), "/subscriptions/");
  const BrokerAccess access(state_);
  response.set_next_page_token(Page(
      access->resources.feeds(), request.page_size(), request.page_token(),
      [&](const std::string& name) { return absl::StartsWith(name, prefix); },
      [&](const auto& item) { *response.add_subscriptions() = item.second->state.config(); }));
  return response;
}

absl::Status SubscriptionCalls::Delete(const std::string& name) {
  if (auto s = CheckName(name, "subscriptions"); !s.ok()) return s;
  BrokerChange change(state_);
  const auto feed = change->resources.FindFeed(name);
  if (!feed.ok()) return feed.status();
  (*feed)->deleted = true;
  change->resources.feeds().erase(name);
  change->resources.Unplug(feed->get(), change.wakes());
  change->journal.SubscriptionDeleted(name);
  return absl::OkStatus();
}

absl::Status SubscriptionCalls::Detach(const std::string& name) {
  if (auto s = CheckName(name, "subscriptions"); !s.ok()) return s;
  BrokerChange change(state_);
  const auto feed = change->resources.FindFeed(name);
  if (!feed.ok()) return feed.status();
  (*feed)->state.Detach();
  change->resources.SaveEntries(feed->get());
  change->resources.Save(name);
  change->resources.Unplug(feed->get(), change.wakes());
  return absl::OkStatus();
}

absl::Status SubscriptionCalls::ModifyPushConfig(const pb::ModifyPushConfigRequest& request) {
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  pb::Subscription wanted;
  *wanted.mutable_push_config() = request.push_config();
  if (auto s = CheckSupported(wanted); !s.ok()) return s;
  const BrokerAccess access(state_);
  return access->resources.FindFeed(request.subscription()).status();
}

}  // namespace postbox::emulator
