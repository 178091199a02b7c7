#include "extension/registry/event_count.h"

#include "extension/base/spi.h"

namespace postbox {
namespace {

constexpr int kWindows = 8;
constexpr int kWindow = 100;

}  // namespace

std::vector<Oid> RangeTypes(std::optional<Oid> more) {
  std::vector<Oid> types = FilterTypes();
  types.insert(types.end(), 2, INT8OID);
  if (more) types.push_back(*more);
  return types;
}

EventParameters::EventParameters(const EventFilter& filter, int slice,
                                 std::initializer_list<Datum> more)
    : values{filter.types.value, Int32GetDatum(filter.lanes), Int32GetDatum(slice)},
      nulls(filter.types.isnull ? "n  " : "   ") {
  for (const Datum value : more) Add(value);
}

void EventParameters::Add(Datum value) {
  values.push_back(value);
  nulls.push_back(' ');
}

CountedEvents RunToCount(Statement& statement, const EventParameters& parameters) {
  statement.RunReadOnly(parameters.values.data(), parameters.nulls.c_str());
  RequireColumnType(2, TIMESTAMPTZOID);
  RequireColumnType(3, INT8OID);
  CountedEvents counted{Int64Column(0, 1), DT_NOEND, Int64Column(0, 3)};
  if (!IsNull(0, 2)) counted.oldest = DatumGetTimestampTz(DatumColumn(0, 2));
  return counted;
}

Statement PlannedOnce(const std::string& sql, std::vector<Oid> types) {
  return Statement(sql, std::move(types), CURSOR_OPT_GENERIC_PLAN);
}

std::string Limit(int most) { return " LIMIT " + std::to_string(most); }

// The limit keeps the planner from reading all rows for each window.
EventWindows::EventWindows(const std::string& from, const std::string& mine,
                           std::optional<Oid> more)
    : statement_(PlannedOnce(
          "SELECT count(*) FROM generate_series(0, " + std::to_string(kWindows - 1) +
              ") AS w(n) CROSS JOIN LATERAL (SELECT" + from +
              " AND seq > $4 + w.n * $5 AND seq <= $4 + w.n * $5 + " + std::to_string(kWindow) +
              mine + " ORDER BY seq" + Limit(kWindow) + ") AS e",
          RangeTypes(more))) {}

int64 EventWindows::Estimate(const EventFilter& filter, int slice, int64 after, int64 upto,
                             std::optional<Datum> more) {
  const int64 width = upto - after;
  if (width <= 0) return 0;
  const int64 step = std::max<int64>(kWindow, (width + kWindows - 1) / kWindows);
  EventParameters parameters(filter, slice, {Int64GetDatum(after), Int64GetDatum(step)});
  if (more) parameters.Add(*more);
  statement_.RunReadOnly(parameters.values.data(), parameters.nulls.c_str());
  const auto found = static_cast<double>(Int64Column(0, 1));
  const int64 looked_at = std::min<int64>(width, int64{kWindows} * kWindow);
  return static_cast<int64>(found / static_cast<double>(looked_at) * static_cast<double>(width));
}

EventRange::EventRange(const std::string& from, const std::string& occurred_at,
                       const std::string& mine)
    : count_(PlannedOnce(
          kCountEvents + ("(SELECT seq, " + occurred_at + from + " AND seq > $4 AND seq <= $5" +
                          mine + " ORDER BY seq" + Limit(kCounted) + ") AS e"),
          RangeTypes())),
      windows_(from, mine) {}

CountedEvents EventRange::Count(const EventFilter& filter, int slice, int64 after, int64 upto) {
  if (after >= upto) return {};
  CountedEvents counted = RunToCount(
      count_, EventParameters(filter, slice, {Int64GetDatum(after), Int64GetDatum(upto)}));
  if (counted.events == kCounted) {
    counted.events += windows_.Estimate(filter, slice, counted.last_seq, upto);
  }
  return counted;
}

}  // namespace postbox
