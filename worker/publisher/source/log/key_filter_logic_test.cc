#include "worker/publisher/source/log/key_filter_logic.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

namespace postbox::publisher {
namespace {

std::string Key(int n) { return "key-" + std::to_string(n); }

TEST(KeyFilter, ForgetsNoKeyHoweverManyThereAre) {
  for (const std::size_t expected : {std::size_t{0}, std::size_t{1000}, std::size_t{100'000}}) {
    KeyFilter filter(expected);
    for (int n = 0; n < 100'000; ++n) filter.Add(Key(n));
    for (int n = 0; n < 100'000; ++n) ASSERT_TRUE(filter.MayHave(Key(n))) << n;
  }
}

TEST(KeyFilter, RarelyTakesAKeyForAnother) {
  KeyFilter filter(100'000);
  for (int n = 0; n < 100'000; ++n) filter.Add(Key(n));
  int taken = 0;
  for (int n = 100'000; n < 200'000; ++n) taken += filter.MayHave(Key(n)) ? 1 : 0;
  EXPECT_LT(taken, 20);
}

TEST(KeyFilter, HasNothingAtFirst) {
  const KeyFilter filter(1000);
  EXPECT_FALSE(filter.MayHave(""));
  EXPECT_FALSE(filter.MayHave("a"));
}

TEST(KeyFilter, TakesNoMoreThanItsMostForAHugeNumberOfKeys) {
  KeyFilter filter(std::numeric_limits<std::size_t>::max());
  filter.Add("a");
  EXPECT_TRUE(filter.MayHave("a"));
  EXPECT_FALSE(filter.MayHave("b"));
}

}  // namespace
}  // namespace postbox::publisher
