#include "worker/pubsub/publish/request_window.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

namespace postbox::pubsub {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;

// A window that is always at its limit, with requests that are answered one after the other.
struct Busy {
  void Answer(milliseconds took, microseconds after = milliseconds(1)) {
    const std::size_t limit = window.limit();
    ++number;
    now += after;
    window.Limited();
    window.Answered({number, number + limit - 1, limit, /*few=*/limit < 200}, took, now);
    most = std::max(most, window.limit());
  }

  RequestWindow window{200, 6400};
  RequestWindow::TimePoint now{seconds(1000)};
  std::uint64_t number = 0;
  std::size_t most = 0;
};

TEST(RequestWindow, WhatTheClientTakesToSendABurstIsNotTheWayToTheBroker) {
  RequestWindow window(200, 6400);
  const RequestWindow::TimePoint begin{seconds(1000)};
  std::uint64_t number = 0;
  for (int i = 0; i < 100; ++i) {
    ++number;
    window.Answered({number, number, 1, /*few=*/true}, milliseconds(5), begin);
  }
  // The first request of each burst was sent alone, and its answer seen after the last was sent.
  for (int burst = 0; burst < 100; ++burst) {
    window.Answered({number + 1, number + 200, 200, /*few=*/true}, milliseconds(200), begin);
    number += 200;
  }
  // The processors take 100 ms for what is in flight: more of that does not make it faster.
  for (int i = 0; i < 1000; ++i) {
    ++number;
    window.Limited();
    window.Answered({number, number + 200, 200, /*few=*/false}, milliseconds(100),
                    begin + milliseconds(i));
  }
  EXPECT_EQ(window.limit(), 200u);
}

// A processor that others use, too, makes the way look longer, and a few requests more than `least`
// cost a connection more.
TEST(RequestWindow, AsLongAsTheLeastIsEnoughThereAreNoMore) {
  Busy busy;
  for (int i = 0; i < 5000; ++i) {
    busy.Answer(milliseconds(busy.window.limit() < 200 ? 5 : 8));
    ASSERT_LE(busy.window.limit(), 200u);
  }
}

TEST(RequestWindow, TheAnswersToTheFirstBurstAreNotTakenForTheWayToTheBroker) {
  Busy busy;
  // A client that has just begun is slow to read the answers; later they take less.
  for (int i = 0; i < 200; ++i) busy.Answer(milliseconds(70));
  for (int i = 0; i < 10'000; ++i) busy.Answer(milliseconds(busy.window.limit() < 200 ? 2 : 60));
  EXPECT_EQ(busy.most, 200u);
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
      window.Answered({number, number + window.limit() - 1, window.limit(), /*few=*/false}, took,
                      now);
    }
    EXPECT_EQ(window.limit(), 25u);
    return now - begin;
  };
  const auto succeed = [&] {
    number += 200;  // those of before
    for (int i = 0; i < 20; ++i) {
      ++number;
      window.Answered({number, number + 24, 100, /*few=*/false, /*waited=*/true}, seconds(1), now);
    }
    EXPECT_TRUE(window.NextTime()) << "these say nothing of the way";
    for (int i = 0; i < 50; ++i) {
      ++number;
      window.Answered({number, number + 24, 25, /*few=*/true}, took, now);
    }
    EXPECT_FALSE(window.NextTime());
  };
  until_probe();
  succeed();
  // The way is longer now, and some requests are never answered.
  took = milliseconds(100);
  EXPECT_GE(until_probe(), RoundTripBase::kValid);
  milliseconds patience(400);
  seconds pause = RoundTripProbe::kAgain;
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
    window.Answered({number, number + window.limit() - 1, window.limit(), /*few=*/false}, took,
                    now);
  }
  EXPECT_GT(window.limit(), 200u) << "more are on the long way";
}

// What is sent until the first probe begins has to be answered before its own requests are sent: of
// a quarter of the limit that would take a round trip more.
TEST(RequestWindow, TheFirstProbeOfALongWayBeginsWithItsFirstAnswers) {
  Busy busy;
  for (int i = 0; i < 8; ++i) busy.Answer(milliseconds(100));
  EXPECT_TRUE(busy.window.NextTime());
}

TEST(RequestWindow, ANearBrokerThatHasOtherWorkForAMomentDoesNotLookFarAway) {
  Busy busy;
  while (!busy.window.NextTime()) busy.Answer(milliseconds(60));
  busy.number += 200;
  busy.Answer(milliseconds(2));
  while (busy.window.NextTime()) busy.Answer(milliseconds(30));
  EXPECT_EQ(busy.window.limit(), 200u);
}

TEST(RequestWindow, ABrokerThatWasColdAtFirstIsMeasuredAgain) {
  Busy busy;
  const auto end = busy.now + seconds(8);
  bool cold = true;
  while (busy.now < end) {
    const std::size_t limit = busy.window.limit();
    cold = cold && limit <= 200;  // until the first probe is over
    busy.Answer(cold ? milliseconds(300) : milliseconds(limit / 10), microseconds(50));
  }
  EXPECT_LE(busy.most, 1600u);
  EXPECT_EQ(busy.window.limit(), 200u);
}

TEST(RequestWindow, GoesBackIfTwiceAsManyOnlyTakeTwiceAsLong) {
  RequestWindow window(200, 6400);
  RequestWindow::TimePoint now{seconds(1000)};
  std::uint64_t number = 0;
  std::size_t most = 0;
  // The base is wrong: few requests wait for a processor that many keep awake.
  for (int i = 0; i < 100; ++i) {
    ++number;
    window.Answered({number, number, 1, /*few=*/true}, milliseconds(100), now);
  }
  // The processors take 50 us a request.
  for (int i = 0; i < 10'000; ++i) {
    ++number;
    now += std::chrono::microseconds(50);
    window.Limited();
    window.Answered({number, number + window.limit(), window.limit(), /*few=*/false},
                    std::chrono::microseconds(50) * window.limit(), now);
    most = std::max(most, window.limit());
  }
  EXPECT_EQ(most, 400u);
  EXPECT_EQ(window.limit(), 200u);
}

TEST(RoundTripBase, ItIsAnAverageUntilItIsMeasuredAndIsForgottenAfterAWhile) {
  const RoundTripBase::TimePoint now{seconds(1000)};
  RoundTripBase base;
  base.Assume(milliseconds(500));
  EXPECT_EQ(base.TimeAt(now), RoundTripBase::Duration::zero()) << "that was not measured";
  base.Set(milliseconds(100), now);
  base.Average(milliseconds(260), now + seconds(1));
  EXPECT_NEAR(base.time().count(), 0.110, 1e-9);
  base.Assume(milliseconds(500));
  EXPECT_NEAR(base.TimeAt(now + seconds(1)).count(), 0.110, 1e-9);
  EXPECT_FALSE(base.IsDue(now + RoundTripBase::kValid));
  EXPECT_TRUE(base.IsDue(now + seconds(1) + RoundTripBase::kValid));
  EXPECT_EQ(base.TimeAt(now + seconds(1) + RoundTripBase::kValid).count(), 0);
  base.MeasureAt(now + seconds(3));
  EXPECT_TRUE(base.IsDue(now + seconds(3)));
}

TEST(RoundTripProbe, ItEndsWithItsLastAnswerAndItsResultIsTheMedian) {
  RoundTripProbe probe;
  probe.Start(milliseconds(10), RoundTripProbe::TimePoint{seconds(1000)});
  for (std::size_t answer = 1; answer <= RoundTripProbe::kAnswers; ++answer) {
    ASSERT_TRUE(probe.running());
    EXPECT_EQ(probe.Add(milliseconds(answer == 1 ? 9000 : answer)),
              answer == RoundTripProbe::kAnswers);
  }
  EXPECT_FALSE(probe.running());
  const RoundTripProbe::Result result = probe.TakeResult();
  EXPECT_EQ(result.median, RoundTripProbe::Duration(milliseconds(10)));
  EXPECT_EQ(result.quickest, RoundTripProbe::Duration(milliseconds(2)));
}

TEST(RoundTripProbe, WhatIsGivenUpInARowDoublesThePauseAndThePatienceUpToALimit) {
  const RoundTripProbe::TimePoint now{seconds(1000)};
  RoundTripProbe probe;
  for (const int times : {1, 2, 4, 8, 8}) {
    probe.Start(milliseconds(100), now);
    EXPECT_EQ(std::chrono::round<milliseconds>(probe.until() - now), times * milliseconds(400));
    EXPECT_EQ(probe.GiveUp(), times * RoundTripProbe::kAgain);
  }
  probe.Start(seconds(10), now);
  EXPECT_EQ(probe.until(), now + RoundTripProbe::kLongest);
}

}  // namespace
}  // namespace postbox::pubsub
