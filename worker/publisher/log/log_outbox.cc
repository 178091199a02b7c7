// See log_outbox.h.
#include "worker/publisher/log/log_outbox.h"

#include "extension/base/act_as.h"
#include "extension/base/relation.h"
#include "extension/base/spi.h"
#include "worker/publisher/log/log_outbox_sql.h"
#include "worker/publisher/registration.h"

extern "C" {
#include <access/xlog_internal.h>
}

namespace postbox::publisher {

namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// An event that came back unknown this often, while others of its lane went through, is moved
// aside: it must not hold up the position.
constexpr int kMaxUnknown = 3;

// An xid8 is its 64 bits.
Datum XidValue(FullXid xid) { return UInt64GetDatum(xid); }

// An array of a type of 64 bits.
template <class Number>
Datum ArrayValue(Oid type, const std::vector<Number>& numbers) {
  static_assert(sizeof(Number) == sizeof(int64));
  return Pg([&] {
    auto* elements = static_cast<Datum*>(palloc(sizeof(Datum) * (numbers.size() + 1)));
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      elements[i] = Int64GetDatum(static_cast<int64>(numbers[i]));
    }
    return PointerGetDatum(construct_array(elements, static_cast<int>(numbers.size()), type,
                                           sizeof(int64), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE));
  });
}
Datum XidArrayValue(const std::vector<FullXid>& xids) { return ArrayValue(XID8OID, xids); }
Datum SeqArrayValue(const std::vector<std::int64_t>& seqs) { return ArrayValue(INT8OID, seqs); }

FullXid Widen(TransactionId xid, FullTransactionId next) {
  uint32 epoch = EpochFromFullTransactionId(next);
  // It is older than the next one; if its number is greater, it is of the epoch before.
  if (xid > XidFromFullTransactionId(next)) --epoch;
  return U64FromFullTransactionId(FullTransactionIdFromEpochAndXid(epoch, xid));
}

// While it lives, statements see what this snapshot sees. An abort pops it by itself.
class SnapshotGuard {
 public:
  SnapshotGuard() {
    Pg([] { PushActiveSnapshot(GetTransactionSnapshot()); });
  }
  ~SnapshotGuard() {
    if (std::uncaught_exceptions() == 0) PopActiveSnapshot();
  }
  SnapshotGuard(const SnapshotGuard&) = delete;
  SnapshotGuard& operator=(const SnapshotGuard&) = delete;
};

// Makes durable whatever a snapshot of now can see.
void FlushWal() {
  Pg([] {
    XLogRecPtr end = GetXLogInsertRecPtr();
    // At the start of a page this is behind the header of a page that nobody has begun, up to which
    // WAL cannot be flushed.
    if (end % XLOG_BLCKSZ == SizeOfXLogShortPHD || end % wal_segment_size == SizeOfXLogLongPHD) {
      end -= end % XLOG_BLCKSZ;
    }
    XLogFlush(end);
  });
}

}  // namespace

// A row as the SELECTs of log_outbox_sql.cc return it; plain data in the memory of the transaction.
struct LogOutbox::LogRow {
  int64 seq;
  EventView event;
};

// All rows of SPI_tuptable, read in one go: a row costs no exception frame of its own.
std::span<const LogOutbox::LogRow> LogOutbox::ViewRows(uint64 rows) {
  LogRow* views = nullptr;
  Pg([&] {
    const TupleDesc descriptor = SPI_tuptable->tupdesc;
    views = static_cast<LogRow*>(palloc(sizeof(LogRow) * (rows + 1)));
    auto* values = static_cast<Datum*>(palloc(sizeof(Datum) * descriptor->natts));
    auto* nulls = static_cast<bool*>(palloc(sizeof(bool) * descriptor->natts));
    for (uint64 row = 0; row < rows; ++row) {
      heap_deform_tuple(SPI_tuptable->vals[row], descriptor, values, nulls);
      new (&views[row]) LogRow{DatumGetInt64(values[0]),
                               ViewEvent({.id = values[1],
                                          .id_is_uuid = true,
                                          .aggregate_type = values[2],
                                          .aggregate_id = values[3],
                                          .event_type = values[4],
                                          .version = DatumGetInt64(values[5]),
                                          .schema_version = values[6],
                                          .payload = values[7],
                                          .attributes = values[8],
                                          .occurred_at = DatumGetTimestampTz(values[9])})};
    }
  });
  return {views, rows};
}

struct LogOutbox::Statements {
  Statement last_seq, late_txids, late, fresh, again;
  Statement park_behind, park, parked_keys, due_keys, parked_rows, unpark, park_again;
};

LogOutbox::LogOutbox(Publication publication, int slice, std::shared_ptr<LaneShare> share,
                     std::string topic, std::string lock_token)
    : publication_(std::move(publication)),
      slice_(slice),
      share_(std::move(share)),
      topic_(std::move(topic)),
      ordering_(publication_.ordering),
      lane_(publication_.name, slice, std::move(lock_token)) {}

LogOutbox::~LogOutbox() {
  if (progress_) --share_->held;
}

Oid LogOutbox::Open() {
  Oid owner = InvalidOid;
  Pg([&] {
    Relation relation = try_relation_open(publication_.outbox, AccessShareLock);
    if (relation == nullptr) return;
    owner = relation->rd_rel->relowner;
    relation_close(relation, NoLock);
  });
  const std::string parked = RelationName(publication_.parked);
  const std::string sequence = RelationName(publication_.sequence);
  if (!OidIsValid(owner) || parked.empty() || sequence.empty()) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "the outbox of publication \"" + publication_.name + "\" is not complete",
          "Its log, its sequence or its table of parked events does not exist.",
          "Drop it with postbox.drop_outbox.");
  }
  std::string name = RelationName(publication_.outbox) + parked + sequence;
  if (statements_ != nullptr && name == relation_) return owner;

  const bool typed = publication_.filtered;
  const LogOutboxSql sql = MakeLogOutboxSql(RelationName(publication_.outbox), parked, slice_,
                                            publication_.lanes, publication_.parked_blocks, typed);
  const auto with_types = [&](std::vector<Oid> types) {
    if (typed) types.push_back(TEXTARRAYOID);
    return types;
  };
  auto made = std::make_shared<Statements>();
  made->last_seq = Statement(sql.last_seq, {REGCLASSOID});
  made->late_txids = Statement(sql.late_txids, {XID8OID, XID8OID, INT8OID, INT8OID});
  made->late = Statement(sql.late, with_types({XID8ARRAYOID, INT8OID, INT8OID, INT4OID}));
  made->fresh = Statement(sql.fresh, with_types({INT8OID, XID8OID, XID8ARRAYOID, INT4OID}));
  made->again = Statement(sql.again, {INT8ARRAYOID});
  made->park_behind = Statement(sql.park_behind, {TEXTOID, INT8ARRAYOID});
  made->park = Statement(sql.park, {TEXTOID, INT8OID, INT4OID, TEXTOID, FLOAT8OID});
  made->parked_keys = Statement(sql.parked_keys, {TEXTOID});
  made->due_keys = Statement(sql.due_keys, {TEXTOID, INT4OID, TEXTARRAYOID});
  made->parked_rows = Statement(sql.parked_rows, {TEXTOID, TEXTARRAYOID, INT4OID});
  made->unpark = Statement(sql.unpark, {TEXTOID, TEXTARRAYOID});
  made->park_again = Statement(sql.park_again, {TEXTOID, TEXTOID, TEXTOID, FLOAT8OID});
  statements_ = std::move(made);
  relation_ = std::move(name);
  return owner;
}

int LogOutbox::Share() const {
  const int workers = std::max(1, settings().publishers);
  return (publication_.lanes + workers - 1) / workers;
}

bool LogOutbox::Acquire(ClaimResult* result) {
  if (progress_ && share_->held > Share()) {
    // There are more workers now: finish what is outstanding, then let one of them have it.
    if (progress_->outstanding() > 0 || progress_->failed() > 0 || !parked_in_flight_.empty()) {
      return false;
    }
    Checkpoint(true);
    lane_.Release();
    Forget();
    return false;
  }
  if (progress_) return true;
  if (share_->held >= Share()) return false;
  if (lane_.RebaseIfForeign(publication_.outbox)) {
    result->more = true;
    return false;
  }
  std::optional<LogPosition> position = lane_.TryAcquire();
  if (!position) return false;
  stored_ = *position;
  stored_at_ = steady_clock::now();
  dirty_ = false;
  progress_.emplace(*std::move(position), next_handle_);
  ++share_->held;
  return true;
}

void LogOutbox::Forget() {
  if (!progress_) return;
  next_handle_ = progress_->next();
  progress_.reset();
  --share_->held;
  parked_keys_.clear();
  parked_in_flight_.clear();
  unknown_.clear();
}

bool LogOutbox::Paused(const std::string& key) const {
  return publication_.parked_blocks && ordering_.ordered() && parked_keys_.contains(key);
}

void LogOutbox::LoadParkedKeys() {
  const uint64 rows = statements_->parked_keys.Run({TextValue(publication_.name)});
  parked_keys_.clear();
  for (uint64 row = 0; row < rows; ++row) parked_keys_.insert(TextColumn(row, 1));
}

void LogOutbox::Mend() {
  if (!progress_) return;
  const ActAs owner(Open());
  LoadParkedKeys();
}

// Claim.

ClaimResult LogOutbox::Claim(const ClaimLimits& limits) {
  ClaimResult result;
  const Oid owner_role = Open();
  const bool had = progress_.has_value();
  if (!Acquire(&result)) return result;
  const ActAs owner(owner_role);
  if (!had) LoadParkedKeys();

  if (progress_->failed() > 0) {
    // Nothing new may overtake what has to be sent again.
    if (progress_->outstanding() == 0) ClaimFailed(&result);
    return result;
  }
  ClaimParked(limits, &result);
  if (result.events.size() < limits.events) ClaimChunk(limits, &result);
  if (!result.events.empty()) FlushWal();
  return result;
}

LogMoment LogOutbox::TakeMoment(int64 last_seq) const {
  // The active snapshot was taken after last_seq was read; the next xid is read after both.
  const Snapshot active = GetActiveSnapshot();
  const FullTransactionId next = ReadNextFullTransactionId();
  LogMoment moment;
  moment.hwm = last_seq;
  moment.next_xid = U64FromFullTransactionId(next);
  moment.snapshot.xmin = Widen(active->xmin, next);
  moment.snapshot.xmax = Widen(active->xmax, next);
  for (uint32 i = 0; i < active->xcnt; ++i) {
    moment.snapshot.xip.push_back(Widen(active->xip[i], next));
  }
  std::sort(moment.snapshot.xip.begin(), moment.snapshot.xip.end());
  return moment;
}

void LogOutbox::ClaimChunk(const ClaimLimits& limits, ClaimResult* result) {
  chunk_.clear();
  chunk_seqs_.clear();
  const std::size_t limit = limits.events - result->events.size();
  statements_->last_seq.Run({ObjectIdGetDatum(publication_.sequence)});
  const int64 last_seq = Int64Column(0, 1);
  LogMoment moment;
  {
    const SnapshotGuard snapshot;
    moment = TakeMoment(last_seq);
    ReadLate(moment, limit);
    if (chunk_seqs_.size() < limit) ReadFresh(limit - chunk_seqs_.size());
  }

  bool full = chunk_seqs_.size() >= limit;
  // The budget in bytes may end the chunk earlier; one event is always taken.
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < chunk_.size(); ++i) {
    bytes += chunk_[i]->bytes();
    if (i > 0 && bytes > limits.bytes) {
      chunk_.resize(i);
      chunk_seqs_.resize(i);
      full = true;
      break;
    }
  }
  std::optional<int64_t> highest;
  for (const int64_t seq : chunk_seqs_) highest = std::max(highest.value_or(seq), seq);
  LogPosition after = full ? progress_->read().AfterPartial(moment, chunk_seqs_.back())
                           : progress_->read().AfterAll(moment, highest);

  std::vector<std::int64_t> behind;
  if (!parked_keys_.empty()) {
    for (const EventPointer& event : chunk_) {
      if (Paused(event->key)) behind.push_back(event->seq);
    }
  }
  if (!behind.empty()) {
    statements_->park_behind.Run({TextValue(publication_.name), SeqArrayValue(behind)});
  }
  dirty_ = dirty_ || !chunk_seqs_.empty();
  LaneProgress::Handle handle = progress_->Add(chunk_seqs_, std::move(after));
  result->events.reserve(result->events.size() + chunk_.size());
  for (EventPointer& event : chunk_) {
    event->handle = handle++;
    if (Paused(event->key)) {
      progress_->Settle(event->handle);
    } else {
      result->events.push_back(std::move(event));
    }
  }
  result->more = full;
}

void LogOutbox::ReadLate(const LogMoment& moment, std::size_t limit) {
  for (const LateRead& read : progress_->read().LateReads(moment.snapshot)) {
    const Datum after = Int64GetDatum(read.after);
    const Datum upto = Int64GetDatum(read.upto);
    std::vector<FullXid> txids = read.txids;
    if (read.range_end > read.range_begin) {
      const uint64 rows = statements_->late_txids.RunReadOnly(
          {XidValue(read.range_begin), XidValue(read.range_end), after, upto});
      for (uint64 row = 0; row < rows; ++row) {
        txids.push_back(static_cast<FullXid>(Int64Column(row, 1)));
      }
    }
    if (txids.empty()) continue;
    const Datum count = Int32GetDatum(static_cast<int32>(limit - chunk_seqs_.size()));
    const Datum xids = XidArrayValue(txids);
    TakeRows(publication_.filtered
                 ? statements_->late.RunReadOnly(
                       {xids, after, upto, count, TextArrayValue(publication_.aggregate_types)})
                 : statements_->late.RunReadOnly({xids, after, upto, count}));
    if (chunk_seqs_.size() >= limit) return;
  }
}

void LogOutbox::ReadFresh(std::size_t limit) {
  const LogPosition& position = progress_->read();
  const Datum from = Int64GetDatum(position.from());
  const Datum xmax = XidValue(position.top().xmax);
  const Datum xip = XidArrayValue(position.top().xip);
  const Datum count = Int32GetDatum(static_cast<int32>(limit));
  TakeRows(publication_.filtered
               ? statements_->fresh.RunReadOnly(
                     {from, xmax, xip, count, TextArrayValue(publication_.aggregate_types)})
               : statements_->fresh.RunReadOnly({from, xmax, xip, count}));
}

void LogOutbox::TakeRows(uint64 rows) {
  chunk_.reserve(chunk_.size() + rows);
  for (const LogRow& row : ViewRows(rows)) {
    chunk_.push_back(MakeEvent(row));
    chunk_seqs_.push_back(row.seq);
  }
}

EventPointer LogOutbox::MakeEvent(const LogRow& row) const {
  EventPointer event = NewEvent();
  FillMessage(row.event, topic_, ordering_, event.get());
  event->key = row.event.aggregate_id;
  event->seq = row.seq;
  return event;
}

void LogOutbox::ClaimFailed(ClaimResult* result) {
  const std::vector<LaneProgress::Failed> failed = progress_->TakeFailed();
  std::vector<std::int64_t> seqs;
  seqs.reserve(failed.size());
  for (const auto& event : failed) seqs.push_back(event.seq);
  const uint64 rows = statements_->again.Run({SeqArrayValue(seqs)});
  std::unordered_map<std::int64_t, const LogRow*> row_of;
  for (const LogRow& row : ViewRows(rows)) row_of[row.seq] = &row;

  std::vector<std::int64_t> behind;
  for (const auto& event : failed) {
    const auto row = row_of.find(event.seq);
    if (row == row_of.end()) {  // retention or a person has removed it
      progress_->Settle(event.handle);
      continue;
    }
    EventPointer claimed = MakeEvent(*row->second);
    claimed->handle = event.handle;
    if (Paused(claimed->key)) {
      behind.push_back(event.seq);
      progress_->Settle(event.handle);
    } else {
      result->events.push_back(std::move(claimed));
    }
  }
  if (!behind.empty()) {
    statements_->park_behind.Run({TextValue(publication_.name), SeqArrayValue(behind)});
  }
}

void LogOutbox::ClaimParked(const ClaimLimits& limits, ClaimResult* result) {
  if (parked_keys_.empty()) return;
  const Datum count = Int32GetDatum(static_cast<int32>(limits.events));
  const Datum publication = TextValue(publication_.name);
  uint64 rows = statements_->due_keys.Run(
      {publication, count, TextArrayValue({parked_in_flight_.begin(), parked_in_flight_.end()})});
  if (rows == 0) return;
  const std::vector<std::string> keys = TextColumns(rows, 1);
  rows = statements_->parked_rows.Run({publication, TextArrayValue(keys), count});

  constexpr int kAttempts = 11;
  constexpr int kDue = 12;
  const std::span<const LogRow> views = ViewRows(rows);
  std::unordered_set<std::string> begun;
  std::unordered_set<std::string> ended;
  for (uint64 row = 0; row < rows; ++row) {
    const std::string key(views[row].event.aggregate_id);
    const int attempts = Int32Column(row, kAttempts);
    const bool due = Int32Column(row, kDue) != 0;
    if (publication_.parked_blocks) {
      // A key's first row, and those that wait behind it and nothing else.
      if (ended.contains(key)) continue;
      if (begun.contains(key) && attempts > 0) {
        ended.insert(key);
        continue;
      }
      begun.insert(key);
    } else if (!due && attempts > 0) {
      continue;
    }
    EventPointer event = MakeEvent(views[row]);
    event->id = views[row].event.id;
    event->attempts = attempts;
    parked_in_flight_.insert(key);
    result->events.push_back(std::move(event));
  }
}

// Settle.

double LogOutbox::BackoffSeconds(int attempts, bool may_fail) const {
  if (may_fail && attempts >= publication_.max_attempts) {
    return std::numeric_limits<double>::infinity();
  }
  const auto delay = pubsub::BackoffDelay(publication_.backoff, attempts, pubsub::JitterRandom());
  return std::chrono::duration<double>(delay).count();
}

void LogOutbox::Park(const ClaimedEvent& event) {
  const bool rejected = event.status == pubsub::PublishStatus::kRejected;
  const double delay = BackoffSeconds(1, rejected);
  const uint64 parked = statements_->park.Run(
      {TextValue(publication_.name), Int64GetDatum(event.seq), Int32GetDatum(1),
       TextValue(event.error), Pg([&] { return Float8GetDatum(delay); })});
  const std::string id = parked > 0 ? TextColumn(0, 1) : "";
  parked_keys_.insert(event.key);
  progress_->Settle(event.handle);
  unknown_.erase(event.handle);
  Pg([&] {
    ereport(LOG, (errmsg("publication \"%s\": event %s of key \"%s\" is parked: %s",
                         publication_.name.c_str(), id.c_str(), event.key.c_str(),
                         event.error.c_str())));
  });
}

void LogOutbox::SettleParked(const ClaimedEvent& event, std::vector<std::string>* published) {
  using pubsub::PublishStatus;
  if (event.status == PublishStatus::kPublished) {
    published->push_back(event.id);
    return;
  }
  const bool rejected = event.status == PublishStatus::kRejected;
  if (event.leaving || (!rejected && event.status != PublishStatus::kUnknown)) return;
  const int attempts = event.attempts + 1;
  const double delay = BackoffSeconds(attempts, rejected);
  statements_->park_again.Run({TextValue(publication_.name), TextValue(event.id),
                               TextValue(event.error), Pg([&] { return Float8GetDatum(delay); })});
  if (!std::isinf(delay)) return;
  Pg([&] {
    ereport(WARNING,
            (errmsg("publication \"%s\": event %s of key \"%s\" failed after %d attempts: %s",
                    publication_.name.c_str(), event.id.c_str(), event.key.c_str(), attempts,
                    event.error.c_str())));
  });
}

bool LogOutbox::SettleInMemory(const Events& events) {
  for (const EventPointer& event : events) {
    if (event->status != pubsub::PublishStatus::kPublished || event->handle == 0) return false;
  }
  if (!progress_) return true;
  published_at_ = steady_clock::now();
  for (const EventPointer& event : events) {
    progress_->Settle(event->handle);
    if (!unknown_.empty()) unknown_.erase(event->handle);
  }
  return true;
}

// Something of the lane was published after the event had been handed over: what happened to it is
// no outage.
bool LogOutbox::OthersWentThrough(const ClaimedEvent& event) const {
  return published_at_ > event.deadline - std::chrono::seconds(PublishTimeout());
}

void LogOutbox::Settle(const Events& events) {
  using pubsub::PublishStatus;
  if (!progress_) return;  // forgotten: the lane begins at its stored position again
  const Oid owner_role = Open();
  if (std::any_of(events.begin(), events.end(), [](const EventPointer& event) {
        return event->status == PublishStatus::kPublished;
      })) {
    published_at_ = steady_clock::now();
  }
  const ClaimedEvent* outage = nullptr;
  {
    const ActAs owner(owner_role);
    std::vector<std::string> unparked;
    std::vector<const ClaimedEvent*> behind;
    for (const EventPointer& event : events) {
      if (event->handle == 0) {
        parked_in_flight_.erase(event->key);
        SettleParked(*event, &unparked);
      } else if (event->status == PublishStatus::kPublished) {
        progress_->Settle(event->handle);
        if (!unknown_.empty()) unknown_.erase(event->handle);
      } else if (event->status == PublishStatus::kRejected && !event->leaving) {
        Park(*event);
      } else if (event->status == PublishStatus::kBehind && !event->leaving) {
        behind.push_back(event.get());
      } else if (event->status == PublishStatus::kUnknown && !event->leaving) {
        const bool alone = OthersWentThrough(*event);
        if (!alone) outage = event.get();
        if (alone && ++unknown_[event->handle] >= kMaxUnknown) {
          Park(*event);
        } else {
          progress_->Fail(event->handle);
        }
      } else {
        progress_->Fail(event->handle);
      }
    }
    std::vector<std::int64_t> park_behind;
    for (const ClaimedEvent* event : behind) {
      if (Paused(event->key)) {
        park_behind.push_back(event->seq);
        progress_->Settle(event->handle);
      } else {
        progress_->Fail(event->handle);
      }
    }
    if (!park_behind.empty()) {
      statements_->park_behind.Run({TextValue(publication_.name), SeqArrayValue(park_behind)});
    }
    if (!unparked.empty()) {
      statements_->unpark.Run({TextValue(publication_.name), TextArrayValue(unparked)});
      LoadParkedKeys();
    }
  }
  // Nothing goes through. The lane rests rather than send the same again at once.
  if (outage != nullptr) RestLane(publication_.name, outage->error, publication_.backoff);
  Checkpoint(false);
}

// Checkpoints.

std::optional<milliseconds> LogOutbox::CheckpointIn() const {
  if (!progress_) return std::nullopt;
  const bool moved = dirty_ && progress_->settled() != stored_;
  const milliseconds interval = moved ? milliseconds(settings().checkpoint_interval)
                                      : milliseconds(settings().lease_timeout * 1000 / 3);
  const auto age = std::chrono::duration_cast<milliseconds>(steady_clock::now() - stored_at_);
  return std::max(milliseconds(0), interval - age);
}

void LogOutbox::Checkpoint(bool force) {
  if (!progress_) return;
  const bool moved = dirty_ && progress_->settled() != stored_;
  if (!(force && moved) && *CheckpointIn() > milliseconds(0)) return;
  if (!lane_.Checkpoint(progress_->settled())) {
    Pg([&] {
      ereport(LOG, (errmsg("publication \"%s\": lane %d was taken over", publication_.name.c_str(),
                           slice_)));
    });
    Forget();
    return;
  }
  stored_ = progress_->settled();
  stored_at_ = steady_clock::now();
  dirty_ = !progress_->idle();
}

}  // namespace postbox::publisher
