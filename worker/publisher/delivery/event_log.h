// The lines about single events in the server's log. A topic may refuse every event, and the rows
// of the outbox tell about each: the log has one line of a kind for a settlement, about the last of
// its events, and it is held back if there are many (worker/publisher/base/limited_log.h).
//
// DETAIL of such a line begins with the fields of the event (extension/rules/log_fields.h), those
// that the log of the puller has, too: event_id, event_type, aggregate_id, aggregate_type, version,
// trace_id, as far as they are known. An event that is not published has no message_id.
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_LOG_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_LOG_H_

#include "extension/base/guard.h"
#include "worker/publisher/source/claimed_event.h"

namespace postbox::publisher {

// In the encoding of the database; empty: not known.
struct EventFields {
  std::string event_id, event_type, aggregate_id, aggregate_type, version, trace_id;
};

// Of what was encoded; of a row that cannot be an event they are `id` and nothing else.
EventFields FieldsOf(const ClaimedEvent& event, const std::string& id);
// For DETAIL. Long values are cut.
std::string FieldsText(const EventFields& fields);

class EventLog {
 public:
  enum Kind {
    kParked,  // until its next try
    kFailed,  // permanently
  };

  explicit EventLog(std::string publication) : publication_(std::move(publication)) {}

  // Texts are in the encoding of the database.
  void Add(Kind kind, EventFields fields, const std::string& key, const std::string& error);
  bool empty() const;
  // Writes what was added.
  void Write();

 private:
  struct Line {
    std::size_t events = 0;
    EventFields fields;  // of the last
    std::string key, error;
  };

  void Write(Kind kind, const Line& line) const;

  const std::string publication_;
  std::array<Line, 2> lines_;  // by kind
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_LOG_H_
