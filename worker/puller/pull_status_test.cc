#include "worker/puller/pull_status.h"

#include <gtest/gtest.h>

#include "worker/puller/runner.h"

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// The test of the server gives these times other lengths.
TEST(PullStatusTest, AProcessThatDoesNotAnswerIsShownWithinHalfAMinute) {
  EXPECT_LT(Runner::kUnansweredTime + 2 * ReportTimer::kInterval, seconds(30));
}

TEST(PullStatusTest, WhatChangesIsReportedOnceASecondAndLifeEveryFiveMinutes) {
  PullStatus status;
  PullStatus::TimePoint now{std::chrono::hours(1)};
  EXPECT_LE(status.NextReport(), now);
  status.Take(now);
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kSignOfLife);
  status.Succeeded({.applied = 2}, milliseconds(1), now);
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kInterval);
  status.Succeeded({.applied = 3, .duplicates = 1}, milliseconds(1), now);
  now += seconds(1);
  const StatusNumbers numbers = status.Take(now);
  EXPECT_EQ(numbers.applied, 5);
  EXPECT_EQ(numbers.duplicates, 1);
  status.NotStored("42P01");
  status.GaveUp();
  EXPECT_EQ(status.NextReport(), PullStatus::TimePoint::max());
}

TEST(PullStatusTest, AReportThatIsNotStoredIsDueAgainInASecond) {
  PullStatus status;
  const PullStatus::TimePoint now{std::chrono::hours(1)};
  status.Succeeded({.applied = 2}, milliseconds(1), now);
  status.Take(now);
  status.NotStored("");
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kInterval);
  // What was counted is in the next one.
  status.Succeeded({.applied = 6}, milliseconds(1), now);
  EXPECT_EQ(status.Take(now + seconds(1)).applied, 8);
  EXPECT_EQ(status.NextReport(), now + seconds(1) + ReportTimer::kSignOfLife);
}

TEST(PullStatusTest, ADatabaseWithoutAPlaceForReportsGetsNone) {
  for (const char* sqlstate : {"42P01", "42703"}) {
    PullStatus status;
    status.Take(PullStatus::TimePoint{std::chrono::hours(1)});
    status.NotStored(sqlstate);
    EXPECT_EQ(status.NextReport(), PullStatus::TimePoint::max()) << sqlstate;
  }
}

TEST(PullStatusTest, TheLastErrorQuotesNoMoreOfAnEventThanFiveHundredBytes) {
  PullStatus status;
  const PullStatus::TimePoint now{std::chrono::hours(1)};
  status.Failed(std::string(5000, 'x'), milliseconds(10), now);
  EXPECT_EQ(status.Take(now).last_error, std::string(497, 'x') + "...");
  status.AckFailed(std::string(5000, 'y'), now);
  EXPECT_EQ(status.Take(now).last_error, std::string(497, 'y') + "...");
  status.Failed(std::string(497, 'z'), milliseconds(10), now);
  EXPECT_EQ(status.Take(now).last_error, std::string(497, 'z'));
}

TEST(PullStatusTest, ItIsRetryingFromTheFirstFailureUntilASuccess) {
  PullStatus status;
  PullStatus::TimePoint now{std::chrono::hours(1)};
  status.Failed("first", milliseconds(100), now);
  now += seconds(2);
  status.Failed("second", milliseconds(400), now);
  now += seconds(1);
  StatusNumbers numbers = status.Take(now);
  EXPECT_EQ(numbers.failures, 2);
  EXPECT_EQ(numbers.retrying_for_ms, 3000);
  EXPECT_EQ(numbers.next_try_in_ms, -600);
  EXPECT_EQ(numbers.last_error_before_ms, 1000);
  EXPECT_EQ(numbers.last_error, "second");
  status.Succeeded({}, milliseconds(1), now);
  numbers = status.Take(now);
  EXPECT_EQ(numbers.retrying_for_ms, std::nullopt);
  EXPECT_EQ(numbers.last_error, "second");
}

TEST(PullStatusTest, WhatCouldNotBeConnectedIsOverWithTheConnectionAndWhatFailedBeforeIsNot) {
  PullStatus status;
  PullStatus::TimePoint now{std::chrono::hours(1)};
  status.ConnectFailed("too many clients", milliseconds(100), now);
  StatusNumbers numbers = status.Take(now);
  EXPECT_EQ(numbers.last_error, "no connection to the database: too many clients");
  EXPECT_EQ(numbers.retrying_for_ms, 0);
  status.Connected();
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kInterval);
  EXPECT_EQ(status.Take(now).retrying_for_ms, std::nullopt);
  status.Failed("locked", milliseconds(100), now);
  status.ConnectFailed("gone", milliseconds(100), now);
  status.Connected();
  EXPECT_EQ(status.Take(now).retrying_for_ms, 0);
}

TEST(PullStatusTest, AnAnswerThatDoesNotComeIsReportedUntilItComes) {
  PullStatus status;
  const PullStatus::TimePoint now{std::chrono::hours(1)};
  status.NoAnswer(std::nullopt);
  status.Take(now);
  const Unanswered unanswered{now - seconds(20), 17};
  status.NoAnswer(unanswered);
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kInterval);
  const StatusNumbers numbers = status.Take(now);
  EXPECT_EQ(numbers.unanswered_for_ms, 20000);
  EXPECT_EQ(numbers.unanswered_backend, 17);
  status.NoAnswer(unanswered);
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kSignOfLife) << "nothing has changed";
  status.NoAnswer(std::nullopt);
  EXPECT_EQ(status.Take(now).unanswered_for_ms, std::nullopt);
}

TEST(PullStatusTest, ARefusedAckIsTheLastErrorAndNoFailureOfEvents) {
  PullStatus status;
  const PullStatus::TimePoint now = std::chrono::steady_clock::now();
  status.Take(now);
  status.AckFailed("Acknowledge: PERMISSION_DENIED: no", now);
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kInterval);
  const StatusNumbers numbers = status.Take(now + seconds(1));
  EXPECT_EQ(numbers.last_error, "Acknowledge: PERMISSION_DENIED: no");
  EXPECT_EQ(numbers.last_error_before_ms, 1000);
  EXPECT_EQ(numbers.failures, 0);
  EXPECT_EQ(numbers.retrying_for_ms, std::nullopt);
}

TEST(PullStatusTest, TheStreamIsShownWithTheErrorThatEndedItUntilItIsConnectedAgain) {
  using Stream = PullStatus::Stream;
  PullStatus status;
  PullStatus::TimePoint now = std::chrono::steady_clock::now();
  EXPECT_EQ(status.Take(now).stream, "connecting");
  status.SetStreamState(Stream::kConnected, "", now);
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kInterval);
  EXPECT_EQ(status.Take(now).stream, "connected");
  status.SetStreamState(Stream::kReconnecting, "UNAVAILABLE: gone", now);
  now += seconds(5);
  status.SetStreamState(Stream::kReconnecting, "UNAVAILABLE: still gone", now);
  now += seconds(5);
  StatusNumbers numbers = status.Take(now);
  EXPECT_EQ(numbers.stream, "reconnecting");
  EXPECT_EQ(numbers.stream_error, "UNAVAILABLE: still gone");
  EXPECT_EQ(numbers.stream_for_ms, 10'000);
  status.SetStreamState(Stream::kReconnecting, "UNAVAILABLE: still gone", now);
  EXPECT_EQ(status.NextReport(), now + ReportTimer::kSignOfLife) << "it says nothing new";
  status.SetStreamState(Stream::kFailed, "PERMISSION_DENIED: no", now);
  EXPECT_EQ(status.Take(now).stream, "failed");
  status.SetStreamState(Stream::kConnected, "", now);
  numbers = status.Take(now);
  EXPECT_EQ(numbers.stream, "connected");
  EXPECT_EQ(numbers.stream_error, "");
}

}  // namespace
}  // namespace postbox::puller
