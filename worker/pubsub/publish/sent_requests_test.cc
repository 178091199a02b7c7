#include "worker/pubsub/publish/sent_requests.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>

#include "proto/rules/error_class.h"
#include "worker/pubsub/publish/publish_topic.h"

namespace postbox::pubsub {
namespace {

using std::chrono::seconds;

struct Sending {
  std::uint64_t Send(const char* key, bool may_wait = true) {
    return sent.Add(topic.FindQueue(key), {}, may_wait, seconds(10), now).first;
  }

  SentRequests::TimePoint now{seconds(1000)};
  PublishTopic topic{"topic"};
  SentRequests sent{{.channels = 2,
                     .streams_per_channel = 1,
                     .least_requests = 1,
                     .attempt_timeout = seconds(10)}};
};

TEST(SentRequests, OneThatWaitsHasTheStreamOfTheOneThatEnds) {
  Sending sending;
  const std::uint64_t first = sending.Send("a");
  const std::uint64_t second = sending.Send("b");
  EXPECT_EQ(sending.sent.streams(), 1u);
  EXPECT_EQ(sending.topic.waiting, 1u);
  sending.now += seconds(6);
  EXPECT_TRUE(sending.sent.Remove(first, true, sending.now)->has_stream);
  EXPECT_EQ(sending.topic.waiting, 0u);
  const auto late = sending.sent.Remove(second, false, sending.now);
  EXPECT_EQ(late->batch.first_sent, sending.now) << "time counts from the stream";
  EXPECT_TRUE(late->IsExcused(kDeadlineExceeded, "")) << "it had it too late";
  EXPECT_FALSE(sending.sent.Remove(second, false, sending.now)) << "it has ended";
  EXPECT_EQ(sending.topic.in_flight + sending.sent.size() + sending.sent.streams(), 0u);
}

TEST(SentRequests, OnlyAnErrorThatSaysNothingOfTheMessagesLeavesOpenWhetherTheyWereTaken) {
  SentRequest request;
  EXPECT_FALSE(request.MaybeTaken(kUnavailable, "Socket closed")) << "it had no stream";
  request.has_stream = true;
  EXPECT_TRUE(request.MaybeTaken(kUnavailable, "Socket closed"));
  EXPECT_TRUE(request.MaybeTaken(kDeadlineExceeded, ""));
  EXPECT_TRUE(request.MaybeTaken(kOk, "")) << "an answer that cannot be read";
  for (const char* const error : {"GOAWAY received", "Transport closed", "failed to connect"}) {
    EXPECT_FALSE(request.MaybeTaken(kUnavailable, error)) << error;
  }
  for (const int code : {kResourceExhausted, kInvalidArgument, kNotFound}) {
    EXPECT_FALSE(request.MaybeTaken(code, "")) << code;
  }
  EXPECT_TRUE(request.IsExcused(kUnavailable, "GOAWAY received"));
  EXPECT_FALSE(request.IsExcused(kUnavailable, "Socket closed"));
}

}  // namespace
}  // namespace postbox::pubsub
