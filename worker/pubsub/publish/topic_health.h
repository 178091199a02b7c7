// Whether a topic answers, as the requests to it show.
//
// A topic whose requests fail kFailuresOfOutage times in a row, with errors that may pass, is down.
// While it is down there is one request at a time, the probe, and a pause between two probes that
// grows as kProbeBackoff says. Each probe is of another queue in turn: one key that fails alone
// does not make a topic look down for long. The first answer ends the outage for all keys. An
// answer is whatever shows that the broker works: that messages were published, but also that they
// were refused.

#ifndef POSTBOX_WORKER_PUBSUB_PUBLISH_TOPIC_HEALTH_H_
#define POSTBOX_WORKER_PUBSUB_PUBLISH_TOPIC_HEALTH_H_

#include <chrono>
#include <optional>

#include "extension/rules/backoff.h"

namespace postbox::pubsub {

class TopicHealth {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  static constexpr int kFailuresOfOutage = 3;
  // Between two probes: short, so that a broker that is back is noticed soon. A probe costs next to
  // nothing.
  static constexpr BackoffPolicy kProbeBackoff{std::chrono::milliseconds(100), 1.3,
                                               std::chrono::milliseconds(1500)};

  // Requests follow each other within the patience, as long as there is something to send.
  static constexpr int kForgotten = 2;

  bool down() const { return failures_ >= kFailuresOfOutage; }
  // It has answered, and is not down.
  bool answers() const { return answered_at_ != TimePoint() && !down(); }
  TimePoint next_probe() const { return next_probe_; }
  // Since when requests have failed and none was answered; nothing: the last one was.
  std::optional<TimePoint> failing_since() const { return failing_since_; }
  // Whether what was first sent then fails alone: others were answered since, and it was tried
  // after the last outage.
  bool AnswersOthers(TimePoint first_sent, TimePoint tried_at) const {
    return !down() && answered_at_ > first_sent && tried_at >= came_back_at_;
  }

  void Answered(TimePoint now) {
    if (down()) came_back_at_ = now;
    failures_ = 0;
    failing_since_.reset();
    answered_at_ = now;
    give_up_at_.reset();
  }
  // Of the failures in a row the first one is `patience` before the time to give up.
  void Failed(TimePoint now, std::chrono::milliseconds patience, double random) {
    // If nothing was sent for long, nothing is known of the time between.
    if (failures_ > 0 && now > failed_at_ + kForgotten * patience) {
      failures_ = 0;
      failing_since_.reset();
      give_up_at_.reset();
    }
    ++failures_;
    if (!failing_since_) failing_since_ = now;
    failed_at_ = now;
    if (!give_up_at_) give_up_at_ = now + patience;
    if (down()) {
      next_probe_ = now + BackoffDelay(kProbeBackoff, failures_ - kFailuresOfOutage + 1, random);
    }
  }

  // Nothing was answered for the whole patience. The next failure begins it again.
  bool GiveUp(TimePoint now) {
    if (!down() || !give_up_at_ || now < *give_up_at_) return false;
    give_up_at_.reset();
    return true;
  }

 private:
  int failures_ = 0;  // in a row
  std::optional<TimePoint> failing_since_;
  TimePoint failed_at_;
  TimePoint next_probe_;
  TimePoint answered_at_;
  TimePoint came_back_at_;
  std::optional<TimePoint> give_up_at_;
};

}  // namespace postbox::pubsub

#endif  // POSTBOX_WORKER_PUBSUB_PUBLISH_TOPIC_HEALTH_H_
