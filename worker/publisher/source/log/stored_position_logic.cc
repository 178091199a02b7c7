#include "worker/publisher/source/log/stored_position_logic.h"

#include <algorithm>
#include <utility>

namespace postbox::publisher {
namespace {

using std::chrono::milliseconds;

// How far a lane without events may be ahead of its stored position, in seqs: the counts of the
// status read from there on.
constexpr std::int64_t kMostUnstored = 10'000;

// Whether a snapshot first says that everything below `xid` has ended.
bool SaysMore(const LogPosition& settled, const LogPosition& stored, FullXid xid) {
  return stored.top().xmin < xid && settled.top().xmin >= xid;
}

}  // namespace

void StoredPosition::NoteRead(FullXid next_xid) {
  read_since_ = true;
  read_below_ = next_xid;
}

bool StoredPosition::IsOutdated(const LanePosition& settled) const {
  const bool split = settled.ahead || position_.ahead;
  if (read_since_ || split || settled.from() > position_.from() + kMostUnstored) {
    return settled != position_;
  }
  return SaysMore(settled.main, position_.main, read_below_);
}

bool StoredPosition::HasPassedOthers(const LanePosition& settled) const {
  return settled.from() > position_.from() || SaysMore(settled.main, position_.main, passed_below_);
}

std::optional<milliseconds> StoredPosition::DueIn(const LanePosition& settled, bool more,
                                                  Moment now, const Intervals& intervals) const {
  const bool soon = more || IsOutdated(settled);
  if (!soon && !HasPassedOthers(settled)) return std::nullopt;
  const milliseconds interval = soon ? intervals.checkpoint : intervals.maintenance;
  return std::max(milliseconds(0), interval - Between(written_at_, now));
}

void StoredPosition::Write(const LaneProgress& progress, Moment now) {
  before_ = {std::exchange(position_, progress.settled()), next_};
  next_ = progress.first_unsettled();
  written_at_ = now;
  read_since_ = !progress.idle();
}

bool StoredPosition::RollBack() {
  if (!before_) return false;
  position_ = std::move(before_->position);
  next_ = before_->next;
  before_.reset();
  read_since_ = true;
  return true;
}

}  // namespace postbox::publisher
