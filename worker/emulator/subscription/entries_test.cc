#include "worker/emulator/subscription/entries.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "worker/emulator/subscription/test_entry.h"

namespace postbox::emulator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(Entries, WhatHasChangedIsToBeSaved) {
  Entries entries;
  entries.Append(MessageWith(1));
  EXPECT_THAT(entries.TakeTouched(), IsEmpty()) << "changes are not remembered yet";
  entries.RememberChanges();
  Entry* second = entries.Append(MessageWith(2));
  EXPECT_THAT(entries.TakeTouched(), ElementsAre(2));
  entries.MarkUnacked(second);  // it is
  EXPECT_THAT(entries.TakeTouched(), IsEmpty());
  entries.MarkAcked(second);
  EXPECT_TRUE(entries.StateOf(2)->acked);
  entries.Release(second);
  EXPECT_THAT(entries.TakeTouched(), ElementsAre(2, 2));
  EXPECT_FALSE(entries.StateOf(2).has_value());
  EXPECT_EQ(entries.unacked(), 1u);
}

TEST(Entries, AckedMessagesAreKeptOnlyIfTheyAreRetained) {
  Entries entries;
  entries.RetainAcked(true);
  Entry* entry = entries.Append(MessageWith(1));
  entries.MarkAcked(entry);
  entries.Release(entry);
  EXPECT_EQ(entries.oldest(), entry);
  entries.RetainAcked(false);
  entries.Sift([](Entry*) { return false; });
  EXPECT_EQ(entries.oldest(), nullptr);
}

TEST(Entries, ARestoredMessageIsAsItWasSavedUnlessItIsThereAlready) {
  Entries entries;
  entries.RememberChanges();
  entries.Restore(MessageWith(3), {.acked = true, .failures = 2});
  Entry* second = entries.Restore(MessageWith(2), {.acked = false, .failures = 1});
  EXPECT_EQ(entries.oldest(), second);
  EXPECT_EQ(entries.Restore(MessageWith(2), {.acked = true}), second);
  EXPECT_EQ(entries.unacked(), 1u);
  EXPECT_EQ(entries.StateOf(3)->failures, 2);
  EXPECT_THAT(entries.TakeTouched(), IsEmpty());
}

}  // namespace
}  // namespace postbox::emulator
