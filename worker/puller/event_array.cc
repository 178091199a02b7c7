#include "worker/puller/event_array.h"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "worker/puller/binary_format.h"

namespace postbox::puller {
namespace {

constexpr Oid kInt8Oid = 20;
constexpr Oid kTimestamptzOid = 1184;
constexpr Oid kJsonbOid = 3802;
// The columns of postbox.event (sql/install/00_types.sql).
constexpr int kColumns = 8;
// More than what a value takes beside its bytes: all types and lengths, the version and the time.
constexpr size_t kFixedBytes = 8 + kColumns * 8 + 24;
// 2000-01-01 in microseconds since 1970, from where timestamptz counts.
constexpr int64_t kPostgresEpoch = 946'684'800'000'000;

void AppendBytes(Oid type, std::optional<std::string_view> value, std::string* out) {
  AppendInt32(type, out);
  AppendInt32(value ? static_cast<int64_t>(value->size()) : -1, out);
  if (value) out->append(*value);
}

void AppendNumber(Oid type, std::optional<int64_t> value, std::string* out) {
  AppendInt32(type, out);
  AppendInt32(value ? 8 : -1, out);
  if (value) AppendInt64(*value, out);
}

// A version of the format comes before the text.
void AppendJsonb(std::string_view text, std::string* out) {
  AppendInt32(kJsonbOid, out);
  AppendInt32(static_cast<int64_t>(text.size()) + 1, out);
  out->push_back('\1');
  out->append(text);
}

std::optional<int64_t> PostgresTime(std::optional<int64_t> micros) {
  if (micros) *micros -= kPostgresEpoch;
  return micros;
}

size_t Size(const std::optional<std::string>& text) { return text ? text->size() : 0; }

size_t MostBytes(const ReceivedEvent& event) {
  return kFixedBytes + Size(event.event_id) + Size(event.event_type) + Size(event.aggregate_type) +
         Size(event.aggregate_id) + event.payload.size() + event.attributes.size();
}

// The format of record_recv: the number of columns, then for each its type, length and bytes.
void AppendEvent(const ReceivedEvent& event, std::string* out) {
  AppendInt32(kColumns, out);
  AppendBytes(kTextOid, event.event_id, out);
  AppendBytes(kTextOid, event.event_type, out);
  AppendBytes(kTextOid, event.aggregate_type, out);
  AppendBytes(kTextOid, event.aggregate_id, out);
  AppendNumber(kInt8Oid, event.version, out);
  AppendBytes(kByteaOid, event.payload, out);
  AppendJsonb(event.attributes, out);
  AppendNumber(kTimestamptzOid, PostgresTime(event.occurred_at), out);
}

}  // namespace

Parameter EventArray(Oid event_type, const std::vector<const Delivery*>& deliveries) {
  size_t bytes = kArrayHeaderBytes;
  for (const Delivery* delivery : deliveries) bytes += MostBytes(delivery->event);
  std::string out;
  out.reserve(bytes);
  AppendArrayHeader(event_type, deliveries.size(), false, &out);
  std::string length;
  for (const Delivery* delivery : deliveries) {
    const size_t begin = out.size();
    AppendInt32(0, &out);
    AppendEvent(delivery->event, &out);
    length.clear();
    AppendInt32(static_cast<int64_t>(out.size() - begin - 4), &length);
    out.replace(begin, 4, length);
  }
  return Parameter::Bytes(std::move(out));
}

}  // namespace postbox::puller
