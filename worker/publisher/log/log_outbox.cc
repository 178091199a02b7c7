// See log_outbox.h.
#include "worker/publisher/log/log_outbox.h"

#include "extension/base/act_as.h"
#include "extension/base/relation.h"
#include "extension/shared/settings.h"
#include "extension/shared/time_scale.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/row_security.h"
#include "worker/publisher/base/server_text.h"
#include "worker/publisher/base/step_limit.h"
#include "worker/publisher/log/log_moment.h"

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kMostRebaseTime = std::chrono::hours(1);
// How often a lane looks for rows of other clusters. They come with a restore.
constexpr milliseconds kLookForForeignRows = std::chrono::seconds(1);

// One plan of each serves all logs of the worker.
struct CommonStatements {
  // Returns a row if the log has its index on the origin. Without it, a restore is in progress.
  Statement complete{
      "SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_index i ON i.indrelid "
      "OPERATOR(pg_catalog.=) a.attrelid AND i.indkey[0] OPERATOR(pg_catalog.=) a.attnum "
      "WHERE a.attrelid OPERATOR(pg_catalog.=) $1 AND a.attname OPERATOR(pg_catalog.=) 'origin' "
      "AND i.indisvalid LIMIT 1",
      {OIDOID}};
  Statement unsettled{"SELECT postbox.has_unsettled($1, $1)", {REGCLASSOID}};

  // They are never destroyed: at exit the server's memory goes without us.
  static CommonStatements& Of() {
    static CommonStatements& statements = *new CommonStatements;
    return statements;
  }
};

}  // namespace

LogOutbox::LogOutbox(Publication publication, int slice, std::shared_ptr<LaneShare> share,
                     std::string topic, std::string lock_token)
    : publication_(std::move(publication)),
      slice_(slice),
      share_(std::move(share)),
      topic_(std::move(topic)),
      ordering_(publication_.ordering),
      row_(publication_, slice, std::move(lock_token)),
      sent_again_(publication_.name, slice),
      parked_(publication_, topic_, ordering_, share_->log),
      reader_(publication_, topic_, ordering_) {}

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
  std::string sequence = RelationName(sequence_);
  if (sequence.empty()) {
    sequence_ = LogSequence(publication_.outbox);
    sequence = RelationName(sequence_);
  }
  if (!OidIsValid(owner) || parked.empty() || sequence.empty()) {
    Throw(ERRCODE_UNDEFINED_TABLE,
          "the outbox of publication \"" + publication_.name + "\" is not complete",
          "Its log, its sequence or its table of parked events does not exist.",
          sequence.empty() ? "Make its sequence OWNED BY its column seq again."
                           : "Drop it with postbox.drop_outbox.");
  }
  relation_name_ = RelationName(publication_.outbox);
  std::string names = relation_name_ + parked + sequence;
  if (names != prepared_for_) {
    Prepare(parked);
    prepared_for_ = std::move(names);
  }
  RefuseRowSecurity(publication_.outbox, owner);
  RefuseRowSecurity(publication_.parked, owner);
  return owner;
}

void LogOutbox::Prepare(const std::string& parked) {
  Run("SELECT postbox.cluster_origin()");
  Use(MakeLogOutboxSql(relation_name_, parked, Int32Column(0, 1), slice_, publication_.lanes,
                       publication_.filtered),
      parked);
}

void LogOutbox::ForgetPlans() {
  prepared_for_.clear();
  Use({}, "");
}

void LogOutbox::Use(const LogOutboxSql& sql, const std::string& parked) {
  foreign_ = Statement(sql.foreign, {TEXTOID});
  any_read_ = Statement(sql.any_read, {INT8OID, TEXTOID, XID8OID});
  again_ = FilteredStatement(publication_, sql.again, {INT8ARRAYOID});
  parked_.Prepare(sql, parked);
  reader_.Prepare(sql, relation_name_);
}

int LogOutbox::Share() const {
  const int workers = std::max(1, CountLiving(identity().database, LeaseMilliseconds()));
  return (publication_.lanes + workers - 1) / workers;
}

bool LogOutbox::Acquire(ClaimResult* result) {
  if (progress_ && share_->held > Share()) {
    // There are more workers now: finish what is outstanding, then let one of them have it.
    if (progress_->outstanding() > 0 || progress_->failed() > 0 || parked_.HasOutstanding()) {
      return false;
    }
    if (PositionMoved()) Checkpoint();
    GiveUpRow("");
    return false;
  }
  if (progress_) return !lease_uncertain_;
  lease_uncertain_ = false;
  if (share_->held >= Share() && !IsLeftBehind()) return false;
  if (row_.IsForeign(publication_.outbox)) {
    Rebase();
    result->more = !row_.IsForeign(publication_.outbox);
    return false;
  }
  if (CommonStatements::Of().complete.Run({ObjectIdGetDatum(publication_.outbox)}) == 0) {
    return false;
  }
  std::optional<LaneRow::Taken> taken = row_.TryAcquire();
  if (!taken) return false;
  stored_ = taken->position;
  stored_next_ = next_handle_;
  stored_at_ = Clock::now();
  dirty_ = false;
  read_below_ = 0;
  progress_.emplace(std::move(taken->position), next_handle_);
  if (!taken->given_up) maybe_sent_upto_ = kUpToNow;
  ++share_->held;
  depends_on_commit_ = true;
  return true;
}

bool LogOutbox::IsLeftBehind() {
  maybe_left_ = maybe_left_ && row_.IsOurs();
  return maybe_left_;
}

int64 LogOutbox::Rebase() {
  // Cancelled, it would begin at the start again.
  StepLimit::Extend(share_->rebase_time);
  share_->rebase_time = std::min(share_->rebase_time * 2, kMostRebaseTime);
  const int64 settled = row_.Rebase(publication_.outbox);
  share_->rebase_time = LaneShare::kFirstRebaseTime;
  share_->look_at = {};
  return settled;
}

// Rows of this cluster may follow events of another one that were not published there.
bool LogOutbox::SettleForeignRows(Oid owner_role, ClaimResult* result) {
  const Clock::time_point begin = Clock::now();
  if (begin >= share_->look_at) {
    bool unsettled = false;
    {
      const ActAs owner(owner_role);
      foreign_.Run({TextValue(publication_.name)});
      unsettled = BoolColumn(0, 1);
      share_->settled = Int64Column(0, 2);
      if (unsettled) {
        CommonStatements::Of().unsettled.Run({ObjectIdGetDatum(publication_.outbox)});
        unsettled = BoolColumn(0, 1);
      }
    }
    if (unsettled) {
      result->more = Rebase() > 0;
      return false;
    }
    // Where many rows had to be passed, it may cost a twentieth of the time.
    const auto took = std::chrono::duration_cast<milliseconds>(Clock::now() - begin);
    share_->look_at = Clock::now() + std::max(kLookForForeignRows, took * 20);
  }
  if (share_->settled != settled_) {
    settled_ = share_->settled;
    // Another worker may have done it. All that was parked goes before what is in the log.
    reload_parked_ = true;
    parked_first_ = !publication_.parked_blocks;
  }
  return true;
}

// Claim.

ClaimResult LogOutbox::Claim(const ClaimLimits& limits, Transaction* transaction) {
  BeginStep();
  transaction->Begin();
  ClaimResult result;
  const Oid owner_role = Open();
  if (!Acquire(&result) || !SettleForeignRows(owner_role, &result)) return result;
  if (std::exchange(store_backlog_, false)) {
    Checkpoint();
    if (!progress_) return result;
  }
  const ActAs owner(owner_role);
  const bool was_loaded = parked_.loaded();
  if (!was_loaded || reload_parked_) {
    result.more = !parked_.Load();
    repaired_at_ = Clock::now();
    if (result.more) return result;
    reload_parked_ = false;
    // Perhaps lanes were merged, or an earlier lane had begun with what goes first.
    parked_first_ = parked_first_ || (!was_loaded && !publication_.parked_blocks);
  }

  ByteBudget budget(limits.bytes, limits.first);
  const bool again = progress_->failed() > 0;
  if (again) {
    // Nothing new may overtake what has to be sent again.
    if (progress_->outstanding() == 0) {
      ClaimAgain(progress_->FirstFailed(limits.events), &budget, &result);
    }
  } else if (progress_->waiting() > 0) {
    ClaimAgain(progress_->FirstWaiting(limits.events), &budget, &result);
  } else {
    const bool more = parked_.Claim(limits.events, &budget, &result.events);
    if (result.events.empty() && !more && !parked_.HasOutstanding() && !budget.refused()) {
      parked_first_ = false;
    }
    if (result.events.size() < limits.events && !budget.refused() && !parked_first_) {
      ClaimNew(limits, &budget, &result);
    }
    result.more = result.more || more;
  }
  if (!again) CountSentAgain(result);
  // Failed ones, too: perhaps they were given back while they waited for a standby.
  if (!result.events.empty()) result.durable_at = FlushVisibleWal();
  result.needed = budget.needed();
  return result;
}

void LogOutbox::ClaimAgain(const std::vector<LaneProgress::Event>& wanted, ByteBudget* budget,
                           ClaimResult* result) {
  std::vector<std::int64_t> seqs;
  seqs.reserve(wanted.size());
  for (const auto& event : wanted) seqs.push_back(event.seq);
  const uint64 rows = again_.Run({Int64ArrayValue(seqs)});
  Events events;
  const std::optional<int64> left = reader_.TakeRows(rows, budget, &events);
  // A seq that was given out twice has two rows, one for each of its events.
  std::unordered_multimap<std::int64_t, EventPointer*> event_of;
  for (EventPointer& event : events) event_of.emplace(event->seq, &event);

  std::vector<ParkedEvents::Waiting> behind;
  for (const auto& event : wanted) {
    if (left && event.seq >= *left) continue;
    progress_->HandOut(event.handle);
    handed_out_.push_back(event.handle);
    const auto found = event_of.find(event.seq);
    if (found == event_of.end()) {  // retention or another session has removed it
      progress_->Settle(event.handle);
      continue;
    }
    EventPointer claimed = std::move(*found->second);
    event_of.erase(found);
    claimed->handle = event.handle;
    claimed->urgent = progress_->is_split();
    if (parked_.Pauses(claimed->key)) {
      behind.push_back({event.seq, claimed->key});
      progress_->Settle(event.handle);
    } else {
      result->events.push_back(std::move(claimed));
    }
  }
  ParkBehind(behind);
  const bool any_left =
      progress_->waiting() > 0 || (result->events.empty() && progress_->failed() > 0);
  result->more = any_left && budget->needed() == 0;
}

void LogOutbox::ClaimNew(const ClaimLimits& limits, ByteBudget* budget, ClaimResult* result) {
  Read read = ReadNew(limits.events - result->events.size(), budget);
  if (!ConfigIsCurrent()) return;  // perhaps it takes other events now
  if (read.ahead) Take(&*read.ahead, LaneProgress::Part::kAhead, read.moment, result);
  if (read.main) Take(&*read.main, LaneProgress::Part::kMain, read.main_moment, result);
  result->more = result->more || read.more;
  SplitOrJoin(read, result);
}

void LogOutbox::Take(LogChunk* chunk, LaneProgress::Part part, const LogMoment& moment,
                     ClaimResult* result) {
  const bool ahead = part == LaneProgress::Part::kAhead;
  if (chunk->full && chunk->events.empty()) return;
  const LogPosition& position = ahead ? progress_->read().ahead->position : progress_->read().main;
  LogPosition after = LogReader::After(position, moment, *chunk);
  const std::vector<bool> withheld = Withheld(*chunk, part);
  if (parked_.HasKeys()) {
    std::vector<ParkedEvents::Waiting> behind;
    for (std::size_t i = 0; i < chunk->events.size(); ++i) {
      const ClaimedEvent& event = *chunk->events[i];
      if (!withheld[i] && parked_.Pauses(event.key)) behind.push_back({event.seq, event.key});
    }
    ParkBehind(behind);
  }
  if (!chunk->events.empty()) {
    dirty_ = true;
    backlog_unstored_ = backlog_unstored_ || !ahead;
    read_below_ = moment.next_xid;
  } else if (after.from() > position.from()) {
    passed_below_ = moment.next_xid;
  }
  LaneProgress::Handle handle = progress_->Add(chunk->Seqs(), std::move(after), part);
  result->events.reserve(result->events.size() + chunk->events.size());
  for (std::size_t i = 0; i < chunk->events.size(); ++i) {
    EventPointer& event = chunk->events[i];
    event->handle = handle++;
    event->urgent = ahead;
    if (withheld[i]) {
      progress_->Withhold(event->handle);
      backlog_keys_->keys.Withhold(event->seq, event->key);
    } else if (parked_.Pauses(event->key)) {
      progress_->Settle(event->handle);
    } else {
      handed_out_.push_back(event->handle);
      result->events.push_back(std::move(event));
    }
  }
  result->more = result->more || chunk->full;
}

// Events of a claim that another worker may have sent. Those that are claimed again after a failure
// were counted before.
void LogOutbox::CountSentAgain(const ClaimResult& result) {
  if (maybe_sent_upto_ == 0) return;
  const Events& events = result.events;
  sent_again_.Add(std::count_if(events.begin(), events.end(), [&](const EventPointer& event) {
    return event->seq <= maybe_sent_upto_;
  }));
  const bool all = events.empty() && !result.more && result.needed == 0 && !progress_->is_split() &&
                   progress_->waiting() == 0;
  if (all && progress_->read().from() >= maybe_sent_upto_) maybe_sent_upto_ = 0;
}

// Settle.

bool LogOutbox::AllPublished(std::span<const EventPointer> events) {
  return std::all_of(events.begin(), events.end(), [](const EventPointer& event) {
    return event->status == pubsub::PublishStatus::kPublished && event->handle != 0;
  });
}

bool LogOutbox::IsSentAgain(const ClaimedEvent& event) {
  using pubsub::PublishStatus;
  return event.leaving || event.status == PublishStatus::kTopicBroken ||
         event.status == PublishStatus::kUnreachable;
}

bool LogOutbox::WritesParked(std::span<const EventPointer> events) {
  return std::any_of(events.begin(), events.end(), [](const EventPointer& event) {
    if (event->handle == 0) return true;
    return event->status != pubsub::PublishStatus::kPublished && !IsSentAgain(*event);
  });
}

bool LogOutbox::Settle(std::span<const EventPointer> events, Transaction* transaction) {
  BeginStep();
  sent_again_.AddResults(events);
  if (!progress_) return false;  // the lane begins at its stored position again
  depends_on_commit_ = true;
  const bool known = SettlePublished(events);
  if (AllPublished(events)) return known;

  transaction->Begin();
  const Oid owner_role = Open();
  // Another worker may have the lane by now, and publish these events. What this one parked would
  // stop their keys there.
  if (WritesParked(events)) Checkpoint();
  if (!progress_) return false;
  const ActAs owner(owner_role);
  SettleUnpublished(events);
  parked_.DeletePublished();
  share_->log.Write();
  return known;
}

bool LogOutbox::SettlePublished(std::span<const EventPointer> events) {
  bool known = true;
  for (const EventPointer& event : events) {
    if (event->status != pubsub::PublishStatus::kPublished || event->handle == 0) continue;
    known = progress_->Settle(event->handle) && known;
  }
  return known;
}

void LogOutbox::SettleUnpublished(std::span<const EventPointer> events) {
  using pubsub::PublishStatus;
  std::vector<const ClaimedEvent*> behind;
  for (const EventPointer& event : events) {
    if (event->handle == 0) {
      parked_.Settle(*event);
    } else if (event->status == PublishStatus::kPublished) {
      continue;
    } else if (IsSentAgain(*event)) {
      progress_->Fail(event->handle);
    } else if (event->status == PublishStatus::kBehind) {
      behind.push_back(event.get());
    } else {
      // Refused, or unknown while others went through. It must not hold up the position.
      if (progress_->Settle(event->handle)) parked_.Park(*event);
    }
  }
  std::vector<ParkedEvents::Waiting> park_behind;
  for (const ClaimedEvent* event : behind) {
    if (parked_.Pauses(event->key)) {
      if (progress_->Settle(event->handle)) park_behind.push_back({event->seq, event->key});
    } else {
      progress_->Fail(event->handle);
    }
  }
  ParkBehind(park_behind);
}

void LogOutbox::ParkBehind(const std::vector<ParkedEvents::Waiting>& events) {
  depends_on_commit_ = depends_on_commit_ || !events.empty();
  parked_.ParkBehind(events);
}

}  // namespace postbox::publisher
