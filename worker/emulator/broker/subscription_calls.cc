#include "worker/emulator/broker/subscription_calls.h"

#include <memory>
#include <utility>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/rules/paging.h"
#include "worker/emulator/rules/unsupported.h"
#include "worker/emulator/rules/update_mask.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

constexpr absl::string_view kMutableFields[] = {"ack_deadline_seconds",
                                                "retain_acked_messages",
                                                "enable_exactly_once_delivery",
                                                "labels",
                                                "message_retention_duration",
                                                "dead_letter_policy",
                                                "retry_policy",
                                                "expiration_policy"};

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
  if (auto s = CheckMask(request.update_mask()); !s.ok()) return s;
  if (auto s = CheckSupported(wanted); !s.ok()) return s;
  const FeedChange feed(state_, wanted.name());
  if (!feed.status().ok()) return feed.status();
  pb::Subscription changed = feed->config();
  for (const std::string& path : request.update_mask().paths()) {
    if (absl::c_linear_search(kMutableFields, path)) {
      ReplaceField(path, wanted, &changed);
    } else if (path != "push_config") {  // it has no fields, or CheckSupported() has refused it
      return CannotUpdate(*pb::Subscription::descriptor(), path);
    }
  }
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
