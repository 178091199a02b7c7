#include "worker/publisher/delivery/event_log.h"

#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/server_text.h"

namespace postbox::publisher {

namespace {

constexpr std::size_t kMaxError = 1024;
constexpr std::size_t kMaxLoggedKey = 256;

}  // namespace

void EventLog::Add(Kind kind, const std::string& id, const std::string& key,
                   const std::string& error) {
  Line& line = lines_[kind];
  ++line.events;
  line.id = id;
  line.key = Shortened(key, kMaxLoggedKey);
  line.error = Shortened(error, kMaxError);
}

bool EventLog::empty() const { return lines_[kParked].events + lines_[kFailed].events == 0; }

void EventLog::Write() {
  for (const Kind kind : {kParked, kFailed}) {
    Line& line = lines_[kind];
    if (line.events == 0) continue;
    Write(kind, line);
    line.events = 0;
  }
}

void EventLog::Write(Kind kind, const Line& line) const {
  const bool failed = kind == kFailed;
  const std::string what = failed ? "has failed permanently" : "is parked until its next attempt";
  LogLimited(
      what + publication_,
      {.level = failed ? WARNING : LOG,
       .message = "publication \"" + publication_ + "\": event " +
                  (line.id.empty() ? "without an id" : line.id) + " of key \"" + line.key + "\" " +
                  what + ": " + line.error,
       .hint = failed ? "See postbox.paused_keys, postbox.redrive and postbox.discard." : ""},
      static_cast<int64>(line.events));
}

}  // namespace postbox::publisher
