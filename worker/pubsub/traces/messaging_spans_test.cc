#include "worker/pubsub/traces/messaging_spans.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>

namespace postbox::pubsub {
namespace {

constexpr char kTopic[] = "projects/my-project/topics/shop.orders";
constexpr char kSubscription[] = "projects/my-project/subscriptions/shop.orders.reader";

TraceContext Context(std::uint64_t trace, std::uint64_t span) {
  return {.trace_high = 7, .trace_low = trace, .span = span, .flags = TraceContext::kSampled};
}

std::map<std::string, std::string> Attributes(const Span& span) {
  std::map<std::string, std::string> attributes;
  for (const SpanAttribute& attribute : span.attributes) {
    const auto* text = std::get_if<std::string>(&attribute.value);
    attributes[std::string(attribute.name)] =
        text != nullptr ? *text : std::to_string(std::get<std::int64_t>(attribute.value));
  }
  return attributes;
}

TEST(MessagingSpansTest, AnEventIsCreatedInTheSpanOfItsCaller) {
  const Span span = CreateSpan(kTopic, Context(1, 2), 3, "e-1", "key", 1'500'000);
  EXPECT_EQ(span.name, "create shop.orders");
  EXPECT_EQ(span.kind, SpanKind::kProducer);
  EXPECT_EQ(span.context, Context(1, 2));
  EXPECT_EQ(span.parent, 3U);
  EXPECT_EQ(span.start, 1'500'000'000);
  EXPECT_EQ(span.end, span.start);
  EXPECT_EQ(Attributes(span), (std::map<std::string, std::string>{
                                  {"messaging.system", "gcp_pubsub"},
                                  {"messaging.operation.name", "create"},
                                  {"messaging.operation.type", "create"},
                                  {"messaging.destination.name", "shop.orders"},
                                  {"gcp.project_id", "my-project"},
                                  {"messaging.gcp_pubsub.message.ordering_key", "key"},
                                  {"postbox.event_id", "e-1"}}));
}

TEST(MessagingSpansTest, ATimeThatDoesNotFitIsTheNearestOneThatDoes) {
  EXPECT_EQ(SpanTimeOfMicros(kMinRfc3339Micros), 1000);
  EXPECT_GT(SpanTimeOfMicros(kMaxRfc3339Micros), SpanTime());
  EXPECT_EQ(SpanTimeOfMicros(std::numeric_limits<std::int64_t>::min()), 1000);
  EXPECT_GT(SpanTimeOfMicros(std::numeric_limits<std::int64_t>::max()), SpanTime());
}

TEST(MessagingSpansTest, AnEventIsProcessedInASpanBelowItsOwn) {
  const Span span = ProcessSpan(kSubscription, Context(1, 2), "m-1");
  EXPECT_EQ(span.name, "process shop.orders.reader");
  EXPECT_EQ(span.kind, SpanKind::kConsumer);
  EXPECT_TRUE(span.context.SameTrace(Context(1, 2)));
  EXPECT_EQ(span.parent, 2U);
  EXPECT_NE(span.context.span, 2U);
  ASSERT_EQ(span.links.size(), 1U);
  EXPECT_EQ(span.links[0].context, Context(1, 2));
  EXPECT_EQ(Attributes(span)["messaging.destination.subscription.name"], "shop.orders.reader");
}

TEST(MessagingSpansTest, ARequestOfOneTraceBelongsToIt) {
  const Span one = BatchSpan(kSend, kTopic, {{Context(1, 2), "m-1"}}, 1, SpanTime());
  EXPECT_EQ(one.parent, 2U);
  EXPECT_TRUE(one.context.SameTrace(Context(1, 2)));
  EXPECT_EQ(Attributes(one)["messaging.message.id"], "m-1");
  EXPECT_FALSE(Attributes(one).contains("messaging.batch.message_count"));

  const Span many =
      BatchSpan(kAck, kSubscription, {{Context(1, 2), "m-1"}, {Context(1, 3), "m-2"}}, 5, 0);
  EXPECT_EQ(many.parent, 2U);
  EXPECT_EQ(many.links.size(), 2U);
  EXPECT_EQ(Attributes(many)["messaging.batch.message_count"], "5");
  EXPECT_FALSE(Attributes(many).contains("messaging.message.id"));
}

TEST(MessagingSpansTest, ARequestOfSeveralTracesIsATraceThatIsLinkedToThem) {
  const Span span =
      BatchSpan(kSend, kTopic, {{Context(1, 2), "m-1"}, {Context(4, 3), "m-2"}}, 2, SpanTime());
  EXPECT_EQ(span.parent, 0U);
  EXPECT_FALSE(span.context.SameTrace(Context(1, 2)));
  EXPECT_FALSE(span.context.SameTrace(Context(4, 3)));
  EXPECT_TRUE(span.context.sampled());
  EXPECT_EQ(span.links[1].context, Context(4, 3));
}

TEST(MessagingSpansTest, ASpanHasABoundedNumberOfLinks) {
  const std::vector<SpanLink> links(1000, SpanLink{Context(1, 2), "m"});
  const Span span = BatchSpan(kSend, kTopic, links, 1000, SpanTime());
  EXPECT_EQ(span.links.size(), kMaxSpanLinks);
  EXPECT_EQ(span.dropped_links, 1000 - kMaxSpanLinks);
}

TEST(MessagingSpansTest, AnEndIsNotBeforeItsBeginning) {
  const std::int64_t future = SpanTime() + 3'600'000'000'000;
  EXPECT_GE(BatchSpan(kSend, kTopic, {{Context(1, 2), ""}}, 1, future).end, future);
}

TEST(MessagingSpansTest, AnyNameOfATopicWillDo) {
  EXPECT_EQ(CreateSpan("orders", Context(1, 2), 3, "", "", 0).name, "create orders");
  EXPECT_EQ(CreateSpan("", Context(1, 2), 3, "", "", 0).name, "create ");
  EXPECT_EQ(CreateSpan("projects/p/topics/", Context(1, 2), 3, "", "", 0).name, "create ");
}

}  // namespace
}  // namespace postbox::pubsub
