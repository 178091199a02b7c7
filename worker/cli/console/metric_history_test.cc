#include "worker/cli/console/metric_history.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Optional;
using ::testing::SizeIs;

constexpr std::nullopt_t kGap = std::nullopt;
constexpr int64_t kStart = 1'800'000'000;  // the begin of a slot and of a coarse one
constexpr int kStep = MetricHistory::kStep;

size_t Series(const std::string& name) {
  const auto table = ChartSeriesTable();
  for (size_t i = 0; i < table.size(); ++i) {
    if (name == table[i].name) return i;
  }
  ADD_FAILURE() << name;
  return 0;
}

class MetricHistoryTest : public ::testing::Test {
 protected:
  MetricValue Value(const std::string& series, double value, const std::string& object = "videos",
                    const std::string& part = "") {
    return {Series(series), object, part, value};
  }
  // Of the step after the last one.
  void Sample(const std::vector<MetricValue>& values) {
    now_ += kStep;
    history_.Add(now_, values);
  }
  void Miss() { now_ += kStep; }
  // The last points of a line; none if there is no such line.
  std::vector<std::optional<double>> Last(const std::string& series, size_t points,
                                          const std::string& object = "videos", int range = 900) {
    for (const auto& line : history_.Read(now_, range).lines) {
      if (series != line.series->name || object != line.object) continue;
      return {line.values.end() - static_cast<std::ptrdiff_t>(points), line.values.end()};
    }
    return {};
  }

  MetricHistory history_;
  int64_t now_ = kStart - kStep;
};

TEST_F(MetricHistoryTest, ACounterBecomesARateAfterTheSecondSample) {
  Sample({Value("published", 1000)});
  EXPECT_THAT(Last("published", 1), IsEmpty());
  Sample({Value("published", 1030)});
  Sample({Value("published", 1030)});
  EXPECT_THAT(Last("published", 3), ElementsAre(kGap, 2, 0));
}

TEST_F(MetricHistoryTest, ACounterThatIsResetMakesAGapAndNoSpike) {
  Sample({Value("published", 1000)});
  Sample({Value("published", 1030)});
  Sample({Value("published", 15)});
  Sample({Value("published", 30)});
  EXPECT_THAT(Last("published", 3), ElementsAre(2, kGap, 1));
}

TEST_F(MetricHistoryTest, ACounterIsNotComparedWithOneOfAnotherServer) {
  Sample({Value("published", 1000)});
  Sample({Value("published", 1030)});
  history_.Forget();
  Sample({Value("published", 900'000)});
  Sample({Value("published", 900'015)});
  EXPECT_THAT(Last("published", 3), ElementsAre(2, kGap, 1));
}

TEST_F(MetricHistoryTest, AMissedSampleIsAGapAndWhatCameMeanwhileIsSpreadOverIt) {
  Sample({Value("published", 0), Value("pending", 7)});
  Sample({Value("published", 30), Value("pending", 8)});
  Miss();
  Sample({Value("published", 90), Value("pending", 9)});
  EXPECT_THAT(Last("published", 3), ElementsAre(2, kGap, 2));
  EXPECT_THAT(Last("pending", 4), ElementsAre(7, 8, kGap, 9));
}

TEST_F(MetricHistoryTest, AfterALongGapThereIsNoRate) {
  Sample({Value("published", 0)});
  Sample({Value("published", 30)});
  for (int i = 0; i < 4; ++i) Miss();
  Sample({Value("published", 900'000)});
  Sample({Value("published", 900'015)});
  EXPECT_THAT(Last("published", 3), ElementsAre(kGap, kGap, 1));
}

TEST_F(MetricHistoryTest, AKindOfErrorThatOccursForTheFirstTimeCountsFromZero) {
  Sample({Value("published", 1), Value("errors", 5, "videos", "ABORTED")});
  Sample({Value("published", 2), Value("errors", 20, "videos", "ABORTED"),
          Value("errors", 30, "videos", "UNAVAILABLE")});
  EXPECT_THAT(Last("errors", 1), ElementsAre(3));
}

TEST_F(MetricHistoryTest, AnObjectThatIsRenamedBeginsWithAGapAndNoSpike) {
  Sample({Value("applied", 900'000, "shop.inbox", "applied"), Value("published", 1)});
  Sample({Value("applied", 900'015, "shop.inbox", "applied"), Value("published", 1)});
  for (int i = 2; i <= 4; ++i) {
    Sample({Value("applied", 900'000 + 15 * i, "shop.orders", "applied"),
            Value("applied", 900'000, "shop.orders", "other"), Value("published", 1)});
  }
  EXPECT_THAT(Last("applied", 3, "shop.orders"), ElementsAre(kGap, 1, 1));
}

TEST_F(MetricHistoryTest, ACounterThatComesBackAfterItWasMissingMakesAGap) {
  Sample({Value("errors", 5), Value("pending", 1)});
  Sample({Value("errors", 5), Value("pending", 1)});
  Sample({Value("pending", 1)});
  Sample({Value("errors", 5000), Value("pending", 1)});
  Sample({Value("errors", 5015), Value("pending", 1)});
  EXPECT_THAT(Last("errors", 4), ElementsAre(0, kGap, kGap, 1));
}

TEST_F(MetricHistoryTest, ARateIsNotKnownIfAPartOfItIsNot) {
  Sample({Value("errors", 5, "videos", "A"), Value("errors", 5, "videos", "B")});
  Sample({Value("errors", 20, "videos", "A"), Value("errors", 1, "videos", "B")});
  Sample({Value("errors", 35, "videos", "A"), Value("errors", 16, "videos", "B")});
  EXPECT_THAT(Last("errors", 2), ElementsAre(kGap, 2));
}

TEST_F(MetricHistoryTest, SixHoursHaveAPointAMinuteTheMeanOfRatesAndTheLargestGauge) {
  Sample({Value("published", 0), Value("pending", 1)});
  for (const double total : {15.0, 45.0, 90.0}) {
    Sample({Value("published", total), Value("pending", total)});
  }
  now_ = kStart + 60;
  EXPECT_THAT(Last("published", 1, "videos", 21600), ElementsAre(2));
  EXPECT_THAT(Last("pending", 1, "videos", 21600), ElementsAre(90));
  EXPECT_EQ(history_.Read(now_, 21600).step, 60);
  EXPECT_THAT(history_.Read(now_, 21600).times, SizeIs(360));
  EXPECT_THAT(history_.Read(now_, 3600).times, SizeIs(240));
  EXPECT_THAT(history_.Read(now_, 900).times, SizeIs(60));
}

TEST_F(MetricHistoryTest, TheOldestPointsMakeRoom) {
  for (int i = 0; i <= 240; ++i) Sample({Value("pending", i)});
  const auto charts = history_.Read(now_, 3600);
  ASSERT_THAT(charts.lines, SizeIs(1));
  EXPECT_THAT(charts.lines[0].values.front(), Optional(1));
  EXPECT_THAT(charts.lines[0].values.back(), Optional(240));
  EXPECT_EQ(charts.times.back(), now_);
}

TEST_F(MetricHistoryTest, AnHourWithoutASampleIsEmptyAndWhatWasBeforeIsNotShownAgain) {
  for (int i = 0; i < 240; ++i) Sample({Value("pending", i)});
  now_ += 3600 + kStep;
  EXPECT_THAT(history_.Read(now_, 3600).lines, IsEmpty());
  Sample({Value("pending", 1)});
  EXPECT_THAT(Last("pending", 2, "videos", 3600), ElementsAre(kGap, 1));
  for (int i = 0; i < 6; ++i) {
    now_ += 3600;
    history_.Add(now_, {});
  }
  EXPECT_THAT(history_.Read(now_, 21600).lines, IsEmpty());
}

TEST_F(MetricHistoryTest, ManyObjectsShareOneLineAndOfAgesTheLargestCounts) {
  std::vector<MetricValue> values;
  for (int i = 0; i < 1000; ++i) {
    values.push_back(Value("pending", 1, "p" + std::to_string(i)));
    values.push_back(Value("oldest_ready", i, "p" + std::to_string(i)));
  }
  Sample(values);
  Sample(values);
  EXPECT_THAT(history_.Read(now_, 900).lines, SizeIs(2 * (MetricHistory::kMostObjects + 1)));
  EXPECT_THAT(Last("pending", 1, ""), ElementsAre(1000 - MetricHistory::kMostObjects));
  EXPECT_THAT(Last("oldest_ready", 1, ""), ElementsAre(999));
}

TEST_F(MetricHistoryTest, TheRateOfAPublicationIsThatOfTheLastMinute) {
  for (const double total : {0.0, 150.0, 150.0, 150.0, 150.0, 180.0}) {
    Sample({Value("published", total)});
  }
  EXPECT_THAT(history_.Rate(now_, "videos"), Optional(0.5));
  EXPECT_EQ(history_.Rate(now_, "others"), std::nullopt);
  EXPECT_EQ(history_.Rate(now_ + 120, "videos"), std::nullopt);
}

TEST_F(MetricHistoryTest, AProblemIsToldUntilThereIsASample) {
  EXPECT_NE(history_.Read(now_, 900).problem, "");
  history_.Fail("no connection");
  EXPECT_EQ(history_.Read(now_, 900).problem, "no connection");
  Sample({});
  EXPECT_EQ(history_.Read(now_, 900).problem, "");
}

TEST_F(MetricHistoryTest, AClockThatIsSetBackBeginsAgain) {
  Sample({Value("pending", 1)});
  now_ -= 7200;
  Sample({Value("pending", 2)});
  EXPECT_THAT(Last("pending", 2), ElementsAre(kGap, 2));
}

}  // namespace
}  // namespace postbox::cli
