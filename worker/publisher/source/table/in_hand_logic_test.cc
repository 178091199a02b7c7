#include "worker/publisher/source/table/in_hand_logic.h"

#include <gtest/gtest.h>

namespace postbox::publisher {
namespace {

TEST(InHand, LanesOfAnOutboxShareWhatTheyHave) {
  InHand one(1), other(1), elsewhere(2);
  one.Claimed({3, 4});
  EXPECT_TRUE(other.seqs().Contains(3));
  EXPECT_FALSE(elsewhere.seqs().Contains(3));
}

TEST(InHand, WhatIsSettledIsInHandUntilItsTransactionIsKnownToHaveGoneThrough) {
  InHand rows(1);
  rows.BeginStep();
  rows.Claimed({3, 4});
  rows.BeginStep();
  rows.Settled({3});
  EXPECT_TRUE(rows.seqs().Contains(3));
  rows.RollBack();
  rows.BeginStep();
  EXPECT_TRUE(rows.seqs().Contains(3));
  rows.Settled({3});
  rows.BeginStep();
  EXPECT_FALSE(rows.seqs().Contains(3));
  EXPECT_TRUE(rows.seqs().Contains(4));
}

TEST(InHand, AClaimThatIsRolledBackIsNotInHand) {
  InHand rows(1);
  rows.BeginStep();
  rows.Claimed({3, 4});
  rows.RollBack();
  EXPECT_FALSE(rows.seqs().Contains(3));
}

TEST(InHand, ALaneThatEndsLeavesWhatOthersHave) {
  InHand other(1);
  {
    InHand one(1);
    one.Claimed({1});
    one.BeginStep();
    one.Settled({1});
    other.Claimed({2});
  }
  EXPECT_FALSE(other.seqs().Contains(1));
  EXPECT_TRUE(other.seqs().Contains(2));
}

}  // namespace
}  // namespace postbox::publisher
