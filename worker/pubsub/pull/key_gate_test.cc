#include "worker/pubsub/pull/key_gate.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <map>
#include <string>

namespace postbox::pubsub {
namespace {

class KeyGateTest : public ::testing::Test {
 protected:
  bool Admit(const std::string& id) {
    const std::uint64_t position = gate_.Admit("k", id, now_);
    if (position == 0) return false;
    positions_[id] = position;
    return true;
  }
  // The consumer gives back messages that it has in hand.
  void GiveBack(std::initializer_list<std::string> ids) {
    for (const auto& id : ids) gate_.GiveBack("k", id, positions_[id], now_);
  }
  void Returned(std::initializer_list<std::string> ids) {
    for (const auto& id : ids) gate_.Returned("k", id);
  }

  KeyGate gate_;
  KeyGate::TimePoint now_{std::chrono::hours(1000)};
  std::map<std::string, std::uint64_t> positions_;
};

TEST_F(KeyGateTest, AKeyIsClosedUntilAllThatIsOutHasComeBackInOrder) {
  EXPECT_TRUE(Admit("m1"));
  EXPECT_TRUE(Admit("m2"));
  GiveBack({"m1", "m2"});
  EXPECT_FALSE(Admit("m3"));  // on its way when m1 was given back
  EXPECT_NE(gate_.Admit("other", "m4", now_), 0u);
  EXPECT_TRUE(Admit("m1"));
  EXPECT_FALSE(Admit("m4"));  // m2 and m3 are still out
  EXPECT_TRUE(Admit("m2"));
  EXPECT_TRUE(Admit("m3"));
  EXPECT_TRUE(gate_.closed("k"));
  EXPECT_TRUE(Admit("m4"));
  EXPECT_FALSE(gate_.closed("k"));
  EXPECT_TRUE(Admit("m5"));
}

TEST_F(KeyGateTest, AMessageThatFailsAgainTakesItsOldPlace) {
  for (const char* id : {"m1", "m2", "m3"}) Admit(id);
  GiveBack({"m1", "m2", "m3"});
  EXPECT_TRUE(Admit("m1"));
  GiveBack({"m1"});
  EXPECT_FALSE(Admit("m2"));
  EXPECT_TRUE(Admit("m1"));
  EXPECT_TRUE(Admit("m2"));
  GiveBack({"m1", "m2"});
  EXPECT_FALSE(Admit("m3"));
  for (const char* id : {"m1", "m2", "m3"}) EXPECT_TRUE(Admit(id)) << id;
  EXPECT_EQ(gate_.closed_keys(), 0u);
}

TEST_F(KeyGateTest, AMessageThatWasDeliveredTwiceKeepsItsFirstPlace) {
  Admit("m1");
  Admit("m2");
  const auto first = positions_["m1"];
  Admit("m1");  // its lease was over while it was in hand
  gate_.GiveBack("k", "m1", first, now_);
  GiveBack({"m2", "m1"});
  EXPECT_FALSE(Admit("m2"));
  EXPECT_TRUE(Admit("m1"));
  EXPECT_TRUE(Admit("m2"));
}

TEST_F(KeyGateTest, WhatNeverComesBackIsForgottenWhenAReturnedMessageArrivesForTheSecondTime) {
  Admit("dead-lettered");
  Admit("m2");
  GiveBack({"dead-lettered", "m2"});
  Returned({"dead-lettered", "m2"});
  EXPECT_FALSE(Admit("m2"));
  EXPECT_FALSE(Admit("m3"));
  EXPECT_FALSE(Admit("m3")) << "its nack has not reached the service, this is an old delivery";
  Returned({"m2", "m3"});
  EXPECT_TRUE(Admit("m2"));
  EXPECT_TRUE(Admit("m3"));
}

TEST_F(KeyGateTest, WhatWasSentBeforeAnEarlierMessageFailedAgainIsNotASecondArrival) {
  Admit("m1");
  GiveBack({"m1"});
  EXPECT_FALSE(Admit("m2"));
  Returned({"m1", "m2"});
  EXPECT_TRUE(Admit("m1"));  // m2 was sent with it, and is still unread
  GiveBack({"m1"});
  Returned({"m1"});
  EXPECT_FALSE(Admit("m2"));
  Returned({"m2"});
  EXPECT_TRUE(Admit("m1"));
  EXPECT_TRUE(Admit("m2"));
}

TEST_F(KeyGateTest, AMessageWhoseNackWasLostIsWaitedFor) {
  Admit("m1");
  GiveBack({"m1"});
  EXPECT_FALSE(Admit("m2"));
  Returned({"m2"});
  EXPECT_FALSE(Admit("m2"));
  Returned({"m2"});
  EXPECT_FALSE(Admit("m2"));
  EXPECT_TRUE(Admit("m1"));
  EXPECT_TRUE(Admit("m2"));
}

TEST_F(KeyGateTest, AMessageThatCouldNotBeHandedOnClosesItsKey) {
  Admit("m1");
  gate_.GiveBack("k", "m2", 0, now_);
  EXPECT_FALSE(Admit("m3"));
  EXPECT_TRUE(Admit("m2"));
  EXPECT_TRUE(Admit("m3"));
}

TEST_F(KeyGateTest, MessagesWithoutAKeyAreNeverTurnedAway) {
  gate_.GiveBack("", "m1", gate_.Admit("", "m1", now_), now_);
  EXPECT_NE(gate_.Admit("", "m2", now_), 0u);
}

// There was a limit, and it counted the closings of open keys, too: after 100,000 nacks every nack
// opened the key of an earlier one.
TEST_F(KeyGateTest, NoKeyIsOpenedHoweverManyAreClosed) {
  Admit("m1");
  GiveBack({"m1"});
  for (int i = 0; i < 200'000; ++i) gate_.GiveBack(std::to_string(i % 150'000), "m", 0, now_);
  EXPECT_TRUE(gate_.closed("k"));
  EXPECT_FALSE(Admit("m2"));
  EXPECT_EQ(gate_.closed_keys(), 150'001u);
}

TEST_F(KeyGateTest, AKeyOfWhichNothingArrivesForADayIsForgotten) {
  Admit("m1");
  GiveBack({"m1"});
  gate_.GiveBack("l", "m", 0, now_);
  now_ += std::chrono::hours(20);
  EXPECT_FALSE(Admit("m2"));
  now_ += std::chrono::hours(5);
  gate_.GiveBack("j", "m", 0, now_);
  EXPECT_FALSE(gate_.closed("l"));
  EXPECT_TRUE(gate_.closed("k"));
  EXPECT_TRUE(gate_.closed("j"));
}

}  // namespace
}  // namespace postbox::pubsub
