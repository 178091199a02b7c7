#include "worker/puller/received_event.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <list>
#include <memory>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "proto/rules/attributes.h"
#include "proto/rules/utf8.h"

namespace postbox::puller {
namespace {

using nlohmann::json;
using pubsub::FindAttribute;

bool HasNul(std::string_view text) { return text.find('\0') != std::string_view::npos; }

// Whether the server can store the text, if its encoding has the characters.
bool IsPlain(std::string_view text) {
  size_t ascii = pubsub::SkipAscii(text, 0);
  while (ascii < text.size() && static_cast<signed char>(text[ascii]) > 0) ++ascii;
  text.remove_prefix(ascii);
  return text.empty() || (pubsub::IsValidUtf8(text) && !HasNul(text));
}

using AttributeViews = std::vector<pubsub::AttributeView>;

// The context of a trace that one of Google's clients has written gets its standard name, too.
void AddTraceNames(const AttributeViews& attributes, AttributeViews* others) {
  for (const pubsub::TraceName& name : pubsub::kTraceNames) {
    const std::string_view* value = FindAttribute(attributes, name.of_clients);
    if (value == nullptr || FindAttribute(attributes, name.standard) != nullptr) continue;
    others->emplace_back(name.standard, *value);
  }
}

void AppendJson(std::string_view text, std::string* out) {
  out->push_back('"');
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      constexpr char kHex[] = "0123456789abcdef";
      out->append("\\u00").append({kHex[c >> 4], kHex[c & 15]});
      continue;
    }
    if (c == '"' || c == '\\') out->push_back('\\');
    out->push_back(c);
  }
  out->push_back('"');
}

// For texts that are valid UTF-8, as those of the service are: a tree of JSON takes several
// allocations for each of them.
std::string PlainJson(const AttributeViews& attributes) {
  size_t bytes = 2;
  for (const auto& [name, value] : attributes) bytes += name.size() + value.size() + 6;
  std::string text;
  text.reserve(bytes);
  text.push_back('{');
  for (const auto& [name, value] : attributes) {
    if (text.size() > 1) text.push_back(',');
    AppendJson(name, &text);
    text.push_back(':');
    AppendJson(value, &text);
  }
  text.push_back('}');
  return text;
}

// A JSON object. Bytes that are not valid UTF-8 and NUL characters are replaced, so it does not
// throw.
std::string CleanedJson(const AttributeViews& attributes) {
  json object = json::object();
  for (const auto& attribute : attributes) {
    std::string name(attribute.first);
    std::string value(attribute.second);
    for (std::string* text : {&name, &value}) {
      for (size_t at = 0; (at = text->find('\0', at)) != std::string::npos;) {
        text->replace(at, 1, "\uFFFD");
      }
    }
    object[name] = std::move(value);
  }
  return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

std::optional<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Microseconds since 1970.
std::optional<int64_t> ParseTime(std::string_view text) {
  int64_t micros = 0;
  if (!pubsub::ParseRfc3339(text, &micros)) return std::nullopt;
  // An offset may lead out of the years that a time has.
  return std::clamp(micros, pubsub::kMinRfc3339Micros, pubsub::kMaxRfc3339Micros);
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
  const size_t begin = event->payload.find_first_not_of(" \t\r\n");
  if (begin == std::string_view::npos || event->payload[begin] != '{') return;
  json body = json::parse(event->payload, nullptr, /*allow_exceptions=*/false);
  if (!body.is_object()) return;
  const auto texts = std::make_shared<std::list<std::string>>();
  const auto fill = [&](std::optional<std::string_view>* field,
                        std::initializer_list<const char*> names) {
    if (field->has_value()) return;
    if (auto text = Member(body, names)) *field = texts->emplace_back(*std::move(text));
  };
  fill(&event->event_id, {"event_id", "eventId"});
  fill(&event->event_type, {"event_type", "eventType"});
  fill(&event->aggregate_type, {"aggregate_type", "aggregateType"});
  fill(&event->aggregate_id, {"aggregate_id", "aggregateId"});
  event->of_body = texts;
  if (!event->version) {
    if (auto text = Member(body, {"version"})) event->version = ParseInteger(*text);
  }
  if (!event->occurred_at) {
    if (auto text = Member(body, {"occurred_at", "occurredAt", "timestamp"})) {
      event->occurred_at = ParseTime(*text);
    }
  }
}

using StandardValues = std::array<const std::string_view*, pubsub::kStandardAttributes.size()>;

void Poison(std::string why, ReceivedEvent* event) {
  if (event->poison.empty()) event->poison = std::move(why);
}

// `all_plain`: all of these are.
void TakeFields(const StandardValues& standard, bool all_plain, ReceivedEvent* event) {
  const auto find = [&](std::string_view name) {
    return standard[pubsub::StandardAttributeIndex(name)];
  };
  const auto take = [&](std::string_view name, std::optional<std::string_view>* field) {
    const std::string_view* value = find(name);
    if (value != nullptr && !value->empty() && (all_plain || IsPlain(*value))) *field = *value;
  };
  take(pubsub::kEventId, &event->event_id);
  take(pubsub::kEventType, &event->event_type);
  take(pubsub::kAggregateType, &event->aggregate_type);
  take(pubsub::kAggregateId, &event->aggregate_id);
  if (const std::string_view* text = find(pubsub::kVersion)) {
    event->version = ParseInteger(*text);
    if (!event->version) Poison("attribute version is not an integer", event);
  }
  if (const std::string_view* text = find(pubsub::kOccurredAt)) {
    event->occurred_at = ParseTime(*text);
    if (!event->occurred_at) Poison("attribute occurred_at is not an RFC 3339 time", event);
  }
}

}  // namespace

ReceivedEvent ParseEvent(const pubsub::ReceivedMessage& message) {
  ReceivedEvent event;
  event.payload = message.data;
  const auto poison = [&event](std::string why) { Poison(std::move(why), &event); };

  bool all_plain = true;
  StandardValues standard{};
  AttributeViews others;  // that are not fields of the event
  for (const auto& [name, value] : message.attributes) {
    if (!IsPlain(name) || !IsPlain(value)) {
      all_plain = false;
      poison(HasNul(name) || HasNul(value) ? "an attribute holds a NUL character"
                                           : "an attribute is not valid UTF-8");
    }
    const size_t index = pubsub::StandardAttributeIndex(name);
    if (index < standard.size()) standard[index] = &value;
    if (index == standard.size() || name == pubsub::kSchemaVersion) {
      others.emplace_back(name, value);
    }
  }
  AddTraceNames(message.attributes, &others);
  event.attributes = all_plain ? PlainJson(others) : CleanedJson(others);

  TakeFields(standard, all_plain, &event);

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
  if (const auto* id = FindAttribute(message.attributes, pubsub::kTraceId)) {
    return std::string(*id);
  }
  constexpr pubsub::TraceName kName = pubsub::kTraceNames[0];
  for (const std::string_view name : {kName.standard, kName.of_clients}) {
    if (const auto* parent = FindAttribute(message.attributes, name)) {
      return std::string(pubsub::TraceIdOf(*parent));
    }
  }
  return "";
}

}  // namespace postbox::puller
