// The finished spans that wait to be exported, and when they are.
//
//   - At most kMaxSpans spans and kMaxBytes bytes wait. What comes beyond that is dropped and
//     counted.
//   - One export is under way at a time. It takes a batch. It begins kDelay after the first span
//     came, or as soon as a batch is full.
//   - A batch whose export has failed is dropped and counted. After failures in a row there are
//     growing pauses, so that a collector that is away costs neither memory nor time.
//   - What was dropped is told once a minute.
//
// Pure logic: the caller passes the time. Not thread-safe.
#ifndef POSTBOX_WORKER_PUBSUB_TRACES_SPAN_QUEUE_H_
#define POSTBOX_WORKER_PUBSUB_TRACES_SPAN_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "worker/pubsub/traces/span.h"
#include "worker/pubsub/traces/trace_exporter.h"

namespace postbox::pubsub {

class SpanQueue {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr std::size_t kMaxSpans = 8192;
  static constexpr std::size_t kMaxBytes = std::size_t{8} << 20;
  static constexpr std::size_t kBatchSpans = 512;
  static constexpr std::size_t kBatchBytes = std::size_t{1} << 20;  // servers take 4 MiB at most
  static constexpr std::chrono::milliseconds kDelay{1000};
  static constexpr std::chrono::milliseconds kFirstPause{1000};
  static constexpr std::chrono::milliseconds kLongestPause{30'000};
  static constexpr std::chrono::seconds kTellInterval{60};

  // Whether NextExport() has changed.
  bool Add(Span span, TimePoint now);

  // When a batch is to be taken; nothing while one is exported, or if there is no span.
  std::optional<TimePoint> NextExport() const;
  // Takes the next batch, which is exported from now on. There must be a span.
  std::vector<Span> Take();
  // The collector has taken the batch, but for `rejected` spans; `error`: why, if it said so.
  void Exported(std::size_t rejected, const std::string& error);
  // The batch could not be exported.
  void Failed(const std::string& error, TimePoint now);

  // From now on there is no delay: the process ends.
  void Hurry() { hurry_ = true; }
  bool idle() const { return spans_.empty() && in_flight_ == 0; }

  TraceCounts counts() const { return counts_; }
  // What was dropped since the last time, once a minute.
  std::optional<DroppedSpans> TakeDropped(TimePoint now);

 private:
  bool BatchIsFull() const { return spans_.size() >= kBatchSpans || bytes_ >= kBatchBytes; }

  std::deque<Span> spans_;
  std::size_t bytes_ = 0;  // of spans_
  std::size_t in_flight_ = 0;
  TimePoint first_at_{};  // when a span came last while none waited
  TimePoint not_before_{};
  std::chrono::milliseconds pause_ = kFirstPause;
  bool hurry_ = false;
  TraceCounts counts_;
  std::uint64_t told_ = 0;  // of counts_.dropped
  TimePoint tell_at_{};
  std::string error_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_TRACES_SPAN_QUEUE_H_
