// How long batches took to be applied, in the last minute: percentiles.
//
// Times are counted in buckets, kPerDoubling for each doubling, in slices of kSlice. A percentile
// is the upper bound of a bucket, so it is at most a fifth too long. Not thread-safe; the time is
// passed in.
#ifndef POSTBOX_WORKER_PULLER_APPLY_TIMES_H_
#define POSTBOX_WORKER_PULLER_APPLY_TIMES_H_

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>

namespace postbox::puller {

class ApplyTimes {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  using Microseconds = std::chrono::microseconds;
  static constexpr std::chrono::seconds kSlice{10};
  static constexpr size_t kSlices = 6;
  static constexpr size_t kPerDoubling = 4;
  static constexpr size_t kBuckets = 40 * kPerDoubling;  // from 1 us to more than a week

  void Add(std::chrono::steady_clock::duration took, TimePoint now);
  // The time that this part of the batches did not exceed. Null if there was none.
  std::optional<Microseconds> Percentile(double part, TimePoint now) const;

 private:
  struct Slice {
    int64_t number = -1;  // of kSlice since the clock began
    std::array<uint32_t, kBuckets> counts{};
  };
  std::array<Slice, kSlices> slices_{};
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_APPLY_TIMES_H_
