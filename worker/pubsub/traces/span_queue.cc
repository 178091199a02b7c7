#include "worker/pubsub/traces/span_queue.h"

#include <algorithm>
#include <utility>

namespace postbox::pubsub {

bool SpanQueue::Add(Span span, TimePoint now) {
  const std::size_t bytes = span.bytes();
  if (spans_.size() >= kMaxSpans || bytes_ + bytes > kMaxBytes) {
    ++counts_.dropped;
    if (error_.empty()) error_ = "spans come faster than the collector takes them";
    return false;
  }
  const bool was_full = BatchIsFull();
  if (spans_.empty()) first_at_ = now;
  bytes_ += bytes;
  spans_.push_back(std::move(span));
  return in_flight_ == 0 && (spans_.size() == 1 || (!was_full && BatchIsFull()));
}

std::optional<SpanQueue::TimePoint> SpanQueue::NextExport() const {
  if (spans_.empty() || in_flight_ != 0) return std::nullopt;
  if (hurry_) return TimePoint::min();
  return std::max(BatchIsFull() ? first_at_ : first_at_ + kDelay, not_before_);
}

std::vector<Span> SpanQueue::Take() {
  std::vector<Span> batch;
  std::size_t bytes = 0;
  while (!spans_.empty() && batch.size() < kBatchSpans) {
    const std::size_t next = spans_.front().bytes();
    if (!batch.empty() && bytes + next > kBatchBytes) break;
    bytes += next;
    batch.push_back(std::move(spans_.front()));
    spans_.pop_front();
  }
  bytes_ -= bytes;
  in_flight_ = batch.size();
  return batch;
}

void SpanQueue::Exported(std::size_t rejected, const std::string& error) {
  rejected = std::min(rejected, in_flight_);
  counts_.exported += in_flight_ - rejected;
  counts_.dropped += rejected;
  if (rejected > 0) error_ = error.empty() ? "the collector has rejected spans" : error;
  in_flight_ = 0;
  pause_ = kFirstPause;
}

void SpanQueue::Failed(const std::string& error, TimePoint now) {
  counts_.dropped += in_flight_;
  error_ = error;
  in_flight_ = 0;
  not_before_ = now + pause_;
  pause_ = std::min(2 * pause_, kLongestPause);
}

std::optional<DroppedSpans> SpanQueue::TakeDropped(TimePoint now) {
  if (counts_.dropped == told_ || now < tell_at_) return std::nullopt;
  tell_at_ = now + kTellInterval;
  DroppedSpans dropped{.spans = counts_.dropped - told_, .error = std::move(error_)};
  told_ = counts_.dropped;
  error_.clear();
  return dropped;
}

}  // namespace postbox::pubsub
