#include "worker/pubsub/publish/waiting_messages.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstddef>
#include <deque>

namespace postbox::pubsub {
namespace {

const std::chrono::steady_clock::time_point kNow{std::chrono::seconds(1000)};

struct Waiting {
  OutgoingMessage* Push(std::size_t size = 1) {
    OutgoingMessage* message = &all.emplace_back();
    message->encoded.assign(size, 'x');
    messages.Push(message);
    return message;
  }
  std::size_t Fill(std::size_t most_bytes = kMaxRequestBytes) {
    OutgoingBatch batch;
    messages.Fill(&batch, most_bytes, kNow);
    return batch.messages.size();
  }

  std::deque<OutgoingMessage> all;
  WaitingMessages messages;
};

TEST(WaitingMessages, UrgentOnesComeFirstInTheirOrderAlsoWhenSomeHaveLeft) {
  Waiting waiting;
  OutgoingMessage* const other = waiting.Push();
  OutgoingMessage urgent[3];
  waiting.messages.PushUrgent(&urgent[0]);
  waiting.messages.PushUrgent(&urgent[1]);
  EXPECT_EQ(waiting.messages.PopFront(), &urgent[0]);
  waiting.messages.PushUrgent(&urgent[2]);
  for (OutgoingMessage* const next : {&urgent[1], &urgent[2], other}) {
    EXPECT_EQ(waiting.messages.PopFront(), next);
  }
  EXPECT_TRUE(waiting.messages.empty());
}

TEST(WaitingMessages, ABatchEndsBeforeARejectedMessageAndBeforeOneThatIsTooLate) {
  Waiting waiting;
  waiting.Push();
  waiting.Push()->status = PublishStatus::kRejected;
  waiting.Push();
  waiting.Push()->send_by = kNow;
  EXPECT_EQ(waiting.Fill(), 1u);
  EXPECT_EQ(waiting.Fill(), 0u) << "a rejected one is not taken";
  EXPECT_EQ(waiting.messages.PopFront()->status, PublishStatus::kRejected);
  EXPECT_EQ(waiting.Fill(), 1u);
  EXPECT_EQ(waiting.Fill(), 1u) << "the first one is taken, however late";
}

TEST(WaitingMessages, AMessageAboveTheLimitOfBytesIsAloneInItsBatch) {
  Waiting waiting;
  for (const std::size_t size : {10, 1000, 10, 10}) waiting.Push(size);
  for (const std::size_t messages : {1u, 1u, 2u}) EXPECT_EQ(waiting.Fill(100), messages);
  EXPECT_EQ(waiting.messages.size(), 0u);
}

}  // namespace
}  // namespace postbox::pubsub
