// Converts the results of the broker into responses.
#ifndef POSTBOX_WORKER_EMULATOR_RESPOND_H_
#define POSTBOX_WORKER_EMULATOR_RESPOND_H_

#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/subscription/ack_id.h"
#include "worker/emulator/subscription/subscription.h"

namespace postbox::emulator {

template <class Result>
absl::Status Respond(absl::StatusOr<Result> result, Result* response) {
  if (!result.ok()) return result.status();
  *response = std::move(*result);
  return absl::OkStatus();
}

inline void AddDeliveries(const std::vector<LeasedMessage>& deliveries,
                          google::pubsub::v1::PullResponse* response) {
  response->mutable_received_messages()->Reserve(static_cast<int>(deliveries.size()));
  for (const LeasedMessage& delivery : deliveries) {
    google::pubsub::v1::ReceivedMessage* received = response->add_received_messages();
    received->set_ack_id(FormatAckId(delivery.ack_id));
    received->set_delivery_attempt(delivery.delivery_attempt);
    // The field `message` is copied as bytes; on the wire it is the same field.
    received->GetReflection()->MutableUnknownFields(received)->AddLengthDelimited(
        google::pubsub::v1::ReceivedMessage::kMessageFieldNumber, delivery.message->wire);
  }
}

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_RESPOND_H_
