#include "worker/puller/event_array.h"

#include <algorithm>
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
// The columns of postbox.event (sql/install/tables/00_types.sql).
constexpr int kColumns = 8;
// More than what a value takes beside its bytes: all types and lengths, the version and the time.
constexpr size_t kFixedBytes = 8 + kColumns * 8 + 24;
// 2000-01-01 in microseconds since 1970, from where timestamptz counts.
constexpr int64_t kPostgresEpoch = 946'684'800'000'000;

std::optional<int64_t> PostgresTime(std::optional<int64_t> micros) {
  if (micros) *micros -= kPostgresEpoch;
  return micros;
}

size_t Size(const std::optional<std::string_view>& text) { return text ? text->size() : 0; }

size_t MostBytes(const ReceivedEvent& event) {
  return kFixedBytes + Size(event.event_id) + Size(event.event_type) + Size(event.aggregate_type) +
         Size(event.aggregate_id) + event.payload.size() + event.attributes.size();
}

// Writes values, with their types and lengths, to memory that has room for them.
class ValueWriter {
 public:
  explicit ValueWriter(char* at) : at_(at) {}

  char* at() const { return at_; }
  void Int32(int64_t value) { at_ = WriteNetwork(static_cast<uint32_t>(value), at_); }
  void Bytes(std::string_view bytes) { at_ = std::copy(bytes.begin(), bytes.end(), at_); }

  void Text(const std::optional<std::string_view>& value) {
    Int32(kTextOid);
    Int32(value ? static_cast<int64_t>(value->size()) : -1);
    if (value) Bytes(*value);
  }
  void Number(Oid type, std::optional<int64_t> value) {
    Int32(type);
    Int32(value ? 8 : -1);
    if (value) at_ = WriteNetwork(static_cast<uint64_t>(*value), at_);
  }
  void Bytea(std::string_view value) {
    Int32(kByteaOid);
    Int32(static_cast<int64_t>(value.size()));
    Bytes(value);
  }
  // A version of the format comes before the text.
  void Jsonb(std::string_view text) {
    Int32(kJsonbOid);
    Int32(static_cast<int64_t>(text.size()) + 1);
    *at_++ = '\1';
    Bytes(text);
  }

 private:
  char* at_;
};

// The format of record_recv: the number of columns, then for each its type, length and bytes.
void Write(const ReceivedEvent& event, ValueWriter* out) {
  out->Int32(kColumns);
  out->Text(event.event_id);
  out->Text(event.event_type);
  out->Text(event.aggregate_type);
  out->Text(event.aggregate_id);
  out->Number(kInt8Oid, event.version);
  out->Bytea(event.payload);
  out->Jsonb(event.attributes);
  out->Number(kTimestamptzOid, PostgresTime(event.occurred_at));
}

}  // namespace

Parameter EventArray(Oid event_type, const std::vector<const Delivery*>& deliveries) {
  size_t bytes = kArrayHeaderBytes;
  for (const Delivery* delivery : deliveries) bytes += MostBytes(delivery->event);
  std::string array;
  AppendArrayHeader(event_type, deliveries.size(), false, &array);
  const size_t header = array.size();
  array.resize(bytes);
  ValueWriter out(array.data() + header);
  for (const Delivery* delivery : deliveries) {
    char* const length = out.at();
    out.Int32(0);
    Write(delivery->event, &out);
    WriteNetwork(static_cast<uint32_t>(out.at() - length - 4), length);
  }
  array.resize(static_cast<size_t>(out.at() - array.data()));
  return Parameter::Bytes(std::move(array));
}

}  // namespace postbox::puller
