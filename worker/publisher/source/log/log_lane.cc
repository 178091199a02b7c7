#include "worker/publisher/source/log/log_lane.h"

#include "extension/shared/settings.h"
#include "worker/publisher/source/log/log_moment.h"
#include "worker/publisher/source/log/position_check.h"

namespace postbox::publisher {

LogLane::Parts::Parts(LanePosition position, Handle next, Moment stored_at, ChunkReader& reader,
                      bool ordered)
    : progress(position, next),
      backlog(progress, reader, ordered, SteadyNow),
      stored(std::move(position), next, stored_at) {}

LogLane::LogLane(LanePosition position, Handle next, LogReader& reader, bool ordered)
    : reader_(reader),
      ordered_(ordered),
      parts_(std::make_unique<Parts>(std::move(position), next, SteadyNow(), reader, ordered)) {}

void LogLane::BeginStep() {
  handed_out_.clear();
  stored().BeginStep();
}

void LogLane::GiveBack() {
  for (const Handle handle : handed_out_) progress().Fail(handle);
  at_end_ = false;
}

std::optional<Backlog::Read> LogLane::ReadNew(const LogTables& tables, const Backlog::Room& room,
                                              MaybeSent* maybe_sent) {
  const int64 last_seq = LastValue(tables.sequence());
  const SnapshotGuard snapshot;
  const LogMoment moment = TakeMoment(last_seq);
  maybe_sent->NoteDrawn(moment.hwm);
  if (drawn_.hwm != moment.hwm) drawn_ = {moment.hwm, moment.next_xid};
  switch (CheckPosition(progress().read(), moment, reader_, tables)) {
    case PositionFit::kFits:
      break;
    case PositionFit::kEmptied:
      at_end_ = true;
      return std::nullopt;
    case PositionFit::kBeginsAgain:
      BeginAgain();
  }
  Backlog::Read read = backlog().ReadNew(moment, stored().main(), room);
  at_end_ = at_end_ || (read.main && !read.main->full);
  return read;
}

std::int64_t LogLane::ParkedUpTo() const {
  if (at_end_) return std::numeric_limits<std::int64_t>::max();
  using Part = LaneProgress::Part;
  return progress().read(progress().is_split() ? Part::kAhead : Part::kMain).from();
}

// What is still out is of rows that are gone: its results are ignored. What is stored says of no
// key of the new log that its events are published.
void LogLane::BeginAgain() {
  parts_ = std::make_unique<Parts>(LanePosition(), progress().next(), stored().written_at(),
                                   reader_, ordered_);
  stored().MarkUnwritten();
}

std::optional<std::int64_t> LogLane::PublishedUpTo() const {
  if (progress().is_split() || !progress().idle()) return std::nullopt;
  const LogPosition& position = progress().read().main;
  if (position.zones().size() != 1 || position.top().xmin < drawn_.below) return std::nullopt;
  return position.from();
}

std::chrono::milliseconds LogLane::StoreIn(bool more) const {
  const std::chrono::milliseconds checkpoint(settings().checkpoint_interval);
  const std::chrono::milliseconds maintenance =
      std::chrono::seconds(settings().maintenance_interval);
  return stored()
      .DueIn(progress().settled(), more, SteadyNow(), {checkpoint, maintenance})
      .value_or(std::chrono::hours(1));
}

std::int64_t LogLane::SentSinceStored() const {
  return static_cast<std::int64_t>(progress().next() - stored().next() - progress().failed() -
                                   progress().waiting());
}

}  // namespace postbox::publisher
