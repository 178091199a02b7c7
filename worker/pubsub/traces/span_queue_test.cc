#include "worker/pubsub/traces/span_queue.h"

#include <gtest/gtest.h>

#include <string>

namespace postbox::pubsub {
namespace {

using namespace std::chrono_literals;

// A queue and the clock that the test turns.
struct Exports {
  SpanQueue queue;
  SpanQueue::TimePoint now{1000s};

  bool Add(std::size_t bytes = 0) {
    Span span;
    span.name = "send t";
    span.error = std::string(bytes, 'x');
    return queue.Add(std::move(span), now);
  }
  void Add(int spans) {
    for (int i = 0; i < spans; ++i) Add();
  }
  // How long until a batch is due.
  std::chrono::milliseconds Due() const {
    const auto due = queue.NextExport();
    EXPECT_TRUE(due);
    return std::chrono::duration_cast<std::chrono::milliseconds>(due.value_or(now) - now);
  }
};

TEST(SpanQueueTest, ASpanWaitsASecondForOthers) {
  Exports exports;
  EXPECT_FALSE(exports.queue.NextExport());
  EXPECT_TRUE(exports.Add(std::size_t{1})) << "the timer must be set";
  exports.now += 300ms;
  EXPECT_FALSE(exports.Add(std::size_t{1}));
  EXPECT_EQ(exports.Due(), 700ms);
  EXPECT_EQ(exports.queue.Take().size(), 2U);
  EXPECT_FALSE(exports.queue.NextExport()) << "nothing is left";
  exports.queue.Exported(0, "");
  EXPECT_TRUE(exports.queue.idle());
  EXPECT_EQ(exports.queue.counts().exported, 2U);
}

TEST(SpanQueueTest, AFullBatchLeavesAtOnceAndOneAtATime) {
  Exports exports;
  exports.Add(static_cast<int>(SpanQueue::kBatchSpans) - 1);
  EXPECT_EQ(exports.Due(), 1000ms);
  EXPECT_TRUE(exports.Add(std::size_t{1}));
  EXPECT_EQ(exports.Due(), 0ms);
  exports.Add(10);
  EXPECT_EQ(exports.queue.Take().size(), SpanQueue::kBatchSpans);
  EXPECT_FALSE(exports.queue.NextExport()) << "one is under way";
  exports.queue.Exported(0, "");
  EXPECT_EQ(exports.Due(), 1000ms);
}

TEST(SpanQueueTest, ABatchHasABoundedSize) {
  Exports exports;
  for (int i = 0; i < 5; ++i) exports.Add(std::size_t{400'000});
  EXPECT_EQ(exports.Due(), 0ms);
  EXPECT_EQ(exports.queue.Take().size(), 2U);
  exports.queue.Exported(0, "");
  Exports large;
  large.Add(std::size_t{2} * SpanQueue::kBatchBytes);
  EXPECT_EQ(large.queue.Take().size(), 1U) << "a span of any size leaves";
}

TEST(SpanQueueTest, WhatThereIsNoRoomForIsDroppedAndCounted) {
  Exports exports;
  exports.Add(static_cast<int>(SpanQueue::kMaxSpans) + 7);
  EXPECT_EQ(exports.queue.counts().dropped, 7U);
  Exports large;
  for (int i = 0; i < 9; ++i) large.Add(std::size_t{1} << 20);
  EXPECT_EQ(large.queue.counts().dropped, 2U);
  EXPECT_FALSE(large.queue.TakeDropped(large.now)->error.empty());
}

TEST(SpanQueueTest, ACollectorThatIsAwayIsTriedAtGrowingIntervals) {
  Exports exports;
  std::vector<std::chrono::milliseconds> pauses;
  for (int i = 0; i < 7; ++i) {
    exports.Add(static_cast<int>(SpanQueue::kBatchSpans));
    exports.queue.Take();
    exports.queue.Failed("UNAVAILABLE: away", exports.now);
    exports.Add(static_cast<int>(SpanQueue::kBatchSpans));
    pauses.push_back(exports.Due());
    exports.now += pauses.back();
    exports.queue.Take();
    exports.queue.Exported(0, "");
    if (i < 6) {
      // It fails again each time before it is there again.
      for (int failure = 0; failure <= i; ++failure) {
        exports.Add(1);
        exports.queue.Take();
        exports.queue.Failed("UNAVAILABLE: away", exports.now);
      }
      exports.Add(static_cast<int>(SpanQueue::kBatchSpans));
      pauses.back() = exports.Due();
      exports.now += pauses.back();
      exports.queue.Take();
      exports.queue.Exported(0, "");
    }
  }
  EXPECT_EQ(pauses, (std::vector<std::chrono::milliseconds>{1s, 2s, 4s, 8s, 16s, 30s, 1s}));
}

TEST(SpanQueueTest, WhatWasDroppedIsToldOnceAMinute) {
  Exports exports;
  const auto fail = [&exports](int spans) {
    exports.Add(spans);
    exports.queue.Take();
    exports.queue.Failed("UNAVAILABLE: away", exports.now);
  };
  EXPECT_FALSE(exports.queue.TakeDropped(exports.now));
  fail(3);
  auto dropped = exports.queue.TakeDropped(exports.now);
  ASSERT_TRUE(dropped);
  EXPECT_EQ(dropped->spans, 3U);
  EXPECT_EQ(dropped->error, "UNAVAILABLE: away");
  fail(4);
  exports.now += 59s;
  EXPECT_FALSE(exports.queue.TakeDropped(exports.now));
  fail(5);
  exports.now += 1s;
  dropped = exports.queue.TakeDropped(exports.now);
  ASSERT_TRUE(dropped);
  EXPECT_EQ(dropped->spans, 9U);
  exports.now += 100s;
  EXPECT_FALSE(exports.queue.TakeDropped(exports.now)) << "nothing more was dropped";
}

TEST(SpanQueueTest, WhatTheCollectorRejectsIsDropped) {
  Exports exports;
  exports.Add(5);
  exports.queue.Take();
  exports.queue.Exported(2, "too old");
  EXPECT_EQ(exports.queue.counts().exported, 3U);
  EXPECT_EQ(exports.queue.TakeDropped(exports.now)->error, "too old");
  exports.Add(5);
  exports.queue.Take();
  exports.queue.Exported(1'000'000, "");
  EXPECT_EQ(exports.queue.counts().dropped, 7U) << "no more than it got";
}

TEST(SpanQueueTest, AtTheEndNothingWaits) {
  Exports exports;
  exports.Add(1);
  exports.queue.Take();
  exports.queue.Failed("UNAVAILABLE: away", exports.now);
  exports.Add(1);
  exports.queue.Hurry();
  EXPECT_LE(*exports.queue.NextExport(), exports.now);
}

}  // namespace
}  // namespace postbox::pubsub
