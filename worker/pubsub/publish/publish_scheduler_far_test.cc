// Requests in flight and channels, with a broker that is near or far away.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <deque>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>

#include "worker/pubsub/publish/channel_loads.h"
#include "worker/pubsub/publish/publish_scheduler_world.h"
#include "worker/pubsub/publish/request_window.h"

namespace postbox::pubsub {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// Smaller than the default, so that the tests need fewer messages.
constexpr char kOtherTopic[] = "projects/p/topics/catalog.user.events";
constexpr std::size_t kStreams = 25;
const PublishScheduler::Options kSmall{.streams_per_channel = kStreams, .least_requests = 50};

// When a broker answers a request: after the round trip, or when it has answered those before. It
// takes `per_second` of them.
class Way {
 public:
  Way(milliseconds round_trip, int per_second)
      : round_trip(round_trip), service_time_(1'000'000 / per_second) {}

  PublishScheduler::TimePoint AnswerAt(PublishScheduler::TimePoint now) {
    free_at_ = std::max(free_at_, now) + service_time_;
    const auto more =
        std::uniform_int_distribution<int>(0, static_cast<int>(jitter.count() * 1000))(random_);
    return std::max(free_at_, now + round_trip + microseconds(more));
  }

  milliseconds round_trip;
  milliseconds jitter{0};  // it takes up to so much longer

 private:
  const microseconds service_time_;
  PublishScheduler::TimePoint free_at_;
  std::mt19937 random_{1};
};

// A broker that is far away. A connection has kStreams. There is always a message of every key.
class FarBroker {
 public:
  FarBroker(World* world, int keys, milliseconds round_trip, int per_second = 10'000)
      : way(round_trip, per_second), world_(world) {
    for (int key = 0; key < keys; ++key) Add("k" + std::to_string(key));
    world_->scheduler.Pump();
  }

  void Run(milliseconds duration) {
    answered = answered_of_other = most_in_flight = most_streams = 0;
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
      Connection& connection = connections_[request.channel];
      --connection.streams;
      --streams_;
      if (!connection.waiting.empty()) {
        Begin(connection.waiting.front());
        connection.waiting.pop_front();
      }
      world_->Ok(request);
      ++answered;
      answered_of_other += request.topic == kOtherTopic;
      world_->Take();
      // Messages refer to their topic.
      if (supply) Add(request.key, request.topic == kTopic ? kTopic : kOtherTopic);
      world_->scheduler.Pump();
    }
  }

  void TakeSent() {
    for (const Sent& request : std::exchange(world_->sent, {})) {
      if (request.channel == silent_channel) continue;
      Connection& connection = connections_[request.channel];
      if (connection.streams < kStreams) {
        Begin(request);
      } else {
        connection.waiting.push_back(request);
      }
    }
  }
  // Takes a request that waits for a stream of its connection; it is not answered by Run().
  Sent TakeWaiting() {
    for (auto& [channel, connection] : connections_) {
      if (connection.waiting.empty()) continue;
      Sent request = connection.waiting.back();
      connection.waiting.pop_back();
      return request;
    }
    ADD_FAILURE() << "none waits";
    return {};
  }
  std::size_t requests_on(int channel) const {
    const auto at = connections_.find(channel);
    return at == connections_.end() ? 0 : at->second.streams + at->second.waiting.size();
  }

  Way way;
  bool supply = true;
  int silent_channel = -1;  // answers nothing
  // In the last Run().
  std::size_t answered = 0;
  std::size_t answered_of_other = 0;  // of kOtherTopic
  std::size_t most_in_flight = 0;
  std::size_t most_streams = 0;

 private:
  void Add(const std::string& key, std::string_view topic = kTopic) {
    world_->Add(++tag_, key, "data", topic);
  }
  void Begin(const Sent& request) {
    ++connections_[request.channel].streams;
    most_streams = std::max(most_streams, ++streams_);
    answers_.emplace(way.AnswerAt(world_->now), request);
  }

  struct Connection {
    std::size_t streams = 0;
    std::deque<Sent> waiting;
  };

  World* const world_;
  std::uint64_t tag_ = 0;
  std::multimap<PublishScheduler::TimePoint, Sent> answers_;
  std::map<int, Connection> connections_;
  std::size_t streams_ = 0;  // in use
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
  EXPECT_EQ(broker.most_streams, 50u);
  EXPECT_EQ(broker.most_in_flight, 100u) << "as many wait for a stream";
  EXPECT_GE(broker.answered, 19'800u) << "of 20,000";
}

TEST(PublishSchedulerFar, WhatFailsBeforeItHasAStreamIsSentAgainAFewTimesWithoutBlame) {
  World world(kSmall);
  FarBroker broker(&world, 100, milliseconds(1));
  broker.Run(seconds(1));
  const Sent first = broker.TakeWaiting();
  Sent last = first;
  for (int times = 0; times < 3; ++times) {
    world.Error(last, kUnavailable, "the connection is to be closed");
    ASSERT_EQ(world.sent.size(), 1u) << "in its place";
    EXPECT_EQ(world.sent.front().tags, first.tags);
    EXPECT_TRUE(world.failing.empty());
    broker.TakeSent();
    last = broker.TakeWaiting();
    EXPECT_EQ(last.tags, first.tags);
  }
  world.Error(last, kUnavailable, "nobody listens");
  EXPECT_EQ(world.failing.at(kTopic).error, "UNAVAILABLE: nobody listens");
  EXPECT_TRUE(world.sent.empty()) << "it has a backoff";
}

TEST(PublishSchedulerFar, WhatWasNotSentBecauseTheConnectionWasClosedBlamesNobodyEither) {
  for (const char* const error : {"GOAWAY received", "Transport closed"}) {
    SCOPED_TRACE(error);
    World world;
    world.Add(1, "k");
    world.scheduler.Pump();
    world.Error(world.Next(), kUnavailable, error);
    EXPECT_TRUE(world.failing.empty());
    world.Ok(world.Next());
    EXPECT_EQ(world.Take(), "1:published");
  }
}

TEST(PublishSchedulerFar, WhereTheWayIsLongMoreRequestsWithoutAKeyAreNotFull) {
  for (const auto& [distance, most] : {std::pair(0, 8), std::pair(15, 23), std::pair(90, 98)}) {
    SCOPED_TRACE(distance);
    World world;
    // The first one waits for the connection, too.
    for (const std::uint64_t tag : {1, 2}) {
      world.Add(tag, "");
      world.scheduler.Pump();
      world.now += milliseconds(distance);
      world.Ok(world.Next());
    }
    for (std::uint64_t tag = 3; tag <= 100; ++tag) {
      world.Add(tag, "");
      world.scheduler.Pump();
    }
    EXPECT_EQ(world.sent.size(), static_cast<std::size_t>(most));
    if (most < 25) continue;
    // With so many in flight the way is not measured, so it is forgotten.
    world.now += RoundTripBase::kValid;
    world.Ok(world.Next());
    EXPECT_EQ(world.sent.size(), static_cast<std::size_t>(most) - 1)
        << "none more until 8 are left";
  }
}

TEST(PublishSchedulerFar, NothingWaitsForAStreamWhereTheTimeForAnAttemptIsShort) {
  PublishScheduler::Options options = kSmall;
  options.publish_timeout = milliseconds(900);
  World world(options);
  FarBroker broker(&world, 1000, milliseconds(100));
  broker.Run(seconds(5));
  EXPECT_EQ(broker.most_in_flight, broker.most_streams);
}

TEST(PublishSchedulerFar, NoRequestWaitsForAStreamBehindThoseOfAnotherTopic) {
  World world(kSmall);
  FarBroker broker(&world, 1000, milliseconds(1));
  broker.Run(seconds(1));
  broker.TakeSent();
  EXPECT_EQ(broker.requests_on(0), 2 * kStreams);
  EXPECT_EQ(broker.requests_on(1), 2 * kStreams);
  for (std::uint64_t tag = 1; tag <= 3; ++tag) {
    world.Add(1'000'000 + tag, "k" + std::to_string(tag), "data", kOtherTopic);
  }
  world.scheduler.Pump();
  ASSERT_EQ(world.sent.size(), 3u);
  for (const Sent& request : world.sent) EXPECT_EQ(request.channel, 2);
  // As long as both have something to send, neither has more requests than there are streams.
  broker.Run(seconds(1));
  broker.Run(seconds(1));
  EXPECT_LE(broker.most_in_flight, 75u);
}

TEST(PublishSchedulerFar, ALostConnectionOfATopicThatWasAloneDoesNotStopItBesideAnother) {
  World world(kSmall);
  // The broker is what is slow, so more in flight would not help.
  FarBroker broker(&world, 1000, milliseconds(1), 2'500);
  broker.Run(seconds(1));
  broker.silent_channel = 1;
  broker.Run(milliseconds(100));
  for (std::uint64_t tag = 1; tag <= 3; ++tag) {
    world.Add(1'000'000 + tag, "k" + std::to_string(tag), "data", kOtherTopic);
  }
  world.scheduler.Pump();
  broker.Run(seconds(5));
  EXPECT_GE(broker.answered_of_other, 1'000u);
  EXPECT_GE(broker.answered - broker.answered_of_other, 1'000u);
}

TEST(PublishSchedulerFar, AnUrgentRequestDoesNotWaitForAStream) {
  World world(kSmall);
  FarBroker broker(&world, 90, milliseconds(1));
  broker.Run(seconds(1));
  broker.TakeSent();
  EXPECT_EQ(world.scheduler.in_flight(), 90u);
  world.AddUrgent(1'000'001, "fresh");
  world.scheduler.Pump();
  const Sent urgent = world.Next();
  EXPECT_EQ(urgent.channel, 2);
  world.Error(urgent, kUnavailable, "GOAWAY received");
  EXPECT_EQ(world.Next().channel, 2) << "it is sent again";
  world.Add(1'000'002, "other");
  world.scheduler.Pump();
  EXPECT_LE(world.Next().channel, 1);
}

TEST(PublishSchedulerFar, LargeRequestsDoNotWaitForStreams) {
  World world(kSmall);
  FarBroker broker(&world, 1000, milliseconds(1));
  broker.Run(seconds(1));
  broker.supply = false;
  broker.Run(seconds(1));
  const std::string large(1'000'000, 'x');
  for (std::uint64_t tag = 1; tag <= 60; ++tag) {
    world.Add(2'000'000 + tag, "large-" + std::to_string(tag), large);
  }
  world.scheduler.Pump();
  EXPECT_EQ(world.sent.size(), 50u) << "as many as may have a stream";
}

const PublishScheduler::Options kOneStream{
    .channels = 8, .streams_per_channel = 1, .least_requests = 1, .publish_timeout = seconds(1)};

// Until one of the keys k0 to k2 has a request with the only stream, and another one waits for it.
std::pair<Sent, Sent> UntilOneWaits(World* world) {
  std::uint64_t tag = 0;
  for (; tag < 3; ++tag) world->Add(tag, "k" + std::to_string(tag));
  world->scheduler.Pump();
  for (int answers = 0; answers < 200; ++answers) {
    world->Advance(milliseconds(5));
    const Sent request = world->Next();
    world->Ok(request);
    world->Take();
    world->Add(++tag, request.key);
    world->scheduler.Pump();
  }
  EXPECT_EQ(world->sent.size(), 2u);
  const Sent first = world->Next();
  const Sent second = world->Next();
  EXPECT_EQ(second.channel, first.channel) << "it waits";
  return {first, second};
}

TEST(PublishSchedulerFar, HalvesOfARequestThatWaitForAStreamHaveNoNewTimeForIt) {
  World world(kOneStream);
  const auto [first, second] = UntilOneWaits(&world);
  world.Add(1001, first.key);
  world.Add(1002, first.key);
  world.Ok(first);
  const Sent third = world.Next();
  world.Ok(second);
  const Sent both = world.Next();
  ASSERT_EQ(both.tags, (Tags{1001, 1002}));
  world.Add(2001, second.key);
  world.Ok(third);
  const Sent other = world.Next();
  world.Take();
  world.now += milliseconds(700);
  world.Error(both, kInvalidArgument);
  const Sent half = world.Next();
  ASSERT_EQ(half.tags, Tags{1001});
  world.now += milliseconds(100);
  world.Ok(other);
  world.now += milliseconds(250);
  world.Error(half, kUnavailable);
  EXPECT_NE(world.Take().find("1001:un"), std::string::npos) << "publish_timeout is over";
}

TEST(PublishSchedulerFar, WhatHadItsStreamTooLateIsSentAgainWithoutBlame) {
  World world(kOneStream);
  const auto [first, second] = UntilOneWaits(&world);
  world.now += milliseconds(600);
  world.Ok(first);
  world.sent.clear();
  world.now += milliseconds(450);
  world.Error(second, kDeadlineExceeded);
  EXPECT_TRUE(world.failing.empty());
  const Sent again = world.Next();
  EXPECT_EQ(again.tags, second.tags);
  EXPECT_GE(again.timeout, milliseconds(500)) << "its time counts from when it had its stream";
  world.Ok(again);
  EXPECT_NE(world.Take().find(std::to_string(second.tags[0]) + ":published"), std::string::npos);
}

TEST(PublishSchedulerFar, WhereNoStreamIsFreeATopicSendsNoMoreThanItsShare) {
  World world({.channels = 1, .streams_per_channel = 20});
  for (std::uint64_t tag = 0; tag < 20; ++tag) world.Add(tag, "k" + std::to_string(tag));
  world.scheduler.Pump();
  std::vector<Sent> silent = std::exchange(world.sent, {});
  ASSERT_EQ(silent.size(), 20u);
  for (std::uint64_t tag = 100; tag < 600; ++tag) {
    world.Add(tag, "k" + std::to_string(tag), "data", kOtherTopic);
  }
  world.scheduler.Pump();
  const Sent first = world.Next();
  world.Error(silent.back(), kUnavailable);
  world.Ok(first);
  EXPECT_LE(world.sent.size(), 16u);
  EXPECT_GE(world.sent.size(), 10u);
}

TEST(PublishSchedulerFar, UrgentRequestsDoNotTakeTheLastStreams) {
  World world({.channels = 3, .streams_per_channel = kStreams, .least_requests = 50});
  FarBroker broker(&world, 50, milliseconds(1));
  broker.Run(seconds(1));
  broker.TakeSent();
  for (std::uint64_t tag = 1'000'000; tag < 1'000'100; ++tag) {
    world.AddUrgent(tag, "fresh" + std::to_string(tag));
  }
  world.scheduler.Pump();
  EXPECT_EQ(world.sent.size(), kStreams);
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
    EXPECT_LE(broker.most_streams, useful * 3 / 2 + 100);
    EXPECT_LE(broker.most_in_flight, 2 * broker.most_streams);
  }
}

TEST(PublishSchedulerFar, ARoundTripThatVariesDoesNotKeepRequestsBack) {
  World world(kSmall);
  FarBroker broker(&world, 3000, milliseconds(20));
  broker.way.jitter = milliseconds(40);
  broker.Run(seconds(3));
  broker.Run(seconds(3));
  EXPECT_GE(broker.answered, 28'000u) << "of 30,000";
}

TEST(PublishSchedulerFar, MoreChannelsThanTheSettingAllowsAreNotOpened) {
  World world({.channels = 3, .streams_per_channel = kStreams, .least_requests = 50});
  FarBroker broker(&world, 1000, milliseconds(100));
  broker.Run(seconds(5));
  EXPECT_EQ(world.scheduler.open_channels(), 3u);
  broker.Run(seconds(5));
  EXPECT_EQ(broker.most_in_flight, 75u) << "none waits: another topic may come";
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
  broker.way.round_trip = milliseconds(100);
  broker.Run(seconds(20));
  broker.Run(seconds(3));
  EXPECT_GE(broker.answered, 6'700u) << "of 7,500";
  broker.way.round_trip = milliseconds(1);
  broker.Run(seconds(18));
  broker.Run(seconds(1));
  EXPECT_LE(broker.most_streams, 75u);
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

TEST(ChannelLoads, RequestsWaitForTheStreamsOfThoseBeforeThemInTheirOrder) {
  const ChannelLoads::TimePoint now{seconds(1000)};
  ChannelLoads loads(4, 2);
  std::uint64_t request = 0;
  const auto take = [&](int before = -1) {
    return loads.Take(++request, before, 10, 4, true, now);
  };
  // Two channels for four that are useful; each has as many again.
  for (const int channel : {0, 0, 1, 1, 0, 1, 0, 1}) {
    const auto place = take();
    EXPECT_EQ(place.channel, channel) << "of request " << request;
    EXPECT_EQ(place.has_stream, request <= 4);
  }
  EXPECT_EQ(loads.open(), 2u);
  EXPECT_EQ(loads.Done(1, 0, 10, true).begins, 5u);
  EXPECT_EQ(loads.Done(6, 1, 10, false).begins, std::nullopt) << "it had no stream to leave";
  EXPECT_EQ(loads.Done(3, 1, 10, true).begins, 8u);
  EXPECT_EQ(loads.Done(4, 1, 10, true).begins, std::nullopt) << "none waits any more";
  EXPECT_EQ(take(0).channel, 1) << "a free stream comes before the channel of the key";
  const auto other = loads.Take(++request, -1, 10, 4, /*may_wait=*/false, now);
  EXPECT_EQ(other.channel, 2) << "what may not wait has a connection opened";
  EXPECT_TRUE(other.has_stream);
}

TEST(ChannelLoads, AChannelThatIsToBeClosedIsClosedByItsLastAnswer) {
  ChannelLoads::TimePoint now{seconds(1000)};
  ChannelLoads loads(4, 2);
  std::uint64_t request = 0;
  const auto take = [&](int before) { return loads.Take(++request, before, 10, 8, false, now); };
  const auto done = [&](int channel) { return loads.Done(1, channel, 10, true).close; };
  for (const int channel : {0, 0, 1, 1, 2}) EXPECT_EQ(take(-1).channel, channel);
  now += ChannelLoads::kCloseAfter;
  EXPECT_TRUE(loads.CloseUnused(now).empty()) << "all were needed";
  for (const int channel : {0, 0, 1}) EXPECT_FALSE(done(channel));
  now += ChannelLoads::kCloseAfter;
  EXPECT_TRUE(loads.CloseUnused(now).empty()) << "five were in flight in this time";
  now += ChannelLoads::kCloseAfter;
  EXPECT_TRUE(loads.CloseUnused(now).empty());
  EXPECT_EQ(loads.open(), 1u);
  EXPECT_EQ(take(2).channel, 0) << "no request goes to one that is to be closed";
  EXPECT_TRUE(done(1));
  EXPECT_TRUE(done(2));
}

TEST(ChannelLoads, OneThatWasToBeClosedAndIsStillFullIsNotTakenForAFreeOne) {
  ChannelLoads loads(4, 2);
  ChannelLoads::TimePoint now{seconds(1000)};
  std::uint64_t request = 0;
  const auto take = [&] { return loads.Take(++request, -1, 100, 4, false, now); };
  const auto done = [&](std::uint64_t id, int channel) {
    return loads.Done(id, channel, 100, true);
  };
  for (int i = 0; i < 4; ++i) take();
  ASSERT_EQ(loads.open(), 2u);
  done(1, 0);
  done(2, 0);
  for (int i = 0; i < 2; ++i) {
    now += ChannelLoads::kCloseAfter;
    loads.CloseUnused(now);
  }
  ASSERT_EQ(loads.open(), 1u);
  take();
  take();
  const ChannelLoads::Place place = take();
  EXPECT_EQ(place.channel, 2);
  EXPECT_TRUE(place.has_stream);
  EXPECT_FALSE(done(3, 1).close) << "it is open again";
}

}  // namespace
}  // namespace postbox::pubsub
