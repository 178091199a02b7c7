#include "worker/publisher/delivery/event_log.h"

#include "extension/rules/log_fields.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/server_text.h"
#include "worker/pubsub/publish/message_wire.h"

namespace postbox::publisher {

namespace {

constexpr std::size_t kMaxError = 1024;
constexpr std::size_t kMaxField = 256;

}  // namespace

EventFields FieldsOf(const ClaimedEvent& event, const std::string& id) {
  EventFields fields{.event_id = id};
  const auto attributes = pubsub::MessageAttributes(event.encoded);
  const auto take = [&](std::string_view name, std::string* field) {
    if (const auto* value = pubsub::FindAttribute(attributes, name)) *field = ServerText(*value);
  };
  take(pubsub::kEventId, &fields.event_id);
  take(pubsub::kEventType, &fields.event_type);
  take(pubsub::kAggregateId, &fields.aggregate_id);
  take(pubsub::kAggregateType, &fields.aggregate_type);
  take(pubsub::kVersion, &fields.version);
  fields.trace_id = ServerText(pubsub::TraceIdAmong(attributes));
  return fields;
}

std::string FieldsText(const EventFields& fields) {
  std::string text;
  const auto append = [&](std::string_view name, const std::string& value) {
    AppendField(name, Shortened(value, kMaxField), &text);
  };
  append(pubsub::kEventId, fields.event_id);
  append(pubsub::kEventType, fields.event_type);
  append(pubsub::kAggregateId, fields.aggregate_id);
  append(pubsub::kAggregateType, fields.aggregate_type);
  append(pubsub::kVersion, fields.version);
  append(pubsub::kTraceId, fields.trace_id);
  return text;
}

void EventLog::Add(Kind kind, EventFields fields, const std::string& key,
                   const std::string& error) {
  Line& line = lines_[kind];
  ++line.events;
  line.fields = std::move(fields);
  line.key = Shortened(key, kMaxField);
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
  const std::string& id = line.fields.event_id;
  const std::string what = failed ? "has failed permanently" : "is parked until its next attempt";
  LogLimited(
      what + publication_,
      {.level = failed ? WARNING : LOG,
       .message = "publication \"" + publication_ + "\": event " +
                  (id.empty() ? "without an id" : id) + " of key \"" + line.key + "\" " + what +
                  ": " + line.error,
       .detail = FieldsText(line.fields),
       .hint = failed ? "See postbox.paused_keys, postbox.redrive and postbox.discard." : ""},
      static_cast<int64>(line.events));
}

}  // namespace postbox::publisher
