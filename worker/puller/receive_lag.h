// How old messages are when they come: whether a subscription has caught up with its topic, and how
// fast it does. Not thread-safe; the time is passed in.
//
// Pub/Sub does not say how much it holds. A message that was published more than kBehind before it
// came was waiting there, or was given back.
#ifndef POSTBOX_WORKER_PULLER_RECEIVE_LAG_H_
#define POSTBOX_WORKER_PULLER_RECEIVE_LAG_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>

namespace postbox::puller {

class ReceiveLag {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds kBehind{10};
  static constexpr std::chrono::seconds kWindow{60};
  static constexpr std::chrono::seconds kSample{2};

  struct Numbers {
    std::optional<int64_t> lag_ms{};  // the age of the oldest of the messages that came last
    // Over the last minute: messages that came in 1000 s, and by how many seconds the lag would
    // decrease in that time. Null if there is nothing to compare.
    std::optional<int64_t> events_per_1000_s{};
    std::optional<int64_t> catch_up_per_1000{};
  };

  void Add(size_t messages, std::chrono::milliseconds age, TimePoint now);
  Numbers Of(TimePoint now) const;
  // When a message came last that had waited.
  std::optional<TimePoint> behind_at() const { return behind_at_; }

 private:
  struct Sample {
    TimePoint at;
    int64_t received;
    std::chrono::milliseconds lag;
  };
  int64_t received_ = 0;
  std::optional<std::chrono::milliseconds> lag_;
  std::optional<TimePoint> behind_at_;
  std::deque<Sample> samples_;  // kSample apart, the first of them older than kWindow at most
};

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_RECEIVE_LAG_H_
