#include "worker/publisher/source/table/event_table.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/delivery/publish_timeout.h"
#include "worker/publisher/source/row_security.h"

namespace postbox::publisher {
namespace {

std::pair<std::vector<std::string>, std::vector<int64>> KeysAndSeqs(
    const std::unordered_map<std::string, int64>& seq_of) {
  std::pair<std::vector<std::string>, std::vector<int64>> lists;
  for (const auto& [key, seq] : seq_of) {
    lists.first.push_back(key);
    lists.second.push_back(seq);
  }
  return lists;
}

}  // namespace

EventTable::EventTable(const Publication& publication, const std::string& topic,
                       const Ordering& ordering, const std::string& lock_token)
    : publication_(publication),
      topic_(topic),
      ordering_(ordering),
      lock_token_(lock_token),
      queue_(publication) {}

Oid EventTable::Open() {
  const Oid owner = LockOwned(publication_.outbox, RowExclusiveLock);
  if (!OidIsValid(owner)) return InvalidOid;
  RefuseRowSecurity(publication_.outbox, owner);
  std::string name = RelationName(publication_.outbox);
  if (name == relation_) return owner;

  const OutboxColumns columns = ReadOutboxColumns(publication_.outbox);
  // The text of a jsonb value can be a quarter of what is stored.
  max_payload_ = kMaxPayload * (columns.payload.type == "jsonb" ? 4 : 1);
  relation_ = std::move(name);
  Prepare(MakeTableOutboxSql(relation_, columns, ordering_.ordered(), publication_.parked_blocks,
                             publication_.filtered));
  return owner;
}

void EventTable::Forget() {
  relation_.clear();
  Prepare({});
}

void EventTable::Prepare(const TableOutboxSql& sql) {
  constexpr Oid kTids = TIDARRAYOID;
  auto& s = statements_;
  s.waiting = FilteredStatement(publication_, sql.waiting,
                                {INT8ARRAYOID, INT8ARRAYOID, INT4OID, TEXTARRAYOID, TEXTOID});
  s.due = FilteredStatement(publication_, sql.due, {INT4OID});
  s.followers = FilteredStatement(publication_, sql.followers,
                                  {TEXTARRAYOID, INT8ARRAYOID, INT4OID, INT4OID});
  s.first_open = FilteredStatement(publication_, sql.first_open, {TEXTARRAYOID, INT8ARRAYOID});
  s.next_waiting = Statement(sql.next_waiting, {INT8ARRAYOID, INT8ARRAYOID, TEXTOID});
  s.lock = Statement(sql.lock, {kTids});
  s.lock_behind = Statement(sql.lock_behind, {kTids});
  s.lease = Statement(sql.lease, {kTids, TEXTOID});
  s.park_unreadable =
      Statement(sql.park_unreadable, {kTids, TEXTOID, INT4OID, FLOAT8OID, FLOAT8OID});
  s.confirm_at = Statement(sql.confirm_at, {TEXTARRAYOID, TEXTOID, kTids});
  s.confirm = Statement(sql.confirm, {TEXTARRAYOID, TEXTOID});
  s.expire = Statement(sql.expire, {TEXTARRAYOID, TEXTOID});
  s.release = Statement(sql.release, {TEXTARRAYOID, TEXTOID});
  s.release_behind = Statement(sql.release_behind, {TEXTARRAYOID, TEXTOID});
  s.park = Statement(sql.park, {TEXTOID, TEXTOID, TEXTOID, FLOAT8OID, INT4OID});
  s.park_seq = Statement(sql.park_seq, {INT8OID, TEXTOID, TEXTOID, FLOAT8OID, INT4OID});
  s.leases =
      Statement(sql.leases, {INT8ARRAYOID, INT8ARRAYOID, FLOAT8OID, INT4OID, kTids, TEXTARRAYOID});
  s.take_over = Statement(sql.take_over, {kTids, TEXTARRAYOID, FLOAT8OID, BOOLOID});
  s.any_behind = Statement(sql.any_behind, {});
  queue_.Prepare(sql.queue, relation_);
}

// What a claim reads.

EventTable::Read EventTable::Waiting(const ClaimFloor::Ranges& ranges, std::size_t most,
                                     const std::vector<std::string>& without) {
  const Datum keys = TextArrayValue(without);
  const auto start = std::chrono::steady_clock::now();
  const uint64 rows = statements_.waiting.Run(
      {Int64ArrayValue(ranges.after), Int64ArrayValue(ranges.upto),
       Int32GetDatum(static_cast<int32>(most)), keys, TextValue(lock_token_)});
  const auto took = std::chrono::steady_clock::now() - start;
  return {ReadCandidates(0, rows, false), rows == most,
          std::chrono::duration_cast<std::chrono::milliseconds>(took)};
}

std::optional<int64> EventTable::NextWaiting(const ClaimFloor::Ranges& ranges) {
  if (statements_.next_waiting.Run({Int64ArrayValue(ranges.after), Int64ArrayValue(ranges.upto),
                                    TextValue(lock_token_)}) == 0) {
    return std::nullopt;
  }
  CheckColumns(relation_, {INT8OID});
  return Int64Column(0, 1);
}

EventTable::DueRows EventTable::Due(std::size_t most, std::size_t first) {
  const uint64 rows = statements_.due.Run({Int32GetDatum(static_cast<int32>(most))});
  if (rows == 0) return {};
  CheckColumn(relation_, 7, BOOLOID);
  const uint64 middle = std::min<uint64>(rows, first);
  return {ReadCandidates(0, middle, true), ReadCandidates(middle, rows, true)};
}

Candidates EventTable::Followers(const std::unordered_map<std::string, int64>& last,
                                 std::size_t most, std::size_t most_of_key) {
  const auto [keys, seqs] = KeysAndSeqs(last);
  const uint64 rows = statements_.followers.Run({TextArrayValue(keys), Int64ArrayValue(seqs),
                                                 Int32GetDatum(static_cast<int32>(most)),
                                                 Int32GetDatum(static_cast<int32>(most_of_key))});
  CheckColumns(relation_, {TIDOID, INT8OID, TEXTOID});
  CheckColumn(relation_, 6, BOOLOID);
  Candidates candidates;
  std::unordered_map<std::string, int64> before = last;
  std::unordered_set<std::string> ended;
  for (uint64 row = 0; row < rows; ++row) {
    const std::string key = TextColumn(row, 3);
    // What comes after another row is for a later claim.
    if (!BoolColumn(row, 6)) ended.insert(key);
    if (ended.contains(key)) continue;
    AddCandidate(row, &candidates);
    Candidate& candidate = candidates.rows.back();
    candidate.predecessor = std::exchange(before[key], candidate.seq);
  }
  return candidates;
}

std::vector<EventTable::OpenRow> EventTable::FirstOpen(
    const std::unordered_map<std::string, int64>& after) {
  const auto [keys, seqs] = KeysAndSeqs(after);
  const uint64 rows = statements_.first_open.Run({TextArrayValue(keys), Int64ArrayValue(seqs)});
  CheckColumns(relation_, {TEXTOID, INT8OID, TIDOID, BOOLOID});
  std::vector<OpenRow> open;
  for (uint64 row = 0; row < rows; ++row) {
    open.push_back(
        {TextColumn(row, 1), Int64Column(row, 2), TidColumn(row, 3), BoolColumn(row, 4)});
  }
  return open;
}

void EventTable::AddCandidate(uint64 row, Candidates* candidates) const {
  Candidate candidate;
  candidate.seq = Int64Column(row, 2);
  candidate.key = TextColumn(row, 3);
  const std::size_t payload = RawSizeColumn(row, 4);
  // It will not be read.
  if (payload > max_payload_) candidates->too_large.emplace(candidate.seq, payload);
  candidate.bytes = (payload > max_payload_ ? 0 : payload) + RawSizeColumn(row, 5);
  candidates->tids.push_back(TidColumn(row, 1));
  candidates->rows.push_back(std::move(candidate));
}

Candidates EventTable::ReadCandidates(uint64 begin, uint64 end, bool due) const {
  Candidates candidates;
  if (begin == end) return candidates;
  CheckColumns(relation_, {TIDOID, INT8OID, TEXTOID});
  CheckColumn(relation_, 6, INT8OID);
  candidates.rows.reserve(end - begin);
  candidates.tids.reserve(end - begin);
  // Retries come in the order of their time.
  std::vector<std::pair<int64, uint64>> order;  // seq, row
  order.reserve(end - begin);
  for (uint64 row = begin; row < end; ++row) order.emplace_back(Int64Column(row, 2), row);
  std::sort(order.begin(), order.end());
  for (const auto& [seq, row] : order) {
    if (IsNull(row, 6)) {
      candidates.leased.push_back(seq);
      candidates.leases.push_back(TidColumn(row, 1));
      continue;
    }
    AddCandidate(row, &candidates);
    Candidate& candidate = candidates.rows.back();
    const int64 predecessor = Int64Column(row, 6);
    candidate.predecessor = predecessor < 0 ? -predecessor : predecessor;
    candidate.predecessor_parked = predecessor < 0;
    candidate.begins_run = due && BoolColumn(row, 7);
  }
  return candidates;
}

std::unordered_map<int64, ItemPointerData> EventTable::Lock(
    const std::vector<ItemPointerData>& rows) {
  return RunLock(&statements_.lock, rows);
}

std::unordered_map<int64, ItemPointerData> EventTable::LockBehind(
    const std::vector<ItemPointerData>& rows) {
  return RunLock(&statements_.lock_behind, rows);
}

// A row may have moved since it was read; what counts is where it is now that it is locked.
std::unordered_map<int64, ItemPointerData> EventTable::RunLock(
    Statement* lock, const std::vector<ItemPointerData>& rows) {
  const uint64 locked = lock->Run({TidArrayValue(rows)});
  CheckColumns(relation_, {INT8OID, TIDOID});
  std::unordered_map<int64, ItemPointerData> tid_of;
  for (uint64 row = 0; row < locked; ++row) tid_of[Int64Column(row, 1)] = TidColumn(row, 2);
  return tid_of;
}

// What it leases.

std::size_t EventTable::Lease(const std::vector<ItemPointerData>& rows, Events* events) {
  const uint64 leased = statements_.lease.Run({TidArrayValue(rows), TextValue(lock_token_)});
  CheckEventColumns(relation_, {INT4OID, BOOLOID, TIDOID});
  constexpr int kAttempts = 11;
  constexpr int kParked = 12;
  constexpr int kTid = 13;
  events->reserve(events->size() + leased);
  // Their results must be there before the lease ends (publish_timeout.h).
  const auto send_by = std::chrono::steady_clock::now() + SendTimeout();
  std::size_t bytes = 0;
  RowReader reader(leased, KeysMayPass::kNo);
  while (!reader.AtEnd()) {
    ByteBudget budget = ByteBudget::Unlimited();
    const std::span<const StoredRow> portion = reader.Next(&budget);
    for (std::size_t i = 0; i < portion.size(); ++i) {
      EventPointer event = MakeEvent(portion[i], topic_, ordering_);
      event->send_by = std::min(event->send_by, send_by);
      event->id = portion[i].event.id;
      event->attempts = Int32Column(reader.portion() + i, kAttempts);
      event->parked = BoolColumn(reader.portion() + i, kParked);
      const ItemPointerData tid = TidColumn(reader.portion() + i, kTid);
      event->block = ItemPointerGetBlockNumberNoCheck(&tid);
      event->offset = ItemPointerGetOffsetNumberNoCheck(&tid);
      bytes += event->bytes();
      events->push_back(std::move(event));
    }
  }
  FreeRows();
  return bytes;
}

void EventTable::ParkUnreadable(const ItemPointerData& row, const std::string& problem) {
  const double base = std::chrono::duration<double>(publication_.backoff.base).count();
  const double cap = std::chrono::duration<double>(publication_.backoff.cap).count();
  statements_.park_unreadable.Run(
      {TidArrayValue({row}), TextValue(problem), Int32GetDatum(publication_.max_attempts),
       Pg([&] { return Float8GetDatum(base); }), Pg([&] { return Float8GetDatum(cap); })});
}

// What became of it.

// Where a row was leased, it is most often still: to find it there takes no index.
uint64 EventTable::Confirm(const std::vector<std::string>& ids,
                           const std::vector<ItemPointerData>& places) {
  const uint64 found = statements_.confirm_at.Run(
      {TextArrayValue(ids), TextValue(lock_token_), TidArrayValue(places)});
  if (found == ids.size()) return found;
  return found + statements_.confirm.Run({TextArrayValue(ids), TextValue(lock_token_)});
}

uint64 EventTable::Expire(const std::vector<std::string>& ids,
                          std::unordered_set<std::string>* expired) {
  const uint64 rows = statements_.expire.Run({TextArrayValue(ids), TextValue(lock_token_)});
  CheckColumns(relation_, {TEXTOID, BOOLOID});
  for (uint64 row = 0; row < rows; ++row) {
    if (BoolColumn(row, 2)) expired->insert(TextColumn(row, 1));
  }
  return rows;
}

uint64 EventTable::Release(const std::vector<std::string>& ids) {
  return statements_.release.Run({TextArrayValue(ids), TextValue(lock_token_)});
}

uint64 EventTable::ReleaseBehind(const std::vector<std::string>& ids) {
  return statements_.release_behind.Run({TextArrayValue(ids), TextValue(lock_token_)});
}

bool EventTable::Park(const ClaimedEvent& event, const EventRetry& retry,
                      const std::string& error) {
  const Datum seconds = Pg([&] { return Float8GetDatum(retry.seconds); });
  const Datum counted = Int32GetDatum(retry.counted);
  if (event.id.empty()) {
    return statements_.park_seq.Run({Int64GetDatum(event.seq), TextValue(lock_token_),
                                     TextValue(error), seconds, counted}) > 0;
  }
  return statements_.park.Run(
             {TextValue(event.id), TextValue(lock_token_), TextValue(error), seconds, counted}) > 0;
}

// Leases of others.

std::vector<LeasedRow> EventTable::Leases(const ClaimFloor::Ranges& ranges, double timeout,
                                          int most, const std::vector<ItemPointerData>& seen,
                                          const std::vector<std::string>& live) {
  const uint64 rows =
      statements_.leases.Run({Int64ArrayValue(ranges.after), Int64ArrayValue(ranges.upto),
                              Pg([&] { return Float8GetDatum(timeout); }), Int32GetDatum(most),
                              TidArrayValue(seen), TextArrayValue(live)});
  CheckColumns(relation_, {TIDOID, INT8OID, TEXTOID, BOOLOID, BOOLOID});
  std::vector<LeasedRow> leases;
  leases.reserve(rows);
  for (uint64 row = 0; row < rows; ++row) {
    LeasedRow& lease = leases.emplace_back(LeasedRow{
        TidColumn(row, 1), Int64Column(row, 2), {}, BoolColumn(row, 4), BoolColumn(row, 5)});
    if (!IsNull(row, 3)) lease.token = TextColumn(row, 3);
  }
  return leases;
}

uint64 EventTable::TakeOver(const std::vector<ItemPointerData>& rows,
                            const std::vector<std::string>& tokens, double timeout,
                            bool at_any_age) {
  return statements_.take_over.Run({TidArrayValue(rows), TextArrayValue(tokens),
                                    Pg([&] { return Float8GetDatum(timeout); }),
                                    BoolGetDatum(at_any_age)});
}

}  // namespace postbox::publisher
