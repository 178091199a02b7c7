// What the result of an event means for it, in both kinds of outbox.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_RESULT_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_RESULT_H_

#include "extension/rules/backoff.h"
#include "worker/publisher/delivery/event_log.h"
#include "worker/publisher/policy/event_retry.h"
#include "worker/publisher/source/claimed_event.h"
#include "worker/publisher/source/event_message.h"
#include "worker/publisher/store/publication.h"

namespace postbox::publisher {

enum class EventResult {
  kPublished,
  kSentAgain,  // it was not the event's fault: it waits as before
  kBehind,     // it was not sent, since an earlier one of its key was not published
  kFailed,     // refused, or without an answer while others have one
  kDelayed,    // its time has not come
  kExpired,    // its time is over
};

inline EventResult ResultOf(const ClaimedEvent& event) {
  using pubsub::PublishStatus;
  if (event.status == PublishStatus::kPublished) return EventResult::kPublished;
  if (event.leaving) return EventResult::kSentAgain;
  switch (event.status) {
    case PublishStatus::kTopicBroken:
    case PublishStatus::kUnreachable:
      return EventResult::kSentAgain;
    case PublishStatus::kBehind:
      return EventResult::kBehind;
    default:
      break;
  }
  if (event.unsent() == nullptr) return EventResult::kFailed;
  return event.unsent()->timeliness == Timeliness::kTooEarly ? EventResult::kDelayed
                                                             : EventResult::kExpired;
}

// When a delayed event is tried, which is no retry. In the transaction that stores it.
inline EventRetry DelayOf(const ClaimedEvent& event) {
  const int64 now = UnixMicros(GetCurrentTransactionStartTimestamp());
  return {.counted = 0, .seconds = SecondsUntil(event.unsent()->times, now)};
}

// When an event that has failed is tried again.
inline EventRetry NextRetry(const Publication& publication, const ClaimedEvent& event) {
  return RetryOf(event.status == pubsub::PublishStatus::kRejected, event.attempts,
                 publication.max_attempts, publication.backoff, pubsub::JitterRandom());
}

inline EventLog::Kind KindOf(const EventRetry& retry) {
  return retry.failed() ? EventLog::kFailed : EventLog::kParked;
}

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_RESULT_H_
