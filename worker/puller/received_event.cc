#include "worker/puller/received_event.h"

#include <charconv>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "proto/rules/attributes.h"

namespace postbox::puller {
namespace {

using nlohmann::json;
using pubsub::FindAttribute;

bool HasNul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

// The attributes that are not fields of the event, as a JSON object. The context of a trace that
// one of Google's clients has written is there under its standard name, too. Bytes that are not
// valid UTF-8 are replaced, so it does not throw.
std::string ToJson(const pubsub::Attributes& attributes, bool replace_nul) {
  json object = json::object();
  for (auto [name, value] : attributes) {
    if (pubsub::IsStandardAttribute(name) && name != pubsub::kSchemaVersion) continue;
    if (replace_nul) {
      for (std::string* text : {&name, &value}) {
        for (size_t at = 0; (at = text->find('\0', at)) != std::string::npos;) {
          text->replace(at, 1, "\uFFFD");
        }
      }
    }
    object[name] = std::move(value);
  }
  for (const pubsub::TraceName& name : pubsub::kTraceNames) {
    const auto of_clients = object.find(name.of_clients);
    if (of_clients != object.end() && !object.contains(name.standard)) {
      object[name.standard] = json(*of_clients);
    }
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<std::string> NormalTime(std::string_view text) {
  int64_t micros = 0;
  if (!pubsub::ParseRfc3339(text, &micros)) return std::nullopt;
  return pubsub::FormatRfc3339(micros);
}

// The first of these members that is a string that is not empty, or an integer.
std::optional<std::string> Member(const json& body, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    auto it = body.find(name);
    if (it == body.end()) continue;
    if (it->is_string() && !it->get_ref<const std::string&>().empty()) {
      return it->get<std::string>();
    }
    if (it->is_number_integer()) return it->dump();
  }
  return std::nullopt;
}

// Takes the fields that the attributes do not give from the body. A member of another type than
// expected has another meaning and is left alone.
void FillFromBody(ReceivedEvent* event) {
  size_t begin = event->payload.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || event->payload[begin] != '{') return;
  json body = json::parse(event->payload, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) return;
  auto fill = [&body](std::optional<std::string>* field, std::initializer_list<const char*> names) {
    if (!field->has_value()) *field = Member(body, names);
  };
  fill(&event->event_id, {"event_id", "eventId"});
  fill(&event->event_type, {"event_type", "eventType"});
  fill(&event->aggregate_type, {"aggregate_type", "aggregateType"});
  fill(&event->aggregate_id, {"aggregate_id", "aggregateId"});
  if (!event->version) {
    if (auto text = Member(body, {"version"})) event->version = ParseInteger(*text);
  }
  if (!event->occurred_at) {
    if (auto text = Member(body, {"occurred_at", "occurredAt", "timestamp"})) {
      event->occurred_at = NormalTime(*text);
    }
  }
}

}  // namespace

ReceivedEvent ParseEvent(pubsub::ReceivedMessage* message) {
  ReceivedEvent event;
  event.payload = std::move(message->data);
  message->data.clear();
  const pubsub::Attributes& attributes = message->attributes;
  auto poison = [&event](std::string why) {
    if (event.poison.empty()) event.poison = std::move(why);
  };

  bool has_nul = false;
  for (const auto& [name, value] : attributes) has_nul |= HasNul(name) || HasNul(value);
  if (has_nul) poison("an attribute holds a NUL character");
  event.attributes = ToJson(attributes, has_nul);

  auto take = [&](std::string_view name, std::optional<std::string>* field) {
    const std::string* value = FindAttribute(attributes, name);
    if (value != nullptr && !value->empty() && !HasNul(*value)) *field = *value;
  };
  take(pubsub::kEventId, &event.event_id);
  take(pubsub::kEventType, &event.event_type);
  take(pubsub::kAggregateType, &event.aggregate_type);
  take(pubsub::kAggregateId, &event.aggregate_id);
  if (const std::string* text = FindAttribute(attributes, pubsub::kVersion)) {
    event.version = ParseInteger(*text);
    if (!event.version) poison("attribute version is not an integer");
  }
  if (const std::string* text = FindAttribute(attributes, pubsub::kOccurredAt)) {
    event.occurred_at = NormalTime(*text);
    if (!event.occurred_at) poison("attribute occurred_at is not an RFC 3339 time");
  }

  if (!event.event_id || !event.event_type || !event.aggregate_type || !event.aggregate_id ||
      !event.version) {
    FillFromBody(&event);
  }
  for (auto* field :
       {&event.event_id, &event.event_type, &event.aggregate_type, &event.aggregate_id}) {
    if (*field && HasNul(**field)) {
      poison("a field of the event holds a NUL character");
      field->reset();
    }
  }
  if (!event.event_id) {
    poison("neither an attribute event_id nor a JSON body with event_id or eventId");
  }
  return event;
}

std::string TraceId(const pubsub::ReceivedMessage& message) {
  if (const auto* id = FindAttribute(message.attributes, pubsub::kTraceId)) return *id;
  constexpr pubsub::TraceName kName = pubsub::kTraceNames[0];
  for (const std::string_view name : {kName.standard, kName.of_clients}) {
    if (const auto* parent = FindAttribute(message.attributes, name)) {
      return std::string(pubsub::TraceIdOf(*parent));
    }
  }
  return "";
}

}  // namespace postbox::puller
