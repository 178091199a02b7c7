// From a row of an outbox to a message of Pub/Sub.
//
// In two steps, because the first calls Postgres and the second makes C++ objects: ViewEvent()
// finds a row's columns, as UTF-8 in the memory of the transaction; FillMessage() encodes them
// straight into wire format.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_MESSAGE_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_MESSAGE_H_

#include "extension/base/guard.h"
#include "proto/rules/attributes.h"
#include "worker/publisher/source/claimed_event.h"
#include "worker/publisher/source/event_times.h"

namespace postbox::publisher {

// The columns of an event as they stand in a tuple; they live as long as that does.
struct EventRow {
  Datum id;
  bool id_is_uuid;  // else it is text
  Datum aggregate_type;
  Datum aggregate_id;
  Datum event_type;
  int64 version;
  Datum schema_version;
  Datum payload;     // bytea
  Datum attributes;  // jsonb
  TimestampTz occurred_at;
};

// The same in UTF-8 whatever the database's encoding; plain data.
struct EventView {
  std::string_view id;
  std::string_view aggregate_type;
  std::string_view aggregate_id;
  std::string_view event_type;
  std::string_view schema_version;
  std::string_view payload;
  int64 version;
  int64 occurred_at_micros;  // since 1970
  const pubsub::AttributeView* attributes;
  int attribute_count;  // -1: they are not a JSON object
  EventTimes times;
  bool has_bad_time;  // one of them cannot be read
  bool key_may_pass;
};

// May ereport: call it inside Pg(). Of the attributes, strings become values as they are, other
// JSON values as their text, nulls are left out. What says when the event may be sent is none of
// them.
EventView ViewEvent(const EventRow& row);
// Single columns, likewise inside Pg().
std::string_view ViewId(Datum id, bool is_uuid);
std::string_view ViewText(Datum text);
// In the encoding of the database.
std::string_view ViewBytes(Datum text);
// Microseconds since 1970. Infinity stays as far away as it is.
int64 UnixMicros(TimestampTz time);
// Whether the attributes say that the key of the event may pass it, as the index of keys has it.
bool KeyMayPass(Datum attributes);

// How the ordering key is made from the aggregate id.
class Ordering {
 public:
  // 'key': the aggregate id itself; 'bucket:N': one of N keys, so that requests are full at any
  // number of aggregates; 'none': no key. Anything else is taken for 'key'.
  explicit Ordering(std::string_view text);

  bool ordered() const { return kind_ != Kind::kNone; }
  void SetKey(std::string_view aggregate_id, std::string* key) const;

 private:
  enum class Kind { kKey, kBucket, kNone };
  Kind kind_ = Kind::kKey;
  uint64 buckets_ = 0;
};

// Fills in what is sent of an event. `topic` is a full name, which must outlive the message. The
// payload goes out as it is; an attribute with the name of a standard one is left out. The trace is
// that of event_spans.h.
void FillMessage(const EventView& event, std::string_view topic, const Ordering& ordering,
                 ClaimedEvent* message);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_EVENT_MESSAGE_H_
