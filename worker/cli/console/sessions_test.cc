#include "worker/cli/console/sessions.h"

#include <gtest/gtest.h>

namespace postbox::cli {
namespace {

using std::chrono::seconds;

class SessionsTest : public ::testing::Test {
 protected:
  std::optional<std::string> Begin() {
    return sessions_.Begin(std::make_shared<Session>("ops", nullptr), now_);
  }
  bool Lives(const std::string& token) { return sessions_.Find(token, now_) != nullptr; }
  void Turn(seconds time) { now_ += time; }

  Sessions sessions_{{.most = 2, .idle = seconds(100), .longest = seconds(1000)}};
  Sessions::Clock::time_point now_;
};

TEST_F(SessionsTest, ATokenFindsItsSessionAndNoOther) {
  const std::string one = Begin().value();
  const std::string other = Begin().value();
  EXPECT_NE(one, other);
  EXPECT_NE(sessions_.Find(one, now_), sessions_.Find(other, now_));
  EXPECT_NE(sessions_.Find(one, now_)->csrf(), sessions_.Find(other, now_)->csrf());
  EXPECT_FALSE(Lives(""));
  EXPECT_FALSE(Lives(one.substr(1)));
}

TEST_F(SessionsTest, ASessionEndsWhenItWasNotUsedForTheIdleTime) {
  const std::string token = Begin().value();
  Turn(seconds(99));
  EXPECT_TRUE(Lives(token));
  Turn(seconds(99));
  EXPECT_TRUE(Lives(token)) << "it was used";
  Turn(seconds(100));
  EXPECT_FALSE(Lives(token));
}

TEST_F(SessionsTest, ASessionEndsAfterItsLongestLifeHoweverMuchItIsUsed) {
  const std::string token = Begin().value();
  for (int i = 0; i < 19; ++i) {
    Turn(seconds(50));
    EXPECT_TRUE(Lives(token));
  }
  Turn(seconds(50));
  EXPECT_FALSE(Lives(token));
}

TEST_F(SessionsTest, ThereIsAMostAndOneThatHasEndedMakesRoom) {
  const std::string token = Begin().value();
  Begin();
  EXPECT_FALSE(sessions_.HasRoom(now_));
  EXPECT_EQ(Begin(), std::nullopt);
  EXPECT_TRUE(Lives(token)) << "a log-in takes no place of another session";
  sessions_.End(token);
  EXPECT_FALSE(Lives(token));
  EXPECT_TRUE(Begin().has_value());
  Turn(seconds(100));
  EXPECT_TRUE(sessions_.HasRoom(now_));
  EXPECT_EQ(sessions_.EndOld(now_), 0u);
}

TEST_F(SessionsTest, ARoleLeavesRoomForOthers) {
  Sessions sessions({.most = 4, .most_of_role = 2});
  const auto begin = [&](const char* role) {
    return sessions.Begin(std::make_shared<Session>(role, nullptr), now_);
  };
  const auto first = begin("stranger");
  EXPECT_TRUE(begin("stranger").has_value());
  EXPECT_FALSE(begin("stranger").has_value());
  EXPECT_TRUE(begin("ops").has_value());
  sessions.End(first.value());
  EXPECT_TRUE(begin("stranger").has_value());
}

TEST_F(SessionsTest, ASessionHasALimitOfRequestsAtOnce) {
  Session session("ops", nullptr);
  std::vector<std::unique_ptr<Session::Use>> uses;
  for (int i = 0; i < Session::kMostRequests; ++i) {
    uses.push_back(std::make_unique<Session::Use>(&session));
    EXPECT_TRUE(uses.back()->allowed());
  }
  EXPECT_FALSE(Session::Use(&session).allowed());
  uses.pop_back();
  EXPECT_TRUE(Session::Use(&session).allowed());
}

}  // namespace
}  // namespace postbox::cli
