// Writes a StreamingPullResponse in wire format. Its messages are stored in this format; with the
// generated classes each of them takes an object, its fields and a copy, which was a third of what
// it cost the emulator to deliver a message. The format cannot change (google.pubsub.v1;
// StreamingPullResponse: received_messages = 1; ReceivedMessage: ack_id = 1, message = 2,
// delivery_attempt = 3). The test compares with the generated classes.
#ifndef POSTBOX_WORKER_EMULATOR_DELIVERY_WIRE_H_
#define POSTBOX_WORKER_EMULATOR_DELIVERY_WIRE_H_

#include <grpcpp/support/byte_buffer.h>

#include <vector>

#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/emulator/subscription/subscription.h"

namespace postbox::emulator {

// `others`: the other fields of the response.
grpc::ByteBuffer EncodeDeliveries(const std::vector<LeasedMessage>& deliveries,
                                  const google::pubsub::v1::StreamingPullResponse& others);

}  // namespace postbox::emulator

#endif  // POSTBOX_WORKER_EMULATOR_DELIVERY_WIRE_H_
