#include "worker/puller/paced_inbox.h"

#include <gtest/gtest.h>

#include <deque>
#include <optional>

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;

// Answers with given SQLSTATEs, one a call; then, and for an empty one, with success.
class ScriptedInbox : public InboxClient {
 public:
  using InboxClient::Apply;

  InboxResult Apply(const std::vector<const Delivery*>& events,
                    std::optional<milliseconds> lock_timeout) override {
    lock_timeouts.push_back(lock_timeout);
    std::string sqlstate;
    if (!answers.empty()) {
      sqlstate = answers.front();
      answers.pop_front();
    }
    if (!sqlstate.empty()) return {.sqlstate = sqlstate, .error = "it failed"};
    return {.ok = true, .outcomes = std::vector<std::string>(events.size(), "applied")};
  }
  InboxResult RecordDeadLetter(const Delivery&, const EventFailure&) override {
    return {.ok = true};
  }

  std::deque<std::string> answers;
  std::vector<std::optional<milliseconds>> lock_timeouts;
};

class PacedInboxTest : public ::testing::Test {
 protected:
  InboxResult Apply() { return paced_.InboxClient::Apply({&delivery_}); }

  // Another applier, which has been in for so long that it is not waited for, commits until two
  // transactions are tried.
  void UntilTrial() {
    auto now = long_ago_;
    for (bool trial = false; !trial;) {
      const auto ticket = gate_.Enter(now);
      trial = gate_.Open(now);
      gate_.Committed(ticket, 100, now += milliseconds(1));
      gate_.Leave(ticket);
    }
    gate_.Enter(now);
  }

  Delivery delivery_;
  ScriptedInbox inbox_;
  ApplyGate gate_{4};
  PacedInbox paced_{"s", &inbox_, &gate_, milliseconds(5000)};
  const ApplyGate::TimePoint long_ago_ = std::chrono::steady_clock::now() - std::chrono::hours(1);
};

TEST_F(PacedInboxTest, TriesTheVictimOfADeadlockOnceMore) {
  gate_.Enter(long_ago_);
  paced_.Enter();
  inbox_.answers = {"40P01"};
  EXPECT_TRUE(Apply().ok);
  EXPECT_EQ(inbox_.lock_timeouts.size(), 2U);
  EXPECT_EQ(gate_.conflicts(std::chrono::steady_clock::now()), 1);
}

TEST_F(PacedInboxTest, LeavesASecondFailureToTheCaller) {
  gate_.Enter(long_ago_);
  paced_.Enter();
  inbox_.answers = {"40P01", "40P01", ""};
  EXPECT_EQ(Apply().sqlstate, "40P01");
  EXPECT_EQ(inbox_.lock_timeouts.size(), 2U);
}

TEST_F(PacedInboxTest, LeavesADeadlockWithOthersToTheCaller) {
  paced_.Enter();
  inbox_.answers = {"40P01"};
  EXPECT_EQ(Apply().sqlstate, "40P01");
}

TEST_F(PacedInboxTest, LeavesOtherErrorsToTheCaller) {
  gate_.Enter(long_ago_);
  paced_.Enter();
  inbox_.answers = {"23505"};
  EXPECT_EQ(Apply().sqlstate, "23505");
  // A lock that was not had in the usual time is held by others.
  inbox_.answers = {"55P03"};
  EXPECT_EQ(Apply().sqlstate, "55P03");
  EXPECT_EQ(gate_.conflicts(std::chrono::steady_clock::now()), 0);
}

TEST_F(PacedInboxTest, WaitsForALockShortlyInATrialAndAsUsualAlone) {
  UntilTrial();
  paced_.Enter();
  inbox_.answers = {"55P03"};
  EXPECT_TRUE(Apply().ok);
  ASSERT_EQ(inbox_.lock_timeouts.size(), 2U);
  EXPECT_EQ(inbox_.lock_timeouts[0], ApplyPace::kTrialLockTimeout);
  EXPECT_EQ(inbox_.lock_timeouts[1], std::nullopt);
}

TEST_F(PacedInboxTest, NeverWaitsLongerForALockThanUsual) {
  UntilTrial();
  PacedInbox paced("s", &inbox_, &gate_, milliseconds(50));
  paced.Enter();
  EXPECT_TRUE(paced.InboxClient::Apply({&delivery_}).ok);
  EXPECT_EQ(inbox_.lock_timeouts.back(), std::nullopt);
}

TEST_F(PacedInboxTest, ACallWithoutEventsIsNoTransactionOfTheGate) {
  EXPECT_TRUE(paced_.InboxClient::Apply({}).ok);
}

}  // namespace
}  // namespace postbox::puller
