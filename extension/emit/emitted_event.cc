#include "extension/emit/emitted_event.h"

#include "extension/base/uuid.h"
#include "extension/shared/settings.h"
#include "proto/rules/attributes.h"
#include "proto/rules/message_check.h"

namespace postbox {
namespace {

enum class AttributeFault { kNone, kNoObject, kNull, kNested };

struct AttributeList {
  AttributeFault fault;
  const char* culprit;  // the attribute with the fault
  int count;
  struct {
    const char* key;
    int key_length;
    const char* value;
    int value_length;
  } * items;
};

// Reads a JSON object of scalars. Strings are taken as they are, numbers and booleans as their
// text.
AttributeList ReadAttributes(Datum datum) {
  Jsonb* jsonb = DatumGetJsonbP(datum);
  AttributeList list{};
  if (!JB_ROOT_IS_OBJECT(jsonb)) {
    list.fault = AttributeFault::kNoObject;
    return list;
  }
  if (JB_ROOT_COUNT(jsonb) == 0) return list;
  list.items =
      static_cast<decltype(list.items)>(palloc0(sizeof(*list.items) * (JB_ROOT_COUNT(jsonb) + 1)));
  JsonbIterator* iterator = JsonbIteratorInit(&jsonb->root);
  JsonbValue value;
  JsonbIteratorToken token;
  while ((token = JsonbIteratorNext(&iterator, &value, true)) != WJB_DONE) {
    auto& item = list.items[list.count];
    if (token == WJB_KEY) {
      item.key = value.val.string.val;
      item.key_length = value.val.string.len;
    } else if (token == WJB_VALUE) {
      switch (value.type) {
        case jbvString:
          item.value = value.val.string.val;
          item.value_length = value.val.string.len;
          break;
        case jbvNumeric:
          item.value =
              DatumGetCString(DirectFunctionCall1(numeric_out, NumericGetDatum(value.val.numeric)));
          item.value_length = static_cast<int>(std::strlen(item.value));
          break;
        case jbvBool:
          item.value = value.val.boolean ? "true" : "false";
          item.value_length = static_cast<int>(std::strlen(item.value));
          break;
        default:
          list.fault = value.type == jbvNull ? AttributeFault::kNull : AttributeFault::kNested;
          list.culprit = pnstrdup(item.key, item.key_length);
          return list;
      }
      ++list.count;
    }
  }
  return list;
}

// The value of a context setting, or an empty text.
std::string_view ContextValue(std::string_view attribute) {
  const Settings& current = settings();
  if (attribute == pubsub::kCorrelationId) return current.correlation_id;
  if (attribute == pubsub::kCausationId) return current.causation_id;
  if (attribute == pubsub::kUserId) return current.user_id;
  if (attribute == pubsub::kTraceparent) return current.traceparent;
  if (attribute == pubsub::kSourceService) return current.source_service;
  return current.source_version;
}

// An empty object, made once in a session.
Datum NoAttributes() {
  static const Datum none = Pg([] {
    const MemoryContext before = MemoryContextSwitchTo(TopMemoryContext);
    const Datum object = DirectFunctionCall1(jsonb_in, CStringGetDatum("{}"));
    MemoryContextSwitchTo(before);
    return object;
  });
  return none;
}

constexpr int64 kMicrosFrom1970To2000 =
    static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

bool IsRfc3339(TimestampTz time) {
  return !TIMESTAMP_NOT_FINITE(time) && time >= pubsub::kMinRfc3339Micros - kMicrosFrom1970To2000 &&
         time <= pubsub::kMaxRfc3339Micros - kMicrosFrom1970To2000;
}

// A longer delay is most likely a mistake in units.
constexpr int64 kMostDelay = 366 * USECS_PER_DAY;

void CheckDeliverAt(TimestampTz time, TimestampTz now) {
  if (IsRfc3339(time) && time - now <= kMostDelay) return;
  Throw(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "deliver_at is out of range",
        "An event can be delayed by 366 days at most.", "Emit it later, or give an earlier time.");
}

void CheckExpiresAt(TimestampTz time) {
  if (IsRfc3339(time)) return;
  Throw(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "expires_at is out of range",
        "It must be a time in the years 0001 to 9999.",
        "Omit expires_at for an event that does not expire.");
}

// Whether the message is so far below every limit that it needs no check: short valid texts, no
// attributes but the standard ones, and a payload of at most half of a request.
bool IsSurelyWithinLimits(const EmittedEvent& event) {
  constexpr size_t kShort = std::min(pubsub::kMaxOrderingKeyBytes, pubsub::kMaxAttributeValueBytes);
  if (GetDatabaseEncoding() != PG_UTF8 || !event.extra.empty()) return false;
  for (const Text* text :
       {&event.aggregate_type, &event.aggregate_id, &event.event_type, &event.schema_version}) {
    if (text->view.size() > kShort || !pubsub::IsValidUtf8(text->view)) return false;
  }
  return event.data.size() <= pubsub::kMaxRequestBytes / 2;
}

}  // namespace

std::string_view View(Datum varlena_datum) {
  const auto* value = reinterpret_cast<const varlena*>(DatumGetPointer(varlena_datum));
  return {VARDATA_ANY(value), VARSIZE_ANY_EXHDR(value)};
}

Text ToText(Datum datum) {
  const Datum plain = Pg([&] { return PointerGetDatum(DatumGetTextPP(datum)); });
  return {plain, View(plain)};
}

std::string_view ToUtf8(std::string_view text) {
  if (GetDatabaseEncoding() == PG_UTF8) return text;
  const char* converted =
      Pg([&] { return pg_server_to_any(text.data(), static_cast<int>(text.size()), PG_UTF8); });
  return converted == text.data() ? text : std::string_view(converted);
}

void AddCallersAttributes(Datum attributes, ExtraAttributes* extra) {
  const AttributeList list = Pg([&] { return ReadAttributes(attributes); });
  switch (list.fault) {
    case AttributeFault::kNone:
      break;
    case AttributeFault::kNoObject:
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "attributes must be a JSON object", "",
            "For example '{\"tenant\": \"t1\"}'.");
    case AttributeFault::kNull:
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            std::string("attribute \"") + list.culprit + "\" is null",
            "An attribute is a string, a number or a boolean.", "Omit it.");
    case AttributeFault::kNested:
      Throw(ERRCODE_INVALID_PARAMETER_VALUE,
            std::string("attribute \"") + list.culprit + "\" is an object or an array",
            "An attribute is a string, a number or a boolean.",
            "Put structured values into the payload.");
  }
  for (int i = 0; i < list.count; ++i) {
    const auto& item = list.items[i];
    const std::string_view key(item.key, static_cast<size_t>(item.key_length));
    if (pubsub::IsStandardAttribute(key)) {
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "attribute \"" + std::string(key) + "\" is reserved",
            "Postbox sets event_id, event_type, aggregate_id, aggregate_type, version, "
            "occurred_at and "
            "schema_version.",
            "Use the parameter " + std::string(key) + " of outbox_emit.");
    }
    if (pubsub::IsTimeAttribute(key)) {
      constexpr std::string_view kPrefix = "postbox_";
      Throw(ERRCODE_INVALID_PARAMETER_VALUE, "attribute \"" + std::string(key) + "\" is reserved",
            "outbox_emit stores it if the event is delayed or expires.",
            "Use the parameter " + std::string(key.substr(kPrefix.size())) + " of outbox_emit.");
    }
    extra->emplace_back(ToUtf8(key), ToUtf8({item.value, static_cast<size_t>(item.value_length)}));
  }
}

void AddContextAttributes(ExtraAttributes* extra) {
  const size_t of_caller = extra->size();
  for (const std::string_view name : pubsub::kContextAttributes) {
    const std::string_view value = ContextValue(name);
    const auto has_name = [&](const auto& attribute) { return attribute.first == name; };
    if (!value.empty() && std::none_of(extra->begin(), extra->begin() + of_caller, has_name)) {
      extra->emplace_back(name, ToUtf8(value));
    }
  }
}

void AddTimes(const NullableDatum& deliver_at, const NullableDatum& expires_at,
              const NullableDatum& key_may_pass, EmittedEvent* event) {
  event->key_may_pass = !key_may_pass.isnull && DatumGetBool(key_may_pass.value);
  if (event->key_may_pass && deliver_at.isnull) {
    Throw(ERRCODE_INVALID_PARAMETER_VALUE, "key_may_pass needs deliver_at",
          "An event that is not delayed has its place in the order of its key.",
          "Give deliver_at, or omit key_may_pass.");
  }
  if (deliver_at.isnull && expires_at.isnull) return;
  const TimestampTz now = GetCurrentTransactionStartTimestamp();
  const auto add = [&](std::string_view name, TimestampTz time) {
    event->times.emplace_back(name, pubsub::FormatRfc3339(time + kMicrosFrom1970To2000));
  };
  TimestampTz after = now;
  if (!deliver_at.isnull) {
    const TimestampTz time = DatumGetTimestampTz(deliver_at.value);
    CheckDeliverAt(time, now);
    if (time > now) {
      add(pubsub::kDeliverAt, time);
      if (event->key_may_pass) event->times.emplace_back(pubsub::kKeyMayPass, "true");
    }
    after = std::max(after, time);
  }
  if (expires_at.isnull) return;
  const TimestampTz time = DatumGetTimestampTz(expires_at.value);
  CheckExpiresAt(time);
  if (time <= after) {
    const bool past = time <= now;
    Throw(ERRCODE_INVALID_PARAMETER_VALUE,
          past ? "expires_at is not in the future" : "expires_at is not after deliver_at",
          "The event would never be published.",
          past ? "Give a later time, or do not emit the event." : "Give a later expires_at.");
  }
  add(pubsub::kExpiresAt, time);
}

Datum AttributesDatum(const EmittedEvent& event) {
  if (event.extra.empty() && event.times.empty()) return NoAttributes();
  return Pg([&] {
    JsonbObject object;
    const auto push = [&](JsonbIteratorToken token, std::string_view utf8) {
      JsonbValue value;
      value.type = jbvString;
      value.val.string.val = pg_any_to_server(utf8.data(), static_cast<int>(utf8.size()), PG_UTF8);
      value.val.string.len = value.val.string.val == utf8.data()
                                 ? static_cast<int>(utf8.size())
                                 : static_cast<int>(std::strlen(value.val.string.val));
      object.Push(token, &value);
    };
    for (const auto& attribute : event.extra) {
      push(WJB_KEY, attribute.first);
      push(WJB_VALUE, attribute.second);
    }
    for (const auto& time : event.times) {
      push(WJB_KEY, time.first);
      push(WJB_VALUE, time.second);
    }
    return JsonbPGetDatum(object.Finish());
  });
}

void CheckOccurredAt(TimestampTz occurred_at) {
  if (IsRfc3339(occurred_at)) return;
  Throw(ERRCODE_DATETIME_VALUE_OUT_OF_RANGE, "occurred_at is out of range",
        "It is sent in the format of RFC 3339, which has the years 0001 to 9999.");
}

namespace {

void Refuse(const pubsub::MessageProblem& problem) {
  int sqlstate = ERRCODE_INVALID_PARAMETER_VALUE;
  if (problem.kind == pubsub::MessageProblem::Kind::kInvalidUtf8)
    sqlstate = ERRCODE_CHARACTER_NOT_IN_REPERTOIRE;
  if (problem.kind == pubsub::MessageProblem::Kind::kLimitExceeded)
    sqlstate = ERRCODE_PROGRAM_LIMIT_EXCEEDED;
  Throw(sqlstate, problem.what, problem.limit, problem.hint);
}

}  // namespace

void CheckKey(std::string_view key) {
  if (key.size() <= pubsub::kMaxOrderingKeyBytes) return;
  const std::vector<pubsub::AttributeView> none;
  if (const auto problem = pubsub::CheckMessage("data", none, ToUtf8(key))) Refuse(*problem);
}

void CheckMessage(const EmittedEvent& event, int64 version) {
  if (IsSurelyWithinLimits(event)) return;
  const std::string id = UuidText(*event.id);
  const std::string_view key = ToUtf8(event.aggregate_id.view);
  const pubsub::StandardAttributes standard(
      {.event_id = id,
       .event_type = ToUtf8(event.event_type.view),
       .aggregate_id = key,
       .aggregate_type = ToUtf8(event.aggregate_type.view),
       .version = version,
       .occurred_at_micros = event.occurred_at + kMicrosFrom1970To2000,
       .schema_version = ToUtf8(event.schema_version.view)});
  const std::vector<pubsub::AttributeView> attributes = standard.With(event.extra);
  if (const auto problem = pubsub::CheckMessage(event.data, attributes, key)) Refuse(*problem);
}

}  // namespace postbox
