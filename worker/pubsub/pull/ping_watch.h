// Whether a stream still answers, as its pings tell. Plain C++: the time is an argument.
//
//   - A server that answers pings sends a response without messages for each. Google's emulator
//     answers none. So silence means something only after a ping was answered. That is a property
//     of the server, and is kept for the calls that follow.
//   - As long as it is not known, a call pings as soon as it is open, and again when its first
//     response has come. A stall that came before the first regular ping was never noticed: the
//     server counted as one that answers none.
//   - The first response of a call is no answer to a ping, since a server may send one when the
//     stream is opened. A server that answers no pings, and whose first response came after one,
//     counted as one that does, and its quiet stream was opened again every 45 s.
//   - Any other response without messages counts, also if messages have come between it and the
//     ping. Whatever it was for, it hides no stall: it only shows that the stream was alive when it
//     came, and the next ping has to be answered again.
//   - A ping that cannot be written counts as one that was sent: the peer takes nothing.
#ifndef POSTBOX_WORKER_PUBSUB_PULL_PING_WATCH_H_
#define POSTBOX_WORKER_PUBSUB_PULL_PING_WATCH_H_

#include <algorithm>
#include <chrono>
#include <optional>

namespace postbox::pubsub {

class PingWatch {
 public:
  using Clock = std::chrono::steady_clock;

  explicit PingWatch(Clock::duration timeout) : timeout_(timeout) {}

  // A call begins. Returns whether it is to ping as soon as it is open.
  bool Opened() {
    answered_ = pinged_ = open_ = false;
    return !answers_pings_;
  }
  void Pinged(Clock::time_point now) {
    // Silence is measured from the first ping that was not answered.
    if (!open_) sent_ = now;
    pinged_ = open_ = true;
  }
  // A response has come. Returns whether to ping at once.
  bool Responded(bool empty) {
    const bool first = !answered_;
    answered_ = true;
    if (!first && pinged_ && empty) answers_pings_ = true;
    open_ = false;
    return first && !answers_pings_;
  }
  // When the stream counts as stalled if nothing comes until then; nothing: as things are, never.
  // The time before `reading_since` does not count, because nothing could come.
  std::optional<Clock::time_point> StalledAt(Clock::time_point reading_since) const {
    if (!answers_pings_ || !open_) return std::nullopt;
    return std::max(sent_, reading_since) + timeout_;
  }

 private:
  const Clock::duration timeout_;
  bool answers_pings_ = false;  // the server does, in any call
  // Of the call:
  bool answered_ = false;  // any response came
  bool pinged_ = false;
  bool open_ = false;  // no response since the last ping
  Clock::time_point sent_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PULL_PING_WATCH_H_
