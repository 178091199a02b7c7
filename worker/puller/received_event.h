// An event as it is applied, made from a received message.
//
// The fields come from the standard attributes (proto/rules/attributes.h). A field without an
// attribute is taken from the top level of a JSON body, as clients other than Postbox write it:
// event_id or eventId, event_type or eventType, aggregate_type or aggregateType, aggregate_id or
// aggregateId, version, and occurred_at, occurredAt or timestamp. Of two names for a field the
// first counts, of several members with one name the last. The event id is required; the other
// fields are not. A body is not read if it could only give occurred_at.
//
// A member that is there and is not null must be its field, as an attribute must, so that no field
// is silently NULL: a text or a whole number, for version a bigint, for occurred_at an RFC 3339
// time. 3.0 is the whole number 3, since JSON has one type of numbers, and some clients write them
// all like that; the text "3.0" is none. A text that is empty counts as absent except for these
// two.
//
// Other things have the names timestamp and version, too. So a timestamp may be anything, and a
// version what cannot be meant as a number: "1.2.0" is that of a schema perhaps. "1.0" may be
// either, and is refused. An event whose version was left alone has none: projections refuse it,
// and the log tells of it, so that it is never applied unnoticed as if there were none.
//
// A message is poisoned if it can never be applied as it is: it has no event id, a standard
// attribute or such a member is malformed, or a text is not UTF-8 or has a NUL character, which the
// server's type text cannot hold.
#ifndef POSTBOX_WORKER_PULLER_RECEIVED_EVENT_H_
#define POSTBOX_WORKER_PULLER_RECEIVED_EVENT_H_

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "worker/pubsub/pull/subscriber.h"

namespace postbox::puller {

// The fields of postbox.event; those that are nullopt are NULL. The views are of the block of the
// message, or of texts of its body, which are in `of_body`.
struct ReceivedEvent {
  std::optional<std::string_view> event_id;
  std::optional<std::string_view> event_type;
  std::optional<std::string_view> aggregate_type;
  std::optional<std::string_view> aggregate_id;
  std::optional<int64_t> version;
  std::string_view payload;
  std::string attributes;              // a JSON object of the attributes that are not fields
  std::optional<int64_t> occurred_at;  // microseconds since 1970
  std::shared_ptr<const std::list<std::string>> of_body;

  std::string poison;               // why the message is poisoned; empty if it is not
  bool version_left_alone = false;  // a member version of the body is no number
};

// The event can be stored in postbox.dead_letter even if it is poisoned. It needs the block of the
// message as long as it lives.
ReceivedEvent ParseEvent(const pubsub::ReceivedMessage& message);

}  // namespace postbox::puller

#endif  // POSTBOX_WORKER_PULLER_RECEIVED_EVENT_H_
