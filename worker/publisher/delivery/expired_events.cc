#include "worker/publisher/delivery/expired_events.h"

#include "extension/base/spi.h"
#include "extension/base/statement.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/delivery/event_log.h"
#include "worker/publisher/source/event_rows.h"

namespace postbox::publisher {

namespace {

constexpr std::size_t kMostOfKey = 256;

}  // namespace

void ExpiredEvents::Add(const ClaimedEvent& event) {
  const UnsentEvent& unsent = *event.unsent();
  rows_.push_back({ServerText(unsent.id), ServerText(unsent.aggregate_type),
                   ServerText(unsent.aggregate_id), ServerText(unsent.event_type), unsent.version,
                   unsent.times.expires_at, ServerText(unsent.trace_id), true});
}

Datum ExpiredEvents::Texts(std::string Row::*column) const {
  std::vector<std::string> texts;
  texts.reserve(rows_.size());
  for (const Row& row : rows_) texts.push_back(row.*column);
  return TextArrayValue(texts);
}

void ExpiredEvents::LookUp(Oid outbox) {
  if (rows_.empty()) return;
  // It is never destroyed: at exit the server's memory goes without us.
  static Statement& counted = *new Statement(
      "SELECT k.version FROM postbox.counted_versions($1, $2, $3) AS k(place, version) "
      "ORDER BY k.place",
      {REGCLASSOID, TEXTARRAYOID, TEXTARRAYOID});
  const uint64 found = counted.Run(
      {ObjectIdGetDatum(outbox), Texts(&Row::aggregate_type), Texts(&Row::aggregate_id)});
  CheckColumns("the version counter", {INT8OID});
  for (uint64 row = 0; row < std::min<uint64>(found, rows_.size()); ++row) {
    rows_[row].last = IsNull(row, 1) || Int64Column(row, 1) <= rows_[row].version;
  }
}

void ExpiredEvents::Store(const Publication& publication) {
  if (rows_.empty()) return;
  static Statement& store = *new Statement(
      "INSERT INTO postbox.expired_event (publication, outbox, event_id, aggregate_type, "
      "aggregate_id, event_type, version, expires_at, last_of_aggregate) SELECT $1, $2, e.id, "
      "e.aggregate_type, e.aggregate_id, e.event_type, e.version, "
      "pg_catalog.to_timestamp(e.micros OPERATOR(pg_catalog./) 1e6), e.last OPERATOR(pg_catalog.=) "
      "1 FROM ROWS FROM (pg_catalog.unnest($3), pg_catalog.unnest($4), pg_catalog.unnest($5), "
      "pg_catalog.unnest($6), pg_catalog.unnest($7), pg_catalog.unnest($8), pg_catalog.unnest($9)) "
      "AS e(id, aggregate_type, aggregate_id, event_type, version, micros, last) "
      "ON CONFLICT (publication, event_id) DO NOTHING",
      {TEXTOID, REGCLASSOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID,
       INT8ARRAYOID, INT8ARRAYOID});
  std::vector<int64> versions, ends, last;
  for (const Row& row : rows_) {
    versions.push_back(row.version);
    ends.push_back(row.expires_at);
    last.push_back(row.last ? 1 : 0);
  }
  store.Run({TextValue(publication.name), ObjectIdGetDatum(publication.outbox), Texts(&Row::id),
             Texts(&Row::aggregate_type), Texts(&Row::aggregate_id), Texts(&Row::event_type),
             Int64ArrayValue(versions), Int64ArrayValue(ends), Int64ArrayValue(last)});
  Log(publication.name);
  rows_.clear();
}

void ExpiredEvents::Log(const std::string& publication) const {
  for (const bool last : {false, true}) {
    const auto of_kind = [&](const Row& row) { return row.last == last; };
    const auto example = std::find_if(rows_.begin(), rows_.end(), of_kind);
    if (example == rows_.end()) continue;
    const std::string what = last ? "has expired as the last event of its aggregate"
                                  : "has expired, and a later event of its aggregate follows";
    LogLimited(
        what + publication,
        {.level = last ? WARNING : LOG,
         .message = "publication \"" + publication + "\": event " + example->id + " of key \"" +
                    Shortened(example->aggregate_id, kMostOfKey) + "\" " + what,
         .detail = FieldsText({example->id, example->event_type, example->aggregate_id,
                               example->aggregate_type, std::to_string(example->version),
                               example->trace_id}),
         .hint = last ? "Consumers keep an older state: emit the present one again. "
                        "postbox.expired_event has all such events."
                      : ""},
        static_cast<int64>(std::count_if(rows_.begin(), rows_.end(), of_kind)));
  }
}

}  // namespace postbox::publisher
