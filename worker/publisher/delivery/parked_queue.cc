#include "worker/publisher/delivery/parked_queue.h"

#include "extension/base/spi.h"
#include "worker/publisher/source/event_rows.h"

namespace postbox::publisher {

void ParkedQueue::Prepare(const ParkedQueueSql& sql, const std::string& table) {
  table_ = table;
  auto& s = statements_;
  s.heads = Statement(sql.heads, {TEXTOID, TEXTARRAYOID, TEXTOID, INT4OID});
  s.heads_of = Statement(sql.heads_of, {TEXTOID, TEXTARRAYOID, TEXTARRAYOID, INT8ARRAYOID});
  s.hold = Statement(sql.hold, {TIDARRAYOID});
  s.make_due = Statement(sql.make_due, {TIDARRAYOID});
  s.put_behind = Statement(sql.put_behind, {TIDARRAYOID});
  s.free_behind = Statement(sql.free_behind, {TEXTOID, TEXTARRAYOID, INT4OID});
}

ParkedQueue::HeadsRead ParkedQueue::Heads(const std::string& from, int most) {
  const uint64 rows =
      statements_.heads.Run({Name(), Types(), TextValue(from), Int32GetDatum(most)});
  CheckColumns(table_, {TEXTOID, INT8OID, TIDOID, BOOLOID, BOOLOID});
  HeadsRead read{{}, rows == static_cast<uint64>(most), rows > 0 ? TextColumn(rows - 1, 1) : from};
  for (uint64 row = 0; row < rows; ++row) {
    if (!BoolColumn(row, 5)) continue;
    read.heads.push_back(
        {TextColumn(row, 1), Int64Column(row, 2), TidColumn(row, 3), BoolColumn(row, 4)});
  }
  return read;
}

std::vector<ParkedHead> ParkedQueue::HeadsOf(const std::vector<std::string>& keys,
                                             std::vector<std::int64_t> before) {
  if (keys.empty()) return {};
  before.resize(keys.size(), std::numeric_limits<std::int64_t>::min());
  const uint64 rows =
      statements_.heads_of.Run({Name(), Types(), TextArrayValue(keys), Int64ArrayValue(before)});
  CheckColumns(table_, {TEXTOID, INT8OID, TIDOID, BOOLOID});
  std::vector<ParkedHead> heads;
  heads.reserve(rows);
  for (uint64 row = 0; row < rows; ++row) {
    heads.push_back(
        {TextColumn(row, 1), Int64Column(row, 2), TidColumn(row, 3), BoolColumn(row, 4)});
  }
  return heads;
}

std::unordered_set<std::string> ParkedQueue::Hold(const std::vector<ParkedHead>& heads) {
  std::vector<ItemPointerData> tids;
  for (const ParkedHead& head : heads) tids.push_back(head.tid);
  if (tids.empty()) return {};
  const uint64 rows = statements_.hold.Run({TidArrayValue(tids)});
  CheckColumns(table_, {TEXTOID});
  const std::vector<std::string> keys = TextColumns(rows, 1);
  return {keys.begin(), keys.end()};
}

std::unordered_map<std::string, std::int64_t> ParkedQueue::HoldHeadsOf(
    const std::vector<std::string>& keys, std::vector<std::int64_t> before) {
  const std::vector<ParkedHead> heads = HeadsOf(keys, std::move(before));
  const std::unordered_set<std::string> held = Hold(heads);
  std::unordered_map<std::string, std::int64_t> seqs;
  for (const ParkedHead& head : heads) {
    if (held.contains(head.key)) seqs.emplace(head.key, head.seq);
  }
  return seqs;
}

uint64 ParkedQueue::MakeDue(const std::vector<ParkedHead>& heads,
                            std::unordered_set<std::string>* left) {
  std::vector<ItemPointerData> behind;
  for (const ParkedHead& head : heads) {
    if (!head.behind) continue;
    behind.push_back(head.tid);
    if (left != nullptr) left->insert(head.key);
  }
  if (behind.empty()) return 0;
  const uint64 due = statements_.make_due.Run({TidArrayValue(behind)});
  if (left == nullptr) return due;
  CheckColumns(table_, {TEXTOID});
  for (const std::string& key : TextColumns(due, 1)) left->erase(key);
  return due;
}

void ParkedQueue::PutBehind(const std::vector<ItemPointerData>& rows) {
  if (!rows.empty()) statements_.put_behind.Run({TidArrayValue(rows)});
}

bool ParkedQueue::FreeBehind(std::size_t most) {
  return statements_.free_behind.Run({Name(), Types(), Int32GetDatum(static_cast<int32>(most))}) ==
         most;
}

std::vector<ParkedHead> HeadsRound::Next(ParkedQueue* queue, int most_keys) {
  if (!std::exchange(running_, false)) from_.clear();
  ParkedQueue::HeadsRead read = queue->Heads(from_, most_keys);
  from_ = std::move(read.last);
  running_ = read.full;
  return std::move(read.heads);
}

}  // namespace postbox::publisher
