#include "worker/publisher/settlements.h"

#include "worker/publisher/base/registration.h"
#include "worker/publisher/base/time_after.h"

namespace postbox::publisher {
namespace {

constexpr int64 kTurnMs = 10;  // a lane stores parts of its results before others have their turn

}  // namespace

void Settlements::Add(Events events, bool ending) {
  for (EventPointer& event : events) {
    auto* lane = static_cast<Lane*>(event->owner.get());
    if (!lane->results().HasResults()) {
      lanes_.push_back(std::static_pointer_cast<Lane>(event->owner));
    }
    lane->results().Add(std::move(event), leaving_ || ending);
  }
}

Settlements::Stored Settlements::Step(TimestampTz now, Budget* budget) {
  using Progress = LaneResults::Progress;
  Stored stored;
  std::vector<LanePointer> behind;
  for (LanePointer& lane : std::exchange(lanes_, {})) {
    const TimestampTz until = After(GetCurrentTimestamp(), kTurnMs);
    Progress progress = TooLate() ? Progress::kNothing : Progress::kPart;
    bool some = false;
    while (progress == Progress::kPart && !TooLate() && GetCurrentTimestamp() < until) {
      progress = lane->results().Step(now, leaving_, budget);
      some |= progress == Progress::kPart;
    }
    stored.some |= progress == Progress::kPart;
    if (progress == Progress::kAll) {
      stored.lanes.push_back(std::move(lane));
    } else {
      (some ? behind : lanes_).push_back(std::move(lane));
    }
  }
  lanes_.insert(lanes_.end(), behind.begin(), behind.end());
  return stored;
}

TimestampTz Settlements::NextStep() const {
  TimestampTz next = DT_NOEND;
  for (const LanePointer& lane : lanes_) {
    if (!lane->results().WaitsForRest()) next = std::min(next, lane->results().NextStep());
  }
  return next;
}

bool Settlements::TooLate() const {
  return StopRequested() && leave_by_ != 0 && GetCurrentTimestamp() > leave_by_;
}

void Settlements::Drain(TimestampTz now, Budget* budget) {
  for (std::vector<LanePointer> lanes = std::exchange(lanes_, {}); !lanes.empty();) {
    std::erase_if(lanes, [&](const LanePointer& lane) {
      RecordHeartbeat();
      return TooLate() ||
             lane->results().Step(now, leaving_, budget) != LaneResults::Progress::kPart;
    });
  }
}

}  // namespace postbox::publisher
