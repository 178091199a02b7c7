#include "worker/puller/apply_times.h"

#include <algorithm>
#include <cmath>

namespace postbox::puller {
namespace {

int64_t SliceOf(ApplyTimes::TimePoint now) { return now.time_since_epoch() / ApplyTimes::kSlice; }

}  // namespace

void ApplyTimes::Add(std::chrono::steady_clock::duration took, TimePoint now) {
  const int64_t number = SliceOf(now);
  Slice& slice = slices_[static_cast<size_t>(number) % kSlices];
  if (slice.number != number) slice = {.number = number};
  const auto us = std::chrono::duration_cast<Microseconds>(took).count();
  const double doublings = std::log2(static_cast<double>(std::max<int64_t>(us, 1)));
  const auto bucket = static_cast<size_t>(std::ceil(doublings * kPerDoubling));
  ++slice.counts[std::min(bucket, kBuckets - 1)];
}

std::optional<ApplyTimes::Microseconds> ApplyTimes::Percentile(double part, TimePoint now) const {
  std::array<uint64_t, kBuckets> counts{};
  uint64_t all = 0;
  for (const Slice& slice : slices_) {
    if (slice.number <= SliceOf(now) - static_cast<int64_t>(kSlices)) continue;
    for (size_t i = 0; i < kBuckets; ++i) {
      counts[i] += slice.counts[i];
      all += slice.counts[i];
    }
  }
  if (all == 0) return std::nullopt;
  const auto rank = static_cast<uint64_t>(std::ceil(part * static_cast<double>(all)));
  uint64_t seen = 0;
  size_t bucket = 0;
  while (seen + counts[bucket] < std::max<uint64_t>(rank, 1)) seen += counts[bucket++];
  const double us = std::exp2(static_cast<double>(bucket) / kPerDoubling);
  return Microseconds(static_cast<int64_t>(std::ceil(us)));
}

}  // namespace postbox::puller
