// When an event is attempted again that was not published: a refused one after a backoff, at most
// max_attempts times in all; one for which alone nothing is answered as often as it takes, since
// that is no fault of the event.
#ifndef POSTBOX_WORKER_PUBLISHER_POLICY_EVENT_RETRY_H_
#define POSTBOX_WORKER_PUBLISHER_POLICY_EVENT_RETRY_H_

#include <limits>

#include "extension/rules/backoff.h"

namespace postbox::publisher {

struct EventRetry {
  int counted = 0;     // attempts that are added to those of the event
  double seconds = 0;  // until the next one; infinity: it has failed, and waits for an operator

  bool failed() const { return seconds == std::numeric_limits<double>::infinity(); }
};

// `attempts`: before this one. `random`: in [0, 1], for the jitter.
inline EventRetry RetryOf(bool refused, int attempts, int max_attempts,
                          const pubsub::BackoffPolicy& backoff, double random) {
  EventRetry retry;
  retry.counted = refused ? 1 : 0;
  if (refused && attempts + 1 >= max_attempts) {
    retry.seconds = std::numeric_limits<double>::infinity();
    return retry;
  }
  const auto delay = pubsub::BackoffDelay(backoff, attempts + retry.counted, random);
  retry.seconds = std::chrono::duration<double>(delay).count();
  return retry;
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_POLICY_EVENT_RETRY_H_
