#include "worker/emulator/subscription/stored_message.h"

namespace postbox::emulator {

namespace pb = google::pubsub::v1;

pb::PubsubMessage StoredMessage::Parse() const {
  pb::PubsubMessage proto;
  proto.ParseFromString(wire);
  return proto;
}

std::shared_ptr<StoredMessage> MakeStoredMessage(const pb::PubsubMessage& proto) {
  if (!proto.message_id().empty() || proto.has_publish_time()) {
    pb::PubsubMessage plain = proto;
    plain.clear_message_id();
    plain.clear_publish_time();
    return MakeStoredMessage(plain);
  }
  constexpr size_t kStampBytes = 48;
  auto message = std::make_shared<StoredMessage>();
  message->wire.reserve(proto.ByteSizeLong() + kStampBytes);
  proto.AppendToString(&message->wire);
  message->ordering_key = proto.ordering_key();
  return message;
}

void Stamp(uint64_t sequence, const std::string& message_id, absl::Time now,
           StoredMessage* message) {
  message->sequence = sequence;
  message->published = now;
  // The concatenation of two serialized messages is parsed as one message with the fields of both.
  pb::PubsubMessage stamp;
  stamp.set_message_id(message_id);
  SetTimestamp(now, stamp.mutable_publish_time());
  stamp.AppendToString(&message->wire);
}

void SetTimestamp(absl::Time time, google::protobuf::Timestamp* timestamp) {
  const int64_t nanos = absl::ToUnixNanos(time);
  timestamp->set_seconds(nanos / 1'000'000'000);
  timestamp->set_nanos(static_cast<int32_t>(nanos % 1'000'000'000));
}

absl::Time ToTime(const google::protobuf::Timestamp& timestamp) {
  return absl::FromUnixSeconds(timestamp.seconds()) + absl::Nanoseconds(timestamp.nanos());
}

absl::Duration ToDuration(const google::protobuf::Duration& duration) {
  return absl::Seconds(duration.seconds()) + absl::Nanoseconds(duration.nanos());
}

}  // namespace postbox::emulator
