#include "worker/puller/held_deliveries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <string>

#include "worker/puller/kept_text.h"

namespace postbox::puller {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Kind = Disposition::Kind;

constexpr auto kNoTime = HeldDeliveries::TimePoint::max();

class HeldDeliveriesTest : public ::testing::Test {
 protected:
  static SubscriptionConfig Config() {
    SubscriptionConfig config;
    config.batch_size = 3;
    config.batch_delay = milliseconds(10);
    config.appliers = 3;
    config.min_backoff = seconds(1);
    config.max_backoff = seconds(60);
    config.max_outstanding_messages = 20;
    config.max_outstanding_bytes = 1000;
    return config;
  }
  // Messages of these keys; those that begin with "!" have failed before.
  bool Push(std::initializer_list<std::string> keys) {
    std::vector<Delivery> deliveries;
    for (const std::string& key : keys) {
      Delivery& delivery = deliveries.emplace_back();
      delivery.message.handle = ++handle_;
      delivery.message.publish_time = PublishTime(handle_);
      delivery.suspect = key.starts_with("!");
      delivery.message.ordering_key = Kept(key.substr(delivery.suspect ? 1 : 0));
    }
    return held_.Push(&deliveries, now_);
  }
  // A later message was published later.
  static std::chrono::system_clock::time_point PublishTime(uint64_t handle) {
    return std::chrono::system_clock::time_point(seconds(handle));
  }
  std::vector<uint64_t> Take(size_t limit = 100) {
    batch_ = held_.Take(limit, now_);
    std::vector<uint64_t> handles;
    for (const Delivery& delivery : batch_) handles.push_back(delivery.message.handle);
    return handles;
  }
  std::vector<HeldDeliveries::Letter> Return(std::initializer_list<Kind> kinds) {
    std::vector<Disposition> dispositions;
    for (const Kind kind : kinds) {
      dispositions.push_back({.kind = kind, .delay = seconds(5), .failure = {"23505", "e", 2}});
    }
    return held_.Return(dispositions, &batch_, now_);
  }

  ConsumerHealth health_{{}};
  HeldDeliveries held_{Config(), &health_};
  HeldDeliveries::TimePoint now_{std::chrono::hours(1)};
  std::vector<Delivery> batch_;
  uint64_t handle_ = 0;
};

TEST_F(HeldDeliveriesTest, ABatchIsDueWhenItIsFullOrByTheTimerAndThenAnApplierIsWoken) {
  EXPECT_EQ(held_.NextBatch(), kNoTime);
  EXPECT_TRUE(Push({"a"}));
  EXPECT_EQ(held_.NextBatch(), now_) << "after a pause at once";
  EXPECT_THAT(Take(), ElementsAre(1));
  EXPECT_TRUE(held_.NoneReady());
  EXPECT_TRUE(Push({"b"}));
  EXPECT_EQ(held_.NextBatch(), now_ + milliseconds(10));
  EXPECT_FALSE(Push({"c"})) << "an applier waits for the timer";
  EXPECT_TRUE(Push({"d"}));
  EXPECT_EQ(held_.NextBatch(), now_) << "it is full";
  EXPECT_FALSE(Push({"e"}));
  EXPECT_TRUE(Push({"!f"}));
}

TEST_F(HeldDeliveriesTest, TheOldestMessageCountsWhereverItIs) {
  EXPECT_EQ(held_.oldest(), std::nullopt);
  Push({"a", "b", "c"});
  EXPECT_EQ(held_.oldest(), PublishTime(1));
  Take(2);
  EXPECT_EQ(held_.oldest(), PublishTime(1)) << "it is being applied";
  std::vector<HeldDeliveries::Letter> letters = Return({Kind::kDeadLetter, Kind::kSettled});
  EXPECT_EQ(held_.oldest(), PublishTime(1)) << "it is on its way to the dead-letter topic";
  letters[0].result = HeldDeliveries::Letter::kPublished;
  held_.LetterDone(std::move(letters[0]), now_);
  EXPECT_EQ(held_.oldest(), PublishTime(3));
  Take();
  Return({Kind::kSettled});
  EXPECT_EQ(held_.oldest(), std::nullopt);
  EXPECT_EQ(held_.in_hand(), 0U);
}

TEST_F(HeldDeliveriesTest, OneApplierIsLeftForWhatHasNotFailed) {
  Push({"!a", "!b", "!c", "d"});
  EXPECT_THAT(Take(), ElementsAre(4)) << "both have been ready for as long";
  now_ += seconds(1);
  Push({"e"});
  EXPECT_THAT(Take(), ElementsAre(1));
  std::vector<Delivery> first = std::move(batch_);
  EXPECT_THAT(Take(), ElementsAre(2));
  EXPECT_THAT(Take(), ElementsAre(5)) << "two of three have one that has failed";
  EXPECT_EQ(held_.NextBatch(), kNoTime);
  EXPECT_FALSE(held_.NoneReady());
  batch_ = std::move(first);
  Return({Kind::kSettled});
  EXPECT_LE(held_.NextBatch(), now_);
  EXPECT_THAT(Take(), ElementsAre(3));
}

TEST_F(HeldDeliveriesTest, AFailureSuspendsItsKeyUntilItIsGivenBack) {
  Push({"a", "b", "a"});
  Take();
  Push({"a", "b"});
  // Take gives the messages of a key together: 1, 3, 2.
  EXPECT_THAT(Return({Kind::kFailed, Kind::kBehind, Kind::kSettled}), IsEmpty());
  EXPECT_THAT(Take(), ElementsAre(5));
  EXPECT_EQ(held_.NextGiveBack(), now_ + seconds(5));
  EXPECT_FALSE(held_.BeginGiveBack(now_));
  now_ += seconds(5);
  EXPECT_TRUE(held_.BeginGiveBack(now_));
  EXPECT_FALSE(held_.BeginGiveBack(now_)) << "it is on its way";
  EXPECT_EQ(held_.NextGiveBack(), kNoTime);
  EXPECT_THAT(held_.TakeSuspended(now_), ElementsAre(1, 3, 4));
  EXPECT_EQ(held_.NextGiveBack(), kNoTime);
}

TEST_F(HeldDeliveriesTest, WhatIsToBeTriedAloneComesBackAsASuspectAndGivenUpIfItHasFailed) {
  Push({"a", "a"});
  Take();
  Return({Kind::kAlone, Kind::kBehind});
  EXPECT_THAT(Take(), ElementsAre(1));
  EXPECT_TRUE(batch_[0].suspect);
  ASSERT_TRUE(batch_[0].given_up);
  EXPECT_EQ(batch_[0].given_up->attempts, 2);
  Return({Kind::kSettled});
  EXPECT_THAT(Take(), ElementsAre(2));
}

TEST_F(HeldDeliveriesTest, ALetterKeepsItsKeyBusyUntilTheTopicHasTakenIt) {
  using Letter = HeldDeliveries::Letter;
  Push({"a", "a"});
  Take();
  auto letters = Return({Kind::kDeadLetter, Kind::kBehind});
  ASSERT_THAT(letters, SizeIs(1));
  EXPECT_EQ(held_.letters(), 1);
  EXPECT_EQ(letters[0].delivery.message.handle, 1u);
  EXPECT_TRUE(held_.NoneReady());
  letters[0].result = Letter::kPublished;
  EXPECT_FALSE(held_.LetterDone(std::move(letters[0]), now_));
  EXPECT_EQ(held_.letters(), 0);
  EXPECT_THAT(Take(), ElementsAre(2));

  letters = Return({Kind::kDeadLetter});
  letters[0].result = Letter::kRefused;
  letters[0].error = "too large";
  EXPECT_FALSE(held_.LetterDone(std::move(letters[0]), now_));
  EXPECT_THAT(Take(), ElementsAre(2)) << "to be recorded";
  EXPECT_EQ(batch_[0].given_up->error, "e (refused by the dead-letter topic: too large)");

  letters = Return({Kind::kDeadLetter});
  letters[0].result = Letter::kFailed;
  const auto delay = held_.LetterDone(std::move(letters[0]), now_);
  ASSERT_TRUE(delay);
  EXPECT_EQ(held_.NextGiveBack(), now_ + *delay);
}

TEST_F(HeldDeliveriesTest, ATopicThatDoesNotAnswerIsAskedAtGrowingIntervalsUntilItTakesALetter) {
  using Letter = HeldDeliveries::Letter;
  const auto send = [&](auto result) {
    Push({""});
    Take();
    auto letters = Return({Kind::kDeadLetter});
    letters[0].result = result;
    return held_.LetterDone(std::move(letters[0]), now_);
  };
  for (int i = 0; i < 5; ++i) send(Letter::kFailed);
  EXPECT_GT(send(Letter::kFailed), seconds(5));
  send(Letter::kPublished);
  EXPECT_LE(send(Letter::kFailed), seconds(1));
}

// The events of these tests have no type, which is a type, too.
class SuspendedTypeTest : public HeldDeliveriesTest {
 protected:
  SuspendedTypeTest() {
    for (const char* key : {"x", "y", "z"}) Fail(key);
    now_ += ConsumerHealth::kDoubt;
    Fail("x");
  }
  void Fail(const char* key) {
    health_.Failed({.type = "", .key = key, .sqlstate = "42703", .error = "e"}, now_);
  }
  // These keys come, one message each, and are held.
  void Hold(std::initializer_list<std::string> keys) {
    Push(keys);
    const size_t count = Take().size();
    held_.Return(std::vector<Disposition>(count, {.kind = Kind::kHeld}), &batch_, now_);
  }
  // The time comes at which something is to be done.
  void Look() {
    now_ = std::max(now_, held_.NextLook());
    held_.Resume(now_);
  }
  // The messages of the probe, which fails.
  std::vector<uint64_t> Probe() {
    Look();
    const auto handles = Take();
    EXPECT_TRUE(batch_.empty() || batch_[0].probe);
    Fail("x");
    held_.Return(std::vector<Disposition>(handles.size(), {.kind = Kind::kHeld}), &batch_, now_);
    return handles;
  }
};

TEST_F(SuspendedTypeTest, ItsEventsAreHeldWithWhatFollowsAndGoOnInOrder) {
  Hold({"a", "b"});
  Push({"a", "b"});
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_EQ(held_.NextGiveBack(), kNoTime);
  health_.Settled("", true, health_.Begin(), now_);
  Look();
  EXPECT_THAT(Take(), ElementsAre(1, 3, 2, 4));
  EXPECT_FALSE(batch_[0].probe);
}

TEST_F(SuspendedTypeTest, AProbeIsTheFirstEventOfEachKeyInTurn) {
  Hold({"a", "b", "c"});
  Push({"c"});
  EXPECT_THAT(Probe(), ElementsAre(1));
  EXPECT_THAT(Take(), IsEmpty());
  EXPECT_THAT(Probe(), ElementsAre(2));
  EXPECT_THAT(Probe(), ElementsAre(3, 4)) << "what follows in the queue comes with it";
  Hold({"d"});
  EXPECT_THAT(Probe(), ElementsAre(5)) << "one that was not tried comes before those that were";
  EXPECT_THAT(Probe(), ElementsAre(1));
  EXPECT_THAT(Probe(), ElementsAre(2));
}

TEST_F(SuspendedTypeTest, WhatHasFailedBeforeIsHeldAndGoesOnWithTheOthers) {
  Push({"a", "b"});
  Take();
  held_.Return({{.kind = Kind::kFailed, .delay = seconds(60)}, {.kind = Kind::kHeld}}, &batch_,
               now_);
  EXPECT_EQ(held_.NextGiveBack(), kNoTime);
  health_.Settled("", true, health_.Begin(), now_);
  Look();
  EXPECT_THAT(Take(), SizeIs(2));
}

TEST_F(SuspendedTypeTest, WhatIsHeldWhenTheSuspensionHasJustEndedIsReadyAtOnce) {
  Push({"a"});
  EXPECT_THAT(Take(), ElementsAre(1));
  health_.Settled("", true, health_.Begin(), now_);
  held_.Return({{.kind = Kind::kHeld}}, &batch_, now_);
  EXPECT_THAT(Take(), ElementsAre(1));
}

TEST_F(SuspendedTypeTest, NoMoreThanHalfOfWhatMayBeOutstandingIsHeld) {
  Hold({"a", "b", "c"});
  Push({"a", "a", "a", "a", "b", "b", "b"});
  EXPECT_EQ(held_.NextGiveBack(), kNoTime);
  Push({"a"});
  EXPECT_EQ(held_.NextGiveBack(), now_ + HeldDeliveries::kGiveBack);
  now_ = held_.NextGiveBack();
  EXPECT_THAT(held_.TakeSuspended(now_), ElementsAre(3));
  EXPECT_EQ(held_.in_hand(), 10u);
  EXPECT_THAT(Probe(), SizeIs(6)) << "the others are still held";
}

TEST_F(SuspendedTypeTest, TheOnlyKeyOfATypeIsGivenBackIfItAloneIsTooMuch) {
  Hold({"a"});
  for (int i = 0; i < 9; ++i) Push({"a"});
  EXPECT_EQ(held_.NextGiveBack(), kNoTime);
  for (int i = 0; i < 21; ++i) Push({"a"});
  EXPECT_EQ(held_.NextGiveBack(), now_ + HeldDeliveries::kGiveBack);
  now_ = held_.NextGiveBack();
  EXPECT_THAT(held_.TakeSuspended(now_), SizeIs(31));
  EXPECT_EQ(held_.in_hand(), 0u);
}

TEST_F(SuspendedTypeTest, AllOfItIsGivenBackInTheEnd) {
  Hold({"a", "b"});
  EXPECT_THAT(held_.Drain(), SizeIs(2));
  EXPECT_EQ(held_.NextLook(), kNoTime);
}

}  // namespace
}  // namespace postbox::puller
