// See log_outbox.h.
#include "worker/publisher/source/log/log_outbox.h"

#include "extension/shared/settings.h"
#include "extension/shared/time_scale.h"
#include "extension/trust/act_as.h"
#include "worker/publisher/base/limited_log.h"
#include "worker/publisher/base/registration.h"
#include "worker/publisher/delivery/event_result.h"
#include "worker/publisher/source/log/log_moment.h"

namespace postbox::publisher {
namespace {

using pubsub::PublishStatus;
using std::chrono::milliseconds;

// After the keys of a backlog could not be read.
constexpr milliseconds kPauseOfKeys = std::chrono::minutes(5);
constexpr milliseconds kNothingToDo = std::chrono::hours(1);

// Whether the log has its index on the origin. Without it, a restore is in progress.
bool IsComplete(Oid log) {
  // One plan serves all logs. It is never destroyed: at exit the server's memory goes without us.
  static Statement& statement = *new Statement(
      "SELECT FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_index i ON i.indrelid "
      "OPERATOR(pg_catalog.=) a.attrelid AND i.indkey[0] OPERATOR(pg_catalog.=) a.attnum "
      "WHERE a.attrelid OPERATOR(pg_catalog.=) $1 AND a.attname OPERATOR(pg_catalog.=) 'origin' "
      "AND i.indisvalid LIMIT 1",
      {OIDOID});
  return statement.Run({ObjectIdGetDatum(log)}) > 0;
}

bool AllPublished(std::span<const EventPointer> events) {
  return std::all_of(events.begin(), events.end(), [](const EventPointer& event) {
    return event->status == PublishStatus::kPublished && event->handle != 0;
  });
}

// Whether settling them may write to the table of parked events.
bool WritesParked(std::span<const EventPointer> events) {
  return std::any_of(events.begin(), events.end(), [](const EventPointer& event) {
    const EventResult result = ResultOf(*event);
    return event->handle == 0 || result == EventResult::kBehind || result == EventResult::kFailed ||
           result == EventResult::kDelayed;
  });
}

// Whether all of them are known: they may be of what was rolled back.
bool SettlePublished(std::span<const EventPointer> events, LaneProgress& progress) {
  bool known = true;
  for (const EventPointer& event : events) {
    if (event->status != PublishStatus::kPublished || event->handle == 0) continue;
    known = progress.Settle(event->handle) && known;
  }
  return known;
}

bool ClaimParked(ParkedEvents& parked, const ClaimLimits& limits, LogLane& lane, ByteBudget* budget,
                 Events* events) {
  if (parked.GoFirst()) {
    return parked.Claim({limits.events, std::numeric_limits<std::int64_t>::max()}, budget, events);
  }
  const ParkedShare share = lane.parked_share();
  ByteBudget part(share.Of(limits.bytes), limits.first);
  const ParkedEvents::Room room{share.Of(limits.events), lane.ParkedUpTo()};
  const bool more = parked.Claim(room, &part, events);
  if (part.used() > 0) budget->Take(part.used());
  // One that is larger than what a claim may have now goes first when there is room.
  if (part.needed() > 0) budget->Refuse(part.needed());
  return more;
}

}  // namespace

LogOutbox::LogOutbox(Publication publication, int slice, std::shared_ptr<LaneShare> share,
                     std::string topic, std::string lock_token)
    : publication_(std::move(publication)),
      topic_(std::move(topic)),
      ordering_(publication_.ordering),
      ownership_(publication_, slice, std::move(share), std::move(lock_token)),
      foreign_(publication_, ownership_.share().foreign),
      sent_again_(publication_.name, slice),
      parked_(publication_, topic_, ordering_, ownership_.share().log),
      reader_(publication_, topic_, ordering_),
      tables_(publication_) {}

void LogOutbox::BeginStep() {
  memory_is_ahead_ = false;
  parked_.BeginStep();
  sent_again_.BeginStep();
  ownership_.share().expired.BeginStep();
  if (lane_) lane_->BeginStep();
}

Oid LogOutbox::Open() {
  const Oid owner = tables_.Open();
  if (std::string names = tables_.Names(); names != prepared_for_) {
    Run("SELECT postbox.cluster_origin()");
    Use(MakeLogOutboxSql(tables_.log(), tables_.parked(), Int32Column(0, 1), ownership_.slice(),
                         publication_.lanes, publication_.filtered));
    prepared_for_ = std::move(names);
  }
  return owner;
}

void LogOutbox::ForgetPlans() {
  prepared_for_.clear();
  Use({});
}

void LogOutbox::Use(const LogOutboxSql& sql) {
  foreign_.Prepare(sql.foreign);
  parked_.Prepare(sql, tables_.parked());
  reader_.Prepare(sql, tables_.log());
}

// Having the lane.

bool LogOutbox::Acquire(ClaimResult* result) {
  if (lane_ && ownership_.IsAboveShare()) {
    // Finish what is outstanding, then let another worker have it.
    if (lane_->progress().outstanding() > 0 || lane_->progress().failed() > 0 ||
        parked_.outstanding() > 0) {
      return false;
    }
    if (lane_->IsOutdated()) Checkpoint();
    GiveUpRow("");
    return false;
  }
  if (lane_) return !ownership_.uncertain();
  if (!ownership_.MayTake()) return false;
  if (foreign_.LanesAreForeign()) {
    foreign_.Settle();
    result->more = !foreign_.LanesAreForeign();
    return false;
  }
  if (!IsComplete(publication_.outbox)) return false;
  std::optional<LaneRow::Taken> taken = ownership_.TryTake();
  if (!taken) return false;
  lane_.emplace(std::move(taken->position), next_handle_, reader_, ordering_.ordered());
  if (!taken->given_up) maybe_sent_.MarkAll();
  memory_is_ahead_ = true;
  return true;
}

bool LogOutbox::SettleForeignRows(Oid owner_role, ClaimResult* result) {
  if (foreign_.Any(owner_role)) {
    result->more = foreign_.Settle() > 0;
    return false;
  }
  if (foreign_.SettledSince()) {
    // All that was parked goes before what is in the log.
    parked_.ReloadFirst();
  }
  return true;
}

void LogOutbox::BeginAtStored(const std::string& why, std::size_t unsent) {
  ownership_.Drop();
  if (!lane_) return;
  const std::int64_t events = lane_->SentSinceStored() - static_cast<std::int64_t>(unsent) +
                              static_cast<std::int64_t>(parked_.outstanding());
  if (events > 0 && !why.empty()) {
    sent_again_.Add(events);
    const std::string name = ownership_.Name();
    LogLimited("begins again " + name,
               {.message = name + " restarts at its stored position; up to " +
                           std::to_string(events) + " events are sent again: " + why});
  }
  next_handle_ = lane_->progress().next();
  lane_.reset();
  parked_.Reset();
}

// `why`: as for BeginAtStored().
void LogOutbox::GiveUpRow(const std::string& why) {
  BeginAtStored(why);
  ownership_.Release(!maybe_sent_.any(), sent_again_.Take());
  maybe_sent_.Clear();
}

void LogOutbox::RollBack(const std::string& error) {
  // What comes after a backlog waits for it rather than that the backlog is held up.
  if (lane_ && lane_->backlog().ForgetUnreadKeys()) {
    no_keys_until_ = After(SteadyNow(), Scaled(kPauseOfKeys));
  }
  const bool had_stored = lane_ && lane_->stored().RollBack();
  if (!lane_ || memory_is_ahead_) {
    sent_again_.RollBack();
    BeginAtStored(error, lane_ ? lane_->handed_out() : 0);
    return;
  }
  lane_->GiveBack();
  if (had_stored) {
    lane_->backlog().StoreFailed();
    sent_again_.RollBackStored();
  }
  parked_.RollBack();
}

// Claim.

ClaimResult LogOutbox::Claim(const ClaimLimits& limits, Transaction* transaction) {
  BeginStep();
  transaction->Begin();
  ClaimResult result;
  const Oid owner_role = Open();
  if (!Acquire(&result) || !SettleForeignRows(owner_role, &result)) return result;
  if (lane_->backlog().TakeStoreDue()) {
    Checkpoint();
    if (!lane_) return result;
  }
  const ActAs owner(owner_role);
  result.more = !parked_.Ready();
  if (!result.more) ClaimSome(limits, &result);
  return result;
}

void LogOutbox::ClaimSome(const ClaimLimits& limits, ClaimResult* result) {
  ByteBudget budget(limits.bytes, limits.first);
  // Nothing new may overtake what has to be sent again.
  const bool failed = lane_->progress().failed() > 0;
  if (const auto again = lane_->progress().FirstAgain(limits.events)) {
    if (!again->empty()) ClaimAgain(*again, &budget, result);
  } else {
    const bool more = ClaimParked(parked_, limits, *lane_, &budget, &result->events);
    const std::size_t parked = result->events.size();
    if (result->events.size() < limits.events && !budget.refused() && !parked_.GoFirst()) {
      ClaimNew(limits, &budget, result);
      lane_->parked_share().Found(result->events.size() - parked);
    }
    result->more = result->more || more || (result->events.empty() && parked_.LookAgain());
  }
  // Those that are claimed again after a failure were counted before.
  if (!failed) {
    sent_again_.Add(maybe_sent_.Count(result->events));
    const LaneProgress& progress = lane_->progress();
    const bool all =
        result->events.empty() && !result->more && !progress.is_split() && progress.waiting() == 0;
    if (all) maybe_sent_.NotePassed(progress.read().from());
  }
  // Failed ones, too: perhaps they were given back while they waited for a standby.
  if (!result->events.empty()) result->durable_at = FlushVisibleWal();
  result->needed = budget.needed();
}

void LogOutbox::ClaimAgain(const std::vector<LaneProgress::Event>& wanted, ByteBudget* budget,
                           ClaimResult* result) {
  LaneProgress& progress = lane_->progress();
  std::vector<std::int64_t> seqs;
  seqs.reserve(wanted.size());
  for (const auto& event : wanted) seqs.push_back(event.seq);
  Events events;
  const std::optional<std::int64_t> left = reader_.ReadAgain(seqs, budget, &events);
  // A seq that was given out twice has two rows, one for each of its events.
  std::unordered_multimap<std::int64_t, EventPointer*> event_of;
  for (EventPointer& event : events) event_of.emplace(event->seq, &event);

  std::vector<ParkedEvents::Waiting> behind;
  for (const auto& event : wanted) {
    if (left && event.seq >= *left) continue;
    progress.HandOut(event.handle);
    lane_->HandOut(event.handle);
    const auto found = event_of.find(event.seq);
    if (found == event_of.end()) {  // retention or another session has removed it
      progress.Settle(event.handle);
      continue;
    }
    EventPointer claimed = std::move(*found->second);
    event_of.erase(found);
    claimed->handle = event.handle;
    claimed->urgent = progress.is_split();
    if (parked_.Pauses(claimed->key)) {
      behind.push_back({event.seq, claimed->key});
      progress.Settle(event.handle);
    } else {
      result->events.push_back(std::move(claimed));
    }
  }
  ParkBehind(behind);
  const bool any_left = progress.waiting() > 0 || (result->events.empty() && progress.failed() > 0);
  result->more = any_left && budget->needed() == 0;
}

void LogOutbox::ClaimNew(const ClaimLimits& limits, ByteBudget* budget, ClaimResult* result) {
  const Backlog::Room room{
      .events = limits.events - result->events.size(),
      .budget = budget,
      .most_events = static_cast<std::size_t>(settings().max_outstanding_messages),
      .most_bytes = static_cast<std::size_t>(settings().max_outstanding_bytes) * 1024,
      .lanes = static_cast<std::size_t>(std::max(ownership_.share().held, 1)),
      .may_read_keys = SteadyNow() >= no_keys_until_};
  std::optional<Backlog::Read> read = lane_->ReadNew(tables_, room, &maybe_sent_);
  // Perhaps it takes other events now.
  if (!read || !ConfigIsCurrent()) return;
  if (read->ahead) Take(&*read->ahead, LaneProgress::Part::kAhead, read->moment, result);
  if (read->main) Take(&*read->main, LaneProgress::Part::kMain, read->main_moment, result);
  const bool more = lane_->backlog().SplitOrJoin(*read);
  result->more = result->more || read->more || more;
}

void LogOutbox::Take(LogChunk* chunk, LaneProgress::Part part, const LogMoment& moment,
                     ClaimResult* result) {
  if (chunk->full && chunk->events.empty()) return;
  const std::vector<bool> withheld = lane_->backlog().Withheld(*chunk, part);
  const auto is_withheld = [&](std::size_t i) { return !withheld.empty() && withheld[i]; };
  if (parked_.HasKeys()) {
    std::vector<ParkedEvents::Waiting> behind;
    for (std::size_t i = 0; i < chunk->events.size(); ++i) {
      const ClaimedEvent& event = *chunk->events[i];
      if (!is_withheld(i) && parked_.Pauses(event.key)) behind.push_back({event.seq, event.key});
    }
    ParkBehind(behind);
  }
  LaneProgress& progress = lane_->progress();
  const std::int64_t from = progress.read(part).from();
  LaneProgress::Handle handle = lane_->backlog().Add(*chunk, part, moment, withheld);
  if (!chunk->events.empty()) {
    lane_->stored().NoteRead(moment.next_xid);
  } else if (progress.read(part).from() > from) {
    lane_->stored().NotePassed(moment.next_xid);
  }
  result->events.reserve(result->events.size() + chunk->events.size());
  for (std::size_t i = 0; i < chunk->events.size(); ++i, ++handle) {
    if (is_withheld(i)) continue;
    EventPointer& event = chunk->events[i];
    event->handle = handle;
    event->urgent = part == LaneProgress::Part::kAhead;
    if (parked_.Pauses(event->key)) {
      progress.Settle(handle);
    } else {
      lane_->HandOut(handle);
      result->events.push_back(std::move(event));
    }
  }
  result->more = result->more || chunk->full;
}

ClaimWay LogOutbox::way() const {
  return {.lock = AccessShareLock,
          .most_events = settings().read_chunk_size,
          .may_be_small = true,
          .keeps_room = !lane_ || !lane_->progress().is_split()};
}

std::optional<ReadMark> LogOutbox::ReadUpTo() const {
  if (!lane_ || ownership_.uncertain() || parked_.AnyToRead()) return std::nullopt;
  const std::optional<std::int64_t> seq = lane_->PublishedUpTo();
  return seq ? std::optional(ReadMark{tables_.sequence(), *seq}) : std::nullopt;
}

// Settle.

bool LogOutbox::Settle(std::span<const EventPointer> events, Transaction* transaction) {
  BeginStep();
  sent_again_.AddResults(events);
  if (!lane_) return false;  // the lane begins at its stored position again
  memory_is_ahead_ = true;
  const bool known = SettlePublished(events, lane_->progress());
  if (AllPublished(events)) return known;

  transaction->Begin();
  const Oid owner_role = Open();
  // Another worker may have the lane by now, and publish these events. What this one parked would
  // stop their keys there.
  if (WritesParked(events)) Checkpoint();
  if (!lane_) return false;
  {
    const ActAs owner(owner_role);
    SettleUnpublished(events);
    parked_.DeletePublished();
    ownership_.share().expired.LookUp(publication_.outbox);
  }
  ownership_.share().expired.Store(publication_);
  ownership_.share().log.Write();
  return known;
}

void LogOutbox::SettleUnpublished(std::span<const EventPointer> events) {
  std::vector<const ClaimedEvent*> behind;
  for (const EventPointer& event : events) {
    if (ResultOf(*event) == EventResult::kExpired && !event->unsent()->republished) {
      ownership_.share().expired.Add(*event);
    }
    if (event->handle == 0) {
      parked_.Settle(*event);
      continue;
    }
    switch (ResultOf(*event)) {
      case EventResult::kPublished:
        break;
      case EventResult::kSentAgain:
        lane_->progress().Fail(event->handle);
        break;
      case EventResult::kBehind:
        behind.push_back(event.get());
        break;
      case EventResult::kFailed:
      case EventResult::kDelayed:
        // It must not hold up the position.
        if (lane_->progress().Settle(event->handle)) parked_.Park(*event);
        break;
      case EventResult::kExpired:
        lane_->progress().Settle(event->handle);
    }
  }
  std::vector<ParkedEvents::Waiting> park_behind;
  for (const ClaimedEvent* event : behind) {
    if (parked_.Pauses(event->key)) {
      if (lane_->progress().Settle(event->handle)) park_behind.push_back({event->seq, event->key});
    } else {
      lane_->progress().Fail(event->handle);
    }
  }
  ParkBehind(park_behind);
}

// What it has to write is taken for written by then, so a failure drops the lane.
void LogOutbox::ParkBehind(const std::vector<ParkedEvents::Waiting>& events) {
  memory_is_ahead_ = memory_is_ahead_ || !events.empty();
  parked_.ParkBehind(events);
}

// Maintain.

milliseconds LogOutbox::MaintainIn() const {
  if (!lane_) return kNothingToDo;
  if (!ownership_.share().log.empty() || ownership_.uncertain()) return milliseconds(0);
  return std::max(milliseconds(0), std::min(lane_->StoreIn(sent_again_.any()), parked_.RepairIn()));
}

void LogOutbox::Maintain(bool leaving, Transaction* transaction) {
  if (!lane_) return;
  BeginStep();
  ownership_.share().log.Write();
  if ((leaving && lane_->IsOutdated()) || ownership_.uncertain() ||
      lane_->StoreIn(sent_again_.any()).count() == 0) {
    transaction->Begin();
    Checkpoint();
    return;
  }
  if (leaving || MaintainIn().count() > 0) return;
  // In a separate transaction: a failure here does not take a checkpoint back. Another session's
  // UPDATE or DELETE of parked rows may have ended a pause.
  transaction->Begin();
  const ActAs owner(Open());
  parked_.Repair();
}

void LogOutbox::GiveUp(Transaction* transaction) {
  if (!lane_) return;
  BeginStep();
  ownership_.share().log.Write();
  transaction->Begin();
  if (lane_->IsOutdated()) Checkpoint();
  if (lane_) GiveUpRow("the lane was released before all events were published");
}

void LogOutbox::Checkpoint() {
  const std::int64_t sent_again = sent_again_.Take();
  if (!ownership_.Store(lane_->progress().settled(), sent_again)) {
    sent_again_.Add(sent_again);
    BeginAtStored("");
    return;
  }
  // What comes after a backlog is read as the stored position says.
  memory_is_ahead_ = memory_is_ahead_ || lane_->progress().is_split();
  lane_->stored().Write(lane_->progress(), SteadyNow());
  lane_->backlog().Stored();
}

}  // namespace postbox::publisher
