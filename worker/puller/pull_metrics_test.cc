#include "worker/puller/pull_metrics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/metrics/metric_rows.h"

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using testing::HasSubstr;
using testing::Not;

constexpr char kPubSub[] = "projects/p/subscriptions/orders.reader";

std::string Text(const PullMetrics& metrics) { return metrics::MetricsText(metrics.Collect()); }
size_t Count(const std::string& text, const std::string& part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(PullMetricsTest, SubscriptionsShareTheFamiliesAndTheHelpIsThereOnce) {
  PullMetrics metrics;
  metrics.Of("one", kPubSub)->Received(3, std::chrono::system_clock::now());
  metrics.Of("two", kPubSub)->Received(4, std::chrono::system_clock::now());
  const std::string text = Text(metrics);
  EXPECT_EQ(Count(text, "# TYPE messaging_client_consumed_messages_total counter"), 1U);
  EXPECT_THAT(text, HasSubstr("subscription=\"one\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("subscription=\"two\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("messaging_destination_name=\"orders.reader\""));
}

TEST(PullMetricsTest, WhatIsDroppedVanishesAndWhatIsStartedAgainGoesOn) {
  PullMetrics metrics;
  metrics.Of("one", kPubSub)->Rejected();
  metrics.Of("one", "")->Rejected();  // paused: its full name is not known
  metrics.Of("one", kPubSub)->Rejected();
  metrics.Of("two", kPubSub);
  EXPECT_THAT(Text(metrics), HasSubstr("{outcome=\"rejected\",subscription=\"one\"} 3\n"));
  metrics.KeepOnly([](const std::string& name) { return name == "two"; });
  EXPECT_THAT(Text(metrics), Not(HasSubstr("\"one\"")));
  metrics.Of("two", "projects/p/subscriptions/other");
  EXPECT_THAT(Text(metrics), HasSubstr("messaging_destination_name=\"other\""));
}

TEST(PullMetricsTest, EachMessageOfATransactionHasItsTimeAndAFailureIsOne) {
  PullMetrics metrics;
  const auto one = metrics.Of("one", kPubSub);
  one->Committed(3, milliseconds(250));
  one->AttemptFailed("23505", milliseconds(20));
  one->AttemptFailed("", milliseconds(20));  // the connection broke
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("subscription=\"one\",le=\"0.1\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("subscription=\"one\",le=\"0.25\"} 3\n"));
  EXPECT_THAT(text, HasSubstr("postbox_process_errors_total{error_type=\"23505\",subscription="));
  EXPECT_THAT(text, HasSubstr("postbox_process_errors_total{error_type=\"08006\",subscription="));
}

TEST(PullMetricsTest, ErrorTypesAreBounded) {
  PullMetrics metrics;
  const auto one = metrics.Of("one", kPubSub);
  for (int i = 0; i < 1000; ++i) one->AttemptFailed(std::to_string(10000 + i), milliseconds(1));
  const std::string text = Text(metrics);
  EXPECT_EQ(Count(text, "postbox_process_errors_total{"), SubscriptionMetrics::kMostErrorTypes + 1);
  EXPECT_THAT(text, HasSubstr("{error_type=\"_OTHER\",subscription=\"one\"} " +
                              std::to_string(1000 - SubscriptionMetrics::kMostErrorTypes)));
}

TEST(PullMetricsTest, AProjectionLagsByWhatWaitsOfItsTypes) {
  PullMetrics metrics;
  const auto one = metrics.Of("one", kPubSub);
  one->SetProjections({{"orders", {"paid", "sent"}}, {"idle", {"other"}}});
  one->SetLook([] {
    SubscriptionGauges gauges{.stream = PullStatus::Stream::kConnected, .in_hand = 2};
    gauges.waiting["paid"] = {.events = 2, .versions = 4, .oldest = {}};
    gauges.waiting["sent"] = {.events = 1, .versions = 1, .oldest = {}};
    gauges.waiting["unheard"] = {.events = 1, .versions = 9, .oldest = {}};
    return gauges;
  });
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("_versions{subscription=\"one\",projection=\"orders\"} 4\n"));
  EXPECT_THAT(text, HasSubstr("_versions{subscription=\"one\",projection=\"idle\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("_seconds{subscription=\"one\",projection=\"idle\"} 0\n"));
  EXPECT_THAT(text, HasSubstr("{subscription=\"one\",state=\"connected\"} 1\n"));
  one->SetLook(nullptr);
  EXPECT_THAT(Text(metrics), Not(HasSubstr("postbox_messages_in_hand")));
}

TEST(PullMetricsTest, DroppedSpansAreCountedAndThereIsACountWithoutTraces) {
  PullMetrics metrics;
  EXPECT_THAT(Text(metrics), HasSubstr("\npostbox_trace_spans_dropped_total 0\n"));
  metrics.CountDroppedSpans([] { return std::uint64_t{7}; });
  EXPECT_THAT(Text(metrics), HasSubstr("\npostbox_trace_spans_dropped_total 7\n"));
}

TEST(PullMetricsTest, CallsAreToldByTheirOperationAndCode) {
  using Kind = pubsub::CallReport::Kind;
  PullMetrics metrics;
  const auto one = metrics.Of("one", kPubSub);
  one->Called({Kind::kAck, 14, milliseconds(2)});
  one->Called({Kind::kReceive, 0, milliseconds(2)});
  one->Called({Kind::kStream, 0, std::chrono::hours(1)});
  const std::string text = Text(metrics);
  EXPECT_THAT(text, HasSubstr("operation_duration_seconds_count{error_type=\"UNAVAILABLE\""));
  EXPECT_THAT(text, HasSubstr("Subscriber/Acknowledge\",rpc_response_status_code=\"UNAVAILABLE\""));
  EXPECT_THAT(text, HasSubstr("Subscriber/StreamingPull\",rpc_response_status_code=\"OK\""));
  EXPECT_EQ(Count(text, "messaging_client_operation_duration_seconds_count{"), 2U)
      << "the life of a stream is no operation";
}

}  // namespace
}  // namespace postbox::puller
