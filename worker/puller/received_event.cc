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
#include "proto/rules/json_number.h"
#include "proto/rules/json_scan.h"
#include "proto/rules/utf8.h"

namespace postbox::puller {
namespace {

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
  nlohmann::json object = nlohmann::json::object();
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
  return object.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
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
  return micros;
}

constexpr char kNoTime[] = " is not an RFC 3339 time in the years 0001 to 9999";
constexpr char kNoBigint[] = " is not a bigint";

void Poison(std::string why, ReceivedEvent* event) {
  if (event->poison.empty()) event->poison = std::move(why);
}

// Whether a number may be meant: nothing is in it but digits with a sign before them, a
// point, an exponent, and what stands between groups of digits. Two points, or a sign behind a
// digit, are those of a release or a date.
bool MayBeNumber(std::string_view text) {
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (text.find_first_not_of("0123456789+-.eE,_ \t\r\n") != std::string_view::npos) return false;
  if (std::count(text.begin(), text.end(), '.') > 1) return false;
  for (size_t i = 1; i < text.size(); ++i) {
    if ((text[i] == '-' || text[i] == '+') && is_digit(text[i - 1])) return false;
  }
  return true;
}

// Takes the fields that the attributes do not give from a body that is a JSON object.
class EnvelopeReader {
 public:
  explicit EnvelopeReader(ReceivedEvent* event) : event_(event) {}

  void Read() {
    const size_t begin = event_->payload.find_first_not_of(" \t\r\n");
    if (begin == std::string_view::npos || event_->payload[begin] != '{') return;
    if (!json::MemberSearch(Names(), event_->payload, &values_).Run().valid) return;
    if (!pubsub::IsValidUtf8(event_->payload)) return;
    TakeText(kEventId, &event_->event_id);
    TakeText(kEventType, &event_->event_type);
    TakeText(kAggregateType, &event_->aggregate_type);
    TakeText(kAggregateId, &event_->aggregate_id);
    if (!event_->version) TakeVersion();
    if (!event_->occurred_at) TakeTime();
    event_->of_body = texts_;
  }

 private:
  // Of two names for a field the first has an even place.
  enum Place : uint8_t {
    kEventId = 0,
    kEventType = 2,
    kAggregateType = 4,
    kAggregateId = 6,
    kOccurredAt = 8,
    kVersion = 10,
    kTimestamp = 11,
  };
  static constexpr std::array<const char*, 12> kNames = {
      "event_id",     "eventId",     "event_type",  "eventType",  "aggregate_type", "aggregateType",
      "aggregate_id", "aggregateId", "occurred_at", "occurredAt", "version",        "timestamp"};

  static const json::Paths& Names() {
    static const json::Paths& names = *[] {
      auto* paths = new json::Paths;
      for (const char* name : kNames) paths->Add({name});
      return paths;
    }();
    return names;
  }

  bool IsThere(size_t place) const {
    return values_[place].kind != json::Kind::kAbsent && values_[place].kind != json::Kind::kNull;
  }
  void PoisonMember(size_t place, const char* why) {
    Poison(std::string("member ") + kNames[place] + " of the JSON body" + why, event_);
  }

  // A text, or a whole number with its digits alone; otherwise `why` says what it is.
  std::optional<std::string_view> Text(size_t place, const char** why) {
    const json::Value& value = values_[place];
    *why = " is neither a string nor a whole number";
    if (value.kind == json::Kind::kNumber) {
      char digits[json::kMostDigits + 1];
      const size_t length = json::WriteWhole(value.text, digits);
      if (length == 0) return std::nullopt;
      return texts_->emplace_back(digits, length);
    }
    if (value.kind != json::Kind::kString) return std::nullopt;
    const std::string_view inside = value.text.substr(1, value.text.size() - 2);
    if (inside.find('\\') == std::string_view::npos) return inside;
    std::string decoded(inside.size(), '\0');
    const json::Decoded result = json::Decode(inside, decoded.data());
    if (result.flaw == json::TextFlaw::kNul) *why = " holds a NUL character";
    if (result.flaw == json::TextFlaw::kSurrogate) *why = " holds half of a surrogate pair";
    if (result.flaw != json::TextFlaw::kNone) return std::nullopt;
    decoded.resize(result.length);
    return texts_->emplace_back(std::move(decoded));
  }

  // The first of both members that is there counts. An empty text is none, as in an attribute.
  void TakeText(size_t first, std::optional<std::string_view>* field) {
    if (field->has_value()) return;
    for (const size_t place : {first, first + 1}) {
      if (!IsThere(place)) continue;
      const char* why = nullptr;
      const std::optional<std::string_view> text = Text(place, &why);
      if (!text) return PoisonMember(place, why);
      if (text->empty()) continue;
      *field = text;
      return;
    }
  }

  void TakeVersion() {
    if (!IsThere(kVersion)) return;
    const char* why = nullptr;
    const std::optional<std::string_view> text = Text(kVersion, &why);
    if (text) event_->version = ParseInteger(*text);
    if (event_->version) return;
    const bool number = values_[kVersion].kind == json::Kind::kNumber;
    if (number || (text && MayBeNumber(*text))) return PoisonMember(kVersion, kNoBigint);
    event_->version_left_alone = true;
  }

  void TakeTime() {
    for (const size_t place : {size_t{kOccurredAt}, size_t{kOccurredAt} + 1, size_t{kTimestamp}}) {
      if (!IsThere(place)) continue;
      const char* why = nullptr;
      if (const auto text = Text(place, &why)) event_->occurred_at = ParseTime(*text);
      // A timestamp may be something else than the time of the event.
      if (!event_->occurred_at && place != kTimestamp) PoisonMember(place, kNoTime);
      return;
    }
  }

  ReceivedEvent* const event_;
  std::vector<json::Value> values_;
  const std::shared_ptr<std::list<std::string>> texts_ = std::make_shared<std::list<std::string>>();
};

using StandardValues = std::array<const std::string_view*, pubsub::kStandardAttributes.size()>;

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
    if (!event->version) Poison(std::string("attribute version") + kNoBigint, event);
  }
  if (const std::string_view* text = find(pubsub::kOccurredAt)) {
    event->occurred_at = ParseTime(*text);
    if (!event->occurred_at) Poison(std::string("attribute occurred_at") + kNoTime, event);
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
    EnvelopeReader(&event).Read();
  }
  if (!event.event_id) {
    poison("neither an attribute event_id nor a JSON body with event_id or eventId");
  }
  return event;
}

}  // namespace postbox::puller
