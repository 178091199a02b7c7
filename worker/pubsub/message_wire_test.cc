#include "worker/pubsub/message_wire.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/pubsub/wire_size.h"

namespace postbox::pubsub {
namespace {

using google::pubsub::v1::PublishRequest;

PublishRequest Generated(const std::string& topic, const std::vector<Message>& messages) {
  PublishRequest request;
  request.set_topic(topic);
  for (const Message& message : messages) {
    auto* out = request.add_messages();
    out->set_data(message.data);
    out->set_ordering_key(message.ordering_key);
    for (const auto& [key, value] : message.attributes) (*out->mutable_attributes())[key] = value;
  }
  return request;
}

std::string Encoded(const std::string& topic, const std::vector<Message>& messages) {
  std::size_t size = EmptyRequestSize(topic.size());
  for (const Message& message : messages) {
    size +=
        MessageSizeInRequest(MessageSize(message.data, message.attributes, message.ordering_key));
  }
  std::string bytes(size, '\xEE');
  auto* const begin = reinterpret_cast<std::uint8_t*>(bytes.data());
  std::uint8_t* out = WriteTopic(topic, begin);
  for (const Message& message : messages) {
    out = WriteMessage(message, MessageSize(message.data, message.attributes, message.ordering_key),
                       out);
  }
  EXPECT_EQ(static_cast<std::size_t>(out - begin), size)
      << "wire_size.h and message_wire.h disagree";
  return bytes;
}

void ExpectSame(const std::string& topic, const std::vector<Message>& messages) {
  const PublishRequest expected = Generated(topic, messages);
  const std::string bytes = Encoded(topic, messages);
  EXPECT_EQ(bytes.size(), expected.ByteSizeLong());
  PublishRequest read;
  ASSERT_TRUE(read.ParseFromString(bytes));
  ASSERT_EQ(read.topic(), topic);
  ASSERT_EQ(read.messages_size(), static_cast<int>(messages.size()));
  for (int i = 0; i < read.messages_size(); ++i) {
    const Message& message = messages[static_cast<std::size_t>(i)];
    EXPECT_EQ(read.messages(i).data(), message.data);
    EXPECT_EQ(read.messages(i).ordering_key(), message.ordering_key);
    ASSERT_EQ(read.messages(i).attributes_size(), static_cast<int>(message.attributes.size()));
    for (const auto& [key, value] : message.attributes)
      EXPECT_EQ(read.messages(i).attributes().at(key), value);
  }
}

Message Make(std::string data, std::string key,
             std::vector<std::pair<std::string, std::string>> attributes) {
  Message message;
  message.data = std::move(data);
  message.ordering_key = std::move(key);
  message.attributes = std::move(attributes);
  return message;
}

TEST(MessageWire, AMessageWithOneAttributeIsByteForByteWhatTheGeneratedClassWrites) {
  const std::vector<Message> messages = {Make(R"({"title":"x"})", "video-1", {{"event_id", "1"}})};
  EXPECT_EQ(Encoded("projects/p/topics/t", messages),
            Generated("projects/p/topics/t", messages).SerializeAsString());
}

TEST(MessageWire, EmptyPartsAreLeftOutAsTheGeneratedClassDoes) {
  ExpectSame("projects/p/topics/t", {});
  ExpectSame("", {Make("", "", {})});
  ExpectSame("projects/p/topics/t",
             {Make("x", "", {}), Make("", "k", {}), Make("", "", {{"a", ""}, {"b", "c"}})});
}

TEST(MessageWire, LengthsAroundEveryVarintBoundaryAreExact) {
  for (const std::size_t length :
       {1u, 126u, 127u, 128u, 129u, 16'382u, 16'383u, 16'384u, 16'385u, 2'097'151u, 2'097'152u}) {
    ExpectSame("projects/p/topics/t", {Make(std::string(length, 'd'), "key", {{"a", "b"}})});
    ExpectSame("projects/p/topics/t",
               {Make("data", std::string(length, 'k'), {{"a", std::string(length, 'v')}})});
    ExpectSame(std::string(length, 't'), {Make("data", "", {{std::string(length, 'k'), ""}})});
  }
}

TEST(MessageWire, ManyMessagesWithManyAttributesAndBinaryDataSurvive) {
  std::vector<Message> messages;
  for (int i = 0; i < 300; ++i) {
    std::string data;
    for (int b = 0; b < i; ++b) data += static_cast<char>(b * 7 + i);
    Message message = Make(data, "k\xC3\xA9y-" + std::to_string(i), {});
    for (int a = 0; a < i % 101; ++a)
      message.attributes.emplace_back("name" + std::to_string(a), std::string(a * 9, 'v'));
    messages.push_back(message);
  }
  ExpectSame("projects/p/topics/t", messages);
}

TEST(MessageWire, AMessageEncodedFromItsPartsIsTheSameInARequest) {
  Message plain;
  plain.data = "{\"a\": 1}";
  plain.attributes = {{"event_id", "1"}, {"empty", ""}};
  plain.ordering_key = "key";
  Message encoded;
  const AttributeView attributes[] = {{"event_id", "1"}, {"empty", ""}};
  encoded.encoded = EncodeMessage(plain.data, attributes, plain.ordering_key);
  const std::size_t size = MessageSize(plain.data, plain.attributes, plain.ordering_key);
  ASSERT_EQ(encoded.encoded.size(), size);
  std::string one(MessageSizeInRequest(size), 'x');
  std::string other(one);
  WriteMessage(plain, size, reinterpret_cast<std::uint8_t*>(one.data()));
  WriteMessage(encoded, size, reinterpret_cast<std::uint8_t*>(other.data()));
  EXPECT_EQ(one, other);
}

}  // namespace
}  // namespace postbox::pubsub
