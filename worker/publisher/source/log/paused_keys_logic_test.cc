#include "worker/publisher/source/log/paused_keys_logic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace postbox::publisher {
namespace {

// That has read a table with these first rows.
PausedKeys Read(const std::vector<std::pair<std::string, std::int64_t>>& heads) {
  PausedKeys keys;
  keys.BeginRound();
  for (const auto& [key, seq] : heads) keys.Found(key, seq);
  keys.EndRound();
  return keys;
}

TEST(PausedKeys, AreThoseOfTheTableAndThoseThatWereAdded) {
  PausedKeys keys;
  EXPECT_FALSE(keys.read());
  keys.BeginRound();
  keys.Found("a", 10);
  EXPECT_FALSE(keys.read());
  keys.EndRound();
  EXPECT_TRUE(keys.read());
  keys.Add("b", 20);
  EXPECT_TRUE(keys.contains("a"));
  EXPECT_TRUE(keys.contains("b"));
  EXPECT_FALSE(keys.contains("c"));
}

TEST(PausedKeys, ThatAreNotFoundInARoundAreNotPausedAnyMore) {
  PausedKeys keys = Read({{"deleted", 1}, {"on its way", 2}, {"there", 3}});
  keys.HandOut("on its way", 2);
  keys.BeginRound();
  keys.Add("added meanwhile", 4);
  keys.Found("there", 3);
  EXPECT_TRUE(keys.contains("deleted")) << "until the round is over";
  keys.EndRound();
  EXPECT_FALSE(keys.contains("deleted"));
  for (const char* key : {"on its way", "there", "added meanwhile"}) {
    EXPECT_TRUE(keys.contains(key)) << key;
  }
}

TEST(PausedKeys, KeepASeqThatIsNotAboveTheirRows) {
  PausedKeys keys = Read({{"a", 10}});
  EXPECT_EQ(keys.Before("a"), 9);
  EXPECT_EQ(keys.Before("unknown"), PausedKeys::kLowest);
  keys.HandOut("a", 10);
  keys.HandOut("a", 12);
  keys.Settle("a", 10, true);
  keys.Settle("a", 12, true);
  EXPECT_EQ(keys.Before("a"), 11) << "another row may have seq 12";
  keys.Add("a", 5);
  EXPECT_EQ(keys.Before("a"), 4) << "it was committed late";
  keys.Add("b", 7);
  EXPECT_EQ(keys.Before("b"), PausedKeys::kLowest) << "it may have had earlier rows";
}

TEST(PausedKeys, StayWhereTheyAreWhenARowComesBeforeThoseOnTheirWay) {
  PausedKeys keys = Read({{"a", 10}});
  keys.HandOut("a", 10);
  keys.HandOut("a", 20);
  keys.Add("a", 15);
  keys.Settle("a", 20, true);
  EXPECT_EQ(keys.Before("a"), 9);
}

TEST(PausedKeys, AreNotMovedByWhatWasNotPublished) {
  PausedKeys keys = Read({{"a", 10}});
  keys.HandOut("a", 10);
  keys.Settle("a", 10, false);
  EXPECT_EQ(keys.Before("a"), 9);
  EXPECT_EQ(keys.on_their_way(), 0U);
}

TEST(PausedKeys, CountTheRowsOnTheirWay) {
  PausedKeys keys = Read({{"a", 1}, {"b", 2}});
  keys.HandOut("a", 1);
  keys.HandOut("a", 3);
  keys.HandOut("b", 2);
  EXPECT_EQ(keys.on_their_way(), 3u);
  EXPECT_THAT(keys.KeysOnTheirWay(), testing::UnorderedElementsAre("a", "b"));
  keys.Settle("a", 1, true);
  EXPECT_EQ(keys.on_their_way(), 2u);
  keys.Gone("a");
  EXPECT_TRUE(keys.contains("a")) << "one of its rows has no result yet";
  keys.Settle("a", 3, true);
  keys.Gone("a");
  EXPECT_FALSE(keys.contains("a"));
}

TEST(PausedKeys, AfterAFailureHaveOnTheirWayWhatEarlierStepsHandedOut) {
  PausedKeys keys = Read({{"a", 1}, {"b", 2}});
  keys.BeginStep();
  keys.HandOut("a", 1);
  keys.BeginStep();
  keys.HandOut("b", 2);
  keys.RollBack();
  EXPECT_THAT(keys.KeysOnTheirWay(), testing::ElementsAre("a"));
  EXPECT_TRUE(keys.empty()) << "what the table has is to be read again";
  EXPECT_FALSE(keys.read());
  keys.Reset();
  EXPECT_EQ(keys.on_their_way(), 0U);
}

}  // namespace
}  // namespace postbox::publisher
