// A histogram of durations as Prometheus has them, that any number of threads and processes add to.
//
// It is made for shared memory: plain data, all zero at first, nothing to destroy. Adding is two
// atomic additions. A reader may see a count without its part of the sum; the next one sees both.
#ifndef POSTBOX_EXTENSION_RULES_HISTOGRAM_H_
#define POSTBOX_EXTENSION_RULES_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace postbox {

// The upper ends of the buckets in microseconds, and as `le` writes them in seconds. One more has
// no end.
inline constexpr std::array<std::int64_t, 16> kBucketMicros = {
    1'000,   2'500,     5'000,     10'000,    25'000,     50'000,     100'000,    250'000,
    500'000, 1'000'000, 2'500'000, 5'000'000, 10'000'000, 30'000'000, 60'000'000, 300'000'000};
inline constexpr std::size_t kBuckets = kBucketMicros.size() + 1;
inline constexpr std::array<const char*, kBuckets> kBucketNames = {
    "0.001", "0.0025", "0.005", "0.01", "0.025", "0.05", "0.1", "0.25", "0.5",
    "1",     "2.5",    "5",     "10",   "30",    "60",   "300", "+Inf"};

// The first bucket whose end is not before it.
constexpr std::size_t BucketOf(std::int64_t micros) {
  return static_cast<std::size_t>(
      std::lower_bound(kBucketMicros.begin(), kBucketMicros.end(), micros) - kBucketMicros.begin());
}

using Counter = std::atomic<std::uint64_t>;
static_assert(Counter::is_always_lock_free, "processes share it");

inline void Add(Counter* counter, std::uint64_t number) {
  counter->fetch_add(number, std::memory_order_relaxed);
}
inline std::uint64_t Value(const Counter& counter) {
  return counter.load(std::memory_order_relaxed);
}

// What one thread collects before it adds it to a histogram. A duration below 0, as of clocks that
// differ, counts as 0.
struct Durations {
  std::array<std::uint64_t, kBuckets> counts{};
  std::int64_t micros = 0;
  std::uint32_t used = 0;  // the buckets that are not empty, a bit each

  void Observe(std::int64_t duration) {
    duration = std::max<std::int64_t>(duration, 0);
    const std::size_t bucket = BucketOf(duration);
    ++counts[bucket];
    used |= 1U << bucket;
    micros += duration;
  }
  void Add(const Durations& other) {
    for (std::size_t i = 0; i < kBuckets; ++i) counts[i] += other.counts[i];
    micros += other.micros;
    used |= other.used;
  }
};

struct Histogram {
  std::array<Counter, kBuckets> counts;  // of each bucket alone, not of those below it
  Counter micros;

  void Observe(std::int64_t duration) {
    duration = std::max<std::int64_t>(duration, 0);
    postbox::Add(&counts[BucketOf(duration)], 1);
    postbox::Add(&micros, static_cast<std::uint64_t>(duration));
  }
  void Add(const Durations& durations) {
    for (std::uint32_t left = durations.used; left != 0; left &= left - 1) {
      const auto bucket = static_cast<std::size_t>(std::countr_zero(left));
      postbox::Add(&counts[bucket], durations.counts[bucket]);
    }
    postbox::Add(&micros, static_cast<std::uint64_t>(durations.micros));
  }
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_RULES_HISTOGRAM_H_
