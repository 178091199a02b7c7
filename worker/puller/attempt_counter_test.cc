#include "worker/puller/attempt_counter.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

TEST(AttemptCounterTest, AMessageThatFailsAgainAfterItWasForgottenIsTheLatest) {
  AttemptCounter counter(2);
  const AttemptCounter::TimePoint now;
  counter.Increment("a", true, now);
  counter.Forget("a");
  counter.Increment("b", true, now);
  EXPECT_EQ(counter.Increment("a", true, now).count, 1);
  EXPECT_EQ(counter.Increment("a", true, now).count, 2);
  EXPECT_EQ(counter.Increment("b", true, now).count, 2);
  counter.Increment("c", true, now);
  EXPECT_FALSE(counter.Known("b"));
  EXPECT_TRUE(counter.Known("a"));
}

TEST(AttemptCounterTest, CountsPerMessageAndKindAndForgetsTheOldest) {
  AttemptCounter counter(2);
  const AttemptCounter::TimePoint now;
  const auto count = [&](const char* id, bool own = true) {
    return counter.Increment(id, own, now).count;
  };
  EXPECT_EQ(count("a"), 1);
  EXPECT_EQ(count("a"), 2);
  EXPECT_EQ(count("a", false), 1);
  EXPECT_EQ(count("b"), 1);
  EXPECT_EQ(count("c"), 1);
  EXPECT_FALSE(counter.Known("a"));
  EXPECT_EQ(count("a"), 1);
  counter.Forget("c");
  EXPECT_EQ(count("c"), 1);
}

}  // namespace
}  // namespace postbox::puller
