// See event_message.h.
#include "worker/publisher/source/event_message.h"

#include "worker/publisher/source/event_spans.h"
#include "worker/pubsub/publish/message_wire.h"

namespace postbox::publisher {

namespace {

// The following run inside Pg(): plain data in palloc's memory only.

std::string_view ToUtf8(const char* data, int size) {
  char* converted = pg_server_to_any(data, size, PG_UTF8);
  return {converted, converted == data ? static_cast<std::size_t>(size) : std::strlen(converted)};
}

std::string_view TextToUtf8(Datum value) {
  const text* packed = DatumGetTextPP(value);
  return ToUtf8(VARDATA_ANY(packed), static_cast<int>(VARSIZE_ANY_EXHDR(packed)));
}

std::string_view UuidText(const pg_uuid_t* id) {
  constexpr char kDigits[] = "0123456789abcdef";
  constexpr std::size_t kLength = 36;
  auto* text = static_cast<char*>(palloc(kLength));
  char* out = text;
  for (int i = 0; i < UUID_LEN; ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) *out++ = '-';
    *out++ = kDigits[id->data[i] >> 4];
    *out++ = kDigits[id->data[i] & 0xf];
  }
  return {text, kLength};
}

// Whether it is the empty object, without a copy of it.
bool IsEmptyObject(Datum value) {
  const auto* packed = reinterpret_cast<const varlena*>(DatumGetPointer(value));
  if (VARATT_IS_EXTERNAL(packed) || VARATT_IS_COMPRESSED(packed)) return false;
  const uint32 empty = JB_FOBJECT;
  return VARSIZE_ANY_EXHDR(packed) == sizeof empty &&
         std::memcmp(VARDATA_ANY(packed), &empty, sizeof empty) == 0;
}

void ReadTime(std::string_view name, std::string_view text, EventView* event) {
  if (name == pubsub::kKeyMayPass) {
    event->key_may_pass = true;
    return;
  }
  EventTimes& times = event->times;
  std::int64_t* time = name == pubsub::kDeliverAt ? &times.deliver_at : &times.expires_at;
  if (!pubsub::ParseRfc3339(text, time)) event->has_bad_time = true;
}

// The top level of a JSON object. A container inside is written as JSON.
void ReadAttributes(Datum value, EventView* event) {
  event->attributes = nullptr;
  event->attribute_count = 0;
  event->times = {};
  event->has_bad_time = false;
  event->key_may_pass = false;
  if (IsEmptyObject(value)) return;
  Jsonb* object = DatumGetJsonbP(value);
  if (!JB_ROOT_IS_OBJECT(object)) event->attribute_count = -1;
  if (!JB_ROOT_IS_OBJECT(object) || JB_ROOT_COUNT(object) == 0) return;
  auto* pairs = static_cast<pubsub::AttributeView*>(
      palloc(sizeof(pubsub::AttributeView) * JB_ROOT_COUNT(object)));
  int count = 0;
  JsonbIterator* iterator = JsonbIteratorInit(&object->root);
  JsonbValue token;
  std::string_view key;
  JsonbIteratorToken kind = WJB_DONE;
  while ((kind = JsonbIteratorNext(&iterator, &token, true)) != WJB_DONE) {
    if (kind == WJB_KEY) key = ToUtf8(token.val.string.val, token.val.string.len);
    // The index of keys sees a null, too.
    const bool is_null = token.type == jbvNull && key != pubsub::kKeyMayPass;
    if (kind != WJB_VALUE || is_null) continue;
    std::string_view text;
    if (token.type == jbvString) {
      text = ToUtf8(token.val.string.val, token.val.string.len);
    } else {
      Jsonb* single = JsonbValueToJsonb(&token);
      const char* json = JsonbToCString(nullptr, &single->root, VARSIZE(single));
      text = ToUtf8(json, static_cast<int>(std::strlen(json)));
    }
    if (pubsub::IsTimeAttribute(key)) {
      ReadTime(key, text, event);
    } else {
      new (&pairs[count++]) pubsub::AttributeView(key, text);
    }
  }
  event->attributes = pairs;
  event->attribute_count = count;
}

// FNV-1a, 64 bits: which bucket an aggregate is in must not change between releases, or its events
// could overtake each other on the way.
uint64 Hash(std::string_view text) {
  uint64 hash = 0xcbf29ce484222325ULL;
  for (const char c : text) {
    hash ^= static_cast<unsigned char>(c);
    hash *= 0x100000001b3ULL;
  }
  return hash;
}

}  // namespace

int64 UnixMicros(TimestampTz time) {
  constexpr int64 kPostgresEpochMicros =
      static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
  return TIMESTAMP_NOT_FINITE(time) ? time : time + kPostgresEpochMicros;
}

Ordering::Ordering(std::string_view text) {
  constexpr std::string_view kBucket = "bucket:";
  if (text == "none") kind_ = Kind::kNone;
  if (text.starts_with(kBucket)) {
    text.remove_prefix(kBucket.size());
    std::from_chars(text.data(), text.data() + text.size(), buckets_);
    if (buckets_ > 0) kind_ = Kind::kBucket;
  }
}

void Ordering::SetKey(std::string_view aggregate_id, std::string* key) const {
  switch (kind_) {
    case Kind::kKey:
      key->assign(aggregate_id);
      break;
    case Kind::kBucket:
      *key = "bucket-" + std::to_string(Hash(aggregate_id) % buckets_);
      break;
    case Kind::kNone:
      key->clear();
      break;
  }
}

std::string_view ViewId(Datum id, bool is_uuid) {
  return is_uuid ? UuidText(DatumGetUUIDP(id)) : TextToUtf8(id);
}

std::string_view ViewText(Datum text) { return TextToUtf8(text); }

std::string_view ViewBytes(Datum value) {
  const text* packed = DatumGetTextPP(value);
  return {VARDATA_ANY(packed), static_cast<std::size_t>(VARSIZE_ANY_EXHDR(packed))};
}

bool KeyMayPass(Datum attributes) {
  if (IsEmptyObject(attributes)) return false;
  JsonbValue key;
  key.type = jbvString;
  key.val.string.val = const_cast<char*>(pubsub::kKeyMayPass.data());
  key.val.string.len = static_cast<int>(pubsub::kKeyMayPass.size());
  return findJsonbValueFromContainer(&DatumGetJsonbP(attributes)->root, JB_FOBJECT | JB_FARRAY,
                                     &key) != nullptr;
}

EventView ViewEvent(const EventRow& row) {
  EventView event;
  event.id = ViewId(row.id, row.id_is_uuid);
  event.aggregate_type = TextToUtf8(row.aggregate_type);
  event.aggregate_id = TextToUtf8(row.aggregate_id);
  event.event_type = TextToUtf8(row.event_type);
  event.schema_version = TextToUtf8(row.schema_version);
  const bytea* payload = DatumGetByteaPP(row.payload);
  event.payload = {VARDATA_ANY(payload), VARSIZE_ANY_EXHDR(payload)};
  event.version = row.version;
  event.occurred_at_micros = UnixMicros(row.occurred_at);
  ReadAttributes(row.attributes, &event);
  return event;
}

void FillMessage(const EventView& event, std::string_view topic, const Ordering& ordering,
                 ClaimedEvent* message) {
  const pubsub::StandardAttributes standard({.event_id = event.id,
                                             .event_type = event.event_type,
                                             .aggregate_id = event.aggregate_id,
                                             .aggregate_type = event.aggregate_type,
                                             .version = event.version,
                                             .occurred_at_micros = event.occurred_at_micros,
                                             .schema_version = event.schema_version});
  message->topic = topic;
  ordering.SetKey(event.aggregate_id, &message->ordering_key);
  const auto encode = [&](std::span<const pubsub::AttributeView> attributes) {
    pubsub::EncodeMessage(event.payload, attributes, message->ordering_key, &message->encoded);
  };
  const std::span extra(event.attributes, static_cast<std::size_t>(event.attribute_count));
  if (extra.empty()) return encode(standard.views());
  if (EventSpans() != nullptr) {
    TracedAttributes traced;
    if (traced.Take(event, topic, message)) return encode(standard.With(traced.attributes()));
  }
  encode(standard.With(extra));
}

}  // namespace postbox::publisher
