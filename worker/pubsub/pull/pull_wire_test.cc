// What the generated classes write, pull_wire reads.
#include "worker/pubsub/pull/pull_wire.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "google/pubsub/v1/pubsub.pb.h"

namespace postbox::pubsub {
namespace {

namespace api = google::pubsub::v1;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

api::StreamingPullResponse Response() {
  api::StreamingPullResponse response;
  response.mutable_subscription_properties()->set_message_ordering_enabled(true);
  response.mutable_acknowledge_confirmation()->add_ack_ids("ack-0");
  api::ReceivedMessage* received = response.add_received_messages();
  received->set_ack_id("ack-1");
  received->set_delivery_attempt(3);
  api::PubsubMessage* message = received->mutable_message();
  message->set_data(std::string("da\0ta", 5));
  (*message->mutable_attributes())["b"] = "2";
  (*message->mutable_attributes())["a"] = "";
  (*message->mutable_attributes())["c\xC3\xA9"] = std::string(200, 'v');
  message->set_message_id("m1");
  message->mutable_publish_time()->set_seconds(1700000000);
  message->mutable_publish_time()->set_nanos(5000);
  message->set_ordering_key("key");
  response.add_received_messages();
  return response;
}

TEST(PullWire, AResponseIsReadAsItWasWritten) {
  const api::StreamingPullResponse written = Response();
  const auto read = ReadPullResponse(written.SerializeAsString());
  ASSERT_TRUE(read);
  ASSERT_TRUE(read->properties);
  EXPECT_FALSE(read->properties->exactly_once);
  EXPECT_TRUE(read->properties->ordered);
  ASSERT_EQ(read->messages.size(), 2u);
  const PulledMessage& first = read->messages[0];
  EXPECT_EQ(first.identity.ack_id, "ack-1");
  EXPECT_EQ(first.bytes,
            static_cast<int64_t>(written.received_messages(0).message().ByteSizeLong()));
  EXPECT_EQ(first.message.delivery_attempt, 3);
  EXPECT_EQ(first.message.data, std::string("da\0ta", 5));
  EXPECT_THAT(first.message.attributes,
              ElementsAre(Pair("a", ""), Pair("b", "2"), Pair("c\xC3\xA9", std::string(200, 'v'))));
  EXPECT_EQ(first.message.message_id, "m1");
  EXPECT_EQ(first.message.publish_time.time_since_epoch(),
            std::chrono::seconds(1700000000) + std::chrono::microseconds(5));
  EXPECT_EQ(first.message.ordering_key, "key");
  EXPECT_EQ(read->messages[1].identity.ack_id, "");
  EXPECT_EQ(read->messages[1].message.data, "");
}

TEST(PullWire, APingIsAnsweredWithoutMessagesAndMaySayNothingOfTheSubscription) {
  const auto read = ReadPullResponse("");
  ASSERT_TRUE(read);
  EXPECT_FALSE(read->properties);
  EXPECT_THAT(read->messages, IsEmpty());
}

TEST(PullWire, PartsOfAMessageThatComeTwiceAreOneMessage) {
  api::ReceivedMessage first;
  first.mutable_message()->set_data("data");
  (*first.mutable_message()->mutable_attributes())["a"] = "1";
  api::ReceivedMessage second;
  second.mutable_message()->set_message_id("m1");
  (*second.mutable_message()->mutable_attributes())["a"] = "2";
  const std::string both = first.SerializeAsString() + second.SerializeAsString();
  const std::string wire =
      std::string("\x0A") + static_cast<char>(static_cast<unsigned char>(both.size())) + both;
  const auto read = ReadPullResponse(wire);
  ASSERT_TRUE(read);
  ASSERT_EQ(read->messages.size(), 1u);
  EXPECT_EQ(read->messages[0].message.data, "data");
  EXPECT_EQ(read->messages[0].message.message_id, "m1");
  EXPECT_THAT(read->messages[0].message.attributes, ElementsAre(Pair("a", "2")));
}

TEST(PullWire, AFieldOfALaterVersionIsPassedOver) {
  const std::string wire = Response().SerializeAsString();
  for (const std::string field : {"\x98\x06\x05", "\x9A\x06\x01x",
                                  "\x9D\x06"
                                  "abcd"}) {
    const auto read = ReadPullResponse(field + wire + field);
    ASSERT_TRUE(read);
    EXPECT_EQ(read->messages.size(), 2u);
  }
}

TEST(PullWire, ATextThatIsNotUtf8DoesNotSpoilTheOthers) {
  api::StreamingPullResponse response = Response();
  std::string wire = response.SerializeAsString();
  wire[wire.find("\xC3\xA9")] = '\xFF';
  EXPECT_FALSE(api::StreamingPullResponse().ParseFromString(wire));
  const auto read = ReadPullResponse(wire);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->messages[0].message.attributes[2].first, "c\xFF\xA9");
}

TEST(PullWire, WhatIsCutOffOrIsNoResponseCannotBeRead) {
  const std::string wire = Response().SerializeAsString();
  for (size_t length = 1; length < wire.size(); ++length) {
    const std::string part = wire.substr(0, length);
    EXPECT_EQ(ReadPullResponse(part).has_value(),
              api::StreamingPullResponse().ParseFromString(part))
        << length;
  }
  EXPECT_FALSE(ReadPullResponse("<html>"));
}

TEST(PullWire, ATagOfMoreThan32BitsIsRefused) {
  // Without the bits above 32 they are the tag of a message.
  EXPECT_FALSE(ReadPullResponse(std::string("\x8A\x80\x80\x80\x10\0", 6)));
  EXPECT_FALSE(ReadPullResponse(std::string("\x8A\x80\x80\x80\x80\x01\0", 7)));
  EXPECT_TRUE(ReadPullResponse(std::string("\x8A\x80\x80\x80\0\0", 6)));
}

}  // namespace
}  // namespace postbox::pubsub
