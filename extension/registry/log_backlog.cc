// What waits in a log.
//
// What is unread is judged by the stored positions of the lanes, which workers write every
// postbox.checkpoint_interval. Events that became visible late, below the position, are those of
// the transactions that were running when it was taken (log_position_logic.h): one look at the
// index for each that has ended since.
#include <set>

#include "extension/registry/backlog_counter.h"
#include "extension/registry/log_relations.h"

namespace postbox {
namespace {

// Subtransactions take numbers, too, so there may be more of them than running transactions.
constexpr int kMostLate = 5000;

// For every lane: (slice, after, upto, transactions, withheld). The rows after `after`, and up to
// `upto` if that is not NULL, are unread: all of them, or those of these transactions; and so many
// of which the lane knows the seqs.
std::string PositionsSql() {
  return "WITH lane AS (SELECT s.slice, l.floor, l.hwm, l.zone_upto, l.zone_snapshot, "
         "l.zone_next_xid, l.ahead FROM postbox.publication p "
         "CROSS JOIN LATERAL generate_series(0, p.lanes - 1) AS s(slice) "
         "LEFT JOIN postbox.lane l ON l.publication = p.name AND l.slice = s.slice "
         "AND l.snapshot IS NOT NULL "
         "AND postbox.origin_of(l.system_identifier) = postbox.cluster_origin() "
         "WHERE p.name = $1), "
         "zone AS (SELECT l.slice, greatest(lag(z.upto) OVER (PARTITION BY l.slice ORDER BY "
         "z.upto), z.floor) AS after, z.upto, z.seen, z.next_xid FROM lane l "
         "CROSS JOIN LATERAL (SELECT u.*, l.floor FROM unnest(l.zone_upto, l.zone_snapshot, "
         "l.zone_next_xid) AS u UNION ALL SELECT u.*, (l.ahead).after FROM unnest((l.ahead).upto, "
         "(l.ahead).snapshot, (l.ahead).next_xid) AS u) AS z(upto, seen, next_xid, floor)) "
         "SELECT l.slice, coalesce(l.hwm, l.floor, 0), (l.ahead).after, NULL::xid8[], "
         "coalesce(cardinality((l.ahead).withheld), 0) FROM lane l "
         "UNION ALL SELECT l.slice, (SELECT max(u.upto) FROM unnest((l.ahead).upto) AS u(upto)), "
         "NULL, NULL, 0 FROM lane l WHERE (l.ahead).after IS NOT NULL "
         "UNION ALL SELECT z.slice, z.after, z.upto, t.ids, 0 FROM zone z "
         "CROSS JOIN LATERAL (SELECT array_agg(x.id) AS ids FROM ("
         "SELECT r.id FROM pg_snapshot_xip(z.seen) AS r(id) UNION ALL "
         "SELECT n.id::text::xid8 FROM generate_series(pg_snapshot_xmax(z.seen)::text::bigint, "
         "z.next_xid::text::bigint - 1) AS n(id)" +
         Limit(kMostLate) +
         ") AS x WHERE pg_visible_in_snapshot(x.id, pg_current_snapshot())) AS t "
         "WHERE t.ids IS NOT NULL";
}

// The rows of this cluster.
std::string FromHere(const CountedOutbox& target) {
  return " FROM " + target.relation + " WHERE origin = " + std::to_string(ClusterOrigin());
}

std::string Mine(const CountedOutbox& target) {
  if (target.TakesAll()) return "";
  return " AND ($1 IS NULL OR aggregate_type = ANY ($1)) AND ($2 = 1 OR "
         "coalesce(postbox.lane_slice(aggregate_id, $2), 0) = $3)";
}

// Events between two seqs, of given transactions.
class LateEvents {
 public:
  explicit LateEvents(const CountedOutbox& target) {
    const std::string from = FromHere(target);
    const std::string of_transaction =
        from + " AND txid = t.xid AND seq > $4 AND seq <= $5" + Mine(target) + " ORDER BY txid";
    const std::vector<Oid> types = RangeTypes(XID8ARRAYOID);
    count_ = PlannedOnce(
        kCountEvents + ("(SELECT e.seq, e.occurred_at FROM unnest($6) AS t(xid) CROSS JOIN LATERAL "
                        "(SELECT seq, " +
                        WaitingSince({}) + " AS occurred_at" + of_transaction + ", seq" +
                        Limit(kCounted) + ") AS e" + Limit(kCounted) + ") AS e"),
        types);
    bounds_ = PlannedOnce(
        "SELECT min(first.seq), max(last.seq) FROM unnest($6) AS t(xid) CROSS JOIN LATERAL (SELECT "
        "seq" +
            of_transaction + ", seq LIMIT 1) AS first CROSS JOIN LATERAL (SELECT seq" +
            of_transaction + " DESC, seq DESC LIMIT 1) AS last",
        types);
    windows_ = EventWindows(from, Mine(target) + " AND txid = ANY ($6)", XID8ARRAYOID);
  }

  CountedEvents Count(const EventFilter& filter, int slice, int64 after, int64 upto,
                      Datum transactions) {
    const EventParameters parameters(filter, slice,
                                     {Int64GetDatum(after), Int64GetDatum(upto), transactions});
    CountedEvents counted = RunToCount(count_, parameters);
    if (counted.events < kCounted) return counted;
    bounds_.RunReadOnly(parameters.values.data(), parameters.nulls.c_str());
    RequireColumnType(1, INT8OID);
    RequireColumnType(2, INT8OID);
    const int64 first = Int64Column(0, 1);
    const int64 last = Int64Column(0, 2);
    counted.events =
        std::max(counted.events, windows_.Estimate(filter, slice, first - 1, last, transactions));
    return counted;
  }

 private:
  Statement count_, bounds_;
  EventWindows windows_;
};

// Rows without a seq that the sequence has given out, and rows of other clusters.
class MisplacedRows {
 public:
  explicit MisplacedRows(const CountedOutbox& target) {
    const std::string origin = std::to_string(ClusterOrigin());
    const std::string from = FromHere(target);
    const std::string most = Limit(kCounted) + ")";
    // The sequence is read after the snapshot of the query, so no honest row is above it. Nothing
    // looks for the first or last of the honest rows: it would pass over all that is not committed
    // yet. (With a row as upper bound, an index would be read to its end.)
    const std::string none = "NOT EXISTS (SELECT FROM " + target.relation + " WHERE ";
    in_place_ = PlannedOnce(
        "SELECT " + none + "origin > " + std::to_string(kSettledOrigin) + " AND origin < " +
            origin + ") AND " + none + "origin = " + origin + " AND seq < 1) AND " + none +
            "(origin, seq) > (" + origin + ", (SELECT coalesce(pg_sequence_last_value($1), 0))))" +
            (target.seq_may_be_null ? " AND " + none + "origin = " + origin + " AND seq IS NULL)"
                                    : ""),
        {REGCLASSOID});
    count_ = PlannedOnce("SELECT (SELECT count(*) FROM (SELECT" + from +
                             " AND seq > (SELECT coalesce(pg_sequence_last_value($1), 0))" + most +
                             " AS e) + (SELECT count(*) FROM (SELECT" + from + " AND seq < 1" +
                             most + " AS e) + (SELECT count(*) FROM (SELECT" + from +
                             " AND seq IS NULL" + most + " AS e)",
                         {REGCLASSOID});
    foreign_ = PlannedOnce("SELECT EXISTS (SELECT FROM " + target.relation + " WHERE origin > " +
                               std::to_string(kSettledOrigin) + " AND origin < " + origin +
                               ") OR EXISTS (SELECT FROM " + target.relation + " WHERE origin > " +
                               origin + ")",
                           {});
  }

  // Most often there is neither, which takes a single look.
  void Count(const CountedOutbox& target, Backlog* backlog) {
    in_place_.RunReadOnly({ObjectIdGetDatum(target.sequence)});
    if (BoolColumn(0, 1)) return;
    count_.RunReadOnly({ObjectIdGetDatum(target.sequence)});
    backlog->misplaced = Int64Column(0, 1);
    foreign_.RunReadOnly({});
    backlog->has_foreign = BoolColumn(0, 1);
  }

 private:
  Statement in_place_, count_, foreign_;
};

// Counted up to kCountedParked, and taken from the statistics of their table beyond that.
class ParkedOfLog {
 public:
  explicit ParkedOfLog(const CountedOutbox& target)
      : delayed_(" FROM " + target.parked + " q WHERE q.publication = $1", LogKey("q."),
                 WaitingSince({}, "q."), " ORDER BY q.publish_attempts DESC, q.seq DESC",
                 {TEXTOID}) {
    const std::string from = " FROM " + target.parked + " WHERE publication = $1";
    const std::string since = WaitingSince({}) + " AS since";
    count_ = PlannedOnce(
        "SELECT count(*) FROM (SELECT" + from + Limit(DelayedEvents::kCountedParked) + ") AS p",
        {TEXTOID});
    // What waits behind an event of its key is younger.
    oldest_ = PlannedOnce(
        "SELECT min(p.since) FILTER (WHERE isfinite(p.since)) FROM ((SELECT " + since + from +
            " AND next_retry_at < 'infinity' ORDER BY next_retry_at" + Limit(kCounted) +
            ") UNION ALL (SELECT " + since + from +
            " AND next_retry_at = 'infinity' AND publish_attempts > 0" + Limit(kCounted) +
            ") UNION ALL (SELECT " + since + from +
            " AND next_retry_at = 'infinity' AND publish_attempts = 0 ORDER BY seq LIMIT 1)) AS p",
        {TEXTOID});
    rows_ = PlannedOnce(
        "SELECT pg_stat_get_live_tuples($1) / greatest(1, count(*)) FROM postbox.publication p "
        "WHERE p.outbox = $2",
        {OIDOID, REGCLASSOID});
  }

  void Count(Datum publication, const CountedOutbox& target, Backlog* backlog) {
    count_.RunReadOnly({publication});
    backlog->parked = Int64Column(0, 1);
    if (backlog->parked == 0) return;
    if (backlog->parked == DelayedEvents::kCountedParked) {
      rows_.RunReadOnly(
          {ObjectIdGetDatum(target.parked_oid), ObjectIdGetDatum(target.relation_oid)});
      backlog->parked = std::max(backlog->parked, Int64Column(0, 1));
    }
    oldest_.RunReadOnly({publication});
    RequireColumnType(1, TIMESTAMPTZOID);
    if (!IsNull(0, 1)) backlog->oldest_parked = DatumGetTimestampTz(DatumColumn(0, 1));
    delayed_.TakeOut(&publication, nullptr, backlog);
  }

 private:
  Statement count_, oldest_, rows_;
  DelayedEvents delayed_;
};

// A row of PositionsSql.
struct UnreadRange {
  int slice;
  int64 after;
  std::optional<int64> upto;
  std::optional<Datum> transactions;
};

class LogCounter : public BacklogCounter {
 public:
  explicit LogCounter(const CountedOutbox& target)
      : ranges_(PlannedOnce(PositionsSql(), {TEXTOID})),
        last_seq_(PlannedOnce("SELECT coalesce(pg_sequence_last_value($1), 0)", {REGCLASSOID})),
        fresh_(FromHere(target), WaitingSince({}) + " AS occurred_at", Mine(target)),
        late_(target),
        misplaced_(target),
        parked_(target) {}

  Backlog Count(const std::string& publication, const CountedOutbox& target) override {
    const Datum name = TextValue(publication);
    Backlog backlog;
    const std::vector<UnreadRange> ranges = ReadRanges(name, &backlog);
    last_seq_.RunReadOnly({ObjectIdGetDatum(target.sequence)});
    CountUnread(target.filter, ranges, Int64Column(0, 1), &backlog);
    misplaced_.Count(target, &backlog);
    parked_.Count(name, target, &backlog);
    return backlog;
  }

 private:
  // Adds what the lanes know by its seqs.
  std::vector<UnreadRange> ReadRanges(Datum publication, Backlog* backlog) {
    std::vector<UnreadRange> ranges;
    const uint64 rows = ranges_.RunReadOnly({publication});
    for (uint64 row = 0; row < rows; ++row) {
      UnreadRange range{Int32Column(row, 1), Int64Column(row, 2), std::nullopt, std::nullopt};
      backlog->ready += Int32Column(row, 5);
      if (!IsNull(row, 3)) range.upto = Int64Column(row, 3);
      if (!IsNull(row, 4)) {
        range.transactions =
            Pg([&] { return PointerGetDatum(DatumGetArrayTypePCopy(DatumColumn(row, 4))); });
      }
      ranges.push_back(range);
    }
    return ranges;
  }

  void CountUnread(const EventFilter& filter, const std::vector<UnreadRange>& ranges,
                   int64 last_seq, Backlog* backlog) {
    // The sequence begins again, as after TRUNCATE ... RESTART IDENTITY: workers will read all of
    // it.
    std::set<int> set_back;
    for (const UnreadRange& range : ranges) {
      const bool is_new = !range.upto && !range.transactions;
      if (is_new && range.after > last_seq) set_back.insert(range.slice);
    }
    for (const int slice : set_back) backlog->Add(fresh_.Count(filter, slice, 0, last_seq));
    for (const UnreadRange& range : ranges) {
      if (set_back.contains(range.slice)) continue;
      const int64 upto = range.upto.value_or(last_seq);
      backlog->Add(range.transactions
                       ? late_.Count(filter, range.slice, range.after, upto, *range.transactions)
                       : fresh_.Count(filter, range.slice, range.after, upto));
    }
  }

  Statement ranges_, last_seq_;
  EventRange fresh_;
  LateEvents late_;
  MisplacedRows misplaced_;
  ParkedOfLog parked_;
};

}  // namespace

std::unique_ptr<BacklogCounter> MakeLogCounter(const CountedOutbox& target) {
  return std::make_unique<LogCounter>(target);
}

}  // namespace postbox
