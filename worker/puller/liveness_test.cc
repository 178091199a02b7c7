#include "worker/puller/liveness.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::puller {
namespace {

using Backend = Liveness::Backend;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class LivenessTest : public testing::Test {
 protected:
  using TimePoint = Liveness::TimePoint;

  // A second passes at a time. When the server is asked, it says `backend`; nothing: it is away.
  void Pass(seconds time, std::optional<Backend> backend = std::nullopt) {
    for (int i = 0; i < time.count(); ++i) {
      now_ += seconds(1);
      if (stream_silent_) *signs_.stream_silence += seconds(1);
      for (const Unanswered& asked : liveness_.Looks(signs_, now_)) {
        ++looks_;
        if (backend) liveness_.Looked(asked, *backend, now_);
      }
    }
  }
  void Asks(int backend = 7) {
    signs_.appliers = {{.progressed_at = now_, .asked = Unanswered{now_, backend}}};
  }
  std::vector<std::string> Reasons() const { return liveness_.Reasons(signs_, now_); }

  TimePoint now_ = TimePoint() + std::chrono::hours(1000);
  Liveness liveness_{Liveness::Times()};
  ThreadSigns signs_{.stream_silence = seconds(0), .statement_timeout = seconds(30)};
  bool stream_silent_ = false;
  int looks_ = 0;
};

TEST_F(LivenessTest, ThreadsThatWaitForWorkAreAlive) {
  signs_.appliers = {{.progressed_at = TimePoint::max()}, {.progressed_at = TimePoint::max()}};
  Pass(std::chrono::hours(2));
  EXPECT_THAT(Reasons(), IsEmpty());
  EXPECT_EQ(looks_, 0);
}

TEST_F(LivenessTest, AnApplierWithoutASignIsStuckWithinAMinute) {
  signs_.appliers = {{.progressed_at = TimePoint::max()}, {.progressed_at = now_}};
  Pass(seconds(40));
  EXPECT_THAT(Reasons(), IsEmpty());
  Pass(seconds(1));
  EXPECT_THAT(Reasons(), ElementsAre("the thread of an applier has made no progress for 41 s"));
}

TEST_F(LivenessTest, ADeadLetterTopicWhoseThreadGivesNoSignIsStuckWithinAMinute) {
  signs_.letters_silence = seconds(40);
  EXPECT_THAT(Reasons(), IsEmpty());
  signs_.letters_silence = seconds(41);
  EXPECT_THAT(Reasons(),
              ElementsAre("the thread of the dead-letter topic has made no progress for 41 s"));
}

TEST_F(LivenessTest, AStreamWhoseThreadGivesNoSignIsStuckWithinAMinute) {
  stream_silent_ = true;
  Pass(seconds(40));
  EXPECT_THAT(Reasons(), IsEmpty());
  Pass(seconds(1));
  EXPECT_THAT(Reasons(), ElementsAre("the thread of the stream has made no progress for 41 s"));
  signs_.stream_silence.reset();
  stream_silent_ = false;
  EXPECT_THAT(Reasons(), IsEmpty()) << "a subscription that is paused has none";
}

TEST_F(LivenessTest, AStoppedProcessIsFoundWithinAMinute) {
  Asks(42);
  Pass(seconds(9), Backend::kStopped);
  EXPECT_EQ(looks_, 0) << "most statements are short";
  Pass(seconds(16), Backend::kStopped);
  EXPECT_THAT(Reasons(),
              ElementsAre("process 42 of the server is stopped and has not answered for 25 s"));
}

TEST_F(LivenessTest, AProcessThatWasStoppedForAMomentIsAlive) {
  Asks();
  Pass(seconds(12), Backend::kStopped);
  EXPECT_THAT(Reasons(), IsEmpty());
  Pass(seconds(8), Backend::kRuns);
  Pass(seconds(5), Backend::kStopped);
  EXPECT_THAT(Reasons(), IsEmpty()) << "it has run in between";
}

TEST_F(LivenessTest, ALongEventIsAlive) {
  signs_.statement_timeout = std::chrono::hours(1);
  Asks();
  Pass(std::chrono::minutes(50), Backend::kRuns);
  EXPECT_THAT(Reasons(), IsEmpty());
  EXPECT_LE(looks_, 600);
}

TEST_F(LivenessTest, AnAnswerThatNoThreadReadsIsFoundWithinAMinute) {
  Asks();
  Pass(seconds(25), Backend::kAnswered);
  EXPECT_THAT(Reasons(), ElementsAre(HasSubstr("does not read the answer of process 7")));
}

TEST_F(LivenessTest, WhereTheServerCannotSayTheLimitOfTheStatementCounts) {
  Asks();
  Pass(seconds(89), Backend::kUnknown);
  EXPECT_THAT(Reasons(), IsEmpty()) << "until then the applier may end the connection by itself";
  Pass(seconds(1), Backend::kUnknown);
  EXPECT_THAT(Reasons(), ElementsAre(HasSubstr("longer than statement_timeout allows")));
  signs_.statement_timeout = seconds(0);
  EXPECT_THAT(Reasons(), IsEmpty()) << "without a limit nothing can be known";
}

TEST_F(LivenessTest, ADatabaseThatIsAwayIsNoReason) {
  Asks();
  Pass(std::chrono::minutes(2));
  EXPECT_THAT(Reasons(), IsEmpty());
  Asks();
  Pass(seconds(25), Backend::kStopped);
  EXPECT_FALSE(Reasons().empty());
  Pass(seconds(20));
  EXPECT_THAT(Reasons(), IsEmpty()) << "what was known is too old";
}

TEST_F(LivenessTest, WhatWasKnownOfAStatementSaysNothingOfTheNextOne) {
  Asks();
  Pass(seconds(25), Backend::kStopped);
  EXPECT_FALSE(Reasons().empty());
  Asks();
  EXPECT_THAT(Reasons(), IsEmpty());
  Pass(seconds(12), Backend::kStopped);
  EXPECT_THAT(Reasons(), IsEmpty());
}

TEST_F(LivenessTest, EachApplierHasAReason) {
  signs_.appliers = {{.progressed_at = now_, .asked = Unanswered{now_, 1}},
                     {.progressed_at = now_, .asked = Unanswered{now_, 2}}};
  Pass(seconds(30), Backend::kStopped);
  EXPECT_THAT(Reasons(), ElementsAre(HasSubstr("process 1 "), HasSubstr("process 2 ")));
}

TEST_F(LivenessTest, ManyAppliersAreAllLookedAt) {
  for (int backend = 1; backend <= 64; ++backend) {
    signs_.appliers.push_back({.progressed_at = now_, .asked = Unanswered{now_, backend}});
  }
  Pass(seconds(25), Backend::kStopped);
  EXPECT_EQ(Reasons().size(), 64u);
}

}  // namespace
}  // namespace postbox::puller
