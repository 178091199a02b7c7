#include "worker/emulator/broker/resources.h"

#include <utility>

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

TopicState* Resources::FindTopic(const std::string& name) {
  const auto found = topics_.find(name);
  return found == topics_.end() ? nullptr : &found->second;
}

TopicState* Resources::TakeTopic(const std::string& name) {
  TopicState* topic = FindTopic(name);
  if (topic != nullptr || !auto_create_) return topic;
  pb::Topic proto;
  proto.set_name(name);
  return AddTopic(proto);
}

TopicState* Resources::AddTopic(const pb::Topic& proto) {
  TopicState& topic = topics_[proto.name()];
  topic.proto = proto;
  topic.proto.clear_satisfies_pzs();
  topic.proto.set_state(pb::Topic::ACTIVE);
  Save(proto.name());
  journal_.Delivered(proto.name(), ids_.last_sequence());  // those of an earlier topic of this name
  return &topic;
}

void Resources::ApplyRetention(TopicState* topic) {
  const pb::Topic& proto = topic->proto;
  for (const auto& [name, feed] : topic->feeds) {
    pb::Subscription config = feed->state.config();
    config.clear_topic_message_retention_duration();
    if (proto.has_message_retention_duration()) {
      *config.mutable_topic_message_retention_duration() = proto.message_retention_duration();
    }
    feed->state.Configure(std::move(config));
    Save(name);
  }
  if (proto.has_message_retention_duration()) return;
  topic->retained.clear();
  journal_.NoneRetained(proto.name());
}

absl::StatusOr<std::shared_ptr<Feed>> Resources::FindFeed(const std::string& name) {
  const auto found = feeds_.find(name);
  if (found == feeds_.end()) return NotFound(name);
  return found->second;
}

std::shared_ptr<Feed> Resources::AddFeed(const pb::Subscription& config) {
  auto feed =
      std::make_shared<Feed>(config, ids_.NextIncarnation(), deliver_twice_,
                             [this](const std::string& name) { return topics_.contains(name); });
  if (journal_.on()) feed->state.entries().RememberChanges();
  feeds_.emplace(config.name(), feed);
  TopicState* topic = FindTopic(config.topic());
  if (topic != nullptr && !config.detached()) topic->feeds.emplace(config.name(), feed);
  return feed;
}

void Resources::Unplug(Feed* feed, WakeList* wakes) {
  const pb::Subscription& config = feed->state.config();
  TopicState* topic = FindTopic(config.topic());
  if (topic != nullptr) topic->feeds.erase(config.name());
  feed->TakeAll(wakes);
}

std::string Resources::NewName(absl::string_view neighbour, absl::string_view kind) {
  for (;;) {
    std::string name = ids_.NextName(neighbour, kind);
    if (!feeds_.contains(name) && !snapshots_.contains(name)) return name;
  }
}

google::iam::v1::Policy* Resources::FindPolicy(const std::string& resource) {
  if (TopicState* topic = FindTopic(resource); topic != nullptr) return &topic->policy;
  if (const auto feed = feeds_.find(resource); feed != feeds_.end()) return &feed->second->policy;
  const auto snapshot = snapshots_.find(resource);
  return snapshot == snapshots_.end() ? nullptr : &snapshot->second.policy;
}

void Resources::Save(const std::string& resource) {
  if (!journal_.on()) return;
  if (const TopicState* topic = FindTopic(resource); topic != nullptr) {
    journal_.TopicChanged(topic->proto, topic->policy);
  } else if (const auto feed = feeds_.find(resource); feed != feeds_.end()) {
    journal_.SubscriptionChanged(feed->second->state.config(), feed->second->policy);
  } else if (const auto snapshot = snapshots_.find(resource); snapshot != snapshots_.end()) {
    journal_.SnapshotChanged(snapshot->second.proto, snapshot->second.policy);
  }
}

void Resources::SaveEntries(Feed* feed) {
  if (!journal_.on()) return;
  Entries& entries = feed->state.entries();
  const std::vector<uint64_t> touched = entries.TakeTouched();
  if (feed->deleted) return;  // one of the same name may exist by now
  for (const uint64_t sequence : touched) {
    journal_.EntryChanged(feed->state.config().name(), sequence, entries.StateOf(sequence));
  }
}

}  // namespace postbox::emulator
