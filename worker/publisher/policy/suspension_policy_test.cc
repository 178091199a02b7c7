#include "worker/publisher/policy/suspension_policy.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

using namespace std::chrono_literals;
using Results = SuspensionPolicy::Results;
using Verdict = SuspensionPolicy::Verdict;
using Failure = Results::Failure;

constexpr Results kPublished{Failure::kNone, 10, 0};
constexpr Results kBroken{Failure::kBroken, 0, 0};
constexpr Results kUnanswered{Failure::kUnanswered, 0, 0};
constexpr Results Refused(std::size_t events) { return {Failure::kNone, 0, events}; }

// A publication of which an event is attempted up to three times, after 1 s and 2 s; so a topic
// that refuses everything has about 3 s.
class SuspensionPolicyTest : public ::testing::Test {
 protected:
  // Results that are stored, with what they do to the publication.
  Verdict Settle(const Results& results, bool lost = false) {
    const Verdict verdict = policy_.Judge(now_, results);
    const bool recovers = policy_.Recovers(verdict, results) && !lost;
    if (SuspensionPolicy::Suspends(verdict)) {
      if (failures_++ == 0) since_ = now_;
      retry_at_ = After(now_, 1s);
    } else if (recovers) {
      failures_ = 0;
      retry_at_ = 0;
    }
    policy_.Settled(now_, verdict, results, lost);
    return verdict;
  }
  // The next claim, when the suspension is over.
  std::size_t Claim(std::size_t batch = 1000) {
    now_ = std::max(now_, retry_at_);
    policy_.Read(failures_, 0, since_);
    policy_.Claimed(now_, TimeScale());
    return policy_.Most(now_, batch);
  }

  SuspensionPolicy policy_{3, {1s, 2.0, 10s}};
  Moment now_ = 1'000'000'000;
  int failures_ = 0;
  Moment retry_at_ = 0, since_ = 0;
};

// As those of expired events at the front.
TEST_F(SuspensionPolicyTest, ProbesThatWereNotSentMakeRoomForABatchAtOnce) {
  Settle(kBroken);
  EXPECT_EQ(Claim(), SuspensionPolicy::kProbeEvents);
  const Results unsent{Failure::kNone, 0, 0, 1};
  EXPECT_EQ(Settle(unsent), Verdict::kNone);
  EXPECT_EQ(failures_, 1) << "it is suspended as before";
  EXPECT_EQ(policy_.retry_at(), 0);
  EXPECT_EQ(Claim(), 1000U);
  Settle({Failure::kNone, 0, 0, 1000});
  EXPECT_EQ(Claim(), 1000U);
  Settle({Failure::kBroken, 0, 0, 10});
  EXPECT_EQ(Claim(), SuspensionPolicy::kProbeEvents);
}

TEST_F(SuspensionPolicyTest, WhatResultsSayOfATopic) {
  struct Case {
    const char* what;
    bool published;  // before
    Results results;
    Verdict verdict;
  };
  const std::vector<Case> cases = {
      {"all published", false, kPublished, Verdict::kNone},
      {"the topic is missing", true, kBroken, Verdict::kBroken},
      {"no answer", true, kUnanswered, Verdict::kUnanswered},
      {"no answer for some of them", true, {Failure::kUnanswered, 5, 0}, Verdict::kUnanswered},
      {"the topic is missing, and one was refused",
       false,
       {Failure::kBroken, 0, 1},
       Verdict::kBroken},
      {"one of a proven topic is refused", true, Refused(1), Verdict::kNone},
      {"99 of a proven topic are refused", true, Refused(99), Verdict::kNone},
      {"100 of a proven topic are refused", true, Refused(100), Verdict::kRefuses},
      {"some are refused", false, {Failure::kNone, 1, 50}, Verdict::kNone},
      {"a single first event is refused", false, Refused(1), Verdict::kNone},
      {"all first events are refused", false, Refused(2), Verdict::kRefuses},
      {"given back behind another message", false, Refused(0), Verdict::kNone},
  };
  for (const Case& one : cases) {
    SCOPED_TRACE(one.what);
    policy_ = SuspensionPolicy(3, {1s, 2.0, 10s});
    if (one.published) Settle(kPublished);
    EXPECT_EQ(policy_.Judge(now_, one.results), one.verdict);
  }
}

TEST_F(SuspensionPolicyTest, ABrokenTopicIsTriedWithOneEvent) {
  EXPECT_EQ(Claim(), 1000U);
  EXPECT_EQ(Settle(kBroken), Verdict::kBroken);
  EXPECT_EQ(Claim(), 1U);
  EXPECT_EQ(Settle(kBroken), Verdict::kBroken);
  EXPECT_EQ(Claim(), 1U);
  EXPECT_EQ(Settle({Failure::kNone, 1, 0}), Verdict::kNone);
  EXPECT_EQ(failures_, 0);
  EXPECT_FALSE(policy_.failing()) << "also before it is read again";
  EXPECT_EQ(Claim(), 1000U);
}

TEST_F(SuspensionPolicyTest, AProbeThatIsRefusedDecidesNothingAndABatchTells) {
  Settle(kBroken);
  EXPECT_EQ(Claim(), 1U);
  EXPECT_EQ(Settle(Refused(1)), Verdict::kUndecided);
  EXPECT_EQ(Claim(), 1000U);
  EXPECT_EQ(Settle({Failure::kNone, 999, 1}), Verdict::kNone) << "it was the event's own fault";
  EXPECT_EQ(failures_, 0);
}

TEST_F(SuspensionPolicyTest, ATopicThatRefusesEverythingIsProbedUntilItsEventsWouldHaveFailed) {
  Settle(kPublished);
  Claim();
  EXPECT_EQ(Settle(Refused(1000)), Verdict::kRefuses);
  const Moment begin = now_;
  EXPECT_EQ(Claim(), 1U);
  EXPECT_EQ(Settle(Refused(1)), Verdict::kRefuses);
  while (Claim() == 1U) {
    ASSERT_LT(Between(begin, now_), 1min);
    EXPECT_EQ(Settle(Refused(1)), Verdict::kRefuses);
  }
  EXPECT_GE(Between(begin, now_), 2250ms) << "1 s and 2 s, with half of the jitter";
  EXPECT_LE(Between(begin, now_), 4s);
  EXPECT_EQ(Settle(Refused(1000)), Verdict::kSettleEach);
  EXPECT_EQ(failures_, 0);
  EXPECT_EQ(Claim(), 1000U) << "the next batch is tried at once";
}

TEST_F(SuspensionPolicyTest, WithOneAttemptEachEventIsToBlameAtOnce) {
  policy_ = SuspensionPolicy(1, {1s, 2.0, 10s});
  Claim();
  EXPECT_EQ(Settle(Refused(500)), Verdict::kSettleEach);
}

TEST_F(SuspensionPolicyTest, ManyAttemptsAreNoEndlessSum) {
  policy_ = SuspensionPolicy(1'000'000, {1s, 2.0, 10s});
  Claim();
  EXPECT_EQ(Settle(Refused(500)), Verdict::kRefuses);
  now_ = After(now_, 100 * 24h);
  EXPECT_EQ(Claim(), 1U);
  now_ = After(now_, 20 * 24h);
  EXPECT_EQ(Claim(), 1000U);
}

TEST_F(SuspensionPolicyTest, UntilAnEventHasGoneThroughRefusedOnesWaitForTheRest) {
  EXPECT_TRUE(policy_.Waits(Refused(1), 5));
  EXPECT_FALSE(policy_.Waits(Refused(1), 0));
  EXPECT_FALSE(policy_.Waits({Failure::kNone, 1, 1}, 5));
  EXPECT_FALSE(policy_.Waits(kBroken, 5));
  Settle(kPublished);
  EXPECT_FALSE(policy_.Waits(Refused(1), 5));
}

TEST_F(SuspensionPolicyTest, UntilAnEventHasGoneThroughABatchKeepsTheNextOneBackForAMoment) {
  Claim();
  EXPECT_EQ(policy_.ClaimAt(0), 0);
  EXPECT_EQ(policy_.ClaimAt(1), After(now_, 200ms));
  Settle(kPublished);
  EXPECT_EQ(policy_.ClaimAt(1), 0);
  Settle(kBroken);
  Claim();
  EXPECT_EQ(policy_.ClaimAt(1), After(now_, 5s)) << "a probe may have met a lost connection";
}

TEST_F(SuspensionPolicyTest, RefusedEventsMakeTheFirstBatchesSmall) {
  EXPECT_EQ(policy_.FirstEvents(true), 500U);
  Settle(Refused(1));
  EXPECT_EQ(policy_.FirstEvents(true), 50U);
  EXPECT_EQ(policy_.FirstEvents(false), 500U);
  Settle(kPublished);
  EXPECT_EQ(policy_.FirstEvents(true), 500U);
}

TEST_F(SuspensionPolicyTest, AHundredRefusedEventsInARowMakeATopicUnproven) {
  Settle(kPublished);
  for (int i = 0; i < 99; ++i) Settle(Refused(1));
  EXPECT_TRUE(policy_.has_published());
  Settle(kPublished);
  for (int i = 0; i < 99; ++i) Settle(Refused(1));
  EXPECT_TRUE(policy_.has_published());
  Settle(Refused(1));
  EXPECT_FALSE(policy_.has_published());
  EXPECT_TRUE(policy_.refuses_many());
}

TEST_F(SuspensionPolicyTest, ResultsOfASourceThatWasRolledBackEndNoSuspension) {
  Settle(kBroken);
  Claim();
  Settle({Failure::kNone, 1, 0}, true);
  EXPECT_TRUE(policy_.failing());
}

TEST_F(SuspensionPolicyTest, WhatIsBehindALostMessageIsNotTriedAtOnce) {
  Settle(kUnanswered);
  Claim();
  Settle(Refused(0));
  EXPECT_EQ(policy_.retry_at(), After(now_, 200ms));
}

TEST_F(SuspensionPolicyTest, AClaimIsNotMadeLargerByAProbe) {
  Settle(kBroken);
  now_ = retry_at_;
  policy_.Read(failures_, 0, since_);
  EXPECT_EQ(policy_.Most(now_, 0), 0U);
}

TEST_F(SuspensionPolicyTest, ASuspensionThatEndedElsewhereIsForgotten) {
  Settle(kBroken);
  Claim();
  Settle(Refused(1));  // now a batch would be tried
  policy_.Read(0, 0, 0);
  policy_.Read(1, 0, now_);
  EXPECT_EQ(policy_.Most(now_, 1000), 1U);
}

TEST_F(SuspensionPolicyTest, APublishedEventEndsTheSearchForABatchAlsoOfASourceThatWasRolledBack) {
  Settle(kBroken);
  Claim();
  Settle(Refused(1));
  Claim();
  Settle({Failure::kNone, 1, 0}, true);
  EXPECT_EQ(policy_.Most(now_, 1000), 1U);
}

TEST_F(SuspensionPolicyTest, ABatchWaitsForTheSuspensionAndForTheOneBefore) {
  Settle(kBroken);
  policy_.Read(failures_, After(now_, 10s), since_);
  policy_.Claimed(now_, TimeScale());
  EXPECT_EQ(policy_.ClaimAt(1), After(now_, 10s));
  policy_.Claimed(now_, {10});
  policy_.Postpone(0);
  EXPECT_EQ(policy_.ClaimAt(1), After(now_, 500ms)) << "the patience follows the scale of time";
}

TEST_F(SuspensionPolicyTest, AFailureAddsNothingToThoseThatAreStored) {
  policy_.Read(7, 0, now_);
  policy_.Fail(0);
  policy_.Read(0, 0, 0);
  EXPECT_FALSE(policy_.failing());
}

TEST_F(SuspensionPolicyTest, ASecondSingleRefusedEventMakesNoTopicRefuse) {
  Settle(Refused(1));
  EXPECT_EQ(policy_.Judge(now_, Refused(1)), Verdict::kNone);
  Settle(Refused(1));
  EXPECT_EQ(policy_.Judge(now_, Refused(1)), Verdict::kRefuses) << "the third in a row does";
}

TEST_F(SuspensionPolicyTest, BackoffsFollowThePublicationAndTheScale) {
  using Policy = pubsub::BackoffPolicy;
  EXPECT_EQ(policy_.BackoffFor(Verdict::kBroken, {}), (Policy{1s, 2.0, 4s}));
  EXPECT_EQ(policy_.BackoffFor(Verdict::kRefuses, {}), (Policy{1s, 2.0, 4s}));
  EXPECT_EQ(policy_.BackoffFor(Verdict::kUnanswered, {}), (Policy{500ms, 2.0, 1s}));
  EXPECT_EQ(policy_.BackoffFor(Verdict::kBroken, {10}), (Policy{100ms, 2.0, 400ms}));
  policy_ = SuspensionPolicy(3, {50ms, 2.0, 2s});
  EXPECT_EQ(policy_.BackoffFor(Verdict::kBroken, {}), (Policy{50ms, 2.0, 2s}));
}

TEST_F(SuspensionPolicyTest, AFailureOfAnotherKindCountsUntilAClaimReadsWhatIsStored) {
  policy_.Fail(After(now_, 3s));
  EXPECT_TRUE(policy_.failing());
  EXPECT_EQ(policy_.ClaimAt(0), After(now_, 3s));
  policy_.TryNow();
  EXPECT_EQ(policy_.ClaimAt(0), 0);
  Claim();
  EXPECT_FALSE(policy_.failing());
}

}  // namespace
}  // namespace postbox::publisher
