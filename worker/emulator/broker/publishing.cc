#include "worker/emulator/broker/publishing.h"

#include <utility>

#include "worker/emulator/rules/validation.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

namespace {

std::vector<std::shared_ptr<StoredMessage>> MakeStoredMessages(
    const google::protobuf::RepeatedPtrField<pb::PubsubMessage>& messages) {
  std::vector<std::shared_ptr<StoredMessage>> made;
  made.reserve(static_cast<size_t>(messages.size()));
  for (const pb::PubsubMessage& message : messages) made.push_back(MakeStoredMessage(message));
  return made;
}

}  // namespace

absl::StatusOr<pb::PublishResponse> Publishing::Publish(const pb::PublishRequest& request) {
  auto accepted = Accept(request);
  if (!accepted.ok()) return accepted.status();
  Deliver(accepted->messages);
  return std::move(accepted->response);
}

absl::StatusOr<Publishing::Accepted> Publishing::Accept(const pb::PublishRequest& request) {
  if (auto s = CheckPublish(request); !s.ok()) return s;
  auto messages = MakeStoredMessages(request.messages());
  pb::SchemaSettings settings;
  {
    const BrokerChange change(state_);
    TopicState* topic = change->resources.TakeTopic(request.topic());
    if (topic == nullptr || !topic->proto.has_schema_settings()) {
      return Take(request, topic, std::move(messages), change.state());
    }
    settings = topic->proto.schema_settings();
  }
  auto marked = request.messages();
  if (auto s = schemas_->CheckAndMark(settings, &marked); !s.ok()) return s;
  messages = MakeStoredMessages(marked);
  const BrokerChange change(state_);
  TopicState* topic = change->resources.TakeTopic(request.topic());
  return Take(request, topic, std::move(messages), change.state());
}

absl::StatusOr<Publishing::Accepted> Publishing::Take(
    const pb::PublishRequest& request, TopicState* topic,
    std::vector<std::shared_ptr<StoredMessage>> messages, BrokerState* state) {
  if (topic == nullptr) return NotFound(request.topic());
  // CheckPublish() has seen that there are messages, and that all have the same key.
  if (auto s = state->quotas.Take(request.topic(), request.messages(0).ordering_key(),
                                  request.ByteSizeLong(), request.messages_size(), state->clock());
      !s.ok()) {
    return s;
  }
  Accepted accepted;
  accepted.messages = state->delivery.Enqueue(topic, std::move(messages));
  accepted.response.mutable_message_ids()->Reserve(request.messages_size());
  for (const auto& message : accepted.messages->messages) {
    accepted.response.add_message_ids(state->ids.MessageId(message->sequence));
  }
  return accepted;
}

void Publishing::Deliver(const std::shared_ptr<Undelivered>& messages) {
  BrokerChange change(state_);
  messages->due = true;
  TopicState* topic = change->resources.FindTopic(messages->topic);
  if (topic != nullptr) change->delivery.DeliverDue(topic, change.wakes());
}

}  // namespace postbox::emulator
