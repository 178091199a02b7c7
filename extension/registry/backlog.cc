// postbox.count_backlog: how many events a publication has yet to publish, and how old they are.
//
// The cost does not grow with the backlog, and an answer below kCounted is exact (event_count.h):
// 0 means that nothing waits. Parked events are counted up to 10,000, and taken from statistics
// beyond that; delayed_events.cc counts the delayed ones of them. log_backlog.cc and
// table_backlog.cc have what is asked of each kind.
//
// All statements see what one snapshot sees: an event that goes from one of their ranges to another
// between two of them, as when a worker gives back what it has claimed, would not be counted.
//
// All of it runs as the current user, who is the owner of the outbox (outbox_operations.cc). The
// statements are kept for the session: planning them would cost more than running them. What they
// return of a user's table is checked for its type.
#include "extension/base/arguments.h"
#include "extension/base/guard.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/statement.h"
#include "extension/registry/backlog_counter.h"
#include "extension/trust/act_as.h"

extern "C" {
#include <utils/timestamp.h>
}

namespace postbox {
namespace {

constexpr size_t kMostPublications = 1000;

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
  target.filter.lanes = Int32Column(0, 4);
  target.filter.types.isnull = IsNull(0, 5);
  if (!target.filter.types.isnull) {
    target.filter.types.value =
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
std::shared_ptr<BacklogCounter> CounterOf(const std::string& publication,
                                          const CountedOutbox& target) {
  struct Entry {
    CountedOutbox target;
    std::shared_ptr<BacklogCounter> counter;
  };
  static auto& entries = *new std::unordered_map<std::string, Entry>;
  if (entries.size() > kMostPublications) entries.clear();
  Entry& entry = entries[publication];
  if (entry.counter == nullptr || !entry.target.IsReadAs(target)) {
    entry.target = target;
    entry.counter = target.is_log() ? MakeLogCounter(target) : MakeTableCounter(target);
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
        backlog.ready += backlog.misplaced;
      }
    }
    return Pg([&] {
      Datum values[] = {Int64GetDatum(backlog.ready),
                        Int64GetDatum(backlog.parked),
                        Int64GetDatum(backlog.delayed),
                        TimestampTzGetDatum(backlog.oldest_ready),
                        TimestampTzGetDatum(backlog.oldest_parked),
                        Int64GetDatum(backlog.misplaced),
                        BoolGetDatum(backlog.has_foreign)};
      bool nulls[] = {false,
                      false,
                      false,
                      TIMESTAMP_NOT_FINITE(backlog.oldest_ready),
                      TIMESTAMP_NOT_FINITE(backlog.oldest_parked),
                      false,
                      false};
      return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls));
    });
  });
}
