#include "worker/puller/batch_applier.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "google/pubsub/v1/pubsub.pb.h"
#include "worker/puller/dead_letter_topic.h"

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
  std::vector<std::string> applied;             // event ids, in order
  std::vector<std::string> recorded;
  int attempts = 0;
  int transactions = 0;

  InboxResult Apply(const std::vector<const Delivery*>& events) override {
    ++transactions;
    if (!unusable.empty()) return Failure(unusable);
    if (events.empty() && !at_fault.empty()) return Failure(at_fault);
    if (events.empty() && repaired_by_probe) failures.clear();
    if (events.size() > conflict_above) return Failure("40P01");
    for (const Delivery* delivery : events) {
      auto it = failures.find(*delivery->event.event_id);
      if (it != failures.end()) return Failure(it->second == "lost" ? "" : it->second);
    }
    for (const Delivery* delivery : events) applied.push_back(*delivery->event.event_id);
    return {true, std::vector<std::string>(events.size(), "applied"), "", ""};
  }
  InboxResult RecordDeadLetter(const Delivery& delivery, const std::string&, const std::string&,
                               int count) override {
    if (!unusable.empty()) return Failure(unusable);
    recorded.push_back(delivery.event.event_id.value_or("none"));
    attempts = count;
    return {true, {}, "", ""};
  }

 private:
  static InboxResult Failure(std::string sqlstate) {
    return {false, {}, std::move(sqlstate), "it failed"};
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
      delivery.message.message_id = "message-" + id;
      if (text.find(':') != std::string::npos) {
        delivery.message.ordering_key = text.substr(text.find(':') + 1);
      }
      delivery.event.event_id = id;
      if (id.starts_with("poison")) delivery.event.poison = "cannot be parsed";
      batch.push_back(std::move(delivery));
    }
    return batch;
  }
  std::string Apply(std::initializer_list<std::string> texts) {
    if (!applier_) {
      policy_.backoff = {milliseconds(1000), 2.0, milliseconds(60000)};
      applier_ = std::make_unique<BatchApplier>(
          policy_, &inbox_,
          [this](const Delivery& delivery, const std::string& sqlstate, const std::string&,
                 std::string* error) {
            if (!publish_error_.empty()) {
              *error = publish_error_;
              return false;
            }
            published_.push_back(*delivery.event.event_id + " " + sqlstate);
            return true;
          },
          &attempts_);
    }
    dispositions_ = applier_->Apply(Batch(texts));
    std::string kinds;
    for (const auto& disposition : dispositions_)
      kinds += "SFB"[disposition.kind];  // settled, failed, behind
    return kinds;
  }

  ApplyPolicy policy_{.subscription = "test"};
  FakeInboxClient inbox_;
  AttemptCounter attempts_;
  std::string publish_error_;
  std::vector<std::string> published_;
  std::unique_ptr<BatchApplier> applier_;
  std::vector<Disposition> dispositions_;
};

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

TEST_F(BatchApplierTest, OnePoisonEventCostsFewTransactions) {
  inbox_.failures["x"] = "P0001";
  std::vector<Delivery> batch;
  for (int i = 0; i < 500; ++i) {
    batch.push_back(std::move(Batch({i == 321 ? "x" : "e" + std::to_string(i)})[0]));
    batch.back().message.handle = static_cast<uint64_t>(i) + 1;
  }
  Apply({});
  dispositions_ = applier_->Apply(batch);
  EXPECT_LE(inbox_.transactions, 22);
  EXPECT_THAT(inbox_.applied, SizeIs(499));
}

TEST_F(BatchApplierTest, AfterMaxAttemptsAnEventIsRecordedAndItsKeyGoesOn) {
  policy_.max_attempts = 3;
  inbox_.failures["a"] = "22P02";
  EXPECT_EQ(Apply({"a:k", "b:k"}), "FB");
  EXPECT_EQ(Apply({"a:k", "b:k"}), "FB");
  EXPECT_GE(dispositions_[0].delay, milliseconds(1000));  // the backoff grows
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

TEST_F(BatchApplierTest, TheDeadLetterTopicTakesWhatIsGivenUp) {
  policy_.on_error = OnError::kDeadLetterTopic;
  policy_.max_attempts = 1;
  inbox_.failures["a"] = "23514";
  EXPECT_EQ(Apply({"a:k", "poison", "b:k"}), "SSS");
  EXPECT_THAT(published_, ElementsAre("poison 22P02", "a 23514"));
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_EQ(dispositions_[0].outcome, "dead_letter_topic");
}

TEST_F(BatchApplierTest, AnEventThatTheDeadLetterTopicDoesNotTakeIsNotAcked) {
  policy_.on_error = OnError::kDeadLetterTopic;
  policy_.max_attempts = 1;
  publish_error_ = "NOT_FOUND: no such topic";
  inbox_.failures["a"] = "23514";
  EXPECT_EQ(Apply({"a:k", "b:k", "c"}), "FBS");
}

TEST_F(BatchApplierTest, ThePolicyNackNeverGivesUp) {
  policy_.on_error = OnError::kNack;
  policy_.max_attempts = 1;
  inbox_.failures["a"] = "23514";
  for (int i = 0; i < 20; ++i) EXPECT_EQ(Apply({"a", "poison:k", "b:k"}), "FFB");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_THAT(published_, IsEmpty());
}

TEST_F(BatchApplierTest, ATransientErrorNacksAndRecordsNothing) {
  policy_.max_attempts = 1;
  inbox_.failures["b"] = "55P03";
  EXPECT_EQ(Apply({"a:k", "b:k", "c:l"}), "FBF");
  EXPECT_EQ(inbox_.transactions, 1);
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  inbox_.failures.clear();
  EXPECT_EQ(Apply({"a:k", "b:k", "c:l"}), "SSS");
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
  EXPECT_EQ(attempts_.Increment("message-a"), 1);
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
  EXPECT_EQ(attempts_.Increment("message-a"), 1);
}

TEST_F(BatchApplierTest, NoEventIsGivenUpForACauseThatHasJustBeenRepaired) {
  policy_.max_attempts = 1;
  inbox_.failures["a"] = "42501";
  inbox_.repaired_by_probe = true;
  EXPECT_EQ(Apply({"a:k", "b:k"}), "SS");
  EXPECT_EQ(dispositions_[0].outcome, "applied");
  EXPECT_THAT(inbox_.recorded, IsEmpty());
  EXPECT_THAT(inbox_.applied, ElementsAre("a", "b"));
}

TEST(AttemptCounterTest, CountsPerMessageAndForgetsTheOldest) {
  AttemptCounter counter(2);
  EXPECT_EQ(counter.Increment("a"), 1);
  EXPECT_EQ(counter.Increment("a"), 2);
  EXPECT_EQ(counter.Increment("b"), 1);
  EXPECT_EQ(counter.Increment("c"), 1);
  EXPECT_EQ(counter.Increment("a"), 1);
  counter.Forget("c");
  EXPECT_EQ(counter.Increment("c"), 1);
}

TEST(DeadLetterMessageTest, TheOriginalMessageCarriesTheError) {
  Delivery delivery;
  delivery.message.ordering_key = "k";
  delivery.message.attributes = {
      {"event_id", "e"}, {"googclient_traceparent", "t"}, {"postbox_error_sqlstate", "old"}};
  delivery.event.payload = "data";
  auto message = DeadLetterMessage(delivery, "projects/p/topics/dlq", "projects/p/subscriptions/s",
                                   "23505", std::string(1023, 'x') + "\u00e9");
  EXPECT_EQ(message.topic, "projects/p/topics/dlq");
  EXPECT_EQ(message.ordering_key, "k");
  EXPECT_EQ(message.error, "");
  google::pubsub::v1::PubsubMessage read;
  ASSERT_TRUE(read.ParseFromString(message.encoded));
  EXPECT_EQ(read.data(), "data");
  using Map = std::map<std::string, std::string>;
  EXPECT_EQ(Map(read.attributes().begin(), read.attributes().end()),
            (Map{{"event_id", "e"},
                 {"postbox_error_sqlstate", "23505"},
                 {"postbox_error_message", std::string(1023, 'x')},
                 {"postbox_original_subscription", "projects/p/subscriptions/s"}}));
}

TEST(DeadLetterMessageTest, TheErrorFindsItsPlaceAmongAHundredAttributes) {
  Delivery delivery;
  for (int i = 0; i < 100; ++i) delivery.message.attributes.emplace_back(std::to_string(i), "v");
  auto message = DeadLetterMessage(delivery, "t", "s", "22000", "e");
  EXPECT_EQ(message.error, "");
  google::pubsub::v1::PubsubMessage read;
  ASSERT_TRUE(read.ParseFromString(message.encoded));
  EXPECT_THAT(read.attributes(), SizeIs(100));
  EXPECT_EQ(read.attributes().count("postbox_original_subscription"), 1u);
}

}  // namespace
}  // namespace postbox::puller
