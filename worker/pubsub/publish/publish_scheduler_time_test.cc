// When requests are sent again, how fast, and when a message is given up.
#include "worker/pubsub/publish/publish_scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <set>
#include <string>

#include "proto/rules/error_class.h"
#include "worker/pubsub/publish/publish_scheduler_world.h"

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(PublishSchedulerTime, ARetryIsTheSameRequestAfterABackoffAndNothingOvertakesIt) {
  World world;
  world.Add(1, "a");
  world.Add(2, "a");
  world.scheduler.Pump();
  for (const int code : {kUnavailable, kDeadlineExceeded, kAborted, kInternal, kUnknownError,
                         kCancelled, kResourceExhausted}) {
    const Sent attempt = world.Next();
    EXPECT_EQ(attempt.tags, Tags({1, 2}));
    world.Error(attempt, code);
    world.Add(10 + static_cast<std::uint64_t>(code), "a");
    world.scheduler.Pump();
    EXPECT_TRUE(world.sent.empty()) << "waits for its backoff";
    world.Advance(milliseconds(99));
    EXPECT_TRUE(world.sent.empty()) << "100 ms is the first backoff";
    world.Advance(seconds(1));
  }
  world.Ok(world.Next());
  world.Advance(seconds(1));
  EXPECT_EQ(world.Next().tags.size(), 7u);
  EXPECT_EQ(world.Take(), "1:published 2:published");
}

TEST(PublishSchedulerTime,
     AfterThePublishTimeoutAKeyThatFailsAloneIsUnknownAndWhatFollowsIsBehind) {
  World world({.publish_timeout = seconds(10)});
  world.Add(1, "a");
  world.Add(2, "a");
  world.scheduler.Pump();
  world.Add(3, "a");
  int attempts = 0;
  for (std::uint64_t tag = 10; world.done.empty() && !world.sent.empty(); ++tag) {
    const Sent request = world.Next();
    world.Error(request, kUnavailable, "connection refused");
    ++attempts;
    // Another key goes through meanwhile.
    world.Add(tag, "b");
    world.scheduler.Pump();
    if (!world.done.empty()) break;
    ASSERT_EQ(world.sent.size(), 1u);
    world.Ok(world.Next());
    EXPECT_EQ(world.Take(), std::to_string(tag) + ":published");
    world.Advance(seconds(2));
  }
  EXPECT_GE(attempts, 4);
  ASSERT_EQ(world.done.size(), 3u);
  EXPECT_EQ(world.done[0].result->error.substr(0, 65),
            "UNAVAILABLE: connection refused (gave up after " + std::to_string(attempts) +
                " attempts, publis");
  EXPECT_EQ(world.Take(), "1:unknown 2:unknown 3:behind");
}

// Fails everything for `duration`. Returns the greatest number of requests that were in flight at
// once, and counts them all.
std::size_t Outage(World* world, milliseconds duration, int* requests) {
  std::size_t most = 0;
  for (milliseconds past(0); past < duration; past += milliseconds(50)) {
    most = std::max(most, world->sent.size());
    while (!world->sent.empty()) {
      world->Error(world->Next(), kUnavailable, "connection refused");
      ++*requests;
    }
    world->Advance(milliseconds(50));
  }
  return most;
}

TEST(PublishSchedulerTime, InAnOutageThereIsOneProbeAtATimeAndTheFirstAnswerLetsEverythingGo) {
  World world({.publish_timeout = seconds(600)});
  for (std::uint64_t tag = 0; tag < 50; ++tag) world.Add(tag, "key-" + std::to_string(tag));
  world.scheduler.Pump();
  while (!world.sent.empty()) world.Error(world.Next(), kUnavailable);
  int requests = 0;
  EXPECT_EQ(Outage(&world, seconds(60), &requests), 1u);
  EXPECT_GE(requests, 35) << "a probe every 1.5 s at least";
  EXPECT_LE(requests, 100);
  world.Advance(milliseconds(1500));
  ASSERT_EQ(world.sent.size(), 1u);
  const Sent probe = world.Next();
  world.Ok(probe);
  EXPECT_EQ(world.sent.size(), 49u) << "at once, not at the end of a backoff";
  while (!world.sent.empty()) world.Ok(world.Next());
  EXPECT_EQ(world.done.size(), 50u);
  for (const Done& one : world.done) EXPECT_EQ(one.result->status, PublishStatus::kPublished);
}

TEST(PublishSchedulerTime, TheProbesOfATopicThatIsDownAreOfAllItsKeysInTurn) {
  World world({.publish_timeout = seconds(600)});
  for (std::uint64_t tag = 0; tag < 5; ++tag) world.Add(tag, "key-" + std::to_string(tag));
  world.scheduler.Pump();
  while (!world.sent.empty()) world.Error(world.Next(), kUnavailable);
  std::set<std::string> probed;
  for (int i = 0; i < 5; ++i) {
    world.Advance(seconds(2));
    ASSERT_EQ(world.sent.size(), 1u);
    probed.insert(world.sent.front().key);
    world.Error(world.Next(), kUnavailable);
  }
  EXPECT_EQ(probed.size(), 5u);
}

TEST(PublishSchedulerTime,
     WhatAnOutageHoldsUpIsUnreachableAfterThePublishTimeoutAndNothingIsUnknown) {
  World world({.channels = 1, .streams_per_channel = 4, .publish_timeout = seconds(10)});
  for (std::uint64_t tag = 0; tag < 8; ++tag) {
    world.Add(tag, "key-" + std::to_string(tag));
    world.Add(10 + tag, "key-" + std::to_string(tag));
  }
  world.Add(100, "");
  world.scheduler.Pump();
  int requests = 0;
  Outage(&world, seconds(13), &requests);
  EXPECT_EQ(world.done.size(), 17u);
  for (const Done& one : world.done) {
    EXPECT_TRUE(one.result->status == PublishStatus::kUnreachable ||
                one.result->status == PublishStatus::kBehind)
        << one.result->tag << " " << one.result->error;
    EXPECT_NE(one.result->error.find("UNAVAILABLE: connection refused"), std::string::npos);
  }
  world.Take();
  EXPECT_FALSE(world.scheduler.NextWake()) << "nothing is left to do";
  // It is still down: the next message is a probe.
  world.Add(200, "new");
  world.Add(201, "newer");
  world.scheduler.Pump();
  world.Advance(seconds(2));
  ASSERT_EQ(world.sent.size(), 1u);
  world.Ok(world.Next());
  EXPECT_EQ(world.sent.size(), 1u);
  world.Ok(world.Next());
  EXPECT_EQ(world.Take(), "200:published 201:published");
}

// An outage that begins with these requests, and the probe that is on its way so long after them.
// What is too old is looked for once a second: at 9.7 s, at 10.7 s.
Sent ProbeOfOutage(World* world, milliseconds after) {
  const auto begin = world->now;
  world->scheduler.Pump();
  world->Advance(milliseconds(4700));
  while (!world->sent.empty()) world->Error(world->Next(), kUnavailable);
  for (int probe = 1; probe <= 3; ++probe) {
    world->Advance(milliseconds(1500));
    EXPECT_EQ(world->sent.size(), 1u);
    if (probe < 3) world->Error(world->Next(), kUnavailable);
  }
  world->Advance(begin + after - world->now);
  EXPECT_TRUE(world->done.empty());
  return world->Next();
}

TEST(PublishSchedulerTime, WhatIsTooOldWhenAnOutageEndsIsNotBlamedForIt) {
  World world({.publish_timeout = seconds(10)});
  for (std::uint64_t tag = 0; tag < 20; ++tag) world.Add(tag, "key-" + std::to_string(tag));
  world.Ok(ProbeOfOutage(&world, milliseconds(10'400)));
  EXPECT_TRUE(world.sent.empty());
  EXPECT_EQ(world.done.size(), 20u);
  for (const Done& one : world.done) {
    EXPECT_TRUE(one.result->status == PublishStatus::kPublished ||
                one.result->status == PublishStatus::kUnreachable)
        << one.result->error;
  }
}

TEST(PublishSchedulerTime, NorIsWhatHasNoTimeLeftThen) {
  World world({.publish_timeout = seconds(10)});
  for (std::uint64_t tag = 0; tag < 20; ++tag) world.Add(tag, "key-" + std::to_string(tag));
  world.Ok(ProbeOfOutage(&world, milliseconds(9'900)));
  EXPECT_EQ(world.sent.size(), 19u);
  EXPECT_EQ(world.sent.front().timeout, milliseconds(100));
  world.Advance(milliseconds(100));
  while (!world.sent.empty()) world.Error(world.Next(), kDeadlineExceeded);
  EXPECT_EQ(world.done.size(), 20u);
  for (const Done& one : world.done) EXPECT_NE(one.result->status, PublishStatus::kUnknown);
}

TEST(PublishSchedulerTime, NorIsWhatTheAnswerThatEndsItCuts) {
  World world({.publish_timeout = seconds(10)});
  world.Add(1, "a");
  for (std::uint64_t tag = 2; tag < 12; ++tag) world.Add(tag, "");
  world.Add(12, "b");
  const Sent probe = ProbeOfOutage(&world, milliseconds(10'400));
  ASSERT_EQ(probe.tags.size(), 10u);
  world.Error(probe, kInvalidArgument);
  EXPECT_EQ(world.done.size(), 12u);
  for (const Done& one : world.done) {
    EXPECT_EQ(one.result->status, PublishStatus::kUnreachable) << one.result->error;
  }
}

TEST(PublishSchedulerTime, ARetryThatGoesThroughEndsTheBackoffOfTheOthersOnceASecond) {
  World world({.backoff = {seconds(30), 1.0, seconds(30)}});
  for (const char* key : {"a", "b", "c"}) world.Add(static_cast<unsigned char>(*key), key);
  world.Add(1, "works");
  world.scheduler.Pump();
  world.Error(world.Next(), kUnavailable);
  world.Error(world.Next(), kUnavailable);
  world.Advance(seconds(20));
  world.Ok(world.sent.back());  // the key that works, and was never retried
  world.sent.pop_back();
  ASSERT_EQ(world.sent.size(), 1u);
  EXPECT_EQ(world.sent.front().key, "c");
  world.Error(world.Next(), kUnavailable);
  world.Advance(seconds(10));
  ASSERT_EQ(world.sent.size(), 2u);
  world.Ok(world.Next());
  ASSERT_EQ(world.sent.size(), 2u) << "c does not wait for the end of its backoff";
  EXPECT_EQ(world.sent.back().key, "c");
}

// A broker that takes so many bytes a second of a key, in bursts of one second.
class Bucket {
 public:
  explicit Bucket(double rate) : rate_(rate), level_(rate) {}
  bool Take(World* world, const Sent& request) {
    level_ =
        std::min(rate_, level_ + rate_ * std::chrono::duration<double>(world->now - at_).count());
    at_ = world->now;
    const auto size = static_cast<double>(request.size);
    const bool taken = size <= level_ || (request.tags.size() == 1 && level_ >= rate_);
    if (taken) level_ -= size;
    return taken;
  }

 private:
  const double rate_;
  double level_;
  PublishScheduler::TimePoint at_{seconds(1000)};
};

TEST(PublishSchedulerTime, ABacklogOfOneKeyAboveItsLimitGoesOutAtThatRateAndNothingOfItIsUnknown) {
  // The publish timeout is far shorter than the backlog, and so is the time of the other keys.
  World world({.publish_timeout = seconds(5)});
  constexpr std::uint64_t kMessages = 3000;
  for (std::uint64_t tag = 1; tag <= kMessages; ++tag) {
    world.Add(tag, "busy", std::string(10'000, 'd'));
  }
  Bucket bucket(1e6);
  int refused = 0;
  int taken = 0;
  const auto begin = world.now;
  world.scheduler.Pump();
  while (world.done.size() < kMessages && world.now < begin + seconds(120)) {
    while (!world.sent.empty()) {
      const Sent request = world.Next();
      world.now += milliseconds(5);
      if (bucket.Take(&world, request)) {
        world.Ok(request);
        ++taken;
      } else {
        world.Error(request, kResourceExhausted, "over the limit of the key");
        ++refused;
      }
    }
    world.Advance(milliseconds(5));
  }
  ASSERT_EQ(world.done.size(), kMessages);
  std::uint64_t expected = 0;
  for (const Done& one : world.done) {
    EXPECT_EQ(one.result->status, PublishStatus::kPublished) << one.result->error;
    EXPECT_EQ(one.result->tag, ++expected);
  }
  const double took = std::chrono::duration<double>(world.now - begin).count();
  EXPECT_LT(took, 30 * 1.3) << "30 MB at 1 MB/s";
  EXPECT_LT(refused, taken / 3) << "of " << taken;
  world.Take();
  world.Advance(seconds(2));
  EXPECT_FALSE(world.scheduler.NextWake());
}

TEST(PublishSchedulerTime, AKeyAboveItsLimitHoldsUpNobodyAndEndsItsPauseWhenItIsAlone) {
  World world;
  world.Add(1, "busy");
  world.Add(2, "other");
  world.scheduler.Pump();
  world.Error(world.Next(), kResourceExhausted);
  world.Ok(world.Next());
  world.Add(3, "other");
  world.scheduler.Pump();
  world.Ok(world.Next());
  EXPECT_TRUE(world.sent.empty());
  world.Advance(milliseconds(100));
  world.Ok(world.Next());
  EXPECT_EQ(world.Take(), "2:published 3:published 1:published");
  world.Advance(seconds(1));
  EXPECT_FALSE(world.scheduler.NextWake());
}

TEST(PublishSchedulerTime,
     WhatIsRefusedForItsRateIsGivenBackWhenItsTimeToBeSentIsOverAndNotUnknown) {
  World world({.publish_timeout = seconds(5)});
  world.patience = seconds(20);
  world.Add(1, "busy");
  world.Add(2, "busy");
  world.scheduler.Pump();
  int requests = 0;
  for (int i = 0; i < 600 && world.done.empty(); ++i) {
    while (!world.sent.empty()) {
      world.Error(world.Next(), kResourceExhausted);
      ++requests;
    }
    world.Advance(milliseconds(50));
  }
  EXPECT_GE(requests, 10) << "it is tried for all of that time";
  EXPECT_EQ(world.Take(), "1:behind 2:behind");
}

TEST(PublishSchedulerTime, AnAttemptGetsAThirdOfTheTimeAndNeverMoreThanIsLeft) {
  World world({.publish_timeout = seconds(60)});
  world.Add(1, "a");
  world.scheduler.Pump();
  EXPECT_EQ(world.sent[0].timeout, seconds(20));
  world.Advance(seconds(55));
  world.Error(world.Next(), kUnavailable);
  world.Advance(seconds(1));
  EXPECT_LE(world.Next().timeout, seconds(5));
}

TEST(PublishSchedulerTime, TheTimeOfAMessageCountsFromItsFirstSending) {
  World world({.channels = 1, .streams_per_channel = 1, .publish_timeout = seconds(30)});
  world.Add(1, "a");
  world.scheduler.Pump();
  world.Add(2, "b");
  world.Add(3, "a");
  for (int i = 0; i < 100; ++i) world.Advance(seconds(1));
  EXPECT_TRUE(world.done.empty());
  world.Ok(world.Next());
  ASSERT_EQ(world.sent.size(), 1u);
  EXPECT_EQ(world.sent.front().timeout, seconds(10)) << "a third of the whole time";
  world.Ok(world.Next());
  world.Ok(world.Next());
  EXPECT_EQ(world.Take(), "1:published 2:published 3:published");
}

TEST(PublishSchedulerTime, MessagesThatAreNotSentByTheirTimeAreGivenBackUnsent) {
  World world({.channels = 1, .streams_per_channel = 1, .publish_timeout = seconds(30)});
  world.patience = seconds(30);
  world.Add(1, "a");
  world.scheduler.Pump();
  world.now += seconds(10);
  world.Add(2, "b");
  world.Add(3, "c");
  world.now += seconds(5);
  world.Add(4, "b");
  world.scheduler.Pump();
  const Sent stuck = world.Next();
  world.Advance(seconds(27));
  EXPECT_EQ(world.done.size(), 3u)
      << "the request in flight says nothing, the others do not wait for it";
  EXPECT_EQ(world.done[0].result->error.substr(0, 36), "DEADLINE_EXCEEDED: not sent in time,");
  EXPECT_EQ(world.Take(), "2:behind 4:behind 3:behind");
  world.Ok(stuck);
  EXPECT_EQ(world.Take(), "1:published");
  world.Add(5, "b");
  world.scheduler.Pump();
  EXPECT_EQ(world.Next().tags, Tags({5}));
}

TEST(PublishSchedulerTime, AMessageIsSentAgainIfARequestWithItHadNoAnswerAndNotIfItWasRefused) {
  World world;
  world.Add(1, "a");
  world.Add(2, "a");
  world.scheduler.Pump();
  world.Error(world.Next(), kUnavailable, "Socket closed");
  world.Advance(seconds(1));
  world.Error(world.Next(), kDeadlineExceeded);
  world.Advance(seconds(1));
  world.Ok(world.Next());
  EXPECT_EQ(world.SentAgain(), "2+ 2+");
  EXPECT_EQ(world.Take(), "1:published 2:published");

  world.Add(3, "b");
  world.scheduler.Pump();
  world.Error(world.Next(), kUnavailable, "failed to connect to all addresses; last error: no");
  world.Advance(seconds(1));
  world.Error(world.Next(), kResourceExhausted);
  world.Advance(seconds(1));
  world.Ok(world.Next());
  EXPECT_EQ(world.SentAgain(), "0");
  EXPECT_EQ(world.Take(), "3:published");

  world.Add(4, "c");
  world.scheduler.Pump();
  world.Error(world.Next(), kInvalidArgument);
  EXPECT_EQ(world.SentAgain(), "0");
  EXPECT_EQ(world.Take(), "4:rejected");

  world.Add(5, "d");
  world.scheduler.Pump();
  const Sent request = world.Next();
  world.scheduler.OnResponse(request.id, {kOk, "", 7});
  EXPECT_EQ(world.SentAgain(), "0+");
  EXPECT_EQ(world.Take(), "5:unknown");
}

TEST(PublishSchedulerTime, ATopicFailsFromTheFirstFailureToTheFirstAnswer) {
  World world({.publish_timeout = seconds(10)});
  const auto begin = world.now;
  world.Add(1, "a");
  world.scheduler.Pump();
  for (int attempt = 0; attempt < 60; ++attempt) {
    world.Error(world.Next(), kUnavailable, "refused " + std::to_string(attempt));
    ASSERT_EQ(world.failing.size(), 1u) << attempt;
    const Failing& failing = world.failing[kTopic];
    EXPECT_EQ(failing.since, begin);
    EXPECT_EQ(failing.error, "UNAVAILABLE: refused " + std::to_string(attempt));
    EXPECT_GT(failing.next_try, world.now);
    EXPECT_LE(failing.next_try, world.now + milliseconds(1500));
    // What was given up is tried again by the caller. That is no answer.
    if (!world.Take().empty()) world.Add(100 + static_cast<std::uint64_t>(attempt), "a");
    world.scheduler.Pump();
    if (!world.sent.empty()) continue;
    const auto next_try = failing.next_try;
    world.Advance(std::chrono::duration_cast<milliseconds>(next_try - world.now) - milliseconds(1));
    EXPECT_TRUE(world.sent.empty());
    world.Advance(milliseconds(1));
    if (!world.Take().empty()) world.Add(200 + static_cast<std::uint64_t>(attempt), "a");
    world.scheduler.Pump();
    ASSERT_EQ(world.sent.size(), 1u) << "it is tried when it was said";
  }
  EXPECT_GT(world.now - begin, seconds(30));
  // Nothing is sent for an hour.
  do {
    while (!world.sent.empty()) world.Error(world.Next(), kUnavailable);
    world.Advance(seconds(1));
  } while (world.Take().empty());
  world.now += std::chrono::hours(1);
  world.Add(1000, "a");
  world.scheduler.Pump();
  world.Error(world.Next(), kUnavailable);
  EXPECT_EQ(world.failing[kTopic].since, world.now) << "that hour was no outage";
  world.Advance(seconds(2));
  world.Error(world.Next(), kInvalidArgument);
  EXPECT_TRUE(world.failing.empty()) << "a refusal is an answer";
}

TEST(PublishSchedulerTime, AMessageBehindOneThatMayWaitForEverIsNotSentWhenItsOwnTimeIsOver) {
  World world;
  world.Add(1, "k");
  world.scheduler.Pump();
  world.Add(2, "k");
  world.patience = seconds(1);
  world.Add(3, "k");
  world.now += seconds(2);
  world.Ok(world.Next());
  const Sent second = world.Next();
  EXPECT_EQ(second.tags, Tags{2});
  world.Ok(second);
  EXPECT_EQ(world.Take(), "1:published 2:published 3:behind");
}

}  // namespace
}  // namespace postbox::pubsub
