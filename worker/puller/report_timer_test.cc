#include "worker/puller/report_timer.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::seconds;

constexpr ReportTimer::TimePoint kFirstReport{std::chrono::hours(1)};

TEST(ReportTimerTest, WhatChangesIsReportedOnceASecondAndLifeEveryFiveMinutes) {
  ReportTimer timer;
  EXPECT_LE(timer.Next(), kFirstReport);
  timer.Reported(kFirstReport);
  EXPECT_EQ(timer.Next(), kFirstReport + ReportTimer::kSignOfLife);
  timer.Changed();
  EXPECT_EQ(timer.Next(), kFirstReport + ReportTimer::kInterval);
  timer.Disable();
  EXPECT_EQ(timer.Next(), ReportTimer::TimePoint::max());
}

TEST(ReportTimerTest, ReportsThatAreRefusedAreTriedAtGrowingIntervals) {
  ReportTimer timer;
  auto now = kFirstReport;
  for (const int pause : {1, 2, 4, 8, 16, 32, 60, 60}) {
    timer.Reported(now);
    timer.NotStored();
    timer.Changed();
    EXPECT_EQ(timer.Next(), now + seconds(pause)) << "whatever changes meanwhile";
    now = timer.Next();
  }
  timer.Reported(now);
  timer.Changed();
  EXPECT_EQ(timer.Next(), now + ReportTimer::kInterval) << "one was stored";
  timer.Reported(now);
  timer.NotStored();
  EXPECT_EQ(timer.Next(), now + ReportTimer::kInterval) << "it begins again";
}

}  // namespace
}  // namespace postbox::puller
