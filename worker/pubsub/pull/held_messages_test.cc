#include "worker/pubsub/pull/held_messages.h"

#include <gtest/gtest.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

namespace postbox::pubsub {
namespace {

using State = HeldMessage::State;

// Texts are literals, so no message needs a block.
struct Holder {
  uint64_t Add(std::string_view key, int64_t bytes = 1, State state = State::kWaiting) {
    PulledMessage pulled;
    pulled.identity.key = key;
    pulled.identity.message_id = "id";
    pulled.bytes = bytes;
    return held.Add(std::move(pulled), state, now);
  }
  // The handles that are handed on, and after a bar those that are turned away; + if it is full.
  std::string Take(KeyGate* gate = nullptr) {
    const HeldMessages::Ready ready = held.TakeReady(gate, now);
    std::string text;
    for (const ReceivedMessage& message : ready.messages) text += std::to_string(message.handle);
    if (!ready.turned_away.empty()) text += "|";
    for (const uint64_t handle : ready.turned_away) text += std::to_string(handle);
    return text + (ready.full ? "+" : "");
  }

  const HeldMessages::TimePoint now{std::chrono::seconds(1000)};
  HeldMessages held{3, 100};
};

TEST(HeldMessages, AMessageWithoutAConfirmedReceiptHoldsUpOnlyItsKey) {
  Holder holder;
  const uint64_t first = holder.Add("a", 1, State::kReceipt);
  holder.Add("a");
  holder.Add("b");
  EXPECT_EQ(holder.Take(), "3");
  holder.held.Find(first)->state = State::kWaiting;
  EXPECT_EQ(holder.Take(), "12");
  holder.Add("c", 1, State::kReceipt);
  holder.held.Remove(4);
  EXPECT_TRUE(holder.held.TakeIncoming().empty()) << "its lease was lost before it was handed on";
}

TEST(HeldMessages, WhatIsInHandHasALimitButOneMessageOfAnySizeMayBe) {
  Holder holder;
  holder.Add("", 500);
  holder.Add("", 60);
  holder.Add("", 60);
  EXPECT_EQ(holder.Take(), "1+");
  EXPECT_EQ(holder.held.TakeFromHand(2), nullptr) << "it waits";
  EXPECT_NE(holder.held.TakeFromHand(1), nullptr);
  holder.held.Remove(1);
  EXPECT_EQ(holder.Take(), "2+");
  EXPECT_EQ(holder.held.InHand(), std::vector<uint64_t>{2});
  EXPECT_EQ(holder.held.TakeIncoming(), std::vector<uint64_t>{3});
  EXPECT_EQ(holder.Take(), "");
}

TEST(HeldMessages, WhatTheGateTurnsAwayIsNotInHand) {
  Holder holder;
  KeyGate gate;
  gate.GiveBack("a", "an earlier one", 0, holder.now);
  holder.Add("a");
  holder.Add("b");
  EXPECT_EQ(holder.Take(&gate), "2|1");
  EXPECT_EQ(holder.held.InHand(), std::vector<uint64_t>{2});
}

}  // namespace
}  // namespace postbox::pubsub
