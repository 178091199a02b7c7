#include "worker/publisher/log/parked_events.h"

#include "worker/publisher/base/server_text.h"
#include "worker/publisher/log/log_moment.h"

extern "C" {
#include <storage/bufmgr.h>
}

namespace postbox::publisher {

namespace {

// A step of Load() reads no fewer keys, also if larger steps took too long.
constexpr int kFewestLoadKeys = 100;

}  // namespace

void ParkedEvents::Prepare(const LogOutboxSql& sql, const std::string& relation_name) {
  relation_name_ = relation_name;
  park_behind_ = Statement(sql.park_behind, {TEXTOID, INT8ARRAYOID, TEXTARRAYOID, BOOLOID});
  park_ = Statement(sql.park, {TEXTOID, INT8OID, INT4OID, TEXTOID, FLOAT8OID, TEXTOID});
  park_unreadable_ =
      Statement(sql.park_unreadable, {TEXTOID, INT8OID, INT4OID, TEXTOID, FLOAT8OID, TEXTOID});
  repair_ = Statement(sql.repair, {TEXTOID, TEXTARRAYOID});
  lock_ = Statement(sql.lock, {TEXTOID, TEXTARRAYOID});
  unpark_ = Statement(sql.unpark, {TIDARRAYOID});
  park_again_ = Statement(sql.park_again, {TEXTOID, TEXTOID, TEXTOID, FLOAT8OID, INT4OID});
  heads_ = Statement(sql.heads, {TEXTOID, TEXTOID, INT4OID});
  heads_of_ = Statement(sql.heads_of, {TEXTOID, TEXTARRAYOID, INT8ARRAYOID});
  hold_ = Statement(sql.hold, {TIDARRAYOID});
  make_due_ = Statement(sql.make_due, {TIDARRAYOID});
  free_behind_ = Statement(sql.free_behind, {TEXTOID, INT4OID});
  due_ = Statement(sql.due, {TEXTOID, INT4OID, TEXTARRAYOID});
  park_due_behind_ = Statement(sql.park_due_behind, {TIDARRAYOID});
  rows_of_keys_ = Statement(sql.rows_of_keys, {TEXTOID, TEXTARRAYOID, INT8ARRAYOID, INT4OID});
  rows_of_ids_ = Statement(sql.rows_of_ids, {TEXTOID, TEXTARRAYOID});
}

bool ParkedEvents::Load() {
  load_fails_ = true;
  if (!loading_) {
    found_.clear();
    loaded_upto_.clear();
    free_behind_rows_ = !blocks_;
  }
  if (!loading_ && HasNoPage()) {
    free_behind_rows_ = false;
    Loaded();
    return true;
  }
  const uint64 rows = heads_.Run({Name(), TextValue(loaded_upto_), Int32GetDatum(load_keys_)});
  CheckColumns(relation_name_, {TEXTOID, INT8OID, TIDOID, BOOLOID, BOOLOID});
  std::vector<Head> heads;
  for (uint64 row = 0; row < rows; ++row) {
    if (!BoolColumn(row, 5)) continue;
    heads.push_back(
        {TextColumn(row, 1), Int64Column(row, 2), TidColumn(row, 3), BoolColumn(row, 4)});
  }
  if (rows > 0) loaded_upto_ = TextColumn(rows - 1, 1);
  for (const Head& head : heads) {
    keys_[head.key] = head.seq - 1;
    found_.insert(head.key);
  }
  MakeDue(heads);
  loading_ = rows == static_cast<uint64>(load_keys_);
  if (loading_) {
    load_fails_ = false;
    return false;
  }
  Loaded();
  return true;
}

bool ParkedEvents::HasNoPage() const {
  return Pg([&] {
    const Relation relation = table_open(publication_.parked, AccessShareLock);
    const bool no_page = relation->rd_rel->relkind == RELKIND_RELATION &&
                         !relation->rd_rel->relhassubclass &&
                         RelationGetNumberOfBlocks(relation) == 0;
    table_close(relation, NoLock);
    return no_page;
  });
}

void ParkedEvents::Loaded() {
  load_fails_ = false;
  // What another session has deleted pauses nothing.
  std::erase_if(keys_, [&](const auto& key) {
    return !found_.contains(key.first) && !outstanding_.contains(key.first);
  });
  found_.clear();
  loaded_ = true;
}

std::size_t ParkedEvents::outstanding() const {
  std::size_t rows = 0;
  for (const auto& [key, of_key] : outstanding_) rows += static_cast<std::size_t>(of_key.rows);
  return rows;
}

void ParkedEvents::RollBack() {
  auto outstanding = std::move(outstanding_);
  for (const std::string& key : claimed_) outstanding.erase(key);
  Reset();
  outstanding_ = std::move(outstanding);
}

void ParkedEvents::Reset() {
  keys_.clear();
  outstanding_.clear();
  claimed_.clear();
  published_.clear();
  settled_.clear();
  to_make_due_.clear();
  found_.clear();
  loaded_ = false;
  loading_ = false;
  if (std::exchange(load_fails_, false)) load_keys_ = std::max(load_keys_ / 2, kFewestLoadKeys);
}

EventRetry ParkedEvents::Retry(const ClaimedEvent& event, int attempts) const {
  return RetryOf(event.status == pubsub::PublishStatus::kRejected, attempts,
                 publication_.max_attempts, publication_.backoff, pubsub::JitterRandom());
}

Datum ParkedEvents::Name() const { return TextValue(publication_.name); }

// The first rows of keys.

std::vector<ParkedEvents::Head> ParkedEvents::TakeHeads(uint64 rows) const {
  CheckColumns(relation_name_, {TEXTOID, INT8OID, TIDOID, BOOLOID});
  std::vector<Head> heads;
  heads.reserve(rows);
  for (uint64 row = 0; row < rows; ++row) {
    heads.push_back(
        {TextColumn(row, 1), Int64Column(row, 2), TidColumn(row, 3), BoolColumn(row, 4)});
  }
  return heads;
}

Datum ParkedEvents::SeqsBefore(const std::vector<std::string>& keys) const {
  std::vector<std::int64_t> before;
  before.reserve(keys.size());
  for (const std::string& key : keys) {
    const auto known = keys_.find(key);
    before.push_back(known == keys_.end() ? PG_INT64_MIN : known->second);
  }
  return Int64ArrayValue(before);
}

std::vector<ParkedEvents::Head> ParkedEvents::HeadsOf(const std::vector<std::string>& keys) {
  if (keys.empty()) return {};
  return TakeHeads(heads_of_.Run({Name(), TextArrayValue(keys), SeqsBefore(keys)}));
}

void ParkedEvents::MakeDue(const std::vector<Head>& heads) {
  std::vector<ItemPointerData> tids;
  for (const Head& head : heads) {
    if (!head.behind) continue;
    tids.push_back(head.tid);
    to_make_due_.insert(head.key);
  }
  if (tids.empty()) return;
  const uint64 rows = make_due_.Run({TidArrayValue(tids)});
  CheckColumns(relation_name_, {TEXTOID});
  for (const std::string& key : TextColumns(rows, 1)) to_make_due_.erase(key);
}

std::unordered_set<std::string> ParkedEvents::Hold(const std::vector<Head>& heads) {
  std::vector<ItemPointerData> tids;
  for (const Head& head : heads) tids.push_back(head.tid);
  if (tids.empty()) return {};
  const uint64 rows = hold_.Run({TidArrayValue(tids)});
  CheckColumns(relation_name_, {TEXTOID});
  const std::vector<std::string> keys = TextColumns(rows, 1);
  return {keys.begin(), keys.end()};
}

Datum ParkedEvents::Lock(const std::vector<std::string>& ids) {
  const uint64 rows = lock_.Run({Name(), TextArrayValue(ids)});
  CheckColumns(relation_name_, {TIDOID});
  std::vector<ItemPointerData> tids;
  tids.reserve(rows);
  for (uint64 row = 0; row < rows; ++row) tids.push_back(TidColumn(row, 1));
  return TidArrayValue(tids);
}

// Moving aside.

void ParkedEvents::Park(const ClaimedEvent& event) {
  const EventRetry retry = Retry(event, 0);
  // It was never encoded.
  Statement& park = event.encoded.empty() ? park_unreadable_ : park_;
  const std::string error = ServerText(event.error);
  const uint64 parked =
      park.Run({Name(), Int64GetDatum(event.seq), Int32GetDatum(retry.counted), TextValue(error),
                Pg([&] { return Float8GetDatum(retry.seconds); }), TextValue(event.key)});
  const std::string id = parked > 0 ? TextColumn(0, 1) : "";
  Added(event.key, event.seq);
  log_.Add(retry.failed() ? EventLog::kFailed : EventLog::kParked, id, event.key, error);
}

void ParkedEvents::ParkBehind(const std::vector<Waiting>& events) {
  if (events.empty()) return;
  std::unordered_set<std::string> distinct;
  for (const Waiting& event : events) distinct.insert(event.key);
  const std::vector<Head> heads = HeadsOf({distinct.begin(), distinct.end()});
  const std::unordered_set<std::string> held = Hold(heads);
  std::unordered_map<std::string, std::int64_t> held_seqs;
  for (const Head& head : heads) {
    if (held.contains(head.key)) held_seqs.emplace(head.key, head.seq);
  }
  for (const bool behind : {true, false}) {
    std::vector<std::int64_t> seqs;
    std::vector<std::string> keys;
    for (const Waiting& event : events) {
      // Its transaction may have committed late, and it is before what is parked.
      const auto head = held_seqs.find(event.key);
      if ((head != held_seqs.end() && head->second < event.seq) != behind) continue;
      seqs.push_back(event.seq);
      keys.push_back(event.key);
    }
    if (seqs.empty()) continue;
    park_behind_.Run({Name(), Int64ArrayValue(seqs), TextArrayValue(keys), BoolGetDatum(behind)});
  }
  for (const Waiting& event : events) Added(event.key, event.seq);
}

void ParkedEvents::Added(const std::string& key, std::int64_t seq) {
  std::int64_t& before = keys_.try_emplace(key, PG_INT64_MIN).first->second;
  if (loading_) found_.insert(key);
  const auto out = outstanding_.find(key);
  if (out != outstanding_.end() && seq <= out->second.last) out->second.passed = true;
  if (seq <= before) before = seq - 1;
}

// Trying again.

bool ParkedEvents::Claim(std::size_t limit, ByteBudget* budget, Events* events) {
  if (keys_.empty()) return false;
  bool more = false;
  if (!to_make_due_.empty()) {
    const std::vector<std::string> keys(to_make_due_.begin(), to_make_due_.end());
    to_make_due_.clear();
    MakeDue(HeadsOf(keys));
  }
  const auto count = static_cast<int32>(limit);
  if (free_behind_rows_) {
    free_behind_rows_ = free_behind_.Run({Name(), Int32GetDatum(count)}) == limit;
    more = free_behind_rows_;
  }
  const std::vector<Due> due = ReadDue(limit);
  if (due.empty()) return more;
  if (blocks_) {
    const std::vector<std::string> keys = DueKeys(due, &more);
    if (keys.empty()) return more;
    TakeRows(&rows_of_keys_, {Name(), TextArrayValue(keys), SeqsBefore(keys), Int32GetDatum(count)},
             budget, events);
  } else {
    std::vector<std::string> ids;
    for (const Due& row : due) ids.push_back(row.id);
    TakeRows(&rows_of_ids_, {Name(), TextArrayValue(ids)}, budget, events);
  }
  return more || (budget->refused() && !events->empty());
}

std::vector<ParkedEvents::Due> ParkedEvents::ReadDue(std::size_t limit) {
  std::vector<std::string> without;
  for (const auto& [key, rows] : outstanding_) without.push_back(key);
  const uint64 rows =
      due_.Run({Name(), Int32GetDatum(static_cast<int32>(limit)), TextArrayValue(without)});
  CheckColumns(relation_name_, {TEXTOID, INT8OID, TEXTOID});
  std::vector<Due> due;
  for (uint64 row = 0; row < rows; ++row) {
    due.push_back({TextColumn(row, 1), Int64Column(row, 2), TextColumn(row, 3)});
  }
  return due;
}

std::vector<std::string> ParkedEvents::DueKeys(const std::vector<Due>& due, bool* more) {
  // In the order in which they became due, so that a key with many rows does not hold up others.
  std::vector<std::string> keys;
  std::unordered_set<std::string> distinct;
  for (const Due& row : due) {
    if (distinct.insert(row.key).second) keys.push_back(row.key);
  }
  const std::vector<Head> heads = HeadsOf(keys);
  std::unordered_map<std::string, std::int64_t> first;
  for (const Head& head : heads) first.emplace(head.key, head.seq);
  std::unordered_set<std::string> begin;
  std::vector<const Due*> later;
  for (const Due& row : due) {
    if (const auto head = first.find(row.key); head == first.end() || head->second == row.seq) {
      begin.insert(row.key);
    } else {
      later.push_back(&row);
    }
  }
  std::erase_if(keys, [&](const std::string& key) { return !begin.contains(key); });
  if (later.empty()) return keys;

  std::vector<Head> in_front;
  for (const Head& head : heads) {
    if (!begin.contains(head.key)) in_front.push_back(head);
  }
  const std::unordered_set<std::string> held = Hold(in_front);
  std::vector<std::string> ids;
  for (const Due* row : later) {
    if (held.contains(row->key)) ids.push_back(row->id);
  }
  if (!ids.empty()) {
    park_due_behind_.Run({Lock(ids)});
    *more = true;
  }
  MakeDue(in_front);
  return keys;
}

void ParkedEvents::TakeRows(Statement* statement, std::initializer_list<Datum> values,
                            ByteBudget* budget, Events* events) {
  const ByteBudget all = *budget;
  std::vector<std::string> unreadable;
  Events rows = ReadRows(statement, values, budget, &unreadable);
  if (!unreadable.empty() && repair_.Run({Name(), TextArrayValue(unreadable)}) > 0) {
    Pg([] { CommandCounterIncrement(); });
    rows.clear();
    *budget = all;
    rows = ReadRows(statement, values, budget, &unreadable);
  }
  std::unordered_set<std::string> begun;
  std::unordered_set<std::string> ended;
  for (EventPointer& event : rows) {
    if (blocks_) {
      // A key's first row, and those that wait behind it and nothing else.
      if (ended.contains(event->key)) continue;
      if (!begun.insert(event->key).second && event->attempts > 0) {
        ended.insert(event->key);
        continue;
      }
    }
    Outstanding& out = outstanding_[event->key];
    ++out.rows;
    out.last = std::max(out.last, event->seq);
    claimed_.insert(event->key);
    events->push_back(std::move(event));
  }
}

Events ParkedEvents::ReadRows(Statement* statement, std::initializer_list<Datum> values,
                              ByteBudget* budget, std::vector<std::string>* unreadable) {
  const uint64 rows = statement->Run(values);
  CheckEventColumns(relation_name_, {INT4OID, TEXTOID});
  constexpr int kAttempts = 11;
  constexpr int kWhyUnreadable = 12;
  Events events;
  RowReader reader(rows);
  while (!reader.AtEnd()) {
    const std::span<const StoredRow> portion = reader.Next(budget);
    if (portion.empty()) break;
    for (std::size_t i = 0; i < portion.size(); ++i) {
      const StoredRow& row = portion[i];
      EventPointer event = MakeEvent(row, topic_, ordering_);
      event->id = row.event.id;
      const uint64 at = reader.portion() + i;
      event->attempts = Int32Column(at, kAttempts);
      if (!IsNull(at, kWhyUnreadable)) Reject(TextColumn(at, kWhyUnreadable), event.get());
      if (event->encoded.empty() && !event->id.empty()) unreadable->push_back(event->id);
      budget->Take(event->bytes());
      events.push_back(std::move(event));
    }
  }
  return events;
}

void ParkedEvents::Settle(const ClaimedEvent& event) {
  using pubsub::PublishStatus;
  bool passed = false;
  if (const auto out = outstanding_.find(event.key); out != outstanding_.end()) {
    passed = out->second.passed;
    if (--out->second.rows == 0) outstanding_.erase(out);
  }
  settled_.insert(event.key);
  if (event.status == PublishStatus::kPublished) {
    published_.push_back(event.id);
    // Nothing of the key that lies before it is left, unless that came while it was outstanding.
    // More rows may have its seq than were claimed together.
    const auto known = keys_.find(event.key);
    if (blocks_ && !passed && known != keys_.end())
      known->second = std::max(known->second, event.seq - 1);
    return;
  }
  const bool rejected = event.status == PublishStatus::kRejected;
  if (event.leaving || (!rejected && event.status != PublishStatus::kUnknown)) return;
  const EventRetry retry = Retry(event, event.attempts);
  const std::string error = ServerText(event.error);
  park_again_.Run({Name(), TextValue(event.id), TextValue(error),
                   Pg([&] { return Float8GetDatum(retry.seconds); }),
                   Int32GetDatum(retry.counted)});
  log_.Add(retry.failed() ? EventLog::kFailed : EventLog::kParked, event.id, event.key, error);
}

void ParkedEvents::DeletePublished() {
  if (!published_.empty()) unpark_.Run({Lock(published_)});
  published_.clear();
  if (settled_.empty()) return;
  std::vector<std::string> keys(settled_.begin(), settled_.end());
  const std::vector<Head> heads = HeadsOf(keys);
  for (const Head& head : heads) settled_.erase(head.key);
  for (const std::string& key : settled_) {
    if (!outstanding_.contains(key)) keys_.erase(key);
  }
  settled_.clear();
  if (blocks_) MakeDue(heads);
}

}  // namespace postbox::publisher
