#include "worker/cli/console/login_limit.h"

#include <gtest/gtest.h>

namespace postbox::cli {
namespace {

using std::chrono::seconds;

class LoginLimitTest : public ::testing::Test {
 protected:
  seconds Try(const std::string& address = "a") { return limit_.Try(address, now_); }
  void Turn(seconds time) { now_ += time; }

  LoginLimit limit_;
  LoginLimit::Clock::time_point now_;
};

TEST_F(LoginLimitTest, AfterAFewFailuresAnAddressWaitsTwiceAsLongEachTime) {
  for (int i = 0; i < LoginLimit::kFree; ++i) EXPECT_EQ(Try(), seconds(0));
  for (int expected = 1; expected <= 32; expected *= 2) {
    EXPECT_EQ(Try(), seconds(expected));
    Turn(seconds(expected - 1));
    EXPECT_EQ(Try(), seconds(1));
    Turn(seconds(1));
    EXPECT_EQ(Try(), seconds(0));
  }
  EXPECT_EQ(Try(), LoginLimit::kLongestWait);
}

TEST_F(LoginLimitTest, AnotherAddressDoesNotWait) {
  for (int i = 0; i < LoginLimit::kFree; ++i) Try();
  EXPECT_GT(Try(), seconds(0));
  EXPECT_EQ(Try("b"), seconds(0));
}

TEST_F(LoginLimitTest, ASuccessEndsTheWaits) {
  for (int i = 0; i < LoginLimit::kFree; ++i) Try();
  Turn(seconds(1));
  EXPECT_EQ(Try(), seconds(0));
  limit_.Succeeded("a");
  EXPECT_EQ(Try(), seconds(0));
  EXPECT_EQ(Try(), seconds(0));
}

TEST_F(LoginLimitTest, ManyAddressesTogetherHaveALimit) {
  for (std::size_t i = 0; i < LoginLimit::kMostOfAll; ++i) {
    EXPECT_EQ(Try(std::to_string(i)), seconds(0));
  }
  EXPECT_EQ(Try("another"), LoginLimit::kWindow);
  Turn(LoginLimit::kWindow);
  EXPECT_EQ(Try("another"), seconds(0));
}

TEST_F(LoginLimitTest, AnAddressIsForgotten) {
  for (int i = 0; i < LoginLimit::kFree; ++i) Try();
  Turn(LoginLimit::kForget);
  for (int i = 0; i < LoginLimit::kFree; ++i) EXPECT_EQ(Try(), seconds(0));
}

}  // namespace
}  // namespace postbox::cli
