// The lines about parked events in the server's log. A topic may refuse every event, and the rows
// of the outbox tell about each: the log has one line of a kind for a settlement, and at most one
// in ten seconds for a publication. A line says how many events it stands for, and about the last
// of them. What was held back is written when the time is over.
#ifndef POSTBOX_WORKER_PUBLISHER_BASE_EVENT_LOG_H_
#define POSTBOX_WORKER_PUBLISHER_BASE_EVENT_LOG_H_

#include "extension/base/guard.h"

namespace postbox::publisher {

class EventLog {
 public:
  using Clock = std::chrono::steady_clock;

  enum Kind {
    kParked,  // until its next try
    kFailed,  // for good
  };

  explicit EventLog(std::string publication) : publication_(std::move(publication)) {}

  // `id` may be empty. Texts are in the encoding of the database.
  void Add(Kind kind, const std::string& id, const std::string& key, const std::string& error);
  // Writes what may be written now.
  void Write();
  // When Write() has something to write; the end of time if nothing waits.
  Clock::time_point DueAt() const;

 private:
  struct Line {
    std::size_t events = 0;
    std::string id, key, error;  // of the last
    Clock::time_point written_at{};
  };

  void Write(Kind kind, const Line& line) const;

  const std::string publication_;
  std::array<Line, 2> lines_;  // by kind
};

}  // namespace postbox::publisher

#endif  // POSTBOX_WORKER_PUBLISHER_BASE_EVENT_LOG_H_
