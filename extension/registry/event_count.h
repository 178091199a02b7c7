// Counting events between two seqs, at a cost that does not grow with their number.
//
// The first kCounted events are counted; whether there are more is judged by kWindows windows of
// kWindow numbers each, spread evenly over the seqs that are left. That is exact where every number
// has its event, and an estimate where some have none: they were rolled back, or are of a type or a
// lane that is not asked for. So an answer below kCounted is exact.
//
// Every statement has the parameters of EventFilter first: types, lanes, lane. All see what the
// active snapshot sees.
#ifndef POSTBOX_EXTENSION_REGISTRY_EVENT_COUNT_H_
#define POSTBOX_EXTENSION_REGISTRY_EVENT_COUNT_H_

#include "extension/base/statement.h"

namespace postbox {

inline constexpr int kCounted = 1000;

// The types and the lanes of a publication.
struct EventFilter {
  NullableDatum types{0, true};  // text[]; NULL: all
  int lanes = 1;
};

// What one statement has counted.
struct CountedEvents {
  int64 events = 0;
  TimestampTz oldest = DT_NOEND;
  int64 last_seq = 0;
};

// The values of a statement on events.
struct EventParameters {
  EventParameters(const EventFilter& filter, int slice, std::initializer_list<Datum> more);
  void Add(Datum value);

  std::vector<Datum> values;
  std::string nulls;
};
// Their types, without and with two seqs, and with a further one.
inline std::vector<Oid> FilterTypes() { return {TEXTARRAYOID, INT4OID, INT4OID}; }
std::vector<Oid> RangeTypes(std::optional<Oid> more = {});

// What it selects from has the columns seq and occurred_at, and is called e.
inline constexpr char kCountEvents[] =
    "SELECT count(*), min(e.occurred_at) FILTER (WHERE isfinite(e.occurred_at)), max(e.seq) FROM ";
CountedEvents RunToCount(Statement& statement, const EventParameters& parameters);

// A statement whose plan never depends on the values.
Statement PlannedOnce(const std::string& sql, std::vector<Oid> types);
std::string Limit(int most);

// The estimate for what is between two seqs.
class EventWindows {
 public:
  EventWindows() = default;
  // `from`: FROM ... WHERE ... ; `mine`: further conditions, each with its AND. They may have a
  // further parameter, which is of type `more`.
  EventWindows(const std::string& from, const std::string& mine, std::optional<Oid> more = {});

  int64 Estimate(const EventFilter& filter, int slice, int64 after, int64 upto,
                 std::optional<Datum> more = {});

 private:
  Statement statement_;
};

// Counts the events between two seqs.
class EventRange {
 public:
  EventRange(const std::string& from, const std::string& occurred_at, const std::string& mine);

  CountedEvents Count(const EventFilter& filter, int slice, int64 after, int64 upto);

 private:
  Statement count_;
  EventWindows windows_;
};

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_EVENT_COUNT_H_
