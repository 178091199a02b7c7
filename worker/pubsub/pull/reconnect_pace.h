// How long a stream that has ended waits until it is opened again. Plain C++: the time is an
// argument.
//
// The delays are those of kReconnectBackoff, which begin again with the first response of a call.
// One kind of error is left out: what the service sends cannot be read, or is larger than it may
// be (INTERNAL, RESOURCE_EXHAUSTED). It would be sent again as soon as the stream is open, after
// good responses perhaps, and then the stream was opened ten times a second for ever. After such an
// error the delays begin again only when a call has lasted for longer than the longest of them.
#ifndef POSTBOX_WORKER_PUBSUB_PULL_RECONNECT_PACE_H_
#define POSTBOX_WORKER_PUBSUB_PULL_RECONNECT_PACE_H_

#include <chrono>
#include <functional>
#include <optional>
#include <utility>

#include "extension/rules/backoff.h"
#include "proto/rules/error_class.h"

namespace postbox::pubsub {

class ReconnectPace {
 public:
  using Clock = std::chrono::steady_clock;

  explicit ReconnectPace(std::function<double()> random = JitterRandom)
      : backoff_(kReconnectBackoff, std::move(random)) {}

  // The first response of a call has come.
  void Answered(Clock::time_point now) {
    answered_at_ = now;
    if (!comes_again_) backoff_.Reset();
  }
  // The call has ended with this code, or could not begin. Returns the delay.
  std::chrono::milliseconds Failed(int code, Clock::time_point now) {
    if (answered_at_ && now - *answered_at_ > kReconnectBackoff.cap) backoff_.Reset();
    answered_at_.reset();
    comes_again_ = code == kInternal || code == kResourceExhausted;
    return backoff_.Next();
  }

 private:
  Backoff backoff_;
  std::optional<Clock::time_point> answered_at_;
  bool comes_again_ = false;  // the last error
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_RECONNECT_PACE_H_
