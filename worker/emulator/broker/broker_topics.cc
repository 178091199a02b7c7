// Topics, and what a deleted schema leaves in them.
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/field_mask_util.h"
#include "worker/emulator/broker/broker.h"
#include "worker/emulator/broker/broker_internal.h"
#include "worker/emulator/rules/labels.h"
#include "worker/emulator/rules/paging.h"
#include "worker/emulator/rules/unsupported.h"
#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;
using google::protobuf::util::FieldMaskUtil;

namespace {

// The settings as a whole, or one of their fields.
bool IsSchemaPath(const std::string& path) {
  return (path == "schema_settings" || absl::StartsWith(path, "schema_settings.")) &&
         FieldMaskUtil::IsValidPath<pb::Topic>(path);
}

void UpdateSchemaSettings(const std::string& path, const pb::Topic& wanted, pb::Topic* topic) {
  google::protobuf::FieldMask mask;
  mask.add_paths(path);
  FieldMaskUtil::MergeOptions options;
  options.set_replace_message_fields(true);
  FieldMaskUtil::MergeMessageTo(wanted, mask, options, topic);
}

}  // namespace

absl::StatusOr<pb::Topic> Broker::CreateTopic(const pb::Topic& topic) {
  if (auto s = CheckTopic(topic); !s.ok()) return s;
  const Change change(this);
  if (topics_.contains(topic.name())) return AlreadyExists(topic.name());
  if (topic.has_schema_settings()) {
    if (auto s = schemas_.CheckSettings(topic.schema_settings()); !s.ok()) return s;
  }
  const auto it = topics_.try_emplace(topic.name()).first;
  it->second.proto = topic;
  it->second.proto.clear_satisfies_pzs();
  it->second.proto.set_state(pb::Topic::ACTIVE);
  Save(topic.name());
  journal_.Delivered(topic.name(), last_sequence_);  // those of an earlier topic of this name
  return it->second.proto;
}

Broker::Topic* Broker::TakeTopic(const std::string& name) {
  const auto found = topics_.find(name);
  if (found != topics_.end()) return &found->second;
  if (!options_.auto_create) return nullptr;
  Topic& topic = topics_[name];
  topic.proto.set_name(name);
  topic.proto.set_state(pb::Topic::ACTIVE);
  Save(name);
  journal_.Delivered(name, last_sequence_);
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
  const Change change(this);
  const auto found = topics_.find(request.topic().name());
  if (found == topics_.end()) return NotFound(request.topic().name());
  pb::Topic changed = found->second.proto;
  bool schema_changes = false;
  for (const std::string& path : request.update_mask().paths()) {
    if (path == "labels") {
      *changed.mutable_labels() = request.topic().labels();
    } else if (path == "message_retention_duration") {
      changed.clear_message_retention_duration();
      if (request.topic().has_message_retention_duration()) {
        *changed.mutable_message_retention_duration() =
            request.topic().message_retention_duration();
      }
    } else if (path == "message_storage_policy") {
      *changed.mutable_message_storage_policy() = request.topic().message_storage_policy();
    } else if (IsSchemaPath(path)) {
      UpdateSchemaSettings(path, request.topic(), &changed);
      schema_changes = changed.has_schema_settings();
    } else {
      return CannotUpdate(*pb::Topic::descriptor(), path);
    }
  }
  if (auto s = CheckTopic(changed); !s.ok()) return s;
  if (schema_changes) {
    if (auto s = schemas_.CheckSettings(changed.schema_settings()); !s.ok()) return s;
  }
  found->second.proto = std::move(changed);
  ApplyRetention(&found->second);
  Save(found->first);
  return found->second.proto;
}

void Broker::ApplyRetention(Topic* topic) {
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

absl::StatusOr<pb::ListTopicsResponse> Broker::ListTopics(const pb::ListTopicsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "topics"); !s.ok()) return s;
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
  if (auto s = CheckPage(request.page_size(), request.page_token(), "subscriptions"); !s.ok()) {
    return s;
  }
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
  if (auto s = CheckPage(request.page_size(), request.page_token(), "snapshots"); !s.ok()) return s;
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
  const Change change(this);
  const auto found = topics_.find(name);
  if (found == topics_.end()) return NotFound(name);
  for (const auto& [subscription, feed] : found->second.feeds) {
    pb::Subscription config = feed->state.config();
    config.set_topic("_deleted-topic_");
    config.clear_topic_message_retention_duration();
    feed->state.Configure(std::move(config));
    Save(subscription);
  }
  topics_.erase(found);
  journal_.TopicDeleted(name);
  return absl::OkStatus();
}

absl::Status Broker::DeleteSchema(const std::string& name) {
  const Change change(this);
  if (auto s = schemas_.Delete(name); !s.ok()) return s;
  for (auto& [topic_name, topic] : topics_) {
    if (topic.proto.schema_settings().schema() == name) {
      topic.proto.mutable_schema_settings()->set_schema(kDeletedSchema);
      Save(topic_name);
    }
  }
  return absl::OkStatus();
}

}  // namespace postbox::emulator
