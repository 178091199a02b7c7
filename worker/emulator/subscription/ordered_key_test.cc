#include "worker/emulator/subscription/ordered_key.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "worker/emulator/subscription/test_entry.h"

namespace postbox::emulator {
namespace {

using ::testing::ElementsAre;

// Three messages of a key, of which the first two are leased.
class OrderedKeyTest : public ::testing::Test {
 protected:
  void Fill(OrderedKey* key) {
    for (Entry& entry : entries_) {
      entry.key = key;
      key->Push(&entry);
    }
    for (int i = 0; i < 2; ++i) {
      key->next()->state = Entry::State::kLeased;
      key->Advance();
      key->AddLease(7);
    }
  }
  static void Ack(Entry* entry) {
    entry->key->EndLease();
    entry->state = Entry::State::kAcked;
    entry->key->NoteAck(*entry);
  }
  auto TakeBack() {
    return [this](Entry* entry) {
      if (entry->state == Entry::State::kLeased) entry->key->EndLease();
      entry->state = Entry::State::kWaiting;
      taken_back_.push_back(entry->sequence());
    };
  }

  std::vector<Entry> entries_{EntryWith(1), EntryWith(2), EntryWith(3)};
  std::vector<uint64_t> taken_back_;
};

TEST_F(OrderedKeyTest, OnlyWhatIsDoneAtTheFrontIsRemoved) {
  OrderedKey key("k", /*deliver_twice=*/false);
  Fill(&key);
  Ack(&entries_[1]);
  EXPECT_EQ(key.PopDone(), nullptr);
  EXPECT_TRUE(key.HasUnackedBefore(entries_[1]));
  Ack(&entries_[0]);
  EXPECT_FALSE(key.leased());
  EXPECT_EQ(key.PopDone(), &entries_[0]);
  EXPECT_EQ(key.PopDone(), &entries_[1]);
  EXPECT_EQ(key.PopDone(), nullptr);
  EXPECT_EQ(key.next(), &entries_[2]);
}

TEST_F(OrderedKeyTest, ARedeliveryTakesBackAllLaterMessagesEvenAckedOnes) {
  OrderedKey key("k", /*deliver_twice=*/false);
  Fill(&key);
  Ack(&entries_[1]);
  key.Rewind(entries_[0], TakeBack());
  EXPECT_THAT(taken_back_, ElementsAre(1, 2));
  EXPECT_EQ(key.next(), &entries_[0]);
  EXPECT_FALSE(key.leased());
  EXPECT_EQ(key.owner(), 0u);
}

TEST_F(OrderedKeyTest, TheSecondDeliveryBeginsWhenNothingIsLeased) {
  OrderedKey key("k", /*deliver_twice=*/true);
  Fill(&key);
  Ack(&entries_[0]);
  key.RepeatIfDue(TakeBack());
  EXPECT_THAT(taken_back_, ElementsAre());
  EXPECT_FALSE(key.HasWork()) << "the third message waits for the second delivery";
  EXPECT_EQ(key.PopDone(), nullptr);
  Ack(&entries_[1]);
  key.RepeatIfDue(TakeBack());
  EXPECT_THAT(taken_back_, ElementsAre(1, 2));
  EXPECT_TRUE(key.HasWork());
  EXPECT_EQ(key.next(), &entries_[0]);
}

TEST_F(OrderedKeyTest, ARemovedMessageBeforeTheCursorMovesIt) {
  OrderedKey key("k", /*deliver_twice=*/true);
  Fill(&key);
  Ack(&entries_[0]);
  key.Remove(entries_[0]);
  EXPECT_TRUE(key.HasWork()) << "its second delivery went with it";
  EXPECT_EQ(key.next(), &entries_[2]);
}

}  // namespace
}  // namespace postbox::emulator
