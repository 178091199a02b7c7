// EmittedEvent: an event as a caller of outbox_emit, or a trigger, gives it, checked.
//
// Texts stay where they are: in PostgreSQL's memory, in the encoding of the database. What Pub/Sub
// would refuse is refused before the event is stored (proto/rules/message_check.h), on the message
// as it will be sent.
#ifndef POSTBOX_EXTENSION_EMIT_EMITTED_EVENT_H_
#define POSTBOX_EXTENSION_EMIT_EMITTED_EVENT_H_

#include "extension/base/guard.h"

namespace postbox {

struct Text {
  Datum datum;
  std::string_view view;
};

// Attributes in UTF-8.
using ExtraAttributes = std::vector<std::pair<std::string_view, std::string_view>>;

struct EmittedEvent {
  Text aggregate_type;
  Text aggregate_id;
  Text event_type;
  Text schema_version;
  Datum payload;  // bytea, exactly the data of the message
  std::string_view data;
  std::optional<int64> version;
  std::optional<pg_uuid_t> id;
  bool id_is_given;
  std::optional<Text> source_event_id;
  TimestampTz occurred_at;
  // The caller's attributes and those of the context.
  ExtraAttributes extra;
  // What is stored beside them and not sent: when it may be published.
  std::vector<std::pair<std::string_view, std::string>> times;
  bool key_may_pass = false;
};

// The bytes of a value that is not toasted.
std::string_view View(Datum varlena_datum);

Text ToText(Datum datum);

// The text in UTF-8: a copy if the encoding of the database is another one, otherwise the text
// itself.
std::string_view ToUtf8(std::string_view text);

// Adds the attributes of the caller, a JSON object of scalars. Throws if it is none, or has a
// standard attribute.
void AddCallersAttributes(Datum attributes, ExtraAttributes* extra);

// Adds those of the context settings that are set and not among the attributes already.
void AddContextAttributes(ExtraAttributes* extra);

// When the event may be published; a null is a time that is not given. A deliver_at that has passed
// delays nothing. Throws if the times contradict each other or are too far away.
void AddTimes(const NullableDatum& deliver_at, const NullableDatum& expires_at,
              const NullableDatum& key_may_pass, EmittedEvent* event);

// What goes into the column of attributes: strings only, in the encoding of the database.
Datum AttributesDatum(const EmittedEvent& event);

// Throws datetime_value_out_of_range unless the time can be sent.
void CheckOccurredAt(TimestampTz occurred_at);

// Refuses what Pub/Sub would refuse. Here the transaction that caused it fails; later a key would
// stop.
void CheckMessage(const EmittedEvent& event, int64 version);

// The same for a key alone that is too long, so that many of them are not gathered first.
void CheckKey(std::string_view key);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_EMIT_EMITTED_EVENT_H_
