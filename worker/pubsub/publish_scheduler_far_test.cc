// Requests in flight and channels, with a broker that is near or far away.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <random>
#include <string>

#include "worker/pubsub/channel_loads.h"
#include "worker/pubsub/publish_scheduler_world.h"
#include "worker/pubsub/request_window.h"

namespace postbox::pubsub {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Smaller than the default, so that the tests need fewer messages.
const PublishScheduler::Options kSmall{.requests_per_channel = 25, .least_requests = 50};

// A broker that answers each request after the round trip, or when it has answered those before: it
// takes `per_second` of them. There is always a message of every key.
class FarBroker {
 public:
  FarBroker(World* world, int keys, milliseconds round_trip, int per_second = 10'000)
      : round_trip(round_trip), world_(world), service_time_(1'000'000 / per_second) {
    for (int key = 0; key < keys; ++key) Add("k" + std::to_string(key));
    world_->scheduler.Pump();
  }

  void Run(milliseconds duration) {
    answered = most_in_flight = 0;
    const auto end = world_->now + duration;
    while (true) {
      TakeSent();
      most_in_flight = std::max(most_in_flight, world_->scheduler.in_flight());
      auto next = answers_.empty() ? end : std::min(end, answers_.begin()->first);
      if (const auto wake = world_->scheduler.NextWake())
        next = std::clamp(*wake, world_->now, next);
      world_->Advance(next - world_->now);
      if (answers_.empty() || answers_.begin()->first > world_->now) {
        if (world_->now >= end) return;
        continue;
      }
      const Sent request = answers_.begin()->second;
      answers_.erase(answers_.begin());
      world_->Ok(request);
      ++answered;
      world_->Take();
      if (supply) Add(request.key);
      world_->scheduler.Pump();
    }
  }

  milliseconds round_trip;
  milliseconds jitter{0};  // it takes up to so much longer
  bool supply = true;
  int silent_channel = -1;   // answers nothing
  std::size_t answered = 0;  // in the last Run()
  std::size_t most_in_flight = 0;

 private:
  void Add(const std::string& key) { world_->Add(++tag_, key); }
  void TakeSent() {
    for (const Sent& request : world_->sent) {
      if (request.channel == silent_channel) continue;
      free_at_ = std::max(free_at_, world_->now) + service_time_;
      const auto more =
          std::uniform_int_distribution<int>(0, static_cast<int>(jitter.count() * 1000))(random_);
      answers_.emplace(std::max(free_at_, world_->now + round_trip + microseconds(more)), request);
    }
    world_->sent.clear();
  }

  World* const world_;
  const microseconds service_time_;
  std::mt19937 random_{1};
  std::uint64_t tag_ = 0;
  PublishScheduler::TimePoint free_at_;
  std::multimap<PublishScheduler::TimePoint, Sent> answers_;
};

TEST(PublishSchedulerFar, OneKeyHasOneChannelHoweverFarTheBrokerIs) {
  World world;
  FarBroker broker(&world, 1, milliseconds(100));
  broker.Run(seconds(5));
  EXPECT_EQ(world.scheduler.open_channels(), 1u);
  EXPECT_EQ(broker.answered, 50u) << "one after the other";
  EXPECT_FALSE(world.scheduler.NextWake()) << "there is nothing to close";
}

TEST(PublishSchedulerFar, ANearBrokerHasNoMoreRequestsThanAreUseful) {
  World world(kSmall);
  FarBroker broker(&world, 1000, milliseconds(1));
  broker.Run(seconds(2));
  broker.Run(seconds(2));
  EXPECT_LE(broker.most_in_flight, 50u);
  EXPECT_GE(broker.answered, 19'800u) << "of 20,000";
}

TEST(PublishSchedulerFar, AFarBrokerHasAsManyRequestsAsItAnswersInARoundTrip) {
  for (const int distance : {5, 20, 100}) {
    SCOPED_TRACE(distance);
    World world(kSmall);
    FarBroker broker(&world, 3000, milliseconds(distance));
    broker.Run(seconds(3));
    EXPECT_GE(broker.answered, 18'000u) << "of 30,000: it has grown within some round trips";
    broker.Run(seconds(2));
    EXPECT_GE(broker.answered, 19'000u) << "of 20,000";
    const std::size_t useful = static_cast<std::size_t>(distance) * 10;
    EXPECT_LE(broker.most_in_flight, useful * 3 / 2 + 100);
  }
}

TEST(PublishSchedulerFar, ARoundTripThatVariesDoesNotKeepRequestsBack) {
  World world(kSmall);
  FarBroker broker(&world, 3000, milliseconds(20));
  broker.jitter = milliseconds(40);
  broker.Run(seconds(3));
  broker.Run(seconds(3));
  EXPECT_GE(broker.answered, 28'000u) << "of 30,000";
}

TEST(PublishSchedulerFar, MoreChannelsThanTheSettingAllowsAreNotOpened) {
  World world({.channels = 3, .requests_per_channel = 25, .least_requests = 50});
  FarBroker broker(&world, 1000, milliseconds(100));
  broker.Run(seconds(5));
  EXPECT_EQ(world.scheduler.open_channels(), 3u);
  EXPECT_EQ(broker.most_in_flight, 75u);
}

TEST(PublishSchedulerFar, AConnectionThatDoesNotAnswerHoldsUpTheOthersForAMoment) {
  for (const milliseconds from : {milliseconds(0), milliseconds(10'000)}) {
    SCOPED_TRACE(from.count());
    World world(kSmall);
    FarBroker broker(&world, 1000, milliseconds(5));
    broker.Run(from);
    broker.silent_channel = 1;
    broker.Run(seconds(10));
    EXPECT_GE(broker.answered, 85'000u) << "of 100,000";
  }
}

TEST(PublishSchedulerFar, ARoundTripThatHasChangedIsNoticedUnderLoad) {
  World world(kSmall);
  FarBroker broker(&world, 1000, milliseconds(5), 2'500);
  broker.Run(seconds(3));
  broker.round_trip = milliseconds(100);
  broker.Run(seconds(20));
  broker.Run(seconds(3));
  EXPECT_GE(broker.answered, 6'700u) << "of 7,500";
  broker.round_trip = milliseconds(1);
  broker.Run(seconds(18));
  broker.Run(seconds(1));
  EXPECT_LE(broker.most_in_flight, 75u);
}

TEST(PublishSchedulerFar, ChannelsThatAreNotNeededAreClosed) {
  World world(kSmall);
  FarBroker broker(&world, 3000, milliseconds(100));
  broker.Run(seconds(3));
  const std::size_t open = world.scheduler.open_channels();
  EXPECT_GE(open, 30u);
  EXPECT_TRUE(world.closed.empty());
  broker.supply = false;
  broker.Run(seconds(200));
  EXPECT_EQ(world.scheduler.open_channels(), 1u);
  EXPECT_EQ(world.closed.size(), open - 1);
  EXPECT_EQ(std::count(world.closed.begin(), world.closed.end(), 0), 0) << "the first one stays";
  EXPECT_FALSE(world.scheduler.NextWake());
  world.Add(1, "again");
  world.scheduler.Pump();
  EXPECT_EQ(world.Next().channel, 0);
}

TEST(PublishSchedulerFar, LargeRequestsHaveChannelsOfTheirOwn) {
  World world({.channels = 3});
  const std::string large(3'000'000, 'x');
  for (std::uint64_t tag = 1; tag <= 5; ++tag) world.Add(tag, "k" + std::to_string(tag), large);
  world.scheduler.Pump();
  std::map<int, int> requests;
  for (const Sent& request : world.sent) ++requests[request.channel];
  EXPECT_EQ(requests, (std::map<int, int>{{0, 2}, {1, 2}, {2, 1}}));
}

TEST(PublishSchedulerFar, FullRequestsWithoutAKeyDoNotWaitForOthersThatAreNotFull) {
  World world({.keyless_requests = 2});
  for (std::uint64_t tag = 1; tag <= 3; ++tag) {
    world.Add(tag, "");
    world.scheduler.Pump();
  }
  EXPECT_EQ(world.sent.size(), 2u);
  for (std::uint64_t tag = 4; tag <= 2005; ++tag) world.Add(tag, "");
  world.scheduler.Pump();
  ASSERT_EQ(world.sent.size(), 4u);
  EXPECT_EQ(world.sent[2].tags.size(), 1000u);
  EXPECT_EQ(world.sent[3].tags.size(), 1000u);
}

TEST(RequestWindow, WhatTheClientTakesToSendABurstIsNotTheWayToTheBroker) {
  RequestWindow window(200, 6400);
  const RequestWindow::TimePoint begin{seconds(1000)};
  std::uint64_t number = 0;
  for (int i = 0; i < 100; ++i) {
    ++number;
    window.Answered(number, number, /*few=*/true, begin, begin + milliseconds(5));
  }
  // The first request of each burst was sent alone, and its answer seen after the last was sent.
  for (int burst = 0; burst < 100; ++burst) {
    window.Answered(number + 1, number + 200, /*few=*/true, begin, begin + milliseconds(200));
    number += 200;
  }
  // The processors take 100 ms for what is in flight: more of that does not make it faster.
  for (int i = 0; i < 1000; ++i) {
    ++number;
    window.Limited();
    window.Answered(number, number + 200, /*few=*/false, begin, begin + milliseconds(100));
  }
  EXPECT_EQ(window.limit(), 200u);
}

TEST(RequestWindow, TheAnswersToTheFirstBurstAreNotTakenForTheWayToTheBroker) {
  RequestWindow window(200, 6400);
  RequestWindow::TimePoint now{seconds(1000)};
  std::uint64_t number = 0;
  std::size_t most = 0;
  const auto answer = [&](milliseconds took) {
    ++number;
    now += milliseconds(1);
    window.Limited();
    window.Answered(number, number + window.limit() - 1, /*few=*/false, now - took, now);
    most = std::max(most, window.limit());
  };
  // A client that has just begun is slow to read the answers; later they take less.
  for (int i = 0; i < 200; ++i) answer(milliseconds(70));
  for (int i = 0; i < 10'000; ++i) answer(milliseconds(window.limit() < 200 ? 2 : 60));
  EXPECT_EQ(most, 200u);
}

TEST(RequestWindow, AProbeThatIsGivenUpIsRepeatedUntilItSucceeds) {
  RequestWindow window(200, 6400);
  RequestWindow::TimePoint now{seconds(1000)};
  std::uint64_t number = 0;
  milliseconds took(2);
  const auto until_probe = [&] {
    const auto begin = now;
    while (!window.NextTime() && now < begin + seconds(60)) {
      ++number;
      now += milliseconds(1);
      window.Limited();
      window.Answered(number, number + window.limit() - 1, /*few=*/false, now - took, now);
    }
    EXPECT_EQ(window.limit(), 25u);
    return now - begin;
  };
  const auto succeed = [&] {
    number += 200;  // those of before
    for (int i = 0; i < 50; ++i) {
      ++number;
      window.Answered(number, number + 24, /*few=*/false, now - took, now);
    }
    EXPECT_FALSE(window.NextTime());
  };
  until_probe();
  succeed();
  // The way is longer now, and some requests are never answered.
  took = milliseconds(100);
  EXPECT_GE(until_probe(), RequestWindow::kBaseValid);
  milliseconds patience(400);
  seconds pause = RequestWindow::kProbeAgain;
  for (int probe = 0; probe < 3; ++probe, patience *= 2, pause *= 2) {
    EXPECT_EQ(std::chrono::round<milliseconds>(*window.NextTime() - now), patience);
    window.OnTime(*window.NextTime() - milliseconds(1));
    EXPECT_TRUE(window.NextTime());
    now = *window.NextTime();
    window.OnTime(now);
    EXPECT_EQ(window.limit(), 200u);
    const auto until = until_probe();
    EXPECT_GE(until, pause);
    EXPECT_LE(until, pause + seconds(1));
  }
  succeed();
  for (int i = 0; i < 500; ++i) {
    ++number;
    window.Limited();
    window.Answered(number, number + window.limit() - 1, /*few=*/false, now - took, now);
  }
  EXPECT_GT(window.limit(), 200u) << "more are on the long way";
}

TEST(RequestWindow, GoesBackIfTwiceAsManyOnlyTakeTwiceAsLong) {
  RequestWindow window(200, 6400);
  RequestWindow::TimePoint now{seconds(1000)};
  std::uint64_t number = 0;
  std::size_t most = 0;
  // The base is wrong: few requests wait for a processor that many keep awake.
  for (int i = 0; i < 100; ++i) {
    ++number;
    window.Answered(number, number, /*few=*/true, now, now + milliseconds(100));
  }
  // The processors take 50 us a request.
  for (int i = 0; i < 10'000; ++i) {
    ++number;
    now += std::chrono::microseconds(50);
    window.Limited();
    window.Answered(number, number + window.limit(), /*few=*/false,
                    now - std::chrono::microseconds(50) * window.limit(), now);
    most = std::max(most, window.limit());
  }
  EXPECT_EQ(most, 400u);
  EXPECT_EQ(window.limit(), 200u);
}

TEST(ChannelLoads, AChannelThatIsToBeClosedIsClosedByItsLastAnswer) {
  ChannelLoads::TimePoint now{seconds(1000)};
  ChannelLoads loads(4, 2);
  for (const int channel : {0, 0, 1, 1, 2}) EXPECT_EQ(loads.Take(-1, 10, now), channel);
  now += ChannelLoads::kCloseAfter;
  EXPECT_TRUE(loads.CloseUnused(now).empty()) << "all were needed";
  for (const int channel : {0, 0, 1}) EXPECT_FALSE(loads.Done(channel, 10));
  now += ChannelLoads::kCloseAfter;
  EXPECT_TRUE(loads.CloseUnused(now).empty()) << "five were in flight in this time";
  now += ChannelLoads::kCloseAfter;
  EXPECT_TRUE(loads.CloseUnused(now).empty());
  EXPECT_EQ(loads.open(), 1u);
  EXPECT_EQ(loads.Take(2, 10, now), 0) << "no request goes to one that is to be closed";
  EXPECT_TRUE(loads.Done(1, 10));
  EXPECT_TRUE(loads.Done(2, 10));
}

}  // namespace
}  // namespace postbox::pubsub
