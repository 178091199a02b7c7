// What is known of an event that was read too early or too late to be sent. It goes the way of the
// others up to its turn, so that the order of its key stays, and comes back unsent.
#ifndef POSTBOX_WORKER_PUBLISHER_SOURCE_UNSENT_EVENT_H_
#define POSTBOX_WORKER_PUBLISHER_SOURCE_UNSENT_EVENT_H_

#include <cstdint>
#include <string>

#include "worker/publisher/source/event_times.h"

namespace postbox::publisher {

struct UnsentEvent {
  Timeliness timeliness;  // not kInTime
  EventTimes times;
  // In UTF-8.
  std::string id;
  std::string aggregate_type;
  std::string aggregate_id;
  std::string event_type;
  std::int64_t version;
  std::string trace_id;  // empty: none
  // Of a log: it was published before, and postbox.republish has queued it.
  bool republished = false;
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_SOURCE_UNSENT_EVENT_H_
