#include "worker/pubsub/publish/metering.h"

#include <gtest/gtest.h>

#include <chrono>
#include <numeric>

#include "worker/pubsub/publish/publish_scheduler_world.h"

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

std::uint64_t Count(const Histogram& histogram) {
  return std::accumulate(
      histogram.counts.begin(), histogram.counts.end(), std::uint64_t{0},
      [](std::uint64_t sum, const Counter& counter) { return sum + Value(counter); });
}

class MeteringTest : public ::testing::Test {
 protected:
  MeteringTest() { world.meter = 1; }

  std::array<PublishMeter, 2> meters{};
  World world{{.meters = meters.data()}};
};

TEST_F(MeteringTest, ARequestCountsItsMessagesItsDurationAndItsOperation) {
  world.Add(1, "k");
  world.Add(2, "k");
  world.scheduler.Pump();
  EXPECT_EQ(Value(meters[0].sent), 0u) << "nothing is known of it yet";
  world.now += milliseconds(7);
  world.Ok(world.Next());
  EXPECT_EQ(Value(meters[0].sent), 2u);
  EXPECT_EQ(Value(meters[0].published), 2u);
  EXPECT_EQ(Value(meters[0].calls[kOk].counts[BucketOf(7'000)]), 1u);
  EXPECT_EQ(Value(meters[0].calls[kOk].micros), 7'000u);
  EXPECT_EQ(Count(meters[0].operations[kOk]), 1u);
}

TEST_F(MeteringTest, AnOperationLastsOverItsRetriesAndEndsWithTheLastCode) {
  world.Add(1, "k");
  world.scheduler.Pump();
  world.now += milliseconds(5);
  world.Error(world.Next(), kInternal);
  world.Advance(seconds(2));
  ASSERT_EQ(world.sent.size(), 1u);
  world.Ok(world.Next());
  EXPECT_EQ(Value(meters[0].sent), 2u) << "each attempt counts";
  EXPECT_EQ(Value(meters[0].published), 1u);
  EXPECT_EQ(Count(meters[0].calls[kInternal]), 1u);
  EXPECT_EQ(Count(meters[0].operations[kInternal]), 0u);
  EXPECT_EQ(Count(meters[0].operations[kOk]), 1u);
  EXPECT_GT(Value(meters[0].operations[kOk].micros), Value(meters[0].calls[kOk].micros));
}

TEST_F(MeteringTest, ARefusalEndsTheOperation) {
  world.Add(1, "k");
  world.scheduler.Pump();
  world.Error(world.Next(), kNotFound);
  EXPECT_EQ(world.Take(), "1:broken");
  EXPECT_EQ(Count(meters[0].operations[kNotFound]), 1u);
  EXPECT_EQ(Value(meters[0].sent), 1u);
  EXPECT_EQ(Value(meters[0].published), 0u);
}

TEST_F(MeteringTest, WhatHasNotLeftIsNoMessageThatWasSent) {
  world.Add(1, "k");
  world.scheduler.Pump();
  world.Error(world.Next(), kUnavailable, "failed to connect to all addresses");
  EXPECT_EQ(Value(meters[0].sent), 0u) << "there was no connection";
  EXPECT_EQ(Count(meters[0].calls[kUnavailable]), 1u) << "the request has failed";
  world.Advance(seconds(2));
  world.scheduler.OnResponse(world.Next().id, {kUnauthenticated, "no token", std::nullopt, false});
  EXPECT_EQ(Value(meters[0].sent), 0u) << "there was no token";
  EXPECT_EQ(Count(meters[0].calls[kUnauthenticated]), 1u);
}

TEST_F(MeteringTest, AnAnswerThatIsNotValidIsAnInternalError) {
  world.Add(1, "k");
  world.scheduler.Pump();
  world.scheduler.OnResponse(world.Next().id, {kOk, "", 5});
  EXPECT_EQ(Count(meters[0].calls[kInternal]), 1u);
  EXPECT_EQ(Count(meters[0].operations[kInternal]), 1u);
  EXPECT_EQ(Value(meters[0].published), 0u);
}

TEST_F(MeteringTest, EachPublicationOfARequestCountsItsOwnMessages) {
  world.Add(1, "k");
  world.meter = 2;
  world.Add(2, "k");
  world.Add(3, "k");
  world.meter = 0;
  world.Add(4, "k");
  world.scheduler.Pump();
  world.Ok(world.Next());
  EXPECT_EQ(Value(meters[0].published), 1u);
  EXPECT_EQ(Value(meters[1].published), 2u);
  EXPECT_EQ(Count(meters[0].calls[kOk]), 1u) << "the request is that of the first message";
  EXPECT_EQ(Count(meters[1].calls[kOk]), 0u);
}

TEST_F(MeteringTest, WhatWasNeverSentIsNoOperation) {
  world.AddInvalid(1, "k");
  world.scheduler.Pump();
  EXPECT_EQ(world.Take(), "1:rejected");
  for (const Histogram& operation : meters[0].operations) EXPECT_EQ(Count(operation), 0u);
}

}  // namespace
}  // namespace postbox::pubsub
