#include "worker/pubsub/pull/ack_batcher.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace postbox::pubsub {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::ElementsAre;

constexpr int kAck = AckRequest::kAcknowledge;

class AckBatcherTest : public ::testing::Test {
 protected:
  void Ack(uint64_t handle, std::string_view key = "") {
    batcher_.Add(kAck, AckEntry{.handle = handle, .ack_id = "id", .key = key}, now_);
  }
  std::vector<uint64_t> TakeHandles() {
    std::vector<uint64_t> handles;
    last_ = batcher_.Take(now_);
    if (last_) {
      for (const auto& entry : last_->entries) handles.push_back(entry.handle);
    }
    return handles;
  }

  AckBatcher batcher_{"projects/p/subscriptions/s"};
  AckBatcher::TimePoint now_{std::chrono::hours(1)};
  std::optional<AckRequest> last_;
};

TEST_F(AckBatcherTest, ARequestLeavesAHundredMillisecondsAfterItsFirstEntry) {
  Ack(1);
  now_ += milliseconds(60);
  Ack(2);
  EXPECT_FALSE(batcher_.Take(now_));
  EXPECT_EQ(*batcher_.NextDue(), now_ + milliseconds(40));
  now_ += milliseconds(40);
  EXPECT_THAT(TakeHandles(), ElementsAre(1, 2));
  EXPECT_FALSE(batcher_.Take(now_));
  EXPECT_TRUE(batcher_.empty());
  EXPECT_FALSE(batcher_.NextDue());
}

TEST_F(AckBatcherTest, AFullRequestLeavesAtOnceWithAThousandIds) {
  for (uint64_t i = 0; i < 1001; ++i) Ack(i);
  EXPECT_EQ(TakeHandles().size(), 1000u);
  EXPECT_FALSE(batcher_.Take(now_));
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(1000));
}

TEST_F(AckBatcherTest, ASmallBudgetMakesASmallerRequestFull) {
  AckBatcher batcher("s", 6);
  for (uint64_t i = 0; i < 2; ++i) batcher.Add(kAck, AckEntry{.handle = i}, now_);
  EXPECT_FALSE(batcher.Take(now_));
  batcher.Add(kAck, AckEntry{.handle = 2}, now_);
  EXPECT_EQ(batcher.Take(now_)->entries.size(), 3u);
}

TEST_F(AckBatcherTest, AcksThatAreOnTheirWayMakeSmallerRequestsFull) {
  AckBatcher batcher("s", 1000);
  std::vector<AckRequest> sent;
  std::vector<size_t> sizes;
  for (uint64_t i = 0; i < 1100; ++i) {
    batcher.Add(kAck, AckEntry{.handle = i}, now_);
    if (auto request = batcher.Take(now_)) {
      sizes.push_back(request->entries.size());
      sent.push_back(std::move(*request));
    }
  }
  EXPECT_THAT(sizes, ElementsAre(500, 250, 125, 62, 50, 50, 50)) << "a twentieth at least";
  for (const AckRequest& request : sent) batcher.Finished(request, now_);
  const size_t wait = 1100 - 1087;
  for (uint64_t i = wait; i < 499; ++i) batcher.Add(kAck, AckEntry{.handle = i}, now_);
  EXPECT_FALSE(batcher.Take(now_)) << "none is on its way now";
  batcher.Add(kAck, AckEntry{.handle = 499}, now_);
  EXPECT_EQ(batcher.Take(now_)->entries.size(), 500u);
}

TEST_F(AckBatcherTest, WhatWaitsForItsKeyMakesNoRequestFull) {
  AckBatcher batcher("s", 6);
  batcher.set_serial_per_key(true);
  const auto add = [&](uint64_t handle, std::string_view key) {
    batcher.Add(kAck, AckEntry{.handle = handle, .ack_id = "id", .key = key}, now_);
  };
  add(1, "a");
  batcher.Flush(now_);
  const auto first = batcher.Take(now_);
  EXPECT_FALSE(batcher.Take(now_));
  for (uint64_t handle = 2; handle < 9; ++handle) add(handle, "a");
  add(9, "b");
  EXPECT_FALSE(batcher.Take(now_));
  EXPECT_FALSE(batcher.empty());
  batcher.Finished(*first, now_);
  const auto next = batcher.Take(now_);
  ASSERT_TRUE(next);
  std::vector<uint64_t> handles;
  for (const AckEntry& entry : next->entries) handles.push_back(entry.handle);
  EXPECT_THAT(handles, ElementsAre(9, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(AckBatcherTest, AKeyStaysInOrderWhenARequestEndsInTheMiddleOfItsAcks) {
  batcher_.set_serial_per_key(true);
  for (uint64_t handle = 1; handle <= 1002; ++handle) Ack(handle, "a");
  EXPECT_EQ(TakeHandles().size(), 1000u);
  const auto first = *last_;
  Ack(1003, "a");
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre());
  batcher_.Finished(first, now_);
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(1001, 1002, 1003));
}

TEST_F(AckBatcherTest, ARequestStaysBelowTheByteLimit) {
  const std::string id(4000, 'x');
  for (uint64_t i = 0; i < 300; ++i) {
    batcher_.Add(kAck, AckEntry{.handle = i, .ack_id = id}, now_);
  }
  size_t total = 0;
  batcher_.Flush(now_);
  while (auto request = batcher_.Take(now_)) {
    size_t bytes = 0;
    for (const auto& entry : request->entries) bytes += entry.ack_id.size() + 4;
    EXPECT_LE(bytes, AckBatcher::kMaxBytes);
    EXPECT_LE(request->entries.size(), 130u);
    total += request->entries.size();
  }
  EXPECT_EQ(total, 300u);
}

TEST_F(AckBatcherTest, AcksNacksAndExtensionsTravelApart) {
  batcher_.Add(60, AckEntry{.handle = 1, .ack_id = "a"}, now_);
  batcher_.Add(0, AckEntry{.handle = 2, .ack_id = "b"}, now_);
  Ack(3);
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(3));
  EXPECT_TRUE(last_->is_ack());
  EXPECT_THAT(TakeHandles(), ElementsAre(2));
  EXPECT_EQ(last_->deadline_seconds, 0);
  EXPECT_THAT(TakeHandles(), ElementsAre(1));
  EXPECT_EQ(last_->deadline_seconds, 60);
}

TEST_F(AckBatcherTest, NoTwoRequestsInFlightHoldAcksOfOneKey) {
  batcher_.set_serial_per_key(true);
  Ack(1, "a");
  Ack(2, "b");
  Ack(3, "a");
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(1, 2, 3));  // the ids of one request are in order
  auto first = *last_;
  Ack(4, "a");
  Ack(5, "c");
  Ack(6, "");
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(5, 6));
  EXPECT_THAT(TakeHandles(), ElementsAre());
  batcher_.Finished(first, now_);
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(4));
}

TEST_F(AckBatcherTest, LaterAcksOfAKeyWaitForARetryOfAnEarlierOne) {
  batcher_.set_serial_per_key(true);
  Ack(1, "a");
  batcher_.Flush(now_);
  TakeHandles();
  auto request = *last_;
  Ack(2, "a");
  batcher_.Finished(request, now_);
  request.entries[0].not_before = now_ + seconds(1);
  batcher_.Retry(kAck, request.entries, now_);
  Ack(3, "b");
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(3));
  now_ += seconds(1);
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(1, 2));
  EXPECT_EQ(last_->entries[0].attempts, 2);
  EXPECT_EQ(last_->entries[0].first_sent, now_ - seconds(1));
  EXPECT_EQ(last_->entries[1].attempts, 1);
}

TEST_F(AckBatcherTest, WithoutOrderARetryDelaysNoOtherAck) {
  Ack(1, "a");
  batcher_.Flush(now_);
  TakeHandles();
  auto request = *last_;
  Ack(2, "a");
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(2));
  batcher_.Finished(request, now_);
}

TEST_F(AckBatcherTest, AnAckFromBeforeAcksWereSerialLetsNoLaterOneOvertake) {
  Ack(1, "k");
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(1));
  const AckRequest earlier = *last_;
  batcher_.set_serial_per_key(true);
  Ack(2, "k");
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(2));
  const AckRequest serial = *last_;
  Ack(3, "k");
  batcher_.Finished(earlier, now_);
  batcher_.Flush(now_);
  EXPECT_FALSE(batcher_.Take(now_));
  batcher_.Finished(serial, now_);
  batcher_.Flush(now_);
  EXPECT_THAT(TakeHandles(), ElementsAre(3));
}

}  // namespace
}  // namespace postbox::pubsub
