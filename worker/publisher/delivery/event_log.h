// The lines about parked events in the server's log. A topic may refuse every event, and the rows
// of the outbox tell about each: the log has one line of a kind for a settlement, about the last of
// its events, and it is held back if there are many (worker/publisher/base/limited_log.h).
#ifndef POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_LOG_H_
#define POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_LOG_H_

#include "extension/base/guard.h"

namespace postbox::publisher {

class EventLog {
 public:
  enum Kind {
    kParked,  // until its next try
    kFailed,  // permanently
  };

  explicit EventLog(std::string publication) : publication_(std::move(publication)) {}

  // `id` may be empty. Texts are in the encoding of the database.
  void Add(Kind kind, const std::string& id, const std::string& key, const std::string& error);
  bool empty() const;
  // Writes what was added.
  void Write();

 private:
  struct Line {
    std::size_t events = 0;
    std::string id, key, error;  // of the last
  };

  void Write(Kind kind, const Line& line) const;

  const std::string publication_;
  std::array<Line, 2> lines_;  // by kind
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_DELIVERY_EVENT_LOG_H_
