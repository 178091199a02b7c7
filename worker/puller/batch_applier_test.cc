#include "worker/puller/batch_applier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>

#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/puller/dead_letter_topic.h"
#include "worker/puller/kept_text.h"

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

// An inbox in which given events fail.
class FakeInboxClient : public InboxClient {
 public:
  std::map<std::string, std::string> failures;  // event id -> sqlstate
  std::string unusable;                         // sqlstate of every call
  std::string at_fault;                         // sqlstate of a call without events
  bool repaired_by_probe = false;               // a call without events clears `failures`
  size_t conflict_above = 1000;                 // larger transactions fail with a deadlock
  bool names_event = false;                     // errors name the event
  std::map<std::string, int> takes;             // event id -> milliseconds
  int statement_timeout = 0;                    // milliseconds
  std::vector<size_t> sizes;                    // of the transactions that succeeded
  std::vector<std::string> applied;             // event ids, in order
  std::vector<std::string> recorded;
  int attempts = 0;
  int transactions = 0;
  std::string last_error;
  std::function<void(const std::vector<const Delivery*>&)> during;  // called in each transaction

  InboxResult Apply(const std::vector<const Delivery*>& events,
                    std::optional<milliseconds> /*time*/) override {
    ++transactions;
    if (during) during(events);
    if (!unusable.empty()) return Failure(unusable);
    if (events.empty() && !at_fault.empty()) return Failure(at_fault);
    if (events.empty() && repaired_by_probe) failures.clear();
    if (events.size() > conflict_above) return Failure("40P01");
    int took = 0;
    for (size_t i = 0; i < events.size(); ++i) {
      const std::string id(*events[i]->event.event_id);
      InboxResult failure;
      auto time = takes.find(id);
      took += time == takes.end() ? 0 : time->second;
      if (statement_timeout > 0 && took >= statement_timeout) {
        failure = Failure("57014");
        failure.took = milliseconds(statement_timeout);
      } else if (auto it = failures.find(id); it != failures.end()) {
        const bool refused = it->second == "refused";  // not sent: the session is no good
        failure = Failure(refused || it->second == "lost" ? "" : it->second);
        failure.not_begun = refused;
      } else {
        continue;
      }
      if (names_event) failure.event_at = i;
      return failure;
    }
    for (const Delivery* delivery : events) applied.emplace_back(*delivery->event.event_id);
    if (!events.empty()) sizes.push_back(events.size());
    return {.ok = true,
            .outcomes = std::vector<std::string>(events.size(), "applied"),
            .took = milliseconds(took)};
  }
  InboxResult RecordDeadLetter(const Delivery& delivery, const EventFailure& failure,
                               bool park) override {
    if (!unusable.empty()) return Failure(unusable);
    recorded.emplace_back(delivery.event.event_id.value_or("none"));
    attempts = failure.attempts;
    last_error = failure.error;
    return {.ok = true, .outcomes = {park ? "parked" : "rejected"}};
  }

 private:
  static InboxResult Failure(std::string sqlstate) {
    return {.sqlstate = std::move(sqlstate), .error = "it failed"};
  }
};

class BatchApplierTest : public ::testing::Test {
 protected:
  // Deliveries "id:key"; those whose id begins with "poison" are poison.
  static std::vector<Delivery> Batch(std::initializer_list<std::string> texts) {
    std::vector<Delivery> batch;
    uint64_t handle = 0;
    for (const auto& text : texts) {
      Delivery delivery;
      const std::string id = text.substr(0, text.find(':'));
      delivery.message.handle = ++handle;
      delivery.message.message_id = Kept("message-" + id);
      if (text.find(':') != std::string::npos) {
        delivery.message.ordering_key = Kept(text.substr(text.find(':') + 1));
      }
      delivery.event.event_id = Kept(id);
      delivery.event.event_type = "seen";
      if (id.starts_with("poison")) delivery.event.poison = "cannot be parsed";
      batch.push_back(std::move(delivery));
    }
    return batch;
  }
  std::string Apply(const std::vector<Delivery>& batch) {
    if (!applier_) {
      policy_.backoff = {milliseconds(1000), 2.0, milliseconds(60000)};
      policy_.statement_timeout = milliseconds(inbox_.statement_timeout);
      applier_ = std::make_unique<BatchApplier>(policy_, &inbox_, &attempts_, &health_, &status_);
    }
    dispositions_ = applier_->Apply(batch, now_);
    std::string kinds;
    // settled, failed, alone, dead letter, held, behind
    for (const auto& disposition : dispositions_) kinds += "SFADHB"[disposition.kind];
    return kinds;
  }
  std::string Apply(std::initializer_list<std::string> texts) { return Apply(Batch(texts)); }
  // Events e0, e1, ... without keys.
  static std::vector<Delivery> Many(int count) {
    std::vector<Delivery> batch;
    for (int i = 0; i < count; ++i) {
      batch.push_back(std::move(Batch({"e" + std::to_string(i)})[0]));
      batch.back().message.handle = static_cast<uint64_t>(i) + 1;
    }
    return batch;
  }

  ApplyPolicy policy_{.subscription = "test"};
  FakeInboxClient inbox_;
  AttemptCounter attempts_;
  ConsumerHealth health_{{}};
  PullStatus status_;
  BatchApplier::TimePoint now_{std::chrono::hours(1)};
  std::unique_ptr<BatchApplier> applier_;
  std::vector<Disposition> dispositions_;
};

TEST_F(BatchApplierTest, AnEventThatFailedForGoodIsParkedAndItsKeyGoesOnBehindIt) {
  policy_.on_error = OnError::kParkKey;
  policy_.max_attempts = 2;
  inbox_.failures["b"] = "23514";
  EXPECT_EQ(Apply({"a:k", "b:k", "c:k", "d:l"}), "SFBS");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_EQ(Apply({"b:k", "c:k", "e:l"}), "SSS");
  EXPECT_THAT(inbox_.recorded, ElementsAre("b"));
  EXPECT_EQ(inbox_.attempts, 2);
  EXPECT_EQ(dispositions_[0].outcome, "parked");
  // The inbox is asked about what follows, after the event is recorded.
  EXPECT_THAT(inbox_.applied, ElementsAre("a", "d", "c", "e"));
}

TEST_F(BatchApplierTest, APoisonedMessageIsParkedAtItsFirstAttempt) {
  policy_.on_error = OnError::kParkKey;
  EXPECT_EQ(Apply({"poison:k", "b:k"}), "SS");
  EXPECT_EQ(dispositions_[0].outcome, "parked");
}

TEST_F(BatchApplierTest, ABatchIsOneTransaction) {
  EXPECT_EQ(Apply({"a:k", "b:k", "c"}), "SSS");
  EXPECT_EQ(inbox_.transactions, 1);
  EXPECT_EQ(dispositions_[0].outcome, "applied");
}

TEST_F(BatchApplierTest, APermanentErrorIsFoundAndOnlyItsKeyWaits) {
  inbox_.failures["c"] = "23505";
  EXPECT_EQ(Apply({"a:k", "b:k", "c:k", "d:l", "e:k", "f:l", "g"}), "SSFSBSS");
  EXPECT_THAT(inbox_.applied, ElementsAre("a", "b", "d", "f", "g"));
  EXPECT_GE(dispositions_[2].delay, milliseconds(500));
  EXPECT_LE(dispositions_[2].delay, milliseconds(1000));
}

TEST_F(BatchApplierTest, AStatementThatIsNotSentIsNoAttemptOfItsEvent) {
  inbox_.failures = {{"a", "refused"}, {"b", "lost"}};
  EXPECT_EQ(Apply({"a"}), "F");
  EXPECT_FALSE(attempts_.Known("message-a"));
  EXPECT_EQ(Apply({"b"}), "F");
  EXPECT_TRUE(attempts_.Known("message-b"));
}

TEST_F(BatchApplierTest, OnePoisonEventCostsFewTransactions) {
  inbox_.failures["x"] = "P0001";
  std::vector<Delivery> batch = Many(500);
  batch[321].event.event_id = "x";
  Apply(batch);
  EXPECT_LE(inbox_.transactions, 22);
  EXPECT_THAT(inbox_.applied, SizeIs(499));
}

TEST_F(BatchApplierTest, AfterMaxAttemptsAnEventIsRecordedAndItsKeyGoesOn) {
  policy_.max_attempts = 3;
  inbox_.failures["a"] = "22P02";
  EXPECT_EQ(Apply({"a:k", "b:k", "c"}), "FBS");
  EXPECT_EQ(Apply({"a:k", "b:k", "c"}), "FBS");
  EXPECT_GE(dispositions_[0].delay, milliseconds(1000));  // the backoff grows
  inbox_.applied.clear();
  EXPECT_EQ(Apply({"a:k", "b:k"}), "SS");
  EXPECT_EQ(dispositions_[0].outcome, "rejected");
  EXPECT_THAT(inbox_.recorded, ElementsAre("a"));
  EXPECT_EQ(inbox_.attempts, 3);
  EXPECT_THAT(inbox_.applied, ElementsAre("b"));
}

TEST_F(BatchApplierTest, PoisonIsRecordedAtItsFirstAttempt) {
  EXPECT_EQ(Apply({"a:k", "poison:k", "b:k"}), "SSS");
  EXPECT_THAT(inbox_.recorded, ElementsAre("poison"));
  EXPECT_THAT(inbox_.applied, ElementsAre("a", "b"));
}

TEST_F(BatchApplierTest, EventsOfAPausedTypeWaitAndTheOthersAreApplied) {
  policy_.max_attempts = 1;
  inbox_.names_event = true;
  inbox_.failures = {{"b", "57PB1"}, {"d", "57PB1"}};
  std::vector<Delivery> batch = Batch({"a:k", "b:k", "c:l", "d:l", "e:k", "f:m", "g:k"});
  for (size_t i : {1, 3, 6}) batch[i].event.event_type = "paused";
  EXPECT_EQ(Apply(batch), "SHSHBSB");
  EXPECT_THAT(inbox_.applied, ElementsAre("a", "c", "f"));
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_EQ(inbox_.transactions, 2);
  EXPECT_TRUE(health_.Suspended("paused"));
  EXPECT_EQ(status_.Take(now_).failures, 0);
  EXPECT_FALSE(attempts_.Known("message-b"));
}

TEST_F(BatchApplierTest, EventsWithoutATypeAreGivenUpHoweverManyThereAre) {
  policy_.max_attempts = 2;
  inbox_.failures = {{"a", "22004"}, {"b", "22004"}, {"c", "22004"}};
  std::vector<Delivery> batch = Batch({"a:k", "b:l", "c:m"});
  for (Delivery& delivery : batch) delivery.event.event_type.reset();
  EXPECT_EQ(Apply(batch), "FFF");
  now_ += std::chrono::seconds(2);
  EXPECT_EQ(Apply(batch), "SSS");
  EXPECT_THAT(inbox_.recorded, ElementsAre("a", "b", "c"));
}

TEST_F(BatchApplierTest, APauseThatNamesNoEventIsFoundToo) {
  inbox_.failures = {{"b", "57PB1"}};
  std::vector<Delivery> batch = Batch({"a:k", "b:l", "c:l", "d:m"});
  batch[1].event.event_type = "paused";
  EXPECT_EQ(Apply(batch), "SHBS");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
}

TEST_F(BatchApplierTest, TheErrorThatNamesItsEventCostsThreeTransactions) {
  inbox_.names_event = true;
  inbox_.failures["e321"] = "P0001";
  const std::string kinds = Apply(Many(500));
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), 'S'), 499);
  EXPECT_EQ(kinds[321], 'F');
  // The whole, what is before, the event, the probe, what is after.
  EXPECT_EQ(inbox_.transactions, 5);
}

TEST_F(BatchApplierTest, WhatIsGivenUpIsForTheDeadLetterTopicAndItsKeyWaits) {
  policy_.on_error = OnError::kDeadLetterTopic;
  policy_.max_attempts = 1;
  inbox_.failures["a"] = "23514";
  EXPECT_EQ(Apply({"a:k", "poison", "b:k", "c"}), "FDBS") << "another event may fail like it";
  EXPECT_EQ(Apply({"a:k", "poison", "b:k", "c"}), "DDBS");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_EQ(dispositions_[0].failure.sqlstate, "23514");
  EXPECT_EQ(dispositions_[0].failure.attempts, 2);
  EXPECT_EQ(dispositions_[1].failure.sqlstate, "22P02");
}

TEST_F(BatchApplierTest, WhatTheDeadLetterTopicRefusesIsRecorded) {
  policy_.on_error = OnError::kDeadLetterTopic;
  auto batch = Batch({"a:k", "b:k"});
  batch[0].given_up = EventFailure{"23514", "refused", 7};
  EXPECT_EQ(Apply(batch), "SS");
  EXPECT_THAT(inbox_.recorded, ElementsAre("a"));
  EXPECT_EQ(inbox_.attempts, 7);
  EXPECT_THAT(inbox_.applied, ElementsAre("b"));
}

TEST_F(BatchApplierTest, OneSlowEventCostsItsBatchOneTimeoutAndIsGivenUpAlone) {
  inbox_.names_event = true;
  inbox_.statement_timeout = 1000;
  inbox_.takes["e100"] = 5000;
  policy_.max_attempts = 2;
  std::string kinds = Apply(Many(201));
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), 'S'), 200);
  EXPECT_EQ(kinds[100], 'A');
  for (int i = 0; i < 5; ++i)
    EXPECT_EQ(Apply({"e100"}), "F") << "the disk may be slow, or a row locked";
  now_ += ApplyPolicy().patience;
  EXPECT_EQ(Apply({"e100"}), "F") << "nothing else was applied since, so it may not be the event";
  EXPECT_EQ(Apply({"e1"}), "S");
  EXPECT_EQ(Apply({"e100"}), "S");
  EXPECT_THAT(inbox_.recorded, ElementsAre("e100"));
  EXPECT_EQ(inbox_.attempts, 7);
}

TEST_F(BatchApplierTest, AnEventThatIsAlwaysTooSlowIsGivenUpInTheEndEvenIfNothingElseComes) {
  inbox_.statement_timeout = 1000;
  inbox_.takes["slow"] = 5000;
  inbox_.failures["blocked"] = "55P03";
  policy_.max_attempts = 2;
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Apply({"slow", "blocked"}), "FF");
  now_ += std::chrono::hours(23);
  EXPECT_EQ(Apply({"slow", "blocked"}), "FF");
  now_ += std::chrono::hours(1);
  EXPECT_EQ(Apply({"slow", "blocked"}), "SF");
  EXPECT_THAT(inbox_.recorded, ElementsAre("slow"));
}

TEST_F(BatchApplierTest, WhenThePullerStopsACancelledBatchDoesNotGoOnWithItsNextPart) {
  std::atomic<bool> stopping = false;
  policy_.stopping = &stopping;
  policy_.batch_size = 10;
  policy_.max_attempts = 1;
  inbox_.during = [&](const std::vector<const Delivery*>& events) {
    if (events.size() > 1 && *events[0]->event.event_id == "e10") stopping = true;
  };
  inbox_.failures["e12"] = "57014";  // cancelled, long before its timeout
  EXPECT_EQ(Apply(Many(40)), "SSSSSSSSSS" + std::string(30, 'F'));
  EXPECT_EQ(inbox_.transactions, 2);
  EXPECT_EQ(inbox_.applied.size(), 10u);
}

TEST_F(BatchApplierTest, WhenThePullerStopsNoEventIsBlamedAndNoneIsTriedAlone) {
  std::atomic<bool> stopping = false;
  policy_.stopping = &stopping;
  policy_.max_attempts = 1;
  inbox_.during = [&](const auto&) { stopping = true; };
  inbox_.failures["e1"] = "23505";
  EXPECT_EQ(Apply(Many(4)), "FFFF");
  EXPECT_EQ(inbox_.transactions, 1);
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_FALSE(attempts_.Known("message-e1"));
}

TEST_F(BatchApplierTest, ASlowEventIsFoundIfTheErrorDoesNotNameIt) {
  inbox_.statement_timeout = 1000;
  inbox_.takes["e100"] = 5000;
  const std::string kinds = Apply(Many(201));
  EXPECT_EQ(std::count(kinds.begin(), kinds.end(), 'S'), 200);
  EXPECT_EQ(kinds[100], 'F');
}

TEST_F(BatchApplierTest, BatchesShrinkToWhatFitsTheTimeoutAndGrowAgain) {
  inbox_.statement_timeout = 1000;
  policy_.batch_size = 500;
  for (int i = 0; i < 1500; ++i) inbox_.takes["e" + std::to_string(i)] = 10;
  EXPECT_EQ(Apply(Many(1500)), std::string(1500, 'S'));
  EXPECT_THAT(attempts_.Known("message-e1"), false);
  EXPECT_LT(inbox_.transactions, 60);
  EXPECT_LT(applier_->limit(), 100u);
  inbox_.takes.clear();
  for (int i = 0; i < 10; ++i) Apply(Many(500));
  EXPECT_EQ(applier_->limit(), 500u);
  EXPECT_EQ(inbox_.sizes.back(), 500u);
}

TEST_F(BatchApplierTest, AStatementThatSomebodyCancelledIsNoFaultOfAnEvent) {
  inbox_.statement_timeout = 1000;
  inbox_.failures["b"] = "57014";  // at once
  policy_.max_attempts = 1;
  EXPECT_EQ(Apply({"a", "b", "c"}), "FFF");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_FALSE(attempts_.Known("message-b"));
}

TEST_F(BatchApplierTest, ALockedRowHoldsUpItsOwnEventUntilPatienceEnds) {
  inbox_.names_event = true;
  inbox_.failures["b"] = "55P03";
  policy_.max_attempts = 2;
  EXPECT_EQ(Apply({"a", "b:k", "c:k", "d"}), "SABS");
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Apply({"b:k"}), "F");
  now_ += ApplyPolicy().patience;
  EXPECT_EQ(Apply({"b:k"}), "F") << "no other event was applied since, the table may be locked";
  EXPECT_EQ(Apply({"d"}), "S");
  EXPECT_EQ(Apply({"b:k"}), "S");
  EXPECT_THAT(inbox_.recorded, ElementsAre("b"));
}

TEST_F(BatchApplierTest, AttemptsThatMayBeTheFaultOfOthersAreNotCountedAsTheEventsOwn) {
  policy_.max_attempts = 2;
  inbox_.failures["a"] = "40P01";
  for (int i = 0; i < 5; ++i) EXPECT_EQ(Apply({"a"}), "F");
  inbox_.failures["a"] = "23505";
  EXPECT_EQ(Apply({"a", "b"}), "FS");
  EXPECT_EQ(Apply({"a"}), "S");
  EXPECT_EQ(inbox_.attempts, 2);
}

TEST_F(BatchApplierTest, WhenNothingCanBeAppliedTheBatchIsNotTriedEventByEvent) {
  for (int i = 0; i < 500; ++i) inbox_.failures["e" + std::to_string(i)] = "55P03";
  EXPECT_EQ(Apply(Many(500)), std::string(500, 'F'));
  EXPECT_LT(inbox_.transactions, 20);
  // The backoff grows once for the batch, and not with each event of it.
  for (const auto& disposition : dispositions_) EXPECT_LE(disposition.delay, milliseconds(1000));
}

TEST_F(BatchApplierTest, AnEventThatBreaksItsConnectionEachTimeIsFoundAndRecorded) {
  policy_.max_attempts = 2;
  inbox_.failures["e3"] = "lost";
  for (int i = 0; i < 3; ++i) Apply(Many(8));
  EXPECT_EQ(applier_->limit(), 1u);
  EXPECT_EQ(Apply(Many(8)), "SSSFFFFF");
  Apply({"e4"});
  now_ += ApplyPolicy().patience;
  auto batch = Batch({"e3"});
  EXPECT_EQ(Apply(batch), "A");
  batch[0].given_up = dispositions_[0].failure;
  EXPECT_EQ(Apply(batch), "S");
  EXPECT_THAT(inbox_.recorded, ElementsAre("e3"));
}

TEST_F(BatchApplierTest, ThePolicyNackNeverGivesUp) {
  policy_.on_error = OnError::kNack;
  policy_.max_attempts = 1;
  inbox_.failures["a"] = "23514";
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Apply({"a", "poison:k", "b:k"}), "FFB");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
}

TEST_F(BatchApplierTest, ATransientErrorNacksAndRecordsNothing) {
  policy_.max_attempts = 1;
  inbox_.failures["b"] = "57P03";
  EXPECT_EQ(Apply({"a:k", "b:k", "c:l"}), "FBF");
  EXPECT_EQ(inbox_.transactions, 1);
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  inbox_.failures.clear();
  EXPECT_EQ(Apply({"a:k", "b:k", "c:l"}), "SSS");
}

TEST_F(BatchApplierTest, AHandlerThatRaisesOperatorInterventionIsNotPausedButFails) {
  inbox_.failures["b"] = "57000";
  EXPECT_EQ(Apply({"a:k", "b:l"}), "FF");
  EXPECT_FALSE(health_.Suspended(""));
  EXPECT_EQ(status_.Take(now_).failures, 1);
}

TEST_F(BatchApplierTest, NothingMoreIsTriedOnABrokenConnection) {
  inbox_.failures = {{"a", "23505"}, {"d", "lost"}};
  EXPECT_EQ(Apply({"a", "b", "c", "d", "e", "f"}), "FSSFFF");
  // The whole batch, its first half, "a" alone, the probe, the rest of that half, the half that
  // breaks.
  EXPECT_EQ(inbox_.transactions, 6);
}

TEST_F(BatchApplierTest, ADeadlockMakesTransactionsSmaller) {
  inbox_.conflict_above = 2;
  EXPECT_EQ(Apply({"a:k", "b:l", "c:k", "d:l", "e"}), "SSSSS");
  EXPECT_THAT(inbox_.applied, ElementsAre("a", "b", "c", "d", "e"));
  inbox_.conflict_above = 0;
  EXPECT_EQ(Apply({"f"}), "F");
}

TEST_F(BatchApplierTest, AnInboxThatCannotBeUsedIsNoFaultOfTheEvents) {
  policy_.max_attempts = 1;
  inbox_.unusable = "42P01";
  EXPECT_EQ(Apply({"a", "b", "poison"}), "FFF");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_FALSE(attempts_.Known("message-a"));
}

TEST_F(BatchApplierTest, ARightThatIsMissingHoldsUpWhatNeedsItUntilItIsThere) {
  policy_.max_attempts = 1;
  inbox_.failures["a"] = "42501";
  inbox_.at_fault = "42501";
  for (int i = 0; i < 3; ++i) EXPECT_EQ(Apply({"a:k", "b:k", "c:l", "d"}), "FBSS");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  inbox_.failures.clear();
  inbox_.at_fault.clear();
  EXPECT_EQ(Apply({"a:k", "b:k"}), "SS");
  EXPECT_FALSE(attempts_.Known("message-a"));
}

TEST_F(BatchApplierTest, WhenEachEventFailsItsTypeIsSuspendedAndNoneIsGivenUp) {
  for (const auto on_error : {OnError::kReject, OnError::kDeadLetterTopic, OnError::kNack}) {
    policy_.on_error = on_error;
    policy_.max_attempts = 1;
    applier_.reset();
    inbox_.names_event = true;
    for (const char* id : {"a", "b", "c", "d", "e", "f"}) inbox_.failures[id] = "42703";
    EXPECT_EQ(Apply({"a:k", "b:l", "c:m", "d:m", "e:n"}), "FFFBF");
    now_ += ConsumerHealth::kDoubt;
    // The first failure is enough. What is of another type goes on.
    auto batch = Batch({"a:k", "b:l", "g", "c:m", "d:m", "e:n"});
    batch[2].event.event_type = "other";
    EXPECT_EQ(Apply(batch), "HHSHBH");
    EXPECT_EQ(Apply({"f:p"}), "H") << "without being tried";
    EXPECT_EQ(status_.Take(now_).last_error, "42703: it failed");

    batch = Batch({"a:k", "b:k", "f:p"});
    batch[0].probe = true;
    EXPECT_EQ(Apply(batch), "HHH");
    inbox_.failures.clear();
    EXPECT_EQ(Apply(batch), "SHH") << "one at a time";
    EXPECT_EQ(Apply({"b:l", "c:m", "d:m", "e:n", "f:p"}), "SSSSS");
    EXPECT_THAT(inbox_.recorded, IsEmpty());
  }
}

TEST_F(BatchApplierTest, AttemptsOfBeforeTheRepairDoNotCount) {
  policy_.max_attempts = 3;
  for (const char* id : {"a", "b", "c"}) inbox_.failures[id] = "42703";
  for (int i = 0; i < 2; ++i) EXPECT_EQ(Apply({"a:k", "b:l", "c:m"}), "FFF");
  now_ += ConsumerHealth::kDoubt;
  EXPECT_EQ(Apply({"a:k", "b:l", "c:m"}), "HHH");
  inbox_.failures = {{"a", "22000"}};
  auto batch = Batch({"b:l"});
  batch[0].probe = true;
  EXPECT_EQ(Apply(batch), "S");
  EXPECT_EQ(Apply({"a:k", "c:m"}), "FS");
  EXPECT_EQ(Apply({"a:k", "d:m"}), "FS");
  EXPECT_EQ(Apply({"a:k"}), "S");
  EXPECT_THAT(inbox_.recorded, ElementsAre("a"));
  EXPECT_EQ(inbox_.attempts, 3);
}

TEST_F(BatchApplierTest, AProjectionThatIsBrokenForManyKeysIsSuspendedToo) {
  inbox_.at_fault = "42703";
  for (const char* id : {"a", "b", "c"}) inbox_.failures[id] = "42703";
  EXPECT_EQ(Apply({"a:k", "b:l", "c:m"}), "FFF");
  now_ += ConsumerHealth::kDoubt;
  EXPECT_EQ(Apply({"a:k", "b:l", "c:m"}), "HHH");
  EXPECT_FALSE(attempts_.Known("message-a"));
}

TEST_F(BatchApplierTest, NoEventIsGivenUpForACauseThatHasJustBeenRepaired) {
  policy_.max_attempts = 1;
  inbox_.failures["a"] = "42501";
  EXPECT_EQ(Apply({"a:k", "c"}), "FS");
  inbox_.applied.clear();
  inbox_.repaired_by_probe = true;
  EXPECT_EQ(Apply({"a:k", "b:k"}), "SS");
  EXPECT_EQ(dispositions_[0].outcome, "applied");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_THAT(inbox_.applied, ElementsAre("a", "b"));
}

TEST(DeadLetterMessageTest, TheOriginalMessageCarriesTheError) {
  Delivery delivery;
  delivery.message.ordering_key = "k";
  delivery.message.attributes = {{"event_id", "e"},
                                 {"googclient_traceparent", "t"},
                                 {"googclient_schemaname", "s"},
                                 {"postbox_error_sqlstate", "old"}};
  delivery.event.payload = "data";
  auto message = DeadLetterMessage(delivery, "projects/p/topics/dlq", "projects/p/subscriptions/s",
                                   {"23505", std::string(1020, 'x') + "\u00e9\u00e9\u00e9", 1});
  EXPECT_EQ(message.topic, "projects/p/topics/dlq");
  EXPECT_EQ(message.ordering_key, "k");
  EXPECT_EQ(message.error, "");
  google::pubsub::v1::PubsubMessage read;
  ASSERT_TRUE(read.ParseFromString(message.encoded));
  EXPECT_EQ(read.data(), "data");
  using Map = std::map<std::string, std::string>;
  EXPECT_EQ(Map(read.attributes().begin(), read.attributes().end()),
            (Map{{"event_id", "e"},
                 {"googclient_traceparent", "t"},
                 {"postbox_error_sqlstate", "23505"},
                 {"postbox_error_message", std::string(1020, 'x') + "..."},
                 {"postbox_original_subscription", "projects/p/subscriptions/s"}}));
}

TEST(DeadLetterMessageTest, TheErrorFindsItsPlaceAmongAHundredAttributes) {
  Delivery delivery;
  for (int i = 0; i < 100; ++i)
    delivery.message.attributes.emplace_back(Kept(std::to_string(i)), "v");
  auto message = DeadLetterMessage(delivery, "t", "s", {"22000", "e", 1});
  EXPECT_EQ(message.error, "");
  google::pubsub::v1::PubsubMessage read;
  ASSERT_TRUE(read.ParseFromString(message.encoded));
  EXPECT_THAT(read.attributes(), SizeIs(100));
  EXPECT_EQ(read.attributes().count("postbox_original_subscription"), 1u);
}

// Such an event was refused for ever, because its error did not fit beside it.
TEST(DeadLetterMessageTest, AMessageWithoutRoomForItsErrorIsSentWithWhatFits) {
  Delivery delivery;
  delivery.message.attributes = {{"event_id", "e"}};
  const EventFailure failure{"23505", std::string(1000, 'x'), 1};
  const auto attributes_of = [&](size_t payload) {
    delivery.event.payload = Kept(std::string(payload, 'p'));
    const auto message = DeadLetterMessage(delivery, "projects/p/topics/dlq", "s", failure);
    EXPECT_EQ(message.error, "") << payload;
    google::pubsub::v1::PubsubMessage read;
    EXPECT_TRUE(read.ParseFromString(message.encoded));
    return read.attributes_size();
  };
  EXPECT_EQ(attributes_of(9'990'000), 4);
  EXPECT_EQ(attributes_of(9'999'500), 3);
  EXPECT_EQ(attributes_of(9'999'920), 1);
}

}  // namespace
}  // namespace postbox::puller
