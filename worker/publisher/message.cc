// See message.h.
#include "worker/publisher/message.h"

#include "worker/pubsub/attributes.h"

namespace postbox::publisher {

namespace {

struct Bytes {
  const char* data;
  std::size_t size;

  std::string Text() const { return std::string(data, size); }
};

// The following run inside Pg(): plain data in palloc's memory only.

Bytes ToUtf8(const char* data, int size) {
  char* converted = pg_server_to_any(data, size, PG_UTF8);
  return {converted, converted == data ? static_cast<std::size_t>(size) : std::strlen(converted)};
}

Bytes TextToUtf8(Datum value) {
  const text* packed = DatumGetTextPP(value);
  return ToUtf8(VARDATA_ANY(packed), static_cast<int>(VARSIZE_ANY_EXHDR(packed)));
}

struct Pair {
  Bytes key;
  Bytes value;
};

// The top level of a JSON object. A container inside is written as JSON.
int ReadAttributes(Datum value, Pair** pairs) {
  Jsonb* object = DatumGetJsonbP(value);
  if (!JB_ROOT_IS_OBJECT(object)) return 0;
  *pairs = static_cast<Pair*>(palloc(sizeof(Pair) * (JB_ROOT_COUNT(object) + 1)));
  int count = 0;
  JsonbIterator* iterator = JsonbIteratorInit(&object->root);
  JsonbValue token;
  Bytes key{nullptr, 0};
  JsonbIteratorToken kind = WJB_DONE;
  while ((kind = JsonbIteratorNext(&iterator, &token, true)) != WJB_DONE) {
    if (kind == WJB_KEY) key = ToUtf8(token.val.string.val, token.val.string.len);
    if (kind != WJB_VALUE || token.type == jbvNull) continue;
    Bytes text{nullptr, 0};
    if (token.type == jbvString) {
      text = ToUtf8(token.val.string.val, token.val.string.len);
    } else {
      Jsonb* single = JsonbValueToJsonb(&token);
      const char* json = JsonbToCString(nullptr, &single->root, VARSIZE(single));
      text = ToUtf8(json, static_cast<int>(std::strlen(json)));
    }
    (*pairs)[count++] = {key, text};
  }
  return count;
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

constexpr int64 kPostgresEpochMicros =
    static_cast<int64>(POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;

// Infinity stays as far away as it is.
int64 UnixMicros(TimestampTz time) {
  return TIMESTAMP_NOT_FINITE(time) ? time : time + kPostgresEpochMicros;
}

}  // namespace

Ordering::Ordering(std::string_view text) {
  constexpr std::string_view kBucket = "bucket:";
  if (text == "none") kind_ = Kind::kNone;
  if (text.starts_with(kBucket)) {
    text.remove_prefix(kBucket.size());
    std::from_chars(text.data(), text.data() + text.size(), buckets_);
    if (buckets_ > 0) kind_ = Kind::kBucket;
  }
}

std::string Ordering::KeyOf(std::string_view aggregate_id) const {
  switch (kind_) {
    case Kind::kKey:
      return std::string(aggregate_id);
    case Kind::kBucket:
      return "bucket-" + std::to_string(Hash(aggregate_id) % buckets_);
    case Kind::kNone:
      break;
  }
  return "";
}

pubsub::Message BuildMessage(const EventRow& row, const std::string& topic,
                             const Ordering& ordering) {
  Bytes id{};
  Bytes aggregate_type{};
  Bytes aggregate_id{};
  Bytes event_type{};
  Bytes schema_version{};
  Bytes payload{};
  Pair* pairs = nullptr;
  int count = 0;
  Pg([&] {
    id = TextToUtf8(row.id);
    aggregate_type = TextToUtf8(row.aggregate_type);
    aggregate_id = TextToUtf8(row.aggregate_id);
    event_type = TextToUtf8(row.event_type);
    schema_version = TextToUtf8(row.schema_version);
    const bytea* packed = DatumGetByteaPP(row.payload);
    payload = {VARDATA_ANY(packed), VARSIZE_ANY_EXHDR(packed)};
    count = ReadAttributes(row.attributes, &pairs);
  });

  pubsub::Attributes extra;
  extra.reserve(static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) extra.emplace_back(pairs[i].key.Text(), pairs[i].value.Text());
  const std::string id_text = id.Text();
  const std::string event_type_text = event_type.Text();
  const std::string aggregate_id_text = aggregate_id.Text();
  const std::string aggregate_type_text = aggregate_type.Text();
  const std::string schema_version_text = schema_version.Text();

  pubsub::Message message;
  message.topic = topic;
  message.ordering_key = ordering.KeyOf(aggregate_id_text);
  message.data = payload.Text();
  message.attributes = pubsub::BuildAttributes({.event_id = id_text,
                                                .event_type = event_type_text,
                                                .aggregate_id = aggregate_id_text,
                                                .aggregate_type = aggregate_type_text,
                                                .version = row.version,
                                                .occurred_at_micros = UnixMicros(row.occurred_at),
                                                .schema_version = schema_version_text},
                                               extra);
  return message;
}

std::size_t SizeOf(const pubsub::Message& message) {
  std::size_t size = message.data.size();
  for (const auto& [name, value] : message.attributes) size += name.size() + value.size();
  return size;
}

}  // namespace postbox::publisher
