// An event as it is applied, made from a received message.
//
// The attributes of seed 004 decide (attributes.h has the names). What they lack is taken from the
// top level of a JSON body, as outside clients write it: event_id or eventId, event_type or
// eventType, aggregate_type/aggregateType, aggregate_id/aggregateId, version, occurred_at,
// occurredAt or timestamp. The version and the type may be absent; the event id may not.
//
// Poison is what can never be applied as it is: no event id, a standard attribute that is
// malformed, or a NUL character in a text (the server has no such text).
#ifndef POSTBOX_WORKER_PULLER_RECEIVED_EVENT_H_
#define POSTBOX_WORKER_PULLER_RECEIVED_EVENT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "worker/pubsub/subscriber.h"

namespace postbox::puller {

// The fields of postbox.event; those that are nullopt are NULL.
struct ReceivedEvent {
  std::optional<std::string> event_id;
  std::optional<std::string> event_type;
  std::optional<std::string> aggregate_type;
  std::optional<std::string> aggregate_id;
  std::optional<int64_t> version;
  std::string payload;
  std::string attributes;                  // a JSON object: every attribute that is no field above
  std::optional<std::string> occurred_at;  // RFC 3339, UTC

  std::string poison;  // not empty: why this message cannot be applied
};

// Moves the payload out of `message`. Always gives an event that can be stored in
// postbox.dead_letter, poisoned or not.
ReceivedEvent ParseEvent(pubsub::ReceivedMessage* message);

// The trace id of a message for the log: attribute trace_id, or that of a traceparent; or empty.
std::string TraceId(const pubsub::ReceivedMessage& message);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_RECEIVED_EVENT_H_
