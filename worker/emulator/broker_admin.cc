// Topics, subscriptions, snapshots and seeks.
#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "worker/emulator/broker.h"
#include "worker/emulator/broker_internal.h"
#include "worker/emulator/service_limits.h"
#include "worker/emulator/validation.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

// One page of a map by name. Calls `add` for each element for whose name `wanted` returns true.
// Returns the token of the next page, which is the last name of this one; empty if there is no next
// page.
template <class Map, class Wanted, class Add>
std::string Page(const Map& map, int page_size, const std::string& token, Wanted wanted, Add add) {
  constexpr int kMaxPage = 1000;
  const int most = page_size > 0 ? std::min(page_size, kMaxPage) : kMaxPage;
  int count = 0;
  std::string last;
  for (auto it = token.empty() ? map.begin() : map.upper_bound(token); it != map.end(); ++it) {
    if (!wanted(it->first)) continue;
    if (count == most) return last;
    add(*it);
    ++count;
    last = it->first;
  }
  return "";
}

}  // namespace

// ---- topics ----

absl::StatusOr<pb::Topic> Broker::CreateTopic(const pb::Topic& topic) {
  if (auto s = CheckTopic(topic); !s.ok()) return s;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto [it, inserted] = topics_.try_emplace(topic.name());
  if (!inserted) return AlreadyExists(topic.name());
  it->second.proto = topic;
  it->second.proto.set_state(pb::Topic::ACTIVE);
  return it->second.proto;
}

Broker::Topic* Broker::TakeTopic(const std::string& name) {
  const auto found = topics_.find(name);
  if (found != topics_.end()) return &found->second;
  if (!options_.auto_create) return nullptr;
  Topic& topic = topics_[name];
  topic.proto.set_name(name);
  topic.proto.set_state(pb::Topic::ACTIVE);
  return &topic;
}

absl::StatusOr<pb::Topic> Broker::GetTopic(const std::string& name) {
  if (auto s = CheckName(name, "topics"); !s.ok()) return s;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = topics_.find(name);
  if (found == topics_.end()) return NotFound(name);
  return found->second.proto;
}

absl::StatusOr<pb::Topic> Broker::UpdateTopic(const pb::UpdateTopicRequest& request) {
  if (auto s = CheckName(request.topic().name(), "topics"); !s.ok()) return s;
  if (request.update_mask().paths().empty()) {
    return absl::InvalidArgumentError("update_mask must name at least one field");
  }
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = topics_.find(request.topic().name());
  if (found == topics_.end()) return NotFound(request.topic().name());
  pb::Topic changed = found->second.proto;
  for (const std::string& path : request.update_mask().paths()) {
    if (path == "labels") {
      *changed.mutable_labels() = request.topic().labels();
    } else if (path == "message_retention_duration") {
      changed.clear_message_retention_duration();
      if (request.topic().has_message_retention_duration()) {
        *changed.mutable_message_retention_duration() =
            request.topic().message_retention_duration();
      }
    } else {
      return absl::InvalidArgumentError(
          absl::StrCat("update_mask names a field that cannot be updated: ", path));
    }
  }
  if (auto s = CheckTopic(changed); !s.ok()) return s;
  found->second.proto = std::move(changed);
  return found->second.proto;
}

absl::StatusOr<pb::ListTopicsResponse> Broker::ListTopics(const pb::ListTopicsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
  pb::ListTopicsResponse response;
  const std::string prefix = absl::StrCat(request.project(), "/topics/");
  const std::lock_guard<std::mutex> lock(mu_);
  response.set_next_page_token(Page(
      topics_, request.page_size(), request.page_token(),
      [&](const std::string& name) { return absl::StartsWith(name, prefix); },
      [&](const auto& item) { *response.add_topics() = item.second.proto; }));
  return response;
}

absl::StatusOr<pb::ListTopicSubscriptionsResponse> Broker::ListTopicSubscriptions(
    const pb::ListTopicSubscriptionsRequest& request) {
  if (auto s = CheckName(request.topic(), "topics"); !s.ok()) return s;
  pb::ListTopicSubscriptionsResponse response;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = topics_.find(request.topic());
  if (found == topics_.end()) return NotFound(request.topic());
  response.set_next_page_token(Page(
      found->second.feeds, request.page_size(), request.page_token(),
      [](const std::string&) { return true; },
      [&](const auto& item) { response.add_subscriptions(item.first); }));
  return response;
}

absl::StatusOr<pb::ListTopicSnapshotsResponse> Broker::ListTopicSnapshots(
    const pb::ListTopicSnapshotsRequest& request) {
  if (auto s = CheckName(request.topic(), "topics"); !s.ok()) return s;
  pb::ListTopicSnapshotsResponse response;
  const std::lock_guard<std::mutex> lock(mu_);
  if (!topics_.contains(request.topic())) return NotFound(request.topic());
  response.set_next_page_token(Page(
      snapshots_, request.page_size(), request.page_token(),
      [&](const std::string& name) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return snapshots_.at(name).proto.topic() == request.topic();
      },
      [&](const auto& item) { response.add_snapshots(item.first); }));
  return response;
}

absl::Status Broker::DeleteTopic(const std::string& name) {
  if (auto s = CheckName(name, "topics"); !s.ok()) return s;
  DeliverAccepted();
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = topics_.find(name);
  if (found == topics_.end()) return NotFound(name);
  for (const auto& [subscription, feed] : found->second.feeds) feed->state.TopicDeleted();
  topics_.erase(found);
  return absl::OkStatus();
}

// ---- subscriptions ----

absl::StatusOr<pb::Subscription> Broker::CreateSubscription(const pb::Subscription& subscription) {
  pb::Subscription config = subscription;
  SetDefaults(&config);
  if (auto s = CheckSubscription(config); !s.ok()) return s;
  if (auto s = CheckName(config.topic(), "topics"); !s.ok()) return s;
  DeliverAccepted();
  const std::lock_guard<std::mutex> lock(mu_);
  if (feeds_.contains(config.name())) return AlreadyExists(config.name());
  Topic* topic = TakeTopic(config.topic());
  if (topic == nullptr) return NotFound(config.topic());
  // Called by the subscription while mu_ is held.
  const auto topic_exists = [this](const std::string& name)
                                ABSL_NO_THREAD_SAFETY_ANALYSIS { return topics_.contains(name); };
  auto feed =
      std::make_shared<Feed>(config, ++last_incarnation_, options_.deliver_twice, topic_exists);
  topic->feeds.emplace(config.name(), feed);
  feeds_.emplace(config.name(), std::move(feed));
  return config;
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
  const auto feed = LookUp(wanted.name());
  if (!feed.ok()) return feed.status();
  return With(*feed, [&](Subscription* state, absl::Time) -> absl::StatusOr<pb::Subscription> {
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
      } else {
        return absl::InvalidArgumentError(
            absl::StrCat("update_mask names a field that cannot be updated: ", path));
      }
    }
    SetDefaults(&changed);
    if (auto s = CheckSubscription(changed); !s.ok()) return s;
    state->Configure(changed);
    return changed;
  });
}

absl::StatusOr<pb::ListSubscriptionsResponse> Broker::ListSubscriptions(
    const pb::ListSubscriptionsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
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
    const std::lock_guard<std::mutex> lock(mu_);
    const auto found = feeds_.find(name);
    if (found == feeds_.end()) return NotFound(name);
    const std::shared_ptr<Feed> feed = found->second;
    feed->deleted = true;
    if (auto topic = topics_.find(feed->state.config().topic()); topic != topics_.end()) {
      topic->second.feeds.erase(name);
    }
    feeds_.erase(found);
    for (const auto& [id, listener] : feed->streams) wakes.push_back(listener);
    std::move(feed->pulls.begin(), feed->pulls.end(), std::back_inserter(wakes));
    feed->pulls.clear();
  }
  for (const auto& listener : wakes) listener->Wake();
  return absl::OkStatus();
}

// ---- seek and snapshots ----

absl::Status Broker::Seek(const pb::SeekRequest& request) {
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  if (request.target_case() == pb::SeekRequest::TARGET_NOT_SET) {
    return absl::InvalidArgumentError("a seek needs a time or a snapshot");
  }
  DeliverAccepted();
  const auto feed = LookUp(request.subscription());
  if (!feed.ok()) return feed.status();
  if (request.has_time()) {
    const absl::Time time =
        absl::FromUnixSeconds(request.time().seconds()) + absl::Nanoseconds(request.time().nanos());
    return With(*feed, [&](Subscription* state, absl::Time) {
      state->Seek(time);
      return absl::OkStatus();
    });
  }
  return With(*feed, [&](Subscription* state, absl::Time) ABSL_NO_THREAD_SAFETY_ANALYSIS {
    const auto snapshot = snapshots_.find(request.snapshot());
    if (snapshot == snapshots_.end()) return NotFound(request.snapshot());
    if (snapshot->second.proto.topic() != state->config().topic()) {
      return absl::FailedPreconditionError(
          "a subscription can seek only to a snapshot of its own topic");
    }
    state->Seek(snapshot->second.unacked);
    return absl::OkStatus();
  });
}

absl::StatusOr<pb::Snapshot> Broker::CreateSnapshot(const pb::CreateSnapshotRequest& request) {
  if (auto s = CheckName(request.name(), "snapshots"); !s.ok()) return s;
  if (auto s = CheckName(request.subscription(), "subscriptions"); !s.ok()) return s;
  DeliverAccepted();
  const auto feed = LookUp(request.subscription());
  if (!feed.ok()) return feed.status();
  return With(*feed,
              [&](Subscription* state, absl::Time now)
                  ABSL_NO_THREAD_SAFETY_ANALYSIS -> absl::StatusOr<pb::Snapshot> {
                    const auto [it, inserted] = snapshots_.try_emplace(request.name());
                    if (!inserted) return AlreadyExists(request.name());
                    Snapshot& snapshot = it->second;
                    snapshot.expires = now + absl::Seconds(kSnapshotSeconds);
                    snapshot.proto.set_name(request.name());
                    snapshot.proto.set_topic(state->config().topic());
                    *snapshot.proto.mutable_labels() = request.labels();
                    SetTimestamp(snapshot.expires, snapshot.proto.mutable_expire_time());
                    snapshot.unacked = state->Unacked();
                    return snapshot.proto;
                  });
}

absl::StatusOr<pb::Snapshot> Broker::GetSnapshot(const std::string& name) {
  if (auto s = CheckName(name, "snapshots"); !s.ok()) return s;
  const std::lock_guard<std::mutex> lock(mu_);
  const auto found = snapshots_.find(name);
  if (found == snapshots_.end()) return NotFound(name);
  return found->second.proto;
}

absl::StatusOr<pb::ListSnapshotsResponse> Broker::ListSnapshots(
    const pb::ListSnapshotsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
  pb::ListSnapshotsResponse response;
  const std::string prefix = absl::StrCat(request.project(), "/snapshots/");
  const std::lock_guard<std::mutex> lock(mu_);
  response.set_next_page_token(Page(
      snapshots_, request.page_size(), request.page_token(),
      [&](const std::string& name) { return absl::StartsWith(name, prefix); },
      [&](const auto& item) { *response.add_snapshots() = item.second.proto; }));
  return response;
}

absl::Status Broker::DeleteSnapshot(const std::string& name) {
  if (auto s = CheckName(name, "snapshots"); !s.ok()) return s;
  const std::lock_guard<std::mutex> lock(mu_);
  return snapshots_.erase(name) == 1 ? absl::OkStatus() : NotFound(name);
}

}  // namespace postbox::emulator
