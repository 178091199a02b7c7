#include "worker/publisher/source/log/backlog_logic.h"

#include <algorithm>
#include <utility>

namespace postbox::publisher {
namespace {

// Of the budget, and of each claim once something has come after it, the backlog gets so much.
constexpr std::size_t MainPart(std::size_t all) { return all - KeptPart(all); }

}  // namespace

// Reading.

Backlog::Read Backlog::ReadNew(const LogMoment& moment, const LogPosition& stored,
                               const Room& room) {
  Read read;
  read.moment = read.main_moment = moment;
  if (progress_.is_split()) {
    ReadParts(stored, room, &read);
  } else {
    read.main = reader_.Read(progress_.read(Part::kMain), moment, room.events, room.budget);
  }
  return read;
}

void Backlog::ReadParts(const LogPosition& stored, const Room& room, Read* read) {
  read->main_moment.hwm = std::min(read->moment.hwm, progress_.read(Part::kAhead).floor());
  const bool ahead_first = std::exchange(ahead_first_, false);
  const std::size_t main_room = ahead_first ? 0 : RoomOfMain(room);
  if (main_room > 0) ReadMain(main_room, room.budget, read);
  // It may be more than was asked for, where a seq is there twice.
  const std::size_t taken = read->main ? read->main->events.size() : 0;
  ReadAhead(room.events - std::min(room.events, taken), stored, room, read);
  // The backlog has its turn again, unless an event waits for more than there may be now.
  if (ahead_first && room.budget->needed() == 0) ahead_first_ = false;
  read->more = read->more || ahead_first || ahead_first_;
}

void Backlog::ReadMain(std::size_t limit, ByteBudget* budget, Read* read) {
  const std::size_t bytes_left = budget->left();
  ByteBudget part(ReadsAhead() ? MainPart(bytes_left) : bytes_left, budget->next());
  if (!ReadBeside(limit, &part, read)) {
    read->main = reader_.Read(progress_.read(Part::kMain), read->main_moment, limit, &part);
  }
  const std::size_t bytes = read->main->Bytes();
  if (bytes > 0) {
    budget->Take(bytes);
    event_bytes_ = bytes / read->main->events.size();
  }
  if (part.needed() > 0) budget->Refuse(part.needed());
}

bool Backlog::ReadBeside(std::size_t limit, ByteBudget* budget, Read* read) {
  if (long_transaction_ == 0) return false;
  LogMoment moment = read->main_moment;
  moment.left_out = long_transaction_;
  const LogPosition& position = progress_.read(Part::kMain);
  LogChunk chunk = reader_.ReadLate(position, moment, limit, budget);
  if (chunk.events.empty()) {
    // The next look is for what comes from now on.
    if (!chunk.full) progress_.Add({}, position.AfterLate(moment));
    return false;
  }
  chunk.full = true;
  read->main = std::move(chunk);
  return true;
}

std::size_t Backlog::RoomOfMain(const Room& room) const {
  const std::size_t of_claim = ReadsAhead() ? MainPart(room.events) : room.events;
  const std::size_t outstanding = progress_.outstanding(Part::kMain);
  if (outstanding == 0) return of_claim;
  std::size_t most = MainPart(room.most_events) / room.lanes;
  if (event_bytes_ > 0) {
    most = std::min(most, MainPart(room.most_bytes) / room.lanes / event_bytes_);
  }
  // While the keys are read, no more than keeps the client busy.
  if (ReadsAhead() && !keys_->complete) most /= 4;
  // Not in crumbs.
  const std::size_t left = most - std::min(most, outstanding);
  return left < KeptPart(most) ? 0 : std::min(left, of_claim);
}

void Backlog::ReadAhead(std::size_t limit, const LogPosition& stored, const Room& room,
                        Read* read) {
  if (IsOver(*read)) {
    if (!progress_.withheld().empty()) return;
    keys_.reset();
  } else if (!KnowKeys(stored, room.may_read_keys, read) || ReleaseSome(stored, read)) {
    return;
  }
  const std::size_t withheld = progress_.withheld().size();
  limit = std::min(limit, limits_.most_withheld - std::min(limits_.most_withheld, withheld));
  if (limit == 0) return;
  const bool refused = room.budget->refused();
  read->ahead = reader_.Read(progress_.read(Part::kAhead), read->moment, limit, room.budget);
  // What the backlog leaves of each claim may be too little for it: the next one begins with it.
  ahead_first_ = read->ahead->events.empty() && room.budget->refused() && !refused;
}

// While the stored position is before events of the backlog, these may be sent again. So nothing of
// their keys may be stored as read ahead.
bool Backlog::IsOver(const Read& read) const {
  return read.main && read.main->IsEnd() && !unstored_;
}

bool Backlog::KnowKeys(const LogPosition& stored, bool may_read, Read* read) {
  const LogPosition& position = progress_.read(Part::kAhead);
  if (!may_read || (keys_ && !keys_->readable)) return false;
  if (!keys_ && progress_.withheld().empty() && read->moment.hwm <= position.from() &&
      position.LateReads(read->moment).empty()) {
    return false;
  }
  reads_keys_ = true;
  if (!keys_) {
    keys_ = KnownKeys{stored, BacklogKeys(limits_.keys_of_range)};
    // Of another worker's, or from before a restart.
    reader_.ReadWithheld(progress_.withheld(), &*keys_);
  }
  const Moment end = After(now_(), limits_.keys_time);
  bool all = !ordered_;
  while (!all && keys_->readable && now_() < end) {
    all = reader_.ReadKeys(read->main_moment, &*keys_);
  }
  reads_keys_ = false;
  keys_->complete = keys_->complete || all;
  read->more = !all && keys_->readable;
  return all;
}

// All keys are known as of this moment: so events may go whose keys the backlog has no more.
// They go before what is read ahead next.
bool Backlog::ReleaseSome(const LogPosition& stored, Read* read) {
  if (!keys_->keys.Forget(stored)) return false;
  const std::vector<std::int64_t> released =
      progress_.Release([&](std::int64_t seq) { return keys_->keys.MayGo(seq); });
  if (released.empty()) return false;
  keys_->keys.Release(released);
  read->more = true;
  return true;
}

// Taking.

bool Backlog::MustWait(const ClaimedEvent& event) const {
  return event.key.size() > kMaxKey || keys_->keys.MustWait(event.key);
}

// Rows with the same seq are indistinguishable when they are read again.
std::vector<bool> Backlog::Withheld(const LogChunk& chunk, Part part) const {
  if (part == Part::kMain || !keys_ || !ordered_) return {};
  std::vector<bool> withheld(chunk.events.size());
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

LaneProgress::Handle Backlog::Add(const LogChunk& chunk, Part part, const LogMoment& moment,
                                  const std::vector<bool>& withheld) {
  unstored_ = unstored_ || (part == Part::kMain && !chunk.events.empty());
  const LaneProgress::Handle first =
      progress_.Add(chunk.Seqs(), chunk.After(progress_.read(part), moment), part);
  for (std::size_t i = 0; i < withheld.size(); ++i) {
    if (!withheld[i]) continue;
    progress_.Withhold(first + i);
    keys_->keys.Withhold(chunk.events[i]->seq, chunk.events[i]->key);
  }
  return first;
}

// Splitting and joining.

bool Backlog::SplitOrJoin(const Read& read) {
  if (!read.main) return false;
  if (!progress_.is_split()) {
    MarkBacklog(read);
    return false;
  }
  store_due_ = store_due_ || (read.main->IsEnd() && unstored_ && IsSettled());
  if (!IsOver(read)) return store_due_;
  if (!progress_.withheld().empty()) {
    const auto released = progress_.Release([](std::int64_t) { return true; });
    if (keys_) keys_->keys.Release(released);
    return true;
  }
  if (progress_.Join()) keys_.reset();
  return false;
}

void Backlog::MarkBacklog(const Read& read) {
  const LogPosition& position = progress_.read(Part::kMain);
  if (!read.main->full) {
    marker_.reset();
    return;
  }
  if (!marker_ || position.from() > marker_->seq) marker_ = MarkEnd(read.moment);
  const bool far = marker_->seq - position.lowest() > limits_.many_seqs;
  if (!far && now_() < After(marker_->since, limits_.patience)) return;
  progress_.Split(marker_->seq);
  long_transaction_ = marker_->long_transaction;
  marker_.reset();
}

Backlog::Marker Backlog::MarkEnd(const LogMoment& moment) {
  const LogPosition& position = progress_.read(Part::kMain);
  const auto [txid, last] = reader_.TransactionOf(moment, position.lowest());
  const std::int64_t long_by = last - position.lowest();
  const FullXid long_transaction = long_by > limits_.many_seqs ? txid : 0;
  const auto at = [&](std::int64_t seq) { return Marker{seq, now_(), long_transaction}; };
  const std::int64_t end = std::max(last, position.from());
  // More than one zone: it has yet to read late rows, and has looked at none above them. The
  // transaction of those may have more there, if a chunk was read while it was running.
  const bool is_late = position.zones().size() > 1;
  // What comes after a long transaction goes ahead of it, unless that is a longer backlog itself:
  // then to know the keys of the first would cost more than the others gain. So does what stands
  // between its last rows, if a chunk was read a moment before.
  if (long_transaction != 0 && moment.hwm - last <= long_by) {
    return at(is_late && last - position.from() <= limits_.few_seqs ? position.from() : end);
  }
  return at(is_late && moment.hwm - position.from() < limits_.many_seqs ? end : moment.hwm);
}

// Storing.

bool Backlog::IsSettled() const {
  return progress_.outstanding(Part::kMain) == 0 && progress_.failed() == 0;
}

void Backlog::Stored() {
  if (IsSettled()) unstored_ = false;
}

bool Backlog::ForgetUnreadKeys() {
  if (!std::exchange(reads_keys_, false)) return false;
  keys_.reset();
  return true;
}

}  // namespace postbox::publisher
