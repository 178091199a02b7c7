#include "worker/cli/console/confirmation.h"

#include <gtest/gtest.h>

namespace postbox::cli {
namespace {

TEST(ConfirmationTest, ATokenGivesItsOrderBack) {
  const Confirmations confirmations("key");
  const Confirmations::Clock::time_point now{std::chrono::hours(5)};
  const std::string token = confirmations.Issue(R"({"count":3,"a.b":"."})", now);
  EXPECT_EQ(confirmations.Open(token, now), R"({"count":3,"a.b":"."})");
}

TEST(ConfirmationTest, ATokenOfAnotherSessionOrWithAnotherOrderIsNone) {
  const Confirmations confirmations("key");
  const Confirmations::Clock::time_point now{std::chrono::hours(5)};
  const std::string token = confirmations.Issue("3", now);
  EXPECT_EQ(Confirmations("other").Open(token, now), std::nullopt);
  EXPECT_EQ(confirmations.Open(token + "0", now), std::nullopt);
  EXPECT_EQ(confirmations.Open("", now), std::nullopt);
  EXPECT_EQ(confirmations.Open(".", now), std::nullopt);
  EXPECT_EQ(confirmations.Open("3", now), std::nullopt);
}

TEST(ConfirmationTest, ATokenExpires) {
  const Confirmations confirmations("key");
  const Confirmations::Clock::time_point now{std::chrono::hours(5)};
  const std::string token = confirmations.Issue("3", now);
  using std::chrono::seconds;
  EXPECT_EQ(confirmations.Open(token, now + Confirmations::kLife - seconds(1)), "3");
  EXPECT_EQ(confirmations.Open(token, now + Confirmations::kLife), std::nullopt);
}

}  // namespace
}  // namespace postbox::cli
