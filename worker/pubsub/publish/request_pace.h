// How large the requests of one key are, and how close together, when the broker takes its messages
// more slowly than they come.
//
// Pub/Sub takes 1 MB/s of one ordering key. What is above that is refused with RESOURCE_EXHAUSTED,
// and so is a request that alone is more than the broker takes at once. A refused request was not
// published, so nothing is lost and nothing is unknown; it only has to wait. After the first
// refusal the key's requests are sent at the documented rate, each with the messages of half a
// second at most. A refusal of such a request makes the rate a little lower; each refusal puts a
// pause before the next try. While requests are taken the rate grows, faster when there was no
// refusal for some time. When the rate is far above the limit of Pub/Sub, there was no limit of a
// key, and the pace is over.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_REQUEST_PACE_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_REQUEST_PACE_H_

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "extension/rules/backoff.h"
#include "proto/rules/limits.h"

namespace postbox::pubsub {

class RequestPace {
 public:
  // Requests are not made smaller than this: an eighth of what a key may publish in a second.
  static constexpr std::size_t kSmallestRequest = 125'000;
  // Between two refusals. So the key goes on within 2 s when the broker takes its messages again.
  static constexpr BackoffPolicy kRefusedBackoff{std::chrono::milliseconds(100), 1.5,
                                                 std::chrono::seconds(2)};

  // A request may be so large; a single message is sent whatever its size.
  std::size_t most_bytes() const { return most_bytes_; }
  // Before the next request.
  std::chrono::milliseconds pause() const { return pause_; }
  bool over() const { return rate_ >= kNoLimit; }

  void Refused(std::size_t bytes) {
    // A larger one may have been too large and not too early.
    if (bytes <= std::max(HalfASecond(), kSmallestRequest)) {
      rate_ = std::max(kLowestRate, rate_ * 0.9);
    }
    most_bytes_ = std::max(kSmallestRequest, std::min(bytes / 2, HalfASecond()));
    taken_ = 0;
    pause_ = BackoffDelay(kRefusedBackoff, ++refused_, 1.0);
  }
  void Taken(std::size_t bytes) {
    refused_ = 0;
    rate_ *= ++taken_ > kTakenInRow ? 1.1 : 1.01;
    most_bytes_ =
        std::max(kSmallestRequest,
                 std::min({kMaxRequestBytes, HalfASecond(), most_bytes_ + most_bytes_ / 10}));
    pause_ = std::chrono::milliseconds(
        static_cast<std::int64_t>(1000 * static_cast<double>(bytes) / rate_));
  }

 private:
  // Bytes in a second.
  static constexpr double kFirstRate = 1e6;
  static constexpr double kLowestRate = 1e4;
  static constexpr double kNoLimit = 20e6;
  static constexpr int kTakenInRow = 12;

  std::size_t HalfASecond() const { return static_cast<std::size_t>(rate_ / 2); }

  std::size_t most_bytes_ = kMaxRequestBytes;
  double rate_ = kFirstRate;
  int refused_ = 0;  // in a row
  int taken_ = 0;    // in a row
  std::chrono::milliseconds pause_{0};
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_REQUEST_PACE_H_
