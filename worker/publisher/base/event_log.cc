#include "worker/publisher/base/event_log.h"

#include "worker/publisher/base/server_text.h"

namespace postbox::publisher {

namespace {

constexpr std::chrono::seconds kInterval(10);
constexpr std::size_t kMaxError = 1024;
constexpr std::size_t kMaxKey = 256;

}  // namespace

void EventLog::Add(Kind kind, const std::string& id, const std::string& key,
                   const std::string& error) {
  Line& line = lines_[kind];
  ++line.events;
  line.id = id;
  line.key = Shortened(key, kMaxKey);
  line.error = Shortened(error, kMaxError);
}

EventLog::Clock::time_point EventLog::DueAt() const {
  Clock::time_point due = Clock::time_point::max();
  for (const Line& line : lines_) {
    if (line.events == 0) continue;
    due = std::min(due, line.written_at == Clock::time_point{} ? Clock::time_point::min()
                                                               : line.written_at + kInterval);
  }
  return due;
}

void EventLog::Write() {
  const Clock::time_point now = Clock::now();
  for (const Kind kind : {kParked, kFailed}) {
    Line& line = lines_[kind];
    const bool first = line.written_at == Clock::time_point{};
    if (line.events == 0 || (!first && line.written_at + kInterval > now)) continue;
    Write(kind, line);
    line.events = 0;
    line.written_at = now;
  }
}

void EventLog::Write(Kind kind, const Line& line) const {
  const bool failed = kind == kFailed;
  Pg([&] {
    ereport(
        failed ? WARNING : LOG,
        (errmsg("publication \"%s\": event %s of key \"%s\" %s: %s", publication_.c_str(),
                line.id.empty() ? "without an id" : line.id.c_str(), line.key.c_str(),
                failed ? "has failed for good" : "is parked until its next try",
                line.error.c_str()),
         line.events == 1 ? 0
                          : errdetail("This is the last of %zu such events since the last "
                                      "message of this kind.",
                                      line.events),
         failed ? errhint("See postbox.paused_keys, postbox.redrive and postbox.discard.") : 0));
  });
}

}  // namespace postbox::publisher
