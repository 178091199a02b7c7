// Subscriptions.
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/broker/broker_internal.h"
#include "worker/emulator/rules/paging.h"
#include "worker/emulator/rules/unsupported.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

absl::StatusOr<pb::Subscription> Broker::CreateSubscription(const pb::Subscription& subscription) {
  if (auto s = CheckSupported(subscription); !s.ok()) return s;
  pb::Subscription config = subscription;
  config.clear_detached();
  config.clear_topic_message_retention_duration();
  SetDefaults(&config);
  if (auto s = CheckName(config.topic(), "topics"); !s.ok()) return s;
  if (config.name().empty()) {
    const std::lock_guard<std::mutex> lock(mu_);
    config.set_name(NewName(config.topic(), "subscription"));
  }
  if (auto s = CheckSubscription(config); !s.ok()) return s;
  DeliverAccepted();
  const Change change(this);
  if (feeds_.contains(config.name())) return AlreadyExists(config.name());
  Topic* topic = TakeTopic(config.topic());
  if (topic == nullptr) return NotFound(config.topic());
  if (config.has_dead_letter_policy()) {
    const std::string& dead_letters = config.dead_letter_policy().dead_letter_topic();
    if (TakeTopic(dead_letters) == nullptr) return NotFound(dead_letters);
  }
  const std::shared_ptr<Feed> feed = AddFeed(config);
  ApplyRetention(topic);
  return feed->state.config();
}

std::shared_ptr<Broker::Feed> Broker::AddFeed(const pb::Subscription& config) {
  // Called by the subscription while mu_ is held.
  const auto topic_exists = [this](const std::string& name)
                                ABSL_NO_THREAD_SAFETY_ANALYSIS { return topics_.contains(name); };
  auto feed =
      std::make_shared<Feed>(config, ++last_incarnation_, options_.deliver_twice, topic_exists);
  if (journal_.on()) feed->state.entries().RememberChanges();
  feeds_.emplace(config.name(), feed);
  const auto topic = topics_.find(config.topic());
  if (topic != topics_.end() && !config.detached())
    topic->second.feeds.emplace(config.name(), feed);
  return feed;
}

absl::StatusOr<pb::Subscription> Broker::GetSubscription(const std::string& name) {
  if (auto s = CheckName(name, "subscriptions"); !s.ok()) return s;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto feed = FindFeed(name);
  if (!feed.ok()) return feed.status();
  return (*feed)->state.config();
}

absl::StatusOr<pb::Subscription> Broker::UpdateSubscription(
    const pb::UpdateSubscriptionRequest& request) {
  const pb::Subscription& wanted = request.subscription();
  if (auto s = CheckName(wanted.name(), "subscriptions"); !s.ok()) return s;
  if (request.update_mask().paths().empty()) {
    return absl::InvalidArgumentError("update_mask must name at least one field");
  }
  if (auto s = CheckSupported(wanted); !s.ok()) return s;
  const auto feed = LookUp(wanted.name());
  if (!feed.ok()) return feed.status();
  const auto update = [&](Subscription* state, absl::Time)
                          ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::StatusOr<pb::Subscription> {
    pb::Subscription changed = state->config();
    for (const std::string& path : request.update_mask().paths()) {
      if (path == "ack_deadline_seconds") {
        changed.set_ack_deadline_seconds(wanted.ack_deadline_seconds());
      } else if (path == "retain_acked_messages") {
        changed.set_retain_acked_messages(wanted.retain_acked_messages());
      } else if (path == "enable_exactly_once_delivery") {
        changed.set_enable_exactly_once_delivery(wanted.enable_exactly_once_delivery());
      } else if (path == "labels") {
        *changed.mutable_labels() = wanted.labels();
      } else if (path == "message_retention_duration") {
        changed.clear_message_retention_duration();
        if (wanted.has_message_retention_duration()) {
          *changed.mutable_message_retention_duration() = wanted.message_retention_duration();
        }
      } else if (path == "dead_letter_policy") {
        changed.clear_dead_letter_policy();
        if (wanted.has_dead_letter_policy()) {
          *changed.mutable_dead_letter_policy() = wanted.dead_letter_policy();
        }
      } else if (path == "retry_policy") {
        changed.clear_retry_policy();
        if (wanted.has_retry_policy()) *changed.mutable_retry_policy() = wanted.retry_policy();
      } else if (path == "expiration_policy") {
        changed.clear_expiration_policy();
        if (wanted.has_expiration_policy()) {
          *changed.mutable_expiration_policy() = wanted.expiration_policy();
        }
      } else if (path != "push_config") {  // it has no fields, or CheckSupported() has refused it
        return CannotUpdate(*pb::Subscription::descriptor(), path);
      }
    }
    SetDefaults(&changed);
    if (auto s = CheckSubscription(changed); !s.ok()) return s;
    if (const std::string& dead_letters = changed.dead_letter_policy().dead_letter_topic();
        !dead_letters.empty() && TakeTopic(dead_letters) == nullptr) {
      return NotFound(dead_letters);
    }
    state->Configure(changed);
    Save(changed.name());
    return changed;
  };
  return With(*feed, update);
}

absl::StatusOr<pb::ListSubscriptionsResponse> Broker::ListSubscriptions(
    const pb::ListSubscriptionsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "subscriptions"); !s.ok()) {
    return s;
  }
  pb::ListSubscriptionsResponse response;
  const std::string prefix = absl::StrCat(request.project(), "/subscriptions/");
  const std::lock_guard<std::mutex> lock(mu_);
  response.set_next_page_token(Page(
      feeds_, request.page_size(), request.page_token(),
      [&](const std::string& name) { return absl::StartsWith(name, prefix); },
      [&](const auto& item) { *response.add_subscriptions() = item.second->state.config(); }));
  return response;
}

absl::Status Broker::DeleteSubscription(const std::string& name) {
  if (auto s = CheckName(name, "subscriptions"); !s.ok()) return s;
  WakeList wakes;
  {
    const Change change(this);
    const auto found = feeds_.find(name);
    if (found == feeds_.end()) return NotFound(name);
    const std::shared_ptr<Feed> feed = found->second;
    feed->deleted = true;
    feeds_.erase(found);
    Unplug(feed.get(), &wakes);
    journal_.SubscriptionDeleted(name);
  }
  for (const auto& listener : wakes) listener->Wake();
  return absl::OkStatus();
}

absl::Status Broker::DetachSubscription(const std::string& name) {
  if (auto s = CheckName(name, "subscriptions"); !s.ok()) return s;
  WakeList wakes;
  {
    const Change change(this);
    const auto feed = FindFeed(name);
    if (!feed.ok()) return feed.status();
    (*feed)->state.Detach();
    SaveEntries(feed->get());
    Save(name);
    Unplug(feed->get(), &wakes);
  }
  for (const auto& listener : wakes) listener->Wake();
  return absl::OkStatus();
}

void Broker::Unplug(Feed* feed, WakeList* wakes) {
  const pb::Subscription& config = feed->state.config();
  if (auto topic = topics_.find(config.topic()); topic != topics_.end()) {
    topic->second.feeds.erase(config.name());
  }
  for (const auto& [id, listener] : feed->streams) wakes->push_back(listener);
  std::move(feed->pulls.begin(), feed->pulls.end(), std::back_inserter(*wakes));
  feed->pulls.clear();
}

absl::Status Broker::ModifyPushConfig(const pb::ModifyPushConfigRequest& request) {
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  pb::Subscription wanted;
  *wanted.mutable_push_config() = request.push_config();
  if (auto s = CheckSupported(wanted); !s.ok()) return s;
  return LookUp(request.subscription()).status();
}

}  // namespace postbox::emulator
