// What the workers of a database have to publish: postbox.publication, and in postbox.lane who
// rests because his topic is broken.
//
// All functions run in a transaction that the caller began, with the rights of the worker itself
// (not of an outbox's owner). postbox.lane is shared by all workers: who finds a topic broken puts
// the lane to rest for all of them, and a lane that rests already is not put to rest a second time,
// so that several workers failing together count as one failure.
#ifndef POSTBOX_WORKER_PUBLISHER_PUBLICATION_H_
#define POSTBOX_WORKER_PUBLISHER_PUBLICATION_H_

#include "extension/base/guard.h"
#include "proto/rules/backoff.h"

namespace postbox::publisher {

struct Publication {
  std::string name;
  Oid outbox = InvalidOid;
  std::string kind;  // of the outbox: 'log' or 'table'
  int lanes = 1;
  Oid parked = InvalidOid;    // of a log: its table of parked events
  Oid sequence = InvalidOid;  // of a log: that of seq
  std::string topic;          // as given: an id or a full name
  std::vector<std::string> aggregate_types;
  bool filtered = false;  // aggregate_types is not NULL
  std::string ordering;   // 'key', 'bucket:N' or 'none'
  int max_attempts = 0;
  pubsub::BackoffPolicy backoff{};
  bool parked_blocks = true;  // on_failure = 'park_key'

  bool operator==(const Publication& other) const;
};

struct LaneState {
  bool exists = false;         // the publication does
  int attempts = 0;            // failures in a row
  TimestampTz rest_until = 0;  // 0: does not rest
};

// All publications, in the order of their names.
std::vector<Publication> LoadPublications();

LaneState ReadLane(const std::string& publication);

// Puts the lane to rest, longer with each failure in a row, and keeps `error` for
// publication_status. Returns until when; a lane that rests already stays as it is.
TimestampTz RestLane(const std::string& publication, const std::string& error,
                     const pubsub::BackoffPolicy& backoff);

// The topic works again.
void ClearLane(const std::string& publication);
// Something was changed that concerns all topics.
void ClearLanes();

// How long an event is tried, in seconds: postbox.publish_timeout, but an event has its result
// before its lease ends. Or another worker would send it, too, and what follows of its key might
// overtake it.
int PublishTimeout();

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_PUBLICATION_H_
