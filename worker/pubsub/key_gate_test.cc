#include "worker/pubsub/key_gate.h"

#include <gtest/gtest.h>

namespace postbox::pubsub {
namespace {

TEST(KeyGateTest, ANackedKeyOpensWhenTheNackedMessageArrivesAgain) {
  KeyGate gate;
  gate.Close("k", "m1");
  EXPECT_FALSE(gate.Admit("k", "m2"));
  EXPECT_TRUE(gate.Admit("other", "m3"));
  EXPECT_TRUE(gate.Admit("k", "m1"));
  EXPECT_TRUE(gate.Admit("k", "m2"));
}

TEST(KeyGateTest, OfSeveralNacksOfAKeyTheFirstCounts) {
  KeyGate gate;
  gate.Close("k", "m1");
  gate.Close("k", "m2");
  EXPECT_FALSE(gate.Admit("k", "m2"));
  EXPECT_TRUE(gate.Admit("k", "m1"));
}

TEST(KeyGateTest, AKeyWhoseNackedMessageNeverComesBackOpensOnTheSecondArrivalOfAnother) {
  KeyGate gate;
  gate.Close("k", "dead-lettered");
  EXPECT_FALSE(gate.Admit("k", "m2"));
  EXPECT_FALSE(gate.Admit("k", "m3"));
  EXPECT_TRUE(gate.Admit("k", "m2"));
  EXPECT_TRUE(gate.Admit("k", "m3"));
}

TEST(KeyGateTest, MessagesWithoutAKeyAreNeverTurnedAway) {
  KeyGate gate;
  gate.Close("", "m1");
  EXPECT_TRUE(gate.Admit("", "m2"));
}

TEST(KeyGateTest, TheNumberOfClosedKeysIsBounded) {
  KeyGate gate(2);
  gate.Close("a", "1");
  gate.Close("b", "2");
  gate.Close("c", "3");
  EXPECT_FALSE(gate.closed("a"));
  EXPECT_TRUE(gate.closed("b"));
  EXPECT_TRUE(gate.closed("c"));
}

}  // namespace
}  // namespace postbox::pubsub
