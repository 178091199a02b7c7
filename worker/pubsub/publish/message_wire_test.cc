#include "worker/pubsub/publish/message_wire.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "google/pubsub/v1/pubsub.pb.h"
#include "proto/rules/wire_size.h"
#include "worker/pubsub/publish/outgoing_message.h"

namespace postbox::pubsub {
namespace {

using google::pubsub::v1::PublishRequest;
using google::pubsub::v1::PublishResponse;

// A message in its parts.
struct Parts {
  std::string data;
  std::string ordering_key;
  Attributes attributes;
};

std::string Encode(const Parts& parts) {
  const std::vector<AttributeView> attributes(parts.attributes.begin(), parts.attributes.end());
  std::string encoded = "room that is used again";
  EncodeMessage(parts.data, attributes, parts.ordering_key, &encoded);
  return encoded;
}

PublishRequest Generated(const std::string& topic, const std::vector<Parts>& messages) {
  PublishRequest request;
  request.set_topic(topic);
  for (const Parts& message : messages) {
    auto* out = request.add_messages();
    out->set_data(message.data);
    out->set_ordering_key(message.ordering_key);
    for (const auto& [key, value] : message.attributes) (*out->mutable_attributes())[key] = value;
  }
  return request;
}

std::string Encoded(const std::string& topic, const std::vector<Parts>& messages) {
  std::size_t size = EmptyRequestSize(topic.size());
  for (const Parts& message : messages) {
    size +=
        MessageSizeInRequest(MessageSize(message.data, message.attributes, message.ordering_key));
  }
  std::string bytes(size, '\xEE');
  auto* const begin = reinterpret_cast<std::uint8_t*>(bytes.data());
  std::uint8_t* out = WriteTopic(topic, begin);
  for (const Parts& message : messages) out = WriteMessage(Encode(message), out);
  EXPECT_EQ(static_cast<std::size_t>(out - begin), size)
      << "wire_size.h and message_wire.h disagree";
  return bytes;
}

void ExpectSame(const std::string& topic, const std::vector<Parts>& messages) {
  const PublishRequest expected = Generated(topic, messages);
  const std::string bytes = Encoded(topic, messages);
  EXPECT_EQ(bytes.size(), expected.ByteSizeLong());
  PublishRequest read;
  ASSERT_TRUE(read.ParseFromString(bytes));
  ASSERT_EQ(read.topic(), topic);
  ASSERT_EQ(read.messages_size(), static_cast<int>(messages.size()));
  for (int i = 0; i < read.messages_size(); ++i) {
    const Parts& message = messages[static_cast<std::size_t>(i)];
    EXPECT_EQ(read.messages(i).data(), message.data);
    EXPECT_EQ(read.messages(i).ordering_key(), message.ordering_key);
    ASSERT_EQ(read.messages(i).attributes_size(), static_cast<int>(message.attributes.size()));
    for (const auto& [key, value] : message.attributes)
      EXPECT_EQ(read.messages(i).attributes().at(key), value);
  }
}

TEST(MessageWire, AMessageWithOneAttributeIsByteForByteWhatTheGeneratedClassWrites) {
  const std::vector<Parts> messages = {Parts{R"({"title":"x"})", "video-1", {{"event_id", "1"}}}};
  EXPECT_EQ(Encoded("projects/p/topics/t", messages),
            Generated("projects/p/topics/t", messages).SerializeAsString());
}

TEST(MessageWire, EmptyPartsAreLeftOutAsTheGeneratedClassDoes) {
  ExpectSame("projects/p/topics/t", {});
  ExpectSame("", {Parts{"", "", {}}});
  ExpectSame("projects/p/topics/t",
             {Parts{"x", "", {}}, Parts{"", "k", {}}, Parts{"", "", {{"a", ""}, {"b", "c"}}}});
}

TEST(MessageWire, LengthsAroundEveryVarintBoundaryAreExact) {
  for (const std::size_t length :
       {1u, 126u, 127u, 128u, 129u, 16'382u, 16'383u, 16'384u, 16'385u, 2'097'151u, 2'097'152u}) {
    ExpectSame("projects/p/topics/t", {Parts{std::string(length, 'd'), "key", {{"a", "b"}}}});
    ExpectSame("projects/p/topics/t",
               {Parts{"data", std::string(length, 'k'), {{"a", std::string(length, 'v')}}}});
    ExpectSame(std::string(length, 't'), {Parts{"data", "", {{std::string(length, 'k'), ""}}}});
  }
}

TEST(MessageWire, ManyMessagesWithManyAttributesAndBinaryDataSurvive) {
  std::vector<Parts> messages;
  for (int i = 0; i < 300; ++i) {
    std::string data;
    for (int b = 0; b < i; ++b) data += static_cast<char>(b * 7 + i);
    Parts message = Parts{data, "k\xC3\xA9y-" + std::to_string(i), {}};
    for (int a = 0; a < i % 101; ++a)
      message.attributes.emplace_back("name" + std::to_string(a), std::string(a * 9, 'v'));
    messages.push_back(message);
  }
  ExpectSame("projects/p/topics/t", messages);
}

TEST(MessageWire, MessagesThatGrowByteByByteNeverHaveMuchMoreRoomThanTheyNeed) {
  std::string encoded;
  int rooms = 0;
  for (std::size_t bytes = 300; bytes < 900; ++bytes) {
    const std::size_t before = encoded.capacity();
    EncodeMessage(std::string(bytes, 'd'), {}, "key", &encoded);
    ASSERT_LE(encoded.capacity(), encoded.size() + 64);
    if (encoded.capacity() != before) ++rooms;
  }
  EXPECT_LE(rooms, 11) << "the room of the message before is used";
}

TEST(MessageWire, MessageIdsAreCountedAndAnAnswerThatCannotBeReadIsToldApart) {
  PublishResponse response;
  EXPECT_EQ(CountMessageIds(response.SerializeAsString()), 0u);
  for (int i = 0; i < 1000; ++i) response.add_message_ids(std::string(i % 40, 'i'));
  const std::string bytes = response.SerializeAsString();
  EXPECT_EQ(CountMessageIds(bytes), 1000u);
  EXPECT_EQ(CountMessageIds(bytes + "\x10\x05"), 1000u) << "a field of a later version";
  EXPECT_EQ(CountMessageIds(bytes.substr(0, bytes.size() - 1)), std::nullopt);
  EXPECT_EQ(CountMessageIds("<html>"), std::nullopt);
}

TEST(OutgoingMessage, WhatPubSubWouldRefuseIsToldInTheError) {
  EXPECT_EQ(MakeOutgoingMessage("projects/p/topics/t", "key", "data", {{"a", "b"}}).error, "");
  EXPECT_EQ(
      MakeOutgoingMessage("projects/p/topics/t", "", "", {}).error,
      "INVALID_ARGUMENT: message has neither data nor attributes: Pub/Sub needs non-empty data or "
      "at least one attribute.");
}

TEST(MessageWireTest, TheTraceOfAMessageIsFoundInWhatWasWritten) {
  constexpr char kTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
  const auto expected = ParseTraceparent(kTrace);
  EXPECT_EQ(EncodedTraceContext(Encode({"data", "key", {{"a", "b"}, {"traceparent", kTrace}}})),
            expected);
  EXPECT_EQ(EncodedTraceContext(Encode(
                {std::string(100'000, 'x'), "", {{"googclient_traceparent", kTrace}, {"z", ""}}})),
            expected);
  EXPECT_FALSE(EncodedTraceContext(Encode({kTrace, kTrace, {{"a", kTrace}}})));
  const std::string whole = Encode({"data", "key", {{"a", "b"}, {"traceparent", kTrace}}});
  for (std::size_t size = 0; size < whole.size(); ++size) {
    static_cast<void>(EncodedTraceContext(std::string_view(whole).substr(0, size)));
  }
}

TEST(MessageWireTest, MessageIdsAreRead) {
  PublishResponse response;
  response.add_message_ids("1");
  response.add_message_ids("22");
  const std::string wire = response.SerializeAsString();
  EXPECT_EQ(ReadMessageIds(wire), (std::vector<std::string_view>{"1", "22"}));
  EXPECT_TRUE(ReadMessageIds("").empty());
  EXPECT_TRUE(ReadMessageIds("\xff\xff\xff").empty());
}

TEST(MessageWireTest, TheAttributesOfAMessageAreReadBack) {
  const Parts parts{
      std::string(100'000, 'd'), "key", {{"a", "1"}, {"empty", ""}, {"b", "\xC3\xA9"}}};
  const std::string encoded = Encode(parts);
  const auto attributes = MessageAttributes(encoded);
  EXPECT_EQ(Attributes(attributes.begin(), attributes.end()), parts.attributes);
  EXPECT_TRUE(MessageAttributes("").empty());
  for (std::size_t size = 0; size < encoded.size(); size += 777) {
    MessageAttributes(std::string_view(encoded).substr(0, size));
  }
}

}  // namespace
}  // namespace postbox::pubsub
