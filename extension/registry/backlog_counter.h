// What count_backlog (backlog.cc) asks of an outbox of either kind.
#ifndef POSTBOX_EXTENSION_REGISTRY_BACKLOG_COUNTER_H_
#define POSTBOX_EXTENSION_REGISTRY_BACKLOG_COUNTER_H_

#include "extension/registry/event_count.h"
#include "extension/shared/outbox_columns.h"

namespace postbox {

// A publication's outbox, and which events of it are asked for.
struct CountedOutbox {
  std::string relation;  // quoted and qualified, as are the others
  std::string parked;    // empty: a table outbox
  OutboxColumns columns;
  Oid relation_oid = InvalidOid;
  Oid parked_oid = InvalidOid;
  Oid sequence = InvalidOid;
  EventFilter filter;
  bool seq_may_be_null = true;

  bool is_log() const { return !parked.empty(); }
  bool TakesAll() const { return filter.types.isnull && filter.lanes == 1; }
  // Whether the same statements serve both.
  bool IsReadAs(const CountedOutbox& other) const {
    return relation == other.relation && parked == other.parked && columns == other.columns &&
           TakesAll() == other.TakesAll() && seq_may_be_null == other.seq_may_be_null;
  }
};

struct Backlog {
  int64 ready = 0;
  int64 parked = 0;
  int64 delayed = 0;  // wait for their deliver_at, or behind such an event
  int64 misplaced = 0;
  bool has_foreign = false;
  TimestampTz oldest_ready = DT_NOEND;
  TimestampTz oldest_parked = DT_NOEND;

  void Add(const CountedEvents& counted) {
    ready += counted.events;
    oldest_ready = std::min(oldest_ready, counted.oldest);
  }
};

// The statements that count what waits in one outbox. They are kept for the session.
class BacklogCounter {
 public:
  virtual ~BacklogCounter() = default;
  virtual Backlog Count(const std::string& publication, const CountedOutbox& target) = 0;
};

// Since when an event waits, as SQL: since it occurred, or since its deliver_at; NULL if that has
// not come.
std::string WaitingSince(const OutboxColumns& columns, const std::string& of = "");

// Which of the parked events are delayed. Up to kCountedParked are looked at, of each kind.
class DelayedEvents {
 public:
  static constexpr int kCountedParked = 10'000;
  // `from`: FROM ... q WHERE ..., the parked events of a publication, with their `key` and `since`
  // when they wait. `infinite_order`: that of an index, by which those that have failed come first
  // among those that wait without end; or empty.
  DelayedEvents(const std::string& from, const std::string& key, const std::string& since,
                const std::string& infinite_order, const std::vector<Oid>& types);

  // Takes them out of what is counted as parked.
  void TakeOut(const Datum* values, const char* nulls, Backlog* backlog);

 private:
  Statement any_, count_;
};

// For an outbox that is read as `target` is.
std::unique_ptr<BacklogCounter> MakeLogCounter(const CountedOutbox& target);
std::unique_ptr<BacklogCounter> MakeTableCounter(const CountedOutbox& target);

}  // namespace postbox

#endif  // POSTBOX_EXTENSION_REGISTRY_BACKLOG_COUNTER_H_
