// What waits in a table outbox.
#include "extension/registry/backlog_counter.h"

namespace postbox {
namespace {

std::string Unpublished(const CountedOutbox& target) {
  return " FROM " + target.relation + " WHERE published_at IS NULL";
}

// Leased ones are among them.
std::string Fresh(const CountedOutbox& target) {
  return Unpublished(target) + " AND next_retry_at IS NULL";
}

std::string Since(const CountedOutbox& target) {
  return WaitingSince(target.columns) + " AS occurred_at";
}

std::string OfTypes(const CountedOutbox& target) {
  return " AND ($1 IS NULL OR " + target.columns.aggregate_type.name + "::text = ANY ($1))";
}

class TableCounter : public BacklogCounter {
 public:
  explicit TableCounter(const CountedOutbox& target)
      : last_seq_(PlannedOnce("SELECT coalesce(max(seq), 0)" + Fresh(target), {})),
        fresh_(Fresh(target), Since(target), OfTypes(target)),
        delayed_(" FROM " + target.relation +
                     " q WHERE q.published_at IS NULL AND q.next_retry_at IS NOT NULL AND "
                     "(q.lock_token IS NULL OR q.next_retry_at > '-infinity')" +
                     OfTypes(target),
                 target.columns.AggregateId("q."), WaitingSince(target.columns, "q."), "",
                 FilterTypes()) {
    const std::string events =
        kCountEvents + ("(SELECT seq, " + Since(target) + Unpublished(target));
    leased_ = PlannedOnce(events + " AND next_retry_at = '-infinity' AND lock_token IS NOT NULL" +
                              OfTypes(target) + Limit(DelayedEvents::kCountedParked) + ") AS e",
                          FilterTypes());
    parked_ = PlannedOnce(events +
                              " AND next_retry_at IS NOT NULL AND (lock_token IS NULL OR "
                              "next_retry_at > '-infinity')" +
                              OfTypes(target) + " ORDER BY next_retry_at" +
                              Limit(DelayedEvents::kCountedParked) + ") AS e",
                          FilterTypes());
    const std::string most = Limit(kCounted) + ") AS e)";
    misplaced_ = PlannedOnce("SELECT (SELECT count(*) FROM (SELECT" + Fresh(target) +
                                 " AND seq < 1" + most + " + (SELECT count(*) FROM (SELECT" +
                                 Fresh(target) + " AND seq IS NULL" + most,
                             {});
    parked_rows_ = PlannedOnce(
        "SELECT max(c.reltuples)::bigint FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
        "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
        "WHERE i.indrelid = $1 AND a.attname = 'next_retry_at' AND i.indpred IS NOT NULL",
        {OIDOID});
  }

  Backlog Count(const std::string& /*publication*/, const CountedOutbox& target) override {
    Backlog backlog;
    last_seq_.RunReadOnly({});
    RequireColumnType(1, INT8OID);
    backlog.Add(fresh_.Count(target.filter, 0, 0, Int64Column(0, 1)));
    backlog.Add(RunToCount(leased_, EventParameters(target.filter, 0, {})));
    const CountedEvents parked = RunToCount(parked_, EventParameters(target.filter, 0, {}));
    backlog.parked = parked.events;
    backlog.oldest_parked = parked.oldest;
    if (parked.events == DelayedEvents::kCountedParked) {
      parked_rows_.RunReadOnly({ObjectIdGetDatum(target.relation_oid)});
      backlog.parked = std::max(backlog.parked, Int64Column(0, 1));
    }
    const EventParameters parameters(target.filter, 0, {});
    delayed_.TakeOut(parameters.values.data(), parameters.nulls.c_str(), &backlog);
    misplaced_.RunReadOnly({});
    backlog.misplaced = Int64Column(0, 1);
    return backlog;
  }

 private:
  Statement last_seq_;
  EventRange fresh_;
  Statement leased_, parked_, misplaced_, parked_rows_;
  DelayedEvents delayed_;
};

}  // namespace

std::unique_ptr<BacklogCounter> MakeTableCounter(const CountedOutbox& target) {
  return std::make_unique<TableCounter>(target);
}

}  // namespace postbox
