#include "worker/emulator/broker/topic_calls.h"

#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/field_mask_util.h"
#include "worker/emulator/rules/labels.h"
#include "worker/emulator/rules/paging.h"
#include "worker/emulator/rules/unsupported.h"
#include "worker/emulator/rules/update_mask.h"
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

}  // namespace

absl::StatusOr<pb::Topic> TopicCalls::Create(const pb::Topic& topic) {
  if (auto s = CheckTopic(topic); !s.ok()) return s;
  const BrokerChange change(state_);
  if (change->resources.FindTopic(topic.name()) != nullptr) return AlreadyExists(topic.name());
  if (topic.has_schema_settings()) {
    if (auto s = schemas_->CheckSettings(topic.schema_settings()); !s.ok()) return s;
  }
  return change->resources.AddTopic(topic)->proto;
}

absl::StatusOr<pb::Topic> TopicCalls::Get(const std::string& name) {
  if (auto s = CheckName(name, "topics"); !s.ok()) return s;
  const BrokerAccess access(state_);
  const TopicState* topic = access->resources.FindTopic(name);
  if (topic == nullptr) return NotFound(name);
  return topic->proto;
}

absl::StatusOr<pb::Topic> TopicCalls::Update(const pb::UpdateTopicRequest& request) {
  if (auto s = CheckName(request.topic().name(), "topics"); !s.ok()) return s;
  if (auto s = CheckMask(request.update_mask()); !s.ok()) return s;
  const BrokerChange change(state_);
  TopicState* topic = change->resources.FindTopic(request.topic().name());
  if (topic == nullptr) return NotFound(request.topic().name());
  pb::Topic changed = topic->proto;
  bool schema_changes = false;
  for (const std::string& path : request.update_mask().paths()) {
    if (path == "labels" || path == "message_retention_duration") {
      ReplaceField(path, request.topic(), &changed);
    } else if (path == "message_storage_policy") {
      *changed.mutable_message_storage_policy() = request.topic().message_storage_policy();
    } else if (IsSchemaPath(path)) {
      ReplaceField(path, request.topic(), &changed);
      schema_changes = changed.has_schema_settings();
    } else {
      return CannotUpdate(*pb::Topic::descriptor(), path);
    }
  }
  if (auto s = CheckTopic(changed); !s.ok()) return s;
  if (schema_changes) {
    if (auto s = schemas_->CheckSettings(changed.schema_settings()); !s.ok()) return s;
  }
  topic->proto = std::move(changed);
  change->resources.ApplyRetention(topic);
  change->resources.Save(topic->proto.name());
  return topic->proto;
}

absl::StatusOr<pb::ListTopicsResponse> TopicCalls::List(const pb::ListTopicsRequest& request) {
  if (auto s = CheckProject(request.project()); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "topics"); !s.ok()) return s;
  pb::ListTopicsResponse response;
  const std::string prefix = absl::StrCat(request.project(), "/topics/");
  const BrokerAccess access(state_);
  response.set_next_page_token(Page(
      access->resources.topics(), request.page_size(), request.page_token(),
      [&](const std::string& name) { return absl::StartsWith(name, prefix); },
      [&](const auto& item) { *response.add_topics() = item.second.proto; }));
  return response;
}

absl::StatusOr<pb::ListTopicSubscriptionsResponse> TopicCalls::ListSubscriptions(
    const pb::ListTopicSubscriptionsRequest& request) {
  if (auto s = CheckName(request.topic(), "topics"); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "subscriptions"); !s.ok()) {
    return s;
  }
  pb::ListTopicSubscriptionsResponse response;
  const BrokerAccess access(state_);
  const TopicState* topic = access->resources.FindTopic(request.topic());
  if (topic == nullptr) return NotFound(request.topic());
  response.set_next_page_token(Page(
      topic->feeds, request.page_size(), request.page_token(),
      [](const std::string&) { return true; },
      [&](const auto& item) { response.add_subscriptions(item.first); }));
  return response;
}

absl::StatusOr<pb::ListTopicSnapshotsResponse> TopicCalls::ListSnapshots(
    const pb::ListTopicSnapshotsRequest& request) {
  if (auto s = CheckName(request.topic(), "topics"); !s.ok()) return s;
  if (auto s = CheckPage(request.page_size(), request.page_token(), "snapshots"); !s.ok()) return s;
  pb::ListTopicSnapshotsResponse response;
  const BrokerAccess access(state_);
  if (access->resources.FindTopic(request.topic()) == nullptr) return NotFound(request.topic());
  const auto& snapshots = access->resources.snapshots();
  response.set_next_page_token(Page(
      snapshots, request.page_size(), request.page_token(),
      [&](const std::string& name) { return snapshots.at(name).proto.topic() == request.topic(); },
      [&](const auto& item) { response.add_snapshots(item.first); }));
  return response;
}

absl::Status TopicCalls::Delete(const std::string& name) {
  if (auto s = CheckName(name, "topics"); !s.ok()) return s;
  state_->DeliverAccepted();
  const BrokerChange change(state_);
  Resources& resources = change->resources;
  const auto found = resources.topics().find(name);
  if (found == resources.topics().end()) return NotFound(name);
  for (const auto& [subscription, feed] : found->second.feeds) {
    pb::Subscription config = feed->state.config();
    config.set_topic("_deleted-topic_");
    config.clear_topic_message_retention_duration();
    feed->state.Configure(std::move(config));
    resources.Save(subscription);
  }
  resources.topics().erase(found);
  change->journal.TopicDeleted(name);
  return absl::OkStatus();
}

absl::Status TopicCalls::DeleteSchema(const std::string& name) {
  const BrokerChange change(state_);
  if (auto s = schemas_->Delete(name); !s.ok()) return s;
  for (auto& [topic_name, topic] : change->resources.topics()) {
    if (topic.proto.schema_settings().schema() == name) {
      topic.proto.mutable_schema_settings()->set_schema(kDeletedSchema);
      change->resources.Save(topic_name);
    }
  }
  return absl::OkStatus();
}

}  // namespace postbox::emulator
