#include "extension/rules/failpoint_list.h"

#include <gtest/gtest.h>

namespace postbox::pubsub {
namespace {

TEST(FailpointListTest, FindsTheActionOfAName) {
  EXPECT_EQ(FindFailpoint("before_apply=kill", "before_apply"), "kill");
  EXPECT_EQ(FindFailpoint("a=kill,b=error,c=pause", "b"), "error");
  EXPECT_EQ(FindFailpoint("a=kill,b=error,c=pause", "c"), "pause");
}

TEST(FailpointListTest, FindsNothingWithoutAnEntryOfExactlyThatName) {
  EXPECT_EQ(FindFailpoint("", "a"), "");
  EXPECT_EQ(FindFailpoint("after_claim=kill", "after"), "");
  EXPECT_EQ(FindFailpoint("after_claim=kill", "claim"), "");
  EXPECT_EQ(FindFailpoint("after_claim", "after_claim"), "");
}

TEST(FailpointListTest, TheFirstEntryOfANameDecides) {
  EXPECT_EQ(FindFailpoint("a=pause,a=kill", "a"), "pause");
}

TEST(FailpointListTest, AcceptsTheThreeActions) {
  for (const char* list : {"", "a=kill", "a=error", "a=pause", "a=kill,b=error,c=pause", "a=kill,"})
    EXPECT_EQ(CheckFailpointList(list), "") << list;
}

TEST(FailpointListTest, RejectsWhatIsNotNameEqualsAction) {
  for (const char* list : {"a", "=kill", "a=", "a=stop", "a=kill,,b=kill", ",", "a=kill b=kill",
                           "a=KILL", "a= kill", "a=b=kill"})
    EXPECT_NE(CheckFailpointList(list), "") << list;
}

}  // namespace
}  // namespace postbox::pubsub
