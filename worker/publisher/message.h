// From a row of an outbox to a message of Pub/Sub.
#ifndef POSTBOX_WORKER_PUBLISHER_MESSAGE_H_
#define POSTBOX_WORKER_PUBLISHER_MESSAGE_H_

#include "extension/guard.h"
#include "worker/pubsub/publisher.h"

namespace postbox::publisher {

// The columns of an event as they stand in a tuple; they live as long as that does.
struct EventRow {
  Datum id;  // text
  Datum aggregate_type;
  Datum aggregate_id;
  Datum event_type;
  int64 version;
  Datum schema_version;
  Datum payload;     // bytea
  Datum attributes;  // jsonb
  TimestampTz occurred_at;
};

// How the ordering key is made from the aggregate id.
class Ordering {
 public:
  // 'key': the aggregate id itself; 'bucket:N': one of N keys, so that requests are full at any
  // number of aggregates; 'none': no key. Anything else is taken for 'key'.
  explicit Ordering(std::string_view text);

  bool ordered() const { return kind_ != Kind::kNone; }
  std::string KeyOf(std::string_view aggregate_id) const;

 private:
  enum class Kind { kKey, kBucket, kNone };
  Kind kind_ = Kind::kKey;
  uint64 buckets_ = 0;
};

// The message, all text in UTF-8 whatever the database's encoding. `topic` is a full name. The
// payload goes out as it is. Of the attributes, strings become values as they are, other JSON
// values as their text, nulls are left out. Throws PostgresError.
pubsub::Message BuildMessage(const EventRow& row, const std::string& topic,
                             const Ordering& ordering);

// The bytes of its payload and attributes, as ClaimLimits counts them.
std::size_t SizeOf(const pubsub::Message& message);

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_MESSAGE_H_
