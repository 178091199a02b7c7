// The reading of LogOutbox: chunks of what is unread, and whether its position fits the log.
//
// A backlog that takes more than a moment is split off. It ends with the transaction that it is of,
// if that is a long one and no longer backlog follows it; or else where the log ended when the lane
// fell behind, or if it is of late rows, below what is new or where the transaction of the first of
// them ends. What is above is read ahead of it, with a position of its own. What others wrote while
// a long transaction ran, and committed with it or later, is late as it is, and read before it.
//
// An event that was read ahead is published if its key is none of the backlog's. These keys are
// read first, and under each snapshot with which events are read ahead those of rows that have
// become visible since: emitters of one key come one after the other, so if one is seen, so are
// all earlier ones of its key, and their keys are known. The later event is withheld until the last
// range of the backlog that has its key is published (backlog_keys_logic.h). What was handed out
// before the keys were read goes before it in the client.
#include "extension/base/relation.h"
#include "extension/shared/settings.h"
#include "worker/publisher/log/log_moment.h"
#include "worker/publisher/log/log_outbox.h"

namespace postbox::publisher {
namespace {

// A lane that is behind for so long, or by so many seqs, has a backlog.
constexpr std::chrono::milliseconds kMoment(50);
constexpr std::int64_t kManySeqs = 10'000;
// What is read ahead may begin with so many seqs of the backlog's own transaction.
constexpr std::int64_t kFewSeqs = 2'500;
// How long a claim reads keys.
constexpr std::chrono::milliseconds kKeysTime(25);
// So many events wait for earlier ones of their keys at most. Their seqs are in the lane's row.
constexpr std::size_t kMostWithheld = 5'000;
// Of the budget, and of each claim once something has come after it, the backlog gets so much.
constexpr std::size_t BacklogPart(std::size_t all) { return all - KeptPart(all); }

}  // namespace

LogOutbox::Read LogOutbox::ReadNew(std::size_t limit, ByteBudget* budget) {
  const int64 last_seq = LastValue(sequence_);
  const SnapshotGuard snapshot;
  Read read;
  read.moment = TakeMoment(last_seq);
  read.main_moment = read.moment;
  if (maybe_sent_upto_ == kUpToNow) maybe_sent_upto_ = read.moment.hwm;
  if (hwm_ != read.moment.hwm) {
    hwm_ = read.moment.hwm;
    drawn_below_ = read.moment.next_xid;
  }
  if (!CheckPosition(read.moment)) return read;
  if (progress_->is_split()) {
    ReadBacklog(limit, budget, &read);
  } else {
    read.main = reader_.Read(progress_->read().main, read.moment, limit, budget);
  }
  return read;
}

// All transactions that have a seq up to the mark had ended when it was read for the last time.
std::optional<ReadMark> LogOutbox::ReadUpTo() const {
  if (!progress_ || lease_uncertain_ || progress_->is_split() || !progress_->idle())
    return std::nullopt;
  if (!parked_.loaded() || parked_.HasKeys() || reload_parked_ || parked_first_) {
    return std::nullopt;
  }
  const LogPosition& position = progress_->read().main;
  if (position.zones().size() != 1 || position.top().xmin < drawn_below_) return std::nullopt;
  return ReadMark{sequence_, position.from()};
}

void LogOutbox::ReadBacklog(std::size_t limit, ByteBudget* budget, Read* read) {
  read->main_moment.hwm = std::min(read->moment.hwm, progress_->read().ahead->position.floor());
  const bool ahead_first = std::exchange(ahead_first_, false);
  const std::size_t room = ahead_first ? 0 : BacklogRoom(limit);
  if (room > 0) {
    const std::size_t bytes_left = budget->left();
    ByteBudget part(ReadsAhead() ? BacklogPart(bytes_left) : bytes_left, budget->next());
    if (!ReadBeside(room, &part, read)) {
      read->main = reader_.Read(progress_->read().main, read->main_moment, room, &part);
    }
    const std::size_t bytes = read->main->Bytes();
    if (bytes > 0) {
      budget->Take(bytes);
      backlog_bytes_ = bytes / read->main->events.size();
    }
    if (part.needed() > 0) budget->Refuse(part.needed());
  }
  // It may be more than was asked for, where a seq is there twice.
  const std::size_t taken = read->main ? read->main->events.size() : 0;
  ReadAhead(limit - std::min(limit, taken), budget, read);
  // The backlog has its turn again, unless an event waits for more than there may be now.
  if (ahead_first && budget->needed() == 0) ahead_first_ = false;
  read->more = read->more || ahead_first || ahead_first_;
}

bool LogOutbox::ReadBeside(std::size_t limit, ByteBudget* budget, Read* read) {
  if (long_transaction_ == 0) return false;
  LogMoment moment = read->main_moment;
  moment.left_out = long_transaction_;
  const LogPosition& position = progress_->read().main;
  LogChunk chunk = reader_.ReadLate(position, moment, limit, budget);
  if (chunk.events.empty()) {
    // The next look is for what comes from now on.
    if (!chunk.full) progress_->Add({}, position.AfterLate(moment));
    return false;
  }
  chunk.full = true;
  read->main = std::move(chunk);
  return true;
}

bool LogOutbox::ReadsAhead() const { return backlog_keys_ && backlog_keys_->readable; }

std::size_t LogOutbox::BacklogRoom(std::size_t limit) const {
  const std::size_t of_claim = ReadsAhead() ? BacklogPart(limit) : limit;
  const std::size_t outstanding = progress_->outstanding(LaneProgress::Part::kMain);
  if (outstanding == 0) return of_claim;
  const auto lanes = static_cast<std::size_t>(std::max(share_->held, 1));
  std::size_t most =
      BacklogPart(static_cast<std::size_t>(settings().max_outstanding_messages)) / lanes;
  if (backlog_bytes_ > 0) {
    const auto bytes = static_cast<std::size_t>(settings().max_outstanding_bytes) * 1024;
    most = std::min(most, BacklogPart(bytes) / lanes / backlog_bytes_);
  }
  // While the keys are read, no more than keeps the client busy.
  if (ReadsAhead() && !backlog_keys_->complete) most /= 4;
  // Not in crumbs.
  const std::size_t room = most - std::min(most, outstanding);
  return room < KeptPart(most) ? 0 : std::min(room, of_claim);
}

void LogOutbox::ReadAhead(std::size_t limit, ByteBudget* budget, Read* read) {
  if (BacklogIsOver(*read)) {
    if (!progress_->withheld().empty()) return;
    backlog_keys_.reset();
  } else if (!KnowKeys(read) || ReleaseSome(read)) {
    return;
  }
  limit = std::min(limit, kMostWithheld - std::min(kMostWithheld, progress_->withheld().size()));
  if (limit == 0) return;
  const bool refused = budget->refused();
  read->ahead = reader_.Read(progress_->read().ahead->position, read->moment, limit, budget);
  // What the backlog leaves of each claim may be too little for it: the next one begins with it.
  ahead_first_ = read->ahead->events.empty() && budget->refused() && !refused;
}

// While the stored position is before events of the backlog, these may be sent again. So nothing of
// their keys may be stored as read ahead.
bool LogOutbox::BacklogIsOver(const Read& read) const {
  return BacklogIsRead(read) && !backlog_unstored_;
}

bool LogOutbox::BacklogIsRead(const Read& read) {
  return read.main && read.main->events.empty() && !read.main->full;
}

bool LogOutbox::KnowKeys(Read* read) {
  const LogPosition& position = progress_->read().ahead->position;
  if (backlog_keys_ && !backlog_keys_->readable) return false;
  if (Clock::now() < no_keys_until_) return false;
  if (!backlog_keys_ && progress_->withheld().empty() && read->moment.hwm <= position.from() &&
      position.LateReads(read->moment).empty()) {
    return false;
  }
  reads_keys_ = true;
  if (!backlog_keys_) {
    backlog_keys_ = KnownKeys{stored_.main};
    // Of another worker's, or from before a restart.
    reader_.ReadWithheld(progress_->withheld(), &*backlog_keys_);
  }
  const Clock::time_point end = Clock::now() + kKeysTime;
  bool all = !ordering_.ordered();
  while (!all && backlog_keys_->readable && Clock::now() < end) {
    all = reader_.ReadKeys(read->main_moment, &*backlog_keys_);
  }
  reads_keys_ = false;
  backlog_keys_->complete = backlog_keys_->complete || all;
  read->more = !all && backlog_keys_->readable;
  return all;
}

// All keys are known as of this moment: so events may go whose keys the backlog has no more.
// They go before what is read ahead next.
bool LogOutbox::ReleaseSome(Read* read) {
  if (!backlog_keys_->keys.Forget(stored_.main)) return false;
  const std::vector<std::int64_t> released =
      progress_->Release([&](std::int64_t seq) { return backlog_keys_->keys.MayGo(seq); });
  if (released.empty()) return false;
  backlog_keys_->keys.Release(released);
  dirty_ = true;
  read->more = true;
  return true;
}

bool LogOutbox::MustWait(const ClaimedEvent& event) const {
  return LogReader::IsTooLong(event.key) || backlog_keys_->keys.MustWait(event.key);
}

// Rows with the same seq are told apart by nothing when they are read again.
std::vector<bool> LogOutbox::Withheld(const LogChunk& chunk, LaneProgress::Part part) const {
  std::vector<bool> withheld(chunk.events.size());
  if (part == LaneProgress::Part::kMain || !backlog_keys_ || !ordering_.ordered()) return withheld;
  for (std::size_t i = 0; i < chunk.events.size(); ++i) {
    if (!MustWait(*chunk.events[i])) continue;
    const std::int64_t seq = chunk.events[i]->seq;
    std::size_t first = i;
    while (first > 0 && chunk.events[first - 1]->seq == seq) --first;
    for (; first < chunk.events.size() && chunk.events[first]->seq == seq; ++first) {
      withheld[first] = true;
    }
  }
  return withheld;
}

void LogOutbox::SplitOrJoin(const Read& read, ClaimResult* result) {
  if (!read.main) return;
  if (!progress_->is_split()) {
    MarkBacklog(read);
    return;
  }
  if (BacklogIsRead(read) && backlog_unstored_ && BacklogIsSettled()) {
    store_backlog_ = true;
    result->more = true;
  }
  if (!BacklogIsOver(read)) return;
  if (!progress_->withheld().empty()) {
    const auto released = progress_->Release([](std::int64_t) { return true; });
    if (backlog_keys_) backlog_keys_->keys.Release(released);
    dirty_ = true;
    result->more = true;
  } else if (progress_->Join()) {
    dirty_ = true;
    backlog_keys_.reset();
  }
}

void LogOutbox::MarkBacklog(const Read& read) {
  const LogPosition& position = progress_->read().main;
  if (!read.main->full) {
    marker_.reset();
    return;
  }
  if (!marker_ || position.from() > marker_->seq) {
    marker_ = MarkEnd(read.moment);
  }
  const bool far = marker_->seq - position.lowest() > kManySeqs;
  if (!far && Clock::now() < marker_->since + kMoment) return;
  progress_->Split(marker_->seq);
  long_transaction_ = marker_->long_transaction;
  marker_.reset();
}

LogOutbox::Marker LogOutbox::MarkEnd(const LogMoment& moment) {
  const LogPosition& position = progress_->read().main;
  const auto [txid, last] = reader_.TransactionOf(moment, position.lowest());
  const std::int64_t long_by = last - position.lowest();
  const FullXid long_transaction = long_by > kManySeqs ? txid : 0;
  const auto at = [&](std::int64_t seq) { return Marker{seq, Clock::now(), long_transaction}; };
  const std::int64_t end = std::max(last, position.from());
  // More than one zone: it has yet to read late rows, and has looked at none above them. The
  // transaction of those may have more there, if a chunk was read while it was running.
  const bool is_late = position.zones().size() > 1;
  // What comes after a long transaction goes ahead of it, unless that is a longer backlog itself:
  // then to know the keys of the first would cost more than the others gain. So does what stands
  // between its last rows, if a chunk was read a moment before.
  if (long_transaction != 0 && moment.hwm - last <= long_by) {
    return at(is_late && last - position.from() <= kFewSeqs ? position.from() : end);
  }
  return at(is_late && moment.hwm - position.from() < kManySeqs ? end : moment.hwm);
}

bool LogOutbox::CheckPosition(const LogMoment& moment) {
  const LanePosition& position = progress_->read();
  const bool set_back = moment.hwm < position.from();
  const bool may_leave_out =
      position.main.MayLeaveOutRepeats(moment.snapshot) ||
      (position.ahead && position.ahead->position.MayLeaveOutRepeats(moment.snapshot));
  if (!set_back && !may_leave_out) return true;
  if (position.main.zones().empty() && !position.ahead) ThrowSetBack(moment.hwm);
  // What the newest snapshot does not see, none does.
  const XidSnapshot& seen = position.newest();
  const bool empty = any_read_.RunReadOnly({Int64GetDatum(position.from()),
                                            TextValue(seen.ToText()), XidValue(seen.xmax)}) == 0;
  if (empty) return !set_back;
  if (!BoolColumn(0, 1)) {
    BeginAgain();
  } else if (set_back) {
    ThrowSetBack(moment.hwm);
  }
  return true;
}

// What is still out is of rows that are gone: its results are ignored.
void LogOutbox::BeginAgain() {
  next_handle_ = progress_->next();
  progress_.emplace(LanePosition(), next_handle_);
  // What is stored says of no key of the new log that its events are published.
  stored_ = LanePosition();
  backlog_keys_.reset();
  backlog_unstored_ = store_backlog_ = false;
  marker_.reset();
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
        "The sequence was set back.",
        "Run SELECT setval('" + sequence + "', " + from + "), and UPDATE " + relation_name_ +
            " SET txid = DEFAULT, seq = DEFAULT for the events that were emitted meanwhile.");
}

}  // namespace postbox::publisher
