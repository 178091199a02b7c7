// postbox.event and postbox.outcome as C++ values.
//
// An InboxEvent points into PostgreSQL's memory (the arguments of the call, or the current memory
// context at the time of reading) and owns nothing, so it may be made and passed inside Pg().
#ifndef POSTBOX_EXTENSION_APPLY_INBOX_EVENT_H_
#define POSTBOX_EXTENSION_APPLY_INBOX_EVENT_H_

#include "extension/base/uuid.h"

namespace postbox {

enum class Outcome { kApplied, kDuplicate, kStale, kIgnored, kRejected, kParked };
inline constexpr size_t kOutcomes = 6;

// The attributes of postbox.event, in their order.
enum class EventField {
  kEventId,
  kEventType,
  kAggregateType,
  kAggregateId,
  kVersion,
  kPayload,
  kAttributes,
  kOccurredAt,
};
inline constexpr size_t kEventFields = 8;

// The name of the attribute, e.g. "event_id".
const char* EventFieldName(EventField field);
// Its type.
Oid EventFieldType(EventField field);

struct InboxEvent {
  Datum values[kEventFields];
  bool nulls[kEventFields];
  Datum composite;              // the event as one value of type postbox.event, if there is one
  bool has_composite;           // see CompositeOf()
  pg_uuid_t id;                 // InboxKey; only if `event_id` is not null
  std::string_view event_id;    // empty if null
  std::string_view event_type;  // empty if null

  bool IsNull(EventField field) const { return nulls[static_cast<size_t>(field)]; }
  Datum Value(EventField field) const { return values[static_cast<size_t>(field)]; }
  int64 version() const { return DatumGetInt64(Value(EventField::kVersion)); }
};

// All functions below may ereport: call them inside Pg().

// Reads a value of type postbox.event.
InboxEvent EventOfComposite(Datum composite);
// Sets event_id, event_type and id from the values.
void FinishEvent(InboxEvent* event);
// The event as one value, made at the first call in the current memory context.
Datum CompositeOf(InboxEvent* event);

// A type of schema postbox.
Oid PostboxType(const char* name);
// The oid of each label of postbox.outcome.
void OutcomeOids(Oid (&oids)[kOutcomes]);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_APPLY_INBOX_EVENT_H_
