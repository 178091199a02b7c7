// postbox.count_backlog: how many events a publication has yet to publish, and how old they are.
//
// The cost does not grow with the backlog. The first kCounted events are counted; whether there are
// more is judged by kWindows windows of kWindow numbers each, spread evenly over the seqs that are
// left. That is exact where every number has its event, and an estimate where some have none: they
// were rolled back, or are of a type or a lane that is not asked for. So an answer below kCounted
// is exact, and 0 means that nothing waits. Parked events are counted up to kCountedParked, and
// taken from the statistics of their table beyond that.
//
// What is unread is judged by the stored positions of the lanes, which workers write every
// postbox.checkpoint_interval. Events that became visible late, below the position, are those of
// the transactions that were running when it was taken (log_position_logic.h): one look at the
// index for each that has ended since.
//
// All statements see what one snapshot sees: an event that goes from one of their ranges to another
// between two of them, as when a worker gives back what it has claimed, would not be counted.
//
// All of it runs as the current user, who is the owner of the outbox (outbox_operations.cc). The
// statements are kept for the session: planning them would cost more than running them. What they
// return of a user's table is checked for its type.
#include <set>

#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/statement.h"
#include "extension/registry/log_relations.h"
#include "extension/shared/outbox_columns.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <utils/timestamp.h>
}

namespace postbox {
namespace {

constexpr int kCounted = 1000;
constexpr int kCountedParked = 10'000;
constexpr int kWindows = 8;
constexpr int kWindow = 100;
// Subtransactions take numbers, too, so there may be more of them than running transactions.
constexpr int kMostLate = 5000;
constexpr size_t kMostPublications = 1000;

struct CountedOutbox {
  std::string relation;  // quoted and qualified, as are the others
  std::string parked;    // empty: a table outbox
  OutboxColumns columns;
  Oid relation_oid = InvalidOid;
  Oid parked_oid = InvalidOid;
  Oid sequence = InvalidOid;
  int lanes = 1;
  NullableDatum types{0, true};  // text[]
  bool seq_may_be_null = true;

  bool is_log() const { return !parked.empty(); }
  bool TakesAll() const { return types.isnull && lanes == 1; }
  // Whether the same statements serve both.
  bool IsReadAs(const CountedOutbox& other) const {
    return relation == other.relation && parked == other.parked && columns == other.columns &&
           TakesAll() == other.TakesAll() && seq_may_be_null == other.seq_may_be_null;
  }
};

struct Backlog {
  int64 ready = 0;
  int64 parked = 0;
  int64 misplaced = 0;
  bool has_foreign = false;
  TimestampTz oldest_ready = DT_NOEND;
  TimestampTz oldest_parked = DT_NOEND;
};

// What one statement has counted.
struct Counted {
  int64 events = 0;
  TimestampTz oldest = DT_NOEND;
  int64 last_seq = 0;
};

Statement Planned(const std::string& sql, std::vector<Oid> types) {
  return Statement(sql, std::move(types), CURSOR_OPT_GENERIC_PLAN);
}

std::string Limit(int most) { return " LIMIT " + std::to_string(most); }

class Counter {
 public:
  explicit Counter(const CountedOutbox& target);

  Backlog Count(const std::string& publication, const CountedOutbox& target);

 private:
  void PrepareLog(const CountedOutbox& target);
  void PrepareRest(const CountedOutbox& target);
  void PrepareTable(const CountedOutbox& target);

  void CountLog(const std::string& publication, const CountedOutbox& target);
  void CountFresh(const CountedOutbox& target, int slice, int64 after, int64 upto);
  void CountLate(const CountedOutbox& target, int slice, int64 after, int64 upto,
                 Datum transactions);
  void CountMisplaced(const CountedOutbox& target);
  void CountTable(const CountedOutbox& target);
  void Add(const Counted& counted) {
    backlog_.ready += counted.events;
    backlog_.oldest_ready = std::min(backlog_.oldest_ready, counted.oldest);
  }

  // The parameters that all statements on the events have: types, lanes, lane.
  struct Values {
    std::vector<Datum> values;
    std::string nulls;
  };
  static Values ValuesOf(const CountedOutbox& target, int slice, std::initializer_list<Datum> more);
  static Counted RunToCount(Statement& statement, const Values& values);
  static int64 Estimate(Statement& statement, const CountedOutbox& target, int slice, int64 after,
                        int64 upto, const Datum* transactions);

  Statement positions_, last_seq_, fresh_, windows_, late_, late_bounds_, late_windows_, in_place_,
      misplaced_, foreign_, leased_, table_parked_, parked_, oldest_parked_, parked_rows_;
  Backlog backlog_;
};

// The columns of Counted.
constexpr char kCount[] =
    "SELECT count(*), min(e.occurred_at) FILTER (WHERE isfinite(e.occurred_at)), max(e.seq) FROM ";

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

Counter::Counter(const CountedOutbox& target) {
  if (target.is_log()) {
    PrepareLog(target);
    PrepareRest(target);
  } else {
    PrepareTable(target);
  }
}

void Counter::PrepareLog(const CountedOutbox& target) {
  const std::string here = " WHERE origin = " + std::to_string(ClusterOrigin());
  const std::string from = " FROM " + target.relation + here;
  const std::string mine = target.TakesAll()
                               ? ""
                               : " AND ($1 IS NULL OR aggregate_type = ANY ($1)) AND ($2 = 1 OR "
                                 "coalesce(postbox.lane_slice(aggregate_id, $2), 0) = $3)";
  const std::string window = "SELECT count(*) FROM generate_series(0, " +
                             std::to_string(kWindows - 1) + ") AS w(n) CROSS JOIN LATERAL (SELECT" +
                             from + " AND seq > $4 + w.n * $5 AND seq <= $4 + w.n * $5 + " +
                             std::to_string(kWindow) + mine;
  positions_ = Planned(PositionsSql(), {TEXTOID});
  last_seq_ = Planned("SELECT coalesce(pg_sequence_last_value($1), 0)", {REGCLASSOID});
  const std::vector<Oid> range = {TEXTARRAYOID, INT4OID, INT4OID, INT8OID, INT8OID};
  std::vector<Oid> of_transactions = range;
  of_transactions.push_back(XID8ARRAYOID);
  fresh_ = Planned(kCount + ("(SELECT seq, occurred_at" + from + " AND seq > $4 AND seq <= $5" +
                             mine + " ORDER BY seq" + Limit(kCounted) + ") AS e"),
                   range);
  // The limit keeps the planner from reading all rows for each window.
  const std::string end = " ORDER BY seq" + Limit(kWindow) + ") AS e";
  windows_ = Planned(window + end, range);
  const std::string of_transaction =
      from + " AND txid = t.xid AND seq > $4 AND seq <= $5" + mine + " ORDER BY txid";
  late_ = Planned(
      kCount + ("(SELECT e.seq, e.occurred_at FROM unnest($6) AS t(xid) CROSS JOIN LATERAL (SELECT "
                "seq, occurred_at" +
                of_transaction + ", seq" + Limit(kCounted) + ") AS e" + Limit(kCounted) + ") AS e"),
      of_transactions);
  late_bounds_ = Planned(
      "SELECT min(first.seq), max(last.seq) FROM unnest($6) AS t(xid) CROSS JOIN LATERAL (SELECT "
      "seq" +
          of_transaction + ", seq LIMIT 1) AS first CROSS JOIN LATERAL (SELECT seq" +
          of_transaction + " DESC, seq DESC LIMIT 1) AS last",
      of_transactions);
  late_windows_ = Planned(window + " AND txid = ANY ($6)" + end, of_transactions);
}

// What is no count of events in a range of seqs.
void Counter::PrepareRest(const CountedOutbox& target) {
  const std::string origin = std::to_string(ClusterOrigin());
  const std::string from = " FROM " + target.relation + " WHERE origin = " + origin;
  const std::string most = Limit(kCounted) + ")";
  // The sequence is read after the snapshot of the query, so no honest row is above it. Nothing
  // looks for the first or last of the honest rows: it would pass over all that nobody sees yet.
  // (With a row as upper bound, an index would be read to its end.)
  const std::string none = "NOT EXISTS (SELECT FROM " + target.relation + " WHERE ";
  in_place_ = Planned(
      "SELECT " + none + "origin > " + std::to_string(kSettledOrigin) + " AND origin < " + origin +
          ") AND " + none + "origin = " + origin + " AND seq < 1) AND " + none +
          "(origin, seq) > (" + origin + ", (SELECT coalesce(pg_sequence_last_value($1), 0))))" +
          (target.seq_may_be_null ? " AND " + none + "origin = " + origin + " AND seq IS NULL)"
                                  : ""),
      {REGCLASSOID});
  misplaced_ = Planned("SELECT (SELECT count(*) FROM (SELECT" + from +
                           " AND seq > (SELECT coalesce(pg_sequence_last_value($1), 0))" + most +
                           " AS e) + (SELECT count(*) FROM (SELECT" + from + " AND seq < 1" + most +
                           " AS e) + (SELECT count(*) FROM (SELECT" + from + " AND seq IS NULL" +
                           most + " AS e)",
                       {REGCLASSOID});
  foreign_ =
      Planned("SELECT EXISTS (SELECT FROM " + target.relation + " WHERE origin > " +
                  std::to_string(kSettledOrigin) + " AND origin < " + origin +
                  ") OR EXISTS (SELECT FROM " + target.relation + " WHERE origin > " + origin + ")",
              {});
  const std::string parked = " FROM " + target.parked + " WHERE publication = $1";
  parked_ = Planned("SELECT count(*) FROM (SELECT" + parked + Limit(kCountedParked) + ") AS p",
                    {TEXTOID});
  // What waits behind an event of its key is younger.
  oldest_parked_ = Planned(
      "SELECT min(p.occurred_at) FILTER (WHERE isfinite(p.occurred_at)) FROM ((SELECT occurred_at" +
          parked + " AND next_retry_at < 'infinity' ORDER BY next_retry_at" + Limit(kCounted) +
          ") UNION ALL (SELECT occurred_at" + parked +
          " AND next_retry_at = 'infinity' AND publish_attempts > 0" + Limit(kCounted) +
          ") UNION ALL (SELECT occurred_at" + parked +
          " AND next_retry_at = 'infinity' AND publish_attempts = 0 ORDER BY seq LIMIT 1)) AS p",
      {TEXTOID});
  parked_rows_ = Planned(
      "SELECT pg_stat_get_live_tuples($1) / greatest(1, count(*)) FROM postbox.publication p "
      "WHERE p.outbox = $2",
      {OIDOID, REGCLASSOID});
}

void Counter::PrepareTable(const CountedOutbox& target) {
  const std::string open = " FROM " + target.relation + " WHERE published_at IS NULL";
  // Leased ones are among them.
  const std::string fresh = open + " AND next_retry_at IS NULL";
  const std::string occurred = target.columns.OccurredAt() + " AS occurred_at";
  const std::string mine =
      " AND ($1 IS NULL OR " + target.columns.aggregate_type.name + "::text = ANY ($1))";
  const std::vector<Oid> all = {TEXTARRAYOID, INT4OID, INT4OID};
  const std::vector<Oid> range = {TEXTARRAYOID, INT4OID, INT4OID, INT8OID, INT8OID};
  last_seq_ = Planned("SELECT coalesce(max(seq), 0)" + fresh, {});
  fresh_ = Planned(kCount + ("(SELECT seq, " + occurred + fresh + " AND seq > $4 AND seq <= $5" +
                             mine + " ORDER BY seq" + Limit(kCounted) + ") AS e"),
                   range);
  windows_ =
      Planned("SELECT count(*) FROM generate_series(0, " + std::to_string(kWindows - 1) +
                  ") AS w(n) CROSS JOIN LATERAL (SELECT" + fresh +
                  " AND seq > $4 + w.n * $5 AND seq <= $4 + w.n * $5 + " + std::to_string(kWindow) +
                  mine + " ORDER BY seq" + Limit(kWindow) + ") AS e",
              range);
  leased_ = Planned(kCount + ("(SELECT seq, " + occurred + open +
                              " AND next_retry_at = '-infinity' AND lock_token IS NOT NULL" + mine +
                              Limit(kCountedParked) + ") AS e"),
                    all);
  table_parked_ =
      Planned(kCount + ("(SELECT seq, " + occurred + open +
                        " AND next_retry_at IS NOT NULL AND (lock_token IS NULL OR "
                        "next_retry_at > '-infinity')" +
                        mine + " ORDER BY next_retry_at" + Limit(kCountedParked) + ") AS e"),
              all);
  const std::string most = Limit(kCounted) + ") AS e)";
  misplaced_ = Planned("SELECT (SELECT count(*) FROM (SELECT" + fresh + " AND seq < 1" + most +
                           " + (SELECT count(*) FROM (SELECT" + fresh + " AND seq IS NULL" + most,
                       {});
  parked_rows_ = Planned(
      "SELECT max(c.reltuples)::bigint FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid "
      "JOIN pg_attribute a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0] "
      "WHERE i.indrelid = $1 AND a.attname = 'next_retry_at' AND i.indpred IS NOT NULL",
      {OIDOID});
}

Counter::Values Counter::ValuesOf(const CountedOutbox& target, int slice,
                                  std::initializer_list<Datum> more) {
  Values values{{target.types.value, Int32GetDatum(target.lanes), Int32GetDatum(slice)}, ""};
  for (const Datum value : more) values.values.push_back(value);
  values.nulls.assign(values.values.size(), ' ');
  if (target.types.isnull) values.nulls[0] = 'n';
  return values;
}

Counted Counter::RunToCount(Statement& statement, const Values& values) {
  statement.RunReadOnly(values.values.data(), values.nulls.c_str());
  RequireColumnType(2, TIMESTAMPTZOID);
  RequireColumnType(3, INT8OID);
  Counted counted{Int64Column(0, 1), DT_NOEND, Int64Column(0, 3)};
  if (!IsNull(0, 2)) counted.oldest = DatumGetTimestampTz(DatumColumn(0, 2));
  return counted;
}

int64 Counter::Estimate(Statement& statement, const CountedOutbox& target, int slice, int64 after,
                        int64 upto, const Datum* transactions) {
  const int64 width = upto - after;
  if (width <= 0) return 0;
  const int64 step = std::max<int64>(kWindow, (width + kWindows - 1) / kWindows);
  Values values = ValuesOf(target, slice, {Int64GetDatum(after), Int64GetDatum(step)});
  if (transactions != nullptr) {
    values.values.push_back(*transactions);
    values.nulls.push_back(' ');
  }
  statement.RunReadOnly(values.values.data(), values.nulls.c_str());
  const auto found = static_cast<double>(Int64Column(0, 1));
  const int64 looked_at = std::min<int64>(width, int64{kWindows} * kWindow);
  return static_cast<int64>(found / static_cast<double>(looked_at) * static_cast<double>(width));
}

void Counter::CountFresh(const CountedOutbox& target, int slice, int64 after, int64 upto) {
  if (after >= upto) return;
  const Counted counted =
      RunToCount(fresh_, ValuesOf(target, slice, {Int64GetDatum(after), Int64GetDatum(upto)}));
  Add(counted);
  if (counted.events < kCounted) return;
  backlog_.ready += Estimate(windows_, target, slice, counted.last_seq, upto, nullptr);
}

void Counter::CountLate(const CountedOutbox& target, int slice, int64 after, int64 upto,
                        Datum transactions) {
  const Values values =
      ValuesOf(target, slice, {Int64GetDatum(after), Int64GetDatum(upto), transactions});
  Counted counted = RunToCount(late_, values);
  if (counted.events == kCounted) {
    late_bounds_.RunReadOnly(values.values.data(), values.nulls.c_str());
    RequireColumnType(1, INT8OID);
    RequireColumnType(2, INT8OID);
    const int64 first = Int64Column(0, 1);
    const int64 last = Int64Column(0, 2);
    counted.events = std::max(
        counted.events, Estimate(late_windows_, target, slice, first - 1, last, &transactions));
  }
  Add(counted);
}

// Most often there is neither, which takes a single look.
void Counter::CountMisplaced(const CountedOutbox& target) {
  in_place_.RunReadOnly({ObjectIdGetDatum(target.sequence)});
  if (BoolColumn(0, 1)) return;
  misplaced_.RunReadOnly({ObjectIdGetDatum(target.sequence)});
  backlog_.misplaced = Int64Column(0, 1);
  foreign_.RunReadOnly({});
  backlog_.has_foreign = BoolColumn(0, 1);
}

void Counter::CountLog(const std::string& publication, const CountedOutbox& target) {
  const Datum name = TextValue(publication);
  struct Position {
    int slice;
    int64 after;
    std::optional<int64> upto;
    std::optional<Datum> transactions;
  };
  std::vector<Position> positions;
  const uint64 rows = positions_.RunReadOnly({name});
  for (uint64 row = 0; row < rows; ++row) {
    Position position{Int32Column(row, 1), Int64Column(row, 2), std::nullopt, std::nullopt};
    backlog_.ready += Int32Column(row, 5);
    if (!IsNull(row, 3)) position.upto = Int64Column(row, 3);
    if (!IsNull(row, 4)) {
      position.transactions =
          Pg([&] { return PointerGetDatum(DatumGetArrayTypePCopy(DatumColumn(row, 4))); });
    }
    positions.push_back(position);
  }
  last_seq_.RunReadOnly({ObjectIdGetDatum(target.sequence)});
  const int64 last_seq = Int64Column(0, 1);
  // The sequence begins again, as after TRUNCATE ... RESTART IDENTITY: workers will read all of it.
  std::set<int> set_back;
  for (const Position& position : positions) {
    const bool is_new = !position.upto && !position.transactions;
    if (is_new && position.after > last_seq) set_back.insert(position.slice);
  }
  for (const int slice : set_back) CountFresh(target, slice, 0, last_seq);
  for (const Position& position : positions) {
    if (set_back.contains(position.slice)) continue;
    const int64 upto = position.upto.value_or(last_seq);
    if (position.transactions) {
      CountLate(target, position.slice, position.after, upto, *position.transactions);
    } else {
      CountFresh(target, position.slice, position.after, upto);
    }
  }
  CountMisplaced(target);
  parked_.RunReadOnly({name});
  backlog_.parked = Int64Column(0, 1);
  if (backlog_.parked == 0) return;
  if (backlog_.parked == kCountedParked) {
    parked_rows_.RunReadOnly(
        {ObjectIdGetDatum(target.parked_oid), ObjectIdGetDatum(target.relation_oid)});
    backlog_.parked = std::max(backlog_.parked, Int64Column(0, 1));
  }
  oldest_parked_.RunReadOnly({name});
  RequireColumnType(1, TIMESTAMPTZOID);
  if (!IsNull(0, 1)) backlog_.oldest_parked = DatumGetTimestampTz(DatumColumn(0, 1));
}

void Counter::CountTable(const CountedOutbox& target) {
  last_seq_.RunReadOnly({});
  RequireColumnType(1, INT8OID);
  CountFresh(target, 0, 0, Int64Column(0, 1));
  Add(RunToCount(leased_, ValuesOf(target, 0, {})));
  const Counted parked = RunToCount(table_parked_, ValuesOf(target, 0, {}));
  backlog_.parked = parked.events;
  backlog_.oldest_parked = parked.oldest;
  if (parked.events == kCountedParked) {
    parked_rows_.RunReadOnly({ObjectIdGetDatum(target.relation_oid)});
    backlog_.parked = std::max(backlog_.parked, Int64Column(0, 1));
  }
  misplaced_.RunReadOnly({});
  backlog_.misplaced = Int64Column(0, 1);
}

Backlog Counter::Count(const std::string& publication, const CountedOutbox& target) {
  backlog_ = {};
  if (target.is_log()) {
    CountLog(publication, target);
  } else {
    CountTable(target);
  }
  backlog_.ready += backlog_.misplaced;
  return backlog_;
}

// Partitions forbid what their table forbids.
bool MayBeNull(Oid relation, const char* column) {
  return Pg([&] {
    HeapTuple tuple = SearchSysCacheAttName(relation, column);
    if (!HeapTupleIsValid(tuple)) return true;
    const bool may_be = !reinterpret_cast<Form_pg_attribute>(GETSTRUCT(tuple))->attnotnull;
    ReleaseSysCache(tuple);
    return may_be;
  });
}

// Nothing if there is no such publication.
std::optional<CountedOutbox> FindTarget(const std::string& publication) {
  static Statement& find = *new Statement(
      "SELECT o.relation::oid, coalesce(o.parked, 0)::oid, "
      "CASE WHEN o.kind = 'log' THEN postbox.log_sequence(o.relation)::oid END, p.lanes, "
      "p.aggregate_types, o.adopted FROM postbox.publication p JOIN postbox.outbox o "
      "ON o.relation = p.outbox WHERE p.name = $1",
      {TEXTOID}, CURSOR_OPT_GENERIC_PLAN);
  if (find.Run({TextValue(publication)}) == 0) return std::nullopt;
  CountedOutbox target;
  target.relation_oid = OidColumn(0, 1);
  target.parked_oid = OidColumn(0, 2);
  target.sequence = OidColumn(0, 3);
  target.lanes = Int32Column(0, 4);
  target.types.isnull = IsNull(0, 5);
  if (!target.types.isnull) {
    target.types.value =
        Pg([] { return PointerGetDatum(DatumGetArrayTypePCopy(DatumColumn(0, 5))); });
  }
  const bool adopted = BoolColumn(0, 6);
  target.relation = RelationName(target.relation_oid);
  target.parked = RelationName(target.parked_oid);
  if (target.is_log()) target.seq_may_be_null = MayBeNull(target.relation_oid, "seq");
  if (adopted) target.columns = ReadOutboxColumns(target.relation_oid);
  return target;
}

// The counter of a publication, with the names that its tables have now. Shared: code of the owner
// that runs while it counts may rename a table and come here again.
std::shared_ptr<Counter> CounterOf(const std::string& publication, const CountedOutbox& target) {
  struct Entry {
    CountedOutbox target;
    std::shared_ptr<Counter> counter;
  };
  static auto& entries = *new std::unordered_map<std::string, Entry>;
  if (entries.size() > kMostPublications) entries.clear();
  Entry& entry = entries[publication];
  if (entry.counter == nullptr || !entry.target.IsReadAs(target)) {
    entry.target = target;
    entry.counter = std::make_shared<Counter>(target);
  }
  return entry.counter;
}

}  // namespace
}  // namespace postbox

POSTBOX_FUNCTION(count_backlog) {
  using namespace postbox;
  return Guarded([&]() -> Datum {
    TupleDesc descriptor = nullptr;
    const bool row = Pg(
        [&] { return get_call_result_type(fcinfo, nullptr, &descriptor) == TYPEFUNC_COMPOSITE; });
    if (!row) Throw(ERRCODE_FEATURE_NOT_SUPPORTED, "count_backlog must return a row");
    const std::string publication = TextArgument(fcinfo, 0, "publication");
    Backlog backlog;
    {
      const SpiConnection connection;
      const FixedSearchPath search_path;
      const std::optional<CountedOutbox> target = FindTarget(publication);
      if (target.has_value()) {
        backlog = CounterOf(publication, *target)->Count(publication, *target);
      }
    }
    return Pg([&] {
      Datum values[] = {Int64GetDatum(backlog.ready),
                        Int64GetDatum(backlog.parked),
                        TimestampTzGetDatum(backlog.oldest_ready),
                        TimestampTzGetDatum(backlog.oldest_parked),
                        Int64GetDatum(backlog.misplaced),
                        BoolGetDatum(backlog.has_foreign)};
      bool nulls[] = {false,
                      false,
                      TIMESTAMP_NOT_FINITE(backlog.oldest_ready),
                      TIMESTAMP_NOT_FINITE(backlog.oldest_parked),
                      false,
                      false};
      return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
  });
}
