// The reading of LogOutbox: a chunk of what is unread, and whether its position fits the log.
#include "extension/base/relation.h"
#include "worker/publisher/log/log_moment.h"
#include "worker/publisher/log/log_outbox.h"

namespace postbox::publisher {
namespace {

// How many rows with the same seq a chunk takes more than it is to have. Somebody has copied them.
constexpr int kMaxCopies = 1000;

}  // namespace

LogMoment LogOutbox::ReadChunk(std::size_t limit, ByteBudget* budget) {
  chunk_.clear();
  chunk_seqs_.clear();
  crowded_seq_ = 0;
  last_seq_.Run({ObjectIdGetDatum(sequence_)});
  const int64 last_seq = Int64Column(0, 1);
  const SnapshotGuard snapshot;
  LogMoment moment = TakeMoment(last_seq);
  CheckPosition(moment);
  ReadLate(moment, limit, budget);
  if (chunk_.size() < limit && !budget->refused() && crowded_seq_ == 0) {
    ReadFresh(moment, limit - chunk_.size(), budget);
  }
  chunk_seqs_.reserve(chunk_.size());
  for (const EventPointer& event : chunk_) chunk_seqs_.push_back(event->seq);
  return moment;
}

void LogOutbox::CheckPosition(const LogMoment& moment) {
  const LogPosition& position = progress_->read();
  const bool set_back = moment.hwm < position.from();
  if (!set_back && !position.MayLeaveOutCopies(moment.snapshot)) return;
  if (position.zones().empty()) ThrowSetBack(moment.hwm);
  // Of the zones the lowest was read last: what it does not see, none of them does.
  const XidSnapshot& seen = position.zones().front().seen;
  const bool empty = any_read_.RunReadOnly({Int64GetDatum(position.from()),
                                            TextValue(seen.ToText()), XidValue(seen.xmax)}) == 0;
  if (empty) return;
  if (!BoolColumn(0, 1)) {
    BeginAgain();
  } else if (set_back) {
    ThrowSetBack(moment.hwm);
  }
}

// What is still out is of rows that are gone: its results are ignored.
void LogOutbox::BeginAgain() {
  next_handle_ = progress_->next();
  progress_.emplace(LogPosition(), next_handle_);
  dirty_ = true;
  read_below_ = 0;
}

// New events would get a seq up to which everything counts as read.
void LogOutbox::ThrowSetBack(int64 last_seq) const {
  const std::string from = std::to_string(progress_->read().from());
  const std::string sequence = RelationName(sequence_);
  Throw(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE,
        "sequence " + sequence + " stands at " + std::to_string(last_seq) +
            ", but the log has been read up to " + from,
        "The sequence was set back, or a row had a seq that the sequence had not given out.",
        "Run SELECT setval('" + sequence + "', " + from + "), and UPDATE " + relation_name_ +
            " SET txid = DEFAULT, seq = DEFAULT for the events that were emitted meanwhile.");
}

void LogOutbox::ReadLate(const LogMoment& moment, std::size_t limit, ByteBudget* budget) {
  for (const LateRead& read : progress_->read().LateReads(moment)) {
    const auto count = static_cast<int32>(limit - chunk_.size());
    const Datum after = Int64GetDatum(read.after);
    int64 upto = read.upto;
    std::vector<FullXid> txids = read.txids;
    if (read.range_end > read.range_begin) {
      const uint64 rows =
          late_txids_.RunReadOnly({XidValue(read.range_begin), XidValue(read.range_end), after,
                                   Int64GetDatum(upto), Int32GetDatum(count)});
      CheckColumns(relation_name_, {XID8OID, INT8OID});
      for (uint64 row = 0; row < rows; ++row) {
        txids.push_back(static_cast<FullXid>(Int64Column(row, 1)));
      }
      // Up to the first row of the last one there are enough. The others begin behind it.
      if (rows >= static_cast<uint64>(count)) upto = Int64Column(rows - 1, 2);
    }
    if (txids.empty()) continue;
    TakeChunkRows(late_.RunReadOnly({XidArrayValue(txids), after, Int64GetDatum(upto),
                                     Int32GetDatum(count), Int32GetDatum(count + kMaxCopies)}),
                  count, budget);
    crowded_txids_ = std::move(txids);
    if (chunk_.size() >= limit || budget->refused() || crowded_seq_ != 0) return;
  }
  crowded_txids_.clear();
}

// No seq above the one that the sequence had given out: whoever may INSERT can write any seq, and
// what lies between would be taken for read.
void LogOutbox::ReadFresh(const LogMoment& moment, std::size_t limit, ByteBudget* budget) {
  const auto count = static_cast<int32>(limit);
  TakeChunkRows(
      fresh_.RunReadOnly({Int64GetDatum(progress_->read().from()), Int64GetDatum(moment.hwm),
                          Int32GetDatum(count), Int32GetDatum(count + kMaxCopies)}),
      count, budget);
}

void LogOutbox::TakeChunkRows(uint64 rows, int limit, ByteBudget* budget) {
  CheckEventColumns(relation_name_);
  if (rows >= static_cast<uint64>(limit) + kMaxCopies) {
    crowded_seq_ = Int64Column(rows - 1, 1);
    while (rows > 0 && Int64Column(rows - 1, 1) == crowded_seq_) --rows;
  }
  TakeRows(rows, budget, &chunk_);
}

std::optional<int64> LogOutbox::TakeRows(uint64 rows, ByteBudget* budget, Events* events) const {
  events->reserve(events->size() + rows);
  RowReader reader(rows);
  while (!reader.AtEnd()) {
    std::span<const StoredRow> portion = reader.Next(budget);
    if (portion.empty()) {
      // All rows of a seq are taken together: somebody may have copied rows, and up to the last seq
      // everything is read. What there is no room for is parked, and tried again from there.
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

}  // namespace postbox::publisher
