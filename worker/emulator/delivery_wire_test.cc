#include "worker/emulator/delivery_wire.h"

#include <gtest/gtest.h>

#include <grpcpp/support/proto_buffer_reader.h>

#include <memory>
#include <string>

#include "worker/emulator/subscription/ack_id.h"

namespace postbox::emulator {
namespace {

namespace pb = google::pubsub::v1;

LeasedMessage Leased(const std::string& data, int attempt) {
  pb::PubsubMessage proto;
  proto.set_data(data);
  (*proto.mutable_attributes())["a"] = "1";
  const auto message = MakeStoredMessage(proto);
  Stamp(7, "id-7", absl::FromUnixSeconds(1700000000), message.get());
  return {message, {1, 7, 99}, attempt};
}

pb::StreamingPullResponse Read(grpc::ByteBuffer buffer) {
  pb::StreamingPullResponse response;
  grpc::ProtoBufferReader reader(&buffer);
  EXPECT_TRUE(response.ParseFromZeroCopyStream(&reader));
  return response;
}

TEST(DeliveryWireTest, TheGeneratedClassesReadWhatIsWritten) {
  pb::StreamingPullResponse others;
  others.mutable_subscription_properties()->set_message_ordering_enabled(true);
  others.mutable_acknowledge_confirmation()->add_ack_ids("confirmed");
  for (const size_t length : {0, 1, 100, 127, 128, 20'000, 3'000'000}) {
    const std::string data(length, 'd');
    const auto read = Read(EncodeDeliveries({Leased(data, 0), Leased("x", 300)}, others));
    EXPECT_TRUE(read.subscription_properties().message_ordering_enabled());
    EXPECT_EQ(read.acknowledge_confirmation().ack_ids(0), "confirmed");
    ASSERT_EQ(read.received_messages_size(), 2);
    const pb::ReceivedMessage& first = read.received_messages(0);
    EXPECT_EQ(first.ack_id(), FormatAckId({1, 7, 99}));
    EXPECT_EQ(first.message().data(), data);
    EXPECT_EQ(first.message().attributes().at("a"), "1");
    EXPECT_EQ(first.message().message_id(), "id-7");
    EXPECT_EQ(first.delivery_attempt(), 0);
    EXPECT_EQ(read.received_messages(1).delivery_attempt(), 300);
  }
}

TEST(DeliveryWireTest, AResponseMayHaveNoMessages) {
  EXPECT_EQ(Read(EncodeDeliveries({}, {})).ByteSizeLong(), 0u);
}

}  // namespace
}  // namespace postbox::emulator
