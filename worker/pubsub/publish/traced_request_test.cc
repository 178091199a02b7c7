#include "worker/pubsub/publish/traced_request.h"

#include <gtest/gtest.h>

#include <deque>

#include "google/pubsub/v1/pubsub.pb.h"
#include "proto/rules/error_class.h"
#include "worker/pubsub/publish/outgoing_message.h"

namespace postbox::pubsub {
namespace {

constexpr char kTracedTopic[] = "projects/p/topics/t";
constexpr char kSampledTrace[] = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

struct TracedMessages {
  std::deque<OutgoingMessage> all;
  std::string topic = kTracedTopic;
  std::vector<OutgoingMessage*> pointers{};

  std::unique_ptr<TracedRequest> Trace() {
    pointers.clear();
    for (OutgoingMessage& message : all) pointers.push_back(&message);
    return TracedRequest::Of({1, 0, topic, pointers, 100, std::chrono::seconds(1)});
  }
  void Add(bool traced) {
    Attributes attributes = {{"a", "b"}};
    if (traced) attributes.emplace_back("traceparent", kSampledTrace);
    all.push_back(MakeOutgoingMessage(topic, "key", "data", attributes));
    all.back().traced = traced;
  }
};

TEST(TracedRequestTest, ARequestWithoutTracesHasNoSpan) {
  TracedMessages messages;
  messages.Add(false);
  EXPECT_EQ(messages.Trace(), nullptr);
}

TEST(TracedRequestTest, ItsSpanIsLinkedToTheMessagesThatHaveATrace) {
  TracedMessages messages;
  messages.Add(false);
  messages.Add(true);
  const auto traced = messages.Trace();
  ASSERT_NE(traced, nullptr);
  messages.all.clear();  // they may be gone when the answer comes
  google::pubsub::v1::PublishResponse response;
  response.add_message_ids("m-1");
  response.add_message_ids("m-2");
  const Span span = traced->End(kOk, "", response.SerializeAsString());
  EXPECT_EQ(span.name, "send t");
  ASSERT_EQ(span.links.size(), 1U);
  EXPECT_EQ(span.links[0].context, ParseTraceparent(kSampledTrace));
  EXPECT_EQ(span.links[0].message_id, "m-2");
  EXPECT_TRUE(span.error_type.empty());
}

TEST(TracedRequestTest, ARequestThatFailsSaysWhy) {
  TracedMessages messages;
  messages.Add(true);
  const Span span = messages.Trace()->End(kUnavailable, "away", "");
  EXPECT_EQ(span.error_type, "UNAVAILABLE");
  EXPECT_EQ(span.error, "away");
  EXPECT_EQ(span.links[0].message_id, "");
}

}  // namespace
}  // namespace postbox::pubsub
