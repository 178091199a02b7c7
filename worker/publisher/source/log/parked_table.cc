#include "worker/publisher/source/log/parked_table.h"

extern "C" {
#include <storage/bufmgr.h>
#include <storage/lmgr.h>
}

namespace postbox::publisher {
namespace {

// Deleted rows may make a look expensive.
constexpr std::chrono::milliseconds kLookInterval(100);

}  // namespace

void ParkedTable::Prepare(const LogOutboxSql& sql, const std::string& name) {
  name_ = name;
  auto& s = statements_;
  s.park_behind = Statement(sql.park_behind, {TEXTOID, INT8ARRAYOID, TEXTARRAYOID, BOOLOID});
  s.park = Statement(sql.park, {TEXTOID, INT8OID, INT4OID, TEXTOID, FLOAT8OID, TEXTOID});
  s.park_unreadable =
      Statement(sql.park_unreadable, {TEXTOID, INT8OID, INT4OID, TEXTOID, FLOAT8OID, TEXTOID});
  s.repair = Statement(sql.repair, {TEXTOID, TEXTARRAYOID});
  s.lock = Statement(sql.lock, {TEXTOID, TEXTARRAYOID});
  s.unpark = Statement(sql.unpark, {TIDARRAYOID});
  s.park_again = Statement(sql.park_again, {TEXTOID, TEXTOID, TEXTOID, FLOAT8OID, INT4OID});
  s.due = Statement(sql.due, {TEXTOID, INT4OID, TEXTARRAYOID});
  s.rows_of_keys = Statement(sql.rows_of_keys, {TEXTOID, TEXTARRAYOID, INT8ARRAYOID, INT4OID});
  s.rows_of_ids = Statement(sql.rows_of_ids, {TEXTOID, TEXTARRAYOID});
  queue_.Prepare(sql.queue, name);
}

bool ParkedTable::HasNoPage() const {
  return Pg([&] {
    const Relation relation = table_open(publication_.parked, AccessShareLock);
    const bool no_page = relation->rd_rel->relkind == RELKIND_RELATION &&
                         !relation->rd_rel->relhassubclass &&
                         RelationGetNumberOfBlocks(relation) == 0;
    table_close(relation, NoLock);
    return no_page;
  });
}

bool ParkedTable::Look() {
  look_skipped_ = false;
  if (!Pg([&] { return ConditionalLockRelationOid(publication_.parked, AccessShareLock); }) ||
      HasNoPage()) {
    return false;
  }
  const Moment now = SteadyNow();
  look_skipped_ = now < look_at_;
  if (!look_skipped_) look_at_ = After(now, kLookInterval);
  return !look_skipped_;
}

// Moving aside.

std::string ParkedTable::Park(const ClaimedEvent& event, const EventRetry& retry,
                              const std::string& error) {
  // One that cannot be an event was never encoded.
  const bool readable = !event.encoded.empty() || event.unsent() != nullptr;
  Statement& park = !readable ? statements_.park_unreadable : statements_.park;
  const uint64 parked =
      park.Run({Name(), Int64GetDatum(event.seq), Int32GetDatum(retry.counted), TextValue(error),
                Pg([&] { return Float8GetDatum(retry.seconds); }), TextValue(event.key)});
  return parked > 0 ? TextColumn(0, 1) : "";
}

void ParkedTable::ParkBehind(const std::vector<std::int64_t>& seqs,
                             const std::vector<std::string>& keys, bool behind) {
  if (seqs.empty()) return;
  statements_.park_behind.Run(
      {Name(), Int64ArrayValue(seqs), TextArrayValue(keys), BoolGetDatum(behind)});
}

void ParkedTable::ParkAgain(const ClaimedEvent& event, const EventRetry& retry,
                            const std::string& error) {
  statements_.park_again.Run({Name(), TextValue(event.id), TextValue(error),
                              Pg([&] { return Float8GetDatum(retry.seconds); }),
                              Int32GetDatum(retry.counted)});
}

std::vector<ItemPointerData> ParkedTable::Lock(const std::vector<std::string>& ids) {
  const uint64 rows = statements_.lock.Run({Name(), TextArrayValue(ids)});
  CheckColumns(name_, {TIDOID});
  std::vector<ItemPointerData> tids;
  tids.reserve(rows);
  for (uint64 row = 0; row < rows; ++row) tids.push_back(TidColumn(row, 1));
  return tids;
}

void ParkedTable::PutBehind(const std::vector<std::string>& ids) { queue_.PutBehind(Lock(ids)); }

void ParkedTable::Delete(const std::vector<std::string>& ids) {
  if (!ids.empty()) statements_.unpark.Run({TidArrayValue(Lock(ids))});
}

// Reading.

std::vector<DueRow> ParkedTable::Due(std::size_t most, const std::vector<std::string>& without) {
  const uint64 rows = statements_.due.Run(
      {Name(), Int32GetDatum(static_cast<int32>(most)), TextArrayValue(without)});
  CheckColumns(name_, {TEXTOID, INT8OID, TEXTOID});
  std::vector<DueRow> due;
  for (uint64 row = 0; row < rows; ++row) {
    due.push_back({TextColumn(row, 1), Int64Column(row, 2), TextColumn(row, 3)});
  }
  return due;
}

Events ParkedTable::RowsOfKeys(const std::vector<std::string>& keys,
                               const std::vector<std::int64_t>& before, std::size_t most,
                               ByteBudget* budget) {
  return Read(&statements_.rows_of_keys,
              {Name(), TextArrayValue(keys), Int64ArrayValue(before),
               Int32GetDatum(static_cast<int32>(most))},
              budget);
}

Events ParkedTable::RowsOfIds(const std::vector<std::string>& ids, ByteBudget* budget) {
  return Read(&statements_.rows_of_ids, {Name(), TextArrayValue(ids)}, budget);
}

Events ParkedTable::Read(Statement* statement, std::initializer_list<Datum> values,
                         ByteBudget* budget) {
  const ByteBudget all = *budget;
  std::vector<std::string> unreadable;
  Events rows = ReadRows(statement, values, budget, &unreadable);
  if (unreadable.empty() || statements_.repair.Run({Name(), TextArrayValue(unreadable)}) == 0) {
    return rows;
  }
  Pg([] { CommandCounterIncrement(); });
  rows.clear();
  *budget = all;
  return ReadRows(statement, values, budget, &unreadable);
}

Events ParkedTable::ReadRows(Statement* statement, std::initializer_list<Datum> values,
                             ByteBudget* budget, std::vector<std::string>* unreadable) {
  const uint64 rows = statement->Run(values);
  CheckEventColumns(name_, {INT4OID, TEXTOID, BOOLOID});
  constexpr int kAttempts = 11;
  constexpr int kWhyUnreadable = 12;
  constexpr int kRepublished = 13;
  Events events;
  RowReader reader(rows, KeysMayPass::kYes);
  while (!reader.AtEnd()) {
    const std::span<const StoredRow> portion = reader.Next(budget);
    if (portion.empty()) break;
    for (std::size_t i = 0; i < portion.size(); ++i) {
      const StoredRow& row = portion[i];
      const uint64 at = reader.portion() + i;
      EventPointer event = MakeEvent(row, topic_, ordering_);
      event->id = row.event.id;
      event->attempts = Int32Column(at, kAttempts);
      if (event->unsent() != nullptr)
        event->extras->unsent->republished = BoolColumn(at, kRepublished);
      if (!IsNull(at, kWhyUnreadable)) Reject(TextColumn(at, kWhyUnreadable), event.get());
      const bool readable = !event->encoded.empty() || event->unsent() != nullptr;
      if (!readable && !event->id.empty()) unreadable->push_back(event->id);
      budget->Take(event->bytes());
      events.push_back(std::move(event));
    }
  }
  return events;
}

}  // namespace postbox::publisher
