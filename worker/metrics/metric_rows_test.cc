#include "worker/metrics/metric_rows.h"

#include <gtest/gtest.h>

#include <cmath>

namespace postbox::metrics {
namespace {

TEST(MetricRowsTest, RowsOfAFamilyStandTogetherUnderItsHelpAndType) {
  const std::string text = MetricsText(FamiliesOf({
      {"sent_total", "counter", "What was sent.", {{"topic", "a"}}, 3},
      {"pending", "gauge", "What waits.", {}, 0.5},
      {"sent_total", "counter", "What was sent.", {{"topic", "b"}}, 4},
  }));
  EXPECT_EQ(text,
            "# HELP sent_total What was sent.\n# TYPE sent_total counter\n"
            "sent_total{topic=\"a\"} 3\nsent_total{topic=\"b\"} 4\n"
            "# HELP pending What waits.\n# TYPE pending gauge\npending 0.5\n");
}

TEST(MetricRowsTest, AHistogramIsGatheredFromItsRowsInAnyOrder) {
  const std::string text = MetricsText(FamiliesOf({
      {"took_seconds_count", "histogram", "Time.", {{"topic", "a"}}, 3},
      {"took_seconds_bucket", "histogram", "Time.", {{"le", "+Inf"}, {"topic", "a"}}, 3},
      {"took_seconds_bucket", "histogram", "Time.", {{"le", "0.5"}, {"topic", "a"}}, 1},
      {"took_seconds_sum", "histogram", "Time.", {{"topic", "a"}}, 2.25},
  }));
  EXPECT_EQ(text,
            "# HELP took_seconds Time.\n# TYPE took_seconds histogram\n"
            "took_seconds_count{topic=\"a\"} 3\ntook_seconds_sum{topic=\"a\"} 2.25\n"
            "took_seconds_bucket{topic=\"a\",le=\"0.5\"} 1\n"
            "took_seconds_bucket{topic=\"a\",le=\"+Inf\"} 3\n");
}

TEST(MetricRowsTest, TheCountOfAHistogramIsThatOfItsLastBucketWhateverIsCountedMeanwhile) {
  const std::string text = MetricsText(FamiliesOf({
      {"took_seconds_bucket", "histogram", "Time.", {{"le", "0.5"}}, 1},
      {"took_seconds_bucket", "histogram", "Time.", {{"le", "+Inf"}}, 3},
      {"took_seconds_sum", "histogram", "Time.", {}, 2.25},
      {"took_seconds_count", "histogram", "Time.", {}, 4},
  }));
  EXPECT_NE(text.find("took_seconds_count 3\n"), std::string::npos) << text;
  EXPECT_NE(text.find("took_seconds_bucket{le=\"+Inf\"} 3\n"), std::string::npos) << text;
}

TEST(MetricRowsTest, WhatALabelHasIsEscaped) {
  const std::string text =
      MetricsText(FamiliesOf({{"n", "gauge", "H.", {{"name", "a\"b\\c\nd"}}, NAN}}));
  EXPECT_NE(text.find("n{name=\"a\\\"b\\\\c\\nd\"} Nan"), std::string::npos) << text;
}

}  // namespace
}  // namespace postbox::metrics
