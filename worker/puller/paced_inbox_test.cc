#include "worker/puller/paced_inbox.h"

#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <optional>
#include <utility>

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;

// Answers with given SQLSTATEs, one a call; then, and for an empty one, with success.
class ScriptedInbox : public InboxClient {
 public:
  using InboxClient::Apply;

  InboxResult Apply(const std::vector<const Delivery*>& events,
                    std::optional<milliseconds> time) override {
    times.push_back(time);
    if (during) std::exchange(during, nullptr)();
    std::string sqlstate;
    if (!answers.empty()) {
      sqlstate = answers.front();
      answers.pop_front();
    }
    if (!sqlstate.empty()) return {.sqlstate = sqlstate, .error = "it failed", .took = took};
    return {
        .ok = true, .outcomes = std::vector<std::string>(events.size(), "applied"), .took = took};
  }
  InboxResult RecordDeadLetter(const Delivery&, const EventFailure&, bool) override {
    return {.ok = true};
  }

  std::function<void()> during;  // called in the first call
  std::deque<std::string> answers;
  milliseconds took{1000};  // each call
  std::vector<std::optional<milliseconds>> times;
};

class PacedInboxTest : public ::testing::Test {
 protected:
  InboxResult Apply() { return paced_.InboxClient::Apply({&delivery_}); }

  // Other appliers commit until two transactions are tried, one after a millisecond.
  void UntilTrial() {
    auto now = long_ago_;
    for (bool trial = false; !trial;) {
      const auto ticket = gate_.Enter(now);
      trial = gate_.Open(now);
      gate_.Committed(ticket, 100, now += milliseconds(1));
      gate_.Leave(ticket);
    }
    OtherIsIn(now);
  }
  // Another applier has a batch, until the first transaction of this one is over.
  void OtherIsIn(ApplyGate::TimePoint now) {
    inbox_.during = [this, other = gate_.Enter(now)] { gate_.Leave(other); };
  }

  Delivery delivery_;
  ScriptedInbox inbox_;
  ApplyGate gate_{4};
  PacedInbox paced_{"s", &inbox_, &gate_};
  const ApplyGate::TimePoint long_ago_ = std::chrono::steady_clock::now() - std::chrono::hours(1);
};

TEST_F(PacedInboxTest, TriesTheVictimOfADeadlockOnceMore) {
  OtherIsIn(long_ago_);
  paced_.Enter();
  inbox_.answers = {"40P01"};
  EXPECT_TRUE(Apply().ok);
  EXPECT_EQ(inbox_.times.size(), 2U);
  EXPECT_EQ(gate_.conflicts(std::chrono::steady_clock::now()), 1);
}

TEST_F(PacedInboxTest, LeavesASecondFailureToTheCaller) {
  OtherIsIn(long_ago_);
  paced_.Enter();
  inbox_.answers = {"40P01", "40P01", ""};
  EXPECT_EQ(Apply().sqlstate, "40P01");
  EXPECT_EQ(inbox_.times.size(), 2U);
}

TEST_F(PacedInboxTest, LeavesADeadlockWithOthersToTheCaller) {
  paced_.Enter();
  inbox_.answers = {"40P01"};
  EXPECT_EQ(Apply().sqlstate, "40P01");
}

TEST_F(PacedInboxTest, LeavesOtherErrorsToTheCaller) {
  OtherIsIn(long_ago_);
  paced_.Enter();
  inbox_.answers = {"23505"};
  EXPECT_EQ(Apply().sqlstate, "23505");
  // A lock that was not to be had may be held by others.
  inbox_.answers = {"55P03"};
  EXPECT_EQ(Apply().sqlstate, "55P03");
  EXPECT_EQ(gate_.conflicts(std::chrono::steady_clock::now()), 0);
}

TEST_F(PacedInboxTest, CancelsATransactionOfATrialThatTakesTooLongAndTriesItAlone) {
  UntilTrial();
  paced_.Enter();
  inbox_.answers = {"57014"};
  EXPECT_TRUE(Apply().ok);
  ASSERT_EQ(inbox_.times.size(), 2U);
  EXPECT_EQ(inbox_.times[0], milliseconds(3) + ApplyGate::kTrialTime);
  EXPECT_EQ(inbox_.times[1], std::nullopt);
  EXPECT_EQ(gate_.conflicts(std::chrono::steady_clock::now()), 1);
}

TEST_F(PacedInboxTest, LeavesACancelThatItHasNotAskedForToTheCaller) {
  UntilTrial();
  paced_.Enter();
  inbox_.took = milliseconds(1);
  inbox_.answers = {"57014"};
  EXPECT_EQ(Apply().sqlstate, "57014");
  EXPECT_EQ(inbox_.times.size(), 1U);
}

TEST_F(PacedInboxTest, TriesAgainWhatALateCancelHasHit) {
  UntilTrial();
  paced_.Enter();
  EXPECT_TRUE(Apply().ok);  // just before the request came
  inbox_.took = milliseconds(1);
  inbox_.answers = {"57014"};
  EXPECT_TRUE(Apply().ok);
}

TEST_F(PacedInboxTest, ACallWithoutEventsIsNoTransactionOfTheGate) {
  EXPECT_TRUE(paced_.InboxClient::Apply({}).ok);
}

}  // namespace
}  // namespace postbox::puller
