#include "worker/puller/sign_of_life.h"

#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using std::chrono::seconds;

TEST(SignOfLifeTest, SilenceBeginsWhenItIsAsked) {
  auto now = SignOfLife::TimePoint() + std::chrono::hours(1000);
  SignOfLife sign;
  EXPECT_EQ(sign.Silence(now), seconds(0));
  EXPECT_TRUE(sign.Ask(now));
  now += seconds(3);
  EXPECT_FALSE(sign.Ask(now)) << "it owes a sign";
  EXPECT_EQ(sign.Silence(now), seconds(3));
  sign.Given();
  EXPECT_EQ(sign.Silence(now), seconds(0));
}

TEST(SignOfLifeTest, TimeInWhichItIsNotAskedIsNoSilence) {
  auto now = SignOfLife::TimePoint() + std::chrono::hours(1000);
  SignOfLife sign;
  sign.Ask(now);
  sign.Given();
  now += std::chrono::minutes(2);  // the thread that asks has connected to the database
  EXPECT_TRUE(sign.Ask(now));
  EXPECT_EQ(sign.Silence(now), seconds(0));
  now += seconds(1);
  EXPECT_EQ(sign.Silence(now), seconds(1));
}

}  // namespace
}  // namespace postbox::puller
