#include "worker/puller/consumer_health.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "worker/puller/attempt_counter.h"

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// Events of a type whose key is also their message id, as BatchApplier asks about them.
class ConsumerHealthTest : public ::testing::Test {
 protected:
  enum Fate { kRetried, kGivenUp, kHeld };

  Fate Fail(const std::string& key, const std::string& sqlstate = "42703",
            const std::string& type = "t") {
    const auto verdict =
        health_.Failed({.type = type, .key = key, .sqlstate = sqlstate, .error = "no"}, now_);
    if (verdict.suspended) return kHeld;
    const auto attempts =
        attempts_.Increment(key, /*own=*/true, now_, verdict.mark, verdict.counts_from);
    count_ = attempts.count;
    if (count_ < max_attempts_) return kRetried;
    return health_.IsEventsFault(verdict, attempts.previous, now_ - attempts.first) ? kGivenUp
                                                                                    : kRetried;
  }
  bool Apply(const std::string& type = "t") {
    return health_.Settled(type, /*effect=*/true, health_.Begin(), now_).has_value();
  }
  // Several keys fail until the type is suspended.
  void Break() {
    while (!health_.Suspended("t")) {
      for (int i = 0; i < 50; ++i) EXPECT_NE(Fail("key" + std::to_string(i)), kGivenUp);
      now_ += milliseconds(100);
    }
  }

  ConsumerHealth health_{{}};
  AttemptCounter attempts_;
  ConsumerHealth::TimePoint now_{std::chrono::hours(1)};
  int max_attempts_ = 5;
  int count_ = 0;
};

TEST_F(ConsumerHealthTest, APoisonousKeyAmongHealthyOnesHasItsAttempts) {
  for (int attempt = 1; attempt < 5; ++attempt) {
    EXPECT_EQ(Fail("poison"), kRetried);
    for (int i = 0; i < 100; ++i) Apply();
    now_ += seconds(1);
  }
  EXPECT_EQ(Fail("poison"), kGivenUp);
  EXPECT_EQ(count_, 5);
}

TEST_F(ConsumerHealthTest, WithOneAttemptAPoisonousKeyWaitsUntilAnotherOneIsApplied) {
  max_attempts_ = 1;
  Apply();
  EXPECT_EQ(Fail("poison"), kRetried);
  EXPECT_EQ(Fail("poison"), kRetried) << "nothing else was tried";
  Apply();
  EXPECT_EQ(Fail("poison"), kGivenUp);
}

TEST_F(ConsumerHealthTest, ATransactionThatBeganBeforeTheFailureProvesNothing) {
  max_attempts_ = 1;
  const auto begun = health_.Begin();
  EXPECT_EQ(Fail("first"), kRetried);
  health_.Settled("t", /*effect=*/true, begun, now_);
  EXPECT_EQ(Fail("first"), kRetried);
}

TEST_F(ConsumerHealthTest, DuplicatesAndStaleEventsProveNothing) {
  max_attempts_ = 1;
  EXPECT_EQ(Fail("first"), kRetried);
  health_.Settled("t", /*effect=*/false, health_.Begin(), now_);
  EXPECT_EQ(Fail("first"), kRetried);
}

TEST_F(ConsumerHealthTest, ALoneKeyIsGivenUpAfterItsTimeAndAttempts) {
  EXPECT_EQ(Fail("lone"), kRetried);
  now_ += ConsumerHealth::kEvidence;
  for (int attempt = 2; attempt < 5; ++attempt) EXPECT_EQ(Fail("lone"), kRetried);
  EXPECT_EQ(Fail("lone"), kGivenUp);
  max_attempts_ = 1;
  EXPECT_EQ(Fail("other"), kRetried);
  now_ += ConsumerHealth::kEvidence - milliseconds(1);
  EXPECT_EQ(Fail("other"), kRetried);
  now_ += milliseconds(1);
  EXPECT_EQ(Fail("other"), kGivenUp);
}

TEST_F(ConsumerHealthTest, TwoPoisonousKeysAmongHealthyOnesAreBothGivenUp) {
  max_attempts_ = 2;
  for (const char* key : {"one", "two"}) EXPECT_EQ(Fail(key), kRetried);
  now_ += seconds(2);
  Apply();
  for (const char* key : {"one", "two"}) EXPECT_EQ(Fail(key), kGivenUp);
  EXPECT_THAT(health_.Suspensions(), IsEmpty());
}

TEST_F(ConsumerHealthTest, ManyPoisonousKeysAmongHealthyOnesDoNotSuspendTheirType) {
  max_attempts_ = 3;
  int given_up = 0;
  for (int second = 0; second < 5; ++second) {
    for (int i = 0; i < 100; ++i) given_up += Fail("poison" + std::to_string(i)) == kGivenUp;
    for (int i = 0; i < 400; ++i) Apply();
    now_ += milliseconds(900);
  }
  EXPECT_THAT(health_.Suspensions(), IsEmpty());
  EXPECT_GT(given_up, 0);
}

TEST_F(ConsumerHealthTest, ABrokenConsumerIsSuspendedAndNoEventIsGivenUp) {
  for (const int most : {1, 5}) {
    max_attempts_ = most;
    Apply();
    const auto begin = now_;
    Break();
    EXPECT_EQ(now_ - begin, ConsumerHealth::kDoubt + milliseconds(100)) << most;
    now_ += std::chrono::hours(1);
    EXPECT_EQ(Fail("key0"), kHeld);
    EXPECT_TRUE(Apply());
  }
}

TEST_F(ConsumerHealthTest, DifferentErrorsAreNotOneCause) {
  for (int i = 0; i < 20; ++i) {
    EXPECT_NE(Fail("one", "22000"), kHeld);
    EXPECT_NE(Fail("two", "22001"), kHeld);
    EXPECT_NE(Fail("three", "22002"), kHeld);
    now_ += milliseconds(400);
  }
}

TEST_F(ConsumerHealthTest, OtherTypesAreIndependent) {
  Break();
  EXPECT_FALSE(health_.Suspended("other"));
  EXPECT_FALSE(Apply("other"));
  EXPECT_TRUE(health_.Suspended("t"));
  EXPECT_EQ(Fail("key", "42703", "other"), kRetried);
}

TEST_F(ConsumerHealthTest, ProbesComeAtGrowingPausesUntilOneSucceeds) {
  Break();
  now_ -= milliseconds(100);
  const auto begin = now_;
  std::vector<milliseconds> probes;
  for (int i = 0; i < 4; ++i) {
    now_ = health_.NextProbe("t");
    EXPECT_TRUE(health_.TakeProbe("t", now_));
    EXPECT_FALSE(health_.TakeProbe("t", now_)) << "one at a time";
    EXPECT_EQ(Fail("key" + std::to_string(i)), kHeld);
    EXPECT_EQ(Fail("late"), kHeld) << "of a transaction that had begun before";
    probes.push_back(std::chrono::duration_cast<milliseconds>(now_ - begin));
  }
  EXPECT_THAT(probes, ::testing::ElementsAre(milliseconds(1000), milliseconds(3000),
                                             milliseconds(6000), milliseconds(9000)));
  now_ = health_.NextProbe("t");
  EXPECT_TRUE(health_.TakeProbe("t", now_));
  EXPECT_TRUE(Apply());
  EXPECT_FALSE(health_.Suspended("t"));
  EXPECT_LT(health_.NextProbe("t"), now_);
}

TEST_F(ConsumerHealthTest, AProbeWithoutAResultIsRepeated) {
  Break();
  now_ = health_.NextProbe("t");
  EXPECT_TRUE(health_.TakeProbe("t", now_));
  now_ = health_.NextProbe("t");
  EXPECT_TRUE(health_.TakeProbe("t", now_));
  // This one was a duplicate.
  health_.Settled("t", /*effect=*/false, health_.Begin(), now_);
  EXPECT_TRUE(health_.TakeProbe("t", now_));
}

TEST_F(ConsumerHealthTest, AnEffectOfBeforeDoesNotEndTheSuspension) {
  const auto begun = health_.Begin();
  Break();
  EXPECT_FALSE(health_.Settled("t", /*effect=*/true, begun, now_).has_value());
  EXPECT_TRUE(health_.Suspended("t"));
}

TEST_F(ConsumerHealthTest, AfterTheRepairAPoisonousKeyHasAllItsAttempts) {
  max_attempts_ = 3;
  Break();
  now_ += std::chrono::minutes(1);
  EXPECT_TRUE(Apply());
  for (const Fate fate : {kRetried, kRetried, kGivenUp}) {
    EXPECT_EQ(Fail("key7", "22000"), fate);
    Apply();
  }
}

TEST_F(ConsumerHealthTest, ItRemembersABoundedNumberOfTypesAndNoSuspendedOneIsForgotten) {
  Break();
  for (int i = 0; i < 3000; ++i) Fail("key", "22000", "type" + std::to_string(i));
  EXPECT_TRUE(health_.Suspended("t"));
  for (int i = 0; i < 3000; ++i) {
    Apply("type" + std::to_string(i));
  }
  Apply();
  EXPECT_THAT(health_.Suspensions(), IsEmpty());
  const std::string longest(ConsumerHealth::kLongestName, 'x');
  for (int i = 0; i < 20; ++i) {
    for (const char* key : {"a", "b", "c"}) Fail(key, "22000", longest + 'x');
    for (const char* key : {"a", "b", "c"}) Fail(longest + key, "22000", longest);
    now_ += milliseconds(100);
  }
  EXPECT_THAT(health_.Suspensions(), IsEmpty());
}

TEST_F(ConsumerHealthTest, TheReportHasTheLastErrorAndTheOldestSuspensionFirst) {
  Break();
  for (int i = 0; i < 20; ++i) {
    for (const char* key : {"a", "b", "c"}) Fail(key, "23503", "earlier in the alphabet");
    now_ += milliseconds(100);
  }
  Fail("key1", "42501");
  const auto suspensions = health_.Suspensions();
  ASSERT_THAT(suspensions, SizeIs(2));
  EXPECT_EQ(suspensions[0].type, "t");
  EXPECT_EQ(suspensions[0].sqlstate, "42501");
  EXPECT_LT(suspensions[0].since, suspensions[1].since);
}

}  // namespace
}  // namespace postbox::puller
