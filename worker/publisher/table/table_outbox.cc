// See table_outbox.h.
#include "worker/publisher/table/table_outbox.h"

#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "extension/base/subtransaction.h"
#include "extension/shared/time_scale.h"
#include "extension/trust/act_as.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/publish_timeout.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/row_security.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/policy/event_retry.h"
#include "worker/publisher/table/table_outbox_statements.h"

extern "C" {
#include <access/relation.h>
}

namespace postbox::publisher {

namespace {

using std::chrono::milliseconds;

// How many chunks one claim walks over: a step stays short, and the next one goes on where this
// one stopped.
constexpr int kMaxChunks = 8;
// So many of them begin with the oldest row.
constexpr int kFirstChunks = 4;
// How many seqs a chunk goes over where rows of keys that cannot go on are left out.
constexpr int64 kSeqsOfChunk = 10'000;
// So many bytes are leased and read at a time, or one row.
constexpr std::size_t kPortion = std::size_t{4} << 20;
// So many leases of others are remembered until they are looked at.
constexpr std::size_t kMostLeases = 5000;

}  // namespace

struct TableOutbox::Chunk {
  std::vector<Candidate> candidates;
  std::vector<ItemPointerData> tids;
  std::unordered_map<int64, std::size_t> too_large;  // seq -> size of the payload
  // Rows among them that others have leased.
  std::vector<int64> leased;
  std::vector<ItemPointerData> leases;
};

TableOutbox::TableOutbox(Publication publication, std::string topic, std::string lock_token)
    : publication_(std::move(publication)),
      topic_(std::move(topic)),
      lock_token_(std::move(lock_token)),
      ordering_(publication_.ordering),
      blocks_(publication_.parked_blocks && ordering_.ordered()),
      in_hand_(publication_.outbox),
      free_behind_(!blocks_),
      sent_again_(publication_.name, 0),
      log_(publication_.name) {}

Oid TableOutbox::Open() {
  const Oid owner = LockOwned(publication_.outbox, RowExclusiveLock);
  if (!OidIsValid(owner)) return InvalidOid;
  RefuseRowSecurity(publication_.outbox, owner);
  std::string name = RelationName(publication_.outbox);
  if (statements_ != nullptr && name == relation_) return owner;

  const OutboxColumns columns = ReadOutboxColumns(publication_.outbox);
  // The text of a jsonb value can be a quarter of what is stored.
  max_payload_ = kMaxPayload * (columns.payload.type == "jsonb" ? 4 : 1);
  const TableOutboxSql sql = MakeTableOutboxSql(name, columns, ordering_.ordered(),
                                                publication_.parked_blocks, publication_.filtered);
  statements_ = std::make_shared<Statements>(publication_, sql);
  relation_ = std::move(name);
  return owner;
}

// Claim.

ClaimResult TableOutbox::Claim(const ClaimLimits& limits, Transaction* transaction) {
  BeginStep();
  transaction->Begin();
  const Oid owner = Open();
  if (!OidIsValid(owner)) return {};
  const ActAs rights(owner);
  ClaimResult result;
  // An adopted table has columns that are converted: an error may be that of one row.
  try {
    InSubtransaction([&] { result = ClaimAtOnce(limits, false); });
  } catch (const PostgresError& error) {
    if (!IsOfValue(error)) throw;
    cursor_ = 0;
    result = ClaimAtOnce(limits, true);
  }
  return result;
}

ClaimResult TableOutbox::ClaimAtOnce(const ClaimLimits& limits, bool one_by_one) {
  ClaimSelection selection(limits.events, limits.bytes, limits.first);
  std::vector<Chosen> chosen;
  ClaimResult result;

  if (free_behind_) {
    const auto count = static_cast<int32>(limits.events);
    free_behind_ = statements_->free_behind.Run({Int32GetDatum(count)}) == limits.events;
    floor_.Clear();
    result.more = free_behind_;
  }
  TakeRetries(limits.events, &selection, &chosen, &result.more);

  floor_.Look(Clock::now(), Scaled(ClaimFloor::kLookInterval));
  const bool goes_on = cursor_ != 0;
  if (!goes_on) settled_ = false;
  const bool walked_to_end = Walk(limits, &selection, &chosen, &result.more);
  // Results that came meanwhile may have made room for rows that it had passed.
  if (walked_to_end && goes_on && settled_) result.more = true;
  // Only for what may be below the floor, so it does not go on if it does not come to the end.
  if (walked_to_end && chosen.empty() && floor_.seq() > 0 &&
      floor_.Look(Clock::now(), Scaled(ClaimFloor::kLookAgain))) {
    Walk(limits, &selection, &chosen, &result.more);
    cursor_ = 0;
  }
  result.needed = selection.needed();
  // Not at the end, nothing found yet: go on at once.
  if (!walked_to_end && chosen.empty() && result.needed == 0) result.more = true;
  result.events = Lease(std::move(chosen), limits.bytes, one_by_one);
  return result;
}

// The oldest first, where results have made room, then on from where the last walk stopped.
bool TableOutbox::Walk(const ClaimLimits& limits, ClaimSelection* selection,
                       std::vector<Chosen>* chosen, bool* progress) {
  const auto chunk_size = static_cast<int32>(std::max<std::size_t>(limits.events, 10));
  int64 at = floor_.seq();
  for (int chunks = 0; chunks < kMaxChunks && !selection->full(); ++chunks) {
    if (chunks == kFirstChunks) at = std::max(at, cursor_);
    const bool from_start = at == 0;
    at = floor_.Skip(at, in_hand_.seqs());
    const bool bounded = !selection->blocked_keys().empty();
    const int64 upto = bounded ? at + std::min(kSeqsOfChunk, PG_INT64_MAX - at) : PG_INT64_MAX;
    const Datum blocked = TextArrayValue(selection->blocked_keys());
    const auto ranges = floor_.Between(at, upto, in_hand_.seqs());
    const Clock::time_point start = Clock::now();
    const uint64 rows =
        statements_->waiting.Run({Int64ArrayValue(ranges.after), Int64ArrayValue(ranges.upto),
                                  Int32GetDatum(chunk_size), blocked, TextValue(lock_token_)});
    if (from_start) floor_.Took(std::chrono::duration_cast<milliseconds>(Clock::now() - start));
    const bool cut = rows == static_cast<uint64>(chunk_size);
    const Chunk chunk = ReadChunk(rows);
    const std::optional<int64> first = Passed(chunk, cut, &at);
    if (chunks == 0 && !bounded) floor_.Found(Clock::now(), first, Scaled(ClaimFloor::kRecent));
    TakeChunk(chunk, true, &statements_->lock, selection, chosen, progress);
    if (!cut) {
      const std::optional<int64> next = bounded ? NextWaiting(upto) : std::nullopt;
      if (!next) {
        cursor_ = 0;
        return true;
      }
      at = *next - 1;
    }
    // Enough for a good batch: a claim that is late is worse than one that is not full.
    if (selection->claimed() * 2 >= limits.events) return false;
  }
  if (!selection->full()) cursor_ = at;
  return false;
}

std::optional<int64> TableOutbox::Passed(const Chunk& chunk, bool cut, int64* at) {
  for (const SeqSet::Run& run : SeqSet::RunsOf(chunk.leased)) floor_.Passed(run);
  for (const ItemPointerData& lease : chunk.leases) {
    if (leases_.size() < kMostLeases) leases_.push_back(lease);
  }
  std::optional<int64> first;
  if (!chunk.candidates.empty()) first = chunk.candidates.front().seq;
  if (!chunk.candidates.empty()) *at = std::max(*at, chunk.candidates.back().seq);
  if (!chunk.leased.empty()) *at = std::max(*at, chunk.leased.back());
  if (first || !chunk.leased.empty()) floor_.Seen(*at);
  return first || !cut ? first : std::optional(*at < PG_INT64_MAX ? *at + 1 : *at);
}

std::optional<int64> TableOutbox::NextWaiting(int64 seq) const {
  const auto ranges = floor_.Between(seq, PG_INT64_MAX, in_hand_.seqs());
  if (statements_->next_waiting.Run({Int64ArrayValue(ranges.after), Int64ArrayValue(ranges.upto),
                                     TextValue(lock_token_)}) == 0) {
    return std::nullopt;
  }
  CheckColumns(relation_, {INT8OID});
  return Int64Column(0, 1);
}

void TableOutbox::TakeRetries(std::size_t limit, ClaimSelection* selection,
                              std::vector<Chosen>* chosen, bool* progress) {
  const uint64 rows = statements_->due.Run({Int32GetDatum(static_cast<int32>(limit))});
  if (rows == 0) return;
  TakeChunk(ReadChunk(rows), false, &statements_->lock, selection, chosen, progress);
  if (blocks_ && !selection->full()) TakeFollowers(limit, selection, chosen, progress);
}

void TableOutbox::TakeFollowers(std::size_t limit, ClaimSelection* selection,
                                std::vector<Chosen>* chosen, bool* progress) {
  std::unordered_map<std::string, int64> last;
  for (const Chosen& row : *chosen) last[row.key] = std::max(last[row.key], row.seq);
  if (last.empty()) return;
  std::vector<std::string> keys;
  std::vector<int64> seqs;
  for (const auto& [key, seq] : last) {
    keys.push_back(key);
    seqs.push_back(seq);
  }
  const uint64 rows = statements_->followers.Run(
      {TextArrayValue(keys), Int64ArrayValue(seqs), Int32GetDatum(static_cast<int32>(limit))});
  if (rows == 0) return;
  const Chunk chunk = ReadFollowers(rows, last);
  TakeChunk(chunk, false, &statements_->lock_behind, selection, chosen, progress);
}

void TableOutbox::AddCandidate(uint64 row, Chunk* chunk) const {
  Candidate candidate;
  candidate.seq = Int64Column(row, 2);
  candidate.key = TextColumn(row, 3);
  const std::size_t payload = RawSizeColumn(row, 4);
  // It will not be read.
  if (payload > max_payload_) chunk->too_large.emplace(candidate.seq, payload);
  candidate.bytes = (payload > max_payload_ ? 0 : payload) + RawSizeColumn(row, 5);
  chunk->tids.push_back(TidColumn(row, 1));
  chunk->candidates.push_back(std::move(candidate));
}

TableOutbox::Chunk TableOutbox::ReadFollowers(
    uint64 rows, const std::unordered_map<std::string, int64>& last) const {
  CheckColumns(relation_, {TIDOID, INT8OID, TEXTOID});
  CheckColumn(relation_, 6, BOOLOID);
  Chunk chunk;
  std::unordered_map<std::string, int64> before = last;
  std::unordered_set<std::string> ended;
  for (uint64 row = 0; row < rows; ++row) {
    const std::string key = TextColumn(row, 3);
    // What comes after another row is for a later claim.
    if (!BoolColumn(row, 6)) ended.insert(key);
    if (ended.contains(key)) continue;
    AddCandidate(row, &chunk);
    Candidate& candidate = chunk.candidates.back();
    candidate.predecessor = std::exchange(before[key], candidate.seq);
  }
  return chunk;
}

TableOutbox::Chunk TableOutbox::ReadChunk(uint64 rows) const {
  CheckColumns(relation_, {TIDOID, INT8OID, TEXTOID});
  CheckColumn(relation_, 6, INT8OID);
  Chunk chunk;
  chunk.candidates.reserve(rows);
  chunk.tids.reserve(rows);
  // Retries come in the order of their time.
  std::vector<std::pair<int64, uint64>> order;  // seq, row
  order.reserve(rows);
  for (uint64 row = 0; row < rows; ++row) order.emplace_back(Int64Column(row, 2), row);
  std::sort(order.begin(), order.end());
  for (const auto& [seq, row] : order) {
    if (IsNull(row, 6)) {
      chunk.leased.push_back(seq);
      chunk.leases.push_back(TidColumn(row, 1));
      continue;
    }
    AddCandidate(row, &chunk);
    Candidate& candidate = chunk.candidates.back();
    const int64 predecessor = Int64Column(row, 6);
    candidate.predecessor = predecessor < 0 ? -predecessor : predecessor;
    candidate.predecessor_parked = predecessor < 0;
  }
  return chunk;
}

void TableOutbox::TakeChunk(const Chunk& chunk, bool walk, Statement* lock,
                            ClaimSelection* selection, std::vector<Chosen>* chosen,
                            bool* progress) {
  std::vector<ClaimVerdict> verdicts = selection->Judge(chunk.candidates, walk);
  std::vector<ItemPointerData> wanted;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    if (verdicts[i] != ClaimVerdict::kLeave) wanted.push_back(chunk.tids[i]);
  }
  if (wanted.empty()) return;

  const uint64 rows = lock->Run({TidArrayValue(wanted)});
  CheckColumns(relation_, {INT8OID, TIDOID});
  // A row may have moved since it was read; what counts is where it is now that it is locked.
  std::unordered_map<int64, ItemPointerData> tid_of;
  std::unordered_set<int64> locked;
  for (uint64 row = 0; row < rows; ++row) {
    tid_of[Int64Column(row, 1)] = TidColumn(row, 2);
    locked.insert(Int64Column(row, 1));
  }
  selection->Locked(chunk.candidates, locked, &verdicts);

  std::vector<ItemPointerData> behind;
  std::vector<std::string> behind_keys;
  for (std::size_t i = 0; i < verdicts.size(); ++i) {
    const Candidate& candidate = chunk.candidates[i];
    if (verdicts[i] == ClaimVerdict::kClaim) {
      const auto too_large = chunk.too_large.find(candidate.seq);
      chosen->push_back({tid_of[candidate.seq], candidate.seq, candidate.key, candidate.bytes,
                         too_large == chunk.too_large.end() ? 0 : too_large->second});
      *progress = true;
    } else if (verdicts[i] == ClaimVerdict::kPark) {
      behind.push_back(tid_of[candidate.seq]);
      behind_keys.push_back(candidate.key);
    }
  }
  if (!behind.empty() && Park(behind_keys, behind)) *progress = true;
}

bool TableOutbox::Park(const std::vector<std::string>& keys,
                       const std::vector<ItemPointerData>& rows) {
  const std::vector<ItemPointerData> heads = Heads({keys.begin(), keys.end()});
  const uint64 held = statements_->hold_parked.Run({TidArrayValue(heads)});
  CheckColumns(relation_, {TEXTOID});
  const std::vector<std::string> held_texts = TextColumns(held, 1);
  const std::unordered_set<std::string> held_keys(held_texts.begin(), held_texts.end());
  std::vector<ItemPointerData> behind;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    if (held_keys.contains(keys[i])) behind.push_back(rows[i]);
  }
  if (behind.empty()) return false;
  statements_->park_behind.Run({TidArrayValue(behind)});
  return true;
}

std::vector<ItemPointerData> TableOutbox::Heads(const std::set<std::string>& keys) {
  const uint64 rows = statements_->heads.Run({TextArrayValue({keys.begin(), keys.end()})});
  CheckColumns(relation_, {TIDOID});
  std::vector<ItemPointerData> heads;
  for (uint64 row = 0; row < rows; ++row) {
    if (!IsNull(row, 1)) heads.push_back(TidColumn(row, 1));
  }
  return heads;
}

Events TableOutbox::Lease(std::vector<Chosen> chosen, std::size_t max_bytes, bool one_by_one) {
  std::sort(chosen.begin(), chosen.end(),
            [](const Chosen& one, const Chosen& other) { return one.seq < other.seq; });
  Events events;
  // Keys with a row that cannot be read: it is parked, and those behind it are left where they are.
  std::unordered_set<std::string> stopped;
  std::size_t bytes = 0;
  for (std::size_t at = 0; at < chosen.size() && (bytes == 0 || bytes < max_bytes);) {
    const std::vector<Chosen> portion = NextPortion(chosen, one_by_one, &stopped, &at);
    if (portion.empty()) break;
    std::vector<ItemPointerData> tids;
    for (const Chosen& row : portion) tids.push_back(row.tid);
    if (!one_by_one) {
      bytes += TakeLeased(tids, &events);
      continue;
    }
    try {
      InSubtransaction([&] { bytes += TakeLeased(tids, &events); });
    } catch (const PostgresError& error) {
      if (!IsOfValue(error)) throw;
      stopped.insert(portion.front().key);
      ParkUnreadable(portion.front(), error.message);
    }
  }
  std::sort(events.begin(), events.end(), [](const EventPointer& one, const EventPointer& other) {
    return one->seq < other->seq;
  });
  std::vector<int64> seqs;
  for (const EventPointer& event : events) seqs.push_back(event->seq);
  in_hand_.Claimed(seqs);
  for (const SeqSet::Run& run : SeqSet::RunsOf(seqs)) floor_.Passed(run);
  return events;
}

std::vector<TableOutbox::Chosen> TableOutbox::NextPortion(const std::vector<Chosen>& chosen,
                                                          bool one_by_one,
                                                          std::unordered_set<std::string>* stopped,
                                                          std::size_t* at) {
  std::vector<Chosen> portion;
  for (std::size_t bytes = 0; *at < chosen.size(); ++*at) {
    const Chosen& row = chosen[*at];
    if (ordering_.ordered() && !stopped->empty() && stopped->contains(row.key)) continue;
    if (row.too_large > 0) {
      stopped->insert(row.key);
      ParkUnreadable(row, "its payload has " + std::to_string(row.too_large) +
                              " bytes, and a message has " + std::to_string(kMaxPayload) +
                              " at most");
      continue;
    }
    if (!portion.empty() && (one_by_one || bytes + row.bytes > kPortion)) break;
    portion.push_back(row);
    bytes += row.bytes;
  }
  return portion;
}

std::size_t TableOutbox::TakeLeased(const std::vector<ItemPointerData>& tids, Events* events) {
  const uint64 rows = statements_->lease.Run({TidArrayValue(tids), TextValue(lock_token_)});
  CheckEventColumns(relation_, {INT4OID, BOOLOID, TIDOID});
  constexpr int kAttempts = 11;
  constexpr int kParked = 12;
  constexpr int kTid = 13;
  events->reserve(events->size() + rows);
  // Their results must be there before the lease ends (publish_timeout.h).
  const auto send_by = std::chrono::steady_clock::now() + SendTimeout();
  std::size_t bytes = 0;
  RowReader reader(rows);
  while (!reader.AtEnd()) {
    ByteBudget budget = ByteBudget::Unlimited();
    const std::span<const StoredRow> portion = reader.Next(&budget);
    for (std::size_t i = 0; i < portion.size(); ++i) {
      EventPointer event = MakeEvent(portion[i], topic_, ordering_);
      event->send_by = send_by;
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

void TableOutbox::ParkUnreadable(const Chosen& row, const std::string& reason) {
  const std::string problem = "the row cannot be an event: " + Shortened(reason, kMaxReason);
  const double base = std::chrono::duration<double>(publication_.backoff.base).count();
  const double cap = std::chrono::duration<double>(publication_.backoff.cap).count();
  statements_->park_unreadable.Run(
      {TidArrayValue({row.tid}), TextValue(problem), Int32GetDatum(publication_.max_attempts),
       Pg([&] { return Float8GetDatum(base); }), Pg([&] { return Float8GetDatum(cap); })});
  log_.Add(EventLog::kParked, "", row.key, problem);
}

// Settle.

bool TableOutbox::Settle(std::span<const EventPointer> events, Transaction* transaction) {
  using pubsub::PublishStatus;
  settled_ = true;
  BeginStep();
  sent_again_.AddResults(events);
  std::vector<int64> seqs;
  for (const EventPointer& event : events) seqs.push_back(event->seq);
  std::sort(seqs.begin(), seqs.end());
  in_hand_.Settled(seqs);
  transaction->Begin();
  const Oid owner = Open();
  if (!OidIsValid(owner)) return false;
  StoreSentAgain();
  const ActAs rights(owner);

  std::vector<const ClaimedEvent*> published, released;
  std::unordered_set<std::string> parked_keys;
  for (const EventPointer& event : events) {
    const PublishStatus status = event->status;
    if (status == PublishStatus::kPublished) {
      published.push_back(event.get());
    } else if (event->leaving || status == PublishStatus::kTopicBroken ||
               status == PublishStatus::kUnreachable || status == PublishStatus::kBehind) {
      released.push_back(event.get());
    } else if (bool for_good = false; ParkFailed(*event, &for_good)) {
      parked_keys.insert(event->key);
      log_.Add(for_good ? EventLog::kFailed : EventLog::kParked, event->id, event->key,
               ServerText(event->error));
    }
  }
  Confirm(std::move(published));
  Release(std::move(released), std::move(parked_keys));
  log_.Write();
  return true;
}

// Behind a row that is parked in this very transaction, nothing can have got it through yet: so is
// one that waits to be tried again. Behind anything else: the next claim looks again.
void TableOutbox::Release(std::vector<const ClaimedEvent*> events,
                          std::unordered_set<std::string> parked_keys) {
  std::sort(events.begin(), events.end(),
            [](const auto* one, const auto* other) { return one->seq < other->seq; });
  std::vector<std::string> released, behind;
  for (const ClaimedEvent* event : events) {
    const bool was_behind = event->parked && event->attempts == 0;
    const bool park = blocks_ && parked_keys.contains(event->key) &&
                      (event->status == pubsub::PublishStatus::kBehind || was_behind);
    (park ? behind : released).push_back(event->id);
    if (!park && event->parked) parked_keys.insert(event->key);
  }
  if (!released.empty()) floor_.Clear();
  Update(&statements_->release, released);
  Update(&statements_->release_behind, behind);
}

void TableOutbox::Confirm(std::vector<const ClaimedEvent*> published) {
  if (published.empty()) return;
  // Neighbours in the table and in its index of ids, in whatever order they have gone through.
  std::sort(published.begin(), published.end(), [](const auto* one, const auto* other) {
    return std::pair(one->block, one->offset) < std::pair(other->block, other->offset);
  });
  std::vector<std::string> ids;
  std::vector<ItemPointerData> tids(published.size());
  std::set<std::string> was_parked;
  for (const ClaimedEvent* event : published) {
    ItemPointerSet(&tids[ids.size()], event->block, event->offset);
    ids.push_back(event->id);
    if (event->parked || event->attempts > 0) was_parked.insert(event->key);
  }
  // Where a row was leased, it is most often still: to find it there takes no index.
  const uint64 found = statements_->confirm_at.Run(
      {TextArrayValue(ids), TextValue(lock_token_), TidArrayValue(tids)});
  Update(&statements_->confirm, ids, found);
  if (blocks_ && !was_parked.empty()) statements_->make_due.Run({TidArrayValue(Heads(was_parked))});
}

bool TableOutbox::ParkFailed(const ClaimedEvent& event, bool* failed) {
  const EventRetry retry =
      RetryOf(event.status == pubsub::PublishStatus::kRejected, event.attempts,
              publication_.max_attempts, publication_.backoff, pubsub::JitterRandom());
  *failed = retry.failed();
  const Datum seconds = Pg([&] { return Float8GetDatum(retry.seconds); });
  const Datum token = TextValue(lock_token_);
  const Datum error = TextValue(ServerText(event.error));
  const Datum counted = Int32GetDatum(retry.counted);
  if (event.id.empty()) {
    return statements_->park_seq.Run({Int64GetDatum(event.seq), token, error, seconds, counted}) >
           0;
  }
  return statements_->park.Run({TextValue(event.id), token, error, seconds, counted}) > 0;
}

void TableOutbox::Update(Statement* statement, const std::vector<std::string>& ids, uint64 done) {
  if (ids.size() <= done) return;
  const uint64 rows = done + statement->Run({TextArrayValue(ids), TextValue(lock_token_)});
  if (rows == ids.size()) return;
  // Published twice at worst: the worker that has taken them over sends them again.
  LogLimited("lease lost " + publication_.name,
             {.message = "publication \"" + publication_.name + "\": the lease of " +
                         std::to_string(ids.size() - rows) +
                         " events was lost before their result could be stored",
              .hint = "postbox.lease_timeout may be too short."});
}

}  // namespace postbox::publisher
