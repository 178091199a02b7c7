// See log_reader.h.
#include "worker/publisher/source/log/log_reader.h"

#include "worker/publisher/source/log/log_moment.h"
#include "worker/publisher/source/log/plain_rows.h"

namespace postbox::publisher {
namespace {

// A sequence that was set back, or began again, has given out some seqs twice. A chunk takes so
// many rows more than it is to have, to have all of the last seq.
constexpr int kMostRepeats = 1000;

// While no more are new than these, there are few rows of new transactions.
constexpr std::int64_t kFewNewSeqs = 500;

// How many rows a step looks at for keys, if there are so many. A key may have a page.
constexpr std::size_t kKeysOfStep = 10'000;
constexpr std::size_t kFewestKeys = 500;
// After a shorter one, the next may look at more seqs, up to these.
constexpr std::chrono::milliseconds kShortStep(3);
constexpr std::int64_t kMostSeqs = std::int64_t{1} << 40;

// The key in this row of SPI_tuptable; nothing if it is too long, or would have to be read from
// elsewhere, which may fail.
std::optional<std::string_view> KeyOf(uint64 row, KnownKeys* known) {
  bool null = false;
  const Datum key = DatumColumn(row, 2, &null);
  if (null) return "";
  const auto* data = reinterpret_cast<const varlena*>(DatumGetPointer(key));
  if (!VARATT_IS_EXTERNAL(data) && !VARATT_IS_COMPRESSED(data)) {
    return std::string_view(VARDATA_ANY(data), VARSIZE_ANY_EXHDR(data));
  }
  if (RawSizeColumn(row, 2) <= kMaxKey) known->readable = false;
  return std::nullopt;
}

bool IsFull(const LogChunk& chunk, std::size_t limit, const ByteBudget& budget) {
  return chunk.events.size() >= limit || budget.refused();
}

}  // namespace

void LogReader::Prepare(const LogOutboxSql& sql, const std::string& relation_name) {
  relation_name_ = relation_name;
  const std::vector<Oid> late = {XID8ARRAYOID, INT8OID, INT8OID, INT4OID, INT4OID};
  const std::vector<Oid> fresh = {INT8OID, INT8OID, INT4OID, INT4OID};
  late_txids_ = FilteredStatement(publication_, sql.late_txids,
                                  {XID8OID, XID8OID, INT8OID, INT8OID, INT4OID});
  any_late_ = FilteredStatement(publication_, sql.any_late, {XID8OID, XID8OID, INT8OID, INT8OID});
  late_ = FilteredStatement(publication_, sql.late, late);
  plain_ = FilteredStatement(publication_, sql.plain, {INT8OID, INT8OID, INT4OID});
  fresh_ = FilteredStatement(publication_, sql.fresh, fresh);
  late_keys_ = FilteredStatement(publication_, sql.late_keys, late);
  transaction_of_ = Statement(sql.transaction_of, {INT8OID, INT8OID});
  any_read_ = Statement(sql.any_read, {INT8OID, TEXTOID, XID8OID});
  again_ = FilteredStatement(publication_, sql.again, {INT8ARRAYOID});
  again_keys_ = FilteredStatement(publication_, sql.again_keys, {INT8ARRAYOID});
  fresh_keys_ = FilteredStatement(publication_, sql.fresh_keys, fresh);
}

LogReader::Late LogReader::FindLate(const LateRead& read, const LogMoment& moment,
                                    std::size_t count) {
  Late late{read.txids, read.upto};
  if (read.range_end <= read.range_begin) return late;
  // Most often there are none.
  if (moment.last_seq - read.upto <= kFewNewSeqs &&
      any_late_.RunReadOnly({XidValue(read.range_begin - 1), XidValue(read.range_end),
                             Int64GetDatum(read.after), Int64GetDatum(read.upto)}) == 0) {
    return late;
  }
  // What is left out is found, too, and counts for nothing.
  const std::size_t enough = moment.left_out == 0 ? count : count + 1;
  const uint64 rows = late_txids_.RunReadOnly(
      {XidValue(read.range_begin - 1), XidValue(read.range_end), Int64GetDatum(read.after),
       Int64GetDatum(read.upto), Int32GetDatum(static_cast<int32>(enough))});
  CheckColumns(relation_name_, {XID8OID, INT8OID});
  for (uint64 row = 0; row < rows; ++row) {
    late.txids.push_back(static_cast<FullXid>(Int64Column(row, 1)));
  }
  // Up to the first row of the last one there are enough. The others begin behind it.
  if (rows >= enough) late.upto = Int64Column(rows - 1, 2);
  std::erase(late.txids, moment.left_out);
  return late;
}

LogChunk LogReader::ReadLate(const LogPosition& position, const LogMoment& moment,
                             std::size_t limit, ByteBudget* budget) {
  LogChunk chunk;
  chunk.left_out = moment.left_out;
  for (const LateRead& read : position.LateReads(moment)) {
    const std::size_t count = limit - chunk.events.size();
    const Late late = FindLate(read, moment, count);
    if (late.txids.empty()) continue;
    const uint64 rows =
        late_.RunReadOnly({XidArrayValue(late.txids), Int64GetDatum(read.after),
                           Int64GetDatum(late.upto), Int32GetDatum(static_cast<int32>(count)),
                           Int32GetDatum(static_cast<int32>(count) + kMostRepeats)});
    TakeRows(rows, budget, &chunk.events);
    chunk.full = IsFull(chunk, limit, *budget);
    if (chunk.full) break;
  }
  return chunk;
}

// Nothing is read above the last value of the sequence: what lies between would be taken for read.
LogChunk LogReader::Read(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                         ByteBudget* budget) {
  LogChunk chunk = ReadLate(position, moment, limit, budget);
  if (chunk.full) return chunk;
  const std::size_t count = limit - chunk.events.size();
  if (ReadPlain(position, moment, count, budget, &chunk)) return chunk;
  const uint64 rows = fresh_.RunReadOnly({Int64GetDatum(position.from()), Int64GetDatum(moment.hwm),
                                          Int32GetDatum(static_cast<int32>(count)),
                                          Int32GetDatum(static_cast<int32>(count) + kMostRepeats)});
  TakeRows(rows, budget, &chunk.events);
  chunk.full = IsFull(chunk, limit, *budget);
  return chunk;
}

bool LogReader::ReadPlain(const LogPosition& position, const LogMoment& moment, std::size_t limit,
                          ByteBudget* budget, LogChunk* chunk) {
  if (!PlainRows::Possible()) return false;
  const std::size_t before = chunk->events.size();
  PlainRows rows(topic_, ordering_, limit, budget, &chunk->events);
  // One more than is taken: whether that has the seq of the last one.
  plain_.RunReadOnly({Int64GetDatum(position.from()), Int64GetDatum(moment.hwm),
                      Int32GetDatum(static_cast<int32>(limit) + 1)},
                     rows.receiver());
  chunk->full = rows.Ended();
  return !chunk->full || chunk->events.size() > before;
}

std::optional<std::int64_t> LogReader::TakeRows(uint64 rows, ByteBudget* budget,
                                                Events* events) const {
  CheckEventColumns(relation_name_);
  events->reserve(events->size() + rows);
  RowReader reader(rows, KeysMayPass::kYes);
  while (!reader.AtEnd()) {
    std::span<const StoredRow> portion = reader.Next(budget);
    if (portion.empty()) {
      // All rows of a seq are taken together, since up to the last seq everything is read. What
      // there is no room for is parked, and tried again from there.
      const int64 left = reader.NextSeq();
      if (events->empty() || events->back()->seq != left) return left;
      portion = reader.NextUnread("rows with the same seq are too large together");
    }
    for (const StoredRow& row : portion) {
      events->push_back(MakeEvent(row, topic_, ordering_));
      budget->Take(events->back()->bytes());
    }
  }
  return std::nullopt;
}

std::optional<std::int64_t> LogReader::ReadAgain(const std::vector<std::int64_t>& seqs,
                                                 ByteBudget* budget, Events* events) {
  return TakeRows(again_.Run({Int64ArrayValue(seqs)}), budget, events);
}

// What the newest snapshot does not see, none does.
std::optional<bool> LogReader::AnyRead(const LanePosition& position) {
  const XidSnapshot& seen = position.newest();
  if (any_read_.RunReadOnly(
          {Int64GetDatum(position.from()), TextValue(seen.ToText()), XidValue(seen.xmax)}) == 0) {
    return std::nullopt;
  }
  return BoolColumn(0, 1);
}

LogReader::Transaction LogReader::TransactionOf(const LogMoment& moment, std::int64_t seq) {
  if (transaction_of_.Run({Int64GetDatum(seq), Int64GetDatum(moment.hwm)}) == 0) return {0, seq};
  return {static_cast<FullXid>(Int64Column(0, 1)), std::max(seq, Int64Column(0, 2))};
}

// Keys.

bool LogReader::ReadKeys(const LogMoment& moment, KnownKeys* known) {
  const auto count = static_cast<int32>(KeysOfStep());
  const auto most = Int32GetDatum(count + kMostRepeats);
  const auto begin = std::chrono::steady_clock::now();
  // Whether the step ends with these rows, or with the seqs up to here.
  const auto take = [&](uint64 rows, std::optional<std::int64_t> upto) {
    const std::int64_t last = TakeKeys(rows, moment.snapshot, known);
    if (rows >= KeysOfStep() + kMostRepeats) known->readable = false;
    if (!known->readable) return true;
    const bool full = rows >= KeysOfStep();
    if (full || upto) known->read = known->read.AfterPartial(moment, full ? last : *upto);
    return full || upto;
  };
  for (const LateRead& read : known->read.LateReads(moment)) {
    const Late late = FindLate(read, moment, KeysOfStep());
    if (late.txids.empty()) continue;
    if (take(late_keys_.RunReadOnly({XidArrayValue(late.txids), Int64GetDatum(read.after),
                                     Int64GetDatum(late.upto), Int32GetDatum(count), most}),
             std::nullopt)) {
      return false;
    }
  }
  const std::int64_t from = known->read.from();
  const std::int64_t upto = std::min(moment.hwm, from + known->window);
  const uint64 rows = fresh_keys_.RunReadOnly(
      {Int64GetDatum(from), Int64GetDatum(upto), Int32GetDatum(count), most});
  // Perhaps most are of other types, or there are none.
  if (std::chrono::steady_clock::now() - begin < kShortStep && known->window < kMostSeqs) {
    known->window *= 2;
  }
  if (take(rows, upto < moment.hwm ? std::optional(upto) : std::nullopt)) return false;
  known->read = known->read.AfterAll(moment);
  return true;
}

// Those of other lanes are looked at, too.
std::size_t LogReader::KeysOfStep() const {
  return std::max(kKeysOfStep / static_cast<std::size_t>(publication_.lanes), kFewestKeys);
}

void LogReader::ReadWithheld(const std::vector<std::int64_t>& seqs, KnownKeys* known) {
  const uint64 rows = again_keys_.RunReadOnly({Int64ArrayValue(seqs)});
  CheckColumns(relation_name_, {INT8OID, TEXTOID});
  for (uint64 row = 0; row < rows && known->readable; ++row) {
    if (const auto key = KeyOf(row, known)) {
      known->keys.Withhold(Int64Column(row, 1), std::string(*key));
    }
  }
}

std::int64_t LogReader::TakeKeys(uint64 rows, const XidSnapshot& snapshot, KnownKeys* known) const {
  CheckColumns(relation_name_, {INT8OID, TEXTOID});
  if (rows == 0) return 0;
  const std::int64_t last = Int64Column(rows - 1, 1);
  for (uint64 row = 0; row < rows && known->readable; ++row) {
    if (const auto key = KeyOf(row, known)) known->keys.Add(Int64Column(row, 1), *key);
  }
  known->keys.NoteSeen(Int64Column(0, 1), last, snapshot);
  return last;
}

}  // namespace postbox::publisher
