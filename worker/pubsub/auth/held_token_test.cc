#include "worker/pubsub/auth/held_token.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>

#include "proto/rules/error_class.h"

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// Both clocks go on together.
struct Holding {
  void SetToken(const std::string& text) {
    token.SetToken({text, wall + seconds(1000), ""}, now, wall);
  }
  Authorization Get() { return token.Get(now, wall); }
  bool MustFetch() const { return token.MustFetch(now, wall); }
  void Pass(milliseconds time) {
    now += time;
    wall += time;
  }

  HeldToken::TimePoint now{seconds(5000)};
  HeldToken::WallTime wall{seconds(1'000'000)};
  HeldToken token;
};

TEST(HeldToken, InTheLastTenthOfItsLifeATokenIsReplacedOnlyIfItIsWanted) {
  Holding holding;
  EXPECT_TRUE(holding.MustFetch()) << "the first one is fetched unasked";
  EXPECT_EQ(holding.Get().header, "");
  holding.SetToken("t1");
  holding.Pass(seconds(899));
  EXPECT_EQ(holding.Get().header, "Bearer t1");
  EXPECT_FALSE(holding.token.wanted());
  EXPECT_EQ(holding.token.NextFetch(holding.now), holding.now + HeldToken::kIdle);
  holding.Pass(seconds(1));
  EXPECT_FALSE(holding.MustFetch()) << "no call has asked";
  EXPECT_EQ(holding.Get().header, "Bearer t1") << "it is used meanwhile";
  EXPECT_TRUE(holding.MustFetch());
  holding.Pass(seconds(100));
  EXPECT_EQ(holding.Get().header, "") << "it has ended";
}

TEST(HeldToken, AFailureIsToldAtOnceUntilItsBackoffIsOver) {
  for (const bool passes : {true, false}) {
    Holding holding;
    holding.token.SetFailure({"no\nway", passes}, holding.now);
    EXPECT_EQ(holding.token.state().last_error, "no?way");
    const Authorization answer = holding.Get();
    EXPECT_EQ(answer.code, passes ? kUnavailable : kUnauthenticated);
    EXPECT_EQ(answer.error, "no access token: no\nway");
    EXPECT_TRUE(holding.token.wanted());
    EXPECT_FALSE(holding.MustFetch());
    holding.now = holding.token.NextFetch(holding.now);
    EXPECT_TRUE(holding.MustFetch());
    EXPECT_EQ(holding.Get().code, kOk) << "wait for it";
    holding.SetToken("t1");
    EXPECT_EQ(holding.Get().header, "Bearer t1");
    EXPECT_EQ(holding.token.state().last_error, "");
  }
}

TEST(HeldToken, ATokenThatIsRefusedIsThrownAwayOnceASecond) {
  Holding holding;
  holding.SetToken("t1");
  EXPECT_TRUE(holding.token.Reject("Bearer t1", "refused", holding.now));
  EXPECT_TRUE(holding.MustFetch());
  holding.SetToken("t2");
  EXPECT_EQ(holding.token.state().last_error, "refused") << "until one is taken";
  EXPECT_TRUE(holding.token.Reject("Bearer t1", "refused", holding.now)) << "it is another one";
  EXPECT_FALSE(holding.token.Reject("Bearer t2", "refused", holding.now));
  EXPECT_EQ(holding.Get().header, "Bearer t2");
  holding.token.Accepted();
  EXPECT_EQ(holding.token.state().last_error, "");
  holding.Pass(HeldToken::kRejectInterval);
  EXPECT_TRUE(holding.token.Reject("Bearer t2", "refused", holding.now));
  EXPECT_EQ(holding.Get().header, "");
}

}  // namespace
}  // namespace postbox::pubsub
